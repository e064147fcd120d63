// Package metrics is what a sidecar exposes to Prometheus. Labels come from closed sets: names in policies, kinds of
// failures, addresses of masters; never anything that a client sent.
//
// The sidecar's wiring imports it and hands it its sources.
package metrics

import (
	"net/http"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/portero-dev/portero/internal/ratelimit"
	"github.com/portero-dev/portero/sidecar/internal/failover"
	"github.com/portero-dev/portero/sidecar/internal/tally"
)

// Sources are read at each scrape. All are required and must be safe for concurrent use.
type Sources struct {
	Namespace string
	Version   string
	Tally     *tally.Tally
	// Generations are the policies in force.
	Generations func() map[string]int64
	// Confirmed is when Redis last told that the snapshot is current; zero before the first time.
	Confirmed func() time.Time
	// Source is where the policies in force are from: none, secret or redis.
	Source func() string
	// OpenMasters are the masters whose breaker is open.
	OpenMasters func() []string
	// Fallback tells whether verdicts of at least one master are local.
	Fallback func() bool
	// Refused are the policies whose records this sidecar can't use.
	Refused func() []string
	// Overflowed counts the verdicts that shared an overflow bucket.
	Overflowed func() uint64
	// Credentials tells whether there are any.
	Credentials func() bool
}

// sources of verdicts that asked for a bucket, as labels.
const (
	sourceRedis = "redis"
	sourceLocal = "local"
)

// results of returning a charge, as labels.
const (
	resultGivenBack = "given_back"
	resultDropped   = "dropped"
)

// buckets have edges at the usual timeouts of 1, 2, 5, 10, 20, 50 and 100 ms and 2 ms above each, so that "within the timeout" and "within
// the timeout and 2 ms" are read off, not guessed.
var buckets = []float64{
	0.0001, 0.00025, 0.0005, 0.001, 0.002, 0.003, 0.004, 0.005, 0.007, 0.010, 0.012, 0.020, 0.022, 0.050, 0.052, 0.100, 0.102, 0.25, 0.5, 1, 1.002,
}

// Metrics is a registry and what is counted as it happens. It implements failover.Observer.
type Metrics struct {
	registry *prometheus.Registry
	redis    prometheus.Observer
	local    prometheus.Observer
	errors   map[failover.Kind]prometheus.Counter
	late     prometheus.Counter
	unknown  prometheus.Counter
	given    prometheus.Counter
	dropped  prometheus.Counter
	debits   map[failover.Fate]prometheus.Counter
}

var _ failover.Observer = (*Metrics)(nil)

// New makes the metrics of one sidecar, with a registry of their own.
func New(sources Sources) *Metrics {
	registry := prometheus.NewRegistry()
	durations := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "portero_verdict_duration_seconds",
		Help:    "How long verdicts took that asked for a bucket, from the first byte of work to the answer, by source: redis or local.",
		Buckets: buckets,
	}, []string{"source"})
	failures := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "portero_store_errors_total",
		Help: "Verdicts that Redis did not give, by kind; the policies' failure modes decided them.",
	}, []string{"kind"})
	late := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "portero_verdicts_late_total",
		Help: "Verdicts that took more than 2 ms longer than the smallest store.timeout of their policies.",
	})
	unknown := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "portero_store_unknown_total",
		Help: "Those of the store's errors after which nobody knows whether Redis charged: they count as charged, and are never repeated.",
	})
	returns := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "portero_charges_returned_total",
		Help: "Charges of requests that another limit refused, by result: given_back, or dropped where Redis could not prove that a return mints nothing.",
	}, []string{"result"})
	debits := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "portero_debits_total",
		Help: "Costs that responses told, by result: shared; while Redis failed local, or overflow where memory was full; or dropped where the policy has no local buckets or nobody knows whether Redis took them.",
	}, []string{"result"})
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "portero_build_info",
		Help: "Always 1; the version is in the labels.",
	}, []string{"version", "goversion"})
	build.WithLabelValues(sources.Version, runtime.Version()).Set(1)
	registry.MustRegister(durations, failures, late, unknown, returns, debits, build, newCollector(sources),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))

	m := &Metrics{
		registry: registry,
		redis:    durations.WithLabelValues(sourceRedis),
		local:    durations.WithLabelValues(sourceLocal),
		errors:   make(map[failover.Kind]prometheus.Counter, len(failover.Kinds)),
		late:     late,
		unknown:  unknown,
		given:    returns.WithLabelValues(resultGivenBack),
		dropped:  returns.WithLabelValues(resultDropped),
		debits:   make(map[failover.Fate]prometheus.Counter, len(failover.Fates)),
	}
	for _, fate := range failover.Fates {
		m.debits[fate] = debits.WithLabelValues(string(fate))
	}
	for _, kind := range failover.Kinds {
		m.errors[kind] = failures.WithLabelValues(string(kind))
	}
	return m
}

// Handler serves the metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}

// grace is how much longer than its budget a verdict may take.
const grace = 2 * time.Millisecond

// VerdictTaken implements failover.Observer.
func (m *Metrics) VerdictTaken(source ratelimit.Source, took, budget time.Duration) {
	if took > budget+grace {
		m.late.Inc()
	}
	switch source {
	case ratelimit.FromRedis:
		m.redis.Observe(took.Seconds())
	case ratelimit.FromLocal:
		m.local.Observe(took.Seconds())
	}
}

// StoreFailed implements failover.Observer. A kind that is not among failover.Kinds counts as other.
func (m *Metrics) StoreFailed(kind failover.Kind, unknown bool) {
	if unknown {
		m.unknown.Inc()
	}
	counter, known := m.errors[kind]
	if !known {
		counter = m.errors[failover.KindOther]
	}
	counter.Inc()
}

// ChargesReturned implements failover.Observer.
func (m *Metrics) ChargesReturned(given, dropped int) {
	m.given.Add(float64(given))
	m.dropped.Add(float64(dropped))
}

// Debited implements failover.Observer.
func (m *Metrics) Debited(fate failover.Fate, debits int) {
	m.debits[fate].Add(float64(debits))
}
