package serial_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/redistest"
)

// ForProgram returns a generator that must use the same counters as the first one, while the first keeps its own hooks.
func TestForProgram(t *testing.T) {
	s := inMemory(t).series(t)
	var called []string
	hooks := func(name string) serial.Hooks {
		return serial.Hooks{
			Issued: func(context.Context, serial.IssuedInfo) { called = append(called, name) },
			NearlyExhausted: func(context.Context, serial.ExhaustionInfo) {
				called = append(called, name+" nearly exhausted")
			},
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
	s.rdb.Del(t.Context(), s.counter)
	require.ErrorContains(t, errOf(program.Next(t.Context(), "IS")), "and run: orders-serial raise IS SEQ")
}

func TestTakeover(t *testing.T) { testTakeover(t, inMemory(t)) }

func TestTakeoverOnServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	testTakeover(t, backend{client: func(t *testing.T) redis.UniversalClient { return server.Client(t) }})
}

func testTakeover(t *testing.T, b backend) {
	// stray returns a generator in a zone in which it is the same day, but the day has other bounds.
	stray := func(s *series, opts ...serial.Option) *serial.Generator {
		_, offset := time.Now().In(s.loc).Zone()
		return s.generator(append([]serial.Option{serial.WithLocation(time.FixedZone("stray", offset+3600))}, opts...)...)
	}
	b.run(t, "takeover from another zone continues above its counter", func(t *testing.T, s *series) {
		other := stray(s)
		s.firstNumbers(other, 2)
		require.NoError(t, other.Prepare(t.Context(), "IS"))
		s.refused(s.gen, serial.ErrConflict)
		require.NoError(t, s.gen.Takeover(t.Context(), "IS", 0))
		s.next(s.gen, 3)
		s.refused(other, serial.ErrConflict)
		require.ErrorIs(t, other.Raise(t.Context(), "IS", 9), serial.ErrConflict)
		require.Empty(t, s.rdb.HGet(t.Context(), s.record, "ahead").Val(), "what was prepared is dropped")
		require.NoError(t, s.gen.Takeover(t.Context(), "IS", 2), "a repeated takeover never lowers")
		s.next(s.gen, 4)
		require.NoError(t, s.gen.Takeover(t.Context(), "IS", 9), "a repeated takeover raises")
		s.next(s.gen, 10)
		y, m, d := time.Now().In(s.loc).Date()
		midnight := time.Date(y, m, d+1, 0, 0, 0, 0, s.loc)
		require.WithinDuration(t, midnight, time.Now().Add(s.rdb.PTTL(t.Context(), s.counter).Val()), 2*time.Second)
		require.Greater(t, s.rdb.TTL(t.Context(), s.record).Val(), 7*24*time.Hour)
	})

	b.run(t, "takeover continues above seq, the floor and its own numbers", func(t *testing.T, s *series) {
		s.next(stray(s), 1)
		require.NoError(t, s.gen.Takeover(t.Context(), "IS", 57))
		s.next(s.gen, 58)
		other := stray(s, fixedFloor(80))
		require.NoError(t, other.Takeover(t.Context(), "IS", 60))
		s.next(other, 81)
		require.NoError(t, s.gen.Takeover(t.Context(), "IS", 0))
		require.NoError(t, s.rdb.Del(t.Context(), s.counter).Err())
		s.refused(s.gen, serial.ErrCounterLost)
		require.NoError(t, s.gen.Takeover(t.Context(), "IS", 3), "of its own period, it is Raise")
		s.next(s.gen, 59)
	})

	b.run(t, "takeover leaves a ledger, and starts one", func(t *testing.T, s *series) {
		l := new(spyLedger)
		with := s.generator(serial.WithLedger(l, 10))
		s.next(with, 1)
		s.refused(s.gen, serial.ErrConflict)
		require.NoError(t, s.gen.Takeover(t.Context(), "IS", 0))
		s.next(s.gen, 2)
		require.Empty(t, s.rdb.HGet(t.Context(), s.record, "ceiling").Val())
		other := stray(s, serial.WithLedger(l, 10))
		s.refused(other, serial.ErrConflict)
		require.NoError(t, other.Takeover(t.Context(), "IS", 0))
		s.next(other, 11) // above everything that the ledger reserved
		require.NoError(t, with.Takeover(t.Context(), "IS", 0))
		s.next(with, 21)
		s.refused(other, serial.ErrConflict)
	})
}

// The errors for operators must contain both periods with their dates, and a remedy.
func TestRefusalsSayWhatToDo(t *testing.T) {
	m := miniredis.RunT(t)
	m.SetTime(time.Date(2021, 10, 25, 3, 0, 0, 0, time.UTC))
	rdb := closing(t, redis.NewClient(&redis.Options{Addr: m.Addr()}))
	anyClock := serial.WithMaxSkew(-1)
	utc := newGenerator(t, rdb, anyClock, serial.WithLocation(time.UTC))
	require.NoError(t, errOf(utc.Next(t.Context(), "IS")))
	shanghai := newGenerator(t, rdb, anyClock, serial.WithLocation(location(t, "Asia/Shanghai")))
	_, err := shanghai.Next(t.Context(), "IS")
	require.EqualError(t, err, "serial: conflicting period: IS is in 2021-10-25 from 2021-10-25T00:00:00Z to "+
		"2021-10-26T00:00:00Z (2021-10-25 08:00:00 to 2021-10-26 08:00:00 in Asia/Shanghai), but this generator's settings "+
		"put it in 2021-10-25 from 2021-10-24T16:00:00Z to 2021-10-25T16:00:00Z (2021-10-25 00:00:00 to 2021-10-26 "+
		"00:00:00 in Asia/Shanghai): another time zone or day start is in use; if this generator is right, stop the other "+
		"process and run: serial takeover -tz 'Asia/Shanghai' IS SEQ, where SEQ is the last number used of 2021-10-25, or 0")

	zone := serial.WithLocation(location(t, "Asia/Shanghai"))
	ledger := newGenerator(t, rdb, append(ledgerIf(true, 10), anyClock, zone)...)
	require.ErrorContains(t, errOf(ledger.Next(t.Context(), "IS")), "run: PROGRAM takeover IS SEQ, where PROGRAM is the "+
		"service's own command")

	require.NoError(t, m.Set("serial:{IS}:20211025", "x"))
	_, err = utc.Next(t.Context(), "IS")
	require.EqualError(t, err, "serial: counter lost: IS of 2021-10-25 was opened before, but serial:{IS}:20211025 "+
		`contains "x", and 1 is the last number that this process has seen; find the last number used, and run: serial `+
		"raise -tz 'UTC' IS SEQ, where SEQ is the last number used of 2021-10-25, or 0")
}

// A generator has another period length or year start than its series. Every call must fail, with an error that
// contains both settings, and change nothing. This must hold for every zone, day start and template, at the boundaries
// of periods and while periods are prepared.
// Guarantees: period-changed, once-repeated.
func TestOneCalendar(t *testing.T) {
	day, month := serial.WithTemplate("{type}{date:yyyyMMdd}-{seq:4}"), serial.WithPeriod(serial.PerMonth)
	monthOfYears := func(start time.Month) []serial.Option {
		return options(month, serial.WithYearStart(start, 1), serial.WithTemplate("{type}{date:FFFFMM}{seq:4}"))
	}
	for name, test := range map[string]struct {
		at, then     string // UTC
		first, next  []serial.Option
		theirs, ours string
	}{
		"a month that prints days, then days from 04:00": {"2024-11-03 01:00:00", "2024-11-03 04:00:00",
			options(month, day), options(serial.WithDayStart(4*time.Hour), day), "months", "days"},
		"months of years from April, then from July": {"2023-05-10 12:00:00", "2024-05-10 12:00:00",
			monthOfYears(time.April), monthOfYears(time.July), "months of years from April 1", "months of years from July 1"},
		"calendar years, then years from April": {"2023-05-10 12:00:00", "2024-05-10 12:00:00",
			options(serial.WithPeriod(serial.PerYear), serial.WithTemplate("{type}{date:FFFF}{seq:4}")),
			options(serial.WithPeriod(serial.PerYear), serial.WithTemplate("{type}{date:FFFF}{seq:4}"),
				serial.WithYearStart(time.April, 1)), "years", "years from April 1"},
		"Never": {"2024-05-10 12:00:00", "2025-04-06 00:00:00",
			options(serial.WithPeriod(serial.Never), serial.WithTemplate("{type}{seq:8}")), nil, "all time", "days"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newClockSeries(t)
			s.ClockTTL(false) // so that the record does not expire
			first, next := s.generator(test.first...), s.generator(test.next...)
			refused := func() {
				t.Helper()
				before := s.Dump()
				for call, err := range map[string]error{
					"Next":     errOf(next.Next(t.Context(), "IS")),
					"NextOnce": errOf(next.NextOnce(t.Context(), "IS", "new")),
					"Peek":     errOf(next.Peek(t.Context(), "IS")),
					"History":  errOf(next.History(t.Context(), "IS", 2)),
					"Raise":    next.Raise(t.Context(), "IS", 9),
					"Takeover": next.Takeover(t.Context(), "IS", 9),
					"Prepare":  next.Prepare(t.Context(), "IS"),
					"Audit":    errOf(next.Audit(t.Context(), "IS", serial.At(time.Now()), func(func(string, error) bool) {})),
				} {
					require.ErrorIs(t, err, serial.ErrConflict, call)
					require.ErrorContains(t, err, fmt.Sprintf(" uses the calendar %q, but this generator uses %q;",
						test.theirs, test.ours), call)
					require.ErrorContains(t, err, "begin a new series with another type, or with another key prefix and another "+
						"literal in the template", call)
				}
				require.Equal(t, before, s.Dump())
			}
			setTime := func(text string) {
				at, err := time.Parse(time.DateTime, text)
				require.NoError(t, err)
				s.SetTime(at)
			}
			setTime(test.at)
			require.NoError(t, errOf(first.NextN(t.Context(), "IS", 3)))
			once, err := first.NextOnce(t.Context(), "IS", "answered")
			require.NoError(t, err)
			refused()
			require.NoError(t, first.Prepare(t.Context(), "IS"))
			setTime(test.then)
			refused()
			again, err := next.NextOnce(t.Context(), "IS", "answered")
			require.NoError(t, err)
			require.True(t, once.Equal(again))
			require.Equal(t, once.Date.Format(time.DateOnly), again.Date.Format(time.DateOnly))
			require.NoError(t, errOf(next.Next(t.Context(), "IS2")), "a new type is a new series")
		})
	}
}

