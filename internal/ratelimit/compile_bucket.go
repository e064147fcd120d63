package ratelimit

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/portero-dev/portero/internal/bucketconfig"
)

// overrides compiles a limit's overrides, once its matches and bucket are.
func (c *compiler) overrides(limit *Limit) error {
	configs := limit.Config.Overrides
	if len(configs) > bucketconfig.MaxOverrides {
		return tooMany("overrides", len(configs), bucketconfig.MaxOverrides)
	}
	names := make(map[string]bool, len(configs))
	for i := range configs {
		config, field := &configs[i], fmt.Sprintf("overrides[%d]", i)
		if !isFieldName(config.Name) {
			return invalid(field+".name", fmt.Errorf("%q: must be lower-case letters, digits, dashes and dots", config.Name))
		}
		if names[config.Name] {
			return invalid(field+".name", fmt.Errorf("%q stands twice: names of overrides must differ", config.Name))
		}
		names[config.Name] = true
		compiled := override{config: config}
		var err error
		if compiled.limit, err = overriding(field, limit, config); err != nil {
			return err
		}
		if compiled.matches, err = c.matches(field+".matches", config.Matches); err != nil {
			return err
		}
		limit.overrides.add(compiled)
	}
	return nil
}

// overriding is the limit with the bucket of an override, which has a record of its own beside the limit's.
func overriding(field string, limit *Limit, config *bucketconfig.Override) (*Limit, error) {
	switch config.Type {
	case overrideBucket:
	case overrideUnlimited, overrideDeny:
		if config.Bucket != nil {
			return nil, invalid(field+".bucket", fmt.Errorf("must be set only when type is Bucket, not %s", config.Type))
		}
		return nil, nil
	default:
		return nil, invalid(field+".type", fmt.Errorf("%q: must be Bucket, Unlimited or Deny", config.Type))
	}
	if config.Bucket == nil {
		return nil, invalid(field+".bucket", errors.New("must be set when type is Bucket"))
	}
	if err := checkBucket(field+".bucket", config.Bucket); err != nil {
		return nil, err
	}
	own := *limit.Config
	own.Bucket = *config.Bucket
	return &Limit{
		Policy:        limit.Policy,
		Config:        &own,
		Override:      config,
		ID:            limitID(limit.Config.Name, config.Name),
		Shadow:        limit.Shadow,
		QualifiedName: limit.QualifiedName,
		WindowSeconds: windowSeconds(config.Bucket),
	}, nil
}

// cost compiles what a request costs. What the policy itself names must fit every bucket that the limit can have; what a
// request names may exceed it, and is refused then.
func (c *compiler) cost(limit *Limit) error {
	config := limit.Config
	smallest, where := config.Bucket.Capacity, "the bucket's capacity"
	for i := range config.Overrides {
		if b := config.Overrides[i].Bucket; b != nil && b.Capacity < smallest {
			smallest, where = b.Capacity, fmt.Sprintf("the capacity of the override %q", config.Overrides[i].Name)
		}
	}
	check := func(field string, tokens int64) error {
		if tokens < 1 || tokens > smallest {
			return invalid(field, fmt.Errorf("%d: must be 1 to %s, %d, else it could never be paid", tokens, where, smallest))
		}
		return nil
	}
	if len(config.CostRules) > bucketconfig.MaxCostRules {
		return tooMany("cost.fixed.rules", len(config.CostRules), bucketconfig.MaxCostRules)
	}
	for i := range config.CostRules {
		rule, field := &config.CostRules[i], fmt.Sprintf("cost.fixed.rules[%d]", i)
		if err := check(field+".tokens", rule.Tokens); err != nil {
			return err
		}
		if len(rule.Matches) == 0 {
			return invalid(field+".matches", errors.New("is empty: state which requests cost this"))
		}
		matches, err := c.matches(field+".matches", rule.Matches)
		if err != nil {
			return err
		}
		limit.costRules = append(limit.costRules, costRule{matches: matches, tokens: rule.Tokens})
	}
	if config.CostSource == nil {
		return check("cost.fixed.tokens", config.Cost)
	}
	return c.costSource(limit, config.CostSource, check)
}

func (c *compiler) costSource(limit *Limit, source *bucketconfig.CostSource, check func(string, int64) error) error {
	field, checkName := "cost.requestHeader", checkHeaderName
	switch source.Type {
	case costRequestHeader:
		limit.costHeader = c.attribute(headerAttribute, http.CanonicalHeaderKey(source.Header))
	case costResponseHeader:
		field, checkName = "cost.responseHeader", checkResponseField
	default:
		return invalid("cost.type", fmt.Errorf("%q: must be RequestHeader or ResponseHeader", source.Type))
	}
	if err := checkName(field+".name", source.Header); err != nil {
		return err
	}
	if len(limit.costRules) > 0 {
		return invalid("cost", errors.New("has rules and a header: state one of both"))
	}
	if source.Maximum < limit.Config.Cost || source.Maximum > bucketconfig.MaxCapacity {
		return invalid(field+".maximum", fmt.Errorf("%d: must be from the default, %d, to %d", source.Maximum, limit.Config.Cost, bucketconfig.MaxCapacity))
	}
	if source.Type == costResponseHeader { // more than one capacity can't be owed
		return check(field+".maximum", source.Maximum)
	}
	return check(field+".default", limit.Config.Cost)
}
