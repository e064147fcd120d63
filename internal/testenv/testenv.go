// Package testenv gives tests a real API server of their own, with Portero's CRD installed, and builders with defaults
// for the objects that they put into it.
//
// Tests of the API, the control plane and the webhooks import it; code that is not a test never does.
package testenv

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/portero-dev/portero/api/v1alpha1"
)

// assetsVariable names the folder that holds etcd and kube-apiserver. envtest reads it too.
const assetsVariable = "KUBEBUILDER_ASSETS"

// TB is the part of GinkgoT() that Start needs.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
	Cleanup(func())
}

// Options says how an Environment differs from the default. The zero value is the default.
type Options struct {
	// Webhooks are installed after the CRD. Environment.Webhooks tells where the API server will look for them.
	Webhooks envtest.WebhookInstallOptions
	// WithoutCRD leaves the CRD out.
	WithoutCRD bool
	// ConfigureAPIServer may set arguments of kube-apiserver before it starts.
	ConfigureAPIServer func(*envtest.APIServer)
}

// Environment is a running API server.
type Environment struct {
	// Config connects as an administrator.
	Config *rest.Config
	// Scheme knows Kubernetes' own types, CRDs and Portero's.
	Scheme *kruntime.Scheme
	// Client reads and writes without a cache, so that a test sees what it wrote.
	Client client.Client
	// Webhooks holds the host, port and certificate folder that a webhook server of the test must use.
	Webhooks *envtest.WebhookInstallOptions
}

// Start starts an API server with its etcd on free ports of the loopback interface and stops it when the test (or, in
// BeforeSuite, the suite) has ended. It fails the test when they can't run, and says what is missing.
func Start(t TB, options Options) *Environment {
	t.Helper()
	if err := checkAssets(os.Getenv(assetsVariable)); err != nil {
		t.Fatalf("%v", err)
	}
	scheme, err := NewScheme()
	if err != nil {
		t.Fatalf("%v", err)
	}
	environment := &envtest.Environment{
		Scheme:                scheme,
		WebhookInstallOptions: options.Webhooks,
		ErrorIfCRDPathMissing: true,
	}
	if !options.WithoutCRD {
		environment.CRDDirectoryPaths = []string{CRDDirectory()}
	}
	if options.ConfigureAPIServer != nil {
		options.ConfigureAPIServer(environment.ControlPlane.GetAPIServer())
	}
	// Registered before the start, so that a half-started control plane is stopped too.
	t.Cleanup(func() {
		Expect(environment.Stop()).To(Succeed())
	})
	config, err := environment.Start()
	if err != nil {
		t.Fatalf("start the API server of %s=%s: %v", assetsVariable, os.Getenv(assetsVariable), err)
	}
	// Tests write as fast as they can; client-side throttling would only slow them down.
	config.QPS, config.Burst = -1, 0
	direct, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatalf("connect to the API server: %v", err)
	}
	return &Environment{Config: config, Scheme: scheme, Client: direct, Webhooks: &environment.WebhookInstallOptions}
}

// NewScheme returns a scheme with Kubernetes' own types, CRDs and Portero's.
func NewScheme() (*kruntime.Scheme, error) {
	scheme := kruntime.NewScheme()
	for _, add := range []func(*kruntime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, v1alpha1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("build scheme: %w", err)
		}
	}
	return scheme, nil
}

// Root is the folder of the module.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..")
}

// CRDDirectory is the folder of the generated CRD.
func CRDDirectory() string {
	return filepath.Join(Root(), "config", "crd", "bases")
}

// checkAssets says whether a folder holds what an API server needs, and else the way out.
func checkAssets(folder string) error {
	const way = "run the tests by `make test`, which builds them, or set " + assetsVariable + " to a folder with both"
	if folder == "" {
		return fmt.Errorf("%s is not set, so there is no etcd and no kube-apiserver to test with: %s", assetsVariable, way)
	}
	for _, name := range []string{"etcd", "kube-apiserver"} {
		if _, err := os.Stat(filepath.Join(folder, name)); err != nil {
			return fmt.Errorf("%s=%s has no %s: %s: %w", assetsVariable, folder, name, way, err)
		}
	}
	return nil
}
