package app

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	portero "github.com/portero-dev/portero/api/v1alpha1"
	"github.com/portero-dev/portero/controllers"
	"github.com/portero-dev/portero/controllers/fence"
	"github.com/portero-dev/portero/controllers/informers"
	"github.com/portero-dev/portero/internal/keyspace"
	"github.com/portero-dev/portero/internal/redisclient"
)

// +kubebuilder:rbac:groups="",resources=namespaces,resourceNames=kube-system,verbs=get

// leaseName is the leader lease's, and that of all else that belongs to the manager.
const leaseName = "portero-manager"

// shutdownTimeout leaves room below the pod's 30 s, of which the preStop hook takes 5.
const shutdownTimeout = 15 * time.Second

// Scheme knows all types that the manager handles.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(portero.AddToScheme(scheme))
	return scheme
}

func newManager(ctx context.Context, restConfig *rest.Config, options *Options) (ctrl.Manager, error) {
	identity := leaderIdentity()
	lock, err := leaderLock(restConfig, options, identity)
	if err != nil {
		return nil, err
	}
	hooks := newWebhooks(options.Serving.WebhookPort)
	le, grace := options.LeaderElection, shutdownTimeout
	mgr, err := ctrl.NewManager(restConfig, ctrl.Options{
		Scheme:                              Scheme(),
		Logger:                              logr.FromContextOrDiscard(ctx),
		Cache:                               informers.Options(options.SystemNamespace),
		Metrics:                             metricsserver.Options{BindAddress: options.Serving.MetricsAddr},
		HealthProbeBindAddress:              options.Serving.ProbeAddr,
		WebhookServer:                       hooks.server,
		LeaderElection:                      le.Enabled,
		LeaderElectionResourceLockInterface: lock,
		// The process ends right after Start returns, so nobody writes any more when the lease is released.
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 &le.LeaseDuration,
		RenewDeadline:                 &le.RenewDeadline,
		RetryPeriod:                   &le.RetryPeriod,
		GracefulShutdownTimeout:       &grace,
		Controller:                    config.Controller{UsePriorityQueue: new(true), SkipNameValidation: new(true)},
	})
	if err != nil {
		return nil, fmt.Errorf("make manager: %w", err)
	}
	direct, err := client.New(restConfig, client.Options{Scheme: mgr.GetScheme(), HTTPClient: mgr.GetHTTPClient()})
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	instance, err := resolveInstance(ctx, direct, options.Redis.Instance)
	if err != nil {
		return nil, err
	}
	mgr.GetLogger().Info("Instance", "instance", instance)
	go tellLeadership(ctx, mgr.Elected())
	if err := setup(mgr, direct, instance, identity, options); err != nil {
		return nil, err
	}
	if options.Serving.WebhookPort != 0 {
		err = hooks.setup(mgr, options)
	}
	return mgr, err
}

func setup(mgr ctrl.Manager, direct client.Client, instance keyspace.Instance, identity string, options *Options) error {
	lead := &fence.Fence{Reader: direct, Identity: identity}
	if options.LeaderElection.Enabled {
		lead.Lease = client.ObjectKey{Namespace: options.SystemNamespace, Name: leaseName}
	}
	var sidecarAddrs []string
	if options.Redis.SidecarAddrs != "" {
		sidecarAddrs, _ = redisclient.ParseAddrs(options.Redis.SidecarAddrs) // checked with the flags
	}
	err := controllers.Setup(mgr, controllers.Options{
		Instance:        instance,
		SystemNamespace: options.SystemNamespace,
		SidecarAddrs:    sidecarAddrs,
		Fence:           lead,
	})
	if err != nil {
		return err
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	return mgr.AddReadyzCheck("caches", cachesSynced(mgr))
}

// resolveInstance derives the instance from the cluster when no flag names it: two clusters on one Redis never share keys.
func resolveInstance(ctx context.Context, reader client.Reader, flagged string) (keyspace.Instance, error) {
	if flagged != "" {
		return keyspace.ParseInstance(flagged)
	}
	namespace := &corev1.Namespace{}
	if err := reader.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, namespace); err != nil {
		return "", fmt.Errorf("read the UID of namespace %s for the default of --instance: %w", metav1.NamespaceSystem, err)
	}
	const digits = 8
	if len(namespace.UID) < digits {
		return "", fmt.Errorf("namespace %s has UID %q, too short for a default: set --instance", metav1.NamespaceSystem, namespace.UID)
	}
	return keyspace.ParseInstance(string(namespace.UID[:digits]))
}

// leaderIdentity is unique per process: a restarted container is another candidate.
func leaderIdentity() string {
	host, err := os.Hostname()
	if err != nil {
		host = "manager"
	}
	return host + "_" + string(uuid.NewUUID())
}

// leaderLock is made here and not by controller-runtime, because the fence has to know the identity in it.
func leaderLock(config *rest.Config, options *Options, identity string) (resourcelock.Interface, error) {
	config = rest.AddUserAgent(rest.CopyConfig(config), "leader-election")
	// A request that hangs must not eat up the renew deadline.
	config.Timeout = options.LeaderElection.RenewDeadline / 2
	leases, err := coordinationv1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make lease client: %w", err)
	}
	return &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: options.SystemNamespace, Name: leaseName},
		Client:     leases,
		LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
	}, nil
}
