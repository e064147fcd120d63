// Package credentials gives the sidecars of each namespace their own way into Redis: an ACL user that reaches only the
// namespace's keys, and the Secret that tells the sidecars of it.
//
// The unit of work is a namespace. The package must stay free of go-redis: it declares what it needs.
package credentials

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	portero "github.com/portero-dev/portero/api/v1alpha1"
	"github.com/portero-dev/portero/controllers/problem"
	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/sidecarenv"
)

// +kubebuilder:rbac:groups="",resources=secrets,verbs=create
// +kubebuilder:rbac:groups="",resources=secrets,resourceNames=portero-redis,verbs=get;list;watch;update;patch;delete
// +kubebuilder:rbac:groups=apps,resources=deployments;statefulsets;daemonsets,verbs=get;list;watch
// +kubebuilder:rbac:groups=batch,resources=jobs;cronjobs,verbs=get;list;watch

// Users keeps the ACL users of namespaces on every node of Redis.
type Users interface {
	// Ensure makes each node know the namespace's user with exactly these passwords.
	Ensure(ctx context.Context, namespace string, passwords ...string) error
	// Remove makes no node know the namespace's user.
	Remove(ctx context.Context, namespace string) error
}

// Reconciler keeps Secret and user of a namespace. All exported fields are required.
type Reconciler struct {
	Client client.Client
	Users  Users
	// Content is what Secrets are made of. When Redis is not configured it answers a Problem beside a Content without addresses.
	Content func(context.Context) (*Content, error)
	// Policies are those that sidecars of a namespace are to enforce, in the order of names.
	Policies func(ctx context.Context, namespace string) ([]bucketconfig.Bundled, error)
	// Confirm fails when this manager does not lead any more, by what the API server says now.
	Confirm func(context.Context) error
	// Changed is told of each namespace whose Problem changed.
	Changed func(namespace string)
	Now     func() time.Time

	mu       sync.Mutex
	problems map[string]*problem.Problem
	bundles  map[string]*bundle
}

// Problem is what is wrong with the namespace's credentials, or else with what the Secret holds of the policy; nil when nothing is known to be.
func (r *Reconciler) Problem(namespace, policy string) *problem.Problem {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.problems[namespace]; p != nil {
		return p
	}
	if b := r.bundles[namespace]; b != nil && slices.Contains(b.omitted, policy) {
		return problem.New(portero.ReasonNotInSecret, "the namespace's policies exceed the %d bytes that the Secret %s holds of them, and this one is among the "+
			"largest, which are left out: a pod that starts while Redis is unreachable does not enforce it; shorten its matches and overrides, or those of "+
			"other policies in the namespace", bucketconfig.MaxBundleSize, sidecarenv.CredentialsName)
	}
	return nil
}

// Reconcile gives the namespace that the request names its credentials, or takes them away when it has neither a policy
// nor a workload that asks for injection.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	namespace := request.Name
	wanted, err := r.wanted(ctx, namespace)
	if err != nil {
		return ctrl.Result{}, err
	}
	if !wanted {
		r.tell(namespace, nil)
		r.forget(namespace)
		return ctrl.Result{}, ignoreRedis(r.remove(ctx, namespace))
	}
	again, err := r.ensure(ctx, namespace)
	r.tell(namespace, problem.Of(err, portero.ReasonCredentialsFailed))
	return ctrl.Result{RequeueAfter: again}, ignoreRedis(err)
}

// ignoreRedis drops errors that a change of Redis' state or of a Secret ends: both make the controller look again.
func ignoreRedis(err error) error {
	p := problem.Of(err, "")
	if p == nil {
		return nil
	}
	switch p.Reason {
	case portero.ReasonRedisNotConfigured, portero.ReasonRedisUnreachable, portero.ReasonSecretConflict:
		return nil
	}
	return err
}

func (r *Reconciler) tell(namespace string, now *problem.Problem) {
	if now != nil && (now.Reason == portero.ReasonRedisNotConfigured || now.Reason == portero.ReasonRedisUnreachable) {
		now = nil // the state of Redis is told by itself
	}
	r.mu.Lock()
	before := r.problems[namespace]
	if r.problems == nil {
		r.problems = map[string]*problem.Problem{}
	}
	if now == nil {
		delete(r.problems, namespace)
	} else {
		r.problems[namespace] = now
	}
	r.mu.Unlock()
	if changed := (before == nil) != (now == nil) || (now != nil && now.Message != before.Message); changed {
		r.Changed(namespace)
	}
}

