package serial_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"runtime"
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
	"github.com/dailyserial/serial/internal/race"
	"github.com/dailyserial/serial/internal/redistest"
	inner "github.com/dailyserial/serial/internal/series"
)

// A hundred goroutines start at the same moment on a missing counter and are issued exactly 0001 to 0100.
func TestBarrier(t *testing.T) {
	_, rdb := startMini(t)
	loc := noon()
	gen := newGenerator(t, rdb, serial.WithLocation(loc))
	got := barrier(t, 100, func(int) (string, error) { return gen.Next(t.Context(), "IS") })
	require.ElementsMatch(t, numbers("IS", today(loc), 1, 100), got)
}

// Callers that request more numbers than exist are issued exactly 9,999, and a NextN that does not fit consumes
// nothing.
func TestExhaustionAtOnce(t *testing.T) {
	_, rdb := startMini(t)
	loc := noon()
	gens := []*serial.Generator{newGenerator(t, rdb, serial.WithLocation(loc)),
		newGenerator(t, rdb, serial.WithLocation(loc))}
	var mu sync.Mutex
	var got []string
	var refused atomic.Int64
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			for j := range 20 {
				all, err := textsOf(gens[i%2].NextN(t.Context(), "IS", 1+(i+j)%25))
				if err != nil {
					require.ErrorIs(t, err, serial.ErrExhausted)
					refused.Add(1)
				}
				mu.Lock()
				got = append(got, all...)
				mu.Unlock()
			}
			for {
				number, err := gens[i%2].Next(t.Context(), "IS")
				if err != nil {
					require.ErrorIs(t, err, serial.ErrExhausted)
					return
				}
				mu.Lock()
				got = append(got, number)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	slices.Sort(got)
	require.Equal(t, numbers("IS", today(loc), 1, 9999), got)
	require.Equal(t, "9999", rdb.Get(t.Context(), "serial:{IS}:"+today(loc)).Val())
	require.Positive(t, refused.Load())
}

// Many callers on three generators cross two midnights: every number bears its day, each day's numbers are contiguous
// from 1, and a day's keys expire with it.
func TestMidnight(t *testing.T) {
	for _, zone := range []string{
		// The bubble begins on 2000-01-01 UTC; Havana's next midnight but one is ordinary.
		"UTC", "Asia/Shanghai", "America/Havana",
	} {
		t.Run(zone, func(t *testing.T) {
			race.Bubble(t, func(t *testing.T) { crossMidnights(t, location(t, zone), time.Now(), 2, 80*time.Millisecond) })
		})
	}
}

// The same holds at midnights that do not exist or come twice.
func TestUnusualMidnights(t *testing.T) {
	for _, c := range []struct{ zone, around string }{
		{"America/Havana", "2001-03-31"},    // midnight does not exist on 1 April
		{"America/Havana", "2000-10-28"},    // midnight comes twice on the 29th
		{"America/Sao_Paulo", "2000-02-26"}, // 25 hours
		{"Asia/Tehran", "2000-03-20"},
		{"Antarctica/Casey", "2010-03-04"}, // 27 hours
		{"Pacific/Apia", "2011-12-28"},     // the 30th was skipped
	} {
		t.Run(c.zone+" "+c.around, func(t *testing.T) {
			race.Bubble(t, func(t *testing.T) {
				loc := location(t, c.zone)
				from, err := time.ParseInLocation("2006-01-02 15:04", c.around+" 12:00", loc)
				require.NoError(t, err)
				time.Sleep(time.Until(from))
				crossMidnights(t, loc, from, 3, 200*time.Millisecond)
			})
		})
	}
}

// crossMidnights has 12 callers on three generators issue numbers around every midnight, and checks the keys in
// between.
func crossMidnights(t *testing.T, loc *time.Location, from time.Time, days int, pause time.Duration) {
	m := simulate(t)
	gens := make([]*serial.Generator, 3)
	for i := range gens {
		gens[i] = newGenerator(t, m.Client(), serial.WithLocation(loc))
	}
	var j journal
	now := from
	calendarDays := calendar.Calendar{Location: loc, Unit: calendar.Day}
	var labels []string
	for range days {
		today := calendarDays.At(now)
		labels = append(labels, today.Label)
		now = time.Unix(today.End, 0)
		var wg sync.WaitGroup
		for i := range 12 {
			wg.Go(func() {
				time.Sleep(time.Until(now) - time.Second)
				for time.Since(now) < time.Second {
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					took, err := j.next(ctx, gens[i%len(gens)], "IS")
					cancel()
					require.NoError(t, err)
					require.Less(t, took, time.Second)
					time.Sleep(rand.N(pause))
				}
			})
		}
		wg.Wait()
		m.requireExpiries()
		next := calendarDays.At(time.Now()).Label
		require.Equal(t, []string{"serial:{IS}", "serial:{IS}:" + next}, m.Keys(), "the past day is gone")
	}
	labels = append(labels, calendarDays.At(time.Now()).Label)
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

// A call that is suspended past its deadline fails, and an opening has less time than a call.
const (
	neverHarmless = iota
	harmlessIfOpen
	alwaysHarmless
)

// faults are what can happen to a process at a command: run carries out the command, if called.
var faults = []struct {
	name     string
	harmless int // whether the call must succeed anyway
	run      func(f *faulty, run func() error) error
}{
	{"midnight comes before", alwaysHarmless, func(f *faulty, run func() error) error {
		time.Sleep(time.Until(f.midnight))
		return run()
	}},
	{"midnight comes after", alwaysHarmless, func(f *faulty, run func() error) error {
		err := run()
		time.Sleep(time.Until(f.midnight))
		return err
	}},
	{"paused before", neverHarmless, func(f *faulty, run func() error) error {
		time.Sleep(time.Minute)
		return run()
	}},
	{"paused after", neverHarmless, func(f *faulty, run func() error) error {
		err := run()
		time.Sleep(time.Minute)
		return err
	}},
	{"paused before until the lock has just expired", harmlessIfOpen, func(f *faulty, run func() error) error {
		time.Sleep(lockExpiry)
		return run()
	}},
	{"killed before", neverHarmless, func(f *faulty, run func() error) error {
		f.dead.Store(true)
		return errKilled
	}},
	{"killed after", neverHarmless, func(f *faulty, run func() error) error {
		_ = run()
		f.dead.Store(true)
		return errKilled
	}},
	{"request lost", neverHarmless, func(f *faulty, run func() error) error { return io.EOF }},
	{"reply lost", neverHarmless, func(f *faulty, run func() error) error {
		_ = run()
		return io.EOF
	}},
	{"reply lost, with an error that is not tried again", neverHarmless, func(f *faulty, run func() error) error {
		_ = run()
		return errBoom
	}},
	{"sent twice", alwaysHarmless, func(f *faulty, run func() error) error {
		_ = run()
		return run()
	}},
	{"sent again a minute later", alwaysHarmless, func(f *faulty, run func() error) error {
		err := run()
		go func() { // a copy delayed in the network
			time.Sleep(time.Minute)
			synctest.Wait() // the commands are not in use any more, as the race detector now knows
			_ = run()
		}()
		return err
	}},
}

var errKilled = errors.New("killed")

// faulty is a hook that makes one fault happen at a client's at-th command. A killed client sends nothing more.
type faulty struct {
	at       int64  // including commands of the connection's set-up,
	name     string // or at every command of this name
	fault    func(f *faulty, run func() error) error
	midnight time.Time

	count atomic.Int64
	dead  atomic.Bool
}

func (f *faulty) hook() hook {
	return func(next redis.ProcessHook) redis.ProcessHook {
		return func(ctx context.Context, cmd redis.Cmder) error {
			if cmd.Name() == "client" { // go-redis holds a mutex, and a bubble's time stops while a goroutine waits for one
				return next(ctx, cmd)
			}
			now := f.count.Add(1) == f.at || cmd.Name() == f.name
			run := func() error { return next(ctx, cmd) }
			var err error
			switch {
			case f.dead.Load():
				err = errKilled
			case now:
				err = f.fault(f, run)
			default:
				err = run()
			}
			cmd.SetErr(err)
			return err
		}
	}
}

// Each fault happens at each command of a call, with a context that can end and one that cannot, while another
// generator continues. No number is issued twice or on a wrong day, no key lacks an expiry, and nobody is stuck for
// longer than patience.
func TestFaults(t *testing.T) {
	scenarios := []struct {
		name                string
		floor, opened, lost bool
	}{
		{"from a missing counter", false, false, false},
		{"from a missing counter, with a floor", true, false, false},
		{"in an open period", false, true, false},
		{"from a lost counter, with a floor", true, true, true},
	}
	cases := 0
	for j, sc := range scenarios {
		for i, fault := range faults {
			if i%2 != j%2 && !redistest.Long() {
				continue
			}
			for _, deadline := range []bool{false, true} {
				if (i/2%2 == 0) != deadline && !redistest.Long() {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/deadline=%v", sc.name, fault.name, deadline), func(t *testing.T) {
					for at := int64(1); ; at++ {
						reached := false
						inBubble(t, func(t *testing.T, m *simulation) {
							midnight := time.Date(2000, 1, 2, 0, 0, 0, 0, time.UTC)
							time.Sleep(time.Until(midnight) - 3*time.Second)
							if sc.opened {
								require.NoError(t, errOf(newGenerator(t, m.Client(), serial.WithLocation(time.UTC)).Next(t.Context(), "IS")))
							}
							if sc.lost {
								m.Del("serial:{IS}:20000101")
							}
							f := &faulty{at: at, fault: fault.run, midnight: midnight}
							harmless := fault.harmless == alwaysHarmless || fault.harmless == harmlessIfOpen && sc.opened && !sc.lost
							meetFault(t, m, f, sc.floor, deadline, harmless)
							reached = f.count.Load() >= at
						})
						if !reached {
							break
						}
						cases++
					}
				})
			}
		}
	}
	t.Logf("%d cases", cases)
	require.Greater(t, cases, map[bool]int{true: 300, false: 75}[redistest.Long()])
}

// meetFault has one generator issue a number through f while another continues.
func meetFault(t *testing.T, m *simulation, f *faulty, floor, deadline, harmless bool) {
	var j journal
	opts := []serial.Option{serial.WithLocation(time.UTC)}
	if floor { // the numbers that reached their callers, as a database would store them
		opts = append(opts, serial.WithFloor(func(_ context.Context, _ string, start time.Time) (int64, error) {
			j.mu.Lock()
			defer j.mu.Unlock()
			most := int64(1) // issued before, on the first day
			for _, e := range j.entries {
				if e.day == start.Format("20060102") {
					most = max(most, e.seq)
				}
			}
			return most, nil
		}))
	}
	victim := newGenerator(t, m.Client(f.hook()), opts...)
	witness := newGenerator(t, m.Client(), opts...)

	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() {
		defer close(stop)
		ctx := context.Background()
		if deadline {
			limited, cancel := context.WithTimeout(ctx, 5*time.Minute)
			defer cancel()
			ctx = limited
		}
		// A paused call takes as long as the pause, and later calls no longer than any other.
		took, err := j.next(ctx, victim, "IS")
		require.Less(t, took, time.Minute+patience)
		if harmless {
			require.NoError(t, err)
		}
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		if !f.dead.Load() {
			over := f.count.Load() >= f.at
			require.True(t, errOf(j.next(ctx, victim, "IS")) == nil || !over, "the fault is over: %v", err)
		}
	})
	wg.Go(func() {
		interval := 50 * time.Millisecond
		for stopping := false; !stopping; interval = min(interval*4/3, 5*time.Second) {
			select {
			case <-stop:
				time.Sleep(2 * time.Minute) // past any delayed copy
				stopping = true
			case <-time.After(interval):
			}
			took, err := j.next(t.Context(), witness, "IS")
			require.NoError(t, err)
			require.Less(t, took, patience)
			m.requireExpiries()
		}
	})
	wg.Wait()
	j.check(t, time.UTC)
	time.Sleep(9 * 24 * time.Hour)
	require.Empty(t, m.Keys(), "nothing stays behind")
}

