package snapshot

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/portero-dev/portero/internal/configstore"
)

const (
	// pollInterval is how often the revision is asked for, whatever was pushed.
	pollInterval = 10 * time.Second
	// retryInterval is the pause after a failure.
	retryInterval = time.Second
	// pause is the least time between two readings: a burst of news is one.
	pause = 50 * time.Millisecond
	// refreshPause is how long calls of Refresh are ignored after one that found nothing new: a record that this sidecar
	// can't use makes each verdict stale.
	refreshPause = 5 * time.Second
	// readTimeout bounds one reading.
	readTimeout = 2 * time.Second
)

// Reader reads and follows a namespace's records. *configstore.Reader is one.
type Reader interface {
	Update(ctx context.Context, old *configstore.Snapshot) (*configstore.Snapshot, error)
	Subscribe(ctx context.Context, log *slog.Logger) <-chan struct{}
}

var _ Reader = (*configstore.Reader)(nil)

// Refresh asks Follow to look at Redis soon: somebody saw a newer state there. It never blocks.
func (k *Keeper) Refresh() {
	select {
	case k.refresh <- struct{}{}:
	default:
	}
}

// Follow keeps the snapshot current from reader, until ctx is done. What is in force when it starts stays so until the
// first reading succeeds.
func (k *Keeper) Follow(ctx context.Context, reader Reader) {
	news := reader.Subscribe(ctx, k.options.Log)
	defer func() {
		for range news { // closed soon after ctx is done: nothing is left behind
		}
	}()
	var stored *configstore.Snapshot
	var told string
	var asked bool      // by Refresh
	var quiet time.Time // until then calls of Refresh are ignored
	for {
		next, err := k.read(ctx, reader, stored)
		if asked && err == nil && next == stored {
			quiet = time.Now().Add(refreshPause)
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && err.Error() != told:
			told = err.Error()
			k.options.Log.Warn("policies can't be read, those known stay in force", "error", err)
		case err == nil:
			told, stored = "", next
		}
		wait := pollInterval
		if err != nil && !errors.Is(err, configstore.ErrLost) {
			wait = retryInterval
		}
		var alive bool
		if asked, alive = k.await(ctx, news, quiet, wait-rand.N(wait/4)); !alive {
			return
		}
	}
}

func (k *Keeper) read(ctx context.Context, reader Reader, stored *configstore.Snapshot) (*configstore.Snapshot, error) {
	reading, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	next, err := reader.Update(reading, stored)
	if err == nil || errors.Is(err, configstore.ErrLost) {
		defer k.triedOnce.Do(func() { close(k.tried) })
	}
	switch {
	case err != nil:
		k.unanswered()
		return nil, err
	case ctx.Err() != nil: // another reader took over, and may have applied what is newer
		return nil, ctx.Err()
	}
	k.confirmed.Store(time.Now().UnixNano())
	if next != stored || next.Revision != k.Current().Revision {
		k.Apply(next)
	}
	return next, nil
}

// await waits for news, for a call of Refresh after the time quiet, or for the time to pass. It answers whether it was
// Refresh, and false when ctx is done.
func (k *Keeper) await(ctx context.Context, news <-chan struct{}, quiet time.Time, wait time.Duration) (asked, alive bool) {
	least := time.NewTimer(pause)
	defer least.Stop()
	select {
	case <-ctx.Done():
		return false, false
	case <-least.C:
	}
	most, noisy := time.NewTimer(wait), time.NewTimer(time.Until(quiet))
	defer most.Stop()
	defer noisy.Stop()
	var refresh <-chan struct{}
	for {
		select {
		case <-ctx.Done():
			return false, false
		case <-news:
			return false, true
		case <-refresh:
			return true, true
		case <-noisy.C:
			refresh = k.refresh
		case <-most.C:
			return false, true
		}
	}
}
