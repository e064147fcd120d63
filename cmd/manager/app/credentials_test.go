package app_test

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	portero "github.com/portero-dev/portero/api/v1alpha1"
	"github.com/portero-dev/portero/internal/configstore"
	"github.com/portero-dev/portero/internal/keyspace"
	"github.com/portero-dev/portero/internal/redisclient"
	"github.com/portero-dev/portero/internal/sidecarenv"
	"github.com/portero-dev/portero/internal/testenv"
)

// credentialsOf reads the namespace's Secret; nil when there is none.
func credentialsOf(ctx context.Context, namespace string) func(Gomega) map[string][]byte {
	return func(g Gomega) map[string][]byte {
		secret := &corev1.Secret{}
		err := api.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: sidecarenv.CredentialsName}, secret)
		if apierrors.IsNotFound(err) {
			return nil
		}
		g.Expect(err).NotTo(HaveOccurred())
		return secret.Data
	}
}

var _ = Describe("Credentials", func() {
	const instance = keyspace.Instance("credentials")
	var namespace string
	BeforeEach(func(ctx SpecContext) {
		namespace = api.CreateNamespace(ctx, nil)
		connectRedis(ctx, api, redisPassword)
		start(api, string(instance))
	})

	deployment := func(annotations map[string]string) *appsv1.Deployment {
		labels := map[string]string{"app": "web"}
		return &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"},
			Spec: appsv1.DeploymentSpec{
				Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: annotations},
					Spec:       testenv.NewPod(namespace, "web").Spec,
				},
			},
		}
	}

	It("let a namespace's sidecars in, and into nothing else", func(ctx SpecContext) {
		createPolicy(ctx, namespace, "checkout")
		Eventually(credentialsOf(ctx, namespace)).WithTimeout(status).ShouldNot(BeNil())
		Eventually(users(ctx, instance)).WithTimeout(status).Should(ContainElement(instance.User(namespace)))
		data := credentialsOf(ctx, namespace)(NewGomega(Fail))
		sidecar := redisclient.NewConfig(redisclient.Options{
			Addrs:       strings.Split(string(data[sidecarenv.SecretAddrs]), ","),
			Credentials: redisclient.Static(string(data[sidecarenv.SecretUsername]), string(data[sidecarenv.SecretPassword])),
		})
		DeferCleanup(sidecar.Close)
		Eventually(func() error {
			_, err := configstore.NewReader(sidecar, instance, namespace).Update(ctx, nil)
			return err
		}).WithTimeout(soon).Should(Succeed())
		_, err := configstore.NewReader(sidecar, instance, "other").Update(ctx, nil)
		Expect(err).To(MatchError(configstore.ErrDenied))
	})

	It("come with an annotated template, and go with it", func(ctx SpecContext) {
		web := deployment(nil)
		create(ctx, api, web)
		Consistently(credentialsOf(ctx, namespace)).WithTimeout(time.Second).Should(BeNil())
		web.Spec.Template.Annotations = map[string]string{portero.InjectAnnotation: "true"}
		Expect(api.Client.Update(ctx, web)).To(Succeed())
		Eventually(credentialsOf(ctx, namespace)).WithTimeout(status).ShouldNot(BeNil())
		Eventually(users(ctx, instance)).WithTimeout(status).Should(ContainElement(instance.User(namespace)))

		Expect(api.Client.Delete(ctx, web)).To(Succeed())
		Eventually(credentialsOf(ctx, namespace)).WithTimeout(status).Should(BeNil())
		Eventually(users(ctx, instance)).WithTimeout(status).ShouldNot(ContainElement(instance.User(namespace)))
	})

	It("come with a bare pod that asks", func(ctx SpecContext) {
		pod := testenv.NewPod(namespace, "bare", testenv.Asked)
		api.CreatePod(ctx, pod)
		Eventually(credentialsOf(ctx, namespace)).WithTimeout(status).ShouldNot(BeNil())
		Expect(api.Client.Delete(ctx, pod, client.GracePeriodSeconds(0))).To(Succeed())
		Eventually(credentialsOf(ctx, namespace)).WithTimeout(status).Should(BeNil())
	})

	It("come back as they were when the Secret is altered or deleted", func(ctx SpecContext) {
		createPolicy(ctx, namespace, "checkout")
		Eventually(credentialsOf(ctx, namespace)).WithTimeout(status).ShouldNot(BeNil())
		want := credentialsOf(ctx, namespace)(NewGomega(Fail))

		secret := &corev1.Secret{}
		Expect(api.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: sidecarenv.CredentialsName}, secret)).To(Succeed())
		secret.Data[sidecarenv.SecretPassword] = []byte("mine")
		Expect(api.Client.Update(ctx, secret)).To(Succeed())
		Eventually(credentialsOf(ctx, namespace)).WithTimeout(soon).Should(Equal(want))

		Expect(api.Client.Delete(ctx, secret)).To(Succeed())
		Eventually(credentialsOf(ctx, namespace)).WithTimeout(soon).Should(Equal(want))
	})

	It("never replace a Secret that is not ours, and say so", func(ctx SpecContext) {
		foreign := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: sidecarenv.CredentialsName},
			StringData: map[string]string{"password": "of somebody else"},
		}
		create(ctx, api, foreign)
		policy := createPolicy(ctx, namespace, "checkout")
		Eventually(conditions(ctx, policy)).WithTimeout(status).Should(And(
			HaveKeyWithValue(portero.ConditionDegraded, "True/SecretConflict"),
			HaveKeyWithValue(portero.ConditionPublished, "True/Published"),
		))
		Expect(message(policy, portero.ConditionDegraded)).To(ContainSubstring(namespace))
		Eventually(func() []string { return reasons(ctx, policy) }).WithTimeout(soon).Should(ContainElement("SecretConflict"))
		Expect(credentialsOf(ctx, namespace)(NewGomega(Fail))).To(Equal(map[string][]byte{"password": []byte("of somebody else")}))

		By("making its own once the other is gone")
		Expect(api.Client.Delete(ctx, foreign)).To(Succeed())
		Eventually(conditions(ctx, policy)).WithTimeout(status).Should(HaveKeyWithValue(portero.ConditionDegraded, "False/Healthy"))
		Eventually(credentialsOf(ctx, namespace)).WithTimeout(soon).Should(HaveKey(sidecarenv.SecretKeySecret))
	})

	It("are known to a node again soon after it was restarted without them", func(ctx SpecContext) {
		createPolicy(ctx, namespace, "checkout")
		Eventually(users(ctx, instance)).WithTimeout(status).Should(ContainElement(instance.User(namespace)))
		node := redis.Nodes[len(redis.Nodes)-1] // a replica: no failover
		node.Kill()
		Expect(node.Restart(ctx)).To(Succeed())
		Eventually(users(ctx, instance)).WithTimeout(back).Should(ContainElement(instance.User(namespace)))
		Expect(redis.WaitHealthy(ctx)).To(Succeed())
	})
})
