package sidecar

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/ratelimit"
	"github.com/portero-dev/portero/sidecar/internal/admin"
	"github.com/portero-dev/portero/sidecar/internal/credentials"
	"github.com/portero-dev/portero/sidecar/internal/failover"
	"github.com/portero-dev/portero/sidecar/internal/metrics"
	"github.com/portero-dev/portero/sidecar/internal/podlabels"
	"github.com/portero-dev/portero/sidecar/internal/proxy"
	"github.com/portero-dev/portero/sidecar/internal/snapshot"
	"github.com/portero-dev/portero/sidecar/internal/tally"
)

// firstPolicies is how long the start waits for the first policies. The app's containers start after the sidecar, so
// this is the most that an unreachable Redis adds to a pod's start.
const firstPolicies = 2 * time.Second

// newerPolicies is how long it waits for those in Redis when the Secret has some: these may be a minute old.
const newerPolicies = 250 * time.Millisecond

// plane is the data plane of one pod.
type plane struct {
	config  Config
	state   *admin.State
	tally   *tally.Tally
	keeper  *snapshot.Keeper
	limiter *failover.Limiter
	proxy   *proxy.Proxy
	metrics *metrics.Metrics
	links   *links
	// settled is closed when it is known that there are no usable credentials to wait for.
	settled chan struct{}
	// offered is closed when policies were read from the Secret.
	offered     chan struct{}
	offeredOnce sync.Once
}

func newPlane(config Config) *plane {
	p := &plane{config: config, state: new(admin.State), tally: new(tally.Tally), settled: make(chan struct{}), offered: make(chan struct{})}
	p.links = newLinks(p)
	p.keeper = snapshot.New(snapshot.Options{Log: config.Log, Changed: p.policiesChanged})
	p.metrics = metrics.New(metrics.Sources{
		Namespace:   config.Namespace,
		Version:     config.Version,
		Tally:       p.tally,
		Generations: func() map[string]int64 { return p.keeper.Current().Generations() },
		Confirmed:   p.keeper.Confirmed,
		Source:      func() string { return string(p.keeper.Current().Source) },
		OpenMasters: func() []string { return p.limiter.OpenMasters() },
		Fallback:    func() bool { active, _ := p.limiter.Fallback(); return active },
		Refused:     func() []string { return p.keeper.Current().RefusedNames() },
		Overflowed:  func() uint64 { return p.limiter.Overflowed() },
		Credentials: p.links.any,
	})
	p.limiter = failover.New(failover.Options{
		Observer:        p.metrics,
		Log:             config.Log,
		Sidecars:        func(policy string) int { return p.keeper.Current().Sidecars(policy) },
		Stale:           p.keeper.Refresh,
		FallbackChanged: p.links.kick,
		MaxKeys:         failover.DefaultMaxKeys,
	})
	p.proxy = proxy.New(p.limiter, func() *ratelimit.Set { return p.keeper.Current().Set }, p.tally, config.Workload, config.Log)
	return p
}

// policiesChanged forgets the counters of policies that are gone, and tells the manager.
func (p *plane) policiesChanged() {
	generations := p.keeper.Current().Generations()
	p.tally.Keep(func(name tally.Name) bool {
		_, inForce := generations[name.Policy]
		return inForce
	})
	p.links.kick()
}

// Run serves until ctx is done, then drains and returns. It needs neither Redis nor the app to start. It returns an error
// when a listener fails, or when requests had to be cut off at the end of the drain timeout.
func Run(ctx context.Context, config Config) error {
	p := newPlane(config)
	// Verdicts stay shared while requests drain, so the parts behind them outlive ctx.
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	running.Go(func() { p.limiter.Run(background) })
	p.readLabels()
	running.Go(func() { p.watchLabels(background) })
	running.Go(func() { p.watchCredentials(background, &running) })
	running.Go(func() { p.announceStart(background) })

	failed := make(chan error, len(config.Proxies)+2)
	for _, one := range config.Proxies {
		port := proxy.Port{Number: one.Port, Name: one.PortName, Upstream: one.Upstream}
		running.Go(func() { failed <- p.proxy.Serve(one.Listener, port) })
	}
	own := []*http.Server{
		serve(&running, config.Admin, admin.Handler(p.state, p.metrics.Handler()), failed),
		serve(&running, config.Control, admin.ControlHandler(p.state, p.drain), failed),
	}
	config.Log.Info("sidecar started", "version", config.Version, "ports", len(config.Proxies))

	var err error
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	err = errors.Join(err, p.shutdown())
	for _, server := range own {
		_ = server.Close()
	}
	return err
}

