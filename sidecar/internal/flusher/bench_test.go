package flusher_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/ratelimit"
	"github.com/portero-dev/portero/internal/redisclient"
	"github.com/portero-dev/portero/internal/redistest"
	"github.com/portero-dev/portero/internal/tokenbucket"
	"github.com/portero-dev/portero/sidecar/internal/flusher"
)

// stage is the scope of a benchmark's cluster.
type stage struct{ *testing.B }

func (stage) Logf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// BenchmarkVerdict is a whole verdict over a real Redis Cluster, one by one and by 32 clients at once. Ratios count: three limits
// of one key are one call.
func BenchmarkVerdict(b *testing.B) {
	ctx := b.Context()
	servers := redistest.Start(ctx, stage{b}, redistest.Options{})
	err := servers.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
		return master.FunctionLoadReplace(ctx, tokenbucket.Library().Code).Err()
	})
	if err != nil {
		b.Fatal(err)
	}
	client := redisclient.NewVerdict(redisclient.Options{Addrs: servers.Addrs()})
	defer client.Close()
	reached := make(chan struct{})
	f := flusher.New(flusher.Options{
		Client: client, Instance: instance, Namespace: namespace, Log: slog.New(slog.DiscardHandler), Ready: func() { close(reached) },
	})
	running, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.Run(running)
	}()
	defer func() {
		stop()
		<-ended
	}()
	<-reached

	one, three := roomy("one", 1), roomy("three", 3)
	shapes := []struct {
		name   string
		groups func(int) []ratelimit.Group
	}{
		{"1-limit", func(i int) []ratelimit.Group { return []ratelimit.Group{groupOf(one, fmt.Sprint("a", i), 1)} }},
		{"3-limits-same-key", func(i int) []ratelimit.Group { return []ratelimit.Group{groupOf(three, fmt.Sprint("b", i), 1)} }},
		{"3-limits-3-slots", func(i int) []ratelimit.Group {
			return []ratelimit.Group{
				groupOf(one, fmt.Sprint("c", i), 1), groupOf(one, fmt.Sprint("d", i), 1), groupOf(one, fmt.Sprint("e", i), 1),
			}
		}},
	}
	seen := new(returns)
	l := limiter(f, seen)
	for _, clients := range []int{1, 32} {
		for _, shape := range shapes {
			var groups [64][]ratelimit.Group
			for i := range groups {
				groups[i] = shape.groups(i)
			}
			b.Run(fmt.Sprintf("%d-clients/%s", clients, shape.name), func(b *testing.B) {
				b.ReportAllocs()
				turns := make(chan int, clients)
				done := make(chan struct{}, clients)
				for range clients {
					go func() {
						for i := range turns {
							l.Decide(ctx, groups[i%len(groups)])
						}
						done <- struct{}{}
					}()
				}
				for i := range b.N {
					turns <- i
				}
				close(turns)
				for range clients {
					<-done
				}
			})
		}
	}
	if failed := seen.failed.Load(); failed > 0 {
		b.Fatalf("%d verdicts were not Redis'", failed)
	}
}

// roomy is a policy whose limits never refuse, so that every verdict writes.
func roomy(name string, limits int) *ratelimit.Policy {
	p := strict(name, bucketconfig.MaxCapacity)
	p.Limits = nil
	for i := range limits {
		p.Limits = append(p.Limits, &ratelimit.Limit{Policy: p, ID: uint64(i + 1), QualifiedName: fmt.Sprint(name, "/", i), Config: &bucketconfig.Limit{
			Name: fmt.Sprint(i), Bucket: bucketconfig.Bucket{Capacity: bucketconfig.MaxCapacity, RefillTokens: 1000, RefillIntervalUS: 1_000_000},
		}})
	}
	return p
}
