package sidecar_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"

	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/configstore"
	"github.com/portero-dev/portero/internal/keyspace"
	"github.com/portero-dev/portero/internal/redisadmin"
	"github.com/portero-dev/portero/internal/redisclient"
	"github.com/portero-dev/portero/internal/redistest"
	"github.com/portero-dev/portero/internal/sidecarenv"
	"github.com/portero-dev/portero/sidecar"
)

func TestSidecar(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "sidecar")
}

const (
	instance = keyspace.Instance("a1b2c3d4")
	password = "a-tenant's-password"
)

// cluster outlives restarts with its users and its library, and serves all specs; each has a namespace of its own.
var (
	cluster *redistest.Cluster
	manager *redisadmin.Admin
	writer  *configstore.Writer
)

var _ = BeforeSuite(func(ctx SpecContext) {
	cluster = redistest.Start(ctx, GinkgoT(), redistest.Options{NodeTimeout: time.Second, Persist: true, ACLFile: true})
	options := redisclient.Options{Addrs: cluster.Addrs()}
	manager = redisadmin.New(options, instance)
	DeferCleanup(manager.Close)
	client := redisclient.NewAdmin(options)
	DeferCleanup(client.Close)
	writer = configstore.NewWriter(client, instance, 1)
	ensureLibrary(ctx)
}, NodeTimeout(2*time.Minute))

func ensureLibrary(ctx context.Context) {
	GinkgoHelper()
	_, err := manager.EnsureLibrary(ctx)
	Expect(err).NotTo(HaveOccurred())
}

var namespaces atomic.Int32

// tenant is a namespace with its user, and what the manager would do for it.
type tenant struct {
	name       string
	secret     map[string]string
	generation int64
}

func newTenant(ctx context.Context) *tenant {
	GinkgoHelper()
	t := &tenant{name: fmt.Sprintf("shop-%d", namespaces.Add(1))}
	Expect(manager.EnsureUser(ctx, t.name, password)).To(Succeed())
	t.secret = map[string]string{
		sidecarenv.SecretAddrs:     strings.Join(cluster.Addrs(), ","),
		sidecarenv.SecretUsername:  instance.User(t.name),
		sidecarenv.SecretPassword:  password,
		sidecarenv.SecretInstance:  string(instance),
		sidecarenv.SecretKeySecret: strings.Repeat("k", 32),
	}
	return t
}

// policy is a policy of the next generation: one limit per X-Api-Key, refilled by one token an hour.
func (t *tenant) policy(name string, capacity int64, change ...func(*bucketconfig.Record)) configstore.Policy {
	t.generation++
	record := &bucketconfig.Record{
		Schema: bucketconfig.SchemaVersion, Kind: bucketconfig.Kind,
		Name: name, UID: "uid-of-" + name, Generation: t.generation, Order: t.generation,
		Limits: []bucketconfig.Limit{{
			Name:     "per-key",
			KeyParts: []bucketconfig.KeyPart{{Type: "Header", Name: "X-Api-Key", WhenMissing: "Share"}},
			Bucket:   bucketconfig.Bucket{Capacity: capacity, RefillTokens: 1, RefillIntervalUS: 3_600_000_000},
			Cost:     1,
		}},
		Store:    bucketconfig.Store{TimeoutUS: 1_000_000, OnFailure: "Local"},
		Response: bucketconfig.Response{RateLimitHeaders: "Standard", StatusCode: 429},
	}
	for _, c := range change {
		c(record)
	}
	return configstore.Policy{Name: name, Record: record, Share: bucketconfig.Share{Sidecars: 2}}
}

func (t *tenant) publish(ctx context.Context, policies ...configstore.Policy) {
	GinkgoHelper()
	published, err := writer.Publish(ctx, t.name, configstore.Publication{Policies: policies})
	Expect(err).NotTo(HaveOccurred())
	Expect(published.Refused).To(BeEmpty())
}

// pod is a sidecar that runs beside an app.
type pod struct {
	url, adminURL, controlURL string
	uid                       string
	secrets, labels           string
	log                       *gbytes.Buffer
	app                       *httptest.Server
	stop                      context.CancelFunc
	ended                     chan error
}

// newPod makes a pod of a tenant; start starts its sidecar.
func newPod() *pod {
	GinkgoHelper()
	p := &pod{log: gbytes.NewBuffer(), secrets: GinkgoT().TempDir(), ended: make(chan error, 1)}
	p.labels = filepath.Join(GinkgoT().TempDir(), "labels")
	p.label(`app="checkout"`)
	p.app = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			_, _ = io.Copy(io.Discard, r.Body)
		}
		if cost := r.Header.Get("Tell-Header"); cost != "" {
			w.Header().Set("X-Cost", cost)
		}
		_, _ = io.WriteString(w, "app")
		if cost := r.Header.Get("Tell-Trailer"); cost != "" {
			_ = http.NewResponseController(w).Flush() // or the body would have a length, and no trailers
			w.Header().Set(http.TrailerPrefix+"X-Cost", cost)
		}
	}))
	DeferCleanup(p.app.Close)
	return p
}

