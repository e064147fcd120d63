package sidecar

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/portero-dev/portero/internal/sidecarenv"
	"github.com/portero-dev/portero/internal/version"
	"github.com/portero-dev/portero/sidecar/internal/admin"
	"github.com/portero-dev/portero/sidecar/internal/environment"
	"github.com/portero-dev/portero/sidecar/internal/redirect"
)

// Process is what a command has of its process.
type Process struct {
	Args           []string // without the program's name
	Getenv         func(string) string
	Stdout, Stderr io.Writer
}

const help = `sidecar limits the rate of the requests to the app beside it, in a pod into which Portero has injected it.

Usage: sidecar [COMMAND]

Commands:
  (none)    Serve the protected ports until SIGTERM, then drain and exit.
  redirect  Send the pod's inbound traffic for the protected ports here, by nftables, and exit.
            Needs uid 0 and NET_ADMIN, and runs as an init container.
  drain     Tell the running sidecar of this pod that the pod is about to end, and exit.
  version   Print the version.
  help      Print this.

Everything is configured by the environment, which the injector writes:
  PORTERO_PORTS          required: APP:LISTEN:SHADOW[:NAME] for each protected port, separated by commas
                         (8080:14080:14180:http). SHADOW is the port on which kubelet's probes reach the app; only redirect
                         uses it. NAME is what the pod calls the port.
  PORTERO_NAMESPACE, PORTERO_POD_NAME, PORTERO_POD_UID, PORTERO_POD_IP
                         required to serve: the pod's own, from the downward API.
  PORTERO_WORKLOAD       what the pod belongs to, such as deployment/web; a key part can tell workloads apart by it.
  PORTERO_HOST_IPS       the node's addresses, separated by commas; redirect lets them probe.
  PORTERO_UPSTREAM_HOST  where the app listens; default: the pod's IP.
  PORTERO_LOG_LEVEL      debug, info (default), warn or error.
  PORTERO_DRAIN_TIMEOUT  how long open requests may take after SIGTERM; default 10s.

Files: ` + sidecarenv.CredentialsDir + ` (the Secret ` + sidecarenv.CredentialsName + `: the way to Redis; may come later, is read again on change)
and ` + sidecarenv.PodInfoDir + `/` + sidecarenv.LabelsFile + ` (the pod's labels). Without the Secret all traffic passes.

Probes (/startupz, /readyz, /livez) and /metrics are on port 14900 of the pod.
`

// Command runs the command that the process's arguments name, until it is done or ctx is. Its error names the way out.
func Command(ctx context.Context, process Process) error {
	name := ""
	if len(process.Args) > 0 {
		name = process.Args[0]
	}
	if len(process.Args) > 1 {
		return fmt.Errorf("command %q takes no arguments; see sidecar help", name)
	}
	switch name {
	case "":
		config, err := Listen(process.Getenv, logger(process.Stderr))
		if err != nil {
			return err
		}
		// The client writes to stderr itself otherwise, a line for each refused dial; what matters of it is told here.
		redis.SetLogger(clientLog{config.Log})
		return Run(ctx, config)
	case "redirect":
		return programRedirect(process)
	case "drain":
		return tellToDrain(ctx, process.Stdout)
	case "version":
		fmt.Fprintln(process.Stdout, version.Version)
		return nil
	case "help", "-h", "-help", "--help":
		fmt.Fprint(process.Stdout, help)
		return nil
	}
	return fmt.Errorf("unknown command %q; see sidecar help", name)
}

// clientLog takes what the Redis client tells.
type clientLog struct{ log *slog.Logger }

// Printf implements go-redis' logging interface.
func (c clientLog) Printf(ctx context.Context, format string, v ...any) {
	if c.log.Enabled(ctx, slog.LevelDebug) {
		c.log.DebugContext(ctx, "Redis client", "message", fmt.Sprintf(format, v...))
	}
}

func logger(w io.Writer) func(slog.Level) *slog.Logger {
	return func(level slog.Level) *slog.Logger {
		return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level}))
	}
}

func programRedirect(process Process) error {
	ports, err := environment.ParsePorts(process.Getenv(sidecarenv.Ports))
	if err != nil {
		return err
	}
	sources, err := environment.ParseHostIPs(process.Getenv(sidecarenv.HostIPs))
	if err != nil {
		return err
	}
	gateways, err := redirect.DefaultGateways()
	if err != nil {
		return err
	}
	sources = append(sources, gateways...)
	if err := redirect.Apply(redirect.Options{Ports: ports, ProbeSources: sources}); err != nil {
		return err
	}
	logger(process.Stderr)(slog.LevelInfo).Info("inbound traffic is redirected", "ports", ports, "probeSources", sources)
	return nil
}

// drainTimeout bounds the drain command, which only tells.
const drainTimeout = 5 * time.Second

func tellToDrain(ctx context.Context, stdout io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	url := "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(sidecarenv.ControlPort)) + admin.DrainPath
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("tell the sidecar to drain: %w: does it run in this pod?", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("tell the sidecar to drain: it answered %s", response.Status)
	}
	_, err = io.Copy(stdout, response.Body)
	return err
}
