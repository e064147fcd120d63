package failover_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/internal/ratelimit"
	"github.com/portero-dev/portero/sidecar/internal/failover"
)

// bench is a limiter over a shelf.
type bench struct {
	*failover.Limiter
	shelf    *shelf
	witness  *witness
	sidecars atomic.Int64
	stale    atomic.Int64
	changes  atomic.Int64
}

func newBench(maxKeys int) *bench {
	b := &bench{shelf: newShelf(), witness: newWitness()}
	b.sidecars.Store(1)
	b.Limiter = failover.New(failover.Options{
		Observer:        b.witness,
		Log:             slog.New(slog.NewTextHandler(GinkgoWriter, nil)),
		Sidecars:        func(string) int { return int(b.sidecars.Load()) },
		Stale:           func() { b.stale.Add(1) },
		FallbackChanged: func() { b.changes.Add(1) },
		MaxKeys:         maxKeys,
	})
	b.SetStore(b.shelf)
	return b
}

// run runs the limiter's recovery until the spec ends.
func (b *bench) run(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b.Run(ctx)
	}()
	DeferCleanup(func() {
		stop()
		Eventually(ended).Should(BeClosed())
	})
}

func (b *bench) decide(ctx context.Context, groups ...ratelimit.Group) ratelimit.Verdict {
	return b.Decide(ctx, groups)
}

// admitted is how many of n requests for a group pass.
func (b *bench) admitted(ctx context.Context, n int, g ratelimit.Group) int {
	passed := 0
	for range n {
		if b.decide(ctx, g).Outcome == ratelimit.Allowed {
			passed++
		}
	}
	return passed
}

var _ = Describe("A verdict of the shared buckets", func() {
	var b *bench
	BeforeEach(func() { b = newBench(1024) })

	It("asks nobody when nothing governs the request", func(ctx SpecContext) {
		Expect(b.decide(ctx)).To(Equal(ratelimit.Verdict{}))
		Expect(b.shelf.asked.Load()).To(BeZero())
	})

	It("tells the level of each limit", func(ctx SpecContext) {
		p := policy("p", "Local", limit("l", 10))
		b.shelf.answers["a1"] = []failover.ChargeAnswer{left(p.Limits[0], 7)}
		v := b.decide(ctx, group(p, "a1", 1))
		Expect(v.Outcome).To(Equal(ratelimit.Allowed))
		Expect(v.Source).To(Equal(ratelimit.FromRedis))
		Expect(v.Limits).To(ConsistOf(ratelimit.LimitResult{
			Limit: p.Limits[0], Allowed: true, Remaining: 7, NextToken: time.Hour, Source: ratelimit.FromRedis,
		}))
		Expect(b.witness.taken[ratelimit.FromRedis]).To(Equal(1))
	})

	It("counts the clock's lag into waits", func(ctx SpecContext) {
		p := policy("p", "Local", limit("l", 10))
		answer := refused(p.Limits[0], 0)
		answer.Level.UpdatedUS = 5_000_000
		b.shelf.answers["a1"] = []failover.ChargeAnswer{answer}
		Expect(b.decide(ctx, group(p, "a1", 1)).Wait).To(Equal(time.Hour + 5*time.Second))
	})

	Describe("over several policies", func() {
		one, two, three := policy("one", "Local", limit("l", 10)), policy("two", "Local", limit("l", 10)), policy("three", "Local", shadow(limit("l", 10)))
		groups := []ratelimit.Group{group(two, "b2", 3), group(one, "a1", 3), group(three, "a3", 3)}

		DescribeTable("answers for the limit with the longest wait",
			func(ctx SpecContext, first, second, third []failover.ChargeAnswer, by *ratelimit.Policy, wait time.Duration) {
				b.shelf.answers = map[string][]failover.ChargeAnswer{"a1": first, "b2": second, "a3": third}
				v := b.decide(ctx, groups...)
				Expect(v.Limits).To(HaveLen(3))
				if by == nil {
					Expect(v.Outcome).To(Equal(ratelimit.Allowed))
					Expect(v.By).To(BeNil())
					return
				}
				Expect(v.Outcome).To(Equal(ratelimit.Limited))
				Expect(v.By).To(BeIdenticalTo(by.Limits[0]))
				Expect(v.Wait).To(Equal(wait))
			},
			Entry("all allow", nil, nil, nil, nil, time.Duration(0)),
			Entry("one refuses", []failover.ChargeAnswer{refused(one.Limits[0], 2)}, nil, nil, one, time.Hour),
			Entry("both refuse", []failover.ChargeAnswer{refused(one.Limits[0], 2)}, []failover.ChargeAnswer{refused(two.Limits[0], 0)}, nil, two, 3*time.Hour),
			Entry("a tie goes by policy name", []failover.ChargeAnswer{refused(one.Limits[0], 1)}, []failover.ChargeAnswer{refused(two.Limits[0], 1)}, nil, one, 2*time.Hour),
			Entry("a shadow limit never answers", nil, nil, []failover.ChargeAnswer{refused(three.Limits[0], 0)}, nil, time.Duration(0)),
		)

		It("lets a limit that no wait helps answer first", func(ctx SpecContext) {
			b.shelf.answers = map[string][]failover.ChargeAnswer{"a1": {refused(one.Limits[0], 10)}, "b2": {refused(two.Limits[0], 0)}}
			v := b.decide(ctx, group(two, "b2", 3), group(one, "a1", 11))
			Expect(v.By).To(BeIdenticalTo(one.Limits[0]))
			Expect(v.Wait).To(BeZero())
		})
	})

	It("asks for a new snapshot when a bucket knows a newer limit", func(ctx SpecContext) {
		p := policy("p", "Local", limit("l", 10))
		answer := left(p.Limits[0], 3)
		answer.Stale = true
		b.shelf.answers["a1"] = []failover.ChargeAnswer{answer}
		b.decide(ctx, group(p, "a1", 1))
		Expect(b.stale.Load()).To(Equal(int64(1)))
	})
})

