package flusher_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/internal/redisclient"
	"github.com/portero-dev/portero/internal/redistest"
	"github.com/portero-dev/portero/sidecar/internal/failover"
	"github.com/portero-dev/portero/sidecar/internal/flusher"
)

var calls = regexp.MustCompile(`cmdstat_fcall:calls=(\d+)`)

// executed is how many verdicts a node ran since the spec began.
func executed(ctx context.Context, node *redistest.Node) int {
	GinkgoHelper()
	info, err := node.Client().Info(ctx, "commandstats").Result()
	Expect(err).NotTo(HaveOccurred())
	found := calls.FindStringSubmatch(info)
	if found == nil {
		return 0
	}
	n, err := strconv.Atoi(found[1])
	Expect(err).NotTo(HaveOccurred())
	return n
}

// halt stops a node, and has it stopped when it returns: on a busy machine the signal takes its time. What it returns lets
// the node go on, which happens anyway when the spec has ended.
func halt(node *redistest.Node) (resume func()) {
	GinkgoHelper()
	Expect(node.Signal(syscall.SIGSTOP)).To(Succeed())
	resume = sync.OnceFunc(func() { Expect(node.Signal(syscall.SIGCONT)).To(Succeed()) })
	DeferCleanup(resume)
	Eventually(os.ReadFile).WithArguments(fmt.Sprintf("/proc/%d/stat", node.PID())).Should(ContainSubstring(") T "))
	return resume
}

