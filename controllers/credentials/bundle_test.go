package credentials_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	portero "github.com/portero-dev/portero/api/v1alpha1"
	"github.com/portero-dev/portero/controllers/credentials"
	"github.com/portero-dev/portero/controllers/problem"
	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/sidecarenv"
	"github.com/portero-dev/portero/internal/testenv"
	"github.com/portero-dev/portero/internal/translator"
)

// record is what a policy of the name translates to, at a generation.
func record(name string, generation int64, changes ...func(*portero.RateLimitPolicy)) *bucketconfig.Record {
	GinkgoHelper()
	policy := testenv.NewPolicy("shop", name, changes...)
	policy.UID, policy.Generation = types.UID(name), generation
	record, err := translator.Translate(policy)
	Expect(err).NotTo(HaveOccurred())
	return record
}

// bulky gives a policy so many values that hardly compress.
func bulky(values int) func(*portero.RateLimitPolicy) {
	return func(p *portero.RateLimitPolicy) {
		const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
		random := rand.New(rand.NewPCG(1, uint64(values)))
		header := portero.HeaderMatch{Name: "X-Key", ValueMatch: portero.ValueMatch{Type: portero.ValueMatchIn}}
		for range values {
			value := make([]byte, 200)
			for i := range value {
				value[i] = letters[random.IntN(len(letters))]
			}
			header.Values = append(header.Values, string(value))
		}
		p.Spec.Limits[0].Matches = []portero.RequestMatch{{Headers: []portero.HeaderMatch{header}}}
	}
}

// refusing is the API server, but updates fail.
type refusing struct {
	client.Client
	err error
}

func (r *refusing) Update(context.Context, client.Object, ...client.UpdateOption) error { return r.err }

