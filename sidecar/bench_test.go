package sidecar_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/ratelimit"
	"github.com/portero-dev/portero/internal/redisclient"
	"github.com/portero-dev/portero/internal/redistest"
	"github.com/portero-dev/portero/internal/tokenbucket"
	"github.com/portero-dev/portero/sidecar/internal/failover"
	"github.com/portero-dev/portero/sidecar/internal/flusher"
	"github.com/portero-dev/portero/sidecar/internal/metrics"
	"github.com/portero-dev/portero/sidecar/internal/tally"
)

// The benchmarks go through all shapes once a round, so that what slows the machine for a while slows all of them: only ratios within a
// round count. hack/bench runs them and makes a table of the medians.
const (
	benchRounds = 15
	// benchKeys are as many buckets, spread over all masters.
	benchKeys = 64
	// benchClients ask at once.
	benchClients = 32
)

// shape is a policy and the requests that it governs.
type shape struct {
	name     string
	set      *ratelimit.Set
	requests []*ratelimit.Request
	// refused: each request but the first of a key is.
	refused bool
}

// shapes are what hack/bench compares, the first of which with all others.
func shapes(b *testing.B) []shape {
	b.Helper()
	byKey := bucketconfig.KeyPart{Type: "Header", Name: "X-Api-Key", WhenMissing: "Share"}
	byTenant := bucketconfig.KeyPart{Type: "Header", Name: "X-Tenant", WhenMissing: "Share"}
	byClient := bucketconfig.KeyPart{Type: "ClientIP", WhenMissing: "Share"}
	overridden := roomy("a", byKey)
	overridden.Overrides = manyOverrides()
	expressed := roomy("a", bucketconfig.KeyPart{Type: "Expression", Name: `request.headers["x-api-key"].lowerAscii()`, WhenMissing: "Share"})
	expressed.Matches[0].When = `request.method == "GET" && !request.headers["user-agent"].startsWith("probe/")`
	spent := roomy("a", byKey)
	spent.Bucket = bucketconfig.Bucket{Capacity: 1, RefillTokens: 1, RefillIntervalUS: bucketconfig.MaxIntervalUS}
	return []shape{
		{name: "1 limit", set: compiled(b, roomy("a", byKey)), requests: requests("key-")},
		{name: "1 limit, refused", set: compiled(b, spent), requests: requests("spent-"), refused: true},
		{name: "3 limits, same key", set: compiled(b, roomy("a", byKey), roomy("b", byKey), roomy("c", byKey)), requests: requests("key-")},
		{name: "3 limits, 3 slots", set: compiled(b, roomy("a", byKey), roomy("b", byTenant), roomy("c", byClient)), requests: requests("key-")},
		{name: "1 limit, CEL in match and key", set: compiled(b, expressed), requests: requests("key-")},
		{name: "64 overrides of 256 values, none fits", set: compiled(b, overridden), requests: requests("key-")},
		{name: "64 overrides of 256 values, the last fits", set: compiled(b, overridden), requests: requests("63-")},
	}
}

// roomy is a limit that never refuses, so that every verdict writes.
func roomy(name string, parts ...bucketconfig.KeyPart) bucketconfig.Limit {
	return bucketconfig.Limit{
		Name: name, KeyParts: parts, Cost: 1, Matches: []bucketconfig.Match{{Path: &bucketconfig.StringMatch{Type: "PathPrefix", Value: "/api"}}},
		Bucket: bucketconfig.Bucket{Capacity: bucketconfig.MaxCapacity, RefillTokens: 1000, RefillIntervalUS: 1_000_000},
	}
}

