package redisrun_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/budget"
	"github.com/dailyserial/serial/internal/race"
	"github.com/dailyserial/serial/internal/redisrun"
)

var increment = redisrun.NewScript("return redis.call('INCRBY', KEYS[1], 1)")

const readTimeout = 5 * time.Second // go-redis's own

func command(key string) redisrun.Command {
	return redisrun.Command{Script: increment, Args: []any{nil, nil, 1, key}}
}

// once returns a command that may be sent only once.
func once(key string) redisrun.Command {
	c := command(key)
	c.NoRepeat = true
	return c
}

// errOf returns the error of a call.
func errOf[T any](_ T, err error) error { return err }

// A hook is called instead of a script or a pipeline, with the means to send it.
type hook func(ctx context.Context, next func() error) error

// A fixture is a miniredis, and controls between it and its client.
type fixture struct {
	*miniredis.Miniredis
	node *redisrun.Node
	hang atomic.Bool // no connection can be made

	mu   sync.Mutex
	hook hook     // around each script or pipeline, nil for none; guarded by mu
	sent []string // names of commands; guarded by mu
}

// inBubble runs f in a synctest bubble.
func inBubble(t *testing.T, replicas redisrun.Replicas, f func(t *testing.T, x *fixture, r *redisrun.Runner)) {
	race.Bubble(t, func(t *testing.T) {
		x := &fixture{Miniredis: miniredis.NewMiniRedis()}
		t.Cleanup(x.Close)
		client := redis.NewClient(&redis.Options{
			Addr:     "127.0.0.1:6379",
			PoolSize: 1000, // nobody waits for a connection: go-redis reuses the timers of such waits in other bubbles
			Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
				if x.hang.Load() {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return x.Dial()
			},
		})
		t.Cleanup(func() { _ = client.Close() })
		client.AddHook(x)
		r := redisrun.New(client, replicas)
		x.node = single(t, r)
		defer time.Sleep(time.Minute) // for abandoned commands
		f(t, x, r)
	})
}

// single returns the only node of r's client.
func single(t *testing.T, r *redisrun.Runner) *redisrun.Node {
	return redisrun.NewNodes(r, func(n *redisrun.Node) *redisrun.Node { return n }).Of(t.Context(), "")
}

func (x *fixture) DialHook(next redis.DialHook) redis.DialHook { return next }

func (x *fixture) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return x.around(ctx, []redis.Cmder{cmd}, func() error { return next(ctx, cmd) })
	}
}

func (x *fixture) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return x.around(ctx, cmds, func() error { return next(ctx, cmds) })
	}
}

func (x *fixture) around(ctx context.Context, cmds []redis.Cmder, next func() error) error {
	if !strings.HasPrefix(cmds[0].Name(), "eval") { // go-redis sends these itself on a new connection
		return next()
	}
	x.mu.Lock()
	for _, cmd := range cmds {
		x.sent = append(x.sent, cmd.Name())
	}
	hook := x.hook
	x.mu.Unlock()
	if hook == nil {
		return next()
	}
	var ran error
	err := hook(ctx, func() error { ran = next(); return ran })
	if err != ran {
		for _, cmd := range cmds {
			cmd.SetErr(err)
		}
	}
	return err
}

func (x *fixture) setHook(hook hook) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.hook = hook
}

// names returns the names of the commands sent since the last call.
func (x *fixture) names() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	names := x.sent
	x.sent = nil
	return names
}

// loseAnswer lets the next command or pipeline run, but loses its answer.
func (x *fixture) loseAnswer() {
	x.setHook(func(_ context.Context, next func() error) error {
		x.setHook(nil)
		_ = next()
		return io.EOF
	})
}

func (x *fixture) run(ctx context.Context, r *redisrun.Runner, c redisrun.Command, note *redisrun.Note) (redisrun.Reply,
	error) {
	b := budget.New(false)
	return r.Run(ctx, &b, x.node, c, note)
}

// An outcome is what RunAll reported for a command.
type outcome struct {
	Reply redisrun.Reply
	Err   error
	after time.Duration
}

// budgets returns budgets of fresh calls.
func budgets(n int) []*budget.Budget {
	all := make([]*budget.Budget, n)
	for i := range all {
		b := budget.New(false)
		all[i] = &b
	}
	return all
}

