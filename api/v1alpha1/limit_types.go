package v1alpha1

// Limit is one token bucket per set of key values.
//
// +kubebuilder:validation:XValidation:rule="!has(self.cost) || !has(self.cost.fixed) || !has(self.cost.fixed.tokens) || self.bucket.capacity < 1 || self.cost.fixed.tokens <= self.bucket.capacity",message="cost.fixed.tokens must be at most bucket.capacity, else no request could ever pass",fieldPath=".cost"
type Limit struct {
	// name tells the limit from others of the policy, in fields, metrics and status: a DNS label of up to 63 characters. A
	// renamed limit starts with full buckets.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')",message="must be a DNS label: lower-case letters, digits and -, with a letter or digit at both ends"
	// +required
	Name string `json:"name"`
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
	// +kubebuilder:validation:XValidation:rule="self.all(a, self.exists_one(b, a.type == b.type && (a.type != 'Header' || !has(a.header) || !has(b.header) || a.header.name.lowerAscii() == b.header.name.lowerAscii())))",message="key parts must differ: the same type, or the same header, stands twice"
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

// CostType says where a request's cost comes from.
// +kubebuilder:validation:Enum=Fixed
type CostType string

// CostFixed takes the same cost for every request.
const CostFixed CostType = "Fixed"

// Cost is how many tokens a request takes.
//
// +kubebuilder:validation:XValidation:rule="self.type != 'Fixed' || has(self.fixed)",message="fixed must be set when type is Fixed, such as {type: Fixed, fixed: {tokens: 1}}",fieldPath=".fixed",reason=FieldValueRequired
type Cost struct {
	// type is Fixed: the same for every request.
	// +required
	Type CostType `json:"type"`
	// fixed is set iff type is Fixed.
	// +optional
	Fixed *FixedCost `json:"fixed,omitempty"`
}

// FixedCost takes the same number of tokens for every request.
type FixedCost struct {
	// tokens is how many tokens a request takes, from 1 to the bucket's capacity. Default 1.
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000000
	// +optional
	Tokens int64 `json:"tokens,omitempty"`
}
