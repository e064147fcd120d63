package ratelimit_test

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/ratelimit"
)

// mustCompile is compile for fuzz targets and benchmarks, which run outside of ginkgo.
func mustCompile(tb testing.TB, changes ...func(*bucketconfig.Record)) *ratelimit.Policy {
	tb.Helper()
	p, err := ratelimit.Compile(record(changes...), secret)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

func FuzzNormalizePath(f *testing.F) {
	for _, path := range []string{"", "*", "/", "/a//b/../c", "/%2e%2E/x", "/%%32%65", "/a%2fb", "/\xff", "/..", "a/.", "/%"} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		normal := ratelimit.NormalizePath(path)
		if again := ratelimit.NormalizePath(normal); again != normal {
			t.Fatalf("%q: normal form %q has the normal form %q", path, normal, again)
		}
		if normal == "*" {
			return
		}
		if !strings.HasPrefix(normal, "/") || strings.Contains(normal, "//") {
			t.Fatalf("%q: normal form %q", path, normal)
		}
		for element := range strings.SplitSeq(normal, "/") {
			if element == "." || element == ".." {
				t.Fatalf("%q: normal form %q keeps a dot element", path, normal)
			}
		}
	})
}

// FuzzDescribe feeds whatever a client can send to every kind of match and key part: it must not panic, and a prefix
// limit must see each request that an exact one on the same elements sees.
func FuzzDescribe(f *testing.F) {
	everything := bucketconfig.Match{
		Methods: []string{"GET"},
		Path:    &bucketconfig.StringMatch{Type: "RegularExpression", Value: `/(a|[^/]+)*/x.*`},
		Headers: []bucketconfig.NamedMatch{
			{Name: "X-A", Type: "RegularExpression", Value: "(?i)a.*"},
			{Name: "X-A", Type: "Prefix", Value: "a"},
		},
	}
	set := ratelimit.NewSet(mustCompile(f,
		clientFrom(bucketconfig.ClientIP{Type: "XForwardedFor", TrustedProxies: []string{"10.0.0.0/8", "::/0"}}),
		limits(
			limit("exact", matching(path("Exact", "/api/x"))),
			limit("prefix", matching(path("PathPrefix", "/api"))),
			limit("all", matching(everything), keyedBy(header("X-A", "Share"), client("Skip"))),
			limit("deny", matching(headerMatch("Exact", "X-B", "1")), keyedBy(client("Deny"))),
		)))
	f.Add("GET", "/api/x", "a", "198.51.100.9", "10.0.0.1")
	f.Add("POST", "//api/%78", "", "rubbish,,", "")
	f.Add("", "", "1", "[::1]:x", "::1")
	f.Fuzz(func(t *testing.T, method, path, value, forwarded, peer string) {
		addr, _ := netip.ParseAddr(peer)
		req := &ratelimit.Request{Method: method, Path: path, Peer: addr, Header: http.Header{
			"X-A": {value, ""}, "X-B": {value}, "X-Forwarded-For": {forwarded},
		}}
		d := set.Describe(req)
		names := strings.Join(governing(d), " ")
		if strings.Contains(names, "/exact") && !strings.Contains(names, "/prefix") {
			t.Fatalf("path %q is exactly /api/x and not below /api", path)
		}
	})
}

// FuzzTag looks for two different sets of key values with one tag.
func FuzzTag(f *testing.F) {
	set := ratelimit.NewSet(mustCompile(f, limits(limit("a", keyedBy(header("X-A", "Share"), header("X-B", "Share"))))))
	f.Add("a", "b", "ab", "")
	f.Add("", "1", "1", "")
	f.Add("0", "", "", "0")
	tag := func(a, b string) string {
		return set.Describe(&ratelimit.Request{Header: http.Header{"X-A": {a}, "X-B": {b}}}).Groups[0].Tag
	}
	f.Fuzz(func(t *testing.T, a1, b1, a2, b2 string) {
		same := a1 == a2 && b1 == b2
		if (tag(a1, b1) == tag(a2, b2)) != same {
			t.Fatalf("values %q %q and %q %q", a1, b1, a2, b2)
		}
	})
}

// FuzzForwardedFor lets a client write what it likes into X-Forwarded-For: the trusted proxy's entry stands right of it
// and decides.
func FuzzForwardedFor(f *testing.F) {
	set := ratelimit.NewSet(mustCompile(f,
		clientFrom(bucketconfig.ClientIP{Type: "XForwardedFor", TrustedProxies: []string{"10.0.0.0/8"}}),
		limits(limit("a", keyedBy(client("Share"))))))
	peer := netip.MustParseAddr("10.0.0.1")
	tag := func(lines ...string) string {
		return set.Describe(&ratelimit.Request{Peer: peer, Header: http.Header{"X-Forwarded-For": lines}}).Groups[0].Tag
	}
	want := tag("192.0.2.1")
	for _, s := range []string{"", "203.0.113.7", "10.0.0.2", "10.0.0.2, 10.0.0.3", ",,", "[", "::1, x", "a\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, written string) {
		if tag(written+", 192.0.2.1") != want {
			t.Fatalf("%q in the same line", written)
		}
		if tag(written, "192.0.2.1") != want {
			t.Fatalf("%q in a line before", written)
		}
		if tag(written, "192.0.2.1, 10.0.0.7") != want {
			t.Fatalf("%q before two proxies", written)
		}
	})
}
