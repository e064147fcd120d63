//go:build e2e

package faults_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	goredis "github.com/redis/go-redis/v9"

	"github.com/portero-dev/portero/hack/faults/link"
	"github.com/portero-dev/portero/internal/redistest"
)

// fault is one way in which Redis fails. Times that are zero take their defaults.
type fault struct {
	name string
	// start begins it, repeat goes on with it, stop ends it; each returns when that is done.
	start, stop func(context.Context)
	repeat      func(context.Context)
	every       time.Duration
	// prepare is done before the load, cleanup after it.
	prepare, cleanup func(context.Context)
	lasts            time.Duration // default 6 s
	// back bounds the time from cluster_state:ok until verdicts are shared; default 2 s.
	back time.Duration
	// sinceStart counts back from the start of the fault.
	sinceStart bool
	// one tells that the fault hits the buckets of one master, of which victim is the first.
	one bool
	// unfelt tells that verdicts may stay shared all the time.
	unfelt bool
	// ci marks what every change is tested against: one of each kind.
	ci bool
	// lossy are faults in which Redis itself loses writes: the tokens come back.
	lossy bool
}

func (f *fault) lasting() time.Duration {
	if f.lasts == 0 {
		return 6 * time.Second
	}
	return f.lasts
}

func (f *fault) within() time.Duration {
	if f.back == 0 {
		return 2 * time.Second
	}
	return f.back
}

// victim is the node that a fault of one master hits, and standIn its replica.
var victim, standIn *redistest.Node

func chooseVictim(ctx context.Context) {
	GinkgoHelper()
	masters, err := redis.Masters(ctx)
	Expect(err).NotTo(HaveOccurred())
	victim = masters[0]
	replicas, err := redis.ReplicasOf(ctx, victim)
	Expect(err).NotTo(HaveOccurred())
	Expect(replicas).NotTo(BeEmpty())
	standIn = replicas[0]
}

// allFaults are the rows of the matrix.
func allFaults() []*fault {
	return []*fault{
		network("connection refused", link.Refuse, false),
		network("SYN blackhole", link.BlackholeSYN, true),
		network("reply blackhole", link.BlackholeReplies, true),
		network("50 ms delay", link.DelayReplies, false),
		network("reset mid-reply", link.ResetReplies, false),
		{
			name: "200 ms stall every second", every: time.Second, start: onMasters("CLIENT", "PAUSE", 200, "ALL"),
			repeat: onMasters("CLIENT", "PAUSE", 200, "ALL"), stop: func(context.Context) {},
		},
		loading(),
		{name: "OOM", start: configure("maxmemory", "1"), stop: configure("maxmemory", "0")},
		{
			name: "NOAUTH after rotation", every: 200 * time.Millisecond, start: lockOut, repeat: lockOut,
			stop: asUser("resetpass", func() string { return ">" + userPassword }),
		},
		{
			name: "NOPERM", ci: true, every: 200 * time.Millisecond,
			start: asUser("-fcall"), repeat: asUser("-fcall"), stop: asUser("+fcall"),
		},
		clusterDown(),
		{name: "failover of each master", start: failover, stop: func(context.Context) {}, unfelt: true},
		resharding(),
		{name: "FUNCTION FLUSH", ci: true, start: onMasters("FUNCTION", "FLUSH"), stop: func(context.Context) {}, back: 10 * time.Second, sinceStart: true},
		{
			name: "SIGSTOP of a master", one: true, prepare: withoutPromotion,
			start: signal(syscall.SIGSTOP), stop: signal(syscall.SIGCONT), cleanup: withPromotion,
		},
		{
			name: "SIGSTOP with promotion", ci: true, one: true, prepare: chooseVictim, lasts: time.Millisecond, lossy: true,
			start: signal(syscall.SIGSTOP), stop: promoted, cleanup: signal(syscall.SIGCONT),
		},
		{
			name: "kill -9 of a master and its return", one: true, prepare: chooseVictim, lasts: time.Millisecond, lossy: true,
			start: func(context.Context) { victim.Kill() }, stop: promoted, cleanup: func(ctx context.Context) { restart(ctx, victim) },
		},
		{
			name: "kill of all", ci: true, start: func(context.Context) { each(func(n *redistest.Node) error { n.Kill(); return nil }) },
			stop: func(ctx context.Context) { restart(ctx, redis.Nodes...) }, back: 4 * time.Second, lossy: true,
		},
	}
}

