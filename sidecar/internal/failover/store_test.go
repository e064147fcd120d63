package failover_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/localbucket"
	"github.com/portero-dev/portero/internal/ratelimit"
	"github.com/portero-dev/portero/sidecar/internal/failover"
)

var errDown = &failover.StoreError{Kind: failover.KindConnection, Err: errors.New("connection refused")}

// shelf is a Store in this process: what the tests need of one is its faults. The master of a tag is its first letter.
type shelf struct {
	mu      sync.Mutex
	unknown bool             // no topology
	silent  map[string]bool  // masters that take questions and never answer
	stuck   map[string]bool  // masters whose questions stay queued
	failing map[string]error // masters that answer with an error
	masters []string
	answers map[string][]failover.ChargeAnswer // by tag; else allowed, with one token less than full
	slow    time.Duration                      // of a probe
	asked   atomic.Int64
	probed  atomic.Int64
	reloads atomic.Int64
	hangs   int64 // so many reloads ask a node that hangs
	onload  func(*shelf)
	back    []string // tags of the questions that were given back
	debits  map[string][]int64
}

func newShelf() *shelf {
	return &shelf{
		silent: map[string]bool{}, stuck: map[string]bool{}, failing: map[string]error{},
		masters: []string{"a", "b"}, answers: map[string][]failover.ChargeAnswer{}, debits: map[string][]int64{},
	}
}

func (s *shelf) with(change func(*shelf)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

func (s *shelf) Locate(tag string) (failover.Place, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return failover.Place{Key: tag, Master: tag[:1]}, !s.unknown
}

type question struct {
	queued bool
	back   func() // notes a give-back
}

func (q question) Withdraw() bool { return q.queued }

func (q question) GiveBack(settled func(given, dropped int)) {
	q.back()
	settled(1, 0)
}

func (s *shelf) Ask(place failover.Place, group *ratelimit.Group, index int, answers chan<- failover.Answer) failover.Question {
	s.asked.Add(1)
	asked := question{back: func() { s.with(func(s *shelf) { s.back = append(s.back, group.Tag) }) }}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.stuck[place.Master]:
		asked.queued = true
		return asked
	case s.silent[place.Master]:
		return asked
	case s.failing[place.Master] != nil:
		answers <- failover.Answer{Index: index, Err: s.failing[place.Master]}
		return asked
	}
	s.note(group)
	charges := s.answers[group.Tag]
	if charges == nil {
		for _, charge := range group.Charges {
			charges = append(charges, left(charge.Limit, charge.Limit.Config.Bucket.Capacity-charge.Cost))
		}
	}
	answers <- failover.Answer{Index: index, Charges: slices.Clone(charges)}
	return asked
}

// Debit notes the debits, as they are settled by the master's fault.
func (s *shelf) Debit(place failover.Place, group *ratelimit.Group, settled func([]failover.ChargeAnswer, error)) {
	s.mu.Lock()
	err := s.failing[place.Master]
	if s.silent[place.Master] {
		err = &failover.StoreError{Kind: failover.KindTimeout, Unknown: true, Err: errors.New("no answer")}
	}
	var charges []failover.ChargeAnswer
	if err == nil {
		s.note(group)
		charges = s.answers[group.Tag]
		for i := len(charges); i < len(group.Charges); i++ {
			charge := &group.Charges[i]
			charges = append(charges, left(charge.Limit, charge.Limit.Config.Bucket.Capacity-charge.Debit))
		}
	}
	s.mu.Unlock()
	settled(charges, err)
}

// note keeps the debits of a group that was charged.
func (s *shelf) note(group *ratelimit.Group) {
	for _, charge := range group.Charges {
		if charge.Debit > 0 {
			s.debits[group.Tag] = append(s.debits[group.Tag], charge.Debit)
		}
	}
}

// debited are the debits of a tag that were charged since it was asked last.
func (s *shelf) debited(tag string) []int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	debits := s.debits[tag]
	delete(s.debits, tag)
	return debits
}

