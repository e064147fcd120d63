package credentials_test

import (
	"context"
	"errors"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/portero-dev/portero/controllers/credentials"
)

// unwanted is an API server that knows of one namespace its Secret alone: no policy, and nothing that asks for injection.
type unwanted struct {
	client.Client
	secret *corev1.Secret
}

func (u *unwanted) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

func (u *unwanted) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	if u.secret == nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, key.Name)
	}
	u.secret.DeepCopyInto(object.(*corev1.Secret))
	return nil
}

func (u *unwanted) Delete(context.Context, client.Object, ...client.DeleteOption) error {
	u.secret = nil
	return nil
}

// removals are the namespaces whose user was removed.
type removals []string

func (r *removals) Ensure(context.Context, string, ...string) error { return nil }

func (r *removals) Remove(_ context.Context, namespace string) error {
	*r = append(*r, namespace)
	return nil
}

var _ = Describe("A namespace that wants no credentials", func() {
	It("loses Secret and user only by the manager that leads", func(ctx SpecContext) {
		server, users, followed := &unwanted{secret: (&credentials.Content{}).Secret("shop")}, &removals{}, errors.New("another one leads")
		leads := followed
		reconciler := &credentials.Reconciler{
			Client: server, Users: users, Confirm: func(context.Context) error { return leads }, Changed: func(string) {},
		}
		_, err := reconciler.Reconcile(ctx, credentials.Request("shop"))
		Expect(err).To(MatchError(followed))
		Expect(server.secret).NotTo(BeNil())
		Expect(*users).To(BeEmpty())

		leads = nil
		_, err = reconciler.Reconcile(ctx, credentials.Request("shop"))
		Expect(err).NotTo(HaveOccurred())
		Expect(server.secret).To(BeNil())
		Expect(*users).To(HaveExactElements("shop"))
	})
})
