package serialtest_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/race"
	"github.com/dailyserial/serial/serialtest"
)

var (
	noon     = time.Date(2021, time.October, 24, 12, 0, 0, 0, time.UTC)
	midnight = time.Date(2021, time.October, 25, 0, 0, 0, 0, time.UTC)
)

// everywhere runs f in a bubble and outside. The test fails if f leaves goroutines behind: a bubble ends only when its
// goroutines have ended, and outside a bubble, everywhere counts the goroutines.
func everywhere(t *testing.T, f func(t *testing.T)) {
	t.Run("bubble", func(t *testing.T) { race.Bubble(t, f) })
	t.Run("outside", func(t *testing.T) {
		before := goleak.IgnoreCurrent()
		t.Cleanup(func() { goleak.VerifyNone(t, before) })
		f(t)
	})
}

// next requires that the next number of IS is want.
func next(t *testing.T, gen *serial.Generator, want string) {
	t.Helper()
	got, err := gen.Next(t.Context(), "IS")
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// onlyErr returns the error of a call, and drops its result.
func onlyErr[T any](_ T, err error) error { return err }

// A tester replaces the testing.T of a test that fails.
type tester struct {
	testing.TB
	said string
}

func (t *tester) Fatal(args ...any)                 { t.said = fmt.Sprint(args...); runtime.Goexit() }
func (t *tester) Fatalf(format string, args ...any) { t.Fatal(fmt.Sprintf(format, args...)) }

// An invalid option or a zero time must end the test.
func TestRefused(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
	for _, row := range []struct {
		says string
		f    func(t testing.TB)
	}{
		{"serial: WithStart(0)", func(t testing.TB) { serialtest.New(t, noon, serial.WithStart(0)) }},
		{"serialtest: option 2 of New is nil", func(t testing.TB) { serialtest.New(t, noon, serial.WithStart(1), nil) }},
		{"serialtest: the time is zero", func(t testing.TB) { serialtest.New(t, time.Time{}) }},
		{"serialtest: the time is zero", func(t testing.TB) { serialtest.NewRedis(t, noon).SetTime(time.Time{}) }},
	} {
		failing, returned := &tester{TB: t}, false
		var wg sync.WaitGroup
		wg.Go(func() { row.f(failing); returned = true })
		wg.Wait()
		require.False(t, returned, "the test continues")
		require.Contains(t, failing.said, row.says)
	}
}

// The clock must show the same time until the test changes it. Options must override the time zone and the check of the
// clocks.
func TestClock(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		gen, r := serialtest.New(t, midnight.Add(-time.Nanosecond), serial.WithRetention(1))
		next(t, gen, "IS202110240001")
		time.Sleep(time.Millisecond)
		next(t, gen, "IS202110240002")
		r.Advance(time.Nanosecond)
		next(t, gen, "IS202110250001")
		now, err := r.Client().Time(t.Context()).Result()
		require.NoError(t, err)
		require.True(t, now.Equal(midnight), now)
		days, err := gen.History(t.Context(), "IS", 2)
		require.NoError(t, err)
		require.Equal(t, "[IS202110250001 IS202110240002]", fmt.Sprint(days))
		r.SetTime(midnight.AddDate(0, 0, 30))
		next(t, gen, "IS202111240001")

		gen, _ = serialtest.New(t, noon.Add(5*time.Hour), serial.WithLocation(time.FixedZone("", 8*60*60)))
		next(t, gen, "IS202110250001")
		gen, r = serialtest.New(t, noon, serial.WithMaxSkew(time.Hour))
		require.ErrorIs(t, onlyErr(gen.Next(t.Context(), "IS")), serial.ErrClockSkew)
		r.SetTime(time.Now()) // in a bubble, the time of the bubble
		next(t, gen, time.Now().UTC().Format("IS20060102")+"0001")
	})
}

