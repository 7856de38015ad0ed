package serial_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/redistest"
	"github.com/dailyserial/serial/serialtest"
)

// A generator for a program shares the counters with the first one, which keeps its own hooks.
func TestForProgram(t *testing.T) {
	s := inMemory(t).series(t)
	var called []string
	hooks := func(name string) serial.Hooks {
		return serial.Hooks{
			Issued:          func(context.Context, serial.IssuedInfo) { called = append(called, name) },
			NearlyExhausted: func(context.Context, serial.ExhaustionInfo) { called = append(called, name+" nearly exhausted") },
		}
	}
	gen := s.generator(serial.WithLast(10), serial.WithHooks(hooks("generator")))
	program := gen.ForProgram("orders-serial", nil, hooks("program"))
	s.next(gen, 1)
	s.next(program, 2)
	require.Equal(t, []string{"generator", "program", "generator"}, called)
	require.NoError(t, gen.Raise(t.Context(), "IS", 6))
	s.next(program, 7)
	called = nil
	s.next(program, 8)
	require.Contains(t, called, "program nearly exhausted", "at 0.8 by default")
}

func TestTakeover(t *testing.T) {
	testTakeover(t, inMemory(t))
}

func TestTakeoverOnServer(t *testing.T) {
	server := redistest.Start(t)
	testTakeover(t, backend{client: func(t *testing.T) redis.UniversalClient { return server.Client(t) }})
}

