package serial_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/race"
	"github.com/dailyserial/serial/internal/redistest"
)

// While the server hangs, many callers of many types all return in time, with the reason.
// Guarantees: redis-hangs.
func TestStalledServerUnderLoad(t *testing.T) {
	t.Parallel()
	for _, read := range []time.Duration{0, -1} {
		t.Run(fmt.Sprintf("read timeout %v", read), func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			opt := server.Options()
			opt.ReadTimeout = read
			gen := newGenerator(t, closing(t, redis.NewClient(opt)), serial.WithLocation(noon()))
			for typ := range 8 {
				require.NoError(t, errOf(gen.Next(t.Context(), fmt.Sprint("T", typ))))
			}
			server.Pause()
			inTenSeconds(t, func() {
				var wg sync.WaitGroup
				for i := range 200 {
					ctx := []context.Context{context.Background(), t.Context()}[i%2]
					wg.Go(func() {
						_, err := gen.Next(ctx, fmt.Sprint("T", i%8))
						assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
					})
				}
				wg.Wait()
			})
		})
	}
}

// The servers stop while many types are being opened. Each call still returns in time, whatever it waits for.
// Guarantees: redis-hangs.
func TestStalledServerWhileManyTypesOpen(t *testing.T) {
	t.Parallel()
	var kinds sync.WaitGroup // all at once, regardless of -parallel: they mostly wait
	for _, kind := range []string{"plain", "embedded", "lock clients", "floor"} {
		stalled := func(t *testing.T) {
			var servers []*redistest.Server
			client := func() *redis.Client {
				servers = append(servers, redistest.Start(t))
				return servers[len(servers)-1].Client(t)
			}
			rdb, opts := redis.UniversalClient(client()), options(serial.WithLocation(noon()))
			switch kind {
			case "embedded":
				rdb = struct{ *redis.Client }{rdb.(*redis.Client)}
			case "lock clients":
				opts = append(opts, serial.WithLockClients(client(), client(), client()))
			case "floor":
				opts = append(opts, fixedFloor(5))
			}
			gen := newGenerator(t, rdb, opts...)
			var opened atomic.Int32
			var stopped time.Time
			var limit func() time.Duration
			var calls sync.WaitGroup
			for i := range manyTypes {
				calls.Go(func() {
					if _, err := gen.Next(context.Background(), fmt.Sprint("T", i)); err == nil && opened.Add(1) == 20 {
						for _, s := range servers {
							s.Pause()
						}
						stopped, limit = time.Now(), tenSeconds()
					}
				})
			}
			calls.Wait()
			took := time.Since(stopped)
			// Queues without a limit took more than 20 s. TestStalledServerAndManyTypes checks the exact instant.
			require.NotZero(t, stopped, "twenty were opened before")
			require.Less(t, took, limit()*8/5)
			require.Less(t, opened.Load(), int32(manyTypes*9/10), "the others were in progress")
		}
		kinds.Go(func() { t.Run(kind, stalled) })
	}
	kinds.Wait()
}

