package sidecars_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/configstore"
	"github.com/portero-dev/portero/internal/redisclient"
)

// buildPrevious builds the sidecar of the last commit of the schema version before, from this clone's history.
func buildPrevious(ctx context.Context) string {
	GinkgoHelper()
	recorded, err := os.ReadFile("previous-commit")
	Expect(err).NotTo(HaveOccurred())
	commit := strings.TrimSpace(string(recorded))
	if exec.CommandContext(ctx, "git", "cat-file", "-e", commit+"^{commit}").Run() != nil { // a shallow clone
		output, err := exec.CommandContext(ctx, "git", "fetch", "--depth=1", "origin", commit).CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), "commit %s of hack/sidecars/previous-commit is neither here nor at origin: %s", commit, output)
	}
	tree := GinkgoT().TempDir()
	archive := exec.CommandContext(ctx, "git", "-C", "../..", "archive", commit)
	pipe(ctx, GinkgoWriter, archive, exec.CommandContext(ctx, "tar", "-x", "-C", tree))
	// How a sidecar is run outside of a pod is of today.
	command, err := os.ReadFile("../faults/sidecar/main.go")
	Expect(err).NotTo(HaveOccurred())
	Expect(os.MkdirAll(filepath.Join(tree, "hack/previous"), 0o700)).To(Succeed())
	Expect(os.WriteFile(filepath.Join(tree, "hack/previous/main.go"), command, 0o600)).To(Succeed())
	return build(ctx, tree, "./hack/previous", "previous")
}

// ask asks the app as the client of a key, and answers the status.
func (p *pod) ask(ctx context.Context, key string) (int, error) {
	return p.send(ctx, "/page", map[string]string{keyHeader: key})
}

// passed is how many of n requests for a key pass, by pods in turn; each other one must have been refused for the limit.
func passed(ctx context.Context, n int, key string, pods ...*pod) int {
	GinkgoHelper()
	count := 0
	for i := range n {
		status, err := pods[i%len(pods)].ask(ctx, key)
		Expect(err).NotTo(HaveOccurred())
		Expect(status).To(BeElementOf(http.StatusOK, http.StatusTooManyRequests))
		if status == http.StatusOK {
			count++
		}
	}
	return count
}

// beat is the pod's heartbeat, as the manager reads it.
func (p *pod) beat(ctx context.Context, t *tenant) (*bucketconfig.Heartbeat, error) {
	client := redisclient.NewAdmin(redisclient.Options{Addrs: t.cluster.Addrs()})
	defer client.Close()
	beats, err := configstore.NewHeartbeats(client, instance, t.name).Read(ctx, []string{p.uid})
	if err != nil {
		return nil, err
	}
	beat := beats[p.uid]
	if beat.Heartbeat == nil && beat.Err == nil {
		return nil, fmt.Errorf("none of %s", p.uid)
	}
	return beat.Heartbeat, beat.Err
}

// onlyLocal makes a limit something that the version before has no word for, and that changes nothing for these requests.
func onlyLocal(limit bucketconfig.Limit) bucketconfig.Limit {
	limit.Matches = []bucketconfig.Match{{Hosts: []string{"127.0.0.1"}}}
	return limit
}

