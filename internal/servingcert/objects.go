package servingcert

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// Names cannot restrict a create; everything else is for the three objects alone.
//
// +kubebuilder:rbac:groups="",namespace=portero-system,resources=secrets,verbs=create
// +kubebuilder:rbac:groups="",namespace=portero-system,resources=secrets,resourceNames=portero-webhook-ca,verbs=get;list;watch;update
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingwebhookconfigurations,resourceNames=portero-injector,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingwebhookconfigurations,resourceNames=portero-validator,verbs=get;list;watch;patch

// syncAuthorities makes known what the Secret holds, after it was created, repaired or renewed where that was due. Any
// replica may do so: a create or update that comes second fails, and what the first one wrote is taken.
func (k *Keeper) syncAuthorities(ctx context.Context) error {
	err := k.tryAuthorities(ctx)
	if apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) {
		return k.tryAuthorities(ctx)
	}
	return err
}

func (k *Keeper) tryAuthorities(ctx context.Context) error {
	secret := &corev1.Secret{}
	err := k.client.Get(ctx, client.ObjectKey{Namespace: k.Namespace, Name: k.SecretName}, secret)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return fmt.Errorf("read Secret %s/%s: %w", k.Namespace, k.SecretName, err)
	}
	stored, err := decode(secret.Data)
	if err != nil {
		log.FromContext(ctx).Error(err, "Secret of the webhook CA can't be read and will be replaced", "secret", k.SecretName)
	}
	wanted := stored
	if wanted.current == nil {
		// What this replica knows is what the API servers trust: a lost Secret then disturbs nobody.
		wanted = k.known
	}
	if wanted, err = wanted.renewed(k.Clock.Now(), k.CAValidity); err != nil {
		return err
	}
	if !wanted.equal(stored) {
		if err := k.write(ctx, secret, wanted, missing); err != nil {
			return err
		}
		log.FromContext(ctx).Info("Webhook CA was written", "secret", k.SecretName, "notAfter", wanted.current.cert.NotAfter)
	}
	k.known = wanted
	return nil
}

func (k *Keeper) write(ctx context.Context, secret *corev1.Secret, wanted authorities, create bool) error {
	var err error
	if secret.Data, err = wanted.encode(); err != nil {
		return err
	}
	if create {
		secret.ObjectMeta = metav1.ObjectMeta{
			Namespace: k.Namespace, Name: k.SecretName,
			Labels: map[string]string{"app.kubernetes.io/name": "portero", "app.kubernetes.io/managed-by": "portero"},
		}
		secret.Type = corev1.SecretTypeOpaque
		err = k.client.Create(ctx, secret)
	} else {
		err = k.client.Update(ctx, secret) // with the version that was read
	}
	if err != nil {
		return fmt.Errorf("write Secret %s/%s: %w", k.Namespace, k.SecretName, err)
	}
	return nil
}

// patchStep is one step of a JSON patch.
type patchStep struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// configuration is a webhook configuration, of either kind.
type configuration struct {
	kind     string
	object   client.Object
	webhooks func() []hook // of the object as it is then
	optional bool
}

// hook is what matters here of a webhook.
type hook struct {
	name   string
	bundle []byte
}

// configurations are those that there may be, not yet read.
func (o *Options) configurations() []configuration {
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: o.Mutating}}
	all := []configuration{{kind: "MutatingWebhookConfiguration", object: mutating, webhooks: func() (hooks []hook) {
		for _, w := range mutating.Webhooks {
			hooks = append(hooks, hook{w.Name, w.ClientConfig.CABundle})
		}
		return hooks
	}}}
	if o.Validating == "" {
		return all
	}
	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: o.Validating}}
	return append(all, configuration{kind: "ValidatingWebhookConfiguration", object: validating, optional: true, webhooks: func() (hooks []hook) {
		for _, w := range validating.Webhooks {
			hooks = append(hooks, hook{w.Name, w.ClientConfig.CABundle})
		}
		return hooks
	}})
}

// syncBundles returns the caBundle of each webhook by its name, after the leader has written those that differ. An error beside them is of an
// optional configuration: it must not keep the others' pods from being injected.
func (k *Keeper) syncBundles(ctx context.Context) (map[string][]byte, error) {
	bundles := map[string][]byte{}
	var optional error
	for _, c := range k.configurations() {
		err := k.client.Get(ctx, client.ObjectKeyFromObject(c.object), c.object)
		if c.optional && apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			err = fmt.Errorf("read %s %s: %w", c.kind, c.object.GetName(), err)
		} else {
			err = k.writeBundles(ctx, &c)
		}
		switch {
		case err != nil && c.optional:
			optional = err
			continue
		case err != nil:
			return nil, err
		}
		for _, w := range c.webhooks() {
			bundles[w.name] = w.bundle
		}
	}
	return bundles, optional
}

// writeBundles writes nothing else of the configuration, and tests the name first: the order of webhooks may have changed
// since it was read.
func (k *Keeper) writeBundles(ctx context.Context, c *configuration) error {
	name, hooks := c.object.GetName(), c.webhooks()
	if len(hooks) == 0 {
		return fmt.Errorf("%s %s has no webhooks: apply it again", c.kind, name)
	}
	wanted := k.known.bundle()
	var steps []patchStep
	for i, w := range hooks {
		if bytes.Equal(w.bundle, wanted) {
			continue
		}
		at := fmt.Sprintf("/webhooks/%d/", i)
		steps = append(steps, patchStep{"test", at + "name", w.name}, patchStep{"add", at + "clientConfig/caBundle", wanted})
	}
	if len(steps) == 0 || !k.leads() {
		return nil
	}
	patch, err := json.Marshal(steps)
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	if err := k.client.Patch(ctx, c.object, client.RawPatch(types.JSONPatchType, patch)); err != nil {
		return fmt.Errorf("write caBundle of %s %s: %w", c.kind, name, err)
	}
	log.FromContext(ctx).Info("caBundle was written", "configuration", name)
	return nil
}

func (k *Keeper) leads() bool {
	select {
	case <-k.Elected:
		return true
	default:
		return false
	}
}

// contains tells whether a bundle of PEM blocks holds the certificate.
func contains(bundle []byte, cert *x509.Certificate) bool {
	for {
		var block *pem.Block
		if block, bundle = pem.Decode(bundle); block == nil {
			return false
		}
		if bytes.Equal(block.Bytes, cert.Raw) {
			return true
		}
	}
}
