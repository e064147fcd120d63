package publisher_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	"github.com/portero-dev/portero/controllers/publisher"
	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/configstore"
	"github.com/portero-dev/portero/internal/keyspace"
	"github.com/portero-dev/portero/internal/testenv"
	"github.com/portero-dev/portero/internal/translator"
)

const instance = keyspace.Instance("publisher")

// store is the real Redis, as the manager's link reaches it, and counts publications.
type store struct {
	publications atomic.Int32
	// away makes it fail like a Redis that is gone.
	away error
	// hangs are the namespaces whose publication does not answer; unlisted fails the list of all namespaces.
	hangs    map[string]bool
	unlisted error
	// during is called at the beginning of a publication.
	during func()
}

func (s *store) Publish(ctx context.Context, namespace string, policies []configstore.Policy) (configstore.Published, error) {
	if s.away != nil {
		return configstore.Published{}, s.away
	}
	if s.hangs[namespace] {
		<-ctx.Done()
		return configstore.Published{}, ctx.Err()
	}
	if s.during != nil {
		s.during()
	}
	s.publications.Add(1)
	return s.writer().Publish(ctx, namespace, configstore.Publication{Policies: policies})
}

func (s *store) Load(ctx context.Context, namespace string) (*configstore.Snapshot, error) {
	snapshot, err := configstore.NewReader(redis.Client(), instance, namespace).Update(ctx, nil)
	if errors.Is(err, configstore.ErrLost) {
		return nil, s.away
	}
	return snapshot, errors.Join(err, s.away)
}

func (s *store) Namespaces(ctx context.Context) ([]string, error) {
	if s.unlisted != nil {
		return nil, s.unlisted
	}
	return s.writer().Namespaces(ctx)
}
func (s *store) Remove(ctx context.Context, namespace string) error {
	return s.writer().Remove(ctx, namespace)
}
func (s *store) writer() *configstore.Writer {
	return configstore.NewWriter(redis.Client(), instance, 1)
}

// policy is a policy that can be translated; the generation tells its versions apart.
func policy(name, uid string, generation int64) publisher.Policy {
	GinkgoHelper()
	object := testenv.NewPolicy("shop", name)
	object.UID, object.Generation = types.UID(uid), generation
	record, err := translator.Translate(object)
	Expect(err).NotTo(HaveOccurred())
	return publisher.Policy{Name: name, UID: uid, Record: record}
}

// broken is a policy whose spec can't be translated.
func broken(name, uid string) publisher.Policy { return publisher.Policy{Name: name, UID: uid} }

