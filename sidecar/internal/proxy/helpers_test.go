package proxy_test

import (
	"context"
	"io"
	"net/http"
	"sync/atomic"
)

// zeros is an endless stream.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// witness knows whether it was read.
type witness struct {
	io.Reader
	read atomic.Bool
}

func (w *witness) Read(p []byte) (int, error) {
	w.read.Store(true)
	return w.Reader.Read(p)
}

func contextWithCancel(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithCancel(ctx)
}

// echo answers an upgrade and sends back what comes.
func echo(w http.ResponseWriter, r *http.Request) {
	conn, brw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+r.Header.Get("Upgrade")+"\r\n\r\n")
	_, _ = io.Copy(conn, brw)
}