// While the server is stopped, a call returns as soon as its context ends, or within ten seconds if it never ends,
// whatever the client's settings.
// Guarantees: redis-hangs.
func TestStalledServer(t *testing.T) {
	t.Parallel()
	loc := noon()
	var wg sync.WaitGroup // all at once, regardless of -parallel: they mostly wait
	for name, set := range map[string]func(*redis.Options){
		"defaults":              func(*redis.Options) {},
		"ContextTimeoutEnabled": func(o *redis.Options) { o.ContextTimeoutEnabled = true },
		"no read timeout":       func(o *redis.Options) { o.ReadTimeout = -1 },
		"no deadlines":          func(o *redis.Options) { o.ReadTimeout, o.WriteTimeout = -2, -2 },
		"long read timeout":     func(o *redis.Options) { o.ReadTimeout = time.Minute },
		"short read timeout":    func(o *redis.Options) { o.ReadTimeout = 1500 * time.Millisecond },
		"one connection":        func(o *redis.Options) { o.PoolSize = 1 },
		"no retries":            func(o *redis.Options) { o.MaxRetries = -1 },
	} {
		stalled := func(t *testing.T) {
			server := redistest.Start(t)
			opt := server.Options()
			set(opt)
			rdb := closing(t, redis.NewClient(opt))
			gen := newGenerator(t, rdb, serial.WithLocation(loc))
			require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
			server.Pause()

			// late returns how long after its context's end a call returned. Tests in bubbles check the exact instant.
			// Here it must be sooner than the client's own time limits, however busy the machine.
			late := func(ctx context.Context, call func() error, want error) time.Duration {
				ended := make(chan time.Time, 1)
				context.AfterFunc(ctx, func() { ended <- time.Now() })
				require.ErrorIs(t, call(), want)
				returned := time.Now()
				return returned.Sub(<-ended)
			}
			for _, limit := range []time.Duration{50 * time.Millisecond, 300 * time.Millisecond} {
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				next := func() error { return errOf(gen.Next(ctx, "IS")) }
				require.InDelta(t, 0, late(ctx, next, context.DeadlineExceeded), float64(time.Second))
				cancel()
			}
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(100*time.Millisecond, cancel)
			next := func() error { return errOf(gen.NextN(ctx, "NEW", 3)) }
			require.InDelta(t, 0, late(ctx, next, context.Canceled), float64(time.Second))

			endless, cancel := context.WithCancel(t.Context())
			defer cancel()
			for _, ctx := range []context.Context{context.Background(), endless} {
				var err error
				inTenSeconds(t, func() { _, err = gen.Next(ctx, "IS") })
				require.Error(t, err)
				require.NotErrorIs(t, err, context.DeadlineExceeded)
				require.NotErrorIs(t, err, context.Canceled)
			}
		}
		wg.Go(func() { t.Run(name, stalled) })
	}
	wg.Wait()
}

// inTime is the longest that a call without a deadline may take if servers are slow, and a little more.
const inTime = 10*time.Second + 100*time.Millisecond

// A line is the network between a client and a simulation.
type line struct {
	mu    sync.Mutex
	steps []time.Duration // durations of the next steps; a step is a dial or a reply
	delay time.Duration   // duration of every step after them
}

// slow sets the durations of the next steps, and delay for those after them.
func (l *line) slow(delay time.Duration, steps ...time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay, l.steps = delay, steps
}

// step returns when the step that begins now is over.
func (l *line) step() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	delay := l.delay
	if len(l.steps) > 0 {
		delay, l.steps = l.steps[0], l.steps[1:]
	}
	return time.Now().Add(delay)
}

// client returns a client of s, with a pool in which no caller waits: go-redis keeps the timers of those who do for the
// next one, in whichever bubble that is.
func (l *line) client(s *simulation, read time.Duration) *redis.Client {
	return closing(s.t, redis.NewClient(&redis.Options{
		Addr:        "127.0.0.1:6379",
		PoolSize:    2 * manyTypes,
		ReadTimeout: read,
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			time.Sleep(time.Until(l.step()))
			server, err := s.Dial()
			if err != nil {
				return nil, err
			}
			client, end := net.Pipe()
			go l.forward(server, end, time.Now)
			go l.forward(end, server, l.step)
			return client, nil
		},
	}))
}

// forward delivers data from src to dst when its step is over. It reads on meanwhile, as a network does: miniredis
// holds a lock while it writes.
func (l *line) forward(dst, src net.Conn, step func() time.Time) {
	type packet struct {
		data []byte
		due  time.Time
	}
	packets := make(chan packet, 1000)
	go func() {
		defer func() { _ = src.Close() }()
		for p := range packets {
			time.Sleep(time.Until(p.due))
			if _, err := dst.Write(p.data); err != nil {
				_ = src.Close() // ends the loop below
			}
		}
		_ = dst.Close()
	}()
	defer close(packets)
	for {
		buffer := make([]byte, 16<<10)
		n, err := src.Read(buffer)
		if err != nil {
			return
		}
		packets <- packet{buffer[:n], step()}
	}
}

