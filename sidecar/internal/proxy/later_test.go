package proxy_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/ratelimit"
)

// costing makes responses tell what requests cost: 2 of 100 before, at most 50 in all.
func costing(r *bucketconfig.Record) {
	r.Limits[0].Cost, r.Limits[0].Bucket.Capacity = 2, 100
	r.Limits[0].CostSource = &bucketconfig.CostSource{Type: "ResponseHeader", Header: "X-Cost", Maximum: 50}
}

// drawn reads a response to its end, and tells whether it got there.
func drawn(res *http.Response) bool {
	_, err := io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
	return err == nil
}

var _ = Describe("A cost that the response tells", func() {
	for _, major := range []int{1, 2} {
		Describe("over HTTP/"+string(rune('0'+major)), func() {
			DescribeTable("is charged once it is told, less what was charged before",
				func(ctx SpecContext, method string, app http.HandlerFunc, want []int64) {
					g := startGate(startApp(app), policy("a", costing))
					res := do(ctx, clientOf(major), method, g.url("/"), nil)
					Expect(res.StatusCode).To(BeNumerically("<", 500))
					Expect(res.Header.Get("RateLimit")).To(HavePrefix(`"a/all";r=98`))
					drawn(res)
					Eventually(g.limiter.Debited).Should(Equal(want))
					Consistently(g.limiter.Debited, "50ms").Should(BeEmpty(), "once")
				},
				Entry("in the header", "GET", cost("30", ""), []int64{28}),
				Entry("in the header of an answer to HEAD", "HEAD", cost("30", ""), []int64{28}),
				Entry("in the header of a failure", "GET", func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("X-Cost", "30")
					w.WriteHeader(http.StatusNotFound)
				}, []int64{28}),
				Entry("in the header of an answer without a body", "GET", func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("X-Cost", "30")
					w.WriteHeader(http.StatusNoContent)
				}, []int64{28}),
				Entry("in a trailer", "GET", cost("", "30"), []int64{28}),
				Entry("in a trailer that was not announced", "GET", func(w http.ResponseWriter, _ *http.Request) {
					_, _ = io.WriteString(w, "hello")
					_ = http.NewResponseController(w).Flush()
					w.Header().Set(http.TrailerPrefix+"X-Cost", "30")
				}, []int64{28}),
				Entry("in both: the header counts", "GET", cost("30", "40"), []int64{28}),
				Entry("above the maximum", "GET", cost("900", ""), []int64{48}),
				Entry("after interim answers, whose header does not count", "GET", func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("X-Cost", "44")
					w.WriteHeader(http.StatusEarlyHints)
					w.Header().Del("X-Cost")
					cost("", "30")(w, r)
				}, []int64{28}),
			)

			It("is the app's, where the proxy's own fields have its name", func(ctx SpecContext) {
				g := startGate(startApp(cost("30", "")), policy("a", costing, func(r *bucketconfig.Record) {
					r.Response.RateLimitHeaders, r.Limits[0].CostSource.Header = "Both", "X-RateLimit-Remaining"
				}))
				res := get(ctx, clientOf(major), g.url("/"))
				Expect(res.Header).To(HaveKey("X-Ratelimit-Remaining"))
				drawn(res)
				Consistently(g.limiter.Debited, "50ms").Should(BeEmpty(), "the app told nothing by that name")
			})

			DescribeTable("is what was charged before where the response tells nothing more",
				func(ctx SpecContext, app http.HandlerFunc) {
					g := startGate(startApp(app), policy("a", costing))
					drawn(get(ctx, clientOf(major), g.url("/")))
					Consistently(g.limiter.Debited, "50ms").Should(BeEmpty())
				},
				Entry("no field", cost("", "")),
				Entry("no number", cost("many", "")),
				Entry("an empty header before a trailer", func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("X-Cost", "")
					cost("", "30")(w, r)
				}),
				Entry("two lines", func(w http.ResponseWriter, _ *http.Request) { w.Header()["X-Cost"] = []string{"30", "40"} }),
				Entry("less", cost("1", "")),
				Entry("as much", cost("2", "")),
				Entry("zero", cost("0", "")),
				Entry("an app that breaks off", func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Trailer", "X-Cost")
					_, _ = io.WriteString(w, "hello")
					_ = http.NewResponseController(w).Flush()
					panic(http.ErrAbortHandler)
				}),
			)

			It("is charged at the beginning of a stream, not at its end", func(ctx SpecContext) {
				end := make(chan struct{})
				g := startGate(startApp(func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("X-Cost", "30")
					_ = http.NewResponseController(w).Flush()
					<-end
				}), policy("a", costing))
				DeferCleanup(func() { close(end) })
				get(ctx, clientOf(major), g.url("/"))
				Eventually(g.limiter.Debited).Should(Equal([]int64{28}))
			})

			It("is what was charged before where the client leaves before a trailer", func(ctx SpecContext) {
				left := make(chan struct{})
				g := startGate(startApp(func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Trailer", "X-Cost")
					_, _ = io.WriteString(w, "hello")
					_ = http.NewResponseController(w).Flush()
					<-r.Context().Done()
					w.Header().Set("X-Cost", "30")
					close(left)
				}), policy("a", costing))
				leaving, leave := context.WithCancel(ctx)
				res := get(leaving, clientOf(major), g.url("/"))
				Expect(res.StatusCode).To(Equal(http.StatusOK))
				leave()
				Eventually(left, patience).Should(BeClosed())
				Consistently(g.limiter.Debited, "50ms").Should(BeEmpty())
			})

			It("is charged to each limit by its own field, shadows alike", func(ctx SpecContext) {
				g := startGate(startApp(func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("X-Other", "5")
					cost("30", "")(w, r)
				}), policy("a", costing, func(r *bucketconfig.Record) {
					other := r.Limits[0]
					other.Name, other.CostSource = "other", &bucketconfig.CostSource{Type: "ResponseHeader", Header: "X-Other", Maximum: 50}
					r.Limits = append(r.Limits, other, bucketconfig.Limit{Name: "fixed", Cost: 1, Bucket: other.Bucket})
				}), policy("b", costing, shadow))
				drawn(get(ctx, clientOf(major), g.url("/")))
				Eventually(g.limiter.Debited).Should(Equal([]int64{28, 3, 28}))
			})

			It("is no debt of limits that refuse, nor of shadows that would", func(ctx SpecContext) {
				g := startGate(startApp(cost("30", "")), policy("a", costing, func(r *bucketconfig.Record) { r.Limits[0].Bucket.Capacity = 50 }),
					policy("b", costing, shadow, func(r *bucketconfig.Record) { r.Limits[0].Cost = 50 }))
				client := clientOf(major)
				drawn(get(ctx, client, g.url("/")))
				Eventually(g.limiter.Debited).Should(Equal([]int64{28}), "30 are no more than the 50 that the shadow took")
				drawn(get(ctx, client, g.url("/")))
				drawn(get(ctx, client, g.url("/")))
				Eventually(g.limiter.Debited).Should(Equal([]int64{28, 28}))
				g.limiter.outcome = ratelimit.Limited
				Expect(get(ctx, client, g.url("/")).StatusCode).To(Equal(http.StatusTooManyRequests))
				Consistently(g.limiter.Debited, "50ms").Should(BeEmpty())
			})

			It("is what was charged before where the app does not answer", func(ctx SpecContext) {
				gone := listen()
				Expect(gone.Close()).To(Succeed())
				g := startGate(gone.Addr().String(), policy("a", costing))
				Expect(get(ctx, clientOf(major), g.url("/")).StatusCode).To(Equal(http.StatusBadGateway))
				Consistently(g.limiter.Debited, "50ms").Should(BeEmpty())
			})
		})
	}

	It("stands in gRPC's trailers, and in a header that is all of the answer", func(ctx SpecContext) {
		g := startGate(startApp(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/grpc")
			if r.URL.Path == "/only" {
				w.Header().Set("Grpc-Status", "5")
				w.Header().Set("X-Cost", "30")
				return
			}
			w.WriteHeader(http.StatusOK)
			_, _ = w.Write([]byte{0, 0, 0, 0, 0})
			w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
			w.Header().Set(http.TrailerPrefix+"X-Cost", "40")
		}), policy("a", costing))
		res := do(ctx, clientOf(2), http.MethodPost, g.url("/call"), strings.NewReader("\x00\x00\x00\x00\x00"), "Content-Type", "application/grpc", "Te", "trailers")
		Expect(drawn(res)).To(BeTrue())
		Expect(res.Trailer.Get("Grpc-Status")).To(Equal("0"))
		Expect(res.Trailer.Get("X-Cost")).To(Equal("40"))
		Eventually(g.limiter.Debited).Should(Equal([]int64{38}))
		res = do(ctx, clientOf(2), http.MethodPost, g.url("/only"), strings.NewReader(""), "Content-Type", "application/grpc", "Te", "trailers")
		Expect(drawn(res)).To(BeTrue())
		Eventually(g.limiter.Debited).Should(Equal([]int64{28}))
	})

	DescribeTable("is read from any field of the app's own", func(ctx SpecContext, name, told string) {
		g := startGate(startRawApp(func(conn net.Conn, in *bufio.Reader) {
			readHead(in)
			length := 5
			if name == "Content-Length" {
				length = 30
			}
			_, _ = fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n%s%s", length, told, strings.Repeat("x", length))
		}), policy("a", costing, headersOf("Both"), func(r *bucketconfig.Record) { r.Limits[0].CostSource.Header = name }))
		Expect(drawn(get(ctx, clientOf(1), g.url("/")))).To(BeTrue())
		Eventually(g.limiter.Debited).Should(Equal([]int64{28}))
	},
		Entry("the app's length", "Content-Length", "\r\n"),
		Entry("the app's own Retry-After", "Retry-After", "Retry-After: 30\r\n\r\n"),
		Entry("the app's own X-RateLimit-Limit", "X-Ratelimit-Limit", "X-RateLimit-Limit: 30\r\n\r\n"),
	)

	It("is not read of an upgrade", func(ctx SpecContext) {
		g := startGate(startRawApp(func(conn net.Conn, in *bufio.Reader) {
			readHead(in)
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: chat\r\nX-Cost: 30\r\n\r\nhello")
		}), policy("a", costing))
		conn, in := dial(ctx, g)
		send(conn, "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: chat\r\n\r\n")
		Expect(readHead(in)).To(ContainElement("X-Cost: 30"))
		_, err := io.ReadAll(in)
		Expect(err).NotTo(HaveOccurred())
		Consistently(g.limiter.Debited, "50ms").Should(BeEmpty())
	})
})

// cost is an app that tells what a request cost in its header, its trailer, or both.
func cost(header, trailer string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if header != "" {
			w.Header().Set("X-Cost", header)
		}
		if trailer == "" {
			_, _ = io.WriteString(w, "hello")
			return
		}
		w.Header().Set("Trailer", "X-Cost")
		_, _ = io.WriteString(w, "hello")
		_ = http.NewResponseController(w).Flush()
		w.Header().Set("X-Cost", trailer)
	}
}
