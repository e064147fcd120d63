package v1alpha1

// Limit is one token bucket per set of key values.
//
// +kubebuilder:validation:XValidation:rule="!has(self.cost) || !has(self.cost.fixed) || !has(self.cost.fixed.tokens) || self.bucket.capacity < 1 || self.cost.fixed.tokens <= self.bucket.capacity",message="cost.fixed.tokens must be at most bucket.capacity, else no request could ever pass",fieldPath=".cost"
// +kubebuilder:validation:XValidation:rule="!has(self.cost) || !has(self.cost.fixed) || !has(self.cost.fixed.rules) || self.bucket.capacity < 1 || self.cost.fixed.rules.all(r, r.tokens <= self.bucket.capacity)",message="the tokens of each of cost.fixed.rules must be at most bucket.capacity, else its requests could never pass",fieldPath=".cost"
// +kubebuilder:validation:XValidation:rule="!has(self.cost) || self.bucket.capacity < 1 || !has(self.cost.requestHeader) || self.cost.requestHeader.default <= self.bucket.capacity",message="the default cost must be at most bucket.capacity, else no request without the header could ever pass",fieldPath=".cost"
// +kubebuilder:validation:XValidation:rule="!has(self.cost) || self.bucket.capacity < 1 || !has(self.cost.responseHeader) || self.cost.responseHeader.maximum <= self.bucket.capacity",message="cost.responseHeader.maximum must be at most bucket.capacity, which is the most that a bucket can owe",fieldPath=".cost"
// +kubebuilder:validation:XValidation:rule="!has(self.overrides) || !has(self.cost) || self.overrides.all(o, !has(o.bucket) || o.bucket.capacity < 1 || (!has(self.cost.fixed) || self.cost.fixed.tokens <= o.bucket.capacity && (!has(self.cost.fixed.rules) || self.cost.fixed.rules.all(r, r.tokens <= o.bucket.capacity))) && (!has(self.cost.requestHeader) || self.cost.requestHeader.default <= o.bucket.capacity) && (!has(self.cost.responseHeader) || self.cost.responseHeader.maximum <= o.bucket.capacity))",message="the bucket.capacity of each override must be at least every cost that cost states, else some requests could never pass",fieldPath=".overrides"
// +kubebuilder:validation:XValidation:rule="!has(self.keyParts) || self.keyParts.all(k, !(k.type in ['PathTemplate', 'PathVariable']) || (has(self.matches) && self.matches.all(m, has(m.path) && m.path.type == 'Template' && (!has(k.pathVariable) || m.path.value.contains('/{' + k.pathVariable.name + '}')))))",message="key parts of type PathTemplate and PathVariable need matches of which each has a path of type Template, with the variable in it",fieldPath=".keyParts"
type Limit struct {
	// name tells the limit from others of the policy, in fields, metrics and status: a DNS label of up to 63 characters. A
	// renamed limit starts with full buckets.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')",message="must be a DNS label: lower-case letters, digits and -, with a letter or digit at both ends"
	// +required
	Name string `json:"name"`
	// mode is Enforce, or Shadow: decide and count, but never refuse, and change nothing for other limits. A policy in Shadow
	// has all of its limits in Shadow. Default Enforce.
	// +kubebuilder:default=Enforce
	// +optional
	Mode Mode `json:"mode,omitempty"`
	// matches says which requests the limit governs: those that any entry fits. 1 to 16. Absent: every request.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	// +optional
	Matches []RequestMatch `json:"matches,omitempty"`
	// keyParts together tell one bucket from another, such as one per API key. 1 to 8, all different. Absent: one bucket for
	// all requests.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:XValidation:rule="self.all(a, self.exists_one(b, a.type == b.type && (has(a.header) && has(b.header) ? a.header.name.lowerAscii() == b.header.name.lowerAscii() : has(a.pathVariable) && has(b.pathVariable) ? a.pathVariable.name == b.pathVariable.name : has(a.query) && has(b.query) ? a.query.name == b.query.name : has(a.cookie) && has(b.cookie) ? a.cookie.name == b.cookie.name : has(a.claim) && has(b.claim) ? a.claim.name == b.claim.name : true)))",message="key parts must differ: the same type, or the same name of a type, stands twice"
	// +listType=atomic
	// +optional
	KeyParts []KeyPart `json:"keyParts,omitempty"`
	// bucket is the size and refill of each bucket.
	// +required
	Bucket Bucket `json:"bucket"`
	// cost is how many tokens a request takes. Default {type: Fixed, fixed: {tokens: 1}}.
	// +kubebuilder:default={type: Fixed, fixed: {tokens: 1}}
	// +optional
	Cost Cost `json:"cost,omitzero"`
	// overrides treat some of the limit's requests otherwise, such as those of a better plan. The first that fits counts, in
	// the order written. Each bucket of an override is one of its own. At most 64, and one owner: server-side apply replaces
	// the whole list.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(a, self.exists_one(b, a.name == b.name))",message="the names of overrides must differ"
	// +listType=atomic
	// +optional
	Overrides []Override `json:"overrides,omitempty"`
}

