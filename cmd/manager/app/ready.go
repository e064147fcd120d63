package app

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// cachesSynced is ready once the manager's caches hold what the API server has. Redis is no part of readiness: a replica
// without Redis injects as well as any.
func cachesSynced(mgr ctrl.Manager) healthz.Checker {
	var synced atomic.Bool
	err := mgr.Add(everyReplica(func(ctx context.Context) error {
		synced.Store(mgr.GetCache().WaitForCacheSync(ctx))
		return nil
	}))
	return func(*http.Request) error {
		if err != nil {
			return err
		}
		if !synced.Load() {
			return errors.New("caches are not synced yet")
		}
		return nil
	}
}

// everyReplica runs on all replicas, not on the leader only.
type everyReplica func(context.Context) error

var _ manager.LeaderElectionRunnable = everyReplica(nil)

// Start runs the function.
func (f everyReplica) Start(ctx context.Context) error { return f(ctx) }

// NeedLeaderElection is false.
func (everyReplica) NeedLeaderElection() bool { return false }
