//go:build e2e

package e2e_test

import (
	"context"
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"

	"github.com/portero-dev/portero/internal/sidecarenv"
)

// metrics are a sidecar's metric families.
func metrics(ctx context.Context, p corev1.Pod) map[string]*dto.MetricFamily {
	GinkgoHelper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, adminURL(p, sidecarenv.MetricsPath), nil)
	Expect(err).NotTo(HaveOccurred())
	response, err := http.DefaultClient.Do(request)
	Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	Expect(err).NotTo(HaveOccurred())
	return families
}

// verdicts counts a sidecar's verdicts, of all limits and results.
func verdicts(ctx context.Context, p corev1.Pod) float64 {
	GinkgoHelper()
	sum := 0.0
	for _, m := range metrics(ctx, p)["portero_verdicts_total"].GetMetric() {
		sum += m.GetCounter().GetValue()
	}
	return sum
}

// latency counts verdicts that took no longer than bound (seconds, which must be a bucket's edge), and all.
type latency struct{ within, all uint64 }

func verdictLatency(ctx context.Context, p corev1.Pod, bound float64) latency {
	GinkgoHelper()
	var l latency
	found := false
	for _, m := range metrics(ctx, p)["portero_verdict_duration_seconds"].GetMetric() {
		l.all += m.GetHistogram().GetSampleCount()
		for _, b := range m.GetHistogram().GetBucket() {
			if b.GetUpperBound() == bound {
				l.within += b.GetCumulativeCount()
				found = true
			}
		}
	}
	Expect(found || l.all == 0).To(BeTrue(), "no bucket has its edge at %v s", bound)
	return l
}

// counter sums a sidecar's verdicts with a result.
func counter(ctx context.Context, p corev1.Pod, result string) float64 {
	GinkgoHelper()
	sum := 0.0
	for _, m := range metrics(ctx, p)["portero_verdicts_total"].GetMetric() {
		for _, l := range m.GetLabel() {
			if l.GetName() == "result" && l.GetValue() == result {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}
