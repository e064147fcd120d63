package policy

import (
	"fmt"
	"maps"
	"slices"

	portero "github.com/portero-dev/portero/api/v1alpha1"
)

// PodCounts counts the pods of a policy. What can't be read is absent: a count of 0 would be a guess.
func PodCounts(f *Facts) *portero.PodCounts {
	if f.PodsUnknown {
		return nil
	}
	var matched, unprotected, injected, enforcing, fallback, silent int32
	asked := f.asked()
	for i := range f.Pods {
		p := &f.Pods[i]
		matched++
		if !p.Asked {
			unprotected++
			continue
		}
		if !p.Injected {
			continue
		}
		injected++
		switch {
		case !p.Fresh:
			silent++
		case p.Fallback:
			fallback++
		case p.Applied == f.Generation:
			enforcing++
		}
	}
	counts := &portero.PodCounts{Matched: &matched, Unprotected: &unprotected, Injected: &injected}
	if f.BeatsUnreadable != nil {
		counts.Summary = fmt.Sprintf("?/%d", asked)
		return counts
	}
	counts.Summary = fmt.Sprintf("%d/%d", enforcing, asked)
	counts.Enforcing, counts.Fallback, counts.Unknown = &enforcing, &fallback, &silent
	return counts
}

// maxOverlaps bounds the list; nobody reads more.
const maxOverlaps = 64

// Overlaps are the other policies that sidecars of the policy's pods apply, by name, as their fresh heartbeats say: with them it shares the
// verdict. Nothing when heartbeats can't be read.
func Overlaps(f *Facts) []portero.Overlap {
	if f.PodsUnknown || f.BeatsUnreadable != nil {
		return nil
	}
	count := map[string]int32{}
	for i := range f.Pods {
		if f.Pods[i].Applied == 0 {
			continue
		}
		for _, name := range f.Pods[i].Others {
			count[name]++
		}
	}
	var overlaps []portero.Overlap
	for _, name := range slices.Sorted(maps.Keys(count)) {
		overlaps = append(overlaps, portero.Overlap{Policy: name, Pods: count[name]})
	}
	return overlaps[:min(len(overlaps), maxOverlaps)]
}

// EnforcedGeneration is the lowest generation that the sidecars of all ready pods which asked apply, or 0 when that can't
// be told or one applies none.
func EnforcedGeneration(f *Facts) int64 {
	if f.BeatsUnreadable != nil {
		return 0
	}
	var lowest int64
	for _, p := range f.concerned() {
		if !p.Injected || !p.Fresh || p.Applied == 0 {
			return 0
		}
		if lowest == 0 || p.Applied < lowest {
			lowest = p.Applied
		}
	}
	return lowest
}
