package redisclient_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/portero-dev/portero/internal/redisclient"
	"github.com/portero-dev/portero/internal/redistest"
)

func options() redisclient.Options {
	return redisclient.Options{Addrs: cluster.Addrs(), Credentials: redisclient.Static("", password)}
}

// uses are the constructors of a cluster's client.
var uses = map[string]func(redisclient.Options) *redis.ClusterClient{
	"verdict": redisclient.NewVerdict, "config": redisclient.NewConfig, "admin": redisclient.NewAdmin,
}

var _ = Describe("A client", func() {
	It("reaches every key with the rights of a sidecar's user alone", func(ctx SpecContext) {
		for _, node := range cluster.Nodes {
			Expect(node.Client().Do(ctx, "ACL", "SETUSER", "sidecar", "reset", "on", ">pw", "~*", "-@all", "+get", "+set",
				"+ping", "+hello", "+auth", "+asking", "+cluster|slots", "+cluster|shards").Err()).To(Succeed())
		}
		for name, construct := range uses {
			client := construct(redisclient.Options{Addrs: cluster.Addrs()[:1], Credentials: redisclient.Static("sidecar", "pw")})
			DeferCleanup(client.Close)
			for _, key := range []string{"{a}", "{b}", "{c}", "{d}", "{e}"} {
				Expect(client.Set(ctx, key, name, 0).Err()).To(Succeed(), name)
				Expect(client.Get(ctx, key).Result()).To(Equal(name))
			}
		}
	})

	It("asks the server for nothing but the topology and the calls", func(ctx SpecContext) {
		for name, construct := range uses {
			for _, node := range cluster.Nodes {
				Expect(node.Client().ConfigResetStat(ctx).Err()).To(Succeed())
			}
			client := construct(options())
			DeferCleanup(client.Close)
			for range 20 {
				pipe := client.Pipeline()
				for _, key := range []string{"{a}", "{b}", "{c}"} {
					pipe.Get(ctx, key)
				}
				_, _ = pipe.Exec(ctx)
			}
			Expect(commandsOf(ctx)).To(HaveKeyWithValue("get", 60), name)
			Expect(commandsOf(ctx)).To(HaveKeyWithValue("cluster|slots", BeNumerically("<=", 2)), name)
			for command := range commandsOf(ctx) {
				Expect(command).To(BeElementOf("get", "cluster|slots", "hello", "info", "config|resetstat",
					"ping", "publish", "replconf"), name) // the last three are the replicas'
			}
		}
	})

	It("takes a changed password for new connections and keeps the old ones", func(ctx SpecContext) {
		first := cluster.Nodes[0]
		setPasswords := func(passwords ...string) {
			for _, node := range cluster.Nodes {
				args := []any{"ACL", "SETUSER", "rotated", "reset", "on", "~*", "+@all"}
				for _, password := range passwords {
					args = append(args, ">"+password)
				}
				Expect(node.Client().Do(ctx, args...).Err()).To(Succeed())
			}
		}
		setPasswords("one")
		var current atomic.Value
		current.Store("one")
		client := redisclient.NewNode(redisclient.Options{
			Credentials: func(context.Context) (string, string, error) { return "rotated", current.Load().(string), nil },
		}, first.Addr())
		DeferCleanup(client.Close)
		Expect(client.Ping(ctx).Err()).To(Succeed())

		setPasswords("two")
		Expect(client.Ping(ctx).Err()).To(Succeed(), "the open connection")
		Expect(first.Client().Do(ctx, "CLIENT", "KILL", "USER", "rotated").Err()).To(Succeed())
		Eventually(func() error { return client.Ping(ctx).Err() }).WithTimeout(5 * time.Second).Should(MatchError(ContainSubstring("WRONGPASS")))
		current.Store("two")
		Expect(client.Ping(ctx).Err()).To(Succeed())
	})

	It("tells an error of the credentials", func(ctx SpecContext) {
		missing := errors.New("no credentials yet")
		client := redisclient.NewNode(redisclient.Options{
			Credentials: func(context.Context) (string, string, error) { return "", "", missing },
		}, cluster.Nodes[0].Addr())
		DeferCleanup(client.Close)
		Expect(client.Ping(ctx).Err()).To(MatchError(missing))
	})
})

