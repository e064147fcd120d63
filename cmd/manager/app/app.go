// Package app is the manager's wiring: flags, logs, caches, controllers, webhooks, probes.
//
// cmd/manager imports it, and tests that need a whole manager.
package app

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/go-logr/logr"
	"github.com/redis/go-redis/v9"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/portero-dev/portero/internal/version"
)

// Main runs the manager until ctx ends and returns the exit code: 0 for a clean end, 1 for a failure, 2 for wrong flags.
func Main(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	options, err := ParseOptions(args, os.Getenv, stdout)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 2
	}
	log := newLogger(options.Log, stderr)
	ctrl.SetLogger(log)
	klog.SetLogger(log.WithName("client-go"))
	redis.SetLogger(redisLog{log.WithName("go-redis")})
	log.Info("Manager starts", "version", version.Version)
	config, err := ctrl.GetConfig()
	if err == nil {
		err = Run(logr.NewContext(ctx, log), config, options)
	}
	if err != nil {
		log.Error(err, "Manager ends")
		return 1
	}
	return 0
}

func newLogger(o LogOptions, output io.Writer) logr.Logger {
	level := map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "error": slog.LevelError}[o.Level]
	handlerOptions := &slog.HandlerOptions{Level: level}
	if o.Format == "text" {
		return logr.FromSlogHandler(slog.NewTextHandler(output, handlerOptions))
	}
	return logr.FromSlogHandler(slog.NewJSONHandler(output, handlerOptions))
}

// redisLog takes what go-redis tells of its connections, which is of use to its developers only: the link tells how Redis
// is.
type redisLog struct{ logr.Logger }

// Printf implements go-redis' logger.
func (l redisLog) Printf(_ context.Context, format string, args ...any) {
	l.V(1).Info("Client of Redis", "message", fmt.Sprintf(format, args...))
}

// Run runs the manager against the API server of config until ctx ends or leadership is lost.
func Run(ctx context.Context, config *rest.Config, options *Options) error {
	mgr, err := newManager(ctx, config, options)
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}
