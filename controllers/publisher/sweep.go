package publisher

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/portero-dev/portero/controllers/parallel"
)

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