var _ = Describe("What a namespace's Secret holds of policies", func() {
	var (
		namespace    string
		reconciler   *credentials.Reconciler
		policies     []bucketconfig.Bundled
		now          time.Time
		unconfigured error
		changed      int
	)
	content := func(context.Context) (*credentials.Content, error) {
		c := &credentials.Content{Instance: "0a1b2c3d", Master: credentials.Master{Secret: []byte(strings.Repeat("m", 32))}}
		if unconfigured == nil {
			c.Addrs, c.CA = []string{"redis:6379"}, []byte("PEM")
		}
		return c, unconfigured
	}
	BeforeEach(func(ctx SpecContext) {
		namespace, now, unconfigured, changed = api.CreateNamespace(ctx, nil), time.Unix(1_700_000_000, 0), nil, 0
		Expect(api.Client.Create(ctx, testenv.NewPolicy(namespace, "wants"))).To(Succeed()) // or the namespace would want no Secret
		policies = []bucketconfig.Bundled{{Name: "a", Record: record("a", 1), Share: bucketconfig.Share{Sidecars: 2}}}
		reconciler = &credentials.Reconciler{
			Client: api.Client, Users: &removals{}, Content: content, Changed: func(string) { changed++ },
			Policies: func(context.Context, string) ([]bucketconfig.Bundled, error) { return policies, nil },
			Confirm:  func(context.Context) error { return nil },
			Now:      func() time.Time { return now },
		}
	})
	reconcile := func(ctx context.Context) ctrl.Result {
		GinkgoHelper()
		result, err := reconciler.Reconcile(ctx, credentials.Request(namespace))
		Expect(err).NotTo(HaveOccurred())
		return result
	}
	secret := func(ctx context.Context) *corev1.Secret {
		GinkgoHelper()
		s := &corev1.Secret{}
		Expect(api.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: sidecarenv.CredentialsName}, s)).To(Succeed())
		return s
	}
	// says lists the policies as name@generation/sidecars.
	says := func(ctx context.Context) string {
		GinkgoHelper()
		kept, err := bucketconfig.DecodeBundle(secret(ctx).Data[sidecarenv.SecretPolicies])
		Expect(err).NotTo(HaveOccurred())
		var out []string
		for _, policy := range kept {
			Expect(policy.Err).NotTo(HaveOccurred())
			out = append(out, fmt.Sprintf("%s@%d/%d", policy.Name, policy.Record.Generation, policy.Share.Sidecars))
		}
		return strings.Join(out, " ")
	}
	// scale makes another number of sidecars share policy a.
	scale := func(sidecars int) {
		policies = []bucketconfig.Bundled{{Name: "a", Record: policies[0].Record, Share: bucketconfig.Share{Sidecars: sidecars}}}
	}

	It("follows numbers of sidecars at most twice a minute, and loses none", func(ctx SpecContext) {
		Expect(reconcile(ctx)).To(BeZero())
		Expect(says(ctx)).To(Equal("a@1/2"))
		scale(3)
		Expect(reconcile(ctx)).To(BeZero(), "nothing was updated of late")
		Expect(says(ctx)).To(Equal("a@1/3"))
		written := secret(ctx).ResourceVersion
		now = now.Add(10 * time.Second)
		for i := range 5 {
			scale(4 + i)
			Expect(reconcile(ctx).RequeueAfter).To(Equal(20 * time.Second))
		}
		Expect(secret(ctx).ResourceVersion).To(Equal(written))
		now = now.Add(20 * time.Second)
		Expect(reconcile(ctx)).To(BeZero())
		Expect(says(ctx)).To(Equal("a@1/8"))
	})

	It("tries again at once where a write failed", func(ctx SpecContext) {
		reconcile(ctx)
		scale(10)
		refused := errors.New("somebody else wrote it")
		reconciler.Client = &refusing{Client: api.Client, err: refused}
		_, err := reconciler.Reconcile(ctx, credentials.Request(namespace))
		Expect(err).To(MatchError(refused))
		reconciler.Client = api.Client
		Expect(reconcile(ctx)).To(BeZero())
		Expect(says(ctx)).To(Equal("a@1/10"))
	})

	It("follows anything else at once, and brings the numbers along", func(ctx SpecContext) {
		reconcile(ctx)
		scale(3)
		reconcile(ctx)
		scale(4)
		Expect(reconcile(ctx).RequeueAfter).To(BeNumerically(">", 0))
		policies = append(policies, bucketconfig.Bundled{Name: "b", Record: record("b", 1), Share: bucketconfig.Share{Sidecars: 1}})
		Expect(reconcile(ctx)).To(BeZero())
		Expect(says(ctx)).To(Equal("a@1/4 b@1/1"))
		policies[0].Record = record("a", 2)
		reconcile(ctx)
		Expect(says(ctx)).To(Equal("a@2/4 b@1/1"))
	})

	It("is written once for one state", func(ctx SpecContext) {
		reconcile(ctx)
		written := secret(ctx).ResourceVersion
		for range 3 {
			reconcile(ctx)
		}
		Expect(secret(ctx).ResourceVersion).To(Equal(written))
	})

	It("says that there is none when the last is gone", func(ctx SpecContext) {
		reconcile(ctx)
		policies = nil
		reconcile(ctx)
		Expect(secret(ctx).Data).To(HaveKey(sidecarenv.SecretPolicies))
		Expect(says(ctx)).To(BeEmpty())
	})

	It("comes back when it was spoilt or deleted, as it should be now", func(ctx SpecContext) {
		reconcile(ctx)
		spoilt := secret(ctx)
		spoilt.Data[sidecarenv.SecretPolicies] = []byte("{")
		Expect(api.Client.Update(ctx, spoilt)).To(Succeed())
		Expect(credentials.Kept(ctx, api.Client, namespace)).To(BeEmpty())
		reconcile(ctx)
		Expect(says(ctx)).To(Equal("a@1/2"))
		scale(5)
		Expect(api.Client.Delete(ctx, spoilt)).To(Succeed())
		reconcile(ctx)
		Expect(says(ctx)).To(Equal("a@1/5"))
		Expect(secret(ctx).Data).To(HaveKey(sidecarenv.SecretPassword))
	})

	It("leaves out the largest of too many, and tells their policies alone", func(ctx SpecContext) {
		for i := range 14 {
			name := fmt.Sprintf("large-%02d", i)
			policies = append(policies, bucketconfig.Bundled{Name: name, Record: record(name, 1, bulky(240+i)), Share: bucketconfig.Share{Sidecars: 1}})
		}
		reconcile(ctx)
		Expect(changed).To(Equal(1))
		Expect(says(ctx)).To(HavePrefix("a@1/2 large-00@1/1 "))
		Expect(says(ctx)).NotTo(ContainSubstring("large-13"))
		Expect(len(secret(ctx).Data[sidecarenv.SecretPolicies])).To(BeNumerically("<=", bucketconfig.MaxBundleSize))
		Expect(reconciler.Problem(namespace, "a")).To(Succeed())
		Expect(reconciler.Problem(namespace, "large-00")).To(Succeed())
		said := reconciler.Problem(namespace, "large-13")
		Expect(said.Reason).To(Equal(portero.ReasonNotInSecret))
		Expect(said.Message).To(And(ContainSubstring("524288 bytes"), ContainSubstring("shorten its matches")))

		policies = policies[:1]
		reconcile(ctx)
		Expect(changed).To(Equal(2))
		Expect(reconciler.Problem(namespace, "large-13")).To(Succeed())
	})

	It("stays out of a Secret that is not ours, and is not read from one", func(ctx SpecContext) {
		data, _, err := bucketconfig.EncodeBundle(policies)
		Expect(err).NotTo(HaveOccurred())
		foreign := &corev1.Secret{Data: map[string][]byte{sidecarenv.SecretPolicies: data}}
		foreign.Namespace, foreign.Name = namespace, sidecarenv.CredentialsName
		Expect(api.Client.Create(ctx, foreign)).To(Succeed())
		scale(9)
		reconcile(ctx)
		Expect(secret(ctx).ResourceVersion).To(Equal(foreign.ResourceVersion))
		Expect(credentials.Kept(ctx, api.Client, namespace)).To(BeEmpty())
		Expect(reconciler.Problem(namespace, "a").Reason).To(Equal(portero.ReasonSecretConflict))
	})

	It("is there while nobody told yet where Redis is, and a way that sidecars know is left to them", func(ctx SpecContext) {
		unconfigured = problem.New(portero.ReasonRedisNotConfigured, "nobody told")
		reconcile(ctx)
		Expect(says(ctx)).To(Equal("a@1/2"))
		Expect(secret(ctx).Data).NotTo(HaveKey(sidecarenv.SecretAddrs))
		unconfigured = nil
		reconcile(ctx)
		Expect(secret(ctx).Data).To(HaveKeyWithValue(sidecarenv.SecretAddrs, []byte("redis:6379")))
		unconfigured = problem.New(portero.ReasonRedisNotConfigured, "nobody told")
		policies[0].Record = record("a", 2)
		reconcile(ctx)
		Expect(says(ctx)).To(Equal("a@2/2"))
		Expect(secret(ctx).Data).To(And(
			HaveKeyWithValue(sidecarenv.SecretAddrs, []byte("redis:6379")), HaveKeyWithValue(sidecarenv.SecretCA, []byte("PEM")),
		))
	})

	It("is left as it was while the policies can't be listed", func(ctx SpecContext) {
		reconcile(ctx)
		gone := errors.New("gone")
		reconciler.Policies = func(context.Context, string) ([]bucketconfig.Bundled, error) { return nil, gone }
		_, err := reconciler.Reconcile(ctx, credentials.Request(namespace))
		Expect(err).To(MatchError(gone))
		Expect(says(ctx)).To(Equal("a@1/2"))
	})
})
