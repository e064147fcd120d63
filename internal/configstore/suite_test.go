package configstore_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/configstore"
	"github.com/portero-dev/portero/internal/keyspace"
	"github.com/portero-dev/portero/internal/redisclient"
	"github.com/portero-dev/portero/internal/redistest"
	"github.com/portero-dev/portero/internal/tokenbucket"
)

const instance = keyspace.Instance("1f2e3d4c")

// cluster serves all specs of the suite; each spec has a namespace of its own.
var cluster *redistest.Cluster

func TestConfigstore(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "configstore")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	cluster = redistest.Start(ctx, GinkgoT(), redistest.Options{})
	loadLibrary(ctx)
}, NodeTimeout(2*time.Minute))

func loadLibrary(ctx SpecContext) {
	GinkgoHelper()
	Expect(cluster.ForEachMaster(ctx, func(ctx context.Context, client *redis.Client) error {
		return client.FunctionLoadReplace(ctx, tokenbucket.Library().Code).Err()
	})).To(Succeed())
}

var namespaces atomic.Int32

func newNamespace() string { return fmt.Sprintf("shop-%d", namespaces.Add(1)) }

// newClient gives a client as sidecars use it.
func newClient() *redis.ClusterClient {
	client := redisclient.NewConfig(redisclient.Options{Addrs: cluster.Addrs()})
	DeferCleanup(client.Close)
	return client
}

func newWriter(fence int64) *configstore.Writer {
	client := redisclient.NewAdmin(redisclient.Options{Addrs: cluster.Addrs()})
	DeferCleanup(client.Close)
	return configstore.NewWriter(client, instance, fence)
}

func newReader(namespace string) *configstore.Reader {
	return configstore.NewReader(newClient(), instance, namespace)
}

// policy gives a small policy, whose record differs by generation.
func policy(name string, generation int64) configstore.Policy {
	return configstore.Policy{
		Name: name,
		Record: &bucketconfig.Record{
			Schema: bucketconfig.SchemaVersion, Kind: bucketconfig.Kind,
			Name: name, UID: "uid-of-" + name, Generation: generation, Order: generation,
			Limits: []bucketconfig.Limit{{
				Name: "all", Cost: 1, Bucket: bucketconfig.Bucket{Capacity: 10, RefillTokens: 1, RefillIntervalUS: 1_000_000},
			}},
			Store:    bucketconfig.Store{TimeoutUS: 10_000, OnFailure: "Local"},
			Response: bucketconfig.Response{RateLimitHeaders: "Standard", StatusCode: 429},
		},
		Share: bucketconfig.Share{Sidecars: 2},
	}
}

// richPolicy gives a policy that schema version 1 can't express.
func richPolicy(name string, generation int64) configstore.Policy {
	rich := policy(name, generation)
	rich.Record.Limits[0].Overrides = []bucketconfig.Override{{Name: "none", Type: "Unlimited"}}
	return rich
}

func publish(ctx SpecContext, writer *configstore.Writer, namespace string, policies ...configstore.Policy) configstore.Published {
	GinkgoHelper()
	published, err := writer.Publish(ctx, namespace, configstore.Publication{Policies: policies})
	Expect(err).NotTo(HaveOccurred())
	return published
}

func read(ctx SpecContext, reader *configstore.Reader, old *configstore.Snapshot) *configstore.Snapshot {
	GinkgoHelper()
	snapshot, err := reader.Update(ctx, old)
	Expect(err).NotTo(HaveOccurred())
	return snapshot
}

// flushAll empties every master, as a careless hand does.
func flushAll(ctx SpecContext) {
	GinkgoHelper()
	Expect(cluster.ForEachMaster(ctx, func(ctx context.Context, client *redis.Client) error {
		return client.FlushAll(ctx).Err()
	})).To(Succeed())
}
