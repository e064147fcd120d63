package localbucket_test

import (
	"testing"
)

// BenchmarkTake must show no allocation.
func BenchmarkTake(b *testing.B) {
	b.ReportAllocs()
	level := tenPerSecond.Full(start)
	for now := start; b.Loop(); now++ {
		level, _ = tenPerSecond.Take(level, now, 1)
	}
}
