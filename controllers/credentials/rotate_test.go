package credentials_test

import (
	"context"
	"errors"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/portero-dev/portero/controllers/credentials"
	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/sidecarenv"
	"github.com/portero-dev/portero/internal/testenv"
)

// doors are users that note which passwords let them in.
type doors struct {
	removals
	open []string
	err  error
	// looks is called before.
	looks func()
}

func (d *doors) Ensure(_ context.Context, _ string, passwords ...string) error {
	if d.err != nil {
		return d.err
	}
	d.looks()
	d.open = passwords
	return nil
}

var _ = Describe("Another password", func() {
	var (
		namespace  string
		content    *credentials.Content
		users      *doors
		reconciler *credentials.Reconciler
		now        time.Time
		first      string
	)
	secret := func(ctx context.Context) *corev1.Secret {
		s := &corev1.Secret{}
		if err := api.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: sidecarenv.CredentialsName}, s); client.IgnoreNotFound(err) != nil {
			Fail(err.Error())
		}
		return s
	}
	password := func(ctx context.Context) string { return string(secret(ctx).Data[sidecarenv.SecretPassword]) }
	reconcile := func(ctx context.Context) (time.Duration, error) {
		result, err := reconciler.Reconcile(ctx, credentials.Request(namespace))
		return result.RequeueAfter, err
	}
	BeforeEach(func(ctx SpecContext) {
		namespace, now = api.CreateNamespace(ctx, nil), time.Unix(1_700_000_000, 0)
		Expect(api.Client.Create(ctx, testenv.NewPolicy(namespace, "wants"))).To(Succeed())
		content = &credentials.Content{Instance: "0a1b2c3d", Addrs: []string{"redis:6379"}, Master: credentials.Master{Secret: []byte(strings.Repeat("m", 32))}}
		users = &doors{looks: func() {}}
		reconciler = &credentials.Reconciler{
			Client: api.Client, Users: users, Changed: func(string) {},
			Content:  func(context.Context) (*credentials.Content, error) { return content, nil },
			Policies: func(context.Context, string) ([]bucketconfig.Bundled, error) { return nil, nil },
			Confirm:  func(context.Context) error { return nil },
			Now:      func() time.Time { return now },
		}
		again, err := reconcile(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(again).To(BeZero())
		first = password(ctx)
		Expect(users.open).To(Equal([]string{first}))
		content.Master.Passwords = []byte(strings.Repeat("n", 32))
	})

	It("lets in beside the one before for ten minutes, and is known to Redis before the Secret tells it", func(ctx SpecContext) {
		var toldBefore []string
		users.looks = func() { toldBefore = append(toldBefore, password(ctx)) }
		keys := secret(ctx).Data[sidecarenv.SecretKeySecret]
		again, err := reconcile(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(again).To(Equal(10 * time.Minute))
		next := content.Password(namespace)
		Expect(next).NotTo(Equal(first))
		Expect(password(ctx)).To(Equal(next))
		Expect(toldBefore[0]).To(Equal(first))
		Expect(users.open).To(Equal([]string{next, first}))
		Expect(secret(ctx).Data[sidecarenv.SecretKeySecret]).To(Equal(keys), "buckets stay what they are")

		By("going on after a restart")
		now = now.Add(9 * time.Minute)
		again, err = reconcile(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(again).To(Equal(time.Minute))
		Expect(users.open).To(Equal([]string{next, first}))

		By("ending it, and leaving nothing of it")
		now = now.Add(time.Minute)
		again, err = reconcile(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(again).To(BeZero())
		Expect(users.open).To(Equal([]string{next}))
		Expect(secret(ctx).Data).NotTo(ContainElement([]byte(first)))
		Expect(secret(ctx).Annotations).NotTo(HaveKey(credentials.RotatedAnnotation))
	})

	It("waits while a node of Redis can't be told, and the rest of the Secret goes on", func(ctx SpecContext) {
		users.err = errors.New("a node is away")
		content.Addrs = []string{"elsewhere:6379"}
		_, err := reconcile(ctx)
		Expect(err).To(MatchError(users.err))
		Expect(password(ctx)).To(Equal(first))
		Expect(string(secret(ctx).Data[sidecarenv.SecretAddrs])).To(Equal("elsewhere:6379"))
		users.err = nil
		_, err = reconcile(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(password(ctx)).To(Equal(content.Password(namespace)))
	})

	DescribeTable("lets nobody in whom a hand wrote into the Secret",
		func(ctx SpecContext, change func(*corev1.Secret)) {
			_, err := reconcile(ctx)
			Expect(err).NotTo(HaveOccurred())
			s := secret(ctx)
			change(s)
			Expect(api.Client.Update(ctx, s)).To(Succeed())
			_, err = reconcile(ctx)
			Expect(err).NotTo(HaveOccurred())
			Expect(users.open).To(Equal([]string{content.Password(namespace)}))
			Expect(password(ctx)).To(Equal(content.Password(namespace)))
		},
		Entry("a password of its own", func(s *corev1.Secret) { s.Data[sidecarenv.SecretPassword] = []byte("mine") }),
		Entry("an earlier one without its time", func(s *corev1.Secret) { delete(s.Annotations, credentials.RotatedAnnotation) }),
		Entry("a time that is to come", func(s *corev1.Secret) {
			s.Annotations[credentials.RotatedAnnotation] = time.Unix(1_900_000_000, 0).UTC().Format(time.RFC3339)
		}),
		Entry("no time", func(s *corev1.Secret) { s.Annotations[credentials.RotatedAnnotation] = "soon" }),
	)
})
