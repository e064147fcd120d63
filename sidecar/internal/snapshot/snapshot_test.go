package snapshot_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/configstore"
	"github.com/portero-dev/portero/internal/ratelimit"
	"github.com/portero-dev/portero/sidecar/internal/snapshot"
)

func record(name string, generation int64, change ...func(*bucketconfig.Record)) *bucketconfig.Record {
	r := &bucketconfig.Record{
		Schema: bucketconfig.SchemaVersion, Kind: bucketconfig.Kind,
		Name: name, UID: "uid-of-" + name, Generation: generation, Order: generation,
		Limits: []bucketconfig.Limit{{
			Name: "all", Cost: 1, Bucket: bucketconfig.Bucket{Capacity: 10, RefillTokens: 1, RefillIntervalUS: 1_000_000},
			KeyParts: []bucketconfig.KeyPart{{Type: "Header", Name: "X-Api-Key", WhenMissing: "Share"}},
		}},
		Store:    bucketconfig.Store{TimeoutUS: 10_000, OnFailure: "Local"},
		Response: bucketconfig.Response{RateLimitHeaders: "Standard", StatusCode: 429},
	}
	for _, c := range change {
		c(r)
	}
	return r
}

func selecting(key, value string) func(*bucketconfig.Record) {
	return func(r *bucketconfig.Record) { r.Selector.MatchLabels = map[string]string{key: value} }
}

func stored(revision string, records ...*bucketconfig.Record) *configstore.Snapshot {
	s := &configstore.Snapshot{Revision: revision, Policies: map[string]configstore.StoredPolicy{}}
	for _, r := range records {
		s.Policies[r.Name] = configstore.StoredPolicy{Record: r, Share: bucketconfig.Share{Sidecars: 3}}
	}
	return s
}

