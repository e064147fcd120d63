package injector

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/portero-dev/portero/api/v1alpha1"
	"github.com/portero-dev/portero/internal/sidecarenv"
)

// Labels of an injected pod.
const (
	// InjectedLabel is "true" on a pod that has the sidecar.
	InjectedLabel = annotationPrefix + "injected"
	// SidecarVersionLabel tells the version of the sidecar.
	SidecarVersionLabel = annotationPrefix + "sidecar-version"
)

// Result is a changed pod.
type Result struct {
	// Pod is the pod after the injection, as JSON.
	Pod []byte
	// Patch leads from the pod that was given to Pod; empty when nothing changes.
	Patch []Operation
	// Status is what the pod's status annotation says.
	Status Status
}

// Inject adds the sidecar to a pod that asks for it, or the reason why it can't have it to the pod's status annotation.
// The pod is JSON, as the API server sends it. Applied to its own result, also after other webhooks changed that, Inject
// changes nothing that still holds; containers that are there keep their place. An error means that the pod can't be
// read at all.
func Inject(raw []byte, o Options) (Result, error) {
	before, err := decode(raw)
	if err != nil {
		return Result{}, err
	}
	after, err := decode(raw) // a second copy, to be changed
	if err != nil {
		return Result{}, err
	}
	pod, err := view(after)
	if err != nil {
		return Result{}, err
	}
	if pod.Annotations[v1alpha1.InjectAnnotation] != requested {
		return Result{Pod: raw, Status: Status{Reason: ReasonNotRequested}}, nil
	}
	status, err := change(after, pod, o)
	if err != nil {
		return Result{}, err
	}
	text, err := status.encode()
	if err != nil {
		return Result{}, err
	}
	ensure(ensure(after, "metadata"), "annotations")[v1alpha1.StatusAnnotation] = text
	out, err := encode(after)
	if err != nil {
		return Result{}, err
	}
	return Result{Pod: out, Patch: diff("", before, after), Status: status}, nil
}

// change brings the document to its wanted state and tells which that is. pod is a view of doc.
func change(doc object, pod *corev1.Pod, o Options) (Status, error) {
	var err error
	previous, _ := StatusOf(pod.Annotations)
	ours := previous.Injected && hasSidecar(pod)
	if previous.Injected {
		// Decide on the pod as it was written; what still holds is done again below.
		unshadowProbes(doc, previous.Ports)
		if pod, err = view(doc); err != nil {
			return Status{}, err
		}
	}
	status, r, no := plan(pod, previous, ours, o)
	if no != nil && ours {
		// Something came later that hinders the sidecar. Decide anew without what an earlier call left behind, so that the
		// reason is the one that any further call gives.
		strip(doc)
		if pod, err = view(doc); err != nil {
			return Status{}, err
		}
		return change(doc, pod, o)
	}
	if no != nil {
		status.Reason, status.Message = no.reason, no.message
		return status, nil
	}
	digest, err := r.digest()
	if err != nil {
		return Status{}, err
	}
	status.Rendered = digest
	if err := apply(doc, r, ours && previous.Rendered == digest); err != nil {
		return Status{}, err
	}
	if status.Mode == ModeRedirect {
		shadowProbes(doc, status.Ports)
	}
	labels := ensure(ensure(doc, "metadata"), "labels")
	labels[InjectedLabel] = "true"
	labels[SidecarVersionLabel] = labelValue(o.Version)
	return status, nil
}