func testTakeover(t *testing.T, b backend) {
	// stray returns a generator of a zone in which it is the same day, with other bounds.
	stray := func(s *series, opts ...serial.Option) *serial.Generator {
		_, offset := time.Now().In(s.loc).Zone()
		return s.generator(append([]serial.Option{serial.WithLocation(time.FixedZone("stray", offset+3600))}, opts...)...)
	}
	b.run(t, "takeover from another zone continues above its counter", func(t *testing.T, s *series) {
		other := stray(s)
		s.next(other, 1)
		s.next(other, 2)
		s.refused(s.gen, serial.ErrConflict)
		require.NoError(t, s.gen.Takeover(t.Context(), "IS", 0))
		s.next(s.gen, 3)
		s.refused(other, serial.ErrConflict)
		require.ErrorIs(t, other.Raise(t.Context(), "IS", 9), serial.ErrConflict)
		require.NoError(t, s.gen.Takeover(t.Context(), "IS", 2), "a repeated takeover never lowers")
		s.next(s.gen, 4)
		require.NoError(t, s.gen.Takeover(t.Context(), "IS", 9), "a repeated takeover raises")
		s.next(s.gen, 10)
		y, m, d := time.Now().In(s.loc).Date()
		midnight := time.Date(y, m, d+1, 0, 0, 0, 0, s.loc)
		expires, err := s.rdb.Do(t.Context(), "PEXPIRETIME", s.counter).Int64()
		require.NoError(t, err)
		require.InDelta(t, midnight.UnixMilli(), expires, 1000) // miniredis keeps durations
		require.Greater(t, s.rdb.TTL(t.Context(), s.record).Val(), 7*24*time.Hour)
	})

	b.run(t, "takeover continues above seq, the floor and its own numbers", func(t *testing.T, s *series) {
		s.next(stray(s), 1)
		require.NoError(t, s.gen.Takeover(t.Context(), "IS", 57))
		s.next(s.gen, 58)
		other := stray(s, fixedFloor(80))
		require.NoError(t, other.Takeover(t.Context(), "IS", 60))
		s.next(other, 81)
		s.refused(s.gen, serial.ErrConflict)
	})

	b.run(t, "takeover of an unopened period, and of the own one, is Raise", func(t *testing.T, s *series) {
		require.NoError(t, s.gen.Takeover(t.Context(), "IS", 5))
		s.next(s.gen, 6)
		require.NoError(t, s.rdb.Del(t.Context(), s.counter).Err())
		s.refused(s.gen, serial.ErrCounterLost)
		require.NoError(t, s.gen.Takeover(t.Context(), "IS", 3))
		s.next(s.gen, 7) // its own memory
	})

	b.run(t, "takeover drops prepared periods", func(t *testing.T, s *series) {
		other := stray(s)
		require.NoError(t, other.Prepare(t.Context(), "IS"))
		require.NoError(t, s.gen.Takeover(t.Context(), "IS", 0))
		s.next(s.gen, 1)
		require.Empty(t, s.rdb.HGet(t.Context(), s.record, "ahead").Val())
		require.NoError(t, s.gen.Prepare(t.Context(), "IS"))
	})

	b.run(t, "takeover out of bounds", func(t *testing.T, s *series) {
		for _, seq := range []int64{-1, 10_000} {
			require.EqualError(t, s.gen.Takeover(t.Context(), "IS", seq),
				fmt.Sprintf("serial: Takeover of IS to %d: want 0 to 9999", seq))
		}
		require.ErrorIs(t, s.gen.Takeover(t.Context(), "I S", 0), serial.ErrInvalidType)
		require.Empty(t, s.keys())
	})

	b.run(t, "takeover leaves a ledger, and starts one", func(t *testing.T, s *series) {
		l := new(spyLedger)
		booked := s.generator(serial.WithLedger(l, 10))
		s.next(booked, 1)
		s.refused(s.gen, serial.ErrConflict)
		requireSeq(t, 1, "who only reads needs no ledger")(s.gen.Peek(t.Context(), "IS"))
		all, err := s.gen.History(t.Context(), "IS", 1)
		require.NoError(t, err)
		require.Len(t, all, 1)
		require.NoError(t, s.gen.Takeover(t.Context(), "IS", 0))
		s.next(s.gen, 2)
		require.NotSubset(t, s.rdb.HKeys(t.Context(), s.record).Val(), []string{"ledger", "ceiling", "counterCopy", "replID"})

		other := stray(s, serial.WithLedger(l, 10))
		s.refused(other, serial.ErrConflict)
		require.NoError(t, other.Takeover(t.Context(), "IS", 0))
		s.next(other, 11) // above everything that the ledger reserved
		require.NoError(t, booked.Takeover(t.Context(), "IS", 0))
		s.next(booked, 21)
		s.refused(other, serial.ErrConflict)
	})

	b.run(t, "takeover does not wait for another calendar's lock", func(t *testing.T, s *series) {
		asked := make(chan struct{})
		held := make(chan struct{})
		l := new(spyLedger)
		l.before(func(serial.Reservation) error {
			close(asked)
			<-held
			return nil
		})
		other := stray(s, serial.WithLedger(l, 10))
		done := make(chan error, 1)
		s.next(stray(s), 1)
		go func() { _, err := other.Next(t.Context(), "IS"); done <- err }()
		<-asked
		l.before(nil)
		gen := s.generator(serial.WithLedger(l, 10))
		began := time.Now()
		require.NoError(t, gen.Takeover(t.Context(), "IS", 0))
		require.Less(t, time.Since(began), lockExpiry/2)
		close(held)
		require.ErrorIs(t, <-done, serial.ErrConflict, "the block comes too late")
		got, err := gen.NextNumber(t.Context(), "IS")
		require.NoError(t, err)
		require.Greater(t, got.Seq, int64(1))
	})

	b.run(t, "takeover while both calendars issue", func(t *testing.T, s *series) {
		other := stray(s)
		s.next(other, 1)
		var mu sync.Mutex
		seen := map[string]bool{}
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				for k := range 20 {
					gen := []*serial.Generator{s.gen, other}[(i+k)%2]
					if i < 2 && k%5 == 0 {
						_ = gen.Takeover(t.Context(), "IS", 0)
					}
					got, err := gen.Next(t.Context(), "IS")
					if err != nil {
						if !strings.Contains(err.Error(), "conflict") {
							t.Error(err)
						}
						continue
					}
					mu.Lock()
					if seen[got] {
						t.Error("twice: " + got)
					}
					seen[got] = true
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		require.NotEmpty(t, seen)
	})
}

// The counter of the current day is lost while the record is of another period. An operator restores the counter, never
// below the day's start. The loss is reported, and no number is reported as skipped.
func TestRestoreFromAnotherPeriod(t *testing.T) {
	start, ctx := serial.WithStart(9), t.Context()
	// Each begins on the 24th, and returns how an operator continues on that day.
	for name, begin := range map[string]func(s *stage) func(gen *serial.Generator, seq int64) error{
		"another zone": func(s *stage) func(*serial.Generator, int64) error {
			s.at(24, 12)
			east := s.generator(start, serial.WithLocation(time.FixedZone("", 3600)))
			require.NoError(s.t, east.Raise(ctx, "IS", 0))
			return func(gen *serial.Generator, seq int64) error { return gen.Takeover(ctx, "IS", seq) }
		},
		"the clock was ahead": func(s *stage) func(*serial.Generator, int64) error {
			gen := s.generator(start)
			for _, day := range []int{24, 25} {
				s.at(day, 12)
				require.NoError(s.t, gen.Raise(ctx, "IS", 0))
			}
			s.at(24, 13)
			return func(gen *serial.Generator, seq int64) error { return gen.Raise(ctx, "IS", seq) }
		},
	} {
		for used, next := range map[int64]int64{0: 9, 8: 9, 20: 21} {
			for _, block := range []int64{0, 10} {
				t.Run(fmt.Sprintf("%s, %d were used, blocks of %d", name, used, block), func(t *testing.T) {
					s, reports := newStage(t), &explanations{}
					restore := begin(s)
					s.Del("serial:{IS}:20211024")
					var found []serial.LostInfo
					gen := s.generator(append(ledgerIf(block > 0, block), start, reports.hooks(), serial.WithHooks(serial.Hooks{
						Lost: func(_ context.Context, info serial.LostInfo) { found = append(found, info) },
					}))...)
					require.NoError(t, restore(gen, used))
					require.Empty(t, reports.flushed(t, gen))
					require.Len(t, found, 1)
					require.Equal(t, "20211024", found[0].Start.Format("20060102"))
					require.True(t, found[0].Repaired)
					requireSeq(t, next)(gen.NextNumber(ctx, "IS"))
				})
			}
		}
	}
}

// The record keeps the start of a day to which the clock goes back, whatever starts it had to keep before.
func TestStartOfAnEarlierDay(t *testing.T) {
	s, ctx := newStage(t), t.Context()
	gen := s.generator(serial.WithStart(9))
	for _, day := range []int{25, 24, 25, 26, 23} {
		s.at(day, 12)
		require.NoError(t, gen.Raise(ctx, "IS", 0))
	}
	requireSeq(t, 0)(gen.Peek(ctx, "IS"))
	s.Del("serial:{IS}:20211023")
	require.NoError(t, gen.Raise(ctx, "IS", 0))
	requireSeq(t, 9)(gen.NextNumber(ctx, "IS"))
}

// A counter below its copy in the record was set back, so nobody knows over which numbers an operator lifts it.
func TestRaiseOfACounterBelowItsCopy(t *testing.T) {
	s, ctx, reports, lost := newStage(t), t.Context(), &explanations{}, 0
	s.at(24, 12)
	l := new(serialtest.Ledger)
	require.NoError(t, errOf(s.generator(serial.WithLedger(l, 10)).NextN(ctx, "IS", 8)))
	require.NoError(t, s.Set("serial:{IS}:20211024", "1"))
	gen := s.generator(serial.WithLedger(l, 10), reports.hooks(), serial.WithHooks(serial.Hooks{
		Lost: func(context.Context, serial.LostInfo) { lost++ },
	}))
	require.NoError(t, gen.Raise(ctx, "IS", 20))
	require.Empty(t, reports.flushed(t, gen))
	require.Equal(t, 1, lost)
	requireSeq(t, 21)(gen.NextNumber(ctx, "IS"))
}

// With a ledger, a raise explains no number that may have been issued: none up to the last one reserved, unless the
// counter is as the last number issued left it.
func TestRaiseAboveBlocks(t *testing.T) {
	const record = "serial:{IS}"
	failover := func(m *simulation, _ *spyLedger) { m.HSet(record, "replID", "another") }
	lost := func(m *simulation, _ *spyLedger) { m.FlushAll() }
	another := func(m *simulation, l *spyLedger) { // server, which lost the record, issues 11 to 20
		r := l.reservations()[0]
		r.Above = 10
		require.NoError(m.t, errOf(l.Reserve(m.t.Context(), r)))
	}
	for name, test := range map[string]struct {
		harm      func(*simulation, *spyLedger) // after sequence 8 of a block of 10
		seq, last int64                         // last is what the ledger reserved before
		want      []string
	}{
		"intact":                                {func(*simulation, *spyLedger) {}, 25, 10, []string{"IS 9-25 raised?"}},
		"a failover":                            {failover, 25, 10, []string{"IS 9-10 block skipped?", "IS 11-25 raised?"}},
		"a failover, within the block":          {failover, 9, 10, []string{"IS 9-10 block skipped?"}},
		"everything was lost":                   {lost, 25, 10, []string{"IS 1-10 block skipped?", "IS 11-25 raised?"}},
		"everything was lost, within the block": {lost, 7, 10, []string{"IS 1-10 block skipped?"}},
		"an old copy was restored": {func(m *simulation, _ *spyLedger) {
			require.NoError(m.t, m.Set("serial:{IS}:"+today(time.UTC), "3"))
			m.HSet(record, "ceiling", "5", "counterCopy", "3", "replID", "another")
		}, 25, 10, []string{"IS 4-10 block skipped?", "IS 11-25 raised?"}},
		"two masters":                {another, 25, 20, []string{"IS 9-20 block skipped?", "IS 21-25 raised?"}},
		"two masters, a later block": {another, 15, 20, []string{"IS 9-20 block skipped?"}},
	} {
		runInBubble(t, name, func(t *testing.T, m *simulation) {
			ctx, reports, l := t.Context(), &explanations{}, new(spyLedger)
			ledger, utc := serial.WithLedger(l, 10), serial.WithLocation(time.UTC)
			require.NoError(t, errOf(newGenerator(t, m.Client(), utc, ledger).NextN(ctx, "IS", 8)))
			test.harm(m, l)
			asked := len(l.reservations())
			gen := newGenerator(t, m.Client(), utc, ledger, reports.hooks())
			require.NoError(t, gen.Raise(ctx, "IS", test.seq))
			require.Len(t, l.reservations(), asked+1, "the ledger is asked once")
			require.Equal(t, test.want, reports.flushed(t, gen))
			requireSeq(t, max(test.seq, test.last)+1)(gen.NextNumber(ctx, "IS"))
			require.NoError(t, errOf(gen.NextN(ctx, "IS", 9)), "the block is as large as any")
		})
	}
}

// A day's start remains if the ledger fails at first.
func TestRaiseBeforeTheFirstNumber(t *testing.T) {
	s, ctx, l, reports := newStage(t), t.Context(), new(spyLedger), &explanations{}
	s.at(24, 12)
	gen := s.generator(serial.WithLedger(l, 10), serial.WithStart(9), reports.hooks())
	asked := 0
	l.before(func(serial.Reservation) error {
		if asked++; asked == 1 {
			return errors.New("no route")
		}
		return nil
	})
	require.ErrorContains(t, gen.Raise(ctx, "IS", 4), "no route")
	require.NoError(t, gen.Raise(ctx, "IS", 4))
	require.Empty(t, reports.flushed(t, gen))
	requireSeq(t, 9)(gen.NextNumber(ctx, "IS"))
}

// After a takeover of a day whose date is below the other zone's, the next day continues above the other's counter, or
// is lost with it; the one after that is new.
func TestDaysAfterATakeover(t *testing.T) {
	runBoth(t, "lost", func(t *testing.T, s *simulation, lost bool) {
		rdb := s.Client()
		east := newGenerator(t, rdb, serial.WithLocation(time.FixedZone("east", 14*3600)))
		utc := newGenerator(t, rdb, serial.WithLocation(time.UTC))
		time.Sleep(time.Until(time.Date(2000, 1, 2, 12, 0, 0, 0, time.UTC))) // in the east it is the 3rd
		for want := range 3 {
			requireResult(t, fmt.Sprintf("IS20000103%04d", want+1))(east.Next(t.Context(), "IS"))
		}
		require.ErrorIs(t, errOf(utc.Next(t.Context(), "IS")), serial.ErrConflict)
		require.NoError(t, utc.Takeover(t.Context(), "IS", 4))
		requireResult(t, "IS200001020005")(utc.Next(t.Context(), "IS"))
		s.requireExpiries()
		if lost {
			s.Del("serial:{IS}:20000103")
		}

		time.Sleep(12 * time.Hour)
		if lost {
			require.ErrorIs(t, errOf(utc.Next(t.Context(), "IS")), serial.ErrCounterLost)
			require.NoError(t, utc.Raise(t.Context(), "IS", 3))
		}
		requireResult(t, "IS200001030004")(utc.Next(t.Context(), "IS"))
		require.ErrorIs(t, errOf(east.Next(t.Context(), "IS")), serial.ErrConflict)

		time.Sleep(24 * time.Hour)
		requireResult(t, "IS200001040001")(utc.Next(t.Context(), "IS"))
		s.requireExpiries()
	})
}

// A takeover by a clock that may be wrong is refused.
func TestTakeoverByAWrongClock(t *testing.T) {
	m, rdb := startMini(t)
	m.SetTime(time.Now())
	_, err := newGenerator(t, rdb, serial.WithLocation(time.FixedZone("", 3600))).Next(t.Context(), "IS")
	require.NoError(t, err)
	gen := newGenerator(t, rdb, serial.WithLocation(time.UTC))
	m.SetTime(time.Now().Add(2 * time.Hour))
	before := m.Dump()
	require.ErrorIs(t, gen.Takeover(t.Context(), "IS", 0), serial.ErrClockSkew)
	require.Equal(t, before, m.Dump())
	m.SetTime(time.Now())
	require.NoError(t, gen.Takeover(t.Context(), "IS", 0))
}

// A takeover without a reply may have succeeded, and can be repeated.
func TestTakeoverWithoutAReply(t *testing.T) {
	m, rdb := startMini(t)
	fragile := closing(t, redis.NewClient(&redis.Options{Addr: m.Addr()}))
	left := 100
	fragile.AddHook(losing(errBoom, func(_ redis.Cmder, err error) bool {
		left--
		return left < 0 && err == nil
	}))
	for replies := range 4 {
		typ := fmt.Sprint("IS", replies)
		_, err := newGenerator(t, rdb, serial.WithLocation(time.FixedZone("", 3600))).Next(t.Context(), typ)
		require.NoError(t, err)
		left = replies
		first := newGenerator(t, fragile, serial.WithLocation(time.UTC)).Takeover(t.Context(), typ, 7)
		require.True(t, first == nil || replies < 3, first)
		left = 100
		gen := newGenerator(t, rdb, serial.WithLocation(time.UTC))
		require.NoError(t, gen.Takeover(t.Context(), typ, 7))
		requireSeq(t, 8)(gen.NextNumber(t.Context(), typ))
	}
}

// The messages for operators name both periods with dates, and the remedy.
func TestRefusalsSayWhatToDo(t *testing.T) {
	m := miniredis.RunT(t)
	m.SetTime(time.Date(2021, 10, 25, 3, 0, 0, 0, time.UTC))
	rdb := closing(t, redis.NewClient(&redis.Options{Addr: m.Addr()}))
	anyClock := serial.WithMaxSkew(-1)
	require.NoError(t, errOf(newGenerator(t, rdb, anyClock, serial.WithLocation(time.UTC)).Next(t.Context(), "IS")))
	shanghai := newGenerator(t, rdb, anyClock, serial.WithLocation(location(t, "Asia/Shanghai")))
	_, err := shanghai.Next(t.Context(), "IS")
	require.EqualError(t, err, "serial: conflicting period: IS is in 2021-10-25 from 2021-10-25T00:00:00Z to "+
		"2021-10-26T00:00:00Z (2021-10-25 08:00:00 to 2021-10-26 08:00:00 in Asia/Shanghai), but this generator's settings "+
		"put it in 2021-10-25 from 2021-10-24T16:00:00Z to 2021-10-25T16:00:00Z (2021-10-25 00:00:00 to 2021-10-26 "+
		"00:00:00 in Asia/Shanghai): another time zone or day start is in use; if this generator is right, stop the other "+
		"process and run: serial takeover -tz 'Asia/Shanghai' IS SEQ, where SEQ is the last number used of 2021-10-25, or 0")

	m.Del("serial:{IS}:20211025")
	_, err = newGenerator(t, rdb, anyClock, serial.WithLocation(time.UTC)).Next(t.Context(), "IS")
	require.EqualError(t, err, "serial: counter lost: numbers of IS were issued in 2021-10-25, and serial:{IS}:20211025 "+
		"is gone; find the last one used, and run: serial raise -tz 'UTC' IS SEQ, where SEQ is the last number used of "+
		"2021-10-25, or 0")
}

// requireOtherCalendar requires that every call of gen is refused, names both calendars and changes nothing.
func requireOtherCalendar(t *testing.T, m *miniredis.Miniredis, gen *serial.Generator, theirs, ours string) {
	t.Helper()
	before := m.Dump()
	for name, err := range map[string]error{
		"Next":     errOf(gen.Next(t.Context(), "IS")),
		"NextN":    errOf(gen.NextN(t.Context(), "IS", 3)),
		"NextOnce": errOf(gen.NextOnce(t.Context(), "IS", "new")),
		"Peek":     errOf(gen.Peek(t.Context(), "IS")),
		"History":  errOf(gen.History(t.Context(), "IS", 2)),
		"Raise":    gen.Raise(t.Context(), "IS", 9),
		"Takeover": gen.Takeover(t.Context(), "IS", 9),
		"Prepare":  gen.Prepare(t.Context(), "IS"),
		"Audit":    errOf(gen.Audit(t.Context(), "IS", serial.At(time.Now()), func(func(string, error) bool) {})),
	} {
		require.ErrorIs(t, err, serial.ErrConflict, name)
		counts := fmt.Sprintf("it is counted by %s, but this generator counts by %s;", theirs, ours)
		require.ErrorContains(t, err, counts, name)
		require.ErrorContains(t, err, "begin a new series with another type, or with another key prefix and another "+
			"literal in the template", name)
	}
	require.Equal(t, before, m.Dump())
}

// A series keeps its Period and year start, whatever its time zone, day start and template, at boundaries and while
// periods are prepared.
// Guarantees: period-changed, once-repeated.
func TestOneCalendar(t *testing.T) {
	tokyo, berlin := location(t, "Asia/Tokyo"), location(t, "Europe/Berlin")
	day, month := serial.WithTemplate("{type}{date:yyyyMMdd}-{seq:4}"), serial.WithPeriod(serial.PerMonth)
	monthOfYears := func(start time.Month) []serial.Option {
		return options(month, serial.WithYearStart(start, 1), serial.WithTemplate("{type}{date:FFFFMM}{seq:4}"))
	}
	year := options(serial.WithPeriod(serial.PerYear), serial.WithTemplate("{type}{date:FFFF}{seq:4}"))
	for name, test := range map[string]struct {
		at, then     string // UTC
		first, next  []serial.Option
		theirs, ours string
	}{
		"a month that prints days, then days from 04:00": {"2024-11-03 01:00", "2024-11-03 04:00",
			options(month, day), options(serial.WithDayStart(4*time.Hour), day), "months", "days"},
		"the same from Tokyo to Berlin": {"2024-10-31 16:00", "2024-11-30 23:00",
			options(serial.WithLocation(tokyo), month, day), options(serial.WithLocation(berlin), day), "months", "days"},
		"months of years from April, then from July": {"2023-05-10 12:00", "2024-05-10 12:00", monthOfYears(time.April),
			monthOfYears(time.July), "months of years from April 1", "months of years from July 1"},
		"a clock half an hour ahead, then days": {"2024-06-30 23:45", "2024-07-01 00:00", options(month, day), options(day),
			"months", "days"},
		"weeks after days of another zone and day start": {"2024-10-06 20:00", "2024-10-07 12:00",
			options(serial.WithLocation(tokyo), serial.WithDayStart(9*time.Hour), day),
			options(serial.WithLocation(berlin), serial.WithPeriod(serial.PerWeek), day), "days", "weeks"},
		"years from another day": {"2024-05-10 12:00", "2025-04-06 00:00",
			append(year, serial.WithYearStart(time.April, 6)), year, "years from April 6", "years"},
		"Never": {"2024-05-10 12:00", "2025-04-06 00:00",
			options(serial.WithPeriod(serial.Never), serial.WithTemplate("{type}{seq:8}")), nil, "all time", "days"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			s.ClockTTL(false) // the record lives on
			m, first, next := s.Miniredis, s.generator(test.first...), s.generator(test.next...)
			m.SetTime(utc(t, test.at))
			require.NoError(t, errOf(first.NextN(t.Context(), "IS", 3)))
			once, err := textOf(first.NextOnce(t.Context(), "IS", "answered"))
			require.NoError(t, err)
			requireOtherCalendar(t, m, next, test.theirs, test.ours)
			if test.theirs != "all time" {
				require.NoError(t, first.Prepare(t.Context(), "IS"))
				requireOtherCalendar(t, m, next, test.theirs, test.ours)
			}
			m.SetTime(utc(t, test.then))
			requireOtherCalendar(t, m, next, test.theirs, test.ours)
			requireResult(t, once)(textOf(next.NextOnce(t.Context(), "IS", "answered")))

			// A new type is a new series.
			require.NoError(t, errOf(next.Next(t.Context(), "IS2")))
		})
	}
}

