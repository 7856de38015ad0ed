package serial_test

import (
	"context"
	"fmt"
	"io"
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

// Two lock clients are connected to the same server, and the other clients are not a majority. Calls must wait, because
// the lock seems to be held, and their errors must mention this possibility.
func TestLockClientsOfOneServer(t *testing.T) {
	const hint = "other callers held the lock, or two clients of WithLockClients use the same server"
	inBubble(t, func(t *testing.T, m *simulation) {
		other := simulate(t)
		gen := newGenerator(t, m.Client(), serial.WithLockClients(other.Client(), m.Client(), m.Client()))
		requireResult(t, "A"+today(time.Local)+"0001", "two are a majority")(gen.Next(t.Context(), "A"))
		other.SetError("ERR boom")
		barrier(t, 3, func(i int) (string, error) {
			typ := fmt.Sprint("T", i%2)
			_, err := gen.Next(context.Background(), typ)
			require.ErrorContains(t, err,
				fmt.Sprintf("serial: %s %s was not opened within 30s: %s", typ, today(time.Local), hint))
			return "", nil
		})
		synctest.Wait()
		require.Len(t, m.Keys(), 2, "no lock remains")
	})
}

// The lock is held on all servers or on one of them. A waiting caller must get the lock when it is released.
func TestLockOfOthers(t *testing.T) {
	inBubble(t, func(t *testing.T, counters *simulation) {
		servers := []*redis.Client{simulate(t).Client(), simulate(t).Client()}
		gen := newGenerator(t, counters.Client(), serial.WithLocation(time.UTC),
			serial.WithLockClients(servers[0], servers[1]))
		for _, holders := range [][]*redis.Client{servers, servers[1:]} {
			typ := fmt.Sprint("T", len(holders))
			for _, s := range holders {
				lock := "serial:{" + typ + "}:" + today(time.UTC) + ":lock"
				require.NoError(t, s.Set(t.Context(), lock, "other", 3*time.Second).Err())
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			require.ErrorIs(t, errOf(gen.Next(ctx, typ)), context.DeadlineExceeded)
			began := time.Now()
			require.NoError(t, errOf(gen.Next(t.Context(), typ)))
			require.InDelta(t, time.Second, time.Since(began), float64(500*time.Millisecond))
		}
	})
}

// The reply to a SET of the lock is lost, and go-redis repeats the SET, which fails because the first one succeeded.
// The next attempt must get the lock.
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

// The context of a caller ends during an attempt to get the lock, or at the instant at which the attempt ends. Only
// this caller must fail.
// Guarantees: caller-leaves.
func TestDeadlineAtTheLock(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		gen := newGenerator(t, m.Client(around(func(cmd redis.Cmder, send func() error) error {
			if cmd.Name() == "set" {
				time.Sleep(400 * time.Millisecond)
			}
			return send()
		})), serial.WithLocation(time.UTC))
		for i, limit := range []time.Duration{250, 400, 400, 400, 0} {
			typ := fmt.Sprint("T", i)
			var both sync.WaitGroup
			both.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), limit*time.Millisecond)
				want := context.DeadlineExceeded
				if limit == 0 {
					ctx, cancel = context.WithCancel(t.Context())
					want = context.Canceled
					time.AfterFunc(250*time.Millisecond, cancel)
				}
				defer cancel()
				require.ErrorIs(t, errOf(gen.Next(ctx, typ)), want)
			})
			both.Go(func() {
				time.Sleep(100 * time.Millisecond)
				requireResult(t, typ+"200001010001")(gen.Next(t.Context(), typ))
			})
			both.Wait()
		}
	})
}

// A hook of a lock client panics in a goroutine of redsync. The panic must reach the goroutine of the caller instead of
// ending the process.
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

