package exchange

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/race"
	"github.com/dailyserial/serial/internal/redisrun"
)

// newRedis returns a Redis in memory, and a client that reaches it through pipes.
func newRedis(t *testing.T) (*miniredis.Miniredis, *redis.Client) {
	m := miniredis.NewMiniRedis()
	t.Cleanup(m.Close)
	client := redis.NewClient(&redis.Options{
		Addr:     "127.0.0.1:6379",
		PoolSize: 1000, // nobody waits for a connection: go-redis reuses the timers of such waits in other bubbles
		Dialer:   func(context.Context, string, string) (net.Conn, error) { return m.Dial() },
	})
	t.Cleanup(func() { _ = client.Close() })
	return m, client
}

// errOf returns the error of a call.
func errOf[T any](_ T, err error) error { return err }

// A refusal is a server's.
type refusal string

func (r refusal) Error() string { return string(r) }
func (refusal) RedisError()     {}

// A pipelineHook is around every command and every pipeline.
type pipelineHook func(ctx context.Context, cmds []redis.Cmder, next func([]redis.Cmder) error) error

func (h pipelineHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h pipelineHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return h(ctx, []redis.Cmder{cmd}, func([]redis.Cmder) error { return next(ctx, cmd) })
	}
}

func (h pipelineHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return h(ctx, cmds, func(some []redis.Cmder) error { return next(ctx, some) })
	}
}

// Commands that are ready at the same moment go together. Each has its own outcome, and its caller leaves when it wants
// to.
func TestPipe(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		x, client := newRedis(t)
		var calls atomic.Int32
		limitOf := func(args []any) time.Duration { // by the last character of the key
			key := fmt.Sprint(args[min(1, len(args)-1)])
			return time.Duration(1+key[len(key)-1]%3) * time.Minute
		}
		client.AddHook(pipelineHook(func(ctx context.Context, cmds []redis.Cmder, next func([]redis.Cmder) error) error {
			var longest time.Duration
			for _, cmd := range cmds {
				longest = max(longest, limitOf(cmd.Args()))
			}
			if deadline, _ := ctx.Deadline(); cmds[0].Name() == "set" {
				require.Equal(t, longest, time.Until(deadline), "none has less than its time")
			}
			calls.Add(1)
			time.Sleep(100 * time.Microsecond)
			return next(cmds)
		}))
		p := NewPipe(client)
		require.NoError(t, x.Set("taken", "other"))
		require.NoError(t, errOf(x.Lpush("list", "v")))
		calls.Store(0)
		var all sync.WaitGroup
		do := func(ctx context.Context, args ...any) (any, error) {
			return p.Send(ctx, limitOf(args), "", args...).Wait(ctx, time.Minute)
		}
		set := func(key string) (any, error) { return do(t.Context(), "set", key, "mine", "nx") }
		for i := range 40 {
			all.Go(func() {
				v, err := set(fmt.Sprint("k", i))
				require.NoError(t, err)
				require.Equal(t, "OK", v)
			})
		}
		all.Go(func() { require.Equal(t, redis.Nil, errOf(set("taken"))) })
		all.Go(func() { require.ErrorContains(t, errOf(do(t.Context(), "incr", "list")), "WRONGTYPE") })
		all.Wait()
		require.LessOrEqual(t, calls.Load(), int32(20), "alone, they take 42")

		client.AddHook(pipelineHook(func(_ context.Context, cmds []redis.Cmder, next func([]redis.Cmder) error) error {
			if cmds[0].Name() == "get" {
				time.Sleep(time.Hour)
			}
			return next(cmds)
		}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		all.Go(func() { _, _ = do(t.Context(), "get", "slow") })
		synctest.Wait()
		began := time.Now()
		for range 3 {
			all.Go(func() { require.ErrorIs(t, errOf(do(ctx, "get", "slow")), context.DeadlineExceeded) })
		}
		time.Sleep(time.Second)
		require.NoError(t, errOf(do(t.Context(), "ping")))
		require.Less(t, time.Since(began), 2*time.Second, "nobody waits for what hangs")
		time.Sleep(2 * time.Hour)
		all.Wait()
	})
}

