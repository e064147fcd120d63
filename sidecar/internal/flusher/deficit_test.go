package flusher_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/ratelimit"
	"github.com/portero-dev/portero/internal/tokenbucket"
	"github.com/portero-dev/portero/sidecar/internal/failover"
	"github.com/portero-dev/portero/sidecar/internal/flusher"
)

// fleet is some sidecars that share the limits of a namespace.
type fleet struct {
	limiters []*failover.Limiter
	flushers []*flusher.Flusher
	seen     *returns
	next     int
}

func newFleet(ctx context.Context, sidecars int) *fleet {
	GinkgoHelper()
	fl := &fleet{seen: new(returns)}
	for range sidecars {
		f := ready(ctx)
		l := failover.New(failover.Options{
			Observer: fl.seen, Log: slog.New(slog.DiscardHandler), Sidecars: func(string) int { return sidecars },
			Stale: func() {}, FallbackChanged: func() {}, MaxKeys: failover.DefaultMaxKeys,
		})
		l.SetStore(f)
		running, stop := context.WithCancel(ctx)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			l.Run(running)
		}()
		DeferCleanup(func() {
			stop()
			Eventually(ended).Should(BeClosed())
		})
		fl.limiters, fl.flushers = append(fl.limiters, l), append(fl.flushers, f)
	}
	return fl
}

// pass lets n requests go round the sidecars, and answers how many pass and whether all verdicts were local, or none.
func (fl *fleet) pass(ctx context.Context, n int, p *ratelimit.Policy, tag string, source ratelimit.Source) int64 {
	GinkgoHelper()
	passed := int64(0)
	for range n {
		fl.next++
		v := fl.limiters[fl.next%len(fl.limiters)].Decide(ctx, []ratelimit.Group{groupOf(p, tag, 1)})
		Expect(v.Source).To(Equal(source))
		if v.Outcome == ratelimit.Allowed {
			passed++
		}
	}
	return passed
}

// out takes the library away, which no call can charge without.
func (fl *fleet) out(ctx context.Context) {
	GinkgoHelper()
	Expect(cluster.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
		return master.FunctionFlush(ctx).Err()
	})).To(Succeed())
}

// back brings the library back, and waits until all sidecars share.
func (fl *fleet) back(ctx context.Context) {
	GinkgoHelper()
	Expect(cluster.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
		return master.FunctionLoadReplace(ctx, tokenbucket.Library().Code).Err()
	})).To(Succeed())
	for _, l := range fl.limiters {
		Eventually(l.OpenMasters, "5s", "10ms").Should(BeEmpty())
	}
}

// lenient is a policy that falls back to local buckets at once.
func lenient(capacity, refill, intervalUS int64) *ratelimit.Policy {
	p := strict("p", capacity)
	p.Record.Store.OnFailure = "Local"
	p.Limits[0].Config.Bucket.RefillTokens, p.Limits[0].Config.Bucket.RefillIntervalUS = refill, intervalUS
	return p
}

