package policy

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	portero "github.com/portero-dev/portero/api/v1alpha1"
	"github.com/portero-dev/portero/controllers/problem"
)

// verdict is the status of one condition.
type verdict struct {
	status  metav1.ConditionStatus
	reason  portero.ConditionReason
	message string
}

func yes(reason portero.ConditionReason, format string, args ...any) verdict {
	return verdict{metav1.ConditionTrue, reason, fmt.Sprintf(format, args...)}
}

func no(reason portero.ConditionReason, format string, args ...any) verdict {
	return verdict{metav1.ConditionFalse, reason, fmt.Sprintf(format, args...)}
}

func unknown(reason portero.ConditionReason, format string, args ...any) verdict {
	return verdict{metav1.ConditionUnknown, reason, fmt.Sprintf(format, args...)}
}

// Conditions decides all six conditions. The result has no transition times: meta.SetStatusCondition adds them.
// Messages name no figure that changes by itself, so that a steady state writes nothing.
func Conditions(f *Facts) []metav1.Condition {
	accepted := decideAccepted(f)
	published := decidePublished(f)
	enforced := decideEnforced(f, accepted, published)
	decided := []struct {
		conditionType portero.ConditionType
		verdict       verdict
	}{
		{portero.ConditionReady, decideReady(accepted, published, enforced)},
		{portero.ConditionAccepted, accepted},
		{portero.ConditionPublished, published},
		{portero.ConditionEnforced, enforced},
		{portero.ConditionDegraded, decideDegraded(f)},
		{portero.ConditionTrafficBypass, decideTrafficBypass(f)},
	}
	out := make([]metav1.Condition, 0, len(decided))
	for _, d := range decided {
		out = append(out, metav1.Condition{
			Type:               string(d.conditionType),
			Status:             d.verdict.status,
			Reason:             string(d.verdict.reason),
			Message:            truncate(d.verdict.message),
			ObservedGeneration: f.Generation,
		})
	}
	return out
}

func decideAccepted(f *Facts) verdict {
	if f.Invalid != nil {
		return no(f.Invalid.Reason, "%s", f.Invalid.Message)
	}
	return yes(portero.ReasonAccepted, "the policy can be enforced as written")
}

func decidePublished(f *Facts) verdict {
	switch {
	case f.Invalid != nil:
		return no(portero.ReasonNotAccepted, "a spec that is not accepted is not published; the last accepted version, if any, stays in force")
	case f.Publish == nil:
		return yes(portero.ReasonPublished, "the record of generation %d is in Redis", f.Generation)
	case f.Publish.Reason == portero.ReasonRedisUnreachable && f.StoredBefore:
		// What was stored is not unstored by an outage, and sidecars keep enforcing it. Degraded tells of the outage.
		return yes(portero.ReasonPublished, "the record of generation %d was stored in Redis, which can't be reached now", f.Generation)
	default:
		return no(f.Publish.Reason, "%s", f.Publish.Message)
	}
}

// decideEnforced asks one question after the other; the first that finds a hindrance answers.
func decideEnforced(f *Facts, accepted, published verdict) verdict {
	if accepted.status != metav1.ConditionTrue {
		return no(portero.ReasonNotAccepted, "the spec is not accepted: %s", accepted.message)
	}
	if published.status != metav1.ConditionTrue {
		return no(portero.ReasonNotPublished, "the policy is not published: %s", published.message)
	}
	for _, check := range []func(*Facts) *verdict{checkPodsAsked, checkSidecars, checkHeartbeats, checkFallback} {
		if v := check(f); v != nil {
			return *v
		}
	}
	if f.Shadow {
		return no(portero.ReasonShadow, "the policy or each of its limits is in mode Shadow: verdicts are counted, nothing is refused")
	}
	return yes(portero.ReasonEnforced, "every ready pod that asked for injection enforces generation %d", f.Generation)
}

func checkPodsAsked(f *Facts) *verdict {
	asked, concerned := f.asked(), len(f.concerned())
	var v verdict
	switch {
	case len(f.Pods) == 0:
		v = no(portero.ReasonNoPods, "the selector matches no pod of the namespace")
	case asked == 0:
		v = no(portero.ReasonNotInjected, "pods match, but none has the annotation %s: \"true\"; add it to the pod template of the workload",
			portero.InjectAnnotation)
	case concerned == 0:
		v = no(portero.ReasonWaiting, "no pod that asked for injection is ready yet")
	default:
		return nil
	}
	return &v
}

func checkSidecars(f *Facts) *verdict {
	missing := names(f.concerned(), func(p *PodFacts) bool { return !p.Injected })
	if missing == "" {
		return nil
	}
	v := no(portero.ReasonSidecarMissing,
		"pods asked for injection and have no sidecar: %s; their annotation %s says why, or they were created while no webhook answered: restart them",
		missing, portero.StatusAnnotation)
	return &v
}

