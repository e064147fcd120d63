//go:build e2e

package faults_test

import (
	"maps"
	"math"
	"slices"
	"time"
)

// histogram holds, by upper bound in seconds, how many verdicts took no longer.
type histogram map[float64]uint64

func (h histogram) count() uint64 {
	var most uint64
	for _, n := range h {
		most = max(most, n)
	}
	return most
}

// quantile estimates, as Prometheus does, how long the given share of the verdicts took at most: linear within a bucket. What is beyond the last
// bound counts as that bound.
func (h histogram) quantile(share float64) time.Duration {
	edges := slices.Sorted(maps.Keys(h))
	rank := share * float64(h.count())
	below, lower := 0.0, 0.0
	for _, edge := range edges {
		if math.IsInf(edge, 1) {
			break
		}
		n := float64(h[edge])
		if n >= rank {
			within := 1.0
			if n > below {
				within = (rank - below) / (n - below)
			}
			return seconds(lower + within*(edge-lower))
		}
		below, lower = n, edge
	}
	return seconds(lower)
}

// atMost is the share of the verdicts that took no longer than a bound of the histogram.
func (h histogram) atMost(bound time.Duration) float64 {
	if h.count() == 0 {
		return 1
	}
	return float64(h[bound.Seconds()]) / float64(h.count())
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
