package ratelimit

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/portero-dev/portero/internal/bucketconfig"
)

// named appends the matchers of headers, query parameters or cookies.
func (c *compiler) named(compiled []namedMatcher, field string, kind attributeKind, matches []bucketconfig.NamedMatch) ([]namedMatcher, error) {
	if len(matches) > bucketconfig.MaxHeaders {
		return nil, tooMany(field, len(matches), bucketconfig.MaxHeaders)
	}
	for i := range matches {
		m, field := &matches[i], fmt.Sprintf("%s[%d]", field, i)
		name := m.Name
		var err error
		switch kind {
		case headerAttribute:
			name, err = http.CanonicalHeaderKey(name), checkHeaderName(field+".name", name)
		case queryAttribute:
			err = checkName(field+".name", name)
		case cookieAttribute:
			err = checkCookieName(field+".name", name)
		}
		if err != nil {
			return nil, err
		}
		one, err := c.comparison(field, m)
		if err != nil {
			return nil, err
		}
		one.attribute = c.attribute(kind, name)
		compiled = append(compiled, one)
	}
	return compiled, nil
}

// comparison is a namedMatcher but for the name.
func (c *compiler) comparison(field string, m *bucketconfig.NamedMatch) (namedMatcher, error) {
	compiled := namedMatcher{value: m.Value}
	operands := operands{listField: field + ".values"}
	switch m.Type {
	case "Exact":
		compiled.kind, operands.value = namedExact, true
	case "Prefix":
		compiled.kind, operands.value = namedPrefix, true
	case "RegularExpression":
		compiled.kind, operands.value = namedExpression, true
	case "Present":
		compiled.kind = namedPresent
	case "Absent":
		compiled.kind = namedAbsent
	case "In":
		compiled.kind, operands.list = namedIn, true
	case "InSHA256":
		compiled.kind, operands.list, operands.listField = namedInSHA256, true, field+".hashes"
	default:
		return compiled, invalid(field+".type", fmt.Errorf("%q: must be Exact, Prefix, RegularExpression, Present, Absent, In or InSHA256", m.Type))
	}
	if err := operands.check(field+".value", m); err != nil {
		return compiled, err
	}
	var err error
	switch compiled.kind {
	case namedExpression:
		compiled.expression, err = c.regex(field+".value", m.Value)
	case namedIn:
		compiled.values, err = valueSet(operands.listField, m.Values)
	case namedInSHA256:
		compiled.sums, err = sumSet(operands.listField, m.Values)
	}
	return compiled, err
}

// operands says what a type of NamedMatch compares with.
type operands struct {
	value, list bool
	listField   string // as the API calls it
}

func (o operands) check(valueField string, m *bucketconfig.NamedMatch) error {
	switch {
	case o.value && m.Value == "":
		return invalid(valueField, errors.New("is empty: state what to compare with, or use type Present or Absent"))
	case !o.value && m.Value != "":
		return invalid(valueField, fmt.Errorf("%q: type %s takes no value", m.Value, m.Type))
	case o.list && len(m.Values) == 0:
		return invalid(o.listField, fmt.Errorf("is empty: type %s needs at least one value", m.Type))
	case !o.list && len(m.Values) > 0:
		return invalid(o.listField, fmt.Errorf("has %d values: type %s takes none", len(m.Values), m.Type))
	}
	return tooLong(valueField, m.Value)
}

func valueSet(field string, values []string) (map[string]struct{}, error) {
	if len(values) > bucketconfig.MaxValues {
		return nil, tooMany(field, len(values), bucketconfig.MaxValues)
	}
	set := make(map[string]struct{}, len(values))
	for i, value := range values {
		field := fmt.Sprintf("%s[%d]", field, i)
		if value == "" {
			return nil, invalid(field, errors.New("is empty: state a value, or use type Absent"))
		}
		if err := tooLong(field, value); err != nil {
			return nil, err
		}
		set[value] = struct{}{}
	}
	return set, nil
}

