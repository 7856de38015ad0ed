package serial_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/calendar"
)

// A hundred goroutines call Next at the same time, and the counter does not exist yet. They must be issued exactly the
// numbers 0001 to 0100.
func TestBarrier(t *testing.T) {
	_, rdb := startMini(t)
	loc := noon()
	gen := newGenerator(t, rdb, serial.WithLocation(loc))
	got := barrier(t, 100, func(int) (string, error) { return gen.Next(t.Context(), "IS") })
	require.ElementsMatch(t, numbers("IS", today(loc), 1, 100), got)
}

// Concurrent callers request more numbers than a day has. Exactly 9,999 must be issued, and a NextN for which too few
// numbers are left must consume none.
func TestExhaustionAtOnce(t *testing.T) {
	_, rdb := startMini(t)
	loc := noon()
	gens := []*serial.Generator{newGenerator(t, rdb, serial.WithLocation(loc)),
		newGenerator(t, rdb, serial.WithLocation(loc))}
	got := barrier(t, 40, func(i int) (all string, err error) {
		for n := 25; n > 0; {
			issued, err := textsOf(gens[i%2].NextN(t.Context(), "IS", n))
			if err != nil {
				require.ErrorIs(t, err, serial.ErrExhausted)
				n /= 2
			}
			all += strings.Join(issued, " ") + " "
		}
		return all, nil
	})
	all := strings.Fields(strings.Join(got, ""))
	slices.Sort(all)
	require.Equal(t, numbers("IS", today(loc), 1, 9999), all)
	require.Equal(t, "9999", rdb.Get(t.Context(), "serial:{IS}:"+today(loc)).Val())
}

// Callers on three generators issue numbers around midnight, in zones where a midnight does not exist, comes twice, or
// follows a skipped day. Every number must have the day of its call, the numbers of each day must be contiguous from 1,
// and the keys of a day must expire.
func TestMidnight(t *testing.T) {
	for _, test := range []struct{ zone, noon string }{
		{"UTC", "2000-01-01"},
		{"America/Havana", "2001-03-31"}, // midnight does not exist on 1 April
		{"America/Havana", "2000-10-28"}, // midnight comes twice on the 29th
		{"Pacific/Apia", "2011-12-28"},   // the 30th was skipped
	} {
		t.Run(test.zone+" "+test.noon, func(t *testing.T) {
			inBubble(t, func(t *testing.T, m *simulation) {
				loc := location(t, test.zone)
				from, err := time.ParseInLocation("2006-01-02 15:04", test.noon+" 12:00", loc)
				require.NoError(t, err)
				time.Sleep(time.Until(from))
				crossMidnights(t, m, loc)
			})
		})
	}
}

// crossMidnights lets 12 callers issue numbers around each of the next two midnights, and checks the keys afterwards.
func crossMidnights(t *testing.T, m *simulation, loc *time.Location) {
	gens := make([]*serial.Generator, 3)
	for i := range gens {
		gens[i] = newGenerator(t, m.Client(), serial.WithLocation(loc))
	}
	var j journal
	days := calendar.Calendar{Location: loc, Unit: calendar.Day}
	today := days.At(time.Now())
	labels := []string{today.Label}
	for range 2 {
		midnight := time.Unix(today.End, 0)
		var wg sync.WaitGroup
		for i := range 12 {
			wg.Go(func() {
				time.Sleep(time.Until(midnight) - time.Second)
				for time.Since(midnight) < time.Second {
					took, err := j.next(t.Context(), gens[i%len(gens)], "IS")
					require.NoError(t, err)
					require.Less(t, took, time.Second)
					time.Sleep(rand.N(200 * time.Millisecond))
				}
			})
		}
		wg.Wait()
		m.requireExpiries()
		today = days.At(time.Now())
		labels = append(labels, today.Label)
		require.Equal(t, []string{"serial:{IS}", "serial:{IS}:" + today.Label}, m.Keys(), "the past day is gone")
	}
	issued := j.check(t, loc)
	require.Equal(t, labels, slices.Sorted(maps.Keys(issued)))
	for day, seqs := range issued {
		require.Greater(t, len(seqs), 50)
		require.Equal(t, upTo(len(seqs)), seqs, "%s", day)
	}
	time.Sleep(9 * 24 * time.Hour)
	require.Empty(t, m.Keys())
}

// upTo returns the numbers 1 to n.
func upTo(n int) []int64 {
	all := make([]int64, n)
	for i := range all {
		all[i] = int64(i + 1)
	}
	return all
}

// A process crashes while it opens a day. Calls of other processes must wait until its lock expires, but only once.
// Guarantees: opener-killed.
func TestCrashedOpenerDelaysByTheLockAtMost(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		dead := false
		crashing := around(func(cmd redis.Cmder, send func() error) error {
			var err error
			if !dead {
				err = send()
				dead = cmd.Name() == "set"
			}
			if dead {
				err = errBoom
			}
			cmd.SetErr(err)
			return err
		})
		require.ErrorIs(t, errOf(newGenerator(t, m.Client(crashing)).Next(t.Context(), "IS")), errBoom)
		require.Len(t, m.Keys(), 1, "the lock is left behind")
		before := time.Now()
		require.NoError(t, errOf(newGenerator(t, m.Client()).Next(t.Context(), "IS")))
		require.InDelta(t, lockExpiry, time.Since(before), float64(time.Second))
	})
}