// Bucket is a token bucket: it starts full, holds up to capacity tokens and refills evenly.
type Bucket struct {
	// capacity is how many tokens the bucket holds, so the largest burst: 1 to 1000000000.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000000
	// +required
	Capacity int64 `json:"capacity"`
	// refill is how fast tokens come back.
	// +required
	Refill Refill `json:"refill"`
}

// Refill adds tokens evenly over each interval.
//
// +kubebuilder:validation:XValidation:rule="!self.interval.matches('^([0-9]{1,4}h|[0-9]{1,6}m|[0-9]{1,8}s|[0-9]{1,8}ms){1,4}$') || duration(self.interval) < duration('1ms') || self.tokens <= duration(self.interval).getMilliseconds() * 1000",message="refill must be at most 1 token per microsecond: lower tokens or lengthen interval"
type Refill struct {
	// tokens is how many tokens are added over one interval: 1 to 1000000000.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000000
	// +required
	Tokens int64 `json:"tokens"`
	// interval is the time over which tokens are added, evenly and not at its end: from 1ms to 366 days, at most 1 token
	// per microsecond.
	// +required
	Interval Duration `json:"interval"`
}

// OverrideType says what an override does.
// +kubebuilder:validation:Enum=Bucket;Unlimited;Deny
type OverrideType string

const (
	// OverrideBucket gives requests another bucket.
	OverrideBucket OverrideType = "Bucket"
	// OverrideUnlimited lets requests pass the limit uncounted.
	OverrideUnlimited OverrideType = "Unlimited"
	// OverrideDeny refuses requests with 403.
	OverrideDeny OverrideType = "Deny"
)

// Override replaces a limit's bucket for some of its requests.
//
// +kubebuilder:validation:XValidation:rule="self.type == 'Bucket' ? has(self.bucket) : !has(self.bucket)",message="bucket must be set when type is Bucket, and only then",fieldPath=".bucket"
type Override struct {
	// name tells the override from others of the limit: a DNS label of up to 63 characters. A renamed override starts with
	// full buckets.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')",message="must be a DNS label: lower-case letters, digits and -, with a letter or digit at both ends"
	// +required
	Name string `json:"name"`
	// type is Bucket: the requests draw from a bucket of this size and refill, one per set of the limit's key values;
	// Unlimited: they pass the limit uncounted; or Deny: they get 403, and waiting doesn't help.
	// +required
	Type OverrideType `json:"type"`
	// matches says which of the limit's requests are meant: those that any entry fits. 1 to 4; values of type In and
	// InSHA256 hold many keys in one entry. Absent: all of the limit's requests.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	// +listType=atomic
	// +optional
	Matches []RequestMatch `json:"matches,omitempty"`
	// bucket is set iff type is Bucket.
	// +optional
	Bucket *Bucket `json:"bucket,omitempty"`
}

// CostType says where a request's cost comes from.
// +kubebuilder:validation:Enum=Fixed;RequestHeader;ResponseHeader
type CostType string

const (
	// CostFixed takes what the policy states.
	CostFixed CostType = "Fixed"
	// CostRequestHeader takes what a header of the request states.
	CostRequestHeader CostType = "RequestHeader"
	// CostResponseHeader takes what a header or trailer of the response states.
	CostResponseHeader CostType = "ResponseHeader"
)

