package v1alpha1

// ConditionType names a condition of a RateLimitPolicy. All are always present, each with its observedGeneration.
type ConditionType string

// ConditionReason says in one word why a condition has its status.
type ConditionReason string

const (
	// ConditionReady is the summary that kubectl wait, Flux and Argo read: accepted, published, and acknowledged by
	// every sidecar that it concerns. A healthy Shadow policy and a policy without pods are Ready. Positive polarity.
	//
	// True: Ready. False: the reason of the first condition that hinders it. Unknown: HeartbeatsUnreadable.
	ConditionReady ConditionType = "Ready"

	// ConditionAccepted says that the spec can be translated as written. Positive polarity.
	//
	// True: Accepted. False: Invalid, TooLarge.
	ConditionAccepted ConditionType = "Accepted"

	// ConditionPublished says that the record of this generation lies in Redis. Positive polarity.
	//
	// True: Published. False: NotAccepted, RedisNotConfigured, RedisUnreachable, PublishFailed.
	ConditionPublished ConditionType = "Published"

	// ConditionEnforced is True iff mode is Enforce, at least one ready matching pod asked for injection, and each such
	// pod has a sidecar whose fresh heartbeat names this policy's UID and generation and is not in fallback. Positive
	// polarity.
	//
	// True: Enforced. False: NotAccepted, NotPublished, NoPods, NotInjected, SidecarMissing, Waiting, SidecarOutdated,
	// Fallback, Shadow. Unknown: HeartbeatsUnreadable.
	ConditionEnforced ConditionType = "Enforced"

	// ConditionDegraded says that some sidecars decide locally or that Redis can't be reached or used as it should be.
	// Negative polarity.
	//
	// True: Fallback, RedisUnreachable, RedisNotConfigured, SecretConflict, CredentialsFailed. False: Healthy.
	// Unknown: HeartbeatsUnreadable.
	ConditionDegraded ConditionType = "Degraded"

	// ConditionTrafficBypass says that traffic can reach protected pods around the sidecar. Negative polarity.
	//
	// True: PodsUnprotected. False: NoBypass.
	ConditionTrafficBypass ConditionType = "TrafficBypass"
)

// Reasons of the conditions above.
const (
	ReasonReady                ConditionReason = "Ready"
	ReasonAccepted             ConditionReason = "Accepted"
	ReasonInvalid              ConditionReason = "Invalid"
	ReasonTooLarge             ConditionReason = "TooLarge"
	ReasonPublished            ConditionReason = "Published"
	ReasonNotAccepted          ConditionReason = "NotAccepted"
	ReasonRedisNotConfigured   ConditionReason = "RedisNotConfigured"
	ReasonRedisUnreachable     ConditionReason = "RedisUnreachable"
	ReasonPublishFailed        ConditionReason = "PublishFailed"
	ReasonEnforced             ConditionReason = "Enforced"
	ReasonNotPublished         ConditionReason = "NotPublished"
	ReasonNoPods               ConditionReason = "NoPods"
	ReasonNotInjected          ConditionReason = "NotInjected"
	ReasonSidecarMissing       ConditionReason = "SidecarMissing"
	ReasonWaiting              ConditionReason = "Waiting"
	ReasonSidecarOutdated      ConditionReason = "SidecarOutdated"
	ReasonFallback             ConditionReason = "Fallback"
	ReasonShadow               ConditionReason = "Shadow"
	ReasonHeartbeatsUnreadable ConditionReason = "HeartbeatsUnreadable"
	ReasonHealthy              ConditionReason = "Healthy"
	ReasonSecretConflict       ConditionReason = "SecretConflict"
	ReasonCredentialsFailed    ConditionReason = "CredentialsFailed"
	ReasonNotInSecret          ConditionReason = "NotInSecret"
	ReasonPodsUnprotected      ConditionReason = "PodsUnprotected"
	ReasonNoBypass             ConditionReason = "NoBypass"
)
