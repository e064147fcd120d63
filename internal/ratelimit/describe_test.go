package ratelimit_test

import (
	"fmt"
	"net/netip"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/ratelimit"
)

var _ = Describe("Matching", func() {
	DescribeTable("compares paths",
		func(kind, value, path string, want bool) {
			m := bucketconfig.Match{Path: &bucketconfig.StringMatch{Type: kind, Value: value}}
			d := ratelimit.NewSet(compile(limits(limit("a", matching(m))))).Describe(request(path))
			Expect(d.Groups).To(HaveLen(map[bool]int{true: 1}[want]))
		},
		Entry("exact", "Exact", "/healthz", "/healthz", true),
		Entry("exact, slash at the end", "Exact", "/healthz", "/healthz/", false),
		Entry("exact, other case", "Exact", "/healthz", "/Healthz", false),
		Entry("exact, encoded", "Exact", "/healthz", "/%68ealthz", true),
		Entry("exact, doubled slash and dots", "Exact", "/a/b", "//a/.//x/../b", true),
		Entry("exact, reserved character encoded", "Exact", "/users/@me", "/users/%40me", true),
		Entry("exact, not ASCII in the policy", "Exact", "/café", "/caf%c3%a9", true),
		Entry("exact, an encoded slash is none", "Exact", "/a/b", "/a%2fb", false),
		Entry("prefix, itself", "PathPrefix", "/api", "/api", true),
		Entry("prefix, below", "PathPrefix", "/api", "/api/x/y", true),
		Entry("prefix, by elements", "PathPrefix", "/api", "/apiv2", false),
		Entry("prefix, escaped from", "PathPrefix", "/api", "/api/../admin", false),
		Entry("prefix, entered by dots", "PathPrefix", "/api", "/x/%2e%2e/api/y", true),
		Entry("prefix with a slash at its end", "PathPrefix", "/api/", "/api", true),
		Entry("prefix of everything", "PathPrefix", "/", "/x", true),
		Entry("prefix of everything, the root", "PathPrefix", "/", "", true),
		Entry("expression, whole value", "RegularExpression", "/users/[0-9]+", "/users/12", true),
		Entry("expression, no part", "RegularExpression", "/users/[0-9]+", "/users/12/x", false),
		Entry("expression, alternatives are anchored too", "RegularExpression", "/a|/b", "/bc", false),
		Entry("expression, end of line is no end", "RegularExpression", "/a$", "/a%0Ab", false),
		Entry("expression over the normal form", "RegularExpression", "/a/b", "/a//b", true),
	)

	DescribeTable("compares headers",
		func(kind, value string, lines []string, want bool) {
			req := request("/")
			for _, line := range lines {
				req.Header.Add("X-Plan", line)
			}
			d := ratelimit.NewSet(compile(limits(limit("a", matching(headerMatch(kind, "x-pLAN", value)))))).Describe(req)
			Expect(d.Groups).To(HaveLen(map[bool]int{true: 1}[want]))
		},
		Entry("exact", "Exact", "free", []string{"free"}, true),
		Entry("exact, other case of the value", "Exact", "free", []string{"Free"}, false),
		Entry("missing", "RegularExpression", ".*", nil, false),
		Entry("empty counts as missing", "RegularExpression", ".*", []string{""}, false),
		Entry("empty lines count as missing", "RegularExpression", ".*", []string{"", ""}, false),
		Entry("repeated lines are joined in order", "Exact", "free, gold", []string{"free", "gold"}, true),
		Entry("repeated lines, the other order", "Exact", "free, gold", []string{"gold", "free"}, false),
		Entry("prefix", "Prefix", "fr", []string{"free"}, true),
		Entry("prefix, else", "Prefix", "fr", []string{"xfr"}, false),
		Entry("expression, whole value", "RegularExpression", "f.*e", []string{"free"}, true),
		Entry("expression, no part", "RegularExpression", "re", []string{"free"}, false),
	)

	It("ANDs what one entry says and ORs entries and methods", func() {
		both := path("PathPrefix", "/api")
		both.Methods = []string{"POST", "PUT"}
		both.Headers = headerMatch("Exact", "X-Plan", "free").Headers
		set := ratelimit.NewSet(compile(limits(limit("a", matching(both, path("Exact", "/other"))))))

		put := request("/api/x", "X-Plan", "free")
		put.Method = "PUT"
		Expect(governing(set.Describe(put))).To(HaveLen(1))
		Expect(governing(set.Describe(request("/api/x", "X-Plan", "free")))).To(BeEmpty(), "method")
		put.Header.Set("X-Plan", "gold")
		Expect(governing(set.Describe(put))).To(BeEmpty(), "header")
		Expect(governing(set.Describe(request("/other")))).To(HaveLen(1), "second entry")
	})

	It("exempts from all limits of one policy, and of no other", func() {
		set := ratelimit.NewSet(
			compile(named("z"), limits(limit("a"), limit("b", matching(path("PathPrefix", "/healthz")))), exempt(path("Exact", "/healthz"))),
			compile(named("y")))
		Expect(governing(set.Describe(request("/healthz")))).To(Equal([]string{"y/all"}))
		Expect(governing(set.Describe(request("/healthz/x")))).To(Equal([]string{"y/all", "z/a", "z/b"}))
	})
})

