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
	"slices"
	"strings"
	"sync"

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

// Publisher is safe for concurrent use. Redis is asked for one namespace by one call at a time; what is wanted is told without waiting for it.
type Publisher struct {
	Store Store
	// Policies lists the policies of a namespace that exist, from a cache that is at least as new as any Update.
	Policies func(ctx context.Context, namespace string) ([]Policy, error)
	// Kept reads what was last kept of a namespace outside of Redis, as Wanted told it.
	Kept func(ctx context.Context, namespace string) ([]bucketconfig.Bundled, error)
	// Changed is called when Wanted may have another answer. It must not block.
	Changed func(namespace string)

	mu         sync.Mutex
	namespaces map[string]*namespace
}

type namespace struct {
	// turn is held by the call that asks Redis.
	turn sync.Mutex

	// mu guards the rest, and is never held while Redis is asked: who wants to know what is wanted must not wait for a Redis that hangs.
	mu sync.Mutex
	// loaded and seeded are true once what an earlier leader stored in Redis, and kept outside of it, was read: shares that
	// must not shrink, and last good records.
	loaded, seeded bool
	entries        map[string]*entry
	// news is true while Changed is yet to be called.
	news bool
}

// entry is what Redis should hold of one policy.
type entry struct {
	uid string
	// claimed is true once a policy that exists said that uid is its own: only then is a record of another one foreign.
	claimed bool
	// record is the last version that could be translated, nil when there is none; translated is true when this process did so.
	record     *bucketconfig.Record
	translated bool
	// unread is true while what is stored can't be read, as after a downgrade of the manager: it is left until there is a
	// record to replace it.
	unread bool
	share  bucketconfig.Share
	// counted is false while nobody ever counted sidecars: the share is a guess then, the largest.
	counted bool
	// hold is true while the share must not shrink, as long as nobody counted sidecars too.
	hold bool
	// stored is true when Redis was last seen to hold it, err why the last try failed for this policy alone.
	stored bool
	err    error
}

// Publish makes Redis hold the policy, or its last good version. It asks Redis only when that is not known to be there.
func (p *Publisher) Publish(ctx context.Context, namespace string, update Update) error {
	ns := p.namespace(namespace)
	// Before Redis is asked: what is kept outside of it follows while it is away.
	if err := p.change(ctx, namespace, ns, func() error { ns.apply(update); return nil }); err != nil {
		return err
	}
	ns.turn.Lock()
	defer ns.turn.Unlock()
	if err := p.load(ctx, namespace, ns); err != nil {
		return err
	}
	if known, stored, err := ns.state(update.Name); known && stored {
		return err
	}
	if _, err := p.publish(ctx, namespace, ns); err != nil {
		return err
	}
	_, _, err := ns.state(update.Name) // one that is not known was deleted meanwhile
	return err
}

// Wanted is what sidecars are to enforce in a namespace, whether Redis holds it or not: the last good record of each policy that exists, in
// the order of names. Records of the same state are the same pointer.
func (p *Publisher) Wanted(ctx context.Context, namespace string) (wanted []bucketconfig.Bundled, err error) {
	ns := p.namespace(namespace)
	err = p.change(ctx, namespace, ns, func() error {
		policies, err := p.Policies(ctx, namespace)
		if err != nil {
			return err
		}
		for _, policy := range policies {
			// One that nobody counted sidecars for would let each of them take the whole limit; its count is on its way.
			if e := ns.take(policy); e.record != nil && e.counted {
				wanted = append(wanted, bucketconfig.Bundled{Name: policy.Name, Record: e.record, Share: e.share})
			}
		}
		ns.news = false // whoever asks has it now
		return nil
	})
	slices.SortFunc(wanted, func(a, b bucketconfig.Bundled) int { return strings.Compare(a.Name, b.Name) })
	return wanted, err
}

// Withdraw makes Redis no longer hold a policy that is gone.
func (p *Publisher) Withdraw(ctx context.Context, namespace, policy string) error {
	ns := p.namespace(namespace)
	if err := p.change(ctx, namespace, ns, func() error { ns.news = true; return nil }); err != nil {
		return err
	}
	ns.turn.Lock()
	defer ns.turn.Unlock()
	if err := p.load(ctx, namespace, ns); err != nil {
		return err
	}
	if known, _, _ := ns.state(policy); !known {
		return nil
	}
	_, err := p.publish(ctx, namespace, ns)
	return err
}

// Repair compares what Redis holds of a namespace with what it should, corrects it, and reports whether it had to.
func (p *Publisher) Repair(ctx context.Context, namespace string) (repaired bool, err error) {
	ns := p.namespace(namespace)
	ns.turn.Lock()
	defer ns.turn.Unlock()
	if err := p.load(ctx, namespace, ns); err != nil {
		return false, err
	}
	return p.publish(ctx, namespace, ns)
}

// Remove removes all that Redis holds of a namespace in which no policy exists. It does nothing where one does.
func (p *Publisher) Remove(ctx context.Context, namespace string) (removed bool, err error) {
	ns := p.namespace(namespace)
	ns.turn.Lock()
	defer ns.turn.Unlock()
	err = p.change(ctx, namespace, ns, func() error {
		policies, err := p.Policies(ctx, namespace)
		if err != nil || len(policies) > 0 {
			return err
		}
		clear(ns.entries)
		removed = true
		return nil
	})
	if err != nil || !removed {
		return false, err
	}
	return true, p.Store.Remove(ctx, namespace)
}

func (p *Publisher) namespace(name string) *namespace {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.namespaces == nil {
		p.namespaces = map[string]*namespace{}
	}
	ns := p.namespaces[name]
	if ns == nil {
		ns = &namespace{entries: map[string]*entry{}}
		p.namespaces[name] = ns
	}
	return ns
}

