package tokenbucket_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/portero-dev/portero/internal/localbucket"
	"github.com/portero-dev/portero/internal/tokenbucket"
)

var _ = Describe("Giving back", func() {
	It("returns what was charged, once others took too, and nothing else", func(ctx SpecContext) {
		key := newKey()
		first := take(ctx, key, tokenbucket.Charge{ID: 1, Params: slow, Cost: 4}, tokenbucket.Charge{ID: 2, Params: slow, Cost: 2})
		take(ctx, key, tokenbucket.Charge{ID: 1, Params: slow, Cost: 3})
		Expect(giveBack(ctx, key, first[0].Receipt)).To(Equal(1))
		Expect(tokens(ctx, key, 1)).To(Equal(int64(7)))
		Expect(tokens(ctx, key, 2)).To(Equal(int64(8)))
		Expect(giveBack(ctx, key, first[1].Receipt)).To(Equal(1))
		Expect(tokens(ctx, key, 2)).To(Equal(int64(10)))
		Expect(cluster.Client().StrLen(ctx, key).Val()).To(Equal(int64(1+68)), "a full record is not kept")
	})

	It("leaves no key where all is full again", func(ctx SpecContext) {
		key := newKey()
		result := take(ctx, key, tokenbucket.Charge{ID: 1, Params: slow, Cost: 4})[0]
		Expect(giveBack(ctx, key, result.Receipt)).To(Equal(1))
		Eventually(func() int64 { return cluster.Client().Exists(ctx, key).Val() }, "2s", "5ms").Should(BeZero())
		neighbor := take(ctx, key+":2", tokenbucket.Charge{ID: 1, Params: slow, Cost: 4})[0] // of the same server
		Expect(giveBack(ctx, key, neighbor.Receipt)).To(Equal(1), "a missing record is full")
		Expect(cluster.Client().Exists(ctx, key).Val()).To(BeZero())
	})

	It("has a receipt for what was charged only", func(ctx SpecContext) {
		key := newKey()
		charges := []tokenbucket.Charge{
			{ID: 1, Params: slow, Cost: 4}, {ID: 2, Params: slow, Cost: 11}, {ID: 3, Params: slow, Cost: 1, Shadow: true},
		}
		var charged []bool
		for _, result := range take(ctx, key, charges...) {
			charged = append(charged, result.Receipt.Charged())
		}
		Expect(charged).To(Equal([]bool{false, false, true}))
	})

	It("keeps what older libraries stored, and answers older sidecars as they read it", func(ctx SpecContext) {
		key := newKey()
		old := []byte{1}
		for id, left := range map[uint64]uint32{1: 6, 2: 5} {
			old = binary.BigEndian.AppendUint64(old, id)
			old = binary.BigEndian.AppendUint64(old, 0)
			old = binary.BigEndian.AppendUint32(old, uint32(slow.Capacity))
			old = binary.BigEndian.AppendUint32(old, uint32(slow.RefillTokens))
			old = binary.BigEndian.AppendUint64(old, uint64(slow.IntervalUS))
			old = binary.BigEndian.AppendUint32(old, left)
			old = binary.BigEndian.AppendUint64(old, 0)
			old = binary.BigEndian.AppendUint64(old, uint64(redisTime(ctx, key)))
		}
		Expect(cluster.Client().Set(ctx, key, old, time.Minute).Err()).To(Succeed())
		elsewhere := take(ctx, newKey(), valid)[0].Receipt
		Expect(giveBack(ctx, key, elsewhere)).To(BeZero(), "they had no receipts")
		reply, err := cluster.Client().FCall(ctx, tokenbucket.FunctionTake, []string{key}, with(packed(valid), 0, 1)).Text()
		Expect(err).NotTo(HaveOccurred())
		Expect(reply).To(HaveLen(21))
		Expect([]byte(reply)[:5]).To(Equal([]byte{1, 0, 0, 0, 5}))
		Expect(tokens(ctx, key, 1)).To(Equal(int64(5)))
		Expect(tokens(ctx, key, 2)).To(Equal(int64(5)))
	})

	Describe("at a time", func() {
		// 10 tokens, one a second.
		params := localbucket.Params{Capacity: 10, RefillTokens: 1, IntervalUS: second}
		var key string
		var client *redis.Client
		BeforeEach(func(ctx SpecContext) {
			key = newKey()
			master, err := cluster.MasterOf(ctx, key)
			Expect(err).NotTo(HaveOccurred())
			client = master.Client()
		})
		takes := func(ctx context.Context, now, cost int64) tokenbucket.ChargeResult {
			GinkgoHelper()
			results, _, err := takeAt(ctx, client, key, farFuture+now, tokenbucket.Charge{ID: 1, Params: params, Cost: cost})
			Expect(err).NotTo(HaveOccurred())
			return results[0]
		}
		gives := func(ctx context.Context, now int64, of tokenbucket.ChargeResult) int {
			GinkgoHelper()
			settled, _, err := giveBackAt(ctx, client, key, farFuture+now, of.Receipt)
			Expect(err).NotTo(HaveOccurred())
			return settled
		}
		level := func(ctx context.Context, now int64) localbucket.Level {
			GinkgoHelper()
			return takes(ctx, now, 11).Level // refused
		}

		It("makes full what was full, less what refilled meanwhile, so that nothing is gained", func(ctx SpecContext) {
			first := takes(ctx, 0, 5)
			Expect(gives(ctx, second/2, first)).To(Equal(1))
			Expect(level(ctx, second/2)).To(Equal(localbucket.Level{Tokens: 10}))
			first, second2 := takes(ctx, second, 2), takes(ctx, second+100, 2)
			Expect(gives(ctx, second+200, first)).To(Equal(1))
			Expect(gives(ctx, second+200, second2)).To(Equal(1))
			// Without both it would be full: what refilled is taken off each of them, as nobody knows whose it was.
			Expect(level(ctx, second+200)).To(Equal(localbucket.Level{Tokens: 9, Remainder: second - 100}))
		})

		It("drops what was taken before a bucket that nobody drew from would have been full", func(ctx SpecContext) {
			first := takes(ctx, 0, 5)
			takes(ctx, 5*second, 5) // full again: with or without the first charge, 5 are left
			Expect(gives(ctx, 5*second, first)).To(BeZero())
			Expect(level(ctx, 5*second).Tokens).To(Equal(int64(5)))
		})

		It("returns all of it while that bucket would not be full, however late", func(ctx SpecContext) {
			takes(ctx, 0, 10)
			late := takes(ctx, 4*second, 2)
			takes(ctx, 6*second, 3)
			Expect(gives(ctx, 9*second, late)).To(Equal(1))
			Expect(level(ctx, 9*second).Tokens).To(Equal(int64(9 - 3)))
		})

		It("mints nothing by an order of give-backs that each alone would be right", func(ctx SpecContext) {
			// Without both charges the bucket is full, and the 5 that refill are lost.
			takes(ctx, 0, 10)
			full := takes(ctx, 10*second, 5)
			other := takes(ctx, 10*second, 5)
			Expect(gives(ctx, 10*second, full)).To(Equal(1))
			takes(ctx, 15*second, 10)
			Expect(gives(ctx, 15*second, other)).To(BeZero())
			Expect(level(ctx, 15*second).Tokens).To(BeZero())
		})

		It("gives nothing twice to a clock that was set back", func(ctx SpecContext) {
			first := takes(ctx, 100*second, 5)
			Expect(gives(ctx, 0, first)).To(Equal(1))
			Expect(level(ctx, 0).Tokens).To(Equal(int64(10)))
			second2 := takes(ctx, 0, 4)
			Expect(gives(ctx, 0, second2)).To(Equal(1))
			Expect(level(ctx, 0)).To(Equal(localbucket.Level{Tokens: 10}))
		})
	})

	DescribeTable("is dropped where the charge can't be shown to be in the level",
		func(ctx SpecContext, between func(context.Context, string), receipt func(tokenbucket.Receipt) tokenbucket.Receipt, left int64) {
			DeferCleanup(func(ctx SpecContext) { Expect(load(ctx, library, testLibrary)).To(Succeed()) })
			key := newKey()
			result := take(ctx, key, tokenbucket.Charge{ID: 1, Order: 1, Params: slow, Cost: 4})[0]
			between(ctx, key)
			Expect(giveBack(ctx, key, receipt(result.Receipt))).To(BeZero())
			Expect(tokens(ctx, key, 1)).To(Equal(left))
		},
		Entry("another epoch", func(context.Context, string) {},
			func(r tokenbucket.Receipt) tokenbucket.Receipt { return r.With(1, 0) }, int64(6)),
		Entry("another server", func(context.Context, string) {},
			func(r tokenbucket.Receipt) tokenbucket.Receipt { return r.With(0, 1) }, int64(6)),
		Entry("a library that was loaded since", func(ctx context.Context, _ string) { Expect(load(ctx, library)).To(Succeed()) },
			same, int64(6)),
		Entry("a key that was removed, and charged by others", func(ctx context.Context, key string) {
			Expect(cluster.Client().Del(ctx, key).Err()).To(Succeed())
			take(ctx, key, tokenbucket.Charge{ID: 1, Order: 1, Params: slow, Cost: 3})
		}, same, int64(7)),
		Entry("a limit that was changed", func(ctx context.Context, key string) {
			wider := slow
			wider.Capacity = 20
			take(ctx, key, tokenbucket.Charge{ID: 1, Order: 2, Params: wider, Cost: 1})
		}, same, int64(5)),
	)

	It("returns to a limit whose order alone is new, or that an older caller took from", func(ctx SpecContext) {
		key := newKey()
		result := take(ctx, key, tokenbucket.Charge{ID: 1, Order: 1, Params: slow, Cost: 4})[0]
		take(ctx, key, tokenbucket.Charge{ID: 1, Order: 2, Params: slow, Cost: 1})
		older := slow
		older.Capacity = 5
		take(ctx, key, tokenbucket.Charge{ID: 1, Order: 1, Params: older, Cost: 1})
		Expect(giveBack(ctx, key, result.Receipt)).To(Equal(1))
		Expect(tokens(ctx, key, 1)).To(Equal(int64(8)))
	})

	It("is dropped by a replica that was promoted without the charge", func(ctx SpecContext) {
		key := newKey()
		charge := tokenbucket.Charge{ID: 1, Params: slow, Cost: 2}
		master, err := cluster.MasterOf(ctx, key)
		Expect(err).NotTo(HaveOccurred())
		replicas, err := cluster.ReplicasOf(ctx, master)
		Expect(err).NotTo(HaveOccurred())
		replica := replicas[0]
		DeferCleanup(func(ctx SpecContext) {
			_ = replica.Signal(syscall.SIGCONT)
			if !master.Running() {
				Expect(master.Restart(ctx)).To(Succeed())
			}
			Expect(cluster.WaitHealthy(ctx)).To(Succeed())
		})
		kept := take(ctx, key, charge)[0]
		Expect(master.Client().Wait(ctx, 1, time.Second).Val()).To(Equal(int64(1)))
		Expect(replica.Signal(syscall.SIGSTOP)).To(Succeed())
		// Or what it did not read yet would wait for it in its socket.
		Expect(master.Client().Do(ctx, "CLIENT", "KILL", "TYPE", "replica").Err()).To(Succeed())
		lost := take(ctx, key, charge)[0]
		Expect(lost.Level.Tokens).To(Equal(int64(6)))
		master.Kill()
		Expect(replica.Signal(syscall.SIGCONT)).To(Succeed())
		Eventually(func() (bool, error) { return replica.IsMaster(ctx) }, "20s", "100ms").Should(BeTrue())
		Eventually(func() error { return replica.Client().Set(ctx, key+"x", "", 0).Err() }, "10s", "50ms").Should(Succeed())

		call := func(receipt tokenbucket.Receipt) int {
			back, err := tokenbucket.NewGiveBack(key, []tokenbucket.Receipt{receipt})
			Expect(err).NotTo(HaveOccurred())
			Expect(replica.Client().Process(ctx, back)).To(Succeed())
			settled, err := back.Settled()
			Expect(err).NotTo(HaveOccurred())
			return settled
		}
		Expect(call(lost.Receipt)).To(BeZero(), "it never happened here")
		Expect(call(kept.Receipt)).To(BeZero(), "in doubt")
		again, err := tokenbucket.NewTake(key, []tokenbucket.Charge{charge})
		Expect(err).NotTo(HaveOccurred())
		Expect(replica.Client().Process(ctx, again)).To(Succeed())
		results, err := again.Result()
		Expect(err).NotTo(HaveOccurred())
		Expect(results[0].Level.Tokens).To(Equal(int64(6)), "the lost charge came back once, by the failover")
		Expect(call(results[0].Receipt)).To(Equal(1))
	}, NodeTimeout(time.Minute))

	It("never brings a level above that of a bucket without the charges, nor above the capacity", func(ctx SpecContext) {
		random := rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), 2))
		prefix := newKey()
		master, err := cluster.MasterOf(ctx, prefix)
		Expect(err).NotTo(HaveOccurred())
		var seen tallied
		for round := range 300 {
			w := &without{
				random: random, client: master.Client(), key: fmt.Sprintf("%s:%d", prefix, round),
				limits: newRandomLimits(random), now: farFuture, real: modelKey{}, events: map[uint64][]*event{}, seen: &seen,
			}
			for range 40 {
				w.step(ctx)
			}
		}
		Expect([]int{seen.settled, seen.dropped, seen.returned, seen.inPart}).To(HaveEach(BeNumerically(">", 100)), "%+v", seen)
	}, NodeTimeout(2*time.Minute))
})

