package failover_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/internal/ratelimit"
	"github.com/portero-dev/portero/sidecar/internal/failover"
)

var _ = Describe("What a sidecar passed by itself", func() {
	const tag = "a1"
	var (
		b *bench
		p *ratelimit.Policy
	)
	BeforeEach(func() {
		b = newBench(1024)
		p = policy("p", "Local", limit("l", 100))
	})
	out := func(cut bool) { b.shelf.with(func(s *shelf) { s.unknown = cut }) }
	// sees lets the bucket's level be known before the outage.
	sees := func(ctx context.Context, tokens int64) {
		b.shelf.with(func(s *shelf) { s.answers[tag] = []failover.ChargeAnswer{left(p.Limits[0], tokens)} })
		b.decide(ctx, group(p, tag, 1))
		Expect(b.shelf.debited(tag)).To(BeEmpty())
	}

	It("is charged with the key's next verdict, once, and with no other key's", func(ctx SpecContext) {
		b.sidecars.Store(4)
		out(true)
		Expect(b.admitted(ctx, 7, group(p, tag, 1))).To(Equal(7))
		out(false)
		b.decide(ctx, group(p, "a2", 1))
		Expect(b.shelf.debited("a2")).To(BeEmpty())
		for _, want := range [][]int64{{7}, nil, nil} {
			b.decide(ctx, group(p, tag, 1))
			Expect(b.shelf.debited(tag)).To(Equal(want))
		}
	})

	It("is carried by a verdict that is refused too", func(ctx SpecContext) {
		out(true)
		b.admitted(ctx, 7, group(p, tag, 1))
		out(false)
		b.shelf.answers[tag] = []failover.ChargeAnswer{refused(p.Limits[0], -5)}
		b.decide(ctx, group(p, tag, 1))
		b.decide(ctx, group(p, tag, 1))
		Expect(b.shelf.debited(tag)).To(Equal([]int64{7}))
		Expect(b.shelf.returned()).To(BeEmpty())
	})

	It("leaves out what the shared bucket lacked before", func(ctx SpecContext) {
		b.sidecars.Store(4)
		sees(ctx, 40)
		out(true)
		Expect(b.admitted(ctx, 20, group(p, tag, 1))).To(Equal(10))
		out(false)
		b.decide(ctx, group(p, tag, 1))
		Expect(b.shelf.debited(tag)).To(Equal([]int64{10}), "not the 15 that are missing from a full share")
	})

	It("starts anew from the shared level after it", func(ctx SpecContext) {
		b.sidecars.Store(4)
		out(true)
		Expect(b.admitted(ctx, 30, group(p, tag, 1))).To(Equal(25))
		out(false)
		sees40 := []failover.ChargeAnswer{left(p.Limits[0], 40)}
		b.shelf.answers[tag] = sees40
		b.decide(ctx, group(p, tag, 1))
		Expect(b.shelf.debited(tag)).To(Equal([]int64{25}))
		out(true)
		Expect(b.admitted(ctx, 30, group(p, tag, 1))).To(Equal(10))
		out(false)
		b.decide(ctx, group(p, tag, 1))
		Expect(b.shelf.debited(tag)).To(Equal([]int64{10}))
	})

	DescribeTable("is charged once, whatever becomes of the verdict that carries it",
		func(ctx SpecContext, fault, mend func(*shelf), want []int64) {
			b.sidecars.Store(10)
			out(true)
			Expect(b.admitted(ctx, 3, group(p, tag, 1))).To(Equal(3))
			out(false)
			b.shelf.with(fault)
			b.decide(ctx, group(p, tag, 1)) // decided locally
			b.shelf.with(mend)
			for range 2 {
				b.decide(ctx, group(p, tag, 1))
			}
			Expect(b.shelf.debited(tag)).To(Equal(want))
		},
		Entry("refused by a failure that proves that nothing ran: with what passed by it", func(s *shelf) { s.failing["a"] = errDown },
			func(s *shelf) { s.failing = map[string]error{} }, []int64{4}),
		Entry("never sent", func(s *shelf) { s.stuck["a"] = true }, func(s *shelf) { s.stuck = map[string]bool{} }, []int64{4}),
		Entry("no answer: it counts as charged, and so does what passed by it", func(s *shelf) { s.silent["a"] = true },
			func(s *shelf) { s.silent = map[string]bool{} }, nil),
		Entry("an answer that is none", func(s *shelf) {
			s.failing["a"] = &failover.StoreError{Kind: failover.KindReply, Unknown: true, Err: errDown}
		},
			func(s *shelf) { s.failing = map[string]error{} }, nil),
	)

	It("never contains what timed out, and may be charged", func(ctx SpecContext) {
		b.shelf.silent["a"] = true
		Expect(b.admitted(ctx, 2, group(p, tag, 1))).To(Equal(2))
		b.shelf.with(func(s *shelf) { s.silent = map[string]bool{} })
		out(true)
		Expect(b.admitted(ctx, 5, group(p, tag, 1))).To(Equal(5))
		out(false)
		b.decide(ctx, group(p, tag, 1))
		Expect(b.shelf.debited(tag)).To(Equal([]int64{5}))
	})

	It("survives a verdict that was under way when it arose", func(ctx SpecContext) {
		// The answer to a question that was asked before tells a level from which the deficit is missing.
		out(true)
		b.admitted(ctx, 4, group(p, tag, 1))
		out(false)
		b.shelf.failing["a"] = errDown
		b.decide(ctx, group(p, tag, 1))
		b.shelf.with(func(s *shelf) { s.failing = map[string]error{} })
		b.Saw(group(p, tag, 1), []failover.ChargeAnswer{left(p.Limits[0], 90)})
		b.decide(ctx, group(p, tag, 1))
		Expect(b.shelf.debited(tag)).To(Equal([]int64{5}))
	})

	It("is at most this sidecar's share, also after a cost above that", func(ctx SpecContext) {
		b.sidecars.Store(10)
		out(true)
		Expect(b.admitted(ctx, 1, group(p, tag, 70))).To(Equal(1))
		out(false)
		b.decide(ctx, group(p, tag, 1))
		Expect(b.shelf.debited(tag)).To(Equal([]int64{10}))
	})

	It("is each limit's own, of those that are asked; shadow limits' too", func(ctx SpecContext) {
		p = policy("p", "Local", limit("l", 100), shadow(limit("s", 3)))
		out(true)
		Expect(b.admitted(ctx, 5, group(p, tag, 1))).To(Equal(5))
		out(false)
		only := group(p, tag, 1)
		only.Charges = only.Charges[:1]
		b.decide(ctx, only)
		Expect(b.shelf.debited(tag)).To(Equal([]int64{5}))
		b.decide(ctx, group(p, tag, 1))
		Expect(b.shelf.debited(tag)).To(Equal([]int64{3}))
	})

	DescribeTable("is nothing where no local bucket decides", func(ctx SpecContext, onFailure string) {
		p = policy("p", onFailure, limit("l", 100))
		out(true)
		b.admitted(ctx, 5, group(p, tag, 1))
		out(false)
		b.decide(ctx, group(p, tag, 1))
		Expect(b.shelf.debited(tag)).To(BeEmpty())
	}, Entry("Open", "Open"), Entry("Closed", "Closed"))

	It("goes over all sidecars never beyond the capacity, whatever they passed, and leaves the shared bucket what they had left", func() {
		random := rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), 5))
		const rounds = 500
		filled, owing := 0, 0
		for range rounds {
			sidecars, now := 1+random.IntN(12), int64(1_700_000_000_000_000)
			l := limit("l", int64(sidecars)+random.Int64N(1000))
			l.Config.Bucket.RefillTokens, l.Config.Bucket.RefillIntervalUS = 1+random.Int64N(100), 1000+random.Int64N(hour/100)
			p := policy("p", "Local", l)
			capacity, before := l.Config.Bucket.Capacity, random.Int64N(l.Config.Bucket.Capacity+1)
			shared := left(l, before).Level
			shared.UpdatedUS = now
			locals := make([]failover.Local, sidecars)
			for i := range locals {
				locals[i] = failover.NewLocal(64)
				locals[i].Saw(group(p, tag, 1), []failover.ChargeAnswer{left(l, before)}, now)
			}
			passed := int64(0)
			for range random.IntN(300) {
				now += random.Int64N(hour / 1000)
				cost := 1 + random.Int64N(1+capacity/int64(sidecars))
				if _, pass := locals[random.IntN(sidecars)].Decide([]ratelimit.Group{group(p, tag, cost)}, sidecars, now); pass {
					passed += cost
				}
			}
			var sum, own int64
			for i := range locals {
				results, _ := locals[i].Decide([]ratelimit.Group{group(p, tag, capacity+1)}, sidecars, now)
				own += results[0].Remaining
				sum += locals[i].Carry(group(p, tag, 1), now)
				Expect(locals[i].Carry(group(p, tag, 1), now)).To(BeZero())
			}
			where := fmt.Sprintf("%d sidecars, capacity %d, %d passed", sidecars, capacity, passed)
			Expect(sum).To(BeNumerically("<=", min(capacity, passed)), where)
			// What is left is what the local buckets had left, but for a part of a token that each rounds off, and for what
			// shares that don't divide leave over.
			level := params(l).At(shared, now)
			Expect(level.Tokens-sum).To(BeNumerically("~", own, 4*sidecars), where)
			filled += count(level.Tokens == capacity)
			owing += count(sum > int64(sidecars))
		}
		Expect([]int{filled, rounds - filled, owing}).To(HaveEach(BeNumerically(">", rounds/10)))
	})

	It("is little for a client that kept its rate, however long that was", func() {
		const sidecars, second = 5, int64(1_000_000)
		l := limit("l", 100)
		l.Config.Bucket.RefillTokens, l.Config.Bucket.RefillIntervalUS = 10, second
		p, now := policy("p", "Local", l), int64(1_700_000_000_000_000)
		locals := make([]failover.Local, sidecars)
		for i := range locals {
			locals[i] = failover.NewLocal(64)
		}
		for i := range 100_000 {
			now += second / 10
			_, pass := locals[i%sidecars].Decide([]ratelimit.Group{group(p, tag, 1)}, sidecars, now)
			Expect(pass).To(BeTrue())
		}
		sum := int64(0)
		for i := range locals {
			sum += locals[i].Carry(group(p, tag, 1), now)
		}
		Expect(sum).To(BeNumerically("<=", sidecars))
	})
})

