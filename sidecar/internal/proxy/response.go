package proxy

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"

	"github.com/portero-dev/portero/internal/ratelimit"
	"github.com/portero-dev/portero/sidecar/internal/answer"
)

// response adds to every final response what the proxy itself has to say, whoever wrote it: the app, a refusal, or an
// error.
type response struct {
	http.ResponseWriter
	proxy *Proxy
	peer  netip.Addr
	body  *requestBody // nil when the request has none
	// duplex: the request has a body and came over HTTP/1; small: the body is worth reading to keep the connection;
	// expects: the client may wait for 100 (Continue) before it sends the body.
	duplex, small, expects bool
	// verdict is nil until the request is governed.
	verdict *ratelimit.Verdict
	// later is nil unless the response tells what the request cost.
	later *later
	// held keeps a response without a body from being flushed before its end, which must go with the header: a gRPC client
	// takes a status in the header only there.
	held bool
	// status is the final response's, zero before its header is written.
	status int
	// early: the answer was announced to be the connection's last, as the body was still on its way.
	early  bool
	tunnel bool
}

// Unwrap lets http.ResponseController reach what this type does not change.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader adds our fields to a final response; interim ones pass as they are.
func (w *response) WriteHeader(status int) {
	if status >= 200 && w.status == 0 {
		w.status = status
		h := w.Header()
		if w.later != nil {
			w.later.header(h) // before ours stand beside the app's
		}
		w.addFields()
		if _, ok := h["Content-Type"]; !ok {
			h["Content-Type"] = nil // or net/http would guess one
		}
		w.held = h.Get("Content-Length") == "0"
		if w.closes() {
			h.Set("Connection", "close")
		}
	}
	w.ResponseWriter.WriteHeader(status)
}

// closes says whether the connection ends with this answer: because clients are asked to leave, or because the body is
// still on its way and can't be waited for. It can when it is small and the answer's end needs no further byte.
func (w *response) closes() bool {
	w.early = w.duplex && !w.body.ended.Load() && !(w.small && w.Header().Get("Content-Length") != "")
	return w.early || w.proxy.draining.Load()
}

func (w *response) addFields() {
	if w.verdict != nil {
		answer.Fields(w.Header(), w.verdict)
	}
}

// tellTrailers is called when the response has ended, or broke off. After an upgrade nothing is told any more.
func (w *response) tellTrailers() {
	if !w.tunnel {
		w.later.trailer(w.Header())
	}
}

// Write writes the header first if nobody did.
func (w *response) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	return w.ResponseWriter.Write(b)
}

// FlushError serves http.ResponseController.
func (w *response) FlushError() error {
	if w.held {
		return nil
	}
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Hijack serves an upgrade: its response is written from Header afterwards. From here on the connection is a tunnel.
func (w *response) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.addFields()
	w.tunnel = true
	w.proxy.tunnels.Add(1)
	conn, buffered, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if raw, ok := conn.(*lingerConn); ok && err == nil && buffered.Reader.Buffered() > 0 {
		early, _ := buffered.Reader.Peek(buffered.Reader.Buffered()) // never fails: they are there
		conn = &earlyConn{lingerConn: raw, early: bytes.NewReader(early)}
	}
	return conn, buffered, err
}

// earlyConn is an upgraded connection whose client sent bytes before it knew: httputil.ReverseProxy reads the connection
// alone and would lose them. After them it reads the connection itself: the server's own reader would end the request's
// context at the end of the stream, and with it the other direction.
type earlyConn struct {
	*lingerConn
	early *bytes.Reader
}

// Read takes the early bytes first.
func (c *earlyConn) Read(p []byte) (int, error) {
	if c.early.Len() > 0 {
		return c.early.Read(p)
	}
	return c.lingerConn.Read(p)
}

// WriteTo shadows that of the connection, which io.Copy would take.
func (c *earlyConn) WriteTo(w io.Writer) (int64, error) {
	early, err := c.early.WriteTo(w)
	if err != nil {
		return early, err
	}
	n, err := c.lingerConn.WriteTo(w)
	return early + n, err
}

// leave ends what the request began, also when the handler panicked.
func (w *response) leave() {
	if w.tunnel {
		w.proxy.tunnels.Done()
	}
}

// requestBody remembers how reading a request's body went. Its flags may be set by a goroutine of the transport while
// the handler looks.
type requestBody struct {
	io.ReadCloser
	begun  atomic.Bool
	ended  atomic.Bool // to its end
	failed atomic.Bool // the client broke off, or sent what is no body
}

func (b *requestBody) Read(p []byte) (int, error) {
	if !b.begun.Load() {
		b.begun.Store(true)
	}
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		b.ended.Store(true)
	} else if err != nil {
		b.failed.Store(true)
	}
	return n, err
}