func same(r tokenbucket.Receipt) tokenbucket.Receipt { return r }

// tokens asks for the level by a charge that is refused for ever.
func tokens(ctx context.Context, key string, id uint64) int64 {
	GinkgoHelper()
	return take(ctx, key, tokenbucket.Charge{ID: id, Order: 0, Params: slow, Cost: localbucket.MaxTokens})[0].Level.Tokens
}

// without follows a key by two models: what is in Redis must follow from what was there, and never exceed what would be
// there without the charges that were given back.
type without struct {
	random *rand.Rand
	client *redis.Client
	key    string
	limits *randomLimits
	now    int64
	latest int64
	real   modelKey
	events map[uint64][]*event // by limit, since its record began
	open   []*event
	seen   *tallied
}

// event is a write to a limit's record.
type event struct {
	limit      uint64 // of a charge
	now, order int64
	params     localbucket.Params
	debit      int64 // before the cost
	cost       int64 // zero once it was given back
	receipt    tokenbucket.Receipt
}

type tallied struct{ settled, dropped, returned, inPart int }

func (w *without) step(ctx context.Context) {
	GinkgoHelper()
	switch w.random.IntN(4) {
	case 0:
		w.now = advance(w.random, w.now, w.real)
	case 1:
		w.now += w.random.Int64N(1000)
	}
	w.latest = max(w.latest, w.now)
	if len(w.open) == 0 || w.random.IntN(2) == 0 {
		w.take(ctx)
	} else {
		w.giveBack(ctx)
	}
	for id, record := range w.real {
		var free *modelRecord
		for _, e := range w.events[id] {
			free = free.at(e.now, e.order, e.params)
			free.debit(e.debit)
			free.units.Sub(free.units, units(e.cost, e.params))
		}
		free = free.at(record.updated, record.order, record.params)
		if record.units.Cmp(free.units) > 0 || record.units.Cmp(units(record.params.Capacity, record.params)) >= 0 {
			Fail(fmt.Sprintf("%s, limit %d: holds %s of %s units at most after %d writes", w.key, id, record.units, free.units, len(w.events[id])))
		}
	}
}

