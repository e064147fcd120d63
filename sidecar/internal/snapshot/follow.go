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
	for {
		next, err := k.read(ctx, reader, stored)
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
		if !k.await(ctx, news, wait-rand.N(wait/4)) {
			return
		}
	}
}

func (k *Keeper) read(ctx context.Context, reader Reader, stored *configstore.Snapshot) (*configstore.Snapshot, error) {
	defer k.triedOnce.Do(func() { close(k.tried) })
	reading, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	next, err := reader.Update(reading, stored)
	if err != nil {
		return nil, err
	}
	k.confirmed.Store(time.Now().UnixNano())
	if next != stored {
		k.Apply(next)
	}
	return next, nil
}

// await waits for news, for a call of Refresh or for the time to pass, and answers false when ctx is done.
func (k *Keeper) await(ctx context.Context, news <-chan struct{}, wait time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
	}
	timer.Reset(wait)
	select {
	case <-ctx.Done():
		return false
	case <-news:
	case <-k.refresh:
	case <-timer.C:
	}
	return true
}
