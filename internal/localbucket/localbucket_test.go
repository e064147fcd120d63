package localbucket_test

import (
	"fmt"
	"math"
	"math/big"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/internal/localbucket"
)

const (
	second = int64(time.Second / time.Microsecond)
	start  = int64(1_780_000_000) * second
)

var tenPerSecond = localbucket.Params{Capacity: 20, RefillTokens: 10, IntervalUS: second}

var _ = Describe("A local bucket", func() {
	It("agrees with integers without bounds over random shapes, costs and times", func() {
		random := newRandom()
		for range 3000 {
			params := randomParams(random)
			Expect(params.Validate()).To(Succeed())
			now := start
			m, level := newModel(params, now), params.Full(now)
			for step := range 20 {
				toFull := m.wait(now, params.Capacity)
				switch random.IntN(6) {
				case 0: // no time passes
				case 1:
					now -= upTo(random, 10*second) // the clock is set back
				case 2:
					if toFull.IsInt64() && toFull.Int64() < math.MaxInt64/4 {
						now += max(0, toFull.Int64()+random.Int64N(3)-1)
					}
				default:
					now += upTo(random, 100*localbucket.MaxIntervalUS)
				}
				cost := upTo(random, min(localbucket.MaxTokens, 2*params.Capacity))
				where := fmt.Sprintf("%+v, step %d, now %d, cost %d", params, step, now, cost)

				wanted := m.take(now, cost)
				var allowed bool
				level, allowed = params.Take(level, now, cost)
				if allowed != wanted || level != m.level() {
					Fail(fmt.Sprintf("%s: got %t %+v, want %t %+v", where, allowed, level, wanted, m.level()))
				}
				if random.IntN(4) == 0 {
					debit := upTo(random, localbucket.MaxTokens)
					m.debit(now, debit)
					if level = params.Debit(level, now, debit); level != m.level() {
						Fail(fmt.Sprintf("%s: debit of %d: got %+v, want %+v", where, debit, level, m.level()))
					}
				}
				expectWait(params, m, level, now, cost, where)
				expectWait(params, m, level, now, params.Capacity, where)
			}
		}
	})

	It("admits a cost that waited for as long as it was told, and not a microsecond earlier", func() {
		random := newRandom()
		tried := 0
		for range 3000 {
			params := randomParams(random)
			cost := upTo(random, params.Capacity)
			level := params.Spend(params.Full(start), start, params.Capacity)
			level = params.At(level, start+upTo(random, localbucket.MaxIntervalUS))
			wait, ok := params.Wait(level, level.UpdatedUS, cost)
			Expect(ok).To(BeTrue())
			if wait == 0 || wait == localbucket.Forever {
				continue
			}
			tried++
			covered := level.UpdatedUS + wait.Microseconds()
			_, early := params.Take(level, covered-1, cost)
			_, intime := params.Take(level, covered, cost)
			Expect([]bool{early, intime}).To(Equal([]bool{false, true}), "%+v, cost %d", params, cost)
		}
		Expect(tried).To(BeNumerically(">", 300))
	})

	It("never passes more than its capacity and what was refilled, over any window", func() {
		level, passed := tenPerSecond.Full(start), int64(0)
		for now := start; now < start+3*second; now += second / 100 {
			var allowed bool
			if level, allowed = tenPerSecond.Take(level, now, 1); allowed {
				passed++
			}
		}
		Expect(passed).To(Equal(int64(20 + 29)))
	})

	It("keeps time from running backwards, and says so in the wait", func() {
		level := tenPerSecond.Spend(tenPerSecond.Full(start), start, 20)
		Expect(tenPerSecond.At(level, start-5*second)).To(Equal(level))
		wait, ok := tenPerSecond.Wait(level, start-5*second, 1)
		Expect(ok).To(BeTrue())
		Expect(wait).To(Equal(5*time.Second + 100*time.Millisecond))
	})

	It("says that waiting never helps where the cost exceeds the capacity", func() {
		wait, ok := tenPerSecond.Wait(tenPerSecond.Full(start), start, 21)
		Expect(ok).To(BeFalse())
		Expect(wait).To(BeZero())
	})

	It("goes into debt when told to, and refills out of it", func() {
		level := tenPerSecond.Spend(tenPerSecond.Full(start), start, 50)
		Expect(level.Tokens).To(Equal(int64(-30)))
		Expect(tenPerSecond.NextToken(level, start)).To(Equal(100 * time.Millisecond))
		Expect(tenPerSecond.TimeToFull(level, start)).To(Equal(5 * time.Second))
		wait, _ := tenPerSecond.Wait(level, start, 1)
		Expect(wait).To(Equal(3100 * time.Millisecond))
	})

	It("owes at most one capacity for debits, unless it did before", func() {
		level := tenPerSecond.Debit(tenPerSecond.Full(start), start, 25)
		Expect(level.Tokens).To(Equal(int64(-5)))
		later := start + second/20
		Expect(tenPerSecond.Debit(level, later, 14)).To(Equal(localbucket.Level{Tokens: -19, Remainder: second / 2, UpdatedUS: later}))
		Expect(tenPerSecond.Debit(level, later, 16)).To(Equal(localbucket.Level{Tokens: -20, UpdatedUS: later}))
		smaller := tenPerSecond
		smaller.Capacity = 2
		Expect(smaller.Debit(level, start, 1)).To(Equal(level))
	})

	It("waits for nothing when it is full", func() {
		level := tenPerSecond.Spend(tenPerSecond.Full(start), start, 20)
		later := start + 2*second
		Expect(tenPerSecond.NextToken(level, later-1)).To(Equal(time.Microsecond))
		Expect(tenPerSecond.TimeToFull(level, later-1)).To(Equal(time.Microsecond))
		Expect(tenPerSecond.NextToken(level, later)).To(BeZero())
		Expect(tenPerSecond.TimeToFull(level, later)).To(BeZero())
	})

	It("saturates waits that no duration holds", func() {
		params := localbucket.Params{Capacity: localbucket.MaxTokens, RefillTokens: 1, IntervalUS: localbucket.MaxIntervalUS}
		level := params.Spend(params.Full(start), start, params.Capacity)
		Expect(params.TimeToFull(level, start)).To(Equal(localbucket.Forever))
	})

	It("refills a share over an interval beyond those of policies", func() {
		params := localbucket.Params{Capacity: 1, RefillTokens: 1, IntervalUS: 1000 * localbucket.MaxIntervalUS}
		level := params.Spend(params.Full(start), start, 1)
		Expect(params.At(level, start+params.IntervalUS-1).Tokens).To(BeZero())
		Expect(params.At(level, start+params.IntervalUS).Tokens).To(Equal(int64(1)))
	})

	DescribeTable("keeps what was spent when the limit changes",
		func(to localbucket.Params, tokens, remainder int64) {
			level := localbucket.Level{Tokens: 12, Remainder: 345, UpdatedUS: start}
			got := to.At(to.Adopt(level, tenPerSecond), start)
			Expect(got).To(Equal(localbucket.Level{Tokens: tokens, Remainder: remainder, UpdatedUS: start}))
		},
		Entry("to a larger capacity", localbucket.Params{Capacity: 100, RefillTokens: 10, IntervalUS: second}, int64(12), int64(345)),
		Entry("to a smaller capacity", localbucket.Params{Capacity: 5, RefillTokens: 10, IntervalUS: second}, int64(5), int64(0)),
		Entry("to another refill", localbucket.Params{Capacity: 20, RefillTokens: 3, IntervalUS: second}, int64(12), int64(345)),
		Entry("to another interval", localbucket.Params{Capacity: 20, RefillTokens: 10, IntervalUS: 60 * second}, int64(12), int64(0)),
	)

	DescribeTable("refuses shapes out of bounds",
		func(change func(*localbucket.Params), message string) {
			params := tenPerSecond
			change(&params)
			Expect(params.Validate()).To(MatchError(ContainSubstring(message)))
		},
		Entry("no capacity", func(p *localbucket.Params) { p.Capacity = 0 }, "capacity 0"),
		Entry("too much capacity", func(p *localbucket.Params) { p.Capacity = 1e9 + 1 }, "capacity 1000000001"),
		Entry("no refill", func(p *localbucket.Params) { p.RefillTokens = 0 }, "refill 0"),
		Entry("too much refill", func(p *localbucket.Params) { p.RefillTokens = 1e9 + 1 }, "refill 1000000001"),
		Entry("too short an interval", func(p *localbucket.Params) { p.IntervalUS = 999 }, "interval 999 us"),
		Entry("too long an interval", func(p *localbucket.Params) { p.IntervalUS = localbucket.MaxIntervalUS + 1 }, "interval 31622400000001 us"),
		Entry("more than a token per microsecond", func(p *localbucket.Params) { p.RefillTokens = second + 1 }, "one token per microsecond"),
	)
})

// expectWait compares a wait with the model's, which must stand at the same time.
func expectWait(params localbucket.Params, m *model, level localbucket.Level, now, cost int64, where string) {
	GinkgoHelper()
	wait, ok := params.Wait(level, now, cost)
	if ok != (cost <= params.Capacity) {
		Fail(fmt.Sprintf("%s: waiting for %d helps: %t", where, cost, ok))
	}
	if !ok {
		return
	}
	wanted := m.wait(now, cost)
	if wanted.Cmp(big.NewInt(int64(localbucket.Forever/time.Microsecond))) > 0 {
		if wait != localbucket.Forever {
			Fail(fmt.Sprintf("%s: wait for %d is %s, want for ever", where, cost, wait))
		}
	} else if wait.Microseconds() != wanted.Int64() {
		Fail(fmt.Sprintf("%s: wait for %d is %d us, want %d", where, cost, wait.Microseconds(), wanted))
	}
}
