// Package snapshot holds the policies in force for this pod, compiled, behind an atomic pointer, and keeps them current:
// by what Redis pushes, by a poll as the safety net, and by the pod's labels.
//
// The sidecar's wiring imports it. What it can't read, decode or compile leaves the last good state in force; only a
// config that names the policies and lacks one removes it.
package snapshot

import (
	"bytes"
	"cmp"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/configstore"
	"github.com/portero-dev/portero/internal/ratelimit"
)

// Snapshot is what is in force. It is immutable.
type Snapshot struct {
	// Set is the policies that select this pod.
	Set *ratelimit.Set
	// Source is where the policies are from.
	Source Source
	// Revision is of the config in Redis that was applied last; empty before the first.
	Revision string
	// Refused are the records that this sidecar can't use; an older good version may be in force.
	Refused []bucketconfig.RefusedPolicy

	shares map[string]int
}

// Source is where policies are from.
type Source string

const (
	// None is before the first.
	None Source = "none"
	// FromSecret are those that the manager last wrote to the namespace's Secret. They stand in while Redis was never reached.
	FromSecret Source = "secret"
	// FromRedis are those that Redis holds, or held when it was last reached.
	FromRedis Source = "redis"
)

// Sidecars is what a policy's fallback is divided by; 1 where nobody counted.
func (s *Snapshot) Sidecars(policy string) int { return max(1, s.shares[policy]) }

// Generations are the policies in force.
func (s *Snapshot) Generations() map[string]int64 {
	generations := make(map[string]int64)
	for _, policy := range s.Set.Policies() {
		generations[policy.Record.Name] = policy.Record.Generation
	}
	return generations
}

// RefusedNames are the policies whose records this sidecar can't use.
func (s *Snapshot) RefusedNames() []string {
	names := make([]string, 0, len(s.Refused))
	for i := range s.Refused {
		names = append(names, s.Refused[i].Name)
	}
	return names
}

// Options are what a Keeper works with. All are required.
type Options struct {
	Log *slog.Logger
	// Changed is called after each change of what is in force, or of its revision. It must not block.
	Changed func()
	// Unheard is how long Redis must have been silent before the Secret, which lags behind it, has a say about shares; 0 means DefaultUnheard.
	Unheard time.Duration
}

// DefaultUnheard is the default of Options.Unheard.
const DefaultUnheard = 30 * time.Second

// Keeper keeps the snapshot. It is safe for concurrent use.
type Keeper struct {
	options Options
	current atomic.Pointer[Snapshot]
	// confirmed is when Redis last told that the snapshot is current, in unix nanoseconds; 0 before the first time.
	confirmed atomic.Int64
	refresh   chan struct{}
	tried     chan struct{} // closed when it is known which policies there are, or that there are none yet
	triedOnce sync.Once

	mu        sync.Mutex // guards the rest, and changes of current
	keySecret []byte
	labels    map[string]string
	kept      map[string]*kept
	offered   offer
}

// kept is one policy of the namespace.
type kept struct {
	record *bucketconfig.Record // looked at last
	policy *ratelimit.Policy    // the last good one; nil before the first
	fault  error                // why record can't be compiled; nil when it can
	reason string               // why what is stored can't be used; empty when it can
}

// New makes a Keeper with nothing in force.
func New(options Options) *Keeper {
	options.Unheard = cmp.Or(options.Unheard, DefaultUnheard)
	k := &Keeper{options: options, refresh: make(chan struct{}, 1), tried: make(chan struct{}), kept: make(map[string]*kept)}
	k.current.Store(&Snapshot{Set: ratelimit.NewSet(), Source: None})
	return k
}

// Current is what is in force; never nil.
func (k *Keeper) Current() *Snapshot { return k.current.Load() }

// Tried is closed when Redis answered for the first time, be it that the namespace has no config yet.
func (k *Keeper) Tried() <-chan struct{} { return k.tried }

// Confirmed is when Redis last told that the snapshot is current; zero before the first time.
func (k *Keeper) Confirmed() time.Time {
	if ns := k.confirmed.Load(); ns != 0 {
		return time.Unix(0, ns)
	}
	return time.Time{}
}

// SetLabels tells the pod's labels.
func (k *Keeper) SetLabels(labels map[string]string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.labels != nil && maps.Equal(k.labels, labels) {
		return
	}
	k.labels = maps.Clone(labels)
	k.publish(k.Current().Source, k.Current().Revision, k.Current().shares)
}

