package credentials

import (
	"context"
	"crypto/rand"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// +kubebuilder:rbac:groups="",namespace=portero-system,resources=secrets,verbs=get;list;watch;create

const (
	// MasterName is the Secret in the system namespace from which the secrets of all namespaces are derived.
	MasterName = "portero-master"
	masterKey  = "secret"
	// passwordsKey is where who rotates the passwords puts their next seed.
	passwordsKey = "passwords"
	masterSize   = 32
)

// Master is what secrets are derived from.
type Master struct {
	// Secret keys the tags of buckets; another one starts every bucket full.
	Secret []byte
	// Passwords is the seed of passwords; empty: Secret.
	Passwords []byte
}

func (m Master) passwords() []byte {
	if len(m.Passwords) > 0 {
		return m.Passwords
	}
	return m.Secret
}

// ReadMaster reads the master Secret, and makes it where there is none. Losing it gives every namespace a new password and
// starts every bucket full; nothing else.
func ReadMaster(ctx context.Context, reader client.Reader, writer client.Writer, systemNamespace string) (Master, error) {
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: systemNamespace, Name: MasterName}
	err := reader.Get(ctx, key, secret)
	if apierrors.IsNotFound(err) {
		secret = newMaster(systemNamespace)
		err = writer.Create(ctx, secret)
	}
	if err != nil {
		return Master{}, fmt.Errorf("master Secret %s: %w", key, err)
	}
	if n := len(secret.Data[masterKey]); n < masterSize {
		return Master{}, fmt.Errorf("master Secret %s: key %q holds %d bytes, at least %d are needed; delete the Secret to have a new one made",
			key, masterKey, n, masterSize)
	}
	passwords, rotated := secret.Data[passwordsKey]
	if n := len(passwords); rotated && n < masterSize {
		return Master{}, fmt.Errorf("master Secret %s: key %q holds %d bytes, at least %d are needed: write as many random ones, or take the key out",
			key, passwordsKey, n, masterSize)
	}
	return Master{Secret: secret.Data[masterKey], Passwords: passwords}, nil
}

func newMaster(systemNamespace string) *corev1.Secret {
	random := make([]byte, masterSize)
	_, _ = rand.Read(random) // never fails
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name: MasterName, Namespace: systemNamespace, Labels: map[string]string{ManagedByLabel: ManagedBy},
		},
		Type: corev1.SecretTypeOpaque,
		Data: map[string][]byte{masterKey: random},
	}
}
