// Package fence numbers the leaders, so that Redis can refuse what an old one still writes.
//
// The number is made of the leader lease. The wiring makes a Fence; the Redis link uses it.
package fence

import (
	"context"
	"fmt"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/portero-dev/portero/internal/configstore"
)

// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=portero-system,resources=leases,verbs=create
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=portero-system,resources=leases,resourceNames=portero-manager,verbs=get;update

// Fence gives the number of this leader. It is safe for concurrent use.
type Fence struct {
	// Reader reads the lease without a cache: an old lease would be an old number.
	Reader client.Reader
	// Lease is the leader lease; empty when there is no leader election, and so only one manager.
	Lease client.ObjectKey
	// Identity is this manager's, as it stands in a lease that it holds.
	Identity string

	mu      sync.Mutex
	known   bool
	current int64
}

// Current is the number to write with. Only a leader may ask, and it stays the same for as long as this process leads: one
// that loses the lease ends. Without leader election it is 0.
func (f *Fence) Current(ctx context.Context) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.known {
		return f.current, nil
	}
	return f.read(ctx)
}

// Confirm reads the lease anew: it fails when this manager does not lead any more.
func (f *Fence) Confirm(ctx context.Context) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.read(ctx)
}

func (f *Fence) read(ctx context.Context) (int64, error) {
	if f.Lease.Name == "" {
		return 0, nil
	}
	lease := &coordinationv1.Lease{}
	if err := f.Reader.Get(ctx, f.Lease, lease); err != nil {
		return 0, fmt.Errorf("read the leader lease %s: %w", f.Lease, err)
	}
	if holder := lease.Spec.HolderIdentity; holder == nil || *holder != f.Identity {
		return 0, fmt.Errorf("the leader lease %s is not held by this manager: another one leads", f.Lease)
	}
	var transitions int32
	if lease.Spec.LeaseTransitions != nil {
		transitions = *lease.Spec.LeaseTransitions
	}
	f.current, f.known = configstore.Fence(lease.CreationTimestamp.Time, transitions), true
	return f.current, nil
}
