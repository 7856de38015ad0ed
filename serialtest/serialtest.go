// Package serialtest helps test code that issues serial numbers. It provides a generator on a Redis in memory whose
// clock the test sets. Nothing has to be installed, started or closed.
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
// If a service takes a generator, pass it the one from [New]. If it makes its own from a Redis client, pass it a
// [Redis.Client] from [NewRedis], and turn off its check of the clock; see [serial.WithMaxSkew].
//
//	A fixed day, in UTC          gen, _ := serialtest.New(t, time.Date(2021, time.October, 24, 12, 0, 0, 0, time.UTC))
//	A fixed day, elsewhere       gen, _ := serialtest.New(t, noonInShanghai, serial.WithLocation(shanghai))
//	A midnight                   r.SetTime(time.Date(2021, time.October, 25, 0, 0, 0, 0, time.UTC)), or r.Advance(time.Minute)
//	A clock that goes back       r.Advance(-time.Hour)
//	Redis down, and back         r.Stop(), r.Start()
//	Redis empty                  r.Lose()
//	Redis empty, with a ledger   gen, r := serialtest.New(t, now, serial.WithLedger(new(serialtest.Ledger), 100))
//	Numbers that run out         err := gen.Raise(ctx, "IS", 9999)
//	Another process              other, err := serial.New(r.Client(), ...), with the options of the first
//
// # Time
//
// Redis's clock alone determines the day on which a number is issued. It stands still, even while an hour passes for
// the test. So a call that waits for that clock waits in vain, and fails when its time is up. If Redis's clock is set
// back before the beginning of a period already entered, the error is [serial.ErrClockSkew]: after 5 s if the clock is
// behind by no more than that, otherwise at once.
//
// In a bubble of [testing/synctest], call [New] or [NewRedis] inside the bubble. Redis's clock stands still there, too;
// set it to the bubble's with r.SetTime(time.Now()). Waiting takes no real time there.
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

// New returns a generator for a test, and its Redis in memory, whose clock stands at now.
//
// The options are those of [serial.New]. By default, the time zone is UTC, and Redis's clock is not compared with this
// host's ([serial.WithMaxSkew]). An option that is refused or a zero now fails the test at once. Everything is closed
// when t ends.
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

// A Redis is a server in memory for one test. It does not listen on the network. Its clock stands still until
// [Redis.SetTime] or [Redis.Advance] moves it. Its methods may be called concurrently, also while calls are under way,
// and return when they have taken effect.
type Redis struct {
	t testing.TB

	mu      sync.Mutex // guards the fields below; held while the server starts or stops; locked before clock
	server  *miniredis.Miniredis
	id      string // replication ID
	now     time.Time
	stopped bool
	ended   bool // t has ended
	clients []*redis.Client

	clock sync.RWMutex // held for writing while the server's clock is set, and for reading while a command runs
}

// NewRedis returns an empty Redis whose clock stands at now, for services that make their own generator. They must not
// compare the clocks, so use [serial.WithMaxSkew](-1), unless now is close to the host's time. A zero now fails the
// test at once. The Redis and its clients are closed when t ends.
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

// Client returns a new client of the Redis, a *redis.Client with its own connections, as in another process. The test
// may close it, but does not have to.
func (r *Redis) Client() redis.UniversalClient {
	c := redis.NewClient(&redis.Options{
		Addr:   "127.0.0.1:6379", // never dialled; a host name would be looked up
		Dialer: r.dial,
		// No command waits for a connection: go-redis reuses the timers of such waits, and bubbles cannot share timers.
		PoolSize: 1000,
		// Connections that are idle in Stop are dead after Start. A command on such a connection is sent again, up to
		// three times.
		MaxIdleConns: 2,
		// The greeting of a new connection is sent again, too. Longer pauses would be useless, since nothing changes
		// unless the test changes it.
		MinRetryBackoff: time.Millisecond,
		MaxRetryBackoff: 2 * time.Millisecond,
		// These need a goroutine with a ticker, which would be busy in a bubble that sleeps for a year.
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clients = append(r.clients, c)
	return c
}

// SetTime moves Redis's clock to now, forwards or backwards. Keys expire as on a server: at the same instants as before
// the move, at once if the instant has passed. A zero now fails the test at once, so it must be passed from the test's
// own goroutine.
func (r *Redis) SetTime(now time.Time) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.setTime(now)
}

// Advance moves Redis's clock by d, as [Redis.SetTime] does. A negative d sets it back.
func (r *Redis) Advance(d time.Duration) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.setTime(r.now.Add(d))
}

