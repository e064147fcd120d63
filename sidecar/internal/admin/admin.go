// Package admin is the sidecar's own listeners: probes and metrics on the pod's address, which change nothing, and the
// drain command on loopback.
//
// The sidecar's wiring imports it. It stays free of the proxy and of Redis: the app's readiness never depends on either.
package admin

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/portero-dev/portero/internal/sidecarenv"
)

// DrainPath takes the drain command.
const DrainPath = "/drain"

// State is what the probes tell. The zero value is starting; it is safe for concurrent use.
type State struct{ started, draining atomic.Bool }

// Started tells that the sidecar serves: its listeners are bound, and the first policies came or were waited for.
func (s *State) Started() { s.started.Store(true) }

// Drain tells that the sidecar is about to end, and answers whether this is news.
func (s *State) Drain() bool { return !s.draining.Swap(true) }

func (s *State) startup() (bool, string) {
	if !s.started.Load() {
		return false, "starting: waiting for the first policies"
	}
	return true, "started"
}

// ready depends on nothing outside: a pod whose limits are local is as ready as its app.
func (s *State) ready() (bool, string) {
	if s.draining.Load() {
		return false, "draining"
	}
	return s.startup()
}

func (s *State) live() (bool, string) { return true, "alive" }

// Handler serves probes and metrics.
func Handler(state *State, metrics http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET "+sidecarenv.StartupPath, probe(state.startup))
	mux.Handle("GET "+sidecarenv.ReadyPath, probe(state.ready))
	mux.Handle("GET "+sidecarenv.LivePath, probe(state.live))
	mux.Handle("GET "+sidecarenv.MetricsPath, metrics)
	return mux
}

func probe(state func() (bool, string)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		good, words := state()
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		if !good {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		fmt.Fprintln(w, words)
	})
}

// ControlHandler serves the drain command; it must be reachable from the pod alone. drain is called once and must not
// block.
func ControlHandler(state *State, drain func()) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+DrainPath, func(w http.ResponseWriter, _ *http.Request) {
		if state.Drain() {
			drain()
		}
		fmt.Fprintln(w, "draining")
	})
	return mux
}

// NewServer makes a server with bounds that suit both listeners.
func NewServer(handler http.Handler) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
	}
}
