package bucketconfig

import (
	"errors"
	"fmt"
	"net/netip"
	"net/textproto"
	"regexp"
	"regexp/syntax"
	"unicode/utf8"
)

// Kind is the kind of a policy that a record stands for.
const Kind = "RateLimitPolicy"

// A limit's name stands in header fields and metrics, so it is as narrow as a DNS label.
var limitName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// Validate checks every bound of a record; it says which field is wrong. A record that passes can be compiled and run at
// a bounded cost in time and memory.
func (r *Record) Validate() error {
	if r.Schema != SchemaVersion {
		return fmt.Errorf("schema: %w", &VersionError{Version: r.Schema})
	}
	if err := firstError(
		oneOf("kind", r.Kind, Kind),
		text("name", r.Name, 1, MaxName),
		text("uid", r.UID, 1, MaxName),
		atLeast("generation", r.Generation, 1),
		inRange("order", r.Order, 1, MaxOrder),
		within("selector", r.Selector.validate()),
		within("clientIP", r.ClientIP.validate()),
		count("exempt", len(r.Exempt), MaxMatches),
		each("exempt", r.Exempt, (*Match).validate),
		inRange("limits: count", int64(len(r.Limits)), 1, MaxLimits),
		each("limits", r.Limits, (*Limit).validate),
		within("store", r.Store.validate()),
		within("response", r.Response.validate()),
	); err != nil {
		return err
	}
	return r.validateTogether()
}

// validateTogether checks what no part can check alone: unique names, the need for clientIP, the regular expressions' sum.
func (r *Record) validateTogether() error {
	names := make(map[string]bool, len(r.Limits))
	budget := MaxRegexProgram
	matches := r.Exempt
	for i := range r.Limits {
		limit := &r.Limits[i]
		if names[limit.Name] {
			return fmt.Errorf("limits[%d].name: %q stands twice", i, limit.Name)
		}
		names[limit.Name] = true
		for _, part := range limit.KeyParts {
			if part.Type == "ClientIP" && r.ClientIP == nil {
				return fmt.Errorf("limits[%d].keyParts: ClientIP needs clientIP", i)
			}
		}
		matches = append(matches[:len(matches):len(matches)], limit.Matches...)
	}
	for i := range matches {
		if err := matches[i].spend(&budget); err != nil {
			return err
		}
	}
	return nil
}

func (s *Selector) validate() error {
	if err := firstError(
		count("matchLabels", len(s.MatchLabels), MaxSelectorLabels),
		count("matchExpressions", len(s.MatchExpressions), MaxSelectorLabels),
		each("matchExpressions", s.MatchExpressions, (*SelectorRequirement).validate),
	); err != nil {
		return err
	}
	for key, value := range s.MatchLabels {
		if err := firstError(text("matchLabels: key", key, 1, MaxString), text("matchLabels: value", value, 0, MaxString)); err != nil {
			return err
		}
	}
	return nil
}

func (q *SelectorRequirement) validate() error {
	err := firstError(
		text("key", q.Key, 1, MaxString),
		oneOf("operator", q.Operator, "In", "NotIn", "Exists", "DoesNotExist"),
		count("values", len(q.Values), MaxSelectorLabels),
		each("values", q.Values, func(value *string) error { return text("value", *value, 0, MaxString) }),
	)
	if err != nil {
		return err
	}
	if needsValues := q.Operator == "In" || q.Operator == "NotIn"; needsValues != (len(q.Values) > 0) {
		return fmt.Errorf("values: %d with operator %s", len(q.Values), q.Operator)
	}
	return nil
}

func (c *ClientIP) validate() error {
	if c == nil {
		return nil
	}
	if (c.Type == "XForwardedFor") != (len(c.TrustedProxies) > 0) {
		return fmt.Errorf("trustedProxies: %d with type %q", len(c.TrustedProxies), c.Type)
	}
	return firstError(
		oneOf("type", c.Type, "Peer", "XForwardedFor"),
		count("trustedProxies", len(c.TrustedProxies), MaxTrustedProxies),
		each("trustedProxies", c.TrustedProxies, func(cidr *string) error {
			_, err := netip.ParsePrefix(*cidr)
			return err
		}),
		inRange("ipv4PrefixLength", int64(c.IPv4PrefixLength), 0, 32),
		inRange("ipv6PrefixLength", int64(c.IPv6PrefixLength), 0, 128),
	)
}

func (m *Match) validate() error {
	if len(m.Methods) == 0 && m.Path == nil && len(m.Headers) == 0 {
		return errors.New("states nothing, and so would fit every request")
	}
	if m.Path != nil {
		if err := firstError(
			oneOf("path.type", m.Path.Type, "Exact", "PathPrefix", "RegularExpression"),
			text("path.value", m.Path.Value, 1, MaxString),
		); err != nil {
			return err
		}
	}
	return firstError(
		count("methods", len(m.Methods), MaxMethods),
		each("methods", m.Methods, func(method *string) error { return text("method", *method, 1, MaxString) }),
		count("headers", len(m.Headers), MaxHeaders),
		each("headers", m.Headers, (*NamedMatch).validateHeader),
	)
}

