// Package tally counts verdicts by limit: one set of counters that the metrics and the heartbeat both read, so that they
// can't disagree.
//
// The sidecar's wiring imports it. It stays free of Prometheus, of Redis and of HTTP.
package tally

import (
	"sync"
	"sync/atomic"

	"github.com/portero-dev/portero/internal/ratelimit"
)

// Tally counts. The zero value is ready; it is safe for concurrent use.
type Tally struct {
	limits sync.Map // Name → *counts
}

// Name names a limit; without Limit, what its policy exempts.
type Name struct{ Policy, Limit string }

// Counts are a limit's verdicts since the sidecar's start.
type Counts struct {
	// Allowed are requests that the limit governed and that passed all of their limits.
	Allowed uint64
	// Denied are requests that the limit refused, or that its policy refused because the store failed.
	Denied uint64
	// ShadowDenied are requests that the limit would have refused, were it not in Shadow.
	ShadowDenied uint64
	// ExpressionErrors are requests for which at least one of its expressions failed.
	ExpressionErrors uint64
}

type counts struct{ allowed, denied, shadowDenied, expressionErrors atomic.Uint64 }

// Count counts a verdict for each limit that had a part in it. A limit that would have let pass what another one refused
// counts nothing.
func (t *Tally) Count(v *ratelimit.Verdict) {
	if len(v.Limits) == 0 && v.By != nil {
		t.of(v.By).denied.Add(1)
		return
	}
	for i := range v.Limits {
		switch result := &v.Limits[i]; {
		case result.Shadow && !result.Allowed:
			t.of(result.Limit).shadowDenied.Add(1)
		case !result.Allowed:
			t.of(result.Limit).denied.Add(1)
		case result.Shadow || v.Outcome == ratelimit.Allowed:
			t.of(result.Limit).allowed.Add(1)
		}
	}
}

// CountFailures counts a request whose expressions failed.
func (t *Tally) CountFailures(failures []ratelimit.Failure) {
	for _, failure := range failures {
		name := Name{Policy: failure.Policy.Record.Name}
		if failure.Limit != nil {
			name.Limit = failure.Limit.Config.Name
		}
		t.named(name).expressionErrors.Add(1)
	}
}

func (t *Tally) of(limit *ratelimit.Limit) *counts {
	return t.named(Name{Policy: limit.Policy.Record.Name, Limit: limit.Config.Name})
}

func (t *Tally) named(name Name) *counts {
	if found, ok := t.limits.Load(name); ok {
		return found.(*counts)
	}
	found, _ := t.limits.LoadOrStore(name, new(counts))
	return found.(*counts)
}

// Of is what was counted for a limit.
func (t *Tally) Of(name Name) Counts {
	found, ok := t.limits.Load(name)
	if !ok {
		return Counts{}
	}
	return found.(*counts).read()
}

// Each calls f for every limit that was ever counted and not dropped, in no order.
func (t *Tally) Each(f func(Name, Counts)) {
	t.limits.Range(func(name, found any) bool {
		f(name.(Name), found.(*counts).read())
		return true
	})
}

// Keep drops the counters of limits for which keep is false. Without it a pod that outlives many policies would grow.
func (t *Tally) Keep(keep func(Name) bool) {
	t.limits.Range(func(name, _ any) bool {
		if !keep(name.(Name)) {
			t.limits.Delete(name)
		}
		return true
	})
}

func (c *counts) read() Counts {
	return Counts{
		Allowed: c.allowed.Load(), Denied: c.denied.Load(), ShadowDenied: c.shadowDenied.Load(), ExpressionErrors: c.expressionErrors.Load(),
	}
}
