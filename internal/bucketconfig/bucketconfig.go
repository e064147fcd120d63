// Package bucketconfig is the wire format between manager and sidecars: versioned records of policies, and heartbeats.
//
// The translator and the config store of the control plane write it, the sidecar's snapshot reads it. It is a leaf:
// standard library only, and above all not the Kubernetes API, so that old sidecars keep reading what new managers write.
// Fields are append-only; a new meaning is a new schema version; an unknown version is refused and the last good
// snapshot stays.
package bucketconfig

// Record is one policy as a sidecar needs it. All that a sidecar must know of the policy stands here.
type Record struct {
	Schema     int    `json:"schema"`
	Kind       string `json:"kind"` // "RateLimitPolicy"
	Name       string `json:"name"`
	UID        string `json:"uid"`
	Generation int64  `json:"generation"`
	// Order is greater for a later state of a policy of this name, over deletion and re-creation too. Buckets keep it,
	// so that a sidecar with an older snapshot can't clamp a bucket back. Positive and below 2^53.
	Order    int64     `json:"order"`
	Selector Selector  `json:"selector"`
	Shadow   bool      `json:"shadow,omitempty"`
	ClientIP *ClientIP `json:"clientIP,omitempty"`
	Exempt   []Match   `json:"exempt,omitempty"`
	Limits   []Limit   `json:"limits"`
	Store    Store     `json:"store"`
	Response Response  `json:"response"`
}

// Selector selects pods by labels, evaluated by each sidecar on its own pod. Empty selects all.
type Selector struct {
	MatchLabels      map[string]string     `json:"matchLabels,omitempty"`
	MatchExpressions []SelectorRequirement `json:"matchExpressions,omitempty"`
}

// SelectorRequirement relates a label to values. Operator is In, NotIn, Exists or DoesNotExist.
type SelectorRequirement struct {
	Key      string   `json:"key"`
	Operator string   `json:"operator"`
	Values   []string `json:"values,omitempty"`
}

// ClientIP says how the client's address is found. Type is Peer or XForwardedFor.
type ClientIP struct {
	Type             string   `json:"type"`
	TrustedProxies   []string `json:"trustedProxies,omitempty"` // CIDRs
	IPv4PrefixLength int      `json:"ipv4PrefixLength"`
	IPv6PrefixLength int      `json:"ipv6PrefixLength"`
}

// Match fits a request when all that it states holds. Lists of methods, hosts, ports and CIDRs fit when any entry does;
// of headers, query parameters and cookies all entries must fit.
type Match struct {
	Methods     []string     `json:"methods,omitempty"`
	Path        *StringMatch `json:"path,omitempty"`
	Headers     []NamedMatch `json:"headers,omitempty"`
	Hosts       []string     `json:"hosts,omitempty"` // lower case, no port; "*.example.com" is every name below it
	QueryParams []NamedMatch `json:"queryParams,omitempty"`
	Cookies     []NamedMatch `json:"cookies,omitempty"`
	Ports       []string     `json:"ports,omitempty"`       // names or numbers of protected ports
	ClientCIDRs []string     `json:"clientCIDRs,omitempty"` // needs ClientIP
	GRPC        *GRPCMatch   `json:"grpc,omitempty"`
	When        string       `json:"when,omitempty"` // an expression of CEL that gives a bool
}

// StringMatch compares a path. Type is Exact, PathPrefix, RegularExpression (RE2, whole value) or Template
// (/users/{id}/orders: a variable is one non-empty element).
type StringMatch struct {
	Type  string `json:"type"`
	Value string `json:"value"`
}

// NamedMatch compares a header's joined value, a query parameter or a cookie. Type is Exact, Prefix, RegularExpression
// (RE2, whole value), Present, Absent, In (any of Values) or InSHA256 (Values are SHA-256 of the value in lower-case hex).
type NamedMatch struct {
	Name   string   `json:"name"`
	Type   string   `json:"type"`
	Value  string   `json:"value,omitempty"`  // of Exact, Prefix and RegularExpression
	Values []string `json:"values,omitempty"` // of In and InSHA256
}

// GRPCMatch compares service (package.Service) and method of a gRPC call; an empty one fits all.
type GRPCMatch struct {
	Service string `json:"service,omitempty"`
	Method  string `json:"method,omitempty"`
}

// Limit is one token bucket per set of key values.
type Limit struct {
	Name     string    `json:"name"`
	Matches  []Match   `json:"matches,omitempty"`
	KeyParts []KeyPart `json:"keyParts,omitempty"`
	Bucket   Bucket    `json:"bucket"`
	// Cost is what a request takes, unless CostRules or CostSource say otherwise.
	Cost       int64       `json:"cost"`
	CostRules  []CostRule  `json:"cost_rules,omitempty"`
	CostSource *CostSource `json:"cost_source,omitempty"`
	Shadow     bool        `json:"shadow,omitempty"`
	Overrides  []Override  `json:"overrides,omitempty"`
}