// A command waits to be sent for as long as its server answers others, and is not sent once nobody waits for it.
func TestPipeWaits(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		x, client := newRedis(t)
		const patience = 2 * time.Second
		var takes atomic.Int64 // time of a call
		client.AddHook(pipelineHook(func(_ context.Context, cmds []redis.Cmder, next func([]redis.Cmder) error) error {
			if cmds[0].Name() == "incr" {
				time.Sleep(time.Duration(takes.Load()))
			}
			return next(cmds)
		}))
		p := NewPipe(client)
		send := func(ctx context.Context, n int) (all []*Sending, errs []error) {
			errs = make([]error, n)
			var wg sync.WaitGroup
			for i := range n {
				s := p.Send(t.Context(), time.Minute, "", "incr", "k")
				all = append(all, s)
				wg.Go(func() { _, errs[i] = s.Wait(ctx, patience) })
			}
			wg.Wait()
			return all, errs
		}
		sent := func(all []*Sending) (n int) {
			for _, s := range all {
				if s.Over() {
					n++
				}
			}
			return n
		}
		takes.Store(int64(time.Second)) // so that the last ones wait for several seconds
		began := time.Now()
		all, errs := send(t.Context(), 1000)
		require.NoError(t, errors.Join(errs...))
		require.Greater(t, time.Since(began), 2*patience)
		require.Equal(t, 1000, sent(all))
		x.CheckGet(t, "k", "1000")

		takes.Store(int64(patience + time.Second))
		for _, ctxs := range []struct {
			limit, want time.Duration
			err         error
		}{{time.Hour, patience, redisrun.ErrNoAnswer}, {time.Second, time.Second, context.DeadlineExceeded}} {
			ctx, cancel := context.WithTimeout(t.Context(), ctxs.limit)
			began = time.Now()
			all, errs = send(ctx, 1000)
			require.Equal(t, ctxs.want, time.Since(began))
			for _, err := range errs {
				require.ErrorIs(t, err, ctxs.err)
			}
			require.Less(t, sent(all), 200, "what waited was not sent")
			cancel()
		}
	})
}

// A command that one server of a pipeline refuses is sent again alone, since the client follows redirections. A panic
// reaches its caller.
func TestPipeSendsAgain(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		_, client := newRedis(t)
		var mode atomic.Value
		mode.Store("")
		client.AddHook(pipelineHook(func(_ context.Context, cmds []redis.Cmder, next func([]redis.Cmder) error) error {
			time.Sleep(time.Millisecond)
			switch m := mode.Load(); {
			case len(cmds) > 1 && m == "moved":
				for _, cmd := range cmds[1:] {
					cmd.SetErr(refusal("MOVED 1 127.0.0.1:1"))
				}
				return next(cmds[:1])
			case m == "panic":
				panic("hook")
			}
			return next(cmds)
		}))
		p := NewPipe(client)
		for _, m := range []string{"", "moved"} {
			mode.Store(m)
			var all sync.WaitGroup
			for i := range 30 {
				all.Go(func() {
					v, err := p.Send(t.Context(), time.Minute, "", "incrby", fmt.Sprint("k", i), 1).Wait(t.Context(), time.Minute)
					require.NoError(t, err)
					require.NotZero(t, v)
				})
			}
			all.Wait()
		}
		mode.Store("panic")
		var all sync.WaitGroup
		for range 30 {
			all.Go(func() {
				require.PanicsWithValue(t, "hook", func() {
					_, _ = p.Send(t.Context(), time.Minute, "", "incr", "k").Wait(t.Context(), time.Minute)
				})
			})
		}
		all.Wait()
	})
}
