package localbucket_test

import (
	"math/big"
	"math/rand/v2"

	. "github.com/onsi/ginkgo/v2"

	"github.com/portero-dev/portero/internal/localbucket"
)

// model is the definition of a bucket in integers without bounds. Its unit is 1/interval of a token: a microsecond brings
// refill units, a token is interval units.
type model struct {
	params  localbucket.Params
	units   *big.Int
	updated int64
}

func newModel(params localbucket.Params, now int64) *model {
	m := &model{params: params, updated: now}
	m.units = m.tokens(params.Capacity)
	return m
}

func (m *model) tokens(n int64) *big.Int {
	return new(big.Int).Mul(big.NewInt(n), big.NewInt(m.params.IntervalUS))
}

func (m *model) advance(now int64) {
	if now > m.updated {
		gain := new(big.Int).Mul(big.NewInt(now-m.updated), big.NewInt(m.params.RefillTokens))
		m.units.Add(m.units, gain)
		m.updated = now
	}
	if full := m.tokens(m.params.Capacity); m.units.Cmp(full) > 0 {
		m.units = full
	}
}

func (m *model) take(now, cost int64) bool {
	m.advance(now)
	price := m.tokens(cost)
	if m.units.Cmp(price) < 0 {
		return false
	}
	m.units.Sub(m.units, price)
	return true
}

func (m *model) debit(now, cost int64) {
	m.advance(now)
	m.units.Sub(m.units, m.tokens(cost))
	if floor := m.tokens(-m.params.Capacity); m.units.Cmp(floor) < 0 {
		m.units = floor
	}
}

func (m *model) level() localbucket.Level {
	tokens, remainder := new(big.Int).DivMod(m.units, big.NewInt(m.params.IntervalUS), new(big.Int))
	return localbucket.Level{Tokens: tokens.Int64(), Remainder: remainder.Int64(), UpdatedUS: m.updated}
}

// wait is the microseconds from now until a cost is covered.
func (m *model) wait(now, cost int64) *big.Int {
	missing := new(big.Int).Sub(m.tokens(cost), m.units)
	if missing.Sign() <= 0 {
		return new(big.Int)
	}
	refill := big.NewInt(m.params.RefillTokens)
	missing.Add(missing, new(big.Int).Sub(refill, big.NewInt(1)))
	missing.Div(missing, refill)
	return missing.Add(missing, big.NewInt(m.updated-now))
}

// newRandom repeats a run that is started with the same ginkgo seed.
func newRandom() *rand.Rand { return rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), 1)) }

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
