package translator_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portero-dev/portero/api/v1alpha1"
	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/translator"
)

var created = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// policyOf has limits with the least that a limit needs.
func policyOf(changes ...func(*v1alpha1.RateLimitPolicy)) *v1alpha1.RateLimitPolicy {
	policy := &v1alpha1.RateLimitPolicy{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "checkout", UID: "5c3f", Generation: 1, CreationTimestamp: metav1.NewTime(created),
		},
		Spec: v1alpha1.RateLimitPolicySpec{Limits: []v1alpha1.Limit{{
			Name:   "all",
			Bucket: v1alpha1.Bucket{Capacity: 100, Refill: v1alpha1.Refill{Tokens: 10, Interval: "1s"}},
		}}},
	}
	for _, change := range changes {
		change(policy)
	}
	return policy
}

func orderAt(at time.Time, generation int64) int64 {
	GinkgoHelper()
	record, err := translator.Translate(policyOf(func(p *v1alpha1.RateLimitPolicy) {
		p.CreationTimestamp, p.Generation = metav1.NewTime(at), generation
	}))
	Expect(err).NotTo(HaveOccurred())
	return record.Order
}

// matchesOf gives a policy n limits, each full of header matches whose values are fill(characters).
func matchesOf(n int, fill func() string) func(*v1alpha1.RateLimitPolicy) {
	return func(policy *v1alpha1.RateLimitPolicy) {
		limit := policy.Spec.Limits[0]
		policy.Spec.Limits = nil
		for i := range n {
			limit.Name = fmt.Sprintf("limit-%d", i)
			limit.Matches = nil
			for range 16 {
				match := v1alpha1.RequestMatch{}
				for h := range 8 {
					match.Headers = append(match.Headers, v1alpha1.HeaderMatch{
						Name: v1alpha1.HeaderName(fmt.Sprintf("X-%d", h)), ValueMatch: v1alpha1.ValueMatch{Value: fill()},
					})
				}
				limit.Matches = append(limit.Matches, match)
			}
			policy.Spec.Limits = append(policy.Spec.Limits, limit)
		}
	}
}

var _ = Describe("A record's order", func() {
	It("grows with each generation", func() {
		Expect(orderAt(created, 2)).To(BeNumerically(">", orderAt(created, 1)))
	})

	It("is greater for a policy that was created later, however often the earlier one was changed", func() {
		Expect(orderAt(created.Add(time.Second), 1)).To(BeNumerically(">", orderAt(created, 1<<21-1)))
		Expect(orderAt(created.Add(time.Second), 1)).To(BeNumerically(">", orderAt(created, 1<<40)))
	})

	It("stays below 2^53 for the rest of the century", func() {
		Expect(orderAt(time.Date(2099, 12, 31, 0, 0, 0, 0, time.UTC), 1<<40)).To(BeNumerically("<=", bucketconfig.MaxOrder))
	})
})

var _ = Describe("Size", func() {
	long := func() string { return strings.Repeat("a", 256) }

	It("is refused above 192 KiB of JSON, with the size and the way out", func() {
		got := outcomeOf(policyOf(matchesOf(6, long)))
		Expect(got.Error).NotTo(BeNil())
		Expect(got.Error.Reason).To(Equal(v1alpha1.ReasonTooLarge))
		Expect(got.Error.Message).To(MatchRegexp(`^spec: is [0-9]+ bytes of JSON, more than 196608: `))
	})

	It("is admitted below, when it compresses", func() {
		Expect(outcomeOf(policyOf(matchesOf(5, long))).Error).To(BeNil())
	})

	It("is refused when the record does not fit, because it does not compress", func() {
		source := rand.New(rand.NewPCG(1, 2))
		got := outcomeOf(policyOf(matchesOf(5, func() string {
			text := make([]byte, 256)
			for i := range text {
				text[i] = byte('!' + source.IntN(90))
			}
			return strings.NewReplacer("&", "x", "<", "x", ">", "x", `"`, "x", `\`, "x").Replace(string(text))
		})))
		Expect(got.Error).NotTo(BeNil())
		Expect(got.Error.Reason).To(Equal(v1alpha1.ReasonTooLarge))
		Expect(got.Error.Message).To(ContainSubstring("compressed exceed 65536"))
	})

	It("is refused when its regular expressions are small and their programs huge", func() {
		got := outcomeOf(policyOf(matchesOf(1, long), func(p *v1alpha1.RateLimitPolicy) {
			for i := range p.Spec.Limits[0].Matches {
				p.Spec.Limits[0].Matches[i].Path = &v1alpha1.PathMatch{Type: v1alpha1.PathMatchRegularExpression, Value: "/([a-z]{30}){30}x{900}"}
			}
		}))
		Expect(got.Error).To(BeNil()) // 16 × some thousand instructions fit

		got = outcomeOf(policyOf(matchesOf(1, func() string { return "([a-z]{30}){30}x{900}" }), func(p *v1alpha1.RateLimitPolicy) {
			for i := range p.Spec.Limits[0].Matches {
				for j := range p.Spec.Limits[0].Matches[i].Headers {
					p.Spec.Limits[0].Matches[i].Headers[j].Type = v1alpha1.ValueMatchRegularExpression
				}
			}
		}))
		Expect(got.Error).NotTo(BeNil())
		Expect(got.Error.Reason).To(Equal(v1alpha1.ReasonInvalid))
		Expect(got.Error.Message).To(ContainSubstring("use fewer or smaller repetitions"))
	})
})

var _ = Describe("A policy that never passed an API server", func() {
	It("gets the defaults that the API documents", func() {
		record, err := translator.Translate(policyOf(func(p *v1alpha1.RateLimitPolicy) {
			p.Spec.ClientIP = &v1alpha1.ClientIP{Type: v1alpha1.ClientIPPeer}
			p.Spec.Limits[0].KeyParts = []v1alpha1.KeyPart{{Type: v1alpha1.KeyPartClientIP}}
		}))
		Expect(err).NotTo(HaveOccurred())
		Expect(record.Shadow).To(BeFalse())
		Expect(record.Store).To(Equal(bucketconfig.Store{TimeoutUS: 10_000, OnFailure: "Local"}))
		Expect(record.Response).To(Equal(bucketconfig.Response{RateLimitHeaders: "Standard", StatusCode: 429}))
		Expect(record.ClientIP).To(Equal(&bucketconfig.ClientIP{Type: "Peer", IPv4PrefixLength: 32, IPv6PrefixLength: 64}))
		Expect(record.Limits[0].Cost).To(Equal(int64(1)))
		Expect(record.Limits[0].KeyParts).To(Equal([]bucketconfig.KeyPart{{Type: "ClientIP", WhenMissing: "Share"}}))
	})
})
