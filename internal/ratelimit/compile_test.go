package ratelimit_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/ratelimit"
)

var _ = Describe("Compile", func() {
	It("accepts a valid record and keeps its limits in order", func() {
		p := compile(limits(limit("b"), limit("a")))
		Expect(p.Limits).To(HaveLen(2))
		Expect(p.Limits[0].QualifiedName).To(Equal("checkout/b"))
		Expect(p.Limits[0].Policy).To(BeIdenticalTo(p))
		Expect(p.Limits[1].QualifiedName).To(Equal("checkout/a"))
		Expect(p.Limits[0].ID).NotTo(Equal(p.Limits[1].ID))
	})

	It("reads records of older schema versions", func() {
		compile(func(r *bucketconfig.Record) { r.Schema = bucketconfig.OldestSchemaVersion })
	})

	It("gives a limit's ID by its name alone, and for ever", func() {
		a := compile(limits(limit("per-key"))).Limits[0]
		b := compile(named("other"), limits(limit("first"), limit("per-key", func(l *bucketconfig.Limit) { l.Cost = 7 }))).Limits[1]
		Expect(a.ID).To(Equal(b.ID))
		Expect(a.ID).To(Equal(uint64(0x86dee44bc9616109)), "buckets in Redis carry it")
	})

	It("makes all limits of a policy in Shadow shadows, else each its own", func() {
		both := limits(limit("a"), limit("b", func(l *bucketconfig.Limit) { l.Shadow = true }))
		p := compile(both)
		Expect([]bool{p.Limits[0].Shadow, p.Limits[1].Shadow}).To(Equal([]bool{false, true}))
		p = compile(both, shadow)
		Expect([]bool{p.Limits[0].Shadow, p.Limits[1].Shadow}).To(Equal([]bool{true, true}))
	})

	DescribeTable("computes the seconds from empty to full, rounded up",
		func(capacity, tokens, intervalUS, want int) {
			p := compile(limits(limit("a", func(l *bucketconfig.Limit) {
				l.Bucket = bucketconfig.Bucket{Capacity: int64(capacity), RefillTokens: int64(tokens), RefillIntervalUS: int64(intervalUS)}
			})))
			Expect(p.Limits[0].WindowSeconds).To(Equal(int64(want)))
		},
		Entry("even", 20, 5, 1_000_000, 4),
		Entry("uneven", 21, 5, 1_000_000, 5),
		Entry("below a second", 1, 1000, 1000, 1),
		Entry("beyond 64 bits on the way", 1_000_000_000, 1000, 366*24*3600*1_000_000, 31622400000000),
		Entry("beyond what a field may hold", 1_000_000_000, 1, 366*24*3600*1_000_000, 999_999_999_999_999),
	)

	It("keeps an open quote of an expression from swallowing its end", func() {
		p := compile(limits(limit("a", matching(path("RegularExpression", `/\Qa.b`)))))
		Expect(governing(ratelimit.NewSet(p).Describe(request("/a.b")))).To(HaveLen(1))
		Expect(governing(ratelimit.NewSet(p).Describe(request("/a.bc")))).To(BeEmpty())
	})

	DescribeTable("refuses what can't be enforced, naming policy, limit, field and value",
		func(change func(*bucketconfig.Record), want ...string) {
			p, err := ratelimit.Compile(record(change), secret)
			Expect(p).To(BeNil())
			var invalid *ratelimit.InvalidError
			Expect(err).To(BeAssignableToTypeOf(invalid))
			for _, part := range want {
				Expect(err).To(MatchError(ContainSubstring(part)))
			}
		},
		Entry("a newer schema", func(r *bucketconfig.Record) { r.Schema = bucketconfig.SchemaVersion + 1 }, `policy "checkout"`, "schema: 3"),
		Entry("no schema", func(r *bucketconfig.Record) { r.Schema = 0 }, "schema: 0"),
		Entry("no kind", func(r *bucketconfig.Record) { r.Kind = "" }, "kind: is empty"),
		Entry("a name that breaks a field", named(`a"b`), `name: "a\"b"`),
		Entry("order zero", func(r *bucketconfig.Record) { r.Order = 0 }, "order: 0"),
		Entry("order beyond a double", func(r *bucketconfig.Record) { r.Order = 1 << 53 }, "order: 9007199254740992"),
		Entry("no limits", limits(), "limits: has 0 entries"),
		Entry("17 limits", limits(make([]bucketconfig.Limit, 17)...), "limits: has 17 entries"),
		Entry("two limits of one name", limits(limit("a"), limit("a")), `limits: name "a" stands twice`),
		Entry("a limit's name that breaks a field", limits(limit(`x"`)), `limit "x\"": name:`),
		Entry("timeout", func(r *bucketconfig.Record) { r.Store.TimeoutUS = 999 }, "store.timeout: 999us"),
		Entry("onFailure", func(r *bucketconfig.Record) { r.Store.OnFailure = "Pray" }, `store.onFailure: "Pray"`),
		Entry("rateLimitHeaders", func(r *bucketconfig.Record) { r.Response.RateLimitHeaders = "All" }, `response.rateLimitHeaders: "All"`),
		Entry("status code", func(r *bucketconfig.Record) { r.Response.StatusCode = 200 }, "response.statusCode: 200"),
		Entry("selector operator", func(r *bucketconfig.Record) {
			r.Selector.MatchExpressions = []bucketconfig.SelectorRequirement{{Key: "app", Operator: "Like"}}
		}, `selector.matchExpressions[0].operator: "Like"`),
		Entry("In without values", func(r *bucketconfig.Record) {
			r.Selector.MatchExpressions = []bucketconfig.SelectorRequirement{{Key: "app", Operator: "In"}}
		}, "selector.matchExpressions[0].values: is empty"),
		Entry("Exists with values", func(r *bucketconfig.Record) {
			r.Selector.MatchExpressions = []bucketconfig.SelectorRequirement{{Key: "app", Operator: "Exists", Values: []string{"a"}}}
		}, "selector.matchExpressions[0].values: has 1"),
		Entry("a selector without key", func(r *bucketconfig.Record) {
			r.Selector.MatchExpressions = []bucketconfig.SelectorRequirement{{Operator: "Exists"}}
		}, "selector.matchExpressions[0].key: is empty"),
		Entry("capacity", limits(limit("a", func(l *bucketconfig.Limit) { l.Bucket.Capacity = 0 })), `limit "a": bucket.capacity: 0`),
		Entry("refill", limits(limit("a", func(l *bucketconfig.Limit) { l.Bucket.RefillTokens = 1_000_000_001 })), `limit "a": bucket.refill.tokens: 1000000001`),
		Entry("interval", limits(limit("a", func(l *bucketconfig.Limit) { l.Bucket.RefillIntervalUS = 500 })), `limit "a": bucket.refill.interval: 500us`),
		Entry("rate", limits(limit("a", func(l *bucketconfig.Limit) { l.Bucket.RefillTokens, l.Bucket.RefillIntervalUS = 1001, 1000 })), `limit "a": bucket.refill: 1001 tokens per 1000us`),
		Entry("no cost", limits(limit("a", func(l *bucketconfig.Limit) { l.Cost = 0 })), `limit "a": cost.fixed.tokens: 0`),
		Entry("a cost above the capacity", limits(limit("a", func(l *bucketconfig.Limit) { l.Cost = 21 })), `limit "a": cost.fixed.tokens: 21`),
		Entry("an empty match", limits(limit("a", matching(bucketconfig.Match{}))), `limit "a": matches[0]: states nothing`),
		Entry("an empty exemption", exempt(bucketconfig.Match{}), "exempt[0]: states nothing"),
		Entry("method", limits(limit("a", matching(bucketconfig.Match{Methods: []string{"GET", "PO ST"}}))), `matches[0].methods[1]: "PO ST"`),
		Entry("path type", limits(limit("a", matching(path("Glob", "/*")))), `matches[0].path.type: "Glob"`),
		Entry("path without slash", limits(limit("a", matching(path("Exact", "api")))), `matches[0].path.value: "api"`),
		Entry("path with query", limits(limit("a", matching(path("Exact", "/api?x=1")))), `matches[0].path.value: "/api?x=1"`),
		Entry("bad expression", limits(limit("a", matching(path("RegularExpression", "/(")))), `limit "a": matches[0].path.value: "/("`),
		Entry("an expression that closes the anchor's group", exempt(path("RegularExpression", "/a)|(?:.*")), "exempt[0].path.value"),
		Entry("empty expression", limits(limit("a", matching(path("RegularExpression", "")))), "matches[0].path.value: is empty"),
		Entry("a short expression that is a huge program", exempt(path("RegularExpression", "/(abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz){1000}")), "exempt[0].path.value", "more than 50000 instructions"),
		Entry("expressions that are huge together", limits(
			limit("a", matching(path("RegularExpression", "/(abcdefghijklmnopqrstuvwxyz){1000}"))),
			limit("b", matching(path("RegularExpression", "/(abcdefghijklmnopqrstuvwxyz){1000}")))), `limit "b": matches[0].path.value`),
		Entry("bad expression of a header", limits(limit("a", matching(headerMatch("RegularExpression", "X-A", "[")))), "matches[0].headers[0].value"),
		Entry("header type", limits(limit("a", matching(headerMatch("Suffix", "X-A", "a")))), `matches[0].headers[0].type: "Suffix"`),
		Entry("empty header value", limits(limit("a", matching(headerMatch("Exact", "X-A", "")))), "matches[0].headers[0].value: is empty"),
		Entry("header name", limits(limit("a", matching(headerMatch("Exact", ":path", "a")))), `matches[0].headers[0].name: ":path"`),
		Entry("Host as a header", limits(limit("a", matching(headerMatch("Exact", "host", "a")))), `matches[0].headers[0].name: "host"`),
		Entry("key part type", limits(limit("a", keyedBy(bucketconfig.KeyPart{Type: "Body", WhenMissing: "Share"}))), `keyParts[0].type: "Body"`),
		Entry("whenMissing", limits(limit("a", keyedBy(header("X-A", "")))), `keyParts[0].whenMissing: ""`),
		Entry("key part header", limits(limit("a", keyedBy(header("Host", "Share")))), `keyParts[0].header.name: "Host"`),
		Entry("one header twice", limits(limit("a", keyedBy(header("X-A", "Share"), header("x-a", "Skip")))), "keyParts: Header X-A stands twice"),
		Entry("9 key parts", limits(limit("a", keyedBy(make([]bucketconfig.KeyPart, 9)...))), "keyParts: has 9"),
		Entry("a host with a port", limits(limit("a", matching(bucketconfig.Match{Hosts: []string{"a.example", "b.example:80"}}))), `matches[0].hosts[1]: "b.example:80"`),
		Entry("a host with a star within", limits(limit("a", matching(bucketconfig.Match{Hosts: []string{"a.*.example"}}))), `matches[0].hosts[0]: "a.*.example"`),
		Entry("a host with an empty label", exempt(bucketconfig.Match{Hosts: []string{"a..example"}}), `exempt[0].hosts[0]: "a..example"`),
		Entry("the bare star", exempt(bucketconfig.Match{Hosts: []string{"*"}}), `exempt[0].hosts[0]: "*"`),
		Entry("65 hosts", exempt(bucketconfig.Match{Hosts: make([]string, 65)}), `exempt[0].hosts: has 65`),
		Entry("port 0", exempt(bucketconfig.Match{Ports: []string{"0"}}), `exempt[0].ports[0]: "0"`),
		Entry("port 65536", exempt(bucketconfig.Match{Ports: []string{"http", "65536"}}), `exempt[0].ports[1]: "65536"`),
		Entry("a port's name in upper case", exempt(bucketconfig.Match{Ports: []string{"HTTP"}}), `exempt[0].ports[0]: "HTTP"`),
		Entry("client CIDRs without clientIP", exempt(bucketconfig.Match{ClientCIDRs: []string{"10.0.0.0/8"}}), "exempt[0].clientCIDRs: needs the policy's clientIP"),
		Entry("a client CIDR that is none", both(clientFrom(bucketconfig.ClientIP{Type: "Peer"}), exempt(bucketconfig.Match{ClientCIDRs: []string{"10.0.0.1"}})), `exempt[0].clientCIDRs[0]: "10.0.0.1"`),
		Entry("gRPC that states nothing", exempt(bucketconfig.Match{GRPC: &bucketconfig.GRPCMatch{}}), "exempt[0].grpc: states nothing"),
		Entry("gRPC with a slash", exempt(bucketconfig.Match{GRPC: &bucketconfig.GRPCMatch{Service: "/a.B"}}), `exempt[0].grpc.service: "/a.B"`),
		Entry("a query parameter without name", exempt(bucketconfig.Match{QueryParams: []bucketconfig.NamedMatch{{Type: "Present"}}}), "exempt[0].queryParams[0].name: is empty"),
		Entry("a cookie's name", exempt(bucketconfig.Match{Cookies: []bucketconfig.NamedMatch{{Name: "a=b", Type: "Present"}}}), `exempt[0].cookies[0].name: "a=b"`),
		Entry("9 cookies", exempt(bucketconfig.Match{Cookies: make([]bucketconfig.NamedMatch, 9)}), "exempt[0].cookies: has 9"),
		Entry("Present with a value", exempt(headerMatch("Present", "X-A", "a")), `exempt[0].headers[0].value: "a"`),
		Entry("Exact with values", exempt(namedMatch("Exact", "a", "b")), "exempt[0].headers[0].values: has 1"),
		Entry("In without values", exempt(namedMatch("In", "")), "exempt[0].headers[0].values: is empty"),
		Entry("In with an empty value", exempt(namedMatch("In", "", "a", "")), "exempt[0].headers[0].values[1]: is empty"),
		Entry("In with 257 values", exempt(namedMatch("In", "", make([]string, 257)...)), "exempt[0].headers[0].values: has 257"),
		Entry("a hash that is none", exempt(namedMatch("InSHA256", "", "secret")), `exempt[0].headers[0].hashes[0]: "secret"`),
		Entry("a hash that is longer", exempt(namedMatch("InSHA256", "", sha256Hex("a")+"00")), `exempt[0].headers[0].hashes[0]`),
		Entry("a template without slash", exempt(path("Template", "{id}")), `exempt[0].path.value: "{id}": must start`),
		Entry("a template with an open brace", exempt(path("Template", "/a/{id")), `exempt[0].path.value: "/a/{id"`, `"{id" is none`),
		Entry("a template with a variable in an element", exempt(path("Template", "/a-{id}")), `"a-{id}" is none`),
		Entry("a template with a name twice", exempt(path("Template", "/{a}/{a}")), "the variable a stands twice"),
		Entry("a template with a name that is none", exempt(path("Template", "/{1}")), `"{1}" is none`),
		Entry("a template with an empty name", exempt(path("Template", "/{}")), `"{}" is none`),
		Entry("a template with an empty element", exempt(path("Template", "/a//{b}")), `has the element ""`),
		Entry("a template with dots", exempt(path("Template", "/a/../{b}")), `has the element ".."`),
		Entry("a template with a query", exempt(path("Template", "/{a}/x?y")), "without a query"),
		Entry("PathTemplate without matches", limits(limit("a", keyedBy(part("PathTemplate", "", "Share")))), "keyParts[0]: type PathTemplate needs matches"),
		Entry("PathTemplate with another match", limits(limit("a", matching(path("Template", "/{a}"), path("Exact", "/")), keyedBy(part("PathTemplate", "", "Share")))), "keyParts[0]", "matches[1] has none"),
		Entry("a variable that no template has", limits(limit("a", matching(path("Template", "/{a}")), keyedBy(part("PathVariable", "b", "Share")))), `keyParts[0].pathVariable.name: "b"`),
		Entry("a variable without name", limits(limit("a", matching(path("Template", "/{a}")), keyedBy(part("PathVariable", "", "Share")))), "keyParts[0].pathVariable.name: is empty"),
		Entry("a claim without name", limits(limit("a", keyedBy(part("Claim", "", "Share")))), "keyParts[0].claim.name: is empty"),
		Entry("a query parameter as key without name", limits(limit("a", keyedBy(part("Query", "", "Share")))), "keyParts[0].query.name: is empty"),
		Entry("a cookie as key", limits(limit("a", keyedBy(part("Cookie", "a b", "Share")))), `keyParts[0].cookie.name: "a b"`),
		Entry("a host with a name", limits(limit("a", keyedBy(part("Host", "x", "Share")))), "keyParts[0]: type Host takes no name"),
		Entry("one cookie twice", limits(limit("a", keyedBy(part("Cookie", "a", "Share"), part("Cookie", "a", "Deny")))), "keyParts: Cookie a stands twice"),
		Entry("a rule without matches", limits(limit("a", rules(costs(1)))), "cost.fixed.rules[0].matches: is empty"),
		Entry("a rule that costs nothing", limits(limit("a", rules(costs(0, path("Exact", "/"))))), "cost.fixed.rules[0].tokens: 0"),
		Entry("a rule above the capacity", limits(limit("a", rules(costs(1, path("Exact", "/")), costs(21, path("Exact", "/"))))), "cost.fixed.rules[1].tokens: 21"),
		Entry("a rule above an override's capacity", limits(limit("a", rules(costs(15, path("Exact", "/"))), overriddenBy(sized("small", 10)))), "cost.fixed.rules[0].tokens: 15", `the capacity of the override "small", 10`),
		Entry("a cost above an override's capacity", limits(limit("a", func(l *bucketconfig.Limit) { l.Cost = 15 }, overriddenBy(sized("small", 10)))), "cost.fixed.tokens: 15"),
		Entry("a bad match of a rule", limits(limit("a", rules(costs(1, path("Exact", "x"))))), "cost.fixed.rules[0].matches[0].path.value"),
		Entry("17 rules", limits(limit("a", rules(make([]bucketconfig.CostRule, 17)...))), "cost.fixed.rules: has 17"),
		Entry("a cost source's type", limits(limit("a", costFrom("Body", 1, 10))), `cost.type: "Body"`),
		Entry("a cost header's default", limits(limit("a", costFrom("RequestHeader", 21, 100))), "cost.requestHeader.default: 21"),
		Entry("a cost header's maximum", limits(limit("a", costFrom("RequestHeader", 5, 4))), "cost.requestHeader.maximum: 4"),
		Entry("a response's default", limits(limit("a", costFrom("ResponseHeader", 5, 4))), "cost.responseHeader.maximum: 4"),
		Entry("a response's maximum", limits(limit("a", costFrom("ResponseHeader", 1, 21))), "cost.responseHeader.maximum: 21"),
		Entry("a cost header's name", limits(limit("a", costFrom("RequestHeader", 1, 4), func(l *bucketconfig.Limit) { l.CostSource.Header = "a b" })), `cost.requestHeader.name: "a b"`),
		Entry("rules and a cost header", limits(limit("a", costFrom("RequestHeader", 1, 4), rules(costs(1, path("Exact", "/"))))), "cost: has rules and a header"),
		Entry("an override's type", limits(limit("a", overriddenBy(bucketconfig.Override{Name: "x", Type: "Free"}))), `overrides[0].type: "Free"`),
		Entry("an override's name", limits(limit("a", overriddenBy(unlimited("X")))), `overrides[0].name: "X"`),
		Entry("two overrides of one name", limits(limit("a", overriddenBy(unlimited("x"), denied("x")))), `overrides[1].name: "x" stands twice`),
		Entry("an override without its bucket", limits(limit("a", overriddenBy(bucketconfig.Override{Name: "x", Type: "Bucket"}))), "overrides[0].bucket: must be set"),
		Entry("an override with a bucket too many", limits(limit("a", overriddenBy(bucketconfig.Override{Name: "x", Type: "Deny", Bucket: &bucketconfig.Bucket{}}))), "overrides[0].bucket: must be set only"),
		Entry("an override's bucket", limits(limit("a", overriddenBy(sized("x", 0)))), "overrides[0].bucket.capacity: 0"),
		Entry("an override's match", limits(limit("a", overriddenBy(denied("x", plan("In"))))), "overrides[0].matches[0].headers[0].values: is empty"),
		Entry("65 overrides", limits(limit("a", overriddenBy(make([]bucketconfig.Override, 65)...))), "overrides: has 65"),
		Entry("17 matches", limits(limit("a", matching(make([]bucketconfig.Match, 17)...))), "matches: has 17"),
		Entry("expressions of overrides and rules that are huge together", limits(limit("a",
			rules(costs(1, path("RegularExpression", "/(abcdefghijklmnopqrstuvwxyz){1000}"))),
			overriddenBy(denied("x", path("RegularExpression", "/(abcdefghijklmnopqrstuvwxyz){1000}"))))), "cost.fixed.rules[0].matches[0].path.value"),
		Entry("client address without clientIP", limits(limit("a", keyedBy(client("Share")))), "needs the policy's clientIP"),
		Entry("a client address with a name", func(r *bucketconfig.Record) {
			clientFrom(bucketconfig.ClientIP{Type: "Peer"})(r)
			limits(limit("a", keyedBy(bucketconfig.KeyPart{Type: "ClientIP", Name: "X", WhenMissing: "Share"})))(r)
		}, "takes no name"),
		Entry("clientIP type", clientFrom(bucketconfig.ClientIP{Type: "Guess"}), `clientIP.type: "Guess"`),
		Entry("no trusted proxies", clientFrom(bucketconfig.ClientIP{Type: "XForwardedFor"}), "trustedProxies: is empty"),
		Entry("bad CIDR", clientFrom(bucketconfig.ClientIP{Type: "XForwardedFor", TrustedProxies: []string{"10.0.0.0"}}), `trustedProxies[0]: "10.0.0.0"`),
		Entry("IPv4 prefix", clientFrom(bucketconfig.ClientIP{Type: "Peer", IPv4PrefixLength: 33}), "ipv4PrefixLength: 33"),
		Entry("IPv6 prefix", clientFrom(bucketconfig.ClientIP{Type: "Peer", IPv6PrefixLength: -1}), "ipv6PrefixLength: -1"),
	)
})

