package ratelimit_test

import (
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/ratelimit"
)

// governed says whether a limit with this match governs a request.
func governed(m bucketconfig.Match, req *ratelimit.Request) bool {
	GinkgoHelper()
	p := compile(clientFrom(bucketconfig.ClientIP{Type: "Peer"}), limits(limit("a", matching(m))))
	return len(ratelimit.NewSet(p).Describe(req).Groups) == 1
}

func sha256Hex(value string) string {
	sum := sha256.Sum256([]byte(value))
	return hex.EncodeToString(sum[:])
}

var _ = Describe("Matching a host", func() {
	DescribeTable("compares names",
		func(pattern, host string, want bool) {
			req := request("/")
			req.Host = host
			Expect(governed(bucketconfig.Match{Hosts: []string{"other.example", pattern}}, req)).To(Equal(want))
		},
		Entry("itself", "shop.example", "shop.example", true),
		Entry("another", "shop.example", "shop.example.org", false),
		Entry("upper case", "shop.example", "SHOP.Example", true),
		Entry("upper case in the policy", "Shop.Example", "shop.example", true),
		Entry("a port", "shop.example", "shop.example:8080", true),
		Entry("a port that is none", "shop.example", "shop.example:", true),
		Entry("a dot at the end", "shop.example", "shop.example.", true),
		Entry("a dot at the end, then a port", "shop.example", "shop.example.:80", true),
		Entry("a dot at the end of the policy's", "shop.example.", "shop.example", true),
		Entry("below, but no pattern", "shop.example", "www.shop.example", false),
		Entry("below", "*.shop.example", "www.shop.example", true),
		Entry("far below", "*.shop.example", "a.b.shop.example", true),
		Entry("not the name itself", "*.shop.example", "shop.example", false),
		Entry("no part of a label", "*.shop.example", "wwwshop.example", false),
		Entry("nothing before the dot", "*.shop.example", ".shop.example", false),
		Entry("no host", "shop.example", "", false),
		Entry("an IPv6 address", "shop.example", "[2001:db8::1]:80", false),
		Entry("longer than any name", "*.shop.example", strings.Repeat("a.", 100_000)+"shop.example", false),
	)
})

var _ = Describe("Matching a query parameter", func() {
	match := func(kind, value string, values ...string) bucketconfig.Match {
		return bucketconfig.Match{QueryParams: []bucketconfig.NamedMatch{{Name: "plan", Type: kind, Value: value, Values: values}}}
	}
	DescribeTable("compares the first value, decoded",
		func(m bucketconfig.Match, query string, want bool) {
			req := request("/")
			req.Query = query
			Expect(governed(m, req)).To(Equal(want))
		},
		Entry("exact", match("Exact", "free"), "a=1&plan=free&b", true),
		Entry("exact, else", match("Exact", "free"), "plan=freely", false),
		Entry("names are case-sensitive", match("Exact", "free"), "Plan=free", false),
		Entry("missing", match("RegularExpression", ".*"), "a=plan", false),
		Entry("the first of several", match("Exact", "free"), "plan=free&plan=gold", true),
		Entry("not the second of several", match("Exact", "gold"), "plan=free&plan=gold", false),
		Entry("encoded value", match("Exact", "free"), "plan=%66r%65e", true),
		Entry("encoded name", match("Exact", "free"), "p%6Can=free", true),
		Entry("encoded separators", match("Exact", "a&b=c"), "plan=a%26b%3Dc", true),
		Entry("plus is a space", match("Exact", "a b"), "plan=a+b", true),
		Entry("encoded plus", match("Exact", "a+b"), "plan=a%2bb", true),
		Entry("an escape that is none", match("Exact", "100%"), "plan=100%", true),
		Entry("a semicolon separates nothing", match("Exact", "a;plan=b"), "plan=a;plan=b", true),
		Entry("prefix", match("Prefix", "fr"), "plan=free", true),
		Entry("expression", match("RegularExpression", "f.+"), "plan=free", true),
		Entry("expression, no part", match("RegularExpression", "re"), "plan=free", false),
		Entry("in", match("In", "", "gold", "free"), "plan=free", true),
		Entry("not in", match("In", "", "gold", "free"), "plan=silver", false),
		Entry("present", match("Present", ""), "plan=free", true),
		Entry("present, empty", match("Present", ""), "plan=", true),
		Entry("present, bare", match("Present", ""), "plan", true),
		Entry("not present", match("Present", ""), "plans=1&&=x", false),
		Entry("absent", match("Absent", ""), "", true),
		Entry("not absent", match("Absent", ""), "a&plan", false),
	)
})

