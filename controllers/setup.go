// Package controllers wires the manager's controllers to each other, and to Redis.
//
// cmd/manager imports it. Each folder below is one concern; README.md draws how they hang together.
package controllers

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	portero "github.com/portero-dev/portero/api/v1alpha1"
	"github.com/portero-dev/portero/controllers/beats"
	"github.com/portero-dev/portero/controllers/credentials"
	"github.com/portero-dev/portero/controllers/fence"
	"github.com/portero-dev/portero/controllers/parallel"
	"github.com/portero-dev/portero/controllers/pods"
	"github.com/portero-dev/portero/controllers/policy"
	"github.com/portero-dev/portero/controllers/problem"
	"github.com/portero-dev/portero/controllers/publisher"
	"github.com/portero-dev/portero/controllers/redislink"
	"github.com/portero-dev/portero/controllers/sweep"
	"github.com/portero-dev/portero/controllers/trigger"
	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/keyspace"
)

// Options are what the controllers need to know.
type Options struct {
	Instance        keyspace.Instance
	SystemNamespace string
	// SidecarAddrs are the addresses of Redis for sidecars; empty means those that the manager uses.
	SidecarAddrs []string
	Fence        *fence.Fence
}

// wiring holds the parts while they are put together.
type wiring struct {
	options     Options
	records     translations
	client      client.Client
	policies    *trigger.Trigger
	namespaces  *trigger.Trigger
	link        *redislink.Link
	board       *beats.Board
	publisher   *publisher.Publisher
	credentials *credentials.Reconciler
	sweeper     *sweep.Sweeper
}

// Setup adds all controllers to the manager.
func Setup(mgr ctrl.Manager, options Options) error {
	w := &wiring{options: options, client: mgr.GetClient(), policies: &trigger.Trigger{}, namespaces: &trigger.Trigger{}}
	w.link = &redislink.Link{
		Client: w.client, SystemNamespace: options.SystemNamespace, Instance: options.Instance, Fence: options.Fence,
		Changed: w.redisChanged, Recovered: w.redisRecovered, Recorder: mgr.GetEventRecorder("portero-manager"),
	}
	w.board = &beats.Board{Source: w.readHeartbeats, Namespaces: w.polled, Changed: w.policiesChanged, Now: time.Now}
	w.publisher = &publisher.Publisher{Store: w.link, Policies: w.policiesIn, Kept: w.kept, Changed: w.wantedChanged}
	w.credentials = &credentials.Reconciler{
		Client: w.client, Users: users{w.link}, Content: w.content, Policies: w.publisher.Wanted, Confirm: w.confirm,
		Changed: w.policiesChanged, Now: time.Now,
	}
	w.sweeper = &sweep.Sweeper{
		Wanted: w.wanted, Records: w.sweepRecords, Users: w.sweepUsers, Heartbeats: w.sweepHeartbeats, Again: make(chan struct{}, 1),
	}
	reconciler := &policy.Reconciler{
		Client: w.client, Recorder: mgr.GetEventRecorder("portero-manager"), Publisher: w.publisher, Board: w.board,
		Redis: w.link.Problem, RedisWarning: w.link.Warning, Credentials: w.credentials.Problem,
		TrafficWrites: rate.NewLimiter(policy.TrafficWritesPerSecond, policy.TrafficWritesPerSecond), Now: time.Now,
	}
	for _, setup := range []func() error{
		func() error { return w.link.Setup(mgr) },
		func() error { return w.credentials.Setup(mgr, w.namespaces) },
		func() error { return reconciler.Setup(mgr, w.policies) },
		func() error { return mgr.Add(w.link) },
		func() error { return mgr.Add(w.board) },
		func() error { return mgr.Add(w.sweeper) },
	} {
		if err := setup(); err != nil {
			return fmt.Errorf("set up controllers: %w", err)
		}
	}
	return nil
}

// background is the context of calls that other parts make without one of their own; all of them read the cache.
func background() context.Context { return logf.IntoContext(context.Background(), logf.Log) }

// redisChanged makes every policy's status tell how Redis is, and every namespace's credentials follow new settings.
func (w *wiring) redisChanged() {
	w.board.Invalidate()
	w.policies.Enqueue(policy.Requests(background(), w.client, "")...)
	w.enqueueNamespaces()
}

// redisRecovered makes what a node may have lost come back.
func (w *wiring) redisRecovered() {
	w.board.Invalidate()
	w.enqueueNamespaces()
	w.sweeper.Ask()
}

func (w *wiring) enqueueNamespaces() {
	names, err := w.wanted(background())
	if err != nil {
		logf.Log.Error(err, "List namespaces")
		return
	}
	for name := range names {
		w.namespaces.Enqueue(credentials.Request(name))
	}
}

func (w *wiring) policiesChanged(namespace string) {
	w.policies.Enqueue(policy.Requests(background(), w.client, namespace)...)
}

// wantedChanged makes the namespace's Secret follow what its sidecars are to enforce.
func (w *wiring) wantedChanged(namespace string) {
	w.namespaces.Enqueue(credentials.Request(namespace))
}

func (w *wiring) kept(ctx context.Context, namespace string) ([]bucketconfig.Bundled, error) {
	return credentials.Kept(ctx, w.client, namespace)
}

func (w *wiring) confirm(ctx context.Context) error {
	_, err := w.options.Fence.Confirm(ctx)
	return err
}

