package failover

import (
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/portero-dev/portero/internal/localbucket"
	"github.com/portero-dev/portero/internal/ratelimit"
)

const (
	localShards = 64
	// evictionTries is how many keys are looked at for a full bucket to evict, before a new key joins the overflow bucket.
	evictionTries = 16
	// maxSidecars keeps a share's interval within 64 bits.
	maxSidecars = 100_000
)

// local holds this sidecar's share of each bucket: capacity and refill divided by the number of sidecars. It remembers the
// shared level that was seen last, so that an outage starts from there and not from full. What passed by itself is owed to
// the shared bucket afterwards: deficit.go.
//
// Memory is bounded. Only full buckets are forgotten, which changes nothing; when there are none, new keys share one
// overflow bucket per limit, so that a flood of keys can't buy tokens.
type local struct {
	seed     maphash.Seed
	perShard int
	shards   [localShards]localShard
	overflow localShard // by policy name
	// overflowed counts the groups that an overflow bucket decided.
	overflowed atomic.Uint64
	// owedUntil is the time in microseconds from which every bucket is full, so that none has a deficit.
	owedUntil atomic.Int64
}

type localShard struct {
	mu   sync.Mutex
	keys map[string]*localKey
}

// localKey is the buckets of one policy for one set of key values.
type localKey struct{ buckets []localBucket }

type localBucket struct {
	limit  uint64
	shared bool // params and level are the shared bucket's
	params localbucket.Params
	level  localbucket.Level
	// free is the level that the share would have if this sidecar had passed nothing that the shared bucket was not charged
	// for; never below level. Not used while shared.
	free localbucket.Level
}

func newLocal(maxKeys int) *local {
	l := &local{seed: maphash.MakeSeed(), perShard: max(1, maxKeys/localShards)}
	for i := range l.shards {
		l.shards[i].keys = make(map[string]*localKey)
	}
	l.overflow.keys = make(map[string]*localKey)
	return l
}

func (l *local) index(tag string) uint64 { return maphash.String(l.seed, tag) % localShards }

func (l *local) shard(tag string) *localShard { return &l.shards[l.index(tag)] }

// saw remembers the shared levels of a verdict. A key that finds no room is not remembered.
func (l *local) saw(group *ratelimit.Group, answers []ChargeAnswer, nowUS int64) {
	shard := l.shard(group.Tag)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	key := shard.find(group.Tag, l.perShard, nowUS)
	if key == nil {
		return
	}
	for i, charge := range group.Charges {
		bucket := key.bucket(charge.Limit.ID)
		if bucket.deficit(nowUS) > 0 {
			continue // the next verdict carries it
		}
		bucket.shared, bucket.params = true, answers[i].Params
		bucket.level = answers[i].Level
		bucket.level.UpdatedUS += nowUS
	}
}

// part is a group that this sidecar decides by itself, and the place for its results.
type part struct {
	group    *ratelimit.Group
	sidecars int
	counted  bool // the shared bucket may have been charged, and counts as charged
	results  []ratelimit.LimitResult
}

// decide makes this sidecar's own verdict on groups, and answers whether the request passes. Unless others refused it, it
// takes all that the groups' limits ask for or nothing; shadow limits are charged each as if alone. All shards concerned
// are locked meanwhile, so that nobody sees a part of it.
func (l *local) decide(parts []part, refused bool, nowUS int64) bool {
	defer l.lock(parts)()
	keys := make([]*localKey, 0, 4) // of nearly all requests, on the stack
	overflow := false
	for _, p := range parts {
		keys = append(keys, l.shard(p.group.Tag).find(p.group.Tag, l.perShard, nowUS, keys...))
		overflow = overflow || keys[len(keys)-1] == nil
	}
	if overflow {
		l.overflow.mu.Lock()
		defer l.overflow.mu.Unlock()
	}
	for i, p := range parts {
		if keys[i] == nil {
			l.overflowed.Add(1)
			keys[i] = l.overflow.find(p.group.Policy.Record.Name, len(l.overflow.keys)+1, nowUS)
		}
		for j, charge := range p.group.Charges {
			bucket := keys[i].bucket(charge.Limit.ID)
			bucket.share(charge.Limit, max(1, p.sidecars), nowUS)
			p.results[j] = bucket.verdict(charge, nowUS)
			refused = refused || !p.results[j].Allowed && !p.results[j].Shadow
		}
	}
	for i, p := range parts {
		for j, charge := range p.group.Charges {
			result := &p.results[j]
			if result.Allowed && (!refused || result.Shadow) {
				bucket := keys[i].bucket(charge.Limit.ID)
				bucket.level = bucket.params.Spend(bucket.level, nowUS, charge.Cost)
				if p.counted {
					bucket.free = bucket.params.Spend(bucket.free, nowUS, charge.Cost)
				} else {
					l.owes(bucket, nowUS)
				}
				result.Remaining = max(bucket.level.Tokens, 0)
				result.NextToken = bucket.params.NextToken(bucket.level, nowUS)
			}
		}
	}
	return !refused
}