// A clockSeries is a series on a miniredis whose clock the test sets.
type clockSeries struct {
	*miniredis.Miniredis
	t   *testing.T
	rdb *redis.Client
}

func newClockSeries(t *testing.T) *clockSeries {
	m, rdb := startMini(t)
	m.ClockTTL(true)
	return &clockSeries{m, t, rdb}
}

func (s *clockSeries) generator(opts ...serial.Option) *serial.Generator {
	return newGenerator(s.t, s.rdb, append([]serial.Option{serial.WithMaxSkew(-1), serial.WithLocation(time.UTC)},
		opts...)...)
}

// at sets the clock to an hour of a day in October 2021.
func (s *clockSeries) at(day, hour int) {
	s.SetTime(time.Date(2021, 10, day, hour, 30, 0, 0, time.UTC))
}

// The clock of Redis is ahead and then corrected. The days that were entered too early must be lost, and the days
// before them must be new.
func TestLabelsAfterAFastClock(t *testing.T) {
	s := newClockSeries(t)
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

	// Raise of a generator without a ledger must not stop the use of the ledger, even if the current period lies in the
	// future.
	s.at(30, 12)
	require.NoError(t, s.generator(ledgerIf(true, 10)...).Raise(t.Context(), "IS", 0))
	s.at(29, 12)
	require.ErrorIs(t, s.generator().Raise(t.Context(), "IS", 5), serial.ErrConflict)
}

