package failover_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/internal/ratelimit"
	"github.com/portero-dev/portero/sidecar/internal/failover"
)

var _ = Describe("One verdict over several groups", func() {
	var (
		b          *bench
		one, other *ratelimit.Policy
		groups     []ratelimit.Group
	)
	BeforeEach(func() {
		b = newBench(1024)
		one, other = policy("one", "Local", limit("l", 10), shadow(limit("s", 10))), policy("other", "Local", limit("l", 10))
		groups = []ratelimit.Group{group(one, "a1", 2), group(other, "b1", 2)}
	})

	It("keeps what passed requests were charged", func(ctx SpecContext) {
		Expect(b.decide(ctx, groups...).Outcome).To(Equal(ratelimit.Allowed))
		Expect(b.shelf.returned()).To(BeEmpty())
	})

	It("gives back what one group took when another refuses, and tells the levels as if nothing was taken", func(ctx SpecContext) {
		b.shelf.answers["b1"] = []failover.ChargeAnswer{refused(other.Limits[0], 1)}
		v := b.decide(ctx, groups...)
		Expect(v.By).To(BeIdenticalTo(other.Limits[0]))
		Expect(b.shelf.returned()).To(ConsistOf("a1"))
		Expect(v.Limits[0].Remaining).To(Equal(int64(10)))
		Expect(v.Limits[0].NextToken).To(BeZero())
		Expect(v.Limits[1].Remaining).To(Equal(int64(8)), "a shadow limit is charged as if alone")
		Expect(b.witness.given).To(Equal(1))
	})

	It("gives back nothing for a shadow limit", func(ctx SpecContext) {
		lone := policy("lone", "Local", shadow(limit("s", 10)))
		b.shelf.answers["b1"] = []failover.ChargeAnswer{refused(other.Limits[0], 1)}
		v := b.decide(ctx, group(lone, "a1", 2), groups[1])
		Expect(b.shelf.returned()).To(BeEmpty())
		Expect(v.Limits[0].Remaining).To(Equal(int64(8)))
		b.shelf.answers = map[string][]failover.ChargeAnswer{"a1": {refused(lone.Limits[0], 1)}}
		Expect(b.decide(ctx, group(lone, "a1", 2), groups[1]).Outcome).To(Equal(ratelimit.Allowed), "nor does its refusal count")
		Expect(b.shelf.returned()).To(BeEmpty())
	})

	It("gives back nothing of a group that refused", func(ctx SpecContext) {
		b.shelf.answers = map[string][]failover.ChargeAnswer{
			"a1": {refused(one.Limits[0], 1), left(one.Limits[1], 8)}, "b1": {refused(other.Limits[0], 1)},
		}
		b.decide(ctx, groups...)
		Expect(b.shelf.returned()).To(BeEmpty())
	})

	It("takes nothing of a local bucket when the store refuses", func(ctx SpecContext) {
		b.shelf.failing["a"] = errDown
		b.shelf.answers["b1"] = []failover.ChargeAnswer{refused(other.Limits[0], 1)}
		v := b.decide(ctx, groups...)
		Expect(v.By).To(BeIdenticalTo(other.Limits[0]))
		Expect(v.Limits[0].Remaining).To(Equal(int64(10)))
		Expect(v.Limits[1].Remaining).To(Equal(int64(8)), "a shadow limit is charged as if alone")
	})

	It("gives back what the store took when a local bucket refuses", func(ctx SpecContext) {
		b.shelf.failing["a"] = errDown
		Expect(b.admitted(ctx, 6, groups[0])).To(Equal(5))
		v := b.decide(ctx, groups...)
		Expect(v.By).To(BeIdenticalTo(one.Limits[0]))
		Expect(b.shelf.returned()).To(ConsistOf("b1"))
	})

	It("gives back what the store took when a policy is Closed", func(ctx SpecContext) {
		b.shelf.failing["a"] = errDown
		one.Record.Store.OnFailure = "Closed"
		Expect(b.decide(ctx, groups...).Outcome).To(Equal(ratelimit.Unavailable))
		Expect(b.shelf.returned()).To(ConsistOf("b1"))
	})

	It("gives back a late take of a refused request, and none of a request that passed", func(ctx SpecContext) {
		b.shelf.silent["a"] = true
		Expect(b.decide(ctx, groups...).Outcome).To(Equal(ratelimit.Allowed), "locally")
		Expect(b.shelf.returned()).To(BeEmpty())
		b.shelf.answers["b1"] = []failover.ChargeAnswer{refused(other.Limits[0], 1)}
		b.decide(ctx, groups...)
		Expect(b.shelf.returned()).To(ConsistOf("a1"))
	})

	It("gives back nothing that was never sent", func(ctx SpecContext) {
		b.shelf.stuck["a"] = true
		b.shelf.answers["b1"] = []failover.ChargeAnswer{refused(other.Limits[0], 1)}
		b.decide(ctx, groups...)
		Expect(b.shelf.returned()).To(BeEmpty())
	})

	It("is all or none of the local buckets too, whoever else asks", func(ctx SpecContext) {
		const clients, requests = 16, 200
		b.shelf.unknown = true
		var policies []*ratelimit.Policy
		for i := range 5 {
			policies = append(policies, policy(fmt.Sprintf("p%d", i), "Local", limit("l", 700)))
		}
		passed := make([]atomic.Int64, len(policies))
		var all sync.WaitGroup
		for range clients {
			all.Go(func() {
				for range requests {
					var asked []ratelimit.Group
					order := rand.Perm(len(policies))[:3]
					for _, i := range order {
						asked = append(asked, group(policies[i], fmt.Sprintf("x%d", i), 1))
					}
					if b.Decide(ctx, asked).Outcome == ratelimit.Allowed {
						for _, i := range order {
							passed[i].Add(1)
						}
					}
				}
			})
		}
		all.Wait()
		for i, p := range policies {
			v := b.decide(ctx, group(p, fmt.Sprintf("x%d", i), 701))
			Expect(v.Limits[0].Remaining).To(Equal(700-passed[i].Load()), p.Record.Name)
		}
	})

	It("never forgets a bucket that it is about to charge", func(ctx SpecContext) {
		b = newBench(1) // one key in each of the shards
		b.shelf.unknown = true
		var many []ratelimit.Group
		for i := range 200 {
			many = append(many, group(policy(fmt.Sprintf("p%d", i), "Local", limit("l", 1)), fmt.Sprintf("t%d", i), 1))
		}
		Expect(b.decide(ctx, many...).Outcome).To(Equal(ratelimit.Allowed))
		for i := range many {
			Expect(b.decide(ctx, many[i]).Outcome).To(Equal(ratelimit.Limited))
		}
	})

	It("answers for the longest wait over groups of every kind", func(ctx SpecContext) {
		b.shelf.failing["a"] = errDown
		local := policy("local", "Local", limit("l", 2))
		Expect(b.admitted(ctx, 3, group(local, "a2", 1))).To(Equal(2))
		b.shelf.answers["b1"] = []failover.ChargeAnswer{refused(other.Limits[0], 0)}
		v := b.decide(ctx, group(local, "a2", 1), groups[1])
		Expect(v.By).To(BeIdenticalTo(other.Limits[0]))
		Expect(v.Wait).To(Equal(2 * time.Hour))
		v = b.decide(ctx, groups[1], group(local, "a2", 3))
		Expect(v.By).To(BeIdenticalTo(local.Limits[0]), "no wait helps against a cost above the capacity")
		Expect(v.Wait).To(BeZero())
	})

	It("holds what its wait promises to one client alone, whatever the shape and the share", func() {
		random := rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), 1))
		held := 0
		for range 2000 {
			local, now := failover.NewLocal(1024), int64(1_700_000_000_000_000)
			sidecars := 1 + random.IntN(20)
			var asked []ratelimit.Group
			for i := range 1 + random.IntN(3) {
				l := limit("l", 1+random.Int64N(1000))
				l.Config.Bucket.RefillTokens, l.Config.Bucket.RefillIntervalUS = 1+random.Int64N(1000), 1000+random.Int64N(hour)
				asked = append(asked, group(policy(fmt.Sprint("p", i), "Local", l), fmt.Sprint("t", i), 1+random.Int64N(l.Config.Bucket.Capacity)))
			}
			for range random.IntN(20) {
				now += random.Int64N(hour / 10)
				local.Decide(asked, sidecars, now)
			}
			results, pass := local.Decide(asked, sidecars, now)
			if pass {
				continue
			}
			var wait time.Duration
			for _, result := range results {
				wait = max(wait, result.Wait)
			}
			_, early := local.Decide(asked, sidecars, now+wait.Microseconds()-1)
			_, intime := local.Decide(asked, sidecars, now+wait.Microseconds())
			Expect([]bool{early, intime}).To(Equal([]bool{false, true}), "%s", wait)
			held++
		}
		Expect(held).To(BeNumerically(">", 300))
	})
})
