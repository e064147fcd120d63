package app_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/portero-dev/portero/internal/keyspace"
	"github.com/portero-dev/portero/internal/testenv"
)

// freePort is a port on which nothing listens.
func freePort() int {
	GinkgoHelper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}

// answer is what a manager's HTTP listener says.
type answer struct {
	Code int
	Body string
}

func get(ctx context.Context, port int, path string) func(Gomega) answer {
	return func(g Gomega) answer {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d%s", port, path), nil)
		g.Expect(err).NotTo(HaveOccurred())
		response, err := http.DefaultClient.Do(request)
		g.Expect(err).NotTo(HaveOccurred())
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		g.Expect(err).NotTo(HaveOccurred())
		return answer{response.StatusCode, string(body)}
	}
}

var _ = Describe("A replica", func() {
	const instance = keyspace.Instance("serving")

	It("is alive and not ready while no caBundle verifies its webhooks", func(ctx SpecContext) {
		probes, hooks := freePort(), freePort()
		start(api, string(instance), fmt.Sprintf("--health-probe-bind-address=127.0.0.1:%d", probes), fmt.Sprintf("--webhook-port=%d", hooks))
		Eventually(get(ctx, probes, "/healthz")).WithTimeout(status).Should(HaveField("Code", http.StatusOK))
		Consistently(get(ctx, probes, "/readyz")).Should(HaveField("Code", http.StatusInternalServerError), "no configuration holds its authority yet")
	})

	It("is ready, without Redis, once the caBundle verifies its webhooks, and serves metrics", func(ctx SpecContext) {
		injection, validation := &admissionregistrationv1.MutatingWebhookConfiguration{}, &admissionregistrationv1.ValidatingWebhookConfiguration{}
		for file, configuration := range map[string]client.Object{"configuration.yaml": injection, "validator.yaml": validation} {
			data, err := os.ReadFile(filepath.Join(testenv.Root(), "config", "webhook", file))
			Expect(err).NotTo(HaveOccurred())
			Expect(yaml.UnmarshalStrict(data, configuration)).To(Succeed())
			create(ctx, api, configuration)
			DeferCleanup(func(ctx SpecContext) { Expect(api.Client.Delete(ctx, configuration)).To(Succeed()) })
		}

		probes, hooks, metrics := freePort(), freePort(), freePort()
		start(api, string(instance), fmt.Sprintf("--health-probe-bind-address=127.0.0.1:%d", probes),
			fmt.Sprintf("--webhook-port=%d", hooks), fmt.Sprintf("--metrics-bind-address=127.0.0.1:%d", metrics))
		Eventually(get(ctx, probes, "/readyz")).WithTimeout(status).Should(HaveField("Code", http.StatusOK))
		Expect(api.Client.Get(ctx, client.ObjectKeyFromObject(injection), injection)).To(Succeed())
		Expect(api.Client.Get(ctx, client.ObjectKeyFromObject(validation), validation)).To(Succeed())
		bundles := [][]byte{validation.Webhooks[0].ClientConfig.CABundle}
		for _, hook := range injection.Webhooks {
			bundles = append(bundles, hook.ClientConfig.CABundle)
		}
		for _, bundle := range bundles {
			roots := x509.NewCertPool()
			Expect(roots.AppendCertsFromPEM(bundle)).To(BeTrue())
			dialer := &tls.Dialer{Config: &tls.Config{RootCAs: roots, ServerName: "portero-webhook.portero-system.svc"}}
			connection, err := dialer.DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", hooks))
			Expect(err).NotTo(HaveOccurred())
			Expect(connection.Close()).To(Succeed())
		}
		Eventually(get(ctx, metrics, "/metrics")).WithTimeout(soon).Should(HaveField("Body", ContainSubstring("portero_manager_redis_up")))
	})
})
