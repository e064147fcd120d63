package ratelimit

import (
	"cmp"
	"net/http"
	"slices"
	"sync"
)

// Set is all policies that select one pod. It is immutable and safe for concurrent use; a nil Set holds no policy.
type Set struct {
	policies []*Policy
	groups   int
	charges  int

	// attributes are those of all policies, each once. slots leads from a policy's own to their places here; query and
	// cookies lead there from names.
	attributes     []attribute
	slots          [][]uint32
	query, cookies map[string]uint32
	headers        []string
	anyHeader      bool // an expression may ask for any header
	// expressions are where the results of each policy's begin, and their number.
	expressions []int
	evaluated   int
	views       sync.Pool // of *view, with room for a value of each attribute
}

// NewSet makes a set of policies with distinct names.
func NewSet(policies ...*Policy) *Set {
	s := &Set{policies: slices.Clone(policies), query: map[string]uint32{}, cookies: map[string]uint32{}}
	slices.SortFunc(s.policies, func(a, b *Policy) int { return cmp.Compare(a.Record.Name, b.Record.Name) })
	places := map[attribute]uint32{}
	for _, p := range s.policies {
		s.charges += len(p.Limits)
		for i := range p.keySets {
			if p.keySets[i].byPath {
				s.groups += len(p.keySets[i].limits)
			} else {
				s.groups++
			}
		}
		slots := make([]uint32, len(p.attributes))
		for i, asked := range p.attributes {
			place, known := places[asked]
			if !known {
				place = s.place(asked)
				places[asked] = place
			}
			slots[i] = place
		}
		s.slots = append(s.slots, slots)
		s.expressions = append(s.expressions, s.evaluated)
		s.evaluated += len(p.expressions)
		s.anyHeader = s.anyHeader || p.anyHeader
	}
	s.views.New = func() any {
		return &view{values: make([]value, len(s.attributes)), evaluated: make([]evaluated, s.evaluated)}
	}
	return s
}

func (s *Set) place(asked attribute) uint32 {
	place := uint32(len(s.attributes))
	s.attributes = append(s.attributes, asked)
	switch asked.kind {
	case headerAttribute:
		s.headers = append(s.headers, asked.name)
	case queryAttribute:
		s.query[asked.name] = place
	case cookieAttribute:
		s.cookies[asked.name] = place
	}
	return place
}

// Policies are the set's policies in order of their names. Callers must not change the slice.
func (s *Set) Policies() []*Policy {
	if s == nil {
		return nil
	}
	return s.policies
}

// JoinRepeated makes one line of the lines of each header that the policies ask for, as RFC 9110 section 5.3 allows: apps
// differ in whether they read the first line or the last, and a client that sends two must not be one to the app and
// another to its limits.
func (s *Set) JoinRepeated(h http.Header) {
	if s == nil {
		return
	}
	if s.anyHeader {
		for name := range h {
			joinLines(h, name)
		}
		return
	}
	for _, name := range s.headers {
		joinLines(h, name)
	}
}

func joinLines(h http.Header, name string) {
	if len(h[name]) > 1 && name != "Cookie" { // whose lines are joined by semicolons, and by apps alike
		h[name] = []string{headerValue(h, name)}
	}
}

// Describe finds all that governs the request, over all policies of the set.
func (s *Set) Describe(req *Request) Description {
	if s == nil || len(s.policies) == 0 {
		return Description{}
	}
	v := s.views.Get().(*view)
	v.req, v.set = req, s
	d := s.describe(v)
	clear(v.values)
	clear(v.evaluated)
	*v = view{values: v.values, evaluated: v.evaluated}
	s.views.Put(v)
	return d
}

func (s *Set) describe(v *view) Description {
	var d Description
	for i, p := range s.policies {
		v.turnTo(p, s.slots[i], s.expressions[i])
		if p.describe(v, &d); d.Deny != nil {
			d.Groups, d.charges = nil, nil
			break
		}
	}
	return d
}