func sumSet(field string, values []string) (map[[sha256.Size]byte]struct{}, error) {
	if len(values) > bucketconfig.MaxValues {
		return nil, tooMany(field, len(values), bucketconfig.MaxValues)
	}
	set := make(map[[sha256.Size]byte]struct{}, len(values))
	for i, value := range values {
		var sum [sha256.Size]byte
		if n, err := hex.Decode(sum[:], []byte(value[:min(len(value), 2*sha256.Size)])); err != nil || n != sha256.Size || len(value) != 2*sha256.Size {
			return nil, invalid(fmt.Sprintf("%s[%d]", field, i), fmt.Errorf("%.80q: must be the SHA-256 of a value in 64 hexadecimal digits, as printf %%s VALUE | sha256sum prints it", value))
		}
		set[sum] = struct{}{}
	}
	return set, nil
}

// regex anchors an expression at both ends. It is parsed alone and written anew first: neither ")(" nor an open \Q may
// reach the anchors. A short expression can be a huge program, so all of a policy share one budget.
func (c *compiler) regex(field, expression string) (*regexp.Regexp, error) {
	if expression == "" {
		return nil, invalid(field, errors.New("is empty: state a regular expression"))
	}
	if err := tooLong(field, expression); err != nil {
		return nil, err
	}
	parsed, err := syntax.Parse(expression, syntax.Perl)
	if err != nil {
		return nil, invalid(field, fmt.Errorf("%q: must be a regular expression of RE2: %w", expression, err))
	}
	anchored := `\A(?:` + parsed.String() + `)\z`
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil, invalid(field, fmt.Errorf("%q: must be a regular expression of RE2: %w", expression, err))
	}
	if c.regexBudget -= len(program.Inst); c.regexBudget < 0 {
		return nil, invalid(field, fmt.Errorf("%q: the policy's regular expressions together compile to more than %d instructions: use fewer or smaller repetitions", expression, bucketconfig.MaxRegexProgram))
	}
	compiled, err := regexp.Compile(anchored)
	if err != nil {
		return nil, invalid(field, fmt.Errorf("%q: must be a regular expression of RE2: %w", expression, err))
	}
	return compiled, nil
}

// checkHeaderName wants a name that can be found among a request's headers. Connection, Te and Upgrade can: they tell a
// WebSocket's handshake or a gRPC call.
func checkHeaderName(field, name string) error {
	switch canonical := http.CanonicalHeaderKey(name); {
	case canonical == "Host":
		return invalid(field, fmt.Errorf("%q: HTTP servers take it out of a request's header, so it would never be found: use hosts in matches, a key part of type Host, or request.host", name))
	case canonical == "Transfer-Encoding", canonical == "Trailer":
		return invalid(field, fmt.Errorf("%q: HTTP servers take it out of a request's header, so it would never be found: use a header that the client or a proxy in front sends for this", name))
	case slices.Contains(OneHop[:], canonical):
		return invalid(field, fmt.Errorf("%q: is meant for one connection alone and taken out before limits look, so it would never be found: "+
			"use a header of the request itself, such as Authorization or X-Api-Key", name))
	}
	return checkFieldName(field, name)
}

// checkResponseField wants a name that can be found among a response's headers or trailers.
func checkResponseField(field, name string) error {
	canonical := http.CanonicalHeaderKey(name)
	if slices.Contains(OneHop[:], canonical) || slices.Contains(oneHopOfResponses[:], canonical) {
		return invalid(field, fmt.Errorf("%q: is meant for one connection alone and taken out of responses, so it would never be found: "+
			"let the app tell the cost in a header or trailer of its own, such as X-Cost", name))
	}
	return checkFieldName(field, name)
}

func checkFieldName(field, name string) error {
	if !isToken(name) {
		return invalid(field, fmt.Errorf("%q: must be a header's name", name))
	}
	return tooLong(field, name)
}

// Fields that are meant for one connection alone (RFC 9110 section 7.6.1).
var (
	// OneHop are those that the proxy takes out of requests before limits look, whether Connection nominates them or not, and
	// out of responses before their costs are read.
	OneHop = [...]string{"Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection"}
	// oneHopOfResponses are taken out of responses too.
	oneHopOfResponses = [...]string{"Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}
)

// isToken says whether s is a token of RFC 9110, as methods and names of headers are.
func isToken(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9') && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return s != ""
}
