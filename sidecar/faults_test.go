package sidecar_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/sidecarenv"
)

// load is a bounded stream of requests to pods, one key after another.
type load struct {
	passed, refused, failed atomic.Int64
	stop                    context.CancelFunc
	ended                   sync.WaitGroup
}

func startLoad(ctx context.Context, key func(i int) string, pods ...*pod) *load {
	l := &load{}
	ctx, l.stop = context.WithTimeout(ctx, 40*time.Second)
	for w, p := range pods {
		l.ended.Go(func() {
			pace := time.NewTicker(5 * time.Millisecond)
			defer pace.Stop()
			for i := 0; i < 8000 && ctx.Err() == nil; i++ {
				code, err := p.get(context.WithoutCancel(ctx), key(i))
				switch {
				case err == nil && code == http.StatusOK:
					l.passed.Add(1)
				case err == nil && code == http.StatusTooManyRequests:
					l.refused.Add(1)
				default:
					if l.failed.Add(1) == 1 {
						fmt.Fprintf(GinkgoWriter, "pod %d: status %d, %v\n", w, code, err)
					}
				}
				select {
				case <-pace.C:
				case <-ctx.Done():
				}
			}
		})
	}
	DeferCleanup(l.end)
	return l
}

func (l *load) end() {
	l.stop()
	l.ended.Wait()
}

func (l *load) all() int64 { return l.passed.Load() + l.refused.Load() + l.failed.Load() }

// goesOn waits for so many more requests.
func (l *load) goesOn(n int64) {
	GinkgoHelper()
	Eventually(l.all, "20s", "5ms").Should(BeNumerically(">=", l.all()+n))
}

func oneKey(key string) func(int) string { return func(int) string { return key } }

// shares tells whether verdicts for a key are of the shared bucket now.
func shares(ctx context.Context, p *pod, key string) func(Gomega) {
	return func(g Gomega) {
		before := p.scrape()
		_, err := p.get(ctx, key)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(count(p.scrape(), "local")).To(Equal(count(before, "local")))
		g.Expect(count(p.scrape(), "redis")).To(BeNumerically(">", count(before, "redis")))
	}
}

// count is how many verdicts a source has given.
func count(metrics, source string) int {
	GinkgoHelper()
	var n int
	for line := range strings.Lines(metrics) {
		if _, err := fmt.Sscanf(line, `portero_verdict_duration_seconds_count{source="`+source+`"} %d`, &n); err == nil {
			return n
		}
	}
	Fail("no verdicts counted by " + source)
	return 0
}

