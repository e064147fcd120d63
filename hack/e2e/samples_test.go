//go:build e2e

package e2e_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	portero "github.com/portero-dev/portero/api/v1alpha1"
)

// reply is a response read to its end.
type reply struct {
	status int
	header http.Header
	body   string
}

// ask sends one request; target is method and path, headers are names and values.
func ask(ctx context.Context, base, target string, headers ...string) reply {
	GinkgoHelper()
	method, path, _ := strings.Cut(target, " ")
	request, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(base, "/")+path, nil)
	Expect(err).NotTo(HaveOccurred())
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			request.Host = headers[i+1]
			continue
		}
		request.Header.Add(headers[i], headers[i+1])
	}
	transport := http.DefaultTransport
	if strings.HasPrefix(request.Header.Get("Content-Type"), "application/grpc") {
		h2c := &http.Transport{Protocols: new(http.Protocols)}
		h2c.Protocols.SetUnencryptedHTTP2(true)
		defer h2c.CloseIdleConnections()
		transport = h2c
	}
	response, err := transport.RoundTrip(request)
	Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	Expect(err).NotTo(HaveOccurred())
	return reply{status: response.StatusCode, header: response.Header, body: string(body)}
}

var itemOf = regexp.MustCompile(`"([^"]+)";r=(\d+)`)

// left is the level that a response tells of a limit, -1 when it tells none.
func (r reply) left(limit string) int {
	for _, item := range itemOf.FindAllStringSubmatch(r.header.Get("RateLimit"), -1) {
		if item[1] == limit {
			level, _ := strconv.Atoi(item[2])
			return level
		}
	}
	return -1
}