func (w *without) take(ctx context.Context) {
	GinkgoHelper()
	charges := w.limits.charges()
	if w.random.IntN(2) == 0 { // small ones, of which many fit
		for i := range charges {
			if charges[i].Debit == 0 {
				charges[i].Cost = 1 + w.random.Int64N(1+charges[i].Params.Capacity/8)
			} else {
				charges[i].Debit = 1 + w.random.Int64N(1+charges[i].Params.Capacity/8)
			}
		}
	}
	results, expiry, err := takeAt(ctx, w.client, w.key, w.now, charges...)
	Expect(err).NotTo(HaveOccurred())
	wanted := w.real.take(w.now, charges)
	Expect(bare(results)).To(Equal(wanted), describe(charges, w.now))
	w.expectExpiry(expiry)
	charged := slices.ContainsFunc(results, func(r tokenbucket.ChargeResult) bool { return r.Receipt.Charged() }) ||
		slices.ContainsFunc(charges, func(c tokenbucket.Charge) bool { return c.Debit > 0 })
	for i, charge := range charges {
		record := w.real[charge.ID]
		if record == nil || !charged {
			continue
		}
		e := &event{limit: charge.ID, now: w.now, order: record.order, params: record.params, debit: charge.Debit, receipt: results[i].Receipt}
		w.events[charge.ID] = append(w.events[charge.ID], e)
		if e.receipt.Charged() {
			e.cost = charge.Cost
			w.open = append(w.open, e)
		}
	}
	w.forget()
}

