package failover_test

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/internal/ratelimit"
	"github.com/portero-dev/portero/sidecar/internal/failover"
)

var _ = Describe("The local bucket", func() {
	var b *bench
	BeforeEach(func() {
		b = newBench(1024)
		b.shelf.unknown = true
	})

	DescribeTable("is this sidecar's share, with room for one token at least",
		func(ctx SpecContext, capacity int64, sidecars, want int) {
			b.sidecars.Store(int64(sidecars))
			Expect(b.admitted(ctx, int(capacity)+2, group(policy("p", "Local", limit("l", capacity)), "a1", 1))).To(Equal(want))
		},
		Entry("alone", int64(10), 1, 10),
		Entry("one of three", int64(10), 3, 3),
		Entry("one of more than there are tokens", int64(10), 30, 1),
		Entry("where nobody counted", int64(10), 0, 10),
	)

	It("refills at the share's rate", func(ctx SpecContext) {
		b.sidecars.Store(4)
		v := b.decide(ctx, group(policy("p", "Local", limit("l", 4)), "a1", 1))
		Expect(v.Limits[0].NextToken).To(BeNumerically("~", 4*time.Hour, time.Second))
		Expect(v.Limits[0].Remaining).To(BeZero())
	})

	It("starts from its share of the level seen last, not from full", func(ctx SpecContext) {
		p := policy("p", "Local", limit("l", 100))
		b.sidecars.Store(5)
		b.shelf.unknown = false
		b.shelf.answers["a1"] = []failover.ChargeAnswer{left(p.Limits[0], 23)}
		b.decide(ctx, group(p, "a1", 1))
		b.shelf.unknown = true
		Expect(b.admitted(ctx, 30, group(p, "a1", 1))).To(Equal(4), "23 tokens over 5 sidecars")
	})

	It("starts in debt where the shared bucket was", func(ctx SpecContext) {
		p := policy("p", "Local", limit("l", 100))
		b.sidecars.Store(5)
		b.shelf.unknown = false
		b.shelf.answers["a1"] = []failover.ChargeAnswer{refused(p.Limits[0], -3)}
		b.decide(ctx, group(p, "a1", 1))
		b.shelf.unknown = true
		v := b.decide(ctx, group(p, "a1", 1))
		Expect(v.Outcome).To(Equal(ratelimit.Limited))
		Expect(v.Wait).To(BeNumerically("~", 10*time.Hour, time.Second), "from -1 to 1 at a fifth of one an hour")
	})

	It("keeps what was spent when the share or the limit changes", func(ctx SpecContext) {
		p := policy("p", "Local", limit("l", 100))
		b.sidecars.Store(2)
		Expect(b.admitted(ctx, 40, group(p, "a1", 1))).To(Equal(40))
		b.sidecars.Store(1)
		Expect(b.admitted(ctx, 60, group(p, "a1", 1))).To(Equal(10))

		smaller := policy("p", "Local", limit("l", 5))
		Expect(b.admitted(ctx, 60, group(smaller, "a2", 1))).To(Equal(5))
		Expect(b.admitted(ctx, 60, group(p, "a2", 1))).To(BeZero())
	})

	It("passes a cost above the share from a full bucket, into debt", func(ctx SpecContext) {
		p := policy("p", "Local", limit("l", 10))
		b.sidecars.Store(5)
		v := b.decide(ctx, group(p, "a1", 7))
		Expect(v.Outcome).To(Equal(ratelimit.Allowed))
		v = b.decide(ctx, group(p, "a1", 1))
		Expect(v.Outcome).To(Equal(ratelimit.Limited))
		Expect(v.Wait).To(BeNumerically("~", 6*5*time.Hour, time.Second), "from -5 to 1 at a fifth of one an hour")

		b.decide(ctx, group(p, "a2", 1))
		Expect(b.decide(ctx, group(p, "a2", 7)).Outcome).To(Equal(ratelimit.Limited), "not from a bucket that isn't full")
	})

	It("never passes a cost above the capacity", func(ctx SpecContext) {
		v := b.decide(ctx, group(policy("p", "Local", limit("l", 10)), "a1", 11))
		Expect(v.Outcome).To(Equal(ratelimit.Limited))
		Expect(v.Wait).To(BeZero())
	})

	It("charges the limits of a group together or not at all, shadow limits as if alone", func(ctx SpecContext) {
		p := policy("p", "Local", limit("narrow", 2), limit("wide", 10), shadow(limit("shadow", 3)))
		Expect(b.admitted(ctx, 5, group(p, "a1", 1))).To(Equal(2))
		v := b.decide(ctx, group(p, "a1", 1))
		Expect(v.Limits[1].Remaining).To(Equal(int64(8)), "the three refused requests took nothing of the wide limit")
		Expect(v.Limits[2].Remaining).To(BeZero())
		Expect(v.Limits[2].Allowed).To(BeFalse())
		Expect(v.By.Config.Name).To(Equal("narrow"))
	})

	It("bounds its keys: a flood of new ones shares one bucket, and those before it keep theirs", func(ctx SpecContext) {
		b = newBench(1) // one key in each of the shards
		b.shelf.unknown = true
		p := policy("p", "Local", limit("l", 10))
		passed := 0
		for i := range 1000 {
			if b.decide(ctx, group(p, fmt.Sprintf("a%d", i), 10)).Outcome == ratelimit.Allowed {
				passed++
			}
		}
		Expect(passed).To(BeNumerically("<=", 64+1), "a bucket for each shard, and one for all others")
		Expect(passed).To(BeNumerically(">", 1))
		Expect(b.Overflowed()).To(BeNumerically(">=", 1000-64), "all but the keys that had a bucket of their own")
	})

	It("forgets full buckets to make room", func(ctx SpecContext) {
		b = newBench(1)
		b.shelf.unknown = false
		p := policy("p", "Local", limit("l", 10))
		for i := range 500 {
			tag := fmt.Sprintf("a%d", i)
			b.shelf.answers[tag] = []failover.ChargeAnswer{left(p.Limits[0], 10)}
			b.decide(ctx, group(p, tag, 1))
		}
		b.shelf.unknown = true
		Expect(b.admitted(ctx, 20, group(p, "z1", 1))).To(Equal(10))
		Expect(b.admitted(ctx, 20, group(p, "a499", 1))).To(Equal(10))
	})

	It("admits over all sidecars together no more than the limit", func(ctx SpecContext) {
		const sidecars, capacity = 5, 53
		total := 0
		for range sidecars {
			one := newBench(1024)
			one.shelf.unknown = true
			one.sidecars.Store(sidecars)
			total += one.admitted(ctx, capacity, group(policy("p", "Local", limit("l", capacity)), "a1", 1))
		}
		Expect(total).To(BeNumerically("<=", capacity))
		Expect(total).To(BeNumerically(">=", capacity-sidecars))
	})
})