// Cost is how many tokens a request takes. The default of fixed may stay beside another type, as nobody wrote it.
//
// +kubebuilder:validation:XValidation:rule="self.type == 'Fixed' ? has(self.fixed) : !has(self.fixed) || (self.fixed.tokens == 1 && !has(self.fixed.rules))",message="fixed must be set when type is Fixed, such as {type: Fixed, fixed: {tokens: 1}}, and only then",fieldPath=".fixed"
// +kubebuilder:validation:XValidation:rule="self.type == 'RequestHeader' ? has(self.requestHeader) : !has(self.requestHeader)",message="requestHeader must be set when type is RequestHeader, such as {type: RequestHeader, requestHeader: {name: X-Cost, default: 1, maximum: 100}}, and only then",fieldPath=".requestHeader"
// +kubebuilder:validation:XValidation:rule="self.type == 'ResponseHeader' ? has(self.responseHeader) : !has(self.responseHeader)",message="responseHeader must be set when type is ResponseHeader, such as {type: ResponseHeader, responseHeader: {name: X-Cost, maximum: 100}}, and only then",fieldPath=".responseHeader"
type Cost struct {
	// type is Fixed: what the policy states; RequestHeader: what a header of the request states; or ResponseHeader: what a
	// header or trailer of the response states.
	// +required
	Type CostType `json:"type"`
	// fixed is set iff type is Fixed.
	// +optional
	Fixed *FixedCost `json:"fixed,omitempty"`
	// requestHeader is set iff type is RequestHeader.
	// +optional
	RequestHeader *RequestHeaderCost `json:"requestHeader,omitempty"`
	// responseHeader is set iff type is ResponseHeader.
	// +optional
	ResponseHeader *ResponseHeaderCost `json:"responseHeader,omitempty"`
}

// FixedCost takes the tokens of the first rule that fits, or else the same for every request.
type FixedCost struct {
	// tokens is how many tokens a request takes that no rule fits, from 1 to the capacity of each bucket that it may meet.
	// Default 1.
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000000
	// +optional
	Tokens int64 `json:"tokens,omitempty"`
	// rules give some of the limit's requests another cost, such as an expensive endpoint. The first that fits counts. 1 to
	// 16. Absent: none.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	// +optional
	Rules []CostRule `json:"rules,omitempty"`
}

// CostRule is the cost of the requests that any of its matches fits.
type CostRule struct {
	// matches says which of the limit's requests are meant: those that any entry fits. 1 to 4.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	// +listType=atomic
	// +required
	Matches []RequestMatch `json:"matches"`
	// tokens is how many tokens such a request takes, from 1 to the capacity of each bucket that it may meet.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000000
	// +required
	Tokens int64 `json:"tokens"`
}

// RequestHeaderCost takes what a header of the request states, a whole number of at least 1. Who sends the header sets the
// cost: let only what stands in front and can be trusted send it.
//
// +kubebuilder:validation:XValidation:rule="self.default <= self.maximum",message="default must be at most maximum"
type RequestHeaderCost struct {
	// name is the header's name, in any case; never Host, Transfer-Encoding or Trailer, nor Keep-Alive,
	// Proxy-Authenticate, Proxy-Authorization or Proxy-Connection, which are meant for one connection alone. 1 to 128 characters.
	// +required
	Name HeaderName `json:"name"`
	// default is the cost of a request without the header, or with one that is no whole number of at least 1. From 1 to the
	// capacity of each bucket that it may meet.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000000
	// +required
	Default int64 `json:"default"`
	// maximum is what a larger cost counts as, 1 to 1000000000. A cost above the bucket's capacity is refused at once.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000000
	// +required
	Maximum int64 `json:"maximum"`
}

// ResponseHeaderCost takes what a header or trailer of the response states, a whole number of at least 1; gRPC's trailers
// too. The default is taken before the request passes, and refuses it where the bucket does not cover that; the rest is
// taken once the response has told, whatever the level: into debt of at most one capacity, which later requests wait for.
// So what passes can exceed the limit, by the requests under way times maximum. Less than the default is not given back.
//
// +kubebuilder:validation:XValidation:rule="self.default <= self.maximum",message="default must be at most maximum"
type ResponseHeaderCost struct {
	// name is the name of the header or trailer, in any case; never Host, nor what is meant for one connection alone:
	// Connection, Keep-Alive, Proxy-Authenticate, Proxy-Authorization, Proxy-Connection, TE, Trailer, Transfer-Encoding and
	// Upgrade. 1 to 128 characters. Where a response has both, the header counts.
	// +required
	Name HeaderName `json:"name"`
	// default is what is taken before the request passes, and all that is taken where the response states no whole number of
	// at least 1, breaks off or loses its client before it, or is an upgrade: so what abandoned work costs. From 1 to maximum. Default 1.
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000000
	// +optional
	Default int64 `json:"default,omitempty"`
	// maximum is what a larger cost counts as, from 1 to the capacity of each bucket that it may meet.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000000
	// +required
	Maximum int64 `json:"maximum"`
}
