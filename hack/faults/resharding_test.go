//go:build e2e

package faults_test

import (
	"context"
	"fmt"
	"net"
	"time"

	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/internal/redistest"
)

// move is a slot on its way from one master to another.
type move struct {
	slot     int64
	from, to *redistest.Node
}

// resharding moves the slots of buckets from master to master: each stays half-way for as long as the next step takes to come, so that its
// keys are asked for at both ends.
func resharding() *fault {
	var under []move
	finishAll := func(ctx context.Context) {
		for _, m := range under {
			Expect(m.finish(ctx)).To(Succeed())
		}
		under = nil
	}
	step := func(ctx context.Context) {
		finishAll(ctx)
		masters, err := redis.Masters(ctx)
		Expect(err).NotTo(HaveOccurred())
		for i, from := range masters {
			keys, err := buckets(ctx, from)
			Expect(err).NotTo(HaveOccurred())
			if len(keys) == 0 {
				continue
			}
			slot, err := from.Client().ClusterKeySlot(ctx, keys[0]).Result()
			Expect(err).NotTo(HaveOccurred())
			m := move{slot: slot, from: from, to: masters[(i+1)%len(masters)]}
			Expect(m.begin(ctx)).To(Succeed())
			under = append(under, m)
		}
	}
	return &fault{
		name: "resharding", ci: true, every: 250 * time.Millisecond, start: step, repeat: step, stop: finishAll, unfelt: true,
	}
}

func (m move) begin(ctx context.Context) error {
	if err := m.to.Client().Do(ctx, "CLUSTER", "SETSLOT", m.slot, "IMPORTING", m.from.ID()).Err(); err != nil {
		return fmt.Errorf("import slot %d: %w", m.slot, err)
	}
	if err := m.from.Client().Do(ctx, "CLUSTER", "SETSLOT", m.slot, "MIGRATING", m.to.ID()).Err(); err != nil {
		return fmt.Errorf("migrate slot %d: %w", m.slot, err)
	}
	return nil
}

// finish moves the slot's keys, and then the slot.
func (m move) finish(ctx context.Context) error {
	for {
		keys, err := m.from.Client().ClusterGetKeysInSlot(ctx, int(m.slot), 100).Result()
		if err != nil {
			return fmt.Errorf("keys of slot %d: %w", m.slot, err)
		}
		if len(keys) == 0 {
			break
		}
		host, port, err := net.SplitHostPort(m.to.Addr())
		if err != nil {
			return err
		}
		args := []any{"MIGRATE", host, port, "", 0, 1000, "AUTH", password, "KEYS"}
		for _, key := range keys {
			args = append(args, key)
		}
		if err := m.from.Client().Do(ctx, args...).Err(); err != nil {
			return fmt.Errorf("move keys of slot %d: %w", m.slot, err)
		}
	}
	for _, node := range []*redistest.Node{m.to, m.from} {
		if err := node.Client().Do(ctx, "CLUSTER", "SETSLOT", m.slot, "NODE", m.to.ID()).Err(); err != nil {
			return fmt.Errorf("hand slot %d over: %w", m.slot, err)
		}
	}
	return nil
}
