package injector_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/portero-dev/portero/api/v1alpha1"
)

func portName(name string) intstr.IntOrString { return intstr.FromString(name) }

var _ = Describe("Probes and hooks", func() {
	type place struct {
		name string
		set  func(*corev1.Container, corev1.ProbeHandler)
		get  func(*corev1.Container) corev1.ProbeHandler
	}
	hook := func(h *corev1.LifecycleHandler) corev1.ProbeHandler { return corev1.ProbeHandler{HTTPGet: h.HTTPGet} }
	probes := []place{
		{"startupProbe",
			func(c *corev1.Container, h corev1.ProbeHandler) { c.StartupProbe = &corev1.Probe{ProbeHandler: h} },
			func(c *corev1.Container) corev1.ProbeHandler { return c.StartupProbe.ProbeHandler }},
		{"livenessProbe",
			func(c *corev1.Container, h corev1.ProbeHandler) { c.LivenessProbe = &corev1.Probe{ProbeHandler: h} },
			func(c *corev1.Container) corev1.ProbeHandler { return c.LivenessProbe.ProbeHandler }},
		{"readinessProbe",
			func(c *corev1.Container, h corev1.ProbeHandler) { c.ReadinessProbe = &corev1.Probe{ProbeHandler: h} },
			func(c *corev1.Container) corev1.ProbeHandler { return c.ReadinessProbe.ProbeHandler }},
	}
	hooks := []place{
		{"postStart",
			func(c *corev1.Container, h corev1.ProbeHandler) {
				c.Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{HTTPGet: h.HTTPGet}}
			},
			func(c *corev1.Container) corev1.ProbeHandler { return hook(c.Lifecycle.PostStart) }},
		{"preStop",
			func(c *corev1.Container, h corev1.ProbeHandler) {
				c.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{HTTPGet: h.HTTPGet}}
			},
			func(c *corev1.Container) corev1.ProbeHandler { return hook(c.Lifecycle.PreStop) }},
	}
	httpGet := func(p intstr.IntOrString) corev1.ProbeHandler {
		return corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: p}}
	}
	tcp := func(p intstr.IntOrString) corev1.ProbeHandler {
		return corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: p}}
	}
	grpc := func(p intstr.IntOrString) corev1.ProbeHandler {
		return corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: p.IntVal}}
	}
	elsewhere := func(p intstr.IntOrString) corev1.ProbeHandler {
		return corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Host: "192.0.2.1", Port: p}}
	}

	// The app serves 8080 as http, which is protected, and 9000 as metrics, which is not.
	check := func(p place, native bool, handler, want corev1.ProbeHandler, mode string) {
		GinkgoHelper()
		probed := corev1.Container{Name: "probed", Image: "i", Ports: []corev1.ContainerPort{
			{Name: "http", ContainerPort: 8080}, {Name: "metrics", ContainerPort: 9000},
		}}
		p.set(&probed, handler)
		pod := newPod(annotated(v1alpha1.PortsAnnotation, "8080"), annotated(v1alpha1.InterceptionAnnotation, mode))
		if native {
			probed.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
			withInit(probed)(pod)
		} else {
			withContainer(probed)(pod)
		}
		after := podOf(inject(marshal(pod), options()).Pod)
		got := &after.Spec.Containers[len(after.Spec.Containers)-1]
		if native {
			got = initContainer(after, "probed")
		}
		Expect(p.get(got)).To(Equal(want))
	}

	var entries []TableEntry
	for _, native := range []bool{false, true} {
		kind := "an app container"
		if native {
			kind = "a native sidecar"
		}
		for _, p := range probes {
			for name, h := range map[string]func(intstr.IntOrString) corev1.ProbeHandler{"httpGet": httpGet, "tcpSocket": tcp, "grpc": grpc} {
				where := p.name + " " + name + " of " + kind
				entries = append(entries,
					Entry(where+" by number", p, native, h(intstr.FromInt32(8080)), h(intstr.FromInt32(14180)), "Redirect"),
					Entry(where+" of another port", p, native, h(intstr.FromInt32(9000)), h(intstr.FromInt32(9000)), "Redirect"),
					Entry(where+" without redirect", p, native, h(intstr.FromInt32(8080)), h(intstr.FromInt32(8080)), "None"))
				if name != "grpc" { // gRPC probes have numbers only
					entries = append(entries,
						Entry(where+" by name", p, native, h(portName("http")), h(intstr.FromInt32(14180)), "Redirect"),
						Entry(where+" of another name", p, native, h(portName("metrics")), h(portName("metrics")), "Redirect"),
						Entry(where+" by name without redirect", p, native, h(portName("http")), h(portName("http")), "None"))
				}
			}
			entries = append(entries, Entry(p.name+" to another host of "+kind,
				p, native, elsewhere(intstr.FromInt32(8080)), elsewhere(intstr.FromInt32(8080)), "Redirect"))
		}
		for _, p := range hooks {
			where := p.name + " of " + kind
			entries = append(entries,
				Entry(where+" by number", p, native, httpGet(intstr.FromInt32(8080)), httpGet(intstr.FromInt32(14180)), "Redirect"),
				Entry(where+" by name", p, native, httpGet(portName("http")), httpGet(intstr.FromInt32(14180)), "Redirect"),
				Entry(where+" of another port", p, native, httpGet(portName("metrics")), httpGet(portName("metrics")), "Redirect"))
		}
	}
	DescribeTable("reach the app past the sidecar", check, entries)

	It("keep a name that only another container declares", func() {
		pod := newPod(withContainer(corev1.Container{Name: "b", Image: "b", ReadinessProbe: &corev1.Probe{ProbeHandler: tcp(portName("http"))}}))
		after := podOf(inject(marshal(pod), options()).Pod)
		Expect(after.Spec.Containers[1].ReadinessProbe.TCPSocket.Port).To(Equal(portName("http")))
	})

	It("of a container that another webhook adds after us are rewritten too", func() {
		pod := podOf(inject(marshal(newPod()), options()).Pod)
		withContainer(corev1.Container{Name: "late", Image: "l", LivenessProbe: &corev1.Probe{ProbeHandler: tcp(intstr.FromInt32(8080))}})(pod)
		after := podOf(inject(marshal(pod), options()).Pod)
		Expect(after.Spec.Containers[1].LivenessProbe.TCPSocket.Port.IntValue()).To(Equal(14180))
	})

	It("go back to the app when the pod changes to None", func() {
		pod := newPod(func(pod *corev1.Pod) {
			pod.Spec.Containers[0].LivenessProbe = &corev1.Probe{ProbeHandler: tcp(portName("http"))}
		})
		redirected := podOf(inject(marshal(pod), options()).Pod)
		redirected.Annotations[v1alpha1.InterceptionAnnotation] = "None"
		after := podOf(inject(marshal(redirected), options()).Pod)
		Expect(after.Spec.Containers[0].LivenessProbe.TCPSocket.Port.IntValue()).To(Equal(8080))
		Expect(initNames(after)).To(Equal([]string{"portero"}))
	})
})
