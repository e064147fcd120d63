package metrics

import "github.com/prometheus/client_golang/prometheus"

// Describe tells all metrics that m exposes, also those that have no series yet.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) { m.registry.Describe(ch) }