func serve(running *sync.WaitGroup, listener net.Listener, handler http.Handler, failed chan<- error) *http.Server {
	server := admin.NewServer(handler)
	running.Go(func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			failed <- fmt.Errorf("serve %s: %w", listener.Addr(), err)
		}
	})
	return server
}

// drain is told before the end: new requests are still served, and connections go elsewhere.
func (p *plane) drain() {
	p.config.Log.Info("draining")
	p.proxy.Drain()
}

func (p *plane) shutdown() error {
	p.state.Drain()
	p.config.Log.Info("shutting down", "drainTimeout", p.config.DrainTimeout)
	draining, cancel := context.WithTimeout(context.Background(), p.config.DrainTimeout)
	defer cancel()
	if err := p.proxy.Shutdown(draining); err != nil {
		return fmt.Errorf("requests were cut off after the drain timeout of %s: %w", p.config.DrainTimeout, err)
	}
	return nil
}

// announceStart lets the pod go on once Redis told the first policies; with those of the Secret, or without any, when that takes too long.
func (p *plane) announceStart(ctx context.Context) {
	timer := time.NewTimer(firstPolicies)
	defer timer.Stop()
	offered := p.offered
	for waiting := true; waiting; {
		select {
		case <-ctx.Done():
			return
		case <-p.keeper.Tried():
			waiting = false
		case <-p.settled:
			waiting = false
		case <-offered:
			offered = nil
			timer.Reset(newerPolicies)
		case <-timer.C:
			p.config.Log.Warn("starting while Redis has not answered yet", "policies", p.keeper.Current().Generations(),
				"source", p.keeper.Current().Source)
			waiting = false
		}
	}
	p.state.Started()
}

func (p *plane) watchCredentials(ctx context.Context, running *sync.WaitGroup) {
	first := true
	settle := func() {
		if first {
			first = false
			close(p.settled)
		}
	}
	credentials.Watch(ctx, p.config.CredentialsDir, p.config.PollInterval, credentials.Watcher{
		Changed: func(read *credentials.Credentials) {
			if err := p.links.open(ctx, running, read); err != nil {
				p.config.Log.Error("credentials can't be used, those before stay in use", "error", err)
				settle()
				return
			}
			first = false
		},
		Policies: p.offer,
		Failed: func(err error) {
			p.config.Log.Warn("credentials can't be used; without any, nothing is shared, and policies are those of the Secret", "error", err)
			settle()
		},
	})
}

// offer brings into force what the Secret holds, as long as nothing newer is known from Redis.
func (p *plane) offer(bundle []byte) {
	policies, err := bucketconfig.DecodeBundle(bundle)
	if err != nil {
		p.config.Log.Error("the policies in the Secret can't be read, those known stay in force", "error", err)
		return
	}
	p.keeper.Offer(policies)
	p.offeredOnce.Do(func() { close(p.offered) })
}

// readLabels keeps the labels known before where the file can't be read.
func (p *plane) readLabels() {
	labels, err := podlabels.Read(p.config.LabelsFile)
	if err != nil {
		p.config.Log.Error("labels can't be read, those known stay in use", "error", err)
		return
	}
	p.keeper.SetLabels(labels)
}

func (p *plane) watchLabels(ctx context.Context) {
	ticker := time.NewTicker(p.config.PollInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			p.readLabels()
		}
	}
}
