package webhook_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/portero-dev/portero/internal/servingcert"
)

var _ = Describe("Rotation of the CA", func() {
	It("loses no call, though certificates live for seconds and each call is a connection of its own", func(ctx SpecContext) {
		elected := make(chan struct{})
		close(elected)
		const name = "rotating"
		leader := servingcert.Options{
			Namespace: newNamespace(ctx, nil), SecretName: "ca", Mutating: name, Hosts: []string{"127.0.0.1"}, Elected: elected,
			// What is renewed at two thirds of its life leaves the last third, less the second that certificates are rounded
			// to, for a busy machine to be late; so does the time to settle, for the API server to learn of the bundle.
			CAValidity: 12 * time.Second, LeafValidity: 6 * time.Second, Settle: 2 * time.Second,
		}
		follower := leader
		follower.Elected = nil
		runKeeper(ctx, leader)
		keeper := runKeeper(ctx, follower)
		callee := newCallee(keeper)
		callee.start()
		DeferCleanup(func() { callee.stop() })

		namespace := newNamespace(ctx, map[string]string{"rotating": "yes"})
		c := configuration(callee.address)
		c.Name = name
		for i := range c.Webhooks {
			c.Webhooks[i].NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"rotating": "yes"}}
		}
		Expect(env.Client.Create(ctx, c)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(env.Client.Delete(ctx, c)).To(Succeed()) })
		Eventually(func() error { return keeper.Ready(nil) }, timeout, poll).Should(Succeed())
		Eventually(func(g Gomega) {
			before := callee.calls.Load()
			g.Expect(env.Client.Create(ctx, asking(namespace), client.DryRunAll)).To(Succeed())
			g.Expect(callee.calls.Load()).To(BeNumerically(">", before))
		}, timeout, poll).Should(Succeed())

		signers, calls := map[string]bool{}, 0
		for end := time.Now().Add(time.Minute); len(signers) < 3 && time.Now().Before(end); calls++ {
			cert, err := keeper.GetCertificate(nil)
			Expect(err).NotTo(HaveOccurred())
			before := callee.calls.Load()
			Expect(env.Client.Create(ctx, asking(namespace), client.DryRunAll)).To(Succeed())
			Expect(callee.calls.Load()).To(BeNumerically(">", before), "call %d was lost, %s before the certificate's end", calls, time.Until(cert.Leaf.NotAfter))
			signers[string(cert.Leaf.AuthorityKeyId)] = true
		}
		Expect(signers).To(HaveLen(3), "the CA should have changed twice")
		GinkgoWriter.Printf("%d calls over %d CAs\n", calls, len(signers))
	})
})
