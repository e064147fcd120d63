package proxy_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"

	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/localbucket"
	"github.com/portero-dev/portero/internal/ratelimit"
	"github.com/portero-dev/portero/sidecar/internal/proxy"
)

func TestProxy(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "sidecar/internal/proxy")
}

// patience bounds what should happen at once, on a machine that is busy with other suites.
const patience = 15 * time.Second

// local is a Limiter over local buckets whose time stands still, so that what it decides depends on nothing but the
// requests. It charges limit by limit, shadow limits alone.
type local struct {
	mu     sync.Mutex
	levels map[string]localbucket.Level
	// outcome, when set, is what every verdict is.
	outcome ratelimit.Outcome
	asked   int
	debited []int64
}

const frozenUS = 1_700_000_000_000_000

func (l *local) Decide(_ context.Context, groups []ratelimit.Group) ratelimit.Verdict {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked++
	v := ratelimit.Verdict{Outcome: l.outcome, Source: ratelimit.FromLocal}
	for _, group := range groups {
		for _, charge := range group.Charges {
			bucket := charge.Limit.Config.Bucket
			params := localbucket.Params{Capacity: bucket.Capacity, RefillTokens: bucket.RefillTokens, IntervalUS: bucket.RefillIntervalUS}
			key := fmt.Sprint(group.Tag, charge.Limit.ID)
			level, ok := l.levels[key]
			if !ok {
				level = params.Full(frozenUS)
			}
			result := ratelimit.LimitResult{Limit: charge.Limit, Shadow: charge.Limit.Shadow, Source: ratelimit.FromLocal}
			level, result.Allowed = params.Take(level, frozenUS, charge.Cost)
			l.levels[key] = level
			result.Remaining, result.NextToken = level.Tokens, params.NextToken(level, frozenUS)
			if !result.Allowed {
				result.Wait, _ = params.Wait(level, frozenUS, charge.Cost)
				if !result.Shadow && v.Outcome == ratelimit.Allowed {
					v.Outcome, v.By, v.Wait = ratelimit.Limited, charge.Limit, result.Wait
				}
			}
			v.Limits = append(v.Limits, result)
		}
	}
	if l.outcome != ratelimit.Allowed {
		v.By = groups[0].Charges[0].Limit
	}
	return v
}

func (l *local) Debit(groups []ratelimit.Group) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, group := range groups {
		for _, charge := range group.Charges {
			l.debited = append(l.debited, charge.Debit)
		}
	}
}

// Debited is all that was debited since it was asked last.
func (l *local) Debited() []int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	debited := l.debited
	l.debited = nil
	return debited
}

func (l *local) Asked() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.asked
}

// counted keeps what an Observer is told.
type counted struct {
	mu       sync.Mutex
	verdicts []ratelimit.Verdict
	failures []ratelimit.Failure
}

func (c *counted) CountFailures(failures []ratelimit.Failure) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failures = append(c.failures, failures...)
}

// Failures are qualified names of limits whose expressions failed, and of policies where it was what they exempt.
func (c *counted) Failures() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	names := []string{}
	for _, f := range c.failures {
		if f.Limit == nil {
			names = append(names, f.Policy.Record.Name)
			continue
		}
		names = append(names, f.Limit.QualifiedName)
	}
	return names
}

func (c *counted) Count(v *ratelimit.Verdict) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.verdicts = append(c.verdicts, *v)
}

func (c *counted) Verdicts() []ratelimit.Verdict {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.verdicts
}

// gate is a proxy before an app.
type gate struct {
	*proxy.Proxy
	limiter *local
	counted *counted
	addr    string
	served  chan error
	logs    *gbytes.Buffer
}

func (g *gate) url(path string) string { return "http://" + g.addr + path }

// startGate starts a proxy on loopback before an app, with these policies.
func startGate(upstream string, policies ...*ratelimit.Policy) *gate {
	GinkgoHelper()
	g := &gate{limiter: &local{levels: map[string]localbucket.Level{}}, counted: &counted{}, served: make(chan error, 1), logs: gbytes.NewBuffer()}
	set := ratelimit.NewSet(policies...)
	g.Proxy = proxy.New(g.limiter, func() *ratelimit.Set { return set }, g.counted, "deployment/shop", slog.New(slog.NewTextHandler(io.MultiWriter(GinkgoWriter, g.logs), &slog.HandlerOptions{Level: slog.LevelDebug})))
	listener := listen()
	g.addr = listener.Addr().String()
	go func() { g.served <- g.Serve(listener, proxy.Port{Number: 8080, Name: "http", Upstream: upstream}) }()
	DeferCleanup(func() {
		Expect(string(g.logs.Contents())).NotTo(ContainSubstring("panic"))
		ended, cancel := context.WithCancel(context.Background())
		cancel() // cuts off what a failed test left open
		_ = g.Shutdown(ended)
	})
	return g
}

