package app

import (
	"crypto/tls"
	"errors"
	"fmt"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/portero-dev/portero/internal/injector"
	"github.com/portero-dev/portero/internal/servingcert"
	"github.com/portero-dev/portero/internal/version"
	"github.com/portero-dev/portero/internal/webhook"
)

// caSecretName is the Secret that all replicas share, and the only one of its kind that they may change.
const caSecretName = "portero-webhook-ca"

// webhooks are the parts that every replica serves.
type webhooks struct {
	server ctrlwebhook.Server
	// keeper comes later than the server: it has to know the manager's election, and the manager its server.
	keeper atomic.Pointer[servingcert.Keeper]
}

func newWebhooks(port int) *webhooks {
	w := &webhooks{}
	w.server = ctrlwebhook.NewServer(ctrlwebhook.Options{
		Port: port,
		TLSOpts: []func(*tls.Config){func(c *tls.Config) {
			c.MinVersion = tls.VersionTLS12
			c.GetCertificate = func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
				if keeper := w.keeper.Load(); keeper != nil {
					return keeper.GetCertificate(hello)
				}
				return nil, errors.New("there is no serving certificate yet")
			}
		}},
	})
	return w
}

// setup registers the injection's paths and keeps the certificates; the replica is ready when an API server can call it.
func (w *webhooks) setup(mgr ctrl.Manager, options *Options) error {
	// Asking the manager for its server is what makes the manager start it.
	err := webhook.Register(mgr.GetWebhookServer(), webhook.Options{
		SystemNamespace: options.SystemNamespace,
		Injector: injector.Options{
			Image:      options.Injection.SidecarImage,
			PullPolicy: corev1.PullPolicy(options.Injection.SidecarPullPolicy),
			Version:    version.Version,
		},
	})
	if err != nil {
		return fmt.Errorf("set up webhooks: %w", err)
	}
	keeper, err := servingcert.New(mgr.GetConfig(), servingcert.Options{
		Namespace: options.SystemNamespace, SecretName: caSecretName, Mutating: webhook.ConfigurationName, Validating: webhook.ValidatorName,
		Hosts:   []string{webhook.ServiceName + "." + options.SystemNamespace + ".svc"},
		Elected: mgr.Elected(),
	})
	if err != nil {
		return fmt.Errorf("set up webhooks: %w", err)
	}
	w.keeper.Store(keeper)
	if err := mgr.Add(keeper); err != nil {
		return err
	}
	return errors.Join(
		mgr.AddReadyzCheck("webhook-port", w.server.StartedChecker()),
		mgr.AddReadyzCheck("webhook-ca", healthz.Checker(keeper.Ready)),
	)
}
