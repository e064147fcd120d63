// Package load sends a bounded load and reports what came back, by client and by pod. Only the test app's command and its tests import it.
package load

import (
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Bounds that no command line can pass: a forgotten load ends by itself.
const (
	maxDuration    = 15 * time.Minute
	maxRequests    = 5_000_000
	maxConcurrency = 1000
	maxRate        = 100_000
)

// Client is one sender with headers of its own.
type Client struct {
	Name    string
	Headers http.Header
}

// Options say what to send. Duration and Requests both bound the load; what is reached first ends it.
type Options struct {
	// URLs are taken in turn, request by request.
	URLs []string
	// Clients send at the same time, each with Rate and Concurrency of its own.
	Clients []Client
	// Rate is requests per second of each client; 0 sends the next request as soon as one has come back.
	Rate float64
	// Concurrency is how many requests of one client are in flight at most, each over a connection of its own.
	Concurrency int
	Duration    time.Duration
	// Requests bounds each client's requests.
	Requests int
	// Timeout is what one request may take, with its body.
	Timeout time.Duration
	Method  string
	// BodyBytes is the size of each request's body.
	BodyBytes int
	// HTTP2 speaks HTTP/2 cleartext with prior knowledge.
	HTTP2 bool
	// NewConnections dials for every request, so that a Service picks a pod each time.
	NewConnections bool
}

type clientsFlag []Client

func (c *clientsFlag) String() string { return "" }

// Set reads NAME or "NAME Header: value; Header: value".
func (c *clientsFlag) Set(value string) error {
	name, rest, _ := strings.Cut(value, " ")
	client := Client{Name: name, Headers: http.Header{}}
	for _, pair := range strings.Split(rest, ";") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		header, content, ok := strings.Cut(pair, ":")
		if !ok {
			return fmt.Errorf("client %q: %q is not Header: value", name, pair)
		}
		client.Headers.Add(strings.TrimSpace(header), strings.TrimSpace(content))
	}
	*c = append(*c, client)
	return nil
}

type urlsFlag []string

func (u *urlsFlag) String() string { return "" }

func (u *urlsFlag) Set(value string) error {
	*u = append(*u, value)
	return nil
}

// parse reads the command line and refuses what is not bounded.
func parse(args []string, messages io.Writer) (Options, error) {
	var o Options
	flags := flag.NewFlagSet("testapp load", flag.ContinueOnError)
	flags.SetOutput(messages)
	flags.Var((*urlsFlag)(&o.URLs), "url", "address to send requests to; repeat it to take several in turn")
	flags.Var((*clientsFlag)(&o.Clients), "client", `a sender, as NAME or "NAME Header: value; Header: value"; repeat it for several at once (default one without headers)`)
	flags.Float64Var(&o.Rate, "rate", 0, "requests per second of each client; 0: the next one when one has come back")
	flags.IntVar(&o.Concurrency, "concurrency", 4, "requests in flight of each client")
	flags.DurationVar(&o.Duration, "duration", 10*time.Second, "when to stop, at most 15m")
	flags.IntVar(&o.Requests, "requests", maxRequests, "when to stop, in requests of each client")
	flags.DurationVar(&o.Timeout, "timeout", 10*time.Second, "what one request may take")
	flags.StringVar(&o.Method, "method", http.MethodGet, "method of each request")
	flags.IntVar(&o.BodyBytes, "body-bytes", 0, "size of each request's body")
	flags.BoolVar(&o.HTTP2, "http2", false, "speak HTTP/2 cleartext")
	flags.BoolVar(&o.NewConnections, "new-connections", false, "dial for every request")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if len(o.Clients) == 0 {
		o.Clients = []Client{{Name: "default"}}
	}
	return o, o.validate()
}

func (o Options) validate() error {
	if len(o.URLs) == 0 {
		return fmt.Errorf("-url is required")
	}
	for _, raw := range o.URLs {
		if !isHTTP(raw) {
			return fmt.Errorf("-url %q: must be an http:// address", raw)
		}
	}
	if err := o.validateBounds(); err != nil {
		return err
	}
	return validateClients(o.Clients)
}

func isHTTP(raw string) bool {
	u, err := url.Parse(raw)
	return err == nil && u.Scheme == "http" && u.Host != ""
}

func (o Options) validateBounds() error {
	switch {
	case o.Rate < 0 || o.Rate > maxRate:
		return fmt.Errorf("-rate %v: must be 0..%d", o.Rate, maxRate)
	case o.Concurrency < 1 || o.Concurrency > maxConcurrency:
		return fmt.Errorf("-concurrency %d: must be 1..%d", o.Concurrency, maxConcurrency)
	case o.Duration <= 0 || o.Duration > maxDuration:
		return fmt.Errorf("-duration %s: must be above 0 and at most %s", o.Duration, maxDuration)
	case o.Requests < 1 || o.Requests > maxRequests:
		return fmt.Errorf("-requests %d: must be 1..%d", o.Requests, maxRequests)
	case o.Timeout <= 0:
		return fmt.Errorf("-timeout %s: must be above 0", o.Timeout)
	case o.BodyBytes < 0 || o.BodyBytes > 1<<30:
		return fmt.Errorf("-body-bytes %d: must be 0..%d", o.BodyBytes, 1<<30)
	}
	return nil
}

func validateClients(clients []Client) error {
	names := map[string]bool{}
	for _, client := range clients {
		if client.Name == "" || names[client.Name] {
			return fmt.Errorf("-client %q: needs a name of its own", client.Name)
		}
		names[client.Name] = true
	}
	return nil
}