var _ = Describe("SelectsPod", func() {
	labels := map[string]string{"app": "web", "tier": ""}
	DescribeTable("follows the rules of label selectors",
		func(s bucketconfig.Selector, want bool) {
			p := compile(func(r *bucketconfig.Record) { r.Selector = s })
			Expect(p.SelectsPod(labels)).To(Equal(want))
		},
		Entry("empty", bucketconfig.Selector{}, true),
		Entry("equal", bucketconfig.Selector{MatchLabels: map[string]string{"app": "web"}}, true),
		Entry("other value", bucketconfig.Selector{MatchLabels: map[string]string{"app": "db"}}, false),
		Entry("absent is not empty", bucketconfig.Selector{MatchLabels: map[string]string{"zone": ""}}, false),
		Entry("present and empty", bucketconfig.Selector{MatchLabels: map[string]string{"tier": ""}}, true),
		Entry("In", requirement("app", "In", "db", "web"), true),
		Entry("In, absent", requirement("zone", "In", "a"), false),
		Entry("NotIn", requirement("app", "NotIn", "web"), false),
		Entry("NotIn, absent", requirement("zone", "NotIn", "a"), true),
		Entry("Exists", requirement("tier", "Exists"), true),
		Entry("Exists, absent", requirement("zone", "Exists"), false),
		Entry("DoesNotExist", requirement("tier", "DoesNotExist"), false),
		Entry("DoesNotExist, absent", requirement("zone", "DoesNotExist"), true),
		Entry("all must hold", bucketconfig.Selector{
			MatchLabels:      map[string]string{"app": "web"},
			MatchExpressions: []bucketconfig.SelectorRequirement{{Key: "tier", Operator: "DoesNotExist"}},
		}, false),
	)
})

func requirement(key, operator string, values ...string) bucketconfig.Selector {
	return bucketconfig.Selector{MatchExpressions: []bucketconfig.SelectorRequirement{{Key: key, Operator: operator, Values: values}}}
}

func both(changes ...func(*bucketconfig.Record)) func(*bucketconfig.Record) {
	return func(r *bucketconfig.Record) {
		for _, change := range changes {
			change(r)
		}
	}
}

func namedMatch(kind, value string, values ...string) bucketconfig.Match {
	return bucketconfig.Match{Headers: []bucketconfig.NamedMatch{{Name: "X-A", Type: kind, Value: value, Values: values}}}
}
