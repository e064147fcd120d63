package app

import (
	"bufio"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

// Bounds on what a query may ask for, so that no request keeps the app busy for long.
const (
	maxEvents   = 1000
	maxInterval = 10 * time.Second
)

// PodHeader names the pod that answered, in every response.
const PodHeader = "X-Pod"

// Handler answers requests; its zero value lacks only the name. Safe for concurrent use.
type Handler struct {
	// Pod is the name that PodHeader carries.
	Pod string

	failing atomic.Bool
	served  atomic.Int64
}

// Routes is what the app serves on its public port.
func (h *Handler) Routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/", h.hello)
	mux.HandleFunc("/headers", h.headers)
	mux.HandleFunc("/healthz", h.health)
	mux.HandleFunc("/echo", h.echo)
	mux.HandleFunc("/status", h.status)
	mux.HandleFunc("/delay", h.delay)
	mux.HandleFunc("/sse", h.events)
	mux.HandleFunc("/trailers", h.trailers)
	mux.HandleFunc("/early-hints", h.earlyHints)
	mux.HandleFunc("/upgrade", h.upgrade)
	mux.HandleFunc("/cost", h.cost)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/healthz" {
			h.served.Add(1)
		}
		w.Header().Set(PodHeader, h.Pod)
		mux.ServeHTTP(w, r)
	})
}

// Control is what the app serves on its control port, which no policy protects: /fail?on=1 makes /healthz fail, and /served
// tells how many requests other than /healthz reached the app.
func (h *Handler) Control() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/fail", func(w http.ResponseWriter, r *http.Request) {
		on, err := strconv.ParseBool(r.URL.Query().Get("on"))
		if err != nil {
			http.Error(w, "on must be 1 or 0", http.StatusBadRequest)
			return
		}
		h.failing.Store(on)
		fmt.Fprintf(w, "failing=%t\n", on)
	})
	mux.HandleFunc("/served", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, h.served.Load())
	})
	return mux
}

func (h *Handler) hello(w http.ResponseWriter, _ *http.Request) {
	fmt.Fprintf(w, "hello from %s\n", h.Pod)
}

// seen is a request as it reached the app.
type seen struct {
	Pod        string      `json:"pod"`
	Method     string      `json:"method"`
	Host       string      `json:"host"`
	URL        string      `json:"url"`
	Proto      string      `json:"proto"`
	RemoteAddr string      `json:"remoteAddr"`
	Headers    http.Header `json:"headers"`
}

func (h *Handler) headers(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(seen{
		Pod: h.Pod, Method: r.Method, Host: r.Host, URL: r.URL.String(),
		Proto: r.Proto, RemoteAddr: r.RemoteAddr, Headers: r.Header,
	})
}

func (h *Handler) health(w http.ResponseWriter, _ *http.Request) {
	if h.failing.Load() {
		http.Error(w, "told to fail", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

// echo returns the body piece by piece, while more of it may still be on its way.
func (h *Handler) echo(w http.ResponseWriter, r *http.Request) {
	control := http.NewResponseController(w)
	_ = control.EnableFullDuplex() // HTTP/2 always is
	if kind := r.Header.Get("Content-Type"); kind != "" {
		w.Header().Set("Content-Type", kind)
	}
	buffer := make([]byte, 32<<10)
	for {
		n, err := r.Body.Read(buffer)
		if n > 0 {
			if _, werr := w.Write(buffer[:n]); werr != nil {
				return
			}
			_ = control.Flush()
		}
		if err != nil {
			return
		}
	}
}

func (h *Handler) status(w http.ResponseWriter, r *http.Request) {
	code, err := strconv.Atoi(r.URL.Query().Get("code"))
	if err != nil || code < 200 || code > 599 {
		http.Error(w, "code must be 200..599", http.StatusBadRequest)
		return
	}
	w.WriteHeader(code)
}

func (h *Handler) delay(w http.ResponseWriter, r *http.Request) {
	pause, err := time.ParseDuration(r.URL.Query().Get("for"))
	if err != nil || pause < 0 || pause > maxInterval {
		http.Error(w, "for must be a duration of 0..10s", http.StatusBadRequest)
		return
	}
	select {
	case <-time.After(pause):
		h.hello(w, r)
	case <-r.Context().Done():
	}
}

// events sends ?n= server-sent events, one each ?interval=.
func (h *Handler) events(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.Atoi(cmp.Or(r.URL.Query().Get("n"), "5"))
	if err != nil || n < 1 || n > maxEvents {
		http.Error(w, "n must be 1..1000", http.StatusBadRequest)
		return
	}
	interval, err := time.ParseDuration(cmp.Or(r.URL.Query().Get("interval"), "100ms"))
	if err != nil || interval <= 0 || interval > maxInterval {
		http.Error(w, "interval must be a duration above 0 and up to 10s", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for i := range n {
		fmt.Fprintf(w, "id: %d\ndata: %s\n\n", i, h.Pod)
		if http.NewResponseController(w).Flush() != nil {
			return
		}
		select {
		case <-ticker.C:
		case <-r.Context().Done():
			return
		}
	}
}

// trailers echoes the body and follows it with its SHA-256 and, to show that request trailers pass, with theirs.
func (h *Handler) trailers(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Trailer", "X-Body-Sha256")
	sum := sha256.New()
	if _, err := io.Copy(io.MultiWriter(w, sum), r.Body); err != nil {
		return
	}
	// An empty body would otherwise be answered with a Content-Length, which leaves no room for trailers.
	_ = http.NewResponseController(w).Flush()
	w.Header().Set("X-Body-Sha256", hex.EncodeToString(sum.Sum(nil)))
	for name, values := range r.Trailer {
		w.Header()[http.TrailerPrefix+name] = values
	}
}

// cost tells ?tokens= in the header X-Cost, and with ?in=trailer in a trailer of that name.
func (h *Handler) cost(w http.ResponseWriter, r *http.Request) {
	tokens, in := r.URL.Query().Get("tokens"), r.URL.Query().Get("in")
	if _, err := strconv.ParseUint(tokens, 10, 32); err != nil || in != "" && in != "trailer" {
		http.Error(w, "tokens must be a whole number, in trailer or absent", http.StatusBadRequest)
		return
	}
	if in == "" {
		w.Header().Set("X-Cost", tokens)
	} else {
		w.Header().Set("Trailer", "X-Cost")
		defer w.Header().Set("X-Cost", tokens)
		defer http.NewResponseController(w).Flush() //nolint:errcheck // the client may be gone
	}
	h.hello(w, r)
}

func (h *Handler) earlyHints(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Link", "</style.css>; rel=preload; as=style")
	w.WriteHeader(http.StatusEarlyHints)
	h.hello(w, r)
}

// upgrade switches to a protocol named echo, in which each byte comes back.
func (h *Handler) upgrade(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") != "echo" {
		http.Error(w, "send Upgrade: echo", http.StatusUpgradeRequired)
		return
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer conn.Close()
	fmt.Fprintf(buffered, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n%s: %s\r\n\r\n", PodHeader, h.Pod)
	if buffered.Flush() == nil {
		echoBytes(conn, buffered.Reader)
	}
}

// echoBytes copies what the client sends back to it, first what was read ahead with the request.
func echoBytes(conn net.Conn, from *bufio.Reader) { _, _ = io.Copy(conn, from) }