// Another process holds the lock and never releases it. A call must wait until its context ends or, without a deadline,
// for half a minute.
// Guarantees: lock-kept.
func TestWaitingForAnotherOpener(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		gen := newGenerator(t, m.Client(), serial.WithLocation(time.UTC))
		const lock = "serial:{IS}:20000101:lock"
		require.NoError(t, m.Set(lock, "another"))
		m.SetTTL(lock, time.Hour)
		limited, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		before := time.Now()
		require.ErrorIs(t, errOf(gen.Next(limited, "IS")), context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(before))
		canceled, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		before = time.Now()
		require.ErrorIs(t, errOf(gen.Next(canceled, "IS")), context.Canceled)
		require.Equal(t, time.Second, time.Since(before))
		before = time.Now()
		_, err := gen.Next(t.Context(), "IS")
		require.ErrorContains(t, err, "serial: IS 20000101 was not opened within 30s: other callers held the lock")
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		require.InDelta(t, 30*time.Second, time.Since(before), float64(time.Second))
		m.CheckGet(t, lock, "another") // is not ours to release
		require.NoError(t, gen.Raise(t.Context(), "IS", 1), "Raise needs no lock")
	})
}

// At midnight, several processes call Next, and the floor is slow. Only one process must query the floor.
func TestFloorIsAskedOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		var asked atomic.Int64
		floor := serial.WithFloor(func(context.Context, string, time.Time) (int64, error) {
			asked.Add(1)
			time.Sleep(6 * time.Second)
			return 10, nil
		})
		var wg sync.WaitGroup
		var j journal
		for range 5 {
			gen := newGenerator(t, m.Client(), serial.WithLocation(time.UTC), floor)
			for range 4 {
				wg.Go(func() {
					took, err := j.next(t.Context(), gen, "IS")
					require.NoError(t, err)
					require.Less(t, took, 7*time.Second)
				})
			}
		}
		wg.Wait()
		require.EqualValues(t, 1, asked.Load())
		require.Equal(t, upTo(30)[10:], j.check(t, time.UTC)["20000101"])
	})
}

// The clock of a host is wrong by hours or by more than a year. Numbers must have the day by Redis's clock, and only
// the first call to each server must need an additional round trip.
func TestHostsWithOtherClocks(t *testing.T) {
	for _, ahead := range []time.Duration{-2 * time.Hour, time.Second, 400 * 24 * time.Hour} {
		t.Run(ahead.String(), func(t *testing.T) {
			m := miniredis.RunT(t)
			y, month, d := time.Now().Add(-ahead).UTC().Date()
			server := time.Date(y, month, d, 23, 59, 58, 0, time.UTC)
			var sent atomic.Int64
			rdb := closing(t, redis.NewClient(&redis.Options{Addr: m.Addr()}))
			rdb.AddHook(counting(&sent))
			opener := newGenerator(t, rdb, serial.WithLocation(time.UTC), serial.WithMaxSkew(-1))
			gen := newGenerator(t, rdb, serial.WithLocation(time.UTC))
			for day := range 2 {
				m.SetTime(server.AddDate(0, 0, day))
				want := server.AddDate(0, 0, day).Format("20060102")
				for i, typ := range []string{"IS", "OTHER"} {
					requireResult(t, typ+want+"0001")(opener.Next(t.Context(), typ))
					for j := range 2 {
						sent.Store(0)
						requireResult(t, fmt.Sprintf("%s%s%04d", typ, want, j+2))(gen.Next(t.Context(), typ))
						require.True(t, sent.Load() == 1 || i+j == 0, "%d round trips", sent.Load())
					}
				}
			}
		})
	}
}

// The clock of Redis differs from the clock of the host by more than WithMaxSkew. No period must be opened.
// Guarantees: clock-ahead.
func TestWildClock(t *testing.T) {
	m, rdb := startMini(t)
	for _, c := range []struct {
		wrong, allowed time.Duration
		refused        bool
	}{
		{-61 * time.Minute, time.Hour, true},
		{-59 * time.Minute, time.Hour, false},
		{59 * time.Minute, time.Hour, false},
		{61 * time.Minute, time.Hour, true},
		{5 * 365 * 24 * time.Hour, -1, false},
		{time.Minute, time.Second, true},
	} {
		m.FlushAll()
		m.SetTime(time.Now().Add(c.wrong))
		gen := newGenerator(t, rdb, serial.WithMaxSkew(c.allowed))
		_, err := gen.Next(t.Context(), "IS")
		if !c.refused {
			require.NoError(t, err)
			continue
		}
		require.ErrorIs(t, err, serial.ErrClockSkew)
		require.ErrorIs(t, gen.Raise(t.Context(), "IS", 5), serial.ErrClockSkew)
		require.ErrorIs(t, gen.Takeover(t.Context(), "IS", 5), serial.ErrClockSkew)
		requireNoKeys(t, m)
		// A period that is already open serves every clock.
		require.NoError(t, errOf(newGenerator(t, rdb, serial.WithMaxSkew(-1)).Next(t.Context(), "IS")))
		require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
	}
}