// Two generators could print different sequences of a period as the same number. Calls of the second one must fail
// until the period ends, and write nothing.
// Guarantees: print-changed.
func TestPrintsOfAPeriod(t *testing.T) {
	const plain = "{type}{date:yyyyMMdd}{seq:6}"
	prints := map[string][]serial.Option{
		"plain":   {serial.WithTemplate(plain)},
		"base32":  {serial.WithTemplate("{type}{date:yyyyMMdd}{seq:6:base32}")},
		"luhn":    {serial.WithTemplate(plain + "{check:luhn}")},
		"hidden":  {serial.WithTemplate(plain), serial.WithHiddenSequence([]byte("an example's key"))},
		"rotated": {serial.WithTemplate(plain), serial.WithHiddenSequence([]byte("another's secret"))},
	}
	for name, opts := range prints {
		t.Run(name, func(t *testing.T) {
			s := newClockSeries(t)
			s.at(24, 12)
			gen := s.generator(opts...)
			once, err := textOf(gen.NextOnce(t.Context(), "IS", "request"))
			require.NoError(t, err)
			before := s.Dump()
			var other *serial.Generator
			for foreign, opts := range prints {
				if foreign == name {
					continue
				}
				other = s.generator(opts...)
				for call, err := range map[string]error{
					"Next":     errOf(other.Next(t.Context(), "IS")),
					"ledger":   errOf(s.generator(append(opts, ledgerIf(true, 5)...)...).Next(t.Context(), "IS")),
					"NextOnce": errOf(other.NextOnce(t.Context(), "IS", "another")),
					"Peek":     errOf(other.Peek(t.Context(), "IS")),
					"History":  errOf(other.History(t.Context(), "IS", 2)),
					"Prepare":  other.Prepare(t.Context(), "IS"),
					"Raise":    other.Raise(t.Context(), "IS", 9),
					"Takeover": other.Takeover(t.Context(), "IS", 9),
				} {
					require.ErrorIs(t, err, serial.ErrConflict, "%s: %s", foreign, call)
					require.ErrorContains(t, err, "use the old template and key until 2021-10-24 has ended, then switch all "+
						"processes to the new ones")
				}
				again, err := textOf(other.NextOnce(t.Context(), "IS", "request"))
				if name == "hidden" || name == "rotated" {
					require.ErrorIs(t, err, serial.ErrConflict, foreign)
				} else {
					requireResult(t, once, foreign)(again, err)
				}
			}
			require.Equal(t, before, s.Dump())

			require.NoError(t, gen.Prepare(t.Context(), "IS"), "a prepared period has no print yet")
			s.at(25, 0)
			require.NoError(t, errOf(other.Next(t.Context(), "IS")))
			require.ErrorIs(t, errOf(gen.Next(t.Context(), "IS")), serial.ErrConflict)
		})
	}
}