var _ = Describe("After an outage", func() {
	const tag = "outage"

	It("nobody spends twice: what each sidecar passed by itself is charged once", func(ctx SpecContext) {
		fl, p := newFleet(ctx, 3), lenient(90, 1, bucketconfig.MaxIntervalUS)
		passed := fl.pass(ctx, 15, p, tag, ratelimit.FromRedis)
		Expect(passed).To(Equal(int64(15)))
		fl.out(ctx)
		local := fl.pass(ctx, 90, p, tag, ratelimit.FromLocal)
		Expect(local).To(And(BeNumerically(">=", 72), BeNumerically("<=", 75)), "three shares of what was left")
		fl.back(ctx)
		again := fl.pass(ctx, 30, p, tag, ratelimit.FromRedis)
		Expect(again).To(BeNumerically("<=", 5), "until the last sidecar has told")
		Expect(level(fl.flushers[0], p, tag)).To(Equal(90 - passed - local - again))
	})

	It("a client that kept its rate is not refused, however short or long that was", func(ctx SpecContext) {
		const rate, capacity = 120, 30
		fl, p := newFleet(ctx, 3), lenient(capacity, rate, 1_000_000)
		pace := time.NewTicker(time.Second / (rate * 9 / 10)) // its ticks never bunch up
		defer pace.Stop()
		steadily := func(requests int) {
			GinkgoHelper()
			for range requests {
				<-pace.C
				fl.next++
				v := fl.limiters[fl.next%len(fl.limiters)].Decide(ctx, []ratelimit.Group{groupOf(p, tag, 1)})
				Expect(v.Outcome).To(Equal(ratelimit.Allowed))
			}
		}
		steadily(20)
		for _, requests := range []int{30, 250} {
			fl.out(ctx)
			steadily(requests)
			fl.back(ctx)
			steadily(60)
		}
		Expect(fl.seen.failed.Load()).To(Equal(int64(30+250)), "decided locally")
	}, NodeTimeout(time.Minute))

	It("all sidecars together charge no more than the capacity", func(ctx SpecContext) {
		fl, p := newFleet(ctx, 4), lenient(40, 1, bucketconfig.MaxIntervalUS)
		fl.out(ctx)
		for _, l := range fl.limiters { // a cost above the share passes once, into debt
			Expect(l.Decide(ctx, []ratelimit.Group{groupOf(p, tag, 35)}).Outcome).To(Equal(ratelimit.Allowed))
		}
		fl.back(ctx)
		Expect(fl.pass(ctx, 4, p, tag, ratelimit.FromRedis)).To(Equal(int64(3)))
		Expect(level(fl.flushers[0], p, tag)).To(Equal(int64(-3)), "40 and the three that passed meanwhile")
	})

	It("what is carried by a verdict that times out is charged once", func(ctx SpecContext) {
		fl, p := newFleet(ctx, 1), lenient(100, 1, bucketconfig.MaxIntervalUS)
		p.Record.Store.TimeoutUS = 20_000
		fl.pass(ctx, 1, p, "warm", ratelimit.FromRedis)
		fl.out(ctx)
		Expect(fl.pass(ctx, 20, p, tag, ratelimit.FromLocal)).To(Equal(int64(20)))
		fl.back(ctx)
		resume := halt(node(ctx, tag))
		Expect(fl.pass(ctx, 1, p, tag, ratelimit.FromLocal)).To(Equal(int64(1)))
		resume()
		p.Record.Store.TimeoutUS = bucketconfig.MaxTimeoutUS
		Eventually(func() int64 { return level(fl.flushers[0], p, tag) }, "2s", "20ms").Should(Equal(int64(79)))
		Expect(fl.pass(ctx, 3, p, tag, ratelimit.FromRedis)).To(Equal(int64(3)))
		Expect(level(fl.flushers[0], p, tag)).To(Equal(int64(76)))
	})

	It("what is carried in vain is carried again", func(ctx SpecContext) {
		fl, p := newFleet(ctx, 1), lenient(100, 1, bucketconfig.MaxIntervalUS)
		for range 3 { // each outage begins with a verdict that carries what the one before left
			fl.out(ctx)
			Expect(fl.pass(ctx, 10, p, tag, ratelimit.FromLocal)).To(Equal(int64(10)))
			fl.back(ctx)
		}
		Expect(fl.pass(ctx, 2, p, tag, ratelimit.FromRedis)).To(Equal(int64(2)))
		Expect(level(fl.flushers[0], p, tag)).To(Equal(int64(68)))
	})
})

