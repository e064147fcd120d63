package injector_test

import (
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/portero-dev/portero/api/v1alpha1"
	"github.com/portero-dev/portero/internal/injector"
	"github.com/portero-dev/portero/internal/sidecarenv"
)

var _ = Describe("Protected ports", func() {
	http := corev1.ContainerPort{Name: "http", ContainerPort: 8080}
	grpc := corev1.ContainerPort{Name: "grpc", ContainerPort: 9090}
	dns := corev1.ContainerPort{Name: "dns", ContainerPort: 5353, Protocol: corev1.ProtocolUDP}
	always := ptr.To(corev1.ContainerRestartPolicyAlways)

	DescribeTable("are found",
		func(env string, change ...func(*corev1.Pod)) {
			r := inject(marshal(newPod(change...)), options())
			Expect(r.Status.Injected).To(BeTrue(), r.Status.Message)
			pod := podOf(r.Pod)
			Expect(envOf(initContainer(pod, sidecarenv.ContainerName))).To(HaveKeyWithValue(sidecarenv.Ports, env))
			Expect(envOf(initContainer(pod, sidecarenv.RedirectContainerName))).To(HaveKeyWithValue(sidecarenv.Ports, env))
		},
		Entry("as the only one declared", "8080:14080:14180:http"),
		Entry("as the only TCP one", "8080:14080:14180:http", withPorts(dns, http)),
		Entry("once, when two containers declare it", "8080:14080:14180:http",
			withContainer(corev1.Container{Name: "b", Image: "b", Ports: []corev1.ContainerPort{{ContainerPort: 8080, Protocol: corev1.ProtocolTCP}}})),
		Entry("by number", "9090:14080:14180:grpc", withPorts(http, grpc), annotated(v1alpha1.PortsAnnotation, "9090")),
		Entry("without a name", "8080:14080:14180", withPorts(corev1.ContainerPort{ContainerPort: 8080})),
		Entry("by the first name of two", "8080:14080:14180:http", withPorts(http, corev1.ContainerPort{Name: "web", ContainerPort: 8080})),
		Entry("by a number that is not declared", "7000:14080:14180", annotated(v1alpha1.PortsAnnotation, "7000")),
		Entry("by name", "9090:14080:14180:grpc", withPorts(http, grpc), annotated(v1alpha1.PortsAnnotation, "grpc")),
		Entry("several, in the order written", "9090:14080:14180:grpc,8080:14081:14181:http",
			withPorts(http, grpc), annotated(v1alpha1.PortsAnnotation, "grpc, http")),
		Entry("once, when named twice", "8080:14080:14180:http", annotated(v1alpha1.PortsAnnotation, "http,8080")),
		Entry("in a native sidecar, by name", "7001:14080:14180:front",
			withInit(corev1.Container{
				Name: "front", Image: "f", RestartPolicy: always,
				Ports: []corev1.ContainerPort{{Name: "front", ContainerPort: 7001}},
			}),
			annotated(v1alpha1.PortsAnnotation, "front")),
	)

	DescribeTable("are refused",
		func(reason injector.Reason, message string, change ...func(*corev1.Pod)) {
			raw := marshal(newPod(change...))
			r := inject(raw, options())
			Expect(r.Status.Injected).To(BeFalse())
			Expect(r.Status.Reason).To(Equal(reason))
			Expect(r.Status.Message).To(ContainSubstring(message))
			Expect(podOf(r.Pod).Spec).To(Equal(podOf(raw).Spec), "a refused pod must stay as it was")
		},
		Entry("when none is declared", injector.ReasonNoPort, "no container declares a TCP port", withPorts(dns)),
		Entry("when several are declared", injector.ReasonAmbiguousPort, "declare 2 TCP ports", withPorts(http, grpc)),
		Entry("when the name is unknown", injector.ReasonInvalidAnnotation, `names "nope", but no container`,
			annotated(v1alpha1.PortsAnnotation, "nope")),
		Entry("when the name is a UDP port's", injector.ReasonInvalidAnnotation, `names "dns", but no container`,
			withPorts(http, dns), annotated(v1alpha1.PortsAnnotation, "dns")),
		Entry("when the name means different ports", injector.ReasonInvalidAnnotation, "different ports of that name",
			withContainer(corev1.Container{Name: "b", Image: "b", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 81}}}),
			annotated(v1alpha1.PortsAnnotation, "http")),
		Entry("when the annotation is empty", injector.ReasonInvalidAnnotation, `names ""`, annotated(v1alpha1.PortsAnnotation, "")),
		Entry("when an entry is empty", injector.ReasonInvalidAnnotation, `names ""`, annotated(v1alpha1.PortsAnnotation, "http,")),
		Entry("when the number is 0", injector.ReasonInvalidAnnotation, "not between 1 and 65535", annotated(v1alpha1.PortsAnnotation, "0")),
		Entry("when the number is too large", injector.ReasonInvalidAnnotation, "not between 1 and 65535",
			annotated(v1alpha1.PortsAnnotation, "65536")),
		Entry("when there are too many", injector.ReasonInvalidAnnotation, "more than 16 ports",
			annotated(v1alpha1.PortsAnnotation, "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17")),
		Entry("when the port is one of the sidecar's", injector.ReasonPortConflict, "port 14900 is to be protected",
			annotated(v1alpha1.PortsAnnotation, "14900")),
		Entry("when a container listens where the sidecar does", injector.ReasonPortConflict, "container b declares port 14080",
			withContainer(corev1.Container{Name: "b", Image: "b", Ports: []corev1.ContainerPort{{ContainerPort: 14080}}}),
			annotated(v1alpha1.PortsAnnotation, "http")),
		Entry("when a native sidecar listens on the control port", injector.ReasonPortConflict, "container b declares port 14901",
			withInit(corev1.Container{
				Name: "b", Image: "b", RestartPolicy: always, Ports: []corev1.ContainerPort{{ContainerPort: 14901}},
			})),
		Entry("when a probe names a shadow port", injector.ReasonPortConflict, "a probe of container app names port 14180",
			func(pod *corev1.Pod) {
				pod.Spec.Containers[0].LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{
					GRPC: &corev1.GRPCAction{Port: 14180},
				}}
			}),
	)

	It("lets other pods use a port that the sidecar needs only for more ports", func() {
		r := inject(marshal(newPod(
			withPorts(http, corev1.ContainerPort{ContainerPort: 14081}), annotated(v1alpha1.PortsAnnotation, "http"))), options())
		Expect(r.Status.Injected).To(BeTrue())
	})

	It("warns of UDP on a protected port", func() {
		r := inject(marshal(newPod(withPorts(http, corev1.ContainerPort{
			Name: "h3", ContainerPort: 8080, Protocol: corev1.ProtocolUDP,
		}))), options())
		Expect(r.Status.Warnings).To(ContainElement(ContainSubstring("port 8080 is declared for UDP too")))
	})

	It("stay the same when another webhook adds a container with ports", func() {
		first := inject(marshal(newPod()), options())
		pod := podOf(first.Pod)
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
			Name: "mesh", Image: "mesh", Ports: []corev1.ContainerPort{{Name: "mesh", ContainerPort: 15001}},
		})
		pod.Spec.Containers = slices.Insert(pod.Spec.Containers, 0, corev1.Container{
			Name: "early", Image: "early", Ports: []corev1.ContainerPort{{Name: "other", ContainerPort: 8080}},
		})
		second := inject(marshal(pod), options())
		Expect(second.Status.Ports).To(Equal(first.Status.Ports))
		Expect(second.Patch).To(BeEmpty())
	})

	It("follow a changed annotation, and give probes of the port before back", func() {
		pod := newPod(withPorts(http, grpc), annotated(v1alpha1.PortsAnnotation, "http"), func(pod *corev1.Pod) {
			pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{
				TCPSocket: &corev1.TCPSocketAction{Port: portName("http")},
			}}
		})
		first := podOf(inject(marshal(pod), options()).Pod)
		Expect(first.Spec.Containers[0].ReadinessProbe.TCPSocket.Port.IntValue()).To(Equal(14180))

		first.Annotations[v1alpha1.PortsAnnotation] = "grpc"
		second := podOf(inject(marshal(first), options()).Pod)
		Expect(envOf(initContainer(second, sidecarenv.ContainerName))).To(HaveKeyWithValue(sidecarenv.Ports, "9090:14080:14180:grpc"))
		Expect(second.Spec.Containers[0].ReadinessProbe.TCPSocket.Port.IntValue()).To(Equal(8080))
	})

	It("are refused, and the sidecar taken away again, when another webhook adds a container on the sidecar's port", func() {
		pod := podOf(inject(marshal(newPod(annotated(v1alpha1.PortsAnnotation, "http"))), options()).Pod)
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
			Name: "late", Image: "late", Ports: []corev1.ContainerPort{{ContainerPort: 14080}},
		})
		r := inject(marshal(pod), options())
		Expect(r.Status.Reason).To(Equal(injector.ReasonPortConflict))
		after := podOf(r.Pod)
		Expect(after.Spec.InitContainers).To(BeEmpty())
		Expect(after.Spec.Volumes).To(BeEmpty())
		Expect(after.Labels).To(BeEmpty())
	})

	It("quotes a long value only in part", func() {
		r := inject(marshal(newPod(annotated(v1alpha1.PortsAnnotation, strings.Repeat("x", 100_000)))), options())
		Expect(len(r.Status.Message)).To(BeNumerically("<", 300))
	})
})
