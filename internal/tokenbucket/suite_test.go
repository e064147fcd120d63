package tokenbucket_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/portero-dev/portero/internal/localbucket"
	"github.com/portero-dev/portero/internal/redistest"
	"github.com/portero-dev/portero/internal/tokenbucket"
)

// testClock stands in for the node's clock: it tells what the function test_set_clock was told last. It lives on each
// node by itself, so one pipeline to one node sets it and takes.
const testClock = `
local clock_us = 0
local function now_us()
  return clock_us
end
redis.register_function('test_set_clock', function(_, args)
  clock_us = tonumber(args[1])
end)
`

var (
	library     = tokenbucket.Library()
	testLibrary = tokenbucket.LibraryWithClock("portero_test", testClock)
)

// process is the scope of what all tests, fuzz targets and benchmarks of this process share: one cluster, started when
// the first of them asks.
type process struct {
	once     sync.Once
	cluster  *redistest.Cluster
	cleanups []func()
}

var shared process

func (*process) Helper()                           {}
func (*process) Logf(format string, args ...any)   { fmt.Fprintf(os.Stderr, format+"\n", args...) }
func (*process) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (p *process) Cleanup(f func())                { p.cleanups = append(p.cleanups, f) }

// start starts the cluster and loads the libraries.
func (p *process) start(ctx context.Context) *redistest.Cluster {
	p.once.Do(func() {
		p.cluster = redistest.Start(ctx, p, redistest.Options{})
		if err := load(ctx, library, testLibrary); err != nil {
			p.Fatalf("load libraries: %v", err)
		}
	})
	return p.cluster
}

// load puts libraries on every master, also on one that holds them.
func load(ctx context.Context, libraries ...tokenbucket.Source) error {
	return shared.cluster.ForEachMaster(ctx, func(ctx context.Context, client *redis.Client) error {
		for _, library := range libraries {
			if err := client.FunctionLoadReplace(ctx, library.Code).Err(); err != nil {
				return err
			}
		}
		return nil
	})
}

func TestMain(m *testing.M) {
	code := m.Run()
	for _, cleanup := range shared.cleanups {
		cleanup()
	}
	os.Exit(code)
}

func TestTokenbucket(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Token bucket")
}

// cluster serves all specs; each has keys of its own.
var cluster *redistest.Cluster

var _ = BeforeSuite(func(ctx SpecContext) { cluster = shared.start(ctx) }, NodeTimeout(2*time.Minute))

// slow is a bucket that refills nothing worth counting during a test.
var slow = localbucket.Params{Capacity: 10, RefillTokens: 1, IntervalUS: localbucket.MaxIntervalUS}

var keys atomic.Int64

// newKey is a key that no other spec uses.
func newKey() string { return fmt.Sprintf("test:{%d}", keys.Add(1)) }

// tryTake calls the library as it is.
func tryTake(ctx context.Context, key string, charges ...tokenbucket.Charge) ([]tokenbucket.ChargeResult, error) {
	call, err := tokenbucket.NewTake(key, charges)
	if err != nil {
		return nil, err
	}
	_ = cluster.Client().Process(ctx, call)
	return call.Result()
}

func take(ctx context.Context, key string, charges ...tokenbucket.Charge) []tokenbucket.ChargeResult {
	GinkgoHelper()
	results, err := tryTake(ctx, key, charges...)
	Expect(err).NotTo(HaveOccurred())
	return results
}

// giveBack returns charges by the library as it is, and tells how many receipts are settled.
func giveBack(ctx context.Context, key string, receipts ...tokenbucket.Receipt) int {
	GinkgoHelper()
	call, err := tokenbucket.NewGiveBack(key, receipts)
	Expect(err).NotTo(HaveOccurred())
	_ = cluster.Client().Process(ctx, call)
	settled, err := call.Settled()
	Expect(err).NotTo(HaveOccurred())
	return settled
}

// takeAt calls the library at a time of the caller's choice, and also tells the key's expiry in unix milliseconds, or a
// negative number where there is no key.
func takeAt(ctx context.Context, client *redis.Client, key string, nowUS int64, charges ...tokenbucket.Charge,
) ([]tokenbucket.ChargeResult, int64, error) {
	call, err := tokenbucket.NewTakeOf(testLibrary.Name, key, charges)
	if err != nil {
		return nil, 0, err
	}
	expiry, err := at(ctx, client, key, nowUS, call)
	if err != nil {
		return nil, 0, err
	}
	results, err := call.Result()
	return results, expiry, err
}

// giveBackAt is giveBack at a time of the caller's choice, with the key's expiry.
func giveBackAt(ctx context.Context, client *redis.Client, key string, nowUS int64, receipts ...tokenbucket.Receipt) (int, int64, error) {
	call, err := tokenbucket.NewGiveBackOf(testLibrary.Name, key, receipts)
	if err != nil {
		return 0, 0, err
	}
	expiry, err := at(ctx, client, key, nowUS, call)
	if err != nil {
		return 0, 0, err
	}
	settled, err := call.Settled()
	return settled, expiry, err
}

// at runs a call of the test library at a time, and tells the key's expiry.
func at(ctx context.Context, client *redis.Client, key string, nowUS int64, call redis.Cmder) (int64, error) {
	pipe := client.Pipeline()
	pipe.FCall(ctx, "test_set_clock", []string{key}, nowUS)
	_ = pipe.Process(ctx, call)
	expiry := pipe.Do(ctx, "PEXPIRETIME", key)
	_, _ = pipe.Exec(ctx) // what sets the clock answers nil, an error to go-redis
	return expiry.Int64()
}

// bare are results without receipts, which differ with each call.
func bare(results []tokenbucket.ChargeResult) []tokenbucket.ChargeResult {
	results = slices.Clone(results)
	for i := range results {
		results[i].Receipt = tokenbucket.Receipt{}
	}
	return results
}
