package ratelimit

import (
	"crypto/sha256"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// attributeKind says where a named attribute of a request stands.
type attributeKind uint8

const (
	headerAttribute attributeKind = iota
	queryAttribute
	cookieAttribute
)

// attribute is a named value of a request that a policy asks for. The name of a header is canonical.
type attribute struct {
	kind attributeKind
	name string
}

// value is what one request holds of an attribute: the first of a query parameter or cookie, all lines of a header.
type value struct {
	text                  string
	sum                   [sha256.Size]byte // of text, once hashed
	read, present, hashed bool
}

// view is a request as matchers and keys see it: what is costly is found once, when first asked for.
type view struct {
	req *Request
	set *Set
	// policy is the policy at hand, and slots the places of its attributes among values.
	policy *Policy
	slots  []uint32
	values []value

	path   string
	host   string
	client netip.Addr // as policy finds it
	claims map[string]any

	// expressions is where the results of the policy's begin among evaluated.
	expressions int
	evaluated   []evaluated
	query       map[string][]string // all of it, as an expression wants it; nil before
	cookies     map[string]string

	havePath, haveHost, haveClient, haveClaims bool
	haveQuery, haveCookies                     bool

	// failed is set where an expression was asked that failed, be it for another limit; see failures.
	failed bool
}

// turnTo makes the view that of another policy.
func (v *view) turnTo(p *Policy, slots []uint32, expressions int) {
	v.policy, v.slots, v.expressions, v.haveClient = p, slots, expressions, false
}

func (v *view) normalPath() string {
	if !v.havePath {
		v.path, v.havePath = NormalizePath(v.req.Path), true
	}
	return v.path
}

func (v *view) normalHost() string {
	if !v.haveHost {
		v.host, v.haveHost = normalizeHost(v.req.Host), true
	}
	return v.host
}

// clientAddr is the client's address as the policy finds it; the zero Addr when it is unknown.
func (v *view) clientAddr() netip.Addr {
	if !v.haveClient {
		v.client, v.haveClient = v.policy.clientIP.find(v.req), true
	}
	return v.client
}

// value finds the value of one of the policy's attributes. It is valid until the view's end.
func (v *view) value(attribute uint16) *value {
	slot := v.slots[attribute]
	found := &v.values[slot]
	if found.read {
		return found
	}
	switch asked := &v.set.attributes[slot]; asked.kind {
	case headerAttribute:
		found.text, found.read = headerValue(v.req.Header, asked.name), true
		found.present = found.text != ""
	case queryAttribute:
		if !v.haveQuery {
			v.haveQuery = true
			v.readQuery()
		}
	case cookieAttribute:
		if !v.haveCookies {
			v.haveCookies = true
			v.readCookies()
		}
	}
	return found
}

// sum is the hash of an attribute that is present.
func (v *view) sum(found *value) *[sha256.Size]byte {
	if !found.hashed {
		found.sum, found.hashed = sha256.Sum256([]byte(found.text)), true
	}
	return &found.sum
}

// call gives service and method of a call of gRPC, whose path is /package.Service/Method.
func (v *view) call() (service, method string, ok bool) {
	if !IsGRPC(v.req.Header) {
		return "", "", false
	}
	service, method, ok = strings.Cut(v.normalPath()[1:], "/")
	return service, method, ok && service != "" && method != "" && strings.IndexByte(method, '/') < 0
}

// IsGRPC says whether a request with this header is a call of gRPC, in whatever encoding. One line that says so is enough:
// servers of gRPC differ in which of several they heed, and a call must not evade its limits by a second line.
func IsGRPC(header http.Header) bool {
	const grpc = "application/grpc"
	return slices.ContainsFunc(header["Content-Type"], func(line string) bool {
		return len(line) >= len(grpc) && strings.EqualFold(line[:len(grpc)], grpc)
	})
}
