package tokenbucket_test

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/portero-dev/portero/internal/localbucket"
	"github.com/portero-dev/portero/internal/tokenbucket"
)

var (
	valid   = tokenbucket.Charge{ID: 1, Params: slow, Cost: 1}
	debited = tokenbucket.Charge{ID: 1, Params: slow, Cost: 1, Debit: 1}
)

// packed are the arguments of a valid call, to be broken.
func packed(charges ...tokenbucket.Charge) []byte {
	call, err := tokenbucket.NewTake("key", charges)
	if err != nil {
		panic(err) // fuzz targets call this too
	}
	return append([]byte(nil), call.Args()[4].([]byte)...)
}

var _ = Describe("A failure of the store", func() {
	DescribeTable("is what malformed arguments end in, never a pass",
		func(ctx SpecContext, args func() []any, message string) {
			key := newKey()
			err := cluster.Client().FCall(ctx, tokenbucket.FunctionTake, []string{key}, args()...).Err()
			Expect(err).To(MatchError(ContainSubstring(message)))
			Expect(cluster.Client().Exists(ctx, key).Val()).To(BeZero())
		},
		Entry("no argument", func() []any { return nil }, "one argument"),
		Entry("two arguments", func() []any { return []any{packed(valid), "x"} }, "one argument"),
		Entry("an empty one", func() []any { return []any{""} }, "unknown version"),
		Entry("another version", func() []any { return []any{with(packed(valid), 0, 4)} }, "unknown version"),
		Entry("no charge", func() []any { return []any{packed(valid)[:1]} }, "wrong length"),
		Entry("half a charge", func() []any { return []any{packed(valid)[:30]} }, "wrong length"),
		Entry("one byte more", func() []any { return []any{append(packed(valid), 0)} }, "wrong length"),
		Entry("17 charges", func() []any {
			return []any{"\x02" + strings.Repeat(string(packed(valid)[1:]), 17)}
		}, "wrong length"),
		Entry("two charges of one limit", func() []any { return []any{packed(valid, valid)} }, "two charges of one limit"),
		Entry("an order that is not exact", func() []any { return []any{with(packed(valid), 9, 0, 0x20)} }, "order"),
		Entry("no capacity", func() []any { return []any{with(packed(valid), 17, 0, 0, 0, 0)} }, "bucket"),
		Entry("too much capacity", func() []any { return []any{with(packed(valid), 17, 0xff)} }, "bucket"),
		Entry("no refill", func() []any { return []any{with(packed(valid), 21, 0, 0, 0, 0)} }, "bucket"),
		Entry("too much refill", func() []any { return []any{with(packed(valid), 21, 0xff)} }, "bucket"),
		Entry("no interval", func() []any { return []any{with(packed(valid), 25, make([]byte, 8)...)} }, "bucket"),
		Entry("too long an interval", func() []any { return []any{with(packed(valid), 25, 1)} }, "bucket"),
		Entry("more than a token per microsecond", func() []any {
			return []any{with(packed(valid), 21, binary.BigEndian.AppendUint64([]byte{0, 0, 0x27, 0x11}, 10_000)...)}
		}, "bucket"),
		Entry("no cost", func() []any { return []any{with(packed(valid), 33, 0, 0, 0, 0)} }, "cost"),
		Entry("too much cost", func() []any { return []any{with(packed(valid), 33, 0xff)} }, "cost"),
		Entry("unknown flags", func() []any { return []any{with(packed(valid), 37, 2)} }, "flags"),
		Entry("debits without room for them", func() []any { return []any{with(packed(valid), 0, 3)} }, "wrong length"),
		Entry("neither a cost nor a debit", func() []any { return []any{with(packed(debited), 33, make([]byte, 9)...)} }, "cost"),
		Entry("too much of a debit", func() []any { return []any{with(packed(debited), 38, 0xff)} }, "cost"),
	)

	It("is what a call without a key or with two ends in", func(ctx SpecContext) {
		for _, keys := range [][]string{{}, {"{a}1", "{a}2"}} {
			err := cluster.Client().FCall(ctx, tokenbucket.FunctionTake, keys, packed(valid)).Err()
			Expect(err).To(MatchError(ContainSubstring("one key")))
		}
	})

	DescribeTable("is what a key with something else ends in",
		func(ctx SpecContext, fill func(context.Context, string) error, message string) {
			key := newKey()
			Expect(fill(ctx, key)).To(Succeed())
			_, err := tryTake(ctx, key, valid)
			Expect(err).To(MatchError(ContainSubstring(message)))
		},
		Entry("a hash", func(ctx context.Context, key string) error {
			return cluster.Client().HSet(ctx, key, "f", "v").Err()
		}, "WRONGTYPE"),
		Entry("another version", func(ctx context.Context, key string) error {
			return cluster.Client().Set(ctx, key, "\x03"+strings.Repeat("x", 68), 0).Err()
		}, "no buckets of this version"),
		Entry("half a record", func(ctx context.Context, key string) error {
			return cluster.Client().Set(ctx, key, "\x02"+strings.Repeat("x", 67), 0).Err()
		}, "no buckets of this version"),
	)

	It("is what a missing library ends in, and is told apart", func(ctx SpecContext) {
		DeferCleanup(func(ctx SpecContext) { Expect(load(ctx, library, testLibrary)).To(Succeed()) })
		key := newKey()
		master, err := cluster.MasterOf(ctx, key)
		Expect(err).NotTo(HaveOccurred())
		Expect(master.Client().FunctionFlush(ctx).Err()).To(Succeed())
		_, err = tryTake(ctx, key, valid)
		Expect(tokenbucket.IsMissingFunction(err)).To(BeTrue(), "%v", err)
		Expect(load(ctx, library)).To(Succeed())
		take(ctx, key, valid)

		Expect(tokenbucket.IsMissingFunction(nil)).To(BeFalse())
		Expect(tokenbucket.IsMissingFunction(errors.New("NOPERM"))).To(BeFalse())
	})

	It("is what a full memory ends in", func(ctx SpecContext) {
		key := newKey()
		master, err := cluster.MasterOf(ctx, key)
		Expect(err).NotTo(HaveOccurred())
		Expect(master.Client().ConfigSet(ctx, "maxmemory", "1").Err()).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			Expect(master.Client().ConfigSet(ctx, "maxmemory", "0").Err()).To(Succeed())
		})
		_, err = tryTake(ctx, key, valid)
		Expect(err).To(MatchError(ContainSubstring("OOM")))
	})

	DescribeTable("is what a malformed reply is taken for",
		func(reply []byte, message string) {
			_, err := tokenbucket.DecodeResults(reply, []tokenbucket.Charge{valid})
			Expect(err).To(MatchError(ContainSubstring(message)))
		},
		Entry("nothing", nil, "ends too early"),
		Entry("half a head", make([]byte, 15), "ends too early"),
		Entry("half a result", make([]byte, 16+20), "ends too early"),
		Entry("no epoch", make([]byte, 16+21), "ends too early"),
		Entry("two results", make([]byte, 16+2*29), "goes on"),
		Entry("a time that is not exact", with(make([]byte, 16+29), 8, 1), "time"),
		Entry("unknown flags", with(make([]byte, 16+29), 16, 4), "flags 0x4"),
		Entry("too many tokens", with(make([]byte, 16+29), 16+4, 11), "11 tokens"),
		Entry("too large a remainder", with(make([]byte, 16+29), 16+5, 1), "remainder"),
		Entry("too large a lag", with(make([]byte, 16+29), 16+13, 1), "lag"),
		Entry("stale without parameters", with(make([]byte, 16+29), 16, 2), "ends too early"),
		Entry("stale with bad parameters", with(make([]byte, 16+45), 16, 2), "capacity 0"),
	)

	It("is what a reply of another type is taken for", func() {
		call, err := tokenbucket.NewTake("key", []tokenbucket.Charge{valid})
		Expect(err).NotTo(HaveOccurred())
		for _, reply := range []any{nil, int64(1), []any{"x"}} {
			call.SetVal(reply)
			_, err = call.Result()
			Expect(err).To(MatchError(ContainSubstring("must be a string")))
		}
	})
})

