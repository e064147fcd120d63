package app_test

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	portero "github.com/portero-dev/portero/api/v1alpha1"
	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/keyspace"
	"github.com/portero-dev/portero/internal/sidecarenv"
	"github.com/portero-dev/portero/internal/testenv"
)

var _ = Describe("What a status says of sidecars", func() {
	const instance = keyspace.Instance("truth")
	var (
		namespace string
		policy    *portero.RateLimitPolicy
	)
	BeforeEach(func(ctx SpecContext) {
		namespace = api.CreateNamespace(ctx, nil)
		connectRedis(ctx, api, redisPassword)
		start(api, string(instance))
		policy = createPolicy(ctx, namespace, "checkout")
	})

	pod := func(ctx context.Context, name string, changes ...func(*corev1.Pod)) *corev1.Pod {
		GinkgoHelper()
		out := testenv.NewPod(namespace, name, changes...)
		api.CreatePod(ctx, out)
		return out
	}
	injected := func(ctx context.Context, name string) *corev1.Pod {
		GinkgoHelper()
		return pod(ctx, name, testenv.Asked, testenv.WithSidecar(sidecarenv.ContainerName), testenv.Ready)
	}
	// says waits until Enforced and the summary of pods are as given.
	says := func(ctx context.Context, enforced, summary string) {
		GinkgoHelper()
		Eventually(func(g Gomega) string {
			all := conditions(ctx, policy)(g)
			g.Expect(policy.Status.Pods).NotTo(BeNil())
			return all[portero.ConditionEnforced] + " " + policy.Status.Pods.Summary
		}).WithTimeout(status).Should(Equal(enforced + " " + summary))
	}

	It("goes from no pods over a missing and a silent sidecar to enforced, and back when one falls silent", func(ctx SpecContext) {
		says(ctx, "False/NoPods", "0/0")
		bare := pod(ctx, "bare", testenv.Ready)
		says(ctx, "False/NotInjected", "0/0")
		missed := pod(ctx, "missed", testenv.Asked, testenv.Ready)
		says(ctx, "False/SidecarMissing", "0/1")
		Expect(api.Client.Delete(ctx, missed, client.GracePeriodSeconds(0))).To(Succeed())
		a, b := injected(ctx, "a"), injected(ctx, "b")
		says(ctx, "False/Waiting", "0/2")
		beat(ctx, instance, a, policy, 1)
		says(ctx, "False/Waiting", "1/2")
		beat(ctx, instance, b, policy, 1)
		says(ctx, "True/Enforced", "2/2")
		Expect(policy.Status.EnforcedGeneration).To(Equal(int64(1)))
		Expect(conditions(ctx, policy)(NewGomega(Fail))).To(And(
			HaveKeyWithValue(portero.ConditionReady, "True/Ready"),
			HaveKeyWithValue(portero.ConditionTrafficBypass, "True/PodsUnprotected"),
		))
		Expect(api.Client.Delete(ctx, bare, client.GracePeriodSeconds(0))).To(Succeed())
		Eventually(conditions(ctx, policy)).WithTimeout(soon).Should(HaveKeyWithValue(portero.ConditionTrafficBypass, "False/NoBypass"))
		Eventually(share(ctx, instance, namespace, "checkout")).WithTimeout(soon).Should(Equal(2))

		By("letting both sidecars fall silent")
		Eventually(func(g Gomega) string {
			return conditions(ctx, policy)(g)[portero.ConditionEnforced]
		}).WithTimeout(30 * time.Second).Should(Equal("False/Waiting"))
		Eventually(func(g Gomega) int32 {
			conditions(ctx, policy)(g)
			return *policy.Status.Pods.Unknown
		}).WithTimeout(status).Should(Equal(int32(2)))
	})

	It("believes only a heartbeat of this very policy, this generation and this pod", func(ctx SpecContext) {
		a := injected(ctx, "a")
		beat(ctx, instance, a, policy, 1, func(h *bucketconfig.Heartbeat) { h.Applied[0].UID = "of-another-policy" })
		says(ctx, "False/Waiting", "0/1")
		beat(ctx, instance, a, policy, 1)
		says(ctx, "True/Enforced", "1/1")

		policy.Spec.Limits[0].Bucket.Capacity = 7
		Expect(api.Client.Update(ctx, policy)).To(Succeed())
		says(ctx, "False/Waiting", "0/1")
		Expect(policy.Status.EnforcedGeneration).To(Equal(int64(1)))
		beat(ctx, instance, a, policy, 2)
		says(ctx, "True/Enforced", "1/1")

		By("replacing the pod by another of its name")
		Expect(api.Client.Delete(ctx, a, client.GracePeriodSeconds(0))).To(Succeed())
		injected(ctx, "a")
		says(ctx, "False/Waiting", "0/1")
	})

	It("names the other policies that the same pods enforce", func(ctx SpecContext) {
		overlaps := func(g Gomega) []portero.Overlap {
			g.Expect(api.Client.Get(ctx, client.ObjectKeyFromObject(policy), policy)).To(Succeed())
			return policy.Status.Overlaps
		}
		also := func(names ...string) func(*bucketconfig.Heartbeat) {
			return func(h *bucketconfig.Heartbeat) {
				for _, name := range names {
					h.Applied = append(h.Applied, bucketconfig.AppliedPolicy{Name: name, UID: "of-" + name, Generation: 1})
				}
			}
		}
		a, b := injected(ctx, "a"), injected(ctx, "b")
		beat(ctx, instance, a, policy, 1, also("tenants", "abuse"))
		beat(ctx, instance, b, policy, 1, also("tenants"))
		Eventually(overlaps).WithTimeout(status).Should(Equal([]portero.Overlap{{Policy: "abuse", Pods: 1}, {Policy: "tenants", Pods: 2}}))
		beat(ctx, instance, a, policy, 1)
		beat(ctx, instance, b, policy, 1)
		Eventually(overlaps).WithTimeout(status).Should(BeEmpty())
	})

	It("comes back when something else overwrote it", func(ctx SpecContext) {
		says(ctx, "False/NoPods", "0/0")
		stale := policy.DeepCopy()
		stale.Status.Conditions = stale.Status.Conditions[:1]
		stale.Status.Pods, stale.Status.EnforcedGeneration = nil, 7
		Expect(api.Client.Status().Patch(ctx, stale, client.MergeFrom(policy))).To(Succeed())
		Eventually(func(g Gomega) int64 {
			g.Expect(conditions(ctx, policy)(g)).To(Equal(healthyNoPods))
			g.Expect(policy.Status.Pods).NotTo(BeNil())
			return policy.Status.EnforcedGeneration
		}).WithTimeout(soon).Should(BeZero())
	})

	It("stays enforced while the workload grows by pods whose sidecars already enforce", func(ctx SpecContext) {
		beat(ctx, instance, injected(ctx, "a"), policy, 1)
		says(ctx, "True/Enforced", "1/1")
		enforced := func(g Gomega) string { return conditions(ctx, policy)(g)[portero.ConditionEnforced] }
		Consistently(enforced).WithTimeout(time.Second).Should(Equal("True/Enforced"), "long enough for what was read to be looked at anew")
		unready := pod(ctx, "b", testenv.Asked, testenv.WithSidecar(sidecarenv.ContainerName))
		beat(ctx, instance, unready, policy, 1)
		testenv.Ready(unready)
		Expect(api.Client.Status().Update(ctx, unready)).To(Succeed())
		Consistently(enforced).WithTimeout(2 * time.Second).Should(Equal("True/Enforced"))
		says(ctx, "True/Enforced", "2/2")
	})

	It("tells of fallback, of a record that a sidecar refuses, and of Shadow", func(ctx SpecContext) {
		a := injected(ctx, "a")
		beat(ctx, instance, a, policy, 1, func(h *bucketconfig.Heartbeat) { h.Fallback = true })
		says(ctx, "False/Fallback", "0/1")
		Expect(conditions(ctx, policy)(NewGomega(Fail))).To(And(
			HaveKeyWithValue(portero.ConditionDegraded, "True/Fallback"),
			HaveKeyWithValue(portero.ConditionReady, "True/Ready"),
		))
		beat(ctx, instance, a, policy, 1, func(h *bucketconfig.Heartbeat) {
			h.Applied = nil
			h.Refused = []bucketconfig.RefusedPolicy{{Name: policy.Name, Reason: "schema version 7 is unknown"}}
		})
		says(ctx, "False/SidecarOutdated", "0/1")
		Expect(message(policy, portero.ConditionEnforced)).To(ContainSubstring("a (schema version 7 is unknown)"))

		policy.Spec.Mode = portero.ModeShadow
		Expect(api.Client.Update(ctx, policy)).To(Succeed())
		beat(ctx, instance, a, policy, 2)
		says(ctx, "False/Shadow", "1/1")
		Expect(conditions(ctx, policy)(NewGomega(Fail))).To(HaveKeyWithValue(portero.ConditionReady, "True/Ready"))
	})

	It("tells of sidecars that are too old for what the policy states", func(ctx SpecContext) {
		old := func(h *bucketconfig.Heartbeat) { h.Schema = 1 }
		a := injected(ctx, "a")
		says(ctx, "False/Waiting", "0/1") // only then are heartbeats possible
		beat(ctx, instance, a, policy, 1, old)
		says(ctx, "True/Enforced", "1/1")

		policy.Spec.Limits[0].Overrides = []portero.Override{{Name: "none", Type: portero.OverrideUnlimited}}
		Expect(api.Client.Update(ctx, policy)).To(Succeed())
		says(ctx, "False/SidecarOutdated", "0/1")
		Expect(message(policy, portero.ConditionEnforced)).To(ContainSubstring("if any: a; restart the pods"))
		Expect(policy.Status.EnforcedGeneration).To(Equal(int64(1)))
		beat(ctx, instance, a, policy, 2)
		says(ctx, "True/Enforced", "1/1")
	})

	It("counts what sidecars decide", func(ctx SpecContext) {
		a := injected(ctx, "a")
		counted := func(allowed, denied uint64) func(*bucketconfig.Heartbeat) {
			return func(h *bucketconfig.Heartbeat) {
				h.Applied[0].Limits = []bucketconfig.LimitCounter{{Name: "per-key", Allowed: allowed, Denied: denied}}
			}
		}
		// The first look only remembers: what was decided before it was decided at unknown times.
		beat(ctx, instance, a, policy, 1, counted(1000, 500))
		says(ctx, "True/Enforced", "1/1")
		Expect(policy.Status.Traffic).NotTo(BeNil())
		Expect(policy.Status.Traffic.Denied).To(BeZero())
		Expect(policy.Status.Limits).To(Equal([]portero.LimitStatus{{Name: "per-key", Mode: portero.ModeEnforce}}))
		beat(ctx, instance, a, policy, 1, counted(1030, 512))
		Consistently(func(g Gomega) int64 {
			conditions(ctx, policy)(g)
			return policy.Status.Traffic.Denied
		}).WithTimeout(8*time.Second).Should(BeZero(), "figures are written once a minute")
	})

	It("holds the share while a sidecar is cut off, and lets it grow", func(ctx SpecContext) {
		var all []*corev1.Pod
		for i := range 3 {
			all = append(all, injected(ctx, fmt.Sprintf("pod-%d", i)))
			beat(ctx, instance, all[i], policy, 1)
		}
		says(ctx, "True/Enforced", "3/3")
		Eventually(share(ctx, instance, namespace, "checkout")).WithTimeout(soon).Should(Equal(3))

		beat(ctx, instance, all[0], policy, 1, func(h *bucketconfig.Heartbeat) { h.Fallback = true })
		says(ctx, "False/Fallback", "2/3")
		Expect(api.Client.Delete(ctx, all[2], client.GracePeriodSeconds(0))).To(Succeed())
		says(ctx, "False/Fallback", "1/2")
		Expect(share(ctx, instance, namespace, "checkout")()).To(Equal(3), "a sidecar in fallback still counts on a third")

		beat(ctx, instance, all[0], policy, 1)
		beat(ctx, instance, all[1], policy, 1)
		says(ctx, "True/Enforced", "2/2")
		Eventually(share(ctx, instance, namespace, "checkout")).WithTimeout(soon).Should(Equal(2))
	})
})