// stale is the idle time after which a pool replaces a connection, which happens only when the connection is needed.
const stale = 31 * time.Minute

// However long it takes to replace a connection, that does not count as a pause of this process.
func TestSlowServerAndStaleConnections(t *testing.T) {
	calls := map[string]func(ctx context.Context, gen *serial.Generator, typ string) error{
		"Next": func(ctx context.Context, gen *serial.Generator, typ string) error { return errOf(gen.Next(ctx, typ)) },
		"NextOnce": func(ctx context.Context, gen *serial.Generator, typ string) error {
			return errOf(gen.NextOnce(ctx, typ, "1"))
		},
		"Raise": func(ctx context.Context, gen *serial.Generator, typ string) error { return gen.Raise(ctx, typ, 8) },
		"Peek":  func(ctx context.Context, gen *serial.Generator, typ string) error { return errOf(gen.Peek(ctx, typ)) },
	}
	step := 200 * time.Millisecond
	if !redistest.Long() {
		step = 800 * time.Millisecond
		t.Log("three of four delays are left out without SERIAL_TEST_LONG=1")
	}
	var late []string
	for name, call := range calls {
		for _, read := range []time.Duration{0, 3 * time.Second, 4900 * time.Millisecond, -1} { // 0 is go-redis's own, 5 s
			for delay := 500 * time.Millisecond; delay < 6*time.Second; delay += step {
				for _, typ := range []string{"open", "new"} {
					for _, endless := range []bool{true, false} {
						race.Bubble(t, func(t *testing.T) {
							var l line
							gen := newGenerator(t, l.client(simulate(t), read))
							require.NoError(t, errOf(gen.Next(t.Context(), "open")))
							time.Sleep(stale)
							ctx := context.Background()
							if !endless {
								var cancel func()
								ctx, cancel = context.WithCancel(ctx)
								defer cancel()
							}
							l.slow(delay)
							began := time.Now()
							err := call(ctx, gen, typ)
							if took := time.Since(began); took > inTime {
								late = append(late, fmt.Sprintf("%s of %q: read timeout %v, replies after %v, endless context %v: %v, %v",
									name, typ, read, delay, endless, took, err))
							}
							time.Sleep(time.Minute) // for abandoned commands
						})
					}
				}
			}
		}
	}
	require.Empty(t, late)
}

// Whichever step of replacing a connection is slow, a caller that waits for Redis in its own goroutine also returns:
// once the server answers others at once, it waits for one more reply.
func TestSlowStepsOfAStaleConnection(t *testing.T) {
	const readTimeout = 5 * time.Second // go-redis's own
	delays := []time.Duration{0, 4300 * time.Millisecond, 4900 * time.Millisecond}
	var late []string
	for k := range 3 * 3 * 3 * 3 * 3 {
		race.Bubble(t, func(t *testing.T) {
			var l line
			gen := newGenerator(t, l.client(simulate(t), 0))
			require.NoError(t, errOf(gen.Next(context.Background(), "IS")))
			time.Sleep(stale)
			var steps []time.Duration
			for n := k; len(steps) < 5; n /= 3 {
				steps = append(steps, delays[n%3])
			}
			l.slow(0, steps...)
			began := time.Now()
			_, err := gen.Next(context.Background(), "IS")
			if took := time.Since(began); took > inTime+readTimeout {
				late = append(late, fmt.Sprintf("%v: %v, %v", steps, took, err))
			}
			time.Sleep(time.Minute)
		})
	}
	require.Empty(t, late)
}

