package policy

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	portero "github.com/portero-dev/portero/api/v1alpha1"
	"github.com/portero-dev/portero/controllers/trigger"
)

// Setup registers the controller. The trigger makes it look at policies again.
func (r *Reconciler) Setup(mgr ctrl.Manager, again *trigger.Trigger) error {
	return ctrl.NewControllerManagedBy(mgr).Named("policy").
		WithOptions(controller.Options{MaxConcurrentReconciles: 8}).
		// A deletion that waits for a foreign finalizer is a change of metadata.
		For(&portero.RateLimitPolicy{}, builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, deletionBegan, statusChanged))).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.policiesOf), builder.WithPredicates(podChanged)).
		WatchesRawSource(again.Source()).
		Complete(r)
}

var deletionBegan = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetDeletionTimestamp().IsZero() != e.ObjectNew.GetDeletionTimestamp().IsZero()
	},
}

// statusChanged passes status writes, also our own: a pass over a cache that did not hold the last one yet may have undone it,
// and this is when the cache holds it. Else the pass finds nothing to do.
var statusChanged = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		old, now := e.ObjectOld.(*portero.RateLimitPolicy), e.ObjectNew.(*portero.RateLimitPolicy)
		return !equality.Semantic.DeepEqual(&old.Status, &now.Status)
	},
}

// podChanged passes what a status can tell apart; the cache's transform has cut off all else but the resource version.
var podChanged = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		old, now := e.ObjectOld.(*corev1.Pod).DeepCopy(), e.ObjectNew.(*corev1.Pod).DeepCopy()
		old.ResourceVersion, now.ResourceVersion = "", ""
		return !equality.Semantic.DeepEqual(old, now)
	},
}

// policiesOf lists the policies that select a pod.
func (r *Reconciler) policiesOf(ctx context.Context, pod client.Object) []reconcile.Request {
	return requests(ctx, r.Client, pod.GetNamespace(), func(policy *portero.RateLimitPolicy) bool {
		selector, ok := Selector(policy)
		return ok && selector.Matches(labels.Set(pod.GetLabels()))
	})
}

// Requests names all policies of a namespace, or of all namespaces when it is empty.
func Requests(ctx context.Context, reader client.Reader, namespace string) []reconcile.Request {
	return requests(ctx, reader, namespace, func(*portero.RateLimitPolicy) bool { return true })
}

func requests(ctx context.Context, reader client.Reader, namespace string, fits func(*portero.RateLimitPolicy) bool) []reconcile.Request {
	list := &portero.RateLimitPolicyList{}
	if err := reader.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		logf.FromContext(ctx).Error(err, "List policies", "namespace", namespace)
		return nil
	}
	var out []reconcile.Request
	for i := range list.Items {
		if fits(&list.Items[i]) {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return out
}
