package publisher_test

import (
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/internal/redisadmin"
	"github.com/portero-dev/portero/internal/redisclient"
	"github.com/portero-dev/portero/internal/redistest"
)

func TestPublisher(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Publisher")
}

var redis *redistest.Cluster

var _ = BeforeSuite(func(ctx SpecContext) {
	redis = redistest.Start(ctx, GinkgoT(), redistest.Options{})
	admin := redisadmin.New(redisclient.Options{Addrs: redis.Addrs()}, "publisher")
	DeferCleanup(admin.Close)
	_, err := admin.EnsureLibrary(ctx)
	Expect(err).NotTo(HaveOccurred())
}, NodeTimeout(time.Minute))
