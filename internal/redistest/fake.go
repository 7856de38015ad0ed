package redistest

import (
	"context"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
)

// A Fake is a server that only answers scripts, with Answer. It needs no connection, so a test may run in a synctest
// bubble.
type Fake struct {
	Answer func(n int, args []any) (any, error) // returns the answer to the n-th script, from 0

	mu        sync.Mutex
	Requested [][]any // arguments of the scripts, in order
}

// Client returns a client of the server.
func (f *Fake) Client(t *testing.T) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, PoolSize: 1000})
	t.Cleanup(func() { _ = client.Close() })
	client.AddHook(f)
	return client
}

// DialHook implements [redis.Hook].
func (f *Fake) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements [redis.Hook].
func (f *Fake) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		f.mu.Lock()
		n := len(f.Requested)
		f.Requested = append(f.Requested, cmd.Args())
		f.mu.Unlock()
		value, err := f.Answer(n, cmd.Args())
		if err != nil {
			cmd.SetErr(err)
			return err
		}
		cmd.(interface{ SetVal(any) }).SetVal(value)
		return nil
	}
}

// ProcessPipelineHook implements [redis.Hook].
func (f *Fake) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			_ = f.ProcessHook(nil)(ctx, cmd)
		}
		return nil
	}
}
