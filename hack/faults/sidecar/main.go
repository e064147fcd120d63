// Command sidecar runs the data plane of one pod on the loopback interface, for the tests of hack/faults and hack/sidecars: as cmd/sidecar wires it, but on
// free ports and with files of the test's own. It prints the addresses of the protected port and of the metrics, and ends with its
// standard input. hack/sidecars builds it within the tree of an earlier commit too, so it uses only what sidecar.Config had there.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/portero-dev/portero/sidecar"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "sidecar:", err)
		os.Exit(1)
	}
}

func run() error {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	config := sidecar.Config{PollInterval: time.Second, DrainTimeout: time.Second, Version: "faults", Log: log}
	upstream := flag.String("upstream", "", "host:port of the app")
	flag.StringVar(&config.Namespace, "namespace", "", "the pod's namespace")
	flag.StringVar(&config.PodName, "pod", "", "the pod's name")
	flag.StringVar(&config.PodUID, "uid", "", "the pod's UID")
	flag.StringVar(&config.CredentialsDir, "credentials", "", "the folder of the Secret's files")
	flag.StringVar(&config.LabelsFile, "labels", "", "the file of the pod's labels")
	flag.Parse()

	var listeners [3]net.Listener
	for i := range listeners {
		var err error
		if listeners[i], err = net.Listen("tcp4", "127.0.0.1:0"); err != nil {
			return err
		}
	}
	config.Proxies = []sidecar.Proxy{{Listener: listeners[0], Upstream: *upstream}}
	config.Admin, config.Control = listeners[1], listeners[2]
	fmt.Fprintln(os.Stdout, listeners[0].Addr(), listeners[1].Addr())

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	return sidecar.Run(ctx, config)
}
