package ratelimit

import (
	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/expression"
	"github.com/portero-dev/portero/internal/keyspace"
)

// Policy is a compiled record. It is immutable and safe for concurrent use.
type Policy struct {
	Record *bucketconfig.Record
	Limits []*Limit

	tagger     *keyspace.Tagger
	exempt     []matcher
	keySets    []keySet
	clientIP   *clientIP   // nil when the policy does not state it
	attributes []attribute // all that matches and keys ask for by name
	// expressions are all that matches and keys evaluate; anyHeader says that they may ask for any header.
	expressions []*expression.Program
	anyHeader   bool
}

// Limit is a compiled limit or, where Override is set, the limit as that override makes it.
type Limit struct {
	Policy *Policy
	// Config is the limit's; under an override its Bucket is that of the override.
	Config *bucketconfig.Limit
	// Override is the override of type Bucket that this is; nil for the limit itself.
	Override *bucketconfig.Override
	// ID tells this limit's record from others in one bucket string: the first 64 bits of a hash of its name and, if
	// there is one, its override's.
	ID uint64
	// Shadow is true when the limit or its policy is in Shadow.
	Shadow bool
	// QualifiedName is policy/limit, as fields and metrics spell it, under overrides too.
	QualifiedName string
	// WindowSeconds is how long the bucket takes from empty to full, rounded up; at least 1 and at most 15 digits.
	WindowSeconds int64

	matches    []matcher
	overrides  overrides
	costRules  []costRule
	costHeader uint16 // the attribute of a cost source of type RequestHeader
	// skip and deny say what a missing key part does; bit i stands for part i of the limit's key set.
	skip, deny uint16
}

// describe appends what of this policy governs the request. It stops at the first denial that is enforced.
func (p *Policy) describe(v *view, d *Description) {
	_, fits := firstFit(p.exempt, v)
	v.failures(d, p, nil)
	if fits == fitsSurely {
		return
	}
	for i := range p.keySets {
		if p.keySets[i].describe(p, v, d); d.Deny != nil {
			return
		}
	}
}

// governing is a limit that governs a request: with its bucket, and by which of its matches.
type governing struct {
	limit    *Limit
	template *template // of the path that fits, nil when it has none
	charge   Charge
}

func (s *keySet) describe(p *Policy, v *view, d *Description) {
	var values keyValues
	var found [bucketconfig.MaxLimits]governing
	n := 0
	for _, limit := range s.limits {
		governs := s.governs(limit, v, d, &values, &found[n])
		v.failures(d, p, limit)
		if d.Deny != nil {
			return
		}
		if governs {
			n++
		}
	}
	s.group(p, v, d, &values, found[:n])
}

// governs says whether a limit asks for a charge, and which.
func (s *keySet) governs(limit *Limit, v *view, d *Description, values *keyValues, found *governing) bool {
	template, fits := limit.fits(v)
	if !fits {
		return false
	}
	bucket, denied := limit.overridden(v)
	if bucket == nil {
		if denied != nil {
			d.refuse(Denial{Limit: limit, Override: denied})
		}
		return false
	}
	values.fill(s.parts, v)
	if values.missing&limit.skip != 0 {
		return false
	}
	if missing := values.missing & limit.deny; missing != 0 {
		d.refuse(Denial{Limit: limit, KeyPart: s.firstPart(missing)})
		return false
	}
	*found = governing{limit: limit, template: template, charge: Charge{Limit: bucket, Cost: limit.cost(v)}}
	return true
}

// group appends the groups of those limits whose key values are the same.
func (s *keySet) group(p *Policy, v *view, d *Description, values *keyValues, found []governing) {
	for done := uint32(0); len(found) > 0; {
		start := len(d.charges)
		for i := range found {
			one := &found[i]
			switch {
			case done&(1<<i) != 0:
				continue
			case !s.byPath:
			case len(d.charges) == start:
				values.fillPath(s.parts, one.template, v.normalPath())
			case !values.samePath(s.parts, one.template, v.normalPath()):
				continue
			}
			d.charge(v.set, one.charge)
			done |= 1 << i
		}
		if len(d.charges) == start {
			return
		}
		d.add(p, s.tagOf(p, values), start)
	}
}

// fits says whether the limit matches the request, be it perhaps, and by which template if by one.
func (l *Limit) fits(v *view) (*template, bool) {
	if len(l.matches) == 0 {
		return nil, true
	}
	i, fits := firstFit(l.matches, v)
	if fits == fitsNot {
		return nil, false
	}
	if path := l.matches[i].path; path != nil {
		return path.template, true
	}
	return nil, true
}

// overridden is the limit with the bucket that counts for the request; nil when an override lifts the limit or, where one
// is given, denies the request. It comes before key parts: what is denied or unlimited is so whatever else is missing.
func (l *Limit) overridden(v *view) (bucket *Limit, denied *bucketconfig.Override) {
	o, perhaps := l.overrides.find(v)
	for _, other := range perhaps {
		o = l.stricter(o, other)
	}
	switch {
	case o == nil:
		return l, nil
	case o.config.Type == overrideDeny:
		return nil, o.config
	}
	return o.limit, nil
}