func network(name string, how link.Fault, ci bool) *fault {
	set := func(how link.Fault) func(context.Context) {
		return func(context.Context) {
			GinkgoHelper()
			for _, l := range links {
				Expect(l.Set(how)).To(Succeed())
			}
		}
	}
	return &fault{name: name, ci: ci, start: set(how), stop: set(link.None)}
}

// each does something on all nodes at once.
func each(do func(*redistest.Node) error) {
	GinkgoHelper()
	on(redis.Nodes, do)
}

func on(nodes []*redistest.Node, do func(*redistest.Node) error) {
	GinkgoHelper()
	failures := make([]error, len(nodes))
	var all sync.WaitGroup
	for i, node := range nodes {
		all.Go(func() { failures[i] = do(node) })
	}
	all.Wait()
	Expect(errors.Join(failures...)).NotTo(HaveOccurred())
}

func onMasters(command ...any) func(context.Context) {
	return func(ctx context.Context) {
		GinkgoHelper()
		Expect(redis.ForEachMaster(ctx, func(ctx context.Context, master *goredis.Client) error {
			return master.Do(ctx, command...).Err()
		})).To(Succeed())
	}
}

func configure(name, value string) func(context.Context) {
	return func(ctx context.Context) {
		GinkgoHelper()
		each(func(n *redistest.Node) error { return n.Client().ConfigSet(ctx, name, value).Err() })
	}
}

// asUser changes the sidecars' ACL user on each node.
func asUser(rules ...any) func(context.Context) {
	return func(ctx context.Context) {
		GinkgoHelper()
		args := []any{"ACL", "SETUSER", user}
		for _, rule := range rules {
			if late, ok := rule.(func() string); ok {
				rule = late()
			}
			args = append(args, rule)
		}
		each(func(n *redistest.Node) error { return n.Client().Do(ctx, args...).Err() })
	}
}

// lockOut changes the password and ends the sidecars' connections, as an administrator does with one that leaked.
func lockOut(ctx context.Context) {
	GinkgoHelper()
	asUser("resetpass", ">another-password")(ctx)
	each(func(n *redistest.Node) error { return n.Client().Do(ctx, "CLIENT", "KILL", "USER", user).Err() })
}

// loading makes every master read its data set anew, slowly: it answers LOADING meanwhile.
func loading() *fault {
	const filler = 5000
	var reloads sync.WaitGroup
	return &fault{
		name: "LOADING", lasts: time.Millisecond,
		prepare: func(ctx context.Context) {
			configure("cluster-replica-no-failover", "yes")(ctx)
			// Names of each master's own, as they lie in slots of all, and a slot that moves takes them with it.
			Expect(redis.ForEachMaster(ctx, func(ctx context.Context, master *goredis.Client) error {
				return master.Do(ctx, "DEBUG", "POPULATE", filler, "filler-"+master.Options().Addr, 16).Err()
			})).To(Succeed())
			configure("key-load-delay", "1000")(ctx)
		},
		start: func(ctx context.Context) {
			masters, err := redis.Masters(ctx)
			Expect(err).NotTo(HaveOccurred())
			for _, master := range masters {
				reloads.Go(func() {
					defer GinkgoRecover()
					patient := goredis.NewClient(&goredis.Options{
						Addr: master.Addr(), Password: password, ReadTimeout: time.Minute, MaxRetries: -1, DisableIdentity: true,
					})
					defer patient.Close()
					Expect(patient.Do(ctx, "DEBUG", "RELOAD").Err()).To(Succeed())
				})
			}
		},
		stop: func(context.Context) { reloads.Wait() },
		cleanup: func(ctx context.Context) {
			configure("key-load-delay", "0")(ctx)
			withPromotion(ctx)
			// Nodes that are started anew find nothing, as before.
			each(func(n *redistest.Node) error {
				folder, err := n.Client().ConfigGet(ctx, "dir").Result()
				if err != nil {
					return err
				}
				return os.RemoveAll(filepath.Join(folder["dir"], "dump.rdb"))
			})
		},
	}
}

