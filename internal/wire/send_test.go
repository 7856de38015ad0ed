package wire_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/wire"
)

const (
	loading  = "LOADING Redis is loading the dataset in memory"
	tryAgain = "TRYAGAIN Multiple keys request during rehashing of slot"
)

// contexts yields a context that cannot end, so that the caller may send its item itself, and a context that can end.
func contexts(t *testing.T) iter.Seq2[int, context.Context] {
	return func(yield func(int, context.Context) bool) {
		for i, ctx := range []context.Context{context.Background(), t.Context()} {
			synctest.Wait() // until earlier pipelines have given their places back
			if !yield(i, ctx) {
				return
			}
		}
	}
}

// fail makes the server reply to the next scripts with these errors, one for each script.
func (s *server) fail(errs ...error) {
	s.set(func() {
		s.on = func(cmd []string) any {
			if len(errs) == 0 || !strings.HasPrefix(cmd[0], "eval") {
				return nil
			}
			err := errs[0]
			errs = errs[1:]
			return err
		}
	})
}

// The server does not know a script. The first item of a pipeline that needs the script must send its source.
func TestUnknownScript(t *testing.T) {
	inBubble(t, func(t *testing.T, x *fixture) {
		_, release := x.hold()
		x.queue(t, "first")
		calls := x.queue(t, keys(6)...)
		release()
		time.Sleep(time.Second)
		synctest.Wait()
		for _, c := range calls {
			require.NoError(t, c.Result.Err)
			require.EqualValues(t, 1, c.Result.Value)
			require.NoError(t, c.Result.Earlier)
			require.Empty(t, c.lostErrors())
		}
		require.Equal(t, []string{
			"evalsha:first", "eval:first evalsha:k0 evalsha:k1 evalsha:k2", "evalsha:k3 evalsha:k4 evalsha:k5",
		}, x.arrived())

		x.set(func() { clear(x.scripts) }) // as a restart does
		_, release = x.hold()
		x.queue(t, "first")
		x.queue(t, "k0", "k1", "k2")
		release()
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, []string{"evalsha:first", "eval:first evalsha:k0 evalsha:k1 evalsha:k2"}, x.arrived())
		x.set(func() { clear(x.scripts) })
		var all sync.WaitGroup
		_, release = x.hold()
		x.queue(t, "first")
		x.fail(errors.New("OOM")) // the script is not stored
		for _, key := range []string{"k0", "k1", "k2"} {
			all.Go(func() {
				_, err := x.next(t.Context(), key)
				require.NoError(t, err)
			})
			synctest.Wait()
		}
		release()
		all.Wait()
		refusals := 0
		x.set(func() {
			x.on = func([]string) any {
				if refusals++; refusals > 10 {
					return nil
				}
				return errors.New("NOSCRIPT No matching script.")
			}
		})
		require.ErrorContains(t, errOf(x.next(t.Context(), "k")), "NOSCRIPT")
		require.Equal(t, 2, refusals, "the source is sent once")
	})
}

// A pipeline must contain the source of at most one script, and only once.
func TestUnknownScripts(t *testing.T) {
	inBubble(t, func(t *testing.T, x *fixture) {
		x.warm(t)
		other := wire.NewScript("return redis.call('INCRBY', KEYS[1], 1)")
		answer, release := x.hold()
		x.queue(t, "first")
		for _, key := range keys(4) {
			c := newCall(key, "")
			if key == "k1" {
				c.Script = other
			}
			x.Start(t.Context(), x.node, c.Item)
		}
		x.arrived()
		x.set(func() { clear(x.scripts) })
		for range 3 {
			answer()
		}
		require.Equal(t, []string{"evalsha:k0 evalsha:k1 evalsha:k2 evalsha:k3", "eval:k0 evalsha:k2 evalsha:k3", "eval:k1"},
			x.arrived())
		release()
	})
}

