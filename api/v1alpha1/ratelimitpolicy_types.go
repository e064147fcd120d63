package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// RateLimitPolicy gives the pods that it selects shared token buckets.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=rlp,categories=portero
type RateLimitPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what the policy's author wants.
	// +required
	Spec RateLimitPolicySpec `json:"spec"`
	// status is what is really enforced.
	// +optional
	Status RateLimitPolicyStatus `json:"status,omitempty"`
}

// RateLimitPolicyList is a list of policies.
//
// +kubebuilder:object:root=true
type RateLimitPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []RateLimitPolicy `json:"items"`
}

// Mode says whether verdicts are carried out or only counted.
// +kubebuilder:validation:Enum=Enforce;Shadow
type Mode string

const (
	// ModeEnforce refuses what exceeds a limit.
	ModeEnforce Mode = "Enforce"
	// ModeShadow decides and counts, but never refuses.
	ModeShadow Mode = "Shadow"
)

// RateLimitPolicySpec is the wanted state of a policy.
type RateLimitPolicySpec struct {
	Selector LabelSelector  `json:"selector"`
	Mode     Mode           `json:"mode,omitempty"`
	ClientIP *ClientIP      `json:"clientIP,omitempty"`
	Exempt   []RequestMatch `json:"exempt,omitempty"`
	Limits   []Limit        `json:"limits"`
	Store    Store          `json:"store,omitempty"`
	Response Response       `json:"response,omitempty"`
}

// LabelSelector has the JSON of metav1.LabelSelector, with bounds. The empty selector selects all pods of the namespace.
type LabelSelector struct {
	MatchLabels      map[string]string          `json:"matchLabels,omitempty"`
	MatchExpressions []LabelSelectorRequirement `json:"matchExpressions,omitempty"`
}

// LabelSelectorRequirement relates a key to values.
type LabelSelectorRequirement struct {
	Key      string                `json:"key"`
	Operator LabelSelectorOperator `json:"operator"`
	Values   []string              `json:"values,omitempty"`
}

// LabelSelectorOperator relates a label's value to a requirement's values.
// +kubebuilder:validation:Enum=In;NotIn;Exists;DoesNotExist
type LabelSelectorOperator string

// Operators of a LabelSelectorRequirement.
const (
	LabelSelectorOpIn           LabelSelectorOperator = "In"
	LabelSelectorOpNotIn        LabelSelectorOperator = "NotIn"
	LabelSelectorOpExists       LabelSelectorOperator = "Exists"
	LabelSelectorOpDoesNotExist LabelSelectorOperator = "DoesNotExist"
)

// ClientIPType says where the client's address is read.
// +kubebuilder:validation:Enum=Peer;XForwardedFor
type ClientIPType string

const (
	// ClientIPPeer takes the address of the TCP peer.
	ClientIPPeer ClientIPType = "Peer"
	// ClientIPXForwardedFor reads X-Forwarded-For from right to left past the trusted proxies.
	ClientIPXForwardedFor ClientIPType = "XForwardedFor"
)

// ClientIP says how a client's address is found and how much of it identifies one client.
type ClientIP struct {
	Type             ClientIPType   `json:"type"`
	XForwardedFor    *XForwardedFor `json:"xForwardedFor,omitempty"`
	IPv4PrefixLength *int32         `json:"ipv4PrefixLength,omitempty"`
	IPv6PrefixLength *int32         `json:"ipv6PrefixLength,omitempty"`
}

// XForwardedFor names the proxies whose X-Forwarded-For entries are believed.
type XForwardedFor struct {
	TrustedProxies []string `json:"trustedProxies"`
}

// RequestMatch matches a request when all that it states holds; at least one field must be set.
type RequestMatch struct {
	Methods []string      `json:"methods,omitempty"`
	Path    *PathMatch    `json:"path,omitempty"`
	Headers []HeaderMatch `json:"headers,omitempty"`
}

// PathMatchType says how a path match's value is compared.
// +kubebuilder:validation:Enum=Exact;PathPrefix;RegularExpression
type PathMatchType string

// Types of a PathMatch.
const (
	PathMatchExact             PathMatchType = "Exact"
	PathMatchPathPrefix        PathMatchType = "PathPrefix"
	PathMatchRegularExpression PathMatchType = "RegularExpression"
)

// PathMatch compares the path of a request, without its query.
type PathMatch struct {
	Type  PathMatchType `json:"type,omitempty"`
	Value string        `json:"value"`
}

// HeaderMatchType says how a header match's value is compared.
// +kubebuilder:validation:Enum=Exact;Prefix;RegularExpression
type HeaderMatchType string

// Types of a HeaderMatch.
const (
	HeaderMatchExact             HeaderMatchType = "Exact"
	HeaderMatchPrefix            HeaderMatchType = "Prefix"
	HeaderMatchRegularExpression HeaderMatchType = "RegularExpression"
)

// HeaderMatch compares one header; repeated headers are joined by ", " in their order first.
type HeaderMatch struct {
	Type  HeaderMatchType `json:"type,omitempty"`
	Name  string          `json:"name"`
	Value string          `json:"value"`
}

// Limit is one token bucket per set of key values.
type Limit struct {
	Name     string         `json:"name"`
	Matches  []RequestMatch `json:"matches,omitempty"`
	KeyParts []KeyPart      `json:"keyParts,omitempty"`
	Bucket   Bucket         `json:"bucket"`
	Cost     Cost           `json:"cost,omitempty"`
}

