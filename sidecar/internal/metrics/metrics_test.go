package metrics_test

import (
	"net/http"
	"net/http/httptest"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/ratelimit"
	"github.com/portero-dev/portero/sidecar/internal/failover"
	"github.com/portero-dev/portero/sidecar/internal/metrics"
	"github.com/portero-dev/portero/sidecar/internal/tally"
)

var _ = Describe("Metrics", func() {
	var (
		counted   *tally.Tally
		measured  *metrics.Metrics
		confirmed time.Time
		fallback  bool
	)
	BeforeEach(func() {
		counted, confirmed, fallback = new(tally.Tally), time.Time{}, false
		measured = metrics.New(metrics.Sources{
			Namespace:   "shop",
			Version:     "v0.1.0",
			Tally:       counted,
			Generations: func() map[string]int64 { return map[string]int64{"checkout": 7} },
			Confirmed:   func() time.Time { return confirmed },
			Source:      func() string { return "secret" },
			OpenMasters: func() []string { return []string{"10.0.0.7:6379"} },
			Fallback:    func() bool { return fallback },
			Refused:     func() []string { return []string{"later"} },
			Overflowed:  func() uint64 { return 17 },
			Credentials: func() bool { return true },
		})
	})
	scrape := func() string {
		recorder := httptest.NewRecorder()
		measured.Handler().ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		return recorder.Body.String()
	}

	It("tells verdicts, their latency, the store's failures and what is in force", func() {
		limit := &ratelimit.Limit{
			Policy: &ratelimit.Policy{Record: &bucketconfig.Record{Name: "checkout"}},
			Config: &bucketconfig.Limit{Name: "per-key"},
		}
		counted.Count(&ratelimit.Verdict{Limits: []ratelimit.LimitResult{{Limit: limit, Allowed: true}}})
		counted.CountFailures([]ratelimit.Failure{{Policy: limit.Policy, Limit: limit}, {Policy: limit.Policy}})
		measured.VerdictTaken(ratelimit.FromRedis, 11*time.Millisecond, 10*time.Millisecond)
		measured.VerdictTaken(ratelimit.FromLocal, 13*time.Millisecond, 10*time.Millisecond)
		measured.StoreFailed(failover.KindTimeout, true)
		measured.StoreFailed("unheard of", false)
		measured.ChargesReturned(3, 1)
		for i, fate := range failover.Fates {
			measured.Debited(fate, i)
		}
		confirmed, fallback = time.Now().Add(-time.Minute), true

		Expect(scrape()).To(And(
			ContainSubstring(`portero_verdicts_total{limit="per-key",namespace="shop",policy="checkout",result="allowed"} 1`),
			ContainSubstring(`portero_verdicts_total{limit="per-key",namespace="shop",policy="checkout",result="denied"} 0`),
			ContainSubstring(`portero_expression_errors_total{limit="per-key",namespace="shop",policy="checkout"} 1`),
			ContainSubstring(`portero_expression_errors_total{limit="",namespace="shop",policy="checkout"} 1`),
			Not(ContainSubstring(`portero_verdicts_total{limit=""`)),
			ContainSubstring(`portero_verdict_duration_seconds_bucket{source="redis",le="0.01"} 0`),
			ContainSubstring(`portero_verdict_duration_seconds_bucket{source="redis",le="0.012"} 1`),
			ContainSubstring(`portero_verdict_duration_seconds_bucket{source="local",le="0.012"} 0`),
			ContainSubstring(`portero_store_errors_total{kind="timeout"} 1`),
			ContainSubstring(`portero_store_errors_total{kind="other"} 1`),
			ContainSubstring(`portero_store_errors_total{kind="memory"} 0`),
			ContainSubstring(`portero_verdicts_late_total 1`),
			ContainSubstring(`portero_store_unknown_total 1`),
			ContainSubstring(`portero_config_refused{policy="later"} 1`),
			ContainSubstring(`portero_local_overflow_total 17`),
			ContainSubstring(`portero_charges_returned_total{result="given_back"} 3`),
			ContainSubstring(`portero_charges_returned_total{result="dropped"} 1`),
			ContainSubstring(`portero_debits_total{result="shared"} 0`),
			ContainSubstring(`portero_debits_total{result="local"} 1`),
			ContainSubstring(`portero_debits_total{result="overflow"} 2`),
			ContainSubstring(`portero_debits_total{result="dropped"} 3`),
			ContainSubstring(`portero_breaker_open{master="10.0.0.7:6379"} 1`),
			ContainSubstring(`portero_fallback_active 1`),
			ContainSubstring(`portero_config_generation{policy="checkout"} 7`),
			ContainSubstring(`portero_config_age_seconds 60.`),
			ContainSubstring(`portero_credentials_present 1`),
			ContainSubstring(`portero_build_info{goversion="go`),
			ContainSubstring(`go_goroutines`),
		))
	})

	It("tells no age before Redis confirmed anything", func() {
		Expect(scrape()).NotTo(ContainSubstring("portero_config_age_seconds"))
	})
})