// A call fails with a transient error. It must be repeated after a pause that doubles each time, as often as the client
// is configured.
func TestRepeats(t *testing.T) {
	for _, retries := range []int{-1, 3, 10} {
		inBubble(t, func(t *testing.T, x *fixture) {
			x.warm(t)
			for _, ctx := range contexts(t) {
				x.set(func() { x.on = func([]string) any { return errors.New(loading) } })
				start := time.Now()
				c := newCall("k", "")
				_, err := x.do(ctx, c)
				require.ErrorContains(t, err, "serial: Redis failed: "+loading)
				require.Empty(t, c.lostErrors(), "it never ran")
				require.EqualValues(t, 1, c.done.Load())
				require.Equal(t, 1+max(retries, 0), len(x.arrived()))
				least := time.Duration(0)
				for i := range max(retries, 0) {
					least += min(4*time.Millisecond<<i, 256*time.Millisecond)
				}
				require.GreaterOrEqual(t, time.Since(start), least)
				require.LessOrEqual(t, time.Since(start), 2*least)

				x.fail(errors.New(loading))
				c = newCall("k", "")
				_, err = x.do(ctx, c)
				require.Equal(t, retries < 0, err != nil)
				x.fail()
				time.Sleep(50 * time.Millisecond)
				require.NoError(t, errOf(x.next(ctx, "k")))
				x.arrived()
			}
		}, func(opt *redis.Options, _ *wire.Replicas) { opt.MaxRetries = retries })
	}
}

// A call fails with an error that can last for many attempts. It must be repeated until the deadline, but not after it.
func TestRepeatsUntilTheDeadline(t *testing.T) {
	inBubble(t, func(t *testing.T, x *fixture) {
		x.warm(t)
		for _, ctx := range contexts(t) {
			x.set(func() { x.on = func([]string) any { return errors.New(tryAgain) } })
			start := time.Now()
			_, err := x.next(ctx, "k")
			require.ErrorContains(t, err, "serial: Redis failed: "+tryAgain, "a repeat would come too late")
			require.LessOrEqual(t, time.Since(start), timeLimit)
			require.Greater(t, time.Since(start), timeLimit-time.Second)
			require.Greater(t, x.count(), 15)
			x.fail()
			require.NoError(t, errOf(x.next(ctx, "k")))
		}
	})
}

func TestLostAnswer(t *testing.T) {
	inBubble(t, func(t *testing.T, x *fixture) {
		x.warm(t)
		want := 0
		for _, ctx := range contexts(t) {
			x.set(func() { x.loseAnswer = true })
			c := newCall("k", "")
			n, err := x.do(ctx, c)
			require.NoError(t, err)
			want += 2
			require.Equal(t, want, n, "it ran twice")
			require.ErrorIs(t, c.Result.Earlier, io.EOF)
			require.Len(t, c.lostErrors(), 1)
			require.EqualValues(t, 1, c.done.Load())

			x.set(func() { x.loseAnswer = true })
			c = newCall("k", "")
			c.Repeat = wire.IfUnsent
			_, err = x.do(ctx, c)
			want++
			require.ErrorIs(t, err, io.EOF)
			require.True(t, wire.IsOutage(fmt.Errorf("wrapped: %w", err)))
			require.Len(t, c.lostErrors(), 1)
			require.NoError(t, c.Result.Earlier)
			require.Equal(t, want, x.counter("k"))
		}
	})
}

