package informers_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/portero-dev/portero/controllers/informers"
	"github.com/portero-dev/portero/controllers/pods"
	"github.com/portero-dev/portero/internal/testenv"
)

var _ = Describe("The transform", func() {
	It("keeps of a pod what is decided from, and no secret that its spec may hold", func() {
		pod := testenv.NewPod("shop", "web", testenv.Asked, testenv.WithSidecar("portero"), testenv.Ready)
		pod.UID, pod.ResourceVersion = "uid", "7"
		pod.Annotations["other"] = "noise"
		pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "PASSWORD", Value: "secret"}}
		trimmed, err := pods.Transform(pod.DeepCopy())
		Expect(err).NotTo(HaveOccurred())
		kept := trimmed.(*corev1.Pod)
		Expect(client.ObjectKeyFromObject(kept)).To(Equal(client.ObjectKeyFromObject(pod)))
		Expect(kept.UID).To(Equal(pod.UID))
		Expect(kept.ResourceVersion).To(Equal("7"))
		Expect(kept.Labels).To(Equal(pod.Labels))
		Expect(kept.Annotations).To(HaveLen(1))
		Expect(pods.Asked(kept)).To(BeTrue())
		Expect(pods.Injected(kept)).To(BeTrue())
		Expect(pods.Ready(kept)).To(BeTrue())
		Expect(pods.Counts(kept)).To(BeTrue())
		Expect(kept.Spec.Containers).To(Equal([]corev1.Container{{Name: "app"}}))
	})

	It("is idempotent, and lets tombstones pass", func() {
		once, err := pods.Transform(testenv.NewPod("shop", "web", testenv.Asked, testenv.Ready))
		Expect(err).NotTo(HaveOccurred())
		Expect(pods.Transform(once.(*corev1.Pod).DeepCopy())).To(Equal(once))
		tombstone := cache.DeletedFinalStateUnknown{Key: "shop/web"}
		Expect(pods.Transform(tombstone)).To(Equal(tombstone))
		Expect(informers.Trim(tombstone)).To(Equal(tombstone))
	})

	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"portero.dev/inject": "true", "other": "noise"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Env: []corev1.EnvVar{{Name: "PASSWORD", Value: "secret"}}}}},
	}
	meta := metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "uid", ResourceVersion: "7", Annotations: map[string]string{"other": "noise"}}
	DescribeTable("keeps of a workload whether it asks for injection",
		func(workload client.Object) {
			trimmed, err := informers.Trim(workload)
			Expect(err).NotTo(HaveOccurred())
			kept := trimmed.(client.Object)
			Expect(kept).To(BeAssignableToTypeOf(workload))
			Expect([]any{kept.GetNamespace(), kept.GetName(), string(kept.GetUID()), kept.GetResourceVersion()}).To(Equal([]any{"shop", "web", "uid", "7"}))
			Expect(kept.GetAnnotations()).To(BeEmpty())
			annotations, ok := informers.TemplateAnnotations(kept)
			Expect(ok).To(BeTrue())
			Expect(annotations).To(Equal(map[string]string{"portero.dev/inject": "true"}))
			again, err := informers.Trim(kept)
			Expect(err).NotTo(HaveOccurred())
			Expect(again).To(Equal(kept))
		},
		Entry(nil, &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Template: template}}),
		Entry(nil, &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Template: template}}),
		Entry(nil, &appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Template: template}}),
		Entry(nil, &batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{Template: template}}),
		Entry(nil, &batchv1.CronJob{ObjectMeta: meta, Spec: batchv1.CronJobSpec{JobTemplate: batchv1.JobTemplateSpec{
			Spec: batchv1.JobSpec{Template: template},
		}}}),
	)
})

var _ = DescribeTable("A pod", func(change func(*corev1.Pod), asked, injected, ready, counts bool) {
	pod := testenv.NewPod("shop", "web", change)
	Expect([]bool{pods.Asked(pod), pods.Injected(pod), pods.Ready(pod), pods.Counts(pod)}).To(Equal([]bool{asked, injected, ready, counts}))
},
	Entry("that is new", func(*corev1.Pod) {}, false, false, false, true),
	Entry("that asked", testenv.Asked, true, false, false, true),
	Entry("that declined", func(p *corev1.Pod) { p.Annotations = map[string]string{"portero.dev/inject": "false"} }, false, false, false, true),
	Entry("with the sidecar", testenv.WithSidecar("portero"), false, true, false, true),
	Entry("with another sidecar", testenv.WithSidecar("proxy"), false, false, false, true),
	Entry("with an init container of the sidecar's name", func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: "portero"}}
	}, false, false, false, true),
	Entry("that is ready", testenv.Ready, false, false, true, true),
	Entry("that succeeded", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, false, false, false, false),
	Entry("that failed", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, false, false, false, false),
	Entry("that is being deleted", func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }, false, false, false, false),
)
