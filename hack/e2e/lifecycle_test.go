//go:build e2e

package e2e_test

import (
	"context"
	"net/http"
	"os"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/portero-dev/portero/hack/testapp/load"
	"github.com/portero-dev/portero/internal/keyspace"
)

var _ = Describe("The manager", Serial, func() {
	It("restarts without a sidecar noticing", func(ctx SpecContext) {
		w := startWorkload(ctx, 2)
		policy := perKey(w.namespace, 20, 20, "1s")
		enforce(ctx, policy)
		wait := background(ctx, load.Options{
			URLs: w.podURLs(ctx), Clients: []load.Client{apiClient("k")}, Rate: 60, Concurrency: 8,
			Duration: 15 * time.Second, Requests: 1 << 20, Timeout: 10 * time.Second, Method: http.MethodGet,
		})
		Expect(kube.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(systemNamespace), client.GracePeriodSeconds(1))).To(Succeed())
		report := wait()
		Expect(report.Total.Failed).To(BeZero(), "errors %v, statuses %v", report.Total.Errors, report.Total.Statuses)
		Expect(float64(report.Total.Passed)).To(BeNumerically("<=", 20+20*report.ElapsedSeconds))
		Expect(float64(report.Total.Passed)).To(BeNumerically(">=", 0.98*(20+20*report.ElapsedSeconds)))
		expectManagerReady(ctx, 2)
		expectCondition(ctx, policy, "Enforced", "True", "Enforced")
	})

	When("both replicas are down", func() {
		BeforeEach(func(ctx SpecContext) {
			DeferCleanup(func(ctx SpecContext) { scaleManager(ctx, 2) })
		})

		It("leaves traffic limited and un-annotated pods starting as always", func(ctx SpecContext) {
			w := startWorkload(ctx, 2)
			enforce(ctx, perKey(w.namespace, 10, 1, "1h"))
			scaleManager(ctx, 0)
			Expect(burst(ctx, "k", 30, w.podURLs(ctx)...).Passed).To(Equal(10))

			plain := appDeployment(newNamespace(ctx, nil), 1)
			plain.Spec.Template.Annotations = nil
			created := time.Now()
			Expect(kube.Create(ctx, plain)).To(Succeed())
			(&workload{namespace: plain.Namespace, replicas: 1}).expectReady(ctx)
			Expect(time.Since(created)).To(BeNumerically("<", 30*time.Second))
			By("and annotated ones start too, without a sidecar: nobody's pods depend on us")
			asked := appDeployment(newNamespace(ctx, nil), 1)
			Expect(kube.Create(ctx, asked)).To(Succeed())
			(&workload{namespace: asked.Namespace, replicas: 1}).expectReady(ctx)
		})

		It("lets policy and namespace go at once with Redis down too, and sweeps after", func(ctx SpecContext) {
			DeferCleanup(func(ctx SpecContext) { redisControl(ctx, "start") })
			w := startWorkload(ctx, 1)
			policy := perKey(w.namespace, 10, 1, "1h")
			enforce(ctx, policy)
			other := startWorkload(ctx, 1)
			gone := perKey(other.namespace, 10, 1, "1h")
			enforce(ctx, gone)

			scaleManager(ctx, 0)
			redisControl(ctx, "stop")
			Expect(kube.Delete(ctx, policy)).To(Succeed())
			Eventually(func() bool {
				return apierrors.IsNotFound(kube.Get(ctx, client.ObjectKeyFromObject(policy), policy))
			}).WithContext(ctx).WithTimeout(2 * time.Second).WithPolling(poll).Should(BeTrue())
			Expect(kube.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: other.namespace}})).To(Succeed())
			Eventually(func() bool {
				return apierrors.IsNotFound(kube.Get(ctx, types.NamespacedName{Name: other.namespace}, &corev1.Namespace{}))
			}).WithContext(ctx).WithTimeout(settled).WithPolling(poll).Should(BeTrue())

			redisControl(ctx, "start")
			expectClusterOK(ctx)
			By("leaving a stale record, as a Redis that kept its data would")
			stale := configKey(ctx, NewWithT(GinkgoT()), other.namespace)
			Expect(admin.HSet(ctx, stale, "1/per-key", "stale").Err()).To(Succeed())
			Expect(admin.SAdd(ctx, instance(ctx, NewWithT(GinkgoT())).Namespaces(), other.namespace).Err()).To(Succeed())
			scaleManager(ctx, 2)
			Eventually(func(g Gomega) {
				g.Expect(admin.Exists(ctx, stale).Val()).To(BeZero())
				g.Expect(admin.SIsMember(ctx, instance(ctx, g).Namespaces(), other.namespace).Val()).To(BeFalse())
				g.Expect(admin.HExists(ctx, configKey(ctx, g, w.namespace), "1/per-key").Val()).To(BeFalse())
			}).WithContext(ctx).WithTimeout(settled).WithPolling(poll).Should(Succeed())
		})

		It("lets the CRD go at once", func(ctx SpecContext) {
			w := startWorkload(ctx, 1)
			enforce(ctx, perKey(w.namespace, 10, 1, "1h"))
			scaleManager(ctx, 0)
			DeferCleanup(func(ctx SpecContext) {
				kubectl(ctx, "apply", "--server-side", "-k", "../../config/crd")
				kubectl(ctx, "wait", "--for=condition=Established", "--timeout=30s", "crd/ratelimitpolicies.portero.dev")
			})
			started := time.Now()
			kubectl(ctx, "delete", "crd", "ratelimitpolicies.portero.dev", "--timeout=20s")
			Expect(time.Since(started)).To(BeNumerically("<", 20*time.Second))
		})
	})
})

// instance is the instance that the cluster's manager uses: the first 8 hex digits of the kube-system namespace's UID.
func instance(ctx context.Context, g Gomega) keyspace.Instance {
	var ns corev1.Namespace
	g.Expect(kube.Get(ctx, types.NamespacedName{Name: "kube-system"}, &ns)).To(Succeed())
	i, err := keyspace.ParseInstance(string(ns.UID)[:8])
	g.Expect(err).NotTo(HaveOccurred())
	return i
}

func configKey(ctx context.Context, g Gomega, namespace string) string {
	return instance(ctx, g).Config(namespace)
}

var _ = Describe("The samples", func() {
	It("are accepted as they stand", func(ctx SpecContext) {
		namespace := newNamespace(ctx, nil)
		entries, err := os.ReadDir("../../config/samples")
		Expect(err).NotTo(HaveOccurred())
		Expect(entries).NotTo(BeEmpty())
		kubectl(ctx, "-n", namespace, "apply", "-k", "../../config/samples")
		Eventually(func() string {
			return kubectl(ctx, "-n", namespace, "get", "rlp", "-o", `jsonpath={range .items[*]}{.status.conditions[?(@.type=="Published")].status}{"\n"}{end}`)
		}).WithContext(ctx).WithTimeout(settled).WithPolling(poll).Should(MatchRegexp(`^(True\n)+$`))
	})
})
