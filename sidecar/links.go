package sidecar

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/portero-dev/portero/internal/configstore"
	"github.com/portero-dev/portero/internal/redisclient"
	"github.com/portero-dev/portero/sidecar/internal/credentials"
	"github.com/portero-dev/portero/sidecar/internal/flusher"
	"github.com/portero-dev/portero/sidecar/internal/heartbeat"
)

// handover is how long a replaced link still serves the verdicts that were asked of it.
const handover = time.Second

// links are the ways to Redis: the one in use, and the one that is to replace it once it works.
type links struct {
	plane   *plane
	startID string
	beater  atomic.Pointer[heartbeat.Beater]

	mu      sync.Mutex
	current *link
	pending *link
}

// link is one way to Redis, by one set of credentials.
type link struct {
	credentials *credentials.Credentials
	verdicts    *redis.ClusterClient
	records     *redis.ClusterClient
	flusher     *flusher.Flusher
	// close ends the flusher, retire what reads policies and sends heartbeats.
	close, retire context.CancelFunc
	retiring      context.Context
	parts         sync.WaitGroup
}

func newLinks(p *plane) *links { return &links{plane: p, startID: heartbeat.NewStartID()} }

// any tells whether there ever were usable credentials.
func (l *links) any() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.current != nil
}

// kick asks for a heartbeat soon, if there is somebody to send it to.
func (l *links) kick() {
	if beater := l.beater.Load(); beater != nil {
		beater.Kick()
	}
}

// open makes a link by the credentials. The first one is in use at once; a later one takes over when it has reached Redis,
// so that a wrong change harms nobody, and a right one costs no verdict.
func (l *links) open(ctx context.Context, running *sync.WaitGroup, by *credentials.Credentials) error {
	options := redisclient.Options{Addrs: by.Addrs, Credentials: redisclient.Static(by.Username, by.Password)}
	if len(by.CA) > 0 {
		var err error
		if options.TLS, err = (redisclient.TLS{CA: by.CA, Certificate: by.Cert, Key: by.Key}).Config(); err != nil {
			return fmt.Errorf("open a way to Redis: %w", err)
		}
	}
	next := &link{credentials: by, verdicts: redisclient.NewVerdict(options), records: redisclient.NewConfig(options)}
	var flushing context.Context
	flushing, next.close = context.WithCancel(ctx)
	next.retiring, next.retire = context.WithCancel(flushing)
	next.flusher = flusher.New(flusher.Options{
		Client:    next.verdicts,
		Instance:  by.Instance,
		Namespace: l.plane.config.Namespace,
		Log:       l.plane.config.Log,
		Ready:     func() { l.reached(next) },
	})

	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pending != nil {
		l.pending.close()
	}
	l.pending = next
	if l.current == nil {
		l.use(next)
	}
	next.parts.Go(func() { next.flusher.Run(flushing) })
	running.Go(next.end)
	return nil
}

// reached is called when a link's flusher has read the topology.
func (l *links) reached(next *link) {
	l.mu.Lock()
	if l.pending == next {
		l.use(next)
	}
	l.mu.Unlock()
	l.kick()
}

// use makes a link the one in use; the caller holds mu.
func (l *links) use(next *link) {
	p, last := l.plane, l.current
	l.pending, l.current = nil, next
	if last != nil {
		last.retire()
		time.AfterFunc(handover, last.close)
		p.config.Log.Info("credentials changed, a new way to Redis is in use", "addrs", next.credentials.Addrs)
	}
	p.keeper.SetKeySecret(next.credentials.KeySecret)
	p.limiter.SetStore(next.flusher)
	reader := configstore.NewReader(next.records, next.credentials.Instance, p.config.Namespace)
	next.parts.Go(func() { p.keeper.Follow(next.retiring, reader) })
	beats := configstore.NewHeartbeats(next.records, next.credentials.Instance, p.config.Namespace)
	beater := heartbeat.New(heartbeat.Options{
		Interval: heartbeat.DefaultInterval,
		Pause:    heartbeat.DefaultPause,
		Compose:  l.compose,
		Send:     l.sender(beats),
		Log:      p.config.Log,
	})
	l.beater.Store(beater)
	next.parts.Go(func() { beater.Run(next.retiring) })
}

// end waits for the link's parts and closes its clients.
func (k *link) end() {
	<-k.retiring.Done()
	k.parts.Wait()
	k.retire()
	k.close()
	_ = errors.Join(k.verdicts.Close(), k.records.Close()) // what they would tell is that connections were closed
}
