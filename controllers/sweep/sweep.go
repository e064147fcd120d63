// Package sweep compares Redis with the API server, at the start, when Redis comes back, and every few seconds, and has the
// others remove and repair what differs. It is what makes finalizers needless.
package sweep

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/portero-dev/portero/controllers/problem"
	"github.com/portero-dev/portero/controllers/publisher"
)

const (
	// every leaves two seconds for the repair itself: what was lost is back within 10 s.
	every = 8 * time.Second
	// least is the time between two sweeps, however often somebody asks for one.
	least = time.Second
	// timeout bounds one step of a sweep, so that each has its time however long the one before took.
	timeout = 10 * time.Second
)

var swept = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "portero_manager_swept_total",
	Help: "Namespaces in Redis that the sweep changed, by what it did: removed or repaired.",
}, []string{"action"})

func init() { metrics.Registry.MustRegister(swept) }

// Sweeper sweeps. All fields but Again are required.
type Sweeper struct {
	// Wanted names the namespaces that may have anything in Redis.
	Wanted func(context.Context) (map[string]bool, error)
	// Records sweeps the records, Users the ACL users, Heartbeats what pods that are gone reported.
	Records    func(ctx context.Context, wanted map[string]bool) (publisher.Swept, error)
	Users      func(ctx context.Context, wanted map[string]bool) error
	Heartbeats func(ctx context.Context, wanted map[string]bool) error
	// Again asks for a sweep now.
	Again chan struct{}
}

// Ask asks for a sweep now; it never blocks.
func (s *Sweeper) Ask() {
	select {
	case s.Again <- struct{}{}:
	default:
	}
}

// NeedLeaderElection makes only the leader sweep.
func (s *Sweeper) NeedLeaderElection() bool { return true }

// Start sweeps until ctx ends.
func (s *Sweeper) Start(ctx context.Context) error {
	ctx = logf.IntoContext(ctx, logf.Log.WithName("sweep"))
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		s.sweep(ctx)
		pause := time.NewTimer(least)
		select {
		case <-ctx.Done():
			return nil
		case <-pause.C:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		case <-s.Again:
		}
	}
}

func (s *Sweeper) sweep(ctx context.Context) {
	log := logf.FromContext(ctx)
	wanted, err := s.Wanted(ctx)
	if err != nil {
		log.Error(err, "List namespaces")
		return
	}
	var done publisher.Swept
	step(ctx, "Sweep records", func(ctx context.Context) (err error) {
		done, err = s.Records(ctx, wanted)
		return err
	})
	swept.WithLabelValues("removed").Add(float64(len(done.Removed)))
	swept.WithLabelValues("repaired").Add(float64(len(done.Repaired)))
	if len(done.Removed)+len(done.Repaired) > 0 {
		log.Info("Records swept", "removed", done.Removed, "repaired", done.Repaired)
	}
	step(ctx, "Sweep users", func(ctx context.Context) error { return s.Users(ctx, wanted) })
	step(ctx, "Sweep heartbeats", func(ctx context.Context) error { return s.Heartbeats(ctx, wanted) })
}

// step runs a part of the sweep for at most timeout.
func step(ctx context.Context, name string, run func(context.Context) error) {
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	report(ctx, run(bounded), name)
}

// report logs an error that no condition tells of.
func report(ctx context.Context, err error, message string) {
	if err == nil {
		return
	}
	log := logf.FromContext(ctx)
	if p := problem.Of(err, ""); p.Reason != "" {
		log = log.V(1) // the link has told
		log.Info(message, "error", err.Error())
		return
	}
	log.Error(err, message)
}
