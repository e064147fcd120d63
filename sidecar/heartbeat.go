package sidecar

import (
	"context"

	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/configstore"
	"github.com/portero-dev/portero/internal/ratelimit"
	"github.com/portero-dev/portero/sidecar/internal/tally"
)

// compose says what this sidecar applies.
func (l *links) compose() *bucketconfig.Heartbeat {
	p := l.plane
	inForce := p.keeper.Current()
	beat := &bucketconfig.Heartbeat{
		Schema:         bucketconfig.SchemaVersion,
		PodName:        p.config.PodName,
		StartID:        l.startID,
		SidecarVersion: p.config.Version,
		Revision:       inForce.Revision,
		Refused:        inForce.Refused[:min(len(inForce.Refused), bucketconfig.MaxHeartbeatPolicy)],
	}
	policies := inForce.Set.Policies()
	for _, policy := range policies[:min(len(policies), bucketconfig.MaxHeartbeatPolicy)] {
		beat.Applied = append(beat.Applied, p.applied(policy))
	}
	active, since := p.limiter.Fallback()
	if beat.Fallback = active; active {
		beat.FallbackSince = since.UnixMicro()
	}
	return beat
}

func (p *plane) applied(policy *ratelimit.Policy) bucketconfig.AppliedPolicy {
	applied := bucketconfig.AppliedPolicy{Name: policy.Record.Name, UID: policy.Record.UID, Generation: policy.Record.Generation}
	for _, limit := range policy.Limits {
		counts := p.tally.Of(tally.Name{Policy: policy.Record.Name, Limit: limit.Config.Name})
		applied.Limits = append(applied.Limits, bucketconfig.LimitCounter{
			Name: limit.Config.Name, Allowed: counts.Allowed, Denied: counts.Denied, ShadowDenied: counts.ShadowDenied,
		})
	}
	return applied
}

// sender sends a heartbeat and compares the revision that comes back: a second safety net under what is pushed.
func (l *links) sender(beats *configstore.Heartbeats) func(context.Context, *bucketconfig.Heartbeat) error {
	return func(ctx context.Context, beat *bucketconfig.Heartbeat) error {
		sent, err := beats.Send(ctx, l.plane.config.PodUID, beat)
		if sent.RevisionErr == nil && sent.Revision != beat.Revision {
			l.plane.keeper.Refresh()
		}
		return err
	}
}
