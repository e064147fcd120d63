package redisclient

import (
	"context"
	"errors"
	"net"

	"github.com/redis/go-redis/v9"
)

// reload makes a client ask anew, in the background, who serves what whenever a call was not answered. Left alone go-redis
// does so once a minute, and neither silence nor a refused connection makes it do so sooner: a master that hung and was
// replaced would be asked for that long.
type reload struct{ client *redis.ClusterClient }

func reloading(client *redis.ClusterClient) *redis.ClusterClient {
	client.AddHook(reload{client})
	return client
}

// DialHook implements redis.Hook.
func (reload) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (r reload) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		r.after(ctx, err)
		return err
	}
}

// ProcessPipelineHook implements redis.Hook.
func (r reload) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		r.after(ctx, err)
		return err
	}
}

func (r reload) after(ctx context.Context, err error) {
	var unanswered net.Error
	if errors.Is(err, context.DeadlineExceeded) || errors.As(err, &unanswered) {
		r.client.ReloadState(ctx) // many calls cost one reload
	}
}
