//go:build e2e

package faults_test

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	portero "github.com/portero-dev/portero/api/v1alpha1"
	"github.com/portero-dev/portero/hack/testapp/load"
)

const (
	// slack is what a verdict may take beyond its timeout; afterOpen what it may take beyond normal once the breaker is open.
	slack     = 2 * time.Millisecond
	afterOpen = time.Millisecond
	// fair is the fallback's bound for capacities of at least ten tokens per sidecar.
	fair = 1.1
	// poolSockets is what a sidecar may have open to Redis: 4 connections for verdicts and 2 for records to each of 6 nodes, and one that listens.
	poolSockets = (4+2)*6 + 1
	// maxGrowth bounds memory against what it was before the fault.
	maxGrowth = 1.2
)

// cell is one fault under one mode: its figures, and what of them is wrong.
type cell struct {
	result
	wrong []string
	late  []string // what a busy machine alone can cause: latencies, times, and breakers that opened for them
}

func (c *cell) check(ok bool, format string, args ...any) {
	if !ok {
		c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
	}
}

func (c *cell) inTime(ok bool, format string, args ...any) {
	if !ok {
		c.late = append(c.late, fmt.Sprintf(format, args...))
	}
}

// judge holds an observation against what must hold, for each mode.
func judge(f *fault, o *observation) map[portero.OnFailure]*cell {
	cells := map[portero.OnFailure]*cell{}
	for _, mode := range modes {
		c := &cell{result: result{Fault: f.name, Mode: mode}}
		cells[mode] = c
		c.judgeLoad(f, mode, o.loads[mode])
		c.judgeLatency(o)
		c.judgeRecovery(f, o)
		c.judgeResources(o)
		c.judgeReach(f, o)
		c.OK = len(c.wrong)+len(c.late) == 0
	}
	return cells
}

// judgeLoad looks at what clients saw.
func (c *cell) judgeLoad(f *fault, mode portero.OnFailure, report load.Report) {
	allowed := []string{strconv.Itoa(http.StatusOK), strconv.Itoa(http.StatusTooManyRequests)}
	if mode == portero.OnFailureClosed {
		allowed = append(allowed, strconv.Itoa(http.StatusServiceUnavailable))
	}
	c.Requests, c.Passed = report.Total.Requests, report.Total.Passed
	for status, n := range report.Total.Statuses {
		if !slices.Contains(allowed, status) {
			c.Errors += n
		}
	}
	for _, n := range report.Total.Errors {
		c.Errors += n
	}
	c.check(c.Errors == 0, "%d requests failed: statuses %v, errors %v", c.Errors, report.Total.Statuses, report.Total.Errors)
	if mode == portero.OnFailureClosed {
		unavailable := report.Total.Statuses[strconv.Itoa(http.StatusServiceUnavailable)]
		c.check(f.unfelt || unavailable > 0, "no request was refused for want of Redis")
	}
	perKey := capacity + rate*report.ElapsedSeconds
	if f.lossy {
		perKey += capacity // Redis lost the bucket: it is full again
	}
	c.Bound = fair * perKey * keys
	if mode == portero.OnFailureOpen {
		c.Bound = float64(c.Requests)
	}
	c.check(float64(c.Passed) <= c.Bound, "passed %d of at most %.0f", c.Passed, c.Bound)
	before := int(steady / time.Second)
	for name, client := range report.Clients {
		if mode != portero.OnFailureOpen {
			c.check(float64(client.Passed) <= fair*perKey, "%s passed %d of at most %.0f", name, client.Passed, fair*perKey)
		}
		early := 0
		for _, second := range client.Seconds[:min(before, len(client.Seconds))] {
			early += second.Passed
		}
		limit := capacity + rate*(before+1) // requests of a second end in the next
		c.check(early <= limit, "%s passed %d of at most %d before the fault", name, early, limit)
	}
}

