package tokenbucket_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/internal/localbucket"
	"github.com/portero-dev/portero/internal/tokenbucket"
)

var _ = Describe("Taking", func() {
	It("starts full and refuses what the level does not cover", func(ctx SpecContext) {
		key := newKey()
		charge := tokenbucket.Charge{ID: 1, Params: slow, Cost: 7}
		result := take(ctx, key, charge)[0]
		Expect(result.Allowed).To(BeTrue())
		Expect(result.Level.Tokens).To(Equal(int64(3)))
		result = take(ctx, key, charge)[0]
		Expect(result.Allowed).To(BeFalse())
		Expect(result.Level.Tokens).To(Equal(int64(3)))
		charge.Cost = 3
		Expect(take(ctx, key, charge)[0].Allowed).To(BeTrue())
	})

	It("tells a level from which the wait follows", func(ctx SpecContext) {
		params := localbucket.Params{Capacity: 5, RefillTokens: 20, IntervalUS: second}
		charge := tokenbucket.Charge{ID: 1, Params: params, Cost: 5}
		key := newKey()
		take(ctx, key, charge)
		result := take(ctx, key, charge)[0]
		Expect(result.Allowed).To(BeFalse())
		wait, ok := result.Params.Wait(result.Level, 0, charge.Cost)
		Expect(ok).To(BeTrue())
		Expect(wait).To(BeNumerically(">", 0))
		Eventually(ctx, func(g Gomega) {
			results, err := tryTake(ctx, key, charge)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(results[0].Allowed).To(BeTrue())
		}).WithTimeout(wait + 2*time.Second).WithPolling(5 * time.Millisecond).Should(Succeed())
	})

	It("refuses for ever what exceeds the capacity", func(ctx SpecContext) {
		result := take(ctx, newKey(), tokenbucket.Charge{ID: 1, Params: slow, Cost: slow.Capacity + 1})[0]
		Expect(result.Allowed).To(BeFalse())
		_, helps := result.Params.Wait(result.Level, 0, slow.Capacity+1)
		Expect(helps).To(BeFalse())
	})

	It("charges all limits of a call or none", func(ctx SpecContext) {
		key := newKey()
		wide, narrow := slow, slow
		narrow.Capacity = 2
		charges := []tokenbucket.Charge{{ID: 1, Params: wide, Cost: 1}, {ID: 2, Params: narrow, Cost: 1}}
		for range 5 {
			take(ctx, key, charges...)
		}
		results := take(ctx, key, charges...)
		Expect(results[0].Allowed).To(BeTrue())
		Expect(results[0].Level.Tokens).To(Equal(int64(8)))
		Expect(results[1].Allowed).To(BeFalse())
		Expect(results[1].Level.Tokens).To(BeZero())
	})

	It("charges a shadow limit as if it were alone", func(ctx SpecContext) {
		key := newKey()
		enforced := tokenbucket.Charge{ID: 1, Params: slow, Cost: 6}
		shadow := tokenbucket.Charge{ID: 2, Params: slow, Cost: 4, Shadow: true}
		take(ctx, key, enforced, shadow)
		results := take(ctx, key, enforced, shadow)
		Expect(results[0]).To(And(HaveField("Allowed", false), HaveField("Level.Tokens", int64(4))))
		Expect(results[1]).To(And(HaveField("Allowed", true), HaveField("Level.Tokens", int64(2))))

		enforced.Cost = 1
		results = take(ctx, key, enforced, shadow)
		Expect(results[0]).To(And(HaveField("Allowed", true), HaveField("Level.Tokens", int64(3))))
		Expect(results[1]).To(And(HaveField("Allowed", false), HaveField("Level.Tokens", int64(2))))
	})

	It("lets the newest limit decide, tells an older caller, and keeps what was spent", func(ctx SpecContext) {
		key := newKey()
		before, after := slow, slow
		after.Capacity = 3
		old := tokenbucket.Charge{ID: 1, Order: 1, Params: before, Cost: 1}
		changed := tokenbucket.Charge{ID: 1, Order: 2, Params: after, Cost: 1}
		take(ctx, key, old)
		result := take(ctx, key, changed)[0]
		Expect(result).To(And(HaveField("Stale", false), HaveField("Level.Tokens", int64(2))))
		result = take(ctx, key, old)[0]
		Expect(result).To(And(HaveField("Stale", true), HaveField("Level.Tokens", int64(1)), HaveField("Params", after)))

		raised := tokenbucket.Charge{ID: 1, Order: 3, Params: before, Cost: 1}
		Expect(take(ctx, key, raised)[0].Level.Tokens).To(BeZero())
	})

	It("keeps the record of a limit that is not asked until it is full", func(ctx SpecContext) {
		key := newKey()
		quick := localbucket.Params{Capacity: 1, RefillTokens: 1000, IntervalUS: second}
		take(ctx, key, tokenbucket.Charge{ID: 1, Params: slow, Cost: 4})
		take(ctx, key, tokenbucket.Charge{ID: 2, Params: quick, Cost: 1})
		Eventually(ctx, func(g Gomega) {
			_, err := tryTake(ctx, key, tokenbucket.Charge{ID: 3, Params: slow, Cost: 1})
			g.Expect(err).NotTo(HaveOccurred())
			// Of 2, a millisecond later, nothing is left; 1 and 3 stay.
			g.Expect(cluster.Client().StrLen(ctx, key).Val()).To(Equal(int64(1 + 2*68)))
		}).WithTimeout(2 * time.Second).WithPolling(5 * time.Millisecond).Should(Succeed())
		Expect(take(ctx, key, tokenbucket.Charge{ID: 1, Params: slow, Cost: 1})[0].Level.Tokens).To(Equal(int64(5)))
	})

	It("writes nothing when it refuses", func(ctx SpecContext) {
		key := newKey()
		charge := tokenbucket.Charge{ID: 1, Params: slow, Cost: 10}
		take(ctx, key, charge)
		before := stored(ctx, key)
		for range 3 {
			Expect(take(ctx, key, charge)[0].Allowed).To(BeFalse())
		}
		Expect(stored(ctx, key)).To(Equal(before))

		fresh := newKey()
		charge.Cost = 11
		take(ctx, fresh, charge)
		Expect(cluster.Client().Exists(ctx, fresh).Val()).To(BeZero())
	})

	DescribeTable("gives every key an expiry at which idling gained nothing",
		func(ctx SpecContext, params localbucket.Params, cost int64) {
			key := newKey()
			before := redisTime(ctx, key)
			take(ctx, key, tokenbucket.Charge{ID: 1, Params: params, Cost: cost})
			expiry := cluster.Client().Do(ctx, "PEXPIRETIME", key)
			ms, err := expiry.Int64()
			Expect(err).NotTo(HaveOccurred())
			spent := params.Spend(params.Full(before), before, cost)
			full := before + params.TimeToFull(spent, before).Microseconds()
			if ms != noKey { // it was so short that it is over
				Expect(ms*1000).To(BeNumerically(">=", min(full, (maxExact-1)*1000)), "full at %d us", full)
				Expect(params.At(spent, ms*1000).Tokens).To(Equal(params.Capacity))
			}
		},
		Entry("one token a millisecond", localbucket.Params{Capacity: 1, RefillTokens: 1, IntervalUS: 1000}, int64(1)),
		Entry("20 at 5 a second", localbucket.Params{Capacity: 20, RefillTokens: 5, IntervalUS: second}, int64(3)),
		Entry("a part of a token left over", localbucket.Params{Capacity: 7, RefillTokens: 3, IntervalUS: 1001}, int64(7)),
		Entry("the fastest", localbucket.Params{Capacity: 1e9, RefillTokens: 1e9, IntervalUS: 1e9}, int64(1e9)),
		Entry("one token a year", localbucket.Params{Capacity: 1, RefillTokens: 1, IntervalUS: localbucket.MaxIntervalUS}, int64(1)),
		Entry("a hundred years to full", localbucket.Params{Capacity: 100, RefillTokens: 1, IntervalUS: localbucket.MaxIntervalUS}, int64(100)),
	)
})

// stored is all that Redis holds under a key.
func stored(ctx SpecContext, key string) []any {
	GinkgoHelper()
	value, err := cluster.Client().Get(ctx, key).Result()
	Expect(err).NotTo(HaveOccurred())
	expiry, err := cluster.Client().Do(ctx, "PEXPIRETIME", key).Int64()
	Expect(err).NotTo(HaveOccurred())
	return []any{value, expiry}
}

// redisTime is the clock of the key's master, in microseconds.
func redisTime(ctx SpecContext, key string) int64 {
	GinkgoHelper()
	master, err := cluster.MasterOf(ctx, key)
	Expect(err).NotTo(HaveOccurred())
	now, err := master.Client().Time(ctx).Result()
	Expect(err).NotTo(HaveOccurred())
	return now.UnixMicro()
}