// Keys must expire at the same instants as on a real server, even if the clock is set back and forth in between.
func TestExpiry(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		r := serialtest.NewRedis(t, noon)
		rdb, ctx := r.Client(), t.Context()
		for key, expiry := range map[string][]any{"hour": {"PX", time.Hour.Milliseconds()},
			"midnight": {"PXAT", midnight.UnixMilli()}, "ages": {"EXAT", int64(253402214400)}, "ever": nil} {
			require.NoError(t, rdb.Do(ctx, append([]any{"SET", key, 1}, expiry...)...).Err())
		}
		has := func(keys ...string) {
			t.Helper()
			require.ElementsMatch(t, keys, rdb.Keys(ctx, "*").Val())
		}
		r.Advance(-24 * time.Hour)
		r.Advance(25*time.Hour - time.Millisecond)
		has("hour", "midnight", "ages", "ever")
		r.Advance(time.Millisecond)
		r.Advance(-time.Minute) // the key must stay expired, although no command has accessed it in the meantime
		has("midnight", "ages", "ever")
		require.Equal(t, 11*time.Hour+time.Minute, rdb.PTTL(ctx, "midnight").Val())
		r.Stop()
		r.SetTime(midnight)
		r.Start()
		has("ages", "ever")
		r.SetTime(midnight.AddDate(100, 0, 0))
		r.SetTime(midnight.AddDate(-100, 0, 0))
		has("ages", "ever")
	})
}

// The first and the last days must work like all others, even after 2262, when nanoseconds exceed 64 bits.
func TestDistantDays(t *testing.T) {
	east, west := time.FixedZone("east", 9*60*60), time.FixedZone("west", -9*60*60)
	for _, now := range []time.Time{
		time.Date(1970, 1, 1, 0, 0, 0, 5000, east),
		time.Date(2262, 4, 11, 12, 0, 0, 0, time.UTC),
		time.Date(9999, 12, 28, 0, 0, 0, 0, west),
	} {
		everywhere(t, func(t *testing.T) {
			gen, r := serialtest.New(t, now, serial.WithLocation(now.Location()), serial.WithRetention(2),
				serial.WithLedger(new(serialtest.Ledger), 3))
			today, tomorrow := now.Format("IS20060102"), now.AddDate(0, 0, 1).Format("IS20060102")
			next(t, gen, today+"0001")
			for range 2 {
				n, err := gen.NextOnce(t.Context(), "IS", "again")
				require.NoError(t, err)
				require.Equal(t, today+"0002", n.String())
			}
			require.NoError(t, gen.Raise(t.Context(), "IS", 9))
			require.NoError(t, gen.Prepare(t.Context(), "IS"))
			r.Advance(24 * time.Hour)
			next(t, gen, tomorrow+"0001")
			days, err := gen.History(t.Context(), "IS", 2)
			require.NoError(t, err)
			require.Equal(t, fmt.Sprintf("[%s0001 %s0009]", tomorrow, today), fmt.Sprint(days))
		})
	}
}

// While several generators issue numbers, the clock advances by days, and Redis stops and loses its data. No number may
// be issued twice, and a call after Start must succeed.
func TestChangesDuringCalls(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		var l serialtest.Ledger
		gen, r := serialtest.New(t, noon, serial.WithLedger(&l, 3))
		other, err := serial.New(r.Client(), serial.WithLocation(time.UTC), serial.WithMaxSkew(-1), serial.WithLedger(&l, 3))
		require.NoError(t, err)
		var mu sync.Mutex
		seen := map[string]bool{}
		call := func(gen *serial.Generator) error {
			number, err := gen.Next(t.Context(), "IS")
			mu.Lock()
			defer mu.Unlock()
			if err == nil && seen[number] {
				t.Errorf("%s was issued twice", number)
			}
			seen[number] = true
			return err
		}
		for _, disturb := range []func(){
			func() { r.Advance(24 * time.Hour) }, func() { r.Stop(); r.Start() }, r.Lose, func() { r.Advance(6 * time.Hour) },
		} {
			var wg sync.WaitGroup
			for _, gen := range []*serial.Generator{gen, gen, gen, other, other, other} {
				wg.Go(func() {
					for range 5 {
						_ = call(gen)
					}
				})
			}
			disturb()
			require.NoError(t, call(gen))
			wg.Wait()
		}
		require.Greater(t, len(seen), 4)
	})
}