// The replies to a pipeline are lost. Each item must be repeated only if it allows that, and must have its own result.
func TestLostPipeline(t *testing.T) {
	inBubble(t, func(t *testing.T, x *fixture) {
		x.warm(t)
		answer, release := x.hold()
		x.queue(t, "first")
		a, b := newCall("a", ""), newCall("b", "")
		a.Repeat = wire.IfUnsent
		for _, c := range []*call{a, b} {
			x.Start(t.Context(), x.node, c.Item)
		}
		answer()
		require.Equal(t, []string{"evalsha:first", "evalsha:a evalsha:b"}, x.arrived())
		release()
		x.set(func() { x.loseAnswer = true })
		require.NoError(t, a.Wait(t.Context()))
		require.NoError(t, b.Wait(t.Context()))
		require.NoError(t, a.Result.Err)

		_, release = x.hold()
		x.queue(t, "first")
		a, b = newCall("a", ""), newCall("b", "")
		a.Repeat = wire.IfUnsent
		for _, c := range []*call{a, b} {
			x.Start(t.Context(), x.node, c.Item)
		}
		x.set(func() {
			n := 0
			x.on = func([]string) any { // for the second command of the pipeline
				if n++; n == 2 {
					x.loseAnswer = true
				}
				return nil
			}
		})
		release()
		require.NoError(t, a.Wait(t.Context()))
		require.NoError(t, b.Wait(t.Context()))
		require.ErrorIs(t, a.Result.Err, io.EOF)
		require.NoError(t, b.Result.Err)
		require.ErrorIs(t, b.Result.Earlier, io.EOF)
		require.Equal(t, 2, x.counter("a"))
		require.Equal(t, 3, x.counter("b"))
	})
}

// After a failover, a connection still leads to the old master, which is now a replica. The replica rejects a script at
// its first write, so even an item that must not run twice must be sent again.
func TestRepeatedIfUnsent(t *testing.T) {
	const readOnly = "READONLY You can't write against a read only replica."
	for _, says := range []string{loading, tryAgain, readOnly, // Redis 7.0 and later, and 6.2
		"ERR Error running script (call to f_0): @user_script:1: @user_script: 1: -" + readOnly} {
		inBubble(t, func(t *testing.T, x *fixture) {
			x.warm(t)
			for i, ctx := range contexts(t) {
				x.fail(errors.New(says))
				c := newCall("k", "")
				c.Repeat = wire.IfUnsent
				n, err := x.do(ctx, c)
				require.NoError(t, err)
				require.Equal(t, i+1, n)
				require.Empty(t, c.lostErrors())
				require.NoError(t, c.Result.Earlier)

				x.fail(errors.New(says))
				c = newCall("other", "")
				c.Repeat = wire.IfProven
				_, err = x.do(ctx, c)
				require.Equal(t, says == tryAgain, err == nil, "%v", err)
			}
		})
	}
}

// All callers of a failed item leave, before or during the pause. The item must not be repeated.
func TestNobodyWaitsForARepeat(t *testing.T) {
	for _, leaves := range []time.Duration{time.Millisecond, 3 * time.Millisecond} { // in flight, in the pause
		inBubble(t, func(t *testing.T, x *fixture) {
			x.warm(t)
			x.set(func() { x.delay = 2 * time.Millisecond })
			x.fail(errors.New(loading), errors.New(loading))
			ctx, cancel := context.WithTimeout(t.Context(), leaves)
			defer cancel()
			c := newCall("k", "")
			_, err := x.do(ctx, c)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			if leaves > 2*time.Millisecond {
				require.ErrorContains(t, err, "; before that: "+loading)
			}
			time.Sleep(time.Second)
			synctest.Wait()
			require.Len(t, x.arrived(), 1)
			require.EqualValues(t, 1, c.done.Load())
			require.ErrorContains(t, c.Result.Err, loading)
			require.Equal(t, []int{0}, c.leftPlaces())
		})
	}
	inBubble(t, func(t *testing.T, x *fixture) {
		x.warm(t)
		x.set(func() { x.loseAnswer = true })
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Millisecond)
		defer cancel()
		c := newCall("k", "")
		require.ErrorIs(t, errOf(x.do(ctx, c)), context.DeadlineExceeded)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Len(t, x.arrived(), 1)
		require.ErrorIs(t, c.Result.Earlier, io.EOF, "it may have run")
	})
}

