package redislink

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	portero "github.com/portero-dev/portero/api/v1alpha1"
	"github.com/portero-dev/portero/controllers/beats"
	"github.com/portero-dev/portero/controllers/problem"
	"github.com/portero-dev/portero/controllers/publisher"
	"github.com/portero-dev/portero/internal/configstore"
)

// callTimeout bounds a call that others make: a master that hangs must not hold up what the others could answer.
const callTimeout = 3 * time.Second

var _ publisher.Store = (*Link)(nil)

// Publish makes Redis hold exactly the policies for the namespace.
func (l *Link) Publish(ctx context.Context, namespace string, policies []configstore.Policy) (configstore.Published, error) {
	s, err := l.use(ctx)
	if err != nil {
		return configstore.Published{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	fence, err := l.Fence.Current(ctx)
	if err != nil {
		return configstore.Published{}, err
	}
	_, listed := s.listed.Load(namespace)
	publication := configstore.Publication{Policies: policies, Listed: listed}
	published, err := s.newWriter(fence).Publish(ctx, namespace, publication)
	var fenced *configstore.FencedError
	if errors.As(err, &fenced) {
		// A later leader has published, or the lease was made anew and Redis remembers the old one. Who holds the lease
		// now, after the refusal, is the last leader.
		if fence, err = l.Fence.Confirm(ctx); err != nil {
			return configstore.Published{}, err
		}
		publication.Supersedes = fenced.Stored
		published, err = s.newWriter(fence).Publish(ctx, namespace, publication)
	}
	if err == nil {
		s.listed.Store(namespace, true)
	}
	return published, explain(err)
}

// Load reads what is stored for a namespace; nil when nothing is.
func (l *Link) Load(ctx context.Context, namespace string) (*configstore.Snapshot, error) {
	s, err := l.use(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	snapshot, err := s.newReader(namespace).Update(ctx, nil)
	if errors.Is(err, configstore.ErrLost) {
		return nil, nil
	}
	return snapshot, explain(err)
}

// Namespaces lists all namespaces of which anything is stored.
func (l *Link) Namespaces(ctx context.Context) ([]string, error) {
	s, err := l.use(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	names, err := s.newWriter(0).Namespaces(ctx)
	if err != nil {
		return nil, explain(err)
	}
	// What the index lost is listed again by the next publication.
	s.listed.Range(func(name, _ any) bool {
		if _, found := slices.BinarySearch(names, name.(string)); !found {
			s.listed.Delete(name)
		}
		return true
	})
	return names, nil
}

// Remove removes all that is stored of a namespace. Redis can't refuse a removal as it does a publication, so the lease is
// asked first: a leader that was frozen for longer than its lease must not remove what the next one published.
func (l *Link) Remove(ctx context.Context, namespace string) error {
	s, err := l.use(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err := l.Fence.Confirm(ctx); err != nil {
		return err
	}
	s.listed.Delete(namespace)
	return explain(s.newWriter(0).Remove(ctx, namespace))
}

// ReadHeartbeats reads the heartbeats of pods, by UID.
func (l *Link) ReadHeartbeats(ctx context.Context, namespace string, podUIDs []string) (map[string]beats.Beat, error) {
	s, err := l.use(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	read, err := s.newHeartbeats(namespace).Read(ctx, podUIDs)
	if err != nil {
		return nil, explain(err)
	}
	out := make(map[string]beats.Beat, len(read))
	for uid, beat := range read {
		b := beats.Beat{Age: beat.Age, Err: beat.Err}
		if beat.Heartbeat != nil {
			b.Heartbeat = *beat.Heartbeat
		}
		out[uid] = b
	}
	return out, nil
}

// PruneHeartbeats forgets the heartbeats of all pods but these.
func (l *Link) PruneHeartbeats(ctx context.Context, namespace string, living []string) error {
	s, err := l.use(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err = s.newHeartbeats(namespace).Prune(ctx, living)
	return explain(err)
}

// explain turns an error of Redis into a Problem that says what to do.
func explain(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, configstore.ErrDenied):
		return &problem.Problem{Reason: portero.ReasonRedisUnreachable, Message: refused(err), Cause: err}
	case errors.Is(err, configstore.ErrUnreachable):
		return problem.New(portero.ReasonRedisUnreachable, "redis can't be reached: %w", err)
	case errors.Is(err, configstore.ErrNoLibrary):
		return problem.New(portero.ReasonRedisUnreachable, "the function library is not loaded yet: %w", err)
	default:
		return fmt.Errorf("redis: %w", err)
	}
}
