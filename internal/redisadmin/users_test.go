package redisadmin_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/configstore"
	"github.com/portero-dev/portero/internal/keyspace"
	"github.com/portero-dev/portero/internal/localbucket"
	"github.com/portero-dev/portero/internal/redisadmin"
	"github.com/portero-dev/portero/internal/tokenbucket"
)

var namespaces atomic.Int32

func newNamespace() string { return fmt.Sprintf("shop-%d", namespaces.Add(1)) }

var _ = Describe("Users", func() {
	ensure := func(ctx SpecContext, namespace string, passwords ...string) {
		GinkgoHelper()
		cleanUser(namespace)
		Expect(newAdmin(instance).EnsureUser(ctx, namespace, passwords...)).To(Succeed())
	}
	// setUserCalls counts writes of users over all nodes.
	setUserCalls := func(ctx SpecContext) int {
		GinkgoHelper()
		calls := 0
		for _, node := range cluster.Nodes {
			info, err := node.Client().Info(ctx, "commandstats").Result()
			Expect(err).NotTo(HaveOccurred())
			for line := range strings.Lines(info) {
				for _, command := range []string{"cmdstat_acl|setuser:calls=%d,", "cmdstat_acl|save:calls=%d,"} {
					var n int
					if _, err := fmt.Sscanf(line, command, &n); err == nil {
						calls += n
					}
				}
			}
		}
		return calls
	}

	It("are let in by every node, masters and replicas", func(ctx SpecContext) {
		namespace := newNamespace()
		ensure(ctx, namespace, "secret")
		for _, node := range cluster.Nodes {
			Expect(login(ctx, node, namespace, "secret")).To(Succeed())
			Expect(login(ctx, node, namespace, "wrong")).To(MatchError(ContainSubstring("WRONGPASS")))
		}
	})

	It("are not written when they are as they should be", func(ctx SpecContext) {
		namespace := newNamespace()
		ensure(ctx, namespace, "secret", "second")
		before := setUserCalls(ctx)
		Expect(newAdmin(instance).EnsureUser(ctx, namespace, "second", "secret")).To(Succeed())
		Expect(setUserCalls(ctx)).To(Equal(before))
	})

	It("may have two passwords while one replaces the other", func(ctx SpecContext) {
		namespace := newNamespace()
		ensure(ctx, namespace, "old")
		ensure(ctx, namespace, "old", "new")
		Expect(login(ctx, cluster.Nodes[0], namespace, "old")).To(Succeed())
		Expect(login(ctx, cluster.Nodes[0], namespace, "new")).To(Succeed())
		ensure(ctx, namespace, "new")
		Expect(login(ctx, cluster.Nodes[0], namespace, "old")).To(MatchError(ContainSubstring("WRONGPASS")))
		Expect(login(ctx, cluster.Nodes[0], namespace, "new")).To(Succeed())
	})

	DescribeTable("are repaired on the one node where a hand changed them",
		func(ctx SpecContext, rules ...string) {
			namespace := newNamespace()
			ensure(ctx, namespace, "secret")
			node, intact := cluster.Nodes[5].Client(), cluster.Nodes[4].Client()
			Expect(node.ACLSetUser(ctx, instance.User(namespace), rules...).Err()).To(Succeed())
			Expect(userWords(ctx, node, namespace)).NotTo(Equal(userWords(ctx, intact, namespace)))
			Expect(newAdmin(instance).EnsureUser(ctx, namespace, "secret")).To(Succeed())
			Expect(userWords(ctx, node, namespace)).To(Equal(userWords(ctx, intact, namespace)))
		},
		Entry("another command", "+keys"),
		Entry("all commands", "+@all"),
		Entry("a command less", "-hget"),
		Entry("another key", "~*"),
		Entry("no keys", "resetkeys"),
		Entry("all channels", "&*"),
		Entry("no password needed", "nopass"),
		Entry("another password", ">other"),
		Entry("switched off", "off"),
		Entry("a selector", "(+set ~x)"),
		Entry("reset", "reset"),
	)

	It("are removed from every node, and from what is listed", func(ctx SpecContext) {
		namespace, admin := newNamespace(), newAdmin(instance)
		ensure(ctx, namespace, "secret")
		Expect(admin.Users(ctx)).To(ContainElement(namespace))
		Expect(admin.RemoveUser(ctx, namespace)).To(Succeed())
		Expect(admin.Users(ctx)).NotTo(ContainElement(namespace))
		for _, node := range cluster.Nodes {
			Expect(login(ctx, node, namespace, "secret")).To(MatchError(ContainSubstring("WRONGPASS")))
		}
	})

	It("are listed when a single node has them", func(ctx SpecContext) {
		namespace := newNamespace()
		ensure(ctx, namespace, "secret")
		for _, node := range cluster.Nodes[1:] {
			Expect(node.Client().ACLDelUser(ctx, instance.User(namespace)).Err()).To(Succeed())
		}
		Expect(newAdmin(instance).Users(ctx)).To(ContainElement(namespace))
	})

	It("of another instance on the same Redis are neither listed nor removed", func(ctx SpecContext) {
		namespace, other := newNamespace(), newAdmin(keyspace.Instance("other"))
		ensure(ctx, namespace, "secret")
		Expect(other.EnsureUser(ctx, namespace, "theirs")).To(Succeed())
		Expect(other.Users(ctx)).To(ConsistOf(namespace))
		Expect(other.RemoveUser(ctx, namespace)).To(Succeed())
		Expect(other.Users(ctx)).To(BeEmpty())
		Expect(login(ctx, cluster.Nodes[0], namespace, "secret")).To(Succeed())
	})

	It("outlive a restart where the nodes keep an ACL file", func(ctx SpecContext) {
		namespace := newNamespace()
		ensure(ctx, namespace, "secret")
		masters, err := cluster.Masters(ctx)
		Expect(err).NotTo(HaveOccurred())
		replicas, err := cluster.ReplicasOf(ctx, masters[0])
		Expect(err).NotTo(HaveOccurred())
		replicas[0].Stop()
		Expect(replicas[0].Restart(ctx)).To(Succeed())
		Expect(login(ctx, replicas[0], namespace, "secret")).To(Succeed())
		Expect(cluster.WaitHealthy(ctx)).To(Succeed())
	}, SpecTimeout(time.Minute))

	It("are made anew on a node that lost them, which is told by its new run", func(ctx SpecContext) {
		namespace, admin := newNamespace(), newAdmin(instance)
		ensure(ctx, namespace, "secret")
		masters, err := cluster.Masters(ctx)
		Expect(err).NotTo(HaveOccurred())
		replicas, err := cluster.ReplicasOf(ctx, masters[1])
		Expect(err).NotTo(HaveOccurred())
		lost := replicas[0]
		run := func() string {
			nodes, _ := admin.Nodes(ctx)
			for _, node := range nodes {
				if node.Addr == lost.Addr() {
					return node.RunID
				}
			}
			return ""
		}
		before := run()
		Expect(before).NotTo(BeEmpty())
		lost.Kill()
		err = admin.EnsureUser(ctx, namespace, "secret", "second")
		var nodes *redisadmin.NodesError
		Expect(errors.As(err, &nodes)).To(BeTrue(), "%v", err)
		Expect(nodes.Nodes).To(And(HaveLen(1), HaveKey(lost.Addr())))
		Expect(nodes.Masters).To(BeEmpty(), "it is a replica")
		Expect(login(ctx, masters[1], namespace, "second")).To(Succeed(), "the other nodes are served")

		Expect(lost.Restart(ctx)).To(Succeed())
		Expect(lost.Client().ACLDelUser(ctx, instance.User(namespace)).Err()).To(Succeed())
		Eventually(run).WithTimeout(2 * time.Second).WithPolling(200 * time.Millisecond).ShouldNot(Or(BeEmpty(), Equal(before)))
		Expect(admin.EnsureUser(ctx, namespace, "secret", "second")).To(Succeed())
		Expect(login(ctx, lost, namespace, "second")).To(Succeed())
		Expect(cluster.WaitHealthy(ctx)).To(Succeed())
	}, SpecTimeout(time.Minute))

	It("never show a password to who reads the ACL", func(ctx SpecContext) {
		namespace := newNamespace()
		ensure(ctx, namespace, "secret-word")
		Expect(userWords(ctx, cluster.Nodes[0].Client(), namespace)).NotTo(ContainElement(ContainSubstring("secret-word")))
	})

	It("need a password", func(ctx SpecContext) {
		Expect(newAdmin(instance).EnsureUser(ctx, "shop")).To(MatchError(ContainSubstring("a password is missing")))
		Expect(newAdmin(instance).EnsureUser(ctx, "shop", "")).To(MatchError(ContainSubstring("a password is missing")))
	})
})

