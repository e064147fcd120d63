package app_test

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	portero "github.com/portero-dev/portero/api/v1alpha1"
	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/keyspace"
	"github.com/portero-dev/portero/internal/sidecarenv"
	"github.com/portero-dev/portero/internal/testenv"
)

var _ = Describe("What sidecars start with in the dark", func() {
	const instance = keyspace.Instance("dark")
	var namespace string
	BeforeEach(func(ctx SpecContext) {
		namespace = api.CreateNamespace(ctx, nil)
	})
	// kept lists the policies in the namespace's Secret, as name@generation/sidecars; "none" when there is no Secret.
	kept := func(ctx context.Context) func(Gomega) string {
		return func(g Gomega) string {
			data := credentialsOf(ctx, namespace)(g)
			if data == nil {
				return "none"
			}
			policies, err := bucketconfig.DecodeBundle(data[sidecarenv.SecretPolicies])
			g.Expect(err).NotTo(HaveOccurred())
			var out []string
			for _, policy := range policies {
				g.Expect(policy.Err).NotTo(HaveOccurred())
				out = append(out, fmt.Sprintf("%s@%d/%d", policy.Name, policy.Record.Generation, policy.Share.Sidecars))
			}
			return strings.Join(out, " ")
		}
	}
	keeps := func(ctx context.Context, want string) {
		GinkgoHelper()
		Eventually(kept(ctx)).WithTimeout(soon).Should(Equal(want))
	}
	signal := func(s syscall.Signal) {
		GinkgoHelper()
		for _, node := range redis.Nodes {
			Expect(node.Signal(s)).To(Succeed())
		}
	}
	// spoil makes the policy one that can't be translated, as one that was stored before a rule was there.
	spoil := func(ctx SpecContext, policy *portero.RateLimitPolicy) {
		GinkgoHelper()
		restore := relaxCRD(ctx)
		Eventually(func(g Gomega) {
			g.Expect(api.Client.Get(ctx, client.ObjectKeyFromObject(policy), policy)).To(Succeed())
			policy.Spec.Limits[0].Matches = []portero.RequestMatch{{Path: &portero.PathMatch{Type: portero.PathMatchRegularExpression, Value: "("}}}
			g.Expect(api.Client.Update(ctx, policy)).To(Succeed())
		}).WithTimeout(soon).Should(Succeed(), "the API server takes a moment to follow the CRD")
		restore()
	}

	It("reaches the Secret while Redis is away: what is applied, what changes, what goes", func(ctx SpecContext) {
		connectRedis(ctx, api, redisPassword)
		start(api, string(instance))
		first := createPolicy(ctx, namespace, "first")
		Eventually(stored(ctx, instance, namespace)).WithTimeout(status).Should(Equal(map[string]int64{"first": 1}))
		keeps(ctx, "first@1/1")
		// Something that asks: without policies the namespace still has a Secret.
		api.CreatePod(ctx, testenv.NewPod(namespace, "web", testenv.Asked, testenv.WithSidecar("portero"), testenv.Ready))

		signal(syscall.SIGSTOP)
		DeferCleanup(func(ctx SpecContext) {
			signal(syscall.SIGCONT)
			Expect(redis.WaitHealthy(ctx)).To(Succeed())
		}, NodeTimeout(30*time.Second))
		Eventually(conditions(ctx, first)).WithTimeout(status).Should(HaveKeyWithValue(portero.ConditionDegraded, "True/RedisUnreachable"))
		second := createPolicy(ctx, namespace, "second")
		keeps(ctx, "first@1/1 second@1/1")
		Expect(api.Client.Get(ctx, client.ObjectKeyFromObject(first), first)).To(Succeed())
		first.Spec.Limits[0].Bucket.Capacity++
		Expect(api.Client.Update(ctx, first)).To(Succeed())
		keeps(ctx, "first@2/1 second@1/1")
		Expect(api.Client.Delete(ctx, first)).To(Succeed())
		keeps(ctx, "second@1/1")
		Expect(api.Client.Delete(ctx, second)).To(Succeed())
		keeps(ctx, "")

		signal(syscall.SIGCONT)
		Eventually(stored(ctx, instance, namespace)).WithTimeout(2 * status).Should(BeEmpty())
	}, NodeTimeout(2*time.Minute))

	It("reaches the Secret before anybody told where Redis is", func(ctx SpecContext) {
		start(api, string(instance))
		createPolicy(ctx, namespace, "checkout")
		keeps(ctx, "checkout@1/1")
		Expect(credentialsOf(ctx, namespace)(NewGomega(Fail))).NotTo(HaveKey(sidecarenv.SecretAddrs))
		connectRedis(ctx, api, redisPassword)
		Eventually(credentialsOf(ctx, namespace)).WithTimeout(status).Should(HaveKey(sidecarenv.SecretAddrs))
		Eventually(users(ctx, instance)).WithTimeout(status).Should(ContainElement(instance.User(namespace)))
	})

	It("gives a new leader the last good version that Redis lost", func(ctx SpecContext) {
		admin := connectRedis(ctx, api, redisPassword)
		leader := start(api, string(instance))
		policy := createPolicy(ctx, namespace, "checkout")
		Eventually(stored(ctx, instance, namespace)).WithTimeout(status).Should(Equal(map[string]int64{"checkout": 1}))
		spoil(ctx, policy)
		Eventually(conditions(ctx, policy)).WithTimeout(status).Should(HaveKeyWithValue(portero.ConditionAccepted, "False/Invalid"))
		keeps(ctx, "checkout@1/1")
		leader.end()
		onEveryMaster(ctx, "FLUSHALL")

		By("one that does not reach Redis at first")
		right := admin.DeepCopy()
		Expect(api.Client.Delete(ctx, admin)).To(Succeed())
		start(api, string(instance))
		other := createPolicy(ctx, namespace, "other")
		Eventually(conditions(ctx, other)).WithTimeout(status).Should(HaveKeyWithValue(portero.ConditionDegraded, "True/RedisNotConfigured"))
		keeps(ctx, "checkout@1/1 other@1/1")
		Consistently(kept(ctx)).WithTimeout(time.Second).Should(Equal("checkout@1/1 other@1/1"))
		right.ResourceVersion, right.UID = "", ""
		create(ctx, api, right)
		DeferCleanup(func(ctx SpecContext) { Expect(client.IgnoreNotFound(api.Client.Delete(ctx, right))).To(Succeed()) })
		Eventually(stored(ctx, instance, namespace)).WithTimeout(status).Should(Equal(map[string]int64{"checkout": 1, "other": 1}))

		By("dropping it with its policy")
		Expect(api.Client.Delete(ctx, policy)).To(Succeed())
		keeps(ctx, "other@1/1")
		Expect(api.Client.Delete(ctx, other)).To(Succeed())
		keeps(ctx, "none")
		Eventually(stored(ctx, instance, namespace)).WithTimeout(status).Should(BeEmpty())
	}, NodeTimeout(2*time.Minute))
})
