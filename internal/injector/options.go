package injector

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Options are the settings of the installation; pods override some by annotation. They are read only, and so may be
// shared by concurrent calls.
type Options struct {
	// Image of the sidecar, best by digest. Required.
	Image string
	// PullPolicy of the image; IfNotPresent when empty.
	PullPolicy corev1.PullPolicy
	// Version of Portero, as in "v0.1.0"; it stands in the pod's status annotation and label. Required.
	Version string
	// RestrictedNamespace says that the pod's namespace enforces the Pod Security level baseline or restricted, which
	// do not admit what Redirect needs.
	RestrictedNamespace bool
	// Resources of the sidecar where the pod does not say otherwise. The zero value stands for DefaultResources.
	Resources Resources
}

// Resources size a sidecar. A zero limit means none.
type Resources struct {
	CPURequest, CPULimit, MemoryRequest, MemoryLimit resource.Quantity
	// GuaranteedCPU is request and limit in a Guaranteed pod that does not say otherwise: there the request alone,
	// taken as the limit, would throttle the proxy.
	GuaranteedCPU resource.Quantity
}

// DefaultResources fit a sidecar that forwards some hundred requests per second. There is no CPU limit, because
// throttling shows as latency of the app.
func DefaultResources() Resources {
	return Resources{
		CPURequest:    resource.MustParse("20m"),
		MemoryRequest: resource.MustParse("64Mi"),
		MemoryLimit:   resource.MustParse("256Mi"),
		GuaranteedCPU: resource.MustParse("250m"),
	}
}

// Validate says which option can't be used.
func (o Options) Validate() error {
	if o.Image == "" {
		return fmt.Errorf("sidecar image is empty: name the image to inject")
	}
	if o.Version == "" {
		return fmt.Errorf("version is empty: name the version that the sidecar image holds")
	}
	r := o.resources()
	for _, q := range []struct {
		name    string
		value   resource.Quantity
		atLeast int
	}{
		{"CPU request", r.CPURequest, 1}, {"CPU limit", r.CPULimit, 0}, {"memory request", r.MemoryRequest, 1},
		{"memory limit", r.MemoryLimit, 0}, {"CPU in guaranteed pods", r.GuaranteedCPU, 1},
	} {
		if q.value.Sign() < q.atLeast {
			return fmt.Errorf("%s of the sidecar is %s: it must be positive (limits may be 0, for none)", q.name, q.value.String())
		}
	}
	if exceeds(r.CPURequest, r.CPULimit) {
		return fmt.Errorf("CPU request %s of the sidecar is above its limit %s", r.CPURequest.String(), r.CPULimit.String())
	}
	if exceeds(r.MemoryRequest, r.MemoryLimit) {
		return fmt.Errorf("memory request %s of the sidecar is above its limit %s",
			r.MemoryRequest.String(), r.MemoryLimit.String())
	}
	return nil
}

func (o Options) pullPolicy() corev1.PullPolicy {
	if o.PullPolicy == "" {
		return corev1.PullIfNotPresent
	}
	return o.PullPolicy
}

func (o Options) resources() Resources {
	if o.Resources == (Resources{}) {
		return DefaultResources()
	}
	return o.Resources
}

// exceeds tells whether a request lies above a limit; a zero limit is none.
func exceeds(request, limit resource.Quantity) bool {
	return !limit.IsZero() && request.Cmp(limit) > 0
}
