package serial_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/redistest"
)

// Whatever holds on miniredis must hold on the servers below.

func TestBehaviourOnServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprintf("RESP%d", protocol), func(t *testing.T) {
			testBehaviour(t, backend{client: func(t *testing.T) redis.UniversalClient {
				opt := server.Options()
				opt.Protocol = protocol
				return closing(t, redis.NewClient(opt))
			}})
		})
	}
}

func TestBehaviourOnCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	testBehaviour(t, backend{client: func(t *testing.T) redis.UniversalClient { return cluster.Client(t) }})

	// The types are spread over all nodes, and the keys of one type are on one node.
	gen := newGenerator(t, cluster.Client(t), serial.WithLocation(noon()))
	for i := range 50 {
		typ := fmt.Sprint("T", i)
		requireResult(t, numbers(typ, today(noon()), 1, 3))(textsOf(gen.NextN(t.Context(), typ, 3)))
	}
	for _, server := range cluster.Servers {
		require.NotZero(t, server.Client(t).DBSize(t.Context()).Val())
	}

	// A client of the caller's own type is not known to be a Cluster's: types then share no script calls.
	gen = newGenerator(t, struct{ *redis.ClusterClient }{cluster.Client(t)}, serial.WithLocation(noon()),
		serial.WithKeyPrefix("own"))
	got := barrier(t, 200, func(i int) (string, error) { return gen.Next(t.Context(), fmt.Sprint("T", i%20)) })
	var want []string
	for i := range 20 {
		want = append(want, numbers(fmt.Sprint("T", i), today(noon()), 1, 10)...)
	}
	require.ElementsMatch(t, want, got)
}

func TestBehaviourThroughSentinel(t *testing.T) {
	t.Parallel()
	sentinel := redistest.StartSentinel(t)
	testBehaviour(t, backend{client: func(t *testing.T) redis.UniversalClient { return sentinel.Client(t) }})

	// After a failover that loses nothing the series goes on; calls may fail for a while.
	loc := noon()
	gen := newGenerator(t, sentinel.Client(t), serial.WithLocation(loc))
	require.NoError(t, errOf(gen.NextN(t.Context(), "IS", 10)))
	require.EqualValues(t, 1, sentinel.Client(t).Do(t.Context(), "WAIT", 1, 5000).Val())
	sentinel.Failover(t)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		got, err := gen.NextNumber(t.Context(), "IS")
		require.NoError(c, err)
		require.Greater(c, got.Seq, int64(10))
	}, 20*time.Second, 50*time.Millisecond)
}

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
			start := time.Now()
			var wg sync.WaitGroup
			for i := range 200 {
				ctx := []context.Context{context.Background(), t.Context()}[i%2]
				wg.Go(func() {
					_, err := gen.Next(ctx, fmt.Sprint("T", i%8))
					assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
					assert.Less(t, time.Since(start), 11*time.Second)
				})
			}
			wg.Wait()
		})
	}
}

// The servers stop while many types are being opened. Each call returns in time all the same, whatever it waits for.
// Guarantees: redis-hangs.
func TestStalledServerWhileManyTypesOpen(t *testing.T) {
	t.Parallel()
	const types = 2000
	var kinds sync.WaitGroup // all at once, whatever -parallel says: they mostly wait
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
			var calls sync.WaitGroup
			for i := range types {
				calls.Go(func() {
					if _, err := gen.Next(context.Background(), fmt.Sprint("T", i)); err == nil && opened.Add(1) == 20 {
						for _, s := range servers {
							s.Pause()
						}
						stopped = time.Now()
					}
				})
			}
			calls.Wait()
			// Queues without a limit took more than 20 s. TestStalledServerAndManyTypes compares to the instant.
			require.Less(t, time.Since(stopped), 16*time.Second)
			require.Less(t, opened.Load(), int32(types/2), "the others were under way")
		}
		kinds.Go(func() { t.Run(kind, stalled) })
	}
	kinds.Wait()
}

// With persistence a restart loses nothing. Without it a generator that remembers its numbers notices the loss.
// Guarantees: restart-with-data.
func TestRestart(t *testing.T) {
	t.Parallel()
	loc := noon()
	for _, kept := range []bool{true, false} {
		t.Run(fmt.Sprintf("kept=%v", kept), func(t *testing.T) {
			t.Parallel()
			args := []string{"--appendonly", "no"}
			if kept {
				args = []string{"--appendonly", "yes", "--appendfsync", "always"}
			}
			server := redistest.Start(t, args...)
			gen := newGenerator(t, server.Client(t), serial.WithLocation(loc))
			require.NoError(t, errOf(gen.NextN(t.Context(), "IS", 5)))
			server.Kill()
			before := time.Now()
			_, err := gen.Next(t.Context(), "IS")
			require.Error(t, err)
			require.NotErrorIs(t, err, context.DeadlineExceeded)
			require.Less(t, time.Since(before), 10*time.Second)
			server.Restart(t)
			require.EventuallyWithT(t, func(c *assert.CollectT) { // go-redis holds dead connections for a moment
				got, err := gen.Next(t.Context(), "IS")
				if kept {
					require.NoError(c, err)
					require.Equal(c, "IS"+today(loc)+"0006", got)
				} else {
					require.ErrorIs(c, err, serial.ErrCounterLost)
				}
			}, 5*time.Second, 10*time.Millisecond)
		})
	}
}