// forget ends the history of limits whose record is gone: they are full, with the charges and without.
func (w *without) forget() {
	for id := range w.events {
		if w.real[id] == nil {
			delete(w.events, id)
		}
	}
}

func (w *without) giveBack(ctx context.Context) {
	GinkgoHelper()
	i := len(w.open) - 1
	if w.random.IntN(2) == 0 {
		i = w.random.IntN(len(w.open))
	}
	e := w.open[i]
	w.open = slices.Delete(w.open, i, i+1)
	settled, expiry, err := giveBackAt(ctx, w.client, w.key, w.now, e.receipt)
	Expect(err).NotTo(HaveOccurred())
	before := w.real[e.limit]
	w.seen.settled += settled
	w.seen.dropped += 1 - settled
	if settled == 0 {
		return
	}
	written := decode(w.client.Get(ctx, w.key).Val())
	if before == nil || before.at(w.now, before.order, before.params).full() {
		return
	}
	gained := before.at(w.now, before.order, before.params)
	after := written[e.limit]
	if after == nil {
		after = gained.at(w.now, gained.order, gained.params)
		after.units = units(after.params.Capacity, after.params)
	}
	Expect(after.updated).To(Equal(gained.updated))
	gained.units.Sub(after.units, gained.units)
	Expect(gained.units.Sign()).To(BeNumerically(">=", 0))
	Expect(gained.units.Cmp(units(e.cost, after.params))).To(BeNumerically("<=", 0))
	w.seen.returned++
	w.seen.inPart += count(gained.units.Cmp(units(e.cost, after.params)) < 0)
	e.cost = 0
	if record := written[e.limit]; record != nil {
		// A write, from which a changed limit's new parameters will count.
		w.events[e.limit] = append(w.events[e.limit], &event{now: w.now, order: record.order, params: record.params})
	}
	w.real = written
	w.forget()
	w.expectExpiry(expiry)
}

