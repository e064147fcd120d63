package ratelimit_test

import (
	"testing"

	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/ratelimit"
)

func BenchmarkDescribe(b *testing.B) {
	forwarded := clientFrom(bucketconfig.ClientIP{Type: "XForwardedFor", TrustedProxies: []string{"10.0.0.0/8"}})
	cases := map[string]struct {
		policy *ratelimit.Policy
		req    *ratelimit.Request
	}{
		"none":      {mustCompile(b, limits(limit("a", matching(path("PathPrefix", "/other"))))), request("/api/orders")},
		"shared":    {mustCompile(b), request("/api/orders")},
		"header":    {mustCompile(b, limits(limit("a", keyedBy(header("X-Api-Key", "Share"))))), request("/api/orders", "X-Api-Key", "k-123456")},
		"client":    {mustCompile(b, forwarded, limits(limit("a", keyedBy(client("Share"))))), request("/api/orders")},
		"two":       {mustCompile(b, limits(limit("a", keyedBy(header("X-Api-Key", "Share"))), limit("b", keyedBy(header("X-Api-Key", "Share"))))), request("/api/orders", "X-Api-Key", "k-123456")},
		"long path": {mustCompile(b, limits(limit("a", matching(path("PathPrefix", "/api"))))), request("/api//v1/%7Eorders/../x/y/z/abcdefghijklmnopqrstuvwxyz")},
	}
	for name, c := range cases {
		set := ratelimit.NewSet(c.policy)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				set.Describe(c.req)
			}
		})
	}
}
