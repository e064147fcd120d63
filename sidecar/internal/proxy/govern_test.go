package proxy_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/ratelimit"
	"github.com/portero-dev/portero/sidecar/internal/proxy"
)

var _ = Describe("Governing", func() {
	for _, major := range []int{1, 2} {
		Describe("over HTTP/"+string(rune('0'+major)), func() {
			It("tells every governed response its limit, and refuses what exceeds it", func(ctx SpecContext) {
				var reached atomic.Int64
				g := startGate(startApp(func(w http.ResponseWriter, r *http.Request) {
					reached.Add(1)
					ok(w, r)
				}), policy("a", keyedBy("X-Api-Key", "Share")))
				client := clientOf(major)
				for _, left := range []string{`"a/all";r=1;t=10`, `"a/all";r=0;t=10`} {
					res := get(ctx, client, g.url("/"), "X-Api-Key", "one")
					Expect(res.StatusCode).To(Equal(http.StatusOK))
					Expect(bodyOf(res)).To(Equal("hello"))
					Expect(res.Header.Get("RateLimit-Policy")).To(Equal(`"a/all";q=2;w=20`))
					Expect(res.Header.Get("RateLimit")).To(Equal(left))
				}
				res := get(ctx, client, g.url("/"), "X-Api-Key", "one")
				Expect(res.StatusCode).To(Equal(http.StatusTooManyRequests))
				Expect(res.Header.Get("Retry-After")).To(Equal("10"))
				Expect(res.Header.Get("RateLimit")).To(Equal(`"a/all";r=0;t=10`))
				Expect(res.Header.Get("Cache-Control")).To(Equal("no-store"))
				Expect(bodyOf(res)).To(ContainSubstring(`"violated-policies":["a/all"]`))

				Expect(get(ctx, client, g.url("/"), "X-Api-Key", "two").StatusCode).To(Equal(http.StatusOK), "another key, another bucket")
				Expect(reached.Load()).To(BeEquivalentTo(3))
				Expect(g.counted.Verdicts()).To(HaveLen(4))
			})

			It("lets pass what no policy governs, untouched and uncounted", func(ctx SpecContext) {
				g := startGate(startApp(ok), policy("a", func(r *bucketconfig.Record) {
					r.Exempt = []bucketconfig.Match{{Path: &bucketconfig.StringMatch{Type: "Exact", Value: "/healthz"}}}
				}))
				res := get(ctx, clientOf(major), g.url("/x/..//%68ealthz"))
				Expect(res.StatusCode).To(Equal(http.StatusOK))
				Expect(res.Header).NotTo(HaveKey("Ratelimit"))
				Expect(g.limiter.Asked()).To(BeZero())
				Expect(g.counted.Verdicts()).To(BeEmpty())
			})

			It("counts expressions that fail, of requests that nothing governs too", func(ctx SpecContext) {
				const failing = "int(request.headers['x-n']) > 5"
				g := startGate(startApp(ok), policy("a", func(r *bucketconfig.Record) {
					r.Exempt = []bucketconfig.Match{{When: failing}, {Path: &bucketconfig.StringMatch{Type: "Exact", Value: "/healthz"}}}
					r.Limits[0].Matches = []bucketconfig.Match{{When: failing}}
				}))
				Expect(get(ctx, clientOf(major), g.url("/healthz")).StatusCode).To(Equal(http.StatusOK))
				Expect(g.counted.Failures()).To(Equal([]string{"a"}))
				Expect(get(ctx, clientOf(major), g.url("/"), "X-N", "1").StatusCode).To(Equal(http.StatusOK))
				Expect(g.counted.Failures()).To(Equal([]string{"a"}), "this one failed nowhere")
				Expect(g.counted.Verdicts()).To(BeEmpty())
				Expect(get(ctx, clientOf(major), g.url("/")).StatusCode).To(Equal(http.StatusOK))
				Expect(g.counted.Failures()).To(Equal([]string{"a", "a", "a/all"}))
				Expect(g.counted.Verdicts()).To(HaveLen(1))
			})

			It("counts what a shadow would refuse, and adds nothing", func(ctx SpecContext) {
				g := startGate(startApp(ok), policy("a", shadow, spent), policy("b", shadow, keyedBy("X-Api-Key", "Deny")))
				client := clientOf(major)
				for range 2 {
					res := get(ctx, client, g.url("/"))
					Expect(res.StatusCode).To(Equal(http.StatusOK))
					Expect(res.Header).NotTo(HaveKey("Ratelimit"))
					Expect(res.Header).NotTo(HaveKey("Ratelimit-Policy"))
				}
				second := g.counted.Verdicts()[1]
				Expect(second.Outcome).To(Equal(ratelimit.Allowed))
				Expect(second.Limits).To(HaveLen(2))
				for _, result := range second.Limits {
					Expect(result.Shadow).To(BeTrue())
					Expect(result.Allowed).To(BeFalse())
				}
			})

			It("denies without asking the store", func(ctx SpecContext) {
				g := startGate(startApp(ok), policy("a"), policy("b", keyedBy("X-Api-Key", "Deny")))
				res := get(ctx, clientOf(major), g.url("/"))
				Expect(res.StatusCode).To(Equal(http.StatusForbidden))
				Expect(bodyOf(res)).To(ContainSubstring("the request lacks the header X-Api-Key"))
				Expect(g.limiter.Asked()).To(BeZero())
				Expect(g.counted.Verdicts()).To(HaveLen(1))
				Expect(g.counted.Verdicts()[0].By.QualifiedName).To(Equal("b/all"))
			})

			It("shows limits all that they may ask for", func(ctx SpecContext) {
				g := startGate(startApp(ok), policy("a", func(r *bucketconfig.Record) {
					r.Limits[0].Matches = []bucketconfig.Match{{
						Ports: []string{"http"}, Hosts: []string{"127.0.0.1"},
						QueryParams: []bucketconfig.NamedMatch{{Name: "a b", Type: "Exact", Value: "c&d"}},
						Cookies:     []bucketconfig.NamedMatch{{Name: "sid", Type: "Present"}},
					}, {Ports: []string{"8080"}, Path: &bucketconfig.StringMatch{Type: "Template", Value: "/users/{id}"}}}
					r.Limits[0].KeyParts = []bucketconfig.KeyPart{
						{Type: "Workload", WhenMissing: "Deny"}, {Type: "Host", WhenMissing: "Deny"}, {Type: "Method", WhenMissing: "Deny"},
					}
				}))
				client := clientOf(major)
				for target, want := range map[string]string{
					"/?x=1&a+b=c%26d": `"a/all";q=2;w=20`, "/?a+b=c&d": "", "/users/7": `"a/all";q=2;w=20`, "/users/7?": `"a/all";q=2;w=20`, "/users?/7": "",
				} {
					res := get(ctx, client, g.url(target), "Cookie", "x=1; sid=2")
					Expect(res.StatusCode).NotTo(Equal(http.StatusForbidden))
					Expect(res.Header.Get("RateLimit-Policy")).To(Equal(want), target)
				}
			})

			It("denies by an override, and tells nothing of it", func(ctx SpecContext) {
				g := startGate(startApp(ok), policy("a", func(r *bucketconfig.Record) {
					r.Limits[0].Overrides = []bucketconfig.Override{{Name: "stolen", Type: "Deny", Matches: []bucketconfig.Match{
						{Headers: []bucketconfig.NamedMatch{{Name: "X-Api-Key", Type: "Exact", Value: "stolen"}}},
					}}}
				}))
				res := get(ctx, clientOf(major), g.url("/"), "X-Api-Key", "stolen")
				Expect(res.StatusCode).To(Equal(http.StatusForbidden))
				Expect(res.Header).NotTo(HaveKey("Retry-After"))
				Expect(bodyOf(res)).To(ContainSubstring("the request is not allowed"))
				Expect(g.limiter.Asked()).To(BeZero())
				Expect(get(ctx, clientOf(major), g.url("/"), "X-Api-Key", "other").StatusCode).To(Equal(http.StatusOK))
			})

			It("is unavailable where the store failed and the policy says Closed", func(ctx SpecContext) {
				g := startGate(startApp(ok), policy("a"))
				g.limiter.outcome = ratelimit.Unavailable
				res := get(ctx, clientOf(major), g.url("/"))
				Expect(res.StatusCode).To(Equal(http.StatusServiceUnavailable))
				Expect(res.Header.Get("Retry-After")).To(Equal("1"))
			})

			It("leaves to each policy which fields it adds", func(ctx SpecContext) {
				g := startGate(startApp(ok), policy("a"), policy("b", headersOf("Legacy")), policy("c", headersOf("None")))
				res := get(ctx, clientOf(major), g.url("/"))
				Expect(res.Header.Get("RateLimit")).To(Equal(`"a/all";r=1;t=10`))
				Expect(res.Header.Get("X-RateLimit-Limit")).To(Equal("2"))
				Expect(res.Header.Get("X-RateLimit-Remaining")).To(Equal("1"))
				Expect(res.Header.Get("X-RateLimit-Reset")).To(Equal("10"))
			})

			It("keeps the app's own fields beside ours", func(ctx SpecContext) {
				g := startGate(startApp(func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("RateLimit", `"app";r=7`)
				}), policy("a"))
				res := get(ctx, clientOf(major), g.url("/"))
				Expect(res.Header["Ratelimit"]).To(Equal([]string{`"app";r=7`, `"a/all";r=1;t=10`}))
			})

			It("refuses a large upload so that the client reads why", func(ctx SpecContext) {
				g := startGate(startApp(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }), policy("a", spent))
				client := clientOf(major)
				get(ctx, client, g.url("/"))
				for _, body := range []io.Reader{
					strings.NewReader(strings.Repeat("x", 20<<20)), // of known length
					io.LimitReader(zeros{}, 20<<20),                // in chunks
				} {
					res := do(ctx, client, http.MethodPost, g.url("/upload"), body)
					Expect(res.StatusCode).To(Equal(http.StatusTooManyRequests))
					Expect(bodyOf(res)).To(ContainSubstring("the limit is spent"))
				}
			})
		})
	}

	// A client that reads nothing before it has sent everything, as many do.
	DescribeTable("refuses a large upload of a client that sends it all first",
		func(ctx SpecContext, head string, last string) {
			g := startGate(startApp(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }), policy("a", spent))
			get(ctx, clientOf(1), g.url("/"))
			conn, in := dial(ctx, g)
			send(conn, "POST / HTTP/1.1\r\nHost: h\r\n"+head+"\r\n\r\n")
			piece := strings.Repeat("x", 1<<16)
			for range 20 << 20 / len(piece) {
				if last != "" {
					send(conn, "10000\r\n"+piece+"\r\n")
				} else {
					send(conn, piece)
				}
			}
			send(conn, last)
			answer := readHead(in)
			Expect(answer[0]).To(Equal("HTTP/1.1 429 Too Many Requests"))
			Expect(answer).To(ContainElement("Connection: close"))
			rest, err := io.ReadAll(in)
			Expect(err).NotTo(HaveOccurred(), "no reset")
			Expect(string(rest)).To(ContainSubstring("the limit is spent"))
		},
		Entry("of known length", "Content-Length: 20971520", ""),
		Entry("in chunks", "Transfer-Encoding: chunked", "0\r\n\r\n"),
	)

	It("keeps the connection when it refuses a small body", func(ctx SpecContext) {
		g := startGate(startApp(ok), policy("a", spent))
		get(ctx, clientOf(1), g.url("/"))
		conn, in := dial(ctx, g)
		for range 2 {
			send(conn, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody")
			res, err := http.ReadResponse(in, nil)
			Expect(err).NotTo(HaveOccurred())
			Expect(res.StatusCode).To(Equal(http.StatusTooManyRequests))
			Expect(res.Close).To(BeFalse())
			bodyOf(res)
		}
	})

	It("refuses before the body comes, however slow it is", func(ctx SpecContext) {
		g := startGate(startApp(ok), policy("a", spent))
		get(ctx, clientOf(1), g.url("/"))
		conn, in := dial(ctx, g)
		send(conn, "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n")
		Expect(readHead(in)[0]).To(Equal("HTTP/1.1 429 Too Many Requests"))
	})

	It("refuses a body that waits for 100 (Continue) without asking for it", func(ctx SpecContext) {
		g := startGate(startApp(ok), policy("a", spent))
		get(ctx, clientOf(1), g.url("/"))
		conn, in := dial(ctx, g)
		send(conn, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10000000\r\nExpect: 100-continue\r\n\r\n")
		Expect(readHead(in)[0]).To(Equal("HTTP/1.1 429 Too Many Requests"))
	})

	It("lets the app's early answer to an upload be read", func(ctx SpecContext) {
		g := startGate(startRawApp(func(conn net.Conn, in *bufio.Reader) {
			readHead(in)
			_, _ = io.WriteString(conn, "HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nno\n")
		}))
		conn, in := dial(ctx, g)
		send(conn, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 20971520\r\n\r\n")
		piece := strings.Repeat("x", 1<<16)
		for range 20 << 20 / len(piece) {
			send(conn, piece)
		}
		answer := readHead(in)
		// The app closed while the body was on its way to it: its answer may be lost between app and proxy, but what the
		// proxy then says must arrive.
		Expect(answer[0]).To(Or(Equal("HTTP/1.1 413 Request Entity Too Large"), Equal("HTTP/1.1 502 Bad Gateway")))
	})

	It("answers gRPC with trailers only", func(ctx SpecContext) {
		g := startGate(startApp(ok), policy("a", spent))
		client := clientOf(2)
		get(ctx, client, g.url("/"))
		res := do(ctx, client, http.MethodPost, g.url("/pkg.Service/Call"), strings.NewReader("\x00\x00\x00\x00\x00"), "Content-Type", "application/grpc", "Te", "trailers")
		Expect(res.StatusCode).To(Equal(http.StatusOK))
		Expect(res.Header.Get("Grpc-Status")).To(Equal("8"))
		Expect(res.Header.Get("Grpc-Retry-Pushback-Ms")).To(Equal("20000"))
		Expect(res.ContentLength).To(BeZero(), "the header ends the stream")
		Expect(bodyOf(res)).To(BeEmpty())
		Expect(res.Trailer).To(BeEmpty())
	})

	It("passes the app's own trailers-only answers as such", func(ctx SpecContext) {
		g := startGate(startApp(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/grpc")
			w.Header().Set("Grpc-Status", "5")
		}))
		client := clientOf(2)
		for range 50 { // what would break it is a race
			var ended bool
			traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{Got1xxResponse: func(int, textproto.MIMEHeader) error { return nil }})
			res := do(traced, client, http.MethodPost, g.url("/pkg.Service/Call"), strings.NewReader("x"), "Content-Type", "application/grpc", "Te", "trailers")
			ended = res.Body == http.NoBody || res.ContentLength == 0
			Expect(ended).To(BeTrue())
			Expect(res.Header.Get("Grpc-Status")).To(Equal("5"))
		}
	})

	It("passes gRPC trailers and te", func(ctx SpecContext) {
		g := startGate(startApp(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/grpc")
			w.Header().Set("X-Te", r.Header.Get("Te"))
			_, _ = io.Copy(w, r.Body)
			w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
		}), policy("a"))
		res := do(ctx, clientOf(2), http.MethodPost, g.url("/pkg.Service/Call"), strings.NewReader("message"), "Content-Type", "application/grpc", "Te", "trailers")
		Expect(res.Header.Get("X-Te")).To(Equal("trailers"))
		Expect(bodyOf(res)).To(Equal("message"))
		Expect(res.Trailer.Get("Grpc-Status")).To(Equal("0"))
		Expect(res.Header).To(HaveKey("Ratelimit"))
		Expect(res.Trailer).NotTo(HaveKey("Ratelimit"))
	})
})

