package flusher_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"

	"github.com/portero-dev/portero/internal/redisclient"
	"github.com/portero-dev/portero/internal/redistest"
	"github.com/portero-dev/portero/internal/tokenbucket"
	"github.com/portero-dev/portero/sidecar/internal/failover"
	"github.com/portero-dev/portero/sidecar/internal/flusher"
)

func kind(want failover.Kind) types.GomegaMatcher {
	return HaveField("Kind", want)
}

func fault(answer failover.Answer) *failover.StoreError {
	GinkgoHelper()
	Expect(answer.Err).To(HaveOccurred())
	Expect(answer.Charges).To(BeEmpty())
	var known *failover.StoreError
	Expect(answer.Err).To(BeAssignableToTypeOf(known))
	return answer.Err.(*failover.StoreError) //nolint:errorlint // the seam promises this type, unwrapped
}

var _ = Describe("A failure of the store", func() {
	const tag = "fault"

	DescribeTable("has its kind, is found by the probe too, and ends",
		func(ctx SpecContext, spoil, mend func(context.Context, *redistest.Node) error, want failover.Kind) {
			f := ready(ctx)
			Expect(ask(f, bucket(tag, 100)).Err).NotTo(HaveOccurred())
			master := node(ctx, tag)
			Expect(spoil(ctx, master)).To(Succeed())
			DeferCleanup(mend, master)
			Expect(fault(ask(f, bucket(tag, 100)))).To(kind(want))
			Expect(f.Probe(ctx, locate(f, tag))).To(kind(want))

			Expect(mend(ctx, master)).To(Succeed())
			Expect(f.Probe(ctx, locate(f, tag))).To(Succeed())
			Expect(ask(f, bucket(tag, 100)).Charges[0].Level.Tokens).To(Equal(int64(98)), "neither the failure nor the probes took a token")
		},
		Entry("a missing function",
			func(ctx context.Context, n *redistest.Node) error { return n.Client().FunctionFlush(ctx).Err() },
			func(ctx context.Context, n *redistest.Node) error {
				return n.Client().FunctionLoadReplace(ctx, tokenbucket.Library().Code).Err()
			}, failover.KindMissingFunction),
		Entry("no memory",
			func(ctx context.Context, n *redistest.Node) error {
				return n.Client().ConfigSet(ctx, "maxmemory", "1").Err()
			},
			func(ctx context.Context, n *redistest.Node) error {
				return n.Client().ConfigSet(ctx, "maxmemory", "0").Err()
			}, failover.KindMemory),
		Entry("too few replicas",
			func(ctx context.Context, n *redistest.Node) error {
				return n.Client().ConfigSet(ctx, "min-replicas-to-write", "5").Err()
			},
			func(ctx context.Context, n *redistest.Node) error {
				return n.Client().ConfigSet(ctx, "min-replicas-to-write", "0").Err()
			}, failover.KindCluster),
	)

	Describe("by the user's rights", func() {
		const user, password = "tenant", "secret"
		allow := func(ctx context.Context, rules ...any) {
			GinkgoHelper()
			for _, n := range cluster.Nodes {
				args := append([]any{"acl", "setuser", user, "reset", "on", ">" + password, "+cluster|slots", "+hello", "+auth", "+ping"}, rules...)
				Expect(n.Client().Do(ctx, args...).Err()).To(Succeed())
			}
			DeferCleanup(func(ctx SpecContext) {
				for _, n := range cluster.Nodes {
					Expect(n.Client().Do(ctx, "acl", "deluser", user).Err()).To(Succeed())
				}
			})
		}
		as := func(ctx context.Context, password string) *flusher.Flusher {
			return start(ctx, redisclient.Options{Addrs: cluster.Addrs(), Credentials: redisclient.Static(user, password)})
		}

		DescribeTable("is a failure too",
			func(ctx SpecContext, rules []any, want failover.Kind) {
				allow(ctx, rules...)
				f := as(ctx, password)
				Eventually(f.Masters).Should(HaveLen(3))
				Expect(fault(ask(f, bucket(tag, 100)))).To(kind(want))
			},
			Entry("no call at all", []any{"~*"}, failover.KindPermission),
			Entry("another key", []any{"~elsewhere", "+fcall", "+get", "+set", "+time"}, failover.KindPermission),
			Entry("a command inside the function", []any{"~*", "+fcall", "+time"}, failover.KindPermission),
		)

		It("never gets a topology by a wrong password", func(ctx SpecContext) {
			allow(ctx, "~*", "+fcall")
			f := as(ctx, "wrong")
			Expect(f.Reload(ctx)).To(MatchError(ContainSubstring("WRONGPASS")))
			Expect(f.Masters()).To(BeEmpty())
		})
	})

	It("is a timeout where the master hangs for longer than the pipeline waits", func(ctx SpecContext) {
		f := ready(ctx)
		ask(f, bucket(tag, 100))
		halt(node(ctx, tag))
		Expect(fault(ask(f, bucket(tag, 100)))).To(kind(failover.KindTimeout))
	})

	It("is a connection that broke or can't be made where the master is gone, and ends when it is back", func(ctx SpecContext) {
		f := ready(ctx)
		ask(f, bucket(tag, 100))
		master := node(ctx, tag)
		master.Kill()
		DeferCleanup(func(ctx SpecContext) {
			Expect(master.Restart(ctx)).To(Succeed())
			Expect(cluster.WaitHealthy(ctx)).To(Succeed())
		})
		Expect(fault(ask(f, bucket(tag, 100)))).To(kind(failover.KindConnection))
		Expect(fault(ask(f, bucket(tag, 100)))).To(kind(failover.KindConnection))

		Eventually(func(g Gomega) {
			g.Expect(f.Reload(ctx)).To(Succeed())
			g.Expect(f.Masters()).NotTo(ContainElement(master.Addr()))
		}, "15s", "200ms").Should(Succeed(), "the replica takes over")
		Expect(ask(f, bucket(tag, 100)).Err).NotTo(HaveOccurred())
	})
})
