// Package flusher carries verdicts to Redis Cluster: those of concurrent requests to one master travel as one pipeline,
// with no wait added when idle. It implements failover.Store.
//
// The sidecar's wiring imports it. It is the only part of the data path that knows go-redis.
package flusher

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/portero-dev/portero/internal/keyspace"
	"github.com/portero-dev/portero/internal/ratelimit"
	"github.com/portero-dev/portero/internal/tokenbucket"
	"github.com/portero-dev/portero/sidecar/internal/failover"
)

const (
	// flushTimeout is how long a pipeline may take, unless a verdict in it has a greater budget. It is longer than most
	// budgets: a late reply still tells what happened, and a connection that answers late is kept.
	flushTimeout = 250 * time.Millisecond
	// lanesPerMaster is how many pipelines may be under way to one master. The second one fills while the first waits.
	lanesPerMaster = 2
	// topologyTimeout bounds one reading of the topology, over all nodes that are tried.
	topologyTimeout = time.Second
	// firstRetry and slowestRetry bound the pause between tries of reading the first topology.
	firstRetry   = 50 * time.Millisecond
	slowestRetry = 500 * time.Millisecond
)

// ErrClosed answers verdicts that were asked after the flusher ended.
var ErrClosed = errors.New("flusher is closed")

// errBusy answers verdicts for which there is no room in the queue.
var errBusy = errors.New("too many verdicts wait for the master")

// Options are what a Flusher works with. All are required.
type Options struct {
	Client    *redis.ClusterClient // of redisclient.NewVerdict; the flusher does not close it
	Instance  keyspace.Instance
	Namespace string
	Log       *slog.Logger
	// Ready is called when the first topology was read. It must not block.
	Ready func()
}

// Flusher carries verdicts. It is safe for concurrent use.
type Flusher struct {
	options Options
	topo    atomic.Pointer[[]string] // the masters known last; nil before the first topology

	mu     sync.RWMutex
	queues map[string]*queue // by master
	closed bool
	lanes  sync.WaitGroup
}

var _ failover.Store = (*Flusher)(nil)

// New makes a Flusher. It answers nothing until Run has read the first topology.
func New(options Options) *Flusher {
	return &Flusher{options: options, queues: make(map[string]*queue)}
}

// Run reads the first topology, trying until ctx is done, and ends all lanes when it is. What is queued then is still
// sent, and waited for; what is asked later is answered with ErrClosed.
func (f *Flusher) Run(ctx context.Context) {
	f.connect(ctx)
	<-ctx.Done()
	f.mu.Lock()
	f.closed = true
	for _, q := range f.queues {
		q.close()
	}
	f.mu.Unlock()
	f.lanes.Wait()
}

func (f *Flusher) connect(ctx context.Context) {
	var told string
	for pause := firstRetry; ; pause = min(2*pause, slowestRetry) {
		reading, cancel := context.WithTimeout(ctx, topologyTimeout)
		err := f.Reload(reading)
		cancel()
		if err == nil {
			f.options.Log.Info("Redis Cluster reached", "masters", f.Masters())
			f.options.Ready()
			return
		}
		if err.Error() != told && ctx.Err() == nil {
			told = err.Error()
			f.options.Log.Warn("Redis Cluster can't be reached, limits are local", "addrs", f.options.Client.Options().Addrs, "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause/2 + rand.N(pause)):
		}
	}
}

// Reload implements failover.Store.
func (f *Flusher) Reload(ctx context.Context) error {
	known := f.Masters()
	var mu sync.Mutex
	var masters []string
	// The only call of the client that reads the topology and waits for it. Where no node answers, it goes on with the one
	// it had.
	err := f.options.Client.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
		if !slices.Contains(known, master.Options().Addr) {
			warm(ctx, master)
		}
		mu.Lock()
		defer mu.Unlock()
		masters = append(masters, master.Options().Addr)
		return nil
	})
	if err != nil {
		return err
	}
	if len(masters) == 0 {
		return errors.New("the cluster has no master with slots yet")
	}
	slices.Sort(masters)
	f.topo.Store(&masters)
	f.drop(masters)
	return nil
}

// warm opens the connections that the lanes to a master will use, so that no verdict's budget pays for dialing and
// authentication. A master that can't be reached is what verdicts find out by themselves.
func warm(ctx context.Context, master *redis.Client) {
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	for range lanesPerMaster {
		held := master.Conn() // held, or the next PING would take the same connection
		defer held.Close()    //nolint:errcheck // back to the pool
		_ = held.Ping(ctx).Err()
	}
}

// drop ends the lanes to nodes that are no masters any more.
func (f *Flusher) drop(masters []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for master, q := range f.queues {
		if !slices.Contains(masters, master) {
			q.close()
			delete(f.queues, master)
		}
	}
}

// Masters implements failover.Store.
func (f *Flusher) Masters() []string {
	if known := f.topo.Load(); known != nil {
		return *known
	}
	return nil
}

// Locate implements failover.Store. It reads the topology in memory: the client would load a missing one on the spot, so
// nothing is asked of it before the first was read.
func (f *Flusher) Locate(tag string) (failover.Place, bool) {
	if f.topo.Load() == nil {
		return failover.Place{}, false
	}
	key := f.options.Instance.Bucket(f.options.Namespace, tag)
	master, err := f.options.Client.MasterForKey(context.Background(), key)
	if err != nil {
		return failover.Place{}, false
	}
	return failover.Place{Key: key, Master: master.Options().Addr}, true
}

// Ask implements failover.Store.
func (f *Flusher) Ask(place failover.Place, group *ratelimit.Group, index int, answers chan<- failover.Answer) failover.Question {
	c, err := newCall(place.Key, group, index, answers)
	if err != nil {
		c.answer(nil, err)
		return c
	}
	if err := f.queue(place.Master).push(c); err != nil {
		c.answer(nil, unsent(err))
	}
	return c
}

// Debit implements failover.Store.
func (f *Flusher) Debit(place failover.Place, group *ratelimit.Group, settled func([]failover.ChargeAnswer, error)) {
	take, err := tokenbucket.NewTake(place.Key, chargesOf(group))
	if err != nil {
		settled(nil, err)
		return
	}
	err = f.queue(place.Master).pushErrand(errand{call: take, settle: func() {
		results, err := take.Result()
		if err != nil {
			settled(nil, failed(err))
			return
		}
		settled(answersOf(results), nil)
	}})
	if err != nil {
		settled(nil, unsent(err))
	}
}

// unsent is the failure of what the queue did not take.
func unsent(err error) *failover.StoreError {
	kind := failover.KindConnection
	if errors.Is(err, errBusy) {
		kind = failover.KindQueued
	}
	return &failover.StoreError{Kind: kind, Err: err}
}

func (f *Flusher) queue(master string) *queue {
	f.mu.RLock()
	q := f.queues[master]
	f.mu.RUnlock()
	if q != nil {
		return q
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if q = f.queues[master]; q != nil {
		return q
	}
	q = newQueue()
	if f.closed {
		q.close()
		return q
	}
	f.queues[master] = q
	for range lanesPerMaster {
		f.lanes.Go(func() { f.lane(q) })
	}
	return q
}
