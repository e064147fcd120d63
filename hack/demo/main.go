// Command demo shows Portero at work on the development cluster: one shared bucket per client, what happens when all of
// Redis stops, and recovery. It ends with a status other than 0 when any step does not show what it should.
// hack/demo/run starts it inside the cluster's network.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	if len(os.Args) > 1 {
		fmt.Fprintln(os.Stderr, "demo takes no arguments and works on the current kubectl context: start it by make demo, which brings its own cluster")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "\ndemo: this is not what should be seen:")
		fmt.Fprintln(os.Stderr, err)
		fmt.Fprintln(os.Stderr, "\nThe cluster is left up; hack/cluster/run kubectl describe rlp -n portero-demo tells more, make down takes it away.")
		os.Exit(1)
	}
}

// run performs the steps in their order. Traffic that shows something wrong does not end the demo at once: the user
// sees all of it, and the errors at the end.
func run(ctx context.Context) error {
	var wrong []error
	check := func(err error) { wrong = append(wrong, err) }

	title("1. An app with two replicas behind a Service by number, and a policy: 20 tokens, 5 more per second, per X-Api-Key")
	if err := deploy(ctx); err != nil {
		return err
	}
	if err := waitEnforced(ctx); err != nil {
		return err
	}
	if err := show(ctx); err != nil {
		return err
	}

	title("2. Two clients through the Service for 12 s: alice asks 15 times per second, bob 3 times")
	normal, err := traffic(ctx)
	if err != nil {
		return err
	}
	check(normal.expectShared())
	if err := show(ctx); err != nil {
		return err
	}

	title("3. All Redis processes stop. The same traffic again")
	if err := redis(ctx, "stop"); err != nil {
		return err
	}
	outage, err := traffic(ctx)
	if err != nil {
		return err
	}
	check(outage.expectLocal())
	check(waitCondition(ctx, "Enforced", "Unknown"))
	if err := show(ctx); err != nil {
		return err
	}

	title("4. Redis starts again, empty: the manager brings users, functions and policies back")
	if err := redis(ctx, "start"); err != nil {
		return err
	}
	if err := waitEnforced(ctx); err != nil {
		return err
	}
	recovered, err := traffic(ctx)
	if err != nil {
		return err
	}
	check(recovered.expectShared())
	if err := show(ctx); err != nil {
		return err
	}

	if err := errors.Join(wrong...); err != nil {
		return err
	}
	fmt.Print(`
All of it as it should be. The cluster is left up.

  look around:   hack/cluster/run kubectl get rlp,pods -n portero-demo
                 hack/cluster/run kubectl describe rlp web -n portero-demo
                 hack/cluster/run          (a shell with kubectl)
                 hack/cluster/redis status
  take it down:  make down
`)
	return nil
}
