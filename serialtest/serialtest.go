// Package serialtest helps to test code that issues serial numbers. It provides a generator with a Redis in memory,
// whose clock the test sets. Nothing has to be installed, started or closed.
//
//	package orders_test
//
//	import (
//		"testing"
//		"time"
//
//		"github.com/dailyserial/serial/serialtest"
//		"github.com/stretchr/testify/require"
//	)
//
//	func TestOrderNumbers(t *testing.T) {
//		gen, r := serialtest.New(t, time.Date(2021, time.October, 24, 23, 59, 0, 0, time.UTC))
//
//		number, err := gen.Next(t.Context(), "IS")
//		require.NoError(t, err)
//		require.Equal(t, "IS202110240001", number)
//
//		r.Advance(time.Minute) // midnight
//		number, err = gen.Next(t.Context(), "IS")
//		require.NoError(t, err)
//		require.Equal(t, "IS202110250001", number)
//	}
//
// # Recipes
//
// If a service accepts a generator, pass it the generator from [New]. If it creates a generator from a Redis client,
// pass it the result of [Redis.Client], and turn off the generator's check of the clock with [serial.WithMaxSkew].
//
//	A fixed day in UTC           gen, _ := serialtest.New(t, time.Date(2021, time.October, 24, 12, 0, 0, 0, time.UTC))
//	A fixed day elsewhere        gen, _ := serialtest.New(t, noonInShanghai, serial.WithLocation(shanghai))
//	Midnight                     r.SetTime(time.Date(2021, time.October, 25, 0, 0, 0, 0, time.UTC)), or r.Advance(time.Minute)
//	A clock that goes back       r.Advance(-time.Hour)
//	An outage of Redis           r.Stop(), r.Start()
//	Loss of all data             r.Lose()
//	A ledger                     gen, r := serialtest.New(t, now, serial.WithLedger(new(serialtest.Ledger), 100))
//	Numbers that run out         err := gen.Raise(ctx, "IS", 9999)
//	Another process              other, err := serial.New(r.Client(), ...), with the options of the first
//
// # Time
//
// Only Redis's clock determines the day of a number. The clock does not run: it shows the same time until the test
// changes it. So a call that waits for the clock fails after its maximum wait, unless the test sets the clock in the
// meantime. For example, calls return [serial.ErrClockSkew] if the clock is set back to a time before the current
// period. They return this error after 5 s if the clock is behind by at most 5 s, and otherwise immediately.
//
// In a bubble of [testing/synctest], call [New] or [NewRedis] inside the bubble. Redis's clock does not run there
// either. To set it to the bubble's clock, call r.SetTime(time.Now()). Waiting takes no real time in a bubble.
package serialtest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/dailyserial/serial"
)