var _ = Describe("A call", func() {
	DescribeTable("is refused before it is sent",
		func(change func(*tokenbucket.Charge), message string) {
			charge := valid
			change(&charge)
			_, err := tokenbucket.NewTake("key", []tokenbucket.Charge{valid, charge})
			Expect(err).To(MatchError(And(ContainSubstring("charge 1: "), ContainSubstring(message))))
		},
		Entry("without a cost", func(c *tokenbucket.Charge) { c.Cost = 0 }, "cost 0"),
		Entry("with a negative debit", func(c *tokenbucket.Charge) { c.Debit = -1 }, "debit -1"),
		Entry("with a debit that would be cut to a small one", func(c *tokenbucket.Charge) { c.Debit = 1<<32 + 1 }, "debit 4294967297"),
		Entry("with a negative cost", func(c *tokenbucket.Charge) { c.Cost = -1 }, "cost -1"),
		Entry("with a cost that would be cut to a small one", func(c *tokenbucket.Charge) { c.Cost = 1<<32 + 1 }, "cost 4294967297"),
		Entry("with a negative order", func(c *tokenbucket.Charge) { c.Order = -1 }, "order -1"),
		Entry("with an order that is not exact", func(c *tokenbucket.Charge) { c.Order = maxExact }, "order"),
		Entry("with a bucket out of bounds", func(c *tokenbucket.Charge) { c.Params = localbucket.Params{} }, "capacity 0"),
	)

	It("is refused with no charges or too many", func() {
		for _, n := range []int{0, tokenbucket.MaxCharges + 1} {
			_, err := tokenbucket.NewTake("key", make([]tokenbucket.Charge, n))
			Expect(err).To(MatchError(ContainSubstring("must be from 1 to 16")))
		}
	})

	It("is never retried, and neither is its copy", func() {
		call, err := tokenbucket.NewTake("key", []tokenbucket.Charge{valid})
		Expect(err).NotTo(HaveOccurred())
		Expect(call.NoRetry()).To(BeTrue())
		copied := call.Clone()
		Expect(copied).To(BeAssignableToTypeOf(call))
		Expect(copied.NoRetry()).To(BeTrue())
		Expect(copied.Args()).To(Equal(call.Args()))
	})

	It("needs no rights but those of a sidecar's user", func(ctx SpecContext) {
		key := newKey()
		master, err := cluster.MasterOf(ctx, key)
		Expect(err).NotTo(HaveOccurred())
		Expect(master.Client().Do(ctx, "ACL", "SETUSER", "sidecar", "reset", "on", ">pw", "~test:*", "-@all",
			"+fcall", "+get", "+set", "+time", "+hello", "+auth", "+ping").Err()).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			Expect(master.Client().Do(ctx, "ACL", "DELUSER", "sidecar").Err()).To(Succeed())
		})
		client := redis.NewClient(&redis.Options{Addr: master.Addr(), Username: "sidecar", Password: "pw", DisableIdentity: true})
		DeferCleanup(client.Close)
		call, err := tokenbucket.NewTake(key, []tokenbucket.Charge{valid})
		Expect(err).NotTo(HaveOccurred())
		Expect(client.Process(ctx, call)).To(Succeed())
		results, err := call.Result()
		Expect(err).NotTo(HaveOccurred())
		back, err := tokenbucket.NewGiveBack(key, []tokenbucket.Receipt{results[0].Receipt})
		Expect(err).NotTo(HaveOccurred())
		Expect(client.Process(ctx, back)).To(Succeed())
		Expect(back.Settled()).To(Equal(1))
	})
})

// with overwrites bytes from a place on.
func with(b []byte, at int, values ...byte) []byte {
	copy(b[at:], values)
	return b
}
