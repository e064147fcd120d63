package tally_test

import (
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/ratelimit"
	"github.com/portero-dev/portero/sidecar/internal/tally"
)

func limit(name string) *ratelimit.Limit {
	return &ratelimit.Limit{
		Policy: &ratelimit.Policy{Record: &bucketconfig.Record{Name: "checkout"}},
		Config: &bucketconfig.Limit{Name: name},
	}
}

var _ = Describe("Tally", func() {
	var (
		counted *tally.Tally
		a, b    = limit("a"), limit("b")
		nameA   = tally.Name{Policy: "checkout", Limit: "a"}
		nameB   = tally.Name{Policy: "checkout", Limit: "b"}
	)
	BeforeEach(func() { counted = new(tally.Tally) })

	It("counts expressions that failed, of limits and of what is exempt", func() {
		counted.CountFailures([]ratelimit.Failure{{Policy: a.Policy}, {Policy: a.Policy, Limit: a}})
		counted.CountFailures([]ratelimit.Failure{{Policy: a.Policy, Limit: a}})
		Expect(counted.Of(nameA)).To(Equal(tally.Counts{ExpressionErrors: 2}))
		Expect(counted.Of(tally.Name{Policy: "checkout"})).To(Equal(tally.Counts{ExpressionErrors: 1}))
		Expect(counted.Of(nameB)).To(BeZero())
	})

	DescribeTable("counts each limit by its part in the verdict",
		func(v ratelimit.Verdict, wantA, wantB tally.Counts) {
			counted.Count(&v)
			Expect(counted.Of(nameA)).To(Equal(wantA))
			Expect(counted.Of(nameB)).To(Equal(wantB))
		},
		Entry("allowed by both",
			ratelimit.Verdict{Limits: []ratelimit.LimitResult{{Limit: a, Allowed: true}, {Limit: b, Allowed: true}}},
			tally.Counts{Allowed: 1}, tally.Counts{Allowed: 1}),
		Entry("refused by one: the other saw no request pass",
			ratelimit.Verdict{Outcome: ratelimit.Limited, By: b, Limits: []ratelimit.LimitResult{{Limit: a, Allowed: true}, {Limit: b}}},
			tally.Counts{}, tally.Counts{Denied: 1}),
		Entry("a shadow limit would have refused",
			ratelimit.Verdict{Limits: []ratelimit.LimitResult{{Limit: a, Allowed: true}, {Limit: b, Shadow: true}}},
			tally.Counts{Allowed: 1}, tally.Counts{ShadowDenied: 1}),
		Entry("a shadow limit counts as if alone",
			ratelimit.Verdict{Outcome: ratelimit.Limited, By: a, Limits: []ratelimit.LimitResult{{Limit: a}, {Limit: b, Shadow: true, Allowed: true}}},
			tally.Counts{Denied: 1}, tally.Counts{Allowed: 1}),
		Entry("denied before any bucket was asked",
			ratelimit.Verdict{Outcome: ratelimit.Denied, By: a},
			tally.Counts{Denied: 1}, tally.Counts{}),
		Entry("governed by nothing", ratelimit.Verdict{}, tally.Counts{}, tally.Counts{}),
	)

	It("loses nothing under concurrency", func() {
		v := ratelimit.Verdict{Limits: []ratelimit.LimitResult{{Limit: a, Allowed: true}}}
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() {
				for range 1000 {
					counted.Count(&v)
				}
			})
		}
		group.Wait()
		Expect(counted.Of(nameA).Allowed).To(Equal(uint64(8000)))
	})

	It("drops what is not kept", func() {
		counted.Count(&ratelimit.Verdict{Outcome: ratelimit.Denied, By: a})
		counted.Count(&ratelimit.Verdict{Outcome: ratelimit.Denied, By: b})
		counted.Keep(func(name tally.Name) bool { return name == nameB })
		var names []tally.Name
		counted.Each(func(name tally.Name, _ tally.Counts) { names = append(names, name) })
		Expect(names).To(ConsistOf(nameB))
	})
})
