package testenv

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portero-dev/portero/api/v1alpha1"
)

// NewPolicy returns a valid policy as a user would write it: every pod of the namespace, one limit of 100 tokens that
// refills by 10 a second for each X-Api-Key. The changes are made in their order.
func NewPolicy(namespace, name string, changes ...func(*v1alpha1.RateLimitPolicy)) *v1alpha1.RateLimitPolicy {
	policy := &v1alpha1.RateLimitPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "RateLimitPolicy"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.RateLimitPolicySpec{
			Limits: []v1alpha1.Limit{{
				Name: "per-key",
				KeyParts: []v1alpha1.KeyPart{{
					Type:   v1alpha1.KeyPartHeader,
					Header: &v1alpha1.HeaderKeyPart{Name: "X-Api-Key"},
				}},
				Bucket: v1alpha1.Bucket{Capacity: 100, Refill: v1alpha1.Refill{Tokens: 10, Interval: "1s"}},
			}},
		},
	}
	for _, change := range changes {
		change(policy)
	}
	return policy
}

// NewPod returns a pod with one container, "app", that declares TCP port 8080 by the name "http". It has not asked for
// injection; see Asked. The changes are made in their order.
func NewPod(namespace, name string, changes ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{
				Name:  "app",
				Image: "app:test",
				Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}},
			}},
		},
	}
	for _, change := range changes {
		change(pod)
	}
	return pod
}

// Asked lets a pod ask for injection.
func Asked(pod *corev1.Pod) {
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[v1alpha1.InjectAnnotation] = "true"
}

// WithLabel gives a pod a label.
func WithLabel(key, value string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		if pod.Labels == nil {
			pod.Labels = map[string]string{}
		}
		pod.Labels[key] = value
	}
}

// WithSidecar gives a pod a native sidecar of that name, placed last among its init containers.
func WithSidecar(name string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		always := corev1.ContainerRestartPolicyAlways
		pod.Spec.InitContainers = append(pod.Spec.InitContainers,
			corev1.Container{Name: name, Image: name + ":test", RestartPolicy: &always})
	}
}

// Ready makes a pod run with all containers that it has so far ready; put it last.
func Ready(pod *corev1.Pod) {
	now := metav1.Now()
	running := func(containers []corev1.Container) []corev1.ContainerStatus {
		var statuses []corev1.ContainerStatus
		for _, container := range containers {
			started := true
			statuses = append(statuses, corev1.ContainerStatus{
				Name: container.Name, Image: container.Image, Ready: true, Started: &started,
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
			})
		}
		return statuses
	}
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: now}}
	pod.Status.ContainerStatuses = running(pod.Spec.Containers)
	pod.Status.InitContainerStatuses = running(pod.Spec.InitContainers)
}

// CreateNamespace creates a namespace with a name of its own and returns the name. Nothing removes namespaces here, as no
// controller manager runs: a test keeps to its own.
func (e *Environment) CreateNamespace(ctx context.Context, labels map[string]string) string {
	GinkgoHelper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-", Labels: labels}}
	Expect(e.Client.Create(ctx, namespace)).To(Succeed())
	return namespace.Name
}

// CreatePod creates a pod together with its status, which kubelet would write. The pod is what the API server made of it.
func (e *Environment) CreatePod(ctx context.Context, pod *corev1.Pod) {
	GinkgoHelper()
	status := pod.Status.DeepCopy()
	Expect(e.Client.Create(ctx, pod)).To(Succeed())
	if status.Phase == "" {
		return
	}
	pod.Status = *status
	Expect(e.Client.Status().Update(ctx, pod)).To(Succeed())
}
