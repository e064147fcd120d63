package tokenbucket_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/portero-dev/portero/internal/redistest"
	"github.com/portero-dev/portero/internal/tokenbucket"
)

// cluster serves all specs of the suite; each spec has keys of its own.
var cluster *redistest.Cluster

func TestTokenbucket(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Token bucket")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	cluster = redistest.Start(ctx, GinkgoT(), redistest.Options{})
	load(ctx, tokenbucket.Library())
}, NodeTimeout(2*time.Minute))

// load puts a library on every master.
func load(ctx SpecContext, library tokenbucket.Source) {
	GinkgoHelper()
	Expect(cluster.ForEachMaster(ctx, func(ctx context.Context, client *redis.Client) error {
		return client.FunctionLoadReplace(ctx, library.Code).Err()
	})).To(Succeed())
}
