package app_test

import (
	"context"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	eventsv1 "k8s.io/api/events/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	portero "github.com/portero-dev/portero/api/v1alpha1"
	"github.com/portero-dev/portero/controllers/redislink"
	"github.com/portero-dev/portero/internal/keyspace"
	"github.com/portero-dev/portero/internal/testenv"
)

// healthyNoPods are the conditions of a policy that is in Redis and that no pod matches.
var healthyNoPods = map[portero.ConditionType]string{
	portero.ConditionReady:         "True/Ready",
	portero.ConditionAccepted:      "True/Accepted",
	portero.ConditionPublished:     "True/Published",
	portero.ConditionEnforced:      "False/NoPods",
	portero.ConditionDegraded:      "False/Healthy",
	portero.ConditionTrafficBypass: "False/NoBypass",
}

var _ = Describe("A policy", func() {
	const instance = keyspace.Instance("policies")
	var namespace string
	BeforeEach(func(ctx SpecContext) {
		namespace = api.CreateNamespace(ctx, nil)
	})

	When("all is well", func() {
		BeforeEach(func(ctx SpecContext) {
			connectRedis(ctx, api, redisPassword)
			start(api, string(instance))
		})

		It("is published, follows changes, and is gone soon after its deletion", func(ctx SpecContext) {
			policy := createPolicy(ctx, namespace, "checkout")
			Eventually(stored(ctx, instance, namespace)).WithTimeout(status).Should(Equal(map[string]int64{"checkout": 1}))
			Eventually(conditions(ctx, policy)).WithTimeout(soon).Should(Equal(healthyNoPods))
			Expect(policy.Status.ObservedGeneration).To(Equal(int64(1)))
			Expect(policy.Status.LimitsSummary).To(Equal("per-key"))

			policy.Spec.Limits[0].Bucket.Capacity = 50
			Expect(api.Client.Update(ctx, policy)).To(Succeed())
			Eventually(stored(ctx, instance, namespace)).WithTimeout(2 * time.Second).Should(Equal(map[string]int64{"checkout": 2}))
			Eventually(conditions(ctx, policy)).WithTimeout(soon).Should(Equal(healthyNoPods))

			Expect(api.Client.Delete(ctx, policy)).To(Succeed())
			Expect(client.IgnoreNotFound(api.Client.Get(ctx, client.ObjectKeyFromObject(policy), policy))).To(Succeed())
			Eventually(stored(ctx, instance, namespace)).WithTimeout(2 * time.Second).Should(BeEmpty())
		})

		It("comes back after FLUSHALL, a hand edit, and FUNCTION FLUSH", func(ctx SpecContext) {
			policy := createPolicy(ctx, namespace, "checkout")
			want := map[string]int64{"checkout": 1}
			Eventually(stored(ctx, instance, namespace)).WithTimeout(status).Should(Equal(want))

			onEveryMaster(ctx, "FLUSHALL")
			Eventually(stored(ctx, instance, namespace)).WithTimeout(sweepTime).Should(Equal(want))

			Expect(redis.Client().HSet(ctx, instance.Config(namespace), "1/checkout", "spoilt").Err()).To(Succeed())
			Eventually(stored(ctx, instance, namespace)).WithTimeout(sweepTime).Should(Equal(want))

			onEveryMaster(ctx, "FUNCTION", "FLUSH")
			Eventually(func() error {
				return redis.Client().FCall(ctx, keyspace.FunctionLibrary+"_heartbeats", []string{instance.Heartbeats(namespace)}).Err()
			}).WithTimeout(back).Should(Succeed())
			Eventually(conditions(ctx, policy)).WithTimeout(status).Should(Equal(healthyNoPods))
		})

		It("is published at last when Redis refused it and nothing else tells that it takes it now", func(ctx SpecContext) {
			Eventually(conditions(ctx, createPolicy(ctx, api.CreateNamespace(ctx, nil), "first"))).WithTimeout(status).Should(Equal(healthyNoPods))
			key := instance.Config(namespace)
			slot, err := redis.Client().ClusterKeySlot(ctx, key).Result()
			Expect(err).NotTo(HaveOccurred())
			master, err := redis.Client().MasterForKey(ctx, key)
			Expect(err).NotTo(HaveOccurred())
			Expect(master.ClusterDelSlots(ctx, int(slot)).Err()).To(Succeed())
			serve := sync.OnceFunc(func() { Expect(master.ClusterAddSlots(context.WithoutCancel(ctx), int(slot)).Err()).To(Succeed()) })
			DeferCleanup(serve)

			policy := createPolicy(ctx, namespace, "checkout")
			refused := And(
				HaveKeyWithValue(portero.ConditionPublished, "False/RedisUnreachable"),
				HaveKeyWithValue(portero.ConditionDegraded, "False/Healthy"), // every look at the nodes goes well
			)
			Eventually(conditions(ctx, policy)).WithTimeout(status).Should(refused)
			serve()
			Eventually(conditions(ctx, policy)).WithTimeout(status).Should(Equal(healthyNoPods))
		})

		It("that can't be translated any more says so, and leaves its last good version and all others in force", func(ctx SpecContext) {
			policy, other := createPolicy(ctx, namespace, "checkout"), createPolicy(ctx, namespace, "other")
			want := map[string]int64{"checkout": 1, "other": 1}
			Eventually(stored(ctx, instance, namespace)).WithTimeout(status).Should(Equal(want))

			restore := relaxCRD(ctx)
			policy.Spec.Limits[0].Matches = []portero.RequestMatch{{Path: &portero.PathMatch{Type: portero.PathMatchRegularExpression, Value: "("}}}
			Eventually(func(g Gomega) {
				g.Expect(api.Client.Get(ctx, client.ObjectKeyFromObject(policy), other)).To(Succeed())
				policy.ResourceVersion = other.ResourceVersion
				g.Expect(api.Client.Update(ctx, policy)).To(Succeed())
			}).WithTimeout(soon).Should(Succeed(), "the API server takes a moment to follow the CRD")
			restore()

			Eventually(conditions(ctx, policy)).WithTimeout(status).Should(Equal(map[portero.ConditionType]string{
				portero.ConditionReady:         "False/Invalid",
				portero.ConditionAccepted:      "False/Invalid",
				portero.ConditionPublished:     "False/NotAccepted",
				portero.ConditionEnforced:      "False/NotAccepted",
				portero.ConditionDegraded:      "False/Healthy",
				portero.ConditionTrafficBypass: "False/NoBypass",
			}))
			Expect(message(policy, portero.ConditionAccepted)).To(ContainSubstring("spec.limits"))
			Expect(stored(ctx, instance, namespace)()).To(Equal(want))

			By("surviving a FLUSHALL")
			onEveryMaster(ctx, "FLUSHALL")
			Eventually(stored(ctx, instance, namespace)).WithTimeout(sweepTime).Should(Equal(want))
		})

		It("tells of changes in Events, once", func(ctx SpecContext) {
			policy := createPolicy(ctx, namespace, "checkout")
			api.CreatePod(ctx, testenv.NewPod(namespace, "bare", testenv.Ready))
			Eventually(func(g Gomega) []string {
				g.Expect(api.Client.Get(ctx, client.ObjectKeyFromObject(policy), policy)).To(Succeed())
				return reasons(ctx, policy)
			}).WithTimeout(status).Should(ContainElements("NotInjected", "PodsUnprotected"))
			Consistently(func() []string { return reasons(ctx, policy) }).WithTimeout(3 * time.Second).Should(HaveLen(2))
		})
	})

	It("says that Redis is not configured, then that the password is wrong, then works, without a restart", func(ctx SpecContext) {
		start(api, string(instance))
		policy := createPolicy(ctx, namespace, "checkout")
		reason := func(want string) {
			GinkgoHelper()
			Eventually(conditions(ctx, policy)).WithTimeout(status).Should(And(
				HaveKeyWithValue(portero.ConditionPublished, "False/"+want),
				HaveKeyWithValue(portero.ConditionDegraded, "True/"+want),
				HaveKeyWithValue(portero.ConditionEnforced, "False/NotPublished"),
				HaveKeyWithValue(portero.ConditionAccepted, "True/Accepted"),
			))
		}
		reason("RedisNotConfigured")
		Expect(message(policy, portero.ConditionPublished)).To(ContainSubstring("portero-redis-admin"))

		secret := connectRedis(ctx, api, "wrong")
		reason("RedisUnreachable")
		Expect(message(policy, portero.ConditionPublished)).To(ContainSubstring("WRONGPASS"))

		secret.StringData = map[string]string{redislink.PasswordKey: redisPassword}
		Expect(api.Client.Update(ctx, secret)).To(Succeed())
		Eventually(conditions(ctx, policy)).WithTimeout(status).Should(Equal(healthyNoPods))

		Expect(api.Client.Delete(ctx, secret)).To(Succeed())
		Eventually(conditions(ctx, policy)).WithTimeout(status).Should(HaveKeyWithValue(portero.ConditionDegraded, "True/RedisNotConfigured"))
	})
})