// If no quarters or business years are counted or printed, the year start is not part of the calendar.
func TestYearStartWithoutEffect(t *testing.T) {
	_, rdb := startMini(t)
	for i, month := range []time.Month{time.January, time.April, time.July} {
		gen := newGenerator(t, rdb, serial.WithLocation(noon()), serial.WithYearStart(month, 6))
		requireSeq(t, int64(i+1))(gen.NextNumber(t.Context(), "IS"))
	}
}

// The clock is ahead, then right again: the days entered ahead are lost, and those in between are new.
func TestLabelsAfterAFastClock(t *testing.T) {
	s := newStage(t)
	gen := s.generator()
	next := func(day int) (string, error) {
		s.at(day, 12)
		return gen.Next(t.Context(), "IS")
	}
	for _, day := range []int{23, 24, 27, 28} {
		require.NoError(t, errOf(next(day)))
	}
	require.ErrorIs(t, errOf(next(24)), serial.ErrClockSkew)
	require.NoError(t, gen.Raise(t.Context(), "IS", 1))
	for i, want := range []string{"IS202110240002", "IS202110250001", "IS202110260001"} {
		requireResult(t, want)(next(24 + i))
	}
	for _, day := range []int{27, 28} {
		require.ErrorIs(t, errOf(next(day)), serial.ErrCounterLost, "it has expired")
		require.NoError(t, gen.Raise(t.Context(), "IS", 1))
		requireResult(t, fmt.Sprintf("IS202110%d0002", day))(next(day))
	}
	requireResult(t, "IS202110290001")(next(29))
}

