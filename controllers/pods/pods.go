// Package pods says what the manager needs to know of a pod, and cuts everything else out of the cache.
//
// The policy and the credentials controllers import it. It must stay free of Redis and of clients.
package pods

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	portero "github.com/portero-dev/portero/api/v1alpha1"
	"github.com/portero-dev/portero/internal/sidecarenv"
)

// Asked reports whether the pod asked for injection.
func Asked(pod *corev1.Pod) bool { return AskedBy(pod.Annotations) }

// AskedBy reports whether annotations, of a pod or of a pod template, ask for injection.
func AskedBy(annotations map[string]string) bool {
	return annotations[portero.InjectAnnotation] == "true"
}

// Injected reports whether the pod has the sidecar: an init container of its name that keeps running.
func Injected(pod *corev1.Pod) bool {
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if c.Name == sidecarenv.ContainerName {
			return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
		}
	}
	return false
}

// Ready reports whether the pod's Ready condition is true.
func Ready(pod *corev1.Pod) bool {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// Counts reports whether the pod counts for a policy. A finished pod serves nobody, and one that is being deleted has
// left its Services: counting it would make every rollout look like a fault.
func Counts(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// Transform is the cache's transform for pods: it keeps names, labels, Portero's annotations, container names and
// readiness. Informers can't select by annotation, so the cache holds every pod of the cluster: a few hundred bytes each
// instead of many thousand.
func Transform(in any) (any, error) {
	pod, ok := in.(*corev1.Pod)
	if !ok {
		return in, nil // a tombstone
	}
	kept := &corev1.Pod{
		TypeMeta:   pod.TypeMeta,
		ObjectMeta: TrimMeta(pod.ObjectMeta),
		Spec: corev1.PodSpec{
			InitContainers: trimContainers(pod.Spec.InitContainers),
			Containers:     trimContainers(pod.Spec.Containers),
		},
		Status: corev1.PodStatus{Phase: pod.Status.Phase},
	}
	kept.Labels = pod.Labels
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodReady {
			kept.Status.Conditions = []corev1.PodCondition{{Type: c.Type, Status: c.Status}}
		}
	}
	return kept, nil
}

// TrimMeta keeps what identifies an object, its deletion, and Portero's own annotations.
func TrimMeta(meta metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name:              meta.Name,
		Namespace:         meta.Namespace,
		UID:               meta.UID,
		ResourceVersion:   meta.ResourceVersion,
		Generation:        meta.Generation,
		CreationTimestamp: meta.CreationTimestamp,
		DeletionTimestamp: meta.DeletionTimestamp,
		Annotations:       TrimAnnotations(meta.Annotations),
	}
}

// TrimAnnotations keeps the annotations that the controllers read.
func TrimAnnotations(annotations map[string]string) map[string]string {
	value, ok := annotations[portero.InjectAnnotation]
	if !ok {
		return nil
	}
	return map[string]string{portero.InjectAnnotation: value}
}

func trimContainers(in []corev1.Container) []corev1.Container {
	if len(in) == 0 {
		return nil
	}
	out := make([]corev1.Container, len(in))
	for i := range in {
		out[i] = corev1.Container{Name: in[i].Name, RestartPolicy: in[i].RestartPolicy}
	}
	return out
}
