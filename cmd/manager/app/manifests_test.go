package app_test

import (
	"os"
	"os/exec"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/portero-dev/portero/internal/testenv"
)

var _ = Describe("The manifests", Ordered, func() {
	var kubeconfig string
	BeforeAll(func() {
		environment := testenv.Start(GinkgoT(), testenv.Options{WithoutCRD: true})
		config := clientcmdapi.NewConfig()
		config.Clusters["test"] = &clientcmdapi.Cluster{
			Server: environment.Config.Host, CertificateAuthorityData: environment.Config.CAData,
		}
		config.AuthInfos["test"] = &clientcmdapi.AuthInfo{
			ClientCertificateData: environment.Config.CertData, ClientKeyData: environment.Config.KeyData,
		}
		config.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test"}
		config.CurrentContext = "test"
		kubeconfig = filepath.Join(GinkgoT().TempDir(), "kubeconfig")
		Expect(clientcmd.WriteToFile(*config, kubeconfig)).To(Succeed())
	})
	kubectl := func(ctx SpecContext, args ...string) string {
		GinkgoHelper()
		command := exec.CommandContext(ctx, filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl"), args...)
		command.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
		command.Dir = testenv.Root()
		output, err := command.CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(output))
		return string(output)
	}

	DescribeTable("are applied by plain kubectl, twice, without a warning, also of Pod Security",
		func(ctx SpecContext, folder string) {
			for range 2 {
				Expect(kubectl(ctx, "apply", "-k", folder)).NotTo(ContainSubstring("Warning"))
			}
		},
		Entry("all of Portero", "config/default"),
		Entry("a Redis to try it with", "config/redis"),
	)

	It("are removed by plain kubectl", func(ctx SpecContext) {
		Expect(kubectl(ctx, "delete", "-k", "config/default", "--wait=false")).To(ContainSubstring("deleted"))
	})
})