// A process that stops for good in the middle of opening costs the others the lock's expiry once.
// Guarantees: opener-killed.
func TestCrashedOpenerDelaysByTheLockAtMost(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		f := &faulty{name: "set", fault: func(f *faulty, run func() error) error {
			_ = run()
			f.dead.Store(true)
			return errKilled
		}}
		require.ErrorIs(t, errOf(newGenerator(t, m.Client(f.hook())).Next(t.Context(), "IS")), errKilled)
		require.Len(t, m.Keys(), 1, "the lock is left behind")
		before := time.Now()
		require.NoError(t, errOf(newGenerator(t, m.Client()).Next(t.Context(), "IS")))
		require.InDelta(t, lockExpiry, time.Since(before), float64(time.Second))
	})
}

// While another holds the lock, a call waits as long as its context lives, or half a minute without a deadline.
// Guarantees: lock-kept.
func TestWaitingForAnotherOpener(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		gen := newGenerator(t, m.Client(), serial.WithLocation(time.UTC))
		require.NoError(t, m.Set("serial:{IS}:20000101:lock", "another"))
		m.SetTTL("serial:{IS}:20000101:lock", time.Hour)
		for _, limit := range []time.Duration{time.Second, 5 * time.Minute} {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			before := time.Now()
			require.ErrorIs(t, errOf(gen.Next(ctx, "IS")), context.DeadlineExceeded)
			require.Equal(t, limit, time.Since(before))
			cancel()
		}
		for _, ctx := range []context.Context{context.Background(), t.Context()} {
			before := time.Now()
			_, err := gen.Next(ctx, "IS")
			require.ErrorContains(t, err, "not opened within 30s")
			require.NotErrorIs(t, err, context.DeadlineExceeded)
			require.InDelta(t, 30*time.Second, time.Since(before), float64(time.Second))
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		before := time.Now()
		require.ErrorIs(t, errOf(gen.Next(ctx, "IS")), context.Canceled)
		require.Equal(t, time.Second, time.Since(before))
	})
}

