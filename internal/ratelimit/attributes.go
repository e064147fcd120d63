package ratelimit

import (
	"net/http"
	"net/netip"
	"strings"

	"github.com/portero-dev/portero/internal/bucketconfig"
)

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

// maxEscapedName bounds the names that are decoded: no policy asks for a longer one.
const maxEscapedName = 3 * bucketconfig.MaxString

// readQuery finds all query parameters that any policy asks for, in one pass that keeps nothing else. The first of a name
// counts. Names and values are percent-decoded, a plus is a space, and an escape that is none stands for itself.
func (v *view) readQuery() {
	eachParameter(v.req.Query, func(name, text string) {
		if len(name) > maxEscapedName {
			return
		}
		if slot, asked := v.set.query[unescape(name, true)]; asked && !v.values[slot].read {
			v.values[slot] = value{text: unescape(text, true), read: true, present: true}
		}
	})
	for _, slot := range v.set.query {
		v.values[slot].read = true
	}
}

// eachParameter tells all parameters of a query that have a name, escaped as they are.
func eachParameter(query string, tell func(name, text string)) {
	for query != "" {
		var pair string
		pair, query, _ = strings.Cut(query, "&")
		if name, text, _ := strings.Cut(pair, "="); name != "" {
			tell(name, text)
		}
	}
}

// readCookies finds all cookies that any policy asks for, in one pass that keeps nothing else. The first of a name counts.
// Apps differ in whether they take quotes off and decode percent-encodings: all spellings that one of them takes for the
// same are one value here.
func (v *view) readCookies() {
	eachCookie(v.req.Header, func(name, text string) {
		if slot, asked := v.set.cookies[name]; asked && !v.values[slot].read {
			v.values[slot] = value{text: cookieValue(text), read: true, present: true}
		}
	})
	for _, slot := range v.set.cookies {
		v.values[slot].read = true
	}
}

// eachCookie tells all cookies, escaped and quoted as they are.
func eachCookie(h http.Header, tell func(name, text string)) {
	for _, line := range h["Cookie"] {
		for rest := line; rest != ""; {
			var pair string
			pair, rest, _ = strings.Cut(rest, ";")
			if name, text, ok := strings.Cut(pair, "="); ok {
				tell(strings.Trim(name, " \t"), strings.Trim(text, " \t"))
			}
		}
	}
}

func cookieValue(text string) string {
	if n := len(text); n > 1 && text[0] == '"' && text[n-1] == '"' {
		text = text[1 : n-1]
	}
	return unescape(text, false)
}

// unescape decodes percent-encodings, and a plus as a space. An escape that is none stands for itself.
func unescape(s string, plus bool) string {
	if strings.IndexByte(s, '%') < 0 && (!plus || strings.IndexByte(s, '+') < 0) {
		return s
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '%' && i+2 < len(s) && isHex(s[i+1]) && isHex(s[i+2]):
			b = append(b, unhex(s[i+1])<<4|unhex(s[i+2]))
			i += 2
		case c == '+' && plus:
			b = append(b, ' ')
		default:
			b = append(b, c)
		}
	}
	return string(b)
}

// normalizeHost gives a request's host its one spelling: lower case, no port, no dot at the end, an IPv6 address bare and
// as RFC 5952 writes it. Empty means missing.
func normalizeHost(host string) string {
	if strings.HasPrefix(host, "[") {
		literal, _, _ := strings.Cut(host[1:], "]")
		if addr, err := netip.ParseAddr(literal); err == nil {
			return fold(addr).String()
		}
		return strings.ToLower(literal)
	}
	host, _, _ = strings.Cut(host, ":")
	return strings.ToLower(strings.TrimRight(host, "."))
}