var _ = Describe("Keeper", func() {
	var (
		keeper  *snapshot.Keeper
		changes atomic.Int64
	)
	BeforeEach(func() {
		changes.Store(0)
		keeper = snapshot.New(snapshot.Options{
			Log:     slog.New(slog.NewTextHandler(GinkgoWriter, nil)),
			Changed: func() { changes.Add(1) },
		})
		keeper.SetKeySecret([]byte(strings.Repeat("k", 32)))
		keeper.SetLabels(map[string]string{"app": "checkout"})
	})
	tag := func() string {
		description := keeper.Current().Set.Describe(&ratelimit.Request{Method: "GET", Path: "/", Header: http.Header{"X-Api-Key": {"a"}}})
		return description.Groups[0].Tag
	}

	offered := func(sidecars int, records ...*bucketconfig.Record) (policies []bucketconfig.Bundled) {
		for _, r := range records {
			policies = append(policies, bucketconfig.Bundled{Name: r.Name, Record: r, Share: bucketconfig.Share{Sidecars: sidecars}})
		}
		return policies
	}

	It("enforces what the Secret holds until Redis has answered, and never after", func() {
		keeper.Offer(offered(4, record("mine", 1, selecting("app", "checkout")), record("other", 1, selecting("app", "cart"))))
		Expect(keeper.Current().Source).To(Equal(snapshot.FromSecret))
		Expect(keeper.Current().Generations()).To(Equal(map[string]int64{"mine": 1}))
		Expect(keeper.Current().Sidecars("mine")).To(Equal(4))
		Expect(keeper.Current().Revision).To(BeEmpty())
		Expect(keeper.Tried()).NotTo(BeClosed(), "Redis may still answer in time")

		keeper.Offer(append(offered(5, record("new", 1)), bucketconfig.Bundled{Name: "mine", Err: errors.New("spoilt")}))
		Expect(keeper.Current().Generations()).To(Equal(map[string]int64{"mine": 1, "new": 1}), "the last good one stays")
		Expect(keeper.Current().Refused).To(ConsistOf(bucketconfig.RefusedPolicy{Name: "mine", Reason: "spoilt"}))
		keeper.Offer(offered(5, record("new", 1)))
		Expect(keeper.Current().Generations()).To(Equal(map[string]int64{"new": 1}))

		keeper.Apply(stored("7", record("redis", 3)))
		Expect(keeper.Current().Source).To(Equal(snapshot.FromRedis))
		keeper.Offer(offered(5, record("new", 2)))
		Expect(keeper.Current().Generations()).To(Equal(map[string]int64{"redis": 3}))
		Expect(keeper.Current().Revision).To(Equal("7"))
	})

	It("follows the Secret's shares while Redis can't be asked, and only to smaller parts", func() {
		keeper.Apply(stored("7", record("redis", 3))) // by three sidecars
		keeper.Offer(offered(5, record("redis", 9), record("new", 2)))
		Expect(keeper.Current().Sidecars("redis")).To(Equal(5))
		Expect(keeper.Current().Generations()).To(Equal(map[string]int64{"redis": 3}))
		keeper.Offer(offered(2, record("redis", 9)))
		Expect(keeper.Current().Sidecars("redis")).To(Equal(5))
		keeper.Apply(stored("8", record("redis", 3)))
		Expect(keeper.Current().Sidecars("redis")).To(Equal(3))
	})

	It("has nothing in force at first", func() {
		Expect(keeper.Current().Source).To(Equal(snapshot.None))
		Expect(keeper.Current().Generations()).To(BeEmpty())
		Expect(keeper.Current().Revision).To(BeEmpty())
		Expect(keeper.Confirmed()).To(BeZero())
	})

	It("brings into force what selects the pod, and takes away what is gone", func() {
		keeper.Apply(stored("1", record("mine", 1, selecting("app", "checkout")), record("all", 4), record("other", 1, selecting("app", "cart"))))
		Expect(keeper.Current().Generations()).To(Equal(map[string]int64{"mine": 1, "all": 4}))
		Expect(keeper.Current().Revision).To(Equal("1"))
		Expect(keeper.Current().Sidecars("mine")).To(Equal(3))
		Expect(keeper.Current().Sidecars("unheard-of")).To(Equal(1))

		keeper.Apply(stored("2", record("all", 5)))
		Expect(keeper.Current().Generations()).To(Equal(map[string]int64{"all": 5}))
	})

	It("follows the pod's labels", func() {
		keeper.Apply(stored("1", record("other", 1, selecting("app", "cart"))))
		Expect(keeper.Current().Generations()).To(BeEmpty())
		keeper.SetLabels(map[string]string{"app": "cart"})
		Expect(keeper.Current().Generations()).To(HaveKey("other"))
		Expect(keeper.Current().Sidecars("other")).To(Equal(3))
		before := changes.Load()
		keeper.SetLabels(map[string]string{"app": "cart"})
		Expect(changes.Load()).To(Equal(before), "the same labels are no change")
	})

	It("means other buckets by another key secret", func() {
		keeper.Apply(stored("1", record("all", 1)))
		before := tag()
		keeper.SetKeySecret([]byte(strings.Repeat("k", 32)))
		Expect(tag()).To(Equal(before))
		keeper.SetKeySecret([]byte(strings.Repeat("x", 32)))
		Expect(tag()).NotTo(Equal(before))
	})

	DescribeTable("keeps the last good version of what it can't use, leaves the others alone, and says why",
		func(spoil func(*configstore.StoredPolicy), reason string) {
			good := record("spoiled", 1)
			keeper.Apply(stored("1", good, record("other", 1)))
			next := stored("2", good, record("other", 2))
			policy := next.Policies["spoiled"]
			spoil(&policy)
			next.Policies["spoiled"] = policy
			keeper.Apply(next)
			Expect(keeper.Current().Generations()).To(Equal(map[string]int64{"spoiled": 1, "other": 2}))
			Expect(keeper.Current().Refused).To(HaveLen(1))
			Expect(keeper.Current().Refused[0].Name).To(Equal("spoiled"))
			Expect(keeper.Current().Refused[0].Reason).To(ContainSubstring(reason))
			Expect(len(keeper.Current().Refused[0].Reason)).To(BeNumerically("<=", bucketconfig.MaxReason))

			keeper.Apply(stored("3", record("spoiled", 3), record("other", 2)))
			Expect(keeper.Current().Generations()).To(Equal(map[string]int64{"spoiled": 3, "other": 2}))
			Expect(keeper.Current().Refused).To(BeEmpty())
		},
		Entry("a record that can't be read", func(p *configstore.StoredPolicy) {
			p.Err = &bucketconfig.VersionError{Version: 9}
		}, "version 9"),
		Entry("a reason without end", func(p *configstore.StoredPolicy) {
			p.Err = errors.New(strings.Repeat("ä", bucketconfig.MaxReason))
		}, "ä"),
		Entry("a record that can't be compiled", func(p *configstore.StoredPolicy) {
			p.Record = record("spoiled", 2, func(r *bucketconfig.Record) {
				r.Limits[0].Matches = []bucketconfig.Match{{Path: &bucketconfig.StringMatch{Type: "RegularExpression", Value: "("}}}
			})
		}, "path"),
		Entry("a condition that can't be compiled here", func(p *configstore.StoredPolicy) {
			p.Record = record("spoiled", 2, func(r *bucketconfig.Record) {
				r.Limits[0].Matches = []bucketconfig.Match{{When: "request.tomorrow == ''"}}
			})
		}, "undefined field 'tomorrow'"),
		Entry("a part of a key that can't be compiled here", func(p *configstore.StoredPolicy) {
			p.Record = record("spoiled", 2, func(r *bucketconfig.Record) {
				r.Limits[0].KeyParts = []bucketconfig.KeyPart{{Type: "Expression", Name: "request.port", WhenMissing: "Share"}}
			})
		}, "must give a string"),
		Entry("a condition that costs too much here", func(p *configstore.StoredPolicy) {
			p.Record = record("spoiled", 2, func(r *bucketconfig.Record) {
				r.Exempt = []bucketconfig.Match{{When: "request.headers.all(g, request.headers.all(h, request.headers[g] != request.headers[h]))"}}
			})
		}, "of CEL's units"),
	)

	It("goes on with the last good version when labels or the key secret change while the next can't be used", func() {
		keeper.Apply(stored("1", record("spoiled", 1, selecting("app", "checkout")), record("other", 1)))
		bad := record("spoiled", 2, func(r *bucketconfig.Record) { r.Limits[0].Matches = []bucketconfig.Match{{When: "request.tomorrow"}} })
		keeper.Apply(stored("2", bad, record("other", 1)))
		before := tag()
		keeper.SetKeySecret([]byte(strings.Repeat("x", 32)))
		Expect(tag()).NotTo(Equal(before))
		keeper.SetLabels(map[string]string{"app": "cart"})
		Expect(keeper.Current().Generations()).To(Equal(map[string]int64{"other": 1}), "its selector counts, not the bad one's")
		keeper.SetLabels(map[string]string{"app": "checkout"})
		Expect(keeper.Current().Generations()).To(Equal(map[string]int64{"spoiled": 1, "other": 1}))
		Expect(keeper.Current().Refused).To(HaveLen(1))
	})

	It("has nothing of a policy whose first record can't be used", func() {
		next := stored("1", record("spoiled", 1))
		next.Policies["spoiled"] = configstore.StoredPolicy{Err: errors.New("no record")}
		keeper.Apply(next)
		Expect(keeper.Current().Generations()).To(BeEmpty())
		Expect(keeper.Current().Refused).To(HaveLen(1))

		bad := record("spoiled", 2, func(r *bucketconfig.Record) { r.Exempt = []bucketconfig.Match{{When: "request.tomorrow"}} })
		keeper.Apply(stored("2", bad, record("other", 1)))
		Expect(keeper.Current().Generations()).To(Equal(map[string]int64{"other": 1}))
		Expect(keeper.Current().Refused).To(HaveLen(1))
	})
})

