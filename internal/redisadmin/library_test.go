package redisadmin_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/portero-dev/portero/internal/configstore"
	"github.com/portero-dev/portero/internal/keyspace"
	"github.com/portero-dev/portero/internal/redisadmin"
	"github.com/portero-dev/portero/internal/redisclient"
	"github.com/portero-dev/portero/internal/redistest"
	"github.com/portero-dev/portero/internal/tokenbucket"
)

var _ = Describe("EnsureLibrary", func() {
	libraryCode := func(ctx SpecContext, node *redis.Client) string {
		GinkgoHelper()
		libraries, err := node.FunctionList(ctx, redis.FunctionListQuery{LibraryNamePattern: keyspace.FunctionLibrary, WithCode: true}).Result()
		Expect(err).NotTo(HaveOccurred())
		if len(libraries) == 0 {
			return ""
		}
		return libraries[0].Code
	}

	It("does nothing where all masters hold the library", func(ctx SpecContext) {
		loaded, err := newAdmin(instance).EnsureLibrary(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(loaded).To(BeEmpty())
	})

	It("loads it again on the one master that lost it, and the replica follows", func(ctx SpecContext) {
		masters, err := cluster.Masters(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(masters[1].Client().FunctionFlush(ctx).Err()).To(Succeed())
		loaded, err := newAdmin(instance).EnsureLibrary(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(loaded).To(ConsistOf(masters[1].Addr()))
		replicas, err := cluster.ReplicasOf(ctx, masters[1])
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() string { return libraryCode(ctx, replicas[0].Client()) }).
			WithTimeout(5 * time.Second).Should(Equal(tokenbucket.Library().Code))
	})

	It("replaces other code under its name and leaves other libraries alone", func(ctx SpecContext) {
		masters, err := cluster.Masters(ctx)
		Expect(err).NotTo(HaveOccurred())
		foreign := "#!lua name=foreign\nredis.register_function('foreign_f', function() return 1 end)"
		altered := "#!lua name=" + keyspace.FunctionLibrary + "\nredis.register_function('altered', function() return 1 end)"
		Expect(masters[0].Client().FunctionLoadReplace(ctx, foreign).Err()).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { masters[0].Client().FunctionDelete(ctx, "foreign") })
		Expect(masters[0].Client().FunctionLoadReplace(ctx, altered).Err()).To(Succeed())
		loaded, err := newAdmin(instance).EnsureLibrary(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(loaded).To(ConsistOf(masters[0].Addr()))
		Expect(libraryCode(ctx, masters[0].Client())).To(Equal(tokenbucket.Library().Code))
		Expect(masters[0].Client().FCall(ctx, "foreign_f", []string{}).Int()).To(Equal(1))
	})

	It("leaves a later manager's library in place, so that two managers agree", func(ctx SpecContext) {
		masters, err := cluster.Masters(ctx)
		Expect(err).NotTo(HaveOccurred())
		body := "redis.register_function('" + keyspace.FunctionLibrary + "_later', function() return 1 end)"
		later := fmt.Sprintf("#!lua name=%s\n-- revision %d %x\n%s", keyspace.FunctionLibrary, tokenbucket.Revision+1, sha256.Sum256([]byte(body)), body)
		Expect(masters[0].Client().FunctionLoadReplace(ctx, later).Err()).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			Expect(masters[0].Client().FunctionLoadReplace(ctx, tokenbucket.Library().Code).Err()).To(Succeed())
		})
		loaded, err := newAdmin(instance).EnsureLibrary(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(loaded).To(BeEmpty())
		Expect(libraryCode(ctx, masters[0].Client())).To(Equal(later))
	})

	It("names the master that hangs and serves the others in the meantime", func(ctx SpecContext) {
		admin := newAdmin(instance)
		masters, err := cluster.Masters(ctx)
		Expect(err).NotTo(HaveOccurred())
		_, err = admin.EnsureLibrary(ctx) // learns the nodes
		Expect(err).NotTo(HaveOccurred())
		Expect(masters[1].Client().FunctionFlush(ctx).Err()).To(Succeed())
		Expect(masters[0].Signal(syscall.SIGSTOP)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(cluster.WaitHealthy(ctx)).To(Succeed()) }, NodeTimeout(time.Minute))
		DeferCleanup(func() { Expect(masters[0].Signal(syscall.SIGCONT)).To(Succeed()) })

		var loaded []string
		Eventually(func(g Gomega) { // a hung node may be the one that is asked for the others
			loaded, err = admin.EnsureLibrary(ctx)
			g.Expect(loaded).To(ConsistOf(masters[1].Addr()))
		}).WithTimeout(15 * time.Second).Should(Succeed())
		var nodes *redisadmin.NodesError
		Expect(errors.As(err, &nodes)).To(BeTrue(), "%v", err)
		Expect(nodes.Nodes).To(And(HaveLen(1), HaveKey(masters[0].Addr())))
		Expect(nodes.Masters).To(Equal([]string{masters[0].Addr()}))
		Expect(err).To(MatchError(configstore.ErrUnreachable))
	}, SpecTimeout(time.Minute))

	It("says that the password is wrong", func(ctx SpecContext) {
		admin := adminOf(instance, redisclient.Options{Addrs: cluster.Addrs(), Credentials: redisclient.Static("", "wrong")})
		_, err := admin.EnsureLibrary(ctx)
		Expect(err).To(MatchError(configstore.ErrDenied))
	})

	It("says that no node can be reached", func(ctx SpecContext) {
		admin := adminOf(instance, redisclient.Options{Addrs: []string{"127.0.0.1:1"}})
		_, err := admin.EnsureLibrary(ctx)
		Expect(err).To(MatchError(configstore.ErrUnreachable))
	})
})

