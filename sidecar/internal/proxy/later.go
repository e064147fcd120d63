package proxy

import (
	"net/http"
	"strings"

	"github.com/portero-dev/portero/internal/ratelimit"
)

// later is what a request that passed may still owe, once its response tells what it cost. It lives on the request's own
// goroutine, and waits for nothing: debits are queued.
type later struct {
	limiter Limiter
	costs   []laterCost
}

// laterCost is one limit's.
type laterCost struct {
	group *ratelimit.Group
	limit *ratelimit.Limit
	told  bool
}

// laterOf is nil where all costs were known before. A limit in Shadow that would have refused the request owes nothing.
func (p *Proxy) laterOf(groups []ratelimit.Group, v *ratelimit.Verdict) *later {
	var l *later
	n := 0
	for i := range groups {
		group := &groups[i]
		for j := range group.Charges {
			limit, charged := group.Charges[j].Limit, v.Limits[n].Allowed
			n++
			if !charged || limit.Later() == "" {
				continue
			}
			if l == nil {
				l = &later{limiter: p.limiter}
			}
			l.costs = append(l.costs, laterCost{group: group, limit: limit})
		}
	}
	return l
}

// header charges what the header of a final response tells.
func (l *later) header(h http.Header) {
	l.charge(func(name string) []string { return h[name] })
}

// trailer charges what the trailers tell, at the end of a response: they stand in the same header then, under their names or,
// where they were not announced, with a prefix. Of a response that broke off there are none.
func (l *later) trailer(h http.Header) {
	l.charge(func(name string) []string {
		if lines := h[name]; len(lines) > 0 {
			return lines
		}
		return h[http.TrailerPrefix+name]
	})
}

// charge debits what is told now. Costs that were told before stay so: the header counts, not the trailer.
func (l *later) charge(find func(name string) []string) {
	var debits []ratelimit.Group
	var last *ratelimit.Group
	for i := range l.costs {
		cost := &l.costs[i]
		if cost.told {
			continue
		}
		lines := find(cost.limit.Later())
		if len(lines) == 0 {
			continue
		}
		cost.told = true
		rest := cost.limit.Rest(strings.Join(lines, ", "))
		if rest == 0 {
			continue
		}
		if cost.group != last {
			last = cost.group
			debits = append(debits, ratelimit.Group{Policy: last.Policy, Tag: last.Tag})
		}
		debit := &debits[len(debits)-1]
		debit.Charges = append(debit.Charges, ratelimit.Charge{Limit: cost.limit, Debit: rest})
	}
	if len(debits) > 0 {
		l.limiter.Debit(debits)
	}
}
