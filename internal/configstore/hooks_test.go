package configstore_test

import (
	"context"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// watchedCommands notes which fields are asked for with HMGET.
type watchedCommands struct {
	mutex sync.Mutex
	asked []string
}

func (w *watchedCommands) fields() []string {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.asked
}

func (w *watchedCommands) DialHook(next redis.DialHook) redis.DialHook { return next }

func (w *watchedCommands) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (w *watchedCommands) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, command redis.Cmder) error {
		if strings.EqualFold(command.Name(), "hmget") {
			w.mutex.Lock()
			for _, field := range command.Args()[2:] {
				w.asked = append(w.asked, field.(string))
			}
			w.mutex.Unlock()
		}
		return next(ctx, command)
	}
}
