// Package sidecar is the data plane: it wires the proxy, the verdicts, the policies' snapshot and the heartbeats of one
// pod, and holds the commands of the sidecar's binary.
//
// cmd/sidecar imports it. Everything else lies below internal/, so that no other part of the project can reach it; nothing of
// Kubernetes is linked.
package sidecar

import (
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strconv"
	"time"

	"github.com/portero-dev/portero/internal/sidecarenv"
	"github.com/portero-dev/portero/internal/version"
	"github.com/portero-dev/portero/sidecar/internal/environment"
)

// Config is what Run runs on.
type Config struct {
	Namespace string
	PodName   string
	PodUID    string
	// Workload is what the pod belongs to, such as deployment/web; empty when it is not known.
	Workload string
	// Proxies are the protected ports. Run closes the listeners, as it does the two below.
	Proxies []Proxy
	// Admin serves probes and metrics, Control the drain command.
	Admin, Control net.Listener
	// CredentialsDir is where the Secret is mounted, and LabelsFile where the pod's labels are.
	CredentialsDir, LabelsFile string
	// PollInterval is how often both are looked at.
	PollInterval time.Duration
	// DrainTimeout bounds how long open requests may take at the end.
	DrainTimeout time.Duration
	Version      string
	Log          *slog.Logger
}

// Proxy is one protected port.
type Proxy struct {
	Listener net.Listener
	Upstream string // host:port of the app
	// Port and PortName are the app's port and what the pod calls it, empty for nothing.
	Port     uint16
	PortName string
}

// defaultPollInterval is below kubelet's own delay, and costs a few reads of memory.
const defaultPollInterval = 2 * time.Second

// Listen makes the Config of an injected pod: it reads the environment through getenv and binds the listeners.
func Listen(getenv func(string) string, log func(slog.Level) *slog.Logger) (Config, error) {
	env, err := environment.Read(getenv)
	if err != nil {
		return Config{}, err
	}
	config := Config{
		Namespace:      env.Namespace,
		PodName:        env.PodName,
		PodUID:         env.PodUID,
		Workload:       env.Workload,
		CredentialsDir: sidecarenv.CredentialsDir,
		LabelsFile:     filepath.Join(sidecarenv.PodInfoDir, sidecarenv.LabelsFile),
		PollInterval:   defaultPollInterval,
		DrainTimeout:   env.DrainTimeout,
		Version:        version.Version,
		Log:            log(env.LogLevel),
	}
	bind := func(host string, port uint16) (listener net.Listener) {
		if err != nil {
			return nil
		}
		// An empty host is every address of both families, or of IPv4 alone where there is no IPv6.
		if listener, err = net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(int(port)))); err != nil {
			err = fmt.Errorf("bind port %d: %w: no other container of the pod may use it", port, err)
		}
		return listener
	}
	for _, port := range env.Ports {
		config.Proxies = append(config.Proxies, Proxy{
			Listener: bind("", port.Listen),
			Upstream: net.JoinHostPort(env.UpstreamHost, strconv.Itoa(int(port.App))),
			Port:     port.App,
			PortName: port.Name,
		})
	}
	config.Admin = bind("", sidecarenv.AdminPort)
	config.Control = bind("127.0.0.1", sidecarenv.ControlPort)
	return config, err
}