// At midnight one process asks the floor, however slow it is, and the others do not.
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
				wg.Go(func() { require.NoError(t, errOf(j.next(t.Context(), gen, "IS"))) })
			}
		}
		wg.Wait()
		require.EqualValues(t, 1, asked.Load())
		require.Equal(t, upTo(30)[10:], j.check(t, time.UTC)["20000101"])
	})
}

// The floor's context ends with the caller's, and always before the lock expires.
func TestFloorThatHangs(t *testing.T) {
	runBoth(t, "respects its context", func(t *testing.T, m *simulation, heeds bool) {
		gen := newGenerator(t, m.Client(), serial.WithFloor(func(ctx context.Context, _ string, _ time.Time) (int64,
			error) {
			if heeds {
				<-ctx.Done()
				return 0, errBoom
			}
			time.Sleep(time.Hour)
			return 0, nil
		}))
		before := time.Now()
		_, err := gen.Next(context.Background(), "IS")
		require.Error(t, err)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		require.Less(t, time.Since(before), lockExpiry)
		synctest.Wait()
		require.Empty(t, m.Keys(), "the lock is released")

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		before = time.Now()
		require.ErrorIs(t, errOf(gen.Next(ctx, "IS")), context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(before))
		synctest.Wait()
		require.Empty(t, m.Keys(), "the lock is released")
		time.Sleep(2 * time.Hour) // until a floor that ignores its context returns
	})
}

