package failover

import (
	"sync"
	"time"

	"github.com/portero-dev/portero/internal/ratelimit"
)

// kindPending stands for no answer yet.
const kindPending Kind = "pending"

// round is one verdict's questions.
type round struct {
	asked   []asked
	answers chan Answer
	waiting int
}

// asked is one group's question and what became of it.
type asked struct {
	place    Place
	question Question // nil when the store was not asked
	breaker  *breaker
	charges  []ChargeAnswer // nil until answered
	charged  bool           // some enforced limit was charged, so all of the group
	kind     Kind           // why the store did not answer; empty when it did
	unknown  bool           // it did not answer, and may have charged: then it counts as charged
	err      error
	carrying *ratelimit.Group // the group with the deficits that it settles; nil without any
}

// ask asks for all groups at once and waits for none.
func (l *Limiter) ask(groups []ratelimit.Group) *round {
	r := &round{asked: make([]asked, len(groups))}
	c := l.current.Load()
	for i := range groups {
		a := &r.asked[i]
		a.kind = KindNoTopology
		if c == nil {
			continue
		}
		place, known := c.store.Locate(groups[i].Tag)
		if !known {
			continue
		}
		a.place, a.breaker = place, c.breakers.of(place.Master)
		if a.breaker.isOpen() {
			a.kind = KindBreaker
			continue
		}
		if r.answers == nil {
			// Room for all: an answer that comes too late must not block whoever brings it.
			r.answers = make(chan Answer, len(groups))
		}
		a.kind = kindPending
		group := &groups[i]
		if a.carrying = l.local.carry(group, l.clock); a.carrying != nil {
			group = a.carrying
		}
		a.question = c.store.Ask(place, group, i, r.answers)
		r.waiting++
	}
	return r
}

// timers are stopped, and their channels empty.
var timers = sync.Pool{New: func() any {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}}

// await takes the answers that come within the budget.
func (r *round) await(deadline time.Time) {
	if r.waiting == 0 {
		return
	}
	timer := timers.Get().(*time.Timer)
	timer.Reset(time.Until(deadline))
	for r.waiting > 0 {
		select {
		case answer := <-r.answers:
			r.take(answer)
		case <-timer.C:
			r.expire()
		}
	}
	timer.Stop()
	timers.Put(timer)
}

func (r *round) take(answer Answer) {
	r.waiting--
	a := &r.asked[answer.Index]
	if answer.Err != nil {
		a.kind, a.unknown = kindOf(answer.Err)
		a.err = answer.Err
		return
	}
	a.kind, a.charges = "", answer.Charges
}

// expire gives up on what was not answered. What is still queued is withdrawn and never happens; what was sent counts as
// charged in the store: it must not be asked again.
func (r *round) expire() {
	for {
		select {
		case answer := <-r.answers:
			r.take(answer)
			continue
		default:
		}
		break
	}
	for i := range r.asked {
		a := &r.asked[i]
		if a.kind != kindPending {
			continue
		}
		a.kind, a.unknown = KindTimeout, true
		if a.question.Withdraw() {
			a.kind, a.unknown = KindQueued, false
		}
	}
	r.waiting = 0
}

// learn tells breakers and the observer what became of the questions.
func (l *Limiter) learn(r *round, budget time.Duration) {
	for i := range r.asked {
		a := &r.asked[i]
		if a.kind == "" {
			a.breaker.succeeded()
			continue
		}
		l.options.Observer.StoreFailed(a.kind, a.unknown)
		if a.question == nil || !a.breaker.failed(a.place, budget, time.Now()) {
			continue
		}
		l.options.Log.Warn("master failed, its verdicts are local until it answers again", "master", a.place.Master, "kind", string(a.kind), "error", a.err)
		l.options.FallbackChanged()
		select {
		case l.opened <- struct{}{}:
		default:
		}
	}
}

// giveBack returns what the groups of a refused request were charged. A late answer is one too; a question that was withdrawn or
// failed charged nothing that could be proven.
func (l *Limiter) giveBack(r *round) {
	for i := range r.asked {
		a := &r.asked[i]
		if a.charged || a.kind == KindTimeout && a.question != nil {
			a.question.GiveBack(l.returned)
		}
	}
}