// Numbers are issued while Redis's clock is ahead. The periods that it jumped over were never used, so they are not lost
// when the clock is right again. If it jumped more than once, only the last jump is remembered.
func TestGapsWhileTheClockWasAhead(t *testing.T) {
	for unit, k := range map[time.Duration]kind{
		time.Second:    kindOf("seconds", serial.PerSecond, "yyyyMMddHHmmss"),
		time.Minute:    kindOf("minutes", serial.PerMinute, "yyyyMMddHHmm"),
		time.Hour:      kindOf("hours", serial.PerHour, "yyyyMMddHH"),
		24 * time.Hour: daily,
	} {
		for step, lost := range map[int]error{1: nil, 2: serial.ErrCounterLost} {
			t.Run(fmt.Sprint(k.name, ", by steps of ", step), func(t *testing.T) {
				gen, at := nextAt(t, k, unit)
				for i := range 3 {
					require.NoError(t, at(3*i), "gaps before")
				}
				ahead := 100
				if k.name == daily.name {
					ahead = 12 // the record lives for a week
				}
				for i := range 5 {
					require.NoError(t, at(ahead+step*i), "ahead")
				}
				require.ErrorIs(t, at(7), serial.ErrClockSkew)
				require.NoError(t, gen.Raise(t.Context(), "IS", 0))
				require.NoError(t, at(7))
				for i := 8; i < ahead; i += 3 {
					require.ErrorIs(t, at(i), lost, "unit %d", i)
				}
				for i := range 2 {
					require.ErrorIs(t, at(ahead+step*i), serial.ErrCounterLost, "it has expired")
				}
				require.NoError(t, at(ahead+1+5*step))
			})
		}
	}
}

