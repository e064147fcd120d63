package servingcert_test

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/portero-dev/portero/internal/servingcert"
)

var _ = Describe("Keeper", func() {
	var s *scene
	BeforeEach(func(ctx SpecContext) { s = newScene(ctx) })

	It("writes the caBundle of each webhook and serves a certificate that it verifies", func(ctx SpecContext) {
		s.configure(ctx)
		keeper := s.start(ctx)
		s.elect()
		Eventually(ready(keeper), timeout, poll).Should(Succeed())
		Expect(s.authorities(Default, ctx)).To(HaveLen(1))
		leaf := leafOf(Default, keeper)
		Expect(leaf.VerifyHostname(host)).To(Succeed())
		Expect(leaf.VerifyHostname("127.0.0.1")).To(Succeed())
		Expect(leaf.NotAfter).To(BeTemporally("~", s.clock.Now().Add(7*day), time.Minute))
	})

	It("leaves the caBundle to the leader", func(ctx SpecContext) {
		s.configure(ctx)
		follower := s.start(ctx)
		Eventually(func(g Gomega) { leafOf(g, follower) }, timeout, poll).Should(Succeed())
		Consistently(func(g Gomega) { g.Expect(s.authorities(g, ctx)).To(BeEmpty()) }, "500ms", "50ms").Should(Succeed())
		Expect(follower.Ready(nil)).To(MatchError(ContainSubstring("caBundle of webhook")))

		elected := make(chan struct{})
		leader := s.start(ctx, func(o *servingcert.Options) { o.Elected = elected })
		close(elected)
		Eventually(ready(leader), timeout, poll).Should(Succeed())
		Eventually(ready(follower), timeout, poll).Should(Succeed())
	})

	It("makes one CA, however many replicas start at once", func(ctx SpecContext) {
		s.configure(ctx)
		s.elect()
		var keepers []*servingcert.Keeper
		for range 5 {
			keepers = append(keepers, s.start(ctx))
		}
		for _, k := range keepers {
			Eventually(ready(k), timeout, poll).Should(Succeed())
		}
		authorities := s.authorities(Default, ctx)
		Expect(authorities).To(HaveLen(1))
		serials := map[string]bool{}
		for _, k := range keepers {
			leaf := leafOf(Default, k)
			Expect(leaf.CheckSignatureFrom(authorities[0])).To(Succeed())
			serials[leaf.SerialNumber.String()] = true
		}
		Expect(serials).To(HaveLen(5), "each replica has a certificate of its own")
	})

	It("says that the configuration is missing, and serves once it comes", func(ctx SpecContext) {
		keeper := s.start(ctx)
		s.elect()
		Eventually(func(g Gomega) { leafOf(g, keeper) }, timeout, poll).Should(Succeed())
		Expect(keeper.Ready(nil)).To(MatchError(ContainSubstring(s.configuration + " has not been read")))
		s.configure(ctx)
		Eventually(ready(keeper), timeout, poll).Should(Succeed())
	})

	It("looks after the validating configuration too, once it is there", func(ctx SpecContext) {
		s.configure(ctx)
		keeper := s.start(ctx)
		s.elect()
		Eventually(ready(keeper), timeout, poll).Should(Succeed(), "without it, the API server calls for less")
		s.configureValidation(ctx, s.configuration)
		bundle := func(g Gomega) []byte {
			c := &admissionregistrationv1.ValidatingWebhookConfiguration{}
			g.Expect(env.Client.Get(ctx, client.ObjectKey{Name: s.configuration}, c)).To(Succeed())
			g.Expect(c.Webhooks).To(HaveLen(1))
			return c.Webhooks[0].ClientConfig.CABundle
		}
		wanted := s.authorities(Default, ctx)[0]
		holds := func(g Gomega) {
			block, _ := pem.Decode(bundle(g))
			g.Expect(block).NotTo(BeNil())
			g.Expect(block.Bytes).To(Equal(wanted.Raw))
		}
		Eventually(holds, timeout, poll).Should(Succeed(), "the clock stands still, so only a watch can have told of it")
		Eventually(ready(keeper), timeout, poll).Should(Succeed())

		c := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: s.configuration}}
		Expect(env.Client.Patch(ctx, c, client.RawPatch(types.JSONPatchType,
			[]byte(`[{"op":"remove","path":"/webhooks/0/clientConfig/caBundle"}]`)))).To(Succeed())
		Eventually(holds, timeout, poll).Should(Succeed())
	})

	It("is not ready while the validating configuration does not verify its certificate", func(ctx SpecContext) {
		s.configure(ctx)
		s.elect()
		Eventually(ready(s.start(ctx)), timeout, poll).Should(Succeed())
		follower := s.start(ctx, func(o *servingcert.Options) {
			o.Elected, o.Mutating, o.Validating = nil, s.configuration, "other-"+s.configuration
		})
		Eventually(ready(follower), timeout, poll).Should(Succeed())
		s.configureValidation(ctx, "other-"+s.configuration) // which the leader knows nothing of
		Eventually(ready(follower), timeout, poll).Should(MatchError(ContainSubstring("webhook three.portero.dev does not verify")))
	})

	It("is ready, and injects, whatever becomes of the validating configuration", func(ctx SpecContext) {
		s.configure(ctx)
		s.configureValidation(ctx, s.configuration)
		c := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: s.configuration}}
		Expect(env.Client.Patch(ctx, c, client.RawPatch(types.JSONPatchType, []byte(`[{"op":"remove","path":"/webhooks"}]`)))).To(Succeed())
		s.elect()
		Eventually(ready(s.start(ctx)), timeout, poll).Should(Succeed())
	})

	DescribeTable("repairs a caBundle that somebody else changed, and touches nothing beside",
		func(ctx SpecContext, patch string) {
			s.configure(ctx)
			keeper := s.start(ctx)
			s.elect()
			Eventually(ready(keeper), timeout, poll).Should(Succeed())
			before := s.authorities(Default, ctx)

			c := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: s.configuration}}
			Expect(env.Client.Patch(ctx, c, client.RawPatch(types.JSONPatchType, []byte(patch)))).To(Succeed())
			edited := c.DeepCopy()
			Eventually(func(g Gomega) { g.Expect(s.authorities(g, ctx)).To(Equal(before)) }, timeout, poll).Should(Succeed())
			Expect(env.Client.Get(ctx, client.ObjectKeyFromObject(c), c)).To(Succeed())
			for i := range c.Webhooks {
				edited.Webhooks[i].ClientConfig.CABundle = c.Webhooks[i].ClientConfig.CABundle
			}
			Expect(c.Webhooks).To(Equal(edited.Webhooks))
		},
		Entry("by removing it", `[{"op":"remove","path":"/webhooks/0/clientConfig/caBundle"}]`),
		Entry("by blanking it", `[{"op":"replace","path":"/webhooks/1/clientConfig/caBundle","value":""}]`),
		Entry("while turning the webhooks round", `[{"op":"move","from":"/webhooks/1","path":"/webhooks/0"},
			{"op":"remove","path":"/webhooks/0/clientConfig/caBundle"}]`),
		Entry("while changing a timeout", `[{"op":"replace","path":"/webhooks/1/timeoutSeconds","value":3},
			{"op":"remove","path":"/webhooks/1/clientConfig/caBundle"}]`),
	)

	It("renews its own certificate at two thirds of its life", func(ctx SpecContext) {
		s.configure(ctx)
		keeper := s.start(ctx)
		s.elect()
		Eventually(ready(keeper), timeout, poll).Should(Succeed())
		first := leafOf(Default, keeper)
		s.step(4 * day)
		Consistently(func(g Gomega) { g.Expect(leafOf(g, keeper)).To(Equal(first)) }, "300ms", poll).Should(Succeed())
		s.step(day)
		Eventually(func(g Gomega) { g.Expect(leafOf(g, keeper).NotAfter).To(BeTemporally(">", first.NotAfter)) }, timeout, poll).Should(Succeed())
		Expect(keeper.Ready(nil)).To(Succeed())
	})

	It("gives the CA's successor time to be known before it signs, and drops the old one when it expires", func(ctx SpecContext) {
		s.configure(ctx)
		s.elect()
		keeper := s.start(ctx)
		Eventually(ready(keeper), timeout, poll).Should(Succeed())
		first := s.authorities(Default, ctx)[0]

		By("passing two thirds of the CA's life")
		s.step(250 * day)
		var second *x509.Certificate
		Eventually(func(g Gomega) {
			now := s.authorities(g, ctx)
			g.Expect(now).To(HaveLen(2))
			g.Expect(now[1]).To(Equal(first))
			second = now[0]
		}, timeout, poll).Should(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(leafOf(g, keeper).NotAfter).To(BeTemporally(">", s.clock.Now()))
			g.Expect(keeper.Ready(nil)).To(Succeed())
		}, timeout, poll).Should(Succeed())
		Expect(leafOf(Default, keeper).CheckSignatureFrom(first)).To(Succeed(), "the old CA signs until the new one is known")

		By("starting another replica meanwhile")
		late := s.start(ctx)
		Eventually(ready(late), timeout, poll).Should(Succeed())
		Expect(leafOf(Default, late).CheckSignatureFrom(first)).To(Succeed())

		By("letting the bundle settle")
		s.step(servingcert.DefaultSettle)
		for _, k := range []*servingcert.Keeper{keeper, late} {
			Eventually(func(g Gomega) { g.Expect(leafOf(g, k).CheckSignatureFrom(second)).To(Succeed()) }, timeout, poll).Should(Succeed())
			Expect(k.Ready(nil)).To(Succeed())
		}

		By("passing the old CA's end")
		s.step(120 * day)
		Eventually(func(g Gomega) { g.Expect(s.authorities(g, ctx)).To(Equal([]*x509.Certificate{second})) }, timeout, poll).Should(Succeed())
		Eventually(ready(keeper), timeout, poll).Should(Succeed())
	})

	It("writes a lost Secret again with the same CA", func(ctx SpecContext) {
		s.configure(ctx)
		keeper := s.start(ctx)
		s.elect()
		Eventually(ready(keeper), timeout, poll).Should(Succeed())
		before := s.authorities(Default, ctx)
		data := s.secret(ctx).Data
		Expect(env.Client.Delete(ctx, s.secret(ctx))).To(Succeed())
		Eventually(func(g Gomega) {
			secret := &corev1.Secret{}
			g.Expect(env.Client.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: servingcert.SecretName}, secret)).To(Succeed())
			g.Expect(secret.Data).To(HaveKeyWithValue("ca.crt", data["ca.crt"]))
		}, timeout, poll).Should(Succeed())
		Expect(s.authorities(Default, ctx)).To(Equal(before))
		Expect(keeper.Ready(nil)).To(Succeed())
	})

	DescribeTable("replaces a Secret that can't be read",
		func(ctx SpecContext, data map[string][]byte) {
			s.configure(ctx)
			s.elect()
			Expect(env.Client.Create(ctx, &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: servingcert.SecretName}, Data: data,
			})).To(Succeed())
			keeper := s.start(ctx)
			Eventually(ready(keeper), timeout, poll).Should(Succeed())
			Expect(s.secret(ctx).Data).To(And(HaveKey("ca.crt"), HaveKey("ca.key"), Not(HaveKey("previous.crt"))))
		},
		Entry("because it is empty", nil),
		Entry("because it holds no certificate", map[string][]byte{"ca.crt": []byte("x"), "ca.key": []byte("y")}),
		Entry("because the key is missing", map[string][]byte{"ca.crt": []byte("x")}),
		Entry("because the previous CA is broken", map[string][]byte{"previous.crt": []byte("x")}),
	)

	It("needs no right beyond those of its markers", func(ctx SpecContext) {
		s.configure(ctx)
		s.elect()
		user := s.user(ctx)
		keeper := s.startAs(ctx, user)
		Eventually(ready(keeper), timeout, poll).Should(Succeed())
		before := s.authorities(Default, ctx)
		c := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: s.configuration}}
		Expect(env.Client.Patch(ctx, c, client.RawPatch(types.JSONPatchType,
			[]byte(`[{"op":"remove","path":"/webhooks/0/clientConfig/caBundle"}]`)))).To(Succeed())
		Eventually(func(g Gomega) { g.Expect(s.authorities(g, ctx)).To(Equal(before)) }, timeout, poll).Should(Succeed(),
			"the clock stands still, so only a watch can have told of the change")
		s.step(250 * day)
		Eventually(func(g Gomega) { g.Expect(s.authorities(g, ctx)).To(HaveLen(2)) }, timeout, poll).Should(Succeed())
	})
})

// user returns a configuration that acts with the rights of the package's RBAC markers and no others.
func (s *scene) user(ctx context.Context) *rest.Config {
	GinkgoHelper()
	subject := rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: s.namespace}
	meta := metav1.ObjectMeta{Namespace: s.namespace, Name: s.namespace}
	for _, o := range []client.Object{
		&rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"create"}},
			{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{servingcert.SecretName}, Verbs: []string{"get", "list", "watch", "update"}},
		}},
		&rbacv1.RoleBinding{ObjectMeta: meta, Subjects: []rbacv1.Subject{subject}, RoleRef: rbacv1.RoleRef{Kind: "Role", Name: meta.Name}},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: meta.Name}, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{"admissionregistration.k8s.io"}, Resources: []string{"mutatingwebhookconfigurations", "validatingwebhookconfigurations"},
			ResourceNames: []string{s.configuration}, Verbs: []string{"get", "list", "watch", "patch"},
		}}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: meta.Name}, Subjects: []rbacv1.Subject{subject},
			RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: meta.Name},
		},
	} {
		Expect(env.Client.Create(ctx, o)).To(Succeed())
	}
	config := rest.CopyConfig(env.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: subject.Name}
	return config
}
