package ratelimit

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/expression"
)

func (c *compiler) matches(field string, matches []bucketconfig.Match) ([]matcher, error) {
	if len(matches) > bucketconfig.MaxMatches {
		return nil, tooMany(field, len(matches), bucketconfig.MaxMatches)
	}
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
	if isEmpty(m) {
		return compiled, invalid(field, errors.New("states nothing: an empty entry would fit every request; leave it out or state what fits"))
	}
	var err error
	if compiled.methods, err = methods(field+".methods", m.Methods); err != nil {
		return compiled, err
	}
	if compiled.hosts, err = hosts(field+".hosts", m.Hosts); err != nil {
		return compiled, err
	}
	if compiled.ports, err = ports(field+".ports", m.Ports); err != nil {
		return compiled, err
	}
	if m.Path != nil {
		if compiled.path, err = c.path(field+".path", m.Path); err != nil {
			return compiled, err
		}
	}
	if compiled.grpc = m.GRPC; m.GRPC != nil {
		if err := checkCall(field+".grpc", m.GRPC); err != nil {
			return compiled, err
		}
	}
	for _, list := range []struct {
		field   string
		kind    attributeKind
		matches []bucketconfig.NamedMatch
	}{{".headers", headerAttribute, m.Headers}, {".queryParams", queryAttribute, m.QueryParams}, {".cookies", cookieAttribute, m.Cookies}} {
		if compiled.named, err = c.named(compiled.named, field+list.field, list.kind, list.matches); err != nil {
			return compiled, err
		}
	}
	if m.When != "" {
		place, err := c.expression(field+".when", m.When, expression.Bool)
		if err != nil {
			return compiled, err
		}
		compiled.when = &place
	}
	return compiled, c.clients(&compiled, field+".clientCIDRs", m.ClientCIDRs)
}

func isEmpty(m *bucketconfig.Match) bool {
	return len(m.Methods) == 0 && m.Path == nil && len(m.Headers) == 0 && len(m.Hosts) == 0 && len(m.QueryParams) == 0 &&
		len(m.Cookies) == 0 && len(m.Ports) == 0 && len(m.ClientCIDRs) == 0 && m.GRPC == nil && m.When == ""
}

func methods(field string, methods []string) ([]string, error) {
	if len(methods) > bucketconfig.MaxMethods {
		return nil, tooMany(field, len(methods), bucketconfig.MaxMethods)
	}
	for i, method := range methods {
		if !isToken(method) {
			return nil, invalid(fmt.Sprintf("%s[%d]", field, i), fmt.Errorf("%q: must be an HTTP method such as GET", method))
		}
	}
	return methods, nil
}

func hosts(field string, hosts []string) (hostMatcher, error) {
	if len(hosts) > bucketconfig.MaxNames {
		return nil, tooMany(field, len(hosts), bucketconfig.MaxNames)
	}
	var compiled hostMatcher
	for i, host := range hosts {
		name, below := strings.CutPrefix(host, "*.")
		name = strings.TrimSuffix(strings.ToLower(name), ".")
		if !isHostName(name) {
			return nil, invalid(fmt.Sprintf("%s[%d]", field, i), fmt.Errorf("%q: must be a name without a port, such as shop.example, or *. and one for all names below it", host))
		}
		if compiled == nil {
			compiled = hostMatcher{}
		}
		if below {
			name = "." + name
		}
		compiled[name] = struct{}{}
	}
	return compiled, nil
}

// isHostName says whether a name in lower case is one that a request's host in normal form can be.
func isHostName(name string) bool {
	for label := range strings.SplitSeq(name, ".") {
		if label == "" {
			return false
		}
		for i := 0; i < len(label); i++ {
			if c := label[i]; !('a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '_') {
				return false
			}
		}
	}
	return len(name) <= maxHost
}

func ports(field string, ports []string) ([]portMatcher, error) {
	if len(ports) > bucketconfig.MaxNames {
		return nil, tooMany(field, len(ports), bucketconfig.MaxNames)
	}
	var compiled []portMatcher
	for i, port := range ports {
		number, err := strconv.ParseUint(port, 10, 16)
		switch {
		case err == nil && number > 0:
			compiled = append(compiled, portMatcher{number: uint16(number)})
		case err != nil && isPortName(port):
			compiled = append(compiled, portMatcher{name: port})
		default:
			return nil, invalid(fmt.Sprintf("%s[%d]", field, i), fmt.Errorf("%q: must be the name of a protected port such as http, or a number from 1 to 65535", port))
		}
	}
	return compiled, nil
}

// isPortName is what Kubernetes lets a container's port be called, as far as it matters: no number, and nothing that
// would need quoting.
func isPortName(name string) bool {
	letters := 0
	for i := 0; i < len(name); i++ {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z':
			letters++
		case c != '-' && (c < '0' || c > '9'):
			return false
		}
	}
	return letters > 0 && len(name) <= 15
}

func checkCall(field string, m *bucketconfig.GRPCMatch) error {
	if m.Service == "" && m.Method == "" {
		return invalid(field, errors.New("states nothing: state service, method or both"))
	}
	for _, part := range []struct{ field, value string }{{".service", m.Service}, {".method", m.Method}} {
		if strings.Contains(part.value, "/") {
			return invalid(field+part.field, fmt.Errorf("%q: must be a name without a slash: of the path /package.Service/Method, package.Service or Method", part.value))
		}
		if err := tooLong(field+part.field, part.value); err != nil {
			return err
		}
	}
	return nil
}

func (c *compiler) clients(m *matcher, field string, cidrs []string) error {
	if len(cidrs) > bucketconfig.MaxNames {
		return tooMany(field, len(cidrs), bucketconfig.MaxNames)
	}
	if len(cidrs) > 0 && c.policy.clientIP == nil {
		return invalid(field, errors.New("needs the policy's clientIP stated: who is the client behind your ingress?"))
	}
	for i, cidr := range cidrs {
		prefix, err := compilePrefix(fmt.Sprintf("%s[%d]", field, i), cidr)
		if err != nil {
			return err
		}
		m.clients = append(m.clients, prefix)
	}
	return nil
}

func (c *compiler) path(field string, m *bucketconfig.StringMatch) (*pathMatcher, error) {
	if err := tooLong(field+".value", m.Value); err != nil {
		return nil, err
	}
	switch m.Type {
	case "RegularExpression":
		expression, err := c.regex(field+".value", m.Value)
		return &pathMatcher{kind: pathExpression, expression: expression}, err
	case "Template":
		compiled, err := compileTemplate(m.Value)
		if err != nil {
			return nil, invalid(field+".value", err)
		}
		return &pathMatcher{kind: pathTemplate, template: compiled}, nil
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
		return &pathMatcher{kind: pathExact, value: normal}, nil
	case "PathPrefix":
		return &pathMatcher{kind: pathByElements, value: strings.TrimSuffix(normal, "/")}, nil
	}
	return nil, invalid(field+".type", fmt.Errorf("%q: must be Exact, PathPrefix, RegularExpression or Template", m.Type))
}