// nextAt returns a generator, and a function that calls its Next n units after an instant.
func nextAt(t *testing.T, k kind, unit time.Duration) (gen *serial.Generator, at func(units int) error) {
	s := newStage(t)
	gen = s.generator(k.opts...)
	return gen, func(units int) error {
		s.SetTime(time.Date(2024, 3, 4, 5, 6, 7, 0, time.UTC).Add(time.Duration(units) * unit))
		return errOf(gen.Next(t.Context(), "IS"))
	}
}

// The clock is ahead more than once, by less each time. The periods before the last of those times were never used, and
// those between two of them may have been.
func TestClockAheadByLessEachTime(t *testing.T) {
	gen, at := nextAt(t, kindOf("", serial.PerSecond, "yyyyMMddHHmmss"), time.Second)
	require.NoError(t, at(0))
	require.NoError(t, at(1))
	for i, ahead := range []int{4000, 2000} {
		require.NoError(t, at(ahead))
		require.ErrorIs(t, at(10+10*i), serial.ErrClockSkew)
		require.NoError(t, gen.Raise(t.Context(), "IS", 0))
	}
	for seconds := 25; seconds < 5000; seconds += 250 {
		err := at(seconds)
		if seconds < 2000 || seconds > 4000 {
			require.NoError(t, err, "after %d s", seconds)
		} else {
			require.ErrorIs(t, err, serial.ErrCounterLost, "after %d s", seconds)
		}
	}
}

