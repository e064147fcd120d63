package ratelimit

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// view is a request as matchers see it: what is costly is found once, when first asked for.
type view struct {
	req      *Request
	path     string
	havePath bool
}

func (v *view) normalPath() string {
	if !v.havePath {
		v.path, v.havePath = NormalizePath(v.req.Path), true
	}
	return v.path
}

// matcher is a compiled Match: all that it states must hold.
type matcher struct {
	methods []string
	path    *valueMatcher
	headers []headerMatcher
}

type headerMatcher struct {
	name  string // canonical
	value valueMatcher
}

// anyFits says whether any of the matchers fits; none fits when there is none.
func anyFits(matchers []matcher, v *view) bool {
	for i := range matchers {
		if matchers[i].fits(v) {
			return true
		}
	}
	return false
}

func (m *matcher) fits(v *view) bool {
	if len(m.methods) > 0 && !slices.Contains(m.methods, v.req.Method) {
		return false
	}
	if m.path != nil && !m.path.fits(v.normalPath()) {
		return false
	}
	for i := range m.headers {
		value := headerValue(v.req.Header, m.headers[i].name)
		if value == "" || !m.headers[i].value.fits(value) {
			return false
		}
	}
	return true
}

// headerValue is the value of all of a header's lines in their order, joined by ", " as RFC 9110 section 5.3 allows.
// Empty means missing. The name is canonical.
func headerValue(h http.Header, name string) string {
	lines := h[name]
	switch len(lines) {
	case 0:
		return ""
	case 1:
		return lines[0]
	}
	for _, line := range lines {
		if line != "" {
			return strings.Join(lines, ", ")
		}
	}
	return ""
}

type valueKind uint8

const (
	exactly valueKind = iota
	byElements
	byPrefix
	byExpression
)

type valueMatcher struct {
	kind       valueKind
	value      string // of byElements: without the slash at its end
	expression *regexp.Regexp
}

func (m *valueMatcher) fits(s string) bool {
	switch m.kind {
	case exactly:
		return s == m.value
	case byElements:
		rest, ok := strings.CutPrefix(s, m.value)
		return ok && (rest == "" || rest[0] == '/')
	case byPrefix:
		return strings.HasPrefix(s, m.value)
	default:
		return m.expression.MatchString(s)
	}
}
