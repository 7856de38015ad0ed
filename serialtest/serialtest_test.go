package serialtest_test

import (
	"context"
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
	noon  = time.Date(2021, time.October, 24, 12, 0, 0, 0, time.UTC)
	night = time.Date(2021, time.October, 25, 0, 0, 0, 0, time.UTC)
)

// everywhere runs f in a bubble and outside. The test fails if f leaves goroutines behind: a bubble ends only when its
// goroutines have ended, and outside they are counted.
func everywhere(t *testing.T, f func(t *testing.T)) {
	t.Run("bubble", func(t *testing.T) { race.Bubble(t, f) })
	t.Run("outside", func(t *testing.T) {
		before := goleak.IgnoreCurrent()
		t.Cleanup(func() { goleak.VerifyNone(t, before) })
		f(t)
	})
}

func next(t *testing.T, gen *serial.Generator, want string) {
	t.Helper()
	got, err := gen.Next(t.Context(), "IS")
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// errOf returns the error of a call.
func errOf[T any](_ T, err error) error { return err }

// together makes n concurrent calls of f and returns their results.
func together[T any](n int, f func(i int) T) []T {
	all := make([]T, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { all[i] = f(i) })
	}
	wg.Wait()
	return all
}

// Types that share a counter do so here too, with the ledger's blocks and through its losses.
func TestSharedCounter(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		gen, r := serialtest.New(t, noon, serial.WithSharedCounter(), serial.WithLedger(new(serialtest.Ledger), 10))
		requireNext := func(typ, want string) {
			t.Helper()
			got, err := gen.Next(t.Context(), typ)
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
		requireNext("FA", "FA202110240001")
		requireNext("AV", "AV202110240002")
		r.Lose()
		requireNext("CN", "CN202110240011")
	})
}

// Clients of different bubbles share nothing, although go-redis reuses timers by which commands wait for a connection.
func TestBubbles(t *testing.T) {
	for range 2 {
		race.Bubble(t, func(t *testing.T) {
			client := serialtest.NewRedis(t, noon).Client()
			for _, err := range together(100, func(int) error {
				return client.BLPop(t.Context(), time.Second, "nothing").Err()
			}) {
				require.ErrorIs(t, err, redis.Nil)
			}
		})
	}
}

func TestFixedDay(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		gen, r := serialtest.New(t, noon)
		next(t, gen, "IS202110240001")
		time.Sleep(time.Millisecond)
		next(t, gen, "IS202110240002")
		now, err := r.Client().Time(t.Context()).Result()
		require.NoError(t, err)
		require.True(t, now.Equal(noon), "the clock stands still, and shows %v", now)

		number, err := gen.NextNumber(t.Context(), "IS")
		require.NoError(t, err)
		require.Equal(t, time.UTC, number.Start.Location())
	})
}

func TestOptions(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		shanghai := time.FixedZone("", 8*60*60)
		gen, _ := serialtest.New(t, time.Date(2021, time.October, 24, 17, 0, 0, 0, time.UTC), serial.WithLocation(shanghai))
		next(t, gen, "IS202110250001")

		gen, r := serialtest.New(t, noon, serial.WithMaxSkew(time.Hour))
		require.ErrorIs(t, errOf(gen.Next(t.Context(), "IS")), serial.ErrClockSkew)
		r.SetTime(time.Now())
		next(t, gen, time.Now().UTC().Format("IS20060102")+"0001")
	})
}

// A tester stands for the t of a test that fails.
type tester struct {
	testing.TB
	said string
}

func (t *tester) Fatal(args ...any)                 { t.said = fmt.Sprint(args...); runtime.Goexit() }
func (t *tester) Fatalf(format string, args ...any) { t.Fatal(fmt.Sprintf(format, args...)) }

func TestRefused(t *testing.T) {
	for says, f := range map[string]func(t testing.TB){
		"serial: WithStart(0)":              func(t testing.TB) { serialtest.New(t, noon, serial.WithStart(0)) },
		"serialtest: option 2 of New is ni": func(t testing.TB) { serialtest.New(t, noon, serial.WithStart(1), nil) },
		"serialtest: the time is zero":      func(t testing.TB) { serialtest.New(t, time.Time{}) },
		"serialtest: the time is zero ":     func(t testing.TB) { serialtest.NewRedis(t, time.Time{}) },
		"serialtest: the time is zero  ":    func(t testing.TB) { serialtest.NewRedis(t, noon).SetTime(time.Time{}) },
	} {
		t.Run(says, func(t *testing.T) {
			before := goleak.IgnoreCurrent()
			t.Cleanup(func() { goleak.VerifyNone(t, before) })
			failing := &tester{TB: t}
			returned := false
			together(1, func(int) bool { f(failing); returned = true; return true })
			require.False(t, returned, "the test continues")
			require.Contains(t, failing.said, strings.TrimSpace(says))
		})
	}
}

