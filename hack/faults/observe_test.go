//go:build e2e

package faults_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	portero "github.com/portero-dev/portero/api/v1alpha1"
	"github.com/portero-dev/portero/hack/testapp/load"
)

const (
	// keys are the clients under each mode, each with a bucket of its own; they spread over all masters.
	keys = 10
	// requestRate is requests per second, over all modes and sidecars: somewhat more than three times what the limits let pass.
	requestRate = 1000
	// steady is how long the load runs before the fault, and after the recovery.
	steady = 3 * time.Second
	// maxRecovery ends the wait for a recovery that does not come.
	maxRecovery = 20 * time.Second
	sampling    = 100 * time.Millisecond
	// socketsEvery is how many samples of a sidecar come with a count of its sockets.
	socketsEvery = 20
)

// observation is what was seen of one fault.
type observation struct {
	began, ended time.Time // of the fault
	// healthy is when every master said cluster_state:ok after it.
	healthy time.Time
	// series are the samples of each sidecar, in their order.
	series [sidecars][]sample
	// loads are what the clients of each mode saw, from before the fault until after the recovery.
	loads map[portero.OnFailure]load.Report
	// hit is the master whose buckets were concerned, and its share of all verdicts; empty when all were.
	hit      string
	hitShare float64
}

// startLoad starts the load of all modes, and answers how to end it.
func startLoad(ctx context.Context) (end func() map[portero.OnFailure]load.Report) {
	ctx, stop := context.WithTimeout(ctx, 90*time.Second)
	reports := map[portero.OnFailure]load.Report{}
	var mu sync.Mutex
	var running sync.WaitGroup
	each := float64(requestRate) / float64(len(modes)*keys)
	for i, mode := range modes {
		options := load.Options{
			Rate: each, Concurrency: 4,
			Duration: 90 * time.Second, Requests: 1 << 20, Timeout: 10 * time.Second, Method: http.MethodGet,
		}
		for _, p := range pods {
			options.URLs = append(options.URLs, p.url+path(mode))
		}
		for i := range keys {
			name := fmt.Sprintf("client-%d", i)
			options.Clients = append(options.Clients, load.Client{Name: name, Headers: http.Header{"X-Api-Key": {name}}})
		}
		apart := seconds(float64(i) / float64(len(modes)*keys) / each)
		running.Go(func() {
			pause(ctx, apart) // so that the modes' clients don't send in step either
			report := load.Run(ctx, options)
			mu.Lock()
			defer mu.Unlock()
			reports[mode] = report
		})
	}
	return func() map[portero.OnFailure]load.Report {
		stop()
		running.Wait()
		return reports
	}
}

// warmUp lets heaps and connections grow to what they need.
func warmUp(ctx context.Context) {
	GinkgoHelper()
	end := startLoad(ctx)
	pause(ctx, 5*time.Second)
	end()
}

// pause waits, while a load runs.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// watch samples a sidecar until told to stop.
func (o *observation) watch(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	for i, p := range pods {
		watching.Go(func() {
			defer GinkgoRecover()
			ticker := time.NewTicker(sampling)
			defer ticker.Stop()
			for n := i * socketsEvery / sidecars; ctx.Err() == nil; n++ {
				s, err := p.sample()
				Expect(err).NotTo(HaveOccurred())
				if n%socketsEvery == 0 {
					s.sockets, err = p.sockets()
					Expect(err).NotTo(HaveOccurred())
				}
				o.series[i] = append(o.series[i], s)
				select {
				case <-ctx.Done():
				case <-ticker.C:
				}
			}
		})
	}
	return func() {
		cancel()
		watching.Wait()
	}
}

