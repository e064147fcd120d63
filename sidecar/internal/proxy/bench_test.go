package proxy_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"

	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/ratelimit"
	"github.com/portero-dev/portero/sidecar/internal/proxy"
)

// generous admits everything at no cost of its own.
type generous struct{}

func (generous) Decide(_ context.Context, groups []ratelimit.Group) ratelimit.Verdict {
	return ratelimit.Verdict{Limits: []ratelimit.LimitResult{{Limit: groups[0].Charges[0].Limit, Allowed: true, Remaining: 1, NextToken: 1}}}
}

func (generous) Debit([]ratelimit.Group) {}

type uncounted struct{}

func (uncounted) Count(*ratelimit.Verdict) {}

func (uncounted) CountFailures([]ratelimit.Failure) {}

// BenchmarkProxy measures a request over loopback with client and app in this process; only differences between its
// variants say something of the proxy.
func BenchmarkProxy(b *testing.B) {
	rec := &bucketconfig.Record{
		Schema: bucketconfig.SchemaVersion, Kind: "RateLimitPolicy", Name: "a", UID: "uid", Generation: 1, Order: 1,
		Limits: []bucketconfig.Limit{{
			Name: "all", Cost: 1, Bucket: bucketconfig.Bucket{Capacity: 2, RefillTokens: 1, RefillIntervalUS: 10_000_000},
			KeyParts: []bucketconfig.KeyPart{{Type: "Header", Name: "X-Api-Key", WhenMissing: "Share"}},
		}},
		Store:    bucketconfig.Store{TimeoutUS: 10_000, OnFailure: "Local"},
		Response: bucketconfig.Response{RateLimitHeaders: "Standard", StatusCode: 429},
	}
	policy, err := ratelimit.Compile(rec, nil)
	if err != nil {
		b.Fatal(err)
	}
	app := &http.Server{Handler: http.HandlerFunc(ok), ReadHeaderTimeout: patience}
	upstream := serveOn(b, app.Serve)
	b.Cleanup(func() { _ = app.Close() })
	for name, set := range map[string]*ratelimit.Set{"ungoverned": nil, "governed": ratelimit.NewSet(policy)} {
		p := proxy.New(generous{}, func() *ratelimit.Set { return set }, uncounted{}, "", slog.New(slog.DiscardHandler))
		addr := serveOn(b, func(l net.Listener) error { return p.Serve(l, proxy.Port{Upstream: upstream}) })
		b.Run(name, func(b *testing.B) {
			client := &http.Client{Transport: &http.Transport{DisableCompression: true}}
			b.ReportAllocs()
			for b.Loop() {
				res, err := client.Get("http://" + addr + "/api/orders?x=1")
				if err != nil {
					b.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, res.Body)
				_ = res.Body.Close()
			}
		})
		_ = p.Shutdown(b.Context())
	}
}

// serveOn serves on a free port of loopback in the background.
func serveOn(b *testing.B, serve func(net.Listener) error) string {
	b.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	go func() { _ = serve(listener) }()
	return listener.Addr().String()
}