// returned are the tags of the questions that were given back since it was asked last.
func (s *shelf) returned() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	back := s.back
	s.back = nil
	return back
}

func (s *shelf) Probe(ctx context.Context, place failover.Place) error {
	s.probed.Add(1)
	s.mu.Lock()
	slow, down := s.slow, s.failing[place.Master] != nil || s.silent[place.Master] || s.stuck[place.Master]
	s.mu.Unlock()
	if down {
		return errDown
	}
	if slow == 0 {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(slow):
		return nil
	}
}

// Reload takes all of its time when it asks a node that hangs, and then leaves the topology as it was.
func (s *shelf) Reload(ctx context.Context) error {
	if s.reloads.Add(1) <= s.hangs {
		<-ctx.Done()
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.onload != nil {
		s.onload(s)
	}
	return nil
}

func (s *shelf) Masters() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unknown {
		return nil
	}
	return s.masters
}

// left is the answer that admits a charge and leaves so many tokens.
func left(limit *ratelimit.Limit, tokens int64) failover.ChargeAnswer {
	return failover.ChargeAnswer{Allowed: true, Params: params(limit), Level: localbucket.Level{Tokens: tokens}}
}

// refused is the answer that refuses for a level of so many tokens.
func refused(limit *ratelimit.Limit, tokens int64) failover.ChargeAnswer {
	answer := left(limit, tokens)
	answer.Allowed = false
	return answer
}

func params(limit *ratelimit.Limit) localbucket.Params {
	b := limit.Config.Bucket
	return localbucket.Params{Capacity: b.Capacity, RefillTokens: b.RefillTokens, IntervalUS: b.RefillIntervalUS}
}

// hour refills so slowly that no test sees a token of it.
const hour = int64(time.Hour / time.Microsecond)

// policy makes a compiled policy; each limit refills one token an hour.
func policy(name, onFailure string, limits ...*ratelimit.Limit) *ratelimit.Policy {
	p := &ratelimit.Policy{
		Record: &bucketconfig.Record{Name: name, Store: bucketconfig.Store{TimeoutUS: 20_000, OnFailure: onFailure}},
		Limits: limits,
	}
	for i, limit := range limits {
		limit.Policy, limit.ID = p, uint64(i+1)
		limit.QualifiedName = name + "/" + limit.Config.Name
	}
	return p
}

func limit(name string, capacity int64) *ratelimit.Limit {
	return &ratelimit.Limit{Config: &bucketconfig.Limit{
		Name: name, Cost: 1, Bucket: bucketconfig.Bucket{Capacity: capacity, RefillTokens: 1, RefillIntervalUS: hour},
	}}
}

func shadow(l *ratelimit.Limit) *ratelimit.Limit {
	l.Shadow = true
	return l
}

// group asks all limits of a policy for a cost.
func group(p *ratelimit.Policy, tag string, cost int64) ratelimit.Group {
	g := ratelimit.Group{Policy: p, Tag: tag}
	for _, l := range p.Limits {
		g.Charges = append(g.Charges, ratelimit.Charge{Limit: l, Cost: cost})
	}
	return g
}

// witness is an Observer that counts.
type witness struct {
	mu      sync.Mutex
	failed  map[failover.Kind]int
	taken   map[ratelimit.Source]int
	given   int
	debited map[failover.Fate]int
}

func newWitness() *witness {
	return &witness{failed: map[failover.Kind]int{}, taken: map[ratelimit.Source]int{}, debited: map[failover.Fate]int{}}
}

func (w *witness) VerdictTaken(source ratelimit.Source, _, _ time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.taken[source]++
}

func (w *witness) StoreFailed(kind failover.Kind, _ bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed[kind]++
}

func (w *witness) ChargesReturned(given, _ int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.given += given
}

func (w *witness) Debited(fate failover.Fate, debits int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.debited[fate] += debits
}

func (w *witness) failures(kind failover.Kind) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failed[kind]
}