// While the server is stopped, a call returns as soon as its context ends, and within ten seconds if it never ends, whatever
// the client's settings.
// Guarantees: redis-hangs.
func TestStalledServer(t *testing.T) {
	t.Parallel()
	loc := noon()
	var wg sync.WaitGroup // all at once, whatever -parallel says: they mostly wait
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

			// late returns how long after its context's end a call returned. Tests in bubbles compare that to the
			// instant. Here it must be sooner than the client's own time limits, however busy the machine.
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
				before := time.Now()
				_, err := gen.Next(ctx, "IS")
				require.Error(t, err)
				require.NotErrorIs(t, err, context.DeadlineExceeded)
				require.NotErrorIs(t, err, context.Canceled)
				require.Less(t, time.Since(before), 11*time.Second)
			}
		}
		wg.Go(func() { t.Run(name, stalled) })
	}
	wg.Wait()
}

// The commands that docs/operations.md lists for an ACL are enough.
func TestAccessControl(t *testing.T) {
	server := redistest.Start(t)
	_, list, found := strings.Cut(guide(t, "operations.md"), "- An ACL needs ")
	require.True(t, found)
	list, _, _ = strings.Cut(list, " on")
	rules := []any{"ACL", "SETUSER", "issuer", "on", ">secret", "~serial:*", "+@connection"}
	for _, command := range regexp.MustCompile("[A-Z]+").FindAllString(list, -1) {
		rules = append(rules, "+"+strings.ToLower(command))
	}
	require.NoError(t, server.Client(t).Do(t.Context(), rules...).Err())
	opt := server.Options()
	opt.Username, opt.Password = "issuer", "secret"
	rdb := closing(t, redis.NewClient(opt))
	gen := newGenerator(t, rdb)
	for range 2 {
		require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
	}
	require.NoError(t, gen.Raise(t.Context(), "IS", 7))
	require.NoError(t, errOf(gen.Peek(t.Context(), "IS")))
	require.Error(t, rdb.Set(t.Context(), "other", 1, 0).Err())
}

func TestClosedClient(t *testing.T) {
	server := redistest.Start(t)
	rdb := redis.NewClient(server.Options())
	require.NoError(t, rdb.Close())
	require.ErrorIs(t, errOf(newGenerator(t, rdb).Next(t.Context(), "IS")), redis.ErrClosed)
}

// Where nothing listens on the port, a call returns go-redis's error once its attempts have failed.
func TestRefusedConnection(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := listener.Addr().String()
	require.NoError(t, listener.Close())
	rdb := closing(t, redis.NewClient(&redis.Options{Addr: addr}))
	before := time.Now()
	_, err = newGenerator(t, rdb).Next(context.Background(), "IS")
	var refused *net.OpError
	require.ErrorAs(t, err, &refused)
	require.NotErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, time.Since(before), 10*time.Second)
}

// With the lock on three independent masters one may fail. If two fail, only opening a period fails.
func TestRedlock(t *testing.T) {
	t.Parallel()
	counters := redistest.Start(t)
	loc := noon()
	for _, how := range []string{"killed", "stopped"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			var servers []*redistest.Server
			var clients []redis.UniversalClient
			for range 3 {
				server := redistest.Start(t)
				servers = append(servers, server)
				clients = append(clients, server.Client(t))
			}
			fail := func(s *redistest.Server) {
				if how == "killed" {
					s.Kill()
				} else {
					s.Pause()
				}
			}
			gen := newGenerator(t, counters.Client(t), serial.WithLocation(loc), serial.WithLockClients(clients...),
				serial.WithKeyPrefix(how))
			opens := func(typ string) {
				got := barrier(t, 20, func(int) (string, error) { return gen.Next(t.Context(), typ) })
				require.ElementsMatch(t, numbers(typ, today(loc), 1, 20), got)
			}
			opens("ALL")
			for _, client := range clients { // the slowest of the three is not waited for
				require.Eventually(t, func() bool {
					return client.Exists(t.Context(), how+":{ALL}:"+today(loc)+":lock").Val() == 0
				}, lockExpiry/2, time.Millisecond)
			}
			fail(servers[1])
			before := time.Now()
			opens("ONE")
			// By chance two callers may get one of the two servers each. That costs up to 4 s each time: to wait for
			// the third server, and to release. A lock that was never released would cost the others 8 s.
			require.Less(t, time.Since(before), 12*time.Second)

			fail(servers[2])
			before = time.Now()
			_, err := gen.Next(t.Context(), "TWO")
			require.ErrorContains(t, err, "lock servers")
			require.NotErrorIs(t, err, context.DeadlineExceeded)
			require.Less(t, time.Since(before), 11*time.Second)
			require.NoError(t, errOf(gen.Next(t.Context(), "ONE")), "an open period needs no lock")
		})
	}
}