// manyOverrides are as many as a limit can have, with as many values.
func manyOverrides() (many []bucketconfig.Override) {
	for i := range bucketconfig.MaxOverrides {
		m := bucketconfig.NamedMatch{Name: "X-Api-Key", Type: "In"}
		for j := range bucketconfig.MaxValues {
			m.Values = append(m.Values, fmt.Sprintf("%d-%d", i, j))
		}
		bucket := roomy("").Bucket
		many = append(many, bucketconfig.Override{
			Name: fmt.Sprint("o", i), Type: "Bucket", Bucket: &bucket, Matches: []bucketconfig.Match{{Headers: []bucketconfig.NamedMatch{m}}},
		})
	}
	return many
}

func compiled(b *testing.B, limits ...bucketconfig.Limit) *ratelimit.Set {
	b.Helper()
	policy, err := ratelimit.Compile(&bucketconfig.Record{
		Schema: bucketconfig.SchemaVersion, Kind: bucketconfig.Kind, Name: fmt.Sprint("bench-", policies.Add(1)), UID: "uid", Generation: 1, Order: 1,
		ClientIP: &bucketconfig.ClientIP{Type: "Peer", IPv4PrefixLength: 32, IPv6PrefixLength: 64},
		Limits:   limits,
		Store:    bucketconfig.Store{TimeoutUS: bucketconfig.MaxTimeoutUS, OnFailure: "Local"},
		Response: bucketconfig.Response{RateLimitHeaders: "Standard", StatusCode: 429},
	}, []byte(strings.Repeat("k", 32)))
	if err != nil {
		b.Fatal(err)
	}
	return ratelimit.NewSet(policy)
}

// policies gives each shape buckets of its own.
var policies atomic.Int32

// requests have a key, a tenant and an address each.
func requests(prefix string) (all []*ratelimit.Request) {
	for i := range benchKeys {
		all = append(all, &ratelimit.Request{
			Method: http.MethodGet, Path: "/api/orders", Query: "page=1", Host: "shop.example",
			Header: http.Header{
				"X-Api-Key": {fmt.Sprint(prefix, i)}, "X-Tenant": {fmt.Sprint("tenant-", i)},
				"Accept": {"application/json"}, "User-Agent": {"bench/1"}, "Authorization": {"Bearer " + strings.Repeat("t", 64)},
			},
			Peer: netip.AddrFrom4([4]byte{203, 0, 113, byte(i)}), Port: 8080, PortName: "http",
		})
	}
	return all
}

// turned begins elsewhere each round, so that nobody is always the first.
func turned[T any](all []T, round int) []T {
	at := round % len(all)
	return slices.Concat(all[at:], all[:at])
}

// BenchmarkMatch is what a verdict costs before anybody is asked: matching, and building the keys.
func BenchmarkMatch(b *testing.B) {
	all := shapes(b)
	for round := range benchRounds {
		for _, s := range turned(all, round) {
			b.Run(fmt.Sprintf("round-%d/%s", round, s.name), func(b *testing.B) {
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					if d := s.set.Describe(s.requests[i%benchKeys]); len(d.Groups) == 0 {
						b.Fatal("nothing governs the request")
					}
				}
			})
		}
	}
}

