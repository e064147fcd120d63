package policy

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	portero "github.com/portero-dev/portero/api/v1alpha1"
)

// writeStatus is the last phase: it derives the status from the facts, and patches it once, if it says anything new.
func (r *Reconciler) writeStatus(ctx context.Context, p *pass) error {
	old := p.policy.DeepCopy()
	status := &p.policy.Status
	status.ObservedGeneration = p.policy.Generation
	status.LimitsSummary = portero.SummarizeLimits(p.policy.Spec.Limits)
	status.EnforcedGeneration = EnforcedGeneration(&p.facts)
	status.Pods = PodCounts(&p.facts)
	status.Overlaps = Overlaps(&p.facts)
	for _, condition := range Conditions(&p.facts) {
		meta.SetStatusCondition(&status.Conditions, condition)
	}
	// Also where nothing changed: a new leader's figures start empty.
	recordMetrics(p.policy)
	changed := !equality.Semantic.DeepEqual(&old.Status, status)
	traffic := r.setTraffic(p, changed)
	if !changed && !traffic {
		return nil
	}
	if err := r.Client.Status().Patch(ctx, p.policy, client.MergeFrom(old)); err != nil {
		// A policy that was deleted meanwhile needs no status.
		return client.IgnoreNotFound(fmt.Errorf("patch status: %w", err))
	}
	r.recordEvents(old, p.policy)
	return nil
}

// setTraffic puts new figures into the status when their time has come, and otherwise asks to come back. With is true when
// a write happens anyway.
func (r *Reconciler) setTraffic(p *pass, with bool) bool {
	traffic, ok := r.Board.Traffic(p.policy.Namespace, string(p.policy.UID))
	if !ok {
		return false
	}
	now, status := r.Now(), &p.policy.Status
	next := &portero.RateLimitPolicyStatus{}
	next.Limits, next.Traffic = trafficStatus(p.policy, traffic, now)
	p.lookAgain(trafficEvery)
	if !trafficChanged(status, next) {
		return false
	}
	if wait := trafficDue(status.Traffic, now); wait > 0 {
		p.lookAgain(wait)
		return false
	}
	if !with && !r.TrafficWrites.Allow() {
		// Too many at once: each policy waits its turn, and its figures only get newer by it.
		p.lookAgain(trafficEvery / 2)
		return false
	}
	status.Limits, status.Traffic = next.Limits, next.Traffic
	return true
}
