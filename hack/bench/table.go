package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// sample is what one benchmark of one round measured.
type sample struct{ ns, bytes, allocs float64 }

// results are the samples of each kind and shape, a round each.
type results struct {
	kinds, shapes []string
	samples       map[string]map[string][]sample
}

// parse reads what go test prints: BenchmarkVerdict/round-1/32-clients/1_limit-2 1000 33124 ns/op 2210 B/op 41 allocs/op.
func parse(printed string) (*results, error) {
	r := &results{samples: map[string]map[string][]sample{}}
	for line := range strings.Lines(printed) {
		fields := strings.Fields(line)
		if len(fields) < 8 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		name, _ := strings.CutPrefix(fields[0], "Benchmark")
		if last := strings.LastIndex(name, "-"); last > 0 && !strings.Contains(name[last:], "/") {
			name = name[:last] // the number of processors, told when it is not 1
		}
		parts := strings.Split(name, "/")
		if len(parts) < 3 {
			return nil, fmt.Errorf("benchmark %q has no round and shape", fields[0])
		}
		var s sample
		for i, into := range []*float64{&s.ns, &s.bytes, &s.allocs} {
			var err error
			if *into, err = strconv.ParseFloat(fields[2+2*i], 64); err != nil {
				return nil, fmt.Errorf("benchmark %q: %w", fields[0], err)
			}
		}
		kind := strings.ReplaceAll(strings.Join(append(parts[:1:1], parts[2:len(parts)-1]...), ", "), "-", " ")
		r.add(kind, strings.ReplaceAll(parts[len(parts)-1], "_", " "), s)
	}
	if len(r.kinds) == 0 {
		return nil, fmt.Errorf("no benchmark ran:\n%s", printed)
	}
	return r, nil
}

func (r *results) add(kind, shape string, s sample) {
	if r.samples[kind] == nil {
		r.kinds = append(r.kinds, kind)
		r.samples[kind] = map[string][]sample{}
	}
	if !slices.Contains(r.shapes, shape) {
		r.shapes = append(r.shapes, shape)
	}
	r.samples[kind][shape] = append(r.samples[kind][shape], s)
}

// ratio is the median, over the rounds, of a shape's time over that of one limit in the same round.
func (r *results) ratio(kind, shape string) float64 {
	one := r.samples[kind][oneLimit]
	var ratios []float64
	for round, s := range r.samples[kind][shape] {
		if round < len(one) {
			ratios = append(ratios, s.ns/one[round].ns)
		}
	}
	return median(ratios)
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	values = slices.Sorted(slices.Values(values))
	return (values[(len(values)-1)/2] + values[len(values)/2]) / 2
}

// table is in Markdown: for each kind of benchmark the median time, its ratio to one limit, and the allocations.
func table(r *results) string {
	var b strings.Builder
	b.WriteString("| Shape |")
	for _, kind := range r.kinds {
		fmt.Fprintf(&b, " %s | × | B, allocs |", kind)
	}
	b.WriteString("\n|---|" + strings.Repeat("---:|---:|---:|", len(r.kinds)) + "\n")
	for _, shape := range r.shapes {
		fmt.Fprintf(&b, "| %s |", shape)
		for _, kind := range r.kinds {
			samples := r.samples[kind][shape]
			if len(samples) == 0 {
				b.WriteString(" | | |")
				continue
			}
			of := func(pick func(sample) float64) float64 {
				values := make([]float64, len(samples))
				for i, s := range samples {
					values[i] = pick(s)
				}
				return median(values)
			}
			fmt.Fprintf(&b, " %.1f µs | %.2f | %.0f, %.0f |", of(func(s sample) float64 { return s.ns })/1000, r.ratio(kind, shape),
				of(func(s sample) float64 { return s.bytes }), of(func(s sample) float64 { return s.allocs }))
		}
		b.WriteString("\n")
	}
	return b.String()
}
