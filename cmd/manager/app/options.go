package app

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/portero-dev/portero/controllers/redislink"
	"github.com/portero-dev/portero/internal/keyspace"
	"github.com/portero-dev/portero/internal/redisclient"
)

// Options are the manager's flags, one struct per concern.
type Options struct {
	Redis          RedisOptions
	Injection      InjectionOptions
	Serving        ServingOptions
	LeaderElection LeaderElectionOptions
	Log            LogOptions

	// SystemNamespace is where the manager and its own Secrets live.
	SystemNamespace string
}

// RedisOptions say what is the manager's in Redis.
type RedisOptions struct {
	Instance     string
	SidecarAddrs string
}

// InjectionOptions say what is injected.
type InjectionOptions struct {
	SidecarImage      string
	SidecarPullPolicy string
}

// ServingOptions are the manager's listeners.
type ServingOptions struct {
	MetricsAddr, ProbeAddr string
	WebhookPort            int
}

// LeaderElectionOptions bound how long two leaders may both believe to be one.
type LeaderElectionOptions struct {
	Enabled                                   bool
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
}

// LogOptions say what is logged, and how.
type LogOptions struct {
	Level, Format string
}

const usage = `The manager is Portero's control plane: it publishes RateLimitPolicies in Redis Cluster, gives each namespace its
credentials, injects sidecars into annotated pods, and tells in each policy's status what is enforced.

It reads the address of Redis and its own credentials from the Secret %s in its namespace (keys %s, %s, %s and,
for TLS, %s, %s, %s). A change of that Secret takes effect at once.

Usage: manager [flags]

Flags:
`

// ParseOptions reads flags; what a flag leaves open comes from the environment. It returns flag.ErrHelp when help was
// asked for and printed.
func ParseOptions(args []string, getenv func(string) string, output io.Writer) (*Options, error) {
	o := &Options{}
	fs := flag.NewFlagSet("manager", flag.ContinueOnError)
	fs.SetOutput(output)
	fs.Usage = func() {
		fmt.Fprintf(output, usage, redislink.AdminSecret, redislink.AddrsKey, redislink.UsernameKey, redislink.PasswordKey,
			redislink.CAKey, redislink.CertKey, redislink.KeyKey)
		fs.PrintDefaults()
	}
	fs.StringVar(&o.SystemNamespace, "system-namespace", fallback(getenv("POD_NAMESPACE"), "portero-system"),
		"`namespace` of the manager and of its own Secrets; also from the environment variable POD_NAMESPACE")
	o.Redis.BindFlags(fs)
	o.Injection.BindFlags(fs, getenv)
	o.Serving.BindFlags(fs)
	o.LeaderElection.BindFlags(fs)
	o.Log.BindFlags(fs)
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	if fs.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q: the manager takes flags only, see --help", fs.Arg(0))
	}
	return o, o.validate()
}

// BindFlags adds the flags about Redis.
func (o *RedisOptions) BindFlags(fs *flag.FlagSet) {
	fs.StringVar(&o.Instance, "instance", "",
		"`name` that tells this Portero's keys in Redis from those of another cluster on the same Redis; default: the first 8 hex digits of the UID of the namespace kube-system")
	fs.StringVar(&o.SidecarAddrs, "sidecar-redis-addrs", "",
		"`host:port,…` of Redis as the sidecars reach it; default: the addresses that the manager uses")
}

// BindFlags adds the flags about injection.
func (o *InjectionOptions) BindFlags(fs *flag.FlagSet, getenv func(string) string) {
	fs.StringVar(&o.SidecarImage, "sidecar-image", fallback(getenv("SIDECAR_IMAGE"), "portero.dev/sidecar:dev"),
		"`image` of the sidecar; also from the environment variable SIDECAR_IMAGE")
	fs.StringVar(&o.SidecarPullPolicy, "sidecar-pull-policy", "IfNotPresent", "`policy` to pull the sidecar's image: Always, IfNotPresent or Never")
}

// BindFlags adds the flags about listeners.
func (o *ServingOptions) BindFlags(fs *flag.FlagSet) {
	fs.StringVar(&o.MetricsAddr, "metrics-bind-address", ":8080", "`address` of the Prometheus metrics; 0 turns them off")
	fs.StringVar(&o.ProbeAddr, "health-probe-bind-address", ":8081", "`address` of /healthz and /readyz")
	fs.IntVar(&o.WebhookPort, "webhook-port", 9443, "`port` of the webhooks; 0 turns them off, and with them injection")
}

