package servingcert

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// SecretName is the Secret that the package's RBAC markers allow for.
const SecretName = "portero-webhook-ca"

// Defaults of Options.
const (
	DefaultCAValidity   = 365 * 24 * time.Hour
	DefaultLeafValidity = 7 * 24 * time.Hour
	// DefaultSettle is far more than an API server takes to see a changed webhook configuration.
	DefaultSettle = time.Minute
)

const (
	resync     = time.Minute
	retryAfter = 2 * time.Second
	minWait    = 10 * time.Millisecond
)

// Options are what a Keeper needs to know. All strings but Validating, Hosts and Elected are required.
type Options struct {
	// Namespace and SecretName tell where the CA lies.
	Namespace, SecretName string
	// Mutating and Validating are the webhook configurations whose webhooks get the caBundle, all of them. Without the
	// validating one, whose name may be empty, the API server calls for less, so nothing waits for it.
	Mutating, Validating string
	// Hosts are the names, or addresses, by which the API server calls this server.
	Hosts []string
	// Elected is closed once this replica is the leader, who alone writes the caBundle.
	Elected <-chan struct{}
	// CAValidity, LeafValidity and Settle default to the constants above. Settle is how long the caBundle must hold a CA
	// before it signs.
	CAValidity, LeafValidity, Settle time.Duration
	// Clock defaults to the real one.
	Clock clock.Clock
}

// Keeper keeps this replica's serving certificate and the caBundle current. Its methods may be called concurrently.
type Keeper struct {
	Options
	client  client.Client
	cache   cache.Cache
	changed chan struct{}

	// The fields below belong to Start's goroutine.
	known authorities
	// seen tells since when the caBundle of all webhooks holds a CA, by its raw certificate.
	seen map[string]time.Time

	serving atomic.Pointer[tls.Certificate]
	bundles atomic.Pointer[map[string][]byte]
}

// New returns a Keeper that reads and writes with the rights of config. It reads nothing before Start.
func New(config *rest.Config, o Options) (*Keeper, error) {
	o.CAValidity = orDefault(o.CAValidity, DefaultCAValidity)
	o.LeafValidity = orDefault(o.LeafValidity, DefaultLeafValidity)
	o.Settle = orDefault(o.Settle, DefaultSettle)
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), admissionregistrationv1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("serving certificates: %w", err)
	}
	direct, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("serving certificates: client: %w", err)
	}
	// A cache of its own holds these few objects. The manager's would select other Secrets.
	selected := map[client.Object]cache.ByObject{
		&corev1.Secret{}: {Namespaces: map[string]cache.Config{
			o.Namespace: {FieldSelector: fields.OneTermEqualSelector("metadata.name", o.SecretName)},
		}},
	}
	for _, c := range o.configurations() {
		selected[c.object] = cache.ByObject{Field: fields.OneTermEqualSelector("metadata.name", c.object.GetName())}
	}
	watched, err := cache.New(config, cache.Options{Scheme: scheme, ByObject: selected})
	if err != nil {
		return nil, fmt.Errorf("serving certificates: cache: %w", err)
	}
	return &Keeper{
		Options: o, client: direct, cache: watched, changed: make(chan struct{}, 1), seen: map[string]time.Time{},
	}, nil
}

// NeedLeaderElection is false: every replica serves.
func (k *Keeper) NeedLeaderElection() bool { return false }

// Start keeps the certificates until the context ends.
func (k *Keeper) Start(ctx context.Context) error {
	logger := log.FromContext(ctx).WithName("servingcert")
	ctx = log.IntoContext(ctx, logger)
	watches, err := k.watch(ctx)
	if err != nil {
		return err
	}
	defer watches.Wait()
	elected := k.Elected
	for {
		wait, err := k.sync(ctx)
		k.measure()
		if err != nil && ctx.Err() == nil {
			logger.Error(err, "Serving certificates are not current", "retryAfter", retryAfter)
			wait = retryAfter
		}
		timer := k.Clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-elected:
			elected = nil // a closed channel would be ready for ever
		case <-k.changed:
		case <-timer.C():
		}
		timer.Stop()
	}
}