// SetKeySecret tells the secret that keys the tags of buckets. Another one means other buckets.
func (k *Keeper) SetKeySecret(secret []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if bytes.Equal(k.keySecret, secret) {
		return
	}
	k.keySecret = bytes.Clone(secret)
	for name, one := range k.kept {
		if one.policy == nil {
			continue
		}
		policy, err := ratelimit.Compile(one.policy.Record, k.keySecret)
		if err != nil { // it compiled before; the secret has no part in that
			k.options.Log.Error("policy can't be compiled with another key secret", "policy", name, "error", err)
			continue
		}
		one.policy = policy
	}
	k.publish(k.Current().Source, k.Current().Revision, k.Current().shares)
}

// Apply brings into force what is stored. A policy that is not stored is gone; a record that can't be used leaves the last
// good one of its policy.
func (k *Keeper) Apply(stored *configstore.Snapshot) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for name := range k.kept {
		if _, stays := stored.Policies[name]; !stays {
			delete(k.kept, name)
		}
	}
	shares := make(map[string]int, len(stored.Policies))
	for name, policy := range stored.Policies {
		k.keep(name, policy)
		shares[name] = policy.Share.Sidecars
	}
	k.publish(FromRedis, stored.Revision, shares)
}

// offer is what the Secret last said of shares, and when.
type offer struct {
	shares map[string]int
	at     time.Time
}

// Offer tells what the namespace's Secret holds. It is in force until Redis has answered with a config. After that only its shares count,
// once Redis could not be asked for a while, and only where they are smaller parts: a sidecar that is cut off as well keeps its own.
func (k *Keeper) Offer(policies []bucketconfig.Bundled) {
	k.mu.Lock()
	defer k.mu.Unlock()
	shares := make(map[string]int, len(policies))
	for _, policy := range policies {
		shares[policy.Name] = policy.Share.Sidecars
	}
	if k.Current().Source == FromRedis {
		k.offered = offer{shares, time.Now()}
		k.narrow()
		return
	}
	for name := range k.kept {
		if _, stays := shares[name]; !stays {
			delete(k.kept, name)
		}
	}
	for _, policy := range policies {
		k.keep(policy.Name, configstore.StoredPolicy{Record: policy.Record, Err: policy.Err})
	}
	k.publish(FromSecret, "", shares)
}

// unanswered is called when Redis could not be asked.
func (k *Keeper) unanswered() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.narrow()
}

// narrow makes the parts of policies in force smaller where, by what the Secret said since Redis fell silent, more sidecars share them. The
// caller holds mu.
func (k *Keeper) narrow() {
	confirmed := k.Confirmed()
	if time.Since(confirmed) < k.options.Unheard || k.offered.at.Before(confirmed) {
		return
	}
	now := k.Current()
	narrowed := maps.Clone(now.shares)
	for name, sidecars := range k.offered.shares {
		if _, known := narrowed[name]; known {
			narrowed[name] = max(narrowed[name], sidecars)
		}
	}
	if !maps.Equal(narrowed, now.shares) {
		k.publish(FromRedis, now.Revision, narrowed)
	}
}

func (k *Keeper) keep(name string, stored configstore.StoredPolicy) {
	one := k.kept[name]
	if one == nil {
		one = new(kept)
		k.kept[name] = one
	}
	if record := stored.Record; record != nil && record != one.record {
		one.record = record
		var policy *ratelimit.Policy
		if policy, one.fault = ratelimit.Compile(record, k.keySecret); one.fault == nil {
			one.policy = policy
		}
	}
	reason := ""
	if err := cmp.Or(stored.Err, one.fault); err != nil {
		reason = err.Error()
	}
	if reason != "" && reason != one.reason {
		k.options.Log.Error("record can't be used, the last good one stays", "policy", name, "error", reason)
	}
	one.reason = reason
}

// publish makes a snapshot of what is kept.
func (k *Keeper) publish(source Source, revision string, shares map[string]int) {
	next := &Snapshot{Source: source, Revision: revision, shares: shares}
	var selecting []*ratelimit.Policy
	for _, name := range slices.Sorted(maps.Keys(k.kept)) {
		one := k.kept[name]
		if one.policy != nil && one.policy.SelectsPod(k.labels) {
			selecting = append(selecting, one.policy)
		}
		if one.reason != "" {
			next.Refused = append(next.Refused, bucketconfig.RefusedPolicy{Name: name, Reason: truncated(one.reason)})
		}
	}
	next.Set = ratelimit.NewSet(selecting...)
	k.current.Store(next)
	k.options.Log.Info("policies in force", "source", source, "revision", revision, "policies", next.Generations(), "refused", len(next.Refused))
	k.options.Changed()
}

func truncated(reason string) string {
	const longest = bucketconfig.MaxReason
	if len(reason) <= longest {
		return reason
	}
	return string(bytes.ToValidUTF8([]byte(reason[:longest]), nil))
}
