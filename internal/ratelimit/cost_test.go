package ratelimit_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/ratelimit"
)

func rules(rs ...bucketconfig.CostRule) func(*bucketconfig.Limit) {
	return func(l *bucketconfig.Limit) { l.CostRules = rs }
}

func costs(tokens int64, ms ...bucketconfig.Match) bucketconfig.CostRule {
	return bucketconfig.CostRule{Matches: ms, Tokens: tokens}
}

func costFrom(kind string, otherwise, maximum int64) func(*bucketconfig.Limit) {
	return func(l *bucketconfig.Limit) {
		l.Cost, l.CostSource = otherwise, &bucketconfig.CostSource{Type: kind, Header: "X-Cost", Maximum: maximum}
	}
}

var _ = Describe("The cost", func() {
	charge := func(p *ratelimit.Policy, req *ratelimit.Request) ratelimit.Charge {
		GinkgoHelper()
		d := ratelimit.NewSet(p).Describe(req)
		Expect(d.Groups).To(HaveLen(1))
		return d.Groups[0].Charges[0]
	}

	It("is that of the first rule that fits, else the limit's", func() {
		p := compile(limits(limit("a", func(l *bucketconfig.Limit) { l.Cost = 2 }, rules(
			costs(10, path("PathPrefix", "/api/search"), path("Exact", "/find")),
			costs(5, path("PathPrefix", "/api")),
			costs(20, path("PathPrefix", "/api/search/deep")),
		))))
		for path, want := range map[string]int64{"/": 2, "/api": 5, "/api/search/deep": 10, "/find": 10} {
			Expect(charge(p, request(path)).Cost).To(Equal(want), path)
		}
	})

	It("draws from the override's bucket by the limit's rules", func() {
		p := compile(limits(limit("a", rules(costs(10, path("Exact", "/x"))), overriddenBy(sized("gold", 100, plan("Exact", "gold"))))))
		c := charge(p, request("/x", "X-Plan", "gold"))
		Expect(c.Cost).To(Equal(int64(10)))
		Expect(c.Limit.Override.Name).To(Equal("gold"))
	})

	DescribeTable("is what the request's header says, within bounds",
		func(lines []string, want int64) {
			p := compile(limits(limit("a", costFrom("RequestHeader", 3, 1000))))
			req := request("/")
			req.Header["X-Cost"] = lines
			c := charge(p, req)
			Expect(c.Cost).To(Equal(want))
		},
		Entry("missing", nil, int64(3)),
		Entry("within", []string{"7"}, int64(7)),
		Entry("the least", []string{"1"}, int64(1)),
		Entry("zero", []string{"0"}, int64(3)),
		Entry("negative", []string{"-7"}, int64(3)),
		Entry("signed", []string{"+7"}, int64(3)),
		Entry("a fraction", []string{"7.5"}, int64(3)),
		Entry("hexadecimal", []string{"0x7"}, int64(3)),
		Entry("underscores", []string{"1_0"}, int64(3)),
		Entry("leading zeros", []string{"007"}, int64(7)),
		Entry("empty", []string{""}, int64(3)),
		Entry("rubbish", []string{"many"}, int64(3)),
		Entry("other digits", []string{"٧"}, int64(3)),
		Entry("two lines", []string{"7", "8"}, int64(3)),
		Entry("the maximum, which exceeds the capacity", []string{"1000"}, int64(1000)),
		Entry("beyond the maximum", []string{"1001"}, int64(1000)),
		Entry("beyond 64 bits", []string{"99999999999999999999999999"}, int64(1000)),
		Entry("negative beyond 64 bits", []string{"-99999999999999999999999999"}, int64(3)),
	)

	It("is learnt from the response where the limit says so, and what came before is no part of the rest", func() {
		p := compile(limits(limit("a", costFrom("ResponseHeader", 3, 20), overriddenBy(sized("gold", 100, plan("Exact", "gold"))))))
		for _, req := range []*ratelimit.Request{request("/", "X-Cost", "500"), request("/", "X-Plan", "gold")} {
			c := charge(p, req)
			Expect(c.Cost).To(Equal(int64(3)))
			Expect(c.Debit).To(BeZero())
			Expect(c.Limit.Later()).To(Equal("X-Cost"))
			for value, want := range map[string]int64{
				"": 0, "2": 0, "3": 0, "10": 7, "20": 17, "5000": 17, "-1": 0, "x": 0, "10, 10": 0, "99999999999999999999": 17,
			} {
				Expect(c.Limit.Rest(value)).To(Equal(want), value)
			}
		}
		Expect(compile(limits(limit("a", costFrom("RequestHeader", 3, 20)))).Limits[0].Later()).To(BeEmpty())
		Expect(compile(limits(limit("a"))).Limits[0].Later()).To(BeEmpty())
	})
})
