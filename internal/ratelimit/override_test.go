package ratelimit_test

import (
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/ratelimit"
)

func overriddenBy(os ...bucketconfig.Override) func(*bucketconfig.Limit) {
	return func(l *bucketconfig.Limit) { l.Overrides = os }
}

func unlimited(name string, ms ...bucketconfig.Match) bucketconfig.Override {
	return bucketconfig.Override{Name: name, Type: "Unlimited", Matches: ms}
}

func denied(name string, ms ...bucketconfig.Match) bucketconfig.Override {
	return bucketconfig.Override{Name: name, Type: "Deny", Matches: ms}
}

func sized(name string, capacity int64, ms ...bucketconfig.Match) bucketconfig.Override {
	return bucketconfig.Override{Name: name, Type: "Bucket", Matches: ms,
		Bucket: &bucketconfig.Bucket{Capacity: capacity, RefillTokens: 1, RefillIntervalUS: 1_000_000}}
}

func plan(kind string, values ...string) bucketconfig.Match {
	m := bucketconfig.NamedMatch{Name: "X-Plan", Type: kind}
	if kind == "Exact" {
		m.Value = values[0]
	} else {
		m.Values = values
	}
	return bucketconfig.Match{Headers: []bucketconfig.NamedMatch{m}}
}

var _ = Describe("Overrides", func() {
	keyed := keyedBy(header("X-Api-Key", "Deny"))

	// outcome names what became of a limit with overrides.
	outcome := func(p *ratelimit.Policy, req *ratelimit.Request) string {
		GinkgoHelper()
		d := ratelimit.NewSet(p).Describe(req)
		switch {
		case d.Deny != nil && d.Deny.Override != nil:
			return "denied by " + d.Deny.Override.Name
		case d.Deny != nil:
			return "denied for " + d.Deny.KeyPart.Name
		case len(d.Groups) == 0:
			return "unlimited"
		}
		if o := d.Groups[0].Charges[0].Limit.Override; o != nil {
			return o.Name
		}
		return "limit"
	}

	It("replace the bucket, beside the limit's own", func() {
		p := compile(limits(limit("per-key", keyed, overriddenBy(sized("gold", 1000, plan("Exact", "gold"))))))
		base := ratelimit.NewSet(p).Describe(request("/", "X-Api-Key", "k"))
		gold := ratelimit.NewSet(p).Describe(request("/", "X-Api-Key", "k", "X-Plan", "gold"))
		Expect(gold.Groups[0].Tag).To(Equal(base.Groups[0].Tag), "one key holds both")
		Expect(base.Groups[0].Charges[0].Limit).To(BeIdenticalTo(p.Limits[0]))

		own := gold.Groups[0].Charges[0].Limit
		Expect(own.ID).NotTo(Equal(p.Limits[0].ID))
		Expect(own.ID).To(Equal(uint64(0x0134c65ccbbd0f36)), "buckets in Redis carry it")
		Expect(own.QualifiedName).To(Equal("checkout/per-key"))
		Expect(own.Config.Name).To(Equal("per-key"))
		Expect(own.Config.Bucket.Capacity).To(Equal(int64(1000)))
		Expect(own.WindowSeconds).To(Equal(int64(1000)))
		Expect(own.Policy).To(BeIdenticalTo(p))
		Expect(p.Limits).To(HaveLen(1))
		Expect(p.Limits[0].Config.Bucket.Capacity).To(Equal(int64(20)), "the record stays as it is")
	})

	It("give records that no other names share", func() {
		id := func(limitName, override string) uint64 {
			p := compile(limits(limit(limitName, overriddenBy(sized(override, 20)))))
			return ratelimit.NewSet(p).Describe(request("/")).Groups[0].Charges[0].Limit.ID
		}
		Expect(id("ab", "c")).NotTo(Equal(id("a", "bc")))
		Expect(id("a", "b")).NotTo(Equal(id("b", "a")))
	})

	DescribeTable("are asked in their order, of requests that the limit matches, before its key parts",
		func(want string, headers ...string) {
			p := compile(limits(limit("a", keyed, matching(path("PathPrefix", "/api")), overriddenBy(
				denied("stolen", plan("In", "stolen", "leaked")),
				unlimited("internal", plan("Exact", "internal"), path("PathPrefix", "/api/internal")),
				sized("gold", 100, plan("InSHA256", sha256Hex("gold"), sha256Hex("leaked"))),
				sized("rest", 50, bucketconfig.Match{Headers: []bucketconfig.NamedMatch{{Name: "X-Plan", Type: "Present"}}}),
				denied("late", plan("In", "late", "gold")),
			))))
			path := headers[0]
			Expect(outcome(p, request(path, headers[1:]...))).To(Equal(want))
		},
		Entry("none fits", "limit", "/api", "X-Api-Key", "k"),
		Entry("the first", "denied by stolen", "/api", "X-Api-Key", "k", "X-Plan", "leaked"),
		Entry("the second, by its first match", "unlimited", "/api", "X-Api-Key", "k", "X-Plan", "internal"),
		Entry("the second, by its second match", "unlimited", "/api/internal", "X-Api-Key", "k", "X-Plan", "gold"),
		Entry("the third, by hash", "gold", "/api", "X-Api-Key", "k", "X-Plan", "gold"),
		Entry("the fourth, by whatever value", "rest", "/api", "X-Api-Key", "k", "X-Plan", "late"),
		Entry("requests that the limit does not match", "unlimited", "/other", "X-Plan", "stolen"),
		Entry("a missing key part denies", "denied for X-Api-Key", "/api"),
		Entry("unless the limit is lifted", "unlimited", "/api", "X-Plan", "internal"),
		Entry("and an override denies before", "denied by stolen", "/api", "X-Plan", "stolen"),
		Entry("an override's bucket needs the key part too", "denied for X-Api-Key", "/api", "X-Plan", "gold"),
	)

	It("fit every request without matches", func() {
		p := compile(limits(limit("a", overriddenBy(denied("stolen", plan("Exact", "stolen")), unlimited("all"), denied("never", plan("Exact", "gold"))))))
		Expect(outcome(p, request("/"))).To(Equal("unlimited"))
		Expect(outcome(p, request("/", "X-Plan", "gold"))).To(Equal("unlimited"))
		Expect(outcome(p, request("/", "X-Plan", "stolen"))).To(Equal("denied by stolen"))
	})

	It("give what asking one by one gives, whichever way they are looked up", func() {
		kinds := []func(i int) bucketconfig.Match{
			func(i int) bucketconfig.Match { return plan("Exact", fmt.Sprint("v", i%7)) },
			func(i int) bucketconfig.Match { return plan("In", fmt.Sprint("v", i%5), fmt.Sprint("v", i%11)) },
			func(i int) bucketconfig.Match { return plan("InSHA256", sha256Hex(fmt.Sprint("v", i%13))) },
			func(i int) bucketconfig.Match {
				return bucketconfig.Match{QueryParams: []bucketconfig.NamedMatch{{Name: "q", Type: "In", Values: []string{fmt.Sprint("v", i%3)}}}}
			},
			func(i int) bucketconfig.Match {
				m := plan("Exact", fmt.Sprint("v", i%17))
				m.Methods = []string{"GET"}
				return m
			},
		}
		var all []bucketconfig.Override
		for i := range 64 {
			o := sized(fmt.Sprint("o", i), 20, kinds[i%5](i))
			if i%4 == 0 {
				o.Matches = append(o.Matches, kinds[(i/4)%5](i+1))
			}
			all = append(all, o)
		}
		whole := compile(limits(limit("a", overriddenBy(all[20:]...))))
		for value := range 18 {
			for _, q := range []string{"", "q=v0", "q=v1", "q=v2"} {
				req := request("/", "X-Plan", fmt.Sprint("v", value))
				req.Query = q
				want := "limit"
				for _, o := range all[20:] {
					if outcome(compile(limits(limit("a", matching(o.Matches...)))), req) != "unlimited" {
						want = o.Name
						break
					}
				}
				Expect(outcome(whole, req)).To(Equal(want), "v%d, %s", value, q)
			}
		}
	})

	It("of a shadow deny nothing", func() {
		p := compile(limits(
			limit("a", overriddenBy(denied("stolen", plan("Exact", "stolen"))), func(l *bucketconfig.Limit) { l.Shadow = true }),
			limit("b")))
		d := ratelimit.NewSet(p).Describe(request("/", "X-Plan", "stolen"))
		Expect(d.Deny).To(BeNil())
		Expect(d.ShadowDenials).To(HaveLen(1))
		Expect(d.ShadowDenials[0].Override.Name).To(Equal("stolen"))
		Expect(governing(d)).To(Equal([]string{"checkout/b"}))
	})

	It("of a shadow are shadows", func() {
		p := compile(limits(limit("a", overriddenBy(sized("gold", 20)), func(l *bucketconfig.Limit) { l.Shadow = true })))
		Expect(ratelimit.NewSet(p).Describe(request("/")).Groups[0].Charges[0].Limit.Shadow).To(BeTrue())
	})
})

