package flusher

import (
	"context"
	"sync"
)

// Bounds of what waits for a lane to one master, so that one that hangs costs no memory. With more than maxCalls the master
// is slower than the requests, and a verdict is better off without it. A give-back that finds no room is dropped, a debit
// is the caller's again.
const (
	maxCalls   = 8192
	maxErrands = 2048
	// errandsAtOnce bounds those of one pipeline: its verdicts have their answers when its last command has.
	errandsAtOnce = 64
)

// queue is what waits for a lane to one master.
type queue struct {
	mu     sync.Mutex
	filled sync.Cond
	batch  batch
	closed bool
}

// batch is what one pipeline carries, errands last.
type batch struct {
	calls   []*call
	errands []errand
}

func (b *batch) empty() bool { return len(b.calls)+len(b.errands) == 0 }

// reset empties the batch for use again; nothing that it held is kept alive.
func (b *batch) reset() {
	clear(b.calls)
	clear(b.errands)
	b.calls, b.errands = b.calls[:0], b.errands[:0]
}

func newQueue() *queue {
	q := new(queue)
	q.filled.L = &q.mu
	return q
}

// push answers why there is no room for the call, or nil.
func (q *queue) push(c *call) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return ErrClosed
	}
	if len(q.batch.calls) >= maxCalls {
		return errBusy
	}
	c.queue = q
	q.batch.calls = append(q.batch.calls, c)
	q.filled.Signal()
	return nil
}

// pushErrand answers why there is no room for the errand, or nil.
func (q *queue) pushErrand(e errand) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return ErrClosed
	}
	if len(q.batch.errands) >= maxErrands {
		return errBusy
	}
	q.batch.errands = append(q.batch.errands, e)
	q.filled.Signal()
	return nil
}

// take waits for work and takes it, but no more than errandsAtOnce of the errands, leaving spare in its place. It answers false when the queue is closed and empty.
func (q *queue) take(spare batch) (batch, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.batch.empty() && !q.closed {
		q.filled.Wait()
	}
	taken := q.batch
	q.batch = spare
	if rest := len(taken.errands) - errandsAtOnce; rest > 0 {
		q.batch.errands = append(q.batch.errands, taken.errands[errandsAtOnce:]...)
		clear(taken.errands[errandsAtOnce:])
		taken.errands = taken.errands[:errandsAtOnce]
	}
	return taken, !taken.empty()
}

func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.filled.Broadcast()
}

// lane sends what is queued, one pipeline after another, until the queue is closed and empty.
func (f *Flusher) lane(q *queue) {
	var spare batch
	for {
		taken, open := q.take(spare)
		if !open {
			return
		}
		f.flush(taken)
		taken.reset()
		spare = taken
	}
}

// flush sends as one pipeline what was not withdrawn meanwhile, and brings the answers.
func (f *Flusher) flush(b batch) {
	timeout := flushTimeout
	for _, c := range b.calls {
		timeout = max(timeout, c.budget)
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	pipeline := f.options.Client.Pipeline()
	// Process queues only; the outcome is in each call's own result.
	for _, c := range b.calls {
		if c.state.CompareAndSwap(queued, sent) {
			_ = pipeline.Process(ctx, c.take)
		}
	}
	for i := range b.errands {
		_ = pipeline.Process(ctx, b.errands[i].call)
	}
	if pipeline.Len() == 0 {
		return
	}
	_, _ = pipeline.Exec(ctx)
	for _, c := range b.calls {
		if c.state.Load() != withdrawn {
			c.settle()
		}
	}
	for i := range b.errands {
		b.errands[i].settle()
	}
}
