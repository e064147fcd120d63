// Package ratelimit is the domain logic that every part shares: a record compiled into a matcher, a request matched and
// described as the buckets that govern it, and the verdict over them.
//
// The sidecar decides by it, the manager compiles with it before publishing, so that a record that a sidecar would refuse
// ends as a condition. It stays free of Kubernetes, of Redis and of HTTP servers.
package ratelimit

import "time"

// Outcome is what happens to a request.
type Outcome uint8

const (
	// Allowed lets the request pass.
	Allowed Outcome = iota
	// Limited refuses it: a limit is spent, waiting helps (429).
	Limited
	// Denied refuses it for good: a key part is missing where the policy says Deny (403).
	Denied
	// Unavailable refuses it because the store failed and the policy says Closed (503).
	Unavailable
)

// Source says where a verdict was decided.
type Source uint8

const (
	// FromNone is the source of verdicts that needed no bucket.
	FromNone Source = iota
	// FromRedis is the source of verdicts of the shared bucket.
	FromRedis
	// FromLocal is the source of verdicts of the fallback bucket or of a failure mode.
	FromLocal
)

// Verdict is the decision over all limits that govern one request.
type Verdict struct {
	Outcome Outcome
	// By is the limit that answers for a refusal: the one with the longest wait, ties by policy name. Nil when allowed.
	By *Limit
	// Wait is how long until By would admit the cost, if nobody else spends. Zero with Limited: waiting never helps.
	Wait time.Duration
	// Limits has an entry for each limit that governed the request, in the order of the groups.
	Limits []LimitResult
	// Source is FromLocal when any of the limits was decided locally.
	Source Source
}

// LimitResult is one limit's part in a verdict.
type LimitResult struct {
	Limit *Limit
	// Shadow limits are counted and never answer.
	Shadow  bool
	Allowed bool
	// Remaining is the last known level in whole tokens, at most what this sidecar could admit now. Negative: not known,
	// and no field tells it.
	Remaining int64
	// Wait is the time until the cost is covered, zero when allowed or when waiting never helps.
	Wait time.Duration
	// NextToken is the time until the next whole token arrives, zero when the bucket is full.
	NextToken time.Duration
	Source    Source
}
