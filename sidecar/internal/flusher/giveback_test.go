package flusher_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/ratelimit"
	"github.com/portero-dev/portero/sidecar/internal/failover"
	"github.com/portero-dev/portero/sidecar/internal/flusher"
)

// returns counts what became of give-backs and debits. It is a failover.Observer.
type returns struct{ given, dropped, failed, debited, locally, lost atomic.Int64 }

func (r *returns) VerdictTaken(ratelimit.Source, time.Duration, time.Duration) {}
func (r *returns) StoreFailed(failover.Kind, bool)                             { r.failed.Add(1) }
func (r *returns) Debited(fate failover.Fate, debits int) {
	switch fate {
	case failover.FateShared:
		r.debited.Add(int64(debits))
	case failover.FateLocal, failover.FateOverflow:
		r.locally.Add(int64(debits))
	default:
		r.lost.Add(int64(debits))
	}
}
func (r *returns) ChargesReturned(given, dropped int) {
	r.given.Add(int64(given))
	r.dropped.Add(int64(dropped))
}

// limiter decides by a flusher, and refuses all that Redis does not decide within a second.
func limiter(f *flusher.Flusher, observer failover.Observer) *failover.Limiter {
	l := failover.New(failover.Options{
		Observer: observer, Log: slog.New(slog.DiscardHandler), Sidecars: func(string) int { return 1 },
		Stale: func() {}, FallbackChanged: func() {}, MaxKeys: failover.DefaultMaxKeys,
	})
	l.SetStore(f)
	return l
}

// strict is a policy of one limit that refills nothing that a test would see.
func strict(name string, capacity int64) *ratelimit.Policy {
	p := &ratelimit.Policy{Record: &bucketconfig.Record{
		Name: name, Order: 7, Store: bucketconfig.Store{TimeoutUS: bucketconfig.MaxTimeoutUS, OnFailure: "Closed"},
	}}
	p.Limits = []*ratelimit.Limit{{Policy: p, ID: 1, QualifiedName: name + "/l", Config: &bucketconfig.Limit{
		Name: "l", Bucket: bucketconfig.Bucket{Capacity: capacity, RefillTokens: 1, RefillIntervalUS: bucketconfig.MaxIntervalUS},
	}}}
	return p
}

func groupOf(p *ratelimit.Policy, tag string, cost int64) ratelimit.Group {
	g := ratelimit.Group{Policy: p, Tag: tag}
	for _, l := range p.Limits {
		g.Charges = append(g.Charges, ratelimit.Charge{Limit: l, Cost: cost})
	}
	return g
}

// level is a bucket's tokens to the nearest one: what refilled in a test is no part of a token to speak of.
func level(f *flusher.Flusher, p *ratelimit.Policy, tag string) int64 {
	GinkgoHelper()
	question := groupOf(p, tag, 1_000_000_000)
	answer := ask(f, &question)
	Expect(answer.Err).NotTo(HaveOccurred())
	now := answer.Charges[0].Level
	return now.Tokens + (now.Remainder+bucketconfig.MaxIntervalUS/2)/bucketconfig.MaxIntervalUS
}

// market is three policies, each with a bucket for each of some stalls in slots of their own, small enough to refuse often.
type market struct {
	policies []*ratelimit.Policy
	passed   [][]atomic.Int64
}

const stalls = 6

func newMarket(capacities ...int64) *market {
	m := &market{}
	for i, capacity := range capacities {
		m.policies = append(m.policies, strict(fmt.Sprintf("p%d", i), capacity))
		m.passed = append(m.passed, make([]atomic.Int64, stalls))
	}
	return m
}

func tagOf(policy, stall int) string { return fmt.Sprintf("m%d-%d", policy, stall) }

// visit lets clients ask, each for a random bucket of each policy at a random cost, with a pause before each request.
func (m *market) visit(ctx context.Context, clients, requests int, pause time.Duration, l *failover.Limiter) {
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for range requests {
				if pause > 0 {
					<-time.After(rand.N(2 * pause))
				}
				cost := 1 + rand.Int64N(3)
				asked := make([]ratelimit.Group, len(m.policies))
				var chosen [3]int
				for i, p := range m.policies {
					chosen[i] = rand.IntN(stalls)
					asked[i] = groupOf(p, tagOf(i, chosen[i]), cost)
				}
				if l.Decide(ctx, asked).Outcome == ratelimit.Allowed {
					for i := range m.policies {
						m.passed[i][chosen[i]].Add(cost)
					}
				}
			}
		})
	}
	all.Wait()
}

