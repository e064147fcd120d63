package heartbeat_test

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"

	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/sidecar/internal/heartbeat"
)

var _ = Describe("Beater", func() {
	var (
		revision atomic.Int64
		broken   atomic.Bool
		attempts atomic.Int64
		sent     chan string
		log      *gbytes.Buffer
	)
	BeforeEach(func() {
		revision.Store(1)
		broken.Store(false)
		attempts.Store(0)
		sent = make(chan string, 100)
		log = gbytes.NewBuffer()
	})

	run := func(ctx context.Context, interval, pause time.Duration) *heartbeat.Beater {
		beater := heartbeat.New(heartbeat.Options{
			Interval: interval,
			Pause:    pause,
			Compose: func() *bucketconfig.Heartbeat {
				return &bucketconfig.Heartbeat{Revision: strconv.FormatInt(revision.Load(), 10)}
			},
			Send: func(_ context.Context, h *bucketconfig.Heartbeat) error {
				attempts.Add(1)
				if broken.Load() {
					return errors.New("connection refused")
				}
				sent <- h.Revision
				return nil
			},
			Log: slog.New(slog.NewTextHandler(log, nil)),
		})
		ctx, stop := context.WithCancel(ctx)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			beater.Run(ctx)
		}()
		DeferCleanup(func() {
			stop()
			Eventually(ended).Should(BeClosed())
		})
		return beater
	}

	It("sends at once, and then in each interval", func(ctx SpecContext) {
		run(ctx, 20*time.Millisecond, time.Millisecond)
		for range 3 {
			Eventually(sent).Should(Receive(Equal("1")))
		}
	})

	It("tells a change without waiting for the interval", func(ctx SpecContext) {
		beater := run(ctx, time.Hour, time.Millisecond)
		Eventually(sent).Should(Receive(Equal("1")))
		revision.Store(2)
		beater.Kick()
		Eventually(sent).Should(Receive(Equal("2")))
	})

	It("tells many changes by few heartbeats, the last one by all means", func(ctx SpecContext) {
		beater := run(ctx, time.Hour, 100*time.Millisecond)
		Eventually(sent).Should(Receive())
		for i := range 50 {
			revision.Store(int64(i + 2))
			beater.Kick()
		}
		Eventually(sent).Should(Receive(Equal("51")))
		Consistently(sent, "150ms").ShouldNot(Receive())
	})

	It("goes on trying while sending fails, and says so once", func(ctx SpecContext) {
		broken.Store(true)
		run(ctx, time.Hour, time.Millisecond)
		Eventually(attempts.Load).Should(BeNumerically(">=", 5))
		Expect(log).To(gbytes.Say("could not be sent.*connection refused"))
		Expect(log).NotTo(gbytes.Say("could not be sent"))

		broken.Store(false)
		Eventually(sent).Should(Receive())
		Eventually(log).Should(gbytes.Say("sent again"))
	})
})

var _ = Describe("NewStartID", func() {
	It("differs at each start", func() {
		Expect(heartbeat.NewStartID()).NotTo(Equal(heartbeat.NewStartID()))
	})
})
