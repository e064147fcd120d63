package proxy_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("Forwarding", func() {
	DescribeTable("passes path and query byte by byte",
		func(ctx SpecContext, target string) {
			heads := make(chan []string, 1)
			app := startRawApp(func(conn net.Conn, in *bufio.Reader) {
				heads <- readHead(in)
				_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			})
			g := startGate(app, policy("a"))
			conn, in := dial(ctx, g)
			send(conn, "GET "+target+" HTTP/1.1\r\nHost: shop.example\r\n\r\n")
			Expect(readHead(in)).NotTo(BeEmpty())
			head := <-heads
			Expect(head[0]).To(Equal("GET " + target + " HTTP/1.1"))
			Expect(head).To(ContainElement("Host: shop.example"))
		},
		Entry("plain", "/a/b?x=1&y=2"),
		Entry("an empty query", "/a?"),
		Entry("a query that doesn't parse", "/a?x=%zz;y&&=&+%20"),
		Entry("needless escapes and both cases", "/%7Eu/%2f%2F/%c3%A9"),
		Entry("doubled slashes and dots", "/a//b/../c/./"),
		Entry("two slashes first", "//evil.example/a"),
		Entry("raw bytes", "/caf\xc3\xa9/\"{}|^`"),
		Entry("a colon first", "/:x@y"),
		Entry("a semicolon", "/a;v=1/b;w"),
	)

	It("passes OPTIONS *", func(ctx SpecContext) {
		g := startGate(startApp(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Allow", r.Method+" "+r.RequestURI)
		}))
		conn, in := dial(ctx, g)
		send(conn, "OPTIONS * HTTP/1.1\r\nHost: shop.example\r\n\r\n")
		Expect(readHead(in)).To(ContainElement("Allow: OPTIONS *"))
	})

	It("forwards the absolute form in the origin form, with its host", func(ctx SpecContext) {
		g := startGate(startApp(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Saw", r.Host+" "+r.RequestURI)
		}))
		conn, in := dial(ctx, g)
		send(conn, "GET http://shop.example/a%2Fb?c HTTP/1.1\r\nHost: other.example\r\n\r\n")
		Expect(readHead(in)).To(ContainElement("X-Saw: shop.example /a%2Fb?c"))
	})

	It("passes headers unchanged, adds none of its own, and takes out those of this hop", func(ctx SpecContext) {
		heads := make(chan []string, 1)
		g := startGate(startRawApp(func(conn net.Conn, in *bufio.Reader) {
			heads <- readHead(in)
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nKeep-Alive: timeout=5\r\nDate: today\r\nConnection: X-Hop\r\nX-Hop: 1\r\n\r\nhello")
		}))
		conn, in := dial(ctx, g)
		send(conn, "GET / HTTP/1.1\r\nHost: h\r\nAccept-Encoding: br\r\nX-Many: 1\r\nX-Many: 2\r\nForwarded: for=a\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: b\r\n"+
			"Connection: X-Secret, keep-alive\r\nX-Secret: 1\r\nKeep-Alive: 1\r\nProxy-Connection: x\r\nTraceparent: 00-1\r\n\r\n")
		head := readHead(in)
		Expect(head).To(ConsistOf("HTTP/1.1 200 OK", "Content-Length: 5", "Date: today"))
		Expect(<-heads).To(ConsistOf("GET / HTTP/1.1", "Host: h", "Accept-Encoding: br", "X-Many: 1", "X-Many: 2", "Forwarded: for=a",
			"X-Forwarded-Proto: https", "X-Forwarded-Host: b", "Traceparent: 00-1", "X-Forwarded-For: 127.0.0.1"))
	})

	It("limits by what the app will see: a repeated header that limits ask for is one line to both", func(ctx SpecContext) {
		heads := make(chan []string, 1)
		g := startGate(startRawApp(func(conn net.Conn, in *bufio.Reader) {
			heads <- readHead(in)
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}), policy("a", keyedBy("X-Api-Key", "Share")))
		conn, in := dial(ctx, g)
		send(conn, "GET / HTTP/1.1\r\nHost: h\r\nX-Api-Key: valid\r\nx-api-key: \r\nX-API-KEY: random\r\nX-Many: 1\r\nX-Many: 2\r\n\r\n")
		Expect(readHead(in)[0]).To(Equal("HTTP/1.1 200 OK"))
		Expect(<-heads).To(ContainElements("X-Api-Key: valid, , random", "X-Many: 1", "X-Many: 2"))
	})

	It("limits by what the app will see: what Connection takes out is missing", func(ctx SpecContext) {
		g := startGate(startApp(ok), policy("a", keyedBy("X-Api-Key", "Deny")))
		conn, in := dial(ctx, g)
		send(conn, "GET / HTTP/1.1\r\nHost: h\r\nX-Api-Key: k\r\nConnection: x-api-key\r\n\r\n")
		Expect(readHead(in)[0]).To(Equal("HTTP/1.1 403 Forbidden"))
	})

	DescribeTable("takes out what is meant for one connection alone, which limits may not ask for, and nothing else that they may",
		func(ctx SpecContext, name string, passes bool) {
			g := startGate(startApp(func(w http.ResponseWriter, r *http.Request) {
				_, seen := r.Header[name]
				w.Header().Set("X-Seen", strconv.FormatBool(seen))
			}))
			conn, in := dial(ctx, g)
			send(conn, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n"+name+": 0\r\n\r\n")
			Expect(readHead(in)).To(ContainElement("X-Seen: " + strconv.FormatBool(passes)))
		},
		Entry("Keep-Alive", "Keep-Alive", false),
		Entry("Proxy-Authenticate", "Proxy-Authenticate", false),
		Entry("Proxy-Authorization", "Proxy-Authorization", false),
		Entry("Proxy-Connection", "Proxy-Connection", false),
		Entry("Authorization", "Authorization", true),
		Entry("X-Forwarded-For", "X-Forwarded-For", true),
	)

	DescribeTable("takes out of responses what is meant for one connection alone, which no cost may be read from",
		func(ctx SpecContext, name string) {
			g := startGate(startRawApp(func(conn net.Conn, in *bufio.Reader) {
				readHead(in)
				_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-Cost: 30\r\n"+name+": 30\r\n\r\n")
			}))
			conn, in := dial(ctx, g)
			send(conn, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
			Expect(readHead(in)).To(And(ContainElement("X-Cost: 30"), Not(ContainElement(name+": 30"))))
		},
		Entry("Connection", "Connection"),
		Entry("Keep-Alive", "Keep-Alive"),
		Entry("Proxy-Authenticate", "Proxy-Authenticate"),
		Entry("Proxy-Authorization", "Proxy-Authorization"),
		Entry("Proxy-Connection", "Proxy-Connection"),
		Entry("Te", "Te"),
		Entry("Upgrade", "Upgrade"),
	)

	DescribeTable("lets limits ask for headers that tell of the connection and are seen",
		func(ctx SpecContext, name string) {
			g := startGate(startApp(ok), policy("a", keyedBy(name, "Deny")))
			conn, in := dial(ctx, g)
			send(conn, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n"+name+": 0\r\n\r\n")
			Expect(readHead(in)[0]).To(HavePrefix("HTTP/1.1 200"))
		},
		Entry("Connection", "Connection"),
		Entry("Content-Length", "Content-Length"),
		Entry("Te", "Te"),
		Entry("Upgrade", "Upgrade"),
		Entry("X-Forwarded-For", "X-Forwarded-For"),
	)

	for _, major := range []int{1, 2} {
		Describe("over HTTP/"+string(rune('0'+major)), func() {
			It("speaks to the app what the client speaks", func(ctx SpecContext) {
				g := startGate(startApp(func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("X-Proto", r.Proto)
					w.Header().Set("X-Host", r.Host)
				}))
				res := get(ctx, clientOf(major), g.url("/"))
				Expect(res.ProtoMajor).To(Equal(major))
				Expect(res.Header.Get("X-Proto")).To(Equal(res.Proto))
				Expect(res.Header.Get("X-Host")).To(Equal(g.addr))
			})

			It("appends the peer to X-Forwarded-For", func(ctx SpecContext) {
				g := startGate(startApp(func(w http.ResponseWriter, r *http.Request) {
					w.Header()["X-Saw"] = r.Header["X-Forwarded-For"]
				}))
				res := get(ctx, clientOf(major), g.url("/"), "X-Forwarded-For", "203.0.113.7", "X-Forwarded-For", "198.51.100.9")
				Expect(res.Header["X-Saw"]).To(Equal([]string{"203.0.113.7, 198.51.100.9, 127.0.0.1"}))
			})

			It("guesses no content type", func(ctx SpecContext) {
				g := startGate(startApp(func(w http.ResponseWriter, _ *http.Request) {
					w.Header()["Content-Type"] = nil
					_, _ = io.WriteString(w, "<html>")
				}))
				res := get(ctx, clientOf(major), g.url("/"))
				Expect(res.Header).NotTo(HaveKey("Content-Type"))
			})

			It("streams both ways at once", func(ctx SpecContext) {
				g := startGate(startApp(func(w http.ResponseWriter, r *http.Request) {
					rc := http.NewResponseController(w)
					_ = rc.EnableFullDuplex()
					in := bufio.NewReader(r.Body)
					for {
						line, err := in.ReadString('\n')
						if err != nil {
							return
						}
						_, _ = io.WriteString(w, "echo "+line)
						_ = rc.Flush()
					}
				}), policy("a"))
				out, in := io.Pipe()
				answers := make(chan *http.Response, 1)
				go func() {
					defer GinkgoRecover()
					answers <- do(ctx, clientOf(major), http.MethodPost, g.url("/"), out)
				}()
				_, err := io.WriteString(in, "one\n")
				Expect(err).NotTo(HaveOccurred())
				var res *http.Response
				Eventually(answers).WithTimeout(patience).Should(Receive(&res))
				lines := bufio.NewReader(res.Body)
				Expect(lines.ReadString('\n')).To(Equal("echo one\n"))
				_, err = io.WriteString(in, "two\n")
				Expect(err).NotTo(HaveOccurred())
				Expect(lines.ReadString('\n')).To(Equal("echo two\n"))
				Expect(in.Close()).To(Succeed())
				Expect(io.ReadAll(lines)).To(BeEmpty())
			})

			It("passes events as they come", func(ctx SpecContext) {
				more := make(chan struct{})
				g := startGate(startApp(func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", "text/event-stream")
					_, _ = io.WriteString(w, "data: 1\n\n")
					_ = http.NewResponseController(w).Flush()
					<-more
					_, _ = io.WriteString(w, "data: 2\n\n")
				}))
				res := get(ctx, clientOf(major), g.url("/"))
				lines := bufio.NewReader(res.Body)
				Expect(lines.ReadString('\n')).To(Equal("data: 1\n"))
				close(more)
				Expect(io.ReadAll(lines)).To(BeEquivalentTo("\ndata: 2\n\n"))
			})

			It("passes a body of known length as it comes", func(ctx SpecContext) {
				more := make(chan struct{})
				g := startGate(startApp(func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Length", "2")
					_, _ = io.WriteString(w, "1")
					_ = http.NewResponseController(w).Flush()
					<-more
					_, _ = io.WriteString(w, "2")
				}))
				res := get(ctx, clientOf(major), g.url("/"))
				first := make([]byte, 1)
				Expect(io.ReadFull(res.Body, first)).To(Equal(1))
				close(more)
				Expect(bodyOf(res)).To(Equal("2"))
			})

			It("passes trailers both ways", func(ctx SpecContext) {
				g := startGate(startApp(func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Trailer", "X-Sum")
					body, _ := io.ReadAll(r.Body)
					_, _ = w.Write(body)
					w.Header().Set("X-Sum", "app:"+r.Trailer.Get("X-Sum"))
					w.Header().Set(http.TrailerPrefix+"X-Late", "1")
				}))
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, g.url("/"), struct{ io.Reader }{strings.NewReader("body")})
				Expect(err).NotTo(HaveOccurred())
				req.Trailer = http.Header{"X-Sum": {"client"}}
				res, err := clientOf(major).Do(req)
				Expect(err).NotTo(HaveOccurred())
				Expect(bodyOf(res)).To(Equal("body"))
				Expect(res.Trailer.Get("X-Sum")).To(Equal("app:client"))
				Expect(res.Trailer.Get("X-Late")).To(Equal("1"))
			})

			It("passes interim responses", func(ctx SpecContext) {
				g := startGate(startApp(func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Link", "</style.css>")
					w.WriteHeader(http.StatusEarlyHints)
					w.Header().Del("Link")
					_, _ = io.WriteString(w, "done")
				}), policy("a"))
				var hints []string
				traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
					Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
						hints = append(hints, h.Get("Link"))
						Expect(code).To(Equal(http.StatusEarlyHints))
						Expect(h).NotTo(HaveKey("Ratelimit"))
						return nil
					},
				})
				res := get(traced, clientOf(major), g.url("/"))
				Expect(bodyOf(res)).To(Equal("done"))
				Expect(hints).To(Equal([]string{"</style.css>"}))
				Expect(res.Header).NotTo(HaveKey("Link"))
				Expect(res.Header).To(HaveKey("Ratelimit"))
			})

			It("lets the app decide on Expect: 100-continue", func(ctx SpecContext) {
				g := startGate(startApp(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/no" {
						w.WriteHeader(http.StatusExpectationFailed)
						return
					}
					_, _ = io.Copy(w, r.Body)
				}))
				client := clientOf(major)
				Expect(bodyOf(do(ctx, client, http.MethodPost, g.url("/yes"), strings.NewReader("body"), "Expect", "100-continue"))).To(Equal("body"))
				refused := &witness{Reader: strings.NewReader("body")}
				res := do(ctx, client, http.MethodPost, g.url("/no"), refused, "Expect", "100-continue")
				Expect(res.StatusCode).To(Equal(http.StatusExpectationFailed))
				if major == 1 {
					Expect(refused.read.Load()).To(BeFalse(), "no body was asked for")
				}
			})

			It("passes a large body both ways, unbuffered", func(ctx SpecContext) {
				g := startGate(startApp(func(w http.ResponseWriter, r *http.Request) {
					_ = http.NewResponseController(w).EnableFullDuplex()
					_, _ = io.Copy(w, r.Body)
				}))
				const size = 8 << 20
				res := do(ctx, clientOf(major), http.MethodPost, g.url("/"), io.LimitReader(zeros{}, size))
				Expect(io.Copy(io.Discard, res.Body)).To(BeEquivalentTo(size))
			})

			It("tells the app when the client is gone, and logs no error of the app", func(ctx SpecContext) {
				gone := make(chan struct{})
				begun := make(chan struct{})
				g := startGate(startApp(func(_ http.ResponseWriter, r *http.Request) {
					close(begun)
					<-r.Context().Done()
					close(gone)
				}))
				aborted, abort := contextWithCancel(ctx)
				go func() {
					<-begun
					abort()
				}()
				req, err := http.NewRequestWithContext(aborted, http.MethodGet, g.url("/"), nil)
				Expect(err).NotTo(HaveOccurred())
				_, err = clientOf(major).Do(req)
				Expect(err).To(HaveOccurred())
				Eventually(gone).WithTimeout(patience).Should(BeClosed())
				Expect(g.Shutdown(ctx)).To(Succeed(), "nothing hangs")
				Expect(string(g.logs.Contents())).NotTo(ContainSubstring("upstream does not answer"))
			})

			It("answers 502 in few words when the app is down", func(ctx SpecContext) {
				closed := listen()
				Expect(closed.Close()).To(Succeed())
				g := startGate(closed.Addr().String(), policy("a"))
				res := get(ctx, clientOf(major), g.url("/"))
				Expect(res.StatusCode).To(Equal(http.StatusBadGateway))
				Expect(bodyOf(res)).To(Equal("portero: the application does not answer\n"))
				Expect(res.Header.Get("Ratelimit")).To(Equal(`"a/all";r=1;t=10`), "it was charged, and says so")
			})

			It("breaks off where the app broke off", func(ctx SpecContext) {
				g := startGate(startApp(func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Length", "10")
					_, _ = io.WriteString(w, "half")
					_ = http.NewResponseController(w).Flush()
					panic(http.ErrAbortHandler)
				}))
				res := get(ctx, clientOf(major), g.url("/"))
				_, err := io.ReadAll(res.Body)
				Expect(err).To(HaveOccurred())
			})
		})
	}

	It("logs once that the app is down, and once that it is back", func(ctx SpecContext) {
		listener := listen()
		address := listener.Addr().String()
		Expect(listener.Close()).To(Succeed())
		g := startGate(address)
		client := clientOf(1)
		for range 3 {
			Expect(get(ctx, client, g.url("/")).StatusCode).To(Equal(http.StatusBadGateway))
		}
		startAppOn(address, ok)
		for range 3 {
			Expect(get(ctx, client, g.url("/")).StatusCode).To(Equal(http.StatusOK))
		}
		logs := string(g.logs.Contents())
		Expect(strings.Count(logs, "upstream does not answer")).To(Equal(1))
		Expect(strings.Count(logs, "upstream answers again")).To(Equal(1))
	})

	It("keeps serving a client whose body the app did not read", func(ctx SpecContext) {
		g := startGate(startRawApp(func(conn net.Conn, in *bufio.Reader) {
			readHead(in)
			_, _ = io.WriteString(conn, "HTTP/1.1 401 Unauthorized\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n")
			_, _ = io.Copy(io.Discard, in)
		}))
		client := clientOf(1)
		for _, size := range []int64{1, 100_000, 1 << 20} {
			res := do(ctx, client, http.MethodPost, g.url("/"), io.LimitReader(zeros{}, size))
			Expect(res.StatusCode).To(Equal(http.StatusUnauthorized))
			Expect(bodyOf(res)).To(Equal("no"))
		}
	})

	It("answers 400 to a body that is none", func(ctx SpecContext) {
		g := startGate(startApp(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
		conn, in := dial(ctx, g)
		send(conn, "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nrubbish\r\n")
		Expect(readHead(in)[0]).To(Equal("HTTP/1.1 400 Bad Request"))
	})

	DescribeTable("answers 400 to a target that apps and limits would read in different ways",
		func(ctx SpecContext, target string) {
			g := startGate(startRawApp(func(conn net.Conn, in *bufio.Reader) { // it takes whatever comes
				readHead(in)
				_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			}), policy("a"))
			conn, in := dial(ctx, g)
			send(conn, "GET "+target+" HTTP/1.1\r\nHost: h\r\n\r\n")
			Expect(readHead(in)[0]).To(Equal("HTTP/1.1 400 Bad Request"))
		},
		Entry("a fragment behind the path", "/api/login#x"),
		Entry("a fragment with dots behind it", "/api/login#/../../static/x"),
		Entry("a fragment in the query", "/api?plan=free#&plan=gold"),
		Entry("a fragment in the absolute form", "http://h/api#x"),
		Entry("a scheme and no slash", "x:api/search"),
		Entry("the scheme of HTTP and no slash", "http:api/search"),
		Entry("a scheme, no slash, and a query", "x:api?plan=free"),
		Entry("a scheme and a path alone", "x:/api/search"),
		Entry("no authority", "http:///api/search"),
		Entry("another scheme", "ftp://h/api/search"),
	)

	DescribeTable("forwards a target of each form that requests have",
		func(ctx SpecContext, method, target, want string) {
			g := startGate(startApp(func(w http.ResponseWriter, r *http.Request) { w.Header().Set("X-Target", r.RequestURI) }), policy("a"))
			conn, in := dial(ctx, g)
			send(conn, method+" "+target+" HTTP/1.1\r\nHost: h\r\n\r\n")
			Expect(readHead(in)).To(ContainElement("X-Target: " + want))
		},
		Entry("a path", "GET", "/api/search", "/api/search"),
		Entry("two slashes first", "GET", "//api/search", "//api/search"),
		Entry("a colon in the path", "GET", "/x:api", "/x:api"),
		Entry("the absolute form", "GET", "http://h/api/search", "/api/search"),
		Entry("the absolute form, in upper case", "GET", "HTTP://h/api/search", "/api/search"),
		Entry("the star", "OPTIONS", "*", "*"),
	)

	It("answers 501 to CONNECT", func(ctx SpecContext) {
		g := startGate(startApp(ok))
		conn, in := dial(ctx, g)
		send(conn, "CONNECT other.example:443 HTTP/1.1\r\nHost: other.example:443\r\n\r\n")
		Expect(readHead(in)[0]).To(Equal("HTTP/1.1 501 Not Implemented"))
	})

	It("serves HTTP/1.0 clients", func(ctx SpecContext) {
		g := startGate(startApp(ok))
		conn, in := dial(ctx, g)
		send(conn, "GET / HTTP/1.0\r\n\r\n")
		everything, err := io.ReadAll(in)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(everything)).To(HaveSuffix("hello"))
	})
})

