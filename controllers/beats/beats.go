// Package beats keeps what the sidecars last reported: one poll per namespace serves all of its policies.
//
// The policy controller reads it. It must stay free of go-redis: it reads from a Source.
package beats

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/portero-dev/portero/internal/bucketconfig"
)

const (
	// FreshFor is how old a heartbeat may be, by Redis' time, to say anything about its sidecar. Sidecars send one every
	// 10 s.
	FreshFor = 15 * time.Second
	// Interval is the time between two polls of a namespace.
	Interval = 5 * time.Second
	// settled is how old a snapshot must be for the lack of a heartbeat in it to be worth another look, and hurryEvery the
	// time between two such looks at a namespace.
	settled    = 500 * time.Millisecond
	hurryEvery = time.Second
	// pollTimeout bounds the poll of one namespace.
	pollTimeout = 3 * time.Second
	// pollers bounds the namespaces that are polled at once.
	pollers = 8
)

// Beat is a sidecar's last heartbeat and its age by Redis' time.
type Beat struct {
	bucketconfig.Heartbeat
	Age time.Duration
	// Err says why what the sidecar sent can't be read; Heartbeat is empty then.
	Err error
}

// Fresh reports whether the heartbeat is young enough to say anything.
func (b *Beat) Fresh() bool { return b.Age <= FreshFor }

// Source reads the heartbeats of a namespace's pods, by pod UID.
type Source func(ctx context.Context, namespace string) (map[string]Beat, error)

// Snapshot is the outcome of a poll: heartbeats by pod UID, or the reason why there are none.
type Snapshot struct {
	Beats map[string]Beat
	Err   error
}

// Namespace is a namespace to poll and the UIDs of the policies in it.
type Namespace struct {
	Name       string
	PolicyUIDs map[string]bool
}

// Board polls and keeps heartbeats. All methods are safe for concurrent use.
type Board struct {
	Source Source
	// Namespaces lists what to poll.
	Namespaces func(context.Context) ([]Namespace, error)
	// Changed is told, from the polling goroutine, the name of each namespace whose heartbeats say something new.
	Changed func(namespace string)
	// Now is the clock; time.Now outside of tests.
	Now func() time.Time

	mu     sync.Mutex
	boards map[string]*board
}

// board is one namespace's state. Its own mutex keeps polls of one namespace apart.
type board struct {
	polling sync.Mutex

	mu       sync.Mutex
	taken    time.Time
	hurried  time.Time // when it was last polled for a heartbeat that was missing
	snapshot Snapshot
	digest   map[string]digest
	meter    *meter
	metered  bool
}

// NeedLeaderElection makes the manager poll on the leader only.
func (b *Board) NeedLeaderElection() bool { return true }

// Start polls every Interval until ctx ends.
func (b *Board) Start(ctx context.Context) error {
	ticker := time.NewTicker(Interval)
	defer ticker.Stop()
	for {
		b.pollAll(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// Read is the namespace's last snapshot, polled now if there is none younger than Interval, or if it lacks the heartbeat of
// one of the pods: that of a pod that has just become ready is younger than the snapshot.
func (b *Board) Read(ctx context.Context, namespace string, podUIDs []string) Snapshot {
	maxAge := Interval
	if b.board(namespace).hurry(b.Now(), podUIDs) {
		maxAge = settled
	}
	return b.poll(ctx, namespace, maxAge, nil)
}

// Traffic is what the sidecars decided under a policy; ok is false when no sidecar was ever seen to apply it.
func (b *Board) Traffic(namespace, policyUID string) (traffic Traffic, ok bool) {
	board := b.board(namespace)
	board.mu.Lock()
	defer board.mu.Unlock()
	return board.meter.traffic(b.Now(), policyUID)
}

// Invalidate makes the next Read and the next poll ask Redis: the connection has changed.
func (b *Board) Invalidate() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, board := range b.boards {
		board.mu.Lock()
		board.taken = time.Time{}
		board.mu.Unlock()
	}
}

func (b *Board) board(namespace string) *board {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.boards == nil {
		b.boards = map[string]*board{}
	}
	if b.boards[namespace] == nil {
		b.boards[namespace] = &board{meter: newMeter()}
	}
	return b.boards[namespace]
}

func (b *Board) pollAll(ctx context.Context) {
	namespaces, err := b.Namespaces(ctx)
	if err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "List namespaces to poll")
		return
	}
	b.forget(namespaces)
	var wg sync.WaitGroup
	slots := make(chan struct{}, pollers)
	for _, namespace := range namespaces {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			b.poll(ctx, namespace.Name, 0, namespace.PolicyUIDs)
		})
	}
	wg.Wait()
}

func (b *Board) forget(namespaces []Namespace) {
	wanted := map[string]bool{}
	for _, namespace := range namespaces {
		wanted[namespace.Name] = true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for name := range b.boards {
		if !wanted[name] {
			delete(b.boards, name)
		}
	}
}

// poll reads a namespace's heartbeats unless a snapshot younger than maxAge is there.
func (b *Board) poll(ctx context.Context, namespace string, maxAge time.Duration, policyUIDs map[string]bool) Snapshot {
	board := b.board(namespace)
	board.polling.Lock()
	defer board.polling.Unlock()
	if snapshot, ok := board.young(b.Now(), maxAge); ok {
		return snapshot
	}
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	beats, err := b.Source(ctx, namespace)
	snapshot := Snapshot{Beats: beats, Err: err}
	if board.take(b.Now(), snapshot, policyUIDs) && b.Changed != nil {
		b.Changed(namespace)
	}
	return snapshot
}

func (b *board) young(now time.Time, maxAge time.Duration) (Snapshot, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.snapshot, !b.taken.IsZero() && now.Sub(b.taken) < maxAge
}

// hurry reports whether the snapshot lacks a heartbeat that a poll may find.
func (b *board) hurry(now time.Time, podUIDs []string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.snapshot.Err != nil || now.Sub(b.taken) < settled || now.Sub(b.hurried) < hurryEvery {
		return false
	}
	for _, uid := range podUIDs {
		if _, ok := b.snapshot.Beats[uid]; !ok {
			b.hurried = now
			return true
		}
	}
	return false
}

// take stores a snapshot and reports whether it says something new.
func (b *board) take(now time.Time, snapshot Snapshot, policyUIDs map[string]bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	digest := digestOf(snapshot)
	changed := !equal(digest, b.digest) || (snapshot.Err == nil) != (b.snapshot.Err == nil)
	b.taken, b.snapshot, b.digest = now, snapshot, digest
	if snapshot.Err == nil {
		b.meter.observe(now, snapshot.Beats, !b.metered)
		b.metered = true
	}
	if policyUIDs != nil {
		b.meter.keep(policyUIDs)
	}
	return changed
}
