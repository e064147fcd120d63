package v1alpha1_test

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

const (
	labelKey    = "must be a label key: an optional DNS prefix and /"
	labelValue  = "must be a label value: empty, or up to 63 letters, digits"
	emptyMatch  = "a match must state something, such as methods, path or headers"
	normalPath  = "value must be a path in normal form unless type is RegularExpression"
	regex       = "value must be a regular expression in RE2 syntax when type is RegularExpression"
	headerName  = "must be a header name: letters, digits and punctuation such as -, no colon and no space"
	grammar     = "must be one to four whole numbers with a unit each, of h, m, s and ms"
	durations   = "must be from 1ms to 366 days (8784h)"
	cidr        = "must be a CIDR without host bits, such as 10.42.7.0/24"
	header      = "header must be set when type is Header"
	forwarded   = "xForwardedFor must be set when type is XForwardedFor"
	value       = "value must be set when type is Exact, Prefix or RegularExpression, and only then"
	clientIP    = "clientIP must be set when a match has clientCIDRs"
	templates   = "key parts of type PathTemplate and PathVariable need matches of which each has a path of type Template"
	template    = "value must be a path template when type is Template, such as /users/{id}/orders"
	hostPattern = "should match '^([*][.])?"
	port        = "must be the name of a container's port, such as http, or a number from 1 to 65535"
	expressions = "spec.selector.matchExpressions"
	rich        = "spec.limits.1.matches.0."
	richAt      = "spec.limits[1].matches[0]."
)

// refused tells that one change gets exactly one complaint, at a field and with a message that says what to do, and that
// the translator refuses it too, as it must where an object was stored before the rule existed.
func refused(ctx SpecContext, change change, field, message string) {
	GinkgoHelper()
	refusedAtAdmission(ctx, change, field, message)
	Expect(translate(change)).NotTo(Succeed())
}

// refusedAtAdmission is refused without the translator.
func refusedAtAdmission(ctx SpecContext, change change, field, message string) {
	GinkgoHelper()
	got := causes(ctx, change)
	Expect(got).To(HaveLen(1))
	Expect(got[0]).To(HavePrefix(field + ": "))
	Expect(got[0]).To(ContainSubstring(message))
}

func accepted(ctx SpecContext, change change) {
	GinkgoHelper()
	Expect(causes(ctx, change)).To(BeEmpty())
	Expect(translate(change)).To(Succeed())
}