var _ = Describe("Matching a cookie", func() {
	match := func(kind, value string, values ...string) bucketconfig.Match {
		return bucketconfig.Match{Cookies: []bucketconfig.NamedMatch{{Name: "tier", Type: kind, Value: value, Values: values}}}
	}
	DescribeTable("compares the first value",
		func(m bucketconfig.Match, lines []string, want bool) {
			req := request("/")
			if lines != nil {
				req.Header["Cookie"] = lines
			}
			Expect(governed(m, req)).To(Equal(want))
		},
		Entry("exact", match("Exact", "free"), []string{"a=1; tier=free; b=2"}, true),
		Entry("without spaces", match("Exact", "free"), []string{"a=1;tier=free;b=2"}, true),
		Entry("in a second line", match("Exact", "free"), []string{"a=1", "tier=free"}, true),
		Entry("the first of several", match("Exact", "free"), []string{"tier=free; tier=gold"}, true),
		Entry("not the second of several", match("Exact", "gold"), []string{"tier=free", "tier=gold"}, false),
		Entry("quoted", match("Exact", "free"), []string{`tier="free"`}, true),
		Entry("encoded", match("Exact", "free"), []string{"tier=%66ree"}, true),
		Entry("a plus stays", match("Exact", "a+b"), []string{"tier=a+b"}, true),
		Entry("an equals sign in the value", match("Exact", "a=b"), []string{"tier=a=b"}, true),
		Entry("names are case-sensitive", match("Exact", "free"), []string{"Tier=free"}, false),
		Entry("a name without a value", match("Present", ""), []string{"tier"}, false),
		Entry("in", match("In", "", "free"), []string{"tier=free"}, true),
		Entry("by hash", match("InSHA256", "", sha256Hex("free")), []string{"tier=free"}, true),
		Entry("present", match("Present", ""), []string{"tier="}, true),
		Entry("absent", match("Absent", ""), []string{"a=1"}, true),
		Entry("absent, no cookies", match("Absent", ""), nil, true),
	)
})

var _ = Describe("Matching a header by values", func() {
	match := func(kind string, values ...string) bucketconfig.Match {
		return bucketconfig.Match{Headers: []bucketconfig.NamedMatch{{Name: "X-Api-Key", Type: kind, Values: values}}}
	}
	DescribeTable("compares",
		func(m bucketconfig.Match, lines []string, want bool) {
			req := request("/")
			if lines != nil {
				req.Header["X-Api-Key"] = lines
			}
			Expect(governed(m, req)).To(Equal(want))
		},
		Entry("present", match("Present"), []string{"k"}, true),
		Entry("present, empty counts as missing", match("Present"), []string{""}, false),
		Entry("absent", match("Absent"), nil, true),
		Entry("absent, empty counts as missing", match("Absent"), []string{"", ""}, true),
		Entry("not absent", match("Absent"), []string{"", "k"}, false),
		Entry("in", match("In", "a", "k"), []string{"k"}, true),
		Entry("in, other case", match("In", "a", "k"), []string{"K"}, false),
		Entry("in, by all lines", match("In", "a, k"), []string{"a", "k"}, true),
		Entry("in, by no single line", match("In", "a", "k"), []string{"a", "k"}, false),
		Entry("by hash", match("InSHA256", sha256Hex("a"), sha256Hex("k")), []string{"k"}, true),
		Entry("by hash in upper case", match("InSHA256", strings.ToUpper(sha256Hex("k"))), []string{"k"}, true),
		Entry("by hash, else", match("InSHA256", sha256Hex("a")), []string{sha256Hex("a")}, false),
		Entry("by hash, missing", match("InSHA256", sha256Hex("")), nil, false),
	)
})

