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

// Names cannot restrict a create; everything else is for the two objects alone.
//
// +kubebuilder:rbac:groups="",namespace=portero-system,resources=secrets,verbs=create
// +kubebuilder:rbac:groups="",namespace=portero-system,resources=secrets,resourceNames=portero-webhook-ca,verbs=get;list;watch;update
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingwebhookconfigurations,resourceNames=portero-injector,verbs=get;list;watch;patch

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

// syncBundles returns the caBundle of each webhook by its name, after the leader has written those that differ. It writes
// nothing else of the configuration, and tests the name first: the order of webhooks may have changed since it was read.
func (k *Keeper) syncBundles(ctx context.Context) (map[string][]byte, error) {
	configuration := &admissionregistrationv1.MutatingWebhookConfiguration{}
	if err := k.client.Get(ctx, client.ObjectKey{Name: k.Configuration}, configuration); err != nil {
		return nil, fmt.Errorf("read MutatingWebhookConfiguration %s: %w", k.Configuration, err)
	}
	if len(configuration.Webhooks) == 0 {
		return nil, fmt.Errorf("MutatingWebhookConfiguration %s has no webhooks: apply it again", k.Configuration)
	}
	wanted := k.known.bundle()
	var steps []patchStep
	for i, w := range configuration.Webhooks {
		if bytes.Equal(w.ClientConfig.CABundle, wanted) {
			continue
		}
		at := fmt.Sprintf("/webhooks/%d/", i)
		steps = append(steps, patchStep{"test", at + "name", w.Name}, patchStep{"add", at + "clientConfig/caBundle", wanted})
	}
	if len(steps) > 0 && k.leads() {
		patch, err := json.Marshal(steps)
		if err != nil {
			return nil, fmt.Errorf("encode patch: %w", err)
		}
		if err := k.client.Patch(ctx, configuration, client.RawPatch(types.JSONPatchType, patch)); err != nil {
			return nil, fmt.Errorf("write caBundle of MutatingWebhookConfiguration %s: %w", k.Configuration, err)
		}
		log.FromContext(ctx).Info("caBundle was written", "configuration", k.Configuration)
	}
	bundles := make(map[string][]byte, len(configuration.Webhooks))
	for _, w := range configuration.Webhooks {
		bundles[w.Name] = w.ClientConfig.CABundle
	}
	return bundles, nil
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
