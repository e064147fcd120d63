package policy_test

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	portero "github.com/portero-dev/portero/api/v1alpha1"
	"github.com/portero-dev/portero/controllers/policy"
	"github.com/portero-dev/portero/controllers/problem"
)

// enforcing is a pod whose sidecar enforces generation 3, the one of healthy.
func enforcing(name string, change ...func(*policy.PodFacts)) policy.PodFacts {
	pod := policy.PodFacts{Name: name, UID: "uid-" + name, Asked: true, Injected: true, Ready: true, Fresh: true, Applied: 3, Schema: 2}
	for _, c := range change {
		c(&pod)
	}
	return pod
}

// healthy are the facts of a policy of generation 3 that two pods enforce, with changes.
func healthy(change ...func(*policy.Facts)) *policy.Facts {
	facts := &policy.Facts{Generation: 3, Schema: 1, Pods: []policy.PodFacts{enforcing("a"), enforcing("b")}}
	for _, c := range change {
		c(facts)
	}
	return facts
}

func withPods(pods ...policy.PodFacts) func(*policy.Facts) {
	return func(f *policy.Facts) { f.Pods = pods }
}

func silent(p *policy.PodFacts)       { p.Fresh, p.Applied = false, 0 }
func unready(p *policy.PodFacts)      { p.Ready = false }
func neverAsked(p *policy.PodFacts)   { *p = policy.PodFacts{Name: p.Name, UID: p.UID, Ready: true} }
func noSidecar(p *policy.PodFacts)    { p.Injected = false; silent(p) }
func behind(p *policy.PodFacts)       { p.Applied = 2 }
func old(p *policy.PodFacts)          { p.Schema = 1 }
func inFallback(p *policy.PodFacts)   { p.Fallback = true }
func refusing(p *policy.PodFacts)     { p.Applied, p.Refused = 2, "schema version 7 is unknown" }
func ofSchema2(f *policy.Facts)       { f.Schema = 2 }
func inShadow(f *policy.Facts)        { f.Shadow = true }
func unreachable(f *policy.Facts)     { redisGone(f); f.StoredBefore = true }
func unreachableAnew(f *policy.Facts) { redisGone(f) }

func redisGone(f *policy.Facts) {
	p := problem.New(portero.ReasonRedisUnreachable, "no master answers")
	f.Redis, f.Publish, f.BeatsUnreadable = p, p, p
}

func notConfigured(f *policy.Facts) {
	p := problem.New(portero.ReasonRedisNotConfigured, "the Secret portero-redis-admin is missing")
	f.Redis, f.Publish, f.BeatsUnreadable = p, p, p
}

func notInSecret(f *policy.Facts) {
	f.Credentials = problem.New(portero.ReasonNotInSecret, "too large")
}

func heartbeatsUnreadable(f *policy.Facts) {
	f.BeatsUnreadable = problem.New(portero.ReasonHeartbeatsUnreadable, "the slot's master is away")
}

func invalid(f *policy.Facts) {
	f.Invalid = problem.New(portero.ReasonInvalid, "spec.limits[0]: bad regular expression")
	f.PodsUnknown, f.Pods = true, nil
}

func conflict(f *policy.Facts) {
	f.Credentials = problem.New(portero.ReasonSecretConflict, "the Secret portero-redis is not ours")
}

func publishFailed(f *policy.Facts) {
	f.Publish = problem.New(portero.ReasonPublishFailed, "another manager leads")
}

// summary prints the conditions as Type=Status/Reason, so that a table can state all six in a line.
func summary(f *policy.Facts) string {
	var out []string
	for _, c := range policy.Conditions(f) {
		out = append(out, fmt.Sprintf("%s=%s/%s", c.Type, c.Status, c.Reason))
	}
	return strings.Join(out, " ")
}

