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
)

// steps runs steps, which are separated by commas. A step is "GENERATOR CALL [ARGUMENT] [= RESULT]". The result is a
// number, its sequence, or a word for an error; by default, the call must succeed. A step can also be the name of a
// function in also, followed by its argument.
func steps(t *testing.T, gens map[string]*serial.Generator, also map[string]func(argument string), script string) {
	t.Helper()
	for step := range strings.SplitSeq(script, ",") {
		step, want, _ := strings.Cut(strings.TrimSpace(step), " = ")
		name, call, _ := strings.Cut(step, " ")
		if do := also[name]; do != nil {
			do(call)
			continue
		}
		require.Contains(t, gens, name, step)
		call, argument, _ := strings.Cut(call, " ")
		if call == "next" && argument != "" {
			call = "take" // and expect the last number
		}
		last, err := perform(t, gens[name], call, "IS", argument)
		if failure := outcomes[want]; failure != nil {
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

// The template already prints the largest sequence. The error must not propose another template.
func TestExhaustedAtTheLargestSequence(t *testing.T) {
	s := inMemory(t).series(t, serial.WithTemplate("{type}{date:yyyyMMdd}-{seq:4+}"))
	require.NoError(t, s.gen.Raise(t.Context(), "IS", 1e15-1))
	require.ErrorContains(t, errOf(s.gen.Next(t.Context(), "IS")),
		" is at 999999999999999 of 999999999999999; the template can print no wider sequence, so use another type")
}

// ForProgram returns a generator that must use the same counters as the first one, while the first keeps its own hooks.
// Its errors must contain the command of the program.
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
	program := gen.ForProgram("orders-serial", nil, hooks("program"))
	s.steps(map[string]*serial.Generator{"gen": gen, "program": program},
		"gen next = 1, program next = 2, gen raise 7, program next = 8")
	require.Equal(t, []string{"generator", "program", "generator", "program", "generator", "program at 0.8",
		"generator at 0.8"}, called)
	require.NoError(t, s.rdb.Del(t.Context(), s.counter).Err())
	require.ErrorContains(t, errOf(program.Next(t.Context(), "IS")), "; find the last number used, and run: "+
		"orders-serial raise IS SEQ, where SEQ is the last number used of ")
}

// The errors for operators must contain both periods with their dates, and a remedy.
func TestRefusalsSayWhatToDo(t *testing.T) {
	m := miniredis.RunT(t)
	m.SetTime(time.Date(2021, 10, 25, 3, 0, 0, 0, time.UTC))
	rdb := closing(t, redis.NewClient(&redis.Options{Addr: m.Addr()}))
	anyClock, zone := serial.WithMaxSkew(-1), serial.WithLocation(location(t, "Asia/Shanghai"))
	utc := newGenerator(t, rdb, anyClock, serial.WithLocation(time.UTC))
	require.NoError(t, errOf(utc.Next(t.Context(), "IS")))
	shanghai := newGenerator(t, rdb, anyClock, zone)
	_, err := shanghai.Next(t.Context(), "IS")
	require.EqualError(t, err, "serial: conflicting period: IS is in 2021-10-25 from 2021-10-25T00:00:00Z to "+
		"2021-10-26T00:00:00Z (2021-10-25 08:00:00 to 2021-10-26 08:00:00 in Asia/Shanghai), but this generator's settings "+
		"put it in 2021-10-25 from 2021-10-24T16:00:00Z to 2021-10-25T16:00:00Z (2021-10-25 00:00:00 to 2021-10-26 "+
		"00:00:00 in Asia/Shanghai): another time zone or day start is in use; if this generator is right, stop the other "+
		"process and run: serial takeover -tz 'Asia/Shanghai' IS SEQ, where SEQ is the last number used of 2021-10-25, or 0")

	ledger := newGenerator(t, rdb, append(ledgerIf(true, 10), anyClock, zone)...)
	require.ErrorContains(t, errOf(ledger.Next(t.Context(), "IS")), "run: PROGRAM takeover IS SEQ, where PROGRAM is the "+
		"service's own command")

	require.NoError(t, m.Set("serial:{IS}:20211025", "x"))
	_, err = utc.Next(t.Context(), "IS")
	require.EqualError(t, err, "serial: counter lost: IS of 2021-10-25 was opened before, but serial:{IS}:20211025 "+
		`contains "x", and 1 is the last number that this process has seen; find the last number used, and run: serial `+
		"raise -tz 'UTC' IS SEQ, where SEQ is the last number used of 2021-10-25, or 0")
	require.NoError(t, m.Set("serial:{IS}:20211025", "0"))
	require.ErrorContains(t, errOf(utc.Next(t.Context(), "IS")), `contains "0", and 1 is the last number that this `+
		"process has seen; Redis has lost data, or the counter was changed by hand, so other processes may be issuing "+
		"numbers twice; stop all processes that issue numbers; find the last number used, and run: serial raise -tz 'UTC'")
}

// A generator has another period length or year start than its series, or it could print different sequences of a period
// as the same number. Every call must fail, with an error that contains both settings or the remedy, and change nothing.
// With another calendar, this must hold until the record expires, at the boundaries of periods and while periods are
// prepared. With another print, it must hold until the period ends. A repeated request must get its number, unless that
// is hidden with another key.
// Guarantees: period-changed, print-changed, once-repeated.
func TestOtherSettings(t *testing.T) {
	template := func(text string, more ...serial.Option) []serial.Option {
		return append(more, serial.WithTemplate(text))
	}
	hidden := func(key string) []serial.Option {
		return template("{type}{date:yyyyMMdd}{seq:6}", serial.WithHiddenSequence([]byte(key)))
	}
	const day, year = "{type}{date:yyyyMMdd}-{seq:4}", "{type}{date:FFFF}{seq:4}"
	perMonth, perYear := serial.WithPeriod(serial.PerMonth), serial.WithPeriod(serial.PerYear)
	april, july := serial.WithYearStart(time.April, 1), serial.WithYearStart(time.July, 1)
	never := template("{type}{seq:8}", serial.WithPeriod(serial.Never))
	const untilTheEnd = "until 2021-10-24 has ended, then switch all processes to the new ones"
	for _, test := range []struct {
		says     string
		at, then string // UTC
		old, new []serial.Option
	}{
		{`"months", but this generator uses "days";`, "2024-11-03 01:00", "2024-11-03 04:00", // days from 04:00
			template(day, perMonth), template(day, serial.WithDayStart(4*time.Hour))},
		{`"months of years from April 1", but this generator uses "months of years from July 1";`, "2023-05-10", "2024-05-10",
			template("{type}{date:FFFFMM}{seq:4}", perMonth, april), template("{type}{date:FFFFMM}{seq:4}", perMonth, july)},
		{`"years", but this generator uses "years from April 1";`, "2023-05-10", "2024-05-10", template(year, perYear),
			template(year, perYear, april)},
		{`"all time", but this generator uses "days";`, "2024-05-10", "2025-04-06", never, nil},
		{`"days", but this generator uses "all time";`, "2024-05-10", "2024-05-11", nil, never},
		{untilTheEnd, "2021-10-24", "2021-10-25", nil, template("{type}{date:yyyyMMdd}{seq:4:base32}")},
		{untilTheEnd, "2021-10-24", "2021-10-25", nil, hidden("an example's key")},
		{untilTheEnd, "2021-10-24", "2021-10-25", hidden("an example's key"), nil},
		{untilTheEnd, "2021-10-24", "2021-10-25", hidden("an example's key"), hidden("another's secret")},
	} {
		s := newClockSeries(t)
		s.ClockTTL(false) // so that the record does not expire
		old, changed := s.generator(test.old...), s.generator(test.new...)
		says := []string{" uses the calendar " + test.says, "begin a new series with another type, or with another key " +
			"prefix and another literal in the template"}
		if test.says == untilTheEnd {
			says = []string{"use the old template and key " + untilTheEnd}
		}
		s.at(test.at)
		once := must(old.NextOnce(t.Context(), "IS", "answered"))
		s.requireConflicts(changed, says...)
		again, err := changed.NextOnce(t.Context(), "IS", "answered")
		if test.says == untilTheEnd && test.old != nil { // the number is hidden
			require.ErrorIs(t, err, serial.ErrConflict)
		} else {
			requireResult(t, once.String())(textOf(again, err))
			require.Equal(t, once.Date.Format(time.DateOnly), again.Date.Format(time.DateOnly))
		}
		require.NoError(t, errOf(changed.Next(t.Context(), "IS2")), "a new type is a new series")
		require.NoError(t, old.Prepare(t.Context(), "IS"))
		s.at(test.then)
		if test.says != untilTheEnd {
			s.requireConflicts(changed, says...)
			continue
		}
		require.NoError(t, errOf(changed.Next(t.Context(), "IS")), "a prepared period has no print yet")
		require.ErrorIs(t, errOf(old.Next(t.Context(), "IS")), serial.ErrConflict)
	}
}

// requireConflicts requires that every call of a generator fails with ErrConflict and writes nothing, and that its error
// contains says.
func (s *clockSeries) requireConflicts(gen *serial.Generator, says ...string) {
	s.t.Helper()
	before, calls := s.Dump(), callsOf(s.t.Context(), gen, "IS")
	calls["Audit"] = errOf(gen.Audit(s.t.Context(), "IS", serial.At(time.Now()), used()))
	for call, err := range calls {
		require.ErrorIs(s.t, err, serial.ErrConflict, call)
		for _, part := range says {
			require.ErrorContains(s.t, err, part, call)
		}
	}
	require.Equal(s.t, before, s.Dump())
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
// use of the ledger, even if the current period lies in the future. TestSerialScript in internal/series covers more.
// Guarantees: day-between.
func TestLabelsAfterAFastClock(t *testing.T) {
	s := newClockSeries(t)
	gens := map[string]*serial.Generator{"gen": s.generator(), "ledger": s.generator(ledgerIf(true, 10)...)}
	steps(t, gens, map[string]func(string){"on": func(day string) { s.at("2021-10-" + day + " 12:00") }},
		"on 24, gen next = 1, on 27, gen next = 1, on 28, gen next = 1, on 24, gen next = skew, gen raise 1, gen next = 2, "+
			"on 25, gen next = IS202110250001, on 27, gen next = lost, ledger raise 1, on 26, gen raise 5 = conflict")
}
