package proxy

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// lingerTimeout bounds how long a connection takes in what its client still sends after the answer.
const lingerTimeout = 10 * time.Second

// lingerConn closes a connection so that an answer which came before the end of the request's body is readable: a TCP
// stack that gets data for a closed socket resets the connection, and the reset overtakes the answer. So after the
// answer and our end of stream, what the client sends is read and dropped for a while.
type lingerConn struct {
	*net.TCPConn
	linger atomic.Bool
	forced *atomic.Bool
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

// lingerOn makes the connection of a request linger, should the server close it now.
func lingerOn(ctx context.Context) {
	if conn, ok := ctx.Value(connKey{}).(*lingerConn); ok {
		conn.linger.Store(true)
	}
}

// forgetLinger takes that back once the server has read the rest of the body itself and kept the connection.
func forgetLinger(conn net.Conn, state http.ConnState) {
	if c, ok := conn.(*lingerConn); ok && state == http.StateIdle {
		c.linger.Store(false)
	}
}
