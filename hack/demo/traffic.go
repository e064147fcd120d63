package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/portero-dev/portero/hack/testapp/load"
)

// The policy's bucket, and what the clients ask of it.
const (
	capacity = 20
	rate     = 5
	duration = 12 * time.Second
	aliceRPS = 15
	bobRPS   = 3
)

// outcome is what the two clients saw, side by side.
type outcome struct {
	alice, bob load.Tally
	seconds    float64
}

// traffic sends both clients' requests through the Service and prints what came back. Each client has a rate of its own, so
// each is a load of its own, over eight connections: the Service picks a pod for each, and what a connection is refused counts for its pod.
func traffic(ctx context.Context) (outcome, error) {
	address, err := kubectl(ctx, "get", "service", "web", "-o", "jsonpath={.spec.clusterIP}")
	if err != nil {
		return outcome{}, err
	}
	reports := make(chan load.Report, 2)
	for name, rps := range map[string]float64{"alice": aliceRPS, "bob": bobRPS} {
		go func() {
			reports <- load.Run(ctx, load.Options{
				URLs: []string{"http://" + address + "/"}, Rate: rps, Concurrency: 8, Duration: duration, Requests: 10_000,
				Timeout: 5 * time.Second, Method: http.MethodGet,
				Clients: []load.Client{{Name: name, Headers: http.Header{"X-Api-Key": {name}}}},
			})
		}()
	}
	var seen outcome
	for range 2 {
		report := <-reports
		seen.seconds = max(seen.seconds, report.ElapsedSeconds)
		if tally, ok := report.Clients["alice"]; ok {
			seen.alice = tally
		}
		if tally, ok := report.Clients["bob"]; ok {
			seen.bob = tally
		}
	}
	seen.print()
	return seen, ctx.Err()
}

func (o outcome) print() {
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', 0)
	fmt.Fprintln(out, "CLIENT\tPOD\tPASSED\tREFUSED (429)\tFAILED\tRETRY-AFTER")
	for _, client := range []struct {
		name  string
		tally load.Tally
	}{{"alice", o.alice}, {"bob", o.bob}} {
		for _, pod := range slices.Sorted(maps.Keys(client.tally.Pods)) {
			counts := client.tally.Pods[pod]
			if pod == load.UnknownPod {
				pod = "(refused by a sidecar)"
			}
			fmt.Fprintf(out, "%s\t%s\t%d\t%d\t%d\t\n", client.name, pod, counts.Passed, counts.Refused, counts.Failed)
		}
		fmt.Fprintf(out, "%s\tall\t%d\t%d\t%d\t%s\n", client.name,
			client.tally.Passed, client.tally.Refused, client.tally.Failed, waits(client.tally))
	}
	_ = out.Flush()
	fmt.Printf("the bucket allows %d + %d/s x %.1f s = %.0f per client\n", capacity, rate, o.seconds, o.allowed())
}

// waits lists the Retry-After values that were seen.
func waits(t load.Tally) string {
	var all []string
	for _, value := range slices.Sorted(maps.Keys(t.RetryAfter)) {
		all = append(all, value+" s")
	}
	return strings.Join(all, ", ")
}

// allowed is what one bucket can pass in the time.
func (o outcome) allowed() float64 { return capacity + rate*o.seconds }

// expectShared checks one bucket for both pods: no more than it holds, and nearly all of it.
func (o outcome) expectShared() error {
	return errors.Join(
		o.expectServed(),
		expect(float64(o.alice.Passed) <= o.allowed(), "alice passed %d, the bucket holds %.1f", o.alice.Passed, o.allowed()),
		// The last token may arrive after the last request.
		expect(float64(o.alice.Passed) >= 0.95*o.allowed()-1, "alice passed only %d of %.1f", o.alice.Passed, o.allowed()),
		expect(o.alice.RetryAfter["1"] > 0, "no refusal said Retry-After: 1"),
		expect(o.bob.Refused == 0, "bob kept his rate and was refused %d times", o.bob.Refused),
	)
}

// expectLocal checks the fallback: requests flow, and both pods together stay within 1.1 x the limit.
func (o outcome) expectLocal() error {
	return errors.Join(
		o.expectServed(),
		expect(float64(o.alice.Passed) <= 1.1*o.allowed(), "alice passed %d without Redis, more than 1.1 x %.1f", o.alice.Passed, o.allowed()),
		expect(o.alice.Passed > 0 && o.bob.Passed > 0, "without Redis nobody passed"),
		expect(o.alice.Refused > 0, "without Redis nobody was limited"),
	)
}

func (o outcome) expectServed() error {
	failed := o.alice.Failed + o.bob.Failed
	pods := 0
	for pod, counts := range o.alice.Pods {
		if pod != load.UnknownPod && counts.Passed > 0 {
			pods++
		}
	}
	return errors.Join(
		expect(failed == 0, "%d requests failed: %v %v", failed, o.alice.Errors, o.bob.Errors),
		expect(pods == 2, "%d pods answered, not 2", pods),
	)
}

func expect(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf("- "+format, args...)
}
