package serial_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	inner "github.com/dailyserial/serial/internal/series"
)

// steps runs steps, which are separated by commas. A step is "GENERATOR CALL [ARGUMENT] [= RESULT]". The result is a
// number, its sequence, or a word for an error; by default, the call must succeed. A step can also be the name of a
// function in also, followed by its argument.
func steps(t *testing.T, gens map[string]*serial.Generator, also map[string]func(argument string), script string) {
	t.Helper()
	failures := map[string]error{"lost": serial.ErrCounterLost, "conflict": serial.ErrConflict, "boom": errBoom,
		"skew": serial.ErrClockSkew, "exhausted": serial.ErrExhausted, "not replicated": serial.ErrNotReplicated,
		"reserved": inner.ErrReserved}
	for step := range strings.SplitSeq(script, ",") {
		step, want, _ := strings.Cut(strings.TrimSpace(step), " = ")
		name, call, _ := strings.Cut(step, " ")
		if do := also[name]; do != nil {
			do(call)
			continue
		}
		require.Contains(t, gens, name, step)
		call, argument, _ := strings.Cut(call, " ")
		seq, _ := strconv.ParseInt(argument, 10, 64)
		var last serial.Number
		var err error
		switch gen, ctx := gens[name], t.Context(); call {
		case "next": // the last of several numbers if there is an argument
			var numbers []serial.Number
			if numbers, err = gen.NextN(ctx, "IS", max(1, int(seq))); err == nil {
				last = numbers[len(numbers)-1]
			}
		case "peek":
			last, err = gen.Peek(ctx, "IS")
		case "once":
			last, err = gen.NextOnce(ctx, "IS", "request")
		case "prepare":
			err = gen.Prepare(ctx, "IS")
		case "raise":
			err = gen.Raise(ctx, "IS", seq)
		case "takeover":
			err = gen.Takeover(ctx, "IS", seq)
		case "takeover-keeping":
			err = gen.TakeoverKeepingLedger(ctx, "IS", seq)
		default:
			t.Fatalf("unknown step %q", step)
		}
		if failure := failures[want]; failure != nil {
			require.ErrorIs(t, err, failure, step)
			continue
		}
		require.NoError(t, err, step)
		if want != "" {
			require.Contains(t, []string{last.String(), strconv.FormatInt(last.Seq, 10)}, want, step)
		}
	}
}

// steps runs steps with generators of the series. After "redis", a step is a Redis command, in which counter and record
// stand for the keys.
func (s *series) steps(gens map[string]*serial.Generator, script string) {
	s.t.Helper()
	keys := strings.NewReplacer("counter", s.counter, "record", s.record)
	steps(s.t, gens, map[string]func(string){"redis": func(command string) {
		var words []any
		for word := range strings.FieldsSeq(command) {
			words = append(words, keys.Replace(word))
		}
		require.NoError(s.t, s.rdb.Do(s.t.Context(), words...).Err())
	}}, script)
}

// ForProgram returns a generator that must use the same counters as the first one, while the first keeps its own hooks.
// ExampleGenerator_ForProgram shows its errors.
func TestForProgram(t *testing.T) {
	s := inMemory(t).series(t)
	var called []string
	hooks := func(name string) serial.Hooks {
		return serial.Hooks{
			Issued:          func(context.Context, serial.IssuedInfo) { called = append(called, name) },
			NearlyExhausted: func(context.Context, serial.ExhaustionInfo) { called = append(called, name+" at 0.8") },
		}
	}
	gen := s.generator(serial.WithLast(10), serial.WithHooks(hooks("generator")))
	s.steps(map[string]*serial.Generator{"gen": gen, "program": gen.ForProgram("orders-serial", nil, hooks("program"))},
		"gen next = 1, program next = 2, gen raise 7, program next = 8")
	require.Equal(t, []string{"generator", "program", "generator", "program", "generator", "program at 0.8",
		"generator at 0.8"}, called)
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
	year := options(serial.WithPeriod(serial.PerYear), serial.WithTemplate("{type}{date:FFFF}{seq:4}"))
	monthOfYears := func(start time.Month) []serial.Option {
		return options(month, serial.WithYearStart(start, 1), serial.WithTemplate("{type}{date:FFFFMM}{seq:4}"))
	}
	never := options(serial.WithPeriod(serial.Never), serial.WithTemplate("{type}{seq:8}"))
	for says, test := range map[string]struct {
		at, then    string // UTC
		first, next []serial.Option
	}{
		`"months", but this generator uses "days";`: {"2024-11-03 01:00", "2024-11-03 04:00", // days from 04:00
			options(month, day), options(serial.WithDayStart(4*time.Hour), day)},
		`"months of years from April 1", but this generator uses "months of years from July 1";`: {"2023-05-10 12:00",
			"2024-05-10 12:00", monthOfYears(time.April), monthOfYears(time.July)},
		`"years", but this generator uses "years from April 1";`: {"2023-05-10 12:00", "2024-05-10 12:00", year,
			append(year, serial.WithYearStart(time.April, 1))},
		`"all time", but this generator uses "days";`: {"2024-05-10 12:00", "2025-04-06", never, nil},
		`"days", but this generator uses "all time";`: {"2024-05-10 12:00", "2024-05-11", nil, never},
	} {
		s := newClockSeries(t)
		s.ClockTTL(false) // so that the record does not expire
		first, next := s.generator(test.first...), s.generator(test.next...)
		refused := func() {
			t.Helper()
			before := s.Dump()
			s.requireConflicts(next, " uses the calendar "+says, "begin a new series with another type, or with another key "+
				"prefix and another literal in the template")
			require.Equal(t, before, s.Dump())
		}
		s.at(test.at)
		require.NoError(t, errOf(first.NextN(t.Context(), "IS", 3)))
		once := must(first.NextOnce(t.Context(), "IS", "answered"))
		refused()
		require.NoError(t, first.Prepare(t.Context(), "IS"))
		s.at(test.then)
		refused()
		again := must(next.NextOnce(t.Context(), "IS", "answered"))
		require.True(t, once.Equal(again))
		require.Equal(t, once.Date.Format(time.DateOnly), again.Date.Format(time.DateOnly))
		require.NoError(t, errOf(next.Next(t.Context(), "IS2")), "a new type is a new series")
	}
}

