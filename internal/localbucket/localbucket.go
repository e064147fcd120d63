// Package localbucket is the token bucket in this process, with exactly the arithmetic of the Lua one in Redis: whole
// tokens, a remainder over the interval, microseconds. It serves the fallback, computes waits for both, and is the model
// that the Lua is tested against.
//
// It is a leaf: standard library only.
package localbucket

import (
	"fmt"
	"math"
	"math/bits"
	"time"
)

// Bounds of a bucket's shape. Within them every product of the arithmetic fits 128 bits here, and the Lua's Horner steps
// stay below 2^53.
const (
	MaxTokens     = 1_000_000_000
	MinIntervalUS = int64(time.Millisecond / time.Microsecond)
	MaxIntervalUS = 366 * 24 * int64(time.Hour/time.Microsecond)
)

// Forever stands for every wait that a time.Duration can't hold, 292 years and more.
const Forever = time.Duration(math.MaxInt64)

// Params is the shape of a bucket. Its methods are pure and never allocate. They are exact for every shape that Validate
// accepts, and beyond: a replica's share of a bucket may refill over an interval of up to 2^62 us.
type Params struct {
	Capacity     int64 // tokens, 1..1e9
	RefillTokens int64 // tokens per interval, 1..1e9, at most one per microsecond
	IntervalUS   int64 // microseconds, 1 ms..366 days
}

// Level is how full a bucket is at a time.
type Level struct {
	Tokens    int64 // whole tokens; negative while in debt
	Remainder int64 // 0 <= Remainder < IntervalUS: the part of a token, in units of 1/IntervalUS
	UpdatedUS int64 // unix time in microseconds
}

// Validate checks the shape against its bounds.
func (p Params) Validate() error {
	switch {
	case p.Capacity < 1 || p.Capacity > MaxTokens:
		return fmt.Errorf("capacity %d: must be from 1 to %d tokens", p.Capacity, MaxTokens)
	case p.RefillTokens < 1 || p.RefillTokens > MaxTokens:
		return fmt.Errorf("refill %d: must be from 1 to %d tokens", p.RefillTokens, MaxTokens)
	case p.IntervalUS < MinIntervalUS || p.IntervalUS > MaxIntervalUS:
		return fmt.Errorf("interval %d us: must be from %d (1 ms) to %d (366 days)", p.IntervalUS, MinIntervalUS, MaxIntervalUS)
	case p.RefillTokens > p.IntervalUS:
		return fmt.Errorf("refill of %d tokens in %d us: must be at most one token per microsecond", p.RefillTokens, p.IntervalUS)
	}
	return nil
}

// Full is a full bucket at a time.
func (p Params) Full(nowUS int64) Level { return Level{Tokens: p.Capacity, UpdatedUS: nowUS} }

// At is the level at a time: refilled since its update, clamped to the capacity. Time never runs backwards: before its
// update, a level is what it was then, and its update stays ahead.
func (p Params) At(level Level, nowUS int64) Level {
	updated := max(level.UpdatedUS, nowUS)
	missing := p.Capacity - level.Tokens
	if missing <= 0 {
		return p.Full(updated)
	}
	high, low := bits.Mul64(uint64(updated-level.UpdatedUS), uint64(p.RefillTokens))
	low, carry := bits.Add64(low, uint64(level.Remainder), 0)
	high += carry
	if high >= uint64(p.IntervalUS) {
		return p.Full(updated) // 2^64 tokens and more
	}
	gained, remainder := bits.Div64(high, low, uint64(p.IntervalUS))
	if gained >= uint64(missing) {
		return p.Full(updated)
	}
	return Level{Tokens: level.Tokens + int64(gained), Remainder: int64(remainder), UpdatedUS: updated}
}

// Take charges a cost if the level at that time covers it, and returns the level after. A refused cost takes nothing.
func (p Params) Take(level Level, nowUS, cost int64) (Level, bool) {
	level = p.At(level, nowUS)
	if level.Tokens < cost {
		return level, false
	}
	level.Tokens -= cost
	return level, true
}

// Spend charges a cost whatever the level, into debt if need be, and returns the level after.
func (p Params) Spend(level Level, nowUS, cost int64) Level {
	level = p.At(level, nowUS)
	level.Tokens -= cost
	return level
}

// Debit charges a cost whatever the level, into debt of at most one capacity: what exceeds that is forgiven. A level that
// is lower already, since the shape was changed, stays.
func (p Params) Debit(level Level, nowUS, cost int64) Level {
	level = p.At(level, nowUS)
	if level.Tokens < -p.Capacity {
		return level
	}
	if level.Tokens -= cost; level.Tokens < -p.Capacity {
		level.Tokens, level.Remainder = -p.Capacity, 0
	}
	return level
}

// Adopt is the level of a bucket that had another shape until now: what was spent stays spent. A part of a token can't
// be carried from one interval to another and is dropped; At clamps to the new capacity.
func (p Params) Adopt(level Level, from Params) Level {
	if from.IntervalUS != p.IntervalUS {
		level.Remainder = 0
	}
	return level
}

// Wait is the time until a cost is covered if nobody else spends, rounded up to a microsecond; zero when it is covered
// now. It is false where waiting never helps: the cost exceeds the capacity. A level that was updated in the future (the
// clock was set back) refills only from then on, and the wait includes that.
func (p Params) Wait(level Level, nowUS, cost int64) (time.Duration, bool) {
	if cost > p.Capacity {
		return 0, false
	}
	level = p.At(level, nowUS)
	missing := cost - level.Tokens
	if missing <= 0 {
		return 0, true
	}
	// ceil((missing * interval - remainder) / refill)
	high, low := bits.Mul64(uint64(missing), uint64(p.IntervalUS))
	low, borrow := bits.Sub64(low, uint64(level.Remainder), 0)
	low, carry := bits.Add64(low, uint64(p.RefillTokens-1), 0)
	high = high - borrow + carry
	if high >= uint64(p.RefillTokens) {
		return Forever, true
	}
	us, _ := bits.Div64(high, low, uint64(p.RefillTokens))
	us, carry = bits.Add64(us, uint64(level.UpdatedUS-nowUS), 0)
	if carry != 0 || us > uint64(Forever/time.Microsecond) {
		return Forever, true
	}
	return time.Duration(us) * time.Microsecond, true
}

// NextToken is the time until one more whole token is there; zero when the bucket is full.
func (p Params) NextToken(level Level, nowUS int64) time.Duration {
	level = p.At(level, nowUS)
	if level.Tokens == p.Capacity {
		return 0
	}
	wait, _ := p.Wait(level, nowUS, level.Tokens+1)
	return wait
}

// TimeToFull is the time until the bucket is full; zero when it is.
func (p Params) TimeToFull(level Level, nowUS int64) time.Duration {
	wait, _ := p.Wait(level, nowUS, p.Capacity)
	return wait
}
