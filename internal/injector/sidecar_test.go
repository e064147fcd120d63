package injector_test

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/portero-dev/portero/api/v1alpha1"
	"github.com/portero-dev/portero/internal/injector"
	"github.com/portero-dev/portero/internal/sidecarenv"
)

func resources(requests, limits string) corev1.ResourceRequirements {
	list := func(text string) corev1.ResourceList {
		l := corev1.ResourceList{}
		for _, entry := range strings.Fields(text) {
			name, value, _ := strings.Cut(entry, "=")
			l[corev1.ResourceName(name)] = resource.MustParse(value)
		}
		return l
	}
	return corev1.ResourceRequirements{Requests: list(requests), Limits: list(limits)}
}

// show prints resources as resources reads them.
func show(r corev1.ResourceRequirements) (requests, limits string) {
	text := func(l corev1.ResourceList) string {
		var parts []string
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			if q, ok := l[name]; ok {
				parts = append(parts, string(name)+"="+q.String())
			}
		}
		return strings.Join(parts, " ")
	}
	return text(r.Requests), text(r.Limits)
}

func sized(r corev1.ResourceRequirements) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.Containers[0].Resources = r }
}

var _ = Describe("The sidecar", func() {
	injected := func(change ...func(*corev1.Pod)) (*corev1.Pod, injector.Status) {
		GinkgoHelper()
		r := inject(marshal(newPod(change...)), options())
		Expect(r.Status.Injected).To(BeTrue(), r.Status.Message)
		return podOf(r.Pod), r.Status
	}

	const memoryEnv = "GOMEMLIMIT"

	DescribeTable("is sized",
		func(requests, limits string, warning string, change ...func(*corev1.Pod)) {
			pod, status := injected(append([]func(*corev1.Pod){sized(resources("cpu=1", ""))}, change...)...)
			gotRequests, gotLimits := show(initContainer(pod, sidecarenv.ContainerName).Resources)
			Expect(gotRequests).To(Equal(requests), "requests")
			Expect(gotLimits).To(Equal(limits), "limits")
			if warning == "" {
				Expect(status.Warnings).To(BeEmpty())
			} else {
				Expect(status.Warnings).To(ConsistOf(ContainSubstring(warning)))
			}
		},
		Entry("by default", "cpu=20m memory=64Mi", "memory=256Mi", ""),
		Entry("by annotations, each on its own", "cpu=50m memory=64Mi", "memory=256Mi", "", annotated(v1alpha1.CPURequestAnnotation, "50m")),
		Entry("by all four", "cpu=50m memory=100Mi", "cpu=2 memory=200Mi", "",
			annotated(v1alpha1.CPURequestAnnotation, "50m"), annotated(v1alpha1.CPULimitAnnotation, "2"),
			annotated(v1alpha1.MemoryRequestAnnotation, "100Mi"), annotated(v1alpha1.MemoryLimitAnnotation, "200Mi")),
		Entry("with the default limit raised to the request", "cpu=20m memory=1Gi", "memory=1Gi", "",
			annotated(v1alpha1.MemoryRequestAnnotation, "1Gi")),
		Entry("with the default request lowered to the limit", "cpu=20m memory=32Mi", "memory=32Mi", "",
			annotated(v1alpha1.MemoryLimitAnnotation, "32Mi")),
		Entry("with both lowered to the limit", "cpu=20m memory=32Mi", "memory=32Mi", "memory request 1Gi is above its limit 32Mi",
			annotated(v1alpha1.MemoryRequestAnnotation, "1Gi"), annotated(v1alpha1.MemoryLimitAnnotation, "32Mi")),
		Entry("by default where the quantity is bad", "cpu=20m memory=64Mi", "memory=256Mi", `cpu-request is "lots"`,
			annotated(v1alpha1.CPURequestAnnotation, "lots")),
		Entry("by default where the quantity is negative", "cpu=20m memory=64Mi", "memory=256Mi", `memory-limit is "-1"`,
			annotated(v1alpha1.MemoryLimitAnnotation, "-1")),
		Entry("in a BestEffort pod, which becomes Burstable", "cpu=20m memory=64Mi", "memory=256Mi", "requests make it Burstable",
			sized(resources("", ""))),
		Entry("in a Guaranteed pod, which stays so", "cpu=250m memory=256Mi", "cpu=250m memory=256Mi", "",
			sized(resources("cpu=1 memory=1Gi", "cpu=1 memory=1Gi"))),
		Entry("in a pod that is Guaranteed by its limits", "cpu=250m memory=256Mi", "cpu=250m memory=256Mi", "",
			sized(resources("", "cpu=1 memory=1Gi"))),
		Entry("in a Guaranteed pod by annotations", "cpu=2 memory=100Mi", "cpu=2 memory=100Mi", "",
			sized(resources("", "cpu=1 memory=1Gi")),
			annotated(v1alpha1.CPULimitAnnotation, "2"), annotated(v1alpha1.MemoryRequestAnnotation, "100Mi")),
		Entry("as Burstable when an init container is", "cpu=20m memory=64Mi", "memory=256Mi", "",
			sized(resources("", "cpu=1 memory=1Gi")), withInit(corev1.Container{Name: "i", Image: "i"})),
	)

	DescribeTable("is sized within resources of the pod as a whole",
		func(podRequests, podLimits, requests, limits, warning string) {
			whole := resources(podRequests, podLimits)
			pod, status := injected(sized(resources("cpu=1 memory=1Gi", "")), spec(func(s *corev1.PodSpec) { s.Resources = &whole }))
			sidecar := initContainer(pod, sidecarenv.ContainerName)
			gotRequests, gotLimits := show(sidecar.Resources)
			Expect(gotRequests).To(Equal(requests), "requests")
			Expect(gotLimits).To(Equal(limits), "limits")
			Expect(strings.Join(status.Warnings, "\n")).To(ContainSubstring(warning))
			Expect(status.Warnings == nil).To(Equal(warning == ""))
			Expect(envOf(sidecar)).To(HaveKey(memoryEnv))
		},
		Entry("with room", "cpu=2 memory=2Gi", "", "cpu=20m memory=64Mi", "memory=256Mi", ""),
		Entry("without room", "cpu=1 memory=1Gi", "", "", "", "leaves no room"),
		Entry("without room for CPU", "cpu=1 memory=2Gi", "", "memory=64Mi", "memory=256Mi", "pod's own cpu request 1 leaves no room"),
		Entry("with limits above the containers' requests", "", "cpu=2 memory=2Gi", "cpu=20m memory=64Mi", "memory=256Mi", ""),
		Entry("with a limit below the sidecar's", "", "memory=128Mi", "cpu=20m memory=64Mi", "memory=128Mi", ""),
	)

	It("requests nothing where the pod's limit alone would become its request", func() {
		whole := resources("", "cpu=2 memory=2Gi")
		pod, _ := injected(spec(func(s *corev1.PodSpec) { s.Resources = &whole }))
		for _, name := range []string{sidecarenv.ContainerName, sidecarenv.RedirectContainerName} {
			Expect(initContainer(pod, name).Resources).To(Equal(corev1.ResourceRequirements{}))
		}
	})

	It("gives the redirect what the sidecar has, so that a LimitRange that admits one admits the other", func() {
		for _, class := range []corev1.ResourceRequirements{
			resources("", ""), resources("cpu=1", ""), resources("", "cpu=1"), resources("", "cpu=1 memory=1Gi"),
		} {
			pod, _ := injected(sized(class), annotated(v1alpha1.CPURequestAnnotation, "70m"))
			Expect(initContainer(pod, sidecarenv.RedirectContainerName).Resources).
				To(Equal(initContainer(pod, sidecarenv.ContainerName).Resources))
		}
	})

	It("has a CPU limit where every other container has one, as a quota on limits wants", func() {
		pod, _ := injected(sized(resources("cpu=100m", "cpu=1")))
		requests, limits := show(initContainer(pod, sidecarenv.ContainerName).Resources)
		Expect(requests).To(ContainSubstring("cpu=20m"))
		Expect(limits).To(ContainSubstring("cpu=250m"))

		pod, _ = injected(sized(resources("cpu=100m", "cpu=1")), withContainer(corev1.Container{Name: "free", Image: "free"}))
		_, limits = show(initContainer(pod, sidecarenv.ContainerName).Resources)
		Expect(limits).NotTo(ContainSubstring("cpu="))
	})

	It("tells the Go runtime to stay below the memory limit", func() {
		pod, _ := injected(annotated(v1alpha1.MemoryLimitAnnotation, "100M"))
		Expect(envOf(initContainer(pod, sidecarenv.ContainerName))).To(HaveKeyWithValue(memoryEnv, "90000000"))
	})

	It("conforms to Pod Security restricted, and the redirect asks for NET_ADMIN alone", func() {
		pod, _ := injected()
		sc := initContainer(pod, sidecarenv.ContainerName).SecurityContext
		Expect(sc.RunAsUser).To(BeNil())
		Expect(sc.RunAsNonRoot).To(HaveValue(BeTrue()))
		Expect(sc.AllowPrivilegeEscalation).To(HaveValue(BeFalse()))
		Expect(sc.ReadOnlyRootFilesystem).To(HaveValue(BeTrue()))
		Expect(sc.Capabilities).To(Equal(&corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}))
		Expect(sc.SeccompProfile.Type).To(Equal(corev1.SeccompProfileTypeRuntimeDefault))

		sc = initContainer(pod, sidecarenv.RedirectContainerName).SecurityContext
		Expect(sc.RunAsUser).To(HaveValue(BeZero()))
		Expect(sc.RunAsNonRoot).To(HaveValue(BeFalse()))
		Expect(sc.AllowPrivilegeEscalation).To(HaveValue(BeFalse()))
		Expect(sc.ReadOnlyRootFilesystem).To(HaveValue(BeTrue()))
		Expect(sc.Capabilities).To(Equal(&corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"NET_ADMIN"}}))
	})

	It("runs as a user of its own in a pod that runs as root", func() {
		pod, _ := injected(spec(func(s *corev1.PodSpec) { s.SecurityContext = &corev1.PodSecurityContext{RunAsUser: ptr.To[int64](0)} }))
		Expect(initContainer(pod, sidecarenv.ContainerName).SecurityContext.RunAsUser).To(HaveValue(Equal(int64(65532))))
	})

	It("adds no volume that pins the pod to its node, and hides the service account token from both containers", func() {
		pod, _ := injected()
		for _, v := range pod.Spec.Volumes {
			Expect(v.EmptyDir).To(BeNil())
			Expect(v.HostPath).To(BeNil())
		}
		for _, name := range []string{sidecarenv.ContainerName, sidecarenv.RedirectContainerName} {
			Expect(initContainer(pod, name).VolumeMounts).To(ContainElement(corev1.VolumeMount{
				Name: sidecarenv.NoTokenVolume, MountPath: sidecarenv.ServiceTokenPath, ReadOnly: true,
			}))
		}
	})

	It("is told the upstream host, log level and drain timeout that the pod wants", func() {
		pod, status := injected(annotated(v1alpha1.UpstreamHostAnnotation, "127.0.0.1"),
			annotated(v1alpha1.LogLevelAnnotation, "debug"), annotated(v1alpha1.DrainTimeoutAnnotation, "20s"), sized(resources("cpu=1", "")))
		env := envOf(initContainer(pod, sidecarenv.ContainerName))
		Expect(env).To(HaveKeyWithValue(sidecarenv.UpstreamHost, "127.0.0.1"))
		Expect(env).To(HaveKeyWithValue(sidecarenv.LogLevel, "debug"))
		Expect(env).To(HaveKeyWithValue(sidecarenv.DrainTimeout, "20s"))
		Expect(status.Warnings).To(BeEmpty())
	})

	DescribeTable("is told nothing that the pod says badly, and a warning names it",
		func(key, value, warning string) {
			pod, status := injected(annotated(key, value), sized(resources("cpu=1", "")))
			Expect(status.Warnings).To(ConsistOf(ContainSubstring(warning)))
			env := envOf(initContainer(pod, sidecarenv.ContainerName))
			Expect(env).NotTo(HaveKey(sidecarenv.LogLevel))
			Expect(env).NotTo(HaveKey(sidecarenv.DrainTimeout))
		},
		Entry("log level", v1alpha1.LogLevelAnnotation, "loud", `log-level is "loud"`),
		Entry("drain timeout", v1alpha1.DrainTimeoutAnnotation, "20", `drain-timeout is "20"`),
		Entry("no drain timeout", v1alpha1.DrainTimeoutAnnotation, "0s", `drain-timeout is "0s"`),
		Entry("endless drain timeout", v1alpha1.DrainTimeoutAnnotation, "2h", `drain-timeout is "2h"`),
		Entry("unknown key", "portero.dev/color", "red", `"portero.dev/color" is not known`),
	)

	It("warns when the grace period is too short to drain", func() {
		grace := func(s int64) func(*corev1.Pod) {
			return spec(func(spec *corev1.PodSpec) { spec.TerminationGracePeriodSeconds = &s })
		}
		_, status := injected(grace(14), sized(resources("cpu=1", "")))
		Expect(status.Warnings).To(ConsistOf(ContainSubstring("terminationGracePeriodSeconds 14 leaves too little time")))
		_, status = injected(grace(15), sized(resources("cpu=1", "")))
		Expect(status.Warnings).To(BeEmpty())
		_, status = injected(annotated(v1alpha1.DrainTimeoutAnnotation, "26s"), sized(resources("cpu=1", "")))
		Expect(status.Warnings).To(ConsistOf(ContainSubstring("terminationGracePeriodSeconds 30 leaves too little time")))
	})

	It("keeps the status small whatever the annotations say", func() {
		pod := newPod()
		for i := range 1000 {
			pod.Annotations["portero.dev/"+strings.Repeat("x", 40)+resource.NewQuantity(int64(i), resource.DecimalSI).String()] = "x"
		}
		after := podOf(inject(marshal(pod), options()).Pod)
		Expect(len(after.Annotations[v1alpha1.StatusAnnotation])).To(BeNumerically("<", 8192))
	})
})