// Redis's midnight counts. A host whose clock is wrong, by less than a day or by weeks, needs an extra round trip once.
func TestHostsWithOtherClocks(t *testing.T) {
	for _, ahead := range []time.Duration{-40 * 24 * time.Hour, -2 * time.Hour, -time.Second, time.Second, 2 * time.Hour,
		400 * 24 * time.Hour} {
		t.Run(ahead.String(), func(t *testing.T) {
			m := miniredis.RunT(t)
			server := time.Now().Add(-ahead).UTC()
			if y, mo, d := server.Date(); true { // two seconds before the server's midnight
				server = time.Date(y, mo, d, 23, 59, 58, 0, time.UTC)
			}
			m.SetTime(server)
			var sent atomic.Int64
			rdb := closing(t, redis.NewClient(&redis.Options{Addr: m.Addr()}))
			rdb.AddHook(counting(&sent))
			opener := newGenerator(t, rdb, serial.WithLocation(time.UTC), serial.WithMaxSkew(-1))
			gen := newGenerator(t, rdb, serial.WithLocation(time.UTC))
			for day := range 3 {
				want := server.AddDate(0, 0, day).Format("20060102")
				m.SetTime(server.AddDate(0, 0, day))
				requireResult(t, numbers("IS", want, 1, 2))(textsOf(opener.NextN(t.Context(), "IS", 2)))
				for i := range 3 {
					sent.Store(0)
					requireResult(t, fmt.Sprintf("IS%s%04d", want, 3+i))(gen.Next(t.Context(), "IS"))
					if i > 0 {
						require.EqualValues(t, 1, sent.Load())
					}
				}
				if day == 0 { // another type on the same server needs no second correction
					require.NoError(t, errOf(opener.Next(t.Context(), "OTHER")))
					sent.Store(0)
					require.NoError(t, errOf(gen.Next(t.Context(), "OTHER")))
					require.EqualValues(t, 1, sent.Load())
				}
			}
		})
	}
}

// A Redis whose clock is far from this host's opens nothing.
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
		{5 * 365 * 24 * time.Hour, time.Hour, true},
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
		requireNoKeys(t, m)
		// A period that is already open serves every clock.
		require.NoError(t, errOf(newGenerator(t, rdb, serial.WithMaxSkew(-1)).Next(t.Context(), "IS")))
		require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
	}
}

// The clock is set back to before the period entered: callers wait for a little, and are refused if it is more.
// Guarantees: clock-back.
func TestClockSetBack(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		gen := newGenerator(t, m.Client(), serial.WithLocation(time.UTC))
		midnight := time.Date(2000, 1, 2, 0, 0, 0, 0, time.UTC)
		time.Sleep(time.Until(midnight.Add(time.Minute)))
		require.NoError(t, errOf(gen.Next(t.Context(), "IS")))

		refused := func(gen *serial.Generator, ctx context.Context, within time.Duration) {
			t.Helper()
			before := time.Now()
			require.ErrorIs(t, errOf(gen.Next(ctx, "IS")), serial.ErrClockSkew)
			require.LessOrEqual(t, time.Since(before), within)
			require.Equal(t, []string{"serial:{IS}", "serial:{IS}:20000102"}, m.Keys(), "nothing was opened")
		}
		m.SetTime(midnight.Add(-6 * time.Second))
		refused(gen, t.Context(), 0)
		m.SetTime(midnight.Add(-3 * time.Second)) // stands still: it never catches up
		refused(gen, t.Context(), 6*time.Second)
		soon, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		refused(newGenerator(t, m.Client(), serial.WithLocation(time.UTC)), soon, 0) // its context would end first
		require.ErrorIs(t, errOf(gen.Peek(t.Context(), "IS")), serial.ErrClockSkew)

		// The clock runs again, and callers wait for it.
		thaw := time.AfterFunc(2*time.Second, func() { m.SetTime(midnight.Add(time.Minute)) })
		defer thaw.Stop()
		before := time.Now()
		requireResult(t, "IS200001020002")(gen.Next(t.Context(), "IS"))
		require.InDelta(t, 3*time.Second, time.Since(before), float64(100*time.Millisecond))
	})
}

// Only Raise replaces a record that lies in the future.
// Guarantees: future-day.
func TestRaiseEndsAFuturePeriod(t *testing.T) {
	m, rdb := startMini(t)
	day := time.Now().UTC().Format("20060102")
	m.SetTime(time.Now().AddDate(5, 0, 0))
	_, err := newGenerator(t, rdb, serial.WithLocation(time.UTC), serial.WithMaxSkew(-1)).Next(t.Context(), "IS")
	require.NoError(t, err)
	m.SetTime(time.Time{})

	gen := newGenerator(t, rdb, serial.WithLocation(time.UTC))
	require.ErrorIs(t, errOf(gen.Next(t.Context(), "IS")), serial.ErrClockSkew)
	require.NoError(t, gen.Raise(t.Context(), "IS", 7))
	requireResult(t, "IS"+day+"0008")(gen.Next(t.Context(), "IS"))
}

// Midnight comes between a Raise's read and its write: the new day is opened above its own floor, not above the old
// day's.
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

// A caller that gets the lock too late to ask the floor starts over; it never asks with a context that has ended.
func TestFloorIsNotAskedTooLate(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		asked, sets := 0, 0
		slow := around(func(cmd redis.Cmder, send func() error) error {
			if sets == 1 { // the check under the first lock
				sets++
				time.Sleep(lockExpiry - 100*time.Millisecond)
			}
			if cmd.Name() == "set" {
				sets++
			}
			return send()
		})
		gen := newGenerator(t, m.Client(slow), serial.WithLocation(time.UTC),
			serial.WithFloor(func(ctx context.Context, _ string, _ time.Time) (int64, error) {
				asked++
				return 7, ctx.Err()
			}))
		requireResult(t, "IS200001010008")(gen.Next(context.Background(), "IS"))
		require.Equal(t, 1, asked)
	})
}

