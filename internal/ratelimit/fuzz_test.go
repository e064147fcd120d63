package ratelimit_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
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

// FuzzDescribe feeds whatever a client can send to every kind of match, key part, cost and override: it must not panic, a
// prefix limit must see each request that an exact one on the same elements sees, and costs stay within their bounds.
func FuzzDescribe(f *testing.F) {
	named := []bucketconfig.NamedMatch{
		{Name: "X-A", Type: "RegularExpression", Value: "(?i)a.*"}, {Name: "X-A", Type: "Prefix", Value: "a"},
		{Name: "X-A", Type: "Present"}, {Name: "X-C", Type: "Absent"}, {Name: "X-A", Type: "In", Values: []string{"a", "b"}},
	}
	everything := bucketconfig.Match{
		Methods:     []string{"GET"},
		Path:        &bucketconfig.StringMatch{Type: "RegularExpression", Value: `/(a|[^/]+)*/x.*`},
		Headers:     named,
		QueryParams: named,
		Cookies:     named,
		Hosts:       []string{"shop.example", "*.shop.example"},
		ClientCIDRs: []string{"0.0.0.0/0", "::/0"},
		GRPC:        &bucketconfig.GRPCMatch{Service: "api", Method: "x"},
		When:        "request.headers.exists(h, request.query[h][0] == h) || request.claims.exists(c, c == request.grpc.method)",
	}
	set := ratelimit.NewSet(mustCompile(f,
		clientFrom(bucketconfig.ClientIP{Type: "XForwardedFor", TrustedProxies: []string{"10.0.0.0/8", "::/0"}}),
		limits(
			limit("exact", matching(path("Exact", "/api/x"))),
			limit("prefix", matching(path("PathPrefix", "/api"))),
			limit("all", matching(everything), keyedBy(header("X-A", "Share"), client("Skip"))),
			limit("expressed", matching(when("int(request.headers['x-a']) > request.port || request.clientIP == request.host")),
				keyedBy(part("Expression", "request.query['X-A'][0] + request.cookies['X-A'].lowerAscii() + request.path.split('/')[2]", "Share"))),
			limit("deny", matching(headerMatch("Exact", "X-B", "1")), keyedBy(client("Deny"))),
			limit("template", matching(path("Template", "/{a}/{b}"), path("Template", "/{b}/x/{a}")),
				keyedBy(part("PathVariable", "a", "Share"), part("PathVariable", "b", "Share"), part("PathTemplate", "", "Share"))),
			limit("keys", keyedBy(part("Query", "X-A", "Share"), part("Cookie", "X-A", "Share"), part("Claim", "a.b", "Share"), part("Host", "", "Share"), part("Method", "", "Share")),
				costFrom("RequestHeader", 3, 7),
				overriddenBy(denied("hash", plan("InSHA256", sha256Hex("a"))), sized("all", 20, everything), unlimited("query", bucketconfig.Match{QueryParams: named[4:]}))),
		)))
	f.Add("GET", "/api/x", "a", "X-A=a&x", "shop.example:80", "198.51.100.9", "10.0.0.1")
	f.Add("POST", "//api/%78", "Bearer .eyJhIjp7ImIiOjF9fQ.", "%58-A=+%", "[::1]", "rubbish,,", "")
	f.Add("", "", "1", "=;X-A=\"", "..a.:", "[::1]:x", "::1")
	f.Fuzz(func(t *testing.T, method, path, value, query, host, forwarded, peer string) {
		addr, _ := netip.ParseAddr(peer)
		req := &ratelimit.Request{Method: method, Path: path, Query: query, Host: host, Peer: addr, Header: http.Header{
			"X-A": {value, ""}, "X-B": {value}, "X-Forwarded-For": {forwarded}, "Cookie": {query}, "Authorization": {value},
			"X-Cost": {value}, "X-Plan": {value}, "Content-Type": {"application/grpc"},
		}}
		d := set.Describe(req)
		names := strings.Join(governing(d), " ")
		if strings.Contains(names, "/exact") && !strings.Contains(names, "/prefix") {
			t.Fatalf("path %q is exactly /api/x and not below /api", path)
		}
		tags := map[string]bool{}
		for _, g := range d.Groups {
			if len(g.Charges) == 0 || tags[g.Tag] {
				t.Fatalf("groups %+v: one is empty, or two are one", d.Groups)
			}
			tags[g.Tag] = true
			for _, c := range g.Charges {
				if c.Cost < 1 || c.Cost > 7 {
					t.Fatalf("header %q: cost %d", value, c.Cost)
				}
			}
		}
	})
}

// FuzzTag looks for two different sets of key values with one tag.
func FuzzTag(f *testing.F) {
	set := ratelimit.NewSet(mustCompile(f, limits(limit("a", keyedBy(
		header("X-A", "Share"), part("Query", "q", "Share"), part("Workload", "", "Share"), part("Method", "", "Share"))))))
	f.Add("a", "b", "", "GET", "ab", "", "", "GET")
	f.Add("", "1", "", "", "1", "", "", "")
	f.Add("0", "", "1", "", "", "0", "", "1")
	tag := func(a, q, workload, method string) string {
		return set.Describe(&ratelimit.Request{
			Method: method, Workload: workload, Query: "q=" + url.QueryEscape(q), Header: http.Header{"X-A": {a}},
		}).Groups[0].Tag
	}
	f.Fuzz(func(t *testing.T, a1, q1, w1, m1, a2, q2, w2, m2 string) {
		same := a1 == a2 && q1 == q2 && w1 == w2 && m1 == m2
		if (tag(a1, q1, w1, m1) == tag(a2, q2, w2, m2)) != same {
			t.Fatalf("values %q and %q", []string{a1, q1, w1, m1}, []string{a2, q2, w2, m2})
		}
	})
}

// FuzzSpelling percent-encodes what a client sends in every way: neither a match nor a key may notice.
func FuzzSpelling(f *testing.F) {
	set := ratelimit.NewSet(mustCompile(f, limits(
		limit("a", matching(path("Template", "/users/{id}")), keyedBy(part("PathVariable", "id", "Share"))),
		limit("b", keyedBy(part("Query", "q", "Share"), part("Cookie", "c", "Share"))),
	)))
	tags := func(id, value string) (tags []string) {
		d := set.Describe(&ratelimit.Request{
			Path: "/users/" + id, Query: "q=" + value, Header: http.Header{"Cookie": {"c=" + value}},
		})
		for _, g := range d.Groups {
			tags = append(tags, g.Tag)
		}
		return tags
	}
	escaped := func(s string, which uint64) string {
		var b strings.Builder
		for i := 0; i < len(s); i++ {
			if c := s[i]; which>>(i%64)&1 == 1 || strings.IndexByte("%+&;=\"/ \t?#", c) >= 0 {
				fmt.Fprintf(&b, "%%%02x", c)
			} else {
				b.WriteByte(c)
			}
		}
		return b.String()
	}
	f.Add("a@b", uint64(5), uint64(1<<63))
	f.Add("..", uint64(1), uint64(0))
	f.Add("100%", uint64(0), uint64(1))
	f.Fuzz(func(t *testing.T, value string, one, two uint64) {
		a, b := escaped(value, one), escaped(value, two)
		if got, want := tags(b, b), tags(a, a); !slices.Equal(got, want) {
			t.Fatalf("%q and %q differ", a, b)
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
