// Package trigger lets one controller make another look again.
//
// It replaces channels of events: adding to a work queue never blocks and never counts twice.
package trigger

import (
	"context"
	"sync"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Trigger enqueues requests at a controller that watches its Source. The zero value is ready, and safe for concurrent use.
// What is enqueued before the controller starts is dropped: at its start it looks at every object anyway.
type Trigger struct {
	mu    sync.Mutex
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
}

// Source is what the controller watches.
func (t *Trigger) Source() source.Source {
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.queue = queue
		return nil
	})
}

// Enqueue makes the controller look at the objects again.
func (t *Trigger) Enqueue(requests ...reconcile.Request) {
	t.mu.Lock()
	queue := t.queue
	t.mu.Unlock()
	if queue == nil {
		return
	}
	for _, request := range requests {
		queue.Add(request)
	}
}