// An operator changes the time zone, or the clock is ahead. Neither must make it possible to use a label with a
// different print mark.
// Guarantees: print-changed.
func TestPrintsOutliveTakeovers(t *testing.T) {
	s := newClockSeries(t)
	s.ClockTTL(false) // counters of recurring days must survive
	const lettered = "{type}{date:yyyyMMdd}{seq:4:base32}"
	day, letters := s.generator(), s.generator(serial.WithTemplate(lettered))
	refused := func(gens ...*serial.Generator) {
		t.Helper()
		for _, gen := range gens {
			require.ErrorIs(t, gen.Raise(t.Context(), "Z", 5), serial.ErrConflict)
			require.ErrorIs(t, gen.Takeover(t.Context(), "Z", 5), serial.ErrConflict)
		}
	}

	// A process in a zone that is ahead has opened the 25th, so the print mark must not change until the 25th has ended
	// in every zone.
	s.at(24, 12)
	east := s.generator(serial.WithTemplate(lettered), serial.WithLocation(time.FixedZone("east", 14*3600)))
	require.NoError(t, errOf(east.Next(t.Context(), "Z")))
	refused(day)
	s.at(25, 12)
	require.ErrorIs(t, errOf(day.Next(t.Context(), "Z")), serial.ErrConflict)
	s.at(26, 0)
	require.NoError(t, errOf(day.Next(t.Context(), "Z")))

	// While the clock is ahead, the 28th is opened. Until the 28th has ended, the print mark must not change, and
	// labels that were used before must not get another one.
	s.at(28, 12)
	require.NoError(t, errOf(letters.Next(t.Context(), "Z")))
	s.at(27, 12)
	require.ErrorContains(t, day.Raise(t.Context(), "Z", 0), "until 2021-10-28 has ended")
	require.NoError(t, letters.Raise(t.Context(), "Z", 0))
	s.at(26, 12)
	refused(day, letters)
	s.at(28, 13)
	require.ErrorIs(t, errOf(day.Next(t.Context(), "Z")), serial.ErrConflict)
	requireSeq(t, 2)(letters.NextNumber(t.Context(), "Z"))
	s.at(29, 12)
	require.NoError(t, errOf(day.Next(t.Context(), "Z")))
	s.at(28, 14)
	refused(day, letters)
}