// relaxCRD makes the API server accept any spec, as before there were rules. The result makes the rules hold again.
func relaxCRD(ctx SpecContext) (restore func()) {
	GinkgoHelper()
	key := client.ObjectKey{Name: "ratelimitpolicies.portero.dev"}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	Expect(api.Client.Get(ctx, key, crd)).To(Succeed())
	schema := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
	strict := schema.Properties["spec"]
	set := func(ctx SpecContext, spec apiextensionsv1.JSONSchemaProps) {
		GinkgoHelper()
		Expect(api.Client.Get(ctx, key, crd)).To(Succeed())
		crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"] = spec
		Expect(api.Client.Update(ctx, crd)).To(Succeed())
	}
	set(ctx, apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)})
	DeferCleanup(func(ctx SpecContext) { set(ctx, strict) })
	return func() { set(ctx, strict) }
}

// reasons lists the reasons of the Events about an object, in no order.
func reasons(ctx SpecContext, object client.Object) []string {
	GinkgoHelper()
	list := &eventsv1.EventList{}
	Expect(api.Client.List(ctx, list, client.InNamespace(object.GetNamespace()))).To(Succeed())
	var out []string
	for i := range list.Items {
		if list.Items[i].Regarding.UID == object.GetUID() {
			out = append(out, list.Items[i].Reason)
		}
	}
	return out
}
