package redisadmin_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/portero-dev/portero/internal/keyspace"
	"github.com/portero-dev/portero/internal/redisadmin"
	"github.com/portero-dev/portero/internal/redisclient"
	"github.com/portero-dev/portero/internal/redistest"
)

const (
	instance      = keyspace.Instance("1f2e3d4c")
	adminPassword = "admin-password"
)

// cluster serves all specs of the suite. Its nodes have a password and an ACL file, as real ones do.
var cluster *redistest.Cluster

func TestRedisadmin(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "redisadmin")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	cluster = redistest.Start(ctx, GinkgoT(), redistest.Options{Password: adminPassword, ACLFile: true})
	admin := newAdmin(instance)
	// The nodes of a fresh cluster learn of each other's replicas late.
	Eventually(admin.Nodes).WithContext(ctx).WithTimeout(20 * time.Second).Should(HaveLen(6))
	_, err := admin.EnsureLibrary(ctx)
	Expect(err).NotTo(HaveOccurred())
}, NodeTimeout(2*time.Minute))

func newAdmin(instance keyspace.Instance) *redisadmin.Admin {
	return adminOf(instance, redisclient.Options{Addrs: cluster.Addrs()[:1], Credentials: redisclient.Static("", adminPassword)})
}

func adminOf(instance keyspace.Instance, options redisclient.Options) *redisadmin.Admin {
	admin := redisadmin.New(options, instance)
	DeferCleanup(admin.Close)
	return admin
}

// cleanUser removes a namespace's user after the spec.
func cleanUser(namespace string) {
	admin := newAdmin(instance)
	DeferCleanup(func(ctx SpecContext) { Expect(admin.RemoveUser(ctx, namespace)).To(Succeed()) })
}

// sidecarClient gives a client as a sidecar of the namespace uses it, with the namespace's user.
func sidecarClient(namespace, password string) *redis.ClusterClient {
	client := redisclient.NewConfig(redisclient.Options{
		Addrs: cluster.Addrs(), Credentials: redisclient.Static(instance.User(namespace), password),
	})
	DeferCleanup(client.Close)
	return client
}

// login tells whether a node lets the namespace's user in.
func login(ctx context.Context, node *redistest.Node, namespace, password string) error {
	client := redis.NewClient(&redis.Options{
		Addr: node.Addr(), Username: instance.User(namespace), Password: password, DisableIdentity: true, MaxRetries: -1,
	})
	defer func() { _ = client.Close() }()
	return client.Ping(ctx).Err()
}
