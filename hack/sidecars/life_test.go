package sidecars_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/portero-dev/portero/internal/redistest"
	"github.com/portero-dev/portero/internal/sidecarenv"
)

// recovery is how soon verdicts are of the shared bucket again once every master says that all is well.
const recovery = 2 * time.Second

// verdicts is how many verdicts pods have from a source.
func verdicts(ctx context.Context, source string, pods ...*pod) (sum int) {
	GinkgoHelper()
	for _, p := range pods {
		metrics, err := p.scrape(ctx)
		Expect(err).NotTo(HaveOccurred())
		for line := range strings.Lines(metrics) {
			var n int
			if _, err := fmt.Sscanf(line, `portero_verdict_duration_seconds_count{source="`+source+`"} %d`, &n); err == nil {
				sum += n
			}
		}
	}
	return sum
}

// shares waits until the pods' verdicts for new keys, all over the slots, are of the shared buckets.
func shares(ctx context.Context, within time.Duration, pods ...*pod) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		before := verdicts(ctx, "local", pods...)
		for range 8 {
			for _, p := range pods {
				_, err := p.ask(ctx, unique("shared"))
				g.Expect(err).NotTo(HaveOccurred())
			}
		}
		g.Expect(verdicts(ctx, "local", pods...)).To(Equal(before))
	}, within, "50ms").Should(Succeed())
}

// waits answers the Retry-After of a request that must be refused.
func (p *pod) waits(ctx context.Context, key string) time.Duration {
	GinkgoHelper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url("/page"), nil)
	Expect(err).NotTo(HaveOccurred())
	request.Header.Set(keyHeader, key)
	response, err := http.DefaultClient.Do(request)
	Expect(err).NotTo(HaveOccurred())
	Expect(response.Body.Close()).To(Succeed())
	Expect(response.StatusCode).To(Equal(http.StatusTooManyRequests))
	seconds, err := strconv.Atoi(response.Header.Get("Retry-After"))
	Expect(err).NotTo(HaveOccurred())
	return time.Duration(seconds) * time.Second
}

// pods are two of the tenant's that enforce its policy.
func (t *tenant) pods(ctx context.Context) []*pod {
	GinkgoHelper()
	pods := []*pod{start(ctx, binary, t, appAddr), start(ctx, binary, t, appAddr)}
	for _, p := range pods {
		p.applies(ctx, "checkout", 1)
	}
	return pods
}

// masterOf is the master that serves the tenant's only bucket.
func (t *tenant) masterOf(ctx context.Context) *redistest.Node {
	GinkgoHelper()
	for _, node := range t.cluster.Nodes {
		keys, err := node.Client().Keys(ctx, strings.Split(instance.BucketPattern(t.name), "*")[0]+"*").Result()
		Expect(err).NotTo(HaveOccurred())
		if master, err := node.IsMaster(ctx); err == nil && master && len(keys) > 0 {
			return node
		}
	}
	Fail("no bucket in Redis")
	return nil
}

// redirections tells how often a node has said MOVED.
func redirections(ctx context.Context, node *redistest.Node) string {
	GinkgoHelper()
	stats, err := node.Client().Info(ctx, "errorstats").Result()
	Expect(err).NotTo(HaveOccurred())
	_, rest, _ := strings.Cut(stats, "errorstat_MOVED:")
	count, _, _ := strings.Cut(rest, "\r\n")
	return count
}

// connections are all that the tenant's sidecars have, by node and id.
func connections(ctx context.Context, t *tenant) (all []string) {
	GinkgoHelper()
	for _, node := range t.cluster.Nodes {
		list, err := node.Client().ClientList(ctx).Result()
		Expect(err).NotTo(HaveOccurred())
		for line := range strings.Lines(list) {
			if strings.Contains(line, "user="+instance.User(t.name)+" ") {
				id, _, _ := strings.Cut(line, " ")
				all = append(all, node.Addr()+" "+id)
			}
		}
	}
	return all
}

