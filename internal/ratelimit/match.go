package ratelimit

import (
	"crypto/sha256"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/portero-dev/portero/internal/bucketconfig"
)

// matcher is a compiled Match: all that it states must hold.
type matcher struct {
	methods []string
	ports   []portMatcher
	hosts   hostMatcher
	path    *pathMatcher
	grpc    *bucketconfig.GRPCMatch
	named   []namedMatcher // headers, query parameters and cookies
	clients []netip.Prefix
	when    *uint16 // the place of its expression
}

// noMatch is where no matcher fits.
const noMatch = -1

// fit says whether a matcher fits. Perhaps means that its expression failed: whoever asks must take what is stricter, so
// that no client escapes a limit, or opens an exemption, by what it makes fail.
type fit uint8

const (
	fitsNot fit = iota
	fitsPerhaps
	fitsSurely
)

// firstFit is the place of the first matcher that surely fits, else of the first that perhaps does, else noMatch.
func firstFit(matchers []matcher, v *view) (int, fit) {
	place, best := noMatch, fitsNot
	for i := range matchers {
		switch matchers[i].fits(v) {
		case fitsSurely:
			return i, fitsSurely
		case fitsPerhaps:
			if best == fitsNot {
				place, best = i, fitsPerhaps
			}
		}
	}
	return place, best
}

func (m *matcher) fits(v *view) fit {
	switch {
	case !m.fieldsFit(v):
		return fitsNot
	case m.when != nil:
		return v.condition(*m.when)
	}
	return fitsSurely
}

// fieldsFit asks what is cheap first.
func (m *matcher) fieldsFit(v *view) bool {
	if len(m.methods) > 0 && !slices.Contains(m.methods, v.req.Method) {
		return false
	}
	if len(m.ports) > 0 && !anyPort(m.ports, v.req) {
		return false
	}
	if m.hosts != nil && !m.hosts.fits(v.normalHost()) {
		return false
	}
	if m.path != nil && !m.path.fits(v.normalPath()) {
		return false
	}
	if m.grpc != nil && !callFits(m.grpc, v) {
		return false
	}
	for i := range m.named {
		if !m.named[i].fits(v) {
			return false
		}
	}
	return len(m.clients) == 0 || anyContains(m.clients, v.clientAddr())
}

// portMatcher compares with a protected port's number or, where name is set, its name.
type portMatcher struct {
	number uint16
	name   string
}

func anyPort(ports []portMatcher, req *Request) bool {
	for i := range ports {
		if p := &ports[i]; p.name == "" && p.number == req.Port || p.name != "" && p.name == req.PortName {
			return true
		}
	}
	return false
}

// hostMatcher holds hosts in normal form and, for all names below one, that name with a dot before it.
type hostMatcher map[string]struct{}

// maxHost bounds names; a longer host is none.
const maxHost = 253

func (m hostMatcher) fits(host string) bool {
	if len(host) > maxHost || strings.HasPrefix(host, ".") {
		return false
	}
	if _, ok := m[host]; ok {
		return true
	}
	for i := 1; i < len(host); i++ {
		if host[i] != '.' {
			continue
		}
		if _, ok := m[host[i:]]; ok {
			return true
		}
	}
	return false
}

func callFits(m *bucketconfig.GRPCMatch, v *view) bool {
	service, method, ok := v.call()
	return ok && (m.Service == "" || m.Service == service) && (m.Method == "" || m.Method == method)
}

type pathKind uint8

const (
	pathExact pathKind = iota
	pathByElements
	pathExpression
	pathTemplate
)

// pathMatcher compares a path in normal form.
type pathMatcher struct {
	kind       pathKind
	value      string // of pathByElements: without the slash at its end
	expression *regexp.Regexp
	template   *template
}

func (m *pathMatcher) fits(path string) bool {
	switch m.kind {
	case pathExact:
		return path == m.value
	case pathByElements:
		rest, ok := strings.CutPrefix(path, m.value)
		return ok && (rest == "" || rest[0] == '/')
	case pathTemplate:
		return m.template.fits(path)
	default:
		return m.expression.MatchString(path)
	}
}

type namedKind uint8

const (
	namedExact namedKind = iota
	namedPrefix
	namedExpression
	namedPresent
	namedAbsent
	namedIn
	namedInSHA256
)

// namedMatcher compares a header, query parameter or cookie. One that is missing fits namedAbsent alone.
type namedMatcher struct {
	attribute  uint16
	kind       namedKind
	value      string
	expression *regexp.Regexp
	values     map[string]struct{}
	sums       map[[sha256.Size]byte]struct{}
}

func (m *namedMatcher) fits(v *view) bool {
	found := v.value(m.attribute)
	if !found.present {
		return m.kind == namedAbsent
	}
	ok := false
	switch m.kind {
	case namedExact:
		ok = found.text == m.value
	case namedPrefix:
		ok = strings.HasPrefix(found.text, m.value)
	case namedExpression:
		ok = m.expression.MatchString(found.text)
	case namedPresent:
		ok = true
	case namedAbsent:
	case namedIn:
		_, ok = m.values[found.text]
	case namedInSHA256:
		_, ok = m.sums[*v.sum(found)]
	}
	return ok
}
