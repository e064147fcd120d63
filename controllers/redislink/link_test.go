package redislink_test

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/portero-dev/portero/controllers/redislink"
	"github.com/portero-dev/portero/internal/configstore"
	"github.com/portero-dev/portero/internal/redisadmin"
)

// redisUp reads the metric; nil when there is none.
func redisUp() *float64 {
	GinkgoHelper()
	families, err := metrics.Registry.Gather()
	Expect(err).NotTo(HaveOccurred())
	for _, family := range families {
		if family.GetName() == "portero_manager_redis_up" {
			return new(family.GetMetric()[0].GetGauge().GetValue())
		}
	}
	return nil
}

var _ = Describe("The watcher", func() {
	It("tells a metric of Redis only where it looks at it", func(ctx SpecContext) {
		redislink.ForgetMetrics()
		Expect(redisUp()).To(BeNil())
		connect(ctx)
		Eventually(redisUp).Should(HaveValue(Equal(1.0)))
	})

	It("leaves a master that hangs for the one that replaced it", func(ctx SpecContext) {
		link, _ := connect(ctx)
		_, err := link.Publish(ctx, "left", nil)
		Expect(err).NotTo(HaveOccurred())
		hung, err := cluster.MasterOf(ctx, instance.Config("left"))
		Expect(err).NotTo(HaveOccurred())
		replicas, err := cluster.ReplicasOf(ctx, hung)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx SpecContext) { Expect(cluster.WaitHealthy(ctx)).To(Succeed()) }, NodeTimeout(time.Minute))
		Expect(hung.Signal(syscall.SIGSTOP)).To(Succeed())
		DeferCleanup(hung.Signal, syscall.SIGCONT)
		Eventually(replicas[0].IsMaster).WithContext(ctx).WithTimeout(30 * time.Second).Should(BeTrue())
		Eventually(func() error { _, err := link.Load(ctx, "left"); return err }).WithTimeout(2*soon).Should(Succeed(), "well below the minute after which the client would look by itself")
	}, NodeTimeout(2*time.Minute))

	It("tells that answers are late after two looks in a row, and all else at once", func() {
		w, session := &redislink.Watcher{}, &redislink.Session{}
		Expect(w.Believes(session, true)).To(BeTrue(), "the first look, before which nothing was told")
		Expect(w.Believes(session, false)).To(BeTrue(), "recovery, or a refusal")
		Expect(w.Believes(session, true)).To(BeFalse())
		Expect(w.Believes(session, false)).To(BeTrue())
		Expect(w.Believes(session, true)).To(BeFalse())
		Expect(w.Believes(session, true)).To(BeTrue())
		Expect(w.Believes(session, true)).To(BeTrue())
	})

	DescribeTable("takes for late answers only", func(late bool, errs ...error) {
		failed := &redisadmin.NodesError{Nodes: map[string]error{}}
		for i, err := range errs {
			failed.Nodes[fmt.Sprint(i)] = configstore.Classify(err)
		}
		Expect(redislink.Slow(fmt.Errorf("load: %w", failed))).To(Equal(late))
	},
		Entry("a deadline", true, context.DeadlineExceeded),
		Entry("a timeout of the network", true, os.ErrDeadlineExceeded, context.DeadlineExceeded),
		Entry("not a refused connection", false, syscall.ECONNREFUSED),
		Entry("not one beside a deadline", false, context.DeadlineExceeded, syscall.ECONNREFUSED),
	)
})