func TestMidnight(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		gen, r := serialtest.New(t, night.Add(-time.Nanosecond), serial.WithRetention(1))
		next(t, gen, "IS202110240001")
		next(t, gen, "IS202110240002")
		r.Advance(time.Nanosecond)
		next(t, gen, "IS202110250001")
		days, err := gen.History(t.Context(), "IS", 2)
		require.NoError(t, err)
		require.Equal(t, "[IS202110250001 IS202110240002]", fmt.Sprint(days))
		r.SetTime(night.AddDate(0, 0, 30))
		next(t, gen, "IS202111240001")
	})
}

// In a bubble, Redis's clock can follow the bubble's clock.
func TestMidnightOfBubble(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		gen, r := serialtest.New(t, time.Now(), serial.WithMaxSkew(time.Second))
		for range 3 {
			next(t, gen, time.Now().UTC().Format("IS20060102")+"0001")
			time.Sleep(24 * time.Hour)
			r.SetTime(time.Now())
		}
	})
}

func TestMidnightOfMany(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		gen, r := serialtest.New(t, night.Add(-time.Second))
		for _, day := range []string{"20211024", "20211025"} {
			all := together(50, func(int) string {
				number, err := gen.Next(t.Context(), "IS")
				return fmt.Sprint(number, err)
			})
			var want []string
			for seq := range 50 {
				want = append(want, fmt.Sprintf("IS%s%04d<nil>", day, seq+1))
			}
			require.ElementsMatch(t, want, all)
			r.SetTime(night)
		}
	})
}

// Calls continue while the clock moves forwards by a day at a time, in all ways of setting it.
func TestClockUnderCalls(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		_, r := serialtest.New(t, noon)
		rdb := r.Client()
		var gens []*serial.Generator
		for range 3 {
			gen, err := serial.New(r.Client(), serial.WithLocation(time.UTC), serial.WithMaxSkew(-1))
			require.NoError(t, err)
			gens = append(gens, gen)
		}
		done := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			defer close(done)
			for range 5 {
				for range 4 {
					r.Advance(6 * time.Hour)
				}
				_ = rdb.Time(t.Context()).Err() // so that calls get a turn
			}
		})
		var mu sync.Mutex
		seen := map[string]int{}
		for i := range 12 {
			wg.Go(func() {
				for {
					number, err := gens[i%3].Next(t.Context(), "IS")
					if err == nil {
						mu.Lock()
						seen[number]++
						mu.Unlock()
					} else {
						t.Error(err)
					}
					select {
					case <-done:
						return
					default:
					}
				}
			})
		}
		wg.Wait()
		for number, times := range seen {
			require.Equal(t, 1, times, number)
		}
		now, err := rdb.Time(t.Context()).Result()
		require.NoError(t, err)
		require.True(t, now.Equal(noon.AddDate(0, 0, 5)))
	})
}

// For this command, miniredis reads the clock without its lock.
func TestClockUnderSet(t *testing.T) {
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
				default:
					_ = rdb.Do(context.Background(), "SET", "other", 1, "PXAT", night.UnixMilli()).Err()
				}
			}
		})
	}
	for rdb, i := r.Client(), 0; i < 500; i++ {
		r.Advance(time.Millisecond)
		_ = rdb.Ping(context.Background()).Err() // so that the others get a turn
	}
	close(done)
	wg.Wait()
}

