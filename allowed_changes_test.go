package serial_test

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/serialtest"
)

// Settings change under load, and back, as docs/settings.md allows.
// Guarantees: allowed-changes.
func TestRollout(t *testing.T) {
	template := func(s string) []serial.Option { return options(serial.WithTemplate(s)) }
	yearly := func(s string, opts ...serial.Option) []serial.Option {
		return append(opts, serial.WithPeriod(serial.PerYear), serial.WithTemplate(s))
	}
	ever := func(s string) []serial.Option {
		return options(serial.WithPeriod(serial.Never), serial.WithTemplate(s))
	}
	halfYearly := func(s string) []serial.Option {
		return options(serial.WithPeriod(serial.PerHalfYear), serial.WithTemplate(s))
	}
	monthly := options(serial.WithPeriod(serial.PerMonth), serial.WithTemplate("{type}-{date:yyyyMM}-{seq:4}"))
	april, october := serial.WithYearStart(time.April, 1), serial.WithYearStart(time.October, 1)
	shanghai := location(t, "Asia/Shanghai")
	day := 24 * time.Hour
	const dated = "{type}{date:yyyyMMdd}"
	ledger := func() []serial.Option { return options(serial.WithLedger(new(serialtest.Ledger), 50)) }
	key, otherKey := serial.WithHiddenSequence([]byte("an example's key")),
		serial.WithHiddenSequence([]byte("another's secret"))

	for row, changes := range map[string][]change{
		"literals, separators": {
			{old: template("{type}{date:yyyyMMdd}{seq:4}"), new: template("{type}-{date:yyyy-MM-dd}-{seq:4}"),
				steps: atAnyTime(day)},
		},
		"width of `{seq}`": {
			{old: template(dated + "{seq:4}"), new: template(dated + "{seq:6}"), steps: atAnyTime(day)},
			{old: template(dated + "-{seq:4}"), new: template(dated + "-{seq:4+}"), steps: atAnyTime(day)},
			{old: append(template(dated+"{seq:6}"), key), new: append(template(dated+"{seq:8}"), key), steps: atAnyTime(day)},
			{old: template(dated + "{seq:4}{check:luhn}"), new: template(dated + "{seq:5}{check:luhn}"), steps: atAnyTime(day)},
		},
		"first sequence, retention": {
			{new: options(serial.WithStart(101), serial.WithRetention(30)), steps: atAnyTime(day)},
		},
		"last sequence, last day": {
			{new: options(serial.WithLast(5000), serial.WithUntil(serial.On(2021, time.December, 31))), steps: atAnyTime(day)},
		},
		"floor, skew, hooks, lock servers, replicas": {
			{new: options(fixedFloor(0), serial.WithHooks(serial.Hooks{}), serial.WithMaxSkew(-1)), steps: atAnyTime(day)},
		},
		"block of a ledger": {func() change {
			l := new(serialtest.Ledger)
			return change{old: options(serial.WithLedger(l, 10)), new: options(serial.WithLedger(l, 40)),
				steps: atAnyTime(day)}
		}()},
		"a ledger": {
			{new: ledger(), steps: []step{oldOnly, newFirst, newOnly, {pass: day}, oldOnly}},
			{new: ledger(), steps: []step{oldOnly, newFirst, newOnly, takeOld, oldOnly}},
		},
		"time zone, day start": {
			{new: options(serial.WithLocation(shanghai)), steps: betweenPeriods(day)},
			{new: options(serial.WithLocation(shanghai)), steps: withTakeover},
			{new: options(serial.WithDayStart(4 * time.Hour)), steps: betweenPeriods(day)},
			{new: options(serial.WithDayStart(4 * time.Hour)), steps: withTakeover},
		},
		"period, year start": {
			{new: monthly, steps: never},
			{new: options(serial.WithPeriod(serial.PerMonth)), steps: never}, // the same template
			{new: options(serial.WithPeriod(serial.PerWeek), serial.WithTemplate("{type}-{date:GGGG-WW}-{seq:4}")),
				steps: never},
			{new: ever("{type}{seq:7}"), steps: never},
			{old: yearly("{type}-{date:FFFF}-{seq:4}"), new: yearly("{type}/{date:FFFF}/{seq:4}", april), steps: never},
			{old: yearly("{type}-{date:FFFFMM}-{seq:4}", april), new: yearly("{type}-{date:FFFFMM}-{seq:4}", october),
				steps: never},
		},
		"business year in the template": { // days do not count by its start unless the template prints a part of it
			{old: append(template("{type}-{date:yyyyMMdd}-{seq:4}"), april),
				new: append(template("{type}/{date:FFFFMMdd}/{seq:4}"), april), steps: never,
				says: "give this generator a template without FFFF, FF, EEEE, EE, S and Q, or begin a new series"},
			{old: append(template("{type}-{date:yyyyMMddQ}-{seq:4}"), april),
				new: append(template("{type}/{date:yyyyMMdd}/{seq:4}"), april), steps: never,
				says: "give this generator a template with FFFF, FF, EEEE, EE, S or Q, and the same year start, or begin a new"},
			{old: template("{type}-{date:yyyyMMdd}-{seq:4}"), new: template("{type}/{date:FFFFMMdd}/{seq:4}"),
				steps: byPrint(day)}, // from January 1
		},
		"order of fields and tokens, alphabet, check digit": {
			{old: template("{type}{date:yyDDD}{seq:4}"), new: template("{date:yyDDD}{type}{seq:4}"), steps: byPrint(day)},
			{old: yearly("{type}-{date:yyyyMM}-{seq:4}"), new: yearly("{type}-{date:yyyy}-{seq:4}"), steps: byPrint(365 * day)},
			{old: template(dated + "{seq:4}"), new: template(dated + "{seq:4:base32}"), steps: byPrint(day)},
			{old: template(dated + "{seq:4:base32}"), new: template(dated + "{seq:4:base36}"), steps: byPrint(day)},
			{old: template(dated + "{seq:4}"), new: template(dated + "{seq:4}{check:damm}"), steps: byPrint(day)},
			{old: template(dated + "{seq:4}{check:luhn}"), new: template(dated + "{seq:4}{check:damm}"), steps: byPrint(day)},
			{old: ever("{type}{seq:7}"), new: ever("{type}{seq:7}{check:luhn}"),
				steps: []step{oldOnly, oldFirst, {takeover: true, toNew: true, fails: true},
					{pass: 365 * day}, oldFirst}},
		},
		"year token, order of tokens in a date": {
			{old: template("{type}-{date:yyMMdd}-{seq:4}"), new: template("{type}/{date:ddMMyy}/{seq:4}"), steps: byPrint(day)},
			{old: template("{type}-{date:yyDDD}-{seq:4}"), new: template("{type}/{date:DDDyy}/{seq:4}"), steps: byPrint(day)},
		},
		"`yy` to `BB`": {
			{old: template("{type}-{date:yyMMdd}-{seq:4}"), new: template("{type}/{date:BBMMdd}/{seq:4}"), steps: byPrint(day)},
			{old: template("{type}-{date:yyMMdd}-{seq:4}"), new: template("{type}-{date:BBMMdd}-{seq:4}"), newType: "IT",
				steps: atAnyTime(day)},
		},
		"`S` to `Q`, `M` to `Q`": {
			{old: halfYearly("{type}{date:FFFF-S}-{seq:4}"), new: halfYearly("{type}{date:FFFF-Q}-{seq:4}"), newType: "IT",
				steps: atAnyTime(183 * day)},
			{old: halfYearly("{type}{date:FFFF-M}-{seq:4}"), new: halfYearly("{type}{date:FFFF-Q}-{seq:4}"), newType: "IT",
				steps: atAnyTime(183 * day)},
		},
		"key": {
			{old: template(dated + "{seq:6}"), new: append(template(dated+"{seq:6}"), key), steps: byPrint(day)},
			{old: append(template(dated+"{seq:6}"), key), new: append(template(dated+"{seq:6}"), otherKey), steps: byPrint(day)},
		},
		"`WithSharedCounter`": {
			{old: template("{type}-{date:yyyyMMdd}-{seq:4}"),
				new: append(template("{type}/{date:yyyyMMdd}/{seq:4}"), serial.WithKeyPrefix("other"),
					serial.WithSharedCounter()), steps: atAnyTime(day)},
		},
		"key prefix": {
			{old: template("{type}-{date:yyyyMMdd}-{seq:4}"),
				new: append(template("{type}/{date:yyyyMMdd}/{seq:4}"), serial.WithKeyPrefix("other")), steps: atAnyTime(day)},
		},
	} {
		t.Run(strings.ReplaceAll(row, "`", ""), func(t *testing.T) {
			t.Parallel()
			require.Contains(t, guide(t, "settings.md"), "\n| "+row+" | ", "the table has a row for it")
			for i, c := range changes {
				t.Run(fmt.Sprint(i), c.run)
			}
		})
	}
}

