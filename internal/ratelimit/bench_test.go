package ratelimit_test

import (
	"fmt"
	"testing"

	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/ratelimit"
)

func BenchmarkDescribe(b *testing.B) {
	forwarded := clientFrom(bucketconfig.ClientIP{Type: "XForwardedFor", TrustedProxies: []string{"10.0.0.0/8"}})
	byKey := keyedBy(header("X-Api-Key", "Share"))
	plain := request("/api/orders", "X-Api-Key", "k-123456")
	orders := matching(path("Template", "/users/{id}/orders"))
	rich := request("/users/42/orders", "Authorization", token(`{"iss":"https://id.example","sub":"user-123456","aud":["shop"],"iat":1780000000,"exp":1780003600,"org":{"id":"o-1"}}`),
		"Cookie", "a=1; sid=0123456789abcdef; b=2")
	rich.Query = "page=1&tenant=t-1&sort=asc"
	for _, c := range []struct {
		name   string
		policy *ratelimit.Policy
		req    *ratelimit.Request
	}{
		{"nothing fits", mustCompile(b, limits(limit("a", matching(path("PathPrefix", "/other"))))), plain},
		{"long path", mustCompile(b, limits(limit("a", matching(path("PathPrefix", "/api"))))), request("/api//v1/%7Eorders/../x/y/z/abcdefghijklmnopqrstuvwxyz")},
		{"no key", mustCompile(b), plain},
		{"1 limit", mustCompile(b, limits(limit("a", byKey))), plain},
		{"1 limit by client", mustCompile(b, forwarded, limits(limit("a", keyedBy(client("Share"))))), plain},
		{"3 limits, same key", mustCompile(b, limits(limit("a", byKey), limit("b", byKey), limit("c", byKey))), plain},
		{"3 limits, different keys", mustCompile(b, forwarded, limits(limit("a", byKey), limit("b", keyedBy(client("Share"))), limit("c"))), plain},
		{"1 limit by template and variable", mustCompile(b, limits(limit("a", orders, keyedBy(part("PathTemplate", "", "Share"), part("PathVariable", "id", "Share"))))), rich},
		{"1 limit by query and cookie", mustCompile(b, limits(limit("a", keyedBy(part("Query", "tenant", "Share"), part("Cookie", "sid", "Share"))))), rich},
		{"1 limit by claim", mustCompile(b, limits(limit("a", keyedBy(part("Claim", "sub", "Share"))))), rich},
		{"64 overrides of 256 values", mustCompile(b, limits(limit("a", byKey, overriddenBy(manyOverrides("In")...)))), plain},
		{"64 overrides of 256 values, the last fits", mustCompile(b, limits(limit("a", byKey, overriddenBy(manyOverrides("In")...)))), request("/api/orders", "X-Api-Key", "63-255")},
		{"64 overrides of 256 hashes", mustCompile(b, limits(limit("a", byKey, overriddenBy(manyOverrides("InSHA256")...)))), plain},
		{"64 overrides of 256 values and a method", mustCompile(b, limits(limit("a", byKey, overriddenBy(withMethod(manyOverrides("In"))...)))), plain},
		{"1 limit when a header", mustCompile(b, limits(limit("a", matching(when("request.headers[?'x-api-key'].orValue('').startsWith('k-')")), byKey))), plain},
		{"1 limit when any header", mustCompile(b, limits(limit("a", matching(when("request.headers.exists(h, h.startsWith('x-') && request.headers[h].contains('123'))")), byKey))), plain},
		{"1 limit by expression", mustCompile(b, limits(limit("a", keyedBy(part("Expression", "request.path.split('/')[1]", "Share"))))), plain},
	} {
		set := ratelimit.NewSet(c.policy)
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				set.Describe(c.req)
			}
		})
	}
}

// manyOverrides are as many as a limit can have, with as many values.
func manyOverrides(kind string) (many []bucketconfig.Override) {
	for i := range bucketconfig.MaxOverrides {
		m := bucketconfig.NamedMatch{Name: "X-Api-Key", Type: kind}
		for j := range bucketconfig.MaxValues {
			value := fmt.Sprintf("%d-%d", i, j)
			if kind == "InSHA256" {
				value = sha256Hex(value)
			}
			m.Values = append(m.Values, value)
		}
		many = append(many, sized(fmt.Sprint("o", i), 100, bucketconfig.Match{Headers: []bucketconfig.NamedMatch{m}}))
	}
	return many
}

// withMethod makes overrides that no index holds.
func withMethod(overrides []bucketconfig.Override) []bucketconfig.Override {
	for i := range overrides {
		overrides[i].Matches[0].Methods = []string{"GET", "POST"}
	}
	return overrides
}
