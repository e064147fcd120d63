package tokenbucket_test

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/internal/localbucket"
	"github.com/portero-dev/portero/internal/tokenbucket"
)

var _ = Describe("Many callers of one bucket", func() {
	It("pass together no more than its capacity and its refill over the time", func(ctx SpecContext) {
		const callers, window = 16, time.Second
		params := localbucket.Params{Capacity: 50, RefillTokens: 100, IntervalUS: second}
		key := newKey()
		var passed, failed atomic.Int64
		from := redisTime(ctx, key)
		crowd(ctx, callers, func(stop func()) {
			results, err := tryTake(ctx, key, tokenbucket.Charge{ID: 1, Params: params, Cost: 1})
			switch {
			case err != nil:
				failed.Add(1)
				stop()
			case results[0].Allowed:
				passed.Add(1)
			}
		}, window)
		elapsed := redisTime(ctx, key) - from

		Expect(failed.Load()).To(BeZero())
		refilled := elapsed * params.RefillTokens / params.IntervalUS
		Expect(passed.Load()).To(BeNumerically("<=", params.Capacity+refilled), "over %d us", elapsed)
		// They asked for more at any time, so that little was left.
		Expect(passed.Load()).To(BeNumerically(">=", params.Capacity+refilled*8/10), "over %d us", elapsed)
	}, NodeTimeout(time.Minute))

	It("keep two limits in step", func(ctx SpecContext) {
		const callers = 8
		key := newKey()
		wide, narrow := slow, slow
		wide.Capacity, narrow.Capacity = 1000, 100
		charges := []tokenbucket.Charge{{ID: 1, Params: wide, Cost: 3}, {ID: 2, Params: narrow, Cost: 1}}
		var passed atomic.Int64
		crowd(ctx, callers, func(stop func()) {
			defer GinkgoRecover()
			results := take(ctx, key, charges...)
			if results[0].Allowed && results[1].Allowed {
				passed.Add(1)
			} else {
				stop()
			}
		}, time.Minute)
		results := take(ctx, key, charges...)
		Expect(passed.Load()).To(Equal(int64(100)))
		Expect(results[0].Level.Tokens).To(Equal(int64(1000 - 3*100)))
	}, NodeTimeout(time.Minute))
})

// crowd calls visit from many goroutines until the window is over or visit stops its goroutine.
func crowd(ctx context.Context, callers int, visit func(stop func()), window time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, window)
	defer cancel()
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for stopped := false; !stopped && ctx.Err() == nil; {
				visit(func() { stopped = true })
			}
		})
	}
	all.Wait()
}
