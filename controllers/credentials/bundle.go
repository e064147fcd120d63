package credentials

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/sidecarenv"
)

// sharesEvery bounds how often a Secret is written for nothing but numbers of sidecars: a rollout changes them with each pod, each write
// goes to every kubelet that runs one, and they matter only while Redis is away. kubelet may need 90 s more to
// bring it to the pods, and 2 minutes are promised.
const sharesEvery = 30 * time.Second

// bundle is what was made of a namespace's policies last.
type bundle struct {
	policies []bucketconfig.Bundled
	// data is nil before the first time.
	data    []byte
	omitted []string
	// written is when the Secret was written last.
	written time.Time
}

// bundle makes the Secret's part that holds the policies. Where there are none it says so: a part that is missing would tell a sidecar nothing.
func (r *Reconciler) bundle(ctx context.Context, namespace string) ([]byte, error) {
	policies, err := r.Policies(ctx, namespace)
	if err != nil {
		return nil, err
	}
	data, changed, err := r.encode(namespace, policies)
	if changed {
		r.Changed(namespace)
	}
	return data, err
}

// encode answers true when other policies than before are left out.
func (r *Reconciler) encode(namespace string, policies []bucketconfig.Bundled) (data []byte, changed bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.bundles[namespace]
	if b == nil {
		b = &bundle{}
		if r.bundles == nil {
			r.bundles = map[string]*bundle{}
		}
		r.bundles[namespace] = b
	}
	// Records are immutable: the same pointer is the same record.
	if b.data != nil && slices.Equal(b.policies, policies) {
		return b.data, false, nil
	}
	data, omitted, err := bucketconfig.EncodeBundle(policies)
	if err != nil {
		return nil, false, err
	}
	changed = !slices.Equal(b.omitted, omitted)
	b.policies, b.data, b.omitted = slices.Clone(policies), data, omitted
	return data, changed, nil
}

func (r *Reconciler) forget(namespace string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.bundles, namespace)
}

// tooSoon answers how long a write must wait that would change nothing but numbers of sidecars, 0 for not at all.
func (r *Reconciler) tooSoon(secret, want *corev1.Secret) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.bundles[want.Namespace]
	if b == nil {
		return 0
	}
	if wait := b.written.Add(sharesEvery).Sub(r.Now()); wait > 0 && onlyShares(secret, want) {
		return wait
	}
	return 0
}

// wrote notes that the namespace's Secret was written.
func (r *Reconciler) wrote(namespace string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if b := r.bundles[namespace]; b != nil {
		b.written = r.Now()
	}
}

func onlyShares(a, b *corev1.Secret) bool {
	rest := func(s *corev1.Secret) *corev1.Secret {
		s = s.DeepCopy()
		delete(s.Data, sidecarenv.SecretPolicies)
		return s
	}
	if !sameData(rest(a), rest(b)) {
		return false
	}
	before, err := bucketconfig.DecodeBundle(a.Data[sidecarenv.SecretPolicies])
	if err != nil {
		return false
	}
	after, err := bucketconfig.DecodeBundle(b.Data[sidecarenv.SecretPolicies])
	return err == nil && slices.EqualFunc(before, after, func(x, y bucketconfig.Bundled) bool {
		return x.Record != nil && y.Record != nil && x.Name == y.Name && x.Record.UID == y.Record.UID && x.Record.Order == y.Record.Order
	})
}

// Kept reads the policies that a namespace's Secret holds; none where it is not there, not ours, or can't be read.
func Kept(ctx context.Context, reader client.Reader, namespace string) ([]bucketconfig.Bundled, error) {
	secret := &corev1.Secret{}
	err := reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: sidecarenv.CredentialsName}, secret)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get Secret %s: %w", sidecarenv.CredentialsName, err)
	case !Ours(secret):
		return nil, nil
	}
	policies, err := bucketconfig.DecodeBundle(secret.Data[sidecarenv.SecretPolicies])
	if err != nil {
		return nil, nil //nolint:nilerr // what a hand spoilt is written anew
	}
	return policies, nil
}
