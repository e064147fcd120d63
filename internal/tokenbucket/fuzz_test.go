package tokenbucket_test

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/portero-dev/portero/internal/localbucket"
	"github.com/portero-dev/portero/internal/tokenbucket"
)

// FuzzReply feeds arbitrary replies: no panic, and what is accepted is within the bounds that waits are computed with.
func FuzzReply(f *testing.F) {
	charges := []tokenbucket.Charge{valid, valid}
	f.Add(make([]byte, 16+2*29))
	f.Add(append(append(append(make([]byte, 16), 3), make([]byte, 20)...), 0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0xff, 0xff))
	f.Fuzz(func(t *testing.T, reply []byte) {
		results, err := tokenbucket.DecodeResults(reply, charges)
		if err != nil {
			return
		}
		for _, result := range results {
			level, params := result.Level, result.Params
			if params.Validate() != nil || level.Tokens > params.Capacity || level.Remainder < 0 ||
				level.Remainder >= params.IntervalUS || level.UpdatedUS < 0 {
				t.Fatalf("accepted %+v", result)
			}
			if wait, helps := params.Wait(level, 0, 1); wait < 0 || !helps {
				t.Fatalf("wait %s, %t for %+v", wait, helps, result)
			}
		}
	})
}

// FuzzArguments feeds arbitrary arguments to the function: it answers with an error, or for exactly the charges that were
// packed, as the local bucket would.
func FuzzArguments(f *testing.F) {
	cluster := shared.start(f.Context())
	client := cluster.Client()
	f.Add(packed(valid))
	f.Add(packed(valid, tokenbucket.Charge{ID: 2, Params: slow, Cost: 11, Shadow: true}))
	f.Add(packed(valid, tokenbucket.Charge{ID: 2, Params: slow, Debit: 25}))
	f.Add([]byte{1})
	f.Add(with(packed(valid), 0, 1))
	f.Fuzz(func(t *testing.T, args []byte) {
		const key = "fuzz:arguments"
		if err := client.Del(t.Context(), key).Err(); err != nil {
			t.Fatal(err)
		}
		reply, err := client.FCall(t.Context(), tokenbucket.FunctionTake, []string{key}, args).Text()
		if err != nil || args[0] < 2 {
			return // or what an older sidecar would ask
		}
		charges := unpack(args)
		results, err := tokenbucket.DecodeResults([]byte(reply), charges)
		if err != nil {
			t.Fatalf("reply to %x: %v", args, err)
		}
		for i, charge := range charges {
			left := max(charge.Params.Capacity-charge.Debit, -charge.Params.Capacity)
			if results[i].Allowed != (charge.Cost <= max(left, 0)) || results[i].Stale || results[i].Level.Tokens > left {
				t.Fatalf("charge %+v: %+v", charge, results[i])
			}
		}
		if _, err := tokenbucket.NewTake(key, charges); err != nil {
			t.Fatalf("Redis took what Go refuses: %v", err)
		}
	})
}

// unpack reads arguments as token_bucket.lua describes them.
func unpack(args []byte) []tokenbucket.Charge {
	size := 37
	if args[0] == 3 {
		size = 41
	}
	var charges []tokenbucket.Charge
	for at := 1; at+size <= len(args); at += size {
		b := args[at:]
		charges = append(charges, tokenbucket.Charge{
			ID:    binary.BigEndian.Uint64(b),
			Order: int64(binary.BigEndian.Uint64(b[8:])),
			Params: localbucket.Params{
				Capacity:     int64(binary.BigEndian.Uint32(b[16:])),
				RefillTokens: int64(binary.BigEndian.Uint32(b[20:])),
				IntervalUS:   int64(binary.BigEndian.Uint64(b[24:])),
			},
			Cost:   int64(binary.BigEndian.Uint32(b[32:])),
			Shadow: b[36] == 1,
		})
		if size > 37 {
			charges[len(charges)-1].Debit = int64(binary.BigEndian.Uint32(b[37:]))
		}
	}
	return charges
}

// FuzzLua compares the Lua with the local bucket: a charge that makes the level, and a debit; another charge after a while.
func FuzzLua(f *testing.F) {
	cluster := shared.start(f.Context())
	const key = "fuzz:lua"
	master, err := cluster.MasterOf(f.Context(), key)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(int64(10), int64(3), int64(1000), int64(7), int64(0), int64(2500), int64(6))
	f.Add(int64(10), int64(3), int64(1000), int64(7), int64(12), int64(3500), int64(1))
	f.Add(int64(1e9), int64(1e9), int64(1e9), int64(1e9), int64(1e9), int64(2e9-1), int64(1e9))
	f.Add(int64(1e9), int64(999_999_937), localbucket.MaxIntervalUS, int64(1e9), int64(0), int64(31_622_399_999_999), int64(999_999_937))
	f.Add(int64(5), int64(1), second, int64(5), int64(50), -second, int64(1))
	f.Fuzz(func(t *testing.T, capacity, refill, interval, first, debit, elapsed, second int64) {
		params := localbucket.Params{Capacity: capacity, RefillTokens: refill, IntervalUS: interval}
		charges := []tokenbucket.Charge{{ID: 1, Params: params, Cost: first}, {ID: 1, Params: params, Debit: debit}, {ID: 1, Params: params, Cost: second}}
		if debit == 0 {
			charges = slices.Delete(charges, 1, 2)
		}
		for i := range charges {
			if _, err := tokenbucket.NewTake(key, charges[i:i+1]); err != nil {
				return // out of bounds
			}
		}
		if elapsed < -farFuture/2 || elapsed > maxExact-farFuture-1 {
			return
		}
		if err := master.Client().Del(t.Context(), key).Err(); err != nil {
			t.Fatal(err)
		}
		level := params.Full(farFuture)
		for step, charge := range charges {
			now := farFuture
			if step == len(charges)-1 {
				now += elapsed
			}
			allowed := true
			if charge.Cost > 0 {
				level, allowed = params.Take(level, now, charge.Cost)
			} else {
				level = params.Debit(level, now, charge.Debit)
			}
			results, _, err := takeAt(t.Context(), master.Client(), key, now, charge)
			if err != nil {
				t.Fatal(err)
			}
			wanted := level
			wanted.UpdatedUS -= now
			if results[0].Allowed != allowed || results[0].Level != wanted {
				t.Fatalf("step %d: Redis says %+v, the local bucket %t %+v", step, results[0], allowed, wanted)
			}
			if !allowed {
				return // nothing was written, so Redis does not know of this time
			}
		}
	})
}