var _ = Describe("The API server", func() {
	It("accepts the policy that the tables below start from", func(ctx SpecContext) {
		accepted(ctx, func(map[string]any) {})
	})

	DescribeTable("refuses in a selector", refused,
		Entry("a key that is none", set("spec.selector.matchLabels", "{'a b': x}"), "spec.selector.matchLabels", labelKey),
		Entry("a key with an empty prefix", set("spec.selector.matchLabels", "{/app: x}"), "spec.selector.matchLabels", labelKey),
		Entry("an endless key", set("spec.selector.matchLabels", "{"+strings.Repeat("a", 254)+"/"+strings.Repeat("b", 63)+": x}"),
			"spec.selector.matchLabels", labelKey),
		Entry("a value that is none", set("spec.selector.matchLabels.app", "-x"), "spec.selector.matchLabels[app]", labelValue),
		Entry("a value that is too long", set("spec.selector.matchLabels.app", strings.Repeat("a", 64)), "spec.selector.matchLabels.app", "63"),
		Entry("too many labels", set("spec.selector.matchLabels", strings.NewReplacer("[", "{", "]", "}").Replace(repeat(65, "%: x"))),
			"spec.selector.matchLabels", "64"),
		Entry("an expression's key that is none", set(expressions+".0.key", "a/b/c"), expressions+"[0].key", labelKey),
		Entry("an expression's value that is none", set(expressions+".0.values", "[ok, a b]"), expressions+"[0].values[1]", labelValue),
		Entry("an unknown operator", set(expressions+".0.operator", "Like"), expressions+"[0].operator", `"In", "NotIn", "Exists", "DoesNotExist"`),
		Entry("In without values", unset(expressions+".0.values"), expressions+"[0].values", "at least one value when operator is In or NotIn"),
		Entry("NotIn with an empty list", all(set(expressions+".0.operator", "NotIn"), set(expressions+".0.values", "[]")),
			expressions+"[0].values", "at least one value when operator is In or NotIn"),
		Entry("Exists with values", set(expressions+".0.operator", "Exists"), expressions+"[0].values", "none when it is Exists or DoesNotExist"),
		Entry("too many values", set(expressions+".0.values", repeat(65, "%")), expressions+"[0].values", "64"),
		Entry("too many expressions", set(expressions, repeat(65, "{key: %, operator: Exists}")), expressions, "64"),
	)

	DescribeTable("refuses in clientIP", refused,
		Entry("no type", unset("spec.clientIP.type"), "spec.clientIP.type", "Required value"),
		Entry("an unknown type", all(set("spec.clientIP.type", "Header"), unset("spec.clientIP.xForwardedFor")), "spec.clientIP.type", `"Peer", "XForwardedFor"`),
		Entry("XForwardedFor without proxies", unset("spec.clientIP.xForwardedFor"), "spec.clientIP.xForwardedFor", forwarded),
		Entry("Peer with proxies", set("spec.clientIP.type", "Peer"), "spec.clientIP.xForwardedFor", forwarded),
		Entry("no proxy", set("spec.clientIP.xForwardedFor.trustedProxies", "[]"), "spec.clientIP.xForwardedFor.trustedProxies", "at least 1 items"),
		Entry("too many proxies", set("spec.clientIP.xForwardedFor.trustedProxies", cidrs(65)),
			"spec.clientIP.xForwardedFor.trustedProxies", "at most 64 items"),
		Entry("an address for a CIDR", set("spec.clientIP.xForwardedFor.trustedProxies", "[10.42.7.1]"), "spec.clientIP.xForwardedFor.trustedProxies[0]", cidr),
		Entry("a CIDR with host bits", set("spec.clientIP.xForwardedFor.trustedProxies", "[10.42.7.1/24]"), "spec.clientIP.xForwardedFor.trustedProxies[0]", cidr),
		Entry("every proxy", set("spec.clientIP.xForwardedFor.trustedProxies", "[0.0.0.0/0]"), "spec.clientIP.xForwardedFor.trustedProxies[0]", "must not trust every address"),
		Entry("every proxy of IPv6", set("spec.clientIP.xForwardedFor.trustedProxies", "['::/0']"), "spec.clientIP.xForwardedFor.trustedProxies[0]", "must not trust every address"),
		Entry("an IPv4-mapped CIDR", set("spec.clientIP.xForwardedFor.trustedProxies", "['::ffff:10.0.0.0/104']"), "spec.clientIP.xForwardedFor.trustedProxies[0]", cidr),
		Entry("an IPv4 prefix of 0", set("spec.clientIP.ipv4PrefixLength", "0"), "spec.clientIP.ipv4PrefixLength", "greater than or equal to 1"),
		Entry("an IPv4 prefix of 33", set("spec.clientIP.ipv4PrefixLength", "33"), "spec.clientIP.ipv4PrefixLength", "less than or equal to 32"),
		Entry("an IPv6 prefix of 0", set("spec.clientIP.ipv6PrefixLength", "0"), "spec.clientIP.ipv6PrefixLength", "greater than or equal to 1"),
		Entry("an IPv6 prefix of 129", set("spec.clientIP.ipv6PrefixLength", "129"), "spec.clientIP.ipv6PrefixLength", "less than or equal to 128"),
		Entry("nothing where a key part needs it", all(unset("spec.clientIP"), set("spec.exempt", "[]"), unset("spec.limits.0.overrides")),
			"spec.clientIP", "clientIP must be set when a limit has a key part of type ClientIP"),
		Entry("nothing where a CIDR needs it, exempt", all(unset("spec.clientIP"), unset("spec.limits.0.keyParts"), unset("spec.limits.0.overrides")),
			"spec.clientIP", clientIP),
		Entry("nothing where a CIDR needs it, overrides", all(unset("spec.clientIP"), unset("spec.limits.0.keyParts"), unset("spec.exempt")),
			"spec.clientIP", clientIP),
		Entry("nothing where a CIDR needs it, matches", all(unset("spec.clientIP"), unset("spec.limits.0.keyParts"), unset("spec.exempt"),
			unset("spec.limits.0.overrides"), set(rich+"clientCIDRs", "[10.0.0.0/8]")), "spec.clientIP", clientIP),
		Entry("nothing where a CIDR needs it, rules of cost", all(unset("spec.clientIP"), unset("spec.limits.0.keyParts"), unset("spec.exempt"),
			unset("spec.limits.0.overrides"), set("spec.limits.0.cost.fixed.rules.0.matches.0.clientCIDRs", "[10.0.0.0/8]")), "spec.clientIP", clientIP),
	)

	// The same type stands in exempt and in matches; each rule is shown at one of the two places.
	DescribeTable("refuses in a match", refused,
		Entry("an empty entry, exempt", set("spec.exempt.0", "{}"), "spec.exempt[0]", emptyMatch),
		Entry("an empty entry, matches", set("spec.limits.0.matches.1", "{}"), "spec.limits[0].matches[1]", emptyMatch),
		Entry("too many entries, exempt", set("spec.exempt", repeat(17, "{path: {type: Exact, value: /%}}")), "spec.exempt", "at most 16 items"),
		Entry("too many entries, matches", set("spec.limits.0.matches", repeat(17, "{path: {type: Exact, value: /%}}")), "spec.limits[0].matches", "at most 16 items"),
		Entry("a method in lower case", set("spec.limits.0.matches.0.methods", "[GET, post]"), "spec.limits[0].matches[0].methods[1]", "an HTTP method in upper case, such as GET"),
		Entry("too many methods", set("spec.limits.0.matches.0.methods", strings.ToUpper(repeat(17, "%"))), "spec.limits[0].matches[0].methods", "at most 16 items"),
		Entry("a path without a type", unset("spec.exempt.0.path.type"), "spec.exempt[0].path.type", "Required value"),
		Entry("a path of an unknown type", set("spec.exempt.0.path.type", "Glob"), "spec.exempt[0].path.type", `"Exact", "PathPrefix", "RegularExpression"`),
		Entry("an empty path", set("spec.exempt.0.path", "{type: RegularExpression, value: ''}"), "spec.exempt[0].path.value", "at least 1 chars"),
		Entry("a relative path", set("spec.exempt.0.path.value", "healthz"), "spec.exempt[0].path.value", "value must start with / unless type is RegularExpression"),
		Entry("a relative prefix", set("spec.limits.0.matches.0.path.value", "api"), "spec.limits[0].matches[0].path.value", "value must start with /"),
		Entry("a path with a query", set("spec.exempt.0.path.value", "/a?b"), "spec.exempt[0].path.value", normalPath),
		Entry("a path that is no regular expression", set("spec.limits.0.matches.1.path.value", "'/v[0-9+/.*'"), "spec.limits[0].matches[1].path", regex),
		Entry("a regular expression that RE2 lacks", set("spec.limits.0.matches.1.path.value", "'/(?!admin)'"), "spec.limits[0].matches[1].path", regex),
		Entry("too many headers", set("spec.limits.0.matches.0.headers", repeat(9, "{name: X-%, value: a}")), "spec.limits[0].matches[0].headers", "at most 8 items"),
		Entry("a header of an unknown type", set("spec.limits.0.matches.0.headers.0.type", "Glob"), "spec.limits[0].matches[0].headers[0].type", `"Exact", "Prefix", "RegularExpression"`),
		Entry("a header without a name", unset("spec.limits.0.matches.0.headers.0.name"), "spec.limits[0].matches[0].headers[0].name", "Required value"),
		Entry("a header's name with a colon", set("spec.limits.0.matches.0.headers.0.name", "':authority'"), "spec.limits[0].matches[0].headers[0].name", headerName),
		Entry("a header's name with a space", set("spec.limits.0.matches.0.headers.0.name", "X Plan"), "spec.limits[0].matches[0].headers[0].name", headerName),
		Entry("the Host header", set("spec.limits.0.matches.0.headers.0.name", "HOST"), "spec.limits[0].matches[0].headers[0].name", "must not be Host"),
		Entry("a header that servers take out", set("spec.limits.0.matches.0.headers.0.name", "transfer-encoding"), "spec.limits[0].matches[0].headers[0].name", "must not be Host, Transfer-Encoding or Trailer"),
		Entry("a header without a value", unset("spec.limits.0.matches.0.headers.0.value"), "spec.limits[0].matches[0].headers[0].value", value),
		Entry("an empty header value", set("spec.limits.0.matches.0.headers.0.value", "''"), "spec.limits[0].matches[0].headers[0].value", "at least 1 chars"),
		Entry("a header value that is no regular expression", set("spec.limits.0.matches.0.headers.1.value", "'curl/('"), "spec.limits[0].matches[0].headers[1]", regex),
	)

	DescribeTable("refuses in a match by other attributes", refused,
		Entry("a host in upper case", set(rich+"hosts", "[Shop.example.com]"), richAt+"hosts[0]", hostPattern),
		Entry("a host with a port", set(rich+"hosts", "['shop.example.com:80']"), richAt+"hosts[0]", hostPattern),
		Entry("a wildcard inside a host", set(rich+"hosts", "['shop.*.com']"), richAt+"hosts[0]", hostPattern),
		Entry("a wildcard alone", set(rich+"hosts", "['*']"), richAt+"hosts[0]", hostPattern),
		Entry("a query parameter without a name", unset(rich+"queryParams.0.name"), richAt+"queryParams[0].name", "Required value"),
		Entry("a query parameter with an empty name", set(rich+"queryParams.0.name", "''"), richAt+"queryParams[0].name", "at least 1 chars"),
		Entry("a query parameter of an unknown type", set(rich+"queryParams.0.type", "Glob"), richAt+"queryParams[0].type", `"Present", "Absent", "In", "InSHA256"`),
		Entry("a query parameter that is no regular expression", set(rich+"queryParams.1", "{type: RegularExpression, name: q, value: '('}"), richAt+"queryParams[1]", regex),
		Entry("a cookie's name with =", set(rich+"cookies.0.name", "'a=b'"), richAt+"cookies[0].name", "name must be a cookie's name"),
		Entry("a cookie that is no regular expression", set(rich+"cookies.0", "{type: RegularExpression, name: q, value: '('}"), richAt+"cookies[0]", regex),
		Entry("Present with a value", set(rich+"headers.0.value", "a"), richAt+"headers[0].value", value),
		Entry("In without values", unset(rich+"headers.1.values"), richAt+"headers[1].values", "values must be set when type is In, such as {type: In, values: [free, trial]}"),
		Entry("In with a value", set(rich+"headers.1.value", "a"), richAt+"headers[1].value", value),
		Entry("In with an empty value", set(rich+"headers.1.values", "['']"), richAt+"headers[1].values[0]", "at least 1 chars"),
		Entry("In with hashes for values", set(rich+"headers.1", "{type: In, name: X-B, values: [a], hashes: ["+strings.Repeat("a", 64)+"]}"),
			richAt+"headers[1].hashes", "hashes must be set when type is InSHA256, and only then"),
		Entry("too many values", set(rich+"headers.1.values", repeat(257, "%")), richAt+"headers[1].values", "at most 256 items"),
		Entry("InSHA256 without hashes", set(rich+"headers.1", "{type: InSHA256, name: X-B}"), richAt+"headers[1].hashes", "hashes must be set when type is InSHA256"),
		Entry("a hash that is none", set(rich+"headers.1", "{type: InSHA256, name: X-B, hashes: ["+strings.Repeat("A", 64)+"]}"),
			richAt+"headers[1].hashes[0]", "should match '^[0-9a-f]{64}$'"),
		Entry("a port that is a number", set(rich+"ports", "[8080]"), richAt+"ports[0]", "must be of type string"),
		Entry("a port of 0", set(rich+"ports", "['0']"), richAt+"ports[0]", port),
		Entry("a port above 65535", set(rich+"ports", "['65536']"), richAt+"ports[0]", port),
		Entry("a port in upper case", set(rich+"ports", "[HTTP]"), richAt+"ports[0]", port),
		Entry("a long port", set(rich+"ports", "[abcdefghijklmnop]"), richAt+"ports[0]", "15"),
		Entry("a CIDR with host bits", set("spec.exempt.1.clientCIDRs", "[10.1.2.3/16]"), "spec.exempt[1].clientCIDRs[0]", cidr),
		Entry("gRPC that states nothing", set("spec.exempt.2.grpc", "{}"), "spec.exempt[2].grpc", "grpc must state service, method or both"),
		Entry("a gRPC service that is none", set("spec.exempt.2.grpc.service", "/grpc.health.v1.Health"), "spec.exempt[2].grpc.service", "must be the full name of a gRPC service, such as shop.v1.Cart"),
		Entry("a gRPC method that is none", set("spec.exempt.2.grpc.method", "Health/Check"), "spec.exempt[2].grpc.method", "must be the name of a gRPC method, such as Add"),
		Entry("a template with half an element", set(rich+"path.value", "'/users/{id}s'"), richAt+"path.value", template),
		Entry("a template's variable without a name", set(rich+"path.value", "'/{id}/{}'"), richAt+"path.value", template),
		Entry("a template's variable with a long name", set(rich+"path.value", "'/{id}/{"+strings.Repeat("a", 33)+"}'"), richAt+"path.value", template),
		Entry("a relative template", set("spec.exempt.0.path", "{type: Template, value: '{id}'}"), "spec.exempt[0].path.value", "value must start with / unless type is RegularExpression"),
		Entry("an empty entry, overrides", set("spec.limits.0.overrides.0.matches.0", "{}"), "spec.limits[0].overrides[0].matches[0]", emptyMatch),
		Entry("an empty entry, rules of cost", set("spec.limits.0.cost.fixed.rules.0.matches.0", "{}"), "spec.limits[0].cost.fixed.rules[0].matches[0]", emptyMatch),
	)

	DescribeTable("refuses in key parts", refused,
		Entry("PathVariable without its member", set("spec.limits.1.keyParts.3", "{type: PathVariable}"), "spec.limits[1].keyParts[3].pathVariable", "pathVariable must be set when type is PathVariable"),
		Entry("Query without its member", set("spec.limits.1.keyParts.4", "{type: Query}"), "spec.limits[1].keyParts[4].query", "query must be set when type is Query"),
		Entry("Cookie without its member", set("spec.limits.1.keyParts.5", "{type: Cookie}"), "spec.limits[1].keyParts[5].cookie", "cookie must be set when type is Cookie"),
		Entry("Claim without its member", set("spec.limits.1.keyParts.6", "{type: Claim}"), "spec.limits[1].keyParts[6].claim", "claim must be set when type is Claim"),
		Entry("a host that is not asked for", set("spec.limits.1.keyParts.0.host", "{}"), "spec.limits[1].keyParts[0].host", "host may be set only when type is Host"),
		Entry("a query that is not asked for", set("spec.limits.1.keyParts.0.query", "{name: q}"), "spec.limits[1].keyParts[0].query", "query must be set when type is Query"),
		Entry("the same query parameter twice", set("spec.limits.1.keyParts", "[{type: Query, query: {name: a}}, {type: Query, query: {name: a, whenMissing: Deny}}]"), "spec.limits[1].keyParts", "key parts must differ"),
		Entry("the method twice", set("spec.limits.1.keyParts", "[{type: Method}, {type: Method}]"), "spec.limits[1].keyParts", "key parts must differ"),
		Entry("a cookie's name with a space", set("spec.limits.1.keyParts.5.cookie.name", "a b"), "spec.limits[1].keyParts[5].cookie.name", "must be a cookie's name"),
		Entry("an empty query parameter", set("spec.limits.1.keyParts.4.query.name", "''"), "spec.limits[1].keyParts[4].query.name", "at least 1 chars"),
		Entry("Expression without its member", set("spec.limits.2.keyParts.0", "{type: Expression}"), "spec.limits[2].keyParts[0].expression", "expression must be set when type is Expression"),
		Entry("an expression beside another type", set("spec.limits.1.keyParts.0", "{type: Method, expression: {value: request.path}}"), "spec.limits[1].keyParts[0].expression", "and only then"),
		Entry("an empty expression", set("spec.limits.2.keyParts.0.expression.value", "''"), "spec.limits[2].keyParts[0].expression.value", "at least 1 chars"),
		Entry("a long expression of a key", set("spec.limits.2.keyParts.0.expression.value", strings.Repeat("x", 1025)), "spec.limits[2].keyParts[0].expression.value", "1024"),
		Entry("a long condition", set("spec.exempt.3.when", strings.Repeat("x", 1025)), "spec.exempt[3].when", "1024"),
		Entry("an empty claim", set("spec.limits.1.keyParts.6.claim.name", "''"), "spec.limits[1].keyParts[6].claim.name", "at least 1 chars"),
		Entry("a variable that is in no template", set("spec.limits.1.keyParts.3.pathVariable.name", "user"), "spec.limits[1].keyParts", templates),
		Entry("a variable that is the start of another", set(rich+"path.value", "'/users/{id2}'"), "spec.limits[1].keyParts", templates),
		Entry("a variable without matches", unset("spec.limits.1.matches"), "spec.limits[1].keyParts", templates),
		Entry("a variable where one entry has no path", set("spec.limits.1.matches", "[{path: {type: Template, value: '/{id}'}}, {methods: [GET]}]"), "spec.limits[1].keyParts", templates),
		Entry("a variable where one entry has another path", set("spec.limits.1.matches", "[{path: {type: Template, value: '/{id}'}}, {path: {type: Exact, value: '/{id}'}}]"), "spec.limits[1].keyParts", templates),
		Entry("a template without one", all(set("spec.limits.1.keyParts", "[{type: PathTemplate}]"), unset(rich+"path")), "spec.limits[1].keyParts", templates),
	)

	DescribeTable("refuses in cost", refused,
		Entry("an unknown type", set("spec.limits.0.cost", "{type: Body}"), "spec.limits[0].cost.type", `"Fixed", "RequestHeader", "ResponseHeader"`),
		Entry("RequestHeader without its member", set("spec.limits.1.cost", "{type: RequestHeader}"), "spec.limits[1].cost.requestHeader", "requestHeader must be set when type is RequestHeader"),
		Entry("ResponseHeader without its member", set("spec.limits.2.cost", "{type: ResponseHeader}"), "spec.limits[2].cost.responseHeader", "responseHeader must be set when type is ResponseHeader"),
		Entry("ResponseHeader with rules", set("spec.limits.3.cost.fixed", "{tokens: 1, rules: [{matches: [{methods: [GET]}], tokens: 5}]}"), "spec.limits[3].cost.fixed", "fixed must be set when type is Fixed"),
		Entry("a default above the maximum of a response", set("spec.limits.3.cost.responseHeader.default", "501"), "spec.limits[3].cost.responseHeader", "default must be at most maximum"),
		Entry("a default below one, of a response", set("spec.limits.3.cost.responseHeader.default", "-1"), "spec.limits[3].cost.responseHeader.default", "greater than or equal to 1"),
		Entry("no maximum of a response", unset("spec.limits.3.cost.responseHeader.maximum"), "spec.limits[3].cost.responseHeader.maximum", "Required value"),
		Entry("a maximum of a response above the capacity", set("spec.limits.3.cost.responseHeader.maximum", "1001"), "spec.limits[3].cost", "cost.responseHeader.maximum must be at most bucket.capacity"),
		Entry("a maximum of a response above an override's capacity", set("spec.limits.3.overrides", "[{name: small, type: Bucket, bucket: {capacity: 499, refill: {tokens: 1, interval: 1s}}}]"),
			"spec.limits[3].overrides", "the bucket.capacity of each override must be at least every cost"),
		Entry("a header of responses that servers take out", set("spec.limits.3.cost.responseHeader.name", "Trailer"), "spec.limits[3].cost.responseHeader.name", "must not be Host"),
		Entry("Fixed with a header", set("spec.limits.0.cost.requestHeader", "{name: X-Cost, default: 1, maximum: 1}"), "spec.limits[0].cost.requestHeader", "requestHeader must be set when type is RequestHeader"),
		Entry("a header with fixed", set("spec.limits.1.cost.fixed", "{tokens: 2}"), "spec.limits[1].cost.fixed", "fixed must be set when type is Fixed"),
		Entry("no default of a request", unset("spec.limits.1.cost.requestHeader.default"), "spec.limits[1].cost.requestHeader.default", "Required value"),
		Entry("no maximum", unset("spec.limits.1.cost.requestHeader.maximum"), "spec.limits[1].cost.requestHeader.maximum", "Required value"),
		Entry("a default above maximum", set("spec.limits.1.cost.requestHeader.maximum", "1"), "spec.limits[1].cost.requestHeader", "default must be at most maximum"),
		Entry("a default above the capacity", set("spec.limits.1.cost.requestHeader.default", "101"), "spec.limits[1].cost", "the default cost must be at most bucket.capacity"),
		Entry("a header that servers take out", set("spec.limits.1.cost.requestHeader.name", "Host"), "spec.limits[1].cost.requestHeader.name", "must not be Host"),
		Entry("a rule without matches", unset("spec.limits.0.cost.fixed.rules.0.matches"), "spec.limits[0].cost.fixed.rules[0].matches", "Required value"),
		Entry("a rule without tokens", unset("spec.limits.0.cost.fixed.rules.0.tokens"), "spec.limits[0].cost.fixed.rules[0].tokens", "Required value"),
		Entry("a rule of nothing", set("spec.limits.0.cost.fixed.rules.0.tokens", "0"), "spec.limits[0].cost.fixed.rules[0].tokens", "greater than or equal to 1"),
		Entry("a rule above the capacity", all(set("spec.limits.0.cost.fixed.rules.0.tokens", "101"), unset("spec.limits.0.overrides")),
			"spec.limits[0].cost", "the tokens of each of cost.fixed.rules must be at most bucket.capacity"),
		Entry("a rule above an override's capacity", set("spec.limits.0.cost.fixed.rules.0.tokens", "51"), "spec.limits[0].overrides", "the bucket.capacity of each override must be at least every cost"),
		Entry("a default above an override's capacity", set("spec.limits.1.overrides", "[{name: a, type: Bucket, bucket: {capacity: 1, refill: {tokens: 1, interval: 1s}}}]"),
			"spec.limits[1].overrides", "the bucket.capacity of each override must be at least every cost"),
		Entry("too many rules", set("spec.limits.0.cost.fixed.rules", repeat(17, "{matches: [{methods: [GET]}], tokens: 1}")), "spec.limits[0].cost.fixed.rules", "at most 16 items"),
	)

	DescribeTable("refuses in overrides", refused,
		Entry("an unknown type", set("spec.limits.0.overrides.0.type", "Allow"), "spec.limits[0].overrides[0].type", `"Bucket", "Unlimited", "Deny"`),
		Entry("no name", unset("spec.limits.0.overrides.0.name"), "spec.limits[0].overrides[0].name", "Required value"),
		Entry("a name that is no DNS label", set("spec.limits.0.overrides.0.name", "Gold"), "spec.limits[0].overrides[0].name", "must be a DNS label"),
		Entry("the same name twice", set("spec.limits.0.overrides.0.name", "gold"), "spec.limits[0].overrides", "the names of overrides must differ"),
		Entry("Deny with a bucket", set("spec.limits.0.overrides.0.bucket", "{capacity: 50, refill: {tokens: 1, interval: 1s}}"), "spec.limits[0].overrides[0].bucket", "bucket must be set when type is Bucket, and only then"),
		Entry("Bucket without one", unset("spec.limits.0.overrides.2.bucket"), "spec.limits[0].overrides[2].bucket", "bucket must be set when type is Bucket"),
		Entry("a bucket that refills too fast", set("spec.limits.0.overrides.2.bucket.refill.tokens", "1000001"), "spec.limits[0].overrides[2].bucket.refill", "at most 1 token per microsecond"),
		Entry("too many", set("spec.limits.0.overrides", repeat(65, "{name: %, type: Unlimited}")), "spec.limits[0].overrides", "64"),
	)

	DescribeTable("refuses in a limit", refused,
		Entry("no limits", unset("spec.limits"), "spec.limits", "Required value"),
		Entry("an empty list of limits", set("spec.limits", "[]"), "spec.limits", "at least 1 items"),
		Entry("too many limits", set("spec.limits", repeat(17, "{name: %, bucket: {capacity: 1, refill: {tokens: 1, interval: 1s}}}")), "spec.limits", "at most 16 items"),
		Entry("the same name twice", set("spec.limits", "[{name: a, bucket: {capacity: 1, refill: {tokens: 1, interval: 1s}}}, {name: a, bucket: {capacity: 1, refill: {tokens: 1, interval: 1s}}}]"),
			"spec.limits[1]", "Duplicate value"),
		Entry("no name", unset("spec.limits.0.name"), "spec.limits[0].name", "Required value"),
		Entry("a name that is no DNS label", set("spec.limits.0.name", "Per_Key"), "spec.limits[0].name", "must be a DNS label: lower-case letters, digits and -"),
		Entry("a long name", set("spec.limits.0.name", strings.Repeat("a", 64)), "spec.limits[0].name", "63"),
		Entry("too many key parts", set("spec.limits.0.keyParts", repeat(9, "{type: Header, header: {name: X-%}}")), "spec.limits[0].keyParts", "at most 8 items"),
		Entry("the same type of key part twice", set("spec.limits.0.keyParts", "[{type: ClientIP}, {type: ClientIP, clientIP: {whenMissing: Deny}}]"), "spec.limits[0].keyParts", "key parts must differ"),
		Entry("the same header twice", set("spec.limits.0.keyParts", "[{type: Header, header: {name: X-A}}, {type: Header, header: {name: x-a}}]"), "spec.limits[0].keyParts", "key parts must differ"),
		Entry("a key part without a type", unset("spec.limits.0.keyParts.1.type"), "spec.limits[0].keyParts[1].type", "Required value"),
		Entry("a key part of an unknown type", set("spec.limits.0.keyParts.1", "{type: Body}"), "spec.limits[0].keyParts[1].type", `"Header", "ClientIP"`),
		Entry("a Header part without a header", set("spec.limits.0.keyParts.0", "{type: Header}"), "spec.limits[0].keyParts[0].header", header),
		Entry("a ClientIP part with a header", set("spec.limits.0.keyParts.1", "{type: ClientIP, header: {name: X-Api-Key}}"), "spec.limits[0].keyParts[1].header", header),
		Entry("a Header part with a clientIP", set("spec.limits.0.keyParts.0.clientIP", "{}"), "spec.limits[0].keyParts[0].clientIP", "clientIP may be set only when type is ClientIP"),
		Entry("a key by the Host header", set("spec.limits.0.keyParts.0.header.name", "host"), "spec.limits[0].keyParts[0].header.name", "must not be Host"),
		Entry("a key by a header that is none", set("spec.limits.0.keyParts.0.header.name", "'X-Api-Key:'"), "spec.limits[0].keyParts[0].header.name", headerName),
		Entry("an unknown whenMissing", set("spec.limits.0.keyParts.0.header.whenMissing", "Ignore"), "spec.limits[0].keyParts[0].header.whenMissing", `"Share", "Skip", "Deny"`),
		Entry("an unknown whenMissing of an address", set("spec.limits.0.keyParts.1.clientIP.whenMissing", "Ignore"), "spec.limits[0].keyParts[1].clientIP.whenMissing", `"Share", "Skip", "Deny"`),
		Entry("no bucket", unset("spec.limits.0.bucket"), "spec.limits[0].bucket", "Required value"),
		Entry("no capacity", unset("spec.limits.0.bucket.capacity"), "spec.limits[0].bucket.capacity", "Required value"),
		Entry("too large a capacity", set("spec.limits.0.bucket.capacity", "1000000001"), "spec.limits[0].bucket.capacity", "less than or equal to 1000000000"),
		Entry("no refill", unset("spec.limits.0.bucket.refill"), "spec.limits[0].bucket.refill", "Required value"),
		Entry("a refill of nothing", set("spec.limits.0.bucket.refill.tokens", "0"), "spec.limits[0].bucket.refill.tokens", "greater than or equal to 1"),
		Entry("too large a refill", set("spec.limits.0.bucket.refill", "{tokens: 1000000001, interval: 1h}"), "spec.limits[0].bucket.refill.tokens", "less than or equal to 1000000000"),
		Entry("a cost without a type", unset("spec.limits.0.cost.type"), "spec.limits[0].cost.type", "Required value"),
		Entry("a Fixed cost without fixed", unset("spec.limits.0.cost.fixed"), "spec.limits[0].cost.fixed", "fixed must be set when type is Fixed"),
		Entry("a cost above the capacity", all(set("spec.limits.0.cost.fixed.tokens", "101"), unset("spec.limits.0.overrides")), "spec.limits[0].cost", "must be at most bucket.capacity, else no request could ever pass"),
		Entry("a capacity of nothing", set("spec.limits.0.bucket.capacity", "0"),
			"spec.limits[0].bucket.capacity", "greater than or equal to 1"),
	)

	// Not so for these: absent would mean the same, the value is brought to its normal form, or the bound is a narrow one.
	DescribeTable("refuses, although a sidecar could live with it,", refusedAtAdmission,
		Entry("a cost of nothing", set("spec.limits.0.cost.fixed.tokens", "0"), "spec.limits[0].cost.fixed.tokens", "greater than or equal to 1"),
		Entry("a long header name", set("spec.limits.0.matches.0.headers.0.name", strings.Repeat("x", 129)), "spec.limits[0].matches[0].headers[0].name", "128"),
		Entry("a long header value", set("spec.limits.0.matches.0.headers.0.value", strings.Repeat("x", 257)), "spec.limits[0].matches[0].headers[0].value", "256"),
		Entry("a long method", set("spec.limits.0.matches.0.methods", "["+strings.Repeat("G", 25)+"]"), "spec.limits[0].matches[0].methods[0]", "24"),
		Entry("a long path", set("spec.exempt.0.path.value", "/"+strings.Repeat("a", 256)), "spec.exempt[0].path.value", "256"),
		Entry("a method twice", set("spec.limits.0.matches.0.methods", "[GET, GET]"), "spec.limits[0].matches[0].methods[1]", "Duplicate value"),
		Entry("a path that ends in dots", set("spec.exempt.0.path.value", "/a/.."), "spec.exempt[0].path.value", normalPath),
		Entry("a path with a dot element", set("spec.exempt.0.path.value", "/a/./b"), "spec.exempt[0].path.value", normalPath),
		Entry("a path with a fragment", set("spec.exempt.0.path.value", "'/a#b'"), "spec.exempt[0].path.value", normalPath),
		Entry("a path with an empty element", set("spec.exempt.0.path.value", "/a//b"), "spec.exempt[0].path.value", normalPath),
		Entry("no entry, matches", set("spec.limits.0.matches", "[]"), "spec.limits[0].matches", "at least 1 items"),
		Entry("no header", set("spec.limits.0.matches.0.headers", "[]"), "spec.limits[0].matches[0].headers", "at least 1 items"),
		Entry("no key part", set("spec.limits.0.keyParts", "[]"), "spec.limits[0].keyParts", "at least 1 items"),
		Entry("no method", set("spec.limits.0.matches.0.methods", "[]"), "spec.limits[0].matches[0].methods", "at least 1 items"),
		Entry("no selector at all", unset("spec.selector"), "spec.selector", "Required value"),
		Entry("the same proxy twice", set("spec.clientIP.xForwardedFor.trustedProxies", "[10.0.0.0/8, 10.0.0.0/8]"),
			"spec.clientIP.xForwardedFor.trustedProxies[1]", "Duplicate value"),
	)

	DescribeTable("refuses, although a sidecar could live with it, also", refusedAtAdmission,
		Entry("many hosts", set(rich+"hosts", repeat(17, "%.example.com")), richAt+"hosts", "at most 16 items"),
		Entry("many query parameters", set(rich+"queryParams", repeat(5, "{name: %, value: a}")), richAt+"queryParams", "at most 4 items"),
		Entry("many cookies", set(rich+"cookies", repeat(5, "{name: %, value: a}")), richAt+"cookies", "at most 4 items"),
		Entry("many ports", set(rich+"ports", repeat(9, "%")), richAt+"ports", "at most 8 items"),
		Entry("many CIDRs", set(rich+"clientCIDRs", cidrs(33)), richAt+"clientCIDRs", "at most 32 items"),
		Entry("a value twice", set(rich+"headers.1.values", "[a, a]"), richAt+"headers[1].values[1]", "Duplicate value"),
		Entry("many matches of an override", set("spec.limits.0.overrides.0.matches", repeat(5, "{path: {type: Exact, value: /%}}")), "spec.limits[0].overrides[0].matches", "at most 4 items"),
		Entry("no matches of an override", set("spec.limits.0.overrides.0.matches", "[]"), "spec.limits[0].overrides[0].matches", "at least 1 items"),
		Entry("many matches of a rule", set("spec.limits.0.cost.fixed.rules.0.matches", repeat(5, "{path: {type: Exact, value: /%}}")), "spec.limits[0].cost.fixed.rules[0].matches", "at most 4 items"),
		Entry("a long body, in characters", set("spec.response.body.template", strings.Repeat("a", 4097)), "spec.response.body.template", "4096"),
	)

	DescribeTable("refuses an interval", func(ctx SpecContext, interval, message string) {
		refused(ctx, set("spec.limits.0.bucket.refill.interval", interval), "spec.limits[0].bucket.refill.interval", message)
	},
		Entry("without a unit", "'10'", grammar),
		Entry("in days", "1d", grammar),
		Entry("in microseconds", "500us", grammar),
		Entry("with a fraction", "1.5s", grammar),
		Entry("with a sign", "-1s", grammar),
		Entry("with a space", "1h 30m", grammar),
		Entry("of five parts", "1h1h1h1h1h", grammar),
		Entry("with more digits than a duration holds", "99999h", grammar),
		Entry("of nothing", "0s", durations),
		Entry("above 366 days", "8785h", durations),
		Entry("that is empty", "''", grammar),
		Entry("that is a number", "10", "must be of type string"),
		Entry("that is endless", strings.Repeat("1", 40)+"s", "may not be more than 40 bytes"),
	)

	It("refuses a refill above one token per microsecond", func(ctx SpecContext) {
		refused(ctx, set("spec.limits.0.bucket.refill", "{tokens: 1001, interval: 1ms}"), "spec.limits[0].bucket.refill",
			"refill must be at most 1 token per microsecond: lower tokens or lengthen interval")
	})

	DescribeTable("refuses in the rest of the spec", refused,
		Entry("an unknown mode", set("spec.mode", "DryRun"), "spec.mode", `"Enforce", "Shadow"`),
		Entry("a timeout above 1s", set("spec.store.timeout", "1001ms"), "spec.store.timeout", "timeout must be at most 1s"),
		Entry("a timeout of nothing", set("spec.store.timeout", "0ms"), "spec.store.timeout", durations),
		Entry("a timeout that is none", set("spec.store.timeout", "fast"), "spec.store.timeout", grammar),
		Entry("an unknown onFailure", set("spec.store.onFailure", "Allow"), "spec.store.onFailure", `"Local", "Open", "Closed"`),
		Entry("unknown rate limit fields", set("spec.response.rateLimitHeaders", "All"), "spec.response.rateLimitHeaders", `"Standard", "Legacy", "Both", "None"`),
		Entry("an unknown mode of a limit", set("spec.limits.0.mode", "DryRun"), "spec.limits[0].mode", `"Enforce", "Shadow"`),
		Entry("a body without a template", unset("spec.response.body.template"), "spec.response.body.template", "Required value"),
		Entry("a body of a type that is none", set("spec.response.body.contentType", "json"), "spec.response.body.contentType", "must be a media type, such as application/json"),
		Entry("a body of a type with a line break", set("spec.response.body.contentType", `"text/plain;\r\nX: y"`), "spec.response.body.contentType", "must be a media type"),
		Entry("a status code that is no error", set("spec.response.statusCode", "399"), "spec.response.statusCode", "greater than or equal to 400"),
		Entry("a status code that is none", set("spec.response.statusCode", "600"), "spec.response.statusCode", "less than or equal to 599"),
	)

	DescribeTable("accepts", accepted,
		Entry("the empty selector", set("spec.selector", "{}")),
		Entry("an empty label value", set("spec.selector.matchLabels.app", "''")),
		Entry("Shadow", set("spec.mode", "Shadow")),
		Entry("Peer", set("spec.clientIP", "{type: Peer}")),
		Entry("a single address as a CIDR", set("spec.clientIP.xForwardedFor.trustedProxies", "[10.42.7.1/32, '2001:db8::1/128']")),
		Entry("no clientIP where nothing needs it", all(unset("spec.clientIP"), unset("spec.limits.0.keyParts"), unset("spec.exempt"), unset("spec.limits.0.overrides"))),
		Entry("two headers as key parts", set("spec.limits.0.keyParts", "[{type: Header, header: {name: X-A}}, {type: Header, header: {name: X-B}}]")),
		Entry("a ClientIP part without its member", set("spec.limits.0.keyParts.1", "{type: ClientIP}")),
		Entry("no exempt, no matches", all(unset("spec.exempt"), unset("spec.limits.0.matches"))),
		Entry("an uncommon method", set("spec.limits.0.matches.0.methods", "[M-SEARCH, VERSION-CONTROL]")),
		Entry("a path with dots in its elements", set("spec.exempt.0.path.value", "/.well-known/a..b/...")),
		Entry("a regular expression that starts anywhere", set("spec.limits.0.matches.1.path.value", "'.*[.]json'")),
		Entry("every character of a header's name", set("spec.limits.0.matches.0.headers.0.name", "\"aZ0!#$%&'*+-.^_`|~\"")),
		Entry("the largest bucket", set("spec.limits.0.bucket", "{capacity: 1000000000, refill: {tokens: 1000000000, interval: 8784h}}")),
		Entry("the fastest refill", set("spec.limits.0.bucket.refill", "{tokens: 1000, interval: 1ms}")),
		Entry("a duration of four parts", set("spec.limits.0.bucket.refill.interval", "8783h59m59s1000ms")),
		Entry("a cost of the whole capacity", all(set("spec.limits.0.cost.fixed.tokens", "100"), unset("spec.limits.0.overrides"))),
		Entry("a maximum above the capacity", set("spec.limits.1.cost.requestHeader.maximum", "1000000000")),
		Entry("a key part by two variables", all(set(rich+"path.value", "'/{a}/{b}/'"),
			set("spec.limits.1.keyParts", "[{type: PathVariable, pathVariable: {name: a}}, {type: PathVariable, pathVariable: {name: b}}]"))),
		Entry("the most values of In", set(rich+"headers.1.values", repeat(256, "%"))),
		Entry("the most overrides", set("spec.limits.1.overrides", repeat(64, "{name: %, type: Unlimited}"))),
		Entry("a numeric IPv4 host", set(rich+"hosts", "[192.0.2.1]")),
		Entry("gRPC by service alone", set("spec.exempt.2.grpc", "{service: shop.v1.Cart}")),
		Entry("a body of the default type", unset("spec.response.body.contentType")),
		Entry("the longest timeout", set("spec.store.timeout", "1s")),
	)
})