var _ = Describe("Set", func() {
	It("holds nothing when nil or empty", func() {
		var none *ratelimit.Set
		Expect(none.Policies()).To(BeEmpty())
		Expect(none.Describe(request("/"))).To(Equal(ratelimit.Description{}))
		Expect(ratelimit.NewSet().Describe(request("/"))).To(Equal(ratelimit.Description{}))
	})

	It("describes requests at once as it does one by one", func() {
		p := compile(peers, limits(
			limit("a", matching(path("Template", "/users/{id}")), keyedBy(part("PathVariable", "id", "Share"))),
			limit("b", keyedBy(part("Query", "q", "Share"), part("Cookie", "c", "Share"), part("Claim", "sub", "Share"), client("Share")))))
		set := ratelimit.NewSet(p, compile(named("other"), limits(limit("c", keyedBy(part("Query", "r", "Share"))))))
		req := func(i int) *ratelimit.Request {
			r := request(fmt.Sprint("/users/", i), "Cookie", fmt.Sprint("c=", i), "Authorization", token(fmt.Sprintf(`{"sub":%d}`, i)))
			r.Query = fmt.Sprintf("q=%d&r=%d", i, i)
			return r
		}
		var running sync.WaitGroup
		for i := range 8 {
			want := ratelimit.NewSet(set.Policies()...).Describe(req(i))
			running.Go(func() {
				defer GinkgoRecover()
				for range 100 {
					Expect(set.Describe(req(i)).Groups).To(Equal(want.Groups))
				}
			})
		}
		running.Wait()
	})

	It("orders policies by name", func() {
		set := ratelimit.NewSet(compile(named("b")), compile(named("a")))
		Expect(governing(set.Describe(request("/")))).To(Equal([]string{"a/all", "b/all"}))
		Expect(set.Policies()[0].Record.Name).To(Equal("a"))
	})
})

