package localbucket_test

import (
	"testing"

	"github.com/portero-dev/portero/internal/localbucket"
)

// FuzzWait checks that no level within bounds makes a wait that is too short, or a negative one.
func FuzzWait(f *testing.F) {
	f.Add(int64(20), int64(10), second, int64(3), int64(5), int64(-7), int64(4))
	f.Add(int64(1e9), int64(1), localbucket.MaxIntervalUS, int64(-1e9), int64(0), int64(0), int64(1e9))
	f.Fuzz(func(t *testing.T, capacity, refill, interval, tokens, remainder, ahead, cost int64) {
		params := localbucket.Params{Capacity: capacity, RefillTokens: refill, IntervalUS: interval}
		level := localbucket.Level{Tokens: tokens, Remainder: remainder, UpdatedUS: start + ahead}
		if params.Validate() != nil || tokens < -localbucket.MaxTokens || tokens > capacity || remainder < 0 ||
			remainder >= interval || ahead < -start || ahead > start || cost < 1 || cost > capacity {
			return
		}
		wait, ok := params.Wait(level, start, cost)
		if !ok || wait < 0 {
			t.Fatalf("wait %s, %t", wait, ok)
		}
		if wait == localbucket.Forever {
			return
		}
		if _, allowed := params.Take(level, start+wait.Microseconds(), cost); !allowed {
			t.Fatalf("refused after waiting for %s", wait)
		}
	})
}