// plan decides what the pod gets, or why it gets nothing.
func plan(pod *corev1.Pod, previous Status, ours bool, o Options) (Status, rendered, *refusal) {
	status := Status{Version: o.Version}
	if no := unfit(pod, ours); no != nil {
		return status, rendered{}, no
	}
	s, warnings, no := readSettings(pod, o)
	status.Warnings = warnings
	if no != nil {
		return status, rendered{}, no
	}
	from := pod.Annotations[v1alpha1.PortsAnnotation]
	apps, name := previous.apps(), previous.nameOf
	if !ours || previous.PortsFrom != from || len(apps) == 0 {
		name = func(app int32) string { return portName(pod, app) }
		if apps, no = protectedPorts(pod); no != nil {
			return status, rendered{}, no
		}
	}
	ports, no := assignPorts(pod, apps)
	if no != nil {
		return status, rendered{}, no
	}
	for i := range ports {
		ports[i].Name = name(ports[i].App)
	}
	z, more := size(pod, s, o)
	status.Warnings = append(append(warnings, more...), portWarnings(pod, ports)...)
	status.Injected, status.Mode, status.Image, status.Ports, status.PortsFrom = true, s.mode, o.Image, ports, from
	return status, render(pod, s, ports, z, o), nil
}

// unfit tells why a pod can't have a sidecar whatever its annotations say.
func unfit(pod *corev1.Pod, ours bool) *refusal {
	if pod.Spec.HostNetwork {
		return refuse(ReasonHostNetwork, "the pod uses the node's network, which the sidecar must not touch")
	}
	if os := pod.Spec.OS; os != nil && os.Name == corev1.Windows {
		return refuse(ReasonWindows, "the sidecar runs on Linux only")
	}
	if ours {
		return nil
	}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for _, c := range list {
			if isOurs(c.Name) {
				return refuse(ReasonNameConflict, "the pod has a container %s that Portero did not inject: rename it", c.Name)
			}
		}
	}
	for _, v := range volumes() {
		for _, theirs := range pod.Spec.Volumes {
			if v.Name == theirs.Name {
				return refuse(ReasonNameConflict, "the pod has a volume %s that Portero did not inject: rename it", v.Name)
			}
		}
	}
	return nil
}

func hasSidecar(pod *corev1.Pod) bool {
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; c.Name == sidecarenv.ContainerName {
			return true
		}
	}
	return false
}

// apply puts containers and volumes into the document. With keep, those that are there stay as they are, but for a
// sidecar that lost what makes it a native one.
func apply(doc object, r rendered, keep bool) error {
	spec := ensure(doc, "spec")
	place := func(list string, v any, name string, front bool) error {
		if i := indexOf(items(spec, list), name); i >= 0 && keep {
			o, _ := items(spec, list)[i].(object)
			if list == "volumes" || name != sidecarenv.ContainerName || o["restartPolicy"] == string(corev1.ContainerRestartPolicyAlways) {
				return nil
			}
		}
		o, err := toObject(v)
		if err != nil {
			return err
		}
		put(spec, list, o, front)
		return nil
	}
	if r.redirect == nil {
		drop(spec, "initContainers", sidecarenv.RedirectContainerName)
	} else if err := place("initContainers", r.redirect, r.redirect.Name, true); err != nil {
		return err
	}
	if err := place("initContainers", r.sidecar, r.sidecar.Name, false); err != nil {
		return err
	}
	for _, v := range r.volumes {
		if err := place("volumes", v, v.Name, false); err != nil {
			return err
		}
	}
	return nil
}

// strip takes away what an earlier call put into the pod, but for the ports of probes.
func strip(doc object) {
	spec := ensure(doc, "spec")
	drop(spec, "initContainers", sidecarenv.RedirectContainerName)
	drop(spec, "initContainers", sidecarenv.ContainerName)
	for _, v := range volumes() {
		drop(spec, "volumes", v.Name)
	}
	meta := ensure(doc, "metadata")
	delete(field(meta, "annotations"), v1alpha1.StatusAnnotation)
	labels := field(meta, "labels")
	delete(labels, InjectedLabel)
	delete(labels, SidecarVersionLabel)
}

// view reads the document as a Pod, to decide on. It is never written back.
func view(doc object) (*corev1.Pod, error) {
	raw, err := encode(doc)
	if err != nil {
		return nil, err
	}
	pod := &corev1.Pod{}
	if err := json.Unmarshal(raw, pod); err != nil {
		return nil, fmt.Errorf("decode pod: %w", err)
	}
	return pod, nil
}
