//go:build e2e

package faults_test

import (
	"context"
	"math/rand/v2"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/hack/testapp/load"
)

// soakTime is how long faults follow each other.
const soakTime = 10 * time.Minute

var _ = Describe("Soak", Label("soak"), func() {
	It("survives ten minutes of random faults without a leak, and without drift between what passed and what is left", func(ctx SpecContext) {
		user, userPassword = credentials(ctx)
		before := rest(ctx)
		faults := allFaults()
		random := rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), 0))
		for end := time.Now().Add(soakTime); time.Now().Before(end); {
			f := faults[random.IntN(len(faults))]
			By(f.name)
			for mode, c := range judge(f, observe(ctx, f)) {
				Expect(c.wrong).To(BeEmpty(), "%s, %s", f.name, mode)
			}
		}
		after := rest(ctx)
		for i := range pods {
			Expect(after[i].goroutines).To(BeNumerically("<=", before[i].goroutines+8), pods[i].name)
			Expect(after[i].rss).To(BeNumerically("<=", maxGrowth*before[i].rss), pods[i].name)
		}
		for _, mode := range modes {
			for _, p := range pods {
				// Nobody has spent for long enough: the bucket is full, neither more nor less.
				report := load.Run(ctx, load.Options{
					URLs: []string{p.url + path(mode)}, Clients: []load.Client{{Name: "client-0", Headers: http.Header{"X-Api-Key": {"client-0"}}}},
					Concurrency: 1, Duration: 5 * time.Second, Requests: 2 * capacity, Timeout: time.Second, Method: http.MethodGet,
				})
				Expect(report.Total.Passed).To(BeNumerically("~", capacity+rate*report.ElapsedSeconds, 1), "%s of %s", mode, p.name)
				pause(ctx, (capacity/rate+1)*time.Second)
			}
		}
	}, SpecTimeout(soakTime+10*time.Minute))
})

// rest waits until what served the last load is gone, and answers what each sidecar then has.
func rest(ctx context.Context) []sample {
	GinkgoHelper()
	pause(ctx, (capacity/rate+2)*time.Second)
	var all []sample
	for _, p := range pods {
		s, err := p.sample()
		Expect(err).NotTo(HaveOccurred())
		all = append(all, s)
	}
	return all
}
