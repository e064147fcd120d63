package failover

import (
	"cmp"

	"github.com/portero-dev/portero/internal/ratelimit"
)

// Values of a policy's store.onFailure. Anything else is Local.
const (
	onFailureOpen   = "Open"
	onFailureClosed = "Closed"
)

// merge makes one verdict of what was answered and, for the groups that were not, of their policies' failure modes. What
// the others said is known before this sidecar's own buckets are charged, so these are charged for requests that pass only.
func (l *Limiter) merge(groups []ratelimit.Group, r *round) ratelimit.Verdict {
	charges := 0
	for i := range groups {
		charges += len(groups[i].Charges)
	}
	v := ratelimit.Verdict{Source: ratelimit.FromRedis, Limits: make([]ratelimit.LimitResult, charges)}
	refused, own, rest := false, []part(nil), v.Limits
	for i := range groups {
		group, a := &groups[i], &r.asked[i]
		results := rest[:len(group.Charges)]
		rest = rest[len(results):]
		if a.kind == "" {
			refused = !a.passed(group) || refused
			continue
		}
		v.Source = ratelimit.FromLocal
		switch group.Policy.Record.Store.OnFailure {
		case onFailureOpen:
			unasked(results, group, true, &v)
		case onFailureClosed:
			unasked(results, group, false, &v)
		default:
			own = append(own, part{group: group, sidecars: l.options.Sidecars(group.Policy.Record.Name), counted: a.unknown, results: results})
		}
	}
	refused = refused || v.Outcome == ratelimit.Unavailable
	if len(own) > 0 {
		refused = !l.local.decide(own, refused, l.clock.nowUS())
	}
	rest = v.Limits
	for i := range groups {
		if r.asked[i].kind == "" {
			l.shared(rest, &groups[i], &r.asked[i], refused)
		}
		rest = rest[len(groups[i].Charges):]
	}
	if v.Outcome != ratelimit.Unavailable {
		refuse(&v)
	}
	return v
}

// passed tells whether no enforced limit of the group refused, and notes whether one was charged.
func (a *asked) passed(group *ratelimit.Group) bool {
	enforced := false
	for i := range group.Charges {
		if group.Charges[i].Limit.Shadow {
			continue
		}
		enforced = true
		if !a.charges[i].Allowed {
			return false
		}
	}
	a.charged = enforced
	return true
}

// shared turns the store's answer about a group into results. What is to be given back counts as there again.
func (l *Limiter) shared(results []ratelimit.LimitResult, group *ratelimit.Group, asked *asked, refused bool) {
	l.local.saw(group, asked.charges, l.clock.nowUS())
	for i, charge := range group.Charges {
		a := &asked.charges[i]
		if a.Stale {
			l.options.Stale()
		}
		if refused && asked.charged && !charge.Limit.Shadow {
			a.Level.Tokens += charge.Cost
		}
		results[i] = ratelimit.LimitResult{
			Limit:     charge.Limit,
			Shadow:    charge.Limit.Shadow,
			Allowed:   a.Allowed,
			Remaining: min(max(a.Level.Tokens, 0), a.Params.Capacity),
			NextToken: a.Params.NextToken(a.Level, 0),
			Source:    ratelimit.FromRedis,
		}
		if !a.Allowed {
			results[i].Wait, _ = a.Params.Wait(a.Level, 0, charge.Cost) // stays zero where no wait helps
		}
	}
}

// unasked decides a group whose policy admits or refuses all while the store fails. Refused by an enforced limit, the whole
// verdict is Unavailable: the strictest policy wins.
func unasked(results []ratelimit.LimitResult, group *ratelimit.Group, admit bool, v *ratelimit.Verdict) {
	for i, charge := range group.Charges {
		limit := charge.Limit
		results[i] = ratelimit.LimitResult{
			Limit: limit, Shadow: limit.Shadow, Allowed: admit || limit.Shadow, Remaining: -1, Source: ratelimit.FromLocal,
		}
		if !results[i].Allowed && (v.Outcome != ratelimit.Unavailable || byName(limit, v.By) < 0) {
			v.Outcome, v.By = ratelimit.Unavailable, limit
		}
	}
}

// refuse lets the limit with the longest wait answer, ties by policy name; a wait that never helps is the longest.
func refuse(v *ratelimit.Verdict) {
	for i := range v.Limits {
		result := &v.Limits[i]
		if result.Allowed || result.Shadow {
			continue
		}
		if v.By == nil || longer(result, v) {
			v.Outcome, v.By, v.Wait = ratelimit.Limited, result.Limit, result.Wait
		}
	}
}

func longer(result *ratelimit.LimitResult, v *ratelimit.Verdict) bool {
	switch {
	case result.Wait == v.Wait:
		return byName(result.Limit, v.By) < 0
	case v.Wait == 0:
		return false
	case result.Wait == 0:
		return true
	}
	return result.Wait > v.Wait
}

func byName(a, b *ratelimit.Limit) int {
	return cmp.Or(cmp.Compare(a.Policy.Record.Name, b.Policy.Record.Name), cmp.Compare(a.Config.Name, b.Config.Name))
}
