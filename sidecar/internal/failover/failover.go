// Package failover decides requests: by the shared buckets within the deadline of the policies concerned, else by what
// each policy says for the time without them. A caller waits for a verdict no longer than that deadline, whatever the
// store does.
//
// The sidecar's wiring imports it; the proxy knows it as its Limiter. It declares the Store it asks and stays free of
// Redis clients and of HTTP.
package failover

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/portero-dev/portero/internal/localbucket"
	"github.com/portero-dev/portero/internal/ratelimit"
)

// Store asks the shared buckets. None of its methods but Probe and Reload may wait for the network.
type Store interface {
	// Locate finds the bucket key of a tag and the master that holds it; false before the first topology is known.
	Locate(tag string) (Place, bool)
	// Ask queues the group's charges. The answer is sent to answers, which must have room for it, exactly once, unless
	// Withdraw of the returned question answers true.
	Ask(place Place, group *ratelimit.Group, index int, answers chan<- Answer) Question
	// Debit queues the group's debits, behind what verdicts ask. Afterwards settled is called once, with what the store said
	// about each charge when they were charged, else with the error. It may be called at once, and must not block.
	Debit(place Place, group *ratelimit.Group, settled func([]ChargeAnswer, error))
	// Probe asks the master of a place for something that changes nothing and fails whenever a verdict would.
	Probe(ctx context.Context, place Place) error
	// Reload reads the topology again.
	Reload(ctx context.Context) error
	// Masters are the addresses of the masters in the topology known last.
	Masters() []string
}

// Place is where a bucket lies.
type Place struct{ Key, Master string }

// Question is one asked group.
type Question interface {
	// Withdraw answers true when the question was not sent yet; then it never will be, and no answer comes. Otherwise the
	// charge may have happened, and counts as happened.
	Withdraw() bool
	// GiveBack returns what the question charged to enforced limits; of one that was not answered yet, once its answer
	// comes. It does not wait, and is called at most once. Afterwards settled is called with the number of charges that
	// were returned and of those that were dropped because that is in doubt, unless nothing was charged. It must not block.
	GiveBack(settled func(given, dropped int))
}

// Answer is what the store said about one group.
type Answer struct {
	Index   int // as given to Ask
	Charges []ChargeAnswer
	Err     error // a *StoreError where the kind is known
}

// ChargeAnswer is what the store said about one charge.
type ChargeAnswer struct {
	Allowed bool
	// Stale is true when the bucket knows a newer state of the limit; Params are then that state's.
	Stale  bool
	Params localbucket.Params
	// Level is the bucket after the verdict, at time 0 of the store's clock: UpdatedUS is how far the bucket's time is
	// ahead of it, and nothing refills until then.
	Level localbucket.Level
}

// Observer is told what happens. Its methods are called on request goroutines and must not block.
type Observer interface {
	// VerdictTaken is called once for each verdict that asked for a bucket, with the budget that it had.
	VerdictTaken(source ratelimit.Source, took, budget time.Duration)
	// StoreFailed is called once for each group that the store did not answer for. Unknown is true where the store may
	// have charged nevertheless.
	StoreFailed(kind Kind, unknown bool)
	// ChargesReturned is called with the numbers of charges of refused requests that were given back, and of those that
	// were dropped because that would be in doubt. It is called on other goroutines too.
	ChargesReturned(given, dropped int)
	// Debited is called with what became of so many debits, once for each group. It is called on other goroutines too.
	Debited(fate Fate, debits int)
}

// Fate is what became of a debit: a closed set, for metrics.
type Fate string

// Fates of debits.
const (
	// FateShared is a debit that the shared bucket took.
	FateShared Fate = "shared"
	// FateLocal is one that this sidecar's own bucket of the key took while the store failed. The key's next verdict
	// carries it to the shared bucket.
	FateLocal Fate = "local"
	// FateOverflow is one that an overflow bucket took, as the fallback's memory was full. It is never the shared bucket's:
	// whose it was is not known any more.
	FateOverflow Fate = "overflow"
	// FateDropped is one that nobody took: the policy has no local buckets, or nobody knows whether the shared one did.
	FateDropped Fate = "dropped"
)

// Fates are all of them.
var Fates = []Fate{FateShared, FateLocal, FateOverflow, FateDropped}