func TestExpiry(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		r := serialtest.NewRedis(t, noon)
		rdb := r.Client()
		ctx := t.Context()
		require.NoError(t, rdb.Do(ctx, "SET", "hour", 1, "PX", time.Hour.Milliseconds()).Err())
		require.NoError(t, rdb.Do(ctx, "SET", "night", 1, "PXAT", night.UnixMilli()).Err())
		require.NoError(t, rdb.Do(ctx, "SET", "ages", 1, "EXAT", int64(253402214400)).Err())
		require.NoError(t, rdb.Set(ctx, "ever", 1, 0).Err())
		has := func(keys ...string) {
			t.Helper()
			got, err := rdb.Keys(ctx, "*").Result()
			require.NoError(t, err)
			require.ElementsMatch(t, keys, got)
		}
		r.Advance(-24 * time.Hour)
		r.Advance(24*time.Hour + time.Hour - time.Millisecond)
		has("hour", "night", "ages", "ever")
		r.Advance(time.Millisecond)
		r.Advance(-time.Minute) // nobody has looked, and it is gone all the same
		has("night", "ages", "ever")
		require.Equal(t, 11*time.Hour+time.Minute, rdb.PTTL(ctx, "night").Val())
		r.Stop()
		r.SetTime(night)
		r.Start()
		has("ages", "ever")
		r.SetTime(night.AddDate(100, 0, 0))
		r.SetTime(night.AddDate(-100, 0, 0))
		has("ages", "ever")
	})
}

// A day's counter exists until midnight, even if the clock moves back and forth in between.
func TestClockBack(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		gen, r := serialtest.New(t, noon)
		next(t, gen, "IS202110240001")
		r.Advance(-6 * time.Hour)
		next(t, gen, "IS202110240002")
		r.SetTime(night.Add(-time.Second))
		next(t, gen, "IS202110240003")
		r.SetTime(night)
		next(t, gen, "IS202110250001")
		r.Advance(-time.Minute)
		require.ErrorIs(t, errOf(gen.Next(t.Context(), "IS")), serial.ErrClockSkew)
		r.Advance(time.Minute)
		next(t, gen, "IS202110250002")
	})
}

// The first and the last printable days work like any other, also before the epoch and after 2262, when nanoseconds no
// longer fit into 64 bits.
func TestFarDays(t *testing.T) {
	east, west := time.FixedZone("east", 9*60*60), time.FixedZone("west", -9*60*60)
	for _, now := range []time.Time{
		time.Date(1970, 1, 1, 0, 0, 0, 0, east),
		time.Date(1970, 1, 1, 0, 0, 0, 5000, east),
		time.Date(1970, 1, 1, 12, 0, 0, 0, east),
		time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC),
		time.Date(1970, 1, 1, 0, 0, 0, 0, west),
		time.Date(2262, 4, 11, 12, 0, 0, 0, time.UTC),
		time.Date(2263, 1, 1, 0, 0, 0, 0, east),
		time.Date(2600, 1, 1, 0, 0, 0, 0, west),
		time.Date(9999, 12, 28, 0, 0, 0, 0, west),
	} {
		for _, ledger := range []bool{false, true} {
			everywhere(t, func(t *testing.T) {
				opts := []serial.Option{serial.WithLocation(now.Location()), serial.WithRetention(2)}
				if ledger {
					opts = append(opts, serial.WithLedger(new(serialtest.Ledger), 3))
				}
				gen, r := serialtest.New(t, now, opts...)
				today, tomorrow := now.Format("IS20060102"), now.AddDate(0, 0, 1).Format("IS20060102")
				next(t, gen, today+"0001")
				for range 2 {
					n, err := gen.NextOnce(t.Context(), "IS", "again")
					require.NoError(t, err)
					require.Equal(t, today+"0002", n.String())
				}
				require.NoError(t, gen.Raise(t.Context(), "IS", 9))
				require.NoError(t, gen.Prepare(t.Context(), "IS"))
				n, err := gen.Peek(t.Context(), "IS")
				require.NoError(t, err)
				require.Equal(t, today+"0009", n.String())
				r.Advance(24 * time.Hour)
				next(t, gen, tomorrow+"0001")
				all, err := gen.History(t.Context(), "IS", 2)
				require.NoError(t, err)
				require.Equal(t, fmt.Sprint(tomorrow, "0001 ", today, "0009"), fmt.Sprintf("%s %s", all[0], all[1]))
				report, err := gen.Audit(t.Context(), "IS", serial.At(now), func(func(string, error) bool) {})
				require.NoError(t, err)
				require.EqualValues(t, 9, report.Last)
			})
		}
	}
}

// A call that waits for a clock that stands still ends by itself, or when the clock is corrected.
func TestClockStands(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		for _, behind := range []time.Duration{200 * time.Millisecond, 5 * time.Second} {
			gen, r := serialtest.New(t, night)
			next(t, gen, "IS202110250001")
			r.Advance(-behind)
			for _, call := range []func() error{
				func() error { return errOf(gen.Next(t.Context(), "IS")) },
				func() error { return errOf(gen.NextOnce(t.Context(), "IS", "once")) },
				func() error {
					return together(20, func(int) error { return errOf(gen.Next(context.Background(), "IS")) })[0]
				},
			} {
				began := time.Now()
				require.ErrorIs(t, call(), serial.ErrClockSkew)
				require.LessOrEqual(t, time.Since(began), 10*time.Second)
			}
			time.AfterFunc(time.Millisecond/2, func() { r.SetTime(night) })
			next(t, gen, "IS202110250002")
		}
	})
}