// KeyPartType says which attribute of a request is part of a bucket's key.
// +kubebuilder:validation:Enum=Header;ClientIP
type KeyPartType string

// Types of a KeyPart.
const (
	KeyPartHeader   KeyPartType = "Header"
	KeyPartClientIP KeyPartType = "ClientIP"
)

// WhenMissing says what happens to a request that lacks a key part.
// +kubebuilder:validation:Enum=Share;Skip;Deny
type WhenMissing string

const (
	// WhenMissingShare puts all requests without the value into one bucket.
	WhenMissingShare WhenMissing = "Share"
	// WhenMissingSkip lets the request pass this limit uncounted.
	WhenMissingSkip WhenMissing = "Skip"
	// WhenMissingDeny refuses the request with 403.
	WhenMissingDeny WhenMissing = "Deny"
)

// KeyPart tells one bucket of a limit from another.
type KeyPart struct {
	Type     KeyPartType      `json:"type"`
	Header   *HeaderKeyPart   `json:"header,omitempty"`
	ClientIP *ClientIPKeyPart `json:"clientIP,omitempty"`
}

// HeaderKeyPart takes the value of a request header.
type HeaderKeyPart struct {
	Name        string      `json:"name"`
	WhenMissing WhenMissing `json:"whenMissing,omitempty"`
}

// ClientIPKeyPart takes the client's address as spec.clientIP finds it.
type ClientIPKeyPart struct {
	WhenMissing WhenMissing `json:"whenMissing,omitempty"`
}

// Bucket is a token bucket: it holds up to capacity tokens and refills evenly.
type Bucket struct {
	Capacity int64  `json:"capacity"`
	Refill   Refill `json:"refill"`
}

// Refill adds tokens evenly over each interval.
type Refill struct {
	Tokens   int64    `json:"tokens"`
	Interval Duration `json:"interval"`
}

// Duration is a string of one to four numbers with a unit each, of h, m, s, ms: "1h30m", "500ms".
type Duration string

// CostType says where a request's cost comes from.
// +kubebuilder:validation:Enum=Fixed
type CostType string

// CostFixed takes the same cost for every request.
const CostFixed CostType = "Fixed"

// Cost is how many tokens a request takes.
type Cost struct {
	Type  CostType   `json:"type,omitempty"`
	Fixed *FixedCost `json:"fixed,omitempty"`
}

// FixedCost takes the same number of tokens for every request.
type FixedCost struct {
	Tokens int64 `json:"tokens,omitempty"`
}

// OnFailure says what happens while Redis can't answer.
// +kubebuilder:validation:Enum=Local;Open;Closed
type OnFailure string

const (
	// OnFailureLocal holds each replica to its share of the limit.
	OnFailureLocal OnFailure = "Local"
	// OnFailureOpen admits.
	OnFailureOpen OnFailure = "Open"
	// OnFailureClosed answers 503.
	OnFailureClosed OnFailure = "Closed"
)

// Store says how long a verdict may take and what happens when Redis fails.
type Store struct {
	Timeout   Duration  `json:"timeout,omitempty"`
	OnFailure OnFailure `json:"onFailure,omitempty"`
}

// RateLimitHeaders says which fields tell clients about their limits.
// +kubebuilder:validation:Enum=Standard;Legacy;None
type RateLimitHeaders string

// Values of RateLimitHeaders.
const (
	RateLimitHeadersStandard RateLimitHeaders = "Standard"
	RateLimitHeadersLegacy   RateLimitHeaders = "Legacy"
	RateLimitHeadersNone     RateLimitHeaders = "None"
)

// Response says what a client sees.
type Response struct {
	RateLimitHeaders RateLimitHeaders `json:"rateLimitHeaders,omitempty"`
	StatusCode       int32            `json:"statusCode,omitempty"`
}

// RateLimitPolicyStatus tells what is really enforced.
type RateLimitPolicyStatus struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	EnforcedGeneration int64              `json:"enforcedGeneration,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
	Pods               *PodCounts         `json:"pods,omitempty"`
	Limits             []LimitStatus      `json:"limits,omitempty"`
	Traffic            *Traffic           `json:"traffic,omitempty"`
}

// PodCounts counts the pods that the policy selects. What can't be read is absent, never 0.
type PodCounts struct {
	// summary is enforcing (in Shadow: applied) over asked, "3/3"; "?/3" when heartbeats can't be read.
	Summary     string `json:"summary,omitempty"`
	Matched     *int32 `json:"matched,omitempty"`
	Unprotected *int32 `json:"unprotected,omitempty"`
	Injected    *int32 `json:"injected,omitempty"`
	Enforcing   *int32 `json:"enforcing,omitempty"`
	Fallback    *int32 `json:"fallback,omitempty"`
	Unknown     *int32 `json:"unknown,omitempty"`
}

// LimitStatus counts the verdicts of one limit.
type LimitStatus struct {
	Name         string `json:"name"`
	Mode         Mode   `json:"mode"`
	Allowed      int64  `json:"allowed"`
	Denied       int64  `json:"denied"`
	ShadowDenied int64  `json:"shadowDenied"`
}

// Traffic counts the verdicts of the whole policy over a window.
type Traffic struct {
	Allowed      int64       `json:"allowed"`
	Denied       int64       `json:"denied"`
	ShadowDenied int64       `json:"shadowDenied"`
	Window       Duration    `json:"window"`
	ObservedTime metav1.Time `json:"observedTime"`
}