// BindFlags adds the flags about leader election.
func (o *LeaderElectionOptions) BindFlags(fs *flag.FlagSet) {
	fs.BoolVar(&o.Enabled, "leader-elect", true, "let only one replica at a time reconcile; webhooks run on all. Off only where there is a single replica")
	fs.DurationVar(&o.LeaseDuration, "leader-elect-lease-duration", 15*time.Second, "`time` after which another replica takes over from a leader that is silent")
	fs.DurationVar(&o.RenewDeadline, "leader-elect-renew-deadline", 10*time.Second, "`time` for which a leader tries to renew before it gives up; below the lease duration")
	fs.DurationVar(&o.RetryPeriod, "leader-elect-retry-period", 2*time.Second, "`time` between two tries")
}

// BindFlags adds the flags about logs.
func (o *LogOptions) BindFlags(fs *flag.FlagSet) {
	fs.StringVar(&o.Level, "log-level", "info", "`level` from which on is logged: debug, info or error")
	fs.StringVar(&o.Format, "log-format", "json", "`format` of logs: json or text")
}

func (o *Options) validate() error {
	return errors.Join(
		o.validateNamespace(), o.Redis.validate(), o.Injection.validate(), o.Serving.validate(), o.LeaderElection.validate(), o.Log.validate(),
	)
}

func (o *Options) validateNamespace() error {
	if problems := validation.IsDNS1123Label(o.SystemNamespace); len(problems) > 0 {
		return bad("system-namespace", o.SystemNamespace, strings.Join(problems, "; "))
	}
	return nil
}

func (o *RedisOptions) validate() error {
	if o.Instance != "" {
		if _, err := keyspace.ParseInstance(o.Instance); err != nil {
			return fmt.Errorf("--instance: %w", err)
		}
	}
	if o.SidecarAddrs != "" {
		if _, err := redisclient.ParseAddrs(o.SidecarAddrs); err != nil {
			return fmt.Errorf("--sidecar-redis-addrs: %w", err)
		}
	}
	return nil
}

func (o *InjectionOptions) validate() error {
	if strings.TrimSpace(o.SidecarImage) == "" || strings.ContainsAny(o.SidecarImage, " \t\n") {
		return bad("sidecar-image", o.SidecarImage, "name an image, such as example.org/portero/sidecar:v1")
	}
	return oneOf("sidecar-pull-policy", o.SidecarPullPolicy, "Always", "IfNotPresent", "Never")
}

func (o *ServingOptions) validate() error {
	var errs []error
	for _, f := range []struct{ name, value string }{{"metrics-bind-address", o.MetricsAddr}, {"health-probe-bind-address", o.ProbeAddr}} {
		if _, _, err := net.SplitHostPort(f.value); f.value != "0" && err != nil {
			errs = append(errs, bad(f.name, f.value, "give an address such as :8080, or 0 for none"))
		}
	}
	if o.WebhookPort < 0 || o.WebhookPort > 65535 {
		errs = append(errs, bad("webhook-port", o.WebhookPort, "must be 1 to 65535, or 0 for none"))
	}
	return errors.Join(errs...)
}

func (o *LeaderElectionOptions) validate() error {
	switch {
	case o.RetryPeriod <= 0:
		return bad("leader-elect-retry-period", o.RetryPeriod, "must be positive")
	case o.RenewDeadline <= o.RetryPeriod*6/5: // client-go's jitter
		return bad("leader-elect-renew-deadline", o.RenewDeadline, "must be above 1.2 times --leader-elect-retry-period")
	case o.LeaseDuration <= o.RenewDeadline:
		return bad("leader-elect-lease-duration", o.LeaseDuration, "must be above --leader-elect-renew-deadline")
	}
	return nil
}

func (o *LogOptions) validate() error {
	return errors.Join(oneOf("log-level", o.Level, "debug", "info", "error"), oneOf("log-format", o.Format, "json", "text"))
}

func oneOf(name, value string, allowed ...string) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	return bad(name, value, "must be one of "+strings.Join(allowed, ", "))
}

func bad(name string, value any, way string) error {
	return fmt.Errorf("--%s=%v: %s", name, value, way)
}

func fallback(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}