func requireUnreachable(t *testing.T, err error) {
	t.Helper()
	var refused *net.OpError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, "dial", refused.Op)
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	require.NotErrorIs(t, err, context.DeadlineExceeded)
}

func TestDownAndBack(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		r := serialtest.NewRedis(t, noon)
		rdb := r.Client().(*redis.Client)
		gen, err := serial.New(rdb, serial.WithLocation(time.UTC), serial.WithMaxSkew(-1))
		require.NoError(t, err)
		require.NoError(t, rdb.Set(t.Context(), "own", "kept", 0).Err())
		var busy []*redis.Conn
		for range 10 {
			busy = append(busy, rdb.Conn())
			require.NoError(t, busy[len(busy)-1].Ping(t.Context()).Err())
		}
		for _, c := range busy { // some stay idle, and are dead when they are used again
			require.NoError(t, c.Close())
		}
		r.Stop()
		r.Start()
		next(t, gen, "IS202110240001")
		r.Advance(24 * time.Hour)
		for day := 1; day <= 2; day++ {
			next(t, gen, fmt.Sprintf("IS%s%04d", noon.AddDate(0, 0, day).Format("20060102"), 1))
			r.Stop()
			r.Stop()
			began := time.Now()
			for range 10 { // go-redis is not to give Redis up
				_, err := gen.Next(t.Context(), "IS")
				requireUnreachable(t, err)
			}
			require.Less(t, time.Since(began), 30*time.Second)
			_, err := gen.NextOnce(t.Context(), "IS", "once")
			requireUnreachable(t, err)
			requireUnreachable(t, gen.Raise(t.Context(), "IS", 5))
			requireUnreachable(t, rdb.Ping(t.Context()).Err())
			r.Start()
			r.Start()
			next(t, gen, fmt.Sprintf("IS%s%04d", noon.AddDate(0, 0, day).Format("20060102"), 2))
			require.Equal(t, "kept", rdb.Get(t.Context(), "own").Val())
			r.Stop()
			r.Start()
			require.NoError(t, gen.Raise(t.Context(), "IS", 7))
			r.Stop()
			r.Start()
			require.NoError(t, gen.Prepare(t.Context(), "IS"))
			r.Advance(24 * time.Hour)
		}
	})
}

// A call that is interrupted while it holds a lock cannot release it, and it would never expire.
func TestDownAtWork(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		var ledger interrupted
		gen, r := serialtest.New(t, noon, serial.WithLedger(&ledger, 10))
		ledger.by = r.Stop
		require.Error(t, errOf(gen.Next(t.Context(), "IS")))
		time.Sleep(time.Minute) // nobody tries to give it back any more
		ledger.by = nil
		r.Start()
		next(t, gen, "IS202110240011")
	})
}

