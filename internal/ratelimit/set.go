package ratelimit

import (
	"cmp"
	"slices"
)

// Set is all policies that select one pod. It is immutable and safe for concurrent use; a nil Set holds no policy.
type Set struct {
	policies []*Policy
	groups   int
	charges  int
}

// NewSet makes a set of policies with distinct names.
func NewSet(policies ...*Policy) *Set {
	s := &Set{policies: slices.Clone(policies)}
	slices.SortFunc(s.policies, func(a, b *Policy) int { return cmp.Compare(a.Record.Name, b.Record.Name) })
	for _, p := range s.policies {
		s.groups += len(p.keySets)
		s.charges += len(p.Limits)
	}
	return s
}

// Policies are the set's policies in order of their names. Callers must not change the slice.
func (s *Set) Policies() []*Policy {
	if s == nil {
		return nil
	}
	return s.policies
}

// Describe finds all that governs the request, over all policies of the set.
func (s *Set) Describe(req *Request) Description {
	var d Description
	if s == nil || len(s.policies) == 0 {
		return d
	}
	v := view{req: req}
	for _, p := range s.policies {
		p.describe(&v, &d, s)
		if d.Deny != nil {
			d.Groups, d.charges = nil, nil
			return d
		}
	}
	return d
}