var _ = Describe("The clients of records and of the manager", func() {
	It("find the master that replaced a hung one within seconds, by single calls and by pipelines", func(ctx SpecContext) {
		const key = "replaced"
		hung, err := cluster.MasterOf(ctx, key)
		Expect(err).NotTo(HaveOccurred())
		replicas, err := cluster.ReplicasOf(ctx, hung)
		Expect(err).NotTo(HaveOccurred())
		calls := map[string]func(context.Context, *redis.ClusterClient) error{
			"single": func(ctx context.Context, c *redis.ClusterClient) error { return c.Set(ctx, key, 1, 0).Err() },
			"pipeline": func(ctx context.Context, c *redis.ClusterClient) error {
				_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error { return p.Set(ctx, key, 1, 0).Err() })
				return err
			},
		}
		clients := map[string]*redis.ClusterClient{}
		for _, use := range []string{"config", "admin"} {
			for call, do := range calls {
				client := uses[use](options())
				DeferCleanup(client.Close)
				Expect(do(ctx, client)).To(Succeed())
				clients[use+" "+call] = client
			}
		}

		Expect(hung.Signal(syscall.SIGSTOP)).To(Succeed())
		resume := sync.OnceFunc(func() { Expect(hung.Signal(syscall.SIGCONT)).To(Succeed()) })
		DeferCleanup(resume)
		Expect(replicas[0].Client().Do(ctx, "CLUSTER", "FAILOVER", "TAKEOVER").Err()).To(Succeed())
		for name, client := range clients {
			_, call, _ := strings.Cut(name, " ")
			Eventually(func() error {
				impatient, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
				defer cancel()
				return calls[call](impatient, client)
			}).WithTimeout(10*time.Second).Should(Succeed(), name)
		}
		resume()
		Expect(cluster.WaitHealthy(ctx)).To(Succeed())
	})
})

var _ = Describe("The client of verdicts", func() {
	It("follows a failover at once, without running a call twice", func(ctx SpecContext) {
		const key = "{moved}counter"
		client := redisclient.NewVerdict(options())
		DeferCleanup(client.Close)
		Expect(client.Incr(ctx, key).Result()).To(Equal(int64(1)))
		promoted, err := cluster.Failover(ctx, key)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx SpecContext) { Expect(cluster.WaitHealthy(ctx)).To(Succeed()) })

		pipe := client.Pipeline()
		var calls []*redis.IntCmd
		for range 5 {
			calls = append(calls, pipe.Incr(ctx, key))
		}
		started := time.Now()
		_, err = pipe.Exec(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(time.Since(started)).To(BeNumerically("<", redisclient.VerdictTimeout))
		for i, call := range calls {
			Expect(call.Result()).To(Equal(int64(i + 2)))
		}
		Expect(promoted.Client().Get(ctx, key).Int()).To(Equal(6))
	}, NodeTimeout(time.Minute))

	It("ends with its context when a master hangs, and does not storm it with dials", func(ctx SpecContext) {
		const key = "{hung}"
		master, err := cluster.MasterOf(ctx, key)
		Expect(err).NotTo(HaveOccurred())
		client := redisclient.NewVerdict(options())
		DeferCleanup(client.Close)
		dials := &dialCount{address: master.Addr()}
		client.OnNewNode(func(node *redis.Client) { node.AddHook(dials) })
		Expect(client.Set(ctx, key, "v", 0).Err()).To(Succeed())
		before := dials.Load()
		Expect(before).To(BeNumerically(">", 0), "the count must see the client's dials")

		Expect(master.Signal(syscall.SIGSTOP)).To(Succeed())
		const calls = 5
		for range calls {
			started := time.Now()
			bounded, cancel := context.WithTimeout(ctx, redisclient.VerdictTimeout)
			err := client.Process(bounded, onceOnly{redis.NewStringCmd(bounded, "get", key)})
			cancel()
			var timeout net.Error
			if !errors.Is(err, context.DeadlineExceeded) && (!errors.As(err, &timeout) || !timeout.Timeout()) {
				Fail("want a timeout, got " + errorText(err))
			}
			Expect(time.Since(started)).To(BeNumerically("<", 4*redisclient.VerdictTimeout))
		}
		Expect(master.Signal(syscall.SIGCONT)).To(Succeed())
		Expect(cluster.WaitHealthy(ctx)).To(Succeed())
		AddReportEntry("dials to the hung master", fmt.Sprintf("%d in %d calls", dials.Load()-before, calls))
		// A call that timed out costs its connection, so the next one may dial; the topology is read once more beside it.
		Expect(dials.Load() - before).To(BeNumerically("<=", calls+1))
	}, NodeTimeout(time.Minute))
})

