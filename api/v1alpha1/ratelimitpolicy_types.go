package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// RateLimitPolicy gives the pods that it selects shared token buckets.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=ratelimitpolicies,singular=ratelimitpolicy,shortName=rlp,categories=portero,scope=Namespaced
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=".spec.mode",description="Enforce, or Shadow: decide and count, never refuse"
// +kubebuilder:printcolumn:name="Limits",type=string,JSONPath=".status.limitsSummary",description="Names of the limits"
// +kubebuilder:printcolumn:name="Pods",type=string,JSONPath=".status.pods.summary",description="Pods that enforce (in Shadow: apply) the policy, over pods that asked for injection"
// +kubebuilder:printcolumn:name="Enforced",type=string,JSONPath=".status.conditions[?(@.type=='Enforced')].status",description="True when every pod that asked enforces this generation"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=".status.conditions[?(@.type=='Enforced')].reason",description="Why Enforced is what it is"
// +kubebuilder:printcolumn:name="Denied",type=integer,JSONPath=".status.traffic.denied",description="Requests refused in the last window"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="Fallback",type=integer,JSONPath=".status.pods.fallback",priority=1,description="Pods that decide locally because Redis can't answer them"
// +kubebuilder:printcolumn:name="Unprotected",type=integer,JSONPath=".status.pods.unprotected",priority=1,description="Pods that the selector matches and that never asked for injection"
// +kubebuilder:printcolumn:name="Bypass",type=string,JSONPath=".status.conditions[?(@.type=='TrafficBypass')].status",priority=1,description="True when traffic can reach protected pods around the sidecar"
type RateLimitPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what the policy's author wants. All of it together is at most 192 KiB of JSON; a larger one is refused or,
	// where the manager was away when it was stored, not Accepted.
	// +required
	Spec RateLimitPolicySpec `json:"spec"`
	// status is what is really enforced. Portero writes it.
	// +optional
	Status RateLimitPolicyStatus `json:"status,omitzero"`
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
//
// +kubebuilder:validation:XValidation:rule="has(self.clientIP) || !self.limits.exists(l, has(l.keyParts) && l.keyParts.exists(k, k.type == 'ClientIP'))",message="clientIP must be set when a limit has a key part of type ClientIP: say where the client's address is read, type Peer or XForwardedFor",fieldPath=".clientIP",reason=FieldValueRequired
// +kubebuilder:validation:XValidation:rule="has(self.clientIP) || !((has(self.exempt) && self.exempt.exists(m, has(m.clientCIDRs))) || self.limits.exists(l, (has(l.matches) && l.matches.exists(m, has(m.clientCIDRs))) || (has(l.overrides) && l.overrides.exists(o, has(o.matches) && o.matches.exists(m, has(m.clientCIDRs)))) || (has(l.cost) && has(l.cost.fixed) && has(l.cost.fixed.rules) && l.cost.fixed.rules.exists(r, r.matches.exists(m, has(m.clientCIDRs))))))",message="clientIP must be set when a match has clientCIDRs: say where the client's address is read, type Peer or XForwardedFor",fieldPath=".clientIP",reason=FieldValueRequired
type RateLimitPolicySpec struct {
	// selector selects the pods that enforce the policy by their labels, within the policy's namespace and among the pods
	// that asked for injection. {} selects all of them: one bucket over all their workloads.
	// +required
	Selector LabelSelector `json:"selector"`
	// mode is Enforce, or Shadow: decide and count, but never refuse. Default Enforce.
	// +kubebuilder:default=Enforce
	// +optional
	Mode Mode `json:"mode,omitempty"`
	// clientIP says how a client's address is found. Required by key parts of type ClientIP and by clientCIDRs; without them
	// it has no effect.
	// +optional
	ClientIP *ClientIP `json:"clientIP,omitempty"`
	// exempt lists requests that no limit of this policy sees, such as health checks. At most 16 entries, any of which
	// fits. Absent: no request is exempt.
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	// +optional
	Exempt []RequestMatch `json:"exempt,omitempty"`
	// limits are the policy's limits, 1 to 16 with unique names. A request that several of them govern passes only when all
	// of them admit it.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=name
	// +required
	Limits []Limit `json:"limits"`
	// store says how long a verdict may take and what happens when Redis fails. Default {timeout: 10ms, onFailure: Local}.
	// +kubebuilder:default={}
	// +optional
	Store Store `json:"store,omitzero"`
	// response says what clients see. Default {rateLimitHeaders: Standard, statusCode: 429}.
	// +kubebuilder:default={}
	// +optional
	Response Response `json:"response,omitzero"`
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
	// timeout is how long a verdict may take in all, from 1ms to 1s. Redis that has not answered by then has failed this
	// verdict, and onFailure decides. With several policies on one pod, the smallest counts. Default 10ms.
	// +kubebuilder:default="10ms"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^([0-9]{1,4}h|[0-9]{1,6}m|[0-9]{1,8}s|[0-9]{1,8}ms){1,4}$') || duration(self) <= duration('1s')",message="timeout must be at most 1s: it is how long every request may have to wait for Redis"
	// +optional
	Timeout Duration `json:"timeout,omitempty"`
	// onFailure is Local: hold each replica to its share of the limit; Open: admit; or Closed: answer 503. With several
	// policies on one pod, the strictest result wins. Default Local.
	// +kubebuilder:default=Local
	// +optional
	OnFailure OnFailure `json:"onFailure,omitempty"`
}