// A zone so far west that its day's label was used already does not open that day.
func TestEarlierLabelIsAConflict(t *testing.T) {
	m, rdb := startMini(t)
	east, west := time.FixedZone("", 26*3600), time.FixedZone("", -26*3600)
	now := time.Date(2025, 3, 10, 22, 0, 0, 0, time.UTC) // the 12th begins in the east
	m.SetTime(now)
	got, err := newGenerator(t, rdb, serial.WithLocation(east), serial.WithMaxSkew(-1)).Next(t.Context(), "IS")
	require.NoError(t, err)
	require.Equal(t, "IS202503120001", got)
	m.SetTime(now.Add(29 * time.Hour)) // the 11th has begun in the west
	_, err = newGenerator(t, rdb, serial.WithLocation(west), serial.WithMaxSkew(-1)).Next(t.Context(), "IS")
	require.ErrorIs(t, err, serial.ErrConflict)
}

// A host whose clock shows a year that yy cannot print asks Redis for the time.
func TestHostInAnotherCentury(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		m.SetTime(time.Date(2021, 10, 24, 12, 0, 0, 0, time.UTC))
		gen := newGenerator(t, m.Client(), serial.WithLocation(location(t, "America/New_York")), // still in 1999
			serial.WithTemplate("{type}{date:yyMMdd}{seq:4}"), serial.WithMaxSkew(-1))
		requireResult(t, "IS2110240001")(gen.Next(t.Context(), "IS"))
	})
}

// If the answer to an opening is lost in the network, the client does not repeat the command: the number is a gap.
func TestOpenIsSentOnce(t *testing.T) {
	m := miniredis.RunT(t)
	var lost atomic.Int64
	rdb := closing(t, redis.NewClient(&redis.Options{Addr: m.Addr(), Dialer: func(ctx context.Context,
		network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return &deafConn{Conn: conn, to: `"grant":`, lost: &lost}, err
	}}))
	loc := noon()
	gen := newGenerator(t, rdb, serial.WithLocation(loc))
	require.ErrorContains(t, errOf(gen.Next(t.Context(), "IS")), "Redis failed")
	require.EqualValues(t, 1, lost.Load())
	requireResult(t, "IS"+today(loc)+"0002")(gen.Next(t.Context(), "IS"))
}

// A deafConn breaks instead of delivering the answer to the first command that contains a text.
type deafConn struct {
	net.Conn
	to   string
	lost *atomic.Int64
	deaf bool
}

func (c *deafConn) Write(b []byte) (int, error) {
	c.deaf = strings.Contains(string(b), c.to)
	return c.Conn.Write(b)
}

func (c *deafConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.deaf {
		c.lost.Add(1)
		c.deaf = false
		_ = c.Close()
		return 0, io.EOF
	}
	return n, err
}

// One of a process's callers tries the lock and the others wait for the result, whether another process holds the lock
// or the lock servers do not answer.
func TestOneAttemptAtTheLock(t *testing.T) {
	const callers = 100
	hang := around(func(cmd redis.Cmder, send func() error) error {
		if cmd.Name() == "set" {
			time.Sleep(time.Hour)
		}
		return send()
	})
	runInBubble(t, "another holds the lock", func(t *testing.T, m *simulation) {
		var sent atomic.Int64
		gen := newGenerator(t, m.Client(counting(&sent, "set")), serial.WithLocation(time.UTC))
		require.NoError(t, m.Set("serial:{IS}:20000101:lock", "another"))
		m.SetTTL("serial:{IS}:20000101:lock", 3*time.Second)
		before := time.Now()
		got := barrier(t, callers, func(int) (string, error) { return gen.Next(context.Background(), "IS") })
		require.ElementsMatch(t, numbers("IS", "20000101", 1, callers), got)
		require.Less(t, time.Since(before), 4*time.Second)
		require.Less(t, sent.Load(), int64(callers), "in 3 s one caller alone tries some forty times")
	})
	runInBubble(t, "nobody answers", func(t *testing.T, m *simulation) {
		var sent atomic.Int64
		gen := newGenerator(t, m.Client(), serial.WithLocation(time.UTC),
			serial.WithLockClients(m.Client(counting(&sent, "set"), hang)))
		before := time.Now()
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				require.ErrorContains(t, errOf(gen.Next(context.Background(), "IS")), "the lock servers")
			})
		}
		wg.Wait()
		require.LessOrEqual(t, time.Since(before), 10*time.Second)
		require.LessOrEqual(t, sent.Load(), int64(5))
		time.Sleep(2 * time.Hour) // until hanging commands have ended
	})
}

// gated holds up every command and pipeline while closed, and counts pipelines of several commands.
type gated struct {
	gate   atomic.Pointer[chan struct{}]
	shared atomic.Int64
}

func (g *gated) close() { c := make(chan struct{}); g.gate.Store(&c) }
func (g *gated) open()  { close(*g.gate.Swap(nil)) }

func (g *gated) hook() everyCall {
	return func(cmds []redis.Cmder, send func() error) error {
		if len(cmds) > 1 {
			g.shared.Add(1)
		}
		if c := g.gate.Load(); c != nil {
			<-*c
		}
		return send()
	}
}

// However many commands hang, others go on.
func TestManyThatHangDoNotDelayTheOthers(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		rdb := m.Client()
		gen := newGenerator(t, rdb, serial.WithLocation(time.UTC))
		for _, typ := range []string{"SLOW", "OK"} {
			require.NoError(t, errOf(gen.Next(t.Context(), typ)))
		}
		rdb.AddHook(around(func(cmd redis.Cmder, send func() error) error {
			if strings.Contains(fmt.Sprint(cmd.Args()...), "{SLOW}") {
				time.Sleep(time.Hour)
			}
			return send()
		}))
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() { _, _ = gen.Next(t.Context(), "SLOW") })
			time.Sleep(100 * time.Millisecond) // each a separate call
		}
		for range 3 {
			start := time.Now()
			require.NoError(t, errOf(gen.Next(context.Background(), "OK")))
			require.Less(t, time.Since(start), 200*time.Millisecond)
		}
		wg.Wait()
		time.Sleep(2 * time.Hour) // until abandoned commands have ended
	})
}