// ensure writes the Secret first: it is of use to pods as soon as Redis is back, and its policies while it is not. Only a password that replaces
// another must be known to Redis before. It answers when to look again, 0 for when something happens.
func (r *Reconciler) ensure(ctx context.Context, namespace string) (again time.Duration, err error) {
	content, unconfigured := r.Content(ctx)
	if content == nil {
		return 0, unconfigured
	}
	want := content.Secret(namespace)
	if want.Data[sidecarenv.SecretPolicies], err = r.bundle(ctx, namespace); err != nil {
		return 0, err
	}
	known, err := r.known(ctx, namespace)
	if err != nil {
		return 0, err
	}
	state, postponed := r.rotate(ctx, want, known, unconfigured)
	again, err = r.ensureSecret(ctx, want, known)
	switch {
	case err != nil:
		return 0, err
	case unconfigured != nil:
		return again, unconfigured
	case postponed != nil:
		return again, postponed
	}
	if !state.until.IsZero() && again == 0 {
		again = max(state.until.Sub(r.Now()), time.Second)
	}
	return again, r.Users.Ensure(ctx, namespace, state.passwords(content.Password(namespace))...)
}

// known is the namespace's Secret as it is, nil where there is none. One that isn't ours is an error.
func (r *Reconciler) known(ctx context.Context, namespace string) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := r.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: sidecarenv.CredentialsName}, secret)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get Secret %s: %w", sidecarenv.CredentialsName, err)
	case !Ours(secret):
		return nil, conflict(namespace)
	}
	return secret, nil
}

func (r *Reconciler) ensureSecret(ctx context.Context, want, secret *corev1.Secret) (again time.Duration, err error) {
	if secret == nil {
		return 0, r.createSecret(ctx, want)
	}
	keepWay(want, secret)
	if sameData(secret, want) {
		return 0, nil
	}
	if again := r.tooSoon(secret, want); again > 0 {
		return again, nil
	}
	secret.Data = want.Data
	if since, ok := want.Annotations[RotatedAnnotation]; ok {
		metav1.SetMetaDataAnnotation(&secret.ObjectMeta, RotatedAnnotation, since)
	} else {
		delete(secret.Annotations, RotatedAnnotation)
	}
	// The resource version makes an update of a Secret that changed meanwhile fail, and the change makes us look again.
	if err := r.Client.Update(ctx, secret); err != nil {
		return 0, fmt.Errorf("update Secret %s: %w", want.Name, err)
	}
	r.wrote(want.Namespace)
	logf.FromContext(ctx).V(1).Info("Credentials Secret updated", "namespace", want.Namespace)
	return 0, nil
}

// keepWay leaves sidecars the way to Redis that they know while the manager knows none.
func keepWay(want, known *corev1.Secret) {
	if _, ok := want.Data[sidecarenv.SecretAddrs]; ok {
		return
	}
	for _, key := range []string{sidecarenv.SecretAddrs, sidecarenv.SecretCA, sidecarenv.SecretCert, sidecarenv.SecretKey} {
		if value, ok := known.Data[key]; ok {
			want.Data[key] = value
		}
	}
}

func (r *Reconciler) createSecret(ctx context.Context, want *corev1.Secret) error {
	err := r.Client.Create(ctx, want)
	switch {
	case err == nil:
		logf.FromContext(ctx).Info("Credentials Secret created", "namespace", want.Namespace)
		return nil
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause), apierrors.IsNotFound(err):
		return nil // the namespace goes, and its policies with it
	default:
		return fmt.Errorf("create Secret %s: %w", want.Name, err)
	}
}

func conflict(namespace string) *problem.Problem {
	return problem.New(portero.ReasonSecretConflict,
		"the Secret %s in namespace %s was not made by Portero, so it is left alone and sidecars get no credentials from it; rename or delete it",
		sidecarenv.CredentialsName, namespace)
}

func (r *Reconciler) remove(ctx context.Context, namespace string) error {
	secret := &corev1.Secret{}
	err := r.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: sidecarenv.CredentialsName}, secret)
	if err == nil && Ours(secret) {
		// The next leader may give the Secret to a namespace that this one's cache does not want.
		if err := r.Confirm(ctx); err != nil {
			return err
		}
		err = r.Client.Delete(ctx, secret, client.Preconditions{UID: &secret.UID})
		if err == nil {
			logf.FromContext(ctx).Info("Credentials Secret deleted", "namespace", namespace)
		}
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete Secret %s: %w", sidecarenv.CredentialsName, err)
	}
	return r.Users.Remove(ctx, namespace)
}
