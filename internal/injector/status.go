package injector

import (
	"encoding/json"
	"fmt"

	"github.com/portero-dev/portero/api/v1alpha1"
	"github.com/portero-dev/portero/internal/sidecarenv"
)

// Mode says how traffic reaches the sidecar.
type Mode string

// Modes, as users write them in the interception annotation.
const (
	// ModeRedirect catches all traffic to the protected ports in the pod's network namespace.
	ModeRedirect Mode = "Redirect"
	// ModePort lets the named container port lead to the sidecar. Not available yet.
	ModePort Mode = "Port"
	// ModeNone leaves the traffic alone: the user points a Service at the sidecar's port.
	ModeNone Mode = "None"
)

// Reason says in one word why a pod got no sidecar.
type Reason string

// Reasons why nothing was injected.
const (
	// ReasonNotRequested: the pod did not ask, so it carries no status either.
	ReasonNotRequested Reason = "NotRequested"
	// ReasonHostNetwork: the pod shares the node's network, where a redirect would catch foreign traffic.
	ReasonHostNetwork Reason = "HostNetwork"
	// ReasonWindows: the pod runs on Windows.
	ReasonWindows Reason = "Windows"
	// ReasonNameConflict: a container or volume of the pod has a name that the injection needs.
	ReasonNameConflict Reason = "NameConflict"
	// ReasonPortConflict: a container of the pod uses a port number that the sidecar needs.
	ReasonPortConflict Reason = "PortConflict"
	// ReasonNoPort: no container declares a TCP port, and the annotation names none.
	ReasonNoPort Reason = "NoPort"
	// ReasonAmbiguousPort: several TCP ports are declared, and the annotation names none.
	ReasonAmbiguousPort Reason = "AmbiguousPort"
	// ReasonInvalidAnnotation: an annotation that decides how the pod is wired can't be read.
	ReasonInvalidAnnotation Reason = "InvalidAnnotation"
	// ReasonInterceptionUnavailable: this version does not have the mode.
	ReasonInterceptionUnavailable Reason = "InterceptionUnavailable"
	// ReasonPodSecurity: the namespace's Pod Security level does not admit the mode.
	ReasonPodSecurity Reason = "PodSecurity"
	// ReasonInternalError: a fault of Portero's; the message says which.
	ReasonInternalError Reason = "InternalError"
)

// Status is what the webhook did to a pod; it stands in the pod's status annotation as JSON.
type Status struct {
	// Version of Portero that wrote the status.
	Version string `json:"version,omitempty"`
	// Injected tells whether the pod has the sidecar.
	Injected bool `json:"injected"`
	// Mode in force; empty when nothing was injected.
	Mode Mode `json:"mode,omitempty"`
	// Image of the sidecar.
	Image string `json:"image,omitempty"`
	// Ports that are protected.
	Ports []Port `json:"ports,omitempty"`
	// PortsFrom is the ports annotation as it was when Ports was found. A container that another webhook adds later
	// must not change the answer, so Ports stays while the annotation does.
	PortsFrom string `json:"portsFrom,omitempty"`
	// Rendered is a digest of the containers and volumes as they were injected. While a new injection would give the
	// same, those in the pod stay as they are, with what the API server and other webhooks made of them.
	Rendered string `json:"rendered,omitempty"`
	// Reason and Message say why nothing was injected.
	Reason  Reason `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Warnings tell what was asked for and not done, or what the user may not expect.
	Warnings []string `json:"warnings,omitempty"`
}

// Port is one protected port of a pod.
type Port struct {
	// Name is what the pod calls the app's port; empty when it has no name.
	Name string `json:"name,omitempty"`
	// App is where the app listens, Listen the sidecar.
	App    int32 `json:"app"`
	Listen int32 `json:"listen"`
	// Shadow is the port on which kubelet's probes reach the app past the sidecar; used under Redirect only.
	Shadow int32 `json:"shadow"`
}

// StatusOf reads the status annotation. It returns false when there is none or it can't be read.
func StatusOf(annotations map[string]string) (Status, bool) {
	text, ok := annotations[v1alpha1.StatusAnnotation]
	if !ok {
		return Status{}, false
	}
	var s Status
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return Status{}, false
	}
	return s, true
}

// Bounds that keep the status small: a pod whose annotations pass 256 KiB is refused, and values quoted in warnings are
// the user's.
const (
	maxWarnings = 16
	maxQuoted   = 64
)

func (s Status) encode() (string, error) {
	if n := len(s.Warnings) - maxWarnings; n > 0 {
		s.Warnings = append(s.Warnings[:maxWarnings:maxWarnings], fmt.Sprintf("%d more warnings", n))
	}
	raw, err := json.Marshal(s)
	if err != nil {
		return "", fmt.Errorf("encode status: %w", err)
	}
	return string(raw), nil
}

// apps are the app's ports that an earlier call found.
func (s Status) apps() []int32 {
	apps := make([]int32, 0, len(s.Ports))
	for _, p := range s.Ports {
		apps = append(apps, p.App)
	}
	return apps[:min(len(apps), sidecarenv.MaxPorts)]
}

// nameOf is the name that an earlier call found for one of the app's ports.
func (s Status) nameOf(app int32) string {
	for _, p := range s.Ports {
		if p.App == app {
			return p.Name
		}
	}
	return ""
}

// refusal is why a pod gets no sidecar.
type refusal struct {
	reason  Reason
	message string
}

func refuse(reason Reason, format string, args ...any) *refusal {
	return &refusal{reason: reason, message: fmt.Sprintf(format, args...)}
}

// quote prints a value that a user wrote, cut to a bounded length.
func quote(value string) string {
	if len(value) > maxQuoted {
		return fmt.Sprintf("%q…", value[:maxQuoted])
	}
	return fmt.Sprintf("%q", value)
}