// If the answer to a shared command is lost, the numbers now missing may have been consumed by it.
func TestLostAnswerIsNotExhaustion(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		rdb := m.Client()
		gen := newGenerator(t, rdb, serial.WithLocation(time.UTC))
		require.NoError(t, gen.Raise(t.Context(), "IS", 9989))
		var hold gated
		var takes atomic.Int64
		rdb.AddHook(losing(io.ErrUnexpectedEOF, func(redis.Cmder, error) bool { return takes.Add(1) == 2 }))
		rdb.AddHook(hold.hook())
		hold.close()
		var wg sync.WaitGroup
		wg.Go(func() { requireResult(t, "IS200001019990")(gen.Next(context.Background(), "IS")) })
		synctest.Wait() // while it is in flight, the others come
		for range 20 {  // there are nine numbers for them
			wg.Go(func() {
				_, err := gen.Next(t.Context(), "IS")
				require.ErrorIs(t, err, io.ErrUnexpectedEOF)
				require.NotErrorIs(t, err, serial.ErrExhausted)
			})
		}
		synctest.Wait()
		hold.open()
		wg.Wait()
		require.EqualValues(t, 3, takes.Load(), "the shared command was repeated")
		requireSeq(t, 9999)(gen.Peek(t.Context(), "IS"))
	})
}

// What a hook of the client does to the goroutine of a call reaches every caller, and the next call works.
func TestHooksThatBreakFlights(t *testing.T) {
	for name, harm := range map[string]func(){
		"panic":  func() { panic("hook") },
		"Goexit": runtime.Goexit,
	} {
		for _, types := range []int{1, 5} {
			t.Run(fmt.Sprintf("%s, %d types", name, types), func(t *testing.T) {
				_, rdb := startMini(t)
				gen := newGenerator(t, rdb, serial.WithLocation(noon()))
				for typ := range types {
					require.NoError(t, errOf(gen.Next(t.Context(), fmt.Sprint("T", typ))))
				}
				var harmless atomic.Bool
				rdb.AddHook(everyCall(func(_ []redis.Cmder, send func() error) error {
					if !harmless.Load() {
						harm()
					}
					return send()
				}))
				var wg sync.WaitGroup
				var ended atomic.Int64
				for i := range 50 {
					wg.Go(func() {
						defer func() {
							if recover() != nil {
								ended.Add(1)
							}
						}()
						// If the context can end, no command runs in the caller's own goroutine.
						if _, err := gen.Next(t.Context(), fmt.Sprint("T", i%types)); err != nil {
							require.ErrorContains(t, err, "ended from outside")
							ended.Add(1)
						}
					})
				}
				wg.Wait()
				require.EqualValues(t, 50, ended.Load())
				harmless.Store(true)
				require.NoError(t, errOf(gen.Next(t.Context(), "T0")))
			})
		}
	}
}

// The client's hooks run around every command, whatever its read timeout is.
func TestHooksOfClients(t *testing.T) {
	m := miniredis.RunT(t)
	for _, read := range []time.Duration{0, time.Second, time.Minute, -1} {
		var sent atomic.Int64
		rdb := closing(t, redis.NewClient(&redis.Options{Addr: m.Addr(), ReadTimeout: read}))
		rdb.AddHook(counting(&sent, "eval", "evalsha", "set"))
		gen := newGenerator(t, rdb, serial.WithLocation(noon()))
		require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
		require.GreaterOrEqual(t, sent.Load(), int64(1), "%v", read)
		sent.Store(0)
		require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
		require.EqualValues(t, 1, sent.Load(), "%v", read)
	}
}

// An error reaches every caller of a batch.
func TestErrorsOfFlights(t *testing.T) {
	rdb := closing(t, redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}))
	rdb.AddHook(replacing(func(context.Context, redis.Cmder) error { return errBoom }))
	gen := newGenerator(t, rdb)
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() { require.ErrorIs(t, errOf(gen.Next(t.Context(), "IS")), errBoom) })
	}
	wg.Wait()
}

// One type's trouble, such as a floor that takes seconds or an exhausted day, does not delay another.
func TestTypesDoNotDelayEachOther(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		gen := newGenerator(t, m.Client(), serial.WithLocation(time.UTC),
			serial.WithFloor(func(_ context.Context, typ string, _ time.Time) (int64, error) {
				if typ == "SLOW" {
					time.Sleep(5 * time.Second)
				}
				if typ == "FULL" {
					return 9999, nil
				}
				return 0, nil
			}))
		start := time.Now()
		var wg sync.WaitGroup
		for i := range 60 {
			typ := []string{"SLOW", "FULL", "A", "B", "C", "D"}[i%6]
			wg.Go(func() {
				_, err := gen.Next(t.Context(), typ)
				require.Equal(t, typ == "FULL", errors.Is(err, serial.ErrExhausted))
				require.True(t, typ == "FULL" || err == nil, "%v", err)
				if typ != "SLOW" {
					require.Less(t, time.Since(start), 2*time.Second, "%s", typ)
				}
			})
		}
		wg.Wait()
	})
}

