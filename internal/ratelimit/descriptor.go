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
	Path string
	// Query is the raw query as the client sent it, without the question mark.
	Query string
	// Host is as the client sent it, with a port or without.
	Host string
	// Header has canonical names, as net/http makes them.
	Header http.Header
	// Peer is the address of the TCP peer; the zero Addr when it could not be read.
	Peer netip.Addr
	// Port and PortName are the protected port's number and, if it has one, name.
	Port     uint16
	PortName string
	// Workload is what the pod belongs to, such as deployment/web; empty when it is not known.
	Workload string
}

// Charge asks a limit for a cost.
type Charge struct {
	Limit *Limit
	// Cost is what to take if the bucket covers it. Zero, beside a Debit: nothing is asked.
	Cost int64
	// Debit is what to take before that and whatever the level: into debt of at most one capacity.
	Debit int64
}

// Group is what one call decides: the limits of one policy that share their key values, and so one Redis key.
type Group struct {
	Policy *Policy
	// Tag names the key values without telling them; see keyspace.Tagger.
	Tag     string
	Charges []Charge
}

// Denial is a request refused for good, by one of two reasons: Limit wants KeyPart, which the request lacks; or Limit's
// Override says so.
type Denial struct {
	Limit    *Limit
	KeyPart  *bucketconfig.KeyPart
	Override *bucketconfig.Override
}

// Failure is a limit, or what a policy exempts, of which at least one expression failed for the request.
type Failure struct {
	Policy *Policy
	// Limit is nil where the expression stands in exempt.
	Limit *Limit
}

// Description is what governs one request. It is made new for each request and never reused, so its groups may outlive
// the request (a late reply of the store settles them).
type Description struct {
	// Groups are to be decided together. Empty when nothing governs the request, or when Deny is set: a denial never
	// asks the store.
	Groups []Group
	// Deny is the first denial found by a limit that is enforced, policies in order of their names; nil when there is none.
	Deny *Denial
	// ShadowDenials are those of limits in Shadow: counted, never carried out.
	ShadowDenials []Denial
	// Failures are of expressions that were asked before the description was complete: each limit once.
	Failures []Failure

	// charges is the one array behind all groups' Charges.
	charges []Charge
}

// refuse notes a denial, to be carried out or only counted.
func (d *Description) refuse(denial Denial) {
	if denial.Limit.Shadow {
		d.ShadowDenials = append(d.ShadowDenials, denial)
		return
	}
	d.Deny = &denial
}

func (d *Description) charge(s *Set, charge Charge) {
	if d.charges == nil {
		d.charges = make([]Charge, 0, s.charges)
		d.Groups = make([]Group, 0, s.groups)
	}
	d.charges = append(d.charges, charge)
}

// add appends a group with the charges since start.
func (d *Description) add(policy *Policy, tag string, start int) {
	d.Groups = append(d.Groups, Group{Policy: policy, Tag: tag, Charges: d.charges[start:len(d.charges):len(d.charges)]})
}
