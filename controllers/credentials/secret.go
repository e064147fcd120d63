package credentials

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portero-dev/portero/internal/keyspace"
	"github.com/portero-dev/portero/internal/sidecarenv"
)

const (
	// ManagedByLabel marks the Secrets that are ours; one of the same name without it is never touched.
	ManagedByLabel = "portero.dev/managed-by"
	// ManagedBy is the label's value.
	ManagedBy = "portero"
)

// Content is what a namespace's Secret is made of.
type Content struct {
	Instance keyspace.Instance
	// Addrs are the addresses of Redis as the sidecars are to use them, none while nobody told them; CA is PEM and may be empty.
	Addrs []string
	CA    []byte
	// Cert and Key are PEM of the client certificate that all sidecars share, and may be empty.
	Cert, Key []byte
	// Master is what all of a namespace's secrets are derived from.
	Master Master
}

// Password is the password of the namespace's ACL user. Deriving it makes a Secret that was deleted or altered come back
// as it was, so that no sidecar loses its connection by the repair.
func (c *Content) Password(namespace string) string {
	return base64.RawURLEncoding.EncodeToString(c.derive(c.Master.passwords(), "password", namespace))
}

// passwordLength is that of Password's results.
var passwordLength = base64.RawURLEncoding.EncodedLen(sha256.Size)

// KeySecret keys the tags of the namespace's buckets.
func (c *Content) KeySecret(namespace string) []byte {
	return c.derive(c.Master.Secret, "key", namespace)
}

// derive gives 32 bytes that tell nothing of the seed nor of each other. Neither purpose nor instance nor
// namespace can hold a slash.
func (c *Content) derive(seed []byte, purpose, namespace string) []byte {
	mac := hmac.New(sha256.New, seed)
	mac.Write([]byte(purpose + "/" + string(c.Instance) + "/" + namespace))
	return mac.Sum(nil)
}

// Secret is the namespace's Secret as it should be.
func (c *Content) Secret(namespace string) *corev1.Secret {
	data := map[string][]byte{
		sidecarenv.SecretUsername:  []byte(c.Instance.User(namespace)),
		sidecarenv.SecretPassword:  []byte(c.Password(namespace)),
		sidecarenv.SecretInstance:  []byte(c.Instance),
		sidecarenv.SecretKeySecret: c.KeySecret(namespace),
	}
	if len(c.Addrs) > 0 {
		data[sidecarenv.SecretAddrs] = []byte(strings.Join(c.Addrs, ","))
	}
	if len(c.CA) > 0 {
		data[sidecarenv.SecretCA] = c.CA
	}
	if len(c.Cert) > 0 {
		data[sidecarenv.SecretCert], data[sidecarenv.SecretKey] = c.Cert, c.Key
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name: sidecarenv.CredentialsName, Namespace: namespace,
			Labels: map[string]string{ManagedByLabel: ManagedBy},
		},
		Type: corev1.SecretTypeOpaque,
		Data: data,
	}
}

// Ours reports whether the manager made the Secret.
func Ours(secret *corev1.Secret) bool { return secret.Labels[ManagedByLabel] == ManagedBy }

func sameData(a, b *corev1.Secret) bool {
	return maps.EqualFunc(a.Data, b.Data, func(x, y []byte) bool { return string(x) == string(y) })
}
