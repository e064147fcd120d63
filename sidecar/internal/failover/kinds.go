package failover

import "errors"

// Kind says in which way the store failed. It is a closed set: the label of a metric.
type Kind string

// The kinds.
const (
	KindTimeout         Kind = "timeout"          // no answer within the budget; the charge may have happened
	KindQueued          Kind = "queued"           // not even sent within the budget
	KindConnection      Kind = "connection"       // no connection, or it broke
	KindAuth            Kind = "auth"             // the password or user is wrong
	KindPermission      Kind = "permission"       // the user may not do this
	KindMissingFunction Kind = "missing_function" // the library is not loaded
	KindCluster         Kind = "cluster"          // the cluster does not serve the slot, or not now
	KindMemory          Kind = "memory"           // Redis is out of memory
	KindReply           Kind = "reply"            // an answer that is none
	KindOther           Kind = "other"            // any other error of the script or of Redis
	KindNoTopology      Kind = "no_topology"      // Redis was never reached yet, or there are no credentials
	KindBreaker         Kind = "breaker"          // not asked: the master failed before, and is being probed
)

// Kinds are all kinds.
var Kinds = []Kind{
	KindTimeout, KindQueued, KindConnection, KindAuth, KindPermission, KindMissingFunction, KindCluster, KindMemory,
	KindReply, KindOther, KindNoTopology, KindBreaker,
}

// StoreError is a failure of the store of a known kind.
type StoreError struct {
	Kind Kind
	// Unknown is true where the store may have charged nevertheless. Then it counts as charged.
	Unknown bool
	Err     error
}

func (e *StoreError) Error() string { return string(e.Kind) + ": " + e.Err.Error() }

// Unwrap is the cause.
func (e *StoreError) Unwrap() error { return e.Err }

// kindOf tells the kind of a failure, and whether the store may have charged nevertheless. An error that is not of the
// store's own is of a call that was never sent.
func kindOf(err error) (kind Kind, unknown bool) {
	if known := (*StoreError)(nil); errors.As(err, &known) {
		return known.Kind, known.Unknown
	}
	return KindOther, false
}
