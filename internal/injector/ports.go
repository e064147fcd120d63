package injector

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/portero-dev/portero/api/v1alpha1"
	"github.com/portero-dev/portero/internal/sidecarenv"
)

// protectedPorts finds the ports to protect: those of the annotation or, without it, the only one that the app declares.
func protectedPorts(pod *corev1.Pod) ([]int32, *refusal) {
	if text, ok := pod.Annotations[v1alpha1.PortsAnnotation]; ok {
		return namedPorts(pod, text)
	}
	declared := sets.New[int32]()
	for _, c := range pod.Spec.Containers {
		for _, p := range c.Ports {
			if isTCP(p) {
				declared.Insert(p.ContainerPort)
			}
		}
	}
	switch found := sets.List(declared); len(found) {
	case 1:
		return found, nil
	case 0:
		return nil, refuse(ReasonNoPort, "no container declares a TCP port: name the app's ports in %s", v1alpha1.PortsAnnotation)
	default:
		return nil, refuse(ReasonAmbiguousPort, "the containers declare %d TCP ports: name those to protect in %s",
			len(found), v1alpha1.PortsAnnotation)
	}
}

func namedPorts(pod *corev1.Pod, text string) ([]int32, *refusal) {
	var ports []int32
	for entry := range strings.SplitSeq(text, ",") {
		entry = strings.TrimSpace(entry)
		port, why := portOf(pod, entry)
		if why != "" {
			return nil, refuse(ReasonInvalidAnnotation, "%s names %s, %s", v1alpha1.PortsAnnotation, quote(entry), why)
		}
		if !slices.Contains(ports, port) {
			ports = append(ports, port)
		}
		if len(ports) > sidecarenv.MaxPorts {
			return nil, refuse(ReasonInvalidAnnotation, "%s names more than %d ports", v1alpha1.PortsAnnotation, sidecarenv.MaxPorts)
		}
	}
	return ports, nil
}

// portOf resolves one entry of the annotation; why tells what is wrong with it.
func portOf(pod *corev1.Pod, entry string) (port int32, why string) {
	if n, err := strconv.ParseInt(entry, 10, 32); err == nil {
		if n < 1 || n > 65535 {
			return 0, "which is not between 1 and 65535"
		}
		return int32(n), ""
	}
	found := sets.New[int32]()
	for c := range servingContainers(pod) {
		for _, p := range c.Ports {
			if p.Name == entry && isTCP(p) {
				found.Insert(p.ContainerPort)
			}
		}
	}
	switch ports := sets.List(found); len(ports) {
	case 1:
		return ports[0], ""
	case 0:
		return 0, "but no container declares a TCP port of that name"
	default:
		return 0, "but containers declare different ports of that name: use the number"
	}
}

// assignPorts gives each protected port its listener and shadow port, and refuses a pod that uses one of the numbers.
func assignPorts(pod *corev1.Pod, apps []int32) ([]Port, *refusal) {
	ours := sets.New[int32](sidecarenv.AdminPort, sidecarenv.ControlPort)
	ports := make([]Port, 0, len(apps))
	for i, app := range apps {
		p := Port{
			App: app, Listen: sidecarenv.ListenPortBase + int32(i), Shadow: sidecarenv.ShadowPortBase + int32(i),
		}
		ports = append(ports, p)
		ours.Insert(p.Listen, p.Shadow)
	}
	for _, app := range apps {
		if ours.Has(app) {
			return nil, refuse(ReasonPortConflict, "port %d is to be protected, but the sidecar uses that number", app)
		}
	}
	for c := range servingContainers(pod) {
		for _, p := range c.Ports {
			if isTCP(p) && ours.Has(p.ContainerPort) {
				return nil, refuse(ReasonPortConflict, "container %s declares port %d, which the sidecar uses",
					c.Name, p.ContainerPort)
			}
		}
		for number := range numbersProbed(c) {
			if ours.Has(number) {
				return nil, refuse(ReasonPortConflict, "a probe of container %s names port %d, which the sidecar uses",
					c.Name, number)
			}
		}
	}
	return ports, nil
}

// portName is what the pod calls a port: the name that is declared first.
func portName(pod *corev1.Pod, app int32) string {
	for c := range servingContainers(pod) {
		for _, p := range c.Ports {
			if p.ContainerPort == app && p.Name != "" && isTCP(p) {
				return p.Name
			}
		}
	}
	return ""
}

// portWarnings tells of traffic on protected ports that no HTTP proxy sees.
func portWarnings(pod *corev1.Pod, ports []Port) (warnings []string) {
	udp := sets.New[int32]()
	for c := range servingContainers(pod) {
		for _, p := range c.Ports {
			if p.Protocol == corev1.ProtocolUDP {
				udp.Insert(p.ContainerPort)
			}
		}
	}
	for _, p := range ports {
		if udp.Has(p.App) {
			warnings = append(warnings, fmt.Sprintf("port %d is declared for UDP too, which is not limited", p.App))
		}
	}
	return warnings
}

// servingContainers are the containers that can serve a port: the app's, and native sidecars. Ours are left out.
func servingContainers(pod *corev1.Pod) func(yield func(*corev1.Container) bool) {
	return func(yield func(*corev1.Container) bool) {
		for i := range pod.Spec.Containers {
			if !yield(&pod.Spec.Containers[i]) {
				return
			}
		}
		for i := range pod.Spec.InitContainers {
			c := &pod.Spec.InitContainers[i]
			if native(c) && !isOurs(c.Name) && !yield(c) {
				return
			}
		}
	}
}

func native(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

func isOurs(name string) bool {
	return name == sidecarenv.ContainerName || name == sidecarenv.RedirectContainerName
}

func isTCP(p corev1.ContainerPort) bool { return p.Protocol == "" || p.Protocol == corev1.ProtocolTCP }

// portsEnv writes the ports as the sidecar reads them.
func portsEnv(ports []Port) string {
	entries := make([]string, 0, len(ports))
	for _, p := range ports {
		entry := fmt.Sprintf("%d:%d:%d", p.App, p.Listen, p.Shadow)
		if p.Name != "" {
			entry += ":" + p.Name
		}
		entries = append(entries, entry)
	}
	return strings.Join(entries, ",")
}

// numbersProbed are the numeric ports that kubelet connects to for a container.
func numbersProbed(c *corev1.Container) sets.Set[int32] {
	numbers := sets.New[int32]()
	for _, p := range []*corev1.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
		if p == nil {
			continue
		}
		switch {
		case p.HTTPGet != nil && p.HTTPGet.Host == "":
			numbers.Insert(p.HTTPGet.Port.IntVal)
		case p.TCPSocket != nil && p.TCPSocket.Host == "":
			numbers.Insert(p.TCPSocket.Port.IntVal)
		case p.GRPC != nil:
			numbers.Insert(p.GRPC.Port)
		}
	}
	return numbers
}