// shelf is a Reader in this process.
type shelf struct {
	mu    sync.Mutex
	next  *configstore.Snapshot
	err   error
	reads int
	news  chan struct{}
}

func (s *shelf) Update(_ context.Context, old *configstore.Snapshot) (*configstore.Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	if s.err != nil {
		return nil, s.err
	}
	if old != nil && old.Revision == s.next.Revision {
		return old, nil
	}
	return s.next, nil
}

func (s *shelf) Subscribe(ctx context.Context, _ *slog.Logger) <-chan struct{} {
	context.AfterFunc(ctx, func() { close(s.news) })
	return s.news
}

func (s *shelf) put(next *configstore.Snapshot, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next, s.err = next, err
}

var _ = Describe("Follow", func() {
	var (
		keeper *snapshot.Keeper
		reader *shelf
	)
	BeforeEach(func(ctx SpecContext) {
		keeper = snapshot.New(snapshot.Options{Log: slog.New(slog.NewTextHandler(GinkgoWriter, nil)), Changed: func() {}})
		reader = &shelf{news: make(chan struct{}, 1), next: stored("1", record("checkout", 1))}
	})
	follow := func(ctx context.Context) {
		ctx, stop := context.WithCancel(ctx)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			keeper.Follow(ctx, reader)
		}()
		DeferCleanup(func() {
			stop()
			Eventually(ended).Should(BeClosed())
		})
	}
	generation := func() int64 { return keeper.Current().Generations()["checkout"] }

	It("reads at once, and again when told", func(ctx SpecContext) {
		follow(ctx)
		Eventually(keeper.Tried()).Should(BeClosed())
		Eventually(generation).Should(Equal(int64(1)))
		Expect(keeper.Confirmed()).NotTo(BeZero())

		reader.put(stored("2", record("checkout", 2)), nil)
		reader.news <- struct{}{}
		Eventually(generation).Should(Equal(int64(2)))

		reader.put(stored("3", record("checkout", 3)), nil)
		keeper.Refresh()
		Eventually(generation).Should(Equal(int64(3)))
	})

	It("keeps what is in force where nothing is stored or can be read", func(ctx SpecContext) {
		follow(ctx)
		Eventually(generation).Should(Equal(int64(1)))
		for _, err := range []error{configstore.ErrLost, configstore.ErrUnreachable} {
			reader.put(nil, err)
			keeper.Refresh()
			Consistently(generation, "150ms").Should(Equal(int64(1)))
		}
		reader.put(stored("2"), nil)
		keeper.Refresh()
		Eventually(generation).Should(BeZero(), "a revision without the policy takes it away")
	})

	It("heeds the Secret's shares once Redis was silent for long, also those told earlier in the silence", func(ctx SpecContext) {
		keeper = snapshot.New(snapshot.Options{Log: slog.New(slog.NewTextHandler(GinkgoWriter, nil)), Changed: func() {}, Unheard: 2 * time.Second})
		sidecars := func() int { return keeper.Current().Sidecars("checkout") }
		offer := func(n int) {
			keeper.Offer([]bucketconfig.Bundled{{Name: "checkout", Record: record("checkout", 1), Share: bucketconfig.Share{Sidecars: n}}})
		}
		follow(ctx)
		Eventually(sidecars).Should(Equal(3))
		reader.put(nil, configstore.ErrUnreachable)
		offer(7)
		Expect(sidecars()).To(Equal(3), "Redis may know better, and was asked just now")
		keeper.Refresh()
		Eventually(sidecars, "10s").Should(Equal(7))
	})

	It("has tried once Redis answered, be it that nothing is stored", func(ctx SpecContext) {
		reader.put(nil, configstore.ErrUnreachable)
		follow(ctx)
		Consistently(keeper.Tried(), "150ms").ShouldNot(BeClosed())
		reader.put(nil, configstore.ErrLost)
		keeper.Refresh()
		Eventually(keeper.Tried()).Should(BeClosed())
		Expect(keeper.Confirmed()).To(BeZero())
	})

	It("is deaf to Refresh for a while after it found nothing new, and never to news", func(ctx SpecContext) {
		follow(ctx)
		Eventually(generation).Should(Equal(int64(1)))
		reads := func() int {
			reader.mu.Lock()
			defer reader.mu.Unlock()
			return reader.reads
		}
		keeper.Refresh()
		Eventually(reads).Should(Equal(2))
		for range 3 {
			keeper.Refresh()
			Consistently(reads, "150ms").Should(Equal(2))
		}
		reader.put(stored("2", record("checkout", 2)), nil)
		reader.news <- struct{}{}
		Eventually(generation).Should(Equal(int64(2)))
	})

	It("leaves to its successor what it read when it was replaced", func(ctx SpecContext) {
		replaced, replace := context.WithCancel(ctx)
		reader.put(stored("old", record("checkout", 1)), nil)
		keeper.Apply(stored("new", record("checkout", 2)))
		replace()
		keeper.Follow(replaced, reader)
		Expect(generation()).To(Equal(int64(2)))
	})

	It("takes many news in few readings", func(ctx SpecContext) {
		follow(ctx)
		Eventually(generation).Should(Equal(int64(1)))
		for range 1000 {
			keeper.Refresh()
		}
		Consistently(func() int {
			reader.mu.Lock()
			defer reader.mu.Unlock()
			return reader.reads
		}, "150ms").Should(BeNumerically("<=", 4))
	})
})