// Every row of the table is tested.
func TestRolloutHasEveryRow(t *testing.T) {
	_, table, found := strings.Cut(guide(t, "settings.md"), "\n## What may change when\n")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n## ")
	source := unix(t, "allowed_changes_test.go")
	rows := regexp.MustCompile(`(?m)^\| (.*?) \| `).FindAllStringSubmatch(table, -1)[2:]
	require.NotEmpty(t, rows)
	for _, row := range rows {
		require.Contains(t, source, fmt.Sprintf("\t\t%q: {", row[1]))
	}
}

// A change consists of settings and the steps that follow.
type change struct {
	old, new []serial.Option
	newType  string // of those with the new settings; "" for IS
	says     string // in the error of those with the new settings
	steps    []step
}

// A step is a time to wait, a takeover, or a burst of twenty callers. In a burst, half of them have the old settings
// and half the new ones. The named half gets numbers; the other gets ErrConflict. If both get some, it does not matter
// who is first.
type step struct {
	pass            time.Duration
	prepare         bool // with the old settings
	takeover, toNew bool
	fails           bool // the takeover fails
	first           string
	old, new        bool
}

var (
	both     = step{old: true, new: true}
	oldOnly  = step{old: true}               // nobody has the new settings yet
	newOnly  = step{new: true}               // nobody has the old settings any more
	oldFirst = step{first: "old", old: true} // and the new ones come too early
	newFirst = step{first: "new", new: true} // and the old ones remain
	takeNew  = step{takeover: true, toNew: true}
	takeOld  = step{takeover: true}
)

