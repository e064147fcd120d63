package tokenbucket_test

import (
	"fmt"
	"math/big"
	"math/rand/v2"

	"github.com/portero-dev/portero/internal/localbucket"
	"github.com/portero-dev/portero/internal/tokenbucket"
)

// modelKey is what a key holds, in integers without bounds: the definition that the Lua must meet.
type modelKey map[uint64]*modelRecord

// modelRecord counts in units of 1/interval of a token: a microsecond brings refill units, a token is interval units.
type modelRecord struct {
	order   int64
	params  localbucket.Params
	units   *big.Int
	updated int64
}

func units(tokens int64, params localbucket.Params) *big.Int {
	return new(big.Int).Mul(big.NewInt(tokens), big.NewInt(params.IntervalUS))
}

// at is the record at a time under parameters; the receiver stays as it is. Nil is a full bucket.
func (r *modelRecord) at(now, order int64, params localbucket.Params) *modelRecord {
	full := units(params.Capacity, params)
	if r == nil {
		return &modelRecord{order: order, params: params, units: full, updated: now}
	}
	next := &modelRecord{order: order, params: params, units: new(big.Int).Set(r.units), updated: max(r.updated, now)}
	if params.IntervalUS != r.params.IntervalUS {
		next.units = units(new(big.Int).Div(r.units, big.NewInt(r.params.IntervalUS)).Int64(), params)
	}
	gain := new(big.Int).Mul(big.NewInt(next.updated-r.updated), big.NewInt(params.RefillTokens))
	next.units.Add(next.units, gain)
	if next.units.Cmp(full) > 0 {
		next.units = full
	}
	return next
}

// debit takes down to a debt of one capacity, and never gives.
func (r *modelRecord) debit(cost int64) {
	floor := units(-r.params.Capacity, r.params)
	if r.units.Cmp(floor) <= 0 {
		return
	}
	r.units.Sub(r.units, units(cost, r.params))
	if r.units.Cmp(floor) < 0 {
		r.units = floor
	}
}

func (r *modelRecord) full() bool { return r.units.Cmp(units(r.params.Capacity, r.params)) >= 0 }

// fullAt is a time from which the bucket is full, in microseconds, rounded up.
func (r *modelRecord) fullAt() *big.Int {
	missing := new(big.Int).Sub(units(r.params.Capacity, r.params), r.units)
	refill := big.NewInt(r.params.RefillTokens)
	missing.Add(missing, new(big.Int).Sub(refill, big.NewInt(1)))
	return missing.Div(missing, refill).Add(missing, big.NewInt(r.updated))
}

// take is the whole function, by its description.
func (k modelKey) take(now int64, charges []tokenbucket.Charge) []tokenbucket.ChargeResult {
	results := make([]tokenbucket.ChargeResult, len(charges))
	next := make([]*modelRecord, len(charges))
	refused, charged := false, false
	for i, charge := range charges {
		record := k[charge.ID]
		order, params := charge.Order, charge.Params
		if record != nil && record.order > order {
			order, params = record.order, record.params
			results[i].Stale = true
		}
		next[i] = record.at(now, order, params)
		next[i].debit(charge.Debit)
		charged = charged || charge.Debit > 0
		results[i].Params = params
		results[i].Allowed = charge.Cost == 0 || next[i].units.Cmp(units(charge.Cost, params)) >= 0
		refused = refused || !results[i].Allowed && !charge.Shadow
	}
	for i, charge := range charges {
		if charge.Cost > 0 && results[i].Allowed && (charge.Shadow || !refused) {
			next[i].units.Sub(next[i].units, units(charge.Cost, results[i].Params))
			charged = true
		}
		tokens, remainder := new(big.Int).DivMod(next[i].units, big.NewInt(results[i].Params.IntervalUS), new(big.Int))
		results[i].Level = localbucket.Level{
			Tokens: tokens.Int64(), Remainder: remainder.Int64(), UpdatedUS: next[i].updated - now,
		}
	}
	if charged {
		for i, charge := range charges {
			k[charge.ID] = next[i]
		}
		for id, record := range k {
			if record.at(now, record.order, record.params).full() {
				delete(k, id)
			}
		}
	}
	return results
}

// fullAt is when the last record is full.
func (k modelKey) fullAt() *big.Int {
	last := new(big.Int)
	for _, record := range k {
		if full := record.fullAt(); full.Cmp(last) > 0 {
			last = full
		}
	}
	return last
}

// upTo draws from 1 to most, any order of magnitude alike, the ends often.
func upTo(random *rand.Rand, most int64) int64 {
	switch random.IntN(10) {
	case 0:
		return 1
	case 1:
		return most
	}
	magnitude := random.IntN(big.NewInt(most).BitLen()) + 1
	return min(most, 1+random.Int64N(int64(1)<<magnitude))
}

func randomParams(random *rand.Rand) localbucket.Params {
	params := localbucket.Params{
		Capacity:   upTo(random, localbucket.MaxTokens),
		IntervalUS: min(localbucket.MaxIntervalUS, localbucket.MinIntervalUS-1+upTo(random, localbucket.MaxIntervalUS)),
	}
	params.RefillTokens = upTo(random, min(localbucket.MaxTokens, params.IntervalUS))
	return params
}

// randomLimits are the states of a few limits, by order.
type randomLimits struct {
	random *rand.Rand
	states [][]localbucket.Params
}

func newRandomLimits(random *rand.Rand) *randomLimits {
	limits := &randomLimits{random: random, states: make([][]localbucket.Params, 1+random.IntN(4))}
	for i := range limits.states {
		state := randomParams(random)
		limits.states[i] = append(limits.states[i], state)
		for range random.IntN(3) {
			if random.IntN(2) == 0 { // a change that keeps the interval keeps the remainder
				state.Capacity = upTo(random, localbucket.MaxTokens)
				state.RefillTokens = upTo(random, min(localbucket.MaxTokens, state.IntervalUS))
			} else {
				state = randomParams(random)
			}
			limits.states[i] = append(limits.states[i], state)
		}
	}
	return limits
}

// charges draws some of the limits, mostly in their last state, at costs that often fit.
func (l *randomLimits) charges() []tokenbucket.Charge {
	var charges []tokenbucket.Charge
	for _, i := range l.random.Perm(len(l.states))[:1+l.random.IntN(len(l.states))] {
		order := len(l.states[i]) - 1
		if l.random.IntN(3) == 0 {
			order = l.random.IntN(order + 1)
		}
		params := l.states[i][order]
		cost := upTo(l.random, params.Capacity)
		if l.random.IntN(10) == 0 {
			cost = upTo(l.random, localbucket.MaxTokens)
		}
		charges = append(charges, tokenbucket.Charge{
			ID: uint64(i) + 1<<63, Order: int64(order), Params: params, Cost: cost, Shadow: l.random.IntN(4) == 0,
		})
	}
	if l.random.IntN(3) == 0 {
		l.debit(charges)
	}
	return charges
}

// debit adds debits to some charges, and makes some of them debits alone.
func (l *randomLimits) debit(charges []tokenbucket.Charge) {
	for i := range charges {
		charge := &charges[i]
		switch l.random.IntN(4) {
		case 0:
			continue
		case 1:
			charge.Cost = 0
		}
		charge.Debit = upTo(l.random, charge.Params.Capacity)
		if l.random.IntN(5) == 0 {
			charge.Debit = upTo(l.random, localbucket.MaxTokens)
		}
	}
}

func describe(charges []tokenbucket.Charge, now int64) string {
	return fmt.Sprintf("at %d: %+v", now, charges)
}
