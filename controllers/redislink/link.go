// Package redislink is the manager's one connection to Redis: it follows the admin Secret, watches every node, keeps the
// Function library loaded, and tells the other controllers when Redis comes and goes.
//
// controllers.Setup makes it; the other controllers see it through the interfaces that they declare.
package redislink

import (
	"cmp"
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	portero "github.com/portero-dev/portero/api/v1alpha1"
	"github.com/portero-dev/portero/controllers/fence"
	"github.com/portero-dev/portero/controllers/problem"
	"github.com/portero-dev/portero/internal/keyspace"
	"github.com/portero-dev/portero/internal/redisadmin"
)

const (
	// checkEvery is the time between two looks at every node. It bounds how long a restarted node lacks its users and a
	// flushed node its library: design asks for 2 s and 10 s.
	checkEvery = time.Second
	// checkTimeout bounds one look.
	checkTimeout = 2 * time.Second
	// firstLook bounds how long others wait, at the start, for the first look to tell how Redis is.
	firstLook = 5 * time.Second
	// defaultSettingsEvery is the time between two looks at the servers' settings.
	defaultSettingsEvery = 5 * time.Minute
)

// Link is the connection. The exported fields are required and set before the start; all methods are safe for concurrent
// use.
type Link struct {
	Client          client.Reader
	SystemNamespace string
	Instance        keyspace.Instance
	Fence           *fence.Fence
	// Recorder tells Events of the servers' settings.
	Recorder events.EventRecorder
	// Changed is called, from the watching goroutine, when Problem changed.
	Changed func()
	// Recovered is called, from the watching goroutine, when a node may have lost what it held: users, library, records.
	Recovered func()

	// SettingsEvery is the time between two looks at the servers' settings while nothing happens; 5 minutes when 0.
	SettingsEvery time.Duration

	once  sync.Once
	again chan struct{} // makes the watcher look at once
	look  chan struct{} // closed after the first look

	mu      sync.Mutex
	session *session
	problem *problem.Problem
	looked  bool
	// warnings are what the last look at the servers' settings found.
	warnings []redisadmin.Warning
}

func (l *Link) init() {
	l.once.Do(func() {
		l.again = make(chan struct{}, 1)
		l.look = make(chan struct{})
	})
}

// Problem is what is wrong with Redis, nil when all masters answer and hold the library.
func (l *Link) Problem() *problem.Problem {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.problem
}

// Settings are the current settings, or the Problem why there are none.
func (l *Link) Settings(ctx context.Context) (*Settings, error) {
	s, err := l.use(ctx)
	if err != nil {
		return nil, err
	}
	return s.settings, nil
}

// use is the current session, also where some of Redis is away. It waits for the first look, so that a manager that has
// just started does not report a Redis that it has not tried yet.
func (l *Link) use(ctx context.Context) (*session, error) {
	l.init()
	wait, cancel := context.WithTimeout(ctx, firstLook)
	defer cancel()
	select {
	case <-l.look:
	case <-wait.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.session != nil:
		return l.session, nil
	case l.problem != nil:
		return nil, l.problem
	default:
		return nil, problem.New(portero.ReasonRedisNotConfigured, "the Secret %s/%s was not read yet", l.SystemNamespace, AdminSecret)
	}
}

// Reconcile follows the admin Secret.
func (l *Link) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	l.init()
	settings, err := l.read(ctx)
	if p := problem.Of(err, ""); p != nil && p.Reason == "" {
		return ctrl.Result{}, err
	}
	l.mu.Lock()
	unchanged := err == nil && l.session != nil && l.session.settings.equal(settings)
	l.mu.Unlock()
	if unchanged {
		return ctrl.Result{}, nil
	}
	var next *session
	if err == nil {
		next, err = connect(settings, l.Instance)
	}
	l.mu.Lock()
	old := l.session
	l.session = next
	l.mu.Unlock()
	old.close()
	if err != nil {
		l.setProblem(ctx, problem.Of(err, portero.ReasonRedisNotConfigured))
	}
	l.kick()
	return ctrl.Result{}, nil
}

