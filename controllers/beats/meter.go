package beats

import (
	"time"
)

// Window is how far back traffic is counted, in slots of slotLength: figures age out a slot at a time.
const (
	Window     = time.Hour
	slotLength = 5 * time.Minute
	slots      = int(Window / slotLength)
)

// Counts are verdicts.
type Counts struct {
	Allowed, Denied, ShadowDenied int64
}

func (c *Counts) add(d Counts) {
	c.Allowed += d.Allowed
	c.Denied += d.Denied
	c.ShadowDenied += d.ShadowDenied
}

// Traffic is what the sidecars of one policy decided over Span, which is shorter than Window until a window was watched.
type Traffic struct {
	Limits map[string]Counts
	Span   time.Duration
}

// meter turns the sidecars' counters, which start at 0 with each process, into figures over a window. It is not safe for
// concurrent use.
type meter struct {
	sidecars map[string]*sidecarCounters // by pod UID
	policies map[string]*policyCounters  // by policy UID
}

// sidecarCounters are the counters that a sidecar's process last sent, and when.
type sidecarCounters struct {
	startID string
	seen    time.Time
	limits  map[limitKey]Counts
}

type limitKey struct{ policyUID, limit string }

type policyCounters struct {
	since  time.Time
	limits map[string]*[slots]slot
}

// slot counts the verdicts of the slotLength since the epoch that number names.
type slot struct {
	number int64
	Counts
}

func newMeter() *meter {
	return &meter{sidecars: map[string]*sidecarCounters{}, policies: map[string]*policyCounters{}}
}

// observe takes in one poll of a namespace. On the first, counters are only remembered: what a sidecar decided before
// the manager watched happened at unknown times. A sidecar that appears later is new, and all its verdicts are recent.
func (m *meter) observe(now time.Time, beats map[string]Beat, first bool) {
	for uid := range beats {
		beat := beats[uid]
		last := m.sidecars[uid]
		if last != nil && last.startID != beat.StartID {
			last = nil
		}
		current := &sidecarCounters{startID: beat.StartID, seen: now, limits: map[limitKey]Counts{}}
		for i := range beat.Applied {
			applied := &beat.Applied[i]
			policy := m.policy(now, applied.UID)
			for j := range applied.Limits {
				counter := &applied.Limits[j]
				key := limitKey{applied.UID, counter.Name}
				total := Counts{int64(counter.Allowed), int64(counter.Denied), int64(counter.ShadowDenied)}
				current.limits[key] = total
				if first && last == nil {
					continue
				}
				policy.slot(now, counter.Name).add(since(last, key, total))
			}
		}
		m.sidecars[uid] = current
	}
	// Heartbeats that are missing once, as after a FLUSHALL, are remembered: taken for new, they would count twice.
	for uid, counters := range m.sidecars {
		if now.Sub(counters.seen) > Window {
			delete(m.sidecars, uid)
		}
	}
}

// since is what was added to a counter; a counter that fell was started anew.
func since(last *sidecarCounters, key limitKey, total Counts) Counts {
	if last == nil {
		return total
	}
	before := last.limits[key]
	delta := func(now, then int64) int64 {
		if now < then {
			return now
		}
		return now - then
	}
	return Counts{
		Allowed:      delta(total.Allowed, before.Allowed),
		Denied:       delta(total.Denied, before.Denied),
		ShadowDenied: delta(total.ShadowDenied, before.ShadowDenied),
	}
}

func (m *meter) policy(now time.Time, uid string) *policyCounters {
	p := m.policies[uid]
	if p == nil {
		p = &policyCounters{since: now, limits: map[string]*[slots]slot{}}
		m.policies[uid] = p
	}
	return p
}

func (p *policyCounters) slot(now time.Time, limit string) *Counts {
	ring := p.limits[limit]
	if ring == nil {
		ring = &[slots]slot{}
		p.limits[limit] = ring
	}
	number := now.UnixNano() / int64(slotLength)
	s := &ring[number%int64(slots)]
	if s.number != number {
		*s = slot{number: number}
	}
	return &s.Counts
}

// traffic sums the window up. ok is false for a policy that no sidecar ever applied.
func (m *meter) traffic(now time.Time, policyUID string) (Traffic, bool) {
	p := m.policies[policyUID]
	if p == nil {
		return Traffic{}, false
	}
	number := now.UnixNano() / int64(slotLength)
	out := Traffic{Limits: map[string]Counts{}, Span: min(now.Sub(p.since), Window)}
	for limit, ring := range p.limits {
		var sum Counts
		for i := range ring {
			if ring[i].number > number-int64(slots) {
				sum.add(ring[i].Counts)
			}
		}
		out.Limits[limit] = sum
	}
	return out, true
}

// keep forgets all policies but those named.
func (m *meter) keep(policyUIDs map[string]bool) {
	for uid := range m.policies {
		if !policyUIDs[uid] {
			delete(m.policies, uid)
		}
	}
}
