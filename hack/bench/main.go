// Command bench runs the benchmarks of match, key and verdict on a Redis Cluster of its own, and prints their medians and ratios as a
// table. It fails when three limits of one key cost more than one and a half times one limit.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"time"
)

const (
	// benchtime is how long each benchmark of a round runs, about.
	benchtime = "50ms"
	// patience bounds all of them.
	patience = 5 * time.Minute

	oneLimit  = "1 limit"
	sameKey   = "3 limits, same key"
	bound     = 1.5
	pattern   = "^(BenchmarkMatch|BenchmarkVerdict)$"
	benchmark = "./sidecar"
)

func main() {
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: go run ./hack/bench\n\nRuns the benchmarks of "+benchmark+" on a Redis Cluster of its own, for a minute or two, and prints a table.")
	}
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	command := exec.CommandContext(ctx, "go", "test", "-run=^$", "-bench="+pattern, "-benchtime="+benchtime, benchmark)
	command.Stderr = os.Stderr
	printed, err := command.Output()
	if err != nil {
		return fmt.Errorf("run the benchmarks: %w\n%s", err, printed)
	}
	results, err := parse(string(printed))
	if err != nil {
		return err
	}
	fmt.Fprint(out, table(results))
	for _, kind := range results.kinds[1:] {
		if ratio := results.ratio(kind, sameKey); ratio > bound {
			return fmt.Errorf("%s, %s: %.2f times one limit, want at most %.1f", kind, sameKey, ratio, bound)
		}
	}
	return nil
}
