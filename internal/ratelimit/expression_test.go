package ratelimit_test

import (
	"fmt"
	"net/netip"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/ratelimit"
)

func when(text string) bucketconfig.Match { return bucketconfig.Match{When: text} }

// failing is a condition that fails for requests without the header X-N, and holds where it is above 5.
const failing = "int(request.headers['x-n']) > 5"

// byPeer states the client's address, which expressions may then read.
var byPeer = clientFrom(bucketconfig.ClientIP{Type: "Peer"})

var _ = Describe("Matching by an expression", func() {
	rich := func() *ratelimit.Request {
		req := request("/api//v2/%63arts", "X-Plan", "free", "X-Plan", "trial", "Cookie", `a=1; tier="g%6fld"; tier=free`,
			"Authorization", token(`{"sub":"jane","org":{"id":7}}`))
		req.Query, req.Port, req.PortName, req.Workload = "tag=a&tag=%62&debug&=x", 8080, "http", "deployment/web"
		req.Host = "SHOP.example.:8080"
		return req
	}
	DescribeTable("reads what the other fields read, in the same form",
		func(text string) {
			Expect(governed(when(text), rich())).To(BeTrue())
			Expect(governed(when("!("+text+")"), rich())).To(BeFalse())
		},
		Entry("method", "request.method == 'GET'"),
		Entry("path in normal form", "request.path == '/api/v2/carts'"),
		Entry("host in normal form", "request.host == 'shop.example'"),
		Entry("port", "request.port == 8080 && request.portName == 'http'"),
		Entry("workload", "request.workload == 'deployment/web'"),
		Entry("client", "request.clientIP == '192.0.2.1'"),
		Entry("joined header", "request.headers['x-plan'] == 'free, trial'"),
		Entry("all headers", "request.headers.map(h, h).size() == 3 && request.headers.exists(h, h == 'x-plan' && request.headers[h] == 'free, trial')"),
		Entry("cookie", "request.cookies.tier == 'gold' && request.cookies == {'a': '1', 'tier': 'gold'}"),
		Entry("claims", "request.claims.sub == 'jane' && request.claims['org.id'] == '7' && request.claims == {'sub': 'jane'}"),
		Entry("query", "request.query == {'tag': ['a', 'b'], 'debug': ['']}"),
		Entry("no call of gRPC", "!has(request.grpc)"),
	)

	It("reads a call of gRPC", func() {
		req := request("/shop.v1.Cart/Add", "Content-Type", "application/grpc")
		Expect(governed(when("request.grpc.service == 'shop.v1.Cart' && request.grpc.method == 'Add'"), req)).To(BeTrue())
	})

	It("is one more thing that must hold", func() {
		m := path("PathPrefix", "/api")
		m.When = "request.headers[?'x-plan'].orValue('free') == 'free'"
		Expect(governed(m, request("/api"))).To(BeTrue())
		Expect(governed(m, request("/api", "X-Plan", "gold"))).To(BeFalse())
		Expect(governed(m, request("/other"))).To(BeFalse())
	})

	It("knows no client that the policy can't know", func() {
		p := compile(clientFrom(bucketconfig.ClientIP{Type: "XForwardedFor", TrustedProxies: []string{"192.0.2.0/24"}}),
			exempt(when("has(request.clientIP) && request.clientIP == '203.0.113.9'")))
		for from, groups := range map[string]int{"203.0.113.9": 0, "203.0.113.8": 1, "rubbish": 1, "192.0.2.7": 1} {
			Expect(ratelimit.NewSet(p).Describe(request("/", "X-Forwarded-For", from)).Groups).To(HaveLen(groups), from)
		}
	})

	It("asks each policy for its own idea of the client", func() {
		inner := limits(limit("a", matching(when("request.clientIP == '192.0.2.1'"))))
		set := ratelimit.NewSet(compile(named("peer"), inner, byPeer),
			compile(named("forwarded"), inner, clientFrom(bucketconfig.ClientIP{Type: "XForwardedFor", TrustedProxies: []string{"192.0.2.0/24"}})))
		Expect(governing(set.Describe(request("/", "X-Forwarded-For", "198.51.100.9")))).To(Equal([]string{"peer/a"}))
	})

	It("has each header that it may ask for joined for the app too", func() {
		lines := func(text string) map[string]int {
			req := request("/", "X-A", "1", "X-A", "2", "X-B", "1", "X-B", "2", "Cookie", "a=1", "Cookie", "b=2")
			ratelimit.NewSet(compile(exempt(when(text)))).JoinRepeated(req.Header)
			return map[string]int{"X-A": len(req.Header["X-A"]), "X-B": len(req.Header["X-B"]), "Cookie": len(req.Header["Cookie"])}
		}
		Expect(lines("'x-a' in request.headers")).To(Equal(map[string]int{"X-A": 1, "X-B": 2, "Cookie": 2}))
		Expect(lines("request.headers.exists(h, h == 'x-a')")).To(Equal(map[string]int{"X-A": 1, "X-B": 1, "Cookie": 2}))
	})

	It("is safe for concurrent use, and remembers nothing of earlier requests", func() {
		set := ratelimit.NewSet(compile(limits(limit("a", matching(when("request.headers['x-n'] == '1' && request.cookies.c == '1' && request.query.q[0] == '1'"))))))
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				defer GinkgoRecover()
				for range 100 {
					n := fmt.Sprint(i % 2)
					req := request("/", "X-N", n, "Cookie", "c="+n)
					req.Query = "q=" + n
					Expect(set.Describe(req).Groups).To(HaveLen(i % 2))
				}
			})
		}
		all.Wait()
	})
})