var _ = Describe("Drain", func() {
	It("asks HTTP/1.1 clients to leave, and still serves", func(ctx SpecContext) {
		g := startGate(startApp(ok), policy("a", spent))
		conn, in := dial(ctx, g)
		send(conn, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		res, err := http.ReadResponse(in, nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(res.Close).To(BeFalse())
		bodyOf(res)
		g.Drain()
		send(conn, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		res, err = http.ReadResponse(in, nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(res.StatusCode).To(Equal(http.StatusTooManyRequests), "refusals too")
		Expect(res.Close).To(BeTrue())
		_, err = io.ReadAll(in)
		Expect(err).NotTo(HaveOccurred(), "the connection ended")
		Expect(get(ctx, clientOf(1), g.url("/")).StatusCode).To(Equal(http.StatusTooManyRequests), "new connections are served")
	})

	It("sends HTTP/2 clients a GOAWAY, and finishes their streams", func(ctx SpecContext) {
		begun, finish := make(chan struct{}), make(chan struct{})
		g := startGate(startApp(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/slow" {
				close(begun)
				<-finish
			}
			ok(w, r)
		}))
		client := clientOf(2)
		var conns []string
		traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
			conns = append(conns, info.Conn.LocalAddr().String())
		}})
		slow := make(chan string, 1)
		go func() {
			defer GinkgoRecover()
			slow <- bodyOf(get(ctx, client, g.url("/slow")))
		}()
		<-begun
		g.Drain()
		get(traced, client, g.url("/"))
		Eventually(func(gg Gomega) {
			get(traced, client, g.url("/"))
			gg.Expect(conns[len(conns)-1]).NotTo(Equal(conns[0]), "a new connection")
		}).WithTimeout(patience).Should(Succeed())
		close(finish)
		Eventually(slow).WithTimeout(patience).Should(Receive(Equal("hello")))
	})
})

