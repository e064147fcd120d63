//go:build e2e

package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	portero "github.com/portero-dev/portero/api/v1alpha1"
	"github.com/portero-dev/portero/hack/testapp/load"
)

// faultLimit is large against the number of sidecars, so that the fallback's bound of 1.1 applies (capacity >= 10 x sidecars).
const faultCapacity, faultRate, faultReplicas = 60, 60, 3

var _ = Describe("When Redis fails", Serial, func() {
	var w *workload
	var policy *portero.RateLimitPolicy

	BeforeEach(func(ctx SpecContext) {
		w = startWorkload(ctx, faultReplicas)
		policy = perKey(w.namespace, faultCapacity, faultRate, "1s")
		policy.Spec.Store = portero.Store{}
		enforce(ctx, policy)
		DeferCleanup(func(ctx SpecContext) {
			redisControl(ctx, "start")
			expectClusterOK(ctx)
		})
	})

	pressure := func(ctx context.Context, duration time.Duration) func() load.Report {
		return background(ctx, load.Options{
			URLs: w.podURLs(ctx), Clients: []load.Client{apiClient("fault")}, Rate: 3 * faultRate, Concurrency: 12,
			Duration: duration, Requests: 1 << 20, Timeout: 10 * time.Second, Method: http.MethodGet,
		})
	}

	It("holds the limit locally within the verdict's budget, and shares again when Redis is back", func(ctx SpecContext) {
		before := map[string]latency{}
		for _, p := range w.pods(ctx) {
			before[p.Name] = verdictLatency(ctx, p, 0.012)
		}
		wait := pressure(ctx, 30*time.Second)
		Eventually(func() float64 { return verdicts(ctx, w.pods(ctx)[0]) }).WithContext(ctx).WithTimeout(10 * time.Second).
			Should(BeNumerically(">", 60))
		redisControl(ctx, "stop")
		expectCondition(ctx, policy, portero.ConditionEnforced, "Unknown", portero.ReasonHeartbeatsUnreadable)
		report := wait()

		bound := 1.1 * (faultCapacity + faultRate*report.ElapsedSeconds)
		Expect(report.Total.Failed).To(BeZero(), "errors %v, statuses %v", report.Total.Errors, report.Total.Statuses)
		var within, all uint64
		for _, p := range w.pods(ctx) {
			l := verdictLatency(ctx, p, 0.012)
			within, all = within+l.within-before[p.Name].within, all+l.all-before[p.Name].all
		}
		AddReportEntry("all Redis stopped", fmt.Sprintf("passed %d, bound %.1f (ratio to the limit %.3f); verdicts within 12 ms: %d of %d",
			report.Total.Passed, bound, 1.1*float64(report.Total.Passed)/bound, within, all))
		Expect(float64(report.Total.Passed)).To(BeNumerically("<=", bound))
		Expect(float64(within)).To(BeNumerically(">=", 0.99*float64(all)))

		By("starting Redis again, empty: users and library are lost")
		redisControl(ctx, "start")
		expectClusterOK(ctx)
		since := time.Now()
		expectShared(ctx, w, 4*time.Second)
		AddReportEntry("shared again after cluster_state:ok", time.Since(since).String())
		expectCondition(ctx, policy, portero.ConditionEnforced, "True", portero.ReasonEnforced)
	})

	It("is back within 10 s of FLUSHALL on every master, without a 5xx", func(ctx SpecContext) {
		wait := pressure(ctx, 15*time.Second)
		onMasters(ctx, func(ctx context.Context, master *redis.Client) error { return master.FlushAll(ctx).Err() })
		since := time.Now()
		Eventually(func(g Gomega) {
			keys, err := admin.Exists(ctx, configKey(ctx, g, w.namespace)).Result()
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(keys).To(BeEquivalentTo(1))
		}).WithContext(ctx).WithTimeout(10 * time.Second).WithPolling(poll).Should(Succeed())
		AddReportEntry("policies back after FLUSHALL", time.Since(since).String())
		report := wait()
		Expect(report.Total.Failed).To(BeZero(), "errors %v, statuses %v", report.Total.Errors, report.Total.Statuses)
		Expect(report.Total.Refused).To(BeNumerically(">", 0))
		expectShared(ctx, w, 2*time.Second)
	})

	It("has no 5xx and no unlimited second through SCRIPT FLUSH and the failover of a master", func(ctx SpecContext) {
		wait := pressure(ctx, 20*time.Second)
		onMasters(ctx, func(ctx context.Context, master *redis.Client) error { return master.ScriptFlush(ctx).Err() })
		onReplica(ctx, func(ctx context.Context, replica *redis.Client) error { return replica.ClusterFailover(ctx).Err() })
		report := wait()
		Expect(report.Total.Failed).To(BeZero(), "errors %v, statuses %v", report.Total.Errors, report.Total.Statuses)
		AddReportEntry("failover", fmt.Sprintf("passed %d, limit %.1f, by second %v", report.Total.Passed,
			faultCapacity+faultRate*report.ElapsedSeconds, passedBySecond(report)))
		for second, counts := range report.Total.Seconds[1:] {
			// One full bucket more than a second's refill is what lost writes can give back at most.
			Expect(counts.Passed).To(BeNumerically("<=", 2*faultRate+faultCapacity/2), "second %d", second+1)
		}
	})

	It("limits locally after FUNCTION FLUSH and shares again within 10 s", func(ctx SpecContext) {
		wait := pressure(ctx, 15*time.Second)
		onMasters(ctx, func(ctx context.Context, master *redis.Client) error { return master.FunctionFlush(ctx).Err() })
		since := time.Now()
		expectShared(ctx, w, 10*time.Second)
		local := time.Since(since).Seconds()
		report := wait()
		// What passed locally is charged to the shared bucket afterwards.
		bound := 1.1 * (faultCapacity + faultRate*report.ElapsedSeconds)
		AddReportEntry("FUNCTION FLUSH", fmt.Sprintf("shared again after %.2f s, passed %d, bound %.1f", local, report.Total.Passed, bound))
		Expect(report.Total.Failed).To(BeZero(), "errors %v, statuses %v", report.Total.Errors, report.Total.Statuses)
		Expect(float64(report.Total.Passed)).To(BeNumerically("<=", bound))
	})
})

