package v1alpha1_test

import (
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/portero-dev/portero/api/v1alpha1"
	"github.com/portero-dev/portero/internal/testenv"
	"github.com/portero-dev/portero/internal/translator"
)

// table is what kubectl get asks the API server for: a row's cells by their column's name, wide ones too.
func table(ctx SpecContext, policy *v1alpha1.RateLimitPolicy) (cells map[string]any, wide []string) {
	GinkgoHelper()
	config := rest.CopyConfig(server.Config)
	config.GroupVersion = &v1alpha1.GroupVersion
	config.APIPath = "/apis"
	config.NegotiatedSerializer = serializer.NewCodecFactory(server.Scheme).WithoutConversion()
	http, err := rest.RESTClientFor(config)
	Expect(err).NotTo(HaveOccurred())

	var result metav1.Table
	Expect(http.Get().Namespace(policy.Namespace).Resource("ratelimitpolicies").Name(policy.Name).
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").Do(ctx).Into(&result)).To(Succeed())
	Expect(result.Rows).To(HaveLen(1))
	cells = map[string]any{}
	for i, column := range result.ColumnDefinitions {
		cells[column.Name] = result.Rows[0].Cells[i]
		if column.Priority > 0 {
			wide = append(wide, column.Name)
		}
	}
	return cells, wide
}

var _ = Describe("A stored policy", func() {
	var policy *v1alpha1.RateLimitPolicy

	BeforeEach(func(ctx SpecContext) {
		policy = testenv.NewPolicy(server.CreateNamespace(ctx, nil), "checkout")
		Expect(server.Client.Create(ctx, policy)).To(Succeed())
	})

	It("has the defaults that its fields document", func() {
		Expect(policy.Spec.Mode).To(Equal(v1alpha1.ModeEnforce))
		Expect(policy.Spec.Store).To(Equal(v1alpha1.Store{Timeout: "10ms", OnFailure: v1alpha1.OnFailureLocal}))
		Expect(policy.Spec.Response).To(Equal(v1alpha1.Response{RateLimitHeaders: v1alpha1.RateLimitHeadersStandard, StatusCode: 429}))
		Expect(policy.Spec.Limits[0].Mode).To(Equal(v1alpha1.ModeEnforce))
		Expect(policy.Spec.Limits[0].Cost).To(Equal(v1alpha1.Cost{Type: v1alpha1.CostFixed, Fixed: &v1alpha1.FixedCost{Tokens: 1}}))
		Expect(policy.Spec.Limits[0].KeyParts[0].Header.WhenMissing).To(Equal(v1alpha1.WhenMissingShare))
	})

	It("has the defaults of members that are present", func(ctx SpecContext) {
		policy.Spec.ClientIP = &v1alpha1.ClientIP{Type: v1alpha1.ClientIPPeer}
		policy.Spec.Store = v1alpha1.Store{Timeout: "5ms"}
		policy.Spec.Limits[0].Matches = []v1alpha1.RequestMatch{{Headers: []v1alpha1.HeaderMatch{{
			Name: "X-Plan", ValueMatch: v1alpha1.ValueMatch{Value: "free"},
		}}}}
		policy.Spec.Limits[0].KeyParts = []v1alpha1.KeyPart{{Type: v1alpha1.KeyPartClientIP, ClientIP: &v1alpha1.ClientIPKeyPart{}}}
		policy.Spec.Limits[0].KeyParts = append(policy.Spec.Limits[0].KeyParts,
			v1alpha1.KeyPart{Type: v1alpha1.KeyPartHost, Host: &v1alpha1.HostKeyPart{}},
			v1alpha1.KeyPart{Type: v1alpha1.KeyPartQuery, Query: &v1alpha1.QueryKeyPart{Name: "tenant"}},
			v1alpha1.KeyPart{Type: v1alpha1.KeyPartCookie, Cookie: &v1alpha1.CookieKeyPart{Name: "session"}},
			v1alpha1.KeyPart{Type: v1alpha1.KeyPartClaim, Claim: &v1alpha1.ClaimKeyPart{Name: "sub"}})
		policy.Spec.Limits[0].Cost = v1alpha1.Cost{Type: v1alpha1.CostFixed, Fixed: &v1alpha1.FixedCost{}}
		policy.Spec.Limits = append(policy.Spec.Limits, v1alpha1.Limit{
			Name: "response", Bucket: policy.Spec.Limits[0].Bucket,
			Cost: v1alpha1.Cost{Type: v1alpha1.CostResponseHeader, ResponseHeader: &v1alpha1.ResponseHeaderCost{Name: "X-Cost", Maximum: 10}},
		})
		policy.Spec.Response.Body = &v1alpha1.ResponseBody{Template: "wait {retryAfter} s"}
		Expect(server.Client.Update(ctx, policy)).To(Succeed())

		Expect(*policy.Spec.ClientIP.IPv4PrefixLength).To(BeEquivalentTo(32))
		Expect(*policy.Spec.ClientIP.IPv6PrefixLength).To(BeEquivalentTo(64))
		Expect(policy.Spec.Store.OnFailure).To(Equal(v1alpha1.OnFailureLocal))
		Expect(policy.Spec.Limits[0].Matches[0].Headers[0].Type).To(Equal(v1alpha1.ValueMatchExact))
		Expect(policy.Spec.Limits[0].KeyParts[0].ClientIP.WhenMissing).To(Equal(v1alpha1.WhenMissingShare))
		Expect(policy.Spec.Limits[0].KeyParts[1].Host.WhenMissing).To(Equal(v1alpha1.WhenMissingShare))
		Expect(policy.Spec.Limits[0].KeyParts[2].Query.WhenMissing).To(Equal(v1alpha1.WhenMissingShare))
		Expect(policy.Spec.Limits[0].KeyParts[3].Cookie.WhenMissing).To(Equal(v1alpha1.WhenMissingShare))
		Expect(policy.Spec.Limits[0].KeyParts[4].Claim.WhenMissing).To(Equal(v1alpha1.WhenMissingShare))
		Expect(policy.Spec.Limits[0].Cost.Fixed.Tokens).To(Equal(int64(1)))
		Expect(policy.Spec.Limits[1].Cost.ResponseHeader.Default).To(Equal(int64(1)))
		Expect(policy.Spec.Response.Body.ContentType).To(Equal("text/plain; charset=utf-8"))
	})

	It("takes another type of cost by a patch, which leaves the default beside it", func(ctx SpecContext) {
		Expect(server.Client.Patch(ctx, policy, client.RawPatch(types.JSONPatchType, []byte(`[
			{"op": "replace", "path": "/spec/limits/0/cost/type", "value": "RequestHeader"},
			{"op": "add", "path": "/spec/limits/0/cost/requestHeader", "value": {"name": "X-Cost", "default": 1, "maximum": 10}}]`)))).To(Succeed())
		Expect(policy.Spec.Limits[0].Cost.Fixed).NotTo(BeNil())
		record, err := translator.Translate(policy)
		Expect(err).NotTo(HaveOccurred())
		Expect(record.Limits[0].CostSource).NotTo(BeNil())
	})

	It("prints its columns, also where their value is 0", func(ctx SpecContext) {
		none, three := int32(0), int32(3)
		now := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
		condition := func(kind v1alpha1.ConditionType, status metav1.ConditionStatus, reason v1alpha1.ConditionReason) metav1.Condition {
			return metav1.Condition{Type: string(kind), Status: status, Reason: string(reason), ObservedGeneration: 1, LastTransitionTime: now}
		}
		policy.Status = v1alpha1.RateLimitPolicyStatus{
			ObservedGeneration: 1,
			EnforcedGeneration: 1,
			LimitsSummary:      v1alpha1.SummarizeLimits(policy.Spec.Limits),
			Conditions: []metav1.Condition{
				condition(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady),
				condition(v1alpha1.ConditionEnforced, metav1.ConditionTrue, v1alpha1.ReasonEnforced),
				condition(v1alpha1.ConditionTrafficBypass, metav1.ConditionFalse, v1alpha1.ReasonNoBypass),
			},
			Pods:    &v1alpha1.PodCounts{Summary: "3/3", Matched: &three, Enforcing: &three, Fallback: &none, Unprotected: &none},
			Limits:  []v1alpha1.LimitStatus{{Name: "per-key", Mode: v1alpha1.ModeEnforce}},
			Traffic: &v1alpha1.Traffic{Denied: 42, Window: "1m0s", ObservedTime: now},
		}
		Expect(server.Client.Status().Update(ctx, policy)).To(Succeed())

		cells, wide := table(ctx, policy)
		Expect(cells).To(And(
			HaveKeyWithValue("Mode", "Enforce"), HaveKeyWithValue("Limits", "per-key"), HaveKeyWithValue("Pods", "3/3"),
			HaveKeyWithValue("Enforced", "True"), HaveKeyWithValue("Reason", "Enforced"), HaveKeyWithValue("Denied", BeNumerically("==", 42)),
			HaveKey("Age"), HaveKeyWithValue("Fallback", BeNumerically("==", 0)), HaveKeyWithValue("Unprotected", BeNumerically("==", 0)),
			HaveKeyWithValue("Bypass", "False")))
		Expect(wide).To(ConsistOf("Fallback", "Unprotected", "Bypass"))
	})

	It("keeps its status when its spec is written, and its spec when its status is", func(ctx SpecContext) {
		policy.Status.EnforcedGeneration = 7
		policy.Spec.Mode = v1alpha1.ModeShadow
		Expect(server.Client.Update(ctx, policy)).To(Succeed())
		Expect(policy.Status.EnforcedGeneration).To(BeZero())
		Expect(policy.Spec.Mode).To(Equal(v1alpha1.ModeShadow))
		Expect(policy.Generation).To(Equal(int64(2)))

		policy.Status.EnforcedGeneration = 2
		policy.Spec.Mode = v1alpha1.ModeEnforce
		Expect(server.Client.Status().Update(ctx, policy)).To(Succeed())
		Expect(policy.Status.EnforcedGeneration).To(Equal(int64(2)))
		Expect(policy.Spec.Mode).To(Equal(v1alpha1.ModeShadow))
		Expect(policy.Generation).To(Equal(int64(2)))
	})

	It("can be deleted at once, as nothing holds it", func(ctx SpecContext) {
		Expect(policy.Finalizers).To(BeEmpty())
		Expect(server.Client.Delete(ctx, policy)).To(Succeed())
		Expect(apierrors.IsNotFound(server.Client.Get(ctx, client.ObjectKeyFromObject(policy), policy))).To(BeTrue())
	})
})

var _ = DescribeTable("The summary of limits", func(names []string, want string) {
	var limits []v1alpha1.Limit
	for _, name := range names {
		limits = append(limits, v1alpha1.Limit{Name: name})
	}
	got := v1alpha1.SummarizeLimits(limits)
	Expect(got).To(Equal(want))
	Expect(len(got)).To(BeNumerically("<=", 64))
},
	Entry("of none", nil, ""),
	Entry("of one", []string{"per-key"}, "per-key"),
	Entry("of the longest name", []string{strings.Repeat("a", 63)}, strings.Repeat("a", 63)),
	Entry("of two", []string{"per-key", "burst"}, "per-key,burst"),
	Entry("of a long name and another", []string{strings.Repeat("a", 60), "burst"}, strings.Repeat("a", 60)+",+1"),
	Entry("of two long names", []string{strings.Repeat("a", 63), strings.Repeat("b", 63)}, "+2"),
	Entry("of two names that just fit", []string{strings.Repeat("a", 31), strings.Repeat("b", 32)}, strings.Repeat("a", 31)+","+strings.Repeat("b", 32)),
	Entry("of sixteen", numbered(16), "limit-00,limit-01,limit-02,limit-03,limit-04,limit-05,+10"),
)

func numbered(n int) []string {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("limit-%02d", i))
	}
	return names
}

var _ = DescribeTable("A duration", func(text v1alpha1.Duration, want time.Duration) {
	Expect(text.Parse()).To(Equal(want))
},
	Entry("of one part", v1alpha1.Duration("500ms"), 500*time.Millisecond),
	Entry("of four", v1alpha1.Duration("1h2m3s4ms"), time.Hour+2*time.Minute+3*time.Second+4*time.Millisecond),
	Entry("at its least", v1alpha1.Duration("1ms"), v1alpha1.MinDuration),
	Entry("at its most", v1alpha1.Duration("8784h"), v1alpha1.MaxDuration),
	Entry("with a unit twice", v1alpha1.Duration("1s1s"), 2*time.Second),
)
