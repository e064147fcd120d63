// Package publisher keeps what each namespace's records in Redis should be, and makes Redis so.
//
// The policy controller tells it of policies one by one; the sweep has it compare whole namespaces. A publication is
// always the wanted state of a whole namespace, so publishing and repairing are one and the same. The package must stay
// free of go-redis: it declares the Store that it writes to.
package publisher

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/portero-dev/portero/controllers/parallel"
	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/configstore"
)

// Store is what holds the records. Its errors are Problems where Redis' state is the cause.
type Store interface {
	// Publish makes Redis hold exactly the policies for the namespace; it writes nothing when nothing differs.
	Publish(ctx context.Context, namespace string, policies []configstore.Policy) (configstore.Published, error)
	// Load reads what is stored for a namespace; nil when nothing is.
	Load(ctx context.Context, namespace string) (*configstore.Snapshot, error)
	// Namespaces lists all namespaces of which anything is stored.
	Namespaces(ctx context.Context) ([]string, error)
	// Remove removes all that is stored of a namespace.
	Remove(ctx context.Context, namespace string) error
}

// Policy is a policy that exists.
type Policy struct {
	Name, UID string
	// Record is what the spec translates to, nil when it can't be translated.
	Record *bucketconfig.Record
}

// Update is news of one policy.
type Update struct {
	Policy
	// Sidecars is by how many a limit is divided while Redis is away; 0 when that is not known.
	Sidecars int
	// Hold keeps Sidecars from becoming smaller: a sidecar that is cut off would keep its old, larger part.
	Hold bool
}

// Publisher is safe for concurrent use; calls for one namespace run one after the other.
type Publisher struct {
	Store Store
	// Policies lists the policies of a namespace that exist, from a cache that is at least as new as any Update.
	Policies func(ctx context.Context, namespace string) ([]Policy, error)

	mu         sync.Mutex
	namespaces map[string]*namespace
}

type namespace struct {
	mu sync.Mutex
	// loaded is true once what an earlier leader stored was read: shares that must not shrink, and last good records.
	loaded  bool
	entries map[string]*entry
}

// entry is what Redis should hold of one policy.
type entry struct {
	uid string
	// record is the last version that could be translated, nil when there is none.
	record *bucketconfig.Record
	// unread is true while what is stored can't be read, as after a downgrade of the manager: it is left until there is a
	// record to replace it.
	unread bool
	share  bucketconfig.Share
	// stored is true when Redis was last seen to hold it, err why the last try failed for this policy alone.
	stored bool
	err    error
}

// Publish makes Redis hold the policy, or its last good version. It asks Redis only when that is not known to be there.
func (p *Publisher) Publish(ctx context.Context, namespace string, update Update) error {
	ns, unlock := p.lock(namespace)
	defer unlock()
	if err := p.load(ctx, namespace, ns); err != nil {
		return err
	}
	if e := ns.apply(update); e.stored {
		return e.err
	}
	if _, err := p.publish(ctx, namespace, ns); err != nil {
		return err
	}
	if e := ns.entries[update.Name]; e != nil {
		return e.err
	}
	return nil // deleted meanwhile
}

// Withdraw makes Redis no longer hold a policy that is gone.
func (p *Publisher) Withdraw(ctx context.Context, namespace, policy string) error {
	ns, unlock := p.lock(namespace)
	defer unlock()
	if err := p.load(ctx, namespace, ns); err != nil {
		return err
	}
	if ns.entries[policy] == nil {
		return nil
	}
	_, err := p.publish(ctx, namespace, ns)
	return err
}

// Repair compares what Redis holds of a namespace with what it should, corrects it, and reports whether it had to.
func (p *Publisher) Repair(ctx context.Context, namespace string) (repaired bool, err error) {
	ns, unlock := p.lock(namespace)
	defer unlock()
	if err := p.load(ctx, namespace, ns); err != nil {
		return false, err
	}
	return p.publish(ctx, namespace, ns)
}

// Remove removes all that Redis holds of a namespace in which no policy exists. It does nothing where one does.
func (p *Publisher) Remove(ctx context.Context, namespace string) (removed bool, err error) {
	ns, unlock := p.lock(namespace)
	defer unlock()
	policies, err := p.Policies(ctx, namespace)
	if err != nil || len(policies) > 0 {
		return false, err
	}
	clear(ns.entries)
	return true, p.Store.Remove(ctx, namespace)
}

// Swept names the namespaces in which a sweep changed anything.
type Swept struct {
	Removed, Repaired []string
}

