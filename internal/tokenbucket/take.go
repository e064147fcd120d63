package tokenbucket

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/portero-dev/portero/internal/keyspace"
	"github.com/portero-dev/portero/internal/localbucket"
)

// FunctionTake is the name of the function that a Take calls.
const FunctionTake = keyspace.FunctionLibrary + "_take"

// MaxCharges is how many limits one call can charge: as many as a policy has.
const MaxCharges = 16

const (
	// maxExact bounds integers in Lua, whose numbers are doubles.
	maxExact = 1 << 53

	// The layouts are described in token_bucket.lua.
	chargesVersion = 2
	debitsVersion  = 3
	chargeSize     = 37
	debitSize      = 4
	originSize     = 16
	resultSize     = 21
	epochSize      = 8
	inForceSize    = 16
	flagAllowed    = 1
	flagStale      = 2
)

// Charge asks one limit's bucket for a cost.
type Charge struct {
	// ID tells the limit's record from others under the same key.
	ID uint64
	// Order is greater for a later state of the limit; below 2^53.
	Order int64
	// Params is the bucket's shape, as far as this caller knows.
	Params localbucket.Params
	// Cost is in tokens, 1..1e9, or 0 beside a Debit. One above the capacity is refused for ever.
	Cost int64
	// Debit is what is taken before the Cost is looked at and whatever becomes of it, in tokens, 0..1e9: into debt of at
	// most one capacity, and what exceeds that is forgiven. It can't be given back.
	Debit int64
	// Shadow charges are made as if they were alone, and keep no other from being made.
	Shadow bool
}

// ChargeResult is what became of a charge.
type ChargeResult struct {
	// Allowed tells whether the bucket covered the cost; a cost of 0 it always does. The call charged an allowed shadow limit, and the enforced ones
	// if all of them were allowed.
	Allowed bool
	// Stale tells that the caller's limit is older than the one in Redis, which decided. It ought to reload.
	Stale bool
	// Level is the bucket after the call, at time 0 of Redis' clock: UpdatedUS is how far its update lies ahead, above 0
	// only after that clock was set back. So Params.Wait(Level, 0, cost) is the wait from now.
	Level localbucket.Level
	// Params is the shape that decided: the caller's, unless Stale.
	Params localbucket.Params
	// Receipt is the proof of a charge that was made, to give it back; the zero Receipt where none was.
	Receipt Receipt
}

// Take is one call of the take function: a redis.Cmder for Process and pipelines. An executed one is not to be used again.
type Take struct {
	once
	charges []Charge
}

var _ redis.Cmder = (*Take)(nil)

// NewTake makes the call that charges the buckets under one key: the enforced ones all or none, each shadow one alone. It
// keeps the charges, which must not change until Result was called. An error says which charge is out of bounds.
func NewTake(key string, charges []Charge) (*Take, error) {
	if len(charges) < 1 || len(charges) > MaxCharges {
		return nil, fmt.Errorf("%d charges: must be from 1 to %d", len(charges), MaxCharges)
	}
	version, size := byte(chargesVersion), chargeSize
	if slices.ContainsFunc(charges, func(c Charge) bool { return c.Debit != 0 }) {
		version, size = debitsVersion, chargeSize+debitSize
	}
	packed := make([]byte, 1, 1+len(charges)*size)
	packed[0] = version
	for i := range charges {
		if err := charges[i].validate(); err != nil {
			return nil, fmt.Errorf("charge %d: %w", i, err)
		}
		packed = charges[i].append(packed)
		if version == debitsVersion {
			packed = binary.BigEndian.AppendUint32(packed, uint32(charges[i].Debit))
		}
	}
	return &Take{once: call(FunctionTake, key, packed), charges: charges}, nil
}

func (c *Charge) validate() error {
	if err := c.Params.Validate(); err != nil {
		return err
	}
	if c.Debit < 0 || c.Debit > localbucket.MaxTokens {
		return fmt.Errorf("debit %d: must be from 0 to %d tokens", c.Debit, localbucket.MaxTokens)
	}
	if c.Cost < 0 || c.Cost > localbucket.MaxTokens || c.Cost+c.Debit == 0 {
		return fmt.Errorf("cost %d: must be from 1 to %d tokens", c.Cost, localbucket.MaxTokens)
	}
	if c.Order < 0 || c.Order >= maxExact {
		return fmt.Errorf("order %d: must be from 0 to 2^53 - 1", c.Order)
	}
	return nil
}

func (c *Charge) append(packed []byte) []byte {
	packed = binary.BigEndian.AppendUint64(packed, c.ID)
	packed = binary.BigEndian.AppendUint64(packed, uint64(c.Order))
	packed = binary.BigEndian.AppendUint32(packed, uint32(c.Params.Capacity))
	packed = binary.BigEndian.AppendUint32(packed, uint32(c.Params.RefillTokens))
	packed = binary.BigEndian.AppendUint64(packed, uint64(c.Params.IntervalUS))
	packed = binary.BigEndian.AppendUint32(packed, uint32(c.Cost))
	if c.Shadow {
		return append(packed, 1)
	}
	return append(packed, 0)
}