// Commands of clients must continue while the clock is set.
func TestCommandsDuringSetTime(t *testing.T) {
	r := serialtest.NewRedis(t, noon)
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		rdb := r.Client()
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default: // for this command, miniredis reads the clock without its lock
					_ = rdb.Do(context.Background(), "SET", "other", 1, "PXAT", midnight.UnixMilli()).Err()
				}
			}
		})
	}
	for rdb, i := r.Client(), 0; i < 200; i++ {
		r.Advance(time.Millisecond)
		_ = rdb.Ping(context.Background()).Err() // so that the other goroutines run
	}
	close(done)
	wg.Wait()
}

// A call waits for the clock. It must fail when its time is over, and succeed if the clock is corrected in time.
func TestClockStandsStill(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		gen, r := serialtest.New(t, midnight)
		next(t, gen, "IS202110250001")
		for _, behind := range []time.Duration{200 * time.Millisecond, 5 * time.Second} {
			r.SetTime(midnight.Add(-behind))
			began := time.Now()
			require.ErrorIs(t, onlyErr(gen.Next(t.Context(), "IS")), serial.ErrClockSkew)
			require.LessOrEqual(t, time.Since(began), 10*time.Second)
		}
		time.AfterFunc(time.Millisecond/2, func() { r.SetTime(midnight) })
		next(t, gen, "IS202110250002")
	})
}

// requireUnreachable requires an error as for an address at which no server is listening.
func requireUnreachable(t *testing.T, err error) {
	t.Helper()
	var refused *net.OpError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, "dial", refused.Op)
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	require.NotErrorIs(t, err, context.DeadlineExceeded)
}

// While Redis is stopped, calls must fail. After Start, the first call must succeed, even on connections that were
// idle.
func TestStopAndStart(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		gen, r := serialtest.New(t, noon)
		rdb := r.Client().(*redis.Client)
		require.NoError(t, rdb.Set(t.Context(), "own", "kept", 0).Err())
		var busy []*redis.Conn
		for range 10 {
			busy = append(busy, rdb.Conn())
			require.NoError(t, busy[len(busy)-1].Ping(t.Context()).Err())
		}
		for _, c := range busy {
			require.NoError(t, c.Close())
		}
		for day := range 2 {
			today := noon.AddDate(0, 0, day).Format("IS20060102")
			next(t, gen, today+"0001")
			r.Stop()
			r.Stop()
			for range 10 { // go-redis must not give up a server after several failures
				requireUnreachable(t, onlyErr(gen.Next(t.Context(), "IS")))
			}
			requireUnreachable(t, gen.Raise(t.Context(), "IS", 5))
			requireUnreachable(t, rdb.Ping(t.Context()).Err())
			r.Start()
			r.Start()
			next(t, gen, today+"0002")
			require.Equal(t, "kept", rdb.Get(t.Context(), "own").Val())
			r.Stop()
			r.Start()
			require.NoError(t, gen.Raise(t.Context(), "IS", 7))
			r.Advance(24 * time.Hour)
		}
	})
}

// An interrupted ledger calls a function before it reserves.
type interrupted struct {
	serialtest.Ledger
	by func()
}

func (l *interrupted) Reserve(ctx context.Context, r serial.Reservation) (int64, error) {
	if l.by != nil {
		l.by()
	}
	return l.Ledger.Reserve(ctx, r)
}