var _ = Describe("An expression that fails", func() {
	describe := func(req *ratelimit.Request, changes ...func(*bucketconfig.Record)) ratelimit.Description {
		GinkgoHelper()
		return ratelimit.NewSet(compile(changes...)).Describe(req)
	}

	It("is told of once for each limit that asked, and for what is exempt", func() {
		byExpression := keyedBy(bucketconfig.KeyPart{Type: "Expression", Name: "request.headers['x-n']", WhenMissing: "Share"})
		set := ratelimit.NewSet(compile(exempt(when(failing)), limits(
			limit("asks", matching(when(failing), when(failing))), limit("asks-again", matching(when(failing))), limit("plain"),
			limit("keyed", byExpression), limit("keyed-too", byExpression), limit("elsewhere", matching(func() bucketconfig.Match {
				m := path("Exact", "/x")
				m.When = failing
				return m
			}()), byExpression),
		)))
		names := func(req *ratelimit.Request) (names []string) {
			for _, f := range set.Describe(req).Failures {
				if f.Limit == nil {
					names = append(names, "exempt")
					continue
				}
				Expect(f.Limit.Policy).To(BeIdenticalTo(f.Policy))
				names = append(names, f.Limit.Config.Name)
			}
			return names
		}
		Expect(names(request("/"))).To(ConsistOf("exempt", "asks", "asks-again", "keyed", "keyed-too"))
		Expect(names(request("/", "X-N", "1"))).To(BeEmpty(), "nothing is left of the request before")
	})

	It("exempts nothing", func() {
		Expect(describe(request("/"), exempt(when(failing))).Groups).To(HaveLen(1))
		Expect(describe(request("/", "X-N", "6"), exempt(when(failing))).Groups).To(BeEmpty())
		Expect(describe(request("/"), exempt(when(failing), path("Exact", "/"))).Groups).To(BeEmpty(), "another entry surely fits")
	})

	It("lets no request escape a limit", func() {
		one := limits(limit("a", matching(when(failing))))
		Expect(describe(request("/"), one).Groups).To(HaveLen(1))
		Expect(describe(request("/", "X-N", strings.Repeat("9", 9000)), one).Groups).To(HaveLen(1), "too long to be read")
		Expect(describe(request("/", "X-N", "1"), one).Groups).To(BeEmpty())
		both := path("Exact", "/x")
		both.When = failing
		Expect(describe(request("/"), limits(limit("a", matching(both)))).Groups).To(BeEmpty(), "another field does not fit")
	})

	// outcome is what becomes of a request without X-N under these overrides.
	outcome := func(os ...bucketconfig.Override) string {
		GinkgoHelper()
		d := describe(request("/", "X-Plan", "gold"), limits(limit("a", overriddenBy(os...))))
		switch {
		case d.Deny != nil:
			return d.Deny.Override.Name
		case len(d.Groups) == 0:
			return "unlimited"
		case d.Groups[0].Charges[0].Limit.Override != nil:
			return d.Groups[0].Charges[0].Limit.Override.Name
		}
		return "limit"
	}
	with := func(o bucketconfig.Override, refill int64) bucketconfig.Override {
		o.Bucket.RefillTokens = refill
		return o
	}
	gold := plan("Exact", "gold")
	DescribeTable("leaves the stricter of an override and what else would be",
		func(want string, os ...bucketconfig.Override) { Expect(outcome(os...)).To(Equal(want)) },
		Entry("a denial denies", "deny", denied("deny", when(failing))),
		Entry("a denial denies before what surely fits", "deny", denied("deny", when(failing)), unlimited("free", gold)),
		Entry("a denial denies only before it", "unlimited", unlimited("free", gold), denied("deny", when(failing))),
		Entry("unlimited is not", "limit", unlimited("free", when(failing))),
		Entry("unlimited gives way to what surely fits", "gold", unlimited("free", when(failing)), sized("gold", 100, gold)),
		Entry("a faster bucket is not given", "limit", with(sized("big", 10, when(failing)), 6)),
		Entry("a slower bucket is", "small", sized("small", 1000, when(failing))),
		Entry("a smaller bucket of one rate is", "small", with(sized("small", 19, when(failing)), 5)),
		Entry("a larger bucket of one rate is not", "limit", with(sized("big", 21, when(failing)), 5)),
		Entry("the strictest of several", "b", with(sized("a", 20, when(failing)), 3), sized("b", 20, when(failing)), with(sized("c", 20, gold), 4)),
		Entry("a slower bucket before unlimited", "small", sized("small", 10, when(failing)), unlimited("free", gold)),
	)

	DescribeTable("takes the dearest cost that it may be",
		func(want int64, rs ...bucketconfig.CostRule) {
			d := describe(request("/", "X-Plan", "gold"), limits(limit("a", func(l *bucketconfig.Limit) { l.Cost = 5 }, rules(rs...))))
			Expect(d.Groups[0].Charges[0].Cost).To(Equal(want))
		},
		Entry("a dear rule", int64(10), costs(10, when(failing))),
		Entry("a cheap rule", int64(5), costs(1, when(failing))),
		Entry("a dear rule, then one that surely fits", int64(10), costs(10, when(failing)), costs(2, gold)),
		Entry("a cheap rule, then one that surely fits", int64(9), costs(2, when(failing)), costs(9, gold)),
		Entry("two dear rules", int64(12), costs(10, when(failing)), costs(12, when(failing+" "))),
	)

	It("makes a key part missing, as an empty string does", func() {
		keyed := func(whenMissing string) func(*bucketconfig.Record) {
			return limits(limit("a", keyedBy(bucketconfig.KeyPart{Type: "Expression", Name: "request.headers['x-n']", WhenMissing: whenMissing})))
		}
		for _, req := range []*ratelimit.Request{request("/"), request("/", "X-N", "")} {
			Expect(describe(req, keyed("Share")).Groups).To(HaveLen(1))
			Expect(describe(req, keyed("Skip")).Groups).To(BeEmpty())
			d := describe(req, keyed("Deny"))
			Expect(d.Deny.KeyPart.Type).To(Equal("Expression"))
		}
		shared := tagOf(compile(keyed("Share")), request("/"))
		Expect(tagOf(compile(keyed("Share")), request("/", "X-N", "1"))).NotTo(Equal(shared))
	})
})