// Each sample is applied as it stands but for its selector, and does what its comments say.
var _ = Describe("The sample", Ordered, func() {
	var w *workload
	var urls []string
	BeforeAll(func(ctx SpecContext) {
		w = startWorkload(ctx, 2)
		urls = w.podURLs(ctx)
	})

	// url alternates between the pods.
	turn := 0
	url := func() string {
		turn++
		return urls[turn%len(urls)]
	}
	// apply enforces a sample until the spec ends.
	apply := func(ctx context.Context, file string) *portero.RateLimitPolicy {
		GinkgoHelper()
		text, err := os.ReadFile("../../config/samples/" + file + ".yaml")
		Expect(err).NotTo(HaveOccurred())
		policy := &portero.RateLimitPolicy{}
		Expect(yaml.UnmarshalStrict(text, policy)).To(Succeed())
		policy.Namespace = w.namespace
		policy.Spec.Selector = portero.LabelSelector{MatchLabels: map[string]portero.LabelValue{"app": "web"}}
		policy.Spec.Store.Timeout = "250ms" // a stall of a busy machine is no fault of the policy's
		enforce(ctx, policy)
		DeferCleanup(func(ctx SpecContext) {
			Expect(client.IgnoreNotFound(kube.Delete(ctx, policy))).To(Succeed())
			for _, u := range urls {
				Eventually(func() http.Header { return ask(ctx, u, "GET /").header }).WithContext(ctx).
					WithTimeout(5 * time.Second).WithPolling(poll).ShouldNot(HaveKey("Ratelimit-Policy"))
			}
		})
		return policy
	}
	// passed counts how many of n equal requests pass.
	passed := func(ctx context.Context, n int, target string, headers ...string) int {
		GinkgoHelper()
		count := 0
		for range n {
			if r := ask(ctx, url(), target, headers...); r.status == http.StatusOK {
				count++
			} else {
				Expect(r.status).To(Equal(http.StatusTooManyRequests), r.body)
			}
		}
		return count
	}

	It("several-windows decides both windows at once and takes from both or none", func(ctx SpecContext) {
		apply(ctx, "several-windows")
		Expect(ask(ctx, url(), "GET /").status).To(Equal(http.StatusForbidden), "a key is required")
		first := ask(ctx, url(), "GET /", "X-Api-Key", "windows")
		Expect(first.header.Get("RateLimit-Policy")).To(And(
			ContainSubstring(`"reports/per-second";q=10;w=1`), ContainSubstring(`"reports/per-day";q=10000;w=86400`)))
		spent, refused := 1, reply{}
		for range 200 {
			r := ask(ctx, url(), "GET /", "X-Api-Key", "windows")
			if r.status == http.StatusOK {
				spent++
				continue
			}
			refused = r
		}
		Expect(refused.status).To(Equal(http.StatusTooManyRequests))
		Expect(refused.body).To(And(ContainSubstring("reports/per-second"), Not(ContainSubstring("reports/per-day"))))
		Expect(refused.left("reports/per-day")).To(BeNumerically("~", 10000-spent, 1), "refused requests cost the long window nothing")
	})

	It("path-template gives each value of a variable a bucket, however it is spelled", func(ctx SpecContext) {
		apply(ctx, "path-template")
		Expect(passed(ctx, 20, "GET /users/7/orders")).To(Equal(20))
		Expect(ask(ctx, url(), "GET /users/8/orders").left("orders/per-user")).To(Equal(19))
		for _, same := range []string{"/users/%37/orders", "/users/7/orders/3", "//users/./7/orders"} {
			Expect(ask(ctx, url(), "GET "+same).left("orders/per-user")).To(BeNumerically("<", 12), same)
		}
		Expect(ask(ctx, url(), "GET /users/7").left("orders/per-user")).To(Equal(-1), "no other path")
	})

	It("cost-rules draws more for what is expensive", func(ctx SpecContext) {
		apply(ctx, "cost-rules")
		Expect(ask(ctx, url(), "GET /search?deep", "X-Api-Key", "a").left("catalog/per-key")).To(Equal(50))
		Expect(ask(ctx, url(), "GET /search", "X-Api-Key", "b").left("catalog/per-key")).To(Equal(90))
		Expect(ask(ctx, url(), "POST /any", "X-Api-Key", "c").left("catalog/per-key")).To(Equal(90))
		Expect(ask(ctx, url(), "GET /any", "X-Api-Key", "d").left("catalog/per-key")).To(Equal(99))
	})

	It("cost-from-response charges what responses tell, into debt that the next requests wait for", func(ctx SpecContext) {
		apply(ctx, "cost-from-response")
		left := func() int { return ask(ctx, url(), "GET /", "X-Api-Key", "a").left("model/per-key") }
		Expect(left()).To(Equal(999))
		Expect(ask(ctx, url(), "GET /cost?tokens=300", "X-Api-Key", "a").status).To(Equal(http.StatusOK))
		// It is charged behind the response's back; some tokens refill meanwhile.
		Eventually(left).WithContext(ctx).WithTimeout(5 * time.Second).WithPolling(poll).Should(BeNumerically("<", 710))
		Expect(ask(ctx, url(), "GET /cost?tokens=300&in=trailer", "X-Api-Key", "a").status).To(Equal(http.StatusOK))
		Eventually(left).WithContext(ctx).WithTimeout(5 * time.Second).WithPolling(poll).Should(BeNumerically("<", 420))
		Expect(ask(ctx, url(), "GET /cost?tokens=5000", "X-Api-Key", "a").status).To(Equal(http.StatusOK))
		var refused reply
		Eventually(func() int {
			refused = ask(ctx, url(), "GET /", "X-Api-Key", "a")
			return refused.status
		}).WithContext(ctx).WithTimeout(5 * time.Second).WithPolling(poll).Should(Equal(http.StatusTooManyRequests))
		Expect(strconv.Atoi(refused.header.Get("Retry-After"))).To(BeNumerically(">", 500), "from a debt of some 600 at one token a second")
		Expect(ask(ctx, url(), "GET /", "X-Api-Key", "b").left("model/per-key")).To(Equal(999))
	})

	It("tiers gives plans buckets of their own, and denies what is stolen", func(ctx SpecContext) {
		apply(ctx, "tiers")
		Expect(ask(ctx, url(), "GET /", "X-Api-Key", "key-of-acme").header.Get("RateLimit-Policy")).To(ContainSubstring("q=1000;"))
		Expect(ask(ctx, url(), "GET /", "X-Api-Key", "other").header.Get("RateLimit-Policy")).To(ContainSubstring("q=20;"))
		stolen := ask(ctx, url(), "GET /", "X-Api-Key", "stolen")
		Expect(stolen.status).To(Equal(http.StatusForbidden))
		Expect(stolen.header).NotTo(HaveKey("Retry-After"))
		Expect(ask(ctx, url(), "GET /").status).To(Equal(http.StatusForbidden))
		Expect(ask(ctx, url(), "GET /", "X-Api-Key", "stolen", "X-Api-Key", "more").status).To(Equal(http.StatusOK),
			"two lines are another key, to the app too")
	})

	It("site compares host, query and cookie, and answers in words of its own", func(ctx SpecContext) {
		apply(ctx, "site")
		for _, host := range []string{"shop.example.com", "SHOP.example.com.", "eu.shop.example.com:8080"} {
			Expect(ask(ctx, url(), "GET /", "Host", host).left("site/anonymous")).To(BeNumerically(">", 0), host)
		}
		Expect(ask(ctx, url(), "GET /", "Host", "example.com").left("site/anonymous")).To(Equal(-1))
		Expect(ask(ctx, url(), "GET /", "Host", "shop.example.com", "Cookie", "session=s").left("site/anonymous")).To(Equal(-1))
		Expect(passed(ctx, 2, "GET /list?a=1&format=csv", "Cookie", "session=s")).To(Equal(2))
		refused := ask(ctx, url(), "GET /list?format=%78lsx", "Cookie", "session=s")
		Expect(refused.status).To(Equal(http.StatusTooManyRequests))
		Expect(refused.header.Get("Content-Type")).To(Equal("text/html; charset=utf-8"))
		Expect(refused.body).To(MatchRegexp(`Please come back in \d+ seconds`))
		Expect(refused.header).To(And(HaveKey("Ratelimit"), HaveKey("X-Ratelimit-Remaining")))
	})

	It("shadow-limit counts what the tighter limit would refuse, and shows it to nobody", func(ctx SpecContext) {
		apply(ctx, "shadow-limit")
		for range 40 {
			r := ask(ctx, url(), "GET /", "X-Api-Key", "trial")
			Expect(r.status).To(Equal(http.StatusOK))
			Expect(r.header.Get("RateLimit-Policy")).NotTo(ContainSubstring("tighter"))
		}
		Eventually(func() float64 {
			sum := 0.0
			for _, p := range w.pods(ctx) {
				sum += counter(ctx, p, "shadow_denied")
			}
			return sum
		}).WithContext(ctx).WithTimeout(5 * time.Second).Should(BeNumerically(">", 0))
	})

	It("grpc refuses calls in gRPC's words", func(ctx SpecContext) {
		apply(ctx, "grpc")
		call := func(method string) reply {
			return ask(ctx, url(), "POST /"+method, "Content-Type", "application/grpc", "X-Caller", "cart")
		}
		var refused reply
		for range 200 {
			if r := call("shop.v1.Cart/Add"); r.header.Get("Grpc-Status") != "" {
				refused = r
				break
			}
		}
		Expect(refused.status).To(Equal(http.StatusOK))
		Expect(refused.header.Get("Grpc-Status")).To(Equal("8"))
		Expect(refused.header.Get("Grpc-Retry-Pushback-Ms")).NotTo(BeEmpty())
		Expect(call("shop.v1.Cart/List").header).NotTo(HaveKey("Grpc-Status"))
		Expect(call("grpc.health.v1.Health/Check").header).NotTo(HaveKey("Grpc-Status"))
	})

	It("expressions limits what a condition tells, by a key that an expression makes", func(ctx SpecContext) {
		apply(ctx, "expressions")
		Expect(ask(ctx, url(), "GET /reports/v1?rows=10", "X-Tenant", "a").left("exports/large-exports")).To(Equal(-1))
		Expect(passed(ctx, 2, "GET /reports/v1?rows=5000", "X-Tenant", "a")).To(Equal(2))
		Expect(ask(ctx, url(), "GET /reports/v1?rows=5000", "X-Tenant", "a").status).To(Equal(http.StatusTooManyRequests))
		Expect(ask(ctx, url(), "GET /reports/v2?rows=5000", "X-Tenant", "a").status).To(Equal(http.StatusOK), "another version, another bucket")
		Expect(ask(ctx, url(), "GET /reports/v1?rows=many", "X-Tenant", "b").left("exports/large-exports")).To(Equal(1), "a condition that fails limits")
		Expect(ask(ctx, url(), "GET /healthz").header).NotTo(HaveKey("Ratelimit-Policy"))
	})

	It("login holds an address to its attempts, whatever it sends", func(ctx SpecContext) {
		apply(ctx, "login")
		count := 0
		for i := range 12 {
			r := ask(ctx, url(), "POST /login", "X-Forwarded-For", fmt.Sprintf("203.0.113.%d", i))
			Expect(r.header).To(HaveKey("X-Ratelimit-Remaining"))
			if r.status == http.StatusOK {
				count++
			}
		}
		Expect(count).To(Equal(5))
		Expect(ask(ctx, url(), "GET /login").status).To(Equal(http.StatusOK))
		Expect(ask(ctx, url(), "POST /v2/sessions").status).To(Equal(http.StatusTooManyRequests))
	})

	It("per-client-address believes no address that comes from elsewhere", func(ctx SpecContext) {
		apply(ctx, "per-client-address")
		count := 0
		for i := range 90 {
			if ask(ctx, url(), "GET /", "X-Forwarded-For", fmt.Sprintf("198.51.100.%d", i)).status == http.StatusOK {
				count++
			}
		}
		Expect(count).To(BeNumerically("<", 80))
		Expect(ask(ctx, url(), "GET /assets/logo.png").status).To(Equal(http.StatusOK))
	})
})
