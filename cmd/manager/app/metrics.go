package app

import (
	"context"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/portero-dev/portero/internal/version"
)

var (
	buildInfo = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "portero_manager_build_info",
		Help: "Always 1; the version is in the labels.",
	}, []string{"version", "goversion"})
	leader = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "portero_manager_leader",
		Help: "1 on the replica that publishes policies and writes their status, 0 on the others.",
	})
)

func init() {
	metrics.Registry.MustRegister(buildInfo, leader)
	buildInfo.WithLabelValues(version.Version, runtime.Version()).Set(1)
}

// tellLeadership follows the election. Who loses the lease ends.
func tellLeadership(ctx context.Context, elected <-chan struct{}) {
	leader.Set(0)
	select {
	case <-ctx.Done():
	case <-elected:
		leader.Set(1)
	}
}