var _ = Describe("Keys by an expression", func() {
	by := func(text string) *ratelimit.Policy {
		return compile(byPeer, limits(limit("a", keyedBy(bucketconfig.KeyPart{Type: "Expression", Name: text, WhenMissing: "Share"}))))
	}

	It("tell buckets apart by what it gives", func() {
		p := by("request.path.split('/')[1] + request.headers[?'x-tenant'].orValue('')")
		first := tagOf(p, request("/a/1", "X-Tenant", "t"))
		Expect(tagOf(p, request("/%61/2", "X-Tenant", "t"))).To(Equal(first))
		Expect(tagOf(p, request("/b/1", "X-Tenant", "t"))).NotTo(Equal(first))
		Expect(tagOf(p, request("/a/1", "X-Tenant", "u"))).NotTo(Equal(first))
	})

	It("are others for another expression, whatever it gives", func() {
		Expect(tagOf(by("request.method"), request("/"))).NotTo(Equal(tagOf(by("request.method + ''"), request("/"))))
		Expect(tagOf(by("request.method"), request("/"))).NotTo(Equal(tagOf(compile(limits(limit("a", keyedBy(part("Method", "", "Share"))))), request("/"))))
	})

	It("know clients as the policy does", func() {
		req := request("/")
		first := tagOf(by("request.clientIP"), req)
		req.Peer = netip.MustParseAddr("192.0.2.2")
		Expect(tagOf(by("request.clientIP"), req)).NotTo(Equal(first))
	})
})