// change runs do, which may change what is known of the namespace, and then tells of news.
func (p *Publisher) change(ctx context.Context, name string, ns *namespace, do func() error) error {
	ns.mu.Lock()
	err := p.seed(ctx, name, ns)
	if err == nil {
		err = do()
	}
	news := ns.news
	ns.news = false
	ns.mu.Unlock()
	if news {
		p.Changed(name)
	}
	return err
}

// load takes over, once, what an earlier leader stored in Redis. The caller has the turn.
func (p *Publisher) load(ctx context.Context, name string, ns *namespace) error {
	if ns.loaded {
		return nil
	}
	stored, err := p.Store.Load(ctx, name)
	if err != nil {
		return fmt.Errorf("read what is stored: %w", err)
	}
	return p.change(ctx, name, ns, func() error {
		ns.loaded = true
		if stored == nil {
			return nil
		}
		for policy, s := range stored.Policies {
			ns.learn(policy, s.Record, s.Share).unread = s.Record == nil
		}
		return nil
	})
}

// seed takes over, once, what an earlier leader kept outside of Redis.
func (p *Publisher) seed(ctx context.Context, name string, ns *namespace) error {
	if ns.seeded {
		return nil
	}
	kept, err := p.Kept(ctx, name)
	if err != nil {
		return fmt.Errorf("read what is kept: %w", err)
	}
	ns.seeded = true
	for _, policy := range kept {
		if policy.Record != nil {
			ns.learn(policy.Name, policy.Record, policy.Share)
		}
	}
	return nil
}

// learn takes over what an earlier leader knew of the policy, where this one knows nothing newer.
func (ns *namespace) learn(name string, record *bucketconfig.Record, share bucketconfig.Share) *entry {
	e := ns.entries[name]
	if e == nil {
		e = &entry{hold: true, share: share}
		ns.entries[name] = e
	}
	e.counted = e.counted || share.Sidecars > 0
	if e.hold && share.Sidecars > e.share.Sidecars {
		e.share.Sidecars, ns.news = share.Sidecars, true
	}
	if record == nil || e.claimed && e.uid != record.UID {
		return e
	}
	if e.record == nil || e.record.Order < record.Order {
		e.uid, e.record, e.translated, ns.news = record.UID, record, false, true
	}
	return e
}

// apply takes news over.
func (ns *namespace) apply(update Update) {
	e := ns.take(update.Policy)
	e.hold = update.Hold || update.Sidecars == 0
	sidecars := update.Sidecars
	if e.hold {
		sidecars = max(sidecars, e.share.Sidecars)
	}
	if !e.counted && update.Sidecars > 0 {
		e.counted, ns.news = true, true
	}
	if e.share.Sidecars != sidecars {
		e.share.Sidecars, e.stored, ns.news = sidecars, false, true
	}
}

// take makes the entry stand for the policy: for its record, else for the last good one of the very same policy.
func (ns *namespace) take(policy Policy) *entry {
	e := ns.entries[policy.Name]
	if e == nil {
		e = &entry{uid: policy.UID, hold: true, share: bucketconfig.Share{Sidecars: 1}}
		ns.entries[policy.Name] = e
	}
	if e.uid != policy.UID {
		// The share outlives a re-creation, as the sidecars do; the record of another policy does not, readable or not.
		e.uid, e.record, e.translated, e.unread, e.stored, ns.news = policy.UID, nil, false, false, false, true
	}
	e.claimed = true
	same := e.record != nil && policy.Record != nil && e.record.Order == policy.Record.Order
	// Where the order is the same an earlier version of the manager may have translated it otherwise; this one does not. One pointer for one
	// state lets those who ask compare cheaply.
	if policy.Record != nil && !(same && e.translated) {
		e.stored = e.stored && same
		e.record, e.translated, e.unread, ns.news = policy.Record, true, false, true
	}
	return e
}

// state tells whether the policy is known, whether Redis was last seen to hold it, and why the last try failed for it alone.
func (ns *namespace) state(policy string) (known, stored bool, err error) {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	e := ns.entries[policy]
	if e == nil {
		return false, false, nil
	}
	return true, e.stored, e.err
}

// publish makes Redis hold the namespace's policies that exist. They are listed under the namespace's lock: whatever was
// published before is in the cache by now, so nothing new is taken for a leftover. The caller has the turn.
func (p *Publisher) publish(ctx context.Context, name string, ns *namespace) (changed bool, err error) {
	var wanted []configstore.Policy
	sent := map[string]entry{}
	exists := map[string]bool{}
	err = p.change(ctx, name, ns, func() error {
		policies, err := p.Policies(ctx, name)
		if err != nil {
			return err
		}
		for _, policy := range policies {
			exists[policy.Name] = true
			e := ns.take(policy)
			if e.record == nil && !e.unread {
				continue // it was never accepted: what is stored under its name is another policy's
			}
			wanted = append(wanted, configstore.Policy{Name: policy.Name, Record: e.record, Share: e.share})
		}
		for policy, e := range ns.entries {
			sent[policy] = *e
		}
		return nil
	})
	if err != nil {
		return false, err
	}
	published, err := p.Store.Publish(ctx, name, wanted)
	return published.Changed, errors.Join(err, p.change(ctx, name, ns, func() error {
		for policy, was := range sent {
			e := ns.entries[policy]
			if e == nil || e.uid != was.uid || e.record != was.record || e.share != was.share {
				continue // it changed meanwhile, and whoever changed it waits for the turn
			}
			if err == nil && !exists[policy] {
				delete(ns.entries, policy)
				continue
			}
			e.stored, e.err = err == nil, published.Refused[policy]
		}
		return nil
	}))
}
