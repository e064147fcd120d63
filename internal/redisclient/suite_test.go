package redisclient_test

import (
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/internal/redistest"
)

func TestRedisclient(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Redis clients")
}

const password = "default-password"

var cluster *redistest.Cluster

var _ = BeforeSuite(func(ctx SpecContext) {
	cluster = redistest.Start(ctx, GinkgoT(), redistest.Options{Password: password})
}, NodeTimeout(2*time.Minute))