const (
	// sweepers bounds the namespaces that are swept at once, sweepTimeout the time for each: those of a master that hangs
	// must not hold up all others.
	sweepers     = 8
	sweepTimeout = time.Second
)

// Sweep makes Redis hold the namespaces that are wanted, and no other, as they should be. One namespace's error does not
// keep the others from being repaired, nor does one of the list of those that are stored.
func (p *Publisher) Sweep(ctx context.Context, wanted map[string]bool) (Swept, error) {
	stored, err := p.Store.Namespaces(ctx)
	names := slices.Collect(maps.Keys(wanted))
	for _, name := range stored {
		if !wanted[name] {
			names = append(names, name)
		}
	}
	var mu sync.Mutex
	var swept Swept
	errs := parallel.Each(sweepers, names, func(name string) error {
		ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
		defer cancel()
		act, done := p.Remove, &swept.Removed
		if wanted[name] {
			act, done = p.Repair, &swept.Repaired
		}
		changed, err := act(ctx, name)
		if changed && err == nil {
			mu.Lock()
			defer mu.Unlock()
			*done = append(*done, name)
		}
		return err
	})
	slices.Sort(swept.Removed)
	slices.Sort(swept.Repaired)
	return swept, errors.Join(err, errs)
}

func (p *Publisher) lock(name string) (ns *namespace, unlock func()) {
	p.mu.Lock()
	if p.namespaces == nil {
		p.namespaces = map[string]*namespace{}
	}
	ns = p.namespaces[name]
	if ns == nil {
		ns = &namespace{entries: map[string]*entry{}}
		p.namespaces[name] = ns
	}
	p.mu.Unlock()
	ns.mu.Lock()
	return ns, ns.mu.Unlock
}

// load takes over, once, what an earlier leader stored.
func (p *Publisher) load(ctx context.Context, name string, ns *namespace) error {
	if ns.loaded {
		return nil
	}
	stored, err := p.Store.Load(ctx, name)
	if err != nil {
		return fmt.Errorf("read what is stored: %w", err)
	}
	ns.loaded = true
	if stored == nil {
		return nil
	}
	for policy, s := range stored.Policies {
		e := &entry{share: s.Share, unread: s.Record == nil}
		if s.Record != nil {
			e.uid, e.record = s.Record.UID, s.Record
		}
		ns.entries[policy] = e
	}
	return nil
}

// apply takes news over and gives the policy's entry.
func (ns *namespace) apply(update Update) *entry {
	e := ns.take(update.Policy)
	sidecars := update.Sidecars
	if update.Hold || sidecars == 0 {
		sidecars = max(sidecars, e.share.Sidecars)
	}
	if e.share.Sidecars != sidecars {
		e.share.Sidecars, e.stored = sidecars, false
	}
	return e
}

// take makes the entry stand for the policy: for its record, else for the last good one of the very same policy.
func (ns *namespace) take(policy Policy) *entry {
	e := ns.entries[policy.Name]
	if e == nil {
		e = &entry{uid: policy.UID, share: bucketconfig.Share{Sidecars: 1}}
		ns.entries[policy.Name] = e
	}
	if e.uid != policy.UID {
		// The share outlives a re-creation, as the sidecars do; the record of another policy does not.
		e.uid, e.record, e.stored = policy.UID, nil, false
	}
	if policy.Record != nil {
		e.stored = e.stored && e.record != nil && e.record.Order == policy.Record.Order
		// Also where the order is the same: an earlier version of the manager may have translated it otherwise.
		e.record = policy.Record
	}
	return e
}

// publish makes Redis hold the namespace's policies that exist. They are listed under the namespace's lock: whatever was
// published before is in the cache by now, so nothing new is taken for a leftover.
func (p *Publisher) publish(ctx context.Context, name string, ns *namespace) (changed bool, err error) {
	policies, err := p.Policies(ctx, name)
	if err != nil {
		return false, err
	}
	exists := make(map[string]bool, len(policies))
	wanted := make([]configstore.Policy, 0, len(policies))
	for _, policy := range policies {
		exists[policy.Name] = true
		e := ns.take(policy)
		if e.record == nil && !e.unread {
			continue // it was never accepted: what is stored under its name is another policy's
		}
		wanted = append(wanted, configstore.Policy{Name: policy.Name, Record: e.record, Share: e.share})
	}
	published, err := p.Store.Publish(ctx, name, wanted)
	for policy, e := range ns.entries {
		if err == nil && !exists[policy] {
			delete(ns.entries, policy)
			continue
		}
		e.stored, e.err = err == nil, published.Refused[policy]
	}
	return published.Changed, err
}