// observe runs one fault under load, from healthy to healthy.
func observe(ctx context.Context, f *fault) *observation {
	GinkgoHelper()
	o := &observation{}
	Expect(redis.WaitHealthy(ctx)).To(Succeed())
	expectShared(ctx)
	if f.prepare != nil {
		f.prepare(ctx)
	}
	end := startLoad(ctx)
	defer end()
	stop := o.watch(ctx)
	defer stop()
	pause(ctx, steady)

	if f.one {
		o.hit, o.hitShare = hitShare(ctx)
	}
	o.began = time.Now()
	f.start(ctx)
	repeated(ctx, f)
	f.stop(ctx)
	o.ended = time.Now()
	expectServing(ctx, f)
	o.healthy = time.Now()
	expectShared(ctx)
	pause(ctx, steady)
	stop()
	o.loads = end()
	if f.cleanup != nil {
		f.cleanup(ctx)
	}
	Expect(redis.WaitHealthy(ctx)).To(Succeed())
	return o
}

func repeated(ctx context.Context, f *fault) {
	until := time.After(f.lasting())
	if f.repeat == nil {
		select {
		case <-ctx.Done():
		case <-until:
		}
		return
	}
	ticker := time.NewTicker(f.every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-until:
			return
		case <-ticker.C:
			f.repeat(ctx)
		}
	}
}

// expectShared waits until no sidecar has a breaker open, however long that takes: how long it took is read from the samples.
func expectShared(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		for _, p := range pods {
			s, err := p.sample()
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(s.open).To(BeEmpty())
		}
	}).WithContext(ctx).WithTimeout(maxRecovery).WithPolling(sampling).Should(Succeed())
}

// during are the samples of one sidecar within a time, with one before its start so that differences cover it.
func during(series []sample, from, to time.Time) []sample {
	first, _ := slices.BinarySearchFunc(series, from, func(s sample, t time.Time) int { return s.at.Compare(t) })
	last, _ := slices.BinarySearchFunc(series, to, func(s sample, t time.Time) int { return s.at.Compare(t) })
	return series[max(first-1, 0):last]
}

// verdictsWithin adds up, over all sidecars, the verdicts of a time by how long they took at most.
func (o *observation) verdictsWithin(from, to time.Time) histogram {
	sum := histogram{}
	for _, series := range o.series {
		samples := during(series, from, to)
		if len(samples) == 0 {
			continue
		}
		for edge, count := range samples[len(samples)-1].verdicts {
			sum[edge] += count - samples[0].verdicts[edge]
		}
	}
	return sum
}

// localShare is what part of a sidecar's verdicts of a time was local.
func localShare(from, to sample) float64 {
	local, redis := to.local-from.local, to.redis-from.redis
	return float64(local) / float64(max(1, local+redis))
}

// recovery is how long after a moment the verdicts were shared again in all sidecars: the first moment after which a second passes with no
// more than 2 % of local ones, beyond those that a busy machine made local before the fault. Redis may be shared before every master
// says that it is well.
func (o *observation) recovery(from time.Time) (time.Duration, bool) {
	const noise = 0.02
	latest := time.Duration(0)
	for _, series := range o.series {
		before := during(series, o.began.Add(-steady/2), o.began)
		limit := noise + localShare(before[0], before[len(before)-1])
		after := slices.IndexFunc(series, func(s sample) bool { return !s.at.Before(from) })
		found := false
		for i := max(after, 0); i < len(series) && !found; i++ {
			next := slices.IndexFunc(series[i:], func(later sample) bool { return later.at.Sub(series[i].at) >= time.Second })
			if next < 0 {
				break
			}
			if found = localShare(series[i], series[i+next]) <= limit; found {
				latest = max(latest, series[i].at.Sub(from))
			}
		}
		if !found {
			return 0, false
		}
	}
	return latest, true
}

// String tells, for each sidecar and half second from the start of the load, verdicts by source.
func (o *observation) String() string {
	var out strings.Builder
	fmt.Fprintf(&out, "fault from %s to %s, cluster well at %s\n", o.began.Format(clock), o.ended.Format(clock), o.healthy.Format(clock))
	for i, series := range o.series {
		fmt.Fprintf(&out, "%s:", pods[i].name)
		for j := 5; j < len(series); j += 5 {
			a, b := series[j-5], series[j]
			fmt.Fprintf(&out, " %s redis %d local %d open %d;", b.at.Format(clock), b.redis-a.redis, b.local-a.local, len(b.open))
		}
		fmt.Fprintln(&out)
	}
	return out.String()
}

const clock = "05.0"
