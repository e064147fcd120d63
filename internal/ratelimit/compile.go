package ratelimit

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/keyspace"
)

const (
	whenMissingShare = "Share"
	whenMissingSkip  = "Skip"
	whenMissingDeny  = "Deny"

	costRequestHeader  = "RequestHeader"
	costResponseHeader = "ResponseHeader"

	overrideBucket    = "Bucket"
	overrideUnlimited = "Unlimited"
	overrideDeny      = "Deny"

	// maxFieldInteger is the largest integer of a structured field (RFC 9651).
	maxFieldInteger = 999_999_999_999_999
)

// InvalidError is a record that can't be enforced.
type InvalidError struct {
	Policy string
	Limit  string // empty when the fault lies outside of the limits
	// Field is the path of the field as the API spells it, relative to the limit if there is one, else to the spec.
	Field string
	// Err tells the bad value and the way out.
	Err error
}

// Error names policy, limit, field, value and way out.
func (e *InvalidError) Error() string {
	where := fmt.Sprintf("policy %q: ", e.Policy)
	if e.Limit != "" {
		where += fmt.Sprintf("limit %q: ", e.Limit)
	}
	return where + e.Field + ": " + e.Err.Error()
}

// Unwrap gives the cause.
func (e *InvalidError) Unwrap() error { return e.Err }

func invalid(field string, err error) error { return &InvalidError{Field: field, Err: err} }

func tooMany(field string, got, most int) error {
	return invalid(field, fmt.Errorf("has %d entries: must be at most %d", got, most))
}

// tooLong checks a text that a request is compared with.
func tooLong(field, text string) error {
	if len(text) > bucketconfig.MaxString {
		return invalid(field, fmt.Errorf("has %d bytes: must be at most %d", len(text), bucketconfig.MaxString))
	}
	return nil
}

// Compile checks a record and makes it ready to match. keySecret keys the tags of buckets (keyspace.Tagger); the manager,
// which compiles only to check, passes nil. The record is borrowed and must not change afterwards. Every error is an
// *InvalidError.
func Compile(rec *bucketconfig.Record, keySecret []byte) (*Policy, error) {
	c := compiler{
		policy:      &Policy{Record: rec, tagger: keyspace.NewTagger(keySecret)},
		regexBudget: bucketconfig.MaxRegexProgram,
		attributes:  map[attribute]uint16{},
		expressions: map[expressionText]uint16{},
		costBudget:  bucketconfig.MaxExpressionCost,
	}
	if err := c.compile(); err != nil {
		var ie *InvalidError
		if errors.As(err, &ie) {
			ie.Policy = rec.Name
		}
		return nil, err
	}
	return c.policy, nil
}

// compiler fills a policy.
type compiler struct {
	policy *Policy
	// regexBudget is how many instructions further regular expressions may have.
	regexBudget int
	// attributes are the places of those that the policy asks for already.
	attributes map[attribute]uint16
	// expressions are the places of those that are compiled already, and costBudget is what further ones may cost.
	expressions map[expressionText]uint16
	costBudget  uint64
}

// attribute is the place of an attribute among the policy's.
func (c *compiler) attribute(kind attributeKind, name string) uint16 {
	asked := attribute{kind, name}
	place, known := c.attributes[asked]
	if !known {
		place = uint16(len(c.policy.attributes))
		c.attributes[asked] = place
		c.policy.attributes = append(c.policy.attributes, asked)
	}
	return place
}

func (c *compiler) compile() error {
	p := c.policy
	rec := p.Record
	if err := checkRecord(rec); err != nil {
		return err
	}
	var err error
	if p.clientIP, err = compileClientIP(rec.ClientIP); err != nil {
		return err
	}
	if p.exempt, err = c.matches("exempt", rec.Exempt); err != nil {
		return err
	}
	for i := range rec.Limits {
		limit, err := c.limit(&rec.Limits[i])
		if err != nil {
			var ie *InvalidError
			if errors.As(err, &ie) {
				ie.Limit = rec.Limits[i].Name
			}
			return err
		}
		if slices.ContainsFunc(p.Limits, func(l *Limit) bool { return l.Config.Name == limit.Config.Name }) {
			return invalid("limits", fmt.Errorf("name %q stands twice: names of limits must differ", limit.Config.Name))
		}
		p.Limits = append(p.Limits, limit)
	}
	return nil
}

