package translator_test

import (
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/api/v1alpha1"
)

var _ = Describe("A header's name", func() {
	named := func(name string) []v1alpha1.RequestMatch {
		return []v1alpha1.RequestMatch{{Headers: []v1alpha1.HeaderMatch{
			{Name: "X-First", ValueMatch: v1alpha1.ValueMatch{Type: v1alpha1.ValueMatchPresent}},
			{Name: v1alpha1.HeaderName(name), ValueMatch: v1alpha1.ValueMatch{Type: v1alpha1.ValueMatchPresent}},
		}}}
	}
	// places are where a policy names a header, by the field.
	type place struct {
		field string
		write func(limit *v1alpha1.Limit, spec *v1alpha1.RateLimitPolicySpec, name string)
	}
	ofRequests := []place{
		{"spec.exempt[0].headers[1].name", func(_ *v1alpha1.Limit, spec *v1alpha1.RateLimitPolicySpec, name string) { spec.Exempt = named(name) }},
		{"spec.limits[0].matches[0].headers[1].name", func(l *v1alpha1.Limit, _ *v1alpha1.RateLimitPolicySpec, name string) { l.Matches = named(name) }},
		{"spec.limits[0].overrides[0].matches[0].headers[1].name", func(l *v1alpha1.Limit, _ *v1alpha1.RateLimitPolicySpec, name string) {
			l.Overrides = []v1alpha1.Override{{Name: "o", Type: v1alpha1.OverrideDeny, Matches: named(name)}}
		}},
		{"spec.limits[0].cost.fixed.rules[0].matches[0].headers[1].name", func(l *v1alpha1.Limit, _ *v1alpha1.RateLimitPolicySpec, name string) {
			l.Cost = v1alpha1.Cost{Type: v1alpha1.CostFixed, Fixed: &v1alpha1.FixedCost{Tokens: 1, Rules: []v1alpha1.CostRule{{Matches: named(name), Tokens: 2}}}}
		}},
		{"spec.limits[0].keyParts[1].header.name", func(l *v1alpha1.Limit, _ *v1alpha1.RateLimitPolicySpec, name string) {
			l.KeyParts = []v1alpha1.KeyPart{{Type: v1alpha1.KeyPartMethod}, {Type: v1alpha1.KeyPartHeader, Header: &v1alpha1.HeaderKeyPart{Name: v1alpha1.HeaderName(name)}}}
		}},
		{"spec.limits[0].cost.requestHeader.name", func(l *v1alpha1.Limit, _ *v1alpha1.RateLimitPolicySpec, name string) {
			l.Cost = v1alpha1.Cost{Type: v1alpha1.CostRequestHeader, RequestHeader: &v1alpha1.RequestHeaderCost{Name: v1alpha1.HeaderName(name), Default: 1, Maximum: 9}}
		}},
	}
	ofResponses := []place{{"spec.limits[0].cost.responseHeader.name", func(l *v1alpha1.Limit, _ *v1alpha1.RateLimitPolicySpec, name string) {
		l.Cost = v1alpha1.Cost{Type: v1alpha1.CostResponseHeader, ResponseHeader: &v1alpha1.ResponseHeaderCost{Name: v1alpha1.HeaderName(name), Default: 1, Maximum: 9}}
	}}}
	outcomeAt := func(p place, name string) outcome {
		GinkgoHelper()
		return outcomeOf(policyOf(func(policy *v1alpha1.RateLimitPolicy) { p.write(&policy.Spec.Limits[0], &policy.Spec, name) }))
	}

	DescribeTable("is refused where no limit could ever see it, with the field, the name and the way out",
		func(places []place, name, why, wayOut string) {
			for _, p := range places {
				for _, spelled := range []string{name, strings.ToLower(name), strings.ToUpper(name)} {
					got := outcomeAt(p, spelled)
					Expect(got.Error).NotTo(BeNil(), "%s %s", p.field, spelled)
					Expect(got.Error.Reason).To(Equal(v1alpha1.ReasonInvalid))
					Expect(got.Error.Field).To(Equal(p.field))
					Expect(got.Error.Message).To(And(HavePrefix("%s: %q: %s", p.field, http.CanonicalHeaderKey(spelled), why), ContainSubstring(wayOut)))
				}
			}
		},
		Entry("Host", ofRequests, "Host", "HTTP servers take it", "use hosts in matches"),
		Entry("Trailer", ofRequests, "Trailer", "HTTP servers take it", "use a header that"),
		Entry("Transfer-Encoding", ofRequests, "Transfer-Encoding", "HTTP servers take it", "use a header that"),
		Entry("Keep-Alive", ofRequests, "Keep-Alive", "is meant for one connection alone", "use a header of the request itself"),
		Entry("Proxy-Authenticate", ofRequests, "Proxy-Authenticate", "is meant for one connection alone", "use a header of the request itself"),
		Entry("Proxy-Authorization", ofRequests, "Proxy-Authorization", "is meant for one connection alone", "such as Authorization"),
		Entry("Proxy-Connection", ofRequests, "Proxy-Connection", "is meant for one connection alone", "use a header of the request itself"),
		Entry("Connection of responses", ofResponses, "Connection", "is meant for one connection alone", "such as X-Cost"),
		Entry("Keep-Alive of responses", ofResponses, "Keep-Alive", "is meant for one connection alone", "such as X-Cost"),
		Entry("Proxy-Authenticate of responses", ofResponses, "Proxy-Authenticate", "is meant for one connection alone", "such as X-Cost"),
		Entry("Proxy-Authorization of responses", ofResponses, "Proxy-Authorization", "is meant for one connection alone", "such as X-Cost"),
		Entry("Proxy-Connection of responses", ofResponses, "Proxy-Connection", "is meant for one connection alone", "such as X-Cost"),
		Entry("Te of responses", ofResponses, "Te", "is meant for one connection alone", "such as X-Cost"),
		Entry("Trailer of responses", ofResponses, "Trailer", "is meant for one connection alone", "such as X-Cost"),
		Entry("Transfer-Encoding of responses", ofResponses, "Transfer-Encoding", "is meant for one connection alone", "such as X-Cost"),
		Entry("Upgrade of responses", ofResponses, "Upgrade", "is meant for one connection alone", "such as X-Cost"),
	)

	DescribeTable("is admitted where it can be seen", func(places []place, names ...string) {
		for _, p := range places {
			for _, name := range names {
				Expect(outcomeAt(p, name).Error).To(BeNil(), "%s %s", p.field, name)
			}
		}
	},
		Entry("in requests", ofRequests, "Authorization", "Connection", "Content-Length", "Expect", "Te", "Upgrade", "X-Cost", "X-Forwarded-For"),
		Entry("in responses, where the app's own fields count and not the proxy's", ofResponses,
			"Content-Length", "Grpc-Status", "RateLimit", "RateLimit-Policy", "Retry-After", "X-Cost", "X-RateLimit-Remaining"),
	)
})