// judgeLatency looks at the sidecars' own histograms of verdicts.
func (c *cell) judgeLatency(o *observation) {
	normal := o.verdictsWithin(o.began.Add(-steady/2), o.began).quantile(0.99)
	whole := o.verdictsWithin(o.began, o.ended)
	c.P99 = whole.quantile(0.99).Seconds() * 1000
	within := whole.atMost(timeout + slack)
	c.inTime(within >= 0.99, "%.2f %% of %d verdicts within %s during the fault, p99 %.1f ms", 100*within, whole.count(), timeout+slack, c.P99)
	if opened, ok := o.allOpen(); ok && o.ended.Sub(opened) > time.Second {
		after := o.verdictsWithin(opened.Add(2*sampling), o.ended)
		p99 := after.quantile(0.99)
		c.inTime(p99 <= normal+afterOpen || o.hit != "", "p99 %s with all breakers open, %s before the fault", p99, normal)
	}
}

// allOpen is when the breakers of all three masters were open in all sidecars.
func (o *observation) allOpen() (time.Time, bool) {
	var latest time.Time
	for _, series := range o.series {
		i := slices.IndexFunc(series, func(s sample) bool { return s.at.After(o.began) && len(s.open) == 3 })
		if i < 0 || series[i].at.After(o.ended) {
			return latest, false
		}
		if series[i].at.After(latest) {
			latest = series[i].at
		}
	}
	return latest, true
}

func (c *cell) judgeRecovery(f *fault, o *observation) {
	from := o.healthy
	if f.sinceStart {
		from = o.began
	}
	took, ok := o.recovery(from)
	c.Recovery = took.Seconds()
	c.check(ok, "verdicts were not shared again")
	c.inTime(took <= f.within(), "shared again after %s, at most %s", took.Round(time.Millisecond), f.within())
}

// judgeResources looks at the sidecars' memory, goroutines and sockets.
func (c *cell) judgeResources(o *observation) {
	// 8 x rate x timeout + 32, by the requests that one sidecar gets.
	room := 8*float64(requestRate)/sidecars*timeout.Seconds() + 32
	for i, series := range o.series {
		before := during(series, o.began.Add(-steady/2), o.began)
		var goroutines, rss float64
		for _, s := range before {
			goroutines, rss = max(goroutines, s.goroutines), max(rss, s.rss)
		}
		for _, s := range during(series, o.began, o.healthy) {
			c.Goroutines = max(c.Goroutines, int(s.goroutines-goroutines))
			c.RSS = max(c.RSS, s.rss/rss)
			c.Sockets = max(c.Sockets, s.sockets)
		}
		c.check(float64(c.Goroutines) <= room, "%d goroutines more than before in sidecar %d, at most %.0f", c.Goroutines, i, room)
	}
	c.check(c.RSS <= maxGrowth, "memory %.2f times of before, at most %.1f", c.RSS, maxGrowth)
	c.check(c.Sockets <= poolSockets, "%d sockets to Redis, at most %d", c.Sockets, poolSockets)
}

// judgeReach looks at whom the fault reached: somebody, and of one master only those who ask it.
func (c *cell) judgeReach(f *fault, o *observation) {
	var local, all uint64
	for _, series := range o.series {
		samples := during(series, o.began, o.healthy.Add(sampling))
		if len(samples) == 0 {
			continue
		}
		first, last := samples[0], samples[len(samples)-1]
		local += last.local - first.local
		all += last.local + last.redis - first.local - first.redis
		for _, s := range samples {
			for _, master := range s.open {
				c.inTime(o.hit == "" || master == o.hit, "the breaker of %s is open, and %s was hit", master, o.hit)
			}
		}
	}
	if all > 0 {
		c.Local = float64(local) / float64(all)
	}
	c.check(f.unfelt || local > 0, "no verdict was local: the fault was not felt")
	if o.hit != "" {
		const noise = 0.05
		c.inTime(c.Local <= o.hitShare+noise, "%.0f %% of the verdicts were local, and %.0f %% of the buckets were hit", 100*c.Local, 100*o.hitShare)
	}
}
