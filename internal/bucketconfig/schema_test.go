package bucketconfig_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/internal/bucketconfig"
)

var _ = Describe("Schema version 1", func() {
	It("tells the same of a record that states no more than it knows", func() {
		record := simpleRecord()
		older, ok := bucketconfig.Schema1(record)
		Expect(ok).To(BeTrue())
		Expect(older.Schema).To(Equal(1))
		Expect(record).To(Equal(simpleRecord()), "the record stays as it was")
		Expect(older.Validate()).To(Succeed())

		data, err := bucketconfig.Encode(older)
		Expect(err).NotTo(HaveOccurred())
		Expect(bucketconfig.Decode(data)).To(Equal(record))
	})

	match := func(change func(*bucketconfig.Match)) func(*record) {
		return func(r *record) { change(&r.Limits[0].Matches[0]) }
	}
	DescribeTable("has no word for",
		func(change func(*record)) {
			r := simpleRecord()
			change(r)
			Expect(r.Validate()).To(Succeed())
			_, ok := bucketconfig.Schema1(r)
			Expect(ok).To(BeFalse())
			r.Schema = 1
			Expect(r.Validate()).To(MatchError(ContainSubstring("version 1 can't express")))
		},
		Entry("hosts", match(func(m *bucketconfig.Match) { m.Hosts = []string{"a.example.com"} })),
		Entry("query parameters", match(func(m *bucketconfig.Match) {
			m.QueryParams = []bucketconfig.NamedMatch{{Name: "q", Type: "Exact", Value: "a"}}
		})),
		Entry("cookies", match(func(m *bucketconfig.Match) {
			m.Cookies = []bucketconfig.NamedMatch{{Name: "q", Type: "Exact", Value: "a"}}
		})),
		Entry("ports", match(func(m *bucketconfig.Match) { m.Ports = []string{"http"} })),
		Entry("CIDRs", match(func(m *bucketconfig.Match) { m.ClientCIDRs = []string{"10.0.0.0/8"} })),
		Entry("gRPC", match(func(m *bucketconfig.Match) { m.GRPC = &bucketconfig.GRPCMatch{Service: "shop.Cart"} })),
		Entry("path templates", match(func(m *bucketconfig.Match) { m.Path.Type = "Template" })),
		Entry("headers that are there", match(func(m *bucketconfig.Match) {
			m.Headers[0] = bucketconfig.NamedMatch{Name: "X-Plan", Type: "Present"}
		})),
		Entry("headers of a list", match(func(m *bucketconfig.Match) {
			m.Headers[0] = bucketconfig.NamedMatch{Name: "X-Plan", Type: "In", Values: []string{"a"}}
		})),
		Entry("expressions", match(func(m *bucketconfig.Match) { m.When = "true" })),
		Entry("what is exempt by any of these", func(r *record) { r.Exempt[0] = bucketconfig.Match{Ports: []string{"8080"}} }),
		Entry("other key parts", func(r *record) { r.Limits[0].KeyParts[0] = bucketconfig.KeyPart{Type: "Method", WhenMissing: "Share"} }),
		Entry("rules of cost", func(r *record) {
			r.Limits[0].CostRules = []bucketconfig.CostRule{{Matches: r.Limits[0].Matches, Tokens: 1}}
		}),
		Entry("a cost from elsewhere", func(r *record) {
			r.Limits[0].CostSource = &bucketconfig.CostSource{Type: "RequestHeader", Header: "X-Cost", Maximum: 10}
		}),
		Entry("overrides", func(r *record) { r.Limits[0].Overrides = []bucketconfig.Override{{Name: "a", Type: "Unlimited"}} }),
		Entry("both kinds of fields", func(r *record) { r.Response.RateLimitHeaders = "Both" }),
		Entry("a body", func(r *record) { r.Response.ContentType, r.Response.Body = "text/plain", "wait" }),
	)
})

var _ = DescribeTable("The variables of a path template", func(template string, names ...string) {
	Expect(bucketconfig.TemplateVariables(template)).To(Equal(names))
},
	Entry("in their order", "/users/{id}/orders/{order_2}", "id", "order_2"),
	Entry("of the root", "/{x}/", "x"),
)

var _ = Describe("A path template", func() {
	It("may have no variable", func() {
		Expect(bucketconfig.TemplateVariables("/users/me")).To(BeEmpty())
	})

	DescribeTable("is refused", func(template, message string) {
		_, err := bucketconfig.TemplateVariables(template)
		Expect(err).To(MatchError(ContainSubstring(message)))
	},
		Entry("without a slash", "{id}", "must start with /"),
		Entry("with half an element", "/v{n}", `"v{n}" is none`),
		Entry("with two in one element", "/{a}{b}", `"{a}{b}" is none`),
		Entry("with a name that is empty", "/{}", `"{}" is none`),
		Entry("with a name that is none", "/{1a}", `"{1a}" is none`),
		Entry("with a brace that is not closed", "/{a/b}", `"{a" is none`),
		Entry("with a brace that is not opened", "/a}", `"a}" is none`),
		Entry("with a variable twice", "/{a}/{a}", "the variable a stands twice"),
	)
})