// A command has a second command that follows it. Both must be sent together, and each must have its own result. Failed
// commands must be repeated in order.
func TestThen(t *testing.T) {
	inBubble(t, func(t *testing.T, x *fixture) {
		x.warm(t)
		pair := func(ctx context.Context) (set, take *call) {
			set, take = plain(1, "incrby", "lock", 1), newCall("k", "")
			set.Then = take.Item
			_, _, err := x.Do(ctx, x.node, set.Item)
			require.Equal(t, err == nil, take.Wait(ctx) == nil, "each of them has to be waited for")
			return set, take
		}
		for _, ctx := range contexts(t) {
			set, take := pair(ctx)
			require.NotNil(t, set.Result.Value)
			require.NotNil(t, take.Result.Value)
			require.Equal(t, []string{"incrby:lock evalsha:k"}, x.arrived())
		}
		x.set(func() { clear(x.scripts) })
		set, take := pair(t.Context())
		require.EqualValues(t, 3, set.Result.Value)
		require.EqualValues(t, 3, take.Result.Value)
		require.Equal(t, []string{"incrby:lock evalsha:k", "eval:k"}, x.arrived())

		failed := map[string]bool{}
		x.set(func() {
			x.on = func(cmd []string) any {
				if !failed[cmd[0]] {
					failed[cmd[0]] = true
					return errors.New(loading)
				}
				return nil
			}
		})
		set, take = pair(t.Context())
		require.EqualValues(t, 4, set.Result.Value)
		require.EqualValues(t, 4, take.Result.Value)
		require.Equal(t, []string{"incrby:lock evalsha:k", "incrby:lock evalsha:k"}, x.arrived())

		x.set(func() { x.delay = time.Second })
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		set, take = pair(ctx)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, []int{0}, set.leftPlaces())
		require.Equal(t, []int{0}, take.leftPlaces())
	})
	inBubble(t, func(t *testing.T, x *fixture) {
		x.warm(t)
		_, release := x.hold()
		x.queue(t, "first")
		set, take := plain(1, "incrby", "lock", 1), newCall("k", "")
		set.Then, set.Deadline = take.Item, time.Now().Add(time.Millisecond)
		x.Start(t.Context(), x.node, set.Item)
		require.ErrorIs(t, set.Wait(t.Context()), wire.ErrNoAnswer)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, wire.ErrUnsent, set.Result.Err)
		require.Equal(t, wire.ErrUnsent, take.Result.Err, "it is dropped with the command before it")
		release()
	})
}

// Hooks of the client must get the values of the first caller's context, and a deadline for connecting.
func TestValues(t *testing.T) {
	type key struct{}
	inBubble(t, func(t *testing.T, x *fixture) {
		var seen []any
		x.redis.AddHook(hook(func(ctx context.Context, _ []redis.Cmder, next func() error) error {
			_, limited := ctx.Deadline()
			seen = append(seen, ctx.Value(key{}), limited)
			return next()
		}))
		for range 2 {
			for i, ctx := range contexts(t) {
				_, err := x.next(context.WithValue(ctx, key{}, i), "k")
				require.NoError(t, err)
			}
		}
		require.Subset(t, seen, []any{0, 1})
		require.NotContains(t, seen, false)
		require.NotContains(t, seen, nil)
	})
}

// No server can be reached. A call must return in time, and its error must not match an error of an internal context.
func TestUnreachable(t *testing.T) {
	inBubble(t, func(t *testing.T, x *fixture) {
		x.set(func() { x.noDial = true })
		for _, ctx := range contexts(t) {
			start := time.Now()
			_, err := x.next(ctx, "k")
			require.Error(t, err)
			require.LessOrEqual(t, time.Since(start), timeLimit)
			require.NotErrorIs(t, err, context.DeadlineExceeded)
		}
	})
}