// The time for which a caller waits for another caller does not count as its own, but no call takes longer than 30 s.
// The first caller waits for no other. (It may wait for one more read timeout if it sends a command itself.)
func TestSlowServerForMany(t *testing.T) {
	var late []string
	for _, ledger := range []bool{false, true} {
		for _, callers := range []int{2, 10} {
			for _, delay := range []time.Duration{2900 * time.Millisecond, 4500 * time.Millisecond, 6 * time.Second,
				50 * time.Second} {
				for quick := range 9 { // replies
					inBubble(t, func(t *testing.T, m *simulation) {
						opts := append(ledgerIf(ledger, 10), serial.WithLocation(time.UTC))
						_, err := newGenerator(t, m.Client(), opts...).Next(t.Context(), "OTHER") // the server knows the scripts
						require.NoError(t, err)
						var l line
						rdb := l.client(m, 0)
						require.NoError(t, rdb.Ping(t.Context()).Err())
						gen := newGenerator(t, rdb, opts...)
						l.slow(delay, make([]time.Duration, quick)...)
						var wg sync.WaitGroup
						var mu sync.Mutex
						began := time.Now()
						for i := range callers {
							limit := 30*time.Second + 100*time.Millisecond
							if i == 0 {
								limit = inTime + 5*time.Second
							}
							wg.Go(func() {
								_, err := gen.Next(context.Background(), "IS")
								if took := time.Since(began); took > limit {
									mu.Lock()
									defer mu.Unlock()
									late = append(late, fmt.Sprintf("ledger %v, %d callers, replies after %v but %d: %v, %v", ledger, callers,
										delay, quick, took, err))
								}
							})
							synctest.Wait()
						}
						wg.Wait()
						time.Sleep(3 * time.Minute)
					})
				}
			}
		}
	}
	require.Empty(t, late)
}

// servers are a generator's servers. All of them may be slow at once.
type servers struct {
	lines []*line
	sent  atomic.Int64 // scripts and locks, without releases

	hangsAt string    // the stage of openings at which they hang; each type gets there
	reached time.Time // when all types have reached it
}

// client returns a client of a new server.
func (n *servers) client(t *testing.T) *redis.Client {
	l := new(line)
	n.lines = append(n.lines, l)
	c := l.client(simulate(t), 0)
	require.NoError(t, c.Ping(t.Context()).Err()) // go-redis makes its first connection under a lock
	c.AddHook(everyCall(func(cmds []redis.Cmder, send func() error) error {
		for _, cmd := range cmds {
			stage := stageOf(cmd)
			if stage != "" {
				n.sent.Add(1)
			}
			if stage != "" && stage == n.hangsAt {
				time.Sleep(time.Until(n.reached))
				n.slow(time.Hour)
			}
		}
		return send()
	}))
	return c
}

// slow makes every server answer after d.
func (n *servers) slow(d time.Duration) {
	for _, l := range n.lines {
		l.slow(d)
	}
}

// requireNothingSent requires that nothing is sent any more, and lets what hangs end.
func (n *servers) requireNothingSent(t *testing.T) {
	t.Helper()
	synctest.Wait() // for what was sent at this very moment
	sent := n.sent.Load()
	time.Sleep(time.Minute)
	require.Equal(t, sent, n.sent.Load(), "sent for nobody")
	time.Sleep(2 * time.Hour)
}

// stageOf returns the stage of an opening that a command is sent at, "" for none. The server knows the scripts.
func stageOf(cmd redis.Cmder) string {
	switch {
	case cmd.Name() == "set":
		return "lock"
	case cmd.Name() != "evalsha":
		return ""
	case isOpen(cmd):
		return "open"
	case slices.ContainsFunc(cmd.Args(), func(arg any) bool {
		options, _ := arg.(string)
		return strings.Contains(options, `"all":true`)
	}):
		return "look again"
	}
	return "take"
}

