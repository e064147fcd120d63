package answer_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/ratelimit"
)

func TestAnswer(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "sidecar/internal/answer")
}

// limit compiles the limit "l" of a policy: 20 tokens, 5 a second.
func limit(policy string, changes ...func(*bucketconfig.Record)) *ratelimit.Limit {
	GinkgoHelper()
	rec := &bucketconfig.Record{
		Schema: bucketconfig.SchemaVersion, Kind: "RateLimitPolicy", Name: policy, UID: "uid", Generation: 1, Order: 1,
		Limits: []bucketconfig.Limit{{
			Name: "l", Cost: 1, Bucket: bucketconfig.Bucket{Capacity: 20, RefillTokens: 5, RefillIntervalUS: 1_000_000},
		}},
		Store:    bucketconfig.Store{TimeoutUS: 10_000, OnFailure: "Local"},
		Response: bucketconfig.Response{RateLimitHeaders: "Standard", StatusCode: 429},
	}
	for _, change := range changes {
		change(rec)
	}
	compiled, err := ratelimit.Compile(rec, nil)
	Expect(err).NotTo(HaveOccurred())
	return compiled.Limits[0]
}

func headers(setting string) func(*bucketconfig.Record) {
	return func(r *bucketconfig.Record) { r.Response.RateLimitHeaders = setting }
}

func status(code int) func(*bucketconfig.Record) {
	return func(r *bucketconfig.Record) { r.Response.StatusCode = code }
}
