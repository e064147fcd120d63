// Package informers says what the manager's cache holds: little of each object, and only the Secrets it may see.
//
// The manager's wiring and tests import it.
package informers

import (
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/portero-dev/portero/controllers/pods"
	"github.com/portero-dev/portero/internal/sidecarenv"
)

// Options are the cache's: trimmed pods and workloads, of Secrets those named portero-redis anywhere and all of the
// system namespace.
func Options(systemNamespace string) cache.Options {
	trimmed := cache.ByObject{Transform: Trim}
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}:         {Transform: pods.Transform},
			&appsv1.Deployment{}:  trimmed,
			&appsv1.StatefulSet{}: trimmed,
			&appsv1.DaemonSet{}:   trimmed,
			&batchv1.Job{}:        trimmed,
			&batchv1.CronJob{}:    trimmed,
			&corev1.Secret{}: {Namespaces: map[string]cache.Config{
				cache.AllNamespaces: {FieldSelector: fields.OneTermEqualSelector("metadata.name", sidecarenv.CredentialsName)},
				systemNamespace:     {FieldSelector: fields.Everything()},
			}},
		},
	}
}

// TemplateAnnotations are the annotations of the object's pod template, or of the object when it is a pod; ok is false for
// anything else.
func TemplateAnnotations(object any) (annotations map[string]string, ok bool) {
	if pod, isPod := object.(*corev1.Pod); isPod {
		return pod.Annotations, true
	}
	template := templateOf(object)
	if template == nil {
		return nil, false
	}
	return template.Annotations, true
}

func templateOf(object any) *corev1.PodTemplateSpec {
	switch o := object.(type) {
	case *appsv1.Deployment:
		return &o.Spec.Template
	case *appsv1.StatefulSet:
		return &o.Spec.Template
	case *appsv1.DaemonSet:
		return &o.Spec.Template
	case *batchv1.Job:
		return &o.Spec.Template
	case *batchv1.CronJob:
		return &o.Spec.JobTemplate.Spec.Template
	default:
		return nil
	}
}

// Trim is the cache's transform for workloads: it keeps what identifies one and whether its template asks for injection.
func Trim(in any) (any, error) {
	template := templateOf(in)
	if template == nil {
		return in, nil // a tombstone
	}
	var out client.Object
	switch in.(type) {
	case *appsv1.Deployment:
		out = &appsv1.Deployment{}
	case *appsv1.StatefulSet:
		out = &appsv1.StatefulSet{}
	case *appsv1.DaemonSet:
		out = &appsv1.DaemonSet{}
	case *batchv1.Job:
		out = &batchv1.Job{}
	default:
		out = &batchv1.CronJob{}
	}
	templateOf(out).Annotations = pods.TrimAnnotations(template.Annotations)
	copyMeta(out, in.(client.Object))
	return out, nil
}

func copyMeta(to, from client.Object) {
	to.SetName(from.GetName())
	to.SetNamespace(from.GetNamespace())
	to.SetUID(from.GetUID())
	to.SetResourceVersion(from.GetResourceVersion())
	to.SetDeletionTimestamp(from.GetDeletionTimestamp())
}