var _ = Describe("Key parts", func() {
	key := func(whenMissing string) *ratelimit.Policy {
		return compile(limits(limit("a", keyedBy(header("X-Api-Key", whenMissing)))))
	}

	It("give each value a bucket of its own, whatever the case of the name", func() {
		p := compile(limits(limit("a", keyedBy(header("x-api-KEY", "Share")))))
		one := tagOf(p, request("/", "X-Api-Key", "one"))
		Expect(tagOf(p, request("/other", "x-api-key", "one"))).To(Equal(one))
		Expect(tagOf(p, request("/", "X-Api-Key", "two"))).NotTo(Equal(one))
		Expect(tagOf(p, request("/", "X-Api-Key", "one", "X-Api-Key", "two"))).NotTo(Equal(one))
		Expect(tagOf(key("Share"), request("/", "X-Api-Key", "one"))).To(Equal(one), "the name is canonical in the tag too")
	})

	It("share one bucket when missing, apart from every value", func() {
		p := key("Share")
		shared := tagOf(p, request("/"))
		Expect(tagOf(p, request("/", "X-Api-Key", ""))).To(Equal(shared), "an empty value counts as missing")
		for _, value := range []string{"0", "1", "=", "missing", "\x00"} {
			Expect(tagOf(p, request("/", "X-Api-Key", value))).NotTo(Equal(shared))
		}
	})

	It("skip the limit when missing", func() {
		p := compile(limits(limit("a", keyedBy(header("X-Api-Key", "Skip"))), limit("b")))
		Expect(governing(ratelimit.NewSet(p).Describe(request("/")))).To(Equal([]string{"checkout/b"}))
	})

	It("deny when missing, and then ask for nothing", func() {
		p := compile(limits(limit("b"), limit("a", keyedBy(header("X-Api-Key", "Deny")))))
		d := ratelimit.NewSet(p).Describe(request("/"))
		Expect(d.Groups).To(BeEmpty())
		Expect(d.Deny.Limit.QualifiedName).To(Equal("checkout/a"))
		Expect(d.Deny.KeyPart.Name).To(Equal("X-Api-Key"))
		Expect(ratelimit.NewSet(p).Describe(request("/", "X-Api-Key", "k")).Deny).To(BeNil())
	})

	It("deny only requests that the limit matches", func() {
		p := compile(limits(limit("a", matching(path("Exact", "/x")), keyedBy(header("X-Api-Key", "Deny")))))
		Expect(ratelimit.NewSet(p).Describe(request("/y")).Deny).To(BeNil())
	})

	It("only report what a shadow would deny", func() {
		p := compile(shadow, limits(limit("a", keyedBy(header("X-Api-Key", "Deny"))), limit("b")))
		d := ratelimit.NewSet(p).Describe(request("/"))
		Expect(d.Deny).To(BeNil())
		Expect(d.ShadowDenials).To(HaveLen(1))
		Expect(d.ShadowDenials[0].Limit.QualifiedName).To(Equal("checkout/a"))
		Expect(governing(d)).To(Equal([]string{"checkout/b"}))
	})

	It("skip when any part says so, even where another denies", func() {
		p := compile(limits(limit("a", keyedBy(header("X-A", "Deny"), header("X-B", "Skip")))))
		d := ratelimit.NewSet(p).Describe(request("/"))
		Expect(d.Deny).To(BeNil())
		Expect(d.Groups).To(BeEmpty())
	})
})

var _ = Describe("Groups", func() {
	It("hold the limits of one policy that share their key, in whatever order its parts were written", func() {
		p := compile(limits(
			limit("a", keyedBy(header("X-A", "Share"), header("X-B", "Share"))),
			limit("other"),
			limit("b", keyedBy(header("x-b", "Skip"), header("X-A", "Share")), func(l *bucketconfig.Limit) { l.Cost = 3 }),
		))
		d := ratelimit.NewSet(p).Describe(request("/", "X-A", "1", "X-B", "2"))
		Expect(d.Groups).To(HaveLen(2))
		Expect(d.Groups[0].Charges).To(Equal([]ratelimit.Charge{{Limit: p.Limits[0], Cost: 1}, {Limit: p.Limits[2], Cost: 3}}))
		Expect(d.Groups[1].Charges).To(Equal([]ratelimit.Charge{{Limit: p.Limits[1], Cost: 1}}))
		Expect(d.Groups[0].Tag).NotTo(Equal(d.Groups[1].Tag))

		d = ratelimit.NewSet(p).Describe(request("/", "X-A", "1"))
		Expect(governing(d)).To(Equal([]string{"checkout/a", "checkout/other"}))
	})

	It("don't let one group's charges grow into the next", func() {
		d := ratelimit.NewSet(compile(named("a")), compile(named("b"))).Describe(request("/"))
		_ = append(d.Groups[0].Charges, ratelimit.Charge{Cost: 99})
		Expect(d.Groups[1].Charges[0].Cost).To(Equal(int64(1)))
	})

	It("tell policies, values and secrets apart", func() {
		keyed := limits(limit("a", keyedBy(header("X-A", "Share"), header("X-B", "Share"))))
		p := compile(keyed)
		tags := []string{
			tagOf(p, request("/", "X-A", "1")),
			tagOf(p, request("/", "X-B", "1")),
			tagOf(p, request("/", "X-A", "1", "X-B", "1")),
			tagOf(p, request("/", "X-A", "11")),
			tagOf(p, request("/")),
			tagOf(compile(named("other"), keyed), request("/", "X-A", "1")),
			tagOf(compile(keyed, func(r *bucketconfig.Record) { r.Kind = "ClusterRateLimitPolicy" }), request("/", "X-A", "1")),
			tagOf(compile(), request("/")),
			tagOf(compile(named("other")), request("/")),
		}
		other, err := ratelimit.Compile(record(keyed), []byte("another secret of the same length"))
		Expect(err).NotTo(HaveOccurred())
		tags = append(tags, tagOf(other, request("/", "X-A", "1")))
		seen := map[string]bool{}
		for _, tag := range tags {
			Expect(seen).NotTo(HaveKey(tag))
			seen[tag] = true
		}
	})
})