// expectExpiry allows for a key without records, which stays until the next millisecond of a clock that the test is ahead of.
func (w *without) expectExpiry(expiry int64) {
	GinkgoHelper()
	if len(w.real) > 0 {
		expectExpiry(w.real, expiry, w.key)
	} else {
		Expect(expiry).To(BeNumerically("<=", w.latest/1000+1))
	}
}

// decode reads a string as token_bucket.lua describes it.
func decode(stored string) modelKey {
	key := modelKey{}
	for b := []byte(strings.TrimPrefix(stored, "\x02")); len(b) > 0; b = b[68:] {
		params := localbucket.Params{
			Capacity:     int64(binary.BigEndian.Uint32(b[16:])),
			RefillTokens: int64(binary.BigEndian.Uint32(b[20:])),
			IntervalUS:   int64(binary.BigEndian.Uint64(b[24:])),
		}
		level := units(int64(int32(binary.BigEndian.Uint32(b[32:]))), params)
		level.Add(level, units(1, localbucket.Params{IntervalUS: int64(binary.BigEndian.Uint64(b[36:]))}))
		key[binary.BigEndian.Uint64(b)] = &modelRecord{
			order: int64(binary.BigEndian.Uint64(b[8:])), params: params, units: level, updated: int64(binary.BigEndian.Uint64(b[44:])),
		}
	}
	return key
}
