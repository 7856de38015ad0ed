package serial_test

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/redistest"
	inner "github.com/dailyserial/serial/internal/series"
	"github.com/dailyserial/serial/serialtest"
)

// slowing returns a hook that waits before it sends a command of the given step; see stepOf.
func slowing(step string, wait time.Duration) everyCall {
	return around(func(cmd redis.Cmder, send func() error) error {
		if stepOf(cmd) == step {
			time.Sleep(wait)
		}
		return send()
	})
}

// Two lock clients are connected to the same server, and the other clients are not a majority. Calls must wait, because
// the lock seems to be held, and their errors must mention this possibility.
func TestLockClientsOfOneServer(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		other := simulate(t)
		gen := newGenerator(t, m.Client(), serial.WithLockClients(other.Client(), m.Client(), m.Client()))
		requireResult(t, "A"+today(time.Local)+"0001", "two are a majority")(gen.Next(t.Context(), "A"))
		other.SetError("ERR boom")
		require.ErrorContains(t, errOf(gen.Next(context.Background(), "IS")), "serial: IS "+today(time.Local)+" was not "+
			"opened within 30s: other callers held the lock, or two clients of WithLockClients use the same server")
		synctest.Wait()
		require.Len(t, m.Keys(), 2, "no lock remains")
	})
}

// Another process holds the lock for 40 s. Each caller must wait until its own context ends or, without a deadline, for
// 30 s.
// Guarantees: lock-kept.
func TestWaitForAnothersLock(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		gen := newGenerator(t, m.Client(), serial.WithLocation(time.UTC))
		const lock = "serial:{IS}:20000101:lock"
		require.NoError(t, m.Set(lock, "another"))
		m.SetTTL(lock, 40*time.Second)
		leaves, leave := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Second, leave)
		brief, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		patient, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		contexts := []context.Context{leaves, brief, context.Background(), patient}
		began := time.Now()
		barrier(t, 8, func(i int) (string, error) {
			_, err := gen.Next(contexts[i%4], "IS")
			require.ErrorIs(t, err, []error{context.Canceled, context.DeadlineExceeded, inner.ErrTaken, nil}[i%4])
			require.InDelta(t, time.Duration(1+i%4)*10*time.Second, time.Since(began), float64(time.Second))
			if i%4 == 2 {
				require.ErrorContains(t, err, "serial: IS 20000101 was not opened within 30s: other callers held the lock")
				require.NotErrorIs(t, err, context.DeadlineExceeded)
				m.CheckGet(t, lock, "another") // is not ours to release
			}
			return "", nil
		})
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

// The floor or the ledger of a busy process hangs. Another process must get the lock as soon as this attempt has failed,
// although callers of the busy process are waiting for it, too.
// Guarantees: opener-killed.
func TestOthersGetTheLockAfterAFailure(t *testing.T) {
	hangs := func(ctx context.Context) (int64, error) { <-ctx.Done(); return 0, ctx.Err() }
	floor := func(ctx context.Context, _ string, _ time.Time) (int64, error) { return hangs(ctx) }
	for name, options := range map[string][2]serial.Option{
		"floor":  {serial.WithFloor(floor), fixedFloor(0)},
		"ledger": {serial.WithLedger(ledgerFunc(hangs), 10), serial.WithLedger(new(serialtest.Ledger), 10)},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, m *simulation) {
				busy := newGenerator(t, m.Client(), serial.WithLocation(time.UTC), options[0])
				healthy := newGenerator(t, m.Client(), serial.WithLocation(time.UTC), options[1])
				ctx, stop := context.WithCancel(t.Context())
				var callers sync.WaitGroup
				for range 6 {
					callers.Go(func() {
						for ctx.Err() == nil {
							_, _ = busy.Next(ctx, "IS")
						}
					})
				}
				time.Sleep(100 * time.Millisecond)
				began := time.Now()
				require.NoError(t, errOf(healthy.Next(t.Context(), "IS")))
				require.Less(t, time.Since(began), 8*time.Second)
				stop()
				callers.Wait()
			})
		})
	}
}

// The context of a caller ends during an attempt to get the lock, or at the instant at which the attempt ends. Only
// this caller must fail, even if the lock is on the server of the counters and another caller waits for it. If the lock
// is on another server, the reply to its SET may arrive after the call has ended. The lock must then be released, and
// the release must be sent after the SET.
// Guarantees: caller-leaves.
func TestCallerLeavesAtTheLock(t *testing.T) {
	const day, slow = "serial:{IS}:20000101", 400 * time.Millisecond
	for _, limit := range []time.Duration{time.Hour, 250 * time.Millisecond, slow, slow, slow} {
		for _, another := range []bool{false, true} {
			runInBubble(t, fmt.Sprint(limit, ", another caller: ", another), func(t *testing.T, m *simulation) {
				locks := simulate(t)
				gen := newGenerator(t, m.Client(), serial.WithLocation(time.UTC),
					serial.WithLockClients(locks.Client(slowing("set", slow))))
				if another {
					locks, gen = m, newGenerator(t, m.Client(slowing("set", slow)), serial.WithLocation(time.UTC))
					time.AfterFunc(100*time.Millisecond, func() {
						requireResult(t, "IS200001010001")(gen.Next(t.Context(), "IS"))
					})
				}
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				want := context.DeadlineExceeded
				if limit == time.Hour {
					time.AfterFunc(250*time.Millisecond, cancel)
					want = context.Canceled
				}
				require.ErrorIs(t, errOf(gen.Next(ctx, "IS")), want)
				time.Sleep(3 * time.Second)
				require.False(t, locks.Exists(day+":lock"))
				require.Equal(t, another, m.Exists(day))
			})
		}
	}
}

