package tokenbucket_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/internal/localbucket"
	"github.com/portero-dev/portero/internal/tokenbucket"
)

var _ = Describe("The wait of a refusal", func() {
	It("suffices to the microsecond for one client alone, for every shape of limit, and no less does", func(ctx SpecContext) {
		random := rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), 3))
		prefix := newKey()
		master, err := cluster.MasterOf(ctx, prefix)
		Expect(err).NotTo(HaveOccurred())
		var held, several, owing, helpless int
		for round := range 1500 {
			key, now := fmt.Sprintf("%s:%d", prefix, round), farFuture
			charges := randomCharges(random)
			spend := func() []tokenbucket.ChargeResult {
				results, _, err := takeAt(ctx, master.Client(), key, now, charges...)
				Expect(err).NotTo(HaveOccurred())
				return results
			}
			for range 1 + random.IntN(8) {
				now += upTo(random, 100*second)
				for i := range charges {
					charges[i].Debit = random.Int64N(2) * upTo(random, charges[i].Params.Capacity)
				}
				if first := spend()[0]; first.Receipt.Charged() && random.IntN(4) == 0 {
					_, _, err := giveBackAt(ctx, master.Client(), key, now+upTo(random, second), first.Receipt)
					Expect(err).NotTo(HaveOccurred())
				}
			}
			for i := range charges {
				charges[i].Cost, charges[i].Debit = upTo(random, charges[i].Params.Capacity), 0
			}
			now -= upTo(random, 10*second) // a clock that was set back counts too
			results := spend()
			wait, refused, helps := longest(results, charges)
			owing += count(refused > 0 && slices.ContainsFunc(results, func(r tokenbucket.ChargeResult) bool { return r.Level.Tokens < 0 }))
			if now+wait.Microseconds() >= maxExact {
				helpless++
				continue
			}
			if refused == 0 {
				continue
			}
			Expect(helps).To(BeTrue())
			asked := now
			now = asked + wait.Microseconds() - 1
			_, still, _ := longest(spend(), charges)
			Expect(still).To(BeNumerically(">", 0), "%s earlier by a microsecond: %+v", wait, charges)
			now++
			_, still, _ = longest(spend(), charges)
			Expect(still).To(BeZero(), "after %s: %+v", wait, charges)
			held++
			several += count(refused > 1)
		}
		Expect([]int{held, several, owing}).To(HaveEach(BeNumerically(">", 100)), "%d beyond every clock", helpless)
	}, NodeTimeout(time.Minute))
})

// randomCharges are of one to four enforced limits.
func randomCharges(random *rand.Rand) []tokenbucket.Charge {
	charges := make([]tokenbucket.Charge, 1+random.IntN(4))
	for i := range charges {
		params := randomParams(random)
		charges[i] = tokenbucket.Charge{ID: uint64(i + 1), Params: params, Cost: upTo(random, params.Capacity)}
	}
	return charges
}

// longest is the longest wait of those that refused, and their number.
func longest(results []tokenbucket.ChargeResult, charges []tokenbucket.Charge) (time.Duration, int, bool) {
	wait, refused, all := time.Duration(0), 0, true
	for i, result := range results {
		if result.Allowed {
			continue
		}
		one, helps := result.Params.Wait(result.Level, 0, charges[i].Cost)
		wait, refused, all = max(wait, one), refused+1, all && helps && one < localbucket.Forever
	}
	return wait, refused, all
}
