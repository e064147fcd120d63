// Package app is the server half of the test app: handlers that show what reached them and which pod answered. Only the test
// app's command and its tests import it.
package app

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"
)

// Options are the command line of `testapp serve`.
type Options struct {
	Listen, Control string
	ShutdownDelay   time.Duration
	Pod             string
}

func (o *Options) bind(flags *flag.FlagSet) {
	hostname, _ := os.Hostname()
	if name := os.Getenv("POD_NAME"); name != "" {
		hostname = name
	}
	flags.StringVar(&o.Listen, "listen", ":8080", "address of the app")
	flags.StringVar(&o.Control, "control", ":8081", "address of the control port (/fail?on=1, /served); empty for none")
	flags.DurationVar(&o.ShutdownDelay, "shutdown-delay", 0, "how long to go on serving after SIGTERM")
	flags.StringVar(&o.Pod, "pod", hostname, "name that answers carry in "+PodHeader+" (default: POD_NAME, or the host name)")
}

// Main parses args and serves until ctx ends; requests in flight then have 10 s to finish.
func Main(ctx context.Context, args []string, messages io.Writer) error {
	var options Options
	flags := flag.NewFlagSet("testapp serve", flag.ContinueOnError)
	flags.SetOutput(messages)
	options.bind(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	logger := slog.New(slog.NewTextHandler(messages, nil))
	handler := &Handler{Pod: options.Pod}
	servers := []*http.Server{newServer(options.Listen, handler.Routes())}
	if options.Control != "" {
		servers = append(servers, newServer(options.Control, handler.Control()))
	}
	return serve(ctx, logger, options.ShutdownDelay, servers)
}

func newServer(address string, handler http.Handler) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{Addr: address, Handler: handler, Protocols: protocols, ReadHeaderTimeout: 10 * time.Second}
}

func serve(ctx context.Context, logger *slog.Logger, delay time.Duration, servers []*http.Server) error {
	failed := make(chan error, len(servers))
	for _, server := range servers {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", server.Addr)
		if err != nil {
			return fmt.Errorf("listen on %s: %w", server.Addr, err)
		}
		logger.Info("listening", "address", listener.Addr().String())
		go func() { failed <- server.Serve(listener) }()
	}
	select {
	case err := <-failed:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	logger.Info("shutting down", "delay", delay)
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), delay+10*time.Second)
	defer cancel()
	select {
	case <-time.After(delay):
	case <-grace.Done():
	}
	var errs []error
	for _, server := range servers {
		errs = append(errs, server.Shutdown(grace))
	}
	return errors.Join(errs...)
}
