package redislink

import (
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
)

// Settings are how the manager reaches Redis.
type Settings struct {
	Addrs              []string
	Username, Password string
	CA, Cert, Key      []byte
}

func (s *Settings) equal(o *Settings) bool {
	if s == nil || o == nil {
		return s == o
	}
	return slices.Equal(s.Addrs, o.Addrs) && s.Username == o.Username && s.Password == o.Password &&
		slices.Equal(s.CA, o.CA) && slices.Equal(s.Cert, o.Cert) && slices.Equal(s.Key, o.Key)
}

// ParseSettings reads the admin Secret.
func ParseSettings(secret *corev1.Secret) (*Settings, error) {
	addrs, err := redisclient.ParseAddrs(string(secret.Data[AddrsKey]))
	if err != nil {
		return nil, problem.New(portero.ReasonRedisNotConfigured, "Secret %s/%s, key %q: %w", secret.Namespace, secret.Name, AddrsKey, err)
	}
	if (len(secret.Data[CertKey]) > 0) != (len(secret.Data[KeyKey]) > 0) {
		return nil, problem.New(portero.ReasonRedisNotConfigured, "Secret %s/%s: keys %q and %q belong together, one is missing",
			secret.Namespace, secret.Name, CertKey, KeyKey)
	}
	if len(secret.Data[CertKey]) > 0 && len(secret.Data[CAKey]) == 0 {
		return nil, problem.New(portero.ReasonRedisNotConfigured, "Secret %s/%s: key %q is missing beside %q: without a CA the connection would not be encrypted",
			secret.Namespace, secret.Name, CAKey, CertKey)
	}
	return &Settings{
		Addrs:    addrs,
		Username: strings.TrimSpace(string(secret.Data[UsernameKey])),
		Password: strings.TrimRight(string(secret.Data[PasswordKey]), "\r\n"),
		CA:       secret.Data[CAKey], Cert: secret.Data[CertKey], Key: secret.Data[KeyKey],
	}, nil
}