var _ = Describe("Nodes", func() {
	It("tells address, run, version and role of each", func(ctx SpecContext) {
		nodes, err := newAdmin(instance).Nodes(ctx)
		Expect(err).NotTo(HaveOccurred())
		var addrs, masters []string
		runs := make(map[string]bool)
		for _, node := range nodes {
			addrs = append(addrs, node.Addr)
			runs[node.RunID] = true
			Expect(node.Version).To(MatchRegexp(`^[0-9]+\.[0-9]+\.[0-9]+$`))
			if node.Master {
				masters = append(masters, node.Addr)
			}
		}
		Expect(addrs).To(ConsistOf(cluster.Addrs()))
		Expect(runs).To(HaveLen(6))
		Expect(masters).To(HaveLen(3))
	})
})

var _ = Describe("A node that joins", func() {
	It("gets library and users before its first slot, and is no loss once it has left", func(ctx SpecContext) {
		growing := redistest.Start(ctx, GinkgoT(), redistest.Options{})
		admin := adminOf(instance, redisclient.Options{Addrs: growing.Addrs()})
		loaded, err := admin.EnsureLibrary(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(loaded).To(HaveLen(3))

		added, err := growing.AddMaster(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(admin.EnsureLibrary(ctx)).To(ConsistOf(added.Addr()))
		Expect(admin.EnsureUser(ctx, "shop", "secret")).To(Succeed())
		Expect(added.Client().ACLUsers(ctx).Result()).To(ContainElement(instance.User("shop")))
		nodes, err := admin.Nodes(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(nodes).To(ContainElement(And(HaveField("Addr", added.Addr()), HaveField("Master", BeFalse()))))

		Expect(growing.Remove(ctx, added)).To(Succeed())
		nodes, err = admin.Nodes(ctx)
		Expect(nodes).To(HaveLen(6))
		var missing *redisadmin.NodesError
		Expect(errors.As(err, &missing)).To(BeTrue(), "it may come back for a minute")
		Expect(missing.Masters).To(BeEmpty(), "and serves nothing that anybody misses")
	}, NodeTimeout(3*time.Minute))
})

var _ = Describe("CheckServer", func() {
	set := func(ctx SpecContext, setting, value string) {
		GinkgoHelper()
		before := cluster.Nodes[4].Client().ConfigGet(ctx, setting).Val()[setting]
		Expect(cluster.Nodes[4].Client().ConfigSet(ctx, setting, value).Err()).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { cluster.Nodes[4].Client().ConfigSet(ctx, setting, before) })
	}

	It("finds nothing wrong with a cluster as it should be", func(ctx SpecContext) {
		Expect(newAdmin(instance).CheckServer(ctx)).To(BeEmpty())
	})

	It("warns of a node that evicts and of one that wants full coverage", func(ctx SpecContext) {
		set(ctx, "maxmemory-policy", "allkeys-lru")
		set(ctx, "cluster-require-full-coverage", "yes")
		warnings, err := newAdmin(instance).CheckServer(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(warnings).To(HaveLen(2))
		Expect(warnings[0].Node).To(Equal(cluster.Nodes[4].Addr()))
		Expect(warnings[0].Setting).To(Equal("cluster-require-full-coverage"))
		Expect(warnings[1].Setting).To(Equal("maxmemory-policy"))
		Expect(warnings[0].Kind).To(Equal(redisadmin.WarnFullCoverage))
		Expect(warnings[1].Kind).To(Equal(redisadmin.WarnEviction))
		Expect(warnings[1].Value).To(Equal("allkeys-lru"))
		Expect(warnings[1].Message).To(ContainSubstring("set it to noeviction"))
	})

	It("learns the eviction policy by INFO where settings may not be read, and calls the rest unknown", func(ctx SpecContext) {
		for _, node := range cluster.Nodes {
			Expect(node.Client().ACLSetUser(ctx, "managed", "reset", "on", ">managed", "~*", "&*", "+@all", "-config").Err()).To(Succeed())
			DeferCleanup(func(ctx SpecContext) { node.Client().ACLDelUser(ctx, "managed") })
		}
		admin := adminOf(instance, redisclient.Options{Addrs: cluster.Addrs(), Credentials: redisclient.Static("managed", "managed")})
		warnings, err := admin.CheckServer(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(warnings).To(HaveLen(6))
		Expect(warnings).To(HaveEach(And(
			HaveField("Kind", redisadmin.WarnUnknown), HaveField("Setting", "cluster-require-full-coverage"), HaveField("Value", "unknown"))))
		set(ctx, "maxmemory-policy", "volatile-lru")
		warnings, err = admin.CheckServer(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(warnings).To(HaveLen(7))
		Expect(warnings).To(ContainElement(And(
			HaveField("Node", cluster.Nodes[4].Addr()), HaveField("Kind", redisadmin.WarnEviction), HaveField("Value", "volatile-lru"))))
	})
})