// RateLimitHeaders says which fields tell clients about their limits.
// +kubebuilder:validation:Enum=Standard;Legacy;Both;None
type RateLimitHeaders string

// Values of RateLimitHeaders.
const (
	RateLimitHeadersStandard RateLimitHeaders = "Standard"
	RateLimitHeadersLegacy   RateLimitHeaders = "Legacy"
	RateLimitHeadersBoth     RateLimitHeaders = "Both"
	RateLimitHeadersNone     RateLimitHeaders = "None"
)

// Response says what a client sees.
type Response struct {
	// rateLimitHeaders is Standard: RateLimit-Policy and RateLimit; Legacy: X-RateLimit-Limit, -Remaining and -Reset; Both;
	// or None. Retry-After is sent with every refusal where waiting helps. Default Standard.
	// +kubebuilder:default=Standard
	// +optional
	RateLimitHeaders RateLimitHeaders `json:"rateLimitHeaders,omitempty"`
	// statusCode is the HTTP status of a refusal that waiting cures, from 400 to 599. gRPC clients get RESOURCE_EXHAUSTED
	// whatever it says. Default 429.
	// +kubebuilder:default=429
	// +kubebuilder:validation:Minimum=400
	// +kubebuilder:validation:Maximum=599
	// +optional
	StatusCode int32 `json:"statusCode,omitempty"`
	// body replaces the problem details (RFC 9457) of a refusal with statusCode, not those of 403 and 503. gRPC clients get
	// none. Absent: problem details.
	// +optional
	Body *ResponseBody `json:"body,omitempty"`
}

// ResponseBody is the body of a refusal.
type ResponseBody struct {
	// contentType is the media type of the body, up to 128 characters. Default text/plain; charset=utf-8.
	// +kubebuilder:default="text/plain; charset=utf-8"
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]*/[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]*( *;[ -~]+)?$')",message="must be a media type, such as application/json or text/html; charset=utf-8"
	// +optional
	ContentType string `json:"contentType,omitempty"`
	// template is the body, 1 to 4096 bytes, in which {policy} and {limit} stand for the names of the policy and the limit
	// that refused, and {retryAfter} for the seconds to wait, 0 where waiting does not help. All else stays as it is, other
	// braces too.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +required
	Template string `json:"template"`
}
