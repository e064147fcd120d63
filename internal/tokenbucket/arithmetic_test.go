package tokenbucket_test

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"reflect"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/internal/localbucket"
	"github.com/portero-dev/portero/internal/tokenbucket"
)

const (
	second = int64(time.Second / time.Microsecond)
	// farFuture is where the clock of the specs of arithmetic starts, so that no expiry, which goes by Redis' own clock,
	// comes to pass: the year 2150.
	farFuture = 5_680_000_000 * second
	maxExact  = int64(1) << 53
	// noKey is what PEXPIRETIME says of a key that does not exist; -1 would be one that never expires.
	noKey = -2
)

var _ = Describe("The arithmetic", func() {
	It("agrees with integers without bounds over random limits, changes, costs and times", func(ctx SpecContext) {
		random := rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), 1))
		key := newKey()
		master, err := cluster.MasterOf(ctx, key)
		Expect(err).NotTo(HaveOccurred())
		var stale, refused, partly, behind, owing, deepest int
		for round := range 400 {
			key := fmt.Sprintf("%s:%d", key, round)
			limits, model := newRandomLimits(random), modelKey{}
			now := farFuture
			for range 25 {
				now = advance(random, now, model)
				charges := limits.charges()
				results, expiry, err := takeAt(ctx, master.Client(), key, now, charges...)
				Expect(err).NotTo(HaveOccurred())
				wanted := model.take(now, charges)
				if !reflect.DeepEqual(bare(results), wanted) {
					Fail(fmt.Sprintf("%s:\n got %+v\nwant %+v", describe(charges, now), results, wanted))
				}
				for i, result := range results {
					stale += count(result.Stale)
					refused += count(!result.Allowed)
					behind += count(result.Level.UpdatedUS > 0)
					owing += count(result.Level.Tokens < 0)
					deepest += count(charges[i].Debit > 0 && result.Level.Tokens == -result.Params.Capacity)
				}
				partly += count(len(results) > 1 && results[0].Allowed != results[1].Allowed)
				expectExpiry(model, expiry, describe(charges, now))
			}
		}
		// All of it happened, and not by a hair.
		Expect([]int{stale, refused, partly, behind, owing, deepest}).To(HaveEach(BeNumerically(">", 100)))
	}, NodeTimeout(2*time.Minute))

	It("caps the expiry of a bucket that needs longer than any clock tells", func(ctx SpecContext) {
		key := newKey()
		master, err := cluster.MasterOf(ctx, key)
		Expect(err).NotTo(HaveOccurred())
		params := localbucket.Params{Capacity: localbucket.MaxTokens, RefillTokens: 1, IntervalUS: localbucket.MaxIntervalUS}
		_, expiry, err := takeAt(ctx, master.Client(), key, farFuture, tokenbucket.Charge{ID: 1, Params: params, Cost: localbucket.MaxTokens})
		Expect(err).NotTo(HaveOccurred())
		Expect(expiry).To(Equal(maxExact - 1))
	})

	It("caps the expiry of the deepest debt", func(ctx SpecContext) {
		key := newKey()
		master, err := cluster.MasterOf(ctx, key)
		Expect(err).NotTo(HaveOccurred())
		params := localbucket.Params{Capacity: localbucket.MaxTokens, RefillTokens: 1, IntervalUS: localbucket.MaxIntervalUS}
		for range 3 {
			results, expiry, err := takeAt(ctx, master.Client(), key, farFuture, tokenbucket.Charge{ID: 1, Params: params, Debit: localbucket.MaxTokens})
			Expect(err).NotTo(HaveOccurred())
			Expect(expiry).To(Equal(maxExact - 1))
			Expect(results[0].Level.Tokens).To(BeNumerically(">=", -localbucket.MaxTokens))
		}
	})

	It("lets the library alone differ in its clock from what the specs of arithmetic run", func() {
		Expect(library.Code).To(MatchRegexp("^#!lua name=portero_v1\n-- revision .*\nlocal LIBRARY = 'portero_v1'\n"))
		_, rest, found := strings.Cut(library.Code, "\nend\n") // of now_us
		Expect(found).To(BeTrue())
		Expect(testLibrary.Code).To(HaveSuffix(rest))
		Expect(testLibrary.Digest).NotTo(Equal(library.Digest))
	})
})

func count(is bool) int {
	if is {
		return 1
	}
	return 0
}

// advance moves the clock: not at all, to just around the time at which all is full, back, or by any stretch.
func advance(random *rand.Rand, now int64, model modelKey) int64 {
	next := now
	switch random.IntN(8) {
	case 0:
	case 1:
		if full := model.fullAt(); full.IsInt64() {
			next = full.Int64() + random.Int64N(3) - 1
		}
	case 2:
		next -= upTo(random, 100*second)
	case 3:
		next += upTo(random, 20*localbucket.MaxIntervalUS)
	default:
		next += upTo(random, localbucket.MaxIntervalUS)
	}
	if next < farFuture || next >= maxExact-100*localbucket.MaxIntervalUS {
		return now
	}
	return next
}

// expectExpiry checks that the key lives until every record is full, to the millisecond, and hardly longer.
func expectExpiry(model modelKey, expiry int64, where string) {
	GinkgoHelper()
	if len(model) == 0 {
		if expiry != noKey {
			Fail(fmt.Sprintf("%s: the key expires at %d, want none", where, expiry))
		}
		return
	}
	full, _ := new(big.Float).SetInt(model.fullAt()).Float64()
	earliest := min(math.Ceil(full/1000), float64(maxExact-1))
	// The part of a token that is there already may be left out.
	slack := 2.0 + 1e-9*(full-float64(farFuture))/1000
	for _, record := range model {
		slack += float64(record.params.IntervalUS) / float64(record.params.RefillTokens) / 1000
	}
	if float64(expiry) < earliest || float64(expiry) > earliest+slack {
		Fail(fmt.Sprintf("%s: expires at %d ms, full at %.0f us", where, expiry, full))
	}
}