var _ = Describe("Options", func() {
	DescribeTable("name what can't be used",
		func(message string, change func(*injector.Options)) {
			o := options()
			change(&o)
			Expect(o.Validate()).To(MatchError(ContainSubstring(message)))
		},
		Entry("no image", "sidecar image is empty", func(o *injector.Options) { o.Image = "" }),
		Entry("no version", "version is empty", func(o *injector.Options) { o.Version = "" }),
		Entry("no CPU request", "CPU request of the sidecar is 0", func(o *injector.Options) {
			o.Resources = injector.DefaultResources()
			o.Resources.CPURequest = resource.Quantity{}
		}),
		Entry("a negative limit", "memory limit of the sidecar is -1", func(o *injector.Options) {
			o.Resources = injector.DefaultResources()
			o.Resources.MemoryLimit = resource.MustParse("-1")
		}),
		Entry("a request above its limit", "memory request 1Gi of the sidecar is above its limit 256Mi", func(o *injector.Options) {
			o.Resources = injector.DefaultResources()
			o.Resources.MemoryRequest = resource.MustParse("1Gi")
		}),
		Entry("a CPU request above its limit", "CPU request 2 of the sidecar is above its limit 1", func(o *injector.Options) {
			o.Resources = injector.DefaultResources()
			o.Resources.CPURequest, o.Resources.CPULimit = resource.MustParse("2"), resource.MustParse("1")
		}),
	)

	It("are fine as they come by default", func() {
		Expect(options().Validate()).To(Succeed())
	})
})
