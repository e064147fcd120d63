package policy

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	portero "github.com/portero-dev/portero/api/v1alpha1"
	"github.com/portero-dev/portero/controllers/pods"
	"github.com/portero-dev/portero/controllers/problem"
	"github.com/portero-dev/portero/controllers/publisher"
	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/translator"
)

// translate makes the record, or tells why the spec can't be one.
func (r *Reconciler) translate(_ context.Context, p *pass) error {
	p.facts.Generation = p.policy.Generation
	p.facts.Shadow = !slices.ContainsFunc(p.policy.Spec.Limits, func(limit portero.Limit) bool {
		return effectiveMode(p.policy, &limit) == portero.ModeEnforce
	})
	record, err := translator.Translate(p.policy)
	var refused *translator.Error
	switch {
	case errors.As(err, &refused):
		p.facts.Invalid = &problem.Problem{Reason: refused.Reason, Message: refused.Error(), Cause: err}
		return nil // the author must act: trying again gives the same
	case err != nil:
		p.facts.Invalid = problem.Of(err, portero.ReasonInvalid)
		return err
	}
	p.record = record
	p.facts.Schema = record.Schema
	if older, ok := bucketconfig.Schema1(record); ok {
		p.facts.Schema = older.Schema
	}
	return nil
}

// selectPods finds the pods that the policy concerns.
func (r *Reconciler) selectPods(ctx context.Context, p *pass) error {
	selector, readable := Selector(p.policy)
	if !readable {
		p.facts.PodsUnknown = true // the translator tells
		return nil
	}
	list := &corev1.PodList{}
	err := r.Client.List(ctx, list, client.InNamespace(p.policy.Namespace), client.MatchingLabelsSelector{Selector: selector},
		client.UnsafeDisableDeepCopy)
	if err != nil {
		p.facts.PodsUnknown = true
		return err
	}
	for i := range list.Items {
		pod := &list.Items[i]
		if !pods.Counts(pod) {
			continue
		}
		p.facts.Pods = append(p.facts.Pods, PodFacts{
			Name: pod.Name, UID: string(pod.UID), Asked: pods.Asked(pod), Injected: pods.Injected(pod), Ready: pods.Ready(pod),
		})
	}
	slices.SortFunc(p.facts.Pods, func(a, b PodFacts) int { return cmp.Compare(a.Name, b.Name) })
	return nil
}

// Selector is the policy's selector in the form that lists understand; ok is false for one that means nothing, as in a
// policy that was stored before there was a rule against it.
func Selector(policy *portero.RateLimitPolicy) (selector labels.Selector, ok bool) {
	out := &metav1.LabelSelector{MatchLabels: make(map[string]string, len(policy.Spec.Selector.MatchLabels))}
	for key, value := range policy.Spec.Selector.MatchLabels {
		out.MatchLabels[key] = string(value)
	}
	for _, e := range policy.Spec.Selector.MatchExpressions {
		requirement := metav1.LabelSelectorRequirement{Key: e.Key, Operator: metav1.LabelSelectorOperator(e.Operator)}
		for _, value := range e.Values {
			requirement.Values = append(requirement.Values, string(value))
		}
		out.MatchExpressions = append(out.MatchExpressions, requirement)
	}
	selector, err := metav1.LabelSelectorAsSelector(out)
	return selector, err == nil
}

// readHeartbeats adds what the pods' sidecars last reported.
func (r *Reconciler) readHeartbeats(ctx context.Context, p *pass) error {
	var sidecars []string
	for _, pod := range p.facts.concerned() {
		if pod.Injected {
			sidecars = append(sidecars, pod.UID)
		}
	}
	snapshot := r.Board.Read(ctx, p.policy.Namespace, sidecars)
	p.facts.BeatsUnreadable = problem.Of(snapshot.Err, portero.ReasonHeartbeatsUnreadable)
	for i := range p.facts.Pods {
		pod := &p.facts.Pods[i]
		beat, ok := snapshot.Beats[pod.UID]
		if !ok || !beat.Fresh() {
			continue
		}
		pod.Fresh, pod.Fallback, pod.Schema = true, beat.Fallback, beat.Schema
		if beat.Err != nil {
			pod.Refused = beat.Err.Error()
		}
		for _, applied := range beat.Applied {
			if applied.UID == string(p.policy.UID) {
				pod.Applied = applied.Generation
			} else {
				pod.Others = append(pod.Others, applied.Name)
			}
		}
		for _, refused := range beat.Refused {
			if refused.Name == p.policy.Name {
				pod.Refused = refused.Reason
			}
		}
	}
	return nil
}

// When to publish again. Redis can pass every look and still refuse a publication, as for a slot that nobody serves, and no
// change of its state tells when that ends. While it is known to be away such a change is likely, so the wait is longer.
const (
	publishAgain     = 5 * time.Second
	publishAgainAway = time.Minute
)

// publish makes Redis hold the record, or keep the last good one of a spec that can't be translated. It comes after the
// heartbeats, so that record and share travel together.
func (r *Reconciler) publish(ctx context.Context, p *pass) error {
	p.facts.StoredBefore = storedBefore(p.policy)
	update := publisher.Update{Policy: publisher.Policy{Name: p.policy.Name, UID: string(p.policy.UID), Record: p.record}}
	update.Sidecars, update.Hold = share(&p.facts)
	err := r.Publisher.Publish(ctx, p.policy.Namespace, update)
	p.facts.Publish = problem.Of(err, portero.ReasonPublishFailed)
	p.facts.RedisWarning = r.RedisWarning()
	p.facts.Redis, p.facts.Credentials = r.Redis(), r.Credentials(p.policy.Namespace, p.policy.Name)
	switch {
	case p.facts.Publish == nil:
	case p.facts.Redis == nil:
		p.lookAgain(publishAgain)
	default:
		p.lookAgain(publishAgainAway)
	}
	p.facts.Publish = sameCause(p.facts.Publish, p.facts.Redis)
	p.facts.BeatsUnreadable = sameCause(p.facts.BeatsUnreadable, p.facts.Redis)
	return ignoreProblems(err)
}

// sameCause words a failed call as the state of Redis that explains it: the call's own error names another address and
// another timeout each time, and each would be a write.
func sameCause(call, redis *problem.Problem) *problem.Problem {
	if call != nil && redis != nil && call.Reason == redis.Reason {
		return redis
	}
	return call
}

// share is by how many sidecars a limit is to be divided when Redis is away. It must be held while a sidecar is cut off:
// that one would keep its old, larger part, and the others must not grow theirs beside it.
func share(f *Facts) (sidecars int, hold bool) {
	if f.PodsUnknown {
		return 0, true
	}
	hold = f.BeatsUnreadable != nil
	for _, pod := range f.concerned() {
		if pod.Injected {
			sidecars++
			hold = hold || !pod.Fresh || pod.Fallback
		}
	}
	return max(sidecars, 1), hold
}

// storedBefore reads the status: it outlives a restart of the manager in an outage.
func storedBefore(policy *portero.RateLimitPolicy) bool {
	for i := range policy.Status.Conditions {
		if c := &policy.Status.Conditions[i]; c.Type == string(portero.ConditionPublished) {
			return c.Status == metav1.ConditionTrue && c.ObservedGeneration == policy.Generation
		}
	}
	return false
}
