package ratelimit_test

import (
	"encoding/base64"
	"net/netip"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/ratelimit"
)

func part(kind, name, whenMissing string) bucketconfig.KeyPart {
	return bucketconfig.KeyPart{Type: kind, Name: name, WhenMissing: whenMissing}
}

// token is a bearer token with these claims, in JSON, which nobody signed.
func token(claims string) string {
	return "Bearer " + base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"
}

// with changes a request.
func with(change func(*ratelimit.Request), headers ...string) *ratelimit.Request {
	req := request("/", headers...)
	change(req)
	return req
}

func query(q string) *ratelimit.Request { return with(func(r *ratelimit.Request) { r.Query = q }) }

func host(h string) *ratelimit.Request { return with(func(r *ratelimit.Request) { r.Host = h }) }

func peer(addr string) *ratelimit.Request {
	return with(func(r *ratelimit.Request) { r.Peer = netip.MustParseAddr(addr) })
}

var peers = clientFrom(bucketconfig.ClientIP{Type: "Peer"})

var _ = Describe("A client can't choose its bucket by", func() {
	DescribeTable("another spelling",
		func(p bucketconfig.KeyPart, spellings ...*ratelimit.Request) {
			policy := compile(peers, limits(limit("a", keyedBy(p))))
			for _, req := range spellings[1:] {
				Expect(tagOf(policy, req)).To(Equal(tagOf(policy, spellings[0])), "%+v", req)
			}
		},
		Entry("of a header's name", part("Header", "X-Api-Key", "Share"), request("/", "X-Api-Key", "k"), request("/", "x-api-KEY", "k")),
		Entry("of the host", part("Host", "", "Share"), host("shop.example"), host("Shop.EXAMPLE"), host("shop.example."), host("shop.example:8080"), host("shop.example.:8080")),
		Entry("of an IPv6 host", part("Host", "", "Share"), host("[2001:db8::1]"), host("[2001:DB8:0::1]:8080"), host("[2001:db8:0:0:0:0:0:1]")),
		Entry("of an IPv4 host", part("Host", "", "Share"), host("192.0.2.1"), host("[::ffff:192.0.2.1]"), host("[::ffff:c000:201]:80")),
		Entry("of a query parameter", part("Query", "k", "Share"), query("k=abc"), query("k=%61bc"), query("%6B=abc"), query("x=1&k=abc&k=other")),
		Entry("of a cookie", part("Cookie", "sid", "Share"), request("/", "Cookie", "sid=abc"), request("/", "Cookie", "x=1;sid=%61bc"),
			request("/", "Cookie", `sid="abc"`), request("/", "Cookie", "sid=abc; sid=other"), request("/", "Cookie", "x=1", "Cookie", "sid=abc")),
		Entry("of a token", part("Claim", "sub", "Share"), request("/", "Authorization", token(`{"sub":"u1"}`)), request("/", "Authorization", token(`{ "iat":1, "sub":"\u00751" }`)),
			request("/", "Authorization", strings.Replace(token(`{"sub":"u1"}`), "Bearer ", "bearer  ", 1))),
		Entry("of the address", part("ClientIP", "", "Share"), peer("192.0.2.1"), peer("::ffff:192.0.2.1"), peer("::ffff:c000:201"), peer("64:ff9b::192.0.2.1")),
		Entry("or by X-Forwarded-For of its own", part("ClientIP", "", "Share"), request("/"), request("/", "X-Forwarded-For", "198.51.100.9"), request("/", "X-Forwarded-For", "a", "X-Real-Ip", "b")),
	)

	DescribeTable("another spelling of the path",
		func(spelling string) {
			byUser := limits(limit("a", matching(path("Template", "/users/{id}/orders")), keyedBy(part("PathVariable", "id", "Share"))))
			p := compile(byUser)
			Expect(tagOf(p, request(spelling))).To(Equal(tagOf(p, request("/users/a@b/orders"))))
		},
		Entry("encoded", "/users/%61%40b/orders"),
		Entry("encoded, another case", "/%75sers/a%40b/%6frders"),
		Entry("double slashes", "//users///a@b/orders"),
		Entry("dot segments", "/./users/a@b/x/../orders"),
		Entry("encoded dot segments", "/users/a@b/x/%2e%2E/orders"),
	)
})