// runAll returns the outcomes in the order of commands.
func (x *fixture) runAll(ctx context.Context, r *redisrun.Runner, commands []redisrun.Command,
	notes ...*redisrun.Note) []outcome {
	outcomes := make([]outcome, len(commands))
	start := time.Now()
	for len(notes) < len(commands) {
		notes = append(notes, new(redisrun.Note))
	}
	r.RunAll(ctx, budgets(len(commands)), x.node, commands, notes, func(i int, reply redisrun.Reply, err error) {
		outcomes[i] = outcome{reply, err, time.Since(start)}
	})
	return outcomes
}

// A refusal comes from a server.
type refusal string

func (r refusal) Error() string { return string(r) }
func (refusal) RedisError()     {}

func TestScriptIsSentWholeWhereItIsUnknown(t *testing.T) {
	inBubble(t, redisrun.Replicas{}, func(t *testing.T, x *fixture, r *redisrun.Runner) {
		for i := range 2 {
			reply, err := x.run(t.Context(), r, command("k"), nil)
			require.NoError(t, err)
			require.EqualValues(t, 1+i, reply.Value)
			require.NoError(t, reply.EarlierErr, "the script did not run before")
		}
		require.Equal(t, []string{"evalsha", "eval", "evalsha"}, x.names())
	})
}

func TestLostAnswer(t *testing.T) {
	inBubble(t, redisrun.Replicas{}, func(t *testing.T, x *fixture, r *redisrun.Runner) {
		require.NoError(t, errOf(x.run(t.Context(), r, command("k"), nil)))

		x.loseAnswer()
		var note redisrun.Note
		reply, err := x.run(t.Context(), r, command("k"), &note)
		require.NoError(t, err)
		require.EqualValues(t, 3, reply.Value, "it ran twice")
		require.Equal(t, io.EOF, reply.EarlierErr)
		require.Equal(t, io.EOF, *note.Load())

		reply, err = x.run(t.Context(), r, command("k"), &note)
		require.NoError(t, err)
		require.Equal(t, io.EOF, reply.EarlierErr, "the note has the earlier attempt")

		x.loseAnswer()
		_, err = x.run(t.Context(), r, once("k"), nil)
		require.ErrorIs(t, err, io.EOF)
		require.True(t, redisrun.IsOutage(fmt.Errorf("wrapped: %w", err)))
		x.CheckGet(t, "k", "5")
	})
}

// After a failover, a connection may still lead to the old master, now a replica. It refuses a script at the first
// write, so even a command that may be sent only once is sent again.
func TestSentAgainAfterReadOnly(t *testing.T) {
	const refusal = "READONLY You can't write against a read only replica."
	// Redis 7.0 and later, and 6.2.
	for _, says := range []string{refusal,
		"ERR Error running script (call to f_0): @user_script:1: @user_script: 1: -" + refusal} {
		inBubble(t, redisrun.Replicas{}, func(t *testing.T, x *fixture, r *redisrun.Runner) {
			x.setHook(func(_ context.Context, next func() error) error {
				x.setHook(nil)
				x.SetError(says)
				defer x.SetError("")
				return next()
			})
			reply, err := x.run(t.Context(), r, once("k"), nil)
			require.NoError(t, err)
			require.EqualValues(t, 1, reply.Value)
		})
	}
}

// If no server can be reached, a call ends in time, and no error of an internal context shows.
func TestUnreachable(t *testing.T) {
	inBubble(t, redisrun.Replicas{}, func(t *testing.T, x *fixture, r *redisrun.Runner) {
		x.hang.Store(true)
		start := time.Now()
		_, err := x.run(t.Context(), r, command("k"), nil)
		require.LessOrEqual(t, time.Since(start), budget.Answers)
		require.True(t, redisrun.IsOutage(err))
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "serial: Redis failed: ")

		reply, err := x.run(t.Context(), r, once("k"), nil)
		require.True(t, redisrun.IsOutage(err))
		require.ErrorIs(t, err, redis.ErrPoolTimeout)
		for _, attempt := range reply.Unanswered {
			require.True(t, redisrun.Unsent(errOf(attempt.Wait())), "it had no connection")
		}
		x.hang.Store(false)
		require.NoError(t, errOf(x.run(t.Context(), r, command("k"), nil)))
		x.setHook(func(_ context.Context, next func() error) error {
			err := next()
			x.hang.Store(true)
			time.Sleep(budget.Answers)
			return err
		})
		x.names()
		_, err = x.run(t.Context(), r, once("k"), nil)
		require.Equal(t, redisrun.ErrUnanswered, err)
		require.Len(t, x.names(), 1)
		x.setHook(nil)

		var used budget.Budget
		err = errOf(r.Run(t.Context(), &used, x.node, command("k"), nil))
		require.Equal(t, redisrun.ErrUnsent, err)
		require.ErrorIs(t, err, redisrun.ErrNoAnswer)
		require.False(t, redisrun.IsOutage(err))
		var before redisrun.Note
		failure := io.EOF
		before.Store(&failure)
		reply, err = r.Run(t.Context(), &used, x.node, command("k"), &before)
		require.True(t, redisrun.IsOutage(err), "the previous attempt was sent")
		require.Empty(t, reply.Unanswered, "this attempt was not sent")
		synctest.Wait()
		require.Empty(t, x.names(), "there is no time left to send it")
	})
}

