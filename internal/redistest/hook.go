package redistest

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// A Hook is a function that implements [redis.Hook]. It is called for every command and every pipeline of a client, and
// must call next to send the commands.
type Hook func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error

// DialHook implements [redis.Hook].
func (h Hook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements [redis.Hook].
func (h Hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return h(ctx, []redis.Cmder{cmd}, func(ctx context.Context, cmds []redis.Cmder) error { return next(ctx, cmds[0]) })
	}
}

// ProcessPipelineHook implements [redis.Hook].
func (h Hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { return h(ctx, cmds, next) }
}