var _ = Describe("Shutdown", func() {
	for _, major := range []int{1, 2} {
		It("finishes open requests over HTTP/"+string(rune('0'+major)), func(ctx SpecContext) {
			begun, finish := make(chan struct{}), make(chan struct{})
			g := startGate(startApp(func(w http.ResponseWriter, r *http.Request) {
				close(begun)
				<-finish
				ok(w, r)
			}))
			answered := make(chan string, 1)
			go func() {
				defer GinkgoRecover()
				answered <- bodyOf(get(ctx, clientOf(major), g.url("/")))
			}()
			<-begun
			stopped := make(chan error, 1)
			go func() { stopped <- g.Shutdown(ctx) }()
			Eventually(g.served).WithTimeout(patience).Should(Receive(BeNil()), "it accepts no more")
			Consistently(stopped, "100ms").ShouldNot(Receive())
			close(finish)
			Eventually(answered).WithTimeout(patience).Should(Receive(Equal("hello")))
			Eventually(stopped).WithTimeout(patience).Should(Receive(BeNil()))
		})
	}

	It("waits for tunnels, and cuts them off when its time is over", func(ctx SpecContext) {
		g := startGate(startApp(echo))
		conn, in := dial(ctx, g)
		send(conn, "GET /ws HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		Expect(readHead(in)[0]).To(ContainSubstring("101"))
		limited, cancel := context.WithCancel(ctx)
		defer cancel()
		stopped := make(chan error, 1)
		go func() { stopped <- g.Shutdown(limited) }()
		Eventually(g.served).WithTimeout(patience).Should(Receive(BeNil()))
		send(conn, "still here")
		got := make([]byte, len("still here"))
		_, err := io.ReadFull(in, got)
		Expect(err).NotTo(HaveOccurred())
		Expect(stopped).NotTo(Receive())
		cancel()
		Eventually(stopped).WithTimeout(patience).Should(Receive(MatchError(context.Canceled)))
		_, err = in.ReadByte()
		Expect(err).To(HaveOccurred())
	})

	It("cuts off requests when its time is over", func(ctx SpecContext) {
		begun, gone := make(chan struct{}), make(chan struct{})
		g := startGate(startApp(func(_ http.ResponseWriter, r *http.Request) {
			close(begun)
			<-r.Context().Done()
			close(gone)
		}))
		conn, in := dial(ctx, g)
		send(conn, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		<-begun
		over, cancel := context.WithCancel(ctx)
		cancel()
		Expect(g.Shutdown(over)).To(MatchError(context.Canceled))
		Eventually(gone).WithTimeout(patience).Should(BeClosed())
		_, err := in.ReadByte()
		Expect(err).To(HaveOccurred())
	})

	It("serves no listener that comes after it", func(ctx SpecContext) {
		g := startGate(startApp(ok))
		Expect(g.Shutdown(ctx)).To(Succeed())
		late := listen()
		Expect(g.Serve(late, proxy.Port{Upstream: "127.0.0.1:1"})).To(Succeed())
		_, err := late.Accept()
		Expect(err).To(HaveOccurred(), "it is closed")
	})
})
