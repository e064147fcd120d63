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