// requireConflicts requires that every call of a generator fails with ErrConflict, and that its error contains says.
func (s *clockSeries) requireConflicts(gen *serial.Generator, says ...string) {
	s.t.Helper()
	calls := callsOf(s.t.Context(), gen, "IS")
	calls["Audit"] = errOf(gen.Audit(s.t.Context(), "IS", serial.At(time.Now()), used()))
	for call, err := range calls {
		require.ErrorIs(s.t, err, serial.ErrConflict, call)
		for _, part := range says {
			require.ErrorContains(s.t, err, part, call)
		}
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

// at sets the clock to a time in UTC, such as "2021-10-24 12:00".
func (s *clockSeries) at(time string) { s.SetTime(utc(s.t, time)) }

// The clock of Redis is ahead, and then an operator raises the counter with the right clock. The days that were opened
// too early must be lost, and the days before them must be new. Raise of a generator without a ledger must not stop the
// use of the ledger, even if the current period lies in the future. TestHistories in internal/series covers more.
func TestLabelsAfterAFastClock(t *testing.T) {
	s := newClockSeries(t)
	gens := map[string]*serial.Generator{"gen": s.generator(), "ledger": s.generator(ledgerIf(true, 10)...)}
	steps(t, gens, map[string]func(string){"on": func(day string) { s.at("2021-10-" + day + " 12:00") }},
		"on 24, gen next = 1, on 27, gen next = 1, on 28, gen next = 1, on 24, gen next = skew, gen raise 1, gen next = 2, "+
			"on 25, gen next = IS202110250001, on 27, gen next = lost, ledger raise 1, on 26, gen raise 5 = conflict")
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
		s := newClockSeries(t)
		s.at("2021-10-24 12:30")
		gen := s.generator(opts...)
		once := must(gen.NextOnce(t.Context(), "IS", "answered")).String()
		before := s.Dump()
		var other *serial.Generator
		for foreign, opts := range prints {
			if foreign == name {
				continue
			}
			other = s.generator(opts...)
			s.requireConflicts(other, "use the old template and key until 2021-10-24 has ended, then switch all processes "+
				"to the new ones")
			ledger := s.generator(append(opts, ledgerIf(true, 5)...)...)
			require.ErrorIs(t, errOf(ledger.Next(t.Context(), "IS")), serial.ErrConflict)
			again, err := textOf(other.NextOnce(t.Context(), "IS", "answered"))
			if name == "hidden" || name == "rotated" {
				require.ErrorIs(t, err, serial.ErrConflict, foreign)
			} else {
				requireResult(t, once, foreign)(again, err)
			}
		}
		require.Equal(t, before, s.Dump())

		require.NoError(t, gen.Prepare(t.Context(), "IS"), "a prepared period has no print yet")
		s.at("2021-10-25 00:30")
		require.NoError(t, errOf(other.Next(t.Context(), "IS")))
		require.ErrorIs(t, errOf(gen.Next(t.Context(), "IS")), serial.ErrConflict)
	}
}