// Clone copies the call, so that a copy too is never retried.
func (t *Take) Clone() redis.Cmder { return &Take{once: t.clone(), charges: t.charges} }

// once is a call of a function on one key that is sent once: sent again after an outcome that is unknown, it could charge
// or give back twice. Redirections, which prove that nothing ran, are still followed.
type once struct{ *redis.Cmd }

func call(function, key string, packed []byte) once {
	cmd := redis.NewCmd(context.Background(), "fcall", function, "1", key, packed)
	const keyPosition = 3
	cmd.SetFirstKeyPos(keyPosition)
	return once{cmd}
}

// NoRetry keeps go-redis from sending the call again.
func (once) NoRetry() bool { return true }

func (o once) clone() once {
	cmd, ok := o.Cmd.Clone().(*redis.Cmd)
	if !ok {
		return o
	}
	return once{cmd}
}

// Result has an entry for each charge, in their order. Any error is a failure of the store, and tells nothing of whether
// the charges were made.
func (t *Take) Result() ([]ChargeResult, error) {
	value, err := t.Cmd.Result()
	if err != nil {
		return nil, err
	}
	packed, ok := value.(string)
	if !ok {
		return nil, fmt.Errorf("reply of %s is %T: must be a string", FunctionTake, value)
	}
	results, err := decodeResults([]byte(packed), t.charges)
	if err != nil {
		return nil, fmt.Errorf("reply of %s: %w", FunctionTake, err)
	}
	return results, nil
}

var (
	errShort = errors.New("it ends too early")
	errLong  = errors.New("it goes on after the last result")
)

func decodeResults(packed []byte, charges []Charge) ([]ChargeResult, error) {
	if len(packed) < originSize {
		return nil, errShort
	}
	server, nowUS := binary.BigEndian.Uint64(packed), binary.BigEndian.Uint64(packed[8:])
	if nowUS >= maxExact {
		return nil, fmt.Errorf("time %d us is out of range", nowUS)
	}
	packed = packed[originSize:]
	results := make([]ChargeResult, len(charges))
	for i := range charges {
		var err error
		if packed, err = results[i].decode(packed, &charges[i]); err != nil {
			return nil, fmt.Errorf("result %d: %w", i, err)
		}
		if receipt := &results[i].Receipt; receipt.epoch != 0 {
			receipt.server, receipt.takenUS = server, nowUS+uint64(results[i].Level.UpdatedUS)
		}
	}
	if len(packed) > 0 {
		return nil, errLong
	}
	return results, nil
}

// decode reads a result and returns what follows it.
func (r *ChargeResult) decode(packed []byte, charge *Charge) ([]byte, error) {
	if len(packed) < resultSize {
		return nil, errShort
	}
	flags := packed[0]
	if flags > flagAllowed|flagStale {
		return nil, fmt.Errorf("flags %#x are unknown", flags)
	}
	r.Allowed, r.Stale = flags&flagAllowed != 0, flags&flagStale != 0
	tokens := int64(int32(binary.BigEndian.Uint32(packed[1:])))
	remainder, lag := binary.BigEndian.Uint64(packed[5:]), binary.BigEndian.Uint64(packed[13:])
	packed = packed[resultSize:]
	r.Params = charge.Params
	if r.Stale {
		if len(packed) < inForceSize {
			return nil, errShort
		}
		r.Params = localbucket.Params{
			Capacity:     int64(binary.BigEndian.Uint32(packed)),
			RefillTokens: int64(binary.BigEndian.Uint32(packed[4:])),
			IntervalUS:   int64(binary.BigEndian.Uint64(packed[8:])),
		}
		if err := r.Params.Validate(); err != nil {
			return nil, err
		}
		packed = packed[inForceSize:]
	}
	if tokens > r.Params.Capacity {
		return nil, fmt.Errorf("%d tokens exceed the capacity of %d", tokens, r.Params.Capacity)
	}
	if remainder >= uint64(r.Params.IntervalUS) {
		return nil, fmt.Errorf("remainder %d reaches the interval of %d us", remainder, r.Params.IntervalUS)
	}
	if lag >= maxExact {
		return nil, fmt.Errorf("lag of %d us is out of range", lag)
	}
	r.Level = localbucket.Level{Tokens: tokens, Remainder: int64(remainder), UpdatedUS: int64(lag)}
	if len(packed) < epochSize {
		return nil, errShort
	}
	if epoch := binary.BigEndian.Uint64(packed); epoch != 0 {
		r.Receipt = Receipt{id: charge.ID, cost: charge.Cost, epoch: epoch}
	}
	return packed[epochSize:], nil
}

// IsMissingFunction tells whether an error says that the server lacks the library, as after FUNCTION FLUSH or on a master
// that is new. The manager will load it; until then it is a failure of the store.
func IsMissingFunction(err error) bool {
	return err != nil && strings.Contains(err.Error(), "Function not found")
}