// clusterDown takes a slot out of service, which every node counts as the end of the cluster when full coverage is asked for.
func clusterDown() *fault {
	var owner *redistest.Node
	slot := func() int {
		slots, err := owner.Slots(context.Background())
		Expect(err).NotTo(HaveOccurred())
		return slots[len(slots)-1].Last
	}
	taken := 0
	return &fault{
		name: "CLUSTERDOWN", ci: true,
		prepare: func(ctx context.Context) {
			configure("cluster-require-full-coverage", "yes")(ctx)
			chooseVictim(ctx)
			owner = victim
			taken = slot()
		},
		start: func(ctx context.Context) {
			each(func(n *redistest.Node) error { return n.Client().Do(ctx, "CLUSTER", "DELSLOTS", taken).Err() })
		},
		stop: func(ctx context.Context) {
			Expect(owner.Client().Do(ctx, "CLUSTER", "ADDSLOTS", taken).Err()).To(Succeed())
		},
		cleanup: configure("cluster-require-full-coverage", "no"),
	}
}

func failover(ctx context.Context) {
	GinkgoHelper()
	masters, err := redis.Masters(ctx)
	Expect(err).NotTo(HaveOccurred())
	on(masters, func(master *redistest.Node) error {
		replicas, err := redis.ReplicasOf(ctx, master)
		if err != nil {
			return err
		}
		return replicas[0].Client().ClusterFailover(ctx).Err()
	})
}

func signal(what syscall.Signal) func(context.Context) {
	return func(context.Context) { Expect(victim.Signal(what)).To(Succeed()) }
}

func withoutPromotion(ctx context.Context) {
	GinkgoHelper()
	chooseVictim(ctx)
	configure("cluster-replica-no-failover", "yes")(ctx)
}

func withPromotion(ctx context.Context) {
	GinkgoHelper()
	configure("cluster-replica-no-failover", "no")(ctx)
}

// promoted waits until the victim's replica is master in its place, and says cluster_state:ok.
func promoted(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(standIn.IsMaster(ctx)).To(BeTrue())
		g.Expect(standIn.Client().ClusterInfo(ctx).Result()).To(ContainSubstring("cluster_state:ok"))
	}).WithContext(ctx).WithTimeout(20 * time.Second).WithPolling(20 * time.Millisecond).Should(Succeed())
}

func restart(ctx context.Context, nodes ...*redistest.Node) {
	GinkgoHelper()
	on(nodes, func(n *redistest.Node) error { return n.Restart(ctx) })
}

// expectServing waits until every master says cluster_state:ok; of those that are stopped for good by the fault nobody asks.
func expectServing(ctx context.Context, f *fault) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		for _, node := range redis.Nodes {
			if !node.Running() || f.one && node == victim && f.lossy {
				continue
			}
			g.Expect(node.Client().ClusterInfo(ctx).Result()).To(ContainSubstring("cluster_state:ok"), node.Addr())
		}
	}).WithContext(ctx).WithTimeout(30 * time.Second).WithPolling(10 * time.Millisecond).Should(Succeed())
}

// hitShare is the address of the victim, and its share of the buckets, which all get the same load.
func hitShare(ctx context.Context) (string, float64) {
	GinkgoHelper()
	held := map[*redistest.Node]int{}
	all := 0
	masters, err := redis.Masters(ctx)
	Expect(err).NotTo(HaveOccurred())
	for _, master := range masters {
		found, err := buckets(ctx, master)
		Expect(err).NotTo(HaveOccurred())
		held[master] = len(found)
		all += len(found)
	}
	Expect(all).To(Equal(len(modes)*keys), "a bucket for each client and mode")
	Expect(held[victim]).NotTo(BeZero(), "no client's bucket is on the node that is hit: the fault would show nothing")
	return addrOf(victim), float64(held[victim]) / float64(all)
}

// buckets are the keys of all buckets that a master holds.
func buckets(ctx context.Context, master *redistest.Node) ([]string, error) {
	var found []string
	var cursor uint64
	for {
		batch, next, err := master.Client().Scan(ctx, cursor, "portero:v1:*:b:"+namespace+":*", 1000).Result()
		if err != nil {
			return nil, fmt.Errorf("buckets of %s: %w", master.Addr(), err)
		}
		found = append(found, batch...)
		if cursor = next; cursor == 0 {
			return found, nil
		}
	}
}
