// Command process runs a sidecar outside of a pod: on loopback, on ports that are free, with the folders that it is told.
//
// Specs run it as a process of its own; it ends by SIGTERM, or when its input does. It is also built within the tree of an earlier commit, so it uses only what sidecar.Config had
// there.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/portero-dev/portero/sidecar"
)

// addresses are printed as one line of JSON once all are bound.
type addresses struct {
	Proxies []string `json:"proxies"` // in the order of the upstreams
	Admin   string   `json:"admin"`
}

func main() {
	namespace := flag.String("namespace", "", "the pod's namespace")
	uid := flag.String("uid", "", "the pod's UID")
	upstreams := flag.String("upstreams", "", "where the app listens, host:port for each protected port, separated by commas")
	credentials := flag.String("credentials", "", "the folder of the way to Redis")
	labels := flag.String("labels", "", "the file of the pod's labels")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // ends with whoever started this
		stop()
	}()
	config := sidecar.Config{
		Namespace: *namespace, PodName: *uid, PodUID: *uid, CredentialsDir: *credentials, LabelsFile: *labels,
		PollInterval: 50 * time.Millisecond, DrainTimeout: 5 * time.Second, Version: "process",
		Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}
	if err := run(ctx, config, strings.Split(*upstreams, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "process:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, config sidecar.Config, upstreams []string) error {
	var bound addresses
	var err error
	bind := func() (listener net.Listener, addr string) {
		if err != nil {
			return nil, ""
		}
		if listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return nil, ""
		}
		return listener, listener.Addr().String()
	}
	for _, upstream := range upstreams {
		listener, addr := bind()
		config.Proxies = append(config.Proxies, sidecar.Proxy{Listener: listener, Upstream: upstream})
		bound.Proxies = append(bound.Proxies, addr)
	}
	config.Admin, bound.Admin = bind()
	config.Control, _ = bind()
	if err != nil {
		return fmt.Errorf("bind a port of loopback: %w", err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(bound); err != nil {
		return fmt.Errorf("tell the addresses: %w", err)
	}
	return sidecar.Run(ctx, config)
}