// stage is a miniredis whose clock the test sets, with generators of one series on it.
type stage struct {
	*miniredis.Miniredis
	t   *testing.T
	rdb *redis.Client
}

func newStage(t *testing.T) *stage {
	m, rdb := startMini(t)
	m.ClockTTL(true)
	return &stage{m, t, rdb}
}

func (s *stage) generator(opts ...serial.Option) *serial.Generator {
	return newGenerator(s.t, s.rdb, append([]serial.Option{serial.WithMaxSkew(-1), serial.WithLocation(time.UTC)},
		opts...)...)
}

// at sets the clock to an hour of a day in October 2021.
func (s *stage) at(day, hour int) { s.SetTime(time.Date(2021, 10, day, hour, 30, 0, 0, time.UTC)) }

func (s *stage) next(gen *serial.Generator) string {
	s.t.Helper()
	number, err := gen.Next(s.t.Context(), "IS")
	require.NoError(s.t, err)
	return number
}

// A takeover enters a label below the current period, which ends where the new one begins. Labels above it stay used.
func TestTakeoverForgetsNoLabel(t *testing.T) {
	hours := []serial.Option{serial.WithPeriod(serial.PerHour), serial.WithTemplate("{type}{date:yyyyMMddHH}{seq:6}")}
	s := newStage(t)
	east := s.generator(append(slices.Clone(hours), serial.WithLocation(time.FixedZone("east", 3*3600)))...)
	utc := s.generator(hours...)
	hidden := s.generator(append(slices.Clone(hours), serial.WithHiddenSequence(hiddenKey))...)
	for hour := 7; hour <= 10; hour++ { // 10 to 13 in the east
		s.at(24, hour)
		s.next(east)
	}
	s.at(24, 11)
	require.NoError(t, utc.Takeover(t.Context(), "IS", 1))
	require.Equal(t, "IS2021102411000002", s.next(utc))
	s.at(24, 12)
	require.ErrorIs(t, errOf(hidden.Next(t.Context(), "IS")), serial.ErrConflict, "the hour was printed plain")
	require.ErrorIs(t, errOf(utc.Next(t.Context(), "IS")), serial.ErrCounterLost)

	s = newStage(t) // days that are 48 hours apart
	east = s.generator(serial.WithLocation(time.FixedZone("east", 14*3600)))
	west := s.generator(serial.WithLocation(time.FixedZone("west", -11*3600)), serial.WithDayStart(23*time.Hour))
	for day := 22; day <= 23; day++ {
		s.at(day, 11)
		s.next(east)
	}
	s.at(24, 11)
	require.NoError(t, west.Takeover(t.Context(), "IS", 0))
	s.next(west)
	s.at(25, 11)
	require.ErrorIs(t, errOf(west.Next(t.Context(), "IS")), serial.ErrCounterLost)
}

// Prepare opens no label that a fast clock has used, even if its counter is gone. Nor does it with a ledger that was
// turned on later, which does not know these numbers.
func TestPrepareAfterAFastClock(t *testing.T) {
	s := newStage(t)
	gen := s.generator()
	for _, day := range []int{24, 26} {
		s.at(day, 12)
		s.next(gen)
	}
	s.at(24, 13)
	gen = s.generator() // it remembers nothing
	require.NoError(t, gen.Raise(t.Context(), "IS", 1))
	s.at(25, 12)
	s.next(gen)
	s.Del("serial:{IS}:20211026")
	ledger := serial.WithLedger(new(serialtest.Ledger), 10)
	for _, gen := range []*serial.Generator{gen, s.generator(ledger), s.generator(ledger, serial.WithStart(500))} {
		s.at(25, 13)
		require.ErrorIs(t, gen.Prepare(t.Context(), "IS"), serial.ErrCounterLost)
		require.Empty(t, s.HGet("serial:{IS}", "ahead"))
	}
	s.at(26, 12)
	require.ErrorIs(t, errOf(gen.Next(t.Context(), "IS")), serial.ErrCounterLost)
}

// A ledger repairs no day that a fast clock used without it, whether it was turned on earlier and off again, or
// afterwards.
func TestLedgerAfterAFastClock(t *testing.T) {
	s := newStage(t)
	ledger := serial.WithLedger(new(serialtest.Ledger), 10)
	for _, call := range []struct {
		day int
		gen *serial.Generator
	}{{22, s.generator(ledger)}, {23, s.generator()}, {26, s.generator()}, {28, s.generator(ledger)},
		{29, s.generator(ledger)}} {
		s.at(call.day, 12)
		s.next(call.gen)
	}
	s.at(24, 12)
	gen := s.generator(ledger) // it remembers nothing
	require.NoError(t, gen.Raise(t.Context(), "IS", 0))
	s.Del("serial:{IS}:20211026")
	s.Del("serial:{IS}:20211028")
	s.at(26, 12)
	require.ErrorIs(t, errOf(gen.Next(t.Context(), "IS")), serial.ErrCounterLost)
	s.at(28, 12)
	require.Equal(t, "IS202110280011", s.next(gen))
}

