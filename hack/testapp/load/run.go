package load

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"

	"github.com/portero-dev/portero/hack/testapp/app"
)

// Main parses args, sends the load and prints the report as JSON. It ends early, with what it has, when ctx does.
func Main(ctx context.Context, args []string, out, messages io.Writer) error {
	options, err := parse(args, messages)
	if err != nil {
		return err
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(Run(ctx, options)); err != nil {
		return fmt.Errorf("print report: %w", err)
	}
	return nil
}

// Run sends the load that options describe and returns when all of it has come back.
func Run(ctx context.Context, options Options) Report {
	started := time.Now()
	senders := make([]*sender, len(options.Clients))
	var wait sync.WaitGroup
	for i, client := range options.Clients {
		senders[i] = newSender(options, client, started)
		senders[i].phase = float64(i) / float64(len(options.Clients))
		wait.Go(func() { senders[i].run(ctx) })
	}
	wait.Wait()
	return newReport(started, time.Since(started), senders)
}

// sender is one client at work.
type sender struct {
	options Options
	client  Client
	started time.Time
	// phase is what part of a request's time this client is behind the first one, so that clients don't send in step.
	phase float64
	next  atomic.Int64

	mu      sync.Mutex
	results []result
	// podOf remembers which pod a connection leads to, because who refuses a request does not say.
	podOf map[string]string
}

// result is one request that came back or failed.
type result struct {
	sent       time.Duration // since the load started
	took       time.Duration
	status     int // 0 when failed
	pod        string
	connection string
	retryAfter string
	err        string
}

func newSender(options Options, client Client, started time.Time) *sender {
	return &sender{options: options, client: client, started: started, podOf: map[string]string{}}
}

// newHTTPClient is one worker's: with a connection of its own, workers spread over the pods of a Service, and each request's pod is known.
func (o Options) newHTTPClient() *http.Client {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!o.HTTP2)
	protocols.SetUnencryptedHTTP2(o.HTTP2)
	return &http.Client{Timeout: o.Timeout, Transport: &http.Transport{
		Protocols: protocols, DisableKeepAlives: o.NewConnections, DisableCompression: true,
	}}
}

func (s *sender) run(ctx context.Context) {
	var wait sync.WaitGroup
	for range s.options.Concurrency {
		wait.Go(func() { s.work(ctx) })
	}
	wait.Wait()
}

// work sends requests until the load ends. Under a rate each request has its time from the start, so that slow answers are followed by
// faster sending and the rate holds on average.
func (s *sender) work(ctx context.Context) {
	client := s.options.newHTTPClient()
	defer client.CloseIdleConnections()
	for {
		n := s.next.Add(1) - 1
		due := time.Since(s.started)
		if s.options.Rate > 0 {
			due = max(due, time.Duration((float64(n)+s.phase)/s.options.Rate*float64(time.Second)))
		}
		if n >= int64(s.options.Requests) || due >= s.options.Duration || !wait(ctx, due-time.Since(s.started)) {
			return
		}
		r := s.send(ctx, client, s.options.URLs[int(n)%len(s.options.URLs)])
		if ctx.Err() != nil {
			return
		}
		s.mu.Lock()
		s.results = append(s.results, r)
		if r.pod != "" {
			s.podOf[r.connection] = r.pod
		}
		s.mu.Unlock()
	}
}

// wait pauses for d; false when ctx ended.
func wait(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (s *sender) send(ctx context.Context, client *http.Client, url string) result {
	r := result{sent: time.Since(s.started)}
	trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		r.connection = info.Conn.LocalAddr().String() + ">" + info.Conn.RemoteAddr().String()
	}}
	body := bytes.NewReader(make([]byte, s.options.BodyBytes))
	request, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), s.options.Method, url, body)
	if err != nil {
		r.err = err.Error()
		return r
	}
	for name, values := range s.client.Headers {
		request.Header[name] = values
	}
	if host := s.client.Headers.Get("Host"); host != "" {
		request.Host = host
	}
	response, err := client.Do(request)
	if err == nil {
		_, err = io.Copy(io.Discard, response.Body)
		response.Body.Close()
	}
	r.took = time.Since(s.started) - r.sent
	if err != nil {
		r.err = cause(err)
		return r
	}
	r.status = response.StatusCode
	r.pod = response.Header.Get(app.PodHeader)
	r.retryAfter = response.Header.Get("Retry-After")
	return r
}

// cause drops what differs from request to request, so that equal failures count as one kind.
func cause(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}
