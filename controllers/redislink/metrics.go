package redislink

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// up has no label, and yet is a vector: it is absent until set, so that a standby, which looks at nothing, says nothing.
var up = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "portero_manager_redis_up",
	Help: "1 while every Redis master answers the leading manager and holds the Function library.",
}, nil)

// warned has series from the first look on, for the reason of up.
var warned = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "portero_redis_warning",
	Help: "Nodes of Redis that are set otherwise than they should be, by kind: eviction, full_coverage, version, or unknown where that can't be read.",
}, []string{"kind"})

func init() { metrics.Registry.MustRegister(up, warned) }

func boolToFloat(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