// BenchmarkVerdict is match, key and verdict as the proxy asks for it, over a real Redis Cluster, by one client and by 32 at once; beside
// the script that most limiters have.
func BenchmarkVerdict(b *testing.B) {
	cluster := redistest.Start(b.Context(), stage{b}, redistest.Options{})
	client := redisclient.NewVerdict(redisclient.Options{Addrs: cluster.Addrs()})
	defer client.Close()
	seed := redis.NewScript(seedScript)
	err := cluster.ForEachMaster(b.Context(), func(ctx context.Context, master *redis.Client) error {
		if err := seed.Load(ctx, master).Err(); err != nil {
			return err
		}
		return master.FunctionLoadReplace(ctx, tokenbucket.Library().Code).Err()
	})
	if err != nil {
		b.Fatal(err)
	}
	limiter := verdicts(b, client)

	type subject struct {
		name string
		ask  func(b *testing.B, i int)
	}
	var subjects []subject
	for _, s := range shapes(b) {
		wanted := ratelimit.Allowed
		decide := func(i int) ratelimit.Verdict {
			return limiter.Decide(b.Context(), s.set.Describe(s.requests[i%benchKeys]).Groups)
		}
		if s.refused {
			wanted = ratelimit.Limited
			for i := range benchKeys {
				decide(i)
			}
		}
		subjects = append(subjects, subject{s.name, func(b *testing.B, i int) {
			if v := decide(i); v.Outcome != wanted || v.Source != ratelimit.FromRedis {
				b.Errorf("outcome %d from source %d", v.Outcome, v.Source)
			}
		}})
	}
	subjects = append(subjects, subject{"seed script", func(b *testing.B, i int) {
		key := fmt.Sprintf("bench:{%d}", i%benchKeys)
		if err := seed.EvalSha(b.Context(), client, []string{key}, bucketconfig.MaxCapacity, 1000, 1).Err(); err != nil {
			b.Error(err)
		}
	}})
	for round := range benchRounds {
		for _, s := range turned(subjects, round) {
			b.Run(fmt.Sprintf("round-%d/1-client/%s", round, s.name), func(b *testing.B) {
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					s.ask(b, i)
				}
			})
			b.Run(fmt.Sprintf("round-%d/%d-clients/%s", round, benchClients, s.name), func(b *testing.B) {
				b.ReportAllocs()
				b.SetParallelism(max(1, benchClients/runtime.GOMAXPROCS(0)))
				var turn atomic.Int64
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						s.ask(b, int(turn.Add(1)))
					}
				})
			})
		}
	}
}

// verdicts wires the limiter as Run does.
func verdicts(b *testing.B, client *redis.ClusterClient) *failover.Limiter {
	b.Helper()
	observer := metrics.New(metrics.Sources{
		Tally: new(tally.Tally), Generations: func() map[string]int64 { return nil }, Confirmed: func() (t time.Time) { return },
		OpenMasters: func() []string { return nil }, Fallback: func() bool { return false }, Credentials: func() bool { return true },
	})
	limiter := failover.New(failover.Options{
		Observer: observer, Log: slog.New(slog.DiscardHandler), Sidecars: func(string) int { return 1 },
		Stale: func() {}, FallbackChanged: func() {}, MaxKeys: failover.DefaultMaxKeys,
	})
	reached := make(chan struct{})
	f := flusher.New(flusher.Options{
		Client: client, Instance: instance, Namespace: "bench", Log: slog.New(slog.DiscardHandler), Ready: func() { close(reached) },
	})
	limiter.SetStore(f)
	running, stop := context.WithCancel(context.WithoutCancel(b.Context()))
	ended := make(chan struct{}, 2)
	go func() { f.Run(running); ended <- struct{}{} }()
	go func() { limiter.Run(running); ended <- struct{}{} }()
	b.Cleanup(func() {
		stop()
		<-ended
		<-ended
	})
	<-reached
	return limiter
}

// seedScript has the shape that most limiters' scripts have: a hash of tokens and last update, floats, an expiry.
const seedScript = `
local bucket = redis.call('HMGET', KEYS[1], 'tokens', 'updated')
local time = redis.call('TIME')
local capacity, rate, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local now = time[1] + time[2] / 1000000
local tokens, updated = tonumber(bucket[1]) or capacity, tonumber(bucket[2]) or now
tokens = math.min(capacity, tokens + math.max(0, now - updated) * rate)
local allowed = 0
if tokens >= cost then
  allowed, tokens = 1, tokens - cost
end
redis.call('HMSET', KEYS[1], 'tokens', tokens, 'updated', now)
redis.call('EXPIRE', KEYS[1], math.ceil(capacity / rate * 2))
return { allowed, tostring(tokens) }`

// stage is the scope of a benchmark's cluster.
type stage struct{ *testing.B }

func (stage) Logf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
