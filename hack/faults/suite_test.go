//go:build e2e

package faults_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	portero "github.com/portero-dev/portero/api/v1alpha1"
	"github.com/portero-dev/portero/cmd/manager/app"
	"github.com/portero-dev/portero/controllers/redislink"
	"github.com/portero-dev/portero/hack/faults/link"
	"github.com/portero-dev/portero/internal/redistest"
	"github.com/portero-dev/portero/internal/sidecarenv"
	"github.com/portero-dev/portero/internal/testenv"
)

func TestFaults(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Faults")
}

const (
	system    = "portero-system"
	namespace = "shop"
	password  = "the-default-users-password"
	// sidecars each see a third of the load.
	sidecars = 3
	// A bucket holds ten tokens per sidecar, which is where the bound of 1.1 begins to hold.
	capacity, rate = 30, 10
	timeout        = 10 * time.Millisecond
)

// modes are the policies, one for each failure mode; the first element of a request's path says which it is under.
var modes = []portero.OnFailure{portero.OnFailureLocal, portero.OnFailureOpen, portero.OnFailureClosed}

// One control plane, one Redis Cluster and three pods serve all faults, one after the other.
var (
	kube  client.Client
	redis *redistest.Cluster
	// links lead to the nodes, in their order. Whatever is not a node takes them.
	links []*link.Link
	// user is the sidecars' ACL user, with its password.
	user, userPassword string
	pods               []*pod
)

var _ = BeforeSuite(func(ctx SpecContext) {
	ctrl.SetLogger(logr.Discard())
	redis = redistest.Start(ctx, GinkgoT(), redistest.Options{
		Password: password, NodeTimeout: time.Second,
		Announce: func(addr string) (int, error) {
			l, err := link.Listen(addr)
			if err != nil {
				return 0, err
			}
			links = append(links, l)
			DeferCleanup(l.Close)
			return l.Port(), nil
		},
	})
	environment := testenv.Start(GinkgoT(), testenv.Options{})
	kube = environment.Client
	startManager(ctx, environment)
	secrets := mirrorSecret()
	binary := os.Getenv("FAULTS_SIDECAR")
	Expect(binary).NotTo(BeEmpty(), "run hack/faults/run, which builds the sidecar")
	backend := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	DeferCleanup(backend.Close)
	for i := range sidecars {
		pods = append(pods, startPod(ctx, binary, secrets, backend.Listener.Addr().String(), fmt.Sprintf("web-%d", i)))
	}
	for _, mode := range modes {
		Expect(kube.Create(ctx, newPolicy(mode))).To(Succeed())
	}
	for _, mode := range modes {
		expectEnforced(ctx, mode)
	}
	warmUp(ctx)
}, NodeTimeout(3*time.Minute))

func path(mode portero.OnFailure) string { return "/" + strings.ToLower(string(mode)) }

func newPolicy(mode portero.OnFailure) *portero.RateLimitPolicy {
	return testenv.NewPolicy(namespace, strings.ToLower(string(mode)), func(p *portero.RateLimitPolicy) {
		p.Spec.Store = portero.Store{Timeout: portero.Duration(timeout.String()), OnFailure: mode}
		p.Spec.Limits[0].Matches = []portero.RequestMatch{{Path: &portero.PathMatch{Type: portero.PathMatchPathPrefix, Value: path(mode)}}}
		p.Spec.Limits[0].Bucket = portero.Bucket{Capacity: capacity, Refill: portero.Refill{Tokens: rate, Interval: "1s"}}
	})
}

// expectEnforced waits until all sidecars enforce the policy of the mode from the shared buckets, as its status says.
func expectEnforced(ctx context.Context, mode portero.OnFailure) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		var policy portero.RateLimitPolicy
		g.Expect(kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: strings.ToLower(string(mode))}, &policy)).To(Succeed())
		g.Expect(policy.Status.Pods).NotTo(BeNil())
		g.Expect(policy.Status.Pods.Summary).To(Equal(fmt.Sprintf("%d/%d", sidecars, sidecars)), "%v", policy.Status.Conditions)
	}).WithContext(ctx).WithTimeout(time.Minute).WithPolling(200 * time.Millisecond).Should(Succeed())
}

// startManager runs the manager in this process, as an administrator of the API server.
func startManager(ctx context.Context, environment *testenv.Environment) {
	GinkgoHelper()
	for _, name := range []string{system, namespace} {
		Expect(kube.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})).To(Succeed())
	}
	var addrs []string
	for _, l := range links {
		addrs = append(addrs, l.Addr())
	}
	Expect(kube.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: redislink.AdminSecret},
		StringData: map[string]string{
			redislink.AddrsKey: strings.Join(addrs, ","), redislink.UsernameKey: "default", redislink.PasswordKey: password,
		},
	})).To(Succeed())
	options, err := app.ParseOptions([]string{
		"--metrics-bind-address=0", "--health-probe-bind-address=0", "--webhook-port=0", "--leader-elect=false",
	}, func(string) string { return "" }, GinkgoWriter)
	Expect(err).NotTo(HaveOccurred())
	running, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- app.Run(running, environment.Config, options) }()
	DeferCleanup(func() {
		stop()
		Eventually(ended).WithTimeout(15 * time.Second).Should(Receive(BeNil()))
	})
}

// mirrorSecret keeps the namespace's Secret in a folder, as kubelet does, and answers the folder.
func mirrorSecret() string {
	GinkgoHelper()
	folder := GinkgoT().TempDir()
	mirroring, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for mirroring.Err() == nil {
			copySecret(mirroring, folder)
			select {
			case <-mirroring.Done():
			case <-time.After(time.Second):
			}
		}
	}()
	DeferCleanup(func() {
		stop()
		<-ended
	})
	return folder
}

func copySecret(ctx context.Context, folder string) {
	var secret corev1.Secret
	if err := kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: sidecarenv.CredentialsName}, &secret); err != nil {
		return // not made yet, or the next second's turn
	}
	for name, content := range secret.Data {
		file := filepath.Join(folder, name)
		if before, err := os.ReadFile(file); err == nil && string(before) == string(content) {
			continue
		}
		if err := os.WriteFile(file+".new", content, 0o600); err == nil {
			_ = os.Rename(file+".new", file)
		}
	}
}

// addrOf is what clients call a node.
func addrOf(node *redistest.Node) string {
	GinkgoHelper()
	for i, other := range redis.Nodes {
		if other == node {
			return links[i].Addr()
		}
	}
	Fail("no link leads to node " + node.Addr())
	return ""
}
