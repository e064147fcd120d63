package bucketconfig

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
)

// A limit's name stands in header fields and metrics, so it is as narrow as a DNS label.
var limitName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

func label(field, name string) error {
	if !limitName.MatchString(name) {
		return fmt.Errorf("%s: %.80q is not a DNS label", field, name)
	}
	return nil
}

func (l *Limit) validate() error {
	return firstError(
		label("name", l.Name),
		count("matches", len(l.Matches), MaxMatches),
		each("matches", l.Matches, (*Match).validate),
		count("keyParts", len(l.KeyParts), MaxKeyParts),
		each("keyParts", l.KeyParts, (*KeyPart).validate),
		each("keyParts", l.KeyParts, l.checkTemplates),
		within("bucket", l.Bucket.validate()),
		count("overrides", len(l.Overrides), MaxOverrides),
		each("overrides", l.Overrides, (*Override).validate),
		l.checkOverrideNames(),
		l.validateCost(),
	)
}

// checkTemplates wants a value of PathTemplate and PathVariable to be there in every request that the limit governs.
func (l *Limit) checkTemplates(part *KeyPart) error {
	if part.Type != "PathTemplate" && part.Type != "PathVariable" {
		return nil
	}
	if len(l.Matches) == 0 {
		return fmt.Errorf("%s needs matches, each with a path of type Template", part.Type)
	}
	for i := range l.Matches {
		path := l.Matches[i].Path
		if path == nil || path.Type != "Template" {
			return fmt.Errorf("%s needs a path of type Template in matches[%d]", part.Type, i)
		}
		variables, err := TemplateVariables(path.Value)
		if err != nil {
			return err
		}
		if part.Type == "PathVariable" && !slices.Contains(variables, part.Name) {
			return fmt.Errorf("PathVariable %s is not in the template of matches[%d]", part.Name, i)
		}
	}
	return nil
}

func (l *Limit) checkOverrideNames() error {
	names := make(map[string]bool, len(l.Overrides))
	for i := range l.Overrides {
		if names[l.Overrides[i].Name] {
			return fmt.Errorf("overrides[%d].name: %q stands twice", i, l.Overrides[i].Name)
		}
		names[l.Overrides[i].Name] = true
	}
	return nil
}

// validateCost holds what is known of the cost at most at the smallest capacity that it may meet: more could never pass.
func (l *Limit) validateCost() error {
	smallest := l.Bucket.Capacity
	for i := range l.Overrides {
		if bucket := l.Overrides[i].Bucket; bucket != nil {
			smallest = min(smallest, bucket.Capacity)
		}
	}
	if l.CostSource != nil && len(l.CostRules) > 0 {
		return errors.New("cost_rules: given along with cost_source")
	}
	return firstError(
		inRange("cost", l.Cost, 1, smallest),
		count("cost_rules", len(l.CostRules), MaxCostRules),
		each("cost_rules", l.CostRules, func(rule *CostRule) error {
			return firstError(
				inRange("matches: count", int64(len(rule.Matches)), 1, MaxMatches),
				each("matches", rule.Matches, (*Match).validate),
				inRange("tokens", rule.Tokens, 1, smallest),
			)
		}),
		within("cost_source", l.CostSource.validate(l.Cost, smallest)),
	)
}

// validate holds a cost that is charged into debt at most at the smallest capacity, which is the most that a bucket can owe.
func (s *CostSource) validate(cost, smallest int64) error {
	if s == nil {
		return nil
	}
	maximum := int64(MaxCapacity)
	if s.Type == "ResponseHeader" {
		maximum = smallest
	}
	return firstError(
		oneOf("type", s.Type, "RequestHeader", "ResponseHeader"),
		headerName("header", s.Header),
		inRange("maximum", s.Maximum, cost, maximum),
	)
}

func (o *Override) validate() error {
	if err := firstError(
		label("name", o.Name),
		oneOf("type", o.Type, "Bucket", "Unlimited", "Deny"),
		count("matches", len(o.Matches), MaxMatches),
		each("matches", o.Matches, (*Match).validate),
	); err != nil {
		return err
	}
	if (o.Type == "Bucket") != (o.Bucket != nil) {
		return fmt.Errorf("bucket: must be there iff type is Bucket, not with %s", o.Type)
	}
	if o.Bucket == nil {
		return nil
	}
	return within("bucket", o.Bucket.validate())
}

func (p *KeyPart) validate() error {
	if err := firstError(
		oneOf("type", p.Type, "Header", "ClientIP", "Method", "Host", "PathTemplate", "PathVariable", "Query", "Cookie", "Claim", "Workload", "Expression"),
		oneOf("whenMissing", p.WhenMissing, "Share", "Skip", "Deny"),
	); err != nil {
		return err
	}
	switch p.Type {
	case "Header":
		return headerName("name", p.Name)
	case "PathVariable", "Query", "Cookie", "Claim", "Expression":
		return text("name", p.Name, 1, MaxString)
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
