package redistest_test

import (
	"fmt"
	"os"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/portero-dev/portero/internal/redistest"
)

const key = "{some}key"

// scope stands in for a test, so that a spec can see what its end leaves behind.
type scope struct {
	FullGinkgoTInterface
	cleanups []func()
}

func newScope() *scope { return &scope{FullGinkgoTInterface: GinkgoT()} }

func (s *scope) Cleanup(f func()) { s.cleanups = append(s.cleanups, f) }

func (s *scope) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func (s *scope) end() {
	for _, cleanup := range s.cleanups {
		cleanup()
	}
	s.cleanups = nil
}

var _ = Describe("A throw-away cluster", func() {
	It("serves all slots by three masters, each with a replica, and leaves nothing behind", func(ctx SpecContext) {
		test := newScope()
		DeferCleanup(test.end)
		cluster := redistest.Start(ctx, test, redistest.Options{})

		masters, err := cluster.Masters(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(masters).To(Equal(cluster.Nodes[:3]))
		served := 0
		for i, master := range masters {
			Expect(cluster.ReplicasOf(ctx, master)).To(Equal([]*redistest.Node{cluster.Nodes[i+3]}))
			Expect(master.IsMaster(ctx)).To(BeTrue())
			Expect(cluster.Nodes[i+3].IsMaster(ctx)).To(BeFalse())
			slots, err := master.Slots(ctx)
			Expect(err).NotTo(HaveOccurred())
			for _, held := range slots {
				served += held.Last - held.First + 1
			}
		}
		Expect(served).To(Equal(16384))
		Expect(cluster.Client().Set(ctx, key, "v", 0).Err()).To(Succeed())
		owner, err := cluster.MasterOf(ctx, key)
		Expect(err).NotTo(HaveOccurred())
		Expect(owner.Client().Get(ctx, key).Val()).To(Equal("v"))

		var pids []int
		var dir string
		for _, node := range cluster.Nodes {
			pids = append(pids, node.PID())
			dir = node.Client().ConfigGet(ctx, "dir").Val()["dir"]
		}
		Expect(dir).To(BeADirectory())
		test.end()
		for _, pid := range pids {
			Expect(syscall.Kill(pid, 0)).To(MatchError(syscall.ESRCH))
		}
		Expect(dir).NotTo(BeAnExistingFile())
	}, NodeTimeout(time.Minute))

	It("survives the loss of a master, and takes the node back", func(ctx SpecContext) {
		cluster := redistest.Start(ctx, GinkgoT(), redistest.Options{NodeTimeout: time.Second})
		Expect(cluster.Client().Set(ctx, key, "v", 0).Err()).To(Succeed())
		Expect(cluster.Client().Do(ctx, "WAIT", 1, 1000).Err()).To(Succeed())
		old, err := cluster.MasterOf(ctx, key)
		Expect(err).NotTo(HaveOccurred())

		old.Kill()
		Expect(old.Running()).To(BeFalse())
		Expect(old.PID()).To(BeZero())
		Expect(cluster.WaitHealthy(ctx)).To(Succeed())
		promoted, err := cluster.MasterOf(ctx, key)
		Expect(err).NotTo(HaveOccurred())
		Expect(promoted).NotTo(Equal(old))
		Expect(cluster.Client().Get(ctx, key).Result()).To(Equal("v"))

		Expect(old.Restart(ctx)).To(Succeed())
		Expect(cluster.WaitHealthy(ctx)).To(Succeed())
		Expect(old.IsMaster(ctx)).To(BeFalse())

		back, err := cluster.Failover(ctx, key)
		Expect(err).NotTo(HaveOccurred())
		Expect(back).To(Equal(old))
	}, NodeTimeout(time.Minute))

	It("hangs and wakes a node by signals", func(ctx SpecContext) {
		cluster := redistest.Start(ctx, GinkgoT(), redistest.Options{NodeTimeout: 30 * time.Second})
		node := cluster.Nodes[0]
		Expect(node.Signal(syscall.SIGSTOP)).To(Succeed())
		Expect(node.Client().Ping(ctx).Err()).To(MatchError(os.ErrDeadlineExceeded))
		Expect(node.Running()).To(BeTrue())
		Expect(node.Signal(syscall.SIGCONT)).To(Succeed())
		Eventually(node.Client().Ping).WithArguments(ctx).WithTimeout(5 * time.Second).Should(HaveField("Err()", Succeed()))

		Expect(node.Signal(syscall.SIGSTOP)).To(Succeed())
		node.Stop()
		Expect(node.Running()).To(BeFalse())
		Expect(node.Signal(syscall.SIGCONT)).To(MatchError(ContainSubstring("not running")))
	}, NodeTimeout(time.Minute))

	It("keeps data, password and users over a restart when asked to", func(ctx SpecContext) {
		cluster := redistest.Start(ctx, GinkgoT(), redistest.Options{Password: "secret", ACLFile: true, Persist: true})
		node, err := cluster.MasterOf(ctx, key)
		Expect(err).NotTo(HaveOccurred())
		Expect(cluster.Client().Set(ctx, key, "v", 0).Err()).To(Succeed())
		Expect(node.Client().Do(ctx, "ACL", "SETUSER", "ann", "on", ">pw", "+ping").Err()).To(Succeed())
		Expect(node.Client().Do(ctx, "ACL", "SAVE").Err()).To(Succeed())

		node.Stop()
		Expect(node.Restart(ctx)).To(Succeed())
		Expect(cluster.WaitHealthy(ctx)).To(Succeed())
		Expect(cluster.Client().Get(ctx, key).Result()).To(Equal("v"))
		as := func(user, password string) error {
			client := redis.NewClient(&redis.Options{Addr: node.Addr(), Username: user, Password: password, MaxRetries: -1})
			defer func() { Expect(client.Close()).To(Succeed()) }()
			return client.Ping(ctx).Err()
		}
		Expect(as("ann", "pw")).To(Succeed())
		Expect(as("", "wrong")).To(MatchError(ContainSubstring("WRONGPASS")))
		Expect(as("", "")).To(MatchError(ContainSubstring("NOAUTH")))
	}, NodeTimeout(time.Minute))

	It("takes one more master, moves slots with their keys, and lets the node go again", func(ctx SpecContext) {
		cluster := redistest.Start(ctx, GinkgoT(), redistest.Options{Password: "secret"})
		Expect(cluster.Client().Set(ctx, key, "v", 0).Err()).To(Succeed())
		old, err := cluster.MasterOf(ctx, key)
		Expect(err).NotTo(HaveOccurred())
		slot, err := cluster.Client().ClusterKeySlot(ctx, key).Result()
		Expect(err).NotTo(HaveOccurred())
		added, err := cluster.AddMaster(ctx)
		Expect(err).NotTo(HaveOccurred())

		for _, way := range []redistest.SlotMove{{Slot: int(slot), From: old, To: added}, {Slot: int(slot), From: added, To: old}} {
			Expect(way.Begin(ctx)).To(Succeed())
			Expect(cluster.Client().Get(ctx, key).Result()).To(Equal("v"))
			Expect(way.Finish(ctx)).To(Succeed())
			Expect(cluster.WaitHealthy(ctx)).To(Succeed())
			Expect(cluster.MasterOf(ctx, key)).To(BeIdenticalTo(way.To))
			Expect(cluster.Client().Get(ctx, key).Result()).To(Equal("v"))
		}
		Expect(cluster.Remove(ctx, added)).To(Succeed())
		Expect(cluster.Nodes).To(HaveLen(6))
	}, NodeTimeout(time.Minute))

	It("moves a node to another address", func(ctx SpecContext) {
		cluster := redistest.Start(ctx, GinkgoT(), redistest.Options{Persist: true})
		Expect(cluster.Client().Set(ctx, key, "v", 0).Err()).To(Succeed())
		master, err := cluster.MasterOf(ctx, key)
		Expect(err).NotTo(HaveOccurred())
		before := master.Addr()
		Expect(master.MoveAddr(ctx)).To(Succeed())
		Expect(master.Addr()).NotTo(Equal(before))
		Expect(cluster.WaitHealthy(ctx)).To(Succeed())
		Eventually(func() (string, error) { return cluster.Client().Get(ctx, key).Result() }, "20s").Should(Equal("v"))
	}, NodeTimeout(time.Minute))

	It("steps a node's clock, forth and back, over a restart too", func(ctx SpecContext) {
		cluster := redistest.Start(ctx, GinkgoT(), redistest.Options{Clock: true})
		node := cluster.Nodes[0]
		ahead := func() time.Duration {
			before := time.Now()
			told, err := node.Client().Time(ctx).Result()
			Expect(err).NotTo(HaveOccurred())
			return told.Sub(before)
		}
		for _, step := range []time.Duration{0, time.Hour, -time.Hour, 1500 * time.Millisecond} {
			Expect(node.StepClock(step)).To(Succeed())
			Expect(ahead()).To(BeNumerically("~", step, 500*time.Millisecond))
		}
		Expect(node.StepClock(time.Minute)).To(Succeed())
		node.Stop()
		Expect(node.Restart(ctx)).To(Succeed())
		Expect(ahead()).To(BeNumerically("~", time.Minute, 500*time.Millisecond))
		Expect(cluster.WaitHealthy(ctx)).To(Succeed())
	}, NodeTimeout(time.Minute))

	It("speaks TLS to clients that have a certificate", func(ctx SpecContext) {
		cluster := redistest.Start(ctx, GinkgoT(), redistest.Options{TLS: true})
		Expect(cluster.Client().Set(ctx, key, "v", 0).Err()).To(Succeed())
		plain := redis.NewClient(&redis.Options{Addr: cluster.Nodes[0].Addr(), MaxRetries: -1})
		DeferCleanup(plain.Close)
		Expect(plain.Ping(ctx).Err()).To(HaveOccurred())
	}, NodeTimeout(time.Minute))

	It("says what to install where redis-server is missing", func(ctx SpecContext) {
		GinkgoT().Setenv("PATH", GinkgoT().TempDir())
		test := newScope()
		Expect(func() { redistest.Start(ctx, test, redistest.Options{}) }).To(PanicWith(ContainSubstring("apt-get install redis-server")))
	})
})
