package redislink_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/portero-dev/portero/controllers/redislink"
)

// warned reads the metric of a kind.
func warned(kind string) func() float64 {
	return func() float64 {
		GinkgoHelper()
		families, err := metrics.Registry.Gather()
		Expect(err).NotTo(HaveOccurred())
		for _, family := range families {
			for _, series := range family.GetMetric() {
				if family.GetName() == "portero_redis_warning" && series.GetLabel()[0].GetValue() == kind {
					return series.GetGauge().GetValue()
				}
			}
		}
		return -1
	}
}

var _ = Describe("The servers' settings", func() {
	DescribeTable("are told while they are wrong, each change once", func(ctx SpecContext, setting, wrong, right, kind, consequence string) {
		node := cluster.Nodes[1]
		Expect(node.Client().ConfigGet(ctx, setting).Result()).To(HaveKeyWithValue(setting, right))
		recorder, changes := events.NewFakeRecorder(100), make(chan struct{}, 100)
		link, _ := connect(ctx, func(l *redislink.Link) {
			l.Recorder, l.SettingsEvery, l.Changed = recorder, 100*time.Millisecond, func() { changes <- struct{}{} }
		})
		Eventually(warned(kind)).WithTimeout(soon).Should(BeZero())
		Expect(link.Warning()).To(BeEmpty())
		Expect(recorder.Events).NotTo(Receive(), "all is as it should be from the start")

		Expect(node.Client().ConfigSet(ctx, setting, wrong).Err()).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(node.Client().ConfigSet(ctx, setting, right).Err()).To(Succeed()) })
		Eventually(warned(kind)).WithTimeout(soon).Should(Equal(1.0))
		text := setting + " is " + wrong + " on " + node.Addr() + ": " + consequence
		Eventually(link.Warning).Should(HavePrefix(text))
		Eventually(changes).WithTimeout(soon).Should(Receive())
		Eventually(recorder.Events).Should(Receive(HavePrefix("Warning RedisSettings " + text)))
		Consistently(recorder.Events).WithTimeout(2*time.Second + 500*time.Millisecond).ShouldNot(Receive())

		Expect(node.Client().ConfigSet(ctx, setting, right).Err()).To(Succeed())
		Eventually(warned(kind)).WithTimeout(soon).Should(BeZero())
		Eventually(link.Warning).Should(BeEmpty())
		Eventually(recorder.Events).Should(Receive(HavePrefix("Normal RedisSettingsGood")))
		Eventually(changes).WithTimeout(soon).Should(Receive())
	},
		Entry("eviction", "maxmemory-policy", "allkeys-lru", "noeviction", "eviction", "an evicted bucket comes back full"),
		Entry("full coverage", "cluster-require-full-coverage", "yes", "no", "full_coverage", "one dead master makes all nodes refuse"),
	)
})
