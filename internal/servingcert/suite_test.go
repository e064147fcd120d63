package servingcert_test

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/portero-dev/portero/internal/servingcert"
	"github.com/portero-dev/portero/internal/testenv"
)

const (
	timeout = 20 * time.Second
	poll    = 20 * time.Millisecond
	day     = 24 * time.Hour

	secretName = "portero-webhook-ca"
	host       = "portero-webhook.portero-system.svc"
)

func TestServingcert(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Serving certificates")
}

var env *testenv.Environment

var _ = BeforeSuite(func() {
	env = testenv.Start(GinkgoT(), testenv.Options{WithoutCRD: true})
})

// scene is what one spec works on: a namespace, a webhook configuration that calls nobody, and a clock.
type scene struct {
	namespace     string
	configuration string
	clock         *clocktesting.FakeClock
	elected       chan struct{}
	// running counts the replicas that were started.
	running int
}

func newScene(ctx context.Context) *scene {
	GinkgoHelper()
	s := &scene{
		namespace: env.CreateNamespace(ctx, nil), clock: clocktesting.NewFakeClock(time.Now()), elected: make(chan struct{}),
	}
	s.configuration = s.namespace
	return s
}

// configure creates the webhook configuration. A namespace selector that nothing matches keeps it from ever being called.
func (s *scene) configure(ctx context.Context) {
	GinkgoHelper()
	c := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: s.configuration}}
	for _, name := range []string{"one.portero.dev", "two.portero.dev"} {
		c.Webhooks = append(c.Webhooks, admissionregistrationv1.MutatingWebhook{
			Name:                    name,
			AdmissionReviewVersions: []string{"v1"},
			SideEffects:             ptr.To(admissionregistrationv1.SideEffectClassNone),
			NamespaceSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{"never": "matched"}},
			ClientConfig: admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{
				Namespace: s.namespace, Name: "portero-webhook",
			}},
		})
	}
	Expect(env.Client.Create(ctx, c)).To(Succeed())
	DeferCleanup(func(ctx context.Context) { Expect(env.Client.Delete(ctx, c)).To(Succeed()) })
}

// configureValidation creates the other webhook configuration, likewise.
func (s *scene) configureValidation(ctx context.Context, name string) {
	GinkgoHelper()
	c := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}}
	c.Webhooks = []admissionregistrationv1.ValidatingWebhook{{
		Name:                    "three.portero.dev",
		AdmissionReviewVersions: []string{"v1"},
		SideEffects:             ptr.To(admissionregistrationv1.SideEffectClassNone),
		NamespaceSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{"never": "matched"}},
		ClientConfig: admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{
			Namespace: s.namespace, Name: "portero-webhook",
		}},
	}}
	Expect(env.Client.Create(ctx, c)).To(Succeed())
	DeferCleanup(func(ctx context.Context) { Expect(env.Client.Delete(ctx, c)).To(Succeed()) })
}

// start runs a replica until the spec ends.
func (s *scene) start(ctx context.Context, change ...func(*servingcert.Options)) *servingcert.Keeper {
	GinkgoHelper()
	return s.startAs(ctx, env.Config, change...)
}

func (s *scene) startAs(ctx context.Context, config *rest.Config, change ...func(*servingcert.Options)) *servingcert.Keeper {
	GinkgoHelper()
	o := servingcert.Options{
		Namespace: s.namespace, SecretName: servingcert.SecretName, Mutating: s.configuration, Validating: s.configuration,
		Hosts: []string{host, "127.0.0.1"}, Elected: s.elected, Clock: s.clock,
	}
	for _, c := range change {
		c(&o)
	}
	keeper, err := servingcert.New(config, o)
	Expect(err).NotTo(HaveOccurred())
	s.running++
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- keeper.Start(running) }()
	DeferCleanup(func() {
		cancel()
		Eventually(ended, timeout).Should(Receive(BeNil()))
	})
	return keeper
}

// elect makes the replicas that share the scene's channel leaders.
func (s *scene) elect() { close(s.elected) }

// step moves the clock once every replica waits for it: one that has read the time and not yet set its timer would count
// the timer's wait from the new time.
func (s *scene) step(d time.Duration) {
	GinkgoHelper()
	Eventually(s.clock.Waiters, timeout, poll).Should(Equal(s.running))
	s.clock.Step(d)
}

// authorities returns the certificates in the caBundle, which must be the same in both webhooks.
func (s *scene) authorities(g Gomega, ctx context.Context) []*x509.Certificate {
	c := &admissionregistrationv1.MutatingWebhookConfiguration{}
	g.Expect(env.Client.Get(ctx, client.ObjectKey{Name: s.configuration}, c)).To(Succeed())
	g.Expect(c.Webhooks).To(HaveLen(2))
	g.Expect(c.Webhooks[0].ClientConfig.CABundle).To(Equal(c.Webhooks[1].ClientConfig.CABundle))
	var certs []*x509.Certificate
	for rest := c.Webhooks[0].ClientConfig.CABundle; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return certs
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		g.Expect(err).NotTo(HaveOccurred())
		certs = append(certs, cert)
	}
}

func (s *scene) secret(ctx context.Context) *corev1.Secret {
	GinkgoHelper()
	secret := &corev1.Secret{}
	Expect(env.Client.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: servingcert.SecretName}, secret)).To(Succeed())
	return secret
}

func ready(k *servingcert.Keeper) func() error { return func() error { return k.Ready(nil) } }

func leafOf(g Gomega, k *servingcert.Keeper) *x509.Certificate {
	cert, err := k.GetCertificate(nil)
	g.Expect(err).NotTo(HaveOccurred())
	return cert.Leaf
}