// A hook of a lock client panics in a goroutine of redsync. The panic must reach the goroutine of the caller instead of
// ending the process.
func TestPanicAtTheLock(t *testing.T) {
	_, rdb := startMini(t)
	rdb.AddHook(around(func(cmd redis.Cmder, send func() error) error {
		if cmd.Name() == "set" {
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
			failing := around(func(cmd redis.Cmder, send func() error) error {
				if cmd.Name() != "set" {
					return send()
				}
				cmd.SetErr(answer(send))
				return cmd.Err()
			})
			held := simulate(t)
			require.NoError(t, held.Set("serial:{IS}:"+today(time.Local)+":lock", "another"))
			gen := newGenerator(t, m.Client(), serial.WithLockClients(simulate(t).Client(failing),
				simulate(t).Client(failing), held.Client()))
			began := time.Now()
			barrier(t, 3, func(int) (string, error) {
				_, err := gen.Next(t.Context(), "IS")
				require.ErrorContains(t, err, "serial: the lock servers failed: ")
				require.NotErrorIs(t, err, context.DeadlineExceeded)
				return "", nil
			})
			require.LessOrEqual(t, time.Since(began), inTime)
			time.Sleep(2 * time.Hour)
		})
	}
}

// The lock is on another server. It must be released when no caller waits for it, however long the release takes. A
// lock of another process must not be released.
func TestLockReleasedLate(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		locks := simulate(t)
		open := func(typ string, hooks ...redis.Hook) {
			gen := newGenerator(t, m.Client(), serial.WithLocation(time.UTC), serial.WithLockClients(locks.Client(hooks...)))
			requireResult(t, typ+"200001010001")(gen.Next(t.Context(), typ))
		}
		began := time.Now()
		open("IS", slowing("eval", 9*time.Second))
		require.Zero(t, time.Since(began), "no call waits for the release")
		key := "serial:{IS}:20000101:lock"
		require.Equal(t, []string{key}, locks.Keys())
		time.Sleep(lockExpiry + 500*time.Millisecond)
		require.Empty(t, locks.Keys(), "it has expired")
		require.NoError(t, locks.Set(key, "another's"))
		time.Sleep(time.Minute)
		open("PO")
		synctest.Wait()
		locks.CheckGet(t, key, "another's")
		require.Equal(t, []string{key}, locks.Keys(), "PO's lock was released")
	})
}

// The lock is on another server, and there is a floor. The counter must be checked again before the floor is queried.
// This check must not be sent to the lock server. TestCallPaths covers a lock on the server of the counters.
func TestRoundTripsWithALockServer(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		var sent lines
		recorded := everyCall(func(cmds []redis.Cmder, send func() error) error {
			sent.add("%d %s", len(cmds), stepOf(cmds[0]))
			return send()
		})
		gen := newGenerator(t, m.Client(recorded), fixedFloor(0), serial.WithLockClients(m.Client(recorded)))
		require.NoError(t, errOf(gen.Next(t.Context(), "OTHER"))) // the server knows the scripts
		synctest.Wait()                                           // for the release of the lock
		sent.take()
		require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
		synctest.Wait()
		require.Equal(t, []string{"1 take", "1 set", "1 take", "1 open", "1 eval"}, sent.take())
		require.Len(t, m.Keys(), 4, "a record and a counter of each type")
	})
}

// The lock is on three independent masters. If one fails, calls must succeed. If two fail, only calls that open a
// period must fail. TestLockServersFail covers the errors.
func TestRedlock(t *testing.T) {
	t.Parallel()
	var servers [3]*redistest.Server
	var clients []redis.UniversalClient
	for i := range servers {
		servers[i] = redistest.Start(t)
		clients = append(clients, servers[i].Client(t))
	}
	loc := noon()
	gen := newGenerator(t, redistest.Start(t).Client(t), serial.WithLocation(loc), serial.WithLockClients(clients...))
	opens := func(typ string) {
		got := barrier(t, 20, func(int) (string, error) { return gen.Next(t.Context(), typ) })
		require.ElementsMatch(t, numbers(typ, today(loc), 1, 20), got)
	}
	opens("ALL")
	for _, client := range clients { // calls do not wait for the release on the slowest of the three
		require.Eventually(t, func() bool {
			return client.Exists(t.Context(), "serial:{ALL}:"+today(loc)+":lock").Val() == 0
		}, lockExpiry/2, time.Millisecond)
	}
	servers[1].Kill()
	opens("ONE")
	servers[2].Pause()
	brief, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, errOf(gen.Next(brief, "TWO")), context.DeadlineExceeded)
	require.NoError(t, errOf(gen.Next(t.Context(), "ONE")), "an open period needs no lock")
}
