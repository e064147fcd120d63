package flusher_test

import (
	"context"
	"log/slog"
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