// A caller sends its item itself. It must leave enough time for the read timeout of the client, and for another attempt
// if all connections are in use.
func TestNoConnectionBecomesFree(t *testing.T) {
	inBubble(t, func(t *testing.T, x *fixture) {
		x.warm(t)
		waited := false
		x.redis.AddHook(hook(func(ctx context.Context, _ []redis.Cmder, next func() error) error {
			if !waited {
				waited = true
				<-ctx.Done()
				return ctx.Err()
			}
			return next()
		}))
		c := newCall("k", "")
		n, err := x.do(context.Background(), c)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.True(t, waited)
		require.Empty(t, c.lostErrors(), "the first attempt was not sent")
	})
	// Otherwise, the wait must end before the deadline, so that the error can report that nothing was sent.
	inBubble(t, func(t *testing.T, x *fixture) {
		x.warm(t)
		x.redis.AddHook(hook(func(ctx context.Context, _ []redis.Cmder, _ func() error) error {
			<-ctx.Done()
			return ctx.Err()
		}))
		start := time.Now()
		c := newCall("k", "")
		require.ErrorContains(t, errOf(x.do(t.Context(), c)), "no connection became free")
		require.LessOrEqual(t, time.Since(start), timeLimit*19/20, "another attempt would be too short")
		require.Empty(t, c.lostErrors())
	})
}

// A hook returns an error without setting it in its commands. All of these commands must count as having no reply.
func TestHookFails(t *testing.T) {
	inBubble(t, func(t *testing.T, x *fixture) {
		x.warm(t)
		var failure error
		x.redis.AddHook(hook(func(ctx context.Context, cmds []redis.Cmder, next func() error) error {
			if len(cmds) > 1 {
				return io.EOF
			}
			if failure != nil {
				<-ctx.Done()
				return failure
			}
			return next()
		}))
		_, release := x.hold()
		x.queue(t, "first")
		var calls []*call
		for _, key := range keys(2) {
			c := newCall(key, "")
			c.Repeat = wire.IfUnsent
			x.Start(t.Context(), x.node, c.Item)
			calls = append(calls, c)
		}
		release()
		for _, c := range calls {
			require.ErrorIs(t, c.Result.Err, io.EOF)
			require.Len(t, c.lostErrors(), 1)
		}
		failure = &net.OpError{Op: "read", Err: context.DeadlineExceeded}
		c := newCall("k", "")
		c.Repeat = wire.IfUnsent
		require.Error(t, errOf(x.do(t.Context(), c)))
		require.Len(t, c.lostErrors(), 1, "there was a connection")
	})
}