// generator returns a generator with a kind of client. The servers know its scripts.
func (n *servers) generator(t *testing.T, kind string) *serial.Generator {
	server := n.client(t)
	rdb, opts := redis.UniversalClient(server), options(serial.WithLocation(time.UTC))
	switch kind {
	case "embedded":
		rdb = struct{ *redis.Client }{server}
	case "cluster":
		rdb = closing(t, redis.NewClusterClient(&redis.ClusterOptions{
			NewClient: func(*redis.Options) *redis.Client { return server },
			ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
				return []redis.ClusterSlot{{End: 16383, Nodes: []redis.ClusterNode{{Addr: "127.0.0.1:6379"}}}}, nil
			},
		}))
	case "lock clients":
		opts = append(opts, serial.WithLockClients(n.client(t), n.client(t), n.client(t)))
	case "floor":
		opts = append(opts, fixedFloor(5))
	}
	gen := newGenerator(t, rdb, opts...)
	require.NoError(t, errOf(gen.Next(t.Context(), "OTHER")))
	synctest.Wait() // for the lock server that was not needed for a majority
	return gen
}

// nextOfMany calls Next for each of n types at once. It returns an error if any call failed, whether all of them did,
// and how long the longest took.
func nextOfMany(ctx context.Context, gen *serial.Generator, types int) (took time.Duration, err error, all bool) {
	var mu sync.Mutex
	var calls sync.WaitGroup
	failed, began := 0, time.Now()
	for i := range types {
		calls.Go(func() {
			_, failure := gen.Next(ctx, fmt.Sprint("T", i))
			mu.Lock()
			defer mu.Unlock()
			if failure != nil {
				failed, err = failed+1, failure
			}
		})
	}
	calls.Wait()
	return time.Since(began), err, failed == types
}

// manyTypes are more than can be sent to a hanging server in 10 s. With the race detector, that many need a minute of
// CPU time.
var manyTypes = func() int {
	if race.Enabled {
		return 500
	}
	return 2000
}()

// Whichever stage of openings a server hangs at, each call for one of many types ends in time, and nothing is sent for
// it afterwards.
//
// Guarantees: redis-hangs.
func TestStalledServerAndManyTypes(t *testing.T) {
	for _, kind := range []string{"plain", "embedded", "cluster", "lock clients", "floor"} {
		for _, stage := range []string{"open already", "take", "lock", "look again", "open"} {
			switch {
			case stage == "look again" && kind != "floor":
				continue
			case !redistest.Long() && (kind != "embedded" || stage == "open already"):
				continue
			}
			t.Run(kind+", "+stage, func(t *testing.T) {
				race.Bubble(t, func(t *testing.T) {
					var n servers
					gen := n.generator(t, kind)
					if stage == "open already" {
						_, err, _ := nextOfMany(context.Background(), gen, manyTypes)
						require.NoError(t, err)
						n.slow(time.Hour)
					} else {
						n.hangsAt, n.reached = stage, time.Now().Add(time.Second)
					}
					took, err, all := nextOfMany(context.Background(), gen, manyTypes)
					require.True(t, all)
					require.NotErrorIs(t, err, context.DeadlineExceeded)
					require.LessOrEqual(t, took, inTime)
					n.requireNothingSent(t)
				})
			})
		}
	}
}

// A slow lock server is not mistaken for other processes at work: a lock that it grants after its expiry is useless,
// but nobody else has it.
func TestSlowLockServerAndManyTypes(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		var n, locks servers
		var quick atomic.Bool
		var once sync.Once
		client := locks.client(t)
		client.AddHook(everyCall(func(cmds []redis.Cmder, send func() error) error {
			if quick.Load() && cmds[0].Name() == "set" {
				once.Do(func() { time.AfterFunc(time.Millisecond, func() { locks.slow(time.Hour) }) })
			}
			return send()
		}))
		gen := newGenerator(t, n.client(t), serial.WithLocation(time.UTC), serial.WithLockClients(client))
		require.NoError(t, errOf(gen.Next(t.Context(), "OTHER")))
		locks.slow(600 * time.Millisecond)
		time.AfterFunc(8*time.Second, func() {
			quick.Store(true)
			locks.slow(0)
		})
		took, _, all := nextOfMany(context.Background(), gen, manyTypes)
		require.False(t, all, "some locks were granted in time")
		require.LessOrEqual(t, took, inTime)
		time.Sleep(3 * time.Hour)
	})
}

