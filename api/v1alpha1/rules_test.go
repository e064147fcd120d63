package v1alpha1_test

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

const (
	labelKey    = "must be a label key: an optional DNS prefix and /"
	labelValue  = "must be a label value: empty, or up to 63 letters, digits"
	emptyMatch  = "a match must state at least one of methods, path and headers"
	normalPath  = "value must be a path in normal form when type is Exact or PathPrefix"
	regex       = "value must be a regular expression in RE2 syntax when type is RegularExpression"
	headerName  = "must be a header name: letters, digits and punctuation such as -, no colon and no space"
	grammar     = "must be one to four whole numbers with a unit each, of h, m, s and ms"
	durations   = "must be from 1ms to 366 days (8784h)"
	cidr        = "must be a CIDR without host bits, such as 10.42.7.0/24"
	header      = "header must be set when type is Header"
	forwarded   = "xForwardedFor must be set when type is XForwardedFor"
	expressions = "spec.selector.matchExpressions"
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
		Entry("an IPv4-mapped CIDR", set("spec.clientIP.xForwardedFor.trustedProxies", "['::ffff:10.0.0.0/104']"), "spec.clientIP.xForwardedFor.trustedProxies[0]", cidr),
		Entry("an IPv4 prefix of 0", set("spec.clientIP.ipv4PrefixLength", "0"), "spec.clientIP.ipv4PrefixLength", "greater than or equal to 1"),
		Entry("an IPv4 prefix of 33", set("spec.clientIP.ipv4PrefixLength", "33"), "spec.clientIP.ipv4PrefixLength", "less than or equal to 32"),
		Entry("an IPv6 prefix of 0", set("spec.clientIP.ipv6PrefixLength", "0"), "spec.clientIP.ipv6PrefixLength", "greater than or equal to 1"),
		Entry("an IPv6 prefix of 129", set("spec.clientIP.ipv6PrefixLength", "129"), "spec.clientIP.ipv6PrefixLength", "less than or equal to 128"),
		Entry("nothing where a key part needs it", unset("spec.clientIP"), "spec.clientIP", "clientIP must be set when a limit has a key part of type ClientIP"),
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
		Entry("a relative path", set("spec.exempt.0.path.value", "healthz"), "spec.exempt[0].path.value", "value must start with / when type is Exact or PathPrefix"),
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
		Entry("a header without a value", unset("spec.limits.0.matches.0.headers.0.value"), "spec.limits[0].matches[0].headers[0].value", "Required value"),
		Entry("an empty header value", set("spec.limits.0.matches.0.headers.0.value", "''"), "spec.limits[0].matches[0].headers[0].value", "at least 1 chars"),
		Entry("a header value that is no regular expression", set("spec.limits.0.matches.0.headers.1.value", "'curl/('"), "spec.limits[0].matches[0].headers[1]", regex),
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
		Entry("an unknown cost type", set("spec.limits.0.cost", "{type: RequestHeader}"), "spec.limits[0].cost.type", `"Fixed"`),
		Entry("a cost without a type", unset("spec.limits.0.cost.type"), "spec.limits[0].cost.type", "Required value"),
		Entry("a Fixed cost without fixed", unset("spec.limits.0.cost.fixed"), "spec.limits[0].cost.fixed", "fixed must be set when type is Fixed"),
		Entry("a cost above the capacity", set("spec.limits.0.cost.fixed.tokens", "101"), "spec.limits[0].cost", "must be at most bucket.capacity, else no request could ever pass"),
		Entry("a capacity of nothing", set("spec.limits.0.bucket.capacity", "0"),
			"spec.limits[0].bucket.capacity", "greater than or equal to 1"),
	)

	// Not so for these: absent would mean the same, the value is brought to its normal form, or the bound is a narrow one.
	DescribeTable("refuses, although a sidecar could live with it,", refusedAtAdmission,
		Entry("a cost of nothing", set("spec.limits.0.cost.fixed.tokens", "0"), "spec.limits[0].cost.fixed.tokens", "greater than or equal to 1"),
		Entry("a long header name", set("spec.limits.0.matches.0.headers.0.name", strings.Repeat("x", 257)), "spec.limits[0].matches[0].headers[0].name", "256"),
		Entry("a long header value", set("spec.limits.0.matches.0.headers.0.value", strings.Repeat("x", 257)), "spec.limits[0].matches[0].headers[0].value", "256"),
		Entry("a long method", set("spec.limits.0.matches.0.methods", "["+strings.Repeat("G", 33)+"]"), "spec.limits[0].matches[0].methods[0]", "32"),
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
		Entry("unknown rate limit fields", set("spec.response.rateLimitHeaders", "All"), "spec.response.rateLimitHeaders", `"Standard", "Legacy", "None"`),
		Entry("a status code that is no error", set("spec.response.statusCode", "399"), "spec.response.statusCode", "greater than or equal to 400"),
		Entry("a status code that is none", set("spec.response.statusCode", "600"), "spec.response.statusCode", "less than or equal to 599"),
	)

	DescribeTable("accepts", accepted,
		Entry("the empty selector", set("spec.selector", "{}")),
		Entry("an empty label value", set("spec.selector.matchLabels.app", "''")),
		Entry("Shadow", set("spec.mode", "Shadow")),
		Entry("Peer", set("spec.clientIP", "{type: Peer}")),
		Entry("a single address as a CIDR", set("spec.clientIP.xForwardedFor.trustedProxies", "[10.42.7.1/32, '2001:db8::1/128']")),
		Entry("no clientIP where no key part needs it", all(unset("spec.clientIP"), unset("spec.limits.0.keyParts"))),
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
		Entry("a cost of the whole capacity", set("spec.limits.0.cost.fixed.tokens", "100")),
		Entry("the longest timeout", set("spec.store.timeout", "1s")),
	)
})
