package serial_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/serialtest"
)

// Two processes keep the old settings and two have new ones while all of them issue numbers. The changes are those that
// docs/settings.md allows, in both directions. Each process must be issued numbers, or fail, exactly when the page says
// so.
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

	rows := map[string][]change{
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
			{new: ledger(), steps: []step{oldOnly, newFirst, newOnly, after(day), oldOnly}},
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
				steps: []step{oldOnly, oldFirst, denyNew, after(365 * day), oldFirst}},
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
	}
	_, table, _ := strings.Cut(guide(t, "settings.md"), "\n## What may change when\n")
	table, _, _ = strings.Cut(table, "\n## ")
	var documented []string
	for _, row := range regexp.MustCompile(`(?m)^\| (.*?) \| `).FindAllStringSubmatch(table, -1)[2:] {
		documented = append(documented, row[1])
	}
	require.ElementsMatch(t, documented, slices.Collect(maps.Keys(rows)), "each row of the table is tested")
	for row, changes := range rows {
		t.Run(strings.ReplaceAll(row, "`", ""), func(t *testing.T) {
			t.Parallel()
			for i, c := range changes {
				t.Run(fmt.Sprint(i), c.run)
			}
		})
	}
}

// A change consists of settings and the steps that follow.
type change struct {
	old, new []serial.Option
	newType  string // of those with the new settings; "" for IS
	says     string // in the error of those with the new settings
	steps    []step
}

// A step is an event in a rollout, while two processes have the old settings and two have the new ones.
type step func(r *rollout)

// In these steps, twenty callers call Next at the same time. Those with the settings in the name of the step are issued
// numbers, and the rest fail with ErrConflict.
var (
	both     step = func(r *rollout) { r.issue(10, 10, true, true) }
	oldOnly  step = func(r *rollout) { r.issue(20, 0, true, false) } // no process has the new settings yet
	newOnly  step = func(r *rollout) { r.issue(0, 20, false, true) } // no process has the old settings any more
	oldFirst step = func(r *rollout) {                               // and the new ones come too early
		require.NoError(r.t, errOf(r.older[0].Next(r.t.Context(), "IS")))
		r.issue(10, 10, true, false)
	}
	newFirst step = func(r *rollout) { // and the old ones remain
		require.NoError(r.t, errOf(r.newer[0].Next(r.t.Context(), "IS")))
		r.issue(10, 10, false, true)
	}
)

// In these steps, an operator calls Takeover or Prepare.
var (
	takeNew  step = func(r *rollout) { require.NoError(r.t, r.takeOver(r.newer)) }
	takeOld  step = func(r *rollout) { require.NoError(r.t, r.takeOver(r.older)) }
	denyNew  step = func(r *rollout) { require.ErrorIs(r.t, r.takeOver(r.newer), serial.ErrConflict) }
	denyOld  step = func(r *rollout) { require.ErrorIs(r.t, r.takeOver(r.older), serial.ErrConflict) }
	prepared step = func(r *rollout) { require.NoError(r.t, r.older[0].Prepare(r.t.Context(), "IS")) }
)

// after returns a step in which time passes.
func after(d time.Duration) step {
	return func(r *rollout) {
		r.redis.Advance(d)
		r.last = 0
	}
}

func atAnyTime(period time.Duration) []step {
	return []step{oldOnly, both, newOnly, after(period), both, oldOnly, newOnly}
}

// betweenPeriods waits for two periods of the longer length. After that, no old period overlaps a new one.
func betweenPeriods(period time.Duration) []step {
	return []step{oldOnly, oldFirst, after(2 * period), newFirst, newOnly, after(2 * period), oldFirst, oldOnly}
}

var withTakeover = []step{oldOnly, oldFirst, takeNew, newFirst, newOnly, takeOld, oldFirst, oldOnly}

// never has the steps for settings that cannot be changed: neither Takeover nor waiting helps, as long as the record
// exists. The record expires a week after the end of a period.
var never = []step{
	oldOnly, oldFirst, denyNew, oldFirst, after(24 * time.Hour), oldFirst, prepared, after(24 * time.Hour),
	denyNew, oldFirst, oldOnly}

// byPrint returns the steps for changes that even Takeover does not allow.
func byPrint(period time.Duration) []step {
	return []step{oldOnly, oldFirst, denyNew, oldFirst, prepared, after(period), newFirst, newOnly, denyOld, after(period),
		oldFirst, oldOnly}
}

// A rollout is a change of settings in progress.
type rollout struct {
	change
	t            *testing.T
	redis        *serialtest.Redis
	older, newer []*serial.Generator // of two processes each

	mu     sync.Mutex // guards the rest
	issued map[string]bool
	last   int64 // last sequence of the period
}

func (c change) run(t *testing.T) {
	redis := serialtest.NewRedis(t, time.Date(2021, time.October, 24, 9, 0, 0, 0, time.UTC))
	r := &rollout{change: c, t: t, redis: redis, issued: map[string]bool{}}
	for range 2 {
		usual := options(serial.WithLocation(time.UTC), serial.WithMaxSkew(-1))
		r.older = append(r.older, newGenerator(t, redis.Client(), append(usual, c.old...)...))
		r.newer = append(r.newer, newGenerator(t, redis.Client(), append(usual, c.new...)...))
	}
	for i, step := range c.steps {
		step(r)
		require.False(t, t.Failed(), "step %d", i)
	}
}

func (r *rollout) takeOver(gens []*serial.Generator) error {
	return gens[0].Takeover(r.t.Context(), "IS", r.last)
}

// issue lets callers with old and with new settings call Next at the same time. It requires that the callers with each
// settings are issued numbers, or that they fail.
func (r *rollout) issue(old, new int, oldGet, newGet bool) {
	var calls sync.WaitGroup
	for i := range old + new {
		gens, typ, get := r.older, "IS", oldGet
		if i >= old {
			gens, typ, get = r.newer, cmp.Or(r.newType, "IS"), newGet
		}
		calls.Go(func() {
			for range 3 {
				n, err := gens[i%2].NextNumber(r.t.Context(), typ)
				r.mu.Lock()
				switch {
				case get && err != nil:
					r.t.Errorf("no number: %v", err)
				case !get && (!errors.Is(err, serial.ErrConflict) || !strings.Contains(err.Error(), r.says)):
					r.t.Errorf("%v, %v instead of ErrConflict: %s", n, err, r.says)
				case get && r.issued[n.String()]:
					r.t.Errorf("%s was issued twice", n)
				case get:
					r.issued[n.String()] = true
					r.last = max(r.last, n.Seq)
				}
				r.mu.Unlock()
			}
		})
	}
	calls.Wait()
}
