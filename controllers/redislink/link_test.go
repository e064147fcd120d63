package redislink_test

import (
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/portero-dev/portero/controllers/redislink"
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
})
