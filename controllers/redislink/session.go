package redislink

import (
	"io"
	"sync"

	portero "github.com/portero-dev/portero/api/v1alpha1"
	"github.com/portero-dev/portero/controllers/problem"
	"github.com/portero-dev/portero/internal/configstore"
	"github.com/portero-dev/portero/internal/keyspace"
	"github.com/portero-dev/portero/internal/redisadmin"
	"github.com/portero-dev/portero/internal/redisclient"
)

// session is what is made of one version of the admin Secret.
type session struct {
	settings *Settings
	client   io.Closer
	listed   sync.Map // the namespaces that were last seen in the index

	admin         *redisadmin.Admin
	newWriter     func(fence int64) *configstore.Writer
	newReader     func(namespace string) *configstore.Reader
	newHeartbeats func(namespace string) *configstore.Heartbeats
}

func connect(settings *Settings, instance keyspace.Instance) (*session, error) {
	options := redisclient.Options{Addrs: settings.Addrs, Credentials: redisclient.Static(settings.Username, settings.Password)}
	if len(settings.CA) > 0 {
		config, err := redisclient.TLS{CA: settings.CA, Certificate: settings.Cert, Key: settings.Key}.Config()
		if err != nil {
			return nil, problem.New(portero.ReasonRedisNotConfigured, "Secret %s: %w", AdminSecret, err)
		}
		options.TLS = config
	}
	client := redisclient.NewAdmin(options)
	return &session{
		settings: settings, client: client, admin: redisadmin.New(options, instance),
		newWriter: func(fence int64) *configstore.Writer { return configstore.NewWriter(client, instance, fence) },
		newReader: func(namespace string) *configstore.Reader { return configstore.NewReader(client, instance, namespace) },
		newHeartbeats: func(namespace string) *configstore.Heartbeats {
			return configstore.NewHeartbeats(client, instance, namespace)
		},
	}, nil
}

func (s *session) close() {
	if s != nil {
		// Only pooled connections: nothing is lost with them.
		_ = s.client.Close()
		_ = s.admin.Close()
	}
}
