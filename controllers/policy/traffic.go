package policy

import (
	"fmt"
	"math"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	portero "github.com/portero-dev/portero/api/v1alpha1"
	"github.com/portero-dev/portero/controllers/beats"
)

const (
	// trafficEvery is the least time between two writes of a policy's traffic.
	trafficEvery = time.Minute
	// TrafficWritesPerSecond bounds the writes that only carry traffic, over all policies.
	TrafficWritesPerSecond = 20
)

// trafficStatus is what the sidecars decided, in the status' form: a limit of the spec that nobody reported counts 0.
func trafficStatus(policy *portero.RateLimitPolicy, traffic beats.Traffic, now time.Time) ([]portero.LimitStatus, *portero.Traffic) {
	limits := make([]portero.LimitStatus, 0, len(policy.Spec.Limits))
	total := &portero.Traffic{Window: window(traffic.Span), ObservedTime: metav1.NewTime(now.Truncate(time.Second))}
	for i := range policy.Spec.Limits {
		name := policy.Spec.Limits[i].Name
		counts := traffic.Limits[name]
		limits = append(limits, portero.LimitStatus{
			Name: name, Mode: effectiveMode(policy, &policy.Spec.Limits[i]),
			Allowed: counts.Allowed, Denied: counts.Denied, ShadowDenied: counts.ShadowDenied,
		})
	}
	for _, counts := range traffic.Limits {
		total.Allowed += counts.Allowed
		total.Denied += counts.Denied
		total.ShadowDenied += counts.ShadowDenied
	}
	return limits, total
}

// effectiveMode is the mode that a limit really has: Shadow when it or its policy is.
func effectiveMode(policy *portero.RateLimitPolicy, limit *portero.Limit) portero.Mode {
	if policy.Spec.Mode == portero.ModeShadow || limit.Mode == portero.ModeShadow {
		return portero.ModeShadow
	}
	return portero.ModeEnforce
}

// window is a span in the API's notation, in whole minutes from one minute on.
func window(span time.Duration) portero.Duration {
	if span < time.Minute {
		return portero.Duration(fmt.Sprintf("%ds", max(1, int(span.Seconds()))))
	}
	if span%time.Hour == 0 {
		return portero.Duration(fmt.Sprintf("%dh", int(span.Hours())))
	}
	return portero.Duration(fmt.Sprintf("%dm", int(span.Minutes())))
}

// trafficDue says when the traffic in the status may be written again: 0 for now.
func trafficDue(old *portero.Traffic, now time.Time) time.Duration {
	if old == nil {
		return 0
	}
	return max(0, trafficEvery-now.Sub(old.ObservedTime.Time))
}

// trafficChanged reports whether a figure changed in its first two digits.
func trafficChanged(old, now *portero.RateLimitPolicyStatus) bool {
	if (old.Traffic == nil) != (now.Traffic == nil) || len(old.Limits) != len(now.Limits) {
		return true
	}
	if now.Traffic == nil {
		return false
	}
	if differ(old.Traffic.Allowed, now.Traffic.Allowed) || differ(old.Traffic.Denied, now.Traffic.Denied) ||
		differ(old.Traffic.ShadowDenied, now.Traffic.ShadowDenied) {
		return true
	}
	for i := range now.Limits {
		a, b := &old.Limits[i], &now.Limits[i]
		if a.Name != b.Name || a.Mode != b.Mode || differ(a.Allowed, b.Allowed) || differ(a.Denied, b.Denied) ||
			differ(a.ShadowDenied, b.ShadowDenied) {
			return true
		}
	}
	return false
}

func differ(a, b int64) bool { return twoDigits(a) != twoDigits(b) }

// twoDigits rounds to two significant digits.
func twoDigits(n int64) int64 {
	if n < 100 {
		return n
	}
	unit := int64(math.Pow10(int(math.Log10(float64(n))) - 1))
	return (n + unit/2) / unit * unit
}
