package failover

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// recoveryTick is how often open breakers are looked at.
const recoveryTick = 25 * time.Millisecond

// probeTimeout bounds the first try of a probe, which may have to dial.
const probeTimeout = 250 * time.Millisecond

// reloadTimeout bounds a try to read the topology. Whoever reads it asks one node after the other, in random order, and each that hangs
// would take what is left of the time: so a try is short, and followed by the next at once.
const reloadTimeout = 250 * time.Millisecond

// Run closes breakers again, until ctx is done. It returns when all that it started has ended.
func (l *Limiter) Run(ctx context.Context) {
	var started sync.WaitGroup
	defer started.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.opened:
		}
		l.recover(ctx, &started)
	}
}

// recover probes and reloads until no breaker is open.
func (l *Limiter) recover(ctx context.Context, started *sync.WaitGroup) {
	ticker := time.NewTicker(recoveryTick)
	defer ticker.Stop()
	var reloading sync.Mutex
	var reloaded atomic.Int64 // when the last try that was answered began, in unix nanoseconds
	for {
		c := l.current.Load()
		open := c.breakers.all()
		if len(open) == 0 {
			return
		}
		now := time.Now()
		for _, b := range open {
			if place, budget, due := b.due(now); due {
				started.Go(func() { l.probe(ctx, c, b, place, budget) })
			}
		}
		if now.UnixNano()-reloaded.Load() >= int64(reloadInterval) && reloading.TryLock() {
			started.Go(func() {
				defer reloading.Unlock()
				if l.reload(ctx, c) {
					reloaded.Store(now.UnixNano())
				}
			})
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// probe closes a breaker when its master answers within the budget of the verdicts that it failed. The first try may
// dial, the second is what a verdict would see: a master that is up and too slow would flap otherwise.
func (l *Limiter) probe(ctx context.Context, c *connection, b *breaker, place Place, budget time.Duration) {
	for _, timeout := range []time.Duration{probeTimeout, budget} {
		probing, cancel := context.WithTimeout(ctx, timeout)
		err := c.store.Probe(probing, place)
		cancel()
		if err != nil {
			l.options.Log.Debug("master is still failing", "master", b.master, "error", err)
			return
		}
	}
	b.close()
	l.options.Log.Info("master answers again, its verdicts are shared", "master", b.master)
	l.options.FallbackChanged()
}

// reload answers false when a node that hangs took all of the time.
func (l *Limiter) reload(ctx context.Context, c *connection) bool {
	reloading, cancel := context.WithTimeout(ctx, reloadTimeout)
	defer cancel()
	if err := c.store.Reload(reloading); err != nil {
		l.options.Log.Debug("the topology could not be read", "error", err)
		return reloading.Err() == nil
	}
	if c.breakers.keep(c.store.Masters()) {
		l.options.Log.Info("a failing master was replaced")
		l.options.FallbackChanged()
	}
	return reloading.Err() == nil
}
