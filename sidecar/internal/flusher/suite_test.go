package flusher_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/keyspace"
	"github.com/portero-dev/portero/internal/ratelimit"
	"github.com/portero-dev/portero/internal/redisclient"
	"github.com/portero-dev/portero/internal/redistest"
	"github.com/portero-dev/portero/internal/tokenbucket"
	"github.com/portero-dev/portero/sidecar/internal/failover"
	"github.com/portero-dev/portero/sidecar/internal/flusher"
)

func TestFlusher(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "flusher")
}

const (
	instance  = keyspace.Instance("a1b2c3d4")
	namespace = "shop"
)

var cluster *redistest.Cluster

var _ = BeforeSuite(func(ctx SpecContext) {
	cluster = redistest.Start(ctx, GinkgoT(), redistest.Options{NodeTimeout: time.Second})
})

// Every spec finds the library loaded and no bucket.
var _ = BeforeEach(func(ctx SpecContext) {
	Expect(cluster.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
		return errors.Join(master.FlushAll(ctx).Err(), master.FunctionLoadReplace(ctx, tokenbucket.Library().Code).Err(),
			master.ConfigResetStat(ctx).Err())
	})).To(Succeed())
})

// start runs a flusher until the spec ends.
func start(ctx context.Context, options redisclient.Options) *flusher.Flusher {
	GinkgoHelper()
	f, _ := startStoppable(ctx, options)
	return f
}

func startStoppable(ctx context.Context, options redisclient.Options) (*flusher.Flusher, func()) {
	GinkgoHelper()
	client := redisclient.NewVerdict(options)
	return run(ctx, client)
}

// run runs a flusher on a client until the spec ends.
func run(ctx context.Context, client *redis.ClusterClient) (*flusher.Flusher, func()) {
	GinkgoHelper()
	f := flusher.New(flusher.Options{
		Client: client, Instance: instance, Namespace: namespace,
		Log: slog.New(slog.NewTextHandler(GinkgoWriter, nil)), Ready: func() {},
	})
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.Run(ctx)
	}()
	stop := func() {
		cancel()
		Eventually(ended).Should(BeClosed())
		_ = client.Close()
	}
	DeferCleanup(stop)
	return f, stop
}

// ready starts a flusher of the suite's cluster and waits for its topology.
func ready(ctx context.Context) *flusher.Flusher {
	GinkgoHelper()
	f := start(ctx, redisclient.Options{Addrs: cluster.Addrs()})
	Eventually(f.Masters).Should(HaveLen(3))
	return f
}

// bucket is a group that asks a limit of the capacity, which refills one token an hour, for one token.
func bucket(tag string, capacity int64) *ratelimit.Group {
	policy := &ratelimit.Policy{Record: &bucketconfig.Record{Name: "checkout", Order: 7}}
	limit := &ratelimit.Limit{Policy: policy, ID: 1, Config: &bucketconfig.Limit{
		Name: "per-key", Bucket: bucketconfig.Bucket{Capacity: capacity, RefillTokens: 1, RefillIntervalUS: 3_600_000_000},
	}}
	return &ratelimit.Group{Policy: policy, Tag: tag, Charges: []ratelimit.Charge{{Limit: limit, Cost: 1}}}
}

func locate(f *flusher.Flusher, tag string) failover.Place {
	GinkgoHelper()
	place, known := f.Locate(tag)
	Expect(known).To(BeTrue())
	return place
}

// ask asks and waits for the answer.
func ask(f *flusher.Flusher, group *ratelimit.Group) failover.Answer {
	GinkgoHelper()
	answers := make(chan failover.Answer, 1)
	f.Ask(locate(f, group.Tag), group, 3, answers)
	var answer failover.Answer
	Eventually(answers, "3s").Should(Receive(&answer))
	Expect(answer.Index).To(Equal(3))
	return answer
}

// node is the master that holds a tag's bucket.
func node(ctx context.Context, tag string) *redistest.Node {
	GinkgoHelper()
	master, err := cluster.MasterOf(ctx, instance.Bucket(namespace, tag))
	Expect(err).NotTo(HaveOccurred())
	return master
}
