//go:build e2e

// Package e2e_test runs Portero on the development cluster: real kubelet-run pods, a real Redis Cluster, the images of this
// checkout. hack/e2e/run starts it inside the cluster's network.
package e2e_test

import (
	"os"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"

	portero "github.com/portero-dev/portero/api/v1alpha1"
)

const (
	systemNamespace = "portero-system"
	// settled bounds what depends on pods starting or on the manager noticing.
	settled = 90 * time.Second
	// poll is how often a state is looked at.
	poll = 100 * time.Millisecond
)

var (
	kube      client.Client
	redisAddr []string
	admin     *redis.ClusterClient
)

func TestEndToEnd(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "End to end")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	Expect(portero.AddToScheme(scheme.Scheme)).To(Succeed())
	cfg, err := config.GetConfig()
	Expect(err).NotTo(HaveOccurred(), "run this suite with hack/e2e/run")
	kube, err = client.New(cfg, client.Options{Scheme: scheme.Scheme})
	Expect(err).NotTo(HaveOccurred())

	redisAddr = strings.Split(os.Getenv("PORTERO_REDIS_ADDRS"), ",")
	admin = redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: redisAddr, Username: os.Getenv("PORTERO_REDIS_USERNAME"), Password: os.Getenv("PORTERO_REDIS_PASSWORD"),
	})
	DeferCleanup(admin.Close)
	Expect(admin.Ping(ctx).Err()).To(Succeed())
	expectManagerReady(ctx, 2)
})
