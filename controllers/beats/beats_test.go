package beats_test

import (
	"context"
	"errors"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/controllers/beats"
	"github.com/portero-dev/portero/internal/bucketconfig"
)

// shelf is what sidecars reported: a Source whose content and age a spec sets, so that an hour can pass at once.
type shelf struct {
	beats map[string]beats.Beat
	err   error
	reads int
}

func (s *shelf) read(context.Context, string) (map[string]beats.Beat, error) {
	s.reads++
	return s.beats, s.err
}

func (s *shelf) put(pod, startID string, age time.Duration, generation int64, allowed, denied uint64) {
	if s.beats == nil {
		s.beats = map[string]beats.Beat{}
	}
	s.beats[pod] = beats.Beat{Age: age, Heartbeat: bucketconfig.Heartbeat{
		StartID: startID,
		Applied: []bucketconfig.AppliedPolicy{{
			Name: "checkout", UID: "policy", Generation: generation,
			Limits: []bucketconfig.LimitCounter{{Name: "per-key", Allowed: allowed, Denied: denied}},
		}},
	}}
}

var _ = Describe("Board", func() {
	var (
		source  *shelf
		board   *beats.Board
		now     time.Time
		changed int
	)
	BeforeEach(func() {
		source, now, changed = &shelf{}, time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC), 0
		board = &beats.Board{Source: source.read, Now: func() time.Time { return now }, Changed: func(string) { changed++ }}
	})
	// next lets some time pass and reads.
	next := func(ctx context.Context, pass time.Duration) beats.Snapshot {
		now = now.Add(pass)
		return board.Read(ctx, "shop", nil)
	}
	counts := func() beats.Counts {
		GinkgoHelper()
		traffic, ok := board.Traffic("shop", "policy")
		Expect(ok).To(BeTrue())
		return traffic.Limits["per-key"]
	}

	It("asks Redis once per interval, however many policies read", func(ctx SpecContext) {
		for range 10 {
			next(ctx, 0)
		}
		Expect(source.reads).To(Equal(1))
		next(ctx, beats.Interval)
		Expect(source.reads).To(Equal(2))
	})

	It("asks again at once after the connection changed", func(ctx SpecContext) {
		next(ctx, 0)
		board.Invalidate()
		next(ctx, 0)
		Expect(source.reads).To(Equal(2))
	})

	It("asks again for a pod that the last poll did not find, at most once a second", func(ctx SpecContext) {
		source.put("old", "s1", 0, 1, 0, 0)
		next(ctx, 0)
		source.beats = nil
		source.put("old", "s1", 0, 1, 0, 0)
		source.put("new", "s2", 0, 1, 0, 0)
		read := func(pass time.Duration, pods ...string) beats.Snapshot {
			now = now.Add(pass)
			return board.Read(ctx, "shop", pods)
		}
		Expect(read(499*time.Millisecond, "old", "new").Beats).NotTo(HaveKey("new"))
		read(time.Millisecond, "old")
		Expect(source.reads).To(Equal(1), "nothing is missing, or the snapshot is too young")
		Expect(read(0, "old", "new").Beats).To(HaveKey("new"))
		Expect(source.reads).To(Equal(2))
		read(999*time.Millisecond, "new", "silent")
		Expect(source.reads).To(Equal(2), "too soon after the last time")
		for range 5 {
			read(time.Millisecond, "silent")
		}
		Expect(source.reads).To(Equal(3))
	})

	It("tells of what decides conditions, not of counters", func(ctx SpecContext) {
		source.put("pod", "s1", 0, 1, 0, 0)
		next(ctx, beats.Interval)
		Expect(changed).To(Equal(1), "a sidecar appeared")
		source.put("pod", "s1", 3*time.Second, 1, 100, 7)
		next(ctx, beats.Interval)
		Expect(changed).To(Equal(1), "only counters and age changed")
		source.put("pod", "s1", 0, 2, 100, 7)
		next(ctx, beats.Interval)
		Expect(changed).To(Equal(2), "another generation is applied")
		source.put("pod", "s1", beats.FreshFor+time.Second, 2, 100, 7)
		next(ctx, beats.Interval)
		Expect(changed).To(Equal(3), "the heartbeat is too old")
		source.err = errors.New("away")
		Expect(next(ctx, beats.Interval).Err).To(MatchError("away"))
		Expect(changed).To(Equal(4), "heartbeats can't be read")
		next(ctx, beats.Interval)
		Expect(changed).To(Equal(4), "nothing new")
	})

	It("knows no traffic of a policy that nobody applies", func(ctx SpecContext) {
		next(ctx, 0)
		_, ok := board.Traffic("shop", "policy")
		Expect(ok).To(BeFalse())
	})

	It("counts what sidecars decide from the first poll on", func(ctx SpecContext) {
		source.put("pod", "s1", 0, 1, 1000, 50)
		next(ctx, 0)
		Expect(counts()).To(Equal(beats.Counts{}), "what happened before was at unknown times")
		source.put("pod", "s1", 0, 1, 1010, 53)
		next(ctx, beats.Interval)
		Expect(counts()).To(Equal(beats.Counts{Allowed: 10, Denied: 3}))
		source.put("other", "s9", 0, 1, 5, 1)
		next(ctx, beats.Interval)
		Expect(counts()).To(Equal(beats.Counts{Allowed: 15, Denied: 4}), "all that a new sidecar decided is recent")
		source.put("pod", "s2", 0, 1, 2, 0)
		next(ctx, beats.Interval)
		Expect(counts()).To(Equal(beats.Counts{Allowed: 17, Denied: 4}), "a restarted sidecar counts from 0")
	})

	It("does not count twice what was missing for a while", func(ctx SpecContext) {
		source.put("pod", "s1", 0, 1, 100, 0)
		next(ctx, 0)
		source.beats = nil // FLUSHALL
		next(ctx, beats.Interval)
		source.put("pod", "s1", 0, 1, 130, 0)
		next(ctx, beats.Interval)
		Expect(counts()).To(Equal(beats.Counts{Allowed: 30}))
	})

	It("forgets what is older than the window", func(ctx SpecContext) {
		source.put("pod", "s1", 0, 1, 0, 0)
		next(ctx, 0)
		source.put("pod", "s1", 0, 1, 100, 0)
		next(ctx, beats.Interval)
		source.put("pod", "s1", 0, 1, 110, 0)
		next(ctx, 30*time.Minute)
		Expect(counts()).To(Equal(beats.Counts{Allowed: 110}))
		next(ctx, 31*time.Minute)
		Expect(counts()).To(Equal(beats.Counts{Allowed: 10}))
		next(ctx, beats.Window)
		Expect(counts()).To(Equal(beats.Counts{}))
	})

	It("tells over how long it counted", func(ctx SpecContext) {
		source.put("pod", "s1", 0, 1, 0, 0)
		next(ctx, 0)
		now = now.Add(90 * time.Second)
		traffic, _ := board.Traffic("shop", "policy")
		Expect(traffic.Span).To(Equal(90 * time.Second))
		now = now.Add(3 * time.Hour)
		traffic, _ = board.Traffic("shop", "policy")
		Expect(traffic.Span).To(Equal(beats.Window))
	})
})