var _ = Describe("Compiling expressions", func() {
	DescribeTable("refuses with the field, the expression and what CEL says",
		func(message string, changes ...func(*bucketconfig.Record)) {
			_, err := ratelimit.Compile(record(changes...), nil)
			Expect(err).To(MatchError(ContainSubstring(message)))
		},
		Entry("exempt", `exempt[0].when: "request.body == ''": must be a CEL expression on request: line 1, column 8: undefined field 'body'`, exempt(when("request.body == ''"))),
		Entry("a limit's match", `limit "a": matches[0].when: "request.method": gives a value of type string`, limits(limit("a", matching(when("request.method"))))),
		Entry("an override's", `overrides[0].matches[0].when: "1"`, limits(limit("a", overriddenBy(denied("d", when("1")))))),
		Entry("a cost rule's", `cost.fixed.rules[0].matches[0].when: "1"`, limits(limit("a", rules(costs(1, when("1")))))),
		Entry("a key part", `keyParts[0].expression.value: "true": gives a value of type bool: must give a string`, limits(limit("a", keyedBy(part("Expression", "true", "Share"))))),
		Entry("a key part without one", "keyParts[0].expression.value: \"\": is empty", limits(limit("a", keyedBy(part("Expression", "", "Share"))))),
		Entry("a client that nobody states", "request.clientIP needs the policy's clientIP stated", exempt(when("has(request.clientIP)"))),
		Entry("a header that servers take out", `exempt[0].when: "transfer-encoding": HTTP servers take it out`, exempt(when("'transfer-encoding' in request.headers"))),
		Entry("a header of one connection alone", `exempt[0].when: "proxy-authorization": is meant for one connection alone`, exempt(when("'proxy-authorization' in request.headers"))),
	)

	distinct := func(n int, text string) func(*bucketconfig.Record) {
		var many []bucketconfig.Override
		for i := range n {
			many = append(many, denied(fmt.Sprint("o", i), when(fmt.Sprintf(text, i))))
		}
		return limits(limit("a", overriddenBy(many...)))
	}
	It("bounds how many, how dear, and how large their patterns are, all together", func() {
		compile(distinct(64, "request.port == %d"))
		compile(distinct(64, "request.port == 1%.0d"), exempt(when("request.port == 1")))
		for message, change := range map[string][]func(*bucketconfig.Record){
			"the policy has more than 64 different expressions": {distinct(64, "request.port == %d"), exempt(when("request.port == 99"))},
			"together may cost more than 200000 of CEL's units": {distinct(64, "request.path.matches('^/[a-z]+/[a-z]+/[a-z]+/[a-z]+/%d$')")},
			"together compile to more than 50000 instructions":  {distinct(64, "request.method.matches('(a{100}){2}%d')"+strings.Repeat(" || request.method.matches('(a{100}){2}')", 3))},
		} {
			_, err := ratelimit.Compile(record(change...), nil)
			Expect(err).To(MatchError(ContainSubstring(message)))
		}
	})
})