var _ = Describe("Conditions", func() {
	DescribeTable("are decided from the facts",
		func(facts *policy.Facts, want string) {
			Expect(summary(facts)).To(Equal(want))
		},
		Entry("all is well", healthy(),
			"Ready=True/Ready Accepted=True/Accepted Published=True/Published Enforced=True/Enforced Degraded=False/Healthy TrafficBypass=False/NoBypass"),
		Entry("Shadow is healthy and never enforced", healthy(inShadow),
			"Ready=True/Ready Accepted=True/Accepted Published=True/Published Enforced=False/Shadow Degraded=False/Healthy TrafficBypass=False/NoBypass"),
		Entry("the spec can't be translated, whatever the pods do", healthy(invalid),
			"Ready=False/Invalid Accepted=False/Invalid Published=False/NotAccepted Enforced=False/NotAccepted Degraded=False/Healthy TrafficBypass=Unknown/NotAccepted"),
		Entry("Redis is not configured", healthy(notConfigured),
			"Ready=False/RedisNotConfigured Accepted=True/Accepted Published=False/RedisNotConfigured Enforced=False/NotPublished Degraded=True/RedisNotConfigured TrafficBypass=False/NoBypass"),
		Entry("Redis went after the policy was stored", healthy(unreachable),
			"Ready=Unknown/HeartbeatsUnreadable Accepted=True/Accepted Published=True/Published Enforced=Unknown/HeartbeatsUnreadable Degraded=True/RedisUnreachable TrafficBypass=False/NoBypass"),
		Entry("Redis went before the policy was stored", healthy(unreachableAnew),
			"Ready=False/RedisUnreachable Accepted=True/Accepted Published=False/RedisUnreachable Enforced=False/NotPublished Degraded=True/RedisUnreachable TrafficBypass=False/NoBypass"),
		Entry("publishing failed", healthy(publishFailed),
			"Ready=False/PublishFailed Accepted=True/Accepted Published=False/PublishFailed Enforced=False/NotPublished Degraded=False/Healthy TrafficBypass=False/NoBypass"),
		Entry("only heartbeats can't be read", healthy(heartbeatsUnreadable),
			"Ready=Unknown/HeartbeatsUnreadable Accepted=True/Accepted Published=True/Published Enforced=Unknown/HeartbeatsUnreadable Degraded=Unknown/HeartbeatsUnreadable TrafficBypass=False/NoBypass"),
		Entry("a foreign Secret stands in the way", healthy(conflict),
			"Ready=True/Ready Accepted=True/Accepted Published=True/Published Enforced=True/Enforced Degraded=True/SecretConflict TrafficBypass=False/NoBypass"),
		Entry("the Secret has no room for the policy", healthy(notInSecret),
			"Ready=True/Ready Accepted=True/Accepted Published=True/Published Enforced=True/Enforced Degraded=True/NotInSecret TrafficBypass=False/NoBypass"),
		Entry("the Secret has no room for the policy, and a sidecar is cut off", healthy(withPods(enforcing("a", inFallback)), notInSecret),
			"Ready=True/Ready Accepted=True/Accepted Published=True/Published Enforced=False/Fallback Degraded=True/Fallback TrafficBypass=False/NoBypass"),
	)

	DescribeTable("Enforced is never a guess",
		func(facts *policy.Facts, status metav1.ConditionStatus, reason portero.ConditionReason, ready metav1.ConditionStatus, message string) {
			got := map[string]metav1.Condition{}
			for _, c := range policy.Conditions(facts) {
				got[c.Type] = c
			}
			enforced := got[string(portero.ConditionEnforced)]
			Expect(enforced.Status).To(Equal(status))
			Expect(enforced.Reason).To(Equal(string(reason)))
			Expect(enforced.Message).To(ContainSubstring(message))
			Expect(got[string(portero.ConditionReady)].Status).To(Equal(ready))
		},
		Entry("no pods", healthy(withPods()), metav1.ConditionFalse, portero.ReasonNoPods, metav1.ConditionTrue, "matches no pod"),
		Entry("none asked", healthy(withPods(enforcing("a", neverAsked))),
			metav1.ConditionFalse, portero.ReasonNotInjected, metav1.ConditionFalse, "portero.dev/inject"),
		Entry("none that asked is ready", healthy(withPods(enforcing("a", unready))),
			metav1.ConditionFalse, portero.ReasonWaiting, metav1.ConditionFalse, "no pod that asked"),
		Entry("one has no sidecar", healthy(withPods(enforcing("a"), enforcing("b", noSidecar))),
			metav1.ConditionFalse, portero.ReasonSidecarMissing, metav1.ConditionFalse, "no sidecar: b;"),
		Entry("a missing sidecar is known without heartbeats", healthy(withPods(enforcing("b", noSidecar)), heartbeatsUnreadable),
			metav1.ConditionFalse, portero.ReasonSidecarMissing, metav1.ConditionFalse, "b"),
		Entry("one is silent", healthy(withPods(enforcing("a"), enforcing("b", silent))),
			metav1.ConditionFalse, portero.ReasonWaiting, metav1.ConditionFalse, "no recent heartbeat from the sidecars of: b"),
		Entry("one applies an older generation", healthy(withPods(enforcing("a"), enforcing("b", behind))),
			metav1.ConditionFalse, portero.ReasonWaiting, metav1.ConditionFalse, "generation 3 yet: b"),
		Entry("one refuses the record", healthy(withPods(enforcing("a"), enforcing("b", refusing))),
			metav1.ConditionFalse, portero.ReasonSidecarOutdated, metav1.ConditionFalse, "b (schema version 7 is unknown)"),
		Entry("one is too old for what the policy states", healthy(ofSchema2, withPods(enforcing("a"), enforcing("b", old, behind))),
			metav1.ConditionFalse, portero.ReasonSidecarOutdated, metav1.ConditionFalse, "keep the last version that they can read, if any: b; restart"),
		Entry("one is old and can express the policy", healthy(withPods(enforcing("a"), enforcing("b", old))),
			metav1.ConditionTrue, portero.ReasonEnforced, metav1.ConditionTrue, "generation 3"),
		Entry("one is old and behind a policy that it could express", healthy(withPods(enforcing("a"), enforcing("b", old, behind))),
			metav1.ConditionFalse, portero.ReasonWaiting, metav1.ConditionFalse, "generation 3 yet: b"),
		Entry("one is in fallback", healthy(withPods(enforcing("a"), enforcing("b", inFallback))),
			metav1.ConditionFalse, portero.ReasonFallback, metav1.ConditionTrue, "b"),
		Entry("fallback comes before Shadow", healthy(inShadow, withPods(enforcing("a", inFallback))),
			metav1.ConditionFalse, portero.ReasonFallback, metav1.ConditionTrue, "a"),
		Entry("a Shadow policy that one sidecar does not apply yet", healthy(inShadow, withPods(enforcing("a", behind))),
			metav1.ConditionFalse, portero.ReasonWaiting, metav1.ConditionFalse, "a"),
		Entry("unready pods and pods that never asked don't hinder",
			healthy(withPods(enforcing("a"), enforcing("b", unready, silent), enforcing("c", neverAsked))),
			metav1.ConditionTrue, portero.ReasonEnforced, metav1.ConditionTrue, "generation 3"),
		Entry("many are named up to three",
			healthy(withPods(enforcing("a", silent), enforcing("b", silent), enforcing("c", silent), enforcing("d", silent), enforcing("e", silent))),
			metav1.ConditionFalse, portero.ReasonWaiting, metav1.ConditionFalse, "a, b, c, 2 more"),
	)

	It("tells of settings of Redis without calling that degraded", func() {
		for _, c := range policy.Conditions(healthy(func(f *policy.Facts) { f.RedisWarning = "maxmemory-policy is allkeys-lru" })) {
			if c.Type == string(portero.ConditionDegraded) {
				Expect(c.Status).To(Equal(metav1.ConditionFalse))
				Expect(c.Message).To(HaveSuffix("but redis should be set otherwise: maxmemory-policy is allkeys-lru"))
			}
		}
	})

	It("tells of pods that traffic reaches without a sidecar", func() {
		Expect(summary(healthy(withPods(enforcing("a"), enforcing("b", neverAsked))))).To(HaveSuffix("TrafficBypass=True/PodsUnprotected"))
	})

	It("gives each condition the generation it speaks of, and keeps messages within the API's bound", func() {
		facts := healthy(func(f *policy.Facts) {
			f.Invalid = problem.New(portero.ReasonInvalid, "%s", strings.Repeat("é", 40000))
		})
		for _, c := range policy.Conditions(facts) {
			Expect(c.ObservedGeneration).To(Equal(int64(3)))
			Expect(len(c.Message)).To(BeNumerically("<=", 32768))
			Expect(strings.ToValidUTF8(c.Message, "?")).To(Equal(c.Message))
		}
	})
})

