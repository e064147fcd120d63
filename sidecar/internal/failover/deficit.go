package failover

import (
	"slices"

	"github.com/portero-dev/portero/internal/localbucket"
	"github.com/portero-dev/portero/internal/ratelimit"
)

// What this sidecar passed while it could not ask is no part of the shared bucket's level: its *deficit*. The key's next
// verdict carries it there as a debit, once:
//
//   - The deficit is how far the local level lies below where it would be if this sidecar had passed nothing. After an
//     outage that was long enough to fill a bucket, that is the share of the capacity less the level. In a shorter one the
//     shared bucket did not fill either, and what it lacked before is not charged again.
//   - It is at most this sidecar's share of the capacity, so the sum over all sidecars never exceeds the capacity, unless
//     that is less than one token for each. A client that kept its rate finds what it would have found without the outage.
//   - A call whose outcome is unknown counts as charged, whether it carried a deficit or its request passed locally then.
//     Only proof that nothing ran brings a deficit back.
//
// Keys that share the overflow bucket have no deficits: it is nobody's in particular.

// deficit is what is owed to the shared bucket, to the nearest token: rounded up, it would punish, rounded down, give away a
// token with each outage.
func (b *localBucket) deficit(nowUS int64) int64 {
	if b.shared || b.params == (localbucket.Params{}) {
		return 0
	}
	level, free := b.params.At(b.level, nowUS), b.params.At(b.free, nowUS)
	owed := free.Tokens - level.Tokens
	switch part := free.Remainder - level.Remainder; {
	case part >= b.params.IntervalUS-b.params.IntervalUS/2:
		owed++
	case part < -b.params.IntervalUS/2:
		owed--
	}
	return min(owed, b.params.Capacity)
}

// owes notes that a bucket may have a deficit until it is full.
func (l *local) owes(b *localBucket, nowUS int64) {
	full := nowUS + b.params.TimeToFull(b.level, nowUS).Microseconds() + 1
	for until := l.owedUntil.Load(); full > until && !l.owedUntil.CompareAndSwap(until, full); {
		until = l.owedUntil.Load()
	}
}

// carry takes the deficits of what the group asks, and answers a copy of the group that asks for them too; nil when there
// are none. Without an outage before, it looks at nothing but one number.
func (l *local) carry(group *ratelimit.Group, clock clock) *ratelimit.Group {
	if l.owedUntil.Load() == 0 {
		return nil
	}
	return l.carryAt(group, clock.nowUS())
}

func (l *local) carryAt(group *ratelimit.Group, nowUS int64) *ratelimit.Group {
	if nowUS >= l.owedUntil.Load() {
		return nil
	}
	shard := l.shard(group.Tag)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	key := shard.keys[group.Tag]
	if key == nil {
		return nil
	}
	var carrying *ratelimit.Group
	for i := range group.Charges {
		bucket := key.known(group.Charges[i].Limit.ID)
		if bucket == nil {
			continue
		}
		owed := bucket.deficit(nowUS)
		if owed <= 0 {
			continue
		}
		if carrying == nil {
			carrying = &ratelimit.Group{Policy: group.Policy, Tag: group.Tag, Charges: slices.Clone(group.Charges)}
		}
		carrying.Charges[i].Debit += owed
		bucket.free = bucket.level
	}
	return carrying
}

// bring brings deficits back that were carried, and not charged.
func (l *local) bring(carried *ratelimit.Group, sidecars int, nowUS int64) {
	shard := l.shard(carried.Tag)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	key := shard.keys[carried.Tag]
	if key == nil {
		return // it was full, so nothing is owed any more
	}
	for i := range carried.Charges {
		charge := &carried.Charges[i]
		bucket := key.known(charge.Limit.ID)
		if bucket == nil || charge.Debit == 0 {
			continue
		}
		if bucket.shared { // another verdict saw a level from which the debit is missing
			bucket.share(charge.Limit, sidecars, nowUS)
			bucket.level.Tokens -= charge.Debit
		} else {
			bucket.free.Tokens += charge.Debit
		}
		l.owes(bucket, nowUS)
	}
}

// debit takes a group's debits of this sidecar's own buckets, and answers which took them.
//
// A local bucket owes at most its own capacity, one share of the limit's, so that all sidecars together owe at most one
// capacity, as the shared bucket does. What exceeds that is forgiven, as there. (Where the capacity is less than one token
// for each sidecar, each may owe that one token.)
func (l *local) debit(group *ratelimit.Group, sidecars int, nowUS int64) Fate {
	shard := l.shard(group.Tag)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	key, fate := shard.find(group.Tag, l.perShard, nowUS), FateLocal
	if key == nil {
		fate = FateOverflow
		l.overflow.mu.Lock()
		defer l.overflow.mu.Unlock()
		key = l.overflow.find(group.Policy.Record.Name, len(l.overflow.keys)+1, nowUS)
	}
	for i := range group.Charges {
		charge := &group.Charges[i]
		bucket := key.bucket(charge.Limit.ID)
		bucket.share(charge.Limit, sidecars, nowUS)
		bucket.level = bucket.params.Debit(bucket.level, nowUS, charge.Debit)
		l.owes(bucket, nowUS)
	}
	return fate
}

// settle brings back what verdicts carried in vain.
func (l *Limiter) settle(r *round) {
	for i := range r.asked {
		a := &r.asked[i]
		if a.carrying != nil && a.kind != "" && !a.unknown {
			l.local.bring(a.carrying, l.sidecars(a.carrying.Policy), l.clock.nowUS())
		}
	}
}

func (l *Limiter) sidecars(policy *ratelimit.Policy) int {
	return max(1, l.options.Sidecars(policy.Record.Name))
}

// Debit takes what requests that passed turned out to cost beyond what they were charged: the Debit of each charge, which
// asks for no Cost. It waits for nothing. Where the store can't be asked or proves that it took nothing, this sidecar's own
// buckets take it, if the policy has any: down to a debt of one share of the capacity, where the shared one goes down to a
// debt of all of it.
func (l *Limiter) Debit(groups []ratelimit.Group) {
	c := l.current.Load()
	for i := range groups {
		group := &groups[i]
		if c != nil {
			if place, known := c.store.Locate(group.Tag); known && !c.breakers.of(place.Master).isOpen() {
				c.store.Debit(place, group, func(charges []ChargeAnswer, err error) { l.debited(group, charges, err) })
				continue
			}
		}
		l.debitLocally(group)
	}
}

func (l *Limiter) debited(group *ratelimit.Group, charges []ChargeAnswer, err error) {
	if err == nil {
		// A fallback that began at the level before would give the debit away again.
		l.local.saw(group, charges, l.clock.nowUS())
		l.options.Observer.Debited(FateShared, len(group.Charges))
		return
	}
	if _, unknown := kindOf(err); unknown {
		l.options.Observer.Debited(FateDropped, len(group.Charges))
		return
	}
	l.debitLocally(group)
}

func (l *Limiter) debitLocally(group *ratelimit.Group) {
	fate := FateDropped
	if mode := group.Policy.Record.Store.OnFailure; mode != onFailureOpen && mode != onFailureClosed {
		fate = l.local.debit(group, l.sidecars(group.Policy), l.clock.nowUS())
	}
	l.options.Observer.Debited(fate, len(group.Charges))
}
