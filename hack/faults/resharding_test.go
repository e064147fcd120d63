//go:build e2e

package faults_test

import (
	"context"
	"time"

	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/internal/redistest"
)

// resharding moves the slots of buckets from master to master: each stays half-way for as long as the next step takes to come, so that its
// keys are asked for at both ends.
func resharding() *fault {
	var under []redistest.SlotMove
	finishAll := func(ctx context.Context) {
		for _, m := range under {
			Expect(m.Finish(ctx)).To(Succeed())
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
			m := redistest.SlotMove{Slot: int(slot), From: from, To: masters[(i+1)%len(masters)]}
			Expect(m.Begin(ctx)).To(Succeed())
			under = append(under, m)
		}
	}
	return &fault{
		name: "resharding", ci: true, every: 250 * time.Millisecond, start: step, repeat: step, stop: finishAll, unfelt: true,
	}
}
