// Package heartbeat tells the manager, through Redis, what this sidecar applies: regularly, and at once after a change.
// The manager believes nothing else about a sidecar.
//
// The sidecar's wiring imports it and says what to tell and how it is sent. It stays free of Redis clients.
package heartbeat

import (
	"context"
	"crypto/rand"
	"log/slog"
	mathrand "math/rand/v2"
	"time"

	"github.com/portero-dev/portero/internal/bucketconfig"
)

const (
	// DefaultInterval is how often a heartbeat is sent when nothing changes.
	DefaultInterval = 10 * time.Second
	// DefaultPause is the least time between two heartbeats: changes within it are told by one.
	DefaultPause = time.Second
	// sendTimeout bounds one sending.
	sendTimeout = 2 * time.Second
)

// Options are what a Beater works with. All are required.
type Options struct {
	Interval time.Duration
	Pause    time.Duration
	// Compose is called for each heartbeat.
	Compose func() *bucketconfig.Heartbeat
	// Send stores a heartbeat.
	Send func(context.Context, *bucketconfig.Heartbeat) error
	Log  *slog.Logger
}

// Beater sends heartbeats.
type Beater struct {
	options Options
	kicked  chan struct{}
}

// New makes a Beater; Run makes it beat.
func New(options Options) *Beater {
	return &Beater{options: options, kicked: make(chan struct{}, 1)}
}

// Kick asks for a heartbeat soon. It never blocks, and is safe for concurrent use.
func (b *Beater) Kick() {
	select {
	case b.kicked <- struct{}{}:
	default:
	}
}

// Run sends a heartbeat at once and then until ctx is done. One that fails is tried again after the pause: when Redis is
// back, the manager is to know it soon.
func (b *Beater) Run(ctx context.Context) {
	var told string
	for {
		err := b.send(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil && told != "":
			told = ""
			b.options.Log.Info("heartbeats are sent again")
		case err != nil && err.Error() != told:
			told = err.Error()
			b.options.Log.Warn("heartbeat could not be sent, the manager sees this pod as unknown", "error", err)
		}
		if !wait(ctx, nil, b.options.Pause) {
			return
		}
		if err == nil && !wait(ctx, b.kicked, jittered(b.options.Interval)-b.options.Pause) {
			return
		}
	}
}

func (b *Beater) send(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	// What was kicked for is in the heartbeat that is composed from here on.
	select {
	case <-b.kicked:
	default:
	}
	return b.options.Send(ctx, b.options.Compose())
}

// wait answers false when ctx is done before d has passed or early came.
func wait(ctx context.Context, early <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-early:
	case <-timer.C:
	}
	return true
}

// jittered keeps a thousand sidecars from beating in step. It only shortens: what is stated is a bound.
func jittered(d time.Duration) time.Duration { return d - mathrand.N(d/5+1) }

// NewStartID makes an id that tells this start of the process from every other.
func NewStartID() string { return rand.Text() }
