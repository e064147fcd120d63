package bucketconfig

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"
)

var (
	// hostName is a DNS name or an IPv4 address, or all names below one.
	hostName = regexp.MustCompile(`^(\*\.)?[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$`)
	// portName is what Kubernetes lets a container's port be called.
	portName     = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,13}[a-z0-9])?$`)
	sha256Hex    = regexp.MustCompile(`^[0-9a-f]{64}$`)
	variableName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]{0,31}$`)
)

func (m *Match) validate() error {
	if m.isEmpty() {
		return errors.New("states nothing, and so would fit every request")
	}
	return firstError(
		count("methods", len(m.Methods), MaxMethods),
		each("methods", m.Methods, func(method *string) error { return text("method", *method, 1, MaxString) }),
		within("path", m.Path.validate()),
		count("headers", len(m.Headers), MaxHeaders),
		each("headers", m.Headers, func(h *NamedMatch) error { return firstError(headerName("name", h.Name), h.validate()) }),
		count("hosts", len(m.Hosts), MaxNames),
		each("hosts", m.Hosts, checkHost),
		count("queryParams", len(m.QueryParams), MaxHeaders),
		each("queryParams", m.QueryParams, (*NamedMatch).validate),
		count("cookies", len(m.Cookies), MaxHeaders),
		each("cookies", m.Cookies, (*NamedMatch).validate),
		count("ports", len(m.Ports), MaxNames),
		each("ports", m.Ports, checkPort),
		count("clientCIDRs", len(m.ClientCIDRs), MaxNames),
		each("clientCIDRs", m.ClientCIDRs, checkCIDR),
		within("grpc", m.GRPC.validate()),
		text("when", m.When, 0, MaxString),
	)
}

func (m *Match) isEmpty() bool {
	return len(m.Methods) == 0 && m.Path == nil && len(m.Headers) == 0 && len(m.Hosts) == 0 && len(m.QueryParams) == 0 &&
		len(m.Cookies) == 0 && len(m.Ports) == 0 && len(m.ClientCIDRs) == 0 && m.GRPC == nil && m.When == ""
}

func (p *StringMatch) validate() error {
	if p == nil {
		return nil
	}
	if err := firstError(
		oneOf("type", p.Type, "Exact", "PathPrefix", "RegularExpression", "Template"),
		text("value", p.Value, 1, MaxString),
	); err != nil {
		return err
	}
	if p.Type == "Template" {
		_, err := TemplateVariables(p.Value)
		return within("value", err)
	}
	return nil
}

// TemplateVariables gives the names of a path template's variables in their order. It refuses a template that does not
// start with a slash, a brace that is no part of a variable, a variable that is not one whole element, and a name that
// stands twice or is none: up to 32 letters, digits and _, a letter first.
func TemplateVariables(template string) ([]string, error) {
	if !strings.HasPrefix(template, "/") {
		return nil, fmt.Errorf("%q: must start with /", template)
	}
	var names []string
	for element := range strings.SplitSeq(template[1:], "/") {
		inner, opens := strings.CutPrefix(element, "{")
		name, closes := strings.CutSuffix(inner, "}")
		switch {
		case !strings.ContainsAny(element, "{}"):
			continue
		case !opens || !closes || !variableName.MatchString(name):
			return nil, fmt.Errorf("%q: a variable must be a whole element, {name}, of up to 32 letters, digits and _, a letter first; %q is none", template, element)
		}
		for _, other := range names {
			if other == name {
				return nil, fmt.Errorf("%q: the variable %s stands twice", template, name)
			}
		}
		names = append(names, name)
	}
	return names, nil
}

// comparesValue tells the types of a NamedMatch that compare with Value from those that have Values, or nothing.
func comparesValue(matchType string) bool {
	return matchType == "Exact" || matchType == "Prefix" || matchType == "RegularExpression"
}

func (n *NamedMatch) validate() error {
	if err := firstError(
		text("name", n.Name, 1, MaxString),
		oneOf("type", n.Type, "Exact", "Prefix", "RegularExpression", "Present", "Absent", "In", "InSHA256"),
		text("value", n.Value, 0, MaxString),
		count("values", len(n.Values), MaxValues),
		each("values", n.Values, func(value *string) error { return text("value", *value, 1, MaxString) }),
	); err != nil {
		return err
	}
	if !comparesValue(n.Type) && n.Value != "" {
		return fmt.Errorf("value: %q with type %s", n.Value, n.Type)
	}
	if needsValues := n.Type == "In" || n.Type == "InSHA256"; needsValues != (len(n.Values) > 0) {
		return fmt.Errorf("values: %d with type %s", len(n.Values), n.Type)
	}
	if n.Type == "InSHA256" {
		return each("values", n.Values, checkSHA256)
	}
	return nil
}

func checkSHA256(value *string) error {
	if !sha256Hex.MatchString(*value) {
		return fmt.Errorf("%.80q is no SHA-256 in 64 lower-case hex digits", *value)
	}
	return nil
}

func checkHost(host *string) error {
	if len(*host) > MaxName || !hostName.MatchString(*host) {
		return fmt.Errorf("%.260q is no DNS name in lower case without port, nor *. and one", *host)
	}
	return nil
}

func checkPort(port *string) error {
	if number, err := strconv.Atoi(*port); err == nil && 1 <= number && number <= 65535 && strconv.Itoa(number) == *port {
		return nil
	}
	if !portName.MatchString(*port) || !strings.ContainsAny(*port, "abcdefghijklmnopqrstuvwxyz") || strings.Contains(*port, "--") {
		return fmt.Errorf("%.80q is neither the name of a port nor a number from 1 to 65535", *port)
	}
	return nil
}

func checkCIDR(cidr *string) error {
	_, err := netip.ParsePrefix(*cidr)
	return err
}

func (g *GRPCMatch) validate() error {
	if g == nil {
		return nil
	}
	if g.Service == "" && g.Method == "" {
		return errors.New("states neither service nor method")
	}
	return firstError(text("service", g.Service, 0, MaxString), text("method", g.Method, 0, MaxString))
}

// budget is what further expressions of a record may take.
type budget struct {
	instructions int
	expressions  map[string]bool // of CEL, that are there already
}

func (b *budget) spendExpression(text string) error {
	if b.expressions[text] = true; len(b.expressions) > MaxExpressions {
		return fmt.Errorf("expression %q: all of the policy are more than %d different ones", text, MaxExpressions)
	}
	return nil
}

// spend takes the size of the match's expressions from the budget. A short pattern can be a huge program, and many equal
// ones compress well: without this a small record could take gigabytes.
func (m *Match) spend(budget *budget) error {
	if m.When != "" {
		if err := budget.spendExpression(m.When); err != nil {
			return err
		}
	}
	if m.Path != nil && m.Path.Type == "RegularExpression" {
		if err := spendRegex(m.Path.Value, budget); err != nil {
			return err
		}
	}
	for _, named := range [][]NamedMatch{m.Headers, m.QueryParams, m.Cookies} {
		for _, match := range named {
			if match.Type != "RegularExpression" {
				continue
			}
			if err := spendRegex(match.Value, budget); err != nil {
				return err
			}
		}
	}
	return nil
}

func spendRegex(pattern string, budget *budget) error {
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return fmt.Errorf("regular expression %q: %w", pattern, err)
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return fmt.Errorf("regular expression %q: %w", pattern, err)
	}
	if budget.instructions -= len(program.Inst); budget.instructions < 0 {
		return fmt.Errorf("regular expression %q: all of the policy together compile to more than %d instructions: use fewer or smaller repetitions", pattern, MaxRegexProgram)
	}
	return nil
}
