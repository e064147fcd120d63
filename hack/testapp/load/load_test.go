package load_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/hack/testapp/app"
	"github.com/portero-dev/portero/hack/testapp/load"
)

var _ = Describe("Run", func() {
	serve := func(handler http.HandlerFunc) string {
		server := httptest.NewServer(handler)
		DeferCleanup(server.Close)
		return server.URL
	}
	options := func(url string, requests int) load.Options {
		return load.Options{
			URLs: []string{url}, Clients: []load.Client{{Name: "alice"}}, Concurrency: 1,
			Duration: 10 * time.Second, Requests: requests, Timeout: 5 * time.Second, Method: http.MethodGet,
		}
	}

	It("sends exactly the requests asked for, each with its client's headers", func(ctx SpecContext) {
		var alice, bob atomic.Int64
		url := serve(func(_ http.ResponseWriter, r *http.Request) {
			switch r.Header.Get("X-Api-Key") {
			case "alice":
				alice.Add(1)
			case "bob":
				bob.Add(1)
			}
		})
		o := options(url, 50)
		o.Concurrency = 4
		o.Clients = []load.Client{
			{Name: "alice", Headers: http.Header{"X-Api-Key": {"alice"}}},
			{Name: "bob", Headers: http.Header{"X-Api-Key": {"bob"}}},
		}
		report := load.Run(ctx, o)
		Expect(alice.Load()).To(BeEquivalentTo(50))
		Expect(bob.Load()).To(BeEquivalentTo(50))
		Expect(report.Clients["alice"].Passed).To(Equal(50))
		Expect(report.Total.Requests).To(Equal(100))
		Expect(report.Total.Statuses).To(Equal(map[string]int{"200": 100}))
	})

	It("tells passed, refused and failed apart, and refusals by the pod that the connection leads to", func(ctx SpecContext) {
		var n atomic.Int64
		url := serve(func(w http.ResponseWriter, _ *http.Request) {
			switch n.Add(1) % 4 {
			case 1, 2:
				w.Header().Set("Retry-After", "3")
				w.WriteHeader(http.StatusTooManyRequests)
			case 3:
				w.Header().Set(app.PodHeader, "pod-1")
			default:
				w.WriteHeader(http.StatusBadGateway)
			}
		})
		tally := load.Run(ctx, options(url, 8)).Total
		Expect(tally.Counts).To(Equal(load.Counts{Requests: 8, Passed: 2, Refused: 4, Failed: 2}))
		Expect(tally.Pods).To(Equal(map[string]load.Counts{"pod-1": tally.Counts}))
		Expect(tally.RetryAfter).To(Equal(map[string]int{"3": 4}))
		sum := load.Counts{}
		for _, second := range tally.Seconds {
			sum.Requests += second.Requests
			sum.Passed += second.Passed
		}
		Expect(sum).To(Equal(load.Counts{Requests: 8, Passed: 2}), "the seconds add up to the whole")
	})

	It("counts requests that never came back, by cause", func(ctx SpecContext) {
		url := serve(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
		tally := load.Run(ctx, options(url, 3)).Total
		Expect(tally.Counts).To(Equal(load.Counts{Requests: 3, Failed: 3}))
		Expect(tally.Errors).To(Equal(map[string]int{io.EOF.Error(): 3}))
	})

	It("keeps to its rate", func(ctx SpecContext) {
		o := options(serve(func(http.ResponseWriter, *http.Request) {}), 1000)
		o.Rate, o.Duration, o.Concurrency = 50, 500*time.Millisecond, 2
		report := load.Run(ctx, o)
		// Request n is due at n/50 s and must be due before 500 ms: 0..24.
		Expect(report.Total.Requests).To(Equal(25))
		Expect(report.ElapsedSeconds).To(BeNumerically(">=", 0.48))
	})

	It("sends each request in flight over a connection of its own, and keeps it", func(ctx SpecContext) {
		var together sync.WaitGroup
		together.Add(3)
		var remotes sync.Map
		var n atomic.Int64
		o := options(serve(func(_ http.ResponseWriter, r *http.Request) {
			remotes.Store(r.RemoteAddr, true)
			if n.Add(1) <= 3 { // nobody is answered before each worker has sent one
				together.Done()
				together.Wait()
			}
		}), 30)
		o.Concurrency = 3
		Expect(load.Run(ctx, o).Total.Passed).To(Equal(30))
		connections := 0
		remotes.Range(func(any, any) bool { connections++; return true })
		Expect(connections).To(Equal(3))
	}, NodeTimeout(20*time.Second))

	It("dials for every request when asked to", func(ctx SpecContext) {
		var remotes atomic.Int64
		var seen sync.Map
		o := options(serve(func(_ http.ResponseWriter, r *http.Request) {
			if _, known := seen.LoadOrStore(r.RemoteAddr, true); !known {
				remotes.Add(1)
			}
		}), 5)
		o.NewConnections = true
		load.Run(ctx, o)
		Expect(remotes.Load()).To(BeEquivalentTo(5))
	})

	It("ends early, with what it has, when told to", func(ctx SpecContext) {
		loading, stop := context.WithCancel(ctx)
		var n atomic.Int64
		o := options(serve(func(http.ResponseWriter, *http.Request) {
			if n.Add(1) == 3 {
				stop()
			}
		}), 1_000_000)
		Expect(load.Run(loading, o).Total.Requests).To(BeNumerically("<=", 3))
	}, NodeTimeout(10*time.Second))
})

var _ = Describe("Main", func() {
	It("prints the report as JSON", func(ctx SpecContext) {
		server := httptest.NewServer((&app.Handler{Pod: "pod-1"}).Routes())
		DeferCleanup(server.Close)
		var out bytes.Buffer
		Expect(load.Main(ctx, []string{"-url=" + server.URL, "-requests=2", "-client=alice X-Api-Key: alice; X-Plan: free", "-http2=false"}, &out, io.Discard)).To(Succeed())
		var report load.Report
		Expect(json.Unmarshal(out.Bytes(), &report)).To(Succeed())
		Expect(report.Clients).To(HaveKey("alice"))
		Expect(report.Total.Pods).To(HaveKeyWithValue("pod-1", load.Counts{Requests: 2, Passed: 2}))
	})

	DescribeTable("refuses what is not bounded, naming the flag", func(ctx SpecContext, flag, message string) {
		err := load.Main(ctx, []string{"-url=http://127.0.0.1:1", flag}, io.Discard, io.Discard)
		Expect(err).To(MatchError(ContainSubstring(message)))
	},
		Entry("a day", "-duration=24h", "-duration 24h0m0s"),
		Entry("no duration", "-duration=0s", "-duration 0s"),
		Entry("too many in flight", "-concurrency=1001", "-concurrency 1001"),
		Entry("a negative rate", "-rate=-1", "-rate -1"),
		Entry("too many requests", "-requests=5000001", "-requests 5000001"),
		Entry("another scheme", "-url=ftp://x", "-url"),
		Entry("a header that is none", "-client=alice nothing", "Header: value"),
		Entry("a client without a name", "-client= X: y", "-client"))
})