func checkRecord(rec *bucketconfig.Record) error {
	switch {
	case rec.Schema < bucketconfig.OldestSchemaVersion || rec.Schema > bucketconfig.SchemaVersion:
		return invalid("schema", fmt.Errorf("%d: this version reads schema %d to %d", rec.Schema, bucketconfig.OldestSchemaVersion, bucketconfig.SchemaVersion))
	case rec.Kind == "":
		return invalid("kind", errors.New("is empty"))
	case !isFieldName(rec.Name):
		return invalid("name", fmt.Errorf("%q: must be a DNS subdomain", rec.Name))
	case rec.Order < 1 || rec.Order > bucketconfig.MaxOrder:
		return invalid("order", fmt.Errorf("%d: must be 1 to %d", rec.Order, int64(bucketconfig.MaxOrder)))
	case len(rec.Limits) < 1 || len(rec.Limits) > bucketconfig.MaxLimits:
		return invalid("limits", fmt.Errorf("has %d entries: must be 1 to %d", len(rec.Limits), bucketconfig.MaxLimits))
	case rec.Store.TimeoutUS < bucketconfig.MinTimeoutUS || rec.Store.TimeoutUS > bucketconfig.MaxTimeoutUS:
		return invalid("store.timeout", fmt.Errorf("%dus: must be 1ms to 1s", rec.Store.TimeoutUS))
	case !slices.Contains([]string{"Local", "Open", "Closed"}, rec.Store.OnFailure):
		return invalid("store.onFailure", fmt.Errorf("%q: must be Local, Open or Closed", rec.Store.OnFailure))
	case !slices.Contains([]string{"Standard", "Legacy", "Both", "None"}, rec.Response.RateLimitHeaders):
		return invalid("response.rateLimitHeaders", fmt.Errorf("%q: must be Standard, Legacy, Both or None", rec.Response.RateLimitHeaders))
	case rec.Response.StatusCode < 400 || rec.Response.StatusCode > 599:
		return invalid("response.statusCode", fmt.Errorf("%d: must be 400 to 599", rec.Response.StatusCode))
	}
	return checkSelector(&rec.Selector)
}

// isFieldName says whether a name can stand in a quoted string of a field as it is.
func isFieldName(name string) bool {
	if name == "" || len(name) > 253 {
		return false
	}
	for i := 0; i < len(name); i++ {
		if c := name[i]; !('a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '.') {
			return false
		}
	}
	return true
}

func (c *compiler) limit(config *bucketconfig.Limit) (*Limit, error) {
	p := c.policy
	limit := &Limit{
		Policy:        p,
		Config:        config,
		ID:            limitID(config.Name),
		Shadow:        p.Record.Shadow || config.Shadow,
		QualifiedName: p.Record.Name + "/" + config.Name,
	}
	if !isFieldName(config.Name) {
		return nil, invalid("name", fmt.Errorf("%q: must be lower-case letters, digits, dashes and dots", config.Name))
	}
	if err := checkBucket("bucket", &config.Bucket); err != nil {
		return nil, err
	}
	limit.WindowSeconds = windowSeconds(&config.Bucket)
	var err error
	if limit.matches, err = c.matches("matches", config.Matches); err != nil {
		return nil, err
	}
	if err := c.overrides(limit); err != nil {
		return nil, err
	}
	if err := c.cost(limit); err != nil {
		return nil, err
	}
	return limit, c.addToKeySet(limit)
}

func checkBucket(field string, b *bucketconfig.Bucket) error {
	switch {
	case b.Capacity < 1 || b.Capacity > bucketconfig.MaxCapacity:
		return invalid(field+".capacity", fmt.Errorf("%d: must be 1 to %d", b.Capacity, bucketconfig.MaxCapacity))
	case b.RefillTokens < 1 || b.RefillTokens > bucketconfig.MaxCapacity:
		return invalid(field+".refill.tokens", fmt.Errorf("%d: must be 1 to %d", b.RefillTokens, bucketconfig.MaxCapacity))
	case b.RefillIntervalUS < bucketconfig.MinIntervalUS || b.RefillIntervalUS > bucketconfig.MaxIntervalUS:
		return invalid(field+".refill.interval", fmt.Errorf("%dus: must be 1ms to 366 days", b.RefillIntervalUS))
	case b.RefillTokens > b.RefillIntervalUS:
		return invalid(field+".refill", fmt.Errorf("%d tokens per %dus: must be at most 1 token per microsecond", b.RefillTokens, b.RefillIntervalUS))
	}
	return nil
}

// windowSeconds is ceil(capacity * interval / refill) in seconds. The product takes up to 75 bits.
func windowSeconds(b *bucketconfig.Bucket) int64 {
	hi, lo := bits.Mul64(uint64(b.Capacity), uint64(b.RefillIntervalUS))
	divisor := uint64(b.RefillTokens) * 1_000_000
	if hi >= divisor {
		return maxFieldInteger
	}
	quotient, remainder := bits.Div64(hi, lo, divisor)
	if remainder > 0 {
		quotient++
	}
	return int64(min(quotient, maxFieldInteger))
}

// limitID is the first 64 bits of SHA-256 over the length-prefixed names of a limit and, if there is one, an override.
// Whatever else may come to tell records apart is appended behind them.
func limitID(names ...string) uint64 {
	var b []byte
	for _, name := range names {
		b = append(binary.BigEndian.AppendUint64(b, uint64(len(name))), name...)
	}
	sum := sha256.Sum256(b)
	return binary.BigEndian.Uint64(sum[:])
}