// lock locks the shards of all groups, in one order for everybody, and answers what unlocks them.
func (l *local) lock(parts []part) func() {
	if len(parts) == 1 {
		shard := l.shard(parts[0].group.Tag)
		shard.mu.Lock()
		return shard.mu.Unlock
	}
	var concerned [localShards]bool
	for _, p := range parts {
		concerned[l.index(p.group.Tag)] = true
	}
	for i := range concerned {
		if concerned[i] {
			l.shards[i].mu.Lock()
		}
	}
	return func() {
		for i := range concerned {
			if concerned[i] {
				l.shards[i].mu.Unlock()
			}
		}
	}
}

// find answers the key, making it when there is room, else nil. The keys to keep are not forgotten for it.
func (s *localShard) find(name string, limit int, nowUS int64, keep ...*localKey) *localKey {
	if key := s.keys[name]; key != nil {
		return key
	}
	if len(s.keys) >= limit && !s.evict(nowUS, keep) {
		return nil
	}
	key := new(localKey)
	s.keys[name] = key
	return key
}

// evict forgets one key whose buckets are all full, in which no information is lost.
func (s *localShard) evict(nowUS int64, keep []*localKey) bool {
	tries := 0
	for name, key := range s.keys { // in random order
		if key.full(nowUS) && !slices.Contains(keep, key) {
			delete(s.keys, name)
			return true
		}
		if tries++; tries == evictionTries {
			return false
		}
	}
	return false
}

// full holds for a shared level too: a share fills in the same time as the whole.
func (k *localKey) full(nowUS int64) bool {
	for i := range k.buckets {
		bucket := &k.buckets[i]
		if bucket.params.At(bucket.level, nowUS).Tokens < bucket.params.Capacity {
			return false
		}
	}
	return true
}

// known is the bucket of a limit, nil if there is none.
func (k *localKey) known(limit uint64) *localBucket {
	for i := range k.buckets {
		if k.buckets[i].limit == limit {
			return &k.buckets[i]
		}
	}
	return nil
}

// bucket is the bucket of a limit, made when there is none.
func (k *localKey) bucket(limit uint64) *localBucket {
	if known := k.known(limit); known != nil {
		return known
	}
	k.buckets = append(k.buckets, localBucket{limit: limit})
	return &k.buckets[len(k.buckets)-1]
}

// share brings the bucket to the present, as this sidecar's share of the limit.
func (b *localBucket) share(limit *ratelimit.Limit, sidecars int, nowUS int64) {
	params := shareOf(limit, sidecars)
	switch {
	case b.params == localbucket.Params{}: // never seen: a full bucket and a missing one are the same thing
		b.level = params.Full(nowUS)
		b.free = b.level
	case b.shared:
		b.level.Tokens, b.level.Remainder = floorDiv(b.level.Tokens, int64(sidecars)), 0
		b.free = b.level
	case b.params != params:
		b.level = params.Adopt(b.params.At(b.level, nowUS), b.params)
		b.free = params.Adopt(b.params.At(b.free, nowUS), b.params)
	}
	b.shared, b.params = false, params
	b.level, b.free = params.At(b.level, nowUS), params.At(b.free, nowUS)
}

// shareOf is a limit's bucket divided by the number of sidecars, with room for one token at least. The refill is divided
// by making its interval longer: exact, where a division of its tokens would lose up to one.
func shareOf(limit *ratelimit.Limit, sidecars int) localbucket.Params {
	bucket := limit.Config.Bucket
	n := int64(min(sidecars, maxSidecars))
	return localbucket.Params{
		Capacity:     max(1, bucket.Capacity/n),
		RefillTokens: bucket.RefillTokens,
		IntervalUS:   bucket.RefillIntervalUS * n,
	}
}

// verdict is what the bucket, brought to the present, says about a charge. A cost above the share passes from a full bucket, into
// debt: refused it would never pass, however long the outage.
func (b *localBucket) verdict(charge ratelimit.Charge, nowUS int64) ratelimit.LimitResult {
	needed := min(charge.Cost, b.params.Capacity)
	result := ratelimit.LimitResult{
		Limit:     charge.Limit,
		Shadow:    charge.Limit.Shadow,
		Remaining: max(b.level.Tokens, 0),
		NextToken: b.params.NextToken(b.level, nowUS),
		Source:    ratelimit.FromLocal,
	}
	if charge.Cost > charge.Limit.Config.Bucket.Capacity {
		return result // no wait helps
	}
	result.Wait, _ = b.params.Wait(b.level, nowUS, needed)
	result.Allowed = result.Wait == 0
	return result
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