// Stop makes Redis unreachable: all connections are closed, and new ones are refused. Commands that have reached it are
// carried out, but nobody gets their replies. Calls fail within a fraction of a second, with an error that wraps a
// *net.OpError and syscall.ECONNREFUSED, as if nothing listened at a server's address. Stop does nothing if Redis is
// already stopped.
func (r *Redis) Stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
	r.server.Close()
}

// Start ends the outage that [Redis.Stop] began. Redis still has its data, except for keys that expired meanwhile, and
// the first call succeeds. Locks of generators that Stop interrupted are gone, as after an outage of more than 8
// seconds. Start does nothing if Redis is not stopped.
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

// Lose makes Redis lose everything, as a restart without persistence does: all connections are closed, no data and no
// scripts are left, and the replication ID changes. The clock is not changed. If Redis is stopped, it stays stopped,
// and starts empty.
//
// Without a ledger, a generator that has issued numbers of the period refuses to issue more, with
// [serial.ErrCounterLost]. But a new one, as in a process that just started, issues them again from the first. With a
// [Ledger], no number is issued twice.
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

// end closes everything when the test is over. In a bubble, time stands still once the test's function has returned, so
// goroutines that retry for some seconds, to release a lock while Redis is stopped, would never end. So end waits for
// them.
func (r *Redis) end() {
	r.close()
	if inBubble() {
		time.Sleep(time.Minute)
	}
}

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
		_ = c.Close() // the test may have closed it
	}
}

// renew replaces the server with an empty one that is not started yet. The caller holds r.mu, as for all functions
// below.
func (r *Redis) renew() {
	id := make([]byte, 20)
	_, _ = rand.Read(id) // never fails
	r.id = hex.EncodeToString(id)
	r.server = miniredis.NewMiniRedis()
	r.server.ClockTTL(true)
}

// serve starts the server.
func (r *Redis) serve() {
	r.server.Ctx, r.server.CtxCancel = context.WithCancel(context.Background()) // Close ended the previous one
	// Dial starts a server that does not listen on the network.
	conn, err := r.server.Dial()
	if err != nil {
		r.t.Fatalf("serialtest: %v", err)
	}
	_ = conn.Close()
	r.server.Server().SetPreHook(r.hook(r.server.Server(), r.id))
}

// hook returns the function that the server calls before each command, including commands in scripts. It answers INFO,
// by which a ledger detects a restart, and keeps the clock from changing while a command runs. It leaves out commands
// that may wait for others, since nobody could set the clock meanwhile.
func (r *Redis) hook(s *server.Server, id string) server.Hook {
	var running sync.Map // whether a connection runs a command, by *server.Peer; scripts have their own peers
	return func(c *server.Peer, cmd string, args ...string) bool {
		if cmd == "INFO" && (len(args) == 0 || strings.EqualFold(args[0], "replication")) {
			c.WriteBulk(fmt.Sprintf(
				"# Replication\r\nrole:master\r\nconnected_slaves:0\r\nmaster_replid:%s\r\nmaster_repl_offset:0\r\n", id))
			return true
		}
		runs, known := running.Load(c)
		script := !known && c.Ctx != nil // only connections start without a context
		// These are BLPOP and the like, and some that do not wait.
		waits := strings.HasPrefix(cmd, "B") || strings.HasPrefix(cmd, "XREAD")
		if script && cmd == "TIME" { // miniredis counts nanoseconds, which overflow in 2262
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
	now = now.Round(0) // without the monotonic reading: only the wall clock counts
	r.server.SetTime(now)
	if back := r.now.Sub(now); !r.now.IsZero() && back > 0 {
		// A server stores the instant at which a key expires, but miniredis stores how much time is left.
		for _, key := range r.server.Keys() {
			if most := math.MaxInt64 - back; r.server.TTL(key) > most { // the longest that miniredis can hold
				r.server.SetTTL(key, most)
			}
		}
		r.server.FastForward(-back)
	}
	r.now = now
	r.server.DB(0) // removes expired keys, so that they do not return if the clock is set back
}

// lockKey matches the key of a period's lock, but not the key of a stored answer, whose request ID may look like one: a
// period's label begins with its year or is "all", and the key of an answer has "once" in its place.
var lockKey = regexp.MustCompile(`^[^{}]+:\{[^{}]+\}:(\d\w*|all):lock$`)

// releaseLocks removes the locks of generators. They would expire after 8 s, but the clock stands still.
func (r *Redis) releaseLocks() {
	for _, key := range r.server.Keys() {
		if lockKey.MatchString(key) {
			r.server.Del(key)
		}
	}
}
