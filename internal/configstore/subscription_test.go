package configstore_test

import (
	"context"
	"log/slog"
	"runtime/pprof"
	"strings"
	"sync"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/portero-dev/portero/internal/configstore"
	"github.com/portero-dev/portero/internal/redistest"
)

// nodeLog notes at which node a subscription stands.
type nodeLog struct {
	slog.Handler
	mutex sync.Mutex
	nodes []string
}

func newNodeLog() *nodeLog { return &nodeLog{Handler: slog.NewTextHandler(GinkgoWriter, nil)} }

func (l *nodeLog) Handle(ctx context.Context, record slog.Record) error {
	if record.Message == "config subscription established" {
		record.Attrs(func(attr slog.Attr) bool {
			if attr.Key == "node" {
				l.mutex.Lock()
				defer l.mutex.Unlock()
				l.nodes = append(l.nodes, attr.Value.String())
			}
			return true
		})
	}
	return l.Handler.Handle(ctx, record)
}

// node is where the subscription stands now, nil before the first.
func (l *nodeLog) node() *redistest.Node {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	for _, node := range cluster.Nodes {
		if len(l.nodes) > 0 && node.Addr() == l.nodes[len(l.nodes)-1] {
			return node
		}
	}
	return nil
}

var _ = Describe("A subscription", func() {
	// subscribe gives the news of a namespace, after those of the subscription itself.
	subscribe := func(ctx context.Context, namespace string) (<-chan struct{}, *nodeLog) {
		GinkgoHelper()
		listening, stop := context.WithCancel(context.WithoutCancel(ctx))
		log := newNodeLog()
		news := newReader(namespace).Subscribe(listening, slog.New(log))
		DeferCleanup(func() {
			stop()
			Eventually(func() bool {
				select {
				case _, open := <-news:
					return open
				default:
					return true
				}
			}).WithTimeout(5 * time.Second).Should(BeFalse())
		})
		Eventually(news).WithTimeout(5*time.Second).Should(Receive(), "news after subscribing")
		return news, log
	}

	It("tells of each publication at once", func(ctx SpecContext) {
		namespace, writer := newNamespace(), newWriter(1)
		news, _ := subscribe(ctx, namespace)
		for generation := range int64(3) {
			publish(ctx, writer, namespace, policy("a", generation+1))
			Eventually(news).WithTimeout(time.Second).Should(Receive())
		}
	})

	It("does not tell when nothing was published, nor of other namespaces", func(ctx SpecContext) {
		namespace, writer := newNamespace(), newWriter(1)
		publish(ctx, writer, namespace, policy("a", 1))
		news, _ := subscribe(ctx, namespace)
		publish(ctx, writer, namespace, policy("a", 1))
		publish(ctx, writer, newNamespace(), policy("a", 1))
		// Longer than a ping and its answer, which are no news either.
		Consistently(news).WithTimeout(3 * time.Second).ShouldNot(Receive())
	})

	It("leaves nothing behind when its context ends", func(ctx SpecContext) {
		for range 5 {
			listening, stop := context.WithCancel(ctx)
			news := newReader(newNamespace()).Subscribe(listening, slog.New(slog.DiscardHandler))
			Eventually(news).WithTimeout(5 * time.Second).Should(Receive())
			stop()
			Eventually(news).WithTimeout(3 * time.Second).Should(BeClosed())
		}
		Eventually(goroutinesOf("configstore.(*subscription)")).WithTimeout(5 * time.Second).Should(BeZero())
	})

	It("ends at once while no node can be reached", func(ctx SpecContext) {
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, DialerRetries: 1})
		DeferCleanup(client.Close)
		listening, stop := context.WithCancel(ctx)
		news := configstore.NewReader(client, instance, "shop").Subscribe(listening, slog.New(slog.DiscardHandler))
		Consistently(news).WithTimeout(500 * time.Millisecond).ShouldNot(Receive())
		stop()
		Eventually(news).WithTimeout(3 * time.Second).Should(BeClosed())
	})

	It("leaves a node that hangs within 5 s, tells anew and hears all that follows", func(ctx SpecContext) {
		namespace := newNamespace()
		news, log := subscribe(ctx, namespace)
		hung := log.node()
		Expect(hung).NotTo(BeNil())
		resume(hung)
		Expect(hung.Signal(syscall.SIGSTOP)).To(Succeed())

		started := time.Now()
		Eventually(news).WithTimeout(5 * time.Second).Should(Receive())
		Expect(log.node()).NotTo(BeIdenticalTo(hung))
		GinkgoWriter.Printf("left the hung node after %s\n", time.Since(started))
		publishAt(ctx, log.node(), namespace)
		Eventually(news).WithTimeout(2 * time.Second).Should(Receive())
	}, SpecTimeout(time.Minute))

	It("leaves a node that dies, tells anew and hears all that follows", func(ctx SpecContext) {
		namespace := newNamespace()
		news, log := subscribe(ctx, namespace)
		dead := log.node()
		Expect(dead).NotTo(BeNil())
		DeferCleanup(func(ctx SpecContext) {
			Expect(dead.Restart(ctx)).To(Succeed())
			Expect(cluster.WaitHealthy(ctx)).To(Succeed())
			loadLibrary(ctx)
		}, NodeTimeout(time.Minute))
		dead.Kill()
		Eventually(news).WithTimeout(2 * time.Second).Should(Receive())
		Expect(log.node()).NotTo(BeIdenticalTo(dead))
		publishAt(ctx, log.node(), namespace)
		Eventually(news).WithTimeout(2 * time.Second).Should(Receive())
	}, SpecTimeout(time.Minute))

	It("hears all that follows a failover of the namespace's master", func(ctx SpecContext) {
		namespace, writer := newNamespace(), newWriter(1)
		publish(ctx, writer, namespace, policy("a", 1))
		news, _ := subscribe(ctx, namespace)
		for generation := range int64(2) {
			Eventually(func() error {
				// Redis gives up one after 5 s without a word, as when the replica has come back just now.
				attempt, cancel := context.WithTimeout(ctx, 8*time.Second)
				defer cancel()
				_, err := cluster.Failover(attempt, instance.Config(namespace))
				return err
			}).WithTimeout(time.Minute).Should(Succeed())
			Eventually(func(g Gomega) {
				_, err := writer.Publish(ctx, namespace, configstore.Publication{Policies: []configstore.Policy{policy("a", generation+2)}})
				g.Expect(err).NotTo(HaveOccurred())
			}).WithTimeout(10 * time.Second).Should(Succeed())
			Eventually(news).WithTimeout(2 * time.Second).Should(Receive())
		}
		Expect(cluster.WaitHealthy(ctx)).To(Succeed())
	}, SpecTimeout(2*time.Minute))

	It("comes back when its connection was cut", func(ctx SpecContext) {
		namespace, writer := newNamespace(), newWriter(1)
		news, log := subscribe(ctx, namespace)
		node := log.node()
		Expect(node.Client().Do(ctx, "client", "kill", "type", "pubsub").Err()).To(Succeed())
		Eventually(news).WithTimeout(5 * time.Second).Should(Receive())
		publish(ctx, writer, namespace, policy("a", 1))
		Eventually(news).WithTimeout(time.Second).Should(Receive())
	})
})

// publishAt tells news at another node than one that is away: neither the namespace's nor the index's master matters.
func publishAt(ctx SpecContext, node *redistest.Node, namespace string) {
	GinkgoHelper()
	Expect(node.Client().Publish(ctx, instance.ConfigChannel(namespace), "1").Err()).To(Succeed())
}

// resume wakes a node after the spec and waits until the cluster has it back.
func resume(node *redistest.Node) {
	DeferCleanup(func(ctx SpecContext) {
		Expect(node.Signal(syscall.SIGCONT)).To(Succeed())
		Expect(cluster.WaitHealthy(ctx)).To(Succeed())
		loadLibrary(ctx)
	}, NodeTimeout(time.Minute))
}

// goroutinesOf counts the goroutines that stand in a function.
func goroutinesOf(function string) func() int {
	return func() int {
		var text strings.Builder
		_ = pprof.Lookup("goroutine").WriteTo(&text, 2)
		return strings.Count(text.String(), function)
	}
}
