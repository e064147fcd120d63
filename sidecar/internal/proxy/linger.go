package proxy

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

const (
	// lingerTimeout bounds how long a connection takes in what its client still sends after the answer.
	lingerTimeout = 10 * time.Second
	// leaveTimeout bounds how long an HTTP/2 stream is kept open after an answer that its client should leave at.
	leaveTimeout = time.Second
	// maxSmallBody is the largest body that is read to its end after the answer, so that the connection can be kept.
	maxSmallBody = 256 << 10
)

// longPast is a deadline that lets reads give what is buffered and no more.
var longPast = time.Unix(1, 0)

// settle ends an HTTP/1 request whose handler is done, but whose body may not have been read to its end. Either it is read
// now, and the connection kept; or the connection is closed after the answer, and lingers. This can't be left to
// net/http: in full duplex it reads the rest when it expects no further read, and the next request panics.
func (w *response) settle(r *http.Request) {
	if w.body.ended.Load() {
		return
	}
	rc := http.NewResponseController(w.ResponseWriter)
	if !w.expects || w.body.begun.Load() { // else a read would ask the client for the body
		deadline := longPast
		if !w.early && rc.Flush() == nil { // the answer goes out before anyone waits
			deadline = time.Now().Add(lingerTimeout)
		}
		_ = rc.SetReadDeadline(deadline) // fails only on a closed connection, and then so does the read
		_, _ = io.CopyN(io.Discard, w.body, maxSmallBody+1)
		if w.body.ended.Load() {
			_ = rc.SetReadDeadline(time.Time{})
			return
		}
	}
	if conn, ok := r.Context().Value(connKey{}).(*lingerConn); ok {
		conn.linger.Store(true)
	}
}

// outlast keeps an HTTP/2 stream open for a while after a refusal, redirect or error that came before the request's body ended.
// At the handler's end net/http ends the stream and resets it at once, and clients that find their upload reset discard
// the answer, though they must not (curl before 8 does). The answer is all there without the end of the stream, so they
// can read it and leave.
func (w *response) outlast(r *http.Request) {
	if w.body.ended.Load() || w.status < 300 || w.held || w.Header().Get("Content-Length") == "" {
		return
	}
	rc := http.NewResponseController(w.ResponseWriter)
	deadline := time.Now().Add(leaveTimeout)
	if rc.Flush() != nil || rc.SetReadDeadline(deadline) != nil {
		return
	}
	if _, err := io.CopyN(io.Discard, w.body, maxSmallBody); err != nil {
		return // the body is at its end, the client gone, or the time over
	}
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case <-r.Context().Done():
	case <-timer.C:
	}
}

// lingerConn closes a connection so that an answer which came before the end of the request's body is readable: a TCP
// stack that gets data for a closed socket resets the connection, and the reset overtakes the answer. So after the
// answer and our end of stream, what the client sends is read and dropped for a while.
type lingerConn struct {
	*net.TCPConn
	// linger ends reading for the server, which then closes, and makes Close linger.
	linger atomic.Bool
	forced *atomic.Bool
}

// Read is at its end for the server once the connection is to linger.
func (c *lingerConn) Read(p []byte) (int, error) {
	if c.linger.Load() {
		return 0, io.EOF
	}
	return c.TCPConn.Read(p)
}

// Close may be called again while the first call lingers; that cuts it short.
func (c *lingerConn) Close() error {
	if c.linger.CompareAndSwap(true, false) && !c.forced.Load() && c.CloseWrite() == nil {
		_ = c.SetReadDeadline(time.Now().Add(lingerTimeout)) // fails only on a closed connection
		_, _ = io.Copy(io.Discard, readOnly{c.TCPConn})      // ends with the client, the deadline, or a second Close
	}
	return c.TCPConn.Close()
}

// readOnly hides all but Read, so that io.Copy uses a buffer of its own.
type readOnly struct{ io.Reader }

type lingerListener struct {
	net.Listener
	forced *atomic.Bool
}

// Accept waits for the next connection.
func (l *lingerListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return conn, nil
	}
	return &lingerConn{TCPConn: tcp, forced: l.forced}, nil
}

type connKey struct{}

// withConn lets a request's context lead to its connection.
func withConn(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, conn)
}
