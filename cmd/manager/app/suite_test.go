package app_test

import (
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/portero-dev/portero/internal/redistest"
	"github.com/portero-dev/portero/internal/testenv"
)

func TestManager(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Manager")
}

const redisPassword = "the-default-users-password"

// Patience of the suite: soon for what is triggered, back for what a node lost and has again 2 s after it was looked at,
// sweepTime for what the sweep repairs within 10 s, status for what a status may take.
const (
	soon      = 5 * time.Second
	back      = 2 * time.Second
	sweepTime = 10 * time.Second
	status    = 15 * time.Second
	often     = 100 * time.Millisecond
)

var (
	api   *testenv.Environment
	redis *redistest.Cluster
)

var _ = BeforeSuite(func(ctx SpecContext) {
	ctrl.SetLogger(logr.Discard())
	api = testenv.Start(GinkgoT(), testenv.Options{})
	install(ctx, api)
	redis = redistest.Start(ctx, GinkgoT(), redistest.Options{Password: redisPassword})
	SetDefaultEventuallyPollingInterval(often)
	SetDefaultConsistentlyPollingInterval(often)
}, NodeTimeout(2*time.Minute))
