package policy

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	portero "github.com/portero-dev/portero/api/v1alpha1"
)

// conditionMetric follows the conditions, so that an alert can name the policy and what is wrong with it.
var conditionMetric conditions

func init() { metrics.Registry.MustRegister(&conditionMetric) }

var conditionDesc = prometheus.NewDesc("portero_policy_condition",
	"Always 1; the labels tell the current status (True, False or Unknown) and reason of each condition of each policy.",
	[]string{"namespace", "policy", "type", "status", "reason"}, nil)

// conditions is a collector and not a vector, so that no scrape sees a condition twice or not at all while it changes.
type conditions struct {
	mu       sync.Mutex
	byPolicy map[types.NamespacedName][]metav1.Condition
}

// Describe implements prometheus.Collector.
func (c *conditions) Describe(ch chan<- *prometheus.Desc) { ch <- conditionDesc }

// Collect implements prometheus.Collector.
func (c *conditions) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for policy, all := range c.byPolicy {
		for i := range all {
			ch <- prometheus.MustNewConstMetric(conditionDesc, prometheus.GaugeValue, 1,
				policy.Namespace, policy.Name, all[i].Type, string(all[i].Status), all[i].Reason)
		}
	}
}

func (c *conditions) set(policy types.NamespacedName, now []metav1.Condition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byPolicy == nil {
		c.byPolicy = map[types.NamespacedName][]metav1.Condition{}
	}
	c.byPolicy[policy] = now
}

func (c *conditions) forget(policy types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.byPolicy, policy)
}

func recordMetrics(policy *portero.RateLimitPolicy) {
	kept := make([]metav1.Condition, 0, len(policy.Status.Conditions))
	for i := range policy.Status.Conditions {
		c := &policy.Status.Conditions[i]
		kept = append(kept, metav1.Condition{Type: c.Type, Status: c.Status, Reason: c.Reason})
	}
	conditionMetric.set(types.NamespacedName{Namespace: policy.Namespace, Name: policy.Name}, kept)
}

func forgetMetrics(policy types.NamespacedName) { conditionMetric.forget(policy) }