// A majority of the lock servers replies too late, not at all, or with an error, and on one server the lock is held.
// This does not mean that another process holds the lock. Calls must fail within ten seconds, with an error about the
// lock servers.
func TestLockServersFail(t *testing.T) {
	for name, answer := range map[string]func(send func() error) error{
		"late":       func(send func() error) error { time.Sleep(2900 * time.Millisecond); return send() },
		"not at all": func(func() error) error { time.Sleep(time.Hour); return io.EOF },
		"an error":   func(func() error) error { return io.EOF },
	} {
		runInBubble(t, name, func(t *testing.T, m *simulation) {
			client := func() *redis.Client {
				return simulate(t).Client(around(func(cmd redis.Cmder, send func() error) error {
					if cmd.Name() != "set" {
						return send()
					}
					err := answer(send)
					cmd.SetErr(err)
					return err
				}))
			}
			other := simulate(t)
			require.NoError(t, other.Set("serial:{IS}:"+today(time.Local)+":lock", "another"))
			gen := newGenerator(t, m.Client(), serial.WithLockClients(client(), client(), other.Client()))
			began := time.Now()
			barrier(t, 3, func(int) (string, error) {
				_, err := gen.Next(t.Context(), "IS")
				require.ErrorContains(t, err, "serial: the lock servers failed: ")
				require.NotErrorIs(t, err, context.DeadlineExceeded)
				require.LessOrEqual(t, time.Since(began), inTime)
				return "", nil
			})
			time.Sleep(2 * time.Hour)
		})
	}
}

// The lock is on another server. It must be released when no caller waits for it, however long the release takes. A
// lock of another process must not be released.
func TestLockReleasedLate(t *testing.T) {
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
		requireResult(t, "IS200001010002")(gen.Next(t.Context(), "IS"))
		require.Zero(t, time.Since(began), "no call waits for the release")
		require.Len(t, locks.Keys(), 1)
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

// The reply to a SET arrives after the call was canceled. The lock must be released, and the release must be sent after
// the SET.
func TestLockGrantedAfterItsCallerLeft(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		locks := simulate(t)
		slow := locks.Client(around(func(cmd redis.Cmder, send func() error) error {
			if cmd.Name() == "set" {
				time.Sleep(time.Second)
			}
			return send()
		}))
		gen := newGenerator(t, m.Client(), serial.WithLockClients(slow))
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, errOf(gen.Next(ctx, "IS")), context.DeadlineExceeded)
		time.Sleep(3 * time.Second)
		require.Empty(t, locks.Keys())
	})
}

// The lock is on three independent masters. If one fails, calls must succeed. If two fail, only calls that open a
// period must fail.
func TestRedlock(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for ten seconds")
	}
	t.Parallel()
	var servers []*redistest.Server
	var clients []redis.UniversalClient
	for range 3 {
		server := redistest.Start(t)
		servers = append(servers, server)
		clients = append(clients, server.Client(t))
	}
	loc := noon()
	gen := newGenerator(t, redistest.Start(t).Client(t), serial.WithLocation(loc), serial.WithLockClients(clients...))
	opens := func(typ string) {
		got := barrier(t, 20, func(int) (string, error) { return gen.Next(t.Context(), typ) })
		require.ElementsMatch(t, numbers(typ, today(loc), 1, 20), got)
	}
	opens("ALL")
	for _, client := range clients { // do not wait for the slowest of the three
		require.Eventually(t, func() bool {
			return client.Exists(t.Context(), "serial:{ALL}:"+today(loc)+":lock").Val() == 0
		}, lockExpiry/2, time.Millisecond)
	}
	servers[1].Kill()
	before := time.Now()
	opens("ONE")
	// By chance, two callers can each get the lock on one of the two servers. This costs up to 4 s each time, for the
	// wait for the third server and for the release. If a lock were never released, other callers would have to wait
	// for 8 s.
	require.Less(t, time.Since(before), 12*time.Second)

	servers[2].Pause()
	before = time.Now()
	_, err := gen.Next(t.Context(), "TWO")
	require.Less(t, time.Since(before), 15*time.Second, "ten, and five more on a busy machine")
	// On a busy machine, time can run out while a number is taken. The failure of the lock servers is then the second
	// error.
	require.Regexp(t, "lock servers|; before that: dial tcp", err.Error())
	require.NotErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, errOf(gen.Next(t.Context(), "ONE")), "an open period needs no lock")
}
