package policy

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	portero "github.com/portero-dev/portero/api/v1alpha1"
)

// conditionMetric follows the conditions, so that an alert can name the policy.
var conditionMetric = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "portero_policy_condition",
	Help: "1 for the current status (True, False or Unknown) of each condition of each policy.",
}, []string{"namespace", "policy", "type", "status"})

func init() { metrics.Registry.MustRegister(conditionMetric) }

func recordMetrics(policy *portero.RateLimitPolicy) {
	for i := range policy.Status.Conditions {
		c := &policy.Status.Conditions[i]
		for _, status := range []string{"True", "False", "Unknown"} {
			value := 0.0
			if status == string(c.Status) {
				value = 1
			}
			conditionMetric.WithLabelValues(policy.Namespace, policy.Name, c.Type, status).Set(value)
		}
	}
}

func forgetMetrics(policy types.NamespacedName) {
	conditionMetric.DeletePartialMatch(prometheus.Labels{"namespace": policy.Namespace, "policy": policy.Name})
}
