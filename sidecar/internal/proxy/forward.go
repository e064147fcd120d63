package proxy

import (
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	dialTimeout = 5 * time.Second
	// idleUpstream is shorter than the keep-alive of common app servers (2 s and more): a connection that the app closes
	// just as a request goes out on it costs that request. A new one to the own pod costs some 50 µs.
	idleUpstream    = time.Second
	idleUpstreamH2C = 5 * time.Minute
	maxIdleUpstream = 1024
	// continueTimeout is how long a body waits for the app's 100 (Continue), should the client want one.
	continueTimeout = time.Second
	// maxResponseHeaderBytes is what an app may send.
	maxResponseHeaderBytes = 1 << 20
	copyBufferSize         = 32 << 10
)

// forwarder hands requests to one port of the app.
type forwarder struct {
	upstream string
	reverse  httputil.ReverseProxy
	http1    *http.Transport
	http2    *http.Transport
	log      *slog.Logger
	// down is true from the first request that did not reach the app to the next that did.
	down atomic.Bool
}

func newForwarder(upstream string, log *slog.Logger) *forwarder {
	f := &forwarder{upstream: upstream, log: log}
	f.http1 = newTransport(idleUpstream)
	f.http1.Protocols.SetHTTP1(true)
	f.http2 = newTransport(idleUpstreamH2C)
	f.http2.Protocols.SetUnencryptedHTTP2(true)
	f.reverse = httputil.ReverseProxy{
		Rewrite:        f.rewrite,
		Transport:      f,
		FlushInterval:  -1,
		ModifyResponse: f.arrived,
		ErrorHandler:   f.failed,
		ErrorLog:       slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		BufferPool:     &buffers{},
	}
	return f
}

func newTransport(idle time.Duration) *http.Transport {
	return &http.Transport{
		Protocols:              new(http.Protocols),
		DialContext:            (&net.Dialer{Timeout: dialTimeout}).DialContext,
		DisableCompression:     true, // or bodies would be unpacked on the way
		MaxIdleConnsPerHost:    maxIdleUpstream,
		IdleConnTimeout:        idle,
		ExpectContinueTimeout:  continueTimeout,
		MaxResponseHeaderBytes: maxResponseHeaderBytes,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
	}
}

func (f *forwarder) serve(w *response, r *http.Request) { f.reverse.ServeHTTP(w, r) }

// RoundTrip speaks to the app what the client speaks to us.
func (f *forwarder) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.ProtoMajor == 2 {
		return f.http2.RoundTrip(r)
	}
	return f.http1.RoundTrip(r)
}

// CloseIdleConnections ends idle connections to the app.
func (f *forwarder) CloseIdleConnections() {
	f.http1.CloseIdleConnections()
	f.http2.CloseIdleConnections()
}

// rewrite undoes what httputil.ReverseProxy changes of its own, and appends the peer to X-Forwarded-For, as the app now
// sees the pod's own address.
func (f *forwarder) rewrite(pr *httputil.ProxyRequest) {
	in, out := pr.In, pr.Out
	out.URL.Scheme, out.URL.Host = "http", f.upstream
	out.URL.RawQuery = in.URL.RawQuery
	if path := rawPath(in); strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "//") {
		// Written as it stands. (An opaque part that starts with two slashes would name a host; such a path is written by
		// its own rules, which only escape what must not stand in a path at all.)
		out.URL.Opaque = path
	}
	for _, name := range [...]string{"Forwarded", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if lines, ok := in.Header[name]; ok {
			out.Header[name] = lines
		}
	}
	forwarded := strings.Join(in.Header["X-Forwarded-For"], ", ")
	if peer := peerOf(in); peer.IsValid() {
		if forwarded != "" {
			forwarded += ", "
		}
		forwarded += peer.String()
	}
	if forwarded != "" {
		out.Header["X-Forwarded-For"] = []string{forwarded}
	}
	out.Trailer = in.Trailer // the same map: the server fills it at the end of the body
}

// arrived sees the header of each final response of the app.
func (f *forwarder) arrived(res *http.Response) error {
	if f.down.Load() && f.down.CompareAndSwap(true, false) {
		f.log.Info("upstream answers again", "upstream", f.upstream)
	}
	if res.ProtoMajor == 2 && res.ContentLength == 0 && res.StatusCode != http.StatusNoContent && res.StatusCode != http.StatusNotModified {
		res.Header["Content-Length"] = []string{"0"} // it ended with its header: keep it so, see response.held
	}
	return nil
}

// failed answers for an app that can't be reached or broke off before its header.
func (f *forwarder) failed(rw http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		panic(http.ErrAbortHandler) // the client is gone; nobody is at fault and nobody reads an answer
	}
	if w, ok := rw.(*response); ok && w.body != nil && w.body.failed.Load() {
		http.Error(rw, "portero: the request's body can't be read", http.StatusBadRequest)
		return
	}
	if f.down.CompareAndSwap(false, true) {
		f.log.Warn("upstream does not answer", "upstream", f.upstream, "error", err)
	}
	http.Error(rw, "portero: the application does not answer", http.StatusBadGateway)
}

// buffers are shared by all copies of a port.
type buffers struct{ pool sync.Pool }

// Get serves httputil.BufferPool.
func (b *buffers) Get() []byte {
	if buffer, ok := b.pool.Get().(*[]byte); ok {
		return *buffer
	}
	return make([]byte, copyBufferSize)
}

// Put serves httputil.BufferPool.
func (b *buffers) Put(buffer []byte) { b.pool.Put(&buffer) }
