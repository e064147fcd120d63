package injector_test

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portero-dev/portero/api/v1alpha1"
)

// newPod is a pod that asks for injection, with one app that serves 8080 as "http".
func newPod(change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: "shop-", Namespace: "shop",
			Annotations: map[string]string{v1alpha1.InjectAnnotation: "true"},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "app", Image: "app",
			Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
		}}},
	}
	for _, c := range change {
		c(pod)
	}
	return pod
}

func annotated(key, value string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Annotations[key] = value }
}

func withPorts(ports ...corev1.ContainerPort) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.Containers[0].Ports = ports }
}

func withContainer(c corev1.Container) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.Containers = append(pod.Spec.Containers, c) }
}

func withInit(c corev1.Container) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.InitContainers = append(pod.Spec.InitContainers, c) }
}

func spec(change func(*corev1.PodSpec)) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { change(&pod.Spec) }
}