var _ = Describe("A sidecar of the schema version before", Ordered, func() {
	var (
		previousBinary string
		t              *tenant
		old, current   *pod
	)
	// hourly is the policy's limit at a capacity; it refills a token an hour.
	hourly := func(capacity int64) bucketconfig.Limit { return perHeader("hourly", keyHeader, capacity, hour) }
	both := func(ctx context.Context, generation int64) {
		GinkgoHelper()
		old.applies(ctx, "checkout", generation)
		current.applies(ctx, "checkout", generation)
	}

	BeforeAll(func(ctx SpecContext) { previousBinary = buildPrevious(ctx) }, NodeTimeout(patience*9))

	BeforeEach(func(ctx SpecContext) {
		t = common.newTenant(ctx)
		t.publish(ctx, newRecord("checkout", 1, hourly(20)))
		old, current = start(ctx, previousBinary, t, appAddr), start(ctx, binary, t, appAddr)
		both(ctx, 1)
	})

	It("is one: it says so", func(ctx SpecContext) {
		for p, schema := range map[*pod]int{old: 1, current: 2} {
			Eventually(func() (*bucketconfig.Heartbeat, error) { return p.beat(ctx, t) }, patience).Should(HaveField("Schema", schema))
		}
	})

	It("enforces what it can express, from one bucket with a current one", func(ctx SpecContext) {
		Expect(passed(ctx, 30, "a", old, current)).To(Equal(20))
		Expect(passed(ctx, 19, "b", old)).To(Equal(19))
		Expect(passed(ctx, 5, "b", current)).To(Equal(1))
		Expect(passed(ctx, 19, "c", current)).To(Equal(19))
		Expect(passed(ctx, 5, "c", old)).To(Equal(1))
	})

	It("decides over several limits of one key as a current one does", func(ctx SpecContext) {
		nested := perHeader("daily", keyHeader, 7, 24*hour)
		t.publish(ctx, newRecord("checkout", 2, hourly(20), nested))
		both(ctx, 2)
		Expect(passed(ctx, 30, "a", current, old)).To(Equal(7))
		t.publish(ctx, newRecord("checkout", 3, hourly(20)))
		both(ctx, 3)
		Expect(passed(ctx, 30, "a", old, current)).To(Equal(13), "what the daily limit refused was charged nowhere")
	})

	It("keeps what was spent when a limit changes live, as a current one does", func(ctx SpecContext) {
		Expect(passed(ctx, 15, "a", old, current)).To(Equal(15))
		for i, change := range []struct{ capacity, passes int }{
			{10, 0}, {3, 3}, {50, 0}, // down to more than is left, down to less, up again
		} {
			generation := int64(i + 2)
			t.publish(ctx, newRecord("checkout", generation, hourly(int64(change.capacity))))
			both(ctx, generation)
			if change.passes > 0 {
				Expect(passed(ctx, change.passes+5, "a", old, current)).To(Equal(change.passes))
			}
		}
		Expect(passed(ctx, 6, "a", old, current)).To(BeZero(), "nothing came back")
		Expect(passed(ctx, 60, "b", old, current)).To(Equal(50))
	})

	It("keeps the last state that it can express, and says which, and the newer limit decides", func(ctx SpecContext) {
		Expect(passed(ctx, 1, "lowered", old)).To(Equal(1))
		t.publish(ctx, newRecord("checkout", 2, onlyLocal(hourly(5))))
		current.applies(ctx, "checkout", 2)
		Expect(passed(ctx, 20, "lowered", current, old)).To(Equal(5), "clamped once, and by nobody refilled")
		Expect(passed(ctx, 20, "fresh", current, old)).To(Equal(5))
		Expect(passed(ctx, 10, "olds", old)).To(Equal(10), "what nobody told it, it does not know")
		Expect(passed(ctx, 20, "olds", current, old)).To(Equal(5))

		By("raising it")
		t.publish(ctx, newRecord("checkout", 3, onlyLocal(hourly(40))))
		current.applies(ctx, "checkout", 3)
		Expect(passed(ctx, 6, "lowered", old, current)).To(BeZero())
		Expect(passed(ctx, 60, "raised", current, old)).To(Equal(40), "the old one clamps nothing back")

		By("telling the manager")
		Eventually(func(g Gomega) {
			beat, err := old.beat(ctx, t)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(beat.Applied).To(HaveExactElements(And(HaveField("Name", "checkout"), HaveField("Generation", BeEquivalentTo(1)))))
			beat, err = current.beat(ctx, t)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(beat.Applied).To(HaveExactElements(And(HaveField("Name", "checkout"), HaveField("Generation", BeEquivalentTo(3)))))
		}, patience).Should(Succeed())

		By("coming along once it can express it again")
		t.publish(ctx, newRecord("checkout", 4, hourly(8)))
		both(ctx, 4)
		Expect(passed(ctx, 20, "again", old, current)).To(Equal(8))
	})

	It("passes what it never could express, and says so", func(ctx SpecContext) {
		t.publish(ctx, newRecord("checkout", 1, hourly(20)), newRecord("later", 1, onlyLocal(perHeader("few", keyHeader, 2, hour))))
		current.applies(ctx, "later", 1)
		Expect(passed(ctx, 5, "a", current)).To(Equal(2))
		Expect(passed(ctx, 30, "a", old)).To(Equal(18), "the other policy is enforced")
		Eventually(func() (*bucketconfig.Heartbeat, error) { return old.beat(ctx, t) }, patience).Should(HaveField("Refused",
			HaveExactElements(And(HaveField("Name", "later"), HaveField("Reason", ContainSubstring("upgrade"))))))
	})

	It("neither loses a verdict nor adds a token while limits change under traffic", func(ctx SpecContext) {
		Expect(passed(ctx, 1, "busy", old)).To(Equal(1)) // a bucket without a record would be full at its new size
		var admitted, others, failed atomic.Int64
		var clients sync.WaitGroup
		stop := make(chan struct{})
		for i := range 4 {
			p := []*pod{old, current}[i%2]
			clients.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					switch status, err := p.ask(ctx, "busy"); {
					case err != nil:
						failed.Add(1)
					case status == http.StatusOK:
						admitted.Add(1)
					case status != http.StatusTooManyRequests:
						others.Add(1)
					}
				}
			})
		}
		generation, capacities := int64(1), []int64{400, 100, 300}
		for _, capacity := range capacities {
			for _, words := range []func(bucketconfig.Limit) bucketconfig.Limit{onlyLocal, func(l bucketconfig.Limit) bucketconfig.Limit { return l }} {
				generation++
				t.publish(ctx, newRecord("checkout", generation, words(hourly(capacity))))
				current.applies(ctx, "checkout", generation)
			}
			old.applies(ctx, "checkout", generation)
		}
		close(stop)
		clients.Wait()
		Expect(failed.Load()).To(BeZero())
		Expect(others.Load()).To(BeZero(), "neither the app nor Redis failed anybody")
		Expect(admitted.Load()).To(BeEquivalentTo(19), "the rest of the first size, and nothing of any other")
		for _, p := range []*pod{old, current} {
			Expect(p.scrape(ctx)).To(ContainSubstring(`portero_verdict_duration_seconds_count{source="local"} 0`))
		}
	})
})