// userWords is how a node spells a namespace's user, sorted: each node has an order of its own.
func userWords(ctx context.Context, node *redis.Client, namespace string) []string {
	GinkgoHelper()
	lines, err := node.ACLList(ctx).Result()
	Expect(err).NotTo(HaveOccurred())
	for _, line := range lines {
		if strings.HasPrefix(line, "user "+instance.User(namespace)+" ") {
			return slices.Sorted(strings.FieldsSeq(line))
		}
	}
	return nil
}

var _ = Describe("A sidecar's user", Ordered, func() {
	const namespace, other = "fenced", "fenced-x"
	var writer *configstore.Writer
	var client *redis.ClusterClient

	BeforeAll(func(ctx SpecContext) {
		admin := newAdmin(instance)
		writer = configstore.NewWriter(cluster.Client(), instance, 1)
		for _, name := range []string{namespace, other} {
			Expect(admin.EnsureUser(ctx, name, "secret")).To(Succeed())
			_, err := writer.Publish(ctx, name, configstore.Publication{})
			Expect(err).NotTo(HaveOccurred())
			cleanUser(name)
		}
		client = sidecarClient(namespace, "secret")
	})

	take := func(ctx context.Context, client *redis.ClusterClient, namespace string) error {
		call, err := tokenbucket.NewTake(instance.Bucket(namespace, "tag"), []tokenbucket.Charge{{
			ID: 1, Order: 1, Cost: 1,
			Params: localbucket.Params{Capacity: 10, RefillTokens: 1, IntervalUS: 1_000_000},
		}})
		Expect(err).NotTo(HaveOccurred())
		_ = client.Process(ctx, call)
		_, err = call.Result()
		return err
	}
	heartbeat := &bucketconfig.Heartbeat{Schema: bucketconfig.SchemaVersion, StartID: "s"}

	It("takes from its buckets, reads its records, sends its heartbeats and hears its news", func(ctx SpecContext) {
		Expect(take(ctx, client, namespace)).To(Succeed())
		reader := configstore.NewReader(client, instance, namespace)
		_, err := reader.Update(ctx, nil)
		Expect(err).NotTo(HaveOccurred())
		sent, err := configstore.NewHeartbeats(client, instance, namespace).Send(ctx, "pod", heartbeat)
		Expect(err).NotTo(HaveOccurred())
		Expect(sent.RevisionErr).NotTo(HaveOccurred())

		listening, stop := context.WithCancel(ctx)
		news := reader.Subscribe(listening, discard())
		Eventually(news).WithTimeout(5 * time.Second).Should(Receive())
		published, err := writer.Publish(ctx, namespace, configstore.Publication{Policies: []configstore.Policy{somePolicy()}})
		Expect(err).NotTo(HaveOccurred())
		Expect(published.Changed).To(BeTrue())
		Eventually(news).WithTimeout(2 * time.Second).Should(Receive())
		stop()
		Eventually(news).WithTimeout(5 * time.Second).Should(BeClosed())
	})

	DescribeTable("is refused everything of another namespace, also where its name begins alike",
		func(ctx SpecContext, try func(ctx context.Context) error) {
			Expect(try(ctx)).To(MatchError(Or(ContainSubstring("NOPERM"), ContainSubstring("No permissions"), ContainSubstring("The user executing the script"))))
		},
		Entry("take", func(ctx context.Context) error { return take(ctx, client, other) }),
		Entry("read records", func(ctx context.Context) error {
			_, err := configstore.NewReader(client, instance, other).Update(ctx, nil)
			return err
		}),
		Entry("send heartbeats", func(ctx context.Context) error {
			_, err := configstore.NewHeartbeats(client, instance, other).Send(ctx, "pod", heartbeat)
			return err
		}),
		Entry("read heartbeats", func(ctx context.Context) error {
			_, err := configstore.NewHeartbeats(client, instance, other).Read(ctx, []string{"pod"})
			return err
		}),
		Entry("reach another key from inside a function's call", func(ctx context.Context) error {
			return client.FCall(ctx, "portero_v1_heartbeat", []string{instance.Heartbeats(other)}, "pod", "x").Err()
		}),
		Entry("hear news", func(ctx context.Context) error {
			pubsub := client.Subscribe(ctx, instance.ConfigChannel(other))
			defer func() { _ = pubsub.Close() }()
			_, err := pubsub.Receive(ctx)
			return err
		}),
	)

	DescribeTable("is refused what would let it alter records, load code or look around",
		func(ctx SpecContext, command ...any) {
			// Sent to the node that serves the namespace, so that no redirection hides the answer.
			master, err := cluster.MasterOf(ctx, instance.Config(namespace))
			Expect(err).NotTo(HaveOccurred())
			node := redis.NewClient(&redis.Options{
				Addr: master.Addr(), Username: instance.User(namespace), Password: "secret", DisableIdentity: true, MaxRetries: -1,
			})
			DeferCleanup(node.Close)
			Expect(node.Do(ctx, command...).Err()).To(MatchError(Or(HavePrefix("NOPERM"), ContainSubstring("The user executing the script"))))
		},
		Entry("HSET of a record", "HSET", instance.Config(namespace), "1/a", "x"),
		Entry("HDEL of a record", "HDEL", instance.Config(namespace), "1/a"),
		Entry("DEL of the records", "DEL", instance.Config(namespace)),
		Entry("publishing", "FCALL", "portero_v1_publish", 1, instance.Config(namespace), "9", "0", "c", "0"),
		Entry("pruning", "FCALL", "portero_v1_prune", 1, instance.Heartbeats(namespace)),
		Entry("EVAL", "EVAL", "return 1", 0),
		Entry("SCRIPT LOAD", "SCRIPT", "LOAD", "return 1"),
		Entry("FUNCTION LOAD", "FUNCTION", "LOAD", "#!lua name=x\n"),
		Entry("FUNCTION FLUSH", "FUNCTION", "FLUSH"),
		Entry("PUBLISH", "PUBLISH", instance.ConfigChannel(namespace), "x"),
		Entry("KEYS", "KEYS", "*"),
		Entry("SCAN", "SCAN", 0),
		Entry("CONFIG", "CONFIG", "GET", "requirepass"),
		Entry("ACL", "ACL", "LIST"),
		Entry("FLUSHALL", "FLUSHALL"),
		Entry("INFO", "INFO"),
		Entry("CLUSTER NODES", "CLUSTER", "NODES"),
		Entry("CLIENT LIST", "CLIENT", "LIST"),
		Entry("COMMAND", "COMMAND"),
		Entry("the index of namespaces", "SMEMBERS", instance.Namespaces()),
	)
})