// issueInChild issues and prints numbers if TestProcesses started this process, and reports whether it did.
func issueInChild() bool {
	addr := os.Getenv("SERIAL_TEST_REDIS")
	if addr == "" {
		return false
	}
	hour, _ := strconv.Atoi(os.Getenv("SERIAL_TEST_ZONE"))
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	gen, err := serial.New(rdb, serial.WithLocation(time.FixedZone("noon", hour)))
	if err != nil {
		panic(err)
	}
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n') // the barrier
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			for range 50 {
				number, err := gen.Next(context.Background(), "IS")
				if err != nil {
					panic(err)
				}
				mu.Lock()
				fmt.Println(number)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return true
}

// Six operating-system processes start at the same moment on a missing counter and issue exactly 0001 to 1500.
func TestProcesses(t *testing.T) {
	server := redistest.Start(t)
	loc := noon()
	_, offset := time.Now().In(loc).Zone()
	var cmds [6]*exec.Cmd
	var stdins [len(cmds)]io.Writer
	var outputs [len(cmds)]bytes.Buffer
	for i := range cmds {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "SERIAL_TEST_REDIS="+server.Addr(), fmt.Sprint("SERIAL_TEST_ZONE=", offset))
		cmd.Stdout, cmd.Stderr = &outputs[i], os.Stderr
		stdin, err := cmd.StdinPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		cmds[i], stdins[i] = cmd, stdin
	}
	all := barrier(t, len(cmds), func(i int) (string, error) {
		_, err := stdins[i].Write([]byte("\n"))
		err = errors.Join(err, cmds[i].Wait())
		return outputs[i].String(), err
	})
	got := strings.Fields(strings.Join(all, ""))
	slices.Sort(got)
	require.Equal(t, numbers("IS", today(loc), 1, 1500), got)
}

// What the counters' server refuses is not the fault of lock servers that nobody has. Redis's answers to a client
// without a password, or without a right, do not say so; the errors do.
func TestServerRefuses(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	admin := s.Client(t)
	refused := func(name string, configure func(*redis.Options), says ...string) {
		t.Helper()
		o := s.Options()
		o.MaxRetries, o.Protocol = -1, 2
		configure(o)
		client := redis.NewClient(o)
		defer client.Close()
		gen := newGenerator(t, client, serial.WithLocation(noon()), serial.WithKeyPrefix(name))
		_, err := gen.Next(t.Context(), "IS")
		require.Regexp(t, "^serial: Redis failed: ", err)
		for _, part := range says {
			require.ErrorContains(t, err, part)
		}
		require.NotContains(t, err.Error(), "lock")
		require.NotContains(t, err.Error(), "node #0")
	}
	user := func(name string, rules ...any) func(*redis.Options) {
		require.NoError(t, admin.Do(t.Context(), append([]any{"ACL", "SETUSER", name, "on", ">" + name, "~*", "+@all"},
			rules...)...).Err())
		return func(o *redis.Options) { o.Username, o.Password = name, name }
	}
	const acl = "; an ACL denies this client's user a command or a key that is needed"
	refused("noset", user("noset", "-set"), acl)
	refused("notime", user("notime", "-time"), acl)
	refused("noeval", user("noeval", "-evalsha"), "NOPERM", acl)
	refused("nokeys", user("nokeys", "resetkeys"), "NOPERM", acl)
	refused("wrong", func(o *redis.Options) { o.Username, o.Password = "noset", "guess" }, "WRONGPASS",
		"; this client's user name or password is wrong, or an ACL turns the user off")
	everything := func(*redis.Options) {}
	config := func(name, value string) { require.NoError(t, admin.ConfigSet(t.Context(), name, value).Err()) }
	config("maxmemory", "1")
	refused("full", everything, "OOM")
	config("maxmemory", "0")
	require.NoError(t, admin.Do(t.Context(), "REPLICAOF", "127.0.0.1", "1").Err())
	refused("replica", everything, "READONLY")
	require.NoError(t, admin.Do(t.Context(), "REPLICAOF", "NO", "ONE").Err())
	config("requirepass", "secret")
	defer config("requirepass", "") // admin is logged in already
	refused("open", everything, "; Redis wants a password, and this client has none")
}