// A caller that waits for Redis in its own goroutine allows for the client's read timeout when others take the idle
// connection. That time remains for the next attempt.
func TestNoConnectionBecomesFree(t *testing.T) {
	inBubble(t, redisrun.Replicas{}, func(t *testing.T, x *fixture, r *redisrun.Runner) {
		require.NoError(t, errOf(x.run(t.Context(), r, command("k"), nil)))
		var waited atomic.Bool
		x.setHook(func(ctx context.Context, next func() error) error {
			if waited.CompareAndSwap(false, true) {
				<-ctx.Done()
				return ctx.Err()
			}
			time.Sleep(2 * time.Second)
			return next()
		})
		reply, err := x.run(context.Background(), r, command("k"), nil)
		require.NoError(t, err)
		require.EqualValues(t, 2, reply.Value)
		require.Empty(t, reply.Unanswered, "the first attempt was not sent")
		require.True(t, waited.Load())
	})
}

// Calls that share a limit for getting a connection have at least half of their own.
func TestSharedLimitForAConnection(t *testing.T) {
	inBubble(t, redisrun.Replicas{}, func(t *testing.T, x *fixture, r *redisrun.Runner) {
		const own = 200 * time.Millisecond
		require.NoError(t, errOf(x.run(context.Background(), r, command("k"), nil)))
		var left []time.Duration
		x.setHook(func(ctx context.Context, next func() error) error {
			end, limited := ctx.Deadline()
			require.True(t, limited)
			left = append(left, time.Until(end))
			return next()
		})
		for range 10 {
			time.Sleep(70 * time.Millisecond)
			b := budget.New(false)
			limit, _ := b.NextLimit()
			spent := limit - readTimeout - own
			b.Spend(spent, spent)
			_, err := r.Run(context.Background(), &b, x.node, command("k"), nil)
			require.NoError(t, err)
		}
		require.GreaterOrEqual(t, slices.Min(left), own/2)
		require.Less(t, slices.Min(left), own, "some share")
		require.LessOrEqual(t, slices.Max(left), own)
	})
}

// waiters reports whether anybody waits for a command.
type waiters bool

func (w waiters) Wanted() bool { return bool(w) }

// A command is not repeated when nobody waits for it any more.
func TestNobodyWaits(t *testing.T) {
	for _, failure := range []error{io.EOF, redisrun.ErrNoAnswer, refusal("NOSCRIPT"), refusal("LOADING the dataset")} {
		for _, wait := range []waiters{false, true} {
			inBubble(t, redisrun.Replicas{}, func(t *testing.T, x *fixture, r *redisrun.Runner) {
				sent := func(send func() error) int {
					x.setHook(func(_ context.Context, next func() error) error {
						x.setHook(nil)
						return failure
					})
					require.Equal(t, bool(wait), send() == nil, "%v", failure)
					return len(x.names())
				}
				c, other := command("A"), command("B")
				c.Waiters = wait
				want := 1
				if wait {
					want = 2
					if failure != refusal("NOSCRIPT") {
						want = 3 // the script is unknown
					}
				}
				require.Equal(t, want, sent(func() error { return errOf(x.run(t.Context(), r, c, nil)) }), "%v", failure)
				require.NoError(t, errOf(x.run(t.Context(), r, command("A"), nil))) // the server knows the script
				x.names()
				c.Args, other.Args = command("A").Args, command("B").Args
				other.Waiters = waiters(true)
				want = 3
				if wait {
					want = 4
				}
				require.Equal(t, want, sent(func() error {
					o := x.runAll(t.Context(), r, []redisrun.Command{c, other})
					require.NoError(t, o[1].Err)
					return o[0].Err
				}), "%v", failure)
			})
		}
	}
}

