package redislink

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var up = prometheus.NewGauge(prometheus.GaugeOpts{
	Name: "portero_manager_redis_up",
	Help: "1 while every Redis master answers the leading manager and holds the Function library.",
})

func init() { metrics.Registry.MustRegister(up) }

func boolToFloat(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
