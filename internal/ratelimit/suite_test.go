package ratelimit_test

import (
	"net/http"
	"net/netip"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/ratelimit"
)

func TestRatelimit(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "internal/ratelimit")
}

var secret = []byte("0123456789abcdef0123456789abcdef")

// record is a valid record; changes state what matters to a test.
func record(changes ...func(*bucketconfig.Record)) *bucketconfig.Record {
	r := &bucketconfig.Record{
		Schema: bucketconfig.SchemaVersion, Kind: "RateLimitPolicy", Name: "checkout", UID: "uid", Generation: 1, Order: 1,
		Limits:   []bucketconfig.Limit{limit("all")},
		Store:    bucketconfig.Store{TimeoutUS: 10_000, OnFailure: "Local"},
		Response: bucketconfig.Response{RateLimitHeaders: "Standard", StatusCode: 429},
	}
	for _, change := range changes {
		change(r)
	}
	return r
}

func named(name string) func(*bucketconfig.Record) {
	return func(r *bucketconfig.Record) { r.Name = name }
}

func limits(ls ...bucketconfig.Limit) func(*bucketconfig.Record) {
	return func(r *bucketconfig.Record) { r.Limits = ls }
}

func exempt(ms ...bucketconfig.Match) func(*bucketconfig.Record) {
	return func(r *bucketconfig.Record) { r.Exempt = ms }
}

func clientFrom(c bucketconfig.ClientIP) func(*bucketconfig.Record) {
	return func(r *bucketconfig.Record) { r.ClientIP = &c }
}

func shadow(r *bucketconfig.Record) { r.Shadow = true }

func limit(name string, changes ...func(*bucketconfig.Limit)) bucketconfig.Limit {
	l := bucketconfig.Limit{
		Name: name, Cost: 1,
		Bucket: bucketconfig.Bucket{Capacity: 20, RefillTokens: 5, RefillIntervalUS: 1_000_000},
	}
	for _, change := range changes {
		change(&l)
	}
	return l
}

func keyedBy(parts ...bucketconfig.KeyPart) func(*bucketconfig.Limit) {
	return func(l *bucketconfig.Limit) { l.KeyParts = parts }
}

func matching(ms ...bucketconfig.Match) func(*bucketconfig.Limit) {
	return func(l *bucketconfig.Limit) { l.Matches = ms }
}

func header(name, whenMissing string) bucketconfig.KeyPart {
	return bucketconfig.KeyPart{Type: "Header", Name: name, WhenMissing: whenMissing}
}

func client(whenMissing string) bucketconfig.KeyPart {
	return bucketconfig.KeyPart{Type: "ClientIP", WhenMissing: whenMissing}
}

func path(kind, value string) bucketconfig.Match {
	return bucketconfig.Match{Path: &bucketconfig.StringMatch{Type: kind, Value: value}}
}

func headerMatch(kind, name, value string) bucketconfig.Match {
	return bucketconfig.Match{Headers: []bucketconfig.NamedMatch{{Name: name, Type: kind, Value: value}}}
}

// request is a GET of / by 192.0.2.1; headers are pairs of name and value, repeated names make repeated lines.
func request(path string, headers ...string) *ratelimit.Request {
	r := &ratelimit.Request{Method: "GET", Path: path, Host: "shop.example", Header: http.Header{}, Peer: netip.MustParseAddr("192.0.2.1")}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

func compile(changes ...func(*bucketconfig.Record)) *ratelimit.Policy {
	GinkgoHelper()
	p, err := ratelimit.Compile(record(changes...), secret)
	Expect(err).NotTo(HaveOccurred())
	return p
}

// governing lists the names of the limits that govern a request.
func governing(d ratelimit.Description) []string {
	names := []string{}
	for _, g := range d.Groups {
		for _, c := range g.Charges {
			names = append(names, c.Limit.QualifiedName)
		}
	}
	return names
}

// tagOf is the tag of the only group that governs a request.
func tagOf(p *ratelimit.Policy, req *ratelimit.Request) string {
	GinkgoHelper()
	d := ratelimit.NewSet(p).Describe(req)
	Expect(d.Groups).To(HaveLen(1))
	return d.Groups[0].Tag
}