// A time limit that is already over is no reason to try forever.
func TestOneMoreAttemptAfterATimeLimit(t *testing.T) {
	inBubble(t, redisrun.Replicas{}, func(t *testing.T, x *fixture, r *redisrun.Runner) {
		x.setHook(func(context.Context, func() error) error { return context.DeadlineExceeded })
		_, err := x.run(t.Context(), r, command("k"), nil)
		require.True(t, redisrun.IsOutage(err))
		require.Len(t, x.names(), 2)
	})
}

func TestCallerLeaves(t *testing.T) {
	inBubble(t, redisrun.Replicas{}, func(t *testing.T, x *fixture, r *redisrun.Runner) {
		x.setHook(func(_ context.Context, next func() error) error { time.Sleep(time.Minute); return next() })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var note redisrun.Note
		before := errors.New("before")
		note.Store(&before)
		start := time.Now()
		_, err := x.run(ctx, r, command("k"), &note)
		require.Equal(t, time.Second, time.Since(start))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, before)
		require.False(t, redisrun.IsOutage(err))
	})
}

// A process that stood still has not waited for a server: the time is not charged, and it waits for the answer.
func TestProcessStoodStill(t *testing.T) {
	for name, test := range map[string]struct{ endless, connected bool }{
		"in the caller's goroutine": {true, true},
		"in another goroutine":      {false, true},
		"as it made a connection":   {false, false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, redisrun.Replicas{}, func(t *testing.T, x *fixture, r *redisrun.Runner) {
				ctx := context.Background()
				if !test.endless {
					ctx = t.Context()
				}
				if test.connected {
					require.NoError(t, errOf(x.run(ctx, r, command("k"), nil)))
				}
				x.setHook(func(_ context.Context, next func() error) error { defer time.Sleep(time.Minute); return next() })
				b := budget.New(false)
				reply, err := r.Run(ctx, &b, x.node, command("k"), nil)
				require.NoError(t, err)
				require.NotNil(t, reply.Value)
				require.Equal(t, time.Minute, reply.Received.Sub(reply.Sent))
				require.Equal(t, budget.Answers, b.Answer())
			})
		})
	}
}

func TestUnconfirmed(t *testing.T) {
	inBubble(t, redisrun.Replicas{N: 1, Timeout: time.Second}, func(t *testing.T, x *fixture, r *redisrun.Runner) {
		reply, err := x.run(t.Context(), r, command("k"), nil)
		require.NoError(t, err)
		require.NoError(t, reply.Unconfirmed, "nobody asked")

		confirmed := command("k")
		confirmed.Confirm = true
		x.names()
		reply, err = x.run(t.Context(), r, confirmed, nil)
		require.NoError(t, err)
		require.EqualValues(t, 2, reply.Value)
		require.EqualError(t, reply.Unconfirmed, "0 of 1 replicas confirmed within 1s")
		require.Equal(t, []string{"evalsha", "wait"}, x.names())

		confirmed.Args = command("k").Args
		o := x.runAll(t.Context(), r, []redisrun.Command{confirmed})
		require.EqualError(t, o[0].Reply.Unconfirmed, "0 of 1 replicas confirmed within 1s")
	})
}

func TestRunAll(t *testing.T) {
	inBubble(t, redisrun.Replicas{}, func(t *testing.T, x *fixture, r *redisrun.Runner) {
		x.HSet("B", "f", "v")
		all := func(notes ...*redisrun.Note) []outcome {
			return x.runAll(t.Context(), r, []redisrun.Command{command("A"), command("B"), command("C")}, notes...)
		}
		for i := range 2 { // at first, the server does not know the script
			o := all()
			for _, j := range []int{0, 2} {
				require.NoError(t, o[j].Err)
				require.EqualValues(t, 1+i, o[j].Reply.Value)
				require.NoError(t, o[j].Reply.EarlierErr)
				require.False(t, o[j].Reply.Sent.IsZero())
			}
			require.ErrorContains(t, o[1].Err, "WRONGTYPE")
		}
		x.Del("B")
		var note redisrun.Note
		x.loseAnswer()
		for i, o := range all(new(redisrun.Note), &note) {
			require.NoError(t, o.Err)
			require.EqualValues(t, []int{4, 2, 4}[i], o.Reply.Value, "it ran twice")
			require.Equal(t, io.EOF, o.Reply.EarlierErr)
		}
		require.Equal(t, io.EOF, *note.Load())
	})
}