// watch lets changes of the objects wake Start.
func (k *Keeper) watch(ctx context.Context) (*sync.WaitGroup, error) {
	wake := func(any) {
		select {
		case k.changed <- struct{}{}:
		default: // a wake-up is due already
		}
	}
	objects := []client.Object{&corev1.Secret{}}
	for _, c := range k.configurations() {
		objects = append(objects, c.object)
	}
	for _, o := range objects {
		informer, err := k.cache.GetInformer(ctx, o, cache.BlockUntilSynced(false))
		if err != nil {
			return nil, fmt.Errorf("watch %T: %w", o, err)
		}
		if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: wake, UpdateFunc: func(_, o any) { wake(o) }, DeleteFunc: wake,
		}); err != nil {
			return nil, fmt.Errorf("watch %T: %w", o, err)
		}
	}
	var watches sync.WaitGroup
	watches.Go(func() {
		if err := k.cache.Start(ctx); err != nil {
			log.FromContext(ctx).Error(err, "Watches of the serving certificates ended")
		}
	})
	return &watches, nil
}

// sync brings Secret, caBundle and leaf to what they should be, and tells when to look again.
func (k *Keeper) sync(ctx context.Context) (time.Duration, error) {
	// What can't be read or written now does not keep the certificate from being renewed.
	secretErr := k.syncAuthorities(ctx)
	if k.known.current == nil {
		return 0, secretErr
	}
	bundles, bundleErr := k.syncBundles(ctx)
	now := k.Clock.Now()
	if bundles != nil {
		k.bundles.Store(&bundles)
		k.look(now, bundles)
	}
	signer := k.signer(now)
	if leaf := k.serving.Load(); leaf == nil || leaf.Leaf.CheckSignatureFrom(signer.cert) != nil || !now.Before(renewal(leaf.Leaf)) {
		leaf, err := signer.leaf(now, k.LeafValidity, k.Hosts)
		if err != nil {
			return 0, err
		}
		k.serving.Store(leaf)
		log.FromContext(ctx).Info("Serving certificate was renewed", "notAfter", leaf.Leaf.NotAfter)
	}
	return k.next(now), errors.Join(secretErr, bundleErr)
}

// look notes since when the API server is told to trust each CA.
func (k *Keeper) look(now time.Time, bundles map[string][]byte) {
	seen := map[string]time.Time{}
	for _, a := range k.known.all() {
		trusted := len(bundles) > 0
		for _, b := range bundles {
			trusted = trusted && contains(b, a.cert)
		}
		if !trusted {
			continue
		}
		since, ok := k.seen[string(a.cert.Raw)]
		if !ok {
			since = now
		}
		seen[string(a.cert.Raw)] = since
	}
	k.seen = seen
}

// signer chooses the newest CA that the API servers are sure to know, and else the one that they have known longest.
func (k *Keeper) signer(now time.Time) *authority {
	for _, a := range k.known.all() {
		if since, ok := k.seen[string(a.cert.Raw)]; ok && now.Sub(since) >= k.Settle {
			return a
		}
	}
	if p := k.known.previous; p != nil {
		if _, ok := k.seen[string(p.cert.Raw)]; ok {
			return p
		}
	}
	return k.known.current
}

// next is how long nothing is due.
func (k *Keeper) next(now time.Time) time.Duration {
	at := earliest(now.Add(resync), earliest(renewal(k.known.current.cert), renewal(k.serving.Load().Leaf)))
	for _, since := range k.seen {
		if settled := since.Add(k.Settle); settled.After(now) {
			at = earliest(at, settled)
		}
	}
	return max(at.Sub(now), minWait)
}

// GetCertificate serves a tls.Config.
func (k *Keeper) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	leaf := k.serving.Load()
	if leaf == nil {
		return nil, errors.New("there is no serving certificate yet")
	}
	return leaf, nil
}

// Ready is a readiness check: it fails until the caBundle of every webhook verifies this replica's certificate.
func (k *Keeper) Ready(*http.Request) error {
	leaf, bundles := k.serving.Load(), k.bundles.Load()
	if leaf == nil {
		return errors.New("there is no serving certificate yet")
	}
	if bundles == nil {
		return fmt.Errorf("MutatingWebhookConfiguration %s has not been read yet", k.Mutating)
	}
	for name, b := range *bundles {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(b)
		for _, host := range k.Hosts {
			if _, err := leaf.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: host, CurrentTime: k.Clock.Now()}); err != nil {
				return fmt.Errorf("caBundle of webhook %s does not verify the serving certificate: %w", name, err)
			}
		}
	}
	return nil
}

func orDefault(d, byDefault time.Duration) time.Duration {
	if d == 0 {
		return byDefault
	}
	return d
}
