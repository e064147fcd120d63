package sidecar_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/portero-dev/portero/internal/bucketconfig"
)

// costing makes responses tell what requests cost: 1 before, at most 60 in all.
func costing(r *bucketconfig.Record) {
	r.Limits[0].CostSource = &bucketconfig.CostSource{Type: "ResponseHeader", Header: "X-Cost", Maximum: 60}
}

// ask asks for a key, lets the app tell a cost in the field that a header of the request names, and answers the status, what
// is told to be left of the limit, and Retry-After.
func (p *pod) ask(ctx context.Context, key, tell, cost string) (status, left int, retryAfter string) {
	GinkgoHelper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/", nil)
	Expect(err).NotTo(HaveOccurred())
	request.Header.Set("X-Api-Key", key)
	if tell != "" {
		request.Header.Set(tell, cost)
	}
	response, err := client.Do(request)
	Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	Expect(err).NotTo(HaveOccurred())
	_, err = fmt.Sscanf(response.Header.Get("RateLimit"), `"checkout/per-key";r=%d`, &left)
	Expect(err).NotTo(HaveOccurred())
	return response.StatusCode, left, response.Header.Get("Retry-After")
}

// debits waits for a number of debits of a result.
func (p *pod) debits(result string, n int) {
	GinkgoHelper()
	Eventually(p.scrape, "5s", "10ms").Should(ContainSubstring(`portero_debits_total{result="%s"} %d`+"\n", result, n))
}

var _ = Describe("A cost that the response tells", func() {
	It("is taken from the shared bucket by all sidecars, into debt, which later requests wait for", func(ctx SpecContext) {
		t := newTenant(ctx)
		t.publish(ctx, t.policy("checkout", 100, costing))
		one, other := newPod().mount(t).start(ctx, t), newPod().mount(t).start(ctx, t)
		for _, p := range []*pod{one, other} {
			p.applies(map[string]int64{"checkout": 1})
		}
		status, left, _ := one.ask(ctx, "a", "Tell-Header", "30")
		Expect([]int{status, left}).To(Equal([]int{http.StatusOK, 99}))
		one.debits("shared", 1)
		_, left, _ = other.ask(ctx, "a", "Tell-Trailer", "40")
		Expect(left).To(Equal(100-30-1), "what it told itself is not known yet")
		other.debits("shared", 1)
		_, left, _ = one.ask(ctx, "a", "", "")
		Expect(left).To(Equal(100 - 30 - 40 - 1))
		status, _, _ = one.ask(ctx, "a", "Tell-Header", "999")
		Expect(status).To(Equal(http.StatusOK))
		one.debits("shared", 2)
		status, left, retryAfter := other.ask(ctx, "a", "Tell-Header", "7")
		Expect([]int{status, left}).To(Equal([]int{http.StatusTooManyRequests, 0}))
		var seconds int
		Expect(fmt.Sscan(retryAfter, &seconds)).To(Equal(1))
		Expect(time.Duration(seconds)*time.Second).To(BeNumerically("~", 32*time.Hour, time.Minute), "from a debt of 31 to 1 at one token an hour")
		other.debits("shared", 1)
	})

	It("is taken from the local bucket while the library is missing, and from the shared one afterwards", func(ctx SpecContext) {
		DeferCleanup(ensureLibrary)
		t := newTenant(ctx)
		t.publish(ctx, t.policy("checkout", 100, costing))
		p := newPod().mount(t).start(ctx, t)
		p.applies(map[string]int64{"checkout": 1})
		Expect(cluster.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
			return master.FunctionFlush(ctx).Err()
		})).To(Succeed())
		_, left, _ := p.ask(ctx, "a", "Tell-Trailer", "20")
		Expect(left).To(Equal(49), "of half the capacity")
		p.debits("local", 1)
		_, left, _ = p.ask(ctx, "a", "", "")
		Expect(left).To(Equal(29))
		ensureLibrary(ctx)
		Eventually(shares(ctx, p, "b"), "3s", "10ms").Should(Succeed())
		_, left, _ = p.ask(ctx, "a", "", "")
		Expect(left).To(Equal(100 - 20 - 1 - 1))
		_, left, _ = p.ask(ctx, "a", "", "")
		Expect(left).To(Equal(100-20-1-1-1), "once")
	})
})
