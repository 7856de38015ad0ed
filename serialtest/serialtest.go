// Package serialtest tests code that issues serial numbers: it provides a generator on a Redis in memory, whose clock
// the test sets. Nothing has to be installed, started or closed.
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
// If a service takes a generator, give it the one from [New]. If it makes its own from a Redis client, give it a
// [Redis.Client] from [NewRedis]; it must not check the clock then: see [serial.WithMaxSkew].
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
// Redis's clock alone decides on which day a number is issued. It stands still, also while an hour passes for the test.
// So a call that waits for that clock waits in vain, and fails when its time is up. If Redis's clock was set back to
// before the beginning of a period already entered, the error is [serial.ErrClockSkew]: after 5 s if the clock is
// behind by no more than that, else at once.
//
// In a bubble of [testing/synctest], call [New] or [NewRedis] inside the bubble. Redis's clock stands still there too;
// let it follow the bubble's with r.SetTime(time.Now()). Waiting costs no time there.
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

// New returns a generator for a test, and the Redis in memory that it issues numbers from, whose clock stands at now.
//
// The options are those of [serial.New]. Unless they say otherwise, the time zone is UTC and Redis's clock is not
// compared with this host's ([serial.WithMaxSkew]). An option that is refused, or a now that is zero, fails the test at
// once. Everything is closed when t ends.
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

// A Redis is a server in memory, for one test. It listens nowhere. Its clock stands still until [Redis.SetTime] or
// [Redis.Advance] moves it. Its methods may be called concurrently, and while calls are under way. They return when
// they have taken effect.
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

// NewRedis returns a Redis without any data, whose clock stands at now, for services that make their generator
// themselves. Tell them not to compare the clocks, with [serial.WithMaxSkew](-1), unless now is close to the host's
// time. A now that is zero fails the test at once. The Redis and its clients are closed when t ends.
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

// Client returns a new client of the Redis, a *redis.Client, with connections of its own as another process would have.
// It may be closed before the test ends, but does not have to be.
func (r *Redis) Client() redis.UniversalClient {
	c := redis.NewClient(&redis.Options{
		Addr:   "127.0.0.1:6379", // never dialled; go-redis would look up a name
		Dialer: r.dial,
		// No command waits for a connection: go-redis reuses the timers of such waits, and bubbles cannot share timers.
		PoolSize: 1000,
		// Connections that are idle in Stop are dead after Start. A command that finds one is sent again, up to three
		// times.
		MaxIdleConns: 2,
		// The greeting of a new connection is sent again too. That need not take long: nothing changes without the
		// test.
		MinRetryBackoff: time.Millisecond,
		MaxRetryBackoff: 2 * time.Millisecond,
		// These would need a goroutine that ticks, which has much to do in a bubble that sleeps for a year.
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clients = append(r.clients, c)
	return c
}

// SetTime moves Redis's clock to now, forwards or backwards. Keys expire as on a server: those whose time has come are
// gone, and those that have not expired yet do so at the same instant as before. A now that is zero fails the test at
// once; call it from the test's own goroutine then.
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

// Stop puts Redis out of reach: all connections are cut, and new ones are refused. Commands that have reached it are
// carried out, but nobody gets their answers. Calls fail within a fraction of a second, with an error that wraps a
// *net.OpError and syscall.ECONNREFUSED, as if nothing listened at a server's address. Stop does nothing if Redis is
// stopped already.
func (r *Redis) Stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
	r.server.Close()
}

// Start ends the outage that [Redis.Stop] began. Redis still has its data, except keys that have expired since, and the
// first call succeeds. Locks and claims of generators that Stop interrupted are gone, as after an outage of more than 8
// s. Start does nothing if Redis is not stopped.
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

// Lose makes Redis lose everything, as a restart without persistence does: all connections are cut, no data and no
// scripts are left, and the replication ID changes. The clock stays where it is. If Redis is stopped, it stays stopped,
// and starts empty.
//
// Without a ledger, a generator that has issued numbers of the period refuses to issue more, with
// [serial.ErrCounterLost]; but a new one, as in a process that has just started, issues them again from the first. With
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

// end closes everything when the test is over. In a bubble, time stands still once the test's function has returned.
// Goroutines that retry for some seconds, to release a lock while Redis is stopped, would then never end. So end waits
// for them.
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

// renew replaces the server with an empty one that is not started yet. r.mu is held, as in all functions below.
func (r *Redis) renew() {
	id := make([]byte, 20)
	_, _ = rand.Read(id) // never fails
	r.id = hex.EncodeToString(id)
	r.server = miniredis.NewMiniRedis()
	r.server.ClockTTL(true)
}

// serve starts the server.
func (r *Redis) serve() {
	r.server.Ctx, r.server.CtxCancel = context.WithCancel(context.Background()) // Close has ended it
	// Dial starts a server that listens nowhere.
	conn, err := r.server.Dial()
	if err != nil {
		r.t.Fatalf("serialtest: %v", err)
	}
	_ = conn.Close()
	r.server.Server().SetPreHook(r.hook(r.server.Server(), r.id))
}

// hook returns the function that the server calls before each command, including those of scripts. It answers INFO,
// which tells a ledger of a restart, and keeps the clock from changing while a command runs. Commands that may wait for
// others are left out: nobody could set the clock meanwhile.
func (r *Redis) hook(s *server.Server, id string) server.Hook {
	var running sync.Map // whether a command of a connection runs, by *server.Peer; scripts have peers of their own
	return func(c *server.Peer, cmd string, args ...string) bool {
		if cmd == "INFO" && (len(args) == 0 || strings.EqualFold(args[0], "replication")) {
			c.WriteBulk(fmt.Sprintf(
				"# Replication\r\nrole:master\r\nconnected_slaves:0\r\nmaster_replid:%s\r\nmaster_repl_offset:0\r\n", id))
			return true
		}
		runs, known := running.Load(c)
		script := !known && c.Ctx != nil // only connections begin without a context
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
		// miniredis keeps the time that a key has left, and a server the instant when it expires.
		for _, key := range r.server.Keys() {
			if most := math.MaxInt64 - back; r.server.TTL(key) > most { // the longest that miniredis can hold
				r.server.SetTTL(key, most)
			}
		}
		r.server.FastForward(-back)
	}
	r.now = now
	r.server.DB(0) // removes expired keys, so that they do not return when the clock goes back
}

// lockKey matches the key of a period's lock, but not that of an answer to a request, whose ID may look like one: a
// period's label begins with its year or is "all", and an answer's key has "once" in its place.
var lockKey = regexp.MustCompile(`^[^{}]+:\{[^{}]+\}:(\d\w*|all):lock$`)

// releaseLocks removes the locks and claims of generators. They would expire after 8 s, but the clock stands still.
func (r *Redis) releaseLocks() {
	for _, key := range r.server.Keys() {
		switch {
		case lockKey.MatchString(key):
			r.server.Del(key)
		case strings.HasSuffix(key, "}"): // a record
			r.server.HDel(key, "claim")
		}
	}
}
