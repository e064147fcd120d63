package ratelimit

import (
	"net/http"
	"net/netip"

	"github.com/portero-dev/portero/internal/bucketconfig"
)

// Request holds the attributes of a request that limits may ask for. It borrows; it is valid during one call.
type Request struct {
	Method string
	// Path is the escaped path as the client sent it, without the query; matching normalizes it.
	Path   string
	Host   string
	Header http.Header
	// Peer is the address of the TCP peer.
	Peer netip.Addr
}

// Limit is a compiled limit.
type Limit struct {
	Policy *Policy
	Config *bucketconfig.Limit
	// ID tells this limit's record from others in one bucket string: the first 64 bits of a hash of its name.
	ID uint64
	// Shadow is true when the limit or its policy is in Shadow.
	Shadow bool
	// QualifiedName is policy/limit, as fields and metrics spell it.
	QualifiedName string
}

// Charge asks a limit for a cost.
type Charge struct {
	Limit *Limit
	Cost  int64
}

// Group is what one call decides: the limits of one policy that share their key values, and so one Redis key.
type Group struct {
	Policy *Policy
	// Tag names the key values without telling them; see keyspace.Tag.
	Tag     string
	Charges []Charge
}
