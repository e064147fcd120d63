package webhook

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/portero-dev/portero/internal/injector"
)

// injections counts answers. result is injected, refused or error; reason is one of the injector's, empty for injected.
var injections = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "portero_injections_total",
	Help: "Pods that asked for a sidecar, by what became of them.",
}, []string{"result", "reason"})

// validations counts answers. result is admitted, refused or error: admitted without being looked at.
var validations = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "portero_validations_total",
	Help: "Policies that were created or changed, by what the webhook said.",
}, []string{"result"})

func init() {
	metrics.Registry.MustRegister(injections, validations)
	// There from the start, so that the first error is an increase.
	injections.WithLabelValues("error", string(injector.ReasonInternalError))
}

func observe(s injector.Status, err error) {
	switch {
	case err != nil:
		injections.WithLabelValues("error", string(injector.ReasonInternalError)).Inc()
	case s.Injected:
		injections.WithLabelValues("injected", "").Inc()
	default:
		injections.WithLabelValues("refused", string(s.Reason)).Inc()
	}
}
