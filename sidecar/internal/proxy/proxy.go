// Package proxy is the sidecar's data path over HTTP: per protected port a reverse proxy that describes each request,
// asks for a verdict, and forwards the request or answers for the limit.
//
// What passes is passed as it came: bytes of path, query and Host, bodies of any size unbuffered, streams, trailers,
// interim responses, upgrades. The sidecar's wiring imports it. It knows neither Redis nor where verdicts come from.
package proxy

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/portero-dev/portero/internal/ratelimit"
)

// Limiter decides over the groups that govern a request. It must be safe for concurrent use. Groups are never empty and
// never change afterwards.
type Limiter interface {
	// Decide must answer within its own deadline whatever becomes of ctx.
	Decide(ctx context.Context, groups []ratelimit.Group) ratelimit.Verdict
	// Debit takes what a request that passed turned out to cost beyond that. It must not block.
	Debit(groups []ratelimit.Group)
}

// Observer is told of every verdict, denials and shadow limits included, before the request goes on, and of what could not
// be evaluated. It must not block, keep or change what it is given, and be safe for concurrent use.
type Observer interface {
	Count(v *ratelimit.Verdict)
	CountFailures(failures []ratelimit.Failure)
}

const (
	// readHeaderTimeout bounds how long a client may take for a request's header; bodies and streams have no bound.
	readHeaderTimeout = 30 * time.Second
	// idleTimeout is longer than the idle timeouts of common load balancers (up to 600 s), so that it is they who close
	// connections, never we while a request is on its way.
	idleTimeout = 650 * time.Second
	// maxHeaderBytes is more than most apps accept themselves, and little enough that a thousand unfinished headers fit into
	// the sidecar's memory.
	maxHeaderBytes = 64 << 10
	// pingAfter and pingTimeout find dead HTTP/2 clients.
	pingAfter   = 30 * time.Second
	pingTimeout = 15 * time.Second
)

// Proxy serves all protected ports of a pod. It is safe for concurrent use.
type Proxy struct {
	limiter  Limiter
	policies func() *ratelimit.Set
	observer Observer
	workload string
	log      *slog.Logger

	// base is the parent of all requests; it ends when a shutdown runs out of time.
	base   context.Context
	cancel context.CancelFunc
	// draining asks clients to take their next request elsewhere.
	draining atomic.Bool
	// forced makes closing connections not wait for what clients still send.
	forced atomic.Bool
	// tunnels are connections that were upgraded, which http.Server no longer knows.
	tunnels sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	servers []*http.Server
	idlers  []idleCloser
}

type idleCloser interface{ CloseIdleConnections() }

// Port is a protected port.
type Port struct {
	// Number and Name are the app's port and what the pod calls it, empty for nothing; limits can tell ports apart by them.
	Number uint16
	Name   string
	// Upstream is the app's address, host:port.
	Upstream string
}

// New makes a proxy. policies gives the policies in force for each request; it must be fast and may return nil. workload is
// what the pod belongs to, such as deployment/web, or empty.
func New(limiter Limiter, policies func() *ratelimit.Set, observer Observer, workload string, log *slog.Logger) *Proxy {
	base, cancel := context.WithCancel(context.Background())
	return &Proxy{limiter: limiter, policies: policies, observer: observer, workload: workload, log: log, base: base, cancel: cancel}
}

// Serve accepts connections on the listener and forwards to the port's upstream until Shutdown; then it returns nil.
// It takes HTTP/1.1 and HTTP/2 without TLS (prior knowledge), and speaks to the app what the client speaks. It closes the
// listener.
func (p *Proxy) Serve(listener net.Listener, port Port) error {
	forward := newForwarder(port.Upstream, p.log)
	server := &http.Server{
		Handler:           p.handler(port, forward),
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		Protocols:         new(http.Protocols),
		HTTP2:             &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
		// OPTIONS * is the app's to answer.
		DisableGeneralOptionsHandler: true,
		BaseContext:                  func(net.Listener) context.Context { return p.base },
		ConnContext:                  withConn,
		// Panics of handlers and failures to accept; what clients do wrong is not logged by net/http.
		ErrorLog: slog.NewLogLogger(p.log.Handler(), slog.LevelWarn),
	}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	if !p.add(server, forward) {
		return listener.Close()
	}
	err := server.Serve(&lingerListener{Listener: listener, forced: &p.forced})
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

func (p *Proxy) add(server *http.Server, idler idleCloser) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.servers = append(p.servers, server)
	p.idlers = append(p.idlers, idler)
	return true
}

// Drain makes every further response ask its client to leave the connection: "Connection: close" on HTTP/1.1, GOAWAY on
// HTTP/2. New connections and requests are served as before. It returns at once.
func (p *Proxy) Drain() { p.draining.Store(true) }

// Shutdown drains, stops accepting, and waits for open requests and upgraded connections. When ctx ends first, it cuts
// them off and returns the context's error.
func (p *Proxy) Shutdown(ctx context.Context) error {
	p.Drain()
	p.mu.Lock()
	p.closed = true
	servers, idlers := p.servers, p.idlers
	p.mu.Unlock()

	finished := make(chan struct{})
	go func() {
		defer close(finished)
		var all sync.WaitGroup
		for _, server := range servers {
			all.Go(func() { _ = server.Shutdown(ctx) }) // its only errors are the context's and of listeners already closed
		}
		all.Wait()
		// A tunnel is counted before its server forgets it, so by now all are counted.
		p.tunnels.Wait()
	}()
	defer func() {
		p.cancel()
		for _, idler := range idlers {
			idler.CloseIdleConnections()
		}
	}()
	select {
	case <-finished:
		return ctx.Err()
	case <-ctx.Done():
	}
	p.forced.Store(true)
	p.cancel()
	for _, server := range servers {
		_ = server.Close() // its listeners are closed already
	}
	<-finished
	return ctx.Err()
}