// New returns a generator for a test, and its Redis in memory, whose clock shows now.
//
// The options are those of [serial.New]. By default, the time zone is UTC, and Redis's clock is not compared with the
// clock of this host ([serial.WithMaxSkew]). If an option is invalid, or if now is zero, the test fails immediately.
// Everything is closed when t ends.
func New(t testing.TB, now time.Time, opts ...serial.Option) (*serial.Generator, *Redis) {
	t.Helper()
	for i, o := range opts {
		if o == nil {
			t.Fatalf("serialtest: option %d of New is nil", i+1)
		}
	}
	r := NewRedis(t, now)
	gen, err := serial.New(r.Client(), append([]serial.Option{serial.WithLocation(time.UTC), serial.WithMaxSkew(-1)},
		opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return gen, r
}

// A Redis is a server in memory for one test. It does not listen on the network. Its clock shows the same time until
// [Redis.SetTime] or [Redis.Advance] changes it. Its methods may be called concurrently with each other and with calls
// of a generator. Their effect is complete when they return.
type Redis struct {
	t testing.TB

	mu      sync.Mutex // guards the fields below, and is held while the server starts or stops; locked before clock
	server  *miniredis.Miniredis
	id      string    // replication ID
	now     time.Time // time of the clock
	stopped bool
	ended   bool // whether t has ended
	clients []*redis.Client

	clock sync.RWMutex // held for writing while the server's clock is set, and for reading while a command runs
}

// NewRedis returns an empty Redis whose clock shows now. It is for services that create their own generator. A
// generator compares Redis's clock with the clock of this host. So unless the two show about the same time, the
// generator needs [serial.WithMaxSkew](-1). If now is zero, the test fails immediately. The Redis and its clients are
// closed when t ends.
func NewRedis(t testing.TB, now time.Time) *Redis {
	t.Helper()
	r := &Redis{t: t}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.renew()
	r.setTime(now)
	r.serve()
	t.Cleanup(r.end)
	return r
}

// Client returns a new client of the Redis. It is a *redis.Client with separate connections, as in another process. The
// test may close it, but need not.
func (r *Redis) Client() redis.UniversalClient {
	c := redis.NewClient(&redis.Options{
		Addr:   "127.0.0.1:6379", // not used, but go-redis would look up a host name
		Dialer: r.dial,
		// go-redis reuses the timers of commands that wait for a connection, and bubbles cannot share timers. With a large
		// pool, no command waits.
		PoolSize: 1000,
		// Stop closes idle connections. After Start, a command on such a connection fails and is sent again, at most three
		// times. So there must be fewer than three idle connections.
		MaxIdleConns: 2,
		// Longer pauses before a command is sent again would not help, because only the test can change the result.
		MinRetryBackoff: time.Millisecond,
		MaxRetryBackoff: 2 * time.Millisecond,
		// Notifications need a goroutine with a ticker, which would be busy in a bubble that sleeps for a year.
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clients = append(r.clients, c)
	return c
}

// SetTime sets Redis's clock, forwards or backwards. As on a real server, this does not change the instants at which
// keys expire. If a key has expired by the new time, it is deleted immediately. If now is zero, the test fails
// immediately, so SetTime must be called in the goroutine of the test.
func (r *Redis) SetTime(now time.Time) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.setTime(now)
}

// Advance sets Redis's clock forward by d, in the same way as [Redis.SetTime]. A negative d sets it back.
func (r *Redis) Advance(d time.Duration) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.setTime(r.now.Add(d))
}

// Stop makes Redis unreachable: it closes all connections, and rejects new ones. Commands that Redis has received are
// executed, but their replies are lost. Calls fail within a fraction of a second. Their errors wrap a *net.OpError and
// syscall.ECONNREFUSED, as if no server were listening. If Redis is stopped already, Stop has no effect.
func (r *Redis) Stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
	r.server.Close()
}

// Start ends the outage that began with [Redis.Stop]. Redis still has its data, except for keys that have expired in
// the meantime, and the first call succeeds. Locks are released, as after an outage of more than 8 seconds. If Redis is
// not stopped, Start has no effect.
func (r *Redis) Start() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.stopped || r.ended {
		return
	}
	r.stopped = false
	r.releaseLocks()
	r.serve()
}

// Lose makes Redis lose all its data, as in a restart without persistence. It closes all connections, deletes all data
// and scripts, and changes the replication ID. It does not change the clock. If Redis is stopped, it stays stopped, and
// will be empty when it starts.
//
// Without a ledger, the calls of a generator that has issued numbers of the period fail with [serial.ErrCounterLost].
// But a new generator, as in a process that has just started, issues the same numbers again. With a [Ledger], no number
// is issued twice.
func (r *Redis) Lose() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.server.Close()
	r.renew()
	r.setTime(r.now)
	if !r.stopped {
		r.serve()
	}
}

// end closes everything when the test has ended. Some goroutines may still try for several seconds to release a lock
// although Redis is stopped. In a bubble, they would never end, because its clock stops when the function of the test
// has returned. Therefore end waits for them.
func (r *Redis) end() {
	r.close()
	if inBubble() {
		time.Sleep(time.Minute)
	}
}

// inBubble reports whether the caller is in a bubble of testing/synctest.
func inBubble() (inside bool) {
	defer func() { inside = recover() == nil }()
	synctest.Wait() // panics outside a bubble
	return true
}

func (r *Redis) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped, r.ended = true, true
	r.server.Close()
	for _, c := range r.clients {
		_ = c.Close() // fails if the test has closed the client
	}
}

