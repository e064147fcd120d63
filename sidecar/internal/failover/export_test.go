package failover

import "github.com/portero-dev/portero/internal/ratelimit"

// Local is the fallback's buckets, at times of the caller's choice.
type Local struct{ local *local }

// NewLocal makes buckets for so many keys.
func NewLocal(maxKeys int) Local { return Local{newLocal(maxKeys)} }

// Decide is the verdict of one sidecar of some.
func (l Local) Decide(groups []ratelimit.Group, sidecars int, nowUS int64) ([]ratelimit.LimitResult, bool) {
	var parts []part
	var all []ratelimit.LimitResult
	for i := range groups {
		parts = append(parts, part{group: &groups[i], sidecars: sidecars, results: make([]ratelimit.LimitResult, len(groups[i].Charges))})
	}
	pass := l.local.decide(parts, false, nowUS)
	for _, p := range parts {
		all = append(all, p.results...)
	}
	return all, pass
}

// Saw lets a shared level be seen.
func (l Local) Saw(group ratelimit.Group, answers []ChargeAnswer, nowUS int64) {
	l.local.saw(&group, answers, nowUS)
}

// Saw lets a late answer be seen.
func (l *Limiter) Saw(group ratelimit.Group, answers []ChargeAnswer) {
	l.local.saw(&group, answers, l.clock.nowUS())
}

// Carry takes the deficit of a group's first limit at a time.
func (l Local) Carry(group ratelimit.Group, nowUS int64) int64 {
	if carrying := l.local.carryAt(&group, nowUS); carrying != nil {
		return carrying.Charges[0].Debit
	}
	return 0
}