// CostRule is the cost of requests that any of Matches fits. The first rule that fits counts.
type CostRule struct {
	Matches []Match `json:"matches"`
	Tokens  int64   `json:"tokens"`
}

// CostSource reads the cost from a field. Type is RequestHeader: Cost stands for a field that is missing or no integer of
// at least 1; or ResponseHeader, which may be a trailer: Cost is charged before, the rest after the response. More than
// Maximum counts as Maximum.
type CostSource struct {
	Type    string `json:"type"`
	Header  string `json:"header"` // in canonical form
	Maximum int64  `json:"maximum"`
}

// Override replaces the bucket for requests that any of Matches fits; without Matches, for all of the limit's. The first
// that fits counts. Type is Bucket, Unlimited or Deny.
type Override struct {
	Name    string  `json:"name"`
	Type    string  `json:"type"`
	Matches []Match `json:"matches,omitempty"`
	Bucket  *Bucket `json:"bucket,omitempty"` // of type Bucket
}

// KeyPart is one attribute that tells buckets apart. Type is Header, ClientIP, Method, Host, PathTemplate, PathVariable,
// Query, Cookie, Claim, Workload or Expression; WhenMissing is Share, Skip or Deny.
type KeyPart struct {
	Type        string `json:"type"`
	Name        string `json:"name,omitempty"` // of Header (in canonical form), PathVariable, Query, Cookie and Claim; of Expression its text, in CEL
	WhenMissing string `json:"whenMissing"`
}

// Bucket is a token bucket: capacity in tokens, refill tokens per interval.
type Bucket struct {
	Capacity         int64 `json:"capacity"`           // 1..1e9
	RefillTokens     int64 `json:"refill_tokens"`      // 1..1e9
	RefillIntervalUS int64 `json:"refill_interval_us"` // 1 ms..366 days, in microseconds; RefillTokens <= RefillIntervalUS
}

// Store is the failure policy. OnFailure is Local, Open or Closed.
type Store struct {
	TimeoutUS int64  `json:"timeout_us"`
	OnFailure string `json:"onFailure"`
}

// Response says what clients see. RateLimitHeaders is Standard, Legacy, Both or None.
type Response struct {
	RateLimitHeaders string `json:"rateLimitHeaders"`
	StatusCode       int    `json:"statusCode"`
	// ContentType and Body replace problem details where Body is not empty. Body may hold {policy}, {limit}, {retryAfter}.
	ContentType string `json:"contentType,omitempty"`
	Body        string `json:"body,omitempty"`
}

// Share is what a fallback bucket is divided by: the number of ready injected pods that the policy selects, at least 1.
// It lies beside the record, because it changes with every scaling and must not make a new generation.
type Share struct {
	Sidecars int `json:"sidecars"`
}

// Heartbeat is what a sidecar reports of itself.
type Heartbeat struct {
	// Schema is the newest schema version of records that the sidecar reads, too.
	Schema         int    `json:"schema"`
	PodName        string `json:"podName"`
	StartID        string `json:"startId"` // new at each start of the sidecar's process
	SidecarVersion string `json:"sidecarVersion"`
	Revision       string `json:"revision"` // of the config that was applied last; empty before the first
	// Applied lists the policies that this sidecar enforces, in order of their names.
	Applied []AppliedPolicy `json:"applied,omitempty"`
	// Refused lists policies whose record this sidecar could not use; an older good version may still be applied.
	Refused []RefusedPolicy `json:"refused,omitempty"`
	// Fallback is true while at least one Redis master's verdicts are decided locally.
	Fallback      bool  `json:"fallback"`
	FallbackSince int64 `json:"fallback_since_us,omitempty"` // unix time, by the sidecar's clock
}

// AppliedPolicy is a policy in force in a sidecar, with its counters since the sidecar's start.
type AppliedPolicy struct {
	Name       string         `json:"name"`
	UID        string         `json:"uid"`
	Generation int64          `json:"generation"`
	Limits     []LimitCounter `json:"limits,omitempty"`
}

// LimitCounter counts the verdicts of one limit since the sidecar's start.
type LimitCounter struct {
	Name         string `json:"name"`
	Allowed      uint64 `json:"allowed"`
	Denied       uint64 `json:"denied"`
	ShadowDenied uint64 `json:"shadowDenied"`
}

// RefusedPolicy names a record that could not be used, and why.
type RefusedPolicy struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}