func (l *Link) read(ctx context.Context) (*Settings, error) {
	secret := &corev1.Secret{}
	err := l.Client.Get(ctx, client.ObjectKey{Namespace: l.SystemNamespace, Name: AdminSecret}, secret)
	if apierrors.IsNotFound(err) {
		return nil, problem.New(portero.ReasonRedisNotConfigured,
			"the Secret %s/%s, which tells where Redis is, does not exist; create it with the keys %s, %s and %s",
			l.SystemNamespace, AdminSecret, AddrsKey, UsernameKey, PasswordKey)
	}
	if err != nil {
		return nil, err
	}
	return ParseSettings(secret)
}

func (l *Link) kick() {
	select {
	case l.again <- struct{}{}:
	default:
	}
}

// NeedLeaderElection makes only the leader write to Redis.
func (l *Link) NeedLeaderElection() bool { return true }

// Start looks at every node each second until ctx ends.
func (l *Link) Start(ctx context.Context) error {
	l.init()
	ctx = logf.IntoContext(ctx, logf.Log.WithName("redis"))
	ticker := time.NewTicker(checkEvery)
	defer ticker.Stop()
	w := &watcher{link: l}
	for {
		w.lookOnce(ctx)
		select {
		case <-ctx.Done():
			l.mu.Lock()
			defer l.mu.Unlock()
			l.session.close()
			return nil
		case <-ticker.C:
		case <-l.again:
		}
	}
}

// setProblem stores what is wrong, and tells when that is news.
func (l *Link) setProblem(ctx context.Context, p *problem.Problem) {
	l.mu.Lock()
	before := l.problem
	l.problem = p
	if !l.looked {
		l.looked = true
		close(l.look)
	}
	l.mu.Unlock()
	up.WithLabelValues().Set(boolToFloat(p == nil))
	if (before == nil) == (p == nil) && (p == nil || before.Message == p.Message) {
		return
	}
	if p != nil {
		logf.FromContext(ctx).Error(p, "Redis can't be used as it should", "reason", p.Reason)
	} else {
		logf.FromContext(ctx).Info("Redis can be used")
	}
	l.Changed()
}

// watcher is the state of the watching goroutine.
type watcher struct {
	link   *Link
	seen   *session
	starts map[string]string // node → run id
	slow   int               // looks in a row that only lacked answers in time
	warned time.Time
}

// patience is how many looks in a row have to lack answers until that is a problem. Telling costs a write to every policy,
// and one look can be slow for many reasons.
const patience = 2

// believes reports whether what a look found is to be told. All but slowness is, and so is whatever the first look finds.
func (w *watcher) believes(s *session, h *health) bool {
	if !h.slow {
		w.slow = 0
		return true
	}
	w.slow++
	return w.slow >= patience || w.seen != s
}

func (w *watcher) lookOnce(ctx context.Context) {
	l := w.link
	l.mu.Lock()
	s := l.session
	l.mu.Unlock()
	if s == nil {
		w.seen, w.starts = nil, nil
		return
	}
	look, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	health := s.check(look)
	if ctx.Err() != nil {
		return
	}
	lost := w.seen != s || health.loaded || !containsAll(w.starts, health.starts)
	believed := w.believes(s, &health)
	w.seen, w.starts = s, health.starts
	l.mu.Lock()
	current := l.session == s
	l.mu.Unlock()
	if !current {
		return // the settings changed meanwhile
	}
	if believed {
		l.setProblem(ctx, health.problem)
	}
	if lost && len(health.starts) > 0 {
		l.Recovered()
	}
	every := cmp.Or(l.SettingsEvery, defaultSettingsEvery)
	if believed && health.problem == nil && (lost || time.Since(w.warned) > every) {
		w.warned = time.Now()
		l.lookAtSettings(ctx, s)
	}
}

// containsAll reports whether every node of now was there before, and was not restarted since.
func containsAll(before, now map[string]string) bool {
	for node, run := range now {
		if before[node] != run {
			return false
		}
	}
	return true
}
