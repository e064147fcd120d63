// Package parallel does the same for many items, some at a time.
//
// What runs over all namespaces uses it, so that a master that hangs holds up its own namespaces alone.
package parallel

import (
	"errors"
	"sync"
)

// Each calls do for every item, for at most limit of them at once, waits for all, and joins their errors.
func Each[T any](limit int, items []T, do func(T) error) error {
	errs := make([]error, len(items))
	slots := make(chan struct{}, limit)
	var running sync.WaitGroup
	for i, item := range items {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			errs[i] = do(item)
		})
	}
	running.Wait()
	return errors.Join(errs...)
}