var _ = Describe("A debit", func() {
	const tag = "a1"
	var (
		b *bench
		p *ratelimit.Policy
	)
	BeforeEach(func() {
		b = newBench(1024)
		p = policy("p", "Local", limit("l", 100))
	})
	debit := func(n int64) {
		g := group(p, tag, 0)
		g.Charges[0].Debit = n
		b.Debit([]ratelimit.Group{g})
	}
	type fates = map[failover.Fate]int

	It("goes to the shared bucket", func() {
		debit(5)
		Expect(b.shelf.debited(tag)).To(Equal([]int64{5}))
		Expect(b.witness.debited).To(Equal(fates{failover.FateShared: 1}))
	})

	It("is not given away again by a fallback that comes after it", func(ctx SpecContext) {
		b.decide(ctx, group(p, tag, 1))
		debit(99)
		b.shelf.with(func(s *shelf) { s.unknown = true })
		Expect(b.admitted(ctx, 100, group(p, tag, 1))).To(Equal(1), "the level that the debit left")
	})

	DescribeTable("goes to the local bucket where the shared one can't have taken it, and from there with the next verdict",
		func(ctx SpecContext, fault func(*shelf, bool)) {
			b.sidecars.Store(4)
			b.shelf.with(func(s *shelf) { fault(s, true) })
			debit(20)
			Expect(b.witness.debited).To(Equal(fates{failover.FateLocal: 1}))
			v := b.decide(ctx, group(p, tag, 6))
			Expect(v.Outcome).To(Equal(ratelimit.Limited), "5 of the share of 25 are left")
			b.shelf.with(func(s *shelf) { fault(s, false) })
			b.decide(ctx, group(p, tag, 1))
			Expect(b.shelf.debited(tag)).To(Equal([]int64{20}))
		},
		Entry("no topology", func(s *shelf, on bool) { s.unknown = on }),
		Entry("a failure that proves that nothing ran", func(s *shelf, on bool) {
			delete(s.failing, "a")
			if on {
				s.failing["a"] = errDown
			}
		}),
	)

	It("goes to the local bucket while the master's breaker is open", func(ctx SpecContext) {
		b.shelf.failing["a"] = errDown
		Eventually(func() []string { b.decide(ctx, group(p, "a2", 1)); return b.OpenMasters() }, "5s", "5ms").ShouldNot(BeEmpty())
		b.shelf.with(func(s *shelf) { s.failing = map[string]error{} })
		debit(20)
		Expect(b.witness.debited).To(Equal(fates{failover.FateLocal: 1}))
		Expect(b.shelf.debited(tag)).To(BeEmpty())
	})

	It("owes at most one share locally, and all sidecars together one capacity", func(ctx SpecContext) {
		const sidecars = 4
		total := int64(0)
		for range sidecars {
			b = newBench(1024)
			b.sidecars.Store(sidecars)
			b.shelf.unknown = true
			for range 10 {
				debit(20)
			}
			Expect(b.decide(ctx, group(p, tag, 1)).Wait).To(BeNumerically("~", 26*sidecars*time.Hour, time.Minute))
			b.shelf.with(func(s *shelf) { s.unknown = false })
			b.decide(ctx, group(p, tag, 1))
			for _, owed := range b.shelf.debited(tag) {
				total += owed
			}
		}
		Expect(total).To(Equal(params(p.Limits[0]).Capacity), "as much as one shared bucket forgives beyond")
	})

	It("is dropped, and counted, where nobody knows whether it was taken", func(ctx SpecContext) {
		b.shelf.silent["a"] = true
		debit(20)
		Expect(b.witness.debited).To(Equal(fates{failover.FateDropped: 1}))
		b.shelf.with(func(s *shelf) { s.silent = map[string]bool{} })
		b.decide(ctx, group(p, tag, 1))
		Expect(b.shelf.debited(tag)).To(BeEmpty())
	})

	DescribeTable("is dropped, and counted, while the store fails, where the policy has no local buckets", func(onFailure string) {
		p = policy("p", onFailure, limit("l", 100))
		b.shelf.unknown = true
		debit(20)
		Expect(b.witness.debited).To(Equal(fates{failover.FateDropped: 1}))
	}, Entry("Open", "Open"), Entry("Closed", "Closed"))

	It("finds room in the overflow bucket", func(ctx SpecContext) {
		b = newBench(1)
		b.shelf.unknown = true
		for i := range 500 {
			g := group(p, fmt.Sprint("a", i), 0)
			g.Charges[0].Debit = 1
			b.Debit([]ratelimit.Group{g})
		}
		Expect(b.decide(ctx, group(p, "b", 1)).Limits[0].Remaining).To(BeZero())
		Expect(b.witness.debited).To(HaveLen(2))
		Expect(b.witness.debited[failover.FateLocal]).To(And(BeNumerically(">", 0), BeNumerically("<=", 64)), "a key a shard")
		Expect(b.witness.debited[failover.FateOverflow]).To(Equal(500-b.witness.debited[failover.FateLocal]), "told apart: no verdict carries these on")
	})
})

func count(is bool) int {
	if is {
		return 1
	}
	return 0
}