func listen() net.Listener {
	GinkgoHelper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	return listener
}

// startApp serves a handler over HTTP/1.1 and HTTP/2 without TLS, as apps behind the proxy do.
func startApp(handler http.HandlerFunc) string {
	GinkgoHelper()
	return startAppOn("127.0.0.1:0", handler)
}

func startAppOn(address string, handler http.HandlerFunc) string {
	GinkgoHelper()
	server := &http.Server{Handler: handler, Protocols: new(http.Protocols), ReadHeaderTimeout: patience, DisableGeneralOptionsHandler: true}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	listener, err := net.Listen("tcp", address)
	Expect(err).NotTo(HaveOccurred())
	go func() { _ = server.Serve(listener) }()
	DeferCleanup(server.Close)
	return listener.Addr().String()
}

// startRawApp answers each connection by a function on its bytes.
func startRawApp(answer func(conn net.Conn, in *bufio.Reader)) string {
	GinkgoHelper()
	listener := listen()
	DeferCleanup(listener.Close)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				answer(conn, bufio.NewReader(conn))
			}()
		}
	}()
	return listener.Addr().String()
}

// readHead reads a request's head, line by line, up to the empty line.
func readHead(in *bufio.Reader) (lines []string) {
	for {
		line, err := in.ReadString('\n')
		if err != nil || line == "\r\n" {
			return lines
		}
		lines = append(lines, line[:len(line)-2])
	}
}

// clientOf makes a client of its own connections that speaks HTTP/1.1 or HTTP/2 without TLS.
func clientOf(major int) *http.Client {
	transport := &http.Transport{Protocols: new(http.Protocols), DisableCompression: true, ExpectContinueTimeout: patience}
	transport.Protocols.SetHTTP1(major == 1)
	transport.Protocols.SetUnencryptedHTTP2(major == 2)
	DeferCleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// dial opens a raw connection to the proxy.
func dial(ctx context.Context, g *gate) (net.Conn, *bufio.Reader) {
	GinkgoHelper()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", g.addr)
	Expect(err).NotTo(HaveOccurred())
	Expect(conn.SetDeadline(time.Now().Add(patience))).To(Succeed())
	DeferCleanup(conn.Close)
	return conn, bufio.NewReader(conn)
}

func send(conn net.Conn, text string) {
	GinkgoHelper()
	_, err := io.WriteString(conn, text)
	Expect(err).NotTo(HaveOccurred())
}

func get(ctx context.Context, client *http.Client, url string, headers ...string) *http.Response {
	GinkgoHelper()
	return do(ctx, client, http.MethodGet, url, nil, headers...)
}

func do(ctx context.Context, client *http.Client, method, url string, body io.Reader, headers ...string) *http.Response {
	GinkgoHelper()
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	Expect(err).NotTo(HaveOccurred())
	for i := 0; i < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	res, err := client.Do(req)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(res.Body.Close)
	return res
}

func bodyOf(res *http.Response) string {
	GinkgoHelper()
	body, err := io.ReadAll(res.Body)
	Expect(err).NotTo(HaveOccurred())
	return string(body)
}

// policy compiles a policy of one limit, "all", of 2 requests and 1 token in 10 seconds; changes state what matters.
func policy(name string, changes ...func(*bucketconfig.Record)) *ratelimit.Policy {
	GinkgoHelper()
	rec := &bucketconfig.Record{
		Schema: bucketconfig.SchemaVersion, Kind: "RateLimitPolicy", Name: name, UID: "uid", Generation: 1, Order: 1,
		Limits: []bucketconfig.Limit{{
			Name: "all", Cost: 1,
			Bucket: bucketconfig.Bucket{Capacity: 2, RefillTokens: 1, RefillIntervalUS: 10_000_000},
		}},
		Store:    bucketconfig.Store{TimeoutUS: 10_000, OnFailure: "Local"},
		Response: bucketconfig.Response{RateLimitHeaders: "Standard", StatusCode: 429},
	}
	for _, change := range changes {
		change(rec)
	}
	compiled, err := ratelimit.Compile(rec, []byte("0123456789abcdef0123456789abcdef"))
	Expect(err).NotTo(HaveOccurred())
	return compiled
}

func spent(r *bucketconfig.Record) {
	// A cost of all makes the second request the first that is refused.
	r.Limits[0].Cost = r.Limits[0].Bucket.Capacity
}

func shadow(r *bucketconfig.Record) { r.Shadow = true }

func headersOf(setting string) func(*bucketconfig.Record) {
	return func(r *bucketconfig.Record) { r.Response.RateLimitHeaders = setting }
}

func keyedBy(header, whenMissing string) func(*bucketconfig.Record) {
	return func(r *bucketconfig.Record) {
		r.Limits[0].KeyParts = []bucketconfig.KeyPart{{Type: "Header", Name: header, WhenMissing: whenMissing}}
	}
}

func ok(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }
