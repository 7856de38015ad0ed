package serial_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/redistest"
)

// New looks up no name: with another bubble, or with the rest of the program, it would share the resolver's channels.
func TestLockClientsInBubbles(t *testing.T) {
	for i := range 16 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			for range 20 {
				inBubble(t, func(t *testing.T, m *simulation) {
					newGenerator(t, m.Client(), serial.WithLockClients(m.Client(), m.Client()))
				})
			}
		})
	}
}

// With two clients of one server, calls wait for a holder that does not exist, and their errors name the possibility.
func TestLockClientsOfOneServer(t *testing.T) {
	const hint = "others kept the lock, or two of WithLockClients' clients are one server"
	inBubble(t, func(t *testing.T, m *simulation) {
		gen := newGenerator(t, m.Client(), serial.WithLockClients(m.Client(), m.Client()))
		barrier(t, 10, func(i int) (string, error) { // each call
			typ := fmt.Sprint("T", i%3)
			_, err := gen.Next(context.Background(), typ)
			require.ErrorContains(t, err,
				fmt.Sprintf("serial: %s %s was not opened within 30s: %s", typ, today(time.Local), hint))
			return "", nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := gen.Next(ctx, "IS")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, hint)
		for _, key := range m.Keys() {
			require.NotContains(t, key, today(time.Local)) // neither a counter nor a lock remains
		}
	})
	inBubble(t, func(t *testing.T, m *simulation) { // three servers, one of which fails
		other := simulate(t)
		gen := newGenerator(t, m.Client(), serial.WithLockClients(other.Client(), m.Client(), m.Client()))
		requireResult(t, "A"+today(time.Local)+"0001", "two are a majority")(gen.Next(t.Context(), "A"))
		other.SetError("ERR boom")
		require.ErrorContains(t, errOf(gen.Next(t.Context(), "B")), "within 30s: "+hint)
	})
	inBubble(t, func(t *testing.T, m *simulation) { // with one client, the error names only others
		gen := newGenerator(t, m.Client())
		require.NoError(t, m.Set("serial:{IS}:"+today(time.Local)+":lock", "other"))
		_, err := gen.Next(t.Context(), "IS")
		require.ErrorContains(t, err, "within 30s: others kept the lock")
		require.NotContains(t, err.Error(), "WithLockClients")
	})
}

// A caller refused by the lock's holder, on all servers or on some, gets the lock once it is free.
func TestLockOfOthers(t *testing.T) {
	inBubble(t, func(t *testing.T, counters *simulation) {
		servers := []*redis.Client{simulate(t).Client(), simulate(t).Client()}
		gen := newGenerator(t, counters.Client(), serial.WithLocation(time.UTC),
			serial.WithLockClients(servers[0], servers[1]))
		wait := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			return errOf(gen.Next(ctx, "IS"))
		}
		lock := func(typ string) string { return "serial:{" + typ + "}:" + today(time.UTC) + ":lock" }
		for _, s := range servers {
			require.NoError(t, s.Set(t.Context(), lock("IS"), "other", time.Minute).Err())
		}
		for _, s := range servers {
			require.ErrorIs(t, wait(), context.DeadlineExceeded)
			require.NoError(t, s.Del(t.Context(), lock("IS")).Err())
		}
		require.NoError(t, wait())
		for _, s := range servers {
			require.NoError(t, s.Set(t.Context(), lock("NEW"), "other", 300*time.Millisecond).Err())
		}
		require.NoError(t, errOf(gen.Next(t.Context(), "NEW")))
	})
}

// A SET that go-redis repeats after a lost answer is refused because of the first one. The next attempt gets the lock.
func TestLockThatWasSetTwice(t *testing.T) {
	inBubble(t, func(t *testing.T, counters *simulation) {
		var sets atomic.Int32
		twice := simulate(t).Client(around(func(cmd redis.Cmder, send func() error) error {
			if cmd.Name() == "set" && sets.Add(1) == 1 {
				_ = send()
			}
			return send()
		}))
		gen := newGenerator(t, counters.Client(), serial.WithLockClients(simulate(t).Client(), twice))
		require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
		require.EqualValues(t, 2, sets.Load())
	})
}

// A caller whose deadline passes during its attempt at the lock fails alone, even if the attempt ends at that instant.
// Guarantees: caller-leaves.
func TestDeadlineAtTheLock(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		gen := newGenerator(t, m.Client(around(func(cmd redis.Cmder, send func() error) error {
			if cmd.Name() == "set" {
				time.Sleep(400 * time.Millisecond)
			}
			return send()
		})), serial.WithLocation(time.UTC))
		for i := range 50 {
			typ := fmt.Sprint("T", i)
			var both sync.WaitGroup
			both.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 250*time.Millisecond)
				defer cancel()
				require.ErrorIs(t, errOf(gen.Next(ctx, typ)), context.DeadlineExceeded)
			})
			both.Go(func() {
				time.Sleep(100 * time.Millisecond)
				requireResult(t, typ+"200001010001")(gen.Next(t.Context(), typ))
			})
			both.Wait()
		}
	})
}

// A hook that panics in one of redsync's goroutines panics in the caller's, and does not end the process.
func TestPanicAtTheLock(t *testing.T) {
	_, rdb := startMini(t)
	rdb.AddHook(around(func(cmd redis.Cmder, send func() error) error {
		if strings.EqualFold(cmd.Name(), "set") {
			panic("hook")
		}
		return send()
	}))
	gen := newGenerator(t, rdb, serial.WithLocation(noon()))
	require.PanicsWithValue(t, "hook", func() { _, _ = gen.Next(t.Context(), "IS") })
}

// An open that arrives after the lock has expired is refused, however late the counter was found missing: by then
// another may have opened the period, above a floor that has grown since.
func TestOpenAfterTheLockHasExpired(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		var began time.Time
		var slow, first atomic.Bool
		var opened string
		gen := newGenerator(t, m.Client(hook(func(next redis.ProcessHook) redis.ProcessHook {
			return func(ctx context.Context, cmd redis.Cmder) error {
				switch {
				case !slow.Load():
				case cmd.Name() == "set": // the lock is granted, and the answer is slow
					err := next(ctx, cmd)
					time.Sleep(1500 * time.Millisecond)
					return err
				case isOpen(cmd) && first.CompareAndSwap(false, true):
					time.Sleep(time.Until(began.Add(lockExpiry + time.Second)))
					err := next(context.WithoutCancel(ctx), cmd)
					opened = fmt.Sprint(cmd.(interface{ Val() any }).Val())
					return err
				}
				return next(ctx, cmd)
			}
		})), serial.WithLocation(time.UTC))
		require.NoError(t, errOf(gen.Next(t.Context(), "OTHER"))) // the server knows the scripts
		began = time.Now()
		slow.Store(true)
		_, _ = gen.Next(t.Context(), "IS")
		time.Sleep(time.Minute)
		require.Contains(t, opened, "stale")
	})
}

// A lock on another server is released when nobody waits for it, however long that takes, and another's lock never is.
func TestLockGivenBackLate(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		locks := simulate(t)
		var hangs atomic.Bool
		hangs.Store(true)
		slow := locks.Client(around(func(cmd redis.Cmder, send func() error) error {
			if cmd.Name() == "eval" && hangs.Load() {
				time.Sleep(9 * time.Second)
			}
			return send()
		}))
		gen := newGenerator(t, m.Client(), serial.WithLocation(time.UTC), serial.WithLockClients(slow))
		began := time.Now()
		requireResult(t, "IS200001010001")(gen.Next(t.Context(), "IS"))
		require.Zero(t, time.Since(began), "nobody waits for that")
		require.Len(t, locks.Keys(), 1)
		another := newGenerator(t, m.Client(), serial.WithLocation(time.UTC), serial.WithLockClients(locks.Client()))
		requireResult(t, "IS200001010002")(another.Next(t.Context(), "IS"))
		requireResult(t, "IS200001010003")(gen.Next(t.Context(), "IS"))
		require.Zero(t, time.Since(began))
		key := locks.Keys()[0]
		time.Sleep(lockExpiry + 500*time.Millisecond)
		require.Empty(t, locks.Keys(), "it has expired")
		require.NoError(t, locks.Set(key, "another's"))
		time.Sleep(time.Minute)
		locks.CheckGet(t, key, "another's")

		hangs.Store(false)
		requireResult(t, "PO200001010001")(gen.Next(t.Context(), "PO"))
		synctest.Wait()
		require.Equal(t, []string{key}, locks.Keys(), "PO's lock was released")
	})
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
			for _, client := range clients { // do not wait for the slowest of the three
				require.Eventually(t, func() bool {
					return client.Exists(t.Context(), how+":{ALL}:"+today(loc)+":lock").Val() == 0
				}, lockExpiry/2, time.Millisecond)
			}
			fail(servers[1])
			before := time.Now()
			opens("ONE")
			// By chance two callers may get one of the two servers each. That costs up to 4 s each time, to wait for
			// the third server and to release. A lock that was never released would cost the others 8 s.
			require.Less(t, time.Since(before), 12*time.Second)

			fail(servers[2])
			var err error
			inTenSeconds(t, func() { _, err = gen.Next(t.Context(), "TWO") })
			// On a busy machine, a take may be the last step in time. Then the failure of the lock servers comes second.
			require.Regexp(t, "lock servers|; before that: dial tcp", err.Error())
			require.NotErrorIs(t, err, context.DeadlineExceeded)
			require.NoError(t, errOf(gen.Next(t.Context(), "ONE")), "an open period needs no lock")
		})
	}
}