// sixtyFour are the first of p00, p01 and so on.
func sixtyFour() (all []portero.Overlap) {
	for i := range 64 {
		all = append(all, portero.Overlap{Policy: fmt.Sprintf("p%02d", i), Pods: 1})
	}
	return all
}

var _ = Describe("Counts", func() {
	number := func(n *int32) string {
		if n == nil {
			return "-"
		}
		return fmt.Sprint(*n)
	}
	DescribeTable("of pods",
		func(facts *policy.Facts, want string) {
			c := policy.PodCounts(facts)
			Expect(c).NotTo(BeNil())
			Expect(fmt.Sprintf("%s matched=%s unprotected=%s injected=%s enforcing=%s fallback=%s unknown=%s", c.Summary, number(c.Matched),
				number(c.Unprotected), number(c.Injected), number(c.Enforcing), number(c.Fallback), number(c.Unknown))).To(Equal(want))
		},
		Entry("none", healthy(withPods()), "0/0 matched=0 unprotected=0 injected=0 enforcing=0 fallback=0 unknown=0"),
		Entry("all enforce", healthy(), "2/2 matched=2 unprotected=0 injected=2 enforcing=2 fallback=0 unknown=0"),
		Entry("one of each", healthy(withPods(enforcing("a"), enforcing("b", silent), enforcing("c", inFallback), enforcing("d", behind),
			enforcing("e", noSidecar), enforcing("f", neverAsked))),
			"1/5 matched=6 unprotected=1 injected=4 enforcing=1 fallback=1 unknown=1"),
		Entry("what can't be read is absent", healthy(heartbeatsUnreadable),
			"?/2 matched=2 unprotected=0 injected=2 enforcing=- fallback=- unknown=-"),
	)

	It("of pods are absent when the selector can't be read", func() {
		Expect(policy.PodCounts(healthy(invalid))).To(BeNil())
	})

	DescribeTable("of policies on the same pods",
		func(change func(*policy.Facts), want []portero.Overlap) {
			facts := healthy(withPods(enforcing("a"), enforcing("b"), enforcing("c")))
			facts.Pods[0].Others, facts.Pods[1].Others = []string{"tenants", "abuse"}, []string{"tenants"}
			change(facts)
			Expect(policy.Overlaps(facts)).To(Equal(want))
		},
		Entry("by name", func(*policy.Facts) {}, []portero.Overlap{{Policy: "abuse", Pods: 1}, {Policy: "tenants", Pods: 2}}),
		Entry("not where this one does not apply", func(f *policy.Facts) { f.Pods[0].Applied = 0 }, []portero.Overlap{{Policy: "tenants", Pods: 1}}),
		Entry("none where heartbeats can't be read", heartbeatsUnreadable, nil),
		Entry("no more than the API takes", func(f *policy.Facts) {
			f.Pods = f.Pods[:1]
			f.Pods[0].Others = nil
			for i := range 100 {
				f.Pods[0].Others = append(f.Pods[0].Others, fmt.Sprintf("p%02d", i))
			}
		}, sixtyFour()),
	)

	DescribeTable("of generations",
		func(facts *policy.Facts, want int64) { Expect(policy.EnforcedGeneration(facts)).To(Equal(want)) },
		Entry("all apply it", healthy(), int64(3)),
		Entry("one is behind", healthy(withPods(enforcing("a"), enforcing("b", behind))), int64(2)),
		Entry("one is silent", healthy(withPods(enforcing("a"), enforcing("b", silent))), int64(0)),
		Entry("one has no sidecar", healthy(withPods(enforcing("a"), enforcing("b", noSidecar))), int64(0)),
		Entry("heartbeats can't be read", healthy(heartbeatsUnreadable), int64(0)),
		Entry("nobody asked", healthy(withPods()), int64(0)),
		Entry("the last good version of a spec that is not accepted", healthy(func(f *policy.Facts) {
			f.Generation, f.Invalid = 4, problem.New(portero.ReasonInvalid, "bad")
		}), int64(3)),
	)
})