var _ = Describe("While the Redis Cluster lives its life, sidecars", func() {
	It("admit at most what a clock that steps forward refills, and say how long one that steps back takes", func(ctx SpecContext) {
		t := startBackend(ctx, redistest.Options{Clock: true, NodeTimeout: 5 * time.Second}).newTenant(ctx)
		t.publish(ctx, newRecord("checkout", 1, perHeader("minutely", keyHeader, 20, 60_000_000)))
		pods := t.pods(ctx)
		key := unique("key")
		Expect(passed(ctx, 25, key, pods...)).To(Equal(20))
		node := t.masterOf(ctx)
		step := func(by time.Duration) {
			Expect(node.StepClock(by)).To(Succeed())
			Expect(t.cluster.WaitHealthy(ctx)).To(Succeed())
			shares(ctx, patience, pods...)
		}

		step(10 * time.Minute)
		Expect(passed(ctx, 25, key, pods...)).To(Equal(10), "a token a minute, and nothing more")
		step(0)
		Expect(passed(ctx, 5, key, pods...)).To(BeZero())
		Expect(pods[0].waits(ctx, key)).To(BeNumerically("~", 11*time.Minute, time.Minute), "the step, and a token's time")
		step(24 * time.Hour)
		Expect(passed(ctx, 30, key, pods...)).To(Equal(20), "never more than the capacity")
		step(-time.Hour)
		Expect(pods[1].waits(ctx, key)).To(BeNumerically("~", 25*time.Hour, 2*time.Minute))
	}, NodeTimeout(4*time.Minute))

	It("follow a node that joins, that takes slots and gives them back, and that leaves, and fail nobody", func(ctx SpecContext) {
		t := startBackend(ctx, redistest.Options{ACLFile: true}).newTenant(ctx)
		t.publish(ctx, newRecord("checkout", 1, perHeader("hourly", keyHeader, 20, hour)))
		pods := t.pods(ctx)
		key := unique("key")
		Expect(passed(ctx, 5, key, pods...)).To(Equal(5))
		old := t.masterOf(ctx)
		keys, err := old.Client().Keys(ctx, "*:b:*").Result()
		Expect(err).NotTo(HaveOccurred())
		slot, err := old.Client().ClusterKeySlot(ctx, keys[0]).Result()
		Expect(err).NotTo(HaveOccurred())
		stop := traffic(ctx, unique("busy"), pods...)
		DeferCleanup(func() { stop() })

		added, err := t.cluster.AddMaster(ctx)
		Expect(err).NotTo(HaveOccurred())
		// What the manager does within 2 s of a node's coming; its own suite holds that.
		Eventually(func(g Gomega) {
			_, err := t.admin.EnsureLibrary(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(t.admin.EnsureUser(ctx, t.name, password)).To(Succeed())
			g.Expect(added.Client().FunctionList(ctx, redis.FunctionListQuery{}).Result()).NotTo(BeEmpty())
			g.Expect(added.Client().ACLUsers(ctx).Result()).To(ContainElement(instance.User(t.name)))
		}, patience).Should(Succeed())
		for _, way := range []redistest.SlotMove{{Slot: int(slot), From: old, To: added}, {Slot: int(slot), From: added, To: old}} {
			Expect(way.Begin(ctx)).To(Succeed())
			shares(ctx, recovery, pods...)
			Expect(way.Finish(ctx)).To(Succeed())
			Expect(t.cluster.WaitHealthy(ctx)).To(Succeed())
			shares(ctx, recovery, pods...)
			Expect(passed(ctx, 5, key, pods...)).To(Equal(5))
		}
		Expect(passed(ctx, 25, key, pods...)).To(Equal(5), "the bucket kept what was spent, wherever it was")
		Eventually(func(g Gomega) {
			before := redirections(ctx, added)
			g.Expect(passed(ctx, len(pods), key, pods...)).To(BeZero())
			g.Expect(redirections(ctx, added)).To(Equal(before))
		}, recovery, "50ms").Should(Succeed(), "nobody asks the node any more that is about to leave")
		Expect(t.cluster.Remove(ctx, added)).To(Succeed())
		Expect(passed(ctx, 5, key, pods...)).To(BeZero())
		Expect(stop()).To(And(HaveKey(http.StatusTooManyRequests), HaveLen(2)), "passed or refused, nothing else")
		Expect(verdicts(ctx, "local", pods...)).To(BeZero())
	}, NodeTimeout(4*time.Minute))

	It("find a master that comes back at another address", func(ctx SpecContext) {
		t := startBackend(ctx, redistest.Options{ACLFile: true, Persist: true, NodeTimeout: 30 * time.Second}).newTenant(ctx)
		t.publish(ctx, newRecord("checkout", 1, perHeader("hourly", keyHeader, 20, hour)))
		pods := t.pods(ctx)
		key := unique("key")
		Expect(passed(ctx, 14, key, pods...)).To(Equal(14))
		stop := traffic(ctx, unique("busy"), pods...)
		DeferCleanup(func() { stop() })
		node := t.masterOf(ctx)
		Expect(node.MoveAddr(ctx)).To(Succeed())
		Expect(t.cluster.WaitHealthy(ctx)).To(Succeed())
		shares(ctx, recovery, pods...)
		Expect(passed(ctx, 25, key, pods...)).To(Equal(6))
		Expect(stop()).To(And(HaveKey(http.StatusTooManyRequests), HaveLen(2)), "passed or refused, nothing else")
	}, NodeTimeout(4*time.Minute))

	It("take a new password and a new client certificate over mTLS, and no verdict is lost or made locally", func(ctx SpecContext) {
		t := startBackend(ctx, redistest.Options{ACLFile: true, TLS: true}).newTenant(ctx)
		t.secret[sidecarenv.SecretCA] = string(t.cluster.TLS.CA)
		t.publish(ctx, newRecord("checkout", 1, perHeader("hourly", keyHeader, 300, hour)))
		bare := start(ctx, binary, t, appAddr)
		t.secret[sidecarenv.SecretCert], t.secret[sidecarenv.SecretKey] = string(t.cluster.TLS.Certificate), string(t.cluster.TLS.Key)
		pods := t.pods(ctx)
		Consistently(bare.scrape, "1s").WithContext(ctx).ShouldNot(ContainSubstring("portero_config_generation{"), "the servers want a certificate")
		bare.mount(t.secret)
		bare.applies(ctx, "checkout", 1)
		pods = append(pods, bare)

		key := unique("key")
		stop := traffic(ctx, key, pods...)
		DeferCleanup(func() { stop() })
		local := verdicts(ctx, "local", pods...)
		Expect(t.admin.EnsureUser(ctx, t.name, "the-next-password", password)).To(Succeed())
		rotated := maps.Clone(t.secret)
		rotated[sidecarenv.SecretPassword] = "the-next-password"
		certificate, privateKey, err := t.cluster.TLS.Issue()
		Expect(err).NotTo(HaveOccurred())
		rotated[sidecarenv.SecretCert], rotated[sidecarenv.SecretKey] = string(certificate), string(privateKey)
		former := connections(ctx, t)
		for _, p := range pods {
			p.mount(rotated)
		}
		Eventually(connections, patience, "50ms").WithArguments(ctx, t).ShouldNot(ContainElement(BeElementOf(former)), "all are by the new ones")
		Expect(t.admin.EnsureUser(ctx, t.name, "the-next-password")).To(Succeed())
		shares(ctx, recovery, pods...)
		statuses := stop()
		Expect(statuses).To(And(HaveKeyWithValue(http.StatusOK, 300), HaveKey(http.StatusTooManyRequests), HaveLen(2)), "passed or refused, nothing else")
		Expect(verdicts(ctx, "local", pods...)).To(Equal(local))
	}, NodeTimeout(4*time.Minute))
})
