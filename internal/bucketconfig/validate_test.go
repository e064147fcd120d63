package bucketconfig_test

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/internal/bucketconfig"
)

type record = bucketconfig.Record

var _ = Describe("Validate", func() {
	It("accepts a record that states everything", func() {
		Expect(validRecord().Validate()).To(Succeed())
	})

	DescribeTable("refuses a record out of bounds and names the field",
		func(change func(*record), message string) {
			r := validRecord()
			change(r)
			Expect(r.Validate()).To(MatchError(ContainSubstring(message)))
		},
		Entry("schema", func(r *record) { r.Schema = 3 }, "schema version 3 is unknown"),
		Entry("kind", func(r *record) { r.Kind = "Other" }, `kind: "Other" is none of`),
		Entry("name missing", func(r *record) { r.Name = "" }, "name: 0 bytes"),
		Entry("name long", func(r *record) { r.Name = strings.Repeat("x", 254) }, "name: 254 bytes"),
		Entry("uid", func(r *record) { r.UID = "" }, "uid: 0 bytes"),
		Entry("generation", func(r *record) { r.Generation = 0 }, "generation: 0 is below 1"),
		Entry("order zero", func(r *record) { r.Order = 0 }, "order: 0 is outside"),
		Entry("order beyond a double", func(r *record) { r.Order = 1 << 53 }, "order: 9007199254740992 is outside"),
		Entry("labels", func(r *record) {
			r.Selector.MatchLabels = map[string]string{"": "x"}
		}, "selector: matchLabels: key: 0 bytes"),
		Entry("label value", func(r *record) {
			r.Selector.MatchLabels["app"] = strings.Repeat("x", 1025)
		}, "selector: matchLabels: value: 1025"),
		Entry("operator", func(r *record) {
			r.Selector.MatchExpressions[0].Operator = "Gt"
		}, `selector: matchExpressions[0]: operator: "Gt" is none of`),
		Entry("operator without values", func(r *record) {
			r.Selector.MatchExpressions[0].Values = nil
		}, "selector: matchExpressions[0]: values: 0 with operator NotIn"),
		Entry("operator with needless values", func(r *record) {
			r.Selector.MatchExpressions[0].Operator = "Exists"
		}, "values: 1 with operator Exists"),
		Entry("many values", func(r *record) {
			r.Selector.MatchExpressions[0].Values = make([]string, 65)
		}, "values: 65 are more than 64"),
		Entry("many requirements", func(r *record) {
			r.Selector.MatchExpressions = make([]bucketconfig.SelectorRequirement, 65)
		}, "matchExpressions: 65 are more than 64"),
		Entry("client IP type", func(r *record) {
			r.ClientIP.Type, r.ClientIP.TrustedProxies = "Other", nil
		}, `clientIP: type: "Other"`),
		Entry("X-Forwarded-For without proxies", func(r *record) { r.ClientIP.TrustedProxies = nil }, "clientIP: trustedProxies: 0 with"),
		Entry("peer with proxies", func(r *record) { r.ClientIP.Type = "Peer" }, "clientIP: trustedProxies: 1 with"),
		Entry("CIDR", func(r *record) { r.ClientIP.TrustedProxies = []string{"10.0.0.1"} }, "clientIP: trustedProxies[0]: "),
		Entry("many CIDRs", func(r *record) { r.ClientIP.TrustedProxies = make([]string, 65) }, "trustedProxies: 65 are more"),
		Entry("IPv4 prefix", func(r *record) { r.ClientIP.IPv4PrefixLength = 33 }, "ipv4PrefixLength: 33 is outside 0..32"),
		Entry("IPv6 prefix", func(r *record) { r.ClientIP.IPv6PrefixLength = -1 }, "ipv6PrefixLength: -1 is outside 0..128"),
		Entry("many exempt", func(r *record) { r.Exempt = make([]bucketconfig.Match, 17) }, "exempt: 17 are more than 16"),
		Entry("an empty match would exempt all", func(r *record) { r.Exempt = []bucketconfig.Match{{}} }, "exempt[0]: states nothing"),
		Entry("path type", func(r *record) { r.Exempt[0].Path.Type = "Prefix" }, `exempt[0]: path: type: "Prefix"`),
		Entry("path value", func(r *record) { r.Exempt[0].Path.Value = "" }, "exempt[0]: path: value: 0 bytes"),
		Entry("no limit", func(r *record) { r.Limits = nil }, "limits: count: 0 is outside 1..16"),
		Entry("many limits", func(r *record) { r.Limits = make([]bucketconfig.Limit, 17) }, "limits: count: 17 is outside 1..16"),
		Entry("limit name", func(r *record) { r.Limits[0].Name = "Per Key" }, `limits[0]: name: "Per Key" is not a DNS label`),
		Entry("limit name twice", func(r *record) { r.Limits = append(r.Limits, r.Limits[0]) }, `limits[4].name: "per-key" stands twice`),
		Entry("many matches", func(r *record) { r.Limits[0].Matches = make([]bucketconfig.Match, 17) }, "matches: 17 are more than 16"),
		Entry("many methods", func(r *record) { r.Limits[0].Matches[0].Methods = make([]string, 17) }, "methods: 17 are more than 16"),
		Entry("empty method", func(r *record) { r.Limits[0].Matches[0].Methods[1] = "" }, "methods[1]: method: 0 bytes"),
		Entry("many headers", func(r *record) {
			r.Limits[0].Matches[0].Headers = make([]bucketconfig.NamedMatch, 9)
		}, "headers: 9 are more than 8"),
		Entry("header type", func(r *record) { r.Limits[0].Matches[0].Headers[0].Type = "PathPrefix" }, `headers[0]: type: "PathPrefix"`),
		Entry("header spelling", func(r *record) {
			r.Limits[0].Matches[0].Headers[0].Name = "x-plan"
		}, `headers[0]: name: "x-plan" is not the canonical "X-Plan"`),
		Entry("header value", func(r *record) {
			r.Limits[0].Matches[0].Headers[0].Value = strings.Repeat("x", 1025)
		}, "headers[0]: value: 1025"),
		Entry("not UTF-8", func(r *record) { r.Limits[0].Matches[0].Headers[0].Value = "\xff" }, "is not UTF-8"),
		Entry("bad regular expression", func(r *record) { r.Limits[0].Matches[0].Headers[0].Value = "(" }, `regular expression "(": `),
		Entry("bad regular expression of a path", func(r *record) {
			r.Exempt[0].Path = &bucketconfig.StringMatch{Type: "RegularExpression", Value: "["}
		}, `regular expression "[": `),
		Entry("one huge regular expression", func(r *record) {
			r.Limits[0].Matches[0].Headers[0].Value = "(" + strings.Repeat("abcdefgh", 20) + "){1000}"
		}, "compile to more than 50000 instructions"),
		Entry("many regular expressions, huge together", func(r *record) {
			match := r.Limits[0].Matches[0]
			match.Headers[0].Value = "(abcdefgh){1000}"
			r.Limits[0].Matches = []bucketconfig.Match{match, match, match, match, match, match, match}
		}, "compile to more than 50000 instructions"),
		Entry("many key parts", func(r *record) { r.Limits[0].KeyParts = make([]bucketconfig.KeyPart, 9) }, "keyParts: 9 are more than 8"),
		Entry("key part type", func(r *record) { r.Limits[0].KeyParts[0].Type = "Body" }, `keyParts[0]: type: "Body"`),
		Entry("key part header", func(r *record) { r.Limits[0].KeyParts[0].Name = "" }, "keyParts[0]: name: 0 bytes"),
		Entry("key part header's spelling", func(r *record) { r.Limits[0].KeyParts[0].Name = "x-api-key" }, "is not the canonical"),
		Entry("key part client IP with a name", func(r *record) { r.Limits[0].KeyParts[1].Name = "x" }, "keyParts[1]: name: 1 bytes"),
		Entry("whenMissing", func(r *record) { r.Limits[0].KeyParts[0].WhenMissing = "" }, `keyParts[0]: whenMissing: ""`),
		Entry("client IP not stated", func(r *record) { r.ClientIP, r.Exempt = nil, nil }, "limits[0].keyParts: ClientIP needs clientIP"),
		Entry("capacity", func(r *record) { r.Limits[0].Bucket.Capacity = 1e9 + 1 }, "bucket: capacity: 1000000001 is outside"),
		Entry("refill", func(r *record) { r.Limits[0].Bucket.RefillTokens = 0 }, "bucket: refill_tokens: 0 is outside"),
		Entry("short interval", func(r *record) { r.Limits[0].Bucket.RefillIntervalUS = 999 }, "bucket: refill_interval_us: 999 is outside"),
		Entry("long interval", func(r *record) {
			r.Limits[0].Bucket.RefillIntervalUS = 366*24*3600*1_000_000 + 1
		}, "bucket: refill_interval_us: 31622400000001 is outside"),
		Entry("fast refill", func(r *record) { r.Limits[0].Bucket.RefillTokens = 1_000_001 }, "more than one token per µs"),
		Entry("cost zero", func(r *record) { r.Limits[0].Cost = 0 }, "cost: 0 is outside 1..100"),
		Entry("cost above the capacity", func(r *record) { r.Limits[0].Cost = 101 }, "cost: 101 is outside 1..100"),
		Entry("timeout", func(r *record) { r.Store.TimeoutUS = 999 }, "store: timeout_us: 999 is outside"),
		Entry("long timeout", func(r *record) { r.Store.TimeoutUS = 1_000_001 }, "store: timeout_us: 1000001 is outside"),
		Entry("onFailure", func(r *record) { r.Store.OnFailure = "Panic" }, `store: onFailure: "Panic"`),
		Entry("header fields", func(r *record) { r.Response.RateLimitHeaders = "" }, `response: rateLimitHeaders: ""`),
		Entry("a host with a port", func(r *record) { r.Limits[1].Matches[0].Hosts[0] = "a:80" }, `hosts[0]: "a:80" is no DNS name`),
		Entry("a host in upper case", func(r *record) { r.Limits[1].Matches[0].Hosts[0] = "A" }, `hosts[0]: "A" is no DNS name`),
		Entry("a wildcard inside a host", func(r *record) { r.Limits[1].Matches[0].Hosts[0] = "a.*" }, `hosts[0]: "a.*" is no DNS name`),
		Entry("many hosts", func(r *record) { r.Limits[1].Matches[0].Hosts = make([]string, 65) }, "hosts: 65 are more than 64"),
		Entry("query parameter", func(r *record) { r.Limits[1].Matches[0].QueryParams[0].Name = "" }, "queryParams[0]: name: 0 bytes"),
		Entry("many query parameters", func(r *record) {
			r.Limits[1].Matches[0].QueryParams = make([]bucketconfig.NamedMatch, 9)
		}, "queryParams: 9 are more than 8"),
		Entry("cookie type", func(r *record) { r.Limits[1].Matches[0].Cookies[0].Type = "Like" }, `cookies[0]: type: "Like"`),
		Entry("many cookies", func(r *record) {
			r.Limits[1].Matches[0].Cookies = make([]bucketconfig.NamedMatch, 9)
		}, "cookies: 9 are more than 8"),
		Entry("Present with a value", func(r *record) {
			r.Limits[1].Matches[0].QueryParams[0].Value = "x"
		}, `queryParams[0]: value: "x" with type Present`),
		Entry("Exact with values", func(r *record) {
			r.Limits[0].Matches[0].Headers[0].Values = []string{"x"}
		}, "values: 1 with type RegularExpression"),
		Entry("In without values", func(r *record) { r.Limits[1].Matches[0].Headers[0].Values = nil }, "values: 0 with type In"),
		Entry("In with an empty value", func(r *record) { r.Limits[1].Matches[0].Headers[0].Values[1] = "" }, "values[1]: value: 0 bytes"),
		Entry("many values of In", func(r *record) {
			r.Limits[1].Matches[0].Headers[0].Values = make([]string, 257)
		}, "values: 257 are more than 256"),
		Entry("a hash that is none", func(r *record) { r.Limits[1].Matches[0].Cookies[0].Values[0] = "E3" }, `values[0]: "E3" is no SHA-256`),
		Entry("bad regular expression of a query parameter", func(r *record) {
			r.Limits[1].Matches[0].QueryParams[0] = bucketconfig.NamedMatch{Name: "q", Type: "RegularExpression", Value: "("}
		}, `limits[1].matches[0]: regular expression "("`),
		Entry("bad regular expression of a rule", func(r *record) {
			r.Limits[1].CostRules[0].Matches[0].Path = &bucketconfig.StringMatch{Type: "RegularExpression", Value: "("}
		}, `limits[1].cost_rules[0].matches[0]: regular expression "("`),
		Entry("bad regular expression of an override", func(r *record) {
			r.Limits[1].Overrides[0].Matches[0].Headers[0] = bucketconfig.NamedMatch{Name: "X-A", Type: "RegularExpression", Value: "("}
		}, `limits[1].overrides[0].matches[0]: regular expression "("`),
		Entry("a port of 0", func(r *record) { r.Exempt[1].Ports[0] = "0" }, `ports[0]: "0" is neither`),
		Entry("a port above 65535", func(r *record) { r.Exempt[1].Ports[0] = "65536" }, `ports[0]: "65536" is neither`),
		Entry("a port with zeros before it", func(r *record) { r.Exempt[1].Ports[0] = "080" }, `ports[0]: "080" is neither`),
		Entry("a port's name that is none", func(r *record) { r.Exempt[1].Ports[0] = "HTTP" }, `ports[0]: "HTTP" is neither`),
		Entry("many ports", func(r *record) { r.Exempt[1].Ports = make([]string, 65) }, "ports: 65 are more than 64"),
		Entry("a client's CIDR", func(r *record) { r.Exempt[1].ClientCIDRs[0] = "10.0.0.1" }, "clientCIDRs[0]: "),
		Entry("many client CIDRs", func(r *record) { r.Exempt[1].ClientCIDRs = make([]string, 65) }, "clientCIDRs: 65 are more than 64"),
		Entry("CIDRs without clientIP, exempt", func(r *record) {
			r.ClientIP, r.Limits = nil, r.Limits[1:]
		}, "exempt[1]: clientCIDRs needs clientIP"),
		Entry("CIDRs without clientIP, override", func(r *record) {
			r.ClientIP, r.Exempt, r.Limits = nil, nil, r.Limits[1:]
		}, "limits[0].overrides[1].matches[0]: clientCIDRs needs clientIP"),
		Entry("gRPC without service and method", func(r *record) { *r.Exempt[2].GRPC = bucketconfig.GRPCMatch{} }, "grpc: states neither"),
		Entry("a template that is none", func(r *record) { r.Limits[1].Matches[0].Path.Value = "/{" }, "path: value: "),
		Entry("a variable in no template", func(r *record) {
			r.Limits[1].KeyParts[3].Name = "user"
		}, "keyParts[3]: PathVariable user is not in the template of matches[0]"),
		Entry("a variable without templates", func(r *record) {
			r.Limits[1].Matches[0].Path.Type = "Exact"
		}, "keyParts[2]: PathTemplate needs a path of type Template in matches[0]"),
		Entry("a variable without matches", func(r *record) { r.Limits[1].Matches = nil }, "keyParts[2]: PathTemplate needs matches"),
		Entry("a query parameter as key without a name", func(r *record) { r.Limits[1].KeyParts[4].Name = "" }, "keyParts[4]: name: 0 bytes"),
		Entry("a method as key with a name", func(r *record) { r.Limits[1].KeyParts[0].Name = "x" }, "keyParts[0]: name: 1 bytes"),
		Entry("a rule without matches", func(r *record) { r.Limits[1].CostRules[0].Matches = nil }, "cost_rules[0]: matches: count: 0"),
		Entry("a rule of no cost", func(r *record) { r.Limits[1].CostRules[0].Tokens = 0 }, "cost_rules[0]: tokens: 0 is outside 1..50"),
		Entry("a rule's cost above an override's capacity", func(r *record) {
			r.Limits[1].CostRules[0].Tokens = 51
		}, "cost_rules[0]: tokens: 51 is outside 1..50"),
		Entry("a cost above an override's capacity", func(r *record) { r.Limits[1].Cost = 51 }, "cost: 51 is outside 1..50"),
		Entry("many rules", func(r *record) { r.Limits[1].CostRules = make([]bucketconfig.CostRule, 17) }, "cost_rules: 17 are more than 16"),
		Entry("rules beside a source", func(r *record) {
			r.Limits[1].CostSource = r.Limits[2].CostSource
		}, "cost_rules: given along with cost_source"),
		Entry("source type", func(r *record) { r.Limits[2].CostSource.Type = "Body" }, `cost_source: type: "Body"`),
		Entry("source header's spelling", func(r *record) { r.Limits[2].CostSource.Header = "x-cost" }, "is not the canonical"),
		Entry("a maximum below the cost", func(r *record) { r.Limits[2].CostSource.Maximum = 99 }, "cost_source: maximum: 99 is outside 100.."),
		Entry("a maximum that can't be owed", func(r *record) { r.Limits[3].CostSource.Maximum = 1001 }, "cost_source: maximum: 1001 is outside 1..1000"),
		Entry("override name", func(r *record) { r.Limits[1].Overrides[0].Name = "A" }, `overrides[0]: name: "A" is not a DNS label`),
		Entry("override name twice", func(r *record) { r.Limits[1].Overrides[1].Name = "stolen" }, `overrides[1].name: "stolen" stands twice`),
		Entry("override type", func(r *record) { r.Limits[1].Overrides[0].Type = "Allow" }, `overrides[0]: type: "Allow"`),
		Entry("a denial with a bucket", func(r *record) {
			r.Limits[1].Overrides[0].Bucket = r.Limits[1].Overrides[2].Bucket
		}, "overrides[0]: bucket: must be there iff type is Bucket, not with Deny"),
		Entry("a bucket without one", func(r *record) { r.Limits[1].Overrides[2].Bucket = nil }, "overrides[2]: bucket: must be there"),
		Entry("an override's bucket", func(r *record) { r.Limits[1].Overrides[2].Bucket.RefillTokens = 0 }, "overrides[2]: bucket: refill_tokens: 0"),
		Entry("an override's empty match", func(r *record) {
			r.Limits[1].Overrides[0].Matches = []bucketconfig.Match{{}}
		}, "overrides[0]: matches[0]: states nothing"),
		Entry("many overrides", func(r *record) { r.Limits[1].Overrides = make([]bucketconfig.Override, 65) }, "overrides: 65 are more than 64"),
		Entry("a long expression", func(r *record) { r.Exempt[0].When = strings.Repeat("x", 1025) }, "exempt[0]: when: 1025 bytes"),
		Entry("a key part without its expression", func(r *record) {
			r.Limits[0].KeyParts[0] = bucketconfig.KeyPart{Type: "Expression", WhenMissing: "Share"}
		}, "keyParts[0]: name: 0 bytes"),
		Entry("many expressions", func(r *record) {
			r.Limits[1].Overrides = nil // beside those that stand elsewhere already
			for i := range bucketconfig.MaxExpressions {
				r.Limits[1].Overrides = append(r.Limits[1].Overrides, bucketconfig.Override{
					Name: fmt.Sprint("o", i), Type: "Deny", Matches: []bucketconfig.Match{{When: fmt.Sprint("request.port == ", i)}},
				})
			}
		}, "all of the policy are more than 64 different ones"),
		Entry("a body without a type", func(r *record) { r.Response.ContentType = "" }, "response: contentType and body"),
		Entry("a type without a body", func(r *record) { r.Response.Body = "" }, "response: contentType and body"),
		Entry("a type that is none", func(r *record) { r.Response.ContentType = "text" }, `response: contentType: "text" is no media type`),
		Entry("a type with a line break", func(r *record) { r.Response.ContentType = "text/plain;\r\nX: y" }, "is no media type"),
		Entry("a long body", func(r *record) { r.Response.Body = strings.Repeat("x", 4097) }, "response: body: 4097 bytes"),
		Entry("status code", func(r *record) { r.Response.StatusCode = 200 }, "response: statusCode: 200 is outside 400..599"),
	)

	It("keeps a long bad value out of its message", func() {
		r := validRecord()
		r.Kind = strings.Repeat("k", 100_000)
		Expect(len(r.Validate().Error())).To(BeNumerically("<", 300))
	})
})
