package flusher

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/portero-dev/portero/internal/localbucket"
	"github.com/portero-dev/portero/internal/ratelimit"
	"github.com/portero-dev/portero/internal/tokenbucket"
	"github.com/portero-dev/portero/sidecar/internal/failover"
)

// States of a call. Only a queued one can be sent or withdrawn, and only one of both happens. Only a sent one is answered or
// revoked, whichever comes first.
const (
	queued uint32 = iota
	sent
	withdrawn
	answered
	revoked
)

// call is one group's question on its way.
type call struct {
	state   atomic.Uint32
	take    *tokenbucket.Take
	charges []tokenbucket.Charge
	key     string
	queue   *queue
	budget  time.Duration
	index   int
	answers chan<- failover.Answer
	results []tokenbucket.ChargeResult // once answered, unless by an error
	settled func(given, dropped int)   // of GiveBack
}

// newCall always makes a call that can answer. An error says that there is nothing to send: a charge is out of bounds.
func newCall(key string, group *ratelimit.Group, index int, answers chan<- failover.Answer) (*call, error) {
	c := &call{
		key: key, index: index, answers: answers, budget: time.Duration(group.Policy.Record.Store.TimeoutUS) * time.Microsecond,
		charges: chargesOf(group),
	}
	var err error
	c.take, err = tokenbucket.NewTake(key, c.charges)
	return c, err
}

func chargesOf(group *ratelimit.Group) []tokenbucket.Charge {
	charges := make([]tokenbucket.Charge, len(group.Charges))
	for i, charge := range group.Charges {
		bucket := &charge.Limit.Config.Bucket
		charges[i] = tokenbucket.Charge{
			ID:     charge.Limit.ID,
			Order:  group.Policy.Record.Order,
			Params: localbucket.Params{Capacity: bucket.Capacity, RefillTokens: bucket.RefillTokens, IntervalUS: bucket.RefillIntervalUS},
			Cost:   charge.Cost,
			Debit:  charge.Debit,
			Shadow: charge.Limit.Shadow,
		}
	}
	return charges
}

// Withdraw implements failover.Question.
func (c *call) Withdraw() bool { return c.state.CompareAndSwap(queued, withdrawn) }

// GiveBack implements failover.Question.
func (c *call) GiveBack(settled func(given, dropped int)) {
	c.settled = settled
	if !c.state.CompareAndSwap(sent, revoked) && c.state.Load() == answered {
		c.giveBack()
	}
}

// giveBack queues the return of what was charged to enforced limits.
func (c *call) giveBack() {
	var receipts []tokenbucket.Receipt
	for i := range c.results {
		if c.results[i].Receipt.Charged() && !c.charges[i].Shadow {
			receipts = append(receipts, c.results[i].Receipt)
		}
	}
	if len(receipts) == 0 {
		return
	}
	back, err := tokenbucket.NewGiveBack(c.key, receipts)
	if err != nil || c.queue.pushErrand(errand{call: back, settle: func() {
		given, err := back.Settled()
		if err != nil {
			given = 0 // nobody knows, and it is not tried again
		}
		c.settled(given, len(receipts)-given)
	}}) != nil {
		c.settled(0, len(receipts))
	}
}

// answer brings the answer; there is always room for it.
func (c *call) answer(charges []failover.ChargeAnswer, err error) {
	c.answers <- failover.Answer{Index: c.index, Charges: charges, Err: err}
}

// settle brings what became of a call that was sent, and gives back what was revoked meanwhile.
func (c *call) settle() {
	results, err := c.take.Result()
	c.results = results
	if !c.state.CompareAndSwap(sent, answered) {
		c.giveBack()
	}
	if err != nil {
		c.answer(nil, failed(err))
		return
	}
	c.answer(answersOf(results), nil)
}

func answersOf(results []tokenbucket.ChargeResult) []failover.ChargeAnswer {
	charges := make([]failover.ChargeAnswer, len(results))
	for i := range results {
		charges[i] = failover.ChargeAnswer{
			Allowed: results[i].Allowed, Stale: results[i].Stale, Params: results[i].Params, Level: results[i].Level,
		}
	}
	return charges
}

// errand is a give-back or a debit on its way: what no verdict waits for.
type errand struct {
	call redis.Cmder
	// settle is called once the call has its outcome.
	settle func()
}

// kinds are the kinds of Redis' errors, by how they start.
var kinds = []struct {
	prefix string
	kind   failover.Kind
}{
	{"NOPERM", failover.KindPermission},
	{"ERR The user executing the script", failover.KindPermission},
	{"NOAUTH", failover.KindAuth},
	{"WRONGPASS", failover.KindAuth},
	{"OOM", failover.KindMemory},
	{"MOVED", failover.KindCluster},
	{"ASK", failover.KindCluster},
	{"TRYAGAIN", failover.KindCluster},
	{"CROSSSLOT", failover.KindCluster},
	{"CLUSTERDOWN", failover.KindCluster},
	{"MASTERDOWN", failover.KindCluster},
	{"LOADING", failover.KindCluster},
	{"READONLY", failover.KindCluster},
	{"NOREPLICAS", failover.KindCluster},
	{"MISCONF", failover.KindCluster},
	{"BUSY", failover.KindCluster},
}

// failed says in which way the store failed.
func failed(err error) *failover.StoreError {
	return &failover.StoreError{Kind: kindOf(err), Unknown: mayHaveRun(err), Err: err}
}

// mayHaveRun is false where an error proves that nothing was charged: Redis answered with it (the function writes once, as
// its last act), or nothing was ever sent.
func mayHaveRun(err error) bool {
	var fromRedis redis.Error
	var fromNet *net.OpError
	switch {
	case errors.As(err, &fromRedis), errors.Is(err, redis.ErrClosed), errors.Is(err, redis.ErrPoolTimeout):
		return false
	case errors.As(err, &fromNet):
		return fromNet.Op != "dial"
	}
	return true
}

func kindOf(err error) failover.Kind {
	if tokenbucket.IsMissingFunction(err) {
		return failover.KindMissingFunction
	}
	text := err.Error()
	for _, known := range kinds {
		if strings.HasPrefix(text, known.prefix) {
			return known.kind
		}
	}
	var fromRedis redis.Error
	var fromNet net.Error
	switch {
	case errors.As(err, &fromRedis):
		return failover.KindOther
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &fromNet) && fromNet.Timeout():
		return failover.KindTimeout
	case errors.As(err, &fromNet), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, redis.ErrClosed), errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, context.Canceled):
		return failover.KindConnection
	}
	return failover.KindReply
}

// probe is a charge that is refused for ever, so that it changes nothing, by a record that no limit has.
var probe = tokenbucket.Charge{Params: localbucket.Params{Capacity: 1, RefillTokens: 1, IntervalUS: localbucket.MinIntervalUS}, Cost: 2}

// Probe implements failover.Store. It runs the function itself on a key that failed: a PING would be answered by a master
// without the library, without memory, or without the rights.
func (f *Flusher) Probe(ctx context.Context, place failover.Place) error {
	take, err := tokenbucket.NewTake(place.Key, []tokenbucket.Charge{probe})
	if err != nil {
		return err
	}
	_ = f.options.Client.Process(ctx, take) // the outcome is in the result
	if _, err = take.Result(); err != nil {
		return failed(err)
	}
	return nil
}
