package controllers

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	portero "github.com/portero-dev/portero/api/v1alpha1"
	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/translator"
)

// translations remembers records, so that a sweep over many policies that did not change costs nothing. The zero value is
// ready, and safe for concurrent use.
type translations struct {
	mu     sync.Mutex
	byName map[types.NamespacedName]translation
}

type translation struct {
	uid        types.UID
	generation int64
	record     *bucketconfig.Record
}

// translate gives the policy's record, nil when it can't be translated.
func (t *translations) translate(policy *portero.RateLimitPolicy) *bucketconfig.Record {
	name := types.NamespacedName{Namespace: policy.Namespace, Name: policy.Name}
	t.mu.Lock()
	known, ok := t.byName[name]
	t.mu.Unlock()
	if ok && known.uid == policy.UID && known.generation == policy.Generation {
		return known.record
	}
	record, err := translator.Translate(policy)
	if err != nil {
		record = nil // the policy's own reconciliation tells
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byName == nil {
		t.byName = map[types.NamespacedName]translation{}
	}
	t.byName[name] = translation{policy.UID, policy.Generation, record}
	return record
}

// keep forgets the policies that do not exist.
func (t *translations) keep(exists map[types.NamespacedName]bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name := range t.byName {
		if !exists[name] {
			delete(t.byName, name)
		}
	}
}