func checkHeartbeats(f *Facts) *verdict {
	if f.BeatsUnreadable != nil {
		v := unknown(portero.ReasonHeartbeatsUnreadable, "the sidecars' heartbeats can't be read: %s", f.BeatsUnreadable.Message)
		return &v
	}
	concerned := f.concerned()
	if refused := names(concerned, func(p *PodFacts) bool { return p.Fresh && p.Refused != "" }); refused != "" {
		v := no(portero.ReasonSidecarOutdated, "sidecars could not use the policy: %s; restart the pods to update their sidecars", refused)
		return &v
	}
	if silent := names(concerned, func(p *PodFacts) bool { return !p.Fresh }); silent != "" {
		v := no(portero.ReasonWaiting, "no recent heartbeat from the sidecars of: %s", silent)
		return &v
	}
	outdated := names(concerned, func(p *PodFacts) bool { return p.Applied != f.Generation && p.Schema < f.Schema })
	if outdated != "" {
		v := no(portero.ReasonSidecarOutdated,
			"sidecars are too old for what the policy states and keep the last version that they can read, if any: %s; restart the pods to update their sidecars", outdated)
		return &v
	}
	if behind := names(concerned, func(p *PodFacts) bool { return p.Applied != f.Generation }); behind != "" {
		v := no(portero.ReasonWaiting, "sidecars do not apply generation %d yet: %s", f.Generation, behind)
		return &v
	}
	return nil
}

func checkFallback(f *Facts) *verdict {
	local := names(f.concerned(), func(p *PodFacts) bool { return p.Fallback })
	if local == "" {
		return nil
	}
	v := no(portero.ReasonFallback, "sidecars decide locally, because they can't reach some of Redis: %s", local)
	return &v
}

// decideReady summarizes. Fallback, Shadow and a policy without pods are no hindrance: the policy was taken over by
// everyone that it concerns.
func decideReady(accepted, published, enforced verdict) verdict {
	for _, v := range []verdict{accepted, published} {
		if v.status != metav1.ConditionTrue {
			return no(v.reason, "%s", v.message)
		}
	}
	switch enforced.reason {
	case portero.ReasonEnforced, portero.ReasonShadow, portero.ReasonFallback:
		return yes(portero.ReasonReady, "accepted, published, and applied by every sidecar that it concerns")
	case portero.ReasonNoPods:
		return yes(portero.ReasonReady, "accepted and published; no pod matches")
	default:
		return enforced
	}
}

func decideDegraded(f *Facts) verdict {
	// A policy that is not in the Secret is harmless until Redis is away, so it must not hide that.
	harmless := f.Credentials != nil && f.Credentials.Reason == portero.ReasonNotInSecret
	for _, p := range []*problem.Problem{f.Redis, f.Credentials} {
		if p != nil && !(harmless && p == f.Credentials) {
			return yes(p.Reason, "%s", p.Message)
		}
	}
	if f.BeatsUnreadable != nil {
		return unknown(portero.ReasonHeartbeatsUnreadable, "the sidecars' heartbeats can't be read: %s", f.BeatsUnreadable.Message)
	}
	if v := checkFallback(f); v != nil {
		return yes(v.reason, "%s", v.message)
	}
	if harmless {
		return yes(f.Credentials.Reason, "%s", f.Credentials.Message)
	}
	if f.RedisWarning != "" {
		return no(portero.ReasonHealthy, "no sidecar is known to decide locally; but redis should be set otherwise: %s", f.RedisWarning)
	}
	return no(portero.ReasonHealthy, "no sidecar is known to decide locally")
}

func decideTrafficBypass(f *Facts) verdict {
	if f.PodsUnknown {
		return unknown(portero.ReasonNotAccepted, "the selector can't be read")
	}
	var unprotected []*PodFacts
	for i := range f.Pods {
		if !f.Pods[i].Asked {
			unprotected = append(unprotected, &f.Pods[i])
		}
	}
	if len(unprotected) > 0 {
		return yes(portero.ReasonPodsUnprotected, "pods match and never asked for injection: %s", names(unprotected, nil))
	}
	return no(portero.ReasonNoBypass, "no way around the sidecars is known")
}

// maxNames bounds the pods that a message names: enough to start looking.
const maxNames = 3

// names lists the pods that fit, sorted as given, or is empty when none does.
func names(pods []*PodFacts, fits func(*PodFacts) bool) string {
	var found []string
	more := 0
	for _, p := range pods {
		switch {
		case fits != nil && !fits(p):
		case len(found) < maxNames:
			found = append(found, describe(p))
		default:
			more++
		}
	}
	if more > 0 {
		found = append(found, fmt.Sprintf("%d more", more))
	}
	return strings.Join(found, ", ")
}

func describe(p *PodFacts) string {
	if p.Refused != "" {
		return p.Name + " (" + p.Refused + ")"
	}
	return p.Name
}

// maxMessage keeps messages far below the API's bound of 32768.
const maxMessage = 1024

func truncate(s string) string {
	if len(s) <= maxMessage {
		return s
	}
	return strings.ToValidUTF8(s[:maxMessage], "") + "…"
}