// A ledger repairs every day from the one on in which it was turned on, including one that an operator's Raise entered
// after a fast clock. It does not repair a doubtful day before that.
func TestLedgerBeforeAFastClock(t *testing.T) {
	s := newStage(t)
	ledger := serial.WithLedger(new(serialtest.Ledger), 10)
	s.at(24, 12)
	s.next(s.generator())
	s.next(s.generator(ledger))
	s.at(28, 12)
	s.next(s.generator(ledger))
	for _, day := range []int{26, 22, 20} {
		s.at(day, 12)
		gen := s.generator(ledger) // it remembers nothing
		require.NoError(t, gen.Raise(t.Context(), "IS", 0))
		s.next(gen)
	}
	for _, day := range []string{"22", "24", "26", "28"} {
		s.Del("serial:{IS}:202110" + day)
	}
	gen := s.generator(ledger)
	s.at(22, 12)
	require.ErrorIs(t, errOf(gen.Next(t.Context(), "IS")), serial.ErrCounterLost)
	for i, want := range []string{"IS202110240012", "IS202110260011", "IS202110280011"} {
		s.at(24+2*i, 12)
		require.Equal(t, want, s.next(gen))
	}
}

// A ledger does not repair a day that was used without it, between a day entered by a Raise and those of a fast clock.
func TestLedgerBeforeADayWithoutOne(t *testing.T) {
	s := newStage(t)
	ledger := serial.WithLedger(new(serialtest.Ledger), 10)
	for _, call := range []struct {
		day int
		gen *serial.Generator
	}{{22, s.generator()}, {24, s.generator()}, {26, s.generator()}} {
		s.at(call.day, 12)
		s.next(call.gen)
	}
	s.at(23, 12)
	require.NoError(t, s.generator(ledger).Raise(t.Context(), "IS", 0))
	s.Del("serial:{IS}:20211024")
	s.at(24, 12)
	gen := s.generator(ledger)
	require.ErrorIs(t, errOf(gen.Next(t.Context(), "IS")), serial.ErrCounterLost)
	s.Del("serial:{IS}:20211026")
	s.at(26, 12)
	require.ErrorIs(t, errOf(gen.Next(t.Context(), "IS")), serial.ErrCounterLost)
}

// After a fast clock has begun a print mark, the days that it jumped over have it too. Days that may have been used with
// another one are refused, even for operators.
func TestPrintMarkBeforeAFastClock(t *testing.T) {
	s := newStage(t)
	letters := serial.WithTemplate("{type}X{date:yyyyMMdd}{seq:4:base32}")
	old, gen := s.generator(), s.generator(letters)
	s.at(22, 12)
	s.next(old)
	s.at(25, 12)
	s.next(gen)
	s.at(24, 12)
	require.ErrorIs(t, errOf(old.Next(t.Context(), "IS")), serial.ErrClockSkew)
	err := old.Raise(t.Context(), "IS", 0)
	require.ErrorIs(t, err, serial.ErrConflict)
	require.ErrorContains(t, err, "numbers of IS up to 2021-10-25 were printed with another order of fields")
	require.NoError(t, gen.Raise(t.Context(), "IS", 0))
	s.next(gen)
	s.at(22, 13)
	require.ErrorIs(t, gen.Raise(t.Context(), "IS", 1), serial.ErrConflict, "that day was printed in decimal")

	s = newStage(t) // the old mark was ahead too
	old, gen = s.generator(), s.generator(letters)
	s.at(22, 12)
	s.next(old)
	s.at(26, 12)
	s.next(old)
	s.at(28, 12)
	s.next(gen)
	for _, day := range []int{24, 26} {
		s.at(day, 12)
		for _, gen := range []*serial.Generator{old, gen} {
			require.ErrorIs(t, gen.Raise(t.Context(), "IS", 0), serial.ErrConflict, "it may have been printed with either")
		}
	}
	s.at(29, 12)
	s.next(gen)
}

// Generators that might print different sequences of a period as the same number refuse each other until the period
// ends. Nothing is written.
// Guarantees: print-changed.
func TestPrintsOfAPeriod(t *testing.T) {
	key, other := []byte("0123456789abcdef"), []byte("fedcba9876543210")
	prints := map[string][]serial.Option{
		"plain":    {serial.WithTemplate("{type}{date:yyyyMMdd}{seq:6}")},
		"time":     {serial.WithTemplate("{type}{date:yyyyMMddHHmm}{seq:6}")},
		"base32":   {serial.WithTemplate("{type}{date:yyyyMMdd}{seq:6:base32}")},
		"base36":   {serial.WithTemplate("{type}{date:yyyyMMdd}{seq:6:base36}")},
		"luhn":     {serial.WithTemplate("{type}{date:yyyyMMdd}{seq:6}{check:luhn}")},
		"damm":     {serial.WithTemplate("{type}{date:yyyyMMdd}{seq:6}{check:damm}")},
		"in front": {serial.WithTemplate("{check:damm}{type}{date:yyyyMMdd}{seq:6}")},
		"hidden":   {serial.WithTemplate("{type}{date:yyyyMMdd}{seq:6}"), serial.WithHiddenSequence(key)},
		"rotated":  {serial.WithTemplate("{type}{date:yyyyMMdd}{seq:6}"), serial.WithHiddenSequence(other)},
	}
	for name, opts := range prints {
		t.Run(name, func(t *testing.T) {
			m := newStage(t)
			with := m.generator
			m.at(24, 12)
			gen := with(opts...)
			require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
			once, err := textOf(gen.NextOnce(t.Context(), "IS", "request"))
			require.NoError(t, err)
			before := m.Dump()
			for foreign, opts := range prints {
				if foreign == name {
					continue
				}
				for _, gen := range []*serial.Generator{with(opts...),
					with(append(opts, serial.WithLedger(new(serialtest.Ledger), 5))...)} {
					_, err := gen.Next(t.Context(), "IS")
					require.ErrorIs(t, err, serial.ErrConflict, foreign)
					require.ErrorContains(t, err, "give it its old template and key until 2021-10-24 has ended, and then the new "+
						"one to all processes")
					require.ErrorIs(t, errOf(gen.NextOnce(t.Context(), "IS", "another")), serial.ErrConflict, foreign)
					require.ErrorIs(t, errOf(gen.Peek(t.Context(), "IS")), serial.ErrConflict, foreign)
					require.ErrorIs(t, errOf(gen.History(t.Context(), "IS", 2)), serial.ErrConflict, foreign)
					require.ErrorIs(t, gen.Prepare(t.Context(), "IS"), serial.ErrConflict, foreign)
					require.ErrorIs(t, gen.Raise(t.Context(), "IS", 9), serial.ErrConflict, foreign)
					require.ErrorIs(t, gen.Takeover(t.Context(), "IS", 9), serial.ErrConflict, foreign)
				}
				again, err := textOf(with(opts...).NextOnce(t.Context(), "IS", "request"))
				if name == "hidden" || name == "rotated" {
					require.ErrorIs(t, err, serial.ErrConflict, foreign)
				} else {
					require.NoError(t, err, foreign)
					require.Equal(t, once, again, foreign)
				}
			}
			require.Equal(t, before, m.Dump())

			// A ledger may be turned on, and literals and spellings may change.
			requireSeq(t, 3)(with(append(opts, serial.WithLedger(new(serialtest.Ledger), 5))...).NextNumber(t.Context(), "IS"))
			_, err = gen.Next(t.Context(), "IS")
			require.ErrorContains(t, err, "reserved in a ledger, which this generator does not have")
			require.NoError(t, gen.Takeover(t.Context(), "IS", 0))

			// A prepared period has no print yet.
			require.NoError(t, gen.Prepare(t.Context(), "IS"))
			m.at(25, 0)
			for foreign, opts := range prints {
				if foreign != name {
					require.NoError(t, errOf(with(opts...).Next(t.Context(), "IS")))
					break
				}
			}
			require.ErrorIs(t, errOf(gen.Next(t.Context(), "IS")), serial.ErrConflict)
		})
	}
}