var _ = Describe("Client addresses", func() {
	peer := clientFrom(bucketconfig.ClientIP{Type: "Peer"})
	forwarded := clientFrom(bucketconfig.ClientIP{Type: "XForwardedFor", TrustedProxies: []string{"10.42.7.0/24", "2001:db8:f::/48", "::ffff:192.168.0.0/112"}})
	keyed := limits(limit("a", keyedBy(client("Deny"))))

	// sameClient compares the bucket of a request with that of a peer whose address is taken as it is.
	tag := func(p *ratelimit.Policy, from string, headers ...string) string {
		GinkgoHelper()
		req := request("/", headers...)
		req.Peer = netip.Addr{}
		if from != "" {
			req.Peer = netip.MustParseAddr(from)
		}
		d := ratelimit.NewSet(p).Describe(req)
		if d.Deny != nil {
			return "unknown"
		}
		return d.Groups[0].Tag
	}

	DescribeTable("of the peer",
		func(a, b string, same bool) {
			p := compile(peer, keyed)
			if same {
				Expect(tag(p, a)).To(Equal(tag(p, b)))
			} else {
				Expect(tag(p, a)).NotTo(Equal(tag(p, b)))
			}
		},
		Entry("IPv4, each address", "192.0.2.1", "192.0.2.2", false),
		Entry("IPv4-mapped is folded", "::ffff:192.0.2.1", "192.0.2.1", true),
		Entry("IPv6, one /64", "2001:db8::1", "2001:db8::ffff:1", true),
		Entry("IPv6, two /64", "2001:db8:0:1::1", "2001:db8:0:2::1", false),
		Entry("a zone is dropped", "fe80::1%eth0", "fe80::1%eth1", true),
	)

	It("keep what the prefix lengths keep", func() {
		p := compile(clientFrom(bucketconfig.ClientIP{Type: "Peer", IPv4PrefixLength: 24, IPv6PrefixLength: 128}), keyed)
		Expect(tag(p, "192.0.2.1")).To(Equal(tag(p, "192.0.2.200")))
		Expect(tag(p, "192.0.2.1")).NotTo(Equal(tag(p, "192.0.3.1")))
		Expect(tag(p, "2001:db8::1")).NotTo(Equal(tag(p, "2001:db8::2")))
	})

	It("of the peer ignore X-Forwarded-For", func() {
		p := compile(peer, keyed)
		Expect(tag(p, "192.0.2.1", "X-Forwarded-For", "198.51.100.9")).To(Equal(tag(p, "192.0.2.1")))
	})

	It("are unknown without a peer", func() {
		Expect(tag(compile(peer, keyed), "")).To(Equal("unknown"))
		Expect(tag(compile(forwarded, keyed), "", "X-Forwarded-For", "198.51.100.9")).To(Equal("unknown"))
	})

	DescribeTable("of X-Forwarded-For, read from right to left past trusted proxies",
		func(from string, lines []string, want string) {
			p := compile(forwarded, keyed)
			headers := []string{}
			for _, line := range lines {
				headers = append(headers, "X-Forwarded-For", line)
			}
			if want != "unknown" {
				want = tag(p, want)
			}
			Expect(tag(p, from, headers...)).To(Equal(want))
		},
		Entry("by an untrusted peer: ignored", "192.0.2.1", []string{"198.51.100.9"}, "192.0.2.1"),
		Entry("by a trusted peer", "10.42.7.3", []string{"198.51.100.9"}, "198.51.100.9"),
		Entry("by a trusted IPv6 peer", "2001:db8:f::1", []string{"198.51.100.9"}, "198.51.100.9"),
		Entry("by a peer trusted in mapped form", "192.168.0.1", []string{"198.51.100.9"}, "198.51.100.9"),
		Entry("what the client wrote is never reached", "10.42.7.3", []string{"203.0.113.7, 198.51.100.9"}, "198.51.100.9"),
		Entry("nor in a line of its own", "10.42.7.3", []string{"203.0.113.7", "198.51.100.9"}, "198.51.100.9"),
		Entry("two trusted hops", "10.42.7.3", []string{"203.0.113.7, 198.51.100.9, 10.42.7.9"}, "198.51.100.9"),
		Entry("two trusted hops over lines", "10.42.7.3", []string{"198.51.100.9", "10.42.7.9"}, "198.51.100.9"),
		Entry("with a port", "10.42.7.3", []string{"198.51.100.9:4711"}, "198.51.100.9"),
		Entry("IPv6 with a port", "10.42.7.3", []string{"[2001:db8::9]:4711"}, "2001:db8::9"),
		Entry("IPv6 in brackets", "10.42.7.3", []string{"[2001:db8::9]"}, "2001:db8::9"),
		Entry("IPv4-mapped", "10.42.7.3", []string{"::ffff:198.51.100.9"}, "198.51.100.9"),
		Entry("with a zone", "10.42.7.3", []string{"fe80::1%eth0"}, "fe80::1"),
		Entry("empty elements are ignored", "10.42.7.3", []string{" 198.51.100.9 ,, ", ""}, "198.51.100.9"),
		Entry("no header", "10.42.7.3", nil, "unknown"),
		Entry("trusted all the way", "10.42.7.3", []string{"10.42.7.8,10.42.7.9"}, "unknown"),
		Entry("unreadable entry", "10.42.7.3", []string{"198.51.100.9, unknown"}, "unknown"),
		Entry("unreadable entry left of the client", "10.42.7.3", []string{"rubbish, 198.51.100.9"}, "198.51.100.9"),
		Entry("unreadable brackets", "10.42.7.3", []string{"[198.51.100.9]"}, "unknown"),
	)

	It("are a missing key part when unknown", func() {
		p := compile(forwarded, limits(limit("a", keyedBy(client("Share")))))
		Expect(tag(p, "10.42.7.3")).To(Equal(tag(p, "10.42.7.4")))
		Expect(tag(p, "10.42.7.3")).NotTo(Equal(tag(p, "192.0.2.1")))
	})
})