func (w *wiring) wanted(ctx context.Context) (map[string]bool, error) {
	return credentials.Namespaces(ctx, w.client)
}

// content is what the namespaces' Secrets are made of now: all but the way to Redis, beside the error, while that is not configured.
func (w *wiring) content(ctx context.Context) (*credentials.Content, error) {
	settings, unconfigured := w.link.Settings(ctx)
	if unconfigured != nil && problem.Of(unconfigured, "").Reason != portero.ReasonRedisNotConfigured {
		return nil, unconfigured
	}
	master, err := credentials.ReadMaster(ctx, w.client, w.client, w.options.SystemNamespace)
	if err != nil {
		return nil, err
	}
	content := &credentials.Content{Instance: w.options.Instance, Master: master}
	if unconfigured != nil {
		return content, unconfigured
	}
	content.Addrs, content.CA = settings.Addrs, settings.CA
	content.Cert, content.Key = settings.SidecarCert, settings.SidecarKey
	if len(w.options.SidecarAddrs) > 0 {
		content.Addrs = w.options.SidecarAddrs
	}
	return content, nil
}

func (w *wiring) listPolicies(ctx context.Context, namespace string) ([]portero.RateLimitPolicy, error) {
	list := &portero.RateLimitPolicyList{}
	if err := w.client.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list policies: %w", err)
	}
	return list.Items, nil
}

func (w *wiring) policiesIn(ctx context.Context, namespace string) ([]publisher.Policy, error) {
	items, err := w.listPolicies(ctx, namespace)
	if err != nil {
		return nil, err
	}
	var out []publisher.Policy
	for i := range items {
		// One that waits for a foreign finalizer is deleted as far as its author is concerned.
		if items[i].DeletionTimestamp.IsZero() {
			out = append(out, publisher.Policy{
				Name: items[i].Name, UID: string(items[i].UID), Record: w.records.translate(&items[i]),
			})
		}
	}
	return out, nil
}

// polled lists the namespaces whose heartbeats somebody reads.
func (w *wiring) polled(ctx context.Context) ([]beats.Namespace, error) {
	items, err := w.listPolicies(ctx, "")
	if err != nil {
		return nil, err
	}
	byName := map[string]map[string]bool{}
	exists := map[types.NamespacedName]bool{}
	for i := range items {
		exists[client.ObjectKeyFromObject(&items[i])] = true
		if byName[items[i].Namespace] == nil {
			byName[items[i].Namespace] = map[string]bool{}
		}
		byName[items[i].Namespace][string(items[i].UID)] = true
	}
	w.records.keep(exists)
	out := make([]beats.Namespace, 0, len(byName))
	for name, uids := range byName {
		out = append(out, beats.Namespace{Name: name, PolicyUIDs: uids})
	}
	return out, nil
}

// sweepRecords repairs records, and has the policies of which some were missing say that they are there.
func (w *wiring) sweepRecords(ctx context.Context, wanted map[string]bool) (publisher.Swept, error) {
	swept, err := w.publisher.Sweep(ctx, wanted)
	for _, name := range swept.Repaired {
		w.policiesChanged(name)
	}
	return swept, err
}

// sweepUsers looks again at every namespace: those wanted may have lost their user on a node, the others have one too many.
func (w *wiring) sweepUsers(ctx context.Context, wanted map[string]bool) error {
	users, err := w.link.Users(ctx) // an error may come with the users of the nodes that answered
	for _, name := range users {
		w.namespaces.Enqueue(credentials.Request(name))
	}
	for name := range wanted {
		w.namespaces.Enqueue(credentials.Request(name))
	}
	return err
}

// readHeartbeats asks for the heartbeats of the pods that may have a sidecar; where there is none, it asks nobody.
func (w *wiring) readHeartbeats(ctx context.Context, namespace string) (map[string]beats.Beat, error) {
	uids, err := w.podUIDs(ctx, namespace, pods.Injected)
	if err != nil || len(uids) == 0 {
		return nil, err
	}
	return w.link.ReadHeartbeats(ctx, namespace, uids)
}

func (w *wiring) podUIDs(ctx context.Context, namespace string, fits func(*corev1.Pod) bool) ([]string, error) {
	list := &corev1.PodList{}
	if err := w.client.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	var uids []string
	for i := range list.Items {
		if fits(&list.Items[i]) {
			uids = append(uids, string(list.Items[i].UID))
		}
	}
	return uids, nil
}

// pruners bounds the namespaces whose heartbeats are pruned at once, pruneTimeout the time for each.
const (
	pruners      = 8
	pruneTimeout = time.Second
)

// sweepHeartbeats forgets what pods that are gone reported.
func (w *wiring) sweepHeartbeats(ctx context.Context, wanted map[string]bool) error {
	return parallel.Each(pruners, slices.Collect(maps.Keys(wanted)), func(name string) error {
		uids, err := w.podUIDs(ctx, name, pods.Injected)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, pruneTimeout)
		defer cancel()
		return w.link.PruneHeartbeats(ctx, name, uids)
	})
}

var _ reconcile.Reconciler = (*redislink.Link)(nil)

// users shows the link as what the credentials controller needs of it: Store and Users both have a Remove.
type users struct{ link *redislink.Link }

func (u users) Ensure(ctx context.Context, namespace string, passwords ...string) error {
	return u.link.EnsureUser(ctx, namespace, passwords...)
}

func (u users) Remove(ctx context.Context, namespace string) error {
	return u.link.RemoveUser(ctx, namespace)
}