func (p *pod) label(lines string) {
	GinkgoHelper()
	Expect(os.WriteFile(p.labels, []byte(lines+"\n"), 0o600)).To(Succeed())
}

// mount writes the tenant's Secret with changes.
func (p *pod) mount(t *tenant, changes ...string) *pod {
	GinkgoHelper()
	files := map[string]string{}
	for name, content := range t.secret {
		files[name] = content
	}
	for i := 0; i < len(changes); i += 2 {
		files[changes[i]] = changes[i+1]
	}
	for name, content := range files {
		Expect(os.WriteFile(filepath.Join(p.secrets, name), []byte(content), 0o600)).To(Succeed())
	}
	return p
}

func (p *pod) start(ctx context.Context, t *tenant) *pod {
	GinkgoHelper()
	listen := func() net.Listener {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		Expect(err).NotTo(HaveOccurred())
		return listener
	}
	p.uid = fmt.Sprintf("uid-%d", namespaces.Add(1))
	config := sidecar.Config{
		Namespace: t.name, PodName: "checkout", PodUID: p.uid,
		Proxies: []sidecar.Proxy{{Listener: listen(), Upstream: p.app.Listener.Addr().String()}},
		Admin:   listen(), Control: listen(),
		CredentialsDir: p.secrets, LabelsFile: p.labels,
		PollInterval: 20 * time.Millisecond, DrainTimeout: 10 * time.Second,
		Version: "v0.0.0-test", Log: slog.New(slog.NewTextHandler(io.MultiWriter(p.log, GinkgoWriter), nil)),
	}
	p.url = "http://" + config.Proxies[0].Listener.Addr().String()
	p.adminURL = "http://" + config.Admin.Addr().String()
	p.controlURL = "http://" + config.Control.Addr().String()
	ctx, p.stop = context.WithCancel(context.WithoutCancel(ctx))
	go func() { p.ended <- sidecar.Run(ctx, config) }()
	DeferCleanup(func() {
		p.stop()
		Eventually(p.ended, "15s").Should(Receive())
	})
	return p
}

// client has room for the connections of a burst.
var client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}, Timeout: 10 * time.Second}

// get asks the app through the sidecar, as the client of a key, and answers the status.
func (p *pod) get(ctx context.Context, key string) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/", nil)
	if err != nil {
		return 0, err
	}
	request.Header.Set("X-Api-Key", key)
	return do(request)
}

func do(request *http.Request) (int, error) {
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, err
}

// passed is how many of n requests for a key pass; each other one must have been refused for the limit.
func (p *pod) passed(ctx context.Context, n int, key string) int {
	GinkgoHelper()
	count := 0
	for range n {
		status, err := p.get(ctx, key)
		Expect(err).NotTo(HaveOccurred())
		Expect(status).To(Or(Equal(http.StatusOK), Equal(http.StatusTooManyRequests)))
		if status == http.StatusOK {
			count++
		}
	}
	return count
}

// scrape reads the metrics.
func (p *pod) scrape() string {
	GinkgoHelper()
	response, err := client.Get(p.adminURL + sidecarenv.MetricsPath)
	Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	Expect(err).NotTo(HaveOccurred())
	return string(body)
}

// applies waits until the pod enforces exactly these generations, as its metrics tell.
func (p *pod) applies(generations map[string]int64) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		metrics := p.scrape()
		g.Expect(strings.Count(metrics, "portero_config_generation{")).To(Equal(len(generations)))
		for name, generation := range generations {
			g.Expect(metrics).To(ContainSubstring(`portero_config_generation{policy="%s"} %d`+"\n", name, generation))
		}
	}, "5s", "10ms").Should(Succeed())
}

// beat is the pod's heartbeat, as the manager reads it.
func (p *pod) beat(ctx context.Context, t *tenant) (*bucketconfig.Heartbeat, error) {
	client := redisclient.NewAdmin(redisclient.Options{Addrs: cluster.Addrs()})
	defer client.Close()
	beats, err := configstore.NewHeartbeats(client, instance, t.name).Read(ctx, []string{p.uid})
	if err != nil {
		return nil, err
	}
	beat := beats[p.uid]
	if beat.Heartbeat == nil && beat.Err == nil {
		return nil, fmt.Errorf("none of %s", p.uid)
	}
	return beat.Heartbeat, beat.Err
}