// Start must release the lock of a call that Stop has interrupted, because the lock would never expire. A test may also
// end while Redis is stopped and a canceled call is still opening a period.
func TestStopDuringCalls(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		var l interrupted
		gen, r := serialtest.New(t, noon, serial.WithLedger(&l, 10))
		ctx, cancel := context.WithCancel(t.Context())
		l.by = func() { r.Stop(); cancel() }
		require.ErrorIs(t, onlyErr(gen.Next(ctx, "IS")), context.Canceled)
	})
	race.Bubble(t, func(t *testing.T) {
		var l interrupted
		gen, r := serialtest.New(t, noon, serial.WithLedger(&l, 10))
		l.by = r.Stop
		require.Error(t, onlyErr(gen.Next(t.Context(), "IS")))
		time.Sleep(time.Minute) // after that, the call no longer tries to release its lock
		l.by = nil
		r.Start()
		next(t, gen, "IS202110240011")
	})
}

// The IDs of requests look like locks. Start must not delete the stored answers to these requests.
func TestRequestsThatLookLikeLocks(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		gen, r := serialtest.New(t, midnight.Add(-time.Minute))
		for range 2 {
			for i, id := range []string{"lock", "20211024:lock", "{IS}:20211024:lock", "a {b}:c:lock", "{IS}"} {
				number, err := gen.NextOnce(t.Context(), "IS", id)
				require.NoError(t, err)
				require.Equal(t, fmt.Sprintf("IS20211024%04d", i+1), number.String())
			}
			locks := []string{"serial:{IS}:20211024:lock", "a/b:{x.y}:all:lock"}
			require.NoError(t, r.Client().MSet(t.Context(), locks[0], "held", locks[1], "held").Err())
			r.Stop()
			r.Start()
			require.Zero(t, r.Client().Exists(t.Context(), locks...).Val())
			r.Advance(time.Hour)
		}
		r.Advance(48 * time.Hour) // then they expire
		number, err := gen.NextOnce(t.Context(), "IS", "lock")
		require.NoError(t, err)
		require.Equal(t, "IS202110270001", number.String())
	})
}

// A ledger must reject a different calendar of a series, and a different print mark of a period. A rejected reservation
// must change nothing.
func TestLedger(t *testing.T) {
	var l serialtest.Ledger
	for _, row := range []struct {
		series, period, calendar, print string
		above, n, after                 int64
		says                            string
	}{
		{"IS", "2024W45", "days", "b", 0, 0, 0, "serialtest: a reservation of 0 numbers; want 1 or more"},
		{"IS", "2024W45", "weeks", "a", 0, 10, 0, ""},
		{"IS", "20241104", "days", "a", 0, 10, 0, `series "IS" uses calendar "weeks" in the ledger and "days" here`},
		{"IS", "2024W45", "weeks", "b", 0, 10, 0, "a different field order, alphabet, check digit or key"},
		{"IS", "2024W46", "weeks", "b", 0, 10, 0, ""},
		{"PO", "2024W45", "days", "b", 0, 10, 0, ""},
		{"IS", "2024W45", "weeks", "a", 0, 10, 10, ""},
		{"IS", "2024W45", "weeks", "a", 50, 10, 50, ""},
	} {
		after, err := l.Reserve(t.Context(), serial.Reservation{Series: row.series, Period: row.period,
			Calendar: row.calendar, Print: row.print, Above: row.above, N: row.n})
		if row.says != "" {
			require.ErrorContains(t, err, row.says)
			require.Equal(t, row.n > 0, errors.Is(err, serial.ErrConflict))
			continue
		}
		require.NoError(t, err)
		require.Equal(t, row.after, after)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := onlyErr(l.Reserve(ctx, serial.Reservation{Series: "IS", Period: "2024W45", N: 1}))
	require.ErrorIs(t, err, context.Canceled)
}

// Lose must delete all data and change the replication ID. Then a ledger prevents duplicates.
func TestLose(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		gen, r := serialtest.New(t, noon, serial.WithLedger(new(serialtest.Ledger), 10))
		id := func() string {
			info, err := r.Client().Eval(t.Context(), "return redis.call('INFO', 'replication')", nil).Text()
			require.NoError(t, err)
			require.Equal(t, info, r.Client().Info(t.Context(), "replication").Val())
			require.Regexp(t, "(?s)role:master\r\n.*master_replid:[0-9a-f]{40}\r\n", info)
			return info
		}
		next(t, gen, "IS202110240001")
		before := id()
		r.Stop()
		r.Start()
		require.Equal(t, before, id())
		next(t, gen, "IS202110240002")
		r.Lose()
		require.Empty(t, r.Client().Keys(t.Context(), "*").Val())
		require.NotEqual(t, before, id())
		next(t, gen, "IS202110240011")
		r.Stop()
		r.Lose()
		requireUnreachable(t, onlyErr(gen.Next(t.Context(), "IS")))
		r.Start()
		next(t, gen, "IS202110240021")
	})
}

