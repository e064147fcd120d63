package tokenbucket

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/portero-dev/portero/internal/keyspace"
)

// FunctionGiveBack is the name of the function that a GiveBack calls.
const FunctionGiveBack = keyspace.FunctionLibrary + "_giveback"

const (
	// The layout is described in token_bucket.lua.
	receiptsVersion = 1
	receiptsHead    = 9
	receiptSize     = 28
)

// Receipt is the proof of one limit's charge. It names the load of the library that made it, in one process of Redis, and
// the time; README.md says why that suffices. The zero Receipt proves nothing.
type Receipt struct {
	id      uint64
	cost    int64
	server  uint64
	epoch   uint64
	takenUS uint64
}

// Charged tells whether there was a charge.
func (r Receipt) Charged() bool { return r.epoch != 0 }

// GiveBack is one call of the function that returns charges: a redis.Cmder for Process and pipelines. An executed one is
// not to be used again.
type GiveBack struct {
	once
	receipts int
}

var _ redis.Cmder = (*GiveBack)(nil)

// NewGiveBack makes the call that returns what one Take of the key charged, all of it or a part. Each receipt may be used
// once: a second give-back of one charge would mint its tokens.
func NewGiveBack(key string, receipts []Receipt) (*GiveBack, error) {
	if len(receipts) < 1 || len(receipts) > MaxCharges {
		return nil, fmt.Errorf("%d receipts: must be from 1 to %d", len(receipts), MaxCharges)
	}
	packed := make([]byte, 1, receiptsHead+len(receipts)*receiptSize)
	packed[0] = receiptsVersion
	packed = binary.BigEndian.AppendUint64(packed, receipts[0].server)
	for i, receipt := range receipts {
		if !receipt.Charged() {
			return nil, fmt.Errorf("receipt %d: nothing was charged", i)
		}
		if receipt.server != receipts[0].server {
			return nil, fmt.Errorf("receipt %d: it is of another call than the first", i)
		}
		packed = binary.BigEndian.AppendUint64(packed, receipt.id)
		packed = binary.BigEndian.AppendUint64(packed, receipt.epoch)
		packed = binary.BigEndian.AppendUint64(packed, receipt.takenUS)
		packed = binary.BigEndian.AppendUint32(packed, uint32(receipt.cost))
	}
	return &GiveBack{once: call(FunctionGiveBack, key, packed), receipts: len(receipts)}, nil
}

// Clone copies the call, so that a copy too is never retried.
func (g *GiveBack) Clone() redis.Cmder { return &GiveBack{once: g.clone(), receipts: g.receipts} }

var errSettled = errors.New("it settles more than was asked")

// Settled is how many of the receipts are: their charges were returned, or their buckets are full. The others were dropped,
// because Redis could not prove that a return mints nothing. After an error nobody knows.
func (g *GiveBack) Settled() (int, error) {
	settled, err := g.Int()
	if err != nil {
		return 0, err
	}
	if settled < 0 || settled > g.receipts {
		return 0, fmt.Errorf("reply of %s: %w", FunctionGiveBack, errSettled)
	}
	return settled, nil
}
