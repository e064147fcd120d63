package testenv_test

import (
	"fmt"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/portero-dev/portero/api/v1alpha1"
	"github.com/portero-dev/portero/internal/testenv"
)

// strict is a test that panics with what it is failed with.
type strict struct{}

func (strict) Helper()                           {}
func (strict) Cleanup(func())                    {}
func (strict) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

var _ = Describe("A test API server", Ordered, func() {
	var environment *testenv.Environment

	BeforeAll(func() {
		environment = testenv.Start(GinkgoT(), testenv.Options{})
	})

	It("serves policies, with the defaults of the CRD", func(ctx SpecContext) {
		policy := testenv.NewPolicy(environment.CreateNamespace(ctx, nil), "checkout")
		Expect(environment.Client.Create(ctx, policy)).To(Succeed())
		Expect(policy.Spec.Mode).To(Equal(v1alpha1.ModeEnforce))
	})

	It("keeps the status that a built pod has", func(ctx SpecContext) {
		pod := testenv.NewPod(environment.CreateNamespace(ctx, nil), "checkout", testenv.Asked,
			testenv.WithLabel("tier", "front"), testenv.WithSidecar("portero"), testenv.Ready)
		environment.CreatePod(ctx, pod)

		stored := &corev1.Pod{}
		Expect(environment.Client.Get(ctx, client.ObjectKeyFromObject(pod), stored)).To(Succeed())
		Expect(stored.Annotations).To(HaveKeyWithValue(v1alpha1.InjectAnnotation, "true"))
		Expect(stored.Labels).To(HaveKeyWithValue("tier", "front"))
		Expect(stored.Status.Phase).To(Equal(corev1.PodRunning))
		Expect(stored.Status.InitContainerStatuses).To(HaveLen(1))
		Expect(stored.Status.InitContainerStatuses[0].Ready).To(BeTrue())
	})

	It("runs beside another one, which can do without the CRD", func(ctx SpecContext) {
		other := testenv.Start(GinkgoT(), testenv.Options{WithoutCRD: true})
		Expect(other.Config.Host).NotTo(Equal(environment.Config.Host))
		Expect(apimeta.IsNoMatchError(other.Client.List(ctx, &v1alpha1.RateLimitPolicyList{}))).To(BeTrue())
	})
})

var _ = Describe("A test API server without binaries", Serial, func() {
	It("says how to get them when no folder is named", func() {
		GinkgoT().Setenv("KUBEBUILDER_ASSETS", "")
		Expect(func() { testenv.Start(strict{}, testenv.Options{}) }).To(PanicWith(ContainSubstring("make test")))
	})

	It("says what the named folder lacks", func() {
		folder := GinkgoT().TempDir()
		Expect(os.WriteFile(filepath.Join(folder, "etcd"), nil, 0o755)).To(Succeed())
		GinkgoT().Setenv("KUBEBUILDER_ASSETS", folder)
		Expect(func() { testenv.Start(strict{}, testenv.Options{}) }).To(PanicWith(And(
			ContainSubstring("has no kube-apiserver"), ContainSubstring("make test"))))
	})
})
