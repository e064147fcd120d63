package redislink_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/portero-dev/portero/controllers/fence"
	"github.com/portero-dev/portero/controllers/redislink"
	"github.com/portero-dev/portero/internal/keyspace"
	"github.com/portero-dev/portero/internal/redistest"
)

func TestRedislink(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Redislink")
}

const (
	instance = keyspace.Instance("redislink")
	// soon is the patience for what the link does by itself, looking each second.
	soon = 10 * time.Second
)

var cluster *redistest.Cluster

var _ = BeforeSuite(func(ctx SpecContext) {
	cluster = redistest.Start(ctx, GinkgoT(), redistest.Options{})
}, NodeTimeout(time.Minute))

// apiServer holds the two objects that a link reads: the admin Secret, and the leader lease with its holder.
type apiServer struct {
	client.Reader
	mu     sync.Mutex
	holder string
}

func (a *apiServer) lead(holder string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.holder = holder
}

func (a *apiServer) Get(_ context.Context, _ client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch o := object.(type) {
	case *corev1.Secret:
		o.Data = map[string][]byte{redislink.AddrsKey: []byte(strings.Join(cluster.Addrs(), ","))}
	case *coordinationv1.Lease:
		o.Spec.HolderIdentity = new(a.holder)
	}
	return nil
}

// connect starts a link, which ends with the spec, and waits until Redis is well.
func connect(ctx context.Context, changes ...func(*redislink.Link)) (*redislink.Link, *apiServer) {
	GinkgoHelper()
	api := &apiServer{holder: "us"}
	link := &redislink.Link{
		Client: api, SystemNamespace: "portero-system", Instance: instance,
		Fence:   &fence.Fence{Reader: api, Identity: "us", Lease: client.ObjectKey{Namespace: "portero-system", Name: "portero-manager"}},
		Changed: func() {}, Recovered: func() {}, Recorder: events.NewFakeRecorder(100),
	}
	for _, change := range changes {
		change(link)
	}
	_, err := link.Reconcile(ctx, ctrl.Request{})
	Expect(err).NotTo(HaveOccurred())
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	go func() { done <- link.Start(running) }()
	DeferCleanup(func() {
		stop()
		Eventually(done).WithTimeout(soon).Should(Receive(BeNil()))
	})
	Eventually(func() error { _, err := link.Settings(ctx); return err }).WithTimeout(soon).Should(Succeed())
	Eventually(func() bool { return link.Problem() == nil }).WithTimeout(soon).Should(BeTrue())
	return link, api
}
