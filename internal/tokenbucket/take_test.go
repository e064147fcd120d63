package tokenbucket_test

import (
	"fmt"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/internal/localbucket"
	"github.com/portero-dev/portero/internal/tokenbucket"
)

// slow is a bucket that refills nothing worth counting during a test.
var slow = localbucket.Params{Capacity: 10, RefillTokens: 1, IntervalUS: localbucket.MaxIntervalUS}

var keys atomic.Int64

// newKey is a key that no other spec uses.
func newKey() string { return fmt.Sprintf("test:{%d}", keys.Add(1)) }

func take(ctx SpecContext, key string, charges ...tokenbucket.Charge) []tokenbucket.ChargeResult {
	GinkgoHelper()
	call, err := tokenbucket.NewTake(key, charges)
	Expect(err).NotTo(HaveOccurred())
	Expect(cluster.Client().Process(ctx, call)).To(Succeed())
	results, err := call.Result()
	Expect(err).NotTo(HaveOccurred())
	return results
}

var _ = Describe("Taking from a bucket", func() {
	It("starts full and refuses what the level does not cover", func(ctx SpecContext) {
		key := newKey()
		charge := tokenbucket.Charge{ID: 1, Params: slow, Cost: 7}
		result := take(ctx, key, charge)[0]
		Expect(result.Allowed).To(BeTrue())
		Expect(result.Level.Tokens).To(Equal(int64(3)))
		result = take(ctx, key, charge)[0]
		Expect(result.Allowed).To(BeFalse())
		Expect(result.Level.Tokens).To(Equal(int64(3)))
		charge.Cost = 3
		Expect(take(ctx, key, charge)[0].Allowed).To(BeTrue())
	})
})
