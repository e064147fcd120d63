// Command testapp is the workload of the demo and the end-to-end tests: a small HTTP server that says which pod answered, and a
// bounded load generator to send it requests. One static binary, so that it fits an image without a base.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/portero-dev/portero/hack/testapp/app"
	"github.com/portero-dev/portero/hack/testapp/load"
)

const help = `usage: testapp [COMMAND] [flags]

commands:
  serve   answer HTTP/1.1 and HTTP/2 cleartext requests (the default)
  load    send a bounded load and print what came back as JSON

testapp COMMAND --help lists the flags.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "testapp:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, messages io.Writer) error {
	command := "serve"
	if len(args) > 0 && args[0] != "" && args[0][0] != '-' {
		command, args = args[0], args[1:]
	} else if len(args) > 0 && (args[0] == "-h" || args[0] == "--help") {
		fmt.Fprint(messages, help)
		return nil
	}
	switch command {
	case "serve":
		return app.Main(ctx, args, messages)
	case "load":
		return load.Main(ctx, args, out, messages)
	default:
		return fmt.Errorf("unknown command %q: use serve or load", command)
	}
}