var _ = Describe("Upgrades", func() {
	It("cost one verdict, then bytes flow", func(ctx SpecContext) {
		g := startGate(startApp(echo), policy("a"))
		conn, in := dial(ctx, g)
		send(conn, "GET /ws HTTP/1.1\r\nHost: h\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n")
		head := readHead(in)
		Expect(head[0]).To(Equal("HTTP/1.1 101 Switching Protocols"))
		Expect(head).To(ContainElements("Connection: Upgrade", "Upgrade: websocket", `Ratelimit: "a/all";r=1;t=10`))
		for _, word := range []string{"one", "two"} {
			send(conn, word)
			got := make([]byte, len(word))
			_, err := io.ReadFull(in, got)
			Expect(err).NotTo(HaveOccurred())
			Expect(string(got)).To(Equal(word))
		}
		Expect(g.limiter.Asked()).To(Equal(1))
	})

	It("pass half-closed ends, and bytes sent before the answer", func(ctx SpecContext) {
		g := startGate(startApp(echo))
		conn, in := dial(ctx, g)
		send(conn, "GET /ws HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nlast")
		Expect(readHead(in)[0]).To(ContainSubstring("101"))
		Expect(conn.(*net.TCPConn).CloseWrite()).To(Succeed())
		Expect(io.ReadAll(in)).To(BeEquivalentTo("last"))
	})

	DescribeTable("never switch to another HTTP, behind which requests would pass unseen",
		func(ctx SpecContext, offers, want string) {
			g := startGate(startApp(func(w http.ResponseWriter, r *http.Request) {
				w.Header()["X-Saw"] = []string{strings.Join(r.Header["Upgrade"], "|")}
			}))
			conn, in := dial(ctx, g)
			send(conn, "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"+offers+"\r\n")
			Expect(readHead(in)).To(ContainElement("X-Saw: " + want))
		},
		Entry("h2c", "Upgrade: h2c\r\n", ""),
		Entry("in capitals", "Upgrade: H2C\r\n", ""),
		Entry("in a list", "Upgrade: foo/1, h2c , HTTP/2.0\r\n", "foo/1"),
		Entry("in a second line", "Upgrade: websocket\r\nUpgrade: h2c\r\n", "websocket"),
		Entry("that can't be written", "Upgrade: caf\xc3\xa9, websocket\r\n", "websocket"),
	)
})
