package credentials

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	portero "github.com/portero-dev/portero/api/v1alpha1"
	"github.com/portero-dev/portero/controllers/informers"
	"github.com/portero-dev/portero/controllers/pods"
	"github.com/portero-dev/portero/controllers/trigger"
	"github.com/portero-dev/portero/internal/sidecarenv"
)

// askedIndex finds the workloads and pods that ask for injection; its only value is "true".
const askedIndex = "portero.asked"

// askers lists, for each kind that can ask, an empty list and an empty object.
func askers() map[client.Object]client.ObjectList {
	return map[client.Object]client.ObjectList{
		&appsv1.Deployment{}:  &appsv1.DeploymentList{},
		&appsv1.StatefulSet{}: &appsv1.StatefulSetList{},
		&appsv1.DaemonSet{}:   &appsv1.DaemonSetList{},
		&batchv1.Job{}:        &batchv1.JobList{},
		&batchv1.CronJob{}:    &batchv1.CronJobList{},
		&corev1.Pod{}:         &corev1.PodList{}, // of a workload of another kind, or of none
	}
}

// wanted reports whether the namespace has a policy or something that asks for injection.
func (r *Reconciler) wanted(ctx context.Context, namespace string) (bool, error) {
	policies := &portero.RateLimitPolicyList{}
	if err := r.Client.List(ctx, policies, client.InNamespace(namespace), client.Limit(1), client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("list policies: %w", err)
	}
	if len(policies.Items) > 0 {
		return true, nil
	}
	for object, list := range askers() {
		err := r.Client.List(ctx, list, client.InNamespace(namespace), client.Limit(1), client.UnsafeDisableDeepCopy,
			client.MatchingFields{askedIndex: "true"})
		if err != nil {
			return false, fmt.Errorf("list %T: %w", object, err)
		}
		found := false
		_ = apimeta.EachListItem(list, func(runtime.Object) error { found = true; return nil })
		if found {
			return true, nil
		}
	}
	return false, nil
}

func asked(object client.Object) bool {
	annotations, ok := informers.TemplateAnnotations(object)
	return ok && pods.AskedBy(annotations)
}

// Setup registers the controller and its indexes. The trigger makes it look at namespaces again.
func (r *Reconciler) Setup(mgr ctrl.Manager, again *trigger.Trigger) error {
	ctx := context.Background()
	toNamespace := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, object client.Object) []reconcile.Request {
		return []reconcile.Request{Request(object.GetNamespace())}
	})
	b := ctrl.NewControllerManagedBy(mgr).Named("credentials").
		WithOptions(controller.Options{MaxConcurrentReconciles: 4}).
		Watches(&portero.RateLimitPolicy{}, toNamespace, builder.WithPredicates(createdOrDeleted)).
		Watches(&corev1.Secret{}, toNamespace, builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool {
			return o.GetName() == sidecarenv.CredentialsName
		}))).
		WatchesRawSource(again.Source())
	for object := range askers() {
		err := mgr.GetFieldIndexer().IndexField(ctx, object, askedIndex, func(o client.Object) []string {
			if asked(o) {
				return []string{"true"}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("index %T: %w", object, err)
		}
		b = b.Watches(object, toNamespace, builder.WithPredicates(askingChanged))
	}
	return b.Complete(r)
}

// Request names a namespace.
func Request(namespace string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: namespace}}
}

var createdOrDeleted = predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }}

// askingChanged passes what begins or ends to ask.
var askingChanged = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return asked(e.Object) },
	DeleteFunc: func(e event.DeleteEvent) bool { return asked(e.Object) },
	UpdateFunc: func(e event.UpdateEvent) bool { return asked(e.ObjectOld) != asked(e.ObjectNew) },
}

// Namespaces names all namespaces that have a policy or something that asks for injection.
func Namespaces(ctx context.Context, reader client.Reader) (map[string]bool, error) {
	names := map[string]bool{}
	collect := func(object runtime.Object) error {
		names[object.(client.Object).GetNamespace()] = true
		return nil
	}
	policies := &portero.RateLimitPolicyList{}
	if err := reader.List(ctx, policies, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list policies: %w", err)
	}
	_ = apimeta.EachListItem(policies, collect)
	for object, list := range askers() {
		if err := reader.List(ctx, list, client.UnsafeDisableDeepCopy, client.MatchingFields{askedIndex: "true"}); err != nil {
			return nil, fmt.Errorf("list %T: %w", object, err)
		}
		_ = apimeta.EachListItem(list, collect)
	}
	return names, nil
}