var _ = Describe("TLS", func() {
	It("reaches a cluster that wants a certificate", func(ctx SpecContext) {
		secure := redistest.Start(ctx, GinkgoT(), redistest.Options{TLS: true})
		material := redisclient.TLS{CA: secure.TLS.CA, Certificate: secure.TLS.Certificate, Key: secure.TLS.Key}
		config, err := material.Config()
		Expect(err).NotTo(HaveOccurred())
		client := redisclient.NewVerdict(redisclient.Options{Addrs: secure.Addrs(), TLS: config})
		DeferCleanup(client.Close)
		Expect(client.Set(ctx, "key", "v", 0).Err()).To(Succeed())

		material.ServerName = "another.example"
		config, err = material.Config()
		Expect(err).NotTo(HaveOccurred())
		client = redisclient.NewVerdict(redisclient.Options{Addrs: secure.Addrs(), TLS: config})
		DeferCleanup(client.Close)
		Expect(client.Set(ctx, "key", "v", 0).Err()).To(MatchError(ContainSubstring("certificate is not valid for any names")))
	}, NodeTimeout(time.Minute))

	DescribeTable("refuses what does not parse",
		func(material redisclient.TLS, message string) {
			_, err := material.Config()
			Expect(err).To(MatchError(ContainSubstring(message)))
		},
		Entry("a bad CA", redisclient.TLS{CA: []byte("nonsense")}, "redis CA"),
		Entry("a bad certificate", redisclient.TLS{Certificate: []byte("nonsense"), Key: []byte("nonsense")}, "redis client certificate"),
		Entry("a certificate without its key", redisclient.TLS{Certificate: []byte("nonsense")}, "redis client certificate"),
	)
})

var _ = Describe("Addresses", func() {
	It("are read from a list", func() {
		Expect(redisclient.ParseAddrs("a:1, 10.0.0.1:6379,[::1]:65535")).To(Equal([]string{"a:1", "10.0.0.1:6379", "[::1]:65535"}))
	})

	DescribeTable("are refused",
		func(list, bad string) {
			_, err := redisclient.ParseAddrs(list)
			Expect(err).To(MatchError(And(ContainSubstring(`"`+bad+`"`), ContainSubstring("host:port"))))
		},
		Entry("when there is none", "", ""),
		Entry("without a port", "a:1,b", "b"),
		Entry("without a host", ":6379", ":6379"),
		Entry("with a named port", "a:redis", "a:redis"),
		Entry("with port 0", "a:0", "a:0"),
		Entry("with a port too high", "a:65536", "a:65536"),
	)
})

// commandsOf sums up over all nodes how often each command ran since the statistics were reset.
func commandsOf(ctx context.Context) map[string]int {
	GinkgoHelper()
	total := map[string]int{}
	for _, node := range cluster.Nodes {
		for name, stat := range node.Client().InfoMap(ctx, "commandstats").Val()["Commandstats"] {
			calls, _, _ := strings.Cut(strings.TrimPrefix(stat, "calls="), ",")
			total[strings.TrimPrefix(name, "cmdstat_")] += atoi(calls)
		}
	}
	return total
}

// connections is how many connections the node has accepted since it started.
// onceOnly is a command as verdicts are: go-redis must not send it again.
type onceOnly struct{ *redis.StringCmd }

func (onceOnly) NoRetry() bool { return true }

// dialCount counts a client's dials to one address, and nobody else's.
type dialCount struct {
	atomic.Int64
	address string
}

func (d *dialCount) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if address == d.address {
			d.Add(1)
		}
		return next(ctx, network, address)
	}
}

func (d *dialCount) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (d *dialCount) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func atoi(digits string) int {
	GinkgoHelper()
	n, err := strconv.Atoi(digits)
	Expect(err).NotTo(HaveOccurred())
	return n
}

func errorText(err error) string {
	if err == nil {
		return "none"
	}
	return err.Error()
}
