package app_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	portero "github.com/portero-dev/portero/api/v1alpha1"
	"github.com/portero-dev/portero/controllers/redislink"
	"github.com/portero-dev/portero/internal/keyspace"
	"github.com/portero-dev/portero/internal/redistest"
	"github.com/portero-dev/portero/internal/testenv"
)

var _ = Describe("The manager", func() {
	const instance = keyspace.Instance("continuity")
	var namespace string
	BeforeEach(func(ctx SpecContext) {
		namespace = api.CreateNamespace(ctx, nil)
	})
	published := func(ctx context.Context, want map[string]int64) {
		GinkgoHelper()
		Eventually(stored(ctx, instance, namespace)).WithTimeout(status).Should(Equal(want))
	}
	leaseKey := client.ObjectKey{Namespace: system, Name: "portero-manager"}

	When("Redis is there", func() {
		BeforeEach(func(ctx SpecContext) {
			connectRedis(ctx, api, redisPassword)
		})

		It("takes over after a restart without publishing anything anew", func(ctx SpecContext) {
			first := start(api, string(instance))
			policy := createPolicy(ctx, namespace, "checkout")
			published(ctx, map[string]int64{"checkout": 1})
			Eventually(conditions(ctx, policy)).WithTimeout(status).Should(Equal(healthyNoPods))
			before := revision(ctx, instance, namespace)
			first.end()

			start(api, string(instance))
			createPolicy(ctx, api.CreateNamespace(ctx, nil), "another")
			Eventually(func() (map[string]int64, error) { return stored(ctx, instance, namespace)() }).Should(Equal(map[string]int64{"checkout": 1}))
			Consistently(func() string { return revision(ctx, instance, namespace) }).WithTimeout(6 * time.Second).Should(Equal(before))
		})

		It("is followed by another replica when it ends", func(ctx SpecContext) {
			first := start(api, string(instance))
			createPolicy(ctx, namespace, "one")
			published(ctx, map[string]int64{"one": 1})
			start(api, string(instance))
			first.end()
			createPolicy(ctx, namespace, "two")
			published(ctx, map[string]int64{"one": 1, "two": 1})
		})

		It("sweeps what was deleted while it was away: policies, namespaces, Secrets, users", func(ctx SpecContext) {
			gone := api.CreateNamespace(ctx, nil)
			first := start(api, string(instance))
			createPolicy(ctx, namespace, "stays")
			goes, last := createPolicy(ctx, namespace, "goes"), createPolicy(ctx, gone, "last")
			published(ctx, map[string]int64{"stays": 1, "goes": 1})
			Eventually(users(ctx, instance)).WithTimeout(status).Should(ContainElements(instance.User(namespace), instance.User(gone)))
			Eventually(credentialsOf(ctx, gone)).WithTimeout(status).ShouldNot(BeNil())
			first.end()

			Expect(api.Client.Delete(ctx, goes)).To(Succeed())
			Expect(api.Client.Delete(ctx, last)).To(Succeed())
			start(api, string(instance))
			published(ctx, map[string]int64{"stays": 1})
			Eventually(stored(ctx, instance, gone)).WithTimeout(status).Should(BeNil())
			Eventually(credentialsOf(ctx, gone)).WithTimeout(status).Should(BeNil())
			Eventually(users(ctx, instance)).WithTimeout(status).Should(And(
				ContainElement(instance.User(namespace)), Not(ContainElement(instance.User(gone)))))
			Eventually(func() ([]string, error) { return redis.Client().SMembers(ctx, instance.Namespaces()).Result() }).
				WithTimeout(soon).ShouldNot(ContainElement(gone))
		})

		It("leaves another instance's records and users on the same Redis alone", func(ctx SpecContext) {
			const second = keyspace.Instance("continuity-2")
			other := testenv.Start(GinkgoT(), testenv.Options{})
			install(ctx, other)
			connectRedis(ctx, other, redisPassword)
			name := other.CreateNamespace(ctx, nil)
			create(ctx, other, testenv.NewPolicy(name, "theirs"))
			theirs := start(other, string(second))
			Eventually(stored(ctx, second, name)).WithTimeout(status).Should(Equal(map[string]int64{"theirs": 1}))
			Eventually(users(ctx, second)).WithTimeout(status).Should(Equal([]string{second.User(name)}))

			start(api, string(instance))
			policy := createPolicy(ctx, namespace, "ours")
			published(ctx, map[string]int64{"ours": 1})
			Expect(api.Client.Delete(ctx, policy)).To(Succeed())
			theirs.end() // so that nobody repairs what should not break
			Consistently(func(g Gomega) {
				g.Expect(stored(ctx, second, name)()).To(Equal(map[string]int64{"theirs": 1}))
				g.Expect(users(ctx, second)()).To(Equal([]string{second.User(name)}))
			}).WithTimeout(sweepTime).Should(Succeed())
		}, NodeTimeout(2*time.Minute))

		It("publishes although the lease was made anew or Redis remembers a later leader", func(ctx SpecContext) {
			first := start(api, string(instance))
			createPolicy(ctx, namespace, "one")
			published(ctx, map[string]int64{"one": 1})
			first.end()
			Expect(api.Client.Delete(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: leaseKey.Namespace, Name: leaseKey.Name}})).
				To(Succeed())
			Expect(redis.Client().HSet(ctx, instance.Config(namespace), "$epoch", "9000000000000000").Err()).To(Succeed())
			start(api, string(instance))
			createPolicy(ctx, namespace, "two")
			published(ctx, map[string]int64{"one": 1, "two": 1})
		})

		It("works alone without leader election", func(ctx SpecContext) {
			start(api, string(instance), "--leader-elect=false")
			createPolicy(ctx, namespace, "alone")
			published(ctx, map[string]int64{"alone": 1})
		})

		It("names a master that is away with its replica, and does not mind a replica alone", func(ctx SpecContext) {
			start(api, string(instance))
			policy := createPolicy(ctx, namespace, "checkout")
			Eventually(conditions(ctx, policy)).WithTimeout(status).Should(Equal(healthyNoPods))
			masters, err := redis.Masters(ctx)
			Expect(err).NotTo(HaveOccurred())
			replicas, err := redis.ReplicasOf(ctx, masters[0])
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(func(ctx SpecContext) { Expect(redis.WaitHealthy(ctx)).To(Succeed()) }, NodeTimeout(30*time.Second))
			freeze := func(node *redistest.Node) {
				Expect(node.Signal(syscall.SIGSTOP)).To(Succeed())
				DeferCleanup(node.Signal, syscall.SIGCONT)
			}
			freeze(replicas[0])
			Consistently(conditions(ctx, policy)).WithTimeout(4 * time.Second).Should(Equal(healthyNoPods))
			freeze(masters[0])
			Eventually(conditions(ctx, policy)).WithTimeout(status).Should(HaveKeyWithValue(portero.ConditionDegraded, "True/RedisUnreachable"))
			Expect(message(policy, portero.ConditionDegraded)).To(Equal("masters of redis can't be used: " + masters[0].Addr() + " (no answer in time)"))
			Expect(masters[0].Signal(syscall.SIGCONT)).To(Succeed())
			Eventually(conditions(ctx, policy)).WithTimeout(status).Should(Equal(healthyNoPods))
		}, NodeTimeout(2*time.Minute))

		It("tells within seconds that Redis is away, guesses nothing, and that it is back", func(ctx SpecContext) {
			start(api, string(instance))
			policy := createPolicy(ctx, namespace, "checkout")
			api.CreatePod(ctx, testenv.NewPod(namespace, "web", testenv.Asked, testenv.WithSidecar("portero"), testenv.Ready))
			published(ctx, map[string]int64{"checkout": 1})
			Eventually(conditions(ctx, policy)).WithTimeout(status).Should(HaveKeyWithValue(portero.ConditionEnforced, "False/Waiting"))
			signal := func(s syscall.Signal) {
				for _, node := range redis.Nodes {
					Expect(node.Signal(s)).To(Succeed())
				}
			}
			signal(syscall.SIGSTOP)
			DeferCleanup(func(ctx SpecContext) {
				signal(syscall.SIGCONT)
				Expect(redis.WaitHealthy(ctx)).To(Succeed())
			}, NodeTimeout(30*time.Second))
			Eventually(conditions(ctx, policy)).WithTimeout(status).Should(And(
				HaveKeyWithValue(portero.ConditionDegraded, "True/RedisUnreachable"),
				HaveKeyWithValue(portero.ConditionPublished, "True/Published"),
				HaveKeyWithValue(portero.ConditionEnforced, "Unknown/HeartbeatsUnreadable"),
				HaveKeyWithValue(portero.ConditionReady, "Unknown/HeartbeatsUnreadable"),
			))
			Expect(policy.Status.Pods.Summary).To(Equal("?/1"))
			Expect(policy.Status.Pods.Enforcing).To(BeNil())
			// Who notices first and the look at all nodes may word it once each; looks come every second.
			versions := map[string]string{}
			Consistently(func(g Gomega) map[string]string {
				conditions(ctx, policy)(g)
				versions[policy.ResourceVersion] = meta.FindStatusCondition(policy.Status.Conditions, string(portero.ConditionDegraded)).Message
				return versions
			}).WithTimeout(10*time.Second).Should(WithTransform(func(seen map[string]string) int { return len(seen) }, BeNumerically("<=", 2)), "an outage is a write or two per policy, not one per look")
			signal(syscall.SIGCONT)
			Eventually(conditions(ctx, policy)).WithTimeout(2 * status).Should(And(
				HaveKeyWithValue(portero.ConditionDegraded, "False/Healthy"),
				HaveKeyWithValue(portero.ConditionEnforced, "False/Waiting"),
			))
		}, NodeTimeout(2*time.Minute))
	})

	It("needs no more of Redis than config/README.md says", func(ctx SpecContext) {
		readme, err := os.ReadFile(filepath.Join(testenv.Root(), "config", "README.md"))
		Expect(err).NotTo(HaveOccurred())
		_, rules, found := strings.Cut(string(readme), "ACL SETUSER portero-admin on '>…' ")
		Expect(found).To(BeTrue())
		rules, _, _ = strings.Cut(rules, "```")
		command := []any{"ACL", "SETUSER", "portero-admin", "reset", "on", ">least"}
		for _, rule := range strings.Fields(strings.NewReplacer("'", "", "\\\n", " ").Replace(rules)) {
			command = append(command, rule)
		}
		onEveryNode(ctx, command...)
		DeferCleanup(func(ctx SpecContext) { onEveryNode(ctx, "ACL", "DELUSER", "portero-admin") })
		admin := connectRedis(ctx, api, "least")
		admin.StringData = map[string]string{redislink.UsernameKey: "portero-admin"}
		Expect(api.Client.Update(ctx, admin)).To(Succeed())
		start(api, string(instance))
		policy := createPolicy(ctx, namespace, "checkout")
		pod := testenv.NewPod(namespace, "web", testenv.Asked, testenv.WithSidecar("portero"), testenv.Ready)
		api.CreatePod(ctx, pod)
		Eventually(conditions(ctx, policy)).WithTimeout(status).Should(HaveKeyWithValue(portero.ConditionPublished, "True/Published"), func() string {
			return message(policy, portero.ConditionPublished)
		})
		beat(ctx, instance, pod, policy, 1)
		Eventually(conditions(ctx, policy)).WithTimeout(status).Should(And(
			HaveKeyWithValue(portero.ConditionEnforced, "True/Enforced"), HaveKeyWithValue(portero.ConditionDegraded, "False/Healthy")))
		Eventually(users(ctx, instance)).WithTimeout(status).Should(ContainElement(instance.User(namespace)))
		onEveryMaster(ctx, "FUNCTION", "FLUSH")
		onEveryMaster(ctx, "FLUSHALL")
		published(ctx, map[string]int64{"checkout": 1})
		Expect(api.Client.Delete(ctx, policy)).To(Succeed())
		Expect(api.Client.Delete(ctx, pod, client.GracePeriodSeconds(0))).To(Succeed())
		Eventually(stored(ctx, instance, namespace)).WithTimeout(2 * sweepTime).Should(BeNil())
		Eventually(users(ctx, instance)).WithTimeout(status).ShouldNot(ContainElement(instance.User(namespace)))
	}, NodeTimeout(2*time.Minute))

	It("gives sidecars the addresses of a flag, and never its own credentials", func(ctx SpecContext) {
		admin := connectRedis(ctx, api, redisPassword)
		start(api, string(instance), "--sidecar-redis-addrs=redis.example:6379")
		createPolicy(ctx, namespace, "checkout")
		Eventually(credentialsOf(ctx, namespace)).WithTimeout(status).Should(HaveKeyWithValue("addrs", []byte("redis.example:6379")))
		for key, value := range credentialsOf(ctx, namespace)(NewGomega(Fail)) {
			Expect(string(value)).NotTo(ContainSubstring(redisPassword), key)
		}
		Expect(strings.Split(string(adminAddrs(ctx, admin)), ",")).To(Equal(redis.Addrs()))
	})
})

func adminAddrs(ctx context.Context, admin *corev1.Secret) []byte {
	GinkgoHelper()
	Expect(api.Client.Get(ctx, client.ObjectKeyFromObject(admin), admin)).To(Succeed())
	return admin.Data[redislink.AddrsKey]
}
