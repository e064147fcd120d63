package ratelimit

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"regexp/syntax"
	"strings"

	"github.com/portero-dev/portero/internal/bucketconfig"
)

func (c *compiler) matches(field string, matches []bucketconfig.Match) ([]matcher, error) {
	var compiled []matcher
	for i := range matches {
		m, err := c.match(fmt.Sprintf("%s[%d]", field, i), &matches[i])
		if err != nil {
			return nil, err
		}
		compiled = append(compiled, m)
	}
	return compiled, nil
}

func (c *compiler) match(field string, m *bucketconfig.Match) (matcher, error) {
	var compiled matcher
	if len(m.Methods) == 0 && m.Path == nil && len(m.Headers) == 0 {
		return compiled, invalid(field, errors.New("states nothing: an empty entry would fit every request; leave it out or state what fits"))
	}
	for i, method := range m.Methods {
		if !isToken(method) {
			return compiled, invalid(fmt.Sprintf("%s.methods[%d]", field, i), fmt.Errorf("%q: must be an HTTP method such as GET", method))
		}
	}
	compiled.methods = m.Methods
	if m.Path != nil {
		path, err := c.path(field+".path", m.Path)
		if err != nil {
			return compiled, err
		}
		compiled.path = path
	}
	for i := range m.Headers {
		header, err := c.header(fmt.Sprintf("%s.headers[%d]", field, i), &m.Headers[i])
		if err != nil {
			return compiled, err
		}
		compiled.headers = append(compiled.headers, header)
	}
	return compiled, nil
}

func (c *compiler) path(field string, m *bucketconfig.StringMatch) (*valueMatcher, error) {
	if m.Type == "RegularExpression" {
		return c.expression(field, m.Value)
	}
	if !strings.HasPrefix(m.Value, "/") {
		return nil, invalid(field+".value", fmt.Errorf("%q: must start with a slash", m.Value))
	}
	if strings.Contains(m.Value, "?") {
		return nil, invalid(field+".value", fmt.Errorf("%q: must be a path without a query", m.Value))
	}
	normal := NormalizePath(m.Value)
	switch m.Type {
	case "Exact":
		return &valueMatcher{kind: exactly, value: normal}, nil
	case "PathPrefix":
		return &valueMatcher{kind: byElements, value: strings.TrimSuffix(normal, "/")}, nil
	}
	return nil, invalid(field+".type", fmt.Errorf("%q: must be Exact, PathPrefix or RegularExpression", m.Type))
}

func (c *compiler) header(field string, m *bucketconfig.NamedMatch) (headerMatcher, error) {
	var compiled headerMatcher
	if err := checkHeaderName(field+".name", m.Name); err != nil {
		return compiled, err
	}
	compiled.name = http.CanonicalHeaderKey(m.Name)
	if m.Value == "" {
		return compiled, invalid(field+".value", errors.New("is empty: an empty header counts as missing and never matches"))
	}
	switch m.Type {
	case "Exact":
		compiled.value = valueMatcher{kind: exactly, value: m.Value}
	case "Prefix":
		compiled.value = valueMatcher{kind: byPrefix, value: m.Value}
	case "RegularExpression":
		value, err := c.expression(field, m.Value)
		if err != nil {
			return compiled, err
		}
		compiled.value = *value
	default:
		return compiled, invalid(field+".type", fmt.Errorf("%q: must be Exact, Prefix or RegularExpression", m.Type))
	}
	return compiled, nil
}

// expression anchors an expression at both ends. It is parsed alone and written anew first: neither ")(" nor an open \Q may
// reach the anchors. A short expression can be a huge program, so all of a policy share one budget.
func (c *compiler) expression(field, expression string) (*valueMatcher, error) {
	field += ".value"
	if expression == "" {
		return nil, invalid(field, errors.New("is empty: state a regular expression"))
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
	if c.expressionBudget -= len(program.Inst); c.expressionBudget < 0 {
		return nil, invalid(field, fmt.Errorf("%q: the policy's regular expressions together compile to more than %d instructions: use fewer or smaller repetitions", expression, bucketconfig.MaxRegexProgram))
	}
	compiled, err := regexp.Compile(anchored)
	if err != nil {
		return nil, invalid(field, fmt.Errorf("%q: must be a regular expression of RE2: %w", expression, err))
	}
	return &valueMatcher{kind: byExpression, expression: compiled}, nil
}

// checkHeaderName wants a name that can be found among a request's headers. HTTP servers take the three refused ones out.
func checkHeaderName(field, name string) error {
	if !isToken(name) {
		return invalid(field, fmt.Errorf("%q: must be a header's name", name))
	}
	switch http.CanonicalHeaderKey(name) {
	case "Host", "Transfer-Encoding", "Trailer":
		return invalid(field, fmt.Errorf("%q: can't be matched as a header", name))
	}
	return nil
}

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