// Many callers on many types, while the server forgets its scripts: every type's numbers are exactly 1 to n.
func TestManyTypes(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	cluster := redistest.StartCluster(t)
	for name, rdb := range map[string]redis.UniversalClient{"server": server.Client(t), "cluster": cluster.Client(t)} {
		t.Run(name, func(t *testing.T) {
			s := &series{t: t, rdb: rdb}
			var sent gated
			rdb.AddHook(sent.hook())
			gen := newGenerator(t, rdb, serial.WithLocation(noon()))
			const types, callers, each = 40, 80, 50
			stop := make(chan struct{})
			flushed := make(chan error, 1)
			go func() {
				for {
					select {
					case <-stop:
						flushed <- nil
						return
					case <-time.After(5 * time.Millisecond):
						if err := s.flushScripts(); err != nil {
							flushed <- err
							return
						}
					}
				}
			}()
			var mu sync.Mutex
			got := map[string][]string{}
			var errs []error
			var wg sync.WaitGroup
			for i := range callers {
				ctx := context.Background()
				if i%2 == 0 {
					ctx = t.Context()
				}
				wg.Go(func() {
					for j := range each {
						typ := fmt.Sprint("T", (i+j)%types)
						number, err := gen.Next(ctx, typ)
						mu.Lock()
						got[typ] = append(got[typ], number)
						errs = append(errs, err)
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			close(stop)
			require.NoError(t, <-flushed)
			require.NoError(t, errors.Join(errs...))
			require.Len(t, got, types)
			if name == "server" { // a cluster's masters do not run its hooks
				require.Positive(t, sent.shared.Load(), "types shared calls")
			}
			for typ, all := range got {
				require.ElementsMatch(t, numbers(typ, today(noon()), 1, callers*each/types), all)
			}
		})
	}
}

// After a failover, the master's name leads to another server, and connections to the old one, now a replica, remain.
// Pipelines that it refuses are repeated.
func TestOldMasterRefusesPipelines(t *testing.T) {
	t.Parallel()
	master := redistest.Start(t, "--repl-diskless-sync-delay", "0")
	replica := redistest.StartReplica(t, master)
	var addr atomic.Value
	addr.Store(master.Addr())
	opt := master.Options()
	opt.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, addr.Load().(string))
	}
	opt.MinIdleConns = 4
	gen := newGenerator(t, closing(t, redis.NewClient(opt)), serial.WithLocation(noon()))
	round := func() {
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Go(func() {
				if _, err := gen.Next(t.Context(), fmt.Sprint("T", i%8)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	for range 20 {
		round()
	}
	master.AwaitReplica(t)
	require.NoError(t, replica.ReplicaOf(nil))
	require.NoError(t, master.ReplicaOf(replica))
	addr.Store(replica.Addr())
	for range 40 {
		round()
	}
}

// An opening takes three round trips. If a floor or a ledger is asked, a second look leaves right behind the lock's
// command; it is a fourth round trip if the lock is on another server. Afterwards, the lock is free.
func TestRoundTripsOfAnOpening(t *testing.T) {
	for name, test := range map[string]struct {
		opts []serial.Option
		want []string
	}{
		"plain":                          {nil, []string{"take", "lock", "open"}},
		"with a floor":                   {[]serial.Option{fixedFloor(0)}, []string{"take", "lock take", "open"}},
		"with a ledger":                  {ledgerIf(true, 10), []string{"take", "lock take", "open"}},
		"with a floor and a lock server": {[]serial.Option{fixedFloor(0), nil}, []string{"take", "lock", "take", "open"}},
	} {
		runInBubble(t, name, func(t *testing.T, m *simulation) {
			var mu sync.Mutex
			var sent []string
			rdb := m.Client(everyCall(func(cmds []redis.Cmder, send func() error) error {
				var names []string
				for _, cmd := range cmds {
					switch {
					case isOpen(cmd):
						names = append(names, "open")
					case cmd.Name() == "set":
						names = append(names, "lock")
					case cmd.Name() == "evalsha" && cmd.Args()[1] == inner.SerialScript.Digest:
						names = append(names, "take")
					}
				}
				if mu.Lock(); names != nil {
					sent = append(sent, strings.Join(names, " "))
				}
				mu.Unlock()
				return send()
			}))
			for i, opt := range test.opts {
				if opt == nil {
					test.opts[i] = serial.WithLockClients(rdb)
				}
			}
			gen := newGenerator(t, rdb, test.opts...)
			require.NoError(t, errOf(gen.Next(t.Context(), "OTHER"))) // the server knows the scripts
			sent = nil
			require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
			require.Equal(t, test.want, sent)
			synctest.Wait()
			require.ElementsMatch(t, []string{"serial:{IS}", "serial:{IS}:" + today(time.Local), "serial:{OTHER}",
				"serial:{OTHER}:" + today(time.Local)}, m.Keys())
		})
	}
}

// A caller that gets the lock after another has opened the period and released the lock continues from there: it opens
// and raises nothing.
func TestOpenedMeanwhile(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		var events []string
		hooks := serial.WithHooks(serial.Hooks{
			Opened: func(_ context.Context, i serial.OpenedInfo) { events = append(events, "opened "+i.Type) },
			Unused: func(_ context.Context, e serial.Explanation) { events = append(events, e.Reason) },
		})
		first := newGenerator(t, m.Client(), serial.WithLocation(time.UTC), serial.WithMaxSkew(-1))
		require.NoError(t, errOf(first.Next(t.Context(), "OTHER")))
		var once sync.Once
		second := newGenerator(t, m.Client(around(func(cmd redis.Cmder, send func() error) error {
			if cmd.Name() == "set" {
				once.Do(func() {
					requireResult(t, "IS200001010003")(textOf(lastOf(first.NextN(t.Context(), "IS", 3))))
				})
			}
			return send()
		})), serial.WithLocation(time.UTC), serial.WithStart(500), hooks)
		requireResult(t, "IS200001010004")(second.Next(t.Context(), "IS"))
		require.NoError(t, second.Flush(t.Context()))
		require.Empty(t, events)
		requireResult(t, "PO200001010500")(second.Next(t.Context(), "PO"))
		require.Equal(t, []string{"opened PO"}, events)
		m.requireExpiries()
	})
	inBubble(t, func(t *testing.T, m *simulation) { // including all its numbers
		small := serial.WithTemplate("{type}{date:yyyyMMdd}{seq:1}")
		first := newGenerator(t, m.Client(), small, serial.WithLocation(time.UTC))
		var once sync.Once
		second := newGenerator(t, m.Client(around(func(cmd redis.Cmder, send func() error) error {
			if cmd.Name() == "set" {
				once.Do(func() { require.NoError(t, errOf(first.NextN(t.Context(), "IS", 8))) })
			}
			return send()
		})), small, serial.WithLocation(time.UTC))
		require.ErrorIs(t, errOf(second.NextN(t.Context(), "IS", 2)), serial.ErrExhausted)
		synctest.Wait()
		require.Len(t, m.Keys(), 2, "the lock was released")
		requireResult(t, "IS200001019")(second.Next(t.Context(), "IS"))
	})
}

// lastOf returns the last of several numbers.
func lastOf(all []serial.Number, err error) (serial.Number, error) {
	if err != nil {
		return serial.Number{}, err
	}
	return all[len(all)-1], nil
}

// Openings of many types at the same moment share round trips, and a failure of one affects no other. The in-memory
// pipe below them holds little, but does not fill up, whatever the names.
func TestOpeningsShareRoundTrips(t *testing.T) {
	runBoth(t, "long names", func(t *testing.T, m *simulation, long bool) {
		var calls atomic.Int64
		rdb := m.Client()
		rdb.AddHook(everyCall(func(_ []redis.Cmder, send func() error) error {
			calls.Add(1)
			time.Sleep(time.Millisecond)
			return send()
		}))
		prefix, name := "p", "T"
		if long {
			prefix, name = strings.Repeat("p", 64), strings.Repeat("T", 61)
		}
		gen := newGenerator(t, rdb, serial.WithLocation(time.UTC), serial.WithKeyPrefix(prefix))
		require.NoError(t, errOf(gen.Next(t.Context(), "OTHER")))
		list := fmt.Sprintf("%s:{%s107}:20000101", prefix, name)
		_, err := m.Lpush(list, "a list")
		require.NoError(t, err)
		m.SetTTL(list, time.Hour)
		calls.Store(0)
		began := time.Now()
		var mu sync.Mutex
		var got, want []string
		var all sync.WaitGroup
		for i := range 100 {
			typ := fmt.Sprint(name, 100+i)
			if i != 7 {
				want = append(want, typ+"200001010001")
			}
			all.Go(func() {
				number, err := gen.Next(t.Context(), typ)
				if i == 7 {
					require.ErrorIs(t, err, serial.ErrCounterLost)
					return
				}
				require.NoError(t, err)
				mu.Lock()
				defer mu.Unlock()
				got = append(got, number)
			})
		}
		all.Wait()
		require.Less(t, time.Since(began), time.Second)
		require.LessOrEqual(t, calls.Load(), int64(120), "alone, they take 300")
		slices.Sort(got)
		require.Equal(t, want, got)
		for _, key := range m.Keys() {
			require.NotContains(t, key, ":lock")
		}
		m.requireExpiries()
	})
}

// Openings that share a pipeline fail in time if it hangs, however long their callers had waited before. What arrives
// late does no harm.
func TestOpeningsHangTogether(t *testing.T) {
	for _, waited := range []time.Duration{time.Second, 4 * time.Second, 8 * time.Second} {
		inBubble(t, func(t *testing.T, m *simulation) {
			var shared atomic.Int64
			var slow atomic.Bool
			rdb := new(line).client(m, 5*time.Second)
			rdb.AddHook(everyCall(func(cmds []redis.Cmder, send func() error) error {
				switch {
				case slices.ContainsFunc(cmds, isOpen):
					shared.Add(int64(len(cmds)))
					time.Sleep(time.Minute)
				case len(cmds) > 1 && slow.CompareAndSwap(false, true):
					time.Sleep(waited)
				default:
					time.Sleep(time.Millisecond) // meanwhile, the others come
				}
				return send()
			}))
			gen := newGenerator(t, rdb, serial.WithLocation(time.UTC))
			var all sync.WaitGroup
			began := time.Now()
			for i := range 4 {
				all.Go(func() {
					require.Error(t, errOf(gen.Next(context.Background(), fmt.Sprint("T", i))))
					require.LessOrEqual(t, time.Since(began), inTime)
				})
			}
			all.Wait()
			require.Greater(t, shared.Load(), int64(1))
			time.Sleep(2 * time.Minute)
			after := newGenerator(t, m.Client(), serial.WithLocation(time.UTC))
			for i := range 4 {
				requireResult(t, fmt.Sprintf("T%d200001010001", i))(after.Next(t.Context(), fmt.Sprint("T", i)))
			}
		})
	}
}
