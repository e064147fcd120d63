package v1alpha1_test

import (
	"os"
	"path/filepath"
	"regexp"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/portero-dev/portero/api/v1alpha1"
	"github.com/portero-dev/portero/internal/testenv"
	"github.com/portero-dev/portero/internal/translator"
)

// samples are the files that config/samples lists, in its order.
func samples() []string {
	text, err := os.ReadFile(filepath.Join(testenv.Root(), "config", "samples", "kustomization.yaml"))
	if err != nil {
		panic(err)
	}
	var kustomization struct{ Resources []string }
	if err := yaml.Unmarshal(text, &kustomization); err != nil {
		panic(err)
	}
	return kustomization.Resources
}

// readPolicy reads a policy in which nothing is misspelled.
func readPolicy(text []byte) *v1alpha1.RateLimitPolicy {
	GinkgoHelper()
	policy := &v1alpha1.RateLimitPolicy{}
	Expect(yaml.UnmarshalStrict(text, policy)).To(Succeed())
	return policy
}

func readSample(name string) *v1alpha1.RateLimitPolicy {
	GinkgoHelper()
	text, err := os.ReadFile(filepath.Join(testenv.Root(), "config", "samples", name))
	Expect(err).NotTo(HaveOccurred())
	return readPolicy(text)
}

var _ = Describe("The samples", func() {
	for _, name := range samples() {
		It("can be applied and enforced: "+name, func(ctx SpecContext) {
			policy := readSample(name)
			policy.Namespace = server.CreateNamespace(ctx, nil)
			Expect(server.Client.Create(ctx, policy.DeepCopy(), client.DryRunAll)).To(Succeed())
			Expect(server.Client.Create(ctx, policy)).To(Succeed())

			record, err := translator.Translate(policy)
			Expect(err).NotTo(HaveOccurred())
			Expect(record.Limits).To(HaveLen(len(policy.Spec.Limits)))
			Expect(record.Shadow).To(Equal(name == "shadow.yaml"))
		})
	}

	It("are all listed, and have names of their own", func() {
		files, err := filepath.Glob(filepath.Join(testenv.Root(), "config", "samples", "*.yaml"))
		Expect(err).NotTo(HaveOccurred())
		Expect(samples()).To(HaveLen(len(files) - 1))
		names := map[string]bool{}
		for _, name := range samples() {
			names[readSample(name).Name] = true
		}
		Expect(names).To(HaveLen(len(samples())))
	})

	It("start with the policy that the README shows", func() {
		readme, err := os.ReadFile(filepath.Join(testenv.Root(), "README.md"))
		Expect(err).NotTo(HaveOccurred())
		shown := regexp.MustCompile("(?s)```yaml\n(apiVersion: portero.dev/v1alpha1\n.*?)```").FindSubmatch(readme)
		Expect(shown).To(HaveLen(2))
		Expect(readPolicy(shown[1]).Spec).To(Equal(readSample(samples()[0]).Spec))
	})
})