var _ = Describe("Key parts", func() {
	DescribeTable("give each value a bucket of its own, and those without one shared, apart from every value",
		func(p bucketconfig.KeyPart, one, two *ratelimit.Request, missing ...*ratelimit.Request) {
			policy := compile(peers, limits(limit("a", keyedBy(p))))
			tags := map[string]bool{tagOf(policy, one): true, tagOf(policy, two): true}
			Expect(tags).To(HaveLen(2))
			for _, req := range missing {
				tags[tagOf(policy, req)] = true
				Expect(tags).To(HaveLen(3))
			}
		},
		Entry("Method", part("Method", "", "Share"), request("/"), with(func(r *ratelimit.Request) { r.Method = "PUT" })),
		Entry("Host", part("Host", "", "Share"), host("a.example"), host("b.example"), host(""), host(":80"), host(".")),
		Entry("Query", part("Query", "k", "Share"), query("k=a"), query("k=b"), query(""), query("k"), query("k="), query("K=a"), query("=k")),
		Entry("Cookie", part("Cookie", "sid", "Share"), request("/", "Cookie", "sid=a"), request("/", "Cookie", "sid=b"),
			request("/"), request("/", "Cookie", "sid="), request("/", "Cookie", `sid=""`), request("/", "Cookie", "sid"), request("/", "Cookie", ";=;a=b")),
		Entry("Workload", part("Workload", "", "Share"), with(func(r *ratelimit.Request) { r.Workload = "deployment/web" }),
			with(func(r *ratelimit.Request) { r.Workload = "deployment/api" }), request("/")),
		Entry("Claim", part("Claim", "sub", "Share"), request("/", "Authorization", token(`{"sub":"a"}`)), request("/", "Authorization", token(`{"sub":"b"}`)),
			request("/"),
			request("/", "Authorization", token(`{"sub":""}`)),
			request("/", "Authorization", token(`{"sub":null}`)),
			request("/", "Authorization", token(`{"sub":["a"]}`)),
			request("/", "Authorization", token(`{"sub":{"a":"a"}}`)),
			request("/", "Authorization", token(`{"Sub":"a"}`)),
			request("/", "Authorization", token(`["sub"]`)),
			request("/", "Authorization", token(`{"sub":"a"`)),
			request("/", "Authorization", token(`{"sub":"a"}`)+".more"),
			request("/", "Authorization", "Basic YTpi"),
			request("/", "Authorization", "Bearer opaque"),
			request("/", "Authorization", "Bearer a.b"),
			request("/", "Authorization", "Bearer a.!.c"),
			request("/", "Authorization", token(`{"sub":"a"}`), "Authorization", token(`{"sub":"b"}`)),
			request("/", "Authorization", token(`{"sub":"`+strings.Repeat("a", 16<<10)+`"}`))),
	)

	DescribeTable("read a claim of any simple type, by its name or a path",
		func(name, claims, same string) {
			p := compile(limits(limit("a", keyedBy(part("Claim", name, "Deny")))))
			equal := compile(limits(limit("a", keyedBy(part("Claim", name, "Deny")))))
			whole, err := base64.RawURLEncoding.DecodeString("e30") // {}
			Expect(err).NotTo(HaveOccurred())
			Expect(ratelimit.NewSet(p).Describe(request("/", "Authorization", token(string(whole)))).Deny).NotTo(BeNil())
			Expect(tagOf(p, request("/", "Authorization", token(claims)))).To(Equal(tagOf(equal, request("/", "Authorization", token(same)))))
		},
		Entry("a number keeps its digits", "n", `{"n":12345678901234567890}`, `{"n":"12345678901234567890"}`),
		Entry("a boolean", "b", `{"b":true}`, `{"b":"true"}`),
		Entry("nested", "org.team.id", `{"org":{"team":{"id":"x"}}}`, `{"org.team.id":"x"}`),
		Entry("a name with dots comes first", "https://example.com/t", `{"https://example.com/t":"x","https://example":{"com/t":"y"}}`, `{"https://example.com/t":"x"}`),
	)

	It("of a claim let the app see the one token that was read", func() {
		set := ratelimit.NewSet(compile(limits(limit("a", keyedBy(part("Claim", "sub", "Share"))))))
		req := request("/", "Authorization", "Bearer a", "Authorization", "Bearer b", "X-Other", "1", "X-Other", "2")
		set.JoinRepeated(req.Header)
		Expect(req.Header["Authorization"]).To(Equal([]string{"Bearer a, Bearer b"}))
		Expect(req.Header["X-Other"]).To(HaveLen(2))
	})

	It("tell kinds and names apart", func() {
		req := with(func(r *ratelimit.Request) { r.Query, r.Host, r.Method, r.Workload = "k=v&j=v", "v", "v", "v" }, "K", "v", "Cookie", "k=v", "Authorization", token(`{"k":"v"}`))
		tags := map[string]bool{}
		parts := []bucketconfig.KeyPart{
			part("Query", "k", "Share"), part("Query", "j", "Share"), part("Header", "K", "Share"), part("Cookie", "k", "Share"), part("Claim", "k", "Share"),
			part("Host", "", "Share"), part("Method", "", "Share"), part("Workload", "", "Share"),
		}
		for _, p := range parts {
			tags[tagOf(compile(limits(limit("a", keyedBy(p)))), req)] = true
		}
		Expect(tags).To(HaveLen(len(parts)))
	})

	DescribeTable("skip or deny when they are missing",
		func(p bucketconfig.KeyPart) {
			p.WhenMissing = "Skip"
			d := ratelimit.NewSet(compile(limits(limit("a", keyedBy(p))))).Describe(host(""))
			Expect(d.Groups).To(BeEmpty())
			Expect(d.Deny).To(BeNil())
			p.WhenMissing = "Deny"
			d = ratelimit.NewSet(compile(limits(limit("a", keyedBy(p))))).Describe(host(""))
			Expect(d.Deny.KeyPart.Type).To(Equal(p.Type))
		},
		Entry("Host", part("Host", "", "")),
		Entry("Query", part("Query", "k", "")),
		Entry("Cookie", part("Cookie", "k", "")),
		Entry("Claim", part("Claim", "k", "")),
		Entry("Workload", part("Workload", "", "")),
	)
})

