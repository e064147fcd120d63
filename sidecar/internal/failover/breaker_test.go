package failover_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/internal/ratelimit"
	"github.com/portero-dev/portero/sidecar/internal/failover"
)

var _ = Describe("The breaker of a master", func() {
	var (
		b *bench
		p *ratelimit.Policy
	)
	BeforeEach(func() {
		b = newBench(1024)
		p = policy("p", "Open", limit("l", 1000))
		p.Record.Store.TimeoutUS = 1_000
	})

	open := func(ctx context.Context, tag string) {
		GinkgoHelper()
		Eventually(func() []string {
			b.decide(ctx, group(p, tag, 1))
			return b.OpenMasters()
		}).Should(ContainElement(tag[:1]))
	}

	It("opens after some failures in a row, and then costs no time", func(ctx SpecContext) {
		b.shelf.silent["a"] = true
		b.decide(ctx, group(p, "a1", 1))
		Expect(b.OpenMasters()).To(BeEmpty())
		fallback, _ := b.Fallback()
		Expect(fallback).To(BeFalse())

		open(ctx, "a1")
		fallback, since := b.Fallback()
		Expect(fallback).To(BeTrue())
		Expect(since).To(BeTemporally("~", time.Now(), time.Minute))
		Expect(b.changes.Load()).To(Equal(int64(1)))

		asked := b.shelf.asked.Load()
		Expect(b.admitted(ctx, 100, group(p, "a2", 1))).To(Equal(100))
		Expect(b.shelf.asked.Load()).To(Equal(asked))
		Expect(b.witness.failures(failover.KindBreaker)).To(Equal(100))
	})

	It("counts failures at the same time as one", func(ctx SpecContext) {
		p.Record.Store.TimeoutUS = 60_000_000 // all of them fall into one budget
		b.shelf.failing["a"] = errDown
		for range 50 {
			b.decide(ctx, group(p, "a1", 1))
		}
		Expect(b.OpenMasters()).To(BeEmpty())
	})

	It("opens within a moment where the budget is long and the master fails at once", func(ctx SpecContext) {
		p.Record.Store.TimeoutUS = 60_000_000
		b.shelf.failing["a"] = errDown
		open(ctx, "a1") // within Eventually's second
	})

	It("starts to count again after a success", func(ctx SpecContext) {
		for range 20 {
			b.shelf.failing["a"] = errDown
			b.decide(ctx, group(p, "a1", 1))
			delete(b.shelf.failing, "a")
			b.decide(ctx, group(p, "a1", 1))
		}
		Expect(b.OpenMasters()).To(BeEmpty())
	})

	It("leaves the other masters alone", func(ctx SpecContext) {
		b.shelf.failing["a"] = errDown
		open(ctx, "a1")
		Expect(b.decide(ctx, group(p, "b1", 1)).Source).To(Equal(ratelimit.FromRedis))
	})

	It("closes after a good probe, with no request's help, and verdicts are shared at once", func(ctx SpecContext) {
		b.run(ctx)
		b.shelf.with(func(s *shelf) { s.failing["a"] = errDown })
		open(ctx, "a1")
		Eventually(b.shelf.probed.Load).Should(BeNumerically(">=", 2))
		Expect(b.OpenMasters()).To(ConsistOf("a"))

		b.shelf.with(func(s *shelf) { delete(s.failing, "a") })
		Eventually(b.OpenMasters, "2s").Should(BeEmpty())
		Expect(b.decide(ctx, group(p, "a1", 1)).Source).To(Equal(ratelimit.FromRedis))
		fallback, _ := b.Fallback()
		Expect(fallback).To(BeFalse())
		Expect(b.changes.Load()).To(Equal(int64(2)))
	})

	It("opens and closes again and again", func(ctx SpecContext) {
		b.run(ctx)
		for range 3 {
			b.shelf.with(func(s *shelf) { s.failing["a"] = errDown })
			open(ctx, "a1")
			b.shelf.with(func(s *shelf) { delete(s.failing, "a") })
			Eventually(b.OpenMasters, "2s").Should(BeEmpty())
		}
	})

	It("stays open while the master answers slower than the budget", func(ctx SpecContext) {
		b.run(ctx)
		b.shelf.with(func(s *shelf) { s.failing["a"] = errDown })
		open(ctx, "a1")
		b.shelf.with(func(s *shelf) { delete(s.failing, "a"); s.slow = 50 * time.Millisecond })
		Consistently(b.OpenMasters, "700ms").Should(ConsistOf("a"))
		b.shelf.with(func(s *shelf) { s.slow = 0 })
		Eventually(b.OpenMasters, "2s").Should(BeEmpty())
	})

	It("goes when the topology says that its master was replaced", func(ctx SpecContext) {
		b.run(ctx)
		b.shelf.with(func(s *shelf) {
			s.failing["a"] = errDown
			s.onload = func(s *shelf) { s.masters = []string{"b", "c"} }
		})
		open(ctx, "a1")
		Eventually(b.OpenMasters, "2s").Should(BeEmpty())
		Expect(b.shelf.reloads.Load()).To(BeNumerically(">=", 1))
	})

	It("goes soon when nodes that hang are asked for the topology first", func(ctx SpecContext) {
		b.run(ctx)
		b.shelf.with(func(s *shelf) {
			s.failing["a"] = errDown
			s.hangs = 4
			s.onload = func(s *shelf) { s.masters = []string{"b", "c"} }
		})
		open(ctx, "a1")
		Eventually(b.OpenMasters, "2s").Should(BeEmpty())
		Expect(b.shelf.reloads.Load()).To(BeNumerically(">", 4))
	})

	It("belongs to one store: another one starts with none", func(ctx SpecContext) {
		b.shelf.failing["a"] = errDown
		open(ctx, "a1")
		b.SetStore(newShelf())
		Expect(b.OpenMasters()).To(BeEmpty())
		Expect(b.decide(ctx, group(p, "a1", 1)).Source).To(Equal(ratelimit.FromRedis))
	})

	It("is in fallback while the store was never reached", func() {
		b.SetStore(&shelf{unknown: true})
		fallback, _ := b.Fallback()
		Expect(fallback).To(BeTrue())
	})
})
