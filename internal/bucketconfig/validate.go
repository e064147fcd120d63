package bucketconfig

import (
	"errors"
	"fmt"
	"regexp"
)

// Kind is the kind of a policy that a record stands for.
const Kind = "RateLimitPolicy"

// mediaType is the value of a Content-Type field: type, subtype, and parameters in printable ASCII.
var mediaType = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]*/[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]*( *;[ -~]+)?$`)

// Validate checks every bound of a record; it says which field is wrong. A record that passes can be compiled and run at
// a bounded cost in time and memory.
func (r *Record) Validate() error {
	if err := firstError(
		within("schema", knownVersion(r.Schema)),
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

// validateTogether checks what no part can check alone: unique names, the need for clientIP, the sums of expressions,
// and that nothing stands in a record of an older version that this version has no word for.
func (r *Record) validateTogether() error {
	if _, ok := Schema1(r); !ok && r.Schema == 1 {
		return errors.New("schema: version 1 can't express what the record states")
	}
	names := make(map[string]bool, len(r.Limits))
	budget := budget{instructions: MaxRegexProgram, expressions: map[string]bool{}}
	if err := r.checkMatches("exempt", r.Exempt, &budget); err != nil {
		return err
	}
	for i := range r.Limits {
		limit := &r.Limits[i]
		if names[limit.Name] {
			return fmt.Errorf("limits[%d].name: %q stands twice", i, limit.Name)
		}
		names[limit.Name] = true
		for j, part := range limit.KeyParts {
			if part.Type == "Expression" {
				if err := budget.spendExpression(part.Name); err != nil {
					return fmt.Errorf("limits[%d].keyParts[%d]: %w", i, j, err)
				}
			}
			if part.Type == "ClientIP" && r.ClientIP == nil {
				return fmt.Errorf("limits[%d].keyParts: ClientIP needs clientIP", i)
			}
		}
		if err := r.checkLimitMatches(fmt.Sprintf("limits[%d]", i), limit, &budget); err != nil {
			return err
		}
	}
	return nil
}

func (r *Record) checkLimitMatches(field string, limit *Limit, budget *budget) error {
	if err := r.checkMatches(field+".matches", limit.Matches, budget); err != nil {
		return err
	}
	for i := range limit.CostRules {
		if err := r.checkMatches(fmt.Sprintf("%s.cost_rules[%d].matches", field, i), limit.CostRules[i].Matches, budget); err != nil {
			return err
		}
	}
	for i := range limit.Overrides {
		if err := r.checkMatches(fmt.Sprintf("%s.overrides[%d].matches", field, i), limit.Overrides[i].Matches, budget); err != nil {
			return err
		}
	}
	return nil
}

func (r *Record) checkMatches(field string, matches []Match, budget *budget) error {
	return each(field, matches, func(match *Match) error {
		if len(match.ClientCIDRs) > 0 && r.ClientIP == nil {
			return errors.New("clientCIDRs needs clientIP")
		}
		return match.spend(budget)
	})
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
		each("trustedProxies", c.TrustedProxies, checkCIDR),
		inRange("ipv4PrefixLength", int64(c.IPv4PrefixLength), 0, 32),
		inRange("ipv6PrefixLength", int64(c.IPv6PrefixLength), 0, 128),
	)
}

func (s *Store) validate() error {
	return firstError(
		inRange("timeout_us", s.TimeoutUS, MinTimeoutUS, MaxTimeoutUS),
		oneOf("onFailure", s.OnFailure, "Local", "Open", "Closed"),
	)
}

func (r *Response) validate() error {
	if (r.ContentType == "") != (r.Body == "") {
		return errors.New("contentType and body: one is there without the other")
	}
	if r.ContentType != "" && !mediaType.MatchString(r.ContentType) {
		return fmt.Errorf("contentType: %.260q is no media type", r.ContentType)
	}
	return firstError(
		oneOf("rateLimitHeaders", r.RateLimitHeaders, "Standard", "Legacy", "Both", "None"),
		inRange("statusCode", int64(r.StatusCode), 400, 599),
		text("contentType", r.ContentType, 0, MaxName),
		text("body", r.Body, 0, MaxBody),
	)
}
