package policy_test

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/time/rate"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	portero "github.com/portero-dev/portero/api/v1alpha1"
	"github.com/portero-dev/portero/controllers/beats"
	"github.com/portero-dev/portero/controllers/policy"
	"github.com/portero-dev/portero/controllers/problem"
	"github.com/portero-dev/portero/controllers/publisher"
	"github.com/portero-dev/portero/internal/testenv"
)

// published is a Redis that holds everything, unless refused says why not.
type published struct{ refused error }

func (p published) Publish(context.Context, string, publisher.Update) error { return p.refused }
func (published) Withdraw(context.Context, string, string) error            { return nil }
func (published) Read(context.Context, string, []string) beats.Snapshot     { return beats.Snapshot{} }
func (t *traffic) Traffic(string, string) (beats.Traffic, bool)             { return t.now, t.known }

// traffic is what the sidecars decided, as a spec says.
type traffic struct {
	published
	now   beats.Traffic
	known bool
}

func (t *traffic) decide(allowed, denied int64) {
	t.known = true
	t.now = beats.Traffic{Span: time.Hour, Limits: map[string]beats.Counts{"per-key": {Allowed: allowed, Denied: denied}}}
}

var _ = Describe("Traffic in a status", Ordered, func() {
	var (
		api        *testenv.Environment
		board      *traffic
		reconciler *policy.Reconciler
		now        time.Time
		object     *portero.RateLimitPolicy
		away       *problem.Problem
	)
	BeforeAll(func() {
		api = testenv.Start(GinkgoT(), testenv.Options{})
	})
	BeforeEach(func(ctx SpecContext) {
		board, away, now = &traffic{}, nil, time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
		reconciler = &policy.Reconciler{
			Client: api.Client, Recorder: events.NewFakeRecorder(100), Publisher: board, Board: board,
			RedisWarning: func() string { return "" },
			Redis:        func() *problem.Problem { return away },
			Credentials:  func(string, string) *problem.Problem { return nil },
			Now:          func() time.Time { return now },
			// One write, and no other while a spec runs.
			TrafficWrites: rate.NewLimiter(rate.Every(time.Hour), 1),
		}
		object = testenv.NewPolicy(api.CreateNamespace(ctx, nil), "checkout")
		Expect(api.Client.Create(ctx, object)).To(Succeed())
	})
	// next lets time pass, reconciles, and tells what the status says and when the controller will look again.
	next := func(ctx context.Context, pass time.Duration) (figures string, again time.Duration) {
		GinkgoHelper()
		now = now.Add(pass)
		result, err := reconciler.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(object)})
		Expect(err).NotTo(HaveOccurred())
		Expect(api.Client.Get(ctx, client.ObjectKeyFromObject(object), object)).To(Succeed())
		if object.Status.Traffic == nil {
			return "none", result.RequeueAfter
		}
		return fmt.Sprintf("%d/%d in %s", object.Status.Traffic.Allowed, object.Status.Traffic.Denied, object.Status.Traffic.Window), result.RequeueAfter
	}
	expect := func(figures string, again time.Duration, want string, wantAgain time.Duration) {
		GinkgoHelper()
		Expect(figures).To(Equal(want))
		Expect(again).To(Equal(wantAgain))
	}

	It("is absent until a sidecar applied the policy", func(ctx SpecContext) {
		figures, again := next(ctx, 0)
		expect(figures, again, "none", 0)
	})

	It("is written with conditions that change, and then at most once a minute", func(ctx SpecContext) {
		board.decide(10, 1)
		figures, again := next(ctx, 0)
		expect(figures, again, "10/1 in 1h", time.Minute)
		Expect(object.Status.Limits).To(Equal([]portero.LimitStatus{{Name: "per-key", Mode: portero.ModeEnforce, Allowed: 10, Denied: 1}}))
		board.decide(5000, 300)
		figures, again = next(ctx, 20*time.Second)
		expect(figures, again, "10/1 in 1h", 40*time.Second)
		figures, again = next(ctx, 40*time.Second)
		expect(figures, again, "5000/300 in 1h", time.Minute)
	})

	It("names the mode that each limit really has", func(ctx SpecContext) {
		tighter := *object.Spec.Limits[0].DeepCopy()
		tighter.Name, tighter.Mode = "tighter", portero.ModeShadow
		object.Spec.Limits = append(object.Spec.Limits, tighter)
		Expect(api.Client.Update(ctx, object)).To(Succeed())
		board.decide(1, 0)
		next(ctx, 0)
		Expect(object.Status.Limits[0].Mode).To(Equal(portero.ModeEnforce))
		Expect(object.Status.Limits[1].Mode).To(Equal(portero.ModeShadow))

		object.Spec.Mode = portero.ModeShadow
		Expect(api.Client.Update(ctx, object)).To(Succeed())
		board.decide(1000, 0)
		next(ctx, time.Hour)
		Expect(object.Status.Limits[0].Mode).To(Equal(portero.ModeShadow))
	})

	It("is written only when two digits changed", func(ctx SpecContext) {
		board.decide(1000, 300)
		next(ctx, 0)
		before := object.ResourceVersion
		board.decide(1004, 304)
		figures, again := next(ctx, time.Hour)
		expect(figures, again, "1000/300 in 1h", time.Minute)
		Expect(object.ResourceVersion).To(Equal(before))
		board.decide(1004, 306)
		figures, _ = next(ctx, time.Hour)
		Expect(figures).To(Equal("1004/306 in 1h"))
	})

	It("waits for its turn when too many would be written at once", func(ctx SpecContext) {
		board.decide(1, 0)
		next(ctx, 0)
		board.decide(2, 0)
		figures, _ := next(ctx, time.Minute)
		Expect(figures).To(Equal("2/0 in 1h"), "the one write that the limiter allows")
		board.decide(3, 0)
		figures, again := next(ctx, time.Minute)
		expect(figures, again, "2/0 in 1h", 30*time.Second)
	})

	It("tells metrics of conditions that a former leader wrote", func(ctx SpecContext) {
		next(ctx, 0)
		before := object.ResourceVersion
		policy.ForgetMetrics()
		next(ctx, 0)
		Expect(object.ResourceVersion).To(Equal(before))
		families, err := metrics.Registry.Gather()
		Expect(err).NotTo(HaveOccurred())
		series := 0
		for _, family := range families {
			if family.GetName() == "portero_policy_condition" {
				series = len(family.GetMetric())
			}
		}
		Expect(series).To(Equal(6), "one of each condition")
	})

	It("does not put off a publication that failed", func(ctx SpecContext) {
		board.decide(10, 1)
		board.refused = problem.New(portero.ReasonRedisUnreachable, "the slot is not served")
		_, again := next(ctx, 0)
		Expect(again).To(Equal(5*time.Second), "Redis is well, so nothing else would tell that it can be published now")
		away = problem.New(portero.ReasonRedisUnreachable, "a master is away")
		_, again = next(ctx, 0)
		Expect(again).To(Equal(time.Minute), "its return is told")
		board.refused, away = nil, nil
		board.known = false
		_, again = next(ctx, 0)
		Expect(again).To(BeZero())
	})
})