// expectShared waits until each pod sees what the others spent: a fresh key's whole capacity, spent over one pod, is gone for all
// others, at the first look or a later one with a key of its own.
func expectShared(ctx context.Context, w *workload, within time.Duration) {
	GinkgoHelper()
	urls := w.podURLs(ctx)
	attempt := 0
	Eventually(func(g Gomega) {
		attempt++
		key := fmt.Sprintf("shared-%d", attempt)
		spent := load.Run(ctx, load.Options{
			URLs: urls[:1], Clients: []load.Client{apiClient(key)}, Concurrency: 8, Requests: faultCapacity,
			Duration: time.Second, Timeout: time.Second, Method: http.MethodGet,
		}).Total
		g.Expect(spent.Passed).To(BeNumerically(">=", faultCapacity*9/10), "the first pod gives the whole capacity, not its share")
		others := load.Run(ctx, load.Options{
			URLs: urls[1:], Clients: []load.Client{apiClient(key)}, Concurrency: 8, Requests: faultCapacity,
			Duration: time.Second, Timeout: time.Second, Method: http.MethodGet,
		})
		g.Expect(float64(others.Total.Passed)).To(BeNumerically("<=", faultRate*(others.ElapsedSeconds+0.5)), "the others know what was spent")
	}).WithContext(ctx).WithTimeout(within).WithPolling(poll).Should(Succeed())
}

func passedBySecond(report load.Report) []int {
	var passed []int
	for _, s := range report.Total.Seconds {
		passed = append(passed, s.Passed)
	}
	return passed
}

func onMasters(ctx context.Context, do func(context.Context, *redis.Client) error) {
	GinkgoHelper()
	Expect(admin.ForEachMaster(ctx, do)).To(Succeed())
}

// onReplica calls do on one replica.
func onReplica(ctx context.Context, do func(context.Context, *redis.Client) error) {
	GinkgoHelper()
	nodes, err := admin.ClusterNodes(ctx).Result()
	Expect(err).NotTo(HaveOccurred())
	for line := range strings.Lines(nodes) {
		fields := strings.Fields(line)
		if len(fields) > 7 && strings.Contains(fields[2], "slave") && fields[7] == "connected" {
			address, _, _ := strings.Cut(fields[1], "@")
			options := admin.Options()
			replica := redis.NewClient(&redis.Options{Addr: address, Username: options.Username, Password: options.Password})
			defer replica.Close()
			Expect(do(ctx, replica)).To(Succeed())
			return
		}
	}
	Fail("no connected replica in:\n" + nodes)
}

// expectClusterOK waits until every node says that all slots are served.
func expectClusterOK(ctx context.Context) {
	GinkgoHelper()
	options := admin.Options()
	for _, address := range redisAddr {
		node := redis.NewClient(&redis.Options{Addr: address, Username: options.Username, Password: options.Password})
		defer node.Close()
		Eventually(func(g Gomega) {
			info, err := node.ClusterInfo(ctx).Result()
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(info).To(ContainSubstring("cluster_state:ok"))
		}).WithContext(ctx).WithTimeout(30 * time.Second).WithPolling(poll).Should(Succeed())
	}
}
