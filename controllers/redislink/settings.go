package redislink

import (
	"crypto/tls"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	portero "github.com/portero-dev/portero/api/v1alpha1"
	"github.com/portero-dev/portero/controllers/problem"
	"github.com/portero-dev/portero/internal/redisclient"
)

// AdminSecret is the Secret in the system namespace that tells the manager how to reach Redis.
const AdminSecret = "portero-redis-admin"

// Keys of AdminSecret.
const (
	AddrsKey    = "addrs"    // host:port, separated by commas; some nodes of the cluster
	UsernameKey = "username" // empty means "default"
	PasswordKey = "password"
	CAKey       = "ca.crt"  // optional: PEM; its presence turns TLS on
	CertKey     = "tls.crt" // optional: PEM client certificate
	KeyKey      = "tls.key" // optional: PEM client key
	// What sidecars show, who never get the manager's own; both optional.
	SidecarCertKey = "sidecar.crt"
	SidecarKeyKey  = "sidecar.key"
)

// Settings are how the manager reaches Redis.
type Settings struct {
	Addrs              []string
	Username, Password string
	CA, Cert, Key      []byte
	// SidecarCert and SidecarKey are PEM of the sidecars' client certificate.
	SidecarCert, SidecarKey []byte
}

func (s *Settings) equal(o *Settings) bool {
	if s == nil || o == nil {
		return s == o
	}
	return slices.Equal(s.Addrs, o.Addrs) && s.Username == o.Username && s.Password == o.Password &&
		slices.Equal(s.CA, o.CA) && slices.Equal(s.Cert, o.Cert) && slices.Equal(s.Key, o.Key) &&
		slices.Equal(s.SidecarCert, o.SidecarCert) && slices.Equal(s.SidecarKey, o.SidecarKey)
}

// ParseSettings reads the admin Secret.
func ParseSettings(secret *corev1.Secret) (*Settings, error) {
	addrs, err := redisclient.ParseAddrs(string(secret.Data[AddrsKey]))
	if err != nil {
		return nil, problem.New(portero.ReasonRedisNotConfigured, "Secret %s/%s, key %q: %w", secret.Namespace, secret.Name, AddrsKey, err)
	}
	for _, pair := range [][2]string{{CertKey, KeyKey}, {SidecarCertKey, SidecarKeyKey}} {
		if err := checkPair(secret, pair[0], pair[1]); err != nil {
			return nil, err
		}
	}
	return &Settings{
		Addrs:    addrs,
		Username: strings.TrimSpace(string(secret.Data[UsernameKey])),
		Password: strings.TrimRight(string(secret.Data[PasswordKey]), "\r\n"),
		CA:       secret.Data[CAKey], Cert: secret.Data[CertKey], Key: secret.Data[KeyKey],
		SidecarCert: secret.Data[SidecarCertKey], SidecarKey: secret.Data[SidecarKeyKey],
	}, nil
}

// checkPair looks at a client certificate and its key, which may both be absent.
func checkPair(secret *corev1.Secret, certificate, key string) error {
	cert, private := secret.Data[certificate], secret.Data[key]
	wrong := func(format string, args ...any) error {
		return problem.New(portero.ReasonRedisNotConfigured, "Secret %s/%s: "+format, append([]any{secret.Namespace, secret.Name}, args...)...)
	}
	if (len(cert) > 0) != (len(private) > 0) {
		return wrong("keys %q and %q belong together, one is missing", certificate, key)
	}
	if len(cert) == 0 {
		return nil
	}
	if len(secret.Data[CAKey]) == 0 {
		return wrong("key %q is missing beside %q: without a CA the connection would not be encrypted", CAKey, certificate)
	}
	if _, err := tls.X509KeyPair(cert, private); err != nil {
		return wrong("keys %q and %q: %w", certificate, key, err)
	}
	return nil
}