var _ = Describe("A debit", func() {
	const tag = "debit"
	debit := func(p *ratelimit.Policy, n int64) []ratelimit.Group {
		g := groupOf(p, tag, 0)
		g.Charges[0].Debit = n
		return []ratelimit.Group{g}
	}

	It("is taken whatever the level, down to a debt of one capacity", func(ctx SpecContext) {
		fl, p := newFleet(ctx, 1), lenient(10, 1, bucketconfig.MaxIntervalUS)
		for i, want := range []int64{2, -6, -10} {
			fl.limiters[0].Debit(debit(p, 8))
			Eventually(fl.seen.debited.Load).Should(Equal(int64(i + 1)))
			Expect(level(fl.flushers[0], p, tag)).To(Equal(want))
		}
		v := fl.limiters[0].Decide(ctx, []ratelimit.Group{groupOf(p, tag, 1)})
		Expect(v.Wait).To(BeNumerically("~", 11*time.Duration(bucketconfig.MaxIntervalUS)*time.Microsecond, time.Hour))
	})

	It("and what passed before explain what is left, however many sidecars and limits share the key", func(ctx SpecContext) {
		fl, p := newFleet(ctx, 3), strict("p", 1_000_000)
		wide := *p.Limits[0]
		wide.ID, wide.Shadow, wide.QualifiedName = 2, true, "p/wide"
		wide.Config = &bucketconfig.Limit{Name: "wide", Bucket: p.Limits[0].Config.Bucket}
		wide.Config.Bucket.Capacity = 2_000_000
		p.Limits = append(p.Limits, &wide)
		const clients, requests, most = 8, 60, 50
		var charged [2]atomic.Int64
		var told atomic.Int64
		var all sync.WaitGroup
		for client := range clients {
			l := fl.limiters[client%len(fl.limiters)]
			all.Go(func() {
				defer GinkgoRecover()
				for range requests {
					cost, asked := 1+rand.Int64N(most), []ratelimit.Group{groupOf(p, tag, 1)}
					Expect(l.Decide(ctx, asked).Outcome).To(Equal(ratelimit.Allowed))
					rest := ratelimit.Group{Policy: p, Tag: tag}
					for i, limit := range p.Limits {
						charged[i].Add(1)
						if debit := cost*int64(i+1) - 1; debit > 0 {
							rest.Charges = append(rest.Charges, ratelimit.Charge{Limit: limit, Debit: debit})
							charged[i].Add(debit)
							told.Add(1)
						}
					}
					l.Debit([]ratelimit.Group{rest})
				}
			})
		}
		all.Wait()
		Eventually(fl.seen.debited.Load, "5s", "10ms").Should(Equal(told.Load()))
		for i, limit := range p.Limits {
			alone := &ratelimit.Policy{Record: p.Record, Limits: []*ratelimit.Limit{limit}}
			Expect(level(fl.flushers[0], alone, tag)).To(Equal(limit.Config.Bucket.Capacity-charged[i].Load()), limit.QualifiedName)
		}
	})

	It("goes to the local bucket without the library, and from there with the next verdict", func(ctx SpecContext) {
		fl, p := newFleet(ctx, 1), lenient(10, 1, bucketconfig.MaxIntervalUS)
		fl.out(ctx)
		fl.limiters[0].Debit(debit(p, 8))
		Eventually(fl.seen.locally.Load).Should(Equal(int64(1)))
		fl.back(ctx)
		Expect(fl.pass(ctx, 1, p, tag, ratelimit.FromRedis)).To(Equal(int64(1)))
		Expect(level(fl.flushers[0], p, tag)).To(Equal(int64(1)))
	})

	It("waits for no master that hangs, takes bounded room, and each is settled once", func(ctx SpecContext) {
		fl, p := newFleet(ctx, 1), lenient(1_000_000, 1, bucketconfig.MaxIntervalUS)
		fl.pass(ctx, 1, p, tag, ratelimit.FromRedis)
		const many = 3 * flusher.MaxErrands
		resume := halt(node(ctx, tag))
		started := time.Now()
		for range many {
			fl.limiters[0].Debit(debit(p, 1))
		}
		Expect(time.Since(started)).To(BeNumerically("<", 2*time.Second))
		resume()
		settled := func() string {
			return fmt.Sprint(fl.seen.debited.Load() + fl.seen.locally.Load() + fl.seen.lost.Load())
		}
		Eventually(settled, "10s", "20ms").Should(Equal(fmt.Sprint(many)))
		Consistently(settled, "300ms", "50ms").Should(Equal(fmt.Sprint(many)))
		Expect(fl.seen.locally.Load()).To(BeNumerically(">", 0), "what found no room")
		left := level(fl.flushers[0], p, tag)
		Expect(left).To(BeNumerically("<=", 1_000_000-1-fl.seen.debited.Load()))
		Expect(left).To(BeNumerically(">=", 1_000_000-1-fl.seen.debited.Load()-fl.seen.lost.Load()))
	})
})
