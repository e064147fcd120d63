package load

import (
	"net/http"
	"slices"
	"strconv"
	"time"
)

// UnknownPod stands for answers of connections that never showed which pod they lead to.
const UnknownPod = "unknown"

// Report is what came back. Passed are answers below 400, refused are 429, failed are all others and those that never came.
type Report struct {
	Started        time.Time        `json:"started"`
	ElapsedSeconds float64          `json:"elapsedSeconds"`
	Total          Tally            `json:"total"`
	Clients        map[string]Tally `json:"clients"`
}

// Counts are requests by what became of them.
type Counts struct {
	Requests int `json:"requests"`
	Passed   int `json:"passed"`
	Refused  int `json:"refused"`
	Failed   int `json:"failed"`
}

// Tally is what one client, or all of them, saw.
type Tally struct {
	Counts
	Statuses map[string]int `json:"statuses"`
	// Pods tells by pod. A refusal counts for the pod that the same connection reached at another time.
	Pods map[string]Counts `json:"pods"`
	// RetryAfter tells how often each value was seen.
	RetryAfter map[string]int `json:"retryAfter"`
	Errors     map[string]int `json:"errors"`
	LatencyMs  Latency        `json:"latencyMs"`
	// Seconds are counts by the second in which the request was sent.
	Seconds []Counts `json:"seconds"`
}

// Latency is in milliseconds, over requests that were answered.
type Latency struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

func newReport(started time.Time, elapsed time.Duration, senders []*sender) Report {
	report := Report{Started: started, ElapsedSeconds: elapsed.Seconds(), Clients: map[string]Tally{}}
	var all []result
	for _, s := range senders {
		for i, r := range s.results {
			if r.pod == "" {
				s.results[i].pod = s.podOf[r.connection]
			}
		}
		report.Clients[s.client.Name] = tally(s.results)
		all = append(all, s.results...)
	}
	report.Total = tally(all)
	return report
}

func tally(results []result) Tally {
	t := Tally{
		Statuses: map[string]int{}, Pods: map[string]Counts{}, RetryAfter: map[string]int{}, Errors: map[string]int{}, Seconds: []Counts{},
	}
	var latencies []time.Duration
	for _, r := range results {
		t.add(r)
		second := int(r.sent / time.Second)
		for len(t.Seconds) <= second {
			t.Seconds = append(t.Seconds, Counts{})
		}
		t.Seconds[second].add(r)
		if r.err != "" {
			t.Errors[r.err]++
			continue
		}
		t.Statuses[strconv.Itoa(r.status)]++
		if r.retryAfter != "" {
			t.RetryAfter[r.retryAfter]++
		}
		pod := r.pod
		if pod == "" {
			pod = UnknownPod
		}
		counts := t.Pods[pod]
		counts.add(r)
		t.Pods[pod] = counts
		latencies = append(latencies, r.took)
	}
	t.LatencyMs = latency(latencies)
	return t
}

func (c *Counts) add(r result) {
	c.Requests++
	switch {
	case r.err != "" || r.status >= http.StatusBadRequest && r.status != http.StatusTooManyRequests:
		c.Failed++
	case r.status == http.StatusTooManyRequests:
		c.Refused++
	default:
		c.Passed++
	}
}

func latency(took []time.Duration) Latency {
	if len(took) == 0 {
		return Latency{}
	}
	slices.Sort(took)
	at := func(share float64) float64 {
		return float64(took[min(len(took)-1, int(share*float64(len(took))))].Microseconds()) / 1000
	}
	return Latency{P50: at(0.50), P90: at(0.90), P99: at(0.99), Max: at(1)}
}