// renew replaces the server with an empty server, without starting it. The caller must hold r.mu. This also applies to
// all following functions.
func (r *Redis) renew() {
	id := make([]byte, 20)
	_, _ = rand.Read(id) // cannot fail
	r.id = hex.EncodeToString(id)
	r.server = miniredis.NewMiniRedis()
	r.server.ClockTTL(true)
}

// serve starts the server.
func (r *Redis) serve() {
	r.server.Ctx, r.server.CtxCancel = context.WithCancel(context.Background()) // Close has canceled the old context
	// Dial starts a server that does not listen on the network.
	conn, err := r.server.Dial()
	if err != nil {
		r.t.Fatalf("serialtest: %v", err)
	}
	_ = conn.Close()
	r.server.Server().SetPreHook(r.hook(r.server.Server(), r.id))
}

// hook returns a function that the server calls before each command, including the commands in scripts. The function
// replies to INFO, because miniredis has no replication ID, which a ledger needs to detect a restart. It also prevents
// SetTime from changing the clock while a command runs. Commands that may wait for other commands are an exception,
// because they would block SetTime while they wait.
func (r *Redis) hook(s *server.Server, id string) server.Hook {
	var running sync.Map // for each *server.Peer, whether a command is running; a script has a separate peer
	return func(c *server.Peer, cmd string, args ...string) bool {
		if cmd == "INFO" && (len(args) == 0 || strings.EqualFold(args[0], "replication")) {
			c.WriteBulk(fmt.Sprintf(
				"# Replication\r\nrole:master\r\nconnected_slaves:0\r\nmaster_replid:%s\r\nmaster_repl_offset:0\r\n", id))
			return true
		}
		runs, known := running.Load(c)
		script := !known && c.Ctx != nil // a new connection has no context yet
		// waits is true for all commands that may wait, such as BLPOP, and for some that never wait.
		waits := strings.HasPrefix(cmd, "B") || strings.HasPrefix(cmd, "XREAD")
		if script && cmd == "TIME" { // miniredis would count nanoseconds, which overflow in 2262
			c.WriteLen(2)
			c.WriteBulk(strconv.FormatInt(r.now.Unix(), 10))
			c.WriteBulk(strconv.Itoa(r.now.Nanosecond() / 1000))
			return true
		}
		if script || waits || runs == true {
			return false
		}
		if !known {
			c.OnDisconnect(func() { running.Delete(c) })
		}
		running.Store(c, true)
		defer running.Store(c, false)
		r.clock.RLock()
		defer r.clock.RUnlock()
		s.Dispatch(c, append([]string{cmd}, args...))
		return true
	}
}

// setTime sets the server's clock and r.now.
func (r *Redis) setTime(now time.Time) {
	r.t.Helper()
	if now.IsZero() {
		r.t.Fatal("serialtest: the time is zero")
	}
	r.clock.Lock()
	defer r.clock.Unlock()
	now = now.Round(0) // without the monotonic clock
	r.server.SetTime(now)
	if back := r.now.Sub(now); !r.now.IsZero() && back > 0 {
		// A real server stores the instant at which a key expires, but miniredis stores the remaining time.
		for _, key := range r.server.Keys() {
			if limit := math.MaxInt64 - back; r.server.TTL(key) > limit { // FastForward would overflow with a longer time
				r.server.SetTTL(key, limit)
			}
		}
		r.server.FastForward(-back)
	}
	r.now = now
	r.server.DB(0) // deletes expired keys, which would otherwise exist again after the clock is set back
}

// lockKey matches the key of a period's lock. The third part of this key is the label of the period, which begins with
// the year or is "all". The key of a stored answer can also end with ":lock", because it ends with a request ID, but
// its third part is "once".
var lockKey = regexp.MustCompile(`^[^{}]+:\{[^{}]+\}:(\d\w*|all):lock$`)

// releaseLocks deletes the locks of generators. They would never expire, because the clock does not run.
func (r *Redis) releaseLocks() {
	for _, key := range r.server.Keys() {
		if lockKey.MatchString(key) {
			r.server.Del(key)
		}
	}
}
