package injector_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/portero-dev/portero/internal/sidecarenv"
)

func ownedBy(kind, name string, controller bool) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.OwnerReferences = append(pod.OwnerReferences, metav1.OwnerReference{Kind: kind, Name: name, Controller: ptr.To(controller)})
	}
}

func hashed(hash string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Labels = map[string]string{"pod-template-hash": hash} }
}

var _ = Describe("The workload", func() {
	DescribeTable("is told to the sidecar",
		func(want string, change ...func(*corev1.Pod)) {
			pod := podOf(inject(marshal(newPod(change...)), options()).Pod)
			Expect(envOf(initContainer(pod, sidecarenv.ContainerName))).To(HaveKeyWithValue(sidecarenv.Workload, want))
		},
		Entry("as the Deployment", "deployment/web", ownedBy("ReplicaSet", "web-5d9c7b8f6d", true), hashed("5d9c7b8f6d")),
		Entry("as the Deployment, with dashes", "deployment/web-5d9c", ownedBy("ReplicaSet", "web-5d9c-5d9c", true), hashed("5d9c")),
		Entry("as the ReplicaSet of nobody", "replicaset/web-1", ownedBy("ReplicaSet", "web-1", true)),
		Entry("as the ReplicaSet that was adopted", "replicaset/web", ownedBy("ReplicaSet", "web", true), hashed("5d9c7b8f6d")),
		Entry("as the StatefulSet, whose pods have no such hash", "statefulset/db", ownedBy("StatefulSet", "db", true)),
		Entry("as the DaemonSet", "daemonset/log", ownedBy("DaemonSet", "log", true), hashed("log")),
		Entry("as the Job", "job/report-29", ownedBy("Job", "report-29", true)),
		Entry("as its controller, not another owner", "job/a", ownedBy("Node", "n", false), ownedBy("Job", "a", true)),
		Entry("as the pod itself, by the name that kubelet knows", "pod/$(PORTERO_POD_NAME)"),
	)

	It("of a pod alone refers to a variable that stands before it", func() {
		sidecar := initContainer(podOf(inject(marshal(newPod()), options()).Pod), sidecarenv.ContainerName)
		names := []string{}
		for _, e := range sidecar.Env {
			names = append(names, e.Name)
		}
		Expect(names).To(ContainElements(sidecarenv.PodName, sidecarenv.Workload))
		for _, name := range names {
			Expect(name).NotTo(Equal(sidecarenv.Workload), "it comes too early")
			if name == sidecarenv.PodName {
				break
			}
		}
	})
})
