package tokenbucket_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/portero-dev/portero/internal/localbucket"
	"github.com/portero-dev/portero/internal/tokenbucket"
)

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
redis.call('HSET', KEYS[1], 'tokens', tokens, 'updated', now)
redis.call('EXPIRE', KEYS[1], math.ceil(capacity / rate * 2))
return { allowed, tostring(tokens) }`

// roomy never refuses, so that every call writes.
var roomy = localbucket.Params{Capacity: 1e9, RefillTokens: 1000, IntervalUS: second}

// BenchmarkCall compares one verdict of Redis with the seed's script and with a bare SET, one by one and as pipelines.
// Ratios count, absolute figures are the machine's; redis-us/op is the processor time of Redis for each call.
func BenchmarkCall(b *testing.B) {
	cluster := shared.start(b.Context())
	const key = "bench:{1}"
	master, err := cluster.MasterOf(b.Context(), key)
	if err != nil {
		b.Fatal(err)
	}
	seed := redis.NewScript(seedScript)
	if err := seed.Load(b.Context(), master.Client()).Err(); err != nil {
		b.Fatal(err)
	}
	takeOf := func(charges ...tokenbucket.Charge) func(context.Context, redis.Pipeliner) {
		key := fmt.Sprint(key, len(charges))
		return func(ctx context.Context, pipe redis.Pipeliner) {
			call, err := tokenbucket.NewTake(key, charges)
			if err != nil {
				b.Fatal(err)
			}
			_ = pipe.Process(ctx, call)
		}
	}
	spent := tokenbucket.Charge{ID: 3, Params: slow, Cost: slow.Capacity + 1}
	variants := []struct {
		name string
		add  func(context.Context, redis.Pipeliner)
	}{
		{"set", func(ctx context.Context, pipe redis.Pipeliner) { pipe.Set(ctx, key+"set", "0123456789", 0) }},
		{"seed", func(ctx context.Context, pipe redis.Pipeliner) {
			seed.EvalSha(ctx, pipe, []string{key + "seed"}, 1e9, 1000, 1)
		}},
		{"take", takeOf(tokenbucket.Charge{ID: 1, Params: roomy, Cost: 1})},
		{"take-three-limits", takeOf(tokenbucket.Charge{ID: 1, Params: roomy, Cost: 1}, tokenbucket.Charge{ID: 2, Params: roomy, Cost: 1},
			tokenbucket.Charge{ID: 3, Params: roomy, Cost: 1})},
		{"take-refused", takeOf(spent)},
	}
	for _, batch := range []struct {
		name string
		size int
	}{{"one", 1}, {"pipeline-of-100", 100}} {
		for _, variant := range variants {
			b.Run(batch.name+"/"+variant.name, func(b *testing.B) {
				before := cpu(b, master.Client())
				for done := 0; done < b.N; done += batch.size {
					pipe := master.Client().Pipeline()
					for range min(batch.size, b.N-done) {
						variant.add(b.Context(), pipe)
					}
					if _, err := pipe.Exec(b.Context()); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric((cpu(b, master.Client())-before)*1e6/float64(b.N), "redis-us/op")
			})
		}
	}
}

// cpu is the processor time that the node has used, in seconds.
func cpu(b *testing.B, client *redis.Client) float64 {
	b.Helper()
	info := client.InfoMap(b.Context(), "cpu")
	if err := info.Err(); err != nil {
		b.Fatal(err)
	}
	total := 0.0
	for _, name := range []string{"used_cpu_user_main_thread", "used_cpu_sys_main_thread"} {
		seconds, err := strconv.ParseFloat(info.Item("CPU", name), 64)
		if err != nil {
			b.Fatal(err)
		}
		total += seconds
	}
	return total
}
