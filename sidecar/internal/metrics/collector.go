package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/portero-dev/portero/sidecar/internal/tally"
)

// collector reads at each scrape what other parts hold anyway.
type collector struct {
	sources     Sources
	verdicts    *prometheus.Desc
	expressions *prometheus.Desc
	breakers    *prometheus.Desc
	fallback    *prometheus.Desc
	generation  *prometheus.Desc
	age         *prometheus.Desc
	source      *prometheus.Desc
	refused     *prometheus.Desc
	overflowed  *prometheus.Desc
	credentials *prometheus.Desc
}

func newCollector(sources Sources) *collector {
	describe := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("portero_"+name, help, labels, nil)
	}
	return &collector{
		sources:     sources,
		verdicts:    describe("verdicts_total", "Verdicts by limit and result: allowed, denied or shadow_denied.", "namespace", "policy", "limit", "result"),
		expressions: describe("expression_errors_total", "Requests for which an expression of the limit failed, so that the stricter outcome counted; limit is empty for exempt.", "namespace", "policy", "limit"),
		breakers:    describe("breaker_open", "1 while the verdicts of this master are local because it failed.", "master"),
		fallback:    describe("fallback_active", "1 while verdicts of at least one master are local, or Redis was never reached."),
		generation:  describe("config_generation", "Generation of each policy in force in this sidecar.", "policy"),
		age:         describe("config_age_seconds", "Time since Redis last confirmed that the policies in force are current; absent before the first time."),
		source:      describe("config_source", "1 for where the policies in force are from: redis, or secret while Redis was not reached since the start, or none.", "source"),
		refused:     describe("config_refused", "1 for each policy whose record this sidecar can't use; an older good version may be in force.", "policy"),
		overflowed:  describe("local_overflow_total", "Local verdicts that shared one bucket with other keys, because the memory for local buckets was full."),
		credentials: describe("credentials_present", "1 when the pod has Redis credentials; without any it knows no policy but those of its Secret."),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{c.verdicts, c.expressions, c.breakers, c.fallback, c.generation, c.age, c.source, c.refused, c.overflowed, c.credentials} {
		ch <- desc
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	c.sources.Tally.Each(func(name tally.Name, counts tally.Counts) {
		ch <- prometheus.MustNewConstMetric(c.expressions, prometheus.CounterValue, float64(counts.ExpressionErrors), c.sources.Namespace, name.Policy, name.Limit)
		if name.Limit == "" { // what is exempt has no verdict
			return
		}
		for result, count := range map[string]uint64{"allowed": counts.Allowed, "denied": counts.Denied, "shadow_denied": counts.ShadowDenied} {
			ch <- prometheus.MustNewConstMetric(c.verdicts, prometheus.CounterValue, float64(count), c.sources.Namespace, name.Policy, name.Limit, result)
		}
	})
	for _, master := range c.sources.OpenMasters() {
		gauge(c.breakers, 1, master)
	}
	gauge(c.fallback, number(c.sources.Fallback()))
	for policy, generation := range c.sources.Generations() {
		gauge(c.generation, float64(generation), policy)
	}
	if confirmed := c.sources.Confirmed(); !confirmed.IsZero() {
		gauge(c.age, time.Since(confirmed).Seconds())
	}
	gauge(c.source, 1, c.sources.Source())
	for _, policy := range c.sources.Refused() {
		gauge(c.refused, 1, policy)
	}
	ch <- prometheus.MustNewConstMetric(c.overflowed, prometheus.CounterValue, float64(c.sources.Overflowed()))
	gauge(c.credentials, number(c.sources.Credentials()))
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
