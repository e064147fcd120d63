package injector_test

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/portero-dev/portero/api/v1alpha1"
	"github.com/portero-dev/portero/internal/injector"
	"github.com/portero-dev/portero/internal/sidecarenv"
)

var _ = Describe("Injection", func() {
	It("leaves a pod that did not ask untouched, byte for byte", func() {
		for _, value := range []string{"false", "yes", "True", ""} {
			raw := marshal(newPod(annotated(v1alpha1.InjectAnnotation, value)))
			r, err := injector.Inject(raw, options())
			Expect(err).NotTo(HaveOccurred())
			Expect(r.Pod).To(Equal(raw))
			Expect(r.Patch).To(BeEmpty())
			Expect(r.Status.Reason).To(Equal(injector.ReasonNotRequested))
		}
	})

	DescribeTable("says why a pod can't have a sidecar, and leaves its spec alone",
		func(reason injector.Reason, restricted bool, change func(*corev1.Pod)) {
			raw := marshal(newPod(change))
			o := options()
			o.RestrictedNamespace = restricted
			r := inject(raw, o)
			Expect(r.Status).To(HaveField("Reason", reason))
			Expect(r.Status.Message).NotTo(BeEmpty())
			after := podOf(r.Pod)
			Expect(after.Spec).To(Equal(podOf(raw).Spec))
			Expect(after.Labels).To(BeEmpty())
			var written injector.Status
			Expect(json.Unmarshal([]byte(after.Annotations[v1alpha1.StatusAnnotation]), &written)).To(Succeed())
			Expect(written).To(Equal(r.Status))
		},
		Entry("host network", injector.ReasonHostNetwork, false, spec(func(s *corev1.PodSpec) { s.HostNetwork = true })),
		Entry("Windows", injector.ReasonWindows, false, spec(func(s *corev1.PodSpec) { s.OS = &corev1.PodOS{Name: corev1.Windows} })),
		Entry("a container with the sidecar's name", injector.ReasonNameConflict, false,
			withContainer(corev1.Container{Name: "portero", Image: "x"})),
		Entry("an init container with the sidecar's name", injector.ReasonNameConflict, false,
			withInit(corev1.Container{Name: "portero", Image: "x", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)})),
		Entry("an init container with the redirect's name", injector.ReasonNameConflict, false,
			withInit(corev1.Container{Name: "portero-redirect", Image: "x"})),
		Entry("a volume with our name", injector.ReasonNameConflict, false,
			spec(func(s *corev1.PodSpec) { s.Volumes = []corev1.Volume{{Name: "portero-redis"}} })),
		Entry("an unknown mode", injector.ReasonInvalidAnnotation, false, annotated(v1alpha1.InterceptionAnnotation, "redirect")),
		Entry("mode Port", injector.ReasonInterceptionUnavailable, false, annotated(v1alpha1.InterceptionAnnotation, "Port")),
		Entry("an unknown upstream host", injector.ReasonInvalidAnnotation, false, annotated(v1alpha1.UpstreamHostAnnotation, "localhost")),
		Entry("a restricted namespace", injector.ReasonPodSecurity, true, func(*corev1.Pod) {}),
		Entry("a restricted namespace and mode Redirect", injector.ReasonPodSecurity, true, annotated(v1alpha1.InterceptionAnnotation, "Redirect")),
	)

	It("injects in a restricted namespace where nothing is intercepted", func() {
		o := options()
		o.RestrictedNamespace = true
		r := inject(marshal(newPod(annotated(v1alpha1.InterceptionAnnotation, "None"))), o)
		Expect(r.Status.Injected).To(BeTrue(), r.Status.Message)
		Expect(initNames(podOf(r.Pod))).To(Equal([]string{sidecarenv.ContainerName}))
	})

	It("tells warnings with a refusal too, since a misspelled key is often its cause", func() {
		r := inject(marshal(newPod(withPorts(), annotated("portero.dev/port", "8080"))), options())
		Expect(r.Status.Reason).To(Equal(injector.ReasonNoPort))
		Expect(r.Status.Warnings).To(ConsistOf(ContainSubstring(`"portero.dev/port" is not known`)))
	})

	It("removes the status of a call before once the cause is gone", func() {
		refused := podOf(inject(marshal(newPod(withPorts())), options()).Pod)
		refused.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80}}
		r := inject(marshal(refused), options())
		Expect(r.Status.Injected).To(BeTrue())
		Expect(r.Status.Reason).To(BeEmpty())
	})

	It("puts the redirect first and the sidecar last", func() {
		pod := newPod(withInit(corev1.Container{Name: "migrate", Image: "m"}))
		Expect(initNames(podOf(inject(marshal(pod), options()).Pod))).To(Equal([]string{"portero-redirect", "migrate", "portero"}))
	})

	It("injects the sidecar alone with interception None", func() {
		pod := newPod(annotated(v1alpha1.InterceptionAnnotation, "None"))
		r := inject(marshal(pod), options())
		Expect(initNames(podOf(r.Pod))).To(Equal([]string{"portero"}))
		Expect(r.Status.Mode).To(Equal(injector.ModeNone))
	})

	It("leaves containers where they are, and what others made of them, when called again", func() {
		pod := podOf(inject(marshal(newPod()), options()).Pod)
		pod.Spec.InitContainers = append([]corev1.Container{{Name: "before", Image: "b"}}, pod.Spec.InitContainers...)
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{Name: "after", Image: "a"})
		sidecar := initContainer(pod, "portero")
		sidecar.Image = "mirror.example/sidecar:v0.1.0"
		sidecar.Env = append(sidecar.Env, corev1.EnvVar{Name: "ADDED", Value: "1"})
		r := inject(marshal(pod), options())
		Expect(r.Patch).To(BeEmpty())
	})

	It("renders its containers anew, in their place, for another version", func() {
		pod := podOf(inject(marshal(newPod(withInit(corev1.Container{Name: "x", Image: "x"}))), options()).Pod)
		slices.Reverse(pod.Spec.InitContainers)
		o := options()
		o.Image, o.Version = "portero.example/sidecar:v0.2.0", "v0.2.0"
		after := podOf(inject(marshal(pod), o).Pod)
		Expect(initNames(after)).To(Equal([]string{"portero", "x", "portero-redirect"}))
		Expect(initContainer(after, "portero").Image).To(HaveSuffix("v0.2.0"))
		Expect(after.Labels).To(HaveKeyWithValue(injector.SidecarVersionLabel, "v0.2.0"))
	})

	It("repairs a sidecar that lost its restart policy", func() {
		pod := podOf(inject(marshal(newPod()), options()).Pod)
		initContainer(pod, "portero").RestartPolicy = nil
		after := podOf(inject(marshal(pod), options()).Pod)
		Expect(initContainer(after, "portero").RestartPolicy).To(HaveValue(Equal(corev1.ContainerRestartPolicyAlways)))
	})

	It("adds a sidecar that another webhook took away", func() {
		pod := podOf(inject(marshal(newPod()), options()).Pod)
		pod.Spec.InitContainers = nil
		pod.Spec.Volumes = nil
		Expect(initNames(podOf(inject(marshal(pod), options()).Pod))).To(Equal([]string{"portero-redirect", "portero"}))
	})

	It("makes a version fit its label", func() {
		o := options()
		o.Version = "v0.1.0-12-gabc+dirty" + strings.Repeat("x", 80)
		after := podOf(inject(marshal(newPod()), o).Pod)
		Expect(after.Labels[injector.SidecarVersionLabel]).To(MatchRegexp(`^v0\.1\.0-12-gabc-dirtyx+$`))
		Expect(len(after.Labels[injector.SidecarVersionLabel])).To(BeNumerically("<=", 63))
	})

	It("keeps fields at every level that this build does not know", func() {
		raw := podJSON(`
apiVersion: v1
kind: Pod
futureTop: {a: 1}
metadata:
  futureMeta: [1, 2]
  annotations: {portero.dev/inject: "true"}
spec:
  futureSpec: 12345678901234567890
  activeDeadlineSeconds: 9223372036854775807
  containers:
  - name: app
    futureContainer: {deep: [{x: 1.50}]}
    ports: [{containerPort: 8080, name: http, futurePort: yes}]
    readinessProbe: {futureProbe: 1, httpGet: {port: http, futureGet: true}}
    securityContext: {futureContext: "<&>"}
  initContainers:
  - {name: native, restartPolicy: Always, restartPolicyRules: [{future: 1}]}
  volumes: [{name: v, futureVolume: {}}]
`)
		// ginkgo's JSON matcher would compare large numbers as floats, so look at the patch: it touches none of them.
		r := inject(raw, options())
		for _, op := range r.Patch {
			Expect(op.Op).NotTo(Equal("remove"))
			if op.Op == "replace" {
				Expect(op.Path).To(Equal("/spec/containers/0/readinessProbe/httpGet/port"))
			}
		}
		for _, text := range []string{
			"futureTop", "futureMeta", `"futureSpec":12345678901234567890`, `"activeDeadlineSeconds":9223372036854775807`,
			"futureContainer", "futurePort", "futureProbe", "futureGet", `"futureContext":"<&>"`, "restartPolicyRules", "futureVolume",
		} {
			Expect(string(r.Pod)).To(ContainSubstring(text))
		}
	})

	DescribeTable("reports what is no pod as an error",
		func(raw string) {
			_, err := injector.Inject([]byte(raw), options())
			Expect(err).To(MatchError(ContainSubstring("decode pod")))
		},
		Entry("nothing", ``), Entry("null", `null`), Entry("a list", `[]`), Entry("half an object", `{"spec":`),
		Entry("two objects", `{}{}`), Entry("a spec of another type", `{"spec":"x"}`),
		Entry("containers of another type", `{"spec":{"containers":{}}}`),
		Entry("a port of another type", `{"spec":{"containers":[{"ports":[{"containerPort":"x"}]}]}}`),
	)
})