var _ = Describe("The publisher", func() {
	var (
		namespace string
		cluster   *store
		exists    []publisher.Policy
		kept      []bucketconfig.Bundled
		changes   atomic.Int32
		count     int
	)
	leader := func() *publisher.Publisher {
		return &publisher.Publisher{
			Store:    cluster,
			Policies: func(context.Context, string) ([]publisher.Policy, error) { return slices.Clone(exists), nil },
			Kept:     func(context.Context, string) ([]bucketconfig.Bundled, error) { return slices.Clone(kept), nil },
			Changed:  func(string) { changes.Add(1) },
		}
	}
	BeforeEach(func() {
		count++
		namespace, cluster, exists = fmt.Sprintf("shop-%d", count), &store{}, nil
		kept = nil
		changes.Store(0)
	})
	// says lists what sidecars read, as name@generation/sidecars, in the order of names.
	says := func(ctx context.Context) string {
		GinkgoHelper()
		snapshot, err := (&store{}).Load(ctx, namespace)
		Expect(err).NotTo(HaveOccurred())
		if snapshot == nil {
			return "lost"
		}
		var out []string
		for name, p := range snapshot.Policies {
			Expect(p.Err).NotTo(HaveOccurred())
			out = append(out, fmt.Sprintf("%s@%d/%d", name, p.Record.Generation, p.Share.Sidecars))
		}
		slices.Sort(out)
		return strings.Join(out, " ")
	}

	// wants lists what Wanted answers, like says.
	wants := func(ctx context.Context, p *publisher.Publisher) string {
		GinkgoHelper()
		wanted, err := p.Wanted(ctx, namespace)
		Expect(err).NotTo(HaveOccurred())
		var out []string
		for _, policy := range wanted {
			out = append(out, fmt.Sprintf("%s@%d/%d", policy.Name, policy.Record.Generation, policy.Share.Sidecars))
		}
		return strings.Join(out, " ")
	}

	It("tells what is wanted while Redis is away, and each time when that changed", func(ctx SpecContext) {
		p := leader()
		cluster.away = errors.New("gone")
		exists = []publisher.Policy{policy("b", "2", 1), policy("a", "1", 1)}
		Expect(p.Publish(ctx, namespace, publisher.Update{Policy: exists[0], Sidecars: 2})).NotTo(Succeed())
		Expect(changes.Load()).To(BeEquivalentTo(1))
		Expect(wants(ctx, p)).To(Equal("b@1/2"), "with nobody's count of the sidecars of a, each would take its whole limit")
		Expect(p.Publish(ctx, namespace, publisher.Update{Policy: exists[0], Sidecars: 2})).NotTo(Succeed())
		Expect(changes.Load()).To(BeEquivalentTo(1))
		Expect(p.Publish(ctx, namespace, publisher.Update{Policy: exists[0], Sidecars: 3, Hold: true})).NotTo(Succeed())
		Expect(changes.Load()).To(BeEquivalentTo(2))
		Expect(p.Publish(ctx, namespace, publisher.Update{Policy: exists[0], Sidecars: 1, Hold: true})).NotTo(Succeed())
		Expect(wants(ctx, p)).To(Equal("b@1/3"), "the part of a sidecar that is cut off must not be given away")
		Expect(p.Publish(ctx, namespace, publisher.Update{Policy: exists[1], Sidecars: 4})).NotTo(Succeed())
		Expect(changes.Load()).To(BeEquivalentTo(3))
		Expect(wants(ctx, p)).To(Equal("a@1/4 b@1/3"))
		exists = []publisher.Policy{broken("b", "2")}
		Expect(wants(ctx, p)).To(Equal("b@1/3"), "the last good version")
		cluster.away = nil
		Expect(p.Publish(ctx, namespace, publisher.Update{Policy: exists[0], Sidecars: 1})).To(Succeed())
		Expect(says(ctx)).To(Equal("b@1/1"))
	})

	It("tells what is wanted while a publication hangs", func(ctx SpecContext) {
		p := leader()
		exists = []publisher.Policy{policy("a", "1", 1), policy("b", "2", 1)}
		cluster.hangs = map[string]bool{namespace: true}
		publishing, stop := context.WithCancel(ctx)
		var hanging sync.WaitGroup
		for _, one := range exists {
			hanging.Go(func() {
				defer GinkgoRecover()
				Expect(p.Publish(publishing, namespace, publisher.Update{Policy: one, Sidecars: 2})).To(MatchError(context.Canceled))
			})
		}
		Eventually(func() string { return wants(ctx, p) }).Should(Equal("a@1/2 b@1/2"))
		stop()
		hanging.Wait()
		cluster.hangs = nil
		Expect(p.Repair(ctx, namespace)).To(BeTrue())
		Expect(says(ctx)).To(Equal("a@1/2 b@1/2"))
	})

	It("keeps what changed during a publication for the next", func(ctx SpecContext) {
		p := leader()
		exists = []publisher.Policy{policy("a", "1", 1)}
		Expect(p.Publish(ctx, namespace, publisher.Update{Policy: exists[0], Sidecars: 2})).To(Succeed())
		var telling sync.WaitGroup
		cluster.during = func() {
			cluster.during = nil
			exists = append(exists, policy("b", "2", 1))
			telling.Go(func() {
				defer GinkgoRecover()
				Expect(p.Publish(ctx, namespace, publisher.Update{Policy: exists[1], Sidecars: 1})).To(Succeed())
			})
			Eventually(func() string { return wants(ctx, p) }).Should(Equal("a@2/2 b@1/1"))
		}
		exists[0] = policy("a", "1", 2)
		Expect(p.Publish(ctx, namespace, publisher.Update{Policy: exists[0], Sidecars: 2})).To(Succeed())
		telling.Wait()
		Expect(says(ctx)).To(Equal("a@2/2 b@1/1"))
	})

	It("takes over from an earlier leader what is kept outside of Redis, where Redis lost it or is away", func(ctx SpecContext) {
		good := policy("a", "1", 4)
		kept = []bucketconfig.Bundled{
			{Name: "a", Record: good.Record, Share: bucketconfig.Share{Sidecars: 5}},
			{Name: "recreated", Record: policy("recreated", "old", 9).Record, Share: bucketconfig.Share{Sidecars: 2}},
			{Name: "spoilt", Err: errors.New("spoilt")},
		}
		exists = []publisher.Policy{broken("a", "1"), broken("recreated", "new")}
		p := leader()
		cluster.away = errors.New("gone")
		Expect(p.Publish(ctx, namespace, publisher.Update{Policy: exists[0], Sidecars: 1, Hold: true})).NotTo(Succeed())
		Expect(wants(ctx, p)).To(Equal("a@4/5"))
		cluster.away = nil
		Expect(p.Publish(ctx, namespace, publisher.Update{Policy: exists[0], Sidecars: 1, Hold: true})).To(Succeed())
		Expect(says(ctx)).To(Equal("a@4/5"))
	})

	It("takes the newer of what is kept and what Redis holds", func(ctx SpecContext) {
		exists = []publisher.Policy{policy("a", "1", 6)}
		Expect(leader().Publish(ctx, namespace, publisher.Update{Policy: exists[0], Sidecars: 3})).To(Succeed())
		kept = []bucketconfig.Bundled{{Name: "a", Record: policy("a", "1", 4).Record, Share: bucketconfig.Share{Sidecars: 5}}}
		exists = []publisher.Policy{broken("a", "1")}
		Expect(leader().Publish(ctx, namespace, publisher.Update{Policy: exists[0], Sidecars: 2})).To(Succeed())
		Expect(says(ctx)).To(Equal("a@6/2"))
	})

	It("takes the last good version of a policy that was made anew over what is kept of the one before", func(ctx SpecContext) {
		recreated := policy("a", "new", 9)
		exists = []publisher.Policy{recreated}
		Expect(leader().Publish(ctx, namespace, publisher.Update{Policy: recreated, Sidecars: 3})).To(Succeed())
		kept = []bucketconfig.Bundled{{Name: "a", Record: policy("a", "old", 4).Record, Share: bucketconfig.Share{Sidecars: 3}}}
		exists = []publisher.Policy{broken("a", "new")}
		p := leader()
		_, err := p.Repair(ctx, namespace)
		Expect(err).NotTo(HaveOccurred())
		Expect(says(ctx)).To(Equal("a@9/3"))
		Expect(wants(ctx, p)).To(Equal("a@9/3"))
	})

	It("publishes all of a namespace at once, and nothing twice", func(ctx SpecContext) {
		p := leader()
		exists = []publisher.Policy{policy("a", "1", 1), policy("b", "2", 1)}
		Expect(p.Publish(ctx, namespace, publisher.Update{Policy: exists[0], Sidecars: 2})).To(Succeed())
		Expect(says(ctx)).To(Equal("a@1/2 b@1/1"))
		for range 3 {
			Expect(p.Publish(ctx, namespace, publisher.Update{Policy: exists[0], Sidecars: 2})).To(Succeed())
			Expect(p.Publish(ctx, namespace, publisher.Update{Policy: exists[1], Sidecars: 1})).To(Succeed())
		}
		Expect(cluster.publications.Load()).To(Equal(int32(1)))
	})

	It("follows generations, shares and deletions", func(ctx SpecContext) {
		p := leader()
		exists = []publisher.Policy{policy("a", "1", 1), policy("b", "2", 1)}
		Expect(p.Publish(ctx, namespace, publisher.Update{Policy: exists[0], Sidecars: 3})).To(Succeed())
		exists[0] = policy("a", "1", 2)
		Expect(p.Publish(ctx, namespace, publisher.Update{Policy: exists[0], Sidecars: 3})).To(Succeed())
		Expect(p.Publish(ctx, namespace, publisher.Update{Policy: exists[1], Sidecars: 4})).To(Succeed())
		Expect(says(ctx)).To(Equal("a@2/3 b@1/4"))
		exists = exists[:1]
		Expect(p.Withdraw(ctx, namespace, "b")).To(Succeed())
		Expect(says(ctx)).To(Equal("a@2/3"))
		exists = nil
		Expect(p.Withdraw(ctx, namespace, "a")).To(Succeed())
		Expect(says(ctx)).To(Equal(""), "a revision without policies, which is not the same as lost")
	})

	It("keeps the last good version of a policy, also as a new leader, and never another policy's", func(ctx SpecContext) {
		exists = []publisher.Policy{policy("a", "1", 7), policy("b", "2", 1)}
		Expect(leader().Publish(ctx, namespace, publisher.Update{Policy: exists[0], Sidecars: 2})).To(Succeed())

		next := leader()
		exists = []publisher.Policy{broken("a", "1"), policy("b", "2", 2)}
		Expect(next.Publish(ctx, namespace, publisher.Update{Policy: exists[0]})).To(Succeed())
		Expect(says(ctx)).To(Equal("a@7/2 b@2/1"))

		exists[0] = broken("a", "of a new policy")
		Expect(next.Publish(ctx, namespace, publisher.Update{Policy: exists[0]})).To(Succeed())
		Expect(says(ctx)).To(Equal("b@2/1"))
	})

	It("repairs what was lost or altered, a last good version too, and reports it", func(ctx SpecContext) {
		p := leader()
		exists = []publisher.Policy{policy("a", "1", 1), policy("b", "2", 1)}
		Expect(p.Publish(ctx, namespace, publisher.Update{Policy: exists[0], Sidecars: 1})).To(Succeed())
		exists[0] = broken("a", "1")
		Expect(p.Repair(ctx, namespace)).To(BeFalse())
		Expect(redis.Client().Del(ctx, instance.Config(namespace)).Err()).To(Succeed())
		Expect(says(ctx)).To(Equal("lost"))
		Expect(p.Repair(ctx, namespace)).To(BeTrue())
		Expect(says(ctx)).To(Equal("a@1/1 b@1/1"))
		Expect(redis.Client().HSet(ctx, instance.Config(namespace), "1/b", "spoilt", "1/stray", "x").Err()).To(Succeed())
		Expect(p.Repair(ctx, namespace)).To(BeTrue())
		Expect(says(ctx)).To(Equal("a@1/1 b@1/1"))
	})

	It("holds a share that must not shrink, over a change of leaders too", func(ctx SpecContext) {
		exists = []publisher.Policy{policy("a", "1", 1)}
		Expect(leader().Publish(ctx, namespace, publisher.Update{Policy: exists[0], Sidecars: 3})).To(Succeed())
		next := leader()
		Expect(next.Publish(ctx, namespace, publisher.Update{Policy: exists[0], Sidecars: 2, Hold: true})).To(Succeed())
		Expect(says(ctx)).To(Equal("a@1/3"))
		Expect(next.Publish(ctx, namespace, publisher.Update{Policy: exists[0], Sidecars: 5, Hold: true})).To(Succeed())
		Expect(says(ctx)).To(Equal("a@1/5"))
		Expect(next.Publish(ctx, namespace, publisher.Update{Policy: exists[0], Sidecars: 2})).To(Succeed())
		Expect(says(ctx)).To(Equal("a@1/2"))
	})

	It("publishes what was said while Redis was away", func(ctx SpecContext) {
		p := leader()
		exists = []publisher.Policy{policy("a", "1", 1)}
		Expect(p.Publish(ctx, namespace, publisher.Update{Policy: exists[0], Sidecars: 1})).To(Succeed())
		cluster.away = errors.New("away")
		exists = []publisher.Policy{policy("a", "1", 2), policy("b", "2", 1)}
		Expect(p.Publish(ctx, namespace, publisher.Update{Policy: exists[0], Sidecars: 1})).To(MatchError(cluster.away))
		cluster.away = nil
		Expect(p.Publish(ctx, namespace, publisher.Update{Policy: exists[0], Sidecars: 1})).To(Succeed())
		Expect(says(ctx)).To(Equal("a@2/1 b@1/1"))
	})

	It("tells of a record that can't be encoded to its own policy only", func(ctx SpecContext) {
		p := leader()
		huge := policy("a", "1", 1)
		huge.Record.Limits = slices.Repeat(huge.Record.Limits, bucketconfig.MaxLimits+1)
		exists = []publisher.Policy{huge, policy("b", "2", 1)}
		Expect(p.Publish(ctx, namespace, publisher.Update{Policy: exists[0], Sidecars: 1})).NotTo(Succeed())
		Expect(p.Publish(ctx, namespace, publisher.Update{Policy: exists[1], Sidecars: 1})).To(Succeed())
		Expect(says(ctx)).To(Equal("b@1/1"))
	})

	It("sweeps: removes namespaces that nobody wants, but none in which a policy exists", func(ctx SpecContext) {
		p := leader()
		exists = []publisher.Policy{policy("a", "1", 1)}
		Expect(p.Publish(ctx, namespace, publisher.Update{Policy: exists[0], Sidecars: 1})).To(Succeed())
		_, err := p.Sweep(ctx, nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(says(ctx)).To(Equal("a@1/1"), "the list of wanted namespaces was older than the policy")

		exists = nil
		swept, err := p.Sweep(ctx, map[string]bool{namespace: true})
		Expect(err).NotTo(HaveOccurred())
		Expect(swept.Repaired).To(Equal([]string{namespace}))
		Expect(says(ctx)).To(Equal(""))

		swept, err = p.Sweep(ctx, nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(swept.Removed).To(ContainElement(namespace))
		Expect(says(ctx)).To(Equal("lost"))
		Expect(redis.Client().SIsMember(ctx, instance.Namespaces(), namespace).Val()).To(BeFalse())
	})

	It("sweeps what it can while a master hangs", func(ctx SpecContext) {
		p := leader()
		exists = []publisher.Policy{policy("a", "1", 1)}
		wanted := map[string]bool{namespace: true}
		cluster.hangs, cluster.unlisted = map[string]bool{}, errors.New("the index is away")
		for i := range 16 {
			name := fmt.Sprintf("hung-%d", i)
			wanted[name], cluster.hangs[name] = true, true
		}
		begin := time.Now()
		swept, err := p.Sweep(ctx, wanted)
		Expect(time.Since(begin)).To(BeNumerically("<", 8*time.Second), "one after the other would take 16 s")
		Expect(err).To(And(MatchError(cluster.unlisted), MatchError(context.DeadlineExceeded)))
		Expect(swept.Repaired).To(Equal([]string{namespace}))
		Expect(says(ctx)).To(Equal("a@1/1"))
	})
})