var _ = Describe("Matching where a request comes in and from", func() {
	DescribeTable("compares ports by number or name",
		func(ports []string, number int, name string, want bool) {
			req := request("/")
			req.Port, req.PortName = uint16(number), name
			Expect(governed(bucketconfig.Match{Ports: ports}, req)).To(Equal(want))
		},
		Entry("number", []string{"9090", "8080"}, 8080, "http", true),
		Entry("name", []string{"http"}, 8080, "http", true),
		Entry("another number", []string{"8081"}, 8080, "http", false),
		Entry("another name", []string{"grpc"}, 8080, "http", false),
		Entry("a port without a name", []string{"http"}, 8080, "", false),
		Entry("a port that is not known", []string{"8080"}, 0, "", false),
	)

	DescribeTable("compares the client's address",
		func(cidr, from string, want bool) {
			req := request("/")
			req.Peer = netip.Addr{}
			if from != "" {
				req.Peer = netip.MustParseAddr(from)
			}
			Expect(governed(bucketconfig.Match{ClientCIDRs: []string{"192.0.2.7/32", cidr}}, req)).To(Equal(want))
		},
		Entry("inside", "198.51.100.0/24", "198.51.100.9", true),
		Entry("outside", "198.51.100.0/24", "198.51.101.9", false),
		Entry("another entry", "198.51.100.0/24", "192.0.2.7", true),
		Entry("IPv4-mapped", "198.51.100.0/24", "::ffff:198.51.100.9", true),
		Entry("IPv4-mapped in the policy", "::ffff:198.51.100.0/120", "198.51.100.9", true),
		Entry("translated", "198.51.100.0/24", "64:ff9b::198.51.100.9", true),
		Entry("translated, a private address is forged", "10.0.0.0/8", "64:ff9b::10.0.0.9", false),
		Entry("IPv6, below the prefix length of clients", "2001:db8::9/128", "2001:db8::9", true),
		Entry("IPv6, a neighbor", "2001:db8::9/128", "2001:db8::8", false),
		Entry("with a zone", "fe80::/10", "fe80::1%eth0", true),
		Entry("all of IPv4", "0.0.0.0/0", "198.51.100.9", true),
		Entry("unknown fits none", "0.0.0.0/0", "", false),
	)

	It("finds the client's address as the policy says", func() {
		p := compile(clientFrom(bucketconfig.ClientIP{Type: "XForwardedFor", TrustedProxies: []string{"10.42.7.0/24"}}),
			exempt(bucketconfig.Match{ClientCIDRs: []string{"198.51.100.0/24", "10.42.7.0/24"}}))
		for from, want := range map[string]int{"198.51.100.9": 0, "203.0.113.7, 198.51.100.9": 0, "198.51.100.9, 203.0.113.7": 1, "198.51.100.9, rubbish": 1, "10.42.7.8": 1} {
			req := request("/", "X-Forwarded-For", from)
			req.Peer = netip.MustParseAddr("10.42.7.3")
			Expect(ratelimit.NewSet(p).Describe(req).Groups).To(HaveLen(want), from)
		}
	})

	It("asks each policy for its own idea of the client", func() {
		inner := limits(limit("a", matching(bucketconfig.Match{ClientCIDRs: []string{"10.42.7.0/24"}})))
		set := ratelimit.NewSet(
			compile(named("peer"), inner, clientFrom(bucketconfig.ClientIP{Type: "Peer"})),
			compile(named("forwarded"), inner, clientFrom(bucketconfig.ClientIP{Type: "XForwardedFor", TrustedProxies: []string{"10.42.7.0/24"}})))
		req := request("/", "X-Forwarded-For", "198.51.100.9")
		req.Peer = netip.MustParseAddr("10.42.7.3")
		Expect(governing(set.Describe(req))).To(Equal([]string{"peer/a"}))
	})
})