// Options are what a Limiter works with. All are required.
type Options struct {
	Observer Observer
	Log      *slog.Logger
	// Sidecars is the number that the fallback of a policy divides its limits by; at least 1.
	Sidecars func(policy string) int
	// Stale is called when a bucket knows a newer state of a policy than this sidecar. It must not block.
	Stale func()
	// FallbackChanged is called when Fallback's answer changes. It must not block.
	FallbackChanged func()
	// MaxKeys bounds the fallback's buckets in memory.
	MaxKeys int
}

// DefaultMaxKeys bounds the fallback's memory to some 10 MB.
const DefaultMaxKeys = 32768

// Limiter decides requests. It is safe for concurrent use. Until SetStore was called, and whenever the store fails, the
// policies' failure modes decide.
type Limiter struct {
	options Options
	clock   clock
	local   *local
	current atomic.Pointer[connection]
	opened  chan struct{} // wakes Run
	// returned is the observer's ChargesReturned, made once.
	returned func(given, dropped int)
}

// connection is a store with what was learnt about it.
type connection struct {
	store    Store
	breakers *breakers
	since    time.Time
}

// New makes a Limiter. Its Run must run for breakers to close again.
func New(options Options) *Limiter {
	l := &Limiter{options: options, clock: newClock(), opened: make(chan struct{}, 1), returned: options.Observer.ChargesReturned}
	l.local = newLocal(options.MaxKeys)
	return l
}

// SetStore makes the limiter ask store from now on. Verdicts under way stay with the one before.
func (l *Limiter) SetStore(store Store) {
	l.current.Store(&connection{store: store, breakers: newBreakers(), since: time.Now()})
}

// Fallback tells whether at least one master's verdicts are decided locally, and since when.
func (l *Limiter) Fallback() (bool, time.Time) {
	c := l.current.Load()
	if c == nil {
		return false, time.Time{}
	}
	if len(c.store.Masters()) == 0 {
		return true, c.since
	}
	return c.breakers.open()
}

// OpenMasters are the masters whose breaker is open.
func (l *Limiter) OpenMasters() []string {
	if c := l.current.Load(); c != nil {
		return c.breakers.openMasters()
	}
	return nil
}

// Overflowed counts the groups of verdicts that were decided by an overflow bucket, because the fallback's memory was full.
func (l *Limiter) Overflowed() uint64 { return l.local.overflowed.Load() }

// Decide decides over all groups that govern a request. It returns within the smallest timeout of their policies, those in
// Shadow left out. It does not end early when the client goes: the verdict is part of the limit either way. What it answers
// keeps what ratelimit.Verdict promises, whoever decided: the store, this sidecar's own buckets, or a failure mode.
func (l *Limiter) Decide(_ context.Context, groups []ratelimit.Group) ratelimit.Verdict {
	if len(groups) == 0 {
		return ratelimit.Verdict{}
	}
	started, budget := time.Now(), budget(groups)
	round := l.ask(groups)
	round.await(started.Add(budget))
	l.learn(round, budget)
	l.settle(round)
	verdict := l.merge(groups, round)
	if verdict.Outcome != ratelimit.Allowed {
		l.giveBack(round)
	}
	l.options.Observer.VerdictTaken(verdict.Source, time.Since(started), budget)
	return verdict
}

// budget is the smallest timeout of the policies concerned. Shadows have a say only among themselves: an impatient one must
// not send the limits of others to their fallback.
func budget(groups []ratelimit.Group) time.Duration {
	smallest, enforced := time.Duration(0), false
	for i := range groups {
		timeout := time.Duration(groups[i].Policy.Record.Store.TimeoutUS) * time.Microsecond
		enforces := slices.ContainsFunc(groups[i].Charges, func(c ratelimit.Charge) bool { return !c.Limit.Shadow })
		if i == 0 || enforces && !enforced || enforces == enforced && timeout < smallest {
			smallest, enforced = timeout, enforces
		}
	}
	return smallest
}

// clock is the wall clock at the start, moved on by the monotonic clock: a step of the machine's time adds no tokens.
type clock struct{ start time.Time }

func newClock() clock { return clock{start: time.Now()} }

func (c clock) nowUS() int64 { return c.start.UnixMicro() + time.Since(c.start).Microseconds() }