// A test may end while Redis is stopped and a call whose caller has left is still running.
func TestEndAtWork(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		var ledger interrupted
		gen, r := serialtest.New(t, noon, serial.WithLedger(&ledger, 10))
		ctx, cancel := context.WithCancel(t.Context())
		ledger.by = func() {
			r.Stop()
			cancel()
		}
		require.ErrorIs(t, errOf(gen.Next(ctx, "IS")), context.Canceled)
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

// Calls succeed after Start although others were interrupted, and no number is issued twice.
func TestDownUnderCalls(t *testing.T) {
	for name, opts := range map[string][]serial.Option{
		"alone":       nil,
		"with ledger": {serial.WithLedger(new(serialtest.Ledger), 3)},
	} {
		t.Run(name, func(t *testing.T) {
			everywhere(t, func(t *testing.T) {
				gen, r := serialtest.New(t, noon, opts...)
				seen := map[string]bool{}
				for range 3 {
					var wg sync.WaitGroup
					got := make(chan string, 1000)
					for range 6 {
						wg.Go(func() {
							for range 2 {
								if number, err := gen.Next(t.Context(), "IS"); err == nil {
									got <- number
								}
							}
						})
					}
					r.Stop()
					r.Start()
					began := time.Now()
					number, err := gen.Next(t.Context(), "IS")
					require.NoError(t, err)
					require.Less(t, time.Since(began), 5*time.Second)
					wg.Wait()
					close(got)
					require.False(t, seen[number])
					seen[number] = true
					for number := range got {
						require.False(t, seen[number], number)
						seen[number] = true
					}
					r.Advance(24 * time.Hour)
				}
			})
		})
	}
}

// A Ledger stores what a series counts by and how a period's numbers are printed. A refused reservation changes
// nothing.
func TestLedgerConflict(t *testing.T) {
	var l serialtest.Ledger
	asked := func(series, period, calendar, printMark string) serial.Reservation {
		return serial.Reservation{Series: series, Period: period, Calendar: calendar, Print: printMark, N: 10}
	}
	none := asked("serial:IS", "2024W45", "days", "b")
	none.N = 0
	require.EqualError(t, errOf(l.Reserve(t.Context(), none)), "serialtest: a reservation of 0 numbers")
	after, err := l.Reserve(t.Context(), asked("serial:IS", "2024W45", "weeks", "a"))
	require.NoError(t, err)
	require.Zero(t, after)
	for _, period := range []string{"2024W45", "20241104"} {
		_, err = l.Reserve(t.Context(), asked("serial:IS", period, "days", "a"))
		require.ErrorIs(t, err, serial.ErrConflict)
		require.ErrorContains(t, err, `series "serial:IS" counts by "weeks" in the ledger and by "days" here`)
		require.ErrorContains(t, err, "use another type, or another key prefix together with another literal")
	}
	_, err = l.Reserve(t.Context(), asked("serial:IS", "2024W45", "weeks", "b"))
	require.ErrorIs(t, err, serial.ErrConflict)
	require.ErrorContains(t, err, "another order of fields, alphabet, check digit or key")

	for _, r := range []serial.Reservation{
		asked("serial:IS", "20241104", "weeks", "c"), // another print mark than the refused reservation's
		asked("serial:IS", "2024W46", "weeks", "b"),
		asked("serial:PO", "2024W45", "days", "b"),
	} {
		after, err = l.Reserve(t.Context(), r)
		require.NoError(t, err)
		require.Zero(t, after)
	}
	after, err = l.Reserve(t.Context(), asked("serial:IS", "2024W45", "weeks", "a"))
	require.NoError(t, err)
	require.EqualValues(t, 10, after)
}

func TestLoseWithLedger(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		var ledger serialtest.Ledger
		gen, r := serialtest.New(t, noon, serial.WithLedger(&ledger, 10))
		next(t, gen, "IS202110240001")
		id := replicationID(t, r)
		r.Stop()
		r.Start()
		require.Equal(t, id, replicationID(t, r))
		next(t, gen, "IS202110240002")
		r.Lose()
		require.NotEqual(t, id, replicationID(t, r))
		next(t, gen, "IS202110240011")
		r.Stop()
		r.Lose()
		_, err := gen.Next(t.Context(), "IS")
		requireUnreachable(t, err)
		r.Start()
		other, err := serial.New(r.Client(), serial.WithLocation(time.UTC), serial.WithMaxSkew(-1),
			serial.WithLedger(&ledger, 10))
		require.NoError(t, err)
		next(t, other, "IS202110240021")
		next(t, gen, "IS202110240022")
	})
}

// replicationID asks for the ID by a script and by a command.
func replicationID(t *testing.T, r *serialtest.Redis) string {
	t.Helper()
	rdb := r.Client()
	says, err := rdb.Eval(t.Context(), "return redis.call('INFO', 'replication')", nil).Text()
	require.NoError(t, err)
	require.Equal(t, says, rdb.Info(t.Context(), "replication").Val())
	require.Contains(t, says, "role:master\r\n")
	_, id, _ := strings.Cut(says, "master_replid:")
	require.Regexp(t, "^[0-9a-f]{40}\r\n", id)
	return id[:40]
}

func TestLoseWithoutLedger(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		gen, r := serialtest.New(t, noon)
		next(t, gen, "IS202110240001")
		r.Lose()
		require.ErrorIs(t, errOf(gen.Next(t.Context(), "IS")), serial.ErrCounterLost)
		require.Empty(t, r.Client().Keys(t.Context(), "*").Val())
		fresh, err := serial.New(r.Client(), serial.WithLocation(time.UTC), serial.WithMaxSkew(-1))
		require.NoError(t, err)
		next(t, fresh, "IS202110240001")
		require.NoError(t, gen.Raise(t.Context(), "IS", 1))
		next(t, gen, "IS202110240002")
	})
}

