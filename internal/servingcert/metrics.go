package servingcert

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// Both have no label, and yet are vectors: they are absent until set, so that a manager without webhooks says nothing.
var (
	notAfter = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "portero_webhook_certificate_not_after_seconds",
		Help: "When this replica's serving certificate ends, in seconds since the epoch. It is renewed at two thirds of its life.",
	}, nil)
	trusted = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "portero_webhook_trusted",
		Help: "1 while the caBundle of every webhook verifies this replica's serving certificate, so that API servers can call it.",
	}, nil)
)

func init() { metrics.Registry.MustRegister(notAfter, trusted) }

// measure is called after each look at Secret and webhooks.
func (k *Keeper) measure() {
	leaf := k.serving.Load()
	if leaf == nil {
		trusted.WithLabelValues().Set(0)
		return
	}
	notAfter.WithLabelValues().Set(float64(leaf.Leaf.NotAfter.Unix()))
	verified := 0.0
	if k.Ready(nil) == nil {
		verified = 1
	}
	trusted.WithLabelValues().Set(verified)
}