var _ = Describe("A verdict without the store", func() {
	var b *bench
	BeforeEach(func() { b = newBench(1024) })

	DescribeTable("counts every failure and decides locally, in no more than the budget",
		func(ctx SpecContext, fault func(*shelf), kind failover.Kind) {
			fault(b.shelf)
			p := policy("p", "Local", limit("l", 2))
			started := time.Now()
			v := b.decide(ctx, group(p, "a1", 1))
			Expect(time.Since(started)).To(BeNumerically("<", 500*time.Millisecond))
			Expect(v.Outcome).To(Equal(ratelimit.Allowed))
			Expect(v.Source).To(Equal(ratelimit.FromLocal))
			Expect(b.witness.failures(kind)).To(Equal(1))
			Expect(b.admitted(ctx, 3, group(p, "a1", 1))).To(Equal(1))
		},
		Entry("no topology", func(s *shelf) { s.unknown = true }, failover.KindNoTopology),
		Entry("no answer", func(s *shelf) { s.silent["a"] = true }, failover.KindTimeout),
		Entry("not even sent", func(s *shelf) { s.stuck["a"] = true }, failover.KindQueued),
		Entry("a broken connection", func(s *shelf) { s.failing["a"] = errDown }, failover.KindConnection),
		Entry("an error of any other sort", func(s *shelf) { s.failing["a"] = fmt.Errorf("ERR") }, failover.KindOther),
	)

	It("decides before there was any store", func(ctx SpecContext) {
		b.SetStore(&shelf{unknown: true})
		Expect(b.admitted(ctx, 3, group(policy("p", "Local", limit("l", 2)), "a1", 1))).To(Equal(2))
	})

	It("waits no longer than the smallest timeout concerned", func(ctx SpecContext) {
		b.shelf.silent["a"], b.shelf.silent["b"] = true, true
		patient, hasty := policy("patient", "Local", limit("l", 2)), policy("hasty", "Local", limit("l", 2))
		patient.Record.Store.TimeoutUS = 10_000_000
		hasty.Record.Store.TimeoutUS = 5_000
		started := time.Now()
		b.decide(ctx, group(patient, "a1", 1), group(hasty, "b1", 1))
		Expect(time.Since(started)).To(BeNumerically("<", time.Second))
	})

	It("lets a shadow neither shorten nor lengthen that time", func(ctx SpecContext) {
		b.shelf.silent["a"], b.shelf.silent["b"], b.shelf.silent["c"] = true, true, true
		enforced, hasty, patient := policy("enforced", "Local", limit("l", 2)), policy("hasty", "Local", shadow(limit("l", 2))), policy("patient", "Local", shadow(limit("l", 2)))
		enforced.Record.Store.TimeoutUS = 100_000
		hasty.Record.Store.TimeoutUS = 1_000
		patient.Record.Store.TimeoutUS = 20_000_000
		started := time.Now()
		b.decide(ctx, group(hasty, "b1", 1), group(enforced, "a1", 1), group(patient, "c1", 1))
		Expect(time.Since(started)).To(And(BeNumerically(">=", 100*time.Millisecond), BeNumerically("<", 10*time.Second)))
	})

	It("takes the smallest timeout of shadows that are alone", func(ctx SpecContext) {
		b.shelf.silent["a"], b.shelf.silent["b"] = true, true
		hasty, patient := policy("hasty", "Local", shadow(limit("l", 2))), policy("patient", "Local", shadow(limit("l", 2)))
		hasty.Record.Store.TimeoutUS = 1_000
		patient.Record.Store.TimeoutUS = 20_000_000
		started := time.Now()
		b.decide(ctx, group(patient, "a1", 1), group(hasty, "b1", 1))
		Expect(time.Since(started)).To(BeNumerically("<", 10*time.Second))
	})

	Describe("by failure mode", func() {
		type mode struct {
			onFailure string
			shadow    bool
			capacity  int64
		}
		DescribeTable("the strictest wins",
			func(ctx SpecContext, modes []mode, outcome ratelimit.Outcome, by string) {
				b.shelf.unknown = true
				var groups []ratelimit.Group
				for i, m := range modes {
					l := limit("l", m.capacity)
					l.Shadow = m.shadow
					groups = append(groups, group(policy(fmt.Sprintf("p%d", i), m.onFailure, l), fmt.Sprintf("a%d", i), 2))
				}
				v := b.decide(ctx, groups...)
				Expect(v.Outcome).To(Equal(outcome))
				Expect(v.Limits).To(HaveLen(len(modes)))
				if by == "" {
					Expect(v.By).To(BeNil())
				} else {
					Expect(v.By.QualifiedName).To(Equal(by))
				}
			},
			Entry("Open admits", []mode{{"Open", false, 1}}, ratelimit.Allowed, ""),
			Entry("Closed refuses", []mode{{"Closed", false, 9}}, ratelimit.Unavailable, "p0/l"),
			Entry("Local admits what it can", []mode{{"Local", false, 9}}, ratelimit.Allowed, ""),
			Entry("Local refuses what it can't", []mode{{"Local", false, 1}}, ratelimit.Limited, "p0/l"),
			Entry("Closed beats Local and Open", []mode{{"Open", false, 9}, {"Local", false, 1}, {"Closed", false, 9}}, ratelimit.Unavailable, "p2/l"),
			Entry("Local beats Open", []mode{{"Open", false, 9}, {"Local", false, 1}}, ratelimit.Limited, "p1/l"),
			Entry("two Closed: the first by name answers", []mode{{"Closed", false, 9}, {"Closed", false, 9}}, ratelimit.Unavailable, "p0/l"),
			Entry("Closed in Shadow refuses nothing", []mode{{"Closed", true, 9}}, ratelimit.Allowed, ""),
		)

		It("keeps the shared verdict of the policies whose master answers", func(ctx SpecContext) {
			b.shelf.failing["a"] = errDown
			down, up := policy("down", "Open", limit("l", 9)), policy("up", "Closed", limit("l", 9))
			b.shelf.answers["b1"] = []failover.ChargeAnswer{refused(up.Limits[0], 0)}
			v := b.decide(ctx, group(down, "a1", 1), group(up, "b1", 1))
			Expect(v.Outcome).To(Equal(ratelimit.Limited))
			Expect(v.By).To(BeIdenticalTo(up.Limits[0]))
			Expect(v.Source).To(Equal(ratelimit.FromLocal))
		})
	})
})