var _ = Describe("A shadow limit", func() {
	It("leaves what the description says of the others as it was", func() {
		others := []bucketconfig.Limit{
			limit("a", keyedBy(header("X-A", "Deny"))), limit("b", keyedBy(header("X-A", "Share"))), limit("c", matching(path("PathPrefix", "/api"))),
		}
		shadowed := limit("shadow", func(l *bucketconfig.Limit) { l.Shadow, l.Cost = true, 20 }, keyedBy(header("X-A", "Deny")),
			overriddenBy(denied("stolen", plan("Exact", "stolen"))))
		without, both := compile(limits(others...)), compile(limits(append([]bucketconfig.Limit{shadowed}, others...)...))
		for _, req := range []*ratelimit.Request{request("/"), request("/api", "X-A", "1"), request("/", "X-A", "1", "X-Plan", "stolen")} {
			want, got := ratelimit.NewSet(without).Describe(req), ratelimit.NewSet(both).Describe(req)
			Expect(got.Deny == nil).To(Equal(want.Deny == nil))
			if want.Deny != nil {
				Expect(got.Deny.Limit.Config.Name).To(Equal(want.Deny.Limit.Config.Name))
			}
			kept := func(d ratelimit.Description) (said []string) {
				for _, g := range d.Groups {
					for _, c := range g.Charges {
						if !c.Limit.Shadow {
							said = append(said, fmt.Sprint(c.Limit.ID, c.Cost, g.Tag))
						}
					}
				}
				return said
			}
			Expect(kept(got)).To(Equal(kept(want)))
		}
	})
})