// Commands of callers that have left are no longer sent.
func TestManyCallersLeaveAStalledServer(t *testing.T) {
	for _, kind := range []string{"plain", "embedded"} {
		for _, stage := range []string{"take", "lock"} {
			t.Run(kind+", "+stage, func(t *testing.T) {
				race.Bubble(t, func(t *testing.T) {
					var n servers
					gen := n.generator(t, kind)
					n.hangsAt, n.reached = stage, time.Now().Add(time.Second)
					ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
					defer cancel()
					took, err, all := nextOfMany(ctx, gen, manyTypes)
					require.True(t, all)
					require.ErrorIs(t, err, context.DeadlineExceeded)
					require.Equal(t, 2*time.Second, took)
					n.requireNothingSent(t)
				})
			})
		}
	}
}

// Types that wait for a hanging server on both sides of midnight do not wait for each other.
func TestStalledServerAtMidnight(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		var n servers
		gen := n.generator(t, "plain")
		time.Sleep(24*time.Hour - 2*time.Millisecond) // after midnight
		n.slow(time.Hour)
		began := time.Now()
		var calls sync.WaitGroup
		for i := range 20 {
			calls.Go(func() { // the first one is in flight, and gives up its place 5 ms later
				_, err := gen.Next(context.Background(), fmt.Sprint("T", i))
				require.True(t, errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, redis.ErrPoolTimeout), "%v", err)
			})
			time.Sleep(200 * time.Microsecond)
		}
		calls.Wait()
		require.LessOrEqual(t, time.Since(began), inTime)
		time.Sleep(2 * time.Hour)
	})
}

// However many types wait for a hanging server, calls end in time.
func TestStalledServerAndVeryManyTypes(t *testing.T) {
	if !redistest.Long() {
		t.Skip("60,000 calls are left out without SERIAL_TEST_LONG=1")
	}
	race.Bubble(t, func(t *testing.T) {
		var n servers
		gen := n.generator(t, "plain")
		n.slow(time.Hour)
		took, err, all := nextOfMany(context.Background(), gen, 60_000)
		require.True(t, all)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.LessOrEqual(t, took, inTime)
		time.Sleep(2 * time.Hour)
	})
}

// Many types are opened at once on a distant, healthy server: waiting for others costs nothing of a call's time for the
// lock.
func TestFarServerAndManyTypes(t *testing.T) {
	for _, kind := range []string{"plain", "embedded", "cluster", "lock clients", "floor"} {
		if kind != "embedded" && !redistest.Long() { // the others need as long
			continue
		}
		t.Run(kind, func(t *testing.T) {
			race.Bubble(t, func(t *testing.T) {
				var n servers
				gen := n.generator(t, kind)
				n.slow(100 * time.Millisecond)
				took, err, _ := nextOfMany(context.Background(), gen, manyTypes)
				require.NoError(t, err)
				require.Less(t, took, 8*time.Second)
				time.Sleep(time.Minute)
			})
		})
	}
}

// Even in periods too short for a lock, a call returns as soon as its context ends.
func TestOpeningASecondEndsWithItsContext(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		rdb := m.Client()
		var hangs atomic.Bool
		rdb.AddHook(everyCall(func(cmds []redis.Cmder, send func() error) error {
			if isOpen(cmds[0]) && hangs.Load() {
				time.Sleep(time.Hour)
			}
			return send()
		}))
		gen := newGenerator(t, rdb, serial.WithPeriod(serial.PerSecond),
			serial.WithTemplate("{type}{date:yyyyMMddHHmmss}{seq:4}"))
		require.NoError(t, errOf(gen.Next(t.Context(), "OTHER")))
		hangs.Store(true)
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
				defer cancel()
				began := time.Now()
				require.ErrorIs(t, errOf(gen.Next(ctx, fmt.Sprint("T", i))), context.DeadlineExceeded)
				require.Equal(t, 300*time.Millisecond, time.Since(began))
			})
		}
		wg.Wait()
		time.Sleep(2 * time.Hour)
	})
}

