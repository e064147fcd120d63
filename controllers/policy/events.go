package policy

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	portero "github.com/portero-dev/portero/api/v1alpha1"
)

// told are the conditions whose changes become Events: Ready only sums the others up.
var told = []portero.ConditionType{
	portero.ConditionAccepted, portero.ConditionPublished, portero.ConditionEnforced, portero.ConditionDegraded, portero.ConditionTrafficBypass,
}

// recordEvents tells of each condition that changed, once.
func (r *Reconciler) recordEvents(old, now *portero.RateLimitPolicy) {
	for _, conditionType := range told {
		before := meta.FindStatusCondition(old.Status.Conditions, string(conditionType))
		after := meta.FindStatusCondition(now.Status.Conditions, string(conditionType))
		if after == nil || !worthTelling(before, after) {
			continue
		}
		eventType := corev1.EventTypeNormal
		if warning(after) {
			eventType = corev1.EventTypeWarning
		}
		r.Recorder.Eventf(now, nil, eventType, after.Reason, string(conditionType), "%s is %s: %s", conditionType, after.Status, after.Message)
	}
}

// worthTelling is true for a change, and for a condition that begins its life as a fault.
func worthTelling(before, after *metav1.Condition) bool {
	if before == nil {
		return warning(after)
	}
	return before.Status != after.Status || before.Reason != after.Reason
}

// warning reports whether somebody should look: a fault, not a state that passes or that was asked for.
func warning(c *metav1.Condition) bool {
	switch portero.ConditionReason(c.Reason) {
	case portero.ReasonNoPods, portero.ReasonWaiting, portero.ReasonShadow, portero.ReasonNotAccepted, portero.ReasonNotPublished,
		portero.ReasonHeartbeatsUnreadable:
		return false // told by another condition, or nothing is wrong yet
	}
	switch portero.ConditionType(c.Type) {
	case portero.ConditionDegraded, portero.ConditionTrafficBypass:
		return c.Status == metav1.ConditionTrue
	default:
		return c.Status != metav1.ConditionTrue
	}
}