func (h *NamedMatch) validateHeader() error {
	return firstError(
		headerName("name", h.Name),
		oneOf("type", h.Type, "Exact", "Prefix", "RegularExpression"),
		text("value", h.Value, 0, MaxString),
	)
}

// spend takes the size of the match's regular expressions from the budget. A short pattern can be a huge program, and
// many equal ones compress well: without this a small record could take gigabytes.
func (m *Match) spend(budget *int) error {
	if m.Path != nil && m.Path.Type == "RegularExpression" {
		if err := spendRegex(m.Path.Value, budget); err != nil {
			return err
		}
	}
	for _, header := range m.Headers {
		if header.Type == "RegularExpression" {
			if err := spendRegex(header.Value, budget); err != nil {
				return err
			}
		}
	}
	return nil
}

func spendRegex(pattern string, budget *int) error {
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return fmt.Errorf("regular expression %q: %w", pattern, err)
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return fmt.Errorf("regular expression %q: %w", pattern, err)
	}
	if *budget -= len(program.Inst); *budget < 0 {
		return fmt.Errorf("regular expression %q: all of the policy together compile to more than %d instructions: use fewer or smaller repetitions", pattern, MaxRegexProgram)
	}
	return nil
}

func (l *Limit) validate() error {
	if !limitName.MatchString(l.Name) {
		return fmt.Errorf("name: %q is not a DNS label", l.Name)
	}
	if err := firstError(
		count("matches", len(l.Matches), MaxMatches),
		each("matches", l.Matches, (*Match).validate),
		count("keyParts", len(l.KeyParts), MaxKeyParts),
		each("keyParts", l.KeyParts, (*KeyPart).validate),
		within("bucket", l.Bucket.validate()),
	); err != nil {
		return err
	}
	return inRange("cost", l.Cost, 1, l.Bucket.Capacity)
}

func (p *KeyPart) validate() error {
	if err := firstError(
		oneOf("type", p.Type, "Header", "ClientIP"),
		oneOf("whenMissing", p.WhenMissing, "Share", "Skip", "Deny"),
	); err != nil {
		return err
	}
	if p.Type == "Header" {
		return headerName("name", p.Name)
	}
	return text("name", p.Name, 0, 0)
}

func (b *Bucket) validate() error {
	if err := firstError(
		inRange("capacity", b.Capacity, 1, MaxCapacity),
		inRange("refill_tokens", b.RefillTokens, 1, MaxCapacity),
		inRange("refill_interval_us", b.RefillIntervalUS, MinIntervalUS, MaxIntervalUS),
	); err != nil {
		return err
	}
	if b.RefillTokens > b.RefillIntervalUS {
		return fmt.Errorf("refill_tokens: %d in %d µs is more than one token per µs", b.RefillTokens, b.RefillIntervalUS)
	}
	return nil
}

func (s *Store) validate() error {
	return firstError(
		inRange("timeout_us", s.TimeoutUS, MinTimeoutUS, MaxTimeoutUS),
		oneOf("onFailure", s.OnFailure, "Local", "Open", "Closed"),
	)
}

func (r *Response) validate() error {
	return firstError(
		oneOf("rateLimitHeaders", r.RateLimitHeaders, "Standard", "Legacy", "None"),
		inRange("statusCode", int64(r.StatusCode), 400, 599),
	)
}

// headerName wants the canonical form, as Go keys headers by it: another spelling would never be found.
func headerName(field, name string) error {
	if err := text(field, name, 1, MaxString); err != nil {
		return err
	}
	if canonical := textproto.CanonicalMIMEHeaderKey(name); canonical != name {
		return fmt.Errorf("%s: %q is not the canonical %q", field, name, canonical)
	}
	return nil
}

func text(field, value string, least, most int) error {
	if len(value) < least || len(value) > most {
		return fmt.Errorf("%s: %d bytes are outside %d..%d", field, len(value), least, most)
	}
	if !utf8.ValidString(value) {
		return fmt.Errorf("%s: %q is not UTF-8", field, value)
	}
	return nil
}

func oneOf(field, value string, allowed ...string) error {
	for _, one := range allowed {
		if value == one {
			return nil
		}
	}
	if len(value) > 64 {
		value = value[:64]
	}
	return fmt.Errorf("%s: %q is none of %q", field, value, allowed)
}

func count(field string, got, most int) error {
	if got > most {
		return fmt.Errorf("%s: %d are more than %d", field, got, most)
	}
	return nil
}

func inRange(field string, value, least, most int64) error {
	if value < least || value > most {
		return fmt.Errorf("%s: %d is outside %d..%d", field, value, least, most)
	}
	return nil
}

func atLeast(field string, value, least int64) error {
	if value < least {
		return fmt.Errorf("%s: %d is below %d", field, value, least)
	}
	return nil
}

func within(field string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", field, err)
}

func each[T any](field string, items []T, check func(*T) error) error {
	for i := range items {
		if err := check(&items[i]); err != nil {
			return fmt.Errorf("%s[%d]: %w", field, i, err)
		}
	}
	return nil
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
