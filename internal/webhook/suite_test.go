package webhook_test

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	"github.com/portero-dev/portero/internal/injector"
	"github.com/portero-dev/portero/internal/servingcert"
	"github.com/portero-dev/portero/internal/testenv"
	"github.com/portero-dev/portero/internal/webhook"
)

const (
	timeout = 20 * time.Second
	poll    = 20 * time.Millisecond

	systemNamespace = "portero-system"
	image           = "portero.example/sidecar:v0.1.0"
)

func TestWebhook(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Webhook")
}

var (
	env *testenv.Environment
	// server is the manager's webhook server as the API server of the suite calls it.
	server *callee
)

var _ = BeforeSuite(func(ctx SpecContext) {
	env = testenv.Start(GinkgoT(), testenv.Options{ConfigureAPIServer: func(api *envtest.APIServer) {
		// The plugin that mounts service account tokens is off in test servers; here its work is wanted.
		api.Configure().Set("disable-admission-plugins", "StorageObjectInUseProtection")
	}})
	Expect(env.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: systemNamespace}})).To(Succeed())

	elected := make(chan struct{})
	close(elected)
	keeper := runKeeper(ctx, servingcert.Options{
		Namespace: systemNamespace, SecretName: servingcert.SecretName, Mutating: webhook.ConfigurationName, Validating: webhook.ValidatorName,
		Hosts: []string{"127.0.0.1"}, Elected: elected,
	})
	server = newCallee(keeper)
	server.start()
	DeferCleanup(func() { server.stop() })
	Expect(env.Client.Create(ctx, configuration(server.address))).To(Succeed())
	Expect(env.Client.Create(ctx, validation(server.address))).To(Succeed())
	Eventually(func() error { return keeper.Ready(nil) }, timeout, poll).Should(Succeed())
	// The API server learns of the configuration by a watch.
	namespace := newNamespace(ctx, nil)
	Eventually(func(g Gomega) {
		pod := asking(namespace)
		g.Expect(env.Client.Create(ctx, pod)).To(Succeed())
		g.Expect(pod.Spec.InitContainers).NotTo(BeEmpty())
		calls := server.calls.Load()
		g.Expect(env.Client.Create(ctx, testenv.NewPolicy(namespace, "first"), client.DryRunAll)).To(Succeed())
		g.Expect(server.calls.Load()).To(BeNumerically(">", calls))
	}, timeout, poll).Should(Succeed())
})

// configuration is the shipped one, with its Service replaced by an address of this machine.
func configuration(address string) *admissionregistrationv1.MutatingWebhookConfiguration {
	GinkgoHelper()
	c := &admissionregistrationv1.MutatingWebhookConfiguration{}
	shipped("configuration.yaml", c)
	for i := range c.Webhooks {
		readdress(&c.Webhooks[i].ClientConfig, address)
	}
	return c
}

// validation is the shipped one, likewise.
func validation(address string) *admissionregistrationv1.ValidatingWebhookConfiguration {
	GinkgoHelper()
	c := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	shipped("validator.yaml", c)
	for i := range c.Webhooks {
		readdress(&c.Webhooks[i].ClientConfig, address)
	}
	return c
}

func shipped(file string, into any) {
	GinkgoHelper()
	text, err := os.ReadFile(filepath.Join(testenv.Root(), "config", "webhook", file))
	Expect(err).NotTo(HaveOccurred())
	Expect(yaml.UnmarshalStrict(text, into)).To(Succeed())
}

func readdress(c *admissionregistrationv1.WebhookClientConfig, address string) {
	GinkgoHelper()
	Expect(c.CABundle).To(BeNil(), "the shipped configuration must not own the caBundle")
	Expect(c.Service.Name).To(Equal(webhook.ServiceName))
	c.URL = ptr.To("https://" + address + *c.Service.Path)
	c.Service = nil
}

func runKeeper(ctx context.Context, o servingcert.Options) *servingcert.Keeper {
	GinkgoHelper()
	keeper, err := servingcert.New(env.Config, o)
	Expect(err).NotTo(HaveOccurred())
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- keeper.Start(running) }()
	DeferCleanup(func() {
		cancel()
		Eventually(ended, timeout).Should(Receive(BeNil()))
	})
	return keeper
}

// callee is a webhook server that counts its calls and can be stopped and started at one address. Each call is a
// connection of its own, so that each meets the certificate of the moment.
type callee struct {
	address string
	calls   atomic.Int64
	mux     *http.ServeMux
	keeper  *servingcert.Keeper
	http    *http.Server
}

func newCallee(keeper *servingcert.Keeper) *callee {
	GinkgoHelper()
	mux := http.NewServeMux()
	s := ctrlwebhook.NewServer(ctrlwebhook.Options{WebhookMux: mux})
	Expect(webhook.Register(s, webhook.Options{
		Injector:        injector.Options{Image: image, Version: "v0.1.0"},
		SystemNamespace: systemNamespace,
	})).To(Succeed())
	s.Register("/add-container", &admission.Webhook{Handler: admission.HandlerFunc(addContainer)})
	return &callee{address: "127.0.0.1:0", mux: mux, keeper: keeper}
}

func (c *callee) start() {
	GinkgoHelper()
	listener, err := net.Listen("tcp", c.address)
	Expect(err).NotTo(HaveOccurred())
	c.address = listener.Addr().String()
	c.http = &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c.calls.Add(1)
			c.mux.ServeHTTP(w, r)
		}),
		TLSConfig:         &tls.Config{GetCertificate: c.keeper.GetCertificate, MinVersion: tls.VersionTLS12},
		TLSNextProto:      map[string]func(*http.Server, *tls.Conn, http.Handler){}, // HTTP/1.1 only
		ReadHeaderTimeout: timeout,
	}
	c.http.SetKeepAlivesEnabled(false)
	go func(s *http.Server) { _ = s.ServeTLS(listener, "", "") }(c.http)
}

func (c *callee) stop() { _ = c.http.Close() }

// newNamespace has the service account that pods need; no controller makes it here.
func newNamespace(ctx context.Context, labels map[string]string) string {
	GinkgoHelper()
	name := env.CreateNamespace(ctx, labels)
	createServiceAccount(ctx, name)
	return name
}

func createServiceAccount(ctx context.Context, namespace string) {
	GinkgoHelper()
	Expect(env.Client.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"}})).To(Succeed())
}

// asking is a pod that asks for injection.
func asking(namespace string, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := testenv.NewPod(namespace, "", append([]func(*corev1.Pod){testenv.Asked}, change...)...)
	pod.GenerateName, pod.Labels = "app-", nil
	return pod
}