// A command that may be sent only once is not repeated in a pipeline either, unless the server says that it did not
// run.
func TestRunAllOnce(t *testing.T) {
	inBubble(t, redisrun.Replicas{}, func(t *testing.T, x *fixture, r *redisrun.Runner) {
		all := func() []outcome {
			return x.runAll(t.Context(), r, []redisrun.Command{once("A"), command("B"), once("C")})
		}
		for _, o := range all() { // the server does not know the script
			require.NoError(t, o.Err)
			require.EqualValues(t, 1, o.Reply.Value)
			require.NoError(t, o.Reply.EarlierErr, "it did not run before")
		}
		x.loseAnswer()
		o := all()
		for _, i := range []int{0, 2} {
			require.ErrorIs(t, o[i].Err, io.EOF)
			require.True(t, redisrun.IsOutage(o[i].Err))
			require.Len(t, o[i].Reply.Unanswered, 1)
		}
		require.NoError(t, o[1].Err)
		require.EqualValues(t, 3, o[1].Reply.Value, "it ran twice")

		x.setHook(func(_ context.Context, next func() error) error {
			x.setHook(nil)
			err := next()
			x.hang.Store(true)
			time.Sleep(budget.Answers)
			x.hang.Store(false)
			return err
		})
		o = all()
		for _, i := range []int{0, 2} {
			require.Equal(t, redisrun.ErrUnanswered, o[i].Err)
			late, err := o[i].Reply.Unanswered[0].Wait()
			require.NoError(t, err)
			require.EqualValues(t, 3, late.Value)
		}
		require.NoError(t, o[1].Err)
		x.CheckGet(t, "A", "3")
		x.CheckGet(t, "B", "5")
		x.CheckGet(t, "C", "3")
	})
}

// A command that must be repeated delays none of the others.
func TestOutcomesComeAsTheyAreKnown(t *testing.T) {
	inBubble(t, redisrun.Replicas{}, func(t *testing.T, x *fixture, r *redisrun.Runner) {
		require.NoError(t, errOf(x.run(t.Context(), r, command("A"), nil))) // the server knows the script
		x.HSet("B", "f", "v")
		x.HSet("C", "f", "v")
		var calls atomic.Int32
		x.setHook(func(_ context.Context, next func() error) error {
			if calls.Add(1) == 2 { // the first repeat
				time.Sleep(5 * time.Second)
			}
			return next()
		})
		o := x.runAll(t.Context(), r, []redisrun.Command{command("B"), command("C"), command("A")})
		slices.SortFunc(o, func(a, b outcome) int { return cmp.Compare(a.after, b.after) })
		require.Equal(t, []time.Duration{0, 0, 5 * time.Second}, []time.Duration{o[0].after, o[1].after, o[2].after})
		require.Error(t, o[2].Err)
	})
}

// A hook that panics or ends its goroutine does so in the caller.
func TestHooksThatBreak(t *testing.T) {
	inBubble(t, redisrun.Replicas{}, func(t *testing.T, x *fixture, r *redisrun.Runner) {
		all := func() []outcome { return x.runAll(t.Context(), r, []redisrun.Command{command("A")}) }
		x.setHook(func(context.Context, func() error) error { runtime.Goexit(); return nil })
		require.ErrorIs(t, errOf(x.run(t.Context(), r, command("A"), nil)), redisrun.ErrEnded)
		require.ErrorIs(t, all()[0].Err, redisrun.ErrEnded)
		x.setHook(func(context.Context, func() error) error { panic("hook") })
		require.PanicsWithValue(t, "hook", func() { _, _ = x.run(t.Context(), r, command("A"), nil) })
		require.PanicsWithValue(t, "hook", func() { all() })
	})
}