var _ = Describe("Keys of the path", func() {
	byTemplate := keyedBy(part("PathTemplate", "", "Share"))
	byID := keyedBy(part("PathVariable", "id", "Share"))

	It("tell templates apart, and not the paths that fit one", func() {
		p := compile(limits(limit("a", matching(path("Template", "/users/{id}"), path("Template", "/items/{id}")), byTemplate)))
		Expect(tagOf(p, request("/users/1"))).To(Equal(tagOf(p, request("/users/2"))))
		Expect(tagOf(p, request("/users/1"))).NotTo(Equal(tagOf(p, request("/items/1"))))
	})

	It("are those of the first match that fits", func() {
		both := compile(limits(limit("a", matching(path("Template", "/users/{id}"), path("Template", "/{kind}/{id}")), byTemplate)))
		Expect(tagOf(both, request("/users/1"))).NotTo(Equal(tagOf(both, request("/items/1"))))
		Expect(tagOf(both, request("/users/1"))).To(Equal(tagOf(compile(limits(limit("a", matching(path("Template", "/users/{id}")), byTemplate))), request("/users/1"))))
	})

	It("tell values of a variable apart, wherever it stands", func() {
		p := compile(limits(limit("a", matching(path("Template", "/users/{id}/x"), path("Template", "/{kind}/y/{id}/")), byID)))
		Expect(tagOf(p, request("/users/1/x"))).To(Equal(tagOf(p, request("/items/y/1/"))), "the value alone counts")
		Expect(tagOf(p, request("/users/1/x"))).NotTo(Equal(tagOf(p, request("/users/2/x"))))
		Expect(tagOf(p, request("/users/a%2Fb/x"))).NotTo(Equal(tagOf(p, request("/users/a/x"))))
	})

	It("put limits into one group exactly when their values are the same", func() {
		p := compile(limits(
			limit("first", matching(path("Template", "/{id}/{other}")), byID),
			limit("second", matching(path("Template", "/{other}/{id}")), byID),
			limit("third", matching(path("Template", "/{id}/{x}")), byID),
			limit("plain"),
		))
		groups := func(path string) (names [][]string) {
			d := ratelimit.NewSet(p).Describe(request(path))
			tags := map[string]bool{}
			for _, g := range d.Groups {
				tags[g.Tag] = true
				var one []string
				for _, c := range g.Charges {
					one = append(one, c.Limit.Config.Name)
				}
				names = append(names, one)
			}
			Expect(tags).To(HaveLen(len(d.Groups)))
			return names
		}
		Expect(groups("/1/2")).To(Equal([][]string{{"first", "third"}, {"second"}, {"plain"}}))
		Expect(groups("/1/1")).To(Equal([][]string{{"first", "second", "third"}, {"plain"}}))
		Expect(groups("/1")).To(Equal([][]string{{"plain"}}))
	})

	It("share the other parts", func() {
		p := compile(limits(
			limit("a", matching(path("Template", "/{id}/x")), keyedBy(part("PathVariable", "id", "Share"), header("X-A", "Deny"))),
			limit("b", matching(path("Template", "/{id}/{y}")), keyedBy(header("X-A", "Skip"), part("PathVariable", "id", "Share"))),
		))
		d := ratelimit.NewSet(p).Describe(request("/1/x", "X-A", "1"))
		Expect(d.Groups).To(HaveLen(1))
		Expect(governing(d)).To(Equal([]string{"checkout/a", "checkout/b"}))
		Expect(ratelimit.NewSet(p).Describe(request("/1/x")).Deny.Limit.Config.Name).To(Equal("a"))
		Expect(ratelimit.NewSet(p).Describe(request("/1/y")).Groups).To(BeEmpty())
	})
})
