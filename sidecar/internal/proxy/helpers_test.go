package proxy_test

import (
	"context"
	"io"
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