// A call that waits for the server's clock to catch up charges that to its time.
func TestSlowServerWhoseClockWasSetBack(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		var l line
		gen := newGenerator(t, l.client(m, 0), serial.WithLocation(time.UTC))
		midnight := time.Date(2000, 1, 2, 0, 0, 0, 0, time.UTC)
		time.Sleep(time.Until(midnight.Add(time.Minute)))
		require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
		for _, ctx := range []context.Context{context.Background(), t.Context()} {
			m.SetTime(midnight.Add(-4 * time.Second))
			time.AfterFunc(time.Second, func() { l.slow(time.Hour) })
			began := time.Now()
			require.ErrorIs(t, errOf(gen.Next(ctx, "IS")), os.ErrDeadlineExceeded)
			require.LessOrEqual(t, time.Since(began), inTime)
			l.slow(0)
			time.Sleep(2 * time.Hour)
		}
	})
}

// Lock servers that do not answer do not indicate that another holds the lock: no caller's time starts again because
// another caller's attempt failed.
func TestLockServersHangForMany(t *testing.T) {
	_, _ = net.LookupHost("localhost") // whose first use must not be in a bubble
	for _, callers := range []int{1, 2, 10, 100} {
		for _, delay := range []time.Duration{2900 * time.Millisecond, 6 * time.Second, 50 * time.Second} {
			race.Bubble(t, func(t *testing.T) {
				var locks []redis.UniversalClient
				for range 3 {
					var l line
					client := l.client(simulate(t), 0)
					require.NoError(t, client.Ping(t.Context()).Err())
					l.slow(delay)
					locks = append(locks, client)
				}
				gen := newGenerator(t, simulate(t).Client(), serial.WithLockClients(locks...))
				began := time.Now()
				var wg sync.WaitGroup
				for range callers {
					wg.Go(func() {
						_, err := gen.Next(t.Context(), "IS")
						if err == nil || time.Since(began) > inTime {
							t.Errorf("one of %d callers, of lock servers that answer after %v: %v, %v", callers, delay,
								time.Since(began), err)
						}
					})
				}
				wg.Wait()
				time.Sleep(2 * time.Minute)
			})
		}
	}
}

// An attempt that gets no connection has sent nothing: no answer is lost, and the error names what was missing.
func TestNoConnection(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	require.NoError(t, errOf(newGenerator(t, server.Client(t), serial.WithLocation(noon())).Next(t.Context(), "OTHER")))
	starved := func(wait time.Duration) func(t *testing.T) *redis.Client {
		return func(t *testing.T) *redis.Client {
			o := server.Options()
			o.PoolSize, o.PoolTimeout = 1, wait
			rdb := closing(t, redis.NewClient(o))
			go rdb.BLPop(context.Background(), 15*time.Second, t.Name()) // holds the only connection
			require.Eventually(t, func() bool {
				stats := rdb.PoolStats()
				return stats.TotalConns == 1 && stats.IdleConns == 0
			}, 5*time.Second, time.Millisecond)
			return rdb
		}
	}
	dialing := func(dial func(ctx context.Context) error) func(t *testing.T) *redis.Client {
		return func(t *testing.T) *redis.Client {
			dialer := func(ctx context.Context, _, _ string) (net.Conn, error) {
				return nil, &net.OpError{Op: "dial", Err: dial(ctx)}
			}
			return closing(t, redis.NewClient(&redis.Options{Dialer: dialer, DialerRetries: 1}))
		}
	}
	for name, row := range map[string]struct {
		client func(t *testing.T) *redis.Client
		says   string
		soon   bool // the failure comes before the deadline
	}{
		"pool":         {starved(time.Second), redis.ErrPoolTimeout.Error(), true},
		"patient pool": {starved(time.Minute), redis.ErrPoolTimeout.Error(), false},
		"refused dial": {dialing(func(context.Context) error { return errBoom }), "boom", true},
		"dial hangs":   {dialing(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }), "no connection", false},
	} {
		for _, limit := range []time.Duration{0, 2 * time.Second, time.Minute} {
			t.Run(fmt.Sprint(name, limit), func(t *testing.T) {
				t.Parallel()
				reports, ctx := &explanations{}, context.Background()
				if limit > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, limit)
					defer cancel()
				}
				gen := newGenerator(t, row.client(t), serial.WithLocation(noon()), reports.hooks())
				_, err := gen.Next(ctx, "IS")
				require.Error(t, err)
				if limit != 2*time.Second || row.soon {
					require.ErrorContains(t, err, row.says)
				}
				require.NotContains(t, err.Error(), "no answer in time")
				require.Empty(t, reports.flushed(t, gen))
			})
		}
	}
}

