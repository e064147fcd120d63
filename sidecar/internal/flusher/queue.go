package flusher

import (
	"context"
	"sync"
)

// queue is what waits for a lane to one master.
type queue struct {
	mu     sync.Mutex
	filled sync.Cond
	calls  []*call
	closed bool
}

func newQueue() *queue {
	q := new(queue)
	q.filled.L = &q.mu
	return q
}

// push answers false when the queue is closed.
func (q *queue) push(c *call) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	q.calls = append(q.calls, c)
	q.filled.Signal()
	return true
}

// take waits for calls and takes all of them, leaving spare in their place. It answers false when the queue is closed and empty.
func (q *queue) take(spare []*call) ([]*call, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.calls) == 0 && !q.closed {
		q.filled.Wait()
	}
	calls := q.calls
	q.calls = spare
	return calls, len(calls) > 0
}

func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.filled.Broadcast()
}

// lane sends what is queued, one pipeline after another, until the queue is closed and empty.
func (f *Flusher) lane(q *queue) {
	var spare []*call
	for {
		calls, open := q.take(spare)
		if !open {
			return
		}
		f.flush(calls)
		clear(calls)
		spare = calls[:0]
	}
}

// flush sends as one pipeline what was not withdrawn meanwhile, and brings the answers.
func (f *Flusher) flush(calls []*call) {
	timeout := flushTimeout
	for _, c := range calls {
		timeout = max(timeout, c.budget)
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	pipeline := f.options.Client.Pipeline()
	for _, c := range calls {
		if c.state.CompareAndSwap(queued, sent) {
			_ = pipeline.Process(ctx, c.take) // queues only; the outcome is in each call's own result
		}
	}
	if pipeline.Len() == 0 {
		return
	}
	_, _ = pipeline.Exec(ctx)
	for _, c := range calls {
		if c.state.Load() == sent {
			c.settle()
		}
	}
}