func atAnyTime(period time.Duration) []step {
	return []step{oldOnly, both, newOnly, {pass: period}, both, oldOnly, newOnly}
}

// betweenPeriods waits until all overlaps have ended: two periods of the longer kind.
func betweenPeriods(period time.Duration) []step {
	return []step{oldOnly, oldFirst, {pass: 2 * period}, newFirst, newOnly, {pass: 2 * period}, oldFirst, oldOnly}
}

var withTakeover = []step{oldOnly, oldFirst, takeNew, newFirst, newOnly, takeOld, oldFirst, oldOnly}

// never is for settings that a series keeps: neither a takeover nor time changes them. Its record lives for a week
// after a period.
var never = []step{oldOnly, oldFirst, {takeover: true, toNew: true, fails: true}, oldFirst, {pass: 24 * time.Hour},
	oldFirst, {prepare: true}, {pass: 24 * time.Hour}, {takeover: true, toNew: true, fails: true}, oldFirst, oldOnly}

// byPrint is for changes that Takeover does not allow either.
func byPrint(period time.Duration) []step {
	return []step{oldOnly, oldFirst, {takeover: true, toNew: true, fails: true}, oldFirst, {prepare: true}, {pass: period},
		newFirst, newOnly, {takeover: true, fails: true}, {pass: period}, oldFirst, oldOnly}
}

func (c change) run(t *testing.T) {
	now := time.Date(2021, time.October, 24, 9, 0, 0, 0, time.UTC)
	r := serialtest.NewRedis(t, now)
	generators := func(opts []serial.Option) []*serial.Generator { // of two processes
		var all []*serial.Generator
		for range 2 {
			all = append(all,
				newGenerator(t, r.Client(), append([]serial.Option{serial.WithLocation(time.UTC), serial.WithMaxSkew(-1)},
					opts...)...))
		}
		return all
	}
	older, newer := generators(c.old), generators(c.new)
	var mu sync.Mutex
	seen, greatest := map[string]bool{}, int64(0)
	burst := func(gens []*serial.Generator, callers int, succeeds bool) func() {
		typ := "IS"
		if gens[0] == newer[0] {
			typ = cmp.Or(c.newType, typ)
		}
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				for range 3 {
					n, err := gens[i%2].NextNumber(t.Context(), typ)
					mu.Lock()
					switch {
					case succeeds && err != nil:
						t.Errorf("no number: %v", err)
					case !succeeds && (!errors.Is(err, serial.ErrConflict) || !strings.Contains(err.Error(), c.says)):
						t.Errorf("%v, %v instead of ErrConflict: %s", n, err, c.says)
					case succeeds && seen[n.String()]:
						t.Errorf("%s was issued twice", n)
					case succeeds:
						seen[n.String()] = true
						greatest = max(greatest, n.Seq)
					}
					mu.Unlock()
				}
			})
		}
		return wg.Wait
	}
	for i, s := range c.steps {
		switch {
		case s.pass > 0:
			now = now.Add(s.pass)
			r.SetTime(now)
			greatest = 0
		case s.prepare:
			require.NoError(t, older[0].Prepare(t.Context(), "IS"), "step %d", i)
		case s.takeover:
			gens := older
			if s.toNew {
				gens = newer
			}
			err := gens[0].Takeover(t.Context(), "IS", greatest)
			if s.fails {
				require.ErrorIs(t, err, serial.ErrConflict, "step %d", i)
			} else {
				require.NoError(t, err, "step %d", i)
			}
		case s.first == "" && s.old != s.new:
			gens := older
			if s.new {
				gens = newer
			}
			burst(gens, 20, true)()
		default:
			for _, first := range []string{"old", "new"} { // the first one decides
				if s.first == first {
					_, err := map[string]*serial.Generator{"old": older[0], "new": newer[0]}[first].Next(t.Context(), "IS")
					require.NoError(t, err, "step %d", i)
				}
			}
			waitOld, waitNew := burst(older, 10, s.old), burst(newer, 10, s.new)
			waitOld()
			waitNew()
		}
		require.False(t, t.Failed(), "step %d: %+v", i, s)
	}
}