func TestLoseUnderCalls(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		gen, r := serialtest.New(t, noon, serial.WithLedger(new(serialtest.Ledger), 5))
		var mu sync.Mutex
		seen := map[string]bool{}
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				for range 10 {
					number, err := gen.Next(t.Context(), "IS")
					mu.Lock()
					if err == nil && seen[number] {
						t.Errorf("%s was issued twice", number)
					}
					seen[number] = true
					mu.Unlock()
				}
			})
		}
		for range 3 {
			r.Lose()
			_ = r.Client().Ping(t.Context()).Err()
		}
		wg.Wait()
		require.Greater(t, len(seen), 5)
	})
}

func TestNextOnce(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		gen, r := serialtest.New(t, night.Add(-time.Minute))
		once := func(want string) {
			t.Helper()
			for _, got := range together(5, func(int) string {
				n, _ := gen.NextOnce(context.Background(), "IS", "order 7")
				return n.String()
			}) {
				require.Equal(t, want, got)
			}
		}
		once("IS202110240001")
		r.Advance(time.Hour)
		once("IS202110240001")
		r.Stop()
		r.Start()
		once("IS202110240001")
		next(t, gen, "IS202110250001")
		r.Advance(48 * time.Hour)
		once("IS202110270001")
	})
}

// Start releases the locks of periods, but not stored answers to requests whose IDs look like a lock.
func TestRequestsThatLookLikeLocks(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		gen, r := serialtest.New(t, noon)
		rdb := r.Client()
		once := func(id, want string) {
			t.Helper()
			number, err := gen.NextOnce(t.Context(), "IS", id)
			require.NoError(t, err)
			require.Equal(t, want, number.String())
		}
		ids := []string{"lock", "20211024:lock", "{IS}:20211024:lock", "a {b}:c:lock", "{IS}"}
		for range 2 {
			for i, id := range ids {
				once(id, fmt.Sprintf("IS20211024%04d", i+1))
			}
			require.NoError(t, rdb.Set(t.Context(), "serial:{IS}:20211024:lock", "held", 0).Err())
			require.NoError(t, rdb.Set(t.Context(), "a/b:{x.y}:all:lock", "held", 0).Err())
			r.Stop()
			r.Start()
			require.Zero(t, rdb.Exists(t.Context(), "serial:{IS}:20211024:lock", "a/b:{x.y}:all:lock").Val())
		}
	})
}

// A service may close its client, and the test can continue with another.
func TestClients(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		gen, r := serialtest.New(t, noon)
		rdb := r.Client()
		require.NoError(t, rdb.Set(t.Context(), "own", 1, 0).Err())
		require.NoError(t, rdb.Close())
		require.ErrorIs(t, rdb.Ping(t.Context()).Err(), redis.ErrClosed)
		require.Equal(t, "1", r.Client().Get(t.Context(), "own").Val())
		next(t, gen, "IS202110240001")
	})
}

// A long pipeline does not block itself. Neither do blocking commands, subscriptions and setting the clock block each
// other.
func TestOtherCommands(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		r := serialtest.NewRedis(t, noon)
		rdb := r.Client()
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
		require.NoError(t, errOf(messages.Receive(t.Context())))
		var wg sync.WaitGroup
		wg.Go(func() { _ = rdb.BLPop(context.Background(), 0, "queue").Err() })
		wg.Go(func() { _ = rdb.XRead(context.Background(), &redis.XReadArgs{Streams: []string{"stream", "$"}}).Err() })
		require.Eventually(t, func() bool { return rdb.PoolStats().TotalConns >= 2 }, 5*time.Second, time.Millisecond)
		r.Advance(time.Hour)
		require.NoError(t, rdb.Publish(t.Context(), "news", "extra").Err())
		require.NoError(t, errOf(messages.ReceiveMessage(t.Context())))
		r.Stop()
		r.Start()
		require.NoError(t, rdb.RPush(t.Context(), "queue", 1, 2).Err())
		require.NoError(t, rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: "stream", Values: []string{"a", "b"}}).Err())
		require.NoError(t, rdb.BLPop(t.Context(), 0, "queue").Err())
		_ = rdb.Close()
		wg.Wait()
		_ = messages.Close()
	})
}

// After the end, nothing starts again.
func TestAfterTheEnd(t *testing.T) {
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
