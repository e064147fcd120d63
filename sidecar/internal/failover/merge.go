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

// merge makes one verdict of what was answered and, for the groups that were not, of their policies' failure modes.
func (l *Limiter) merge(groups []ratelimit.Group, r *round) ratelimit.Verdict {
	charges := 0
	for i := range groups {
		charges += len(groups[i].Charges)
	}
	v := ratelimit.Verdict{Source: ratelimit.FromRedis, Limits: make([]ratelimit.LimitResult, 0, charges)}
	for i := range groups {
		if r.asked[i].kind == "" {
			v.Limits = l.shared(v.Limits, &groups[i], r.asked[i].charges)
			continue
		}
		v.Source = ratelimit.FromLocal
		v.Limits = l.failed(v.Limits, &groups[i], &v)
	}
	if v.Outcome != ratelimit.Unavailable {
		refuse(&v)
	}
	return v
}

// shared turns the store's answer about a group into results.
func (l *Limiter) shared(results []ratelimit.LimitResult, group *ratelimit.Group, answers []ChargeAnswer) []ratelimit.LimitResult {
	l.local.saw(group, answers, l.clock.nowUS())
	for i, charge := range group.Charges {
		a := &answers[i]
		if a.Stale {
			l.options.Stale()
		}
		result := ratelimit.LimitResult{
			Limit:     charge.Limit,
			Shadow:    charge.Limit.Shadow,
			Allowed:   a.Allowed,
			Remaining: max(a.Level.Tokens, 0),
			NextToken: a.Params.NextToken(a.Level, 0),
			Source:    ratelimit.FromRedis,
		}
		if !a.Allowed {
			result.Wait, _ = a.Params.Wait(a.Level, 0, charge.Cost) // stays zero where no wait helps
		}
		results = append(results, result)
	}
	return results
}

// failed decides a group that the store did not answer for, as its policy says. The strictest policy wins: Closed makes
// the whole verdict Unavailable.
func (l *Limiter) failed(results []ratelimit.LimitResult, group *ratelimit.Group, v *ratelimit.Verdict) []ratelimit.LimitResult {
	mode := group.Policy.Record.Store.OnFailure
	if mode != onFailureOpen && mode != onFailureClosed {
		return l.local.decide(results, group, l.options.Sidecars(group.Policy.Record.Name), l.clock.nowUS())
	}
	for _, charge := range group.Charges {
		limit := charge.Limit
		result := ratelimit.LimitResult{
			Limit: limit, Shadow: limit.Shadow, Allowed: mode == onFailureOpen || limit.Shadow, Remaining: -1, Source: ratelimit.FromLocal,
		}
		results = append(results, result)
		if !result.Allowed && (v.Outcome != ratelimit.Unavailable || byName(limit, v.By) < 0) {
			v.Outcome, v.By = ratelimit.Unavailable, limit
		}
	}
	return results
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
