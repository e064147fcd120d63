//go:build e2e

package e2e_test

import (
	"fmt"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	portero "github.com/portero-dev/portero/api/v1alpha1"
	"github.com/portero-dev/portero/hack/testapp/load"
)

var _ = Describe("One bucket over all replicas", func() {
	It("passes what the bucket holds, and no less, for 30 s at three times the limit", func(ctx SpecContext) {
		const capacity, rate, replicas = 60, 60, 3
		w := startWorkload(ctx, replicas)
		enforce(ctx, perKey(w.namespace, capacity, rate, "1s"))

		report := load.Run(ctx, load.Options{
			URLs: w.podURLs(ctx), Clients: []load.Client{apiClient("shared")}, Rate: 3 * rate, Concurrency: 12,
			Duration: 30 * time.Second, Requests: 1 << 20, Timeout: 10 * time.Second, Method: http.MethodGet,
		})

		bound := capacity + rate*report.ElapsedSeconds
		AddReportEntry("shared bucket", fmt.Sprintf("passed %d, bound %.1f, elapsed %.2f s, share %.4f",
			report.Total.Passed, bound, report.ElapsedSeconds, float64(report.Total.Passed)/bound))
		Expect(report.Total.Failed).To(BeZero(), "%v", report.Total.Errors)
		Expect(float64(report.Total.Passed)).To(BeNumerically("<=", bound))
		Expect(float64(report.Total.Passed)).To(BeNumerically(">=", 0.98*bound))
		pods := 0
		for name, counts := range report.Total.Pods {
			if name != load.UnknownPod && counts.Passed > 0 && counts.Refused > 0 {
				pods++
			}
		}
		Expect(pods).To(Equal(replicas), "every replica passed and refused some: %v", report.Total.Pods)
	})

	It("limits alike by number, by name, headless and to the pod's address", func(ctx SpecContext) {
		const capacity = 12
		w := startWorkload(ctx, 2)
		enforce(ctx, perKey(w.namespace, capacity, 1, "1h"))
		for way, urls := range map[string][]string{
			"by number": {w.serviceURL(ctx, "by-number")},
			"by name":   {w.serviceURL(ctx, "by-name")},
			"headless":  w.podURLs(ctx),
		} {
			tally := burst(ctx, way, 2*capacity, urls...)
			Expect(tally.Passed).To(Equal(capacity), way)
			Expect(tally.RetryAfter).NotTo(BeEmpty(), way)
		}
		By("and one key has one bucket whichever way it comes")
		Expect(burst(ctx, "mixed", capacity, w.serviceURL(ctx, "by-number")).Passed).To(Equal(capacity))
		Expect(burst(ctx, "mixed", capacity, w.podURLs(ctx)...).Passed).To(BeZero())
	})

	It("neither limits nor counts kubelet's probes, and a probe fails when the app does", func(ctx SpecContext) {
		w := startWorkload(ctx, 2)
		policy := perKey(w.namespace, 1, 1, "1h")
		policy.Spec.Limits[0].KeyParts = nil
		enforce(ctx, policy)
		Consistently(func(g Gomega) {
			for _, p := range w.pods(ctx) {
				g.Expect(verdicts(ctx, p)).To(BeZero())
				g.Expect(ready(p)).To(BeTrue())
				for _, s := range p.Status.ContainerStatuses {
					g.Expect(s.RestartCount).To(BeZero())
				}
			}
		}).WithContext(ctx).WithTimeout(8 * time.Second).WithPolling(time.Second).Should(Succeed())
		Expect(burst(ctx, "any", 4, w.podURLs(ctx)...).Passed).To(Equal(1))

		By("making the app of one pod fail")
		failing := w.pods(ctx)[0]
		response, err := http.Get(fmt.Sprintf("http://%s:8081/fail?on=1", failing.Status.PodIP))
		Expect(err).NotTo(HaveOccurred())
		response.Body.Close()
		Eventually(func(g Gomega) {
			for _, p := range w.pods(ctx) {
				g.Expect(ready(p)).To(Equal(p.Name != failing.Name), p.Name)
			}
		}).WithContext(ctx).WithTimeout(30 * time.Second).WithPolling(poll).Should(Succeed())
	})
})

var _ = Describe("A changed policy", func() {
	It("is enforced by all sidecars within 2 s, keeps what was spent, and ends within 2 s of its deletion", func(ctx SpecContext) {
		w := startWorkload(ctx, 3)
		policy := perKey(w.namespace, 100, 1, "1h")
		enforce(ctx, policy)
		Expect(burst(ctx, "spender", 60, w.podURLs(ctx)...).Passed).To(Equal(60))

		changed := policy.DeepCopy()
		changed.Spec.Limits[0].Bucket.Capacity = 80
		patched := time.Now()
		Expect(kube.Patch(ctx, changed, client.MergeFrom(policy))).To(Succeed())
		for _, url := range w.podURLs(ctx) {
			Eventually(func() string { return answer(ctx, url, "watcher").Header.Get("RateLimit-Policy") }).WithContext(ctx).
				WithTimeout(2*time.Second - time.Since(patched)).WithPolling(50 * time.Millisecond).Should(ContainSubstring("q=80"))
		}
		AddReportEntry("change enforced by 3 sidecars", time.Since(patched).String())

		By("40 of 100 were left, 80 is no less")
		Expect(burst(ctx, "spender", 60, w.podURLs(ctx)...).Passed).To(Equal(40))

		deleted := time.Now()
		Expect(kube.Delete(ctx, policy)).To(Succeed())
		for _, url := range w.podURLs(ctx) {
			Eventually(func() int { return answer(ctx, url, "spender").StatusCode }).WithContext(ctx).
				WithTimeout(2*time.Second - time.Since(deleted)).WithPolling(50 * time.Millisecond).Should(Equal(http.StatusOK))
		}
		AddReportEntry("deletion in force on 3 sidecars", time.Since(deleted).String())
		Expect(burst(ctx, "spender", 50, w.podURLs(ctx)...).Passed).To(Equal(50))
	})

	It("only counts in Shadow", func(ctx SpecContext) {
		w := startWorkload(ctx, 1)
		policy := perKey(w.namespace, 5, 1, "1h")
		policy.Spec.Mode = portero.ModeShadow
		Expect(kube.Create(ctx, policy)).To(Succeed())
		expectCondition(ctx, policy, portero.ConditionEnforced, "False", portero.ReasonShadow)
		expectCondition(ctx, policy, portero.ConditionReady, "True", portero.ReasonReady)
		Expect(burst(ctx, "k", 20, w.podURLs(ctx)...).Passed).To(Equal(20))
		Eventually(func(g Gomega) {
			g.Expect(counter(ctx, w.pods(ctx)[0], "shadow_denied")).To(BeEquivalentTo(15))
		}).WithContext(ctx).WithTimeout(5 * time.Second).Should(Succeed())
	})
})

// ready is a pod's Ready condition.
func ready(p corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// answer is the response to one request with an API key, its body closed.
func answer(ctx SpecContext, url, key string) *http.Response {
	GinkgoHelper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	Expect(err).NotTo(HaveOccurred())
	request.Header.Set("X-Api-Key", key)
	response, err := http.DefaultClient.Do(request)
	Expect(err).NotTo(HaveOccurred())
	response.Body.Close()
	return response
}
