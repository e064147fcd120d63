package failover

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// failuresToOpen is how many failures in a row open a breaker. Failures within one budget of each other count once:
	// a single stall of a busy master fails a hundred verdicts at the same time. Of a long budget mostSpacing counts, or a
	// master that came back at another address would be missed for seconds: nobody looks for it before the breaker opens.
	failuresToOpen = 3
	mostSpacing    = 100 * time.Millisecond
	// firstProbe and slowestProbe bound the pause between probes of an open breaker's master. Probing a dead master is
	// cheap: after some refused dials go-redis answers at once and dials by itself, each second.
	firstProbe   = 100 * time.Millisecond
	slowestProbe = 250 * time.Millisecond
	// reloadInterval is how often the topology is read again while any breaker is open: a hung master that was replaced
	// would otherwise go unnoticed for a minute.
	reloadInterval = time.Second
)

// breaker keeps verdicts from a master that does not answer. Only a probe closes it: no request pays for trying.
type breaker struct {
	master   string
	opened   atomic.Bool
	failures atomic.Int32

	mu        sync.Mutex // guards the rest
	last      time.Time  // of the last failure that counted
	since     time.Time
	place     Place         // of the failure that opened it: what the probe asks about
	budget    time.Duration // of that failure: the probe must be answered within it
	pause     time.Duration
	nextProbe time.Time
}

func (b *breaker) isOpen() bool { return b.opened.Load() }

func (b *breaker) succeeded() {
	if b.failures.Load() != 0 {
		b.failures.Store(0)
	}
}

// failed answers true when this failure opened the breaker.
func (b *breaker) failed(place Place, budget time.Duration, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.opened.Load() || b.failures.Load() > 0 && now.Sub(b.last) < min(budget, mostSpacing) {
		return false
	}
	b.last = now
	if b.failures.Add(1) < failuresToOpen {
		return false
	}
	b.since, b.place, b.budget = now, place, budget
	b.pause = firstProbe
	b.nextProbe = now.Add(jitter(b.pause))
	b.opened.Store(true)
	return true
}

// due answers what to probe, and when that is due, and schedules the probe after it.
func (b *breaker) due(now time.Time) (Place, time.Duration, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.opened.Load() || now.Before(b.nextProbe) {
		return Place{}, 0, false
	}
	b.pause = min(2*b.pause, slowestProbe)
	b.nextProbe = now.Add(jitter(b.pause))
	return b.place, b.budget, true
}

func (b *breaker) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures.Store(0)
	b.opened.Store(false)
}

// jitter keeps a thousand sidecars from probing in step.
func jitter(d time.Duration) time.Duration { return d*4/5 + rand.N(d*2/5) }

// breakers are the breakers of one connection, by master.
type breakers struct {
	mu       sync.RWMutex
	byMaster map[string]*breaker
}

func newBreakers() *breakers { return &breakers{byMaster: make(map[string]*breaker)} }

func (b *breakers) of(master string) *breaker {
	b.mu.RLock()
	found := b.byMaster[master]
	b.mu.RUnlock()
	if found != nil {
		return found
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if found = b.byMaster[master]; found == nil {
		found = &breaker{master: master}
		b.byMaster[master] = found
	}
	return found
}

// all are the breakers that are open.
func (b *breakers) all() []*breaker {
	b.mu.RLock()
	defer b.mu.RUnlock()
	var open []*breaker
	for _, breaker := range b.byMaster {
		if breaker.isOpen() {
			open = append(open, breaker)
		}
	}
	return open
}

func (b *breakers) open() (bool, time.Time) {
	var since time.Time
	open := b.all()
	for _, breaker := range open {
		breaker.mu.Lock()
		if since.IsZero() || breaker.since.Before(since) {
			since = breaker.since
		}
		breaker.mu.Unlock()
	}
	return len(open) > 0, since
}

func (b *breakers) openMasters() []string {
	var masters []string
	for _, breaker := range b.all() {
		masters = append(masters, breaker.master)
	}
	slices.Sort(masters)
	return masters
}

// keep drops the breakers of nodes that are no masters any more, and answers whether an open one was among them.
func (b *breakers) keep(masters []string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	droppedOpen := false
	for master, breaker := range b.byMaster {
		if !slices.Contains(masters, master) {
			droppedOpen = droppedOpen || breaker.isOpen()
			delete(b.byMaster, master)
		}
	}
	return droppedOpen
}