// The clock of Redis is set back to a time before the current period. Calls must wait if the period begins soon, and
// fail if it does not. Only Raise must replace a period that lies in the future.
// Guarantees: clock-back, future-day.
func TestClockSetBack(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		gen := newGenerator(t, m.Client(), serial.WithLocation(time.UTC))
		midnight := time.Date(2000, 1, 2, 0, 0, 0, 0, time.UTC)
		time.Sleep(time.Until(midnight.Add(time.Minute)))
		require.NoError(t, errOf(gen.Next(t.Context(), "IS")))

		m.SetTime(midnight.Add(-3 * time.Second))
		thaw := time.AfterFunc(2*time.Second, func() { m.SetTime(midnight.Add(time.Minute)) })
		defer thaw.Stop()
		before := time.Now()
		requireResult(t, "IS200001020002")(gen.Next(t.Context(), "IS"))
		require.InDelta(t, 3*time.Second, time.Since(before), float64(100*time.Millisecond))

		m.SetTime(midnight.Add(-6 * time.Second))
		before = time.Now()
		require.ErrorIs(t, errOf(gen.Next(t.Context(), "IS")), serial.ErrClockSkew)
		require.ErrorIs(t, errOf(gen.Peek(t.Context(), "IS")), serial.ErrClockSkew)
		require.Equal(t, before, time.Now())
		require.Equal(t, []string{"serial:{IS}", "serial:{IS}:20000102"}, m.Keys(), "nothing was opened")
		require.NoError(t, gen.Raise(t.Context(), "IS", 7))
		requireResult(t, "IS200001010008")(gen.Next(t.Context(), "IS"))
	})
}

// Midnight passes between the read and the write of Raise. The new day must be opened above its own floor, not above
// the floor of the old day.
func TestRaiseAcrossMidnight(t *testing.T) {
	runBoth(t, "opened before", func(t *testing.T, m *simulation, opened bool) {
		midnight := time.Date(2000, 1, 2, 0, 0, 0, 0, time.UTC)
		time.Sleep(time.Until(midnight) - time.Second)
		floor := serial.WithFloor(func(_ context.Context, _ string, start time.Time) (int64, error) {
			if start.Before(midnight) {
				return 4000, nil
			}
			return 500, nil
		})
		if opened {
			require.NoError(t, errOf(newGenerator(t, m.Client(), serial.WithLocation(time.UTC)).Next(t.Context(), "IS")))
		}
		strike := around(func(cmd redis.Cmder, send func() error) error {
			if isOpen(cmd) {
				time.Sleep(time.Until(midnight))
			}
			return send()
		})
		gen := newGenerator(t, m.Client(strike), serial.WithLocation(time.UTC), floor)
		require.NoError(t, gen.Raise(t.Context(), "IS", 10))
		requireResult(t, "IS200001020501")(gen.Next(t.Context(), "IS"))
	})
}

// A call that opens a period must take three round trips. With a floor or a ledger, the counter is checked again before
// the query. This check must be sent together with the command for the lock, or take a fourth round trip if the lock is
// on another server. Afterwards, the lock must be released.
func TestRoundTripsOfAnOpening(t *testing.T) {
	floor := func(*redis.Client) []serial.Option { return options(fixedFloor(0)) }
	for name, test := range map[string]struct {
		opts func(*redis.Client) []serial.Option
		want string
	}{
		"plain":         {func(*redis.Client) []serial.Option { return nil }, "take, set, open"},
		"with a floor":  {floor, "take, set take, open"},
		"with a ledger": {func(*redis.Client) []serial.Option { return ledgerIf(true, 10) }, "take, set take, open"},
		"with a floor and a lock server": {func(rdb *redis.Client) []serial.Option {
			return append(floor(rdb), serial.WithLockClients(rdb))
		}, "take, set, take, open"},
	} {
		runInBubble(t, name, func(t *testing.T, m *simulation) {
			var sent lines
			rdb := m.Client(everyCall(func(cmds []redis.Cmder, send func() error) error {
				var steps []string
				for _, cmd := range cmds {
					if step := stepOf(cmd); step == "take" || step == "set" || step == "open" {
						steps = append(steps, step)
					}
				}
				if steps != nil {
					sent.add("%s", strings.Join(steps, " "))
				}
				return send()
			}))
			gen := newGenerator(t, rdb, test.opts(rdb)...)
			require.NoError(t, errOf(gen.Next(t.Context(), "OTHER"))) // the server knows the scripts
			sent.take()
			require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
			require.Equal(t, test.want, strings.Join(sent.take(), ", "))
			synctest.Wait()
			require.Len(t, m.Keys(), 4, "a record and a counter of each type")
		})
	}
}