// A service may close its client. A long pipeline must not block itself. Commands that wait, and subscriptions, must
// block neither each other nor the clock.
func TestClients(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		r := serialtest.NewRedis(t, noon)
		rdb := r.Client().(*redis.Client)
		got, err := rdb.Pipelined(t.Context(), func(p redis.Pipeliner) error {
			for i := range 3000 {
				p.Set(t.Context(), strconv.Itoa(i), strings.Repeat("x", 100), 0)
				p.Get(t.Context(), strconv.Itoa(i))
			}
			return nil
		})
		require.NoError(t, err)
		require.Len(t, got, 6000)

		messages := rdb.Subscribe(t.Context(), "news")
		require.NoError(t, onlyErr(messages.Receive(t.Context())))
		var wg sync.WaitGroup
		wg.Go(func() { _ = rdb.BLPop(context.Background(), 0, "queue").Err() })
		wg.Go(func() { _ = rdb.XRead(context.Background(), &redis.XReadArgs{Streams: []string{"stream", "$"}}).Err() })
		require.Eventually(t, func() bool { return rdb.PoolStats().TotalConns >= 2 }, 5*time.Second, time.Millisecond)
		r.Advance(time.Hour)
		require.NoError(t, rdb.Publish(t.Context(), "news", "extra").Err())
		require.NoError(t, onlyErr(messages.ReceiveMessage(t.Context())))
		r.Stop()
		r.Start()
		require.NoError(t, rdb.RPush(t.Context(), "queue", 1, 2).Err())
		require.NoError(t, rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: "stream", Values: []string{"a", "b"}}).Err())
		require.NoError(t, rdb.BLPop(t.Context(), 0, "queue").Err())
		require.NoError(t, rdb.Close())
		wg.Wait()
		_ = messages.Close()
		require.Len(t, r.Client().Get(t.Context(), "2999").Val(), 100, "another client continues")
	})
}

// Clients in different bubbles must share nothing, although go-redis reuses the timers of commands that wait for a
// connection.
func TestBubbles(t *testing.T) {
	for range 2 {
		race.Bubble(t, func(t *testing.T) {
			client := serialtest.NewRedis(t, noon).Client()
			var wg sync.WaitGroup
			for range 100 {
				wg.Go(func() {
					if err := client.BLPop(t.Context(), time.Second, "nothing").Err(); err != redis.Nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
		})
	}
}

// After the end of the test, Redis must not start again.
func TestCallsAfterEnd(t *testing.T) {
	before := goleak.IgnoreCurrent()
	var r *serialtest.Redis
	t.Run("test", func(t *testing.T) { _, r = serialtest.New(t, noon) })
	r.Start()
	r.Lose()
	r.Advance(time.Hour)
	require.Error(t, r.Client().Ping(t.Context()).Err())
	r.Stop()
	goleak.VerifyNone(t, before)
}