var _ = Describe("With Redis at fault, a sidecar", func() {
	It("fails no request and keeps to its share while all of Redis is gone, and shares again after", func(ctx SpecContext) {
		const capacity = 100
		t := newTenant(ctx)
		t.publish(ctx, t.policy("checkout", capacity))
		first, second := newPod().mount(t).start(ctx, t), newPod().mount(t).start(ctx, t)
		for _, p := range []*pod{first, second} {
			p.applies(map[string]int64{"checkout": 1})
		}
		load := startLoad(ctx, oneKey("a"), first, second)
		load.goesOn(20)
		var gone sync.WaitGroup
		for _, node := range cluster.Nodes {
			gone.Go(node.Kill)
		}
		gone.Wait()
		load.goesOn(400)
		Expect(load.failed.Load()).To(BeZero())
		Expect(first.scrape()).To(ContainSubstring("portero_fallback_active 1"))

		By("coming back")
		for _, node := range cluster.Nodes {
			gone.Go(func() {
				defer GinkgoRecover()
				Expect(node.Restart(ctx)).To(Succeed())
			})
		}
		gone.Wait()
		Expect(cluster.WaitHealthy(ctx)).To(Succeed())
		healthy := time.Now()
		for _, p := range []*pod{first, second} {
			Eventually(shares(ctx, p, "b"), "5s", "10ms").Should(Succeed())
		}
		AddReportEntry("shared again after", time.Since(healthy).String())
		load.end()
		Expect(load.failed.Load()).To(BeZero())
		Expect(load.passed.Load()).To(BeNumerically("<=", 2*capacity), "at most the shared bucket and, once, both shares of it")
		Eventually(func() (*bucketconfig.Heartbeat, error) { return first.beat(ctx, t) }, "5s").Should(HaveField("Fallback", BeFalse()))
	}, SpecTimeout(2*time.Minute))

	It("limits locally without the function library, says so, and shares again once it is back", func(ctx SpecContext) {
		DeferCleanup(ensureLibrary)
		t := newTenant(ctx)
		t.publish(ctx, t.policy("checkout", 10))
		p := newPod().mount(t).start(ctx, t)
		p.applies(map[string]int64{"checkout": 1})
		Expect(p.passed(ctx, 2, "a")).To(Equal(2))
		Expect(cluster.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
			return master.FunctionFlush(ctx).Err()
		})).To(Succeed())
		Expect(p.passed(ctx, 10, "a")).To(Equal(4), "half of the eight that were left")
		Expect(p.passed(ctx, 10, "b")).To(Equal(5), "half of a full bucket")
		Expect(p.scrape()).To(MatchRegexp(`portero_store_errors_total{kind="missing_function"} [1-9]`))

		ensureLibrary(ctx)
		Eventually(shares(ctx, p, "c"), "3s", "10ms").Should(Succeed())
		Expect(p.passed(ctx, 10, "a")).To(Equal(4), "the shared bucket kept its level, and is charged for what passed locally")
	})

	It("loses neither a request nor the limit in a failover", func(ctx SpecContext) {
		t := newTenant(ctx)
		t.publish(ctx, t.policy("checkout", 20))
		p := newPod().mount(t).start(ctx, t)
		p.applies(map[string]int64{"checkout": 1})
		load := startLoad(ctx, func(i int) string { return fmt.Sprint("key-", i%12) }, p)
		load.goesOn(50)
		_, err := cluster.Failover(ctx, "any slot")
		Expect(err).NotTo(HaveOccurred())
		load.goesOn(400)
		load.end()
		Expect(load.failed.Load()).To(BeZero())
		Expect(load.passed.Load()).To(BeNumerically("<=", 12*(20+10)), "each bucket, and at worst this sidecar's share of it")
		Expect(load.passed.Load()).To(BeNumerically(">=", 12*18))
	}, SpecTimeout(time.Minute))

	It("starts in the dark with the policies of its Secret, and shares them once Redis is there", func(ctx SpecContext) {
		t := newTenant(ctx)
		policy := t.policy("checkout", 20)
		t.publish(ctx, policy)
		bundle, _, err := bucketconfig.EncodeBundle([]bucketconfig.Bundled{{Name: policy.Name, Record: policy.Record, Share: policy.Share}})
		Expect(err).NotTo(HaveOccurred())
		var all sync.WaitGroup
		for _, node := range cluster.Nodes {
			all.Go(node.Kill)
		}
		all.Wait()

		p := newPod().mount(t, sidecarenv.SecretPolicies, string(bundle)).start(ctx, t)
		p.applies(map[string]int64{"checkout": 1})
		Expect(p.scrape()).To(ContainSubstring(`portero_config_source{source="secret"} 1`))
		Expect(p.passed(ctx, 30, "a")).To(Equal(10), "one of two sidecars' share")

		for _, node := range cluster.Nodes {
			all.Go(func() {
				defer GinkgoRecover()
				Expect(node.Restart(ctx)).To(Succeed())
			})
		}
		all.Wait()
		Expect(cluster.WaitHealthy(ctx)).To(Succeed())
		Eventually(shares(ctx, p, "b"), "5s", "10ms").Should(Succeed())
		Eventually(p.scrape, "15s").Should(ContainSubstring(`portero_config_source{source="redis"} 1`))
		Expect(p.passed(ctx, 30, "a")).To(Equal(10), "what passed in the dark is charged")
	}, SpecTimeout(time.Minute))

	It("keeps the policies when Redis has lost them", func(ctx SpecContext) {
		t := newTenant(ctx)
		policy := t.policy("checkout", 5)
		t.publish(ctx, policy)
		p := newPod().mount(t).start(ctx, t)
		p.applies(map[string]int64{"checkout": 1})
		Expect(p.passed(ctx, 9, "a")).To(Equal(5))
		Expect(cluster.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
			return master.FlushAll(ctx).Err()
		})).To(Succeed())
		Expect(p.passed(ctx, 9, "a")).To(Equal(5), "lost buckets are full ones")
		p.applies(map[string]int64{"checkout": 1})
		t.publish(ctx, policy)
		t.publish(ctx, t.policy("checkout", 7))
		p.applies(map[string]int64{"checkout": 2})
	})
})
