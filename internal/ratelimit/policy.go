package ratelimit

import (
	"net/netip"

	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/keyspace"
)

// Policy is a compiled record. It is immutable and safe for concurrent use.
type Policy struct {
	Record *bucketconfig.Record
	Limits []*Limit

	secret   []byte
	exempt   []matcher
	keySets  []keySet
	clientIP *clientIP // nil when the policy does not state it
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
	// WindowSeconds is how long the bucket takes from empty to full, rounded up; at least 1 and at most 15 digits.
	WindowSeconds int64

	matches []matcher
	// skip and deny say what a missing key part does; bit i stands for part i of the limit's key set.
	skip, deny uint16
}

// keySet is the limits of a policy that share the definition of their key: the same attributes, in whatever order they
// were written. They lie in one Redis key per set of values.
type keySet struct {
	parts  []bucketconfig.KeyPart // ordered by type and name; WhenMissing is each limit's own
	limits []*Limit
	tag    string // of a key set without parts, whose tag never changes
}

// describe appends what of this policy governs the request. It stops at the first denial that is enforced.
func (p *Policy) describe(v *view, d *Description, s *Set) {
	if anyFits(p.exempt, v) {
		return
	}
	for i := range p.keySets {
		set := &p.keySets[i]
		var values keyValues
		start := len(d.charges)
		for _, limit := range set.limits {
			if len(limit.matches) > 0 && !anyFits(limit.matches, v) {
				continue
			}
			if !values.read {
				values.fill(set.parts, v.req, p.clientIP)
			}
			switch {
			case values.missing&limit.skip != 0:
				continue
			case values.missing&limit.deny != 0:
				denial := Denial{Limit: limit, KeyPart: set.firstPart(values.missing & limit.deny)}
				if !limit.Shadow {
					d.Deny = &denial
					return
				}
				d.ShadowDenials = append(d.ShadowDenials, denial)
				continue
			}
			if d.charges == nil {
				d.charges = make([]Charge, 0, s.charges)
				d.Groups = make([]Group, 0, s.groups)
			}
			d.charges = append(d.charges, Charge{Limit: limit, Cost: limit.Config.Cost})
		}
		if len(d.charges) > start {
			d.add(p, set.tagOf(p, &values), start)
		}
	}
}

// firstPart is the part of the lowest bit.
func (s *keySet) firstPart(bits uint16) *bucketconfig.KeyPart {
	for i := range s.parts {
		if bits&(1<<i) != 0 {
			return &s.parts[i]
		}
	}
	return nil
}

// Presence flags in a tag: a part that is missing and shared can't collide with any value.
const (
	absent  = "0"
	present = "1"
)

func (s *keySet) tagOf(p *Policy, values *keyValues) string {
	if len(s.parts) == 0 {
		return s.tag
	}
	var array [2 + 4*bucketconfig.MaxKeyParts]string
	parts := append(array[:0], p.Record.Kind, p.Record.Name)
	for i := range s.parts {
		flag := present
		if values.missing&(1<<i) != 0 {
			flag = absent
		}
		parts = append(parts, s.parts[i].Type, s.parts[i].Name, flag, values.value[i])
	}
	return keyspace.Tag(p.secret, parts...)
}

// keyValues are the values of a key set's parts in one request.
type keyValues struct {
	read    bool
	missing uint16 // bit i: part i is missing, and value[i] empty
	value   [bucketconfig.MaxKeyParts]string
}

func (k *keyValues) fill(parts []bucketconfig.KeyPart, req *Request, ip *clientIP) {
	k.read = true
	for i := range parts {
		switch parts[i].Type {
		case keyPartHeader:
			k.value[i] = headerValue(req.Header, parts[i].Name)
		case keyPartClientIP:
			if client := ip.identify(req); client != (netip.Prefix{}) {
				k.value[i] = client.String()
			}
		}
		if k.value[i] == "" {
			k.missing |= 1 << i
		}
	}
}
