// Package sidecars_test runs sidecars as processes between real clients, a real app and a real Redis Cluster.
package sidecars_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/configstore"
	"github.com/portero-dev/portero/internal/keyspace"
	"github.com/portero-dev/portero/internal/redisadmin"
	"github.com/portero-dev/portero/internal/redisclient"
	"github.com/portero-dev/portero/internal/redistest"
	"github.com/portero-dev/portero/internal/sidecarenv"
)

func TestSidecars(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "hack/sidecars")
}

const (
	instance = keyspace.Instance("a1b2c3d4")
	password = "a-tenant's-password"
	// patience bounds what should happen at once, on a machine that is busy with other suites.
	patience = 20 * time.Second
)

var (
	// common is the Redis Cluster of all specs but those that harm theirs.
	common *backend
	// binary is a sidecar of this tree.
	binary string
	// app is the app's binary, and appAddr where it listens.
	app, appAddr string
	// shared is the pod that specs of clients use, each with keys of its own, and sharedGRPC that of gRPC.
	shared, sharedGRPC *pod
)

var _ = BeforeSuite(func(ctx SpecContext) {
	common = startBackend(ctx, redistest.Options{ACLFile: true})

	binary = build(ctx, "../..", "./hack/faults/sidecar", "current")
	app = build(ctx, "../..", "./hack/sidecars/app", "app")
	t := common.newTenant(ctx)
	t.publish(ctx, clientsPolicy())
	_, line := launch(ctx, app)
	appAddr = strings.TrimSpace(line)
	shared, sharedGRPC = start(ctx, binary, t, appAddr), start(ctx, binary, t, startGRPC())
	shared.applies(ctx, "clients", 1)
	sharedGRPC.applies(ctx, "clients", 1)
}, NodeTimeout(3*time.Minute))

var counter atomic.Int32

// unique is a name that nobody else has, such as a key whose bucket is full.
func unique(prefix string) string { return fmt.Sprint(prefix, "-", counter.Add(1)) }

// backend is a Redis Cluster, and what the manager does for it.
type backend struct {
	cluster *redistest.Cluster
	admin   *redisadmin.Admin
	writer  *configstore.Writer
}

func startBackend(ctx context.Context, options redistest.Options) *backend {
	GinkgoHelper()
	b := &backend{cluster: redistest.Start(ctx, GinkgoT(), options)}
	reach := redisclient.Options{Addrs: b.cluster.Addrs()}
	if options.TLS {
		var err error
		reach.TLS, err = redisclient.TLS{CA: b.cluster.TLS.CA, Certificate: b.cluster.TLS.Certificate, Key: b.cluster.TLS.Key}.Config()
		Expect(err).NotTo(HaveOccurred())
	}
	b.admin = redisadmin.New(reach, instance)
	DeferCleanup(b.admin.Close)
	client := redisclient.NewAdmin(reach)
	DeferCleanup(client.Close)
	b.writer = configstore.NewWriter(client, instance, 1)
	Eventually(b.admin.EnsureLibrary).WithContext(ctx).WithTimeout(patience).Should(Not(BeNil()))
	return b
}

// tenant is a namespace with its user, and what the manager would do for it.
type tenant struct {
	*backend
	name   string
	secret map[string]string
}

func (b *backend) newTenant(ctx context.Context) *tenant {
	GinkgoHelper()
	t := &tenant{backend: b, name: unique("shop")}
	Expect(b.admin.EnsureUser(ctx, t.name, password)).To(Succeed())
	t.secret = map[string]string{
		sidecarenv.SecretAddrs:     strings.Join(b.cluster.Addrs(), ","),
		sidecarenv.SecretUsername:  instance.User(t.name),
		sidecarenv.SecretPassword:  password,
		sidecarenv.SecretInstance:  string(instance),
		sidecarenv.SecretKeySecret: strings.Repeat("k", 32),
	}
	return t
}

func (t *tenant) publish(ctx context.Context, records ...*bucketconfig.Record) {
	GinkgoHelper()
	var publication configstore.Publication
	for _, record := range records {
		publication.Policies = append(publication.Policies, configstore.Policy{Name: record.Name, Record: record, Share: bucketconfig.Share{Sidecars: 2}})
	}
	published, err := t.writer.Publish(ctx, t.name, publication)
	Expect(err).NotTo(HaveOccurred())
	Expect(published.Refused).To(BeEmpty())
}

// newRecord is a policy of a generation, with limits.
func newRecord(name string, generation int64, limits ...bucketconfig.Limit) *bucketconfig.Record {
	return &bucketconfig.Record{
		Schema: bucketconfig.SchemaVersion, Kind: bucketconfig.Kind, Name: name, UID: "uid-of-" + name, Generation: generation, Order: generation,
		Limits:   limits,
		Store:    bucketconfig.Store{TimeoutUS: bucketconfig.MaxTimeoutUS, OnFailure: "Local"},
		Response: bucketconfig.Response{RateLimitHeaders: "Standard", StatusCode: 429},
	}
}

// perHeader is a limit by a header, which requests without it pass uncounted.
func perHeader(name, header string, capacity, intervalUS int64) bucketconfig.Limit {
	return bucketconfig.Limit{
		Name: name, Cost: 1, KeyParts: []bucketconfig.KeyPart{{Type: "Header", Name: header, WhenMissing: "Skip"}},
		Bucket: bucketconfig.Bucket{Capacity: capacity, RefillTokens: 1, RefillIntervalUS: intervalUS},
	}
}

const (
	// A value of keyHeader has hourlyCapacity tokens, and one more each hour.
	keyHeader      = "X-Api-Key"
	hourlyCapacity = 2
	hour           = 3_600_000_000
	// A value of pacedHeader has one token, and the next after pace.
	pacedHeader = "X-Paced"
	pace        = time.Second
)

func clientsPolicy() *bucketconfig.Record {
	return newRecord("clients", 1, perHeader("hourly", keyHeader, hourlyCapacity, hour), perHeader("paced", pacedHeader, 1, pace.Microseconds()))
}