var _ = Describe("Flusher", func() {
	It("brings the shared bucket's verdict and level", func(ctx SpecContext) {
		f := ready(ctx)
		group := bucket("level", 2)
		for _, left := range []int64{1, 0} {
			answer := ask(f, group)
			Expect(answer.Err).NotTo(HaveOccurred())
			Expect(answer.Charges).To(HaveLen(1))
			Expect(answer.Charges[0].Allowed).To(BeTrue())
			Expect(answer.Charges[0].Level.Tokens).To(Equal(left))
		}
		Expect(ask(f, group).Charges[0].Allowed).To(BeFalse())
	})

	It("has its connections before the first verdict, whose budget pays for none", func(ctx SpecContext) {
		client := redisclient.NewVerdict(redisclient.Options{Addrs: cluster.Addrs()})
		f, _ := run(ctx, client)
		Eventually(f.Masters).Should(HaveLen(3))
		before := client.PoolStats()
		for i := range 30 {
			Expect(ask(f, bucket(fmt.Sprint("warm-", i), 1)).Err).NotTo(HaveOccurred())
		}
		after := client.PoolStats()
		Expect(after.Misses).To(Equal(before.Misses), "a miss is a dial on demand")
		Expect(after.TotalConns).To(Equal(before.TotalConns))
	})

	It("tells when the bucket knows a newer limit", func(ctx SpecContext) {
		f := ready(ctx)
		ask(f, bucket("newer", 5))
		older := bucket("newer", 50)
		older.Policy.Record.Order = 6
		answer := ask(f, older)
		Expect(answer.Charges[0].Stale).To(BeTrue())
		Expect(answer.Charges[0].Params.Capacity).To(Equal(int64(5)))
		Expect(answer.Charges[0].Level.Tokens).To(Equal(int64(3)))
	})

	It("shares one bucket among flushers, and runs each verdict once", func(ctx SpecContext) {
		const asking, capacity = 300, 100
		flushers := []*flusher.Flusher{ready(ctx), ready(ctx)}
		var allowed, failed atomic.Int64
		var group sync.WaitGroup
		for i := range asking {
			group.Go(func() {
				answers := make(chan failover.Answer, 1)
				f := flushers[i%len(flushers)]
				place, _ := f.Locate("shared")
				f.Ask(place, bucket("shared", capacity), 0, answers)
				switch answer := <-answers; {
				case answer.Err != nil:
					failed.Add(1)
				case answer.Charges[0].Allowed:
					allowed.Add(1)
				}
			})
		}
		group.Wait()
		Expect(failed.Load()).To(BeZero())
		Expect(allowed.Load()).To(Equal(int64(capacity)))
		Expect(executed(ctx, node(ctx, "shared"))).To(Equal(asking))
	})

	It("asks nothing and dials nothing on a request before the first topology", func(ctx SpecContext) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		Expect(err).NotTo(HaveOccurred())
		addr := listener.Addr().String()
		Expect(listener.Close()).To(Succeed())
		f := start(ctx, redisclient.Options{Addrs: []string{addr}})
		started := time.Now()
		for i := range 1000 {
			_, known := f.Locate(fmt.Sprint(i))
			Expect(known).To(BeFalse())
		}
		Expect(time.Since(started)).To(BeNumerically("<", time.Second))
		Expect(f.Masters()).To(BeEmpty())
	})

	Describe("while a master hangs", func() {
		It("never sends what was withdrawn, and still reads what was late", func(ctx SpecContext) {
			f := ready(ctx)
			ask(f, bucket("hang", 100)) // a connection is there
			master := node(ctx, "hang")
			resume := halt(master)

			// Each lane takes one question; the third stays queued.
			answers := make(chan failover.Answer, 3)
			var questions []failover.Question
			for range 2 {
				question := f.Ask(locate(f, "hang"), bucket("hang", 100), 0, answers)
				questions = append(questions, question)
				Eventually(func() int { return f.Queued(master.Addr()) }).Should(BeZero())
			}
			third := f.Ask(locate(f, "hang"), bucket("hang", 100), 0, answers)
			Expect(third.Withdraw()).To(BeTrue())
			Expect(third.Withdraw()).To(BeFalse(), "once is enough")
			for _, question := range questions {
				Expect(question.Withdraw()).To(BeFalse(), "it was sent")
			}

			resume()
			for range 2 {
				var answer failover.Answer
				Eventually(answers).Should(Receive(&answer))
				Expect(answer.Err).NotTo(HaveOccurred())
			}
			Expect(ask(f, bucket("hang", 100)).Charges[0].Level.Tokens).To(Equal(int64(96)), "the withdrawn one took nothing")
			Consistently(answers, "100ms").ShouldNot(Receive())
		})

		It("leaves the other masters alone", func(ctx SpecContext) {
			f := ready(ctx)
			ask(f, bucket("hang", 100))
			halted := node(ctx, "hang")
			halt(halted)
			answers := make(chan failover.Answer, 50)
			for range 50 {
				f.Ask(locate(f, "hang"), bucket("hang", 100), 0, answers)
			}
			other := ""
			for i := 0; other == ""; i++ {
				if tag := fmt.Sprint("other", i); locate(f, tag).Master != halted.Addr() {
					other = tag
				}
			}
			Expect(ask(f, bucket(other, 100)).Err).NotTo(HaveOccurred())
		})
	})

	It("follows a failover", func(ctx SpecContext) {
		f := ready(ctx)
		ask(f, bucket("failover", 100))
		before := f.Masters()
		promoted, err := cluster.Failover(ctx, instance.Bucket(namespace, "failover"))
		Expect(err).NotTo(HaveOccurred())
		Expect(ask(f, bucket("failover", 100)).Err).NotTo(HaveOccurred(), "by the redirection of the old master")
		Eventually(func(g Gomega) {
			g.Expect(f.Reload(ctx)).To(Succeed())
			g.Expect(f.Masters()).To(ContainElement(promoted.Addr()))
		}, "5s").Should(Succeed())
		Expect(before).NotTo(ContainElement(promoted.Addr()))
		Expect(locate(f, "failover").Master).To(Equal(promoted.Addr()))
		Expect(ask(f, bucket("failover", 100)).Err).NotTo(HaveOccurred())
	})

	It("answers everybody when it ends", func(ctx SpecContext) {
		f, stop := startStoppable(ctx, redisclient.Options{Addrs: cluster.Addrs()})
		Eventually(f.Masters).Should(HaveLen(3))
		place := locate(f, "end")
		answers := make(chan failover.Answer, 101)
		for range 100 {
			f.Ask(place, bucket("end", 1000), 0, answers)
		}
		stop()
		Expect(answers).To(HaveLen(100))
		f.Ask(place, bucket("end", 1000), 0, answers)
		for range 100 {
			Expect((<-answers).Err).NotTo(HaveOccurred())
		}
		Expect((<-answers).Err).To(MatchError(flusher.ErrClosed))
	})
})