// Panics while some commands are repeated end RunAll only after the other repeats have ended.
func TestPanicsOfRepeats(t *testing.T) {
	inBubble(t, redisrun.Replicas{}, func(t *testing.T, x *fixture, r *redisrun.Runner) {
		var calls atomic.Int32
		x.setHook(func(_ context.Context, next func() error) error {
			switch calls.Add(1) {
			case 1: // the pipeline, whose script the server does not know
				return next()
			case 2, 3:
				panic("hook")
			}
			time.Sleep(time.Second)
			return next()
		})
		var reports atomic.Int32
		require.PanicsWithValue(t, "hook", func() {
			r.RunAll(t.Context(), budgets(3), x.node, []redisrun.Command{command("A"), command("B"), command("C")},
				[]*redisrun.Note{{}, {}, {}}, func(int, redisrun.Reply, error) { reports.Add(1) })
		})
		require.EqualValues(t, 1, reports.Load(), "before it ended")
	})
}

func TestForeign(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	cause := &net.OpError{Op: "dial", Err: ctx.Err()}
	err := fmt.Errorf("wrapped: %w", redisrun.Foreign(cause))
	require.NotErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, cause)
	var network *net.OpError
	require.ErrorAs(t, err, &network)
	require.ErrorContains(t, err, "context canceled")
	require.Equal(t, io.EOF, redisrun.Foreign(io.EOF))
}

func TestNodes(t *testing.T) {
	m := miniredis.RunT(t)
	made := 0
	nodes := func(client redis.UniversalClient) (*redisrun.Runner, *redisrun.Nodes[*redisrun.Node]) {
		t.Cleanup(func() { _ = client.Close() })
		r := redisrun.New(client, redisrun.Replicas{})
		return r, redisrun.NewNodes(r, func(n *redisrun.Node) *redisrun.Node { made++; return n })
	}

	r, _ := nodes(redis.NewClient(&redis.Options{Addr: m.Addr()}))
	node := single(t, r)
	require.Equal(t, 256, node.Together())
	require.False(t, node.OneSlot.Load())

	r, _ = nodes(struct{ redis.UniversalClient }{redis.NewClient(&redis.Options{Addr: m.Addr()})})
	require.Equal(t, 1, single(t, r).Together(), "it may be a Cluster")

	r, cluster := nodes(redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{m.Addr()}}))
	node = cluster.Of(t.Context(), "k")
	require.False(t, node.OneSlot.Load(), "nobody waits to find out the slots")
	require.NotSame(t, node, cluster.Of(t.Context(), "k"), "nothing is cached for it")
	b := budget.New(false)
	require.NoError(t, errOf(r.Run(t.Context(), &b, node, command("k"), nil)))
	made = 0
	node = cluster.Of(t.Context(), "k")
	require.True(t, node.OneSlot.Load())
	require.Same(t, node, cluster.Of(t.Context(), "k"))
	require.Equal(t, 1, made)
}

// leavers are callers who may leave at any time.
type leavers struct{ gone atomic.Bool }

func (l *leavers) Wanted() bool { return !l.gone.Load() }

// A command is not repeated for callers who leave during the pause before it.
func TestNobodyWaitsAfterAPause(t *testing.T) {
	inBubble(t, redisrun.Replicas{}, func(t *testing.T, x *fixture, r *redisrun.Runner) {
		require.NoError(t, errOf(x.run(t.Context(), r, command("A"), nil)))
		x.names()
		var l leavers
		x.setHook(func(context.Context, func() error) error {
			x.setHook(nil)
			time.AfterFunc(time.Millisecond, func() { l.gone.Store(true) }) // the pause is at least 4 ms
			return io.EOF
		})
		c := command("A")
		c.Waiters = &l
		_, _ = x.run(t.Context(), r, c, nil)
		require.Len(t, x.names(), 1)
	})
}

// Hooks of the client see the values of the caller's context, whether the command has a goroutine of its own or, once a
// server has answered, not. Its time is limited in both cases.
func TestValues(t *testing.T) {
	type key struct{}
	inBubble(t, redisrun.Replicas{}, func(t *testing.T, x *fixture, r *redisrun.Runner) {
		var seen []any
		x.hook = func(ctx context.Context, next func() error) error {
			_, limited := ctx.Deadline()
			seen = append(seen, ctx.Value(key{}), limited)
			return next()
		}
		for i := range 3 {
			b := budget.New(true)
			_, err := r.Run(context.WithValue(context.Background(), key{}, i), &b, x.node, command("n"), nil)
			require.NoError(t, err)
		}
		require.Subset(t, seen, []any{0, 1, 2})
		require.NotContains(t, seen, false)
		require.NotContains(t, seen, nil)
	})
}