var _ = Describe("NormalizePath", func() {
	DescribeTable("gives every path one spelling",
		func(path, want string) { Expect(ratelimit.NormalizePath(path)).To(Equal(want)) },
		Entry("normal", "/a/b.c-d_e~f", "/a/b.c-d_e~f"),
		Entry("empty", "", "/"),
		Entry("of OPTIONS", "*", "*"),
		Entry("no slash", "a", "/a"),
		Entry("slash at the end", "/a/", "/a/"),
		Entry("doubled slashes", "//a///b//", "/a/b/"),
		Entry("dot", "/./a/./b/.", "/a/b/"),
		Entry("dots", "/a/b/../c/..", "/a/"),
		Entry("above the root", "/../../a", "/a"),
		Entry("all gone", "/a/..", "/"),
		Entry("names that start with dots", "/.a/..b/...", "/.a/..b/..."),
		Entry("encoded dots", "/a/%2E%2e/b", "/b"),
		Entry("unreserved", "/%7Eu/%41", "/~u/A"),
		Entry("reserved in an element", "/a%3Bb%40c%3a", "/a;b@c:"),
		Entry("encoded slash", "/a%2fb", "/a%2Fb"),
		Entry("encoded backslash", `/a%5cb\c`, "/a%5Cb%5Cc"),
		Entry("percent", "/a%25b", "/a%25b"),
		Entry("no escape", "/a%zz%4", "/a%25zz%254"),
		Entry("an escape made of escapes", "/%%32%65", "/%252e"),
		Entry("encoded twice", "/a/%252e%252e/b", "/a/%252e%252e/b"),
		Entry("not ASCII", "/é\xff", "/%C3%A9%FF"),
		Entry("control characters", "/a%00\n", "/a%00%0A"),
		Entry("question mark and hash", "/a%3Fb%23c#d", "/a%3Fb%23c%23d"),
	)
})
