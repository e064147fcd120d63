package redislink

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Setup registers the controller that follows the admin Secret.
func (l *Link) Setup(mgr ctrl.Manager) error {
	key := types.NamespacedName{Namespace: l.SystemNamespace, Name: AdminSecret}
	isAdminSecret := predicate.NewPredicateFuncs(func(o client.Object) bool { return client.ObjectKeyFromObject(o) == key })
	// A Secret that does not exist makes no event, and its absence has to be told.
	once := source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		queue.Add(reconcile.Request{NamespacedName: key})
		return nil
	})
	return ctrl.NewControllerManagedBy(mgr).Named("redis").
		For(&corev1.Secret{}, builder.WithPredicates(isAdminSecret)).
		WatchesRawSource(once).
		Complete(l)
}