var _ = Describe("Injection among other webhooks", func() {
	It("is a fixed point, whatever neighbors stand where and come when", func() {
		seed := GinkgoRandomSeed()
		rng := rand.New(rand.NewPCG(uint64(seed), 1))
		for range 300 {
			pod := newPod(annotated(v1alpha1.PortsAnnotation, "8080"))
			neighbors(rng, pod)
			first := podOf(inject(marshal(pod), options()).Pod)
			neighbors(rng, first)
			shuffle(rng, first)
			second := inject(marshal(first), options()) // which checks that a third call changes nothing
			after := podOf(second.Pod)
			Expect(second.Status.Injected).To(BeTrue(), second.Status.Message)
			Expect(initNames(after)).To(ContainElements(sidecarenv.ContainerName, sidecarenv.RedirectContainerName))
			Expect(initNames(after)).To(Equal(initNames(first)), "containers must keep their place")
			for _, list := range [][]corev1.Container{after.Spec.Containers, after.Spec.InitContainers} {
				for _, c := range list {
					if p := c.LivenessProbe; p != nil && p.TCPSocket != nil {
						Expect(p.TCPSocket.Port.IntValue()).To(Equal(14180))
					}
				}
			}
		}
	})
})

// neighbors adds up to three containers, of any kind and at any place.
func neighbors(rng *rand.Rand, pod *corev1.Pod) {
	for range rng.IntN(4) {
		c := corev1.Container{Name: "n" + strconv.Itoa(len(pod.Spec.Containers)) + strconv.Itoa(len(pod.Spec.InitContainers)), Image: "n"}
		if rng.IntN(2) == 0 {
			c.Ports = []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}}
			c.LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{
				Port: []intstr.IntOrString{intstr.FromInt32(8080), intstr.FromString("http")}[rng.IntN(2)],
			}}}
		}
		list := &pod.Spec.Containers
		if rng.IntN(2) == 0 {
			list = &pod.Spec.InitContainers
			c.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
		}
		*list = slices.Insert(*list, rng.IntN(len(*list)+1), c)
	}
}

func shuffle(rng *rand.Rand, pod *corev1.Pod) {
	for _, l := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		rng.Shuffle(len(l), func(i, j int) { l[i], l[j] = l[j], l[i] })
	}
	v := pod.Spec.Volumes
	rng.Shuffle(len(v), func(i, j int) { v[i], v[j] = v[j], v[i] })
}