// Widths, literals and spellings may change at any time.
func TestPrintsThatMayChange(t *testing.T) {
	s := newStage(t)
	s.at(24, 12)
	for i, template := range []string{
		"{type}{date:yyyyMMddHH}{seq:6:base32}", "{type}-{date:yy-MM-dd-HH}-{seq:4:base32}",
		"X{type}/{date:YYYY.MM.DD HH}{seq:9:base32}",
	} {
		requireSeq(t, int64(i+1))(s.generator(serial.WithTemplate(template)).NextNumber(t.Context(), "IS"))
	}
}

// No operator can give a label another print, neither through another time zone nor through a fast clock.
// Guarantees: print-changed.
func TestPrintsOutliveTakeovers(t *testing.T) {
	s := newStage(t)
	s.ClockTTL(false) // counters of recurring days must survive
	at, never := s.at, serial.WithPeriod(serial.Never)
	with := func(template string, opts ...serial.Option) *serial.Generator {
		return s.generator(append(opts, serial.WithTemplate(template))...)
	}
	day := with("{type}{date:yyyyMMdd}{seq}")
	at(24, 12)

	decimal, letters := with("{type}{seq:6}", never), with("{type}{seq:6:base32}", never)
	require.NoError(t, errOf(decimal.Next(t.Context(), "N")))
	require.ErrorIs(t, letters.Takeover(t.Context(), "N", 0), serial.ErrConflict)
	require.ErrorContains(t, letters.Takeover(t.Context(), "N", 0), "another type or key prefix")
	requireSeq(t, 2)(decimal.NextNumber(t.Context(), "N"))

	// A zone that is ahead has entered the 25th, so another print must wait until that has passed everywhere.
	letterDay := with("{type}{date:yyyyMMdd}{seq:4:base32}")
	east := with("{type}{date:yyyyMMdd}{seq:4:base32}", serial.WithLocation(time.FixedZone("east", 14*3600)))
	require.NoError(t, errOf(east.Next(t.Context(), "Z")))
	require.ErrorIs(t, day.Takeover(t.Context(), "Z", 0), serial.ErrConflict)
	at(25, 12)
	require.ErrorIs(t, errOf(day.Next(t.Context(), "Z")), serial.ErrConflict)
	at(26, 0)
	require.NoError(t, errOf(day.Next(t.Context(), "Z")))

	// A clock that is ahead enters the 28th. Until that has passed, there is only one print, and none for labels used
	// before.
	at(28, 12)
	require.NoError(t, errOf(letterDay.Next(t.Context(), "Z")))
	at(27, 12)
	require.ErrorContains(t, day.Raise(t.Context(), "Z", 0), "until 2021-10-28 has ended")
	require.NoError(t, letterDay.Raise(t.Context(), "Z", 0))
	at(26, 12)
	for _, gen := range []*serial.Generator{day, letterDay} {
		require.ErrorIs(t, gen.Raise(t.Context(), "Z", 5), serial.ErrConflict)
		require.ErrorIs(t, gen.Takeover(t.Context(), "Z", 5), serial.ErrConflict)
	}
	at(28, 13)
	require.ErrorIs(t, errOf(day.Next(t.Context(), "Z")), serial.ErrConflict)
	requireSeq(t, 2)(letterDay.NextNumber(t.Context(), "Z"))
	at(29, 12)
	require.NoError(t, errOf(day.Next(t.Context(), "Z")))
	at(28, 14)
	for _, gen := range []*serial.Generator{day, letterDay} {
		require.ErrorIs(t, gen.Raise(t.Context(), "Z", 5), serial.ErrConflict)
	}
}

// The error for a record that something else has written says so.
func TestForeignRecord(t *testing.T) {
	s := newStage(t)
	s.at(24, 12)
	s.HSet("serial:{IS}", "entered", "20211024 1 2")
	gen := s.generator()
	for _, err := range []error{gen.Raise(t.Context(), "IS", 1), gen.Takeover(t.Context(), "IS", 1)} {
		require.ErrorIs(t, err, serial.ErrConflict)
		require.ErrorContains(t, err, `serial:{IS} holds "20211024 1 2", which this version did not write`)
	}
}