var _ = Describe("Matching a gRPC call", func() {
	DescribeTable("compares service and method",
		func(service, method, contentType, path string, want bool) {
			req := request(path, "Content-Type", contentType)
			Expect(governed(bucketconfig.Match{GRPC: &bucketconfig.GRPCMatch{Service: service, Method: method}}, req)).To(Equal(want))
		},
		Entry("both", "shop.v1.Cart", "Add", "application/grpc", "/shop.v1.Cart/Add", true),
		Entry("service", "shop.v1.Cart", "", "application/grpc+proto", "/shop.v1.Cart/Add", true),
		Entry("method", "", "Add", "application/grpc-web", "/shop.v1.Cart/Add", true),
		Entry("another service", "shop.v1.Cart", "", "application/grpc", "/shop.v1.Carts/Add", false),
		Entry("another method", "", "Add", "application/grpc", "/shop.v1.Cart/AddAll", false),
		Entry("no gRPC", "shop.v1.Cart", "Add", "application/json", "/shop.v1.Cart/Add", false),
		Entry("content type in upper case", "shop.v1.Cart", "Add", "Application/GRPC", "/shop.v1.Cart/Add", true),
		Entry("encoded path", "shop.v1.Cart", "Add", "application/grpc", "/shop%2Ev1.Cart/%41dd", true),
		Entry("three elements", "", "Add", "application/grpc", "/a/shop.v1.Cart/Add", false),
		Entry("one element", "", "Add", "application/grpc", "/Add", false),
		Entry("no method", "shop.v1.Cart", "", "application/grpc", "/shop.v1.Cart/", false),
		Entry("the star", "", "Add", "application/grpc", "*", false),
	)
})

var _ = Describe("A request with several content types", func() {
	DescribeTable("is a call of gRPC if any of them says so, as some servers heed that one",
		func(lines []string, want bool) {
			req := request("/shop.v1.Cart/Add")
			req.Header["Content-Type"] = lines
			Expect(governed(bucketconfig.Match{GRPC: &bucketconfig.GRPCMatch{Service: "shop.v1.Cart"}}, req)).To(Equal(want))
			Expect(governed(bucketconfig.Match{When: "has(request.grpc)"}, req)).To(Equal(want))
			Expect(ratelimit.IsGRPC(req.Header)).To(Equal(want))
		},
		Entry("the first", []string{"application/grpc", "text/plain"}, true),
		Entry("the last", []string{"text/plain", "application/grpc"}, true),
		Entry("behind an empty one", []string{"", "Application/GRPC+proto"}, true),
		Entry("within one line, which is no content type", []string{"text/plain, application/grpc"}, false),
		Entry("none", []string{"text/plain", "application/json"}, false),
	)
})

var _ = Describe("Matching a path template", func() {
	DescribeTable("compares by elements",
		func(template, path string, want bool) {
			Expect(governed(bucketconfig.Match{Path: &bucketconfig.StringMatch{Type: "Template", Value: template}}, request(path))).To(Equal(want))
		},
		Entry("itself", "/users/{id}/orders", "/users/7/orders", true),
		Entry("more", "/users/{id}/orders", "/users/7/orders/1", false),
		Entry("less", "/users/{id}/orders", "/users/7", false),
		Entry("another literal", "/users/{id}/orders", "/users/7/items", false),
		Entry("a slash at the end", "/users/{id}", "/users/7/", false),
		Entry("a slash at the end of both", "/users/{id}/", "/users/7/", true),
		Entry("an empty element is none", "/users/{id}/orders", "/users//orders", false),
		Entry("nor at the end", "/users/{id}", "/users/", false),
		Entry("dots are resolved", "/users/{id}/orders", "/users/7/x/../orders", true),
		Entry("and never a value", "/users/{id}", "/users/..", false),
		Entry("encoded literal", "/users/{id}/orders", "/%75sers/7/orders", true),
		Entry("encoded literal in the template", "/%75sers/{id}", "/users/7", true),
		Entry("an encoded slash is no separator", "/users/{id}", "/users/a%2Fb", true),
		Entry("no variable", "/users", "/users", true),
		Entry("the root", "/", "", true),
		Entry("two variables", "/{a}/{b}", "/x/y", true),
		Entry("the star", "/{a}", "*", false),
	)
})