// A call that gave up names the last refusal that it got, whatever it was waiting for when its time was over.
func TestRefusalBeforeTheDeadline(t *testing.T) {
	const refusal = "READONLY You can't write against a read only replica."
	for name, refused := range map[string]func(cmd string, args []string) bool{
		"lock": func(cmd string, _ []string) bool { return cmd == "SET" },
		"opening": func(cmd string, args []string) bool {
			return strings.HasPrefix(cmd, "EVAL") && strings.Contains(args[len(args)-1], `"grant":`)
		},
		"take": func(cmd string, _ []string) bool { return strings.HasPrefix(cmd, "EVAL") },
	} {
		runBoth(t, name+", several callers", func(t *testing.T, m *simulation, several bool) {
			m.Server().SetPreHook(func(c *server.Peer, cmd string, args ...string) bool {
				if refused(cmd, args) {
					c.WriteError(refusal)
					return true
				}
				return false
			})
			defer time.Sleep(time.Minute) // until all that was begun has ended
			gen := newGenerator(t, m.Client(), serial.WithLocation(time.UTC))
			callers := 1
			if several {
				callers = 5
			}
			var all sync.WaitGroup
			for i := range callers {
				all.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second+time.Duration(i)*10*time.Millisecond)
					defer cancel()
					_, err := gen.Next(ctx, "IS")
					require.ErrorIs(t, err, context.DeadlineExceeded)
					require.ErrorContains(t, err, "before that: ")
					require.ErrorContains(t, err, refusal)
					require.Equal(t, 1, strings.Count(err.Error(), "give the client the master's address"), "%v", err)
				})
			}
			all.Wait()
		})
	}
}

// One of two proxies in front of the server answers slowly, though within the client's read timeout. A call without a
// deadline ends in its ten seconds, whichever proxy its connections lead to.
func TestOneOfTwoProxiesIsSlow(t *testing.T) {
	for _, delay := range []time.Duration{2400 * time.Millisecond, 2700 * time.Millisecond, 2900 * time.Millisecond} {
		for _, first := range []int64{0, 1} { // the proxy of the first connection
			for _, ledger := range []bool{false, true} {
				t.Run(fmt.Sprint(delay, first, ledger), func(t *testing.T) {
					inBubble(t, func(t *testing.T, m *simulation) {
						var proxies [2]line
						proxies[0].slow(delay)
						clients := []*redis.Client{proxies[0].client(m, 0), proxies[1].client(m, 0)}
						var dialled atomic.Int64
						dialled.Store(first)
						o := *clients[0].Options()
						o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
							return clients[dialled.Add(1)%2].Options().Dialer(ctx, network, addr)
						}
						rdb := closing(t, redis.NewClient(&o))
						gen := newGenerator(t, rdb, append(ledgerIf(ledger, 1), serial.WithLocation(time.UTC))...)
						for i := range 6 {
							began := time.Now()
							_, err := gen.Next(context.Background(), fmt.Sprint("T", i/2))
							require.LessOrEqual(t, time.Since(began), inTime, "call %d: %v", i, err)
						}
						time.Sleep(time.Minute)
					})
				})
			}
		}
	}
}
