package tokenbucket_test

import (
	"math/rand/v2"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/internal/localbucket"
	"github.com/portero-dev/portero/internal/tokenbucket"
)

var _ = Describe("A debit", func() {
	It("is taken whatever the level, into debt of one capacity, and what exceeds that is forgiven", func(ctx SpecContext) {
		key := newKey()
		debit := tokenbucket.Charge{ID: 1, Params: slow, Debit: 7}
		var levels []int64
		for range 4 {
			result := take(ctx, key, debit)[0]
			Expect(result.Allowed).To(BeTrue(), "it asks for nothing")
			Expect(result.Receipt.Charged()).To(BeFalse())
			levels = append(levels, result.Level.Tokens)
		}
		Expect(levels).To(Equal([]int64{3, -4, -10, -10}))
	})

	It("is taken before the cost is looked at, also when that is refused then", func(ctx SpecContext) {
		key := newKey()
		both := tokenbucket.Charge{ID: 1, Params: slow, Cost: 3, Debit: 4}
		result := take(ctx, key, both)[0]
		Expect(result).To(And(HaveField("Allowed", true), HaveField("Level.Tokens", int64(3))))
		result = take(ctx, key, both)[0]
		Expect(result).To(And(HaveField("Allowed", false), HaveField("Level.Tokens", int64(-1))))
		Expect(tokens(ctx, key, 1)).To(Equal(int64(-1)))
	})

	It("neither keeps others from being charged nor is kept by them", func(ctx SpecContext) {
		key := newKey()
		results := take(ctx, key, tokenbucket.Charge{ID: 1, Params: slow, Debit: 15}, tokenbucket.Charge{ID: 2, Params: slow, Cost: 4})
		Expect(results[1]).To(And(HaveField("Allowed", true), HaveField("Level.Tokens", int64(6))))
		results = take(ctx, key, tokenbucket.Charge{ID: 2, Params: slow, Debit: 1},
			tokenbucket.Charge{ID: 1, Params: slow, Cost: 1}, tokenbucket.Charge{ID: 3, Params: slow, Debit: 2, Shadow: true})
		var levels []int64
		for _, result := range results {
			levels = append(levels, result.Level.Tokens)
		}
		Expect(levels).To(Equal([]int64{5, -5, 8}))
	})

	It("is part of the wait", func(ctx SpecContext) {
		hourly := localbucket.Params{Capacity: 10, RefillTokens: 1, IntervalUS: 3600 * second}
		key := newKey()
		take(ctx, key, tokenbucket.Charge{ID: 1, Params: hourly, Debit: 15})
		result := take(ctx, key, tokenbucket.Charge{ID: 1, Params: hourly, Cost: 2})[0]
		wait, helps := result.Params.Wait(result.Level, 0, 2)
		Expect(helps).To(BeTrue())
		Expect(wait).To(BeNumerically("~", 7*time.Hour, time.Minute))
	})

	It("never lifts a level that a larger capacity left in deeper debt", func(ctx SpecContext) {
		key := newKey()
		take(ctx, key, tokenbucket.Charge{ID: 1, Order: 1, Params: slow, Debit: 18})
		smaller := slow
		smaller.Capacity = 3
		Expect(take(ctx, key, tokenbucket.Charge{ID: 1, Order: 2, Params: smaller, Debit: 1})[0].Level.Tokens).To(Equal(int64(-8)))
	})

	It("leaves charges to be given back, unless a part of it is forgiven", func(ctx SpecContext) {
		key := newKey()
		first := take(ctx, key, tokenbucket.Charge{ID: 1, Params: slow, Cost: 2})[0]
		second := take(ctx, key, tokenbucket.Charge{ID: 1, Params: slow, Cost: 3})[0]
		take(ctx, key, tokenbucket.Charge{ID: 1, Params: slow, Debit: 9})
		Expect(giveBack(ctx, key, second.Receipt)).To(Equal(1))
		Expect(tokens(ctx, key, 1)).To(Equal(int64(-1)))
		take(ctx, key, tokenbucket.Charge{ID: 1, Params: slow, Debit: 10})
		// Without the first charge nothing would have been forgiven, and the level would be -9, not -8.
		Expect(giveBack(ctx, key, first.Receipt)).To(BeZero())
		Expect(tokens(ctx, key, 1)).To(Equal(int64(-10)))
	})

	It("leaves debt that older sidecars can read", func(ctx SpecContext) {
		key := newKey()
		take(ctx, key, tokenbucket.Charge{ID: 1, Params: slow, Debit: 13})
		for version, head := range map[byte]int{1: 0, 2: 16} {
			reply, err := cluster.Client().FCall(ctx, tokenbucket.FunctionTake, []string{key}, with(packed(valid), 0, version)).Text()
			Expect(err).NotTo(HaveOccurred())
			Expect([]byte(reply)[head:][:5]).To(Equal([]byte{0, 0xff, 0xff, 0xff, 0xfd}))
		}
	})

	It("lets requests whose cost is known late pass the bound by those under way at most", func(ctx SpecContext) {
		const callers, maximum = 8, 10
		params := localbucket.Params{Capacity: 100, RefillTokens: 200, IntervalUS: second}
		key := newKey()
		var passed, failed atomic.Int64
		from := redisTime(ctx, key)
		crowd(ctx, callers, func(stop func()) {
			charge := tokenbucket.Charge{ID: 1, Params: params, Cost: 1}
			results, err := tryTake(ctx, key, charge)
			if err == nil && results[0].Allowed {
				charge.Cost, charge.Debit = 0, 1+rand.Int64N(maximum-1)
				_, err = tryTake(ctx, key, charge)
				passed.Add(1 + charge.Debit)
			}
			if err != nil {
				failed.Add(1)
				stop()
			}
		}, time.Second)
		elapsed := redisTime(ctx, key) - from
		Expect(failed.Load()).To(BeZero())
		bound := params.Capacity + elapsed*params.RefillTokens/params.IntervalUS
		Expect(passed.Load()).To(BeNumerically("<=", bound+callers*maximum), "over %d us", elapsed)
		Expect(passed.Load()).To(BeNumerically(">=", bound*8/10), "over %d us", elapsed)
	}, NodeTimeout(time.Minute))
})
