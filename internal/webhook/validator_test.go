package webhook_test

import (
	"errors"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/portero-dev/portero/api/v1alpha1"
	"github.com/portero-dev/portero/internal/testenv"
	"github.com/portero-dev/portero/internal/translator"
)

type change = func(*v1alpha1.RateLimitPolicy)

func exempt(when string) change {
	return func(p *v1alpha1.RateLimitPolicy) { p.Spec.Exempt = []v1alpha1.RequestMatch{{When: when}} }
}

// limit changes the only limit.
func limit(change func(*v1alpha1.Limit)) change {
	return func(p *v1alpha1.RateLimitPolicy) { change(&p.Spec.Limits[0]) }
}

var _ = Describe("Applying a policy", Ordered, func() {
	var namespace string
	BeforeAll(func(ctx SpecContext) { namespace = env.CreateNamespace(ctx, nil) })

	// refusal is what the API server has against a policy.
	refusal := func(err error) metav1.Status {
		GinkgoHelper()
		var status apierrors.APIStatus
		Expect(errors.As(err, &status)).To(BeTrue(), "%v", err)
		return status.Status()
	}
	refused := func(ctx SpecContext, c change, field, message string) {
		GinkgoHelper()
		policy := testenv.NewPolicy(namespace, "refused", c)
		got := refusal(env.Client.Create(ctx, policy, client.DryRunAll))
		Expect(got.Message).To(HavePrefix(`admission webhook "ratelimitpolicies.portero.dev" denied the request: ` + field + ": "))
		Expect(got.Message).To(ContainSubstring(message))
		Expect(got.Reason).To(Equal(metav1.StatusReasonInvalid))
		Expect(got.Details.Causes).To(HaveLen(1))
		Expect(got.Details.Causes[0].Field).To(Equal(field))

		// The condition of one that was stored tells the same.
		policy.UID, policy.Generation, policy.CreationTimestamp = "uid", 1, metav1.Now()
		_, err := translator.Translate(policy)
		Expect(got.Message).To(HaveSuffix(": " + err.Error()))
	}

	DescribeTable("refuses a bad expression, with its field, the expression, what CEL says and the way out", refused,
		Entry("half of one", exempt("request.method =="), "spec.exempt[0].when", `"request.method ==": must be a CEL expression on request: line 1, column 18: Syntax error`),
		Entry("an unknown field", exempt("request.body == ''"), "spec.exempt[0].when", "line 1, column 8: undefined field 'body'; request has claims, clientIP, cookies,"),
		Entry("an unknown variable", exempt("reqest.path == ''"), "spec.exempt[0].when", "undeclared reference to 'reqest' (did you mean 'request'?)"),
		Entry("types that don't compare", exempt("request.port == '80'"), "spec.exempt[0].when", "found no matching overload for '_==_' applied to '(int, string)'"),
		Entry("no bool", exempt("request.path"), "spec.exempt[0].when", "gives a value of type string: must give a bool"),
		Entry("a header in upper case", exempt("request.headers['X-A'] == ''"), "spec.exempt[0].when", "write 'x-a' for 'X-A'"),
		Entry("a pattern that is none", exempt("request.path.matches('(')"), "spec.exempt[0].when", "must be a regular expression of RE2"),
		Entry("a pattern from the client", exempt("request.path.matches(request.host)"), "spec.exempt[0].when", "needs a regular expression that is a literal"),
		Entry("too dear", exempt("request.headers.all(g, request.headers.all(h, request.headers[g] != request.headers[h]))"), "spec.exempt[0].when", "of CEL's units for one request: must be at most 50000; look at single values"),
		Entry("a client not stated", exempt("has(request.clientIP)"), "spec.exempt[0].when", "request.clientIP needs the policy's clientIP stated"),
		Entry("more bytes than characters", exempt("request.path == '"+strings.Repeat("é", 600)+"'"), "spec.exempt[0].when", "has 1218 bytes: must be at most 1024"),
		Entry("deep nesting", exempt(strings.Repeat("(", 500)+"true"+strings.Repeat(")", 500)), "spec.exempt[0].when", "is nested too deeply: use fewer parentheses"),
		Entry("loops over lists", exempt("[1, 2].all(a, [1, 2].all(b, [1, 2].all(c, a + b + c > 0)))"), "spec.exempt[0].when", "comprehension exceeds nesting limit"),
		Entry("a value of any type", exempt("dyn(true)"), "spec.exempt[0].when", "gives a value of type dyn: must give a bool"),
		Entry("a terminal's escape", exempt("request.path == \x1b[31m''"), "spec.exempt[0].when", `"request.path == \x1b[31m''": must be a CEL expression on request: line 1, column 17: Syntax error: token recognition error at: '\x1b'`),
		Entry("in a limit", limit(func(l *v1alpha1.Limit) {
			l.Matches = []v1alpha1.RequestMatch{{Methods: []string{"GET"}}, {When: "1"}}
		}), "spec.limits[0].matches[1].when", "must give a bool"),
		Entry("in an override", limit(func(l *v1alpha1.Limit) {
			l.Overrides = []v1alpha1.Override{{Name: "a", Type: v1alpha1.OverrideDeny, Matches: []v1alpha1.RequestMatch{{When: "1"}}}}
		}), "spec.limits[0].overrides[0].matches[0].when", "must give a bool"),
		Entry("in a cost rule", limit(func(l *v1alpha1.Limit) {
			l.Cost = v1alpha1.Cost{Type: v1alpha1.CostFixed, Fixed: &v1alpha1.FixedCost{Tokens: 1, Rules: []v1alpha1.CostRule{{Matches: []v1alpha1.RequestMatch{{When: "1"}}, Tokens: 2}}}}
		}), "spec.limits[0].cost.fixed.rules[0].matches[0].when", "must give a bool"),
		Entry("as a key part", limit(func(l *v1alpha1.Limit) {
			l.KeyParts = []v1alpha1.KeyPart{{Type: v1alpha1.KeyPartExpression, Expression: &v1alpha1.ExpressionKeyPart{Value: "request.port"}}}
		}), "spec.limits[0].keyParts[0].expression.value", "gives a value of type int: must give a string"),
		Entry("too many", limit(func(l *v1alpha1.Limit) {
			for i := range 64 {
				l.Overrides = append(l.Overrides, v1alpha1.Override{Name: fmt.Sprint("o", i), Type: v1alpha1.OverrideDeny, Matches: []v1alpha1.RequestMatch{
					{When: fmt.Sprintf("request.port == %d", i)}, {When: fmt.Sprintf("request.port == %d", 1000+i)},
				}})
			}
		}), "spec.limits[0].overrides[32].matches[0].when", "the policy has more than 64 different expressions"),
	)

	DescribeTable("refuses what else no rule of the CRD can tell", refused,
		Entry("a header that no limit can see", limit(func(l *v1alpha1.Limit) {
			l.KeyParts = []v1alpha1.KeyPart{{Type: v1alpha1.KeyPartHeader, Header: &v1alpha1.HeaderKeyPart{Name: "proxy-authorization"}}}
		}), "spec.limits[0].keyParts[0].header.name", `"Proxy-Authorization": is meant for one connection alone and taken out before limits look`),
		Entry("a cost in a field that never arrives", limit(func(l *v1alpha1.Limit) {
			l.Cost = v1alpha1.Cost{Type: v1alpha1.CostResponseHeader, ResponseHeader: &v1alpha1.ResponseHeaderCost{Name: "Upgrade", Default: 1, Maximum: 2}}
		}), "spec.limits[0].cost.responseHeader.name", `"Upgrade": is meant for one connection alone and taken out of responses`),
		Entry("a variable twice", limit(func(l *v1alpha1.Limit) {
			l.Matches = []v1alpha1.RequestMatch{{Path: &v1alpha1.PathMatch{Type: v1alpha1.PathMatchTemplate, Value: "/{a}/{a}"}}}
		}), "spec.limits[0].matches[0].path.value", "the variable a stands twice"),
		Entry("regular expressions that are huge together", limit(func(l *v1alpha1.Limit) {
			for i := range 16 {
				l.Matches = append(l.Matches, v1alpha1.RequestMatch{Path: &v1alpha1.PathMatch{Type: v1alpha1.PathMatchRegularExpression, Value: fmt.Sprintf("/%d%s", i, strings.Repeat("(a{0,100}){0,9}", 10))}})
			}
		}), "spec.limits[0].matches[2].path.value", "the policy's regular expressions together compile to more than"),
	)

	It("refuses more than a policy may hold, defaults included", func(ctx SpecContext) {
		policy := testenv.NewPolicy(namespace, "refused", limit(func(l *v1alpha1.Limit) {
			for i := range 64 {
				match := v1alpha1.HeaderMatch{Name: "X-A", ValueMatch: v1alpha1.ValueMatch{Type: v1alpha1.ValueMatchIn}}
				for j := range 256 {
					match.Values = append(match.Values, fmt.Sprintf("value-%d-%d", i, j))
				}
				l.Overrides = append(l.Overrides, v1alpha1.Override{Name: fmt.Sprint("o", i), Type: v1alpha1.OverrideDeny, Matches: []v1alpha1.RequestMatch{{Headers: []v1alpha1.HeaderMatch{match}}}})
			}
		}))
		Expect(refusal(env.Client.Create(ctx, policy, client.DryRunAll)).Message).To(MatchRegexp(
			`denied the request: spec: is \d+ bytes of JSON, more than 196608: state fewer or shorter matches, or spread the limits over several policies$`))
	})

	It("admits good ones", func(ctx SpecContext) {
		policy := testenv.NewPolicy(namespace, "", exempt("request.method == 'GET'"))
		policy.GenerateName = "good-"
		Expect(env.Client.Create(ctx, policy)).To(Succeed())
		policy.Spec.Exempt[0].When = "request.method == 'PUT'"
		Expect(env.Client.Update(ctx, policy)).To(Succeed())
		policy.Spec.Exempt[0].When = "request.method = 'PUT'"
		Expect(refusal(env.Client.Update(ctx, policy)).Message).To(ContainSubstring("Syntax error"))
		Expect(env.Client.Delete(ctx, policy)).To(Succeed())
	})

	Describe("while the manager is away", Ordered, func() {
		var stored *v1alpha1.RateLimitPolicy
		BeforeAll(func(ctx SpecContext) {
			server.stop()
			stored = testenv.NewPolicy(namespace, "stored", limit(func(l *v1alpha1.Limit) {
				l.Matches = []v1alpha1.RequestMatch{{When: "request.body == ''"}}
			}))
			stored.Finalizers = []string{"example.com/somebody-elses"}
			created := env.Client.Create(ctx, stored)
			patched := env.Client.Patch(ctx, stored, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"exempt":[]}}`)))
			server.start()
			Expect(created).To(Succeed(), "failurePolicy is Ignore")
			Expect(patched).To(Succeed())
		})

		It("lets a bad one be labeled, and told of by its status", func(ctx SpecContext) {
			generation := stored.Generation
			Expect(env.Client.Patch(ctx, stored, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"team":"shop"}}}`)))).To(Succeed())
			Expect(stored.Generation).To(Equal(generation))
			stored.Spec.Exempt, stored.Annotations = nil, map[string]string{"note": "typed clients leave out empty lists"}
			Expect(env.Client.Update(ctx, stored)).To(Succeed())
			Expect(stored.Generation).To(BeNumerically(">", generation), "which to the API server is another spec")
			stored.Status.LimitsSummary = "per-key"
			Expect(env.Client.Status().Update(ctx, stored)).To(Succeed())
		})

		It("refuses another bad spec of it, and admits a good one", func(ctx SpecContext) {
			bad := stored.DeepCopy()
			bad.Spec.Mode = v1alpha1.ModeShadow
			Expect(refusal(env.Client.Update(ctx, bad)).Message).To(ContainSubstring("undefined field 'body'"))
			good := stored.DeepCopy()
			good.Spec.Limits[0].Matches = nil
			Expect(env.Client.Update(ctx, good, client.DryRunAll)).To(Succeed())
		})

		It("is never asked when a policy is deleted", func(ctx SpecContext) {
			Expect(env.Client.Delete(ctx, stored)).To(Succeed())
			Expect(env.Client.Get(ctx, client.ObjectKeyFromObject(stored), stored)).To(Succeed())
			Expect(stored.DeletionTimestamp).NotTo(BeNil())
			calls := server.calls.Load()
			stored.Finalizers = nil
			stored.Spec.Mode = v1alpha1.ModeShadow
			Expect(env.Client.Update(ctx, stored)).To(Succeed())
			Expect(server.calls.Load()).To(Equal(calls))
		})
	})
})