// each checks each bucket: its level, and what it is if passed requests explain all.
func (m *market) each(f *flusher.Flusher, check func(where string, left, explained int64)) {
	GinkgoHelper()
	for i, p := range m.policies {
		for stall := range stalls {
			check(tagOf(i, stall), level(f, p, tagOf(i, stall)), p.Limits[0].Config.Bucket.Capacity-m.passed[i][stall].Load())
		}
	}
}

var _ = Describe("Giving back", func() {
	const tag = "back"
	It("returns what an answered question took, and tells so", func(ctx SpecContext) {
		f, p, seen := ready(ctx), strict("p", 10), new(returns)
		question := groupOf(p, tag, 4)
		answers := make(chan failover.Answer, 1)
		asked := f.Ask(locate(f, tag), &question, 0, answers)
		Eventually(answers).Should(Receive())
		Expect(level(f, p, tag)).To(Equal(int64(6)))
		asked.GiveBack(seen.ChargesReturned)
		Eventually(seen.given.Load).Should(Equal(int64(1)))
		Expect(level(f, p, tag)).To(Equal(int64(10)))
	})

	It("keeps what shadow limits took, and does nothing where nothing was taken", func(ctx SpecContext) {
		f, p, seen := ready(ctx), strict("p", 10), new(returns)
		p.Limits[0].Shadow = true
		question := groupOf(p, tag, 4)
		answers := make(chan failover.Answer, 1)
		asked := f.Ask(locate(f, tag), &question, 0, answers)
		Eventually(answers).Should(Receive())
		asked.GiveBack(seen.ChargesReturned)
		p.Limits[0].Shadow = false
		question = groupOf(p, tag, 7)
		asked = f.Ask(locate(f, tag), &question, 0, answers)
		Eventually(answers).Should(Receive())
		asked.GiveBack(seen.ChargesReturned)
		Expect(level(f, p, tag)).To(Equal(int64(6)))
		Expect(seen.given.Load() + seen.dropped.Load()).To(BeZero())
	})

	It("returns what a late take took", func(ctx SpecContext) {
		f, p, seen := ready(ctx), strict("p", 10), new(returns)
		Expect(level(f, p, tag)).To(Equal(int64(10)))
		master := node(ctx, tag)
		resume := halt(master)
		question, answers := groupOf(p, tag, 4), make(chan failover.Answer, 1)
		asked := f.Ask(locate(f, tag), &question, 0, answers)
		Eventually(func() int { return f.Queued(master.Addr()) }).Should(BeZero())
		Expect(asked.Withdraw()).To(BeFalse(), "it was sent")
		asked.GiveBack(seen.ChargesReturned)
		resume()
		Eventually(answers, "2s").Should(Receive(HaveField("Err", BeNil())))
		Eventually(seen.given.Load, "2s").Should(Equal(int64(1)))
		Expect(level(f, p, tag)).To(Equal(int64(10)))
	})

	It("bounds what waits for a master that hangs, and the goroutines", func(ctx SpecContext) {
		f, p := ready(ctx), strict("p", 10)
		Expect(level(f, p, tag)).To(Equal(int64(10)))
		master := node(ctx, tag)
		halt(master)
		goroutines := runtime.NumGoroutine()
		const flood = 3 * flusher.MaxCalls // and what each of two lanes takes at once
		question, answers := groupOf(p, tag, 1), make(chan failover.Answer, 2*flood)
		place := locate(f, tag)
		for i := range 2 * flood {
			f.Ask(place, &question, i, answers)
		}
		Expect(f.Queued(master.Addr())).To(BeNumerically("<=", flusher.MaxCalls))
		Expect(runtime.NumGoroutine()).To(BeNumerically("<", goroutines+20))
		var answer failover.Answer
		Expect(answers).To(Receive(&answer))
		Expect(fault(answer)).To(kind(failover.KindQueued))
		Eventually(func() int { return f.Queued(master.Addr()) }, "10s").Should(BeZero())
	})

	It("drops what finds no room", func(ctx SpecContext) {
		f, p, seen := ready(ctx), strict("p", 1_000_000), new(returns)
		const room, many = flusher.MaxErrands, flusher.MaxErrands + 500
		answers := make(chan failover.Answer, many+1)
		question := groupOf(p, tag, 1)
		var asked []failover.Question
		for i := range many {
			asked = append(asked, f.Ask(locate(f, tag), &question, i, answers))
		}
		Eventually(answers, "5s").Should(HaveLen(many))
		master := node(ctx, tag)
		resume := halt(master)
		for range 2 { // both lanes are busy
			f.Ask(locate(f, tag), &question, 0, make(chan failover.Answer, 1))
			Eventually(func() int { return f.Queued(master.Addr()) }).Should(BeZero())
		}
		for _, question := range asked {
			question.GiveBack(seen.ChargesReturned)
		}
		Expect(seen.dropped.Load()).To(Equal(int64(many - room)))
		resume()
		// On a machine that is busy, Redis may not answer in time for all of them.
		Eventually(func() int64 { return seen.given.Load() + seen.dropped.Load() }, "5s").Should(Equal(int64(many)))
		left := level(f, p, tag)
		Expect(left).To(BeNumerically(">=", 1_000_000-seen.dropped.Load()-2))
		Expect(left).To(BeNumerically("<=", 1_000_000-(many-room)))
	})

	It("leaves each of 3 buckets in 3 slots with exactly what passed requests explain, once settled", func(ctx SpecContext) {
		f, seen, m := ready(ctx), new(returns), newMarket(600, 500, 400)
		l := limiter(f, seen)
		m.visit(ctx, 64, 60, 0, l)
		// On a machine that is busy, Redis may be late for some: what became of those nobody knows, so they may have been charged, and no more than they.
		const mostCost = 3
		Eventually(func(g Gomega) {
			late := seen.failed.Load() + seen.dropped.Load()
			m.each(f, func(where string, left, explained int64) {
				g.Expect(left).To(And(BeNumerically("<=", explained), BeNumerically(">=", explained-mostCost*late)), where)
			})
		}, "5s", "100ms").Should(Succeed())
		Expect(seen.given.Load()).To(BeNumerically(">", 500))
		Expect(seen.failed.Load()+seen.dropped.Load()).To(BeNumerically("<", 36), "of 3840 verdicts")
	}, NodeTimeout(time.Minute))

	It("leaves no more than they explain when masters change in the middle", func(ctx SpecContext) {
		// A replica has to catch up to be promoted, and can't while all processors serve clients without a pause.
		const pause = 20 * time.Millisecond
		f, seen, m := ready(ctx), new(returns), newMarket(6000, 5000, 4000)
		l := limiter(f, seen)
		m.visit(ctx, 64, 250, 0, l) // until the last of them refuses all, so that the failovers meet give-backs
		var failing sync.WaitGroup
		visited := make(chan struct{})
		failing.Go(func() {
			defer GinkgoRecover()
			defer close(visited)
			for i := range len(m.policies) {
				// Writes stop while the replica catches up, so that none is lost. A master that was promoted a moment ago has none.
				Eventually(func() error {
					_, err := cluster.Failover(ctx, instance.Bucket(namespace, tagOf(i, 0)))
					return err
				}, "20s", "50ms").Should(Succeed())
				Eventually(f.Reload, "5s", "50ms").WithContext(ctx).Should(Succeed())
			}
		})
		for running := true; running; {
			m.visit(ctx, 64, 20, pause, l)
			select {
			case <-visited:
				running = false
			default:
			}
		}
		m.visit(ctx, 64, 50, 0, l)
		failing.Wait()
		Eventually(func(g Gomega) { g.Expect(f.Reload(ctx)).To(Succeed()) }, "5s").Should(Succeed())
		Consistently(func(g Gomega) {
			m.each(f, func(where string, left, explained int64) { g.Expect(left).To(BeNumerically("<=", explained), where) })
		}, "500ms", "100ms").Should(Succeed())
		Expect(seen.given.Load()).To(BeNumerically(">", 500))
		var short, total int64
		m.each(f, func(_ string, left, explained int64) { short += explained - left; total += explained })
		AddReportEntry("tokens", fmt.Sprintf("given back %d, dropped %d, not answered %d; %d short of %d", seen.given.Load(), seen.dropped.Load(), seen.failed.Load(), short, total))
	}, NodeTimeout(time.Minute))
})

var _ = Describe("A budget of a second", func() {
	It("is not cut short by the client's own timeouts", func(ctx SpecContext) {
		f, p := ready(ctx), strict("p", 10)
		Expect(level(f, p, "long")).To(Equal(int64(10)))
		resume := halt(node(ctx, "long"))
		time.AfterFunc(700*time.Millisecond, resume)
		question := groupOf(p, "long", 1)
		started := time.Now()
		answer := ask(f, &question)
		Expect(answer.Err).NotTo(HaveOccurred())
		Expect(time.Since(started)).To(BeNumerically(">=", 700*time.Millisecond))
	})
})