// The server rejects an attempt, and later attempts fail because time has run out. The error must contain the reply of
// the server.
func TestRefusalBeforeATimeout(t *testing.T) {
	inBubble(t, func(t *testing.T, x *fixture) {
		x.warm(t)
		refused := false
		x.set(func() {
			x.on = func([]string) any {
				if refused {
					x.silent = 1 << 30
					return nil
				}
				refused = true
				return errors.New(loading)
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
		defer cancel()
		err := errOf(x.next(ctx, "k"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "; before that: "+loading)
		x.set(func() { refused, x.silent = false, 0 })
		c := newCall("k", "")
		c.Repeat = wire.IfUnsent
		require.ErrorContains(t, errOf(x.do(t.Context(), c)), "; before that: "+loading)
	})
}

// Calls share a deadline for getting a connection. Each of them must have almost all of its own time.
func TestSharedLimit(t *testing.T) {
	inBubble(t, func(t *testing.T, x *fixture) {
		x.warm(t)
		const own = 400 * time.Millisecond
		var left []time.Duration
		x.redis.AddHook(hook(func(ctx context.Context, _ []redis.Cmder, next func() error) error {
			end, _ := ctx.Deadline()
			left = append(left, time.Until(end))
			return next()
		}))
		for range 10 {
			time.Sleep(20 * time.Millisecond)
			synctest.Wait()
			c := newCall("k", "")
			c.Deadline = time.Now().Add(x.redis.Options().ReadTimeout + own)
			_, err := x.do(context.Background(), c)
			require.NoError(t, err)
		}
		require.GreaterOrEqual(t, slices.Min(left), own*7/8)
		require.Less(t, slices.Min(left), own, "some share")
		require.LessOrEqual(t, slices.Max(left), own)
	})
}

// A server hangs for a minute, and then replies again on new connections. The next call must succeed within a second,
// even if the client has no read timeout, because hanging calls must not occupy all connections.
func TestHangs(t *testing.T) {
	for _, read := range []time.Duration{0, -1, time.Minute} {
		for _, callers := range []int{1, 100} {
			t.Run(fmt.Sprint(read, callers), func(t *testing.T) {
				inBubble(t, func(t *testing.T, x *fixture) {
					x.warm(t)
					x.set(func() { x.silent = 1 << 30 })
					end := time.Now().Add(time.Minute)
					var all sync.WaitGroup
					for i := range callers {
						all.Go(func() {
							for time.Now().Before(end) {
								ctx, cancel := context.WithTimeout(t.Context(), time.Second)
								if i%2 == 0 {
									ctx = context.Background()
								}
								start := time.Now()
								_, err := x.next(ctx, fmt.Sprint(i%10))
								require.True(t, err != nil || time.Now().After(end))
								require.LessOrEqual(t, time.Since(start), timeLimit)
								cancel()
								time.Sleep(10 * time.Millisecond)
							}
						})
					}
					time.Sleep(time.Until(end))
					x.set(func() { x.silent = x.dials })
					start := time.Now()
					require.NoError(t, errOf(x.next(t.Context(), "after")))
					require.LessOrEqual(t, time.Since(start), time.Second)
					all.Wait()
				}, func(opt *redis.Options, _ *wire.Replicas) { opt.ReadTimeout, opt.PoolSize = read, 20 })
			})
		}
	}
}

// A hook fails with an error of a context after it may have sent the command. An item that must not run twice must not
// be repeated.
func TestOnceAfterAContextError(t *testing.T) {
	inBubble(t, func(t *testing.T, x *fixture) {
		x.warm(t)
		x.redis.AddHook(hook(func(_ context.Context, _ []redis.Cmder, next func() error) error {
			_ = next()
			return context.DeadlineExceeded
		}))
		for i, ctx := range contexts(t) {
			c := newCall("k", "")
			c.Repeat = wire.IfUnsent
			_, err := x.do(ctx, c)
			require.Error(t, err)
			require.NotErrorIs(t, err, context.DeadlineExceeded)
			require.Len(t, c.lostErrors(), 1)
			require.Equal(t, i+1, x.counter("k"))
		}
	})
}

// The context of a caller cannot end. The caller must send its item itself only if the read timeout of the client
// limits the wait, that is, if there is an idle connection to a server that has just replied, and if the deadline is
// far enough away. Otherwise, the call must return in time.
func TestSendsByItself(t *testing.T) {
	for name, test := range map[string]struct {
		limit, idle time.Duration
		confirm     bool
		read        time.Duration // the client's read timeout, 0 for its default
		want        time.Duration // time until the caller has its result or leaves
	}{
		"just answered":               {15 * time.Second, 0, false, 0, 7 * time.Second},
		"the deadline is near":        {2 * time.Second, 0, false, 0, 2 * time.Second},
		"not used recently":           {6 * time.Second, time.Second, false, 0, 6 * time.Second},
		"no connection for pipelines": {6 * time.Second, 0, true, 0, 6 * time.Second},
		"no read timeout":             {6 * time.Second, 0, false, -1, 6 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, x *fixture) {
				x.warm(t)
				time.Sleep(test.idle)
				x.redis.AddHook(hook(func(_ context.Context, _ []redis.Cmder, next func() error) error {
					time.Sleep(7 * time.Second)
					return next()
				}))
				if test.read < 0 { // such a client's later hooks are left out
					x.set(func() { x.delay = 7 * time.Second })
				}
				c := newCall("k", "")
				c.Deadline, c.Confirm = time.Now().Add(test.limit), test.confirm
				start := time.Now()
				_, err := x.do(context.Background(), c)
				require.Equal(t, test.want < 7*time.Second, err != nil)
				require.Equal(t, test.want, time.Since(start))
			}, oneReplica, func(opt *redis.Options, _ *wire.Replicas) { opt.ReadTimeout = test.read })
		})
	}
}
