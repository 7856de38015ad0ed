package serial_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/serialtest"
)

// Steps of changes, see rollout.do.
const (
	atAnyTime      = "old both new wait both old new"
	betweenPeriods = "old old! wait wait new! new wait wait old! old" // after two periods, no old one overlaps a new one
	withTakeover   = "old old! takeover-new new! new takeover-old old! old"
	byPrint        = "old old! refuse-new old! prepare wait new! new refuse-old wait old! old" // Takeover does not help
	// Neither Takeover nor waiting helps, as long as the record exists. It expires a week after the end of a period.
	never = "old old! refuse-new old! wait old! prepare wait refuse-new old! old"
)

// Two processes keep the old settings and two have new ones while all of them issue numbers. The changes are those that
// docs/settings.md allows, in both directions. Each process must be issued numbers, or fail, exactly when the page says
// so.
// Guarantees: allowed-changes.
func TestRollout(t *testing.T) {
	template := func(text string, more ...serial.Option) []serial.Option {
		return append(more, serial.WithTemplate(text))
	}
	// per returns a change of templates for periods.
	per := func(period serial.Period, length time.Duration, old, new, steps string) change {
		unit := serial.WithPeriod(period)
		return change{old: template(old, unit), new: template(new, unit), steps: steps, wait: length}
	}
	days := func(old, new, steps string) change { return per(serial.PerDay, 0, old, new, steps) }
	const year, half = 365 * 24 * time.Hour, 183 * 24 * time.Hour
	april, october := serial.WithYearStart(time.April, 1), serial.WithYearStart(time.October, 1)
	const plain, six = "{type}{date:yyyyMMdd}{seq:4}", "{type}{date:yyyyMMdd}{seq:6}"
	const dashes, slashes = "{type}-{date:yyyyMMdd}-{seq:4}", "{type}/{date:yyyyMMdd}/{seq:4}"
	ledger, otherLedger := serial.WithLedger(new(serialtest.Ledger), 50), serial.WithLedger(new(serialtest.Ledger), 50)
	blocks, shanghai := new(serialtest.Ledger), serial.WithLocation(location(t, "Asia/Shanghai"))
	key := serial.WithHiddenSequence([]byte("an example's key"))
	otherKey, otherPrefix := serial.WithHiddenSequence([]byte("another's secret")), serial.WithKeyPrefix("other")
	asOtherType := func(c change) change { c.newType = "IT"; return c }

	rows := map[string][]change{
		"literals, separators": {days(plain, "{type}-{date:yyyy-MM-dd}-{seq:4}", atAnyTime)},
		"width of `{seq}`": {
			days(plain, six, atAnyTime),
			days(dashes, "{type}-{date:yyyyMMdd}-{seq:4+}", atAnyTime),
			{old: template(six, key), new: template("{type}{date:yyyyMMdd}{seq:8}", key), steps: atAnyTime},
			days(plain+"{check:luhn}", six+"{check:luhn}", atAnyTime),
		},
		"first sequence, retention": {{new: options(serial.WithStart(101), serial.WithRetention(30)), steps: atAnyTime}},
		"last sequence, last day": {
			{new: options(serial.WithLast(5000), serial.WithUntil(serial.On(2021, time.December, 31))), steps: atAnyTime}},
		"floor, skew, hooks, lock servers, replicas": {
			{new: options(fixedFloor(0), serial.WithHooks(serial.Hooks{}), serial.WithMaxSkew(-1)), steps: atAnyTime}},
		"block of a ledger": {
			{old: options(serial.WithLedger(blocks, 10)), new: options(serial.WithLedger(blocks, 40)), steps: atAnyTime}},
		"a ledger": {
			{new: options(ledger), steps: "old new! new wait old"},
			{new: options(otherLedger), steps: "old new! new takeover-old old"},
		},
		"time zone, day start": {
			{new: options(shanghai), steps: betweenPeriods},
			{new: options(shanghai), steps: withTakeover},
			{new: options(serial.WithDayStart(4 * time.Hour)), steps: betweenPeriods},
			{new: options(serial.WithDayStart(4 * time.Hour)), steps: withTakeover},
		},
		"period, year start": {
			{new: monthly.opts, steps: never},
			{new: options(serial.WithPeriod(serial.PerMonth)), steps: never}, // the same template
			{new: weekly.opts, steps: never},
			{new: endless.opts, steps: never},
			{old: template("{type}-{date:FFFF}-{seq:4}", serial.WithPeriod(serial.PerYear)),
				new: template("{type}/{date:FFFF}/{seq:4}", serial.WithPeriod(serial.PerYear), april), steps: never},
			{old: template("{type}-{date:FFFFMM}-{seq:4}", serial.WithPeriod(serial.PerYear), april),
				new: template("{type}-{date:FFFFMM}-{seq:4}", serial.WithPeriod(serial.PerYear), october), steps: never},
		},
		"business year in the template": { // days do not count by its start unless the template prints a part of it
			{old: template(dashes, april), new: template("{type}/{date:FFFFMMdd}/{seq:4}", april), steps: never,
				says: "give this generator a template without FFFF, FF, EEEE, EE, S and Q, or begin a new series"},
			{old: template("{type}-{date:yyyyMMddQ}-{seq:4}", april), new: template(slashes, april), steps: never,
				says: "give this generator a template with FFFF, FF, EEEE, EE, S or Q, and the same year start, or begin a new"},
			days(dashes, "{type}/{date:FFFFMMdd}/{seq:4}", byPrint), // from January 1
		},
		"order of fields and tokens, alphabet, check digit": {
			days("{type}{date:yyDDD}{seq:4}", "{date:yyDDD}{type}{seq:4}", byPrint),
			per(serial.PerYear, year, "{type}-{date:yyyyMM}-{seq:4}", "{type}-{date:yyyy}-{seq:4}", byPrint),
			days(plain, "{type}{date:yyyyMMdd}{seq:4:base32}", byPrint),
			days("{type}{date:yyyyMMdd}{seq:4:base32}", "{type}{date:yyyyMMdd}{seq:4:base36}", byPrint),
			days(plain, plain+"{check:damm}", byPrint),
			days(plain+"{check:luhn}", plain+"{check:damm}", byPrint),
			per(serial.Never, year, "{type}{seq:7}", "{type}{seq:7}{check:luhn}", "old old! refuse-new wait old!"),
		},
		"year token, order of tokens in a date": {
			days("{type}-{date:yyMMdd}-{seq:4}", "{type}/{date:ddMMyy}/{seq:4}", byPrint),
			days("{type}-{date:yyDDD}-{seq:4}", "{type}/{date:DDDyy}/{seq:4}", byPrint),
		},
		"`yy` to `BB`": {
			days("{type}-{date:yyMMdd}-{seq:4}", "{type}/{date:BBMMdd}/{seq:4}", byPrint),
			asOtherType(days("{type}-{date:yyMMdd}-{seq:4}", "{type}-{date:BBMMdd}-{seq:4}", atAnyTime)),
		},
		"`S` to `Q`, `M` to `Q`": {
			asOtherType(per(serial.PerHalfYear, half, "{type}{date:FFFF-S}-{seq:4}", "{type}{date:FFFF-Q}-{seq:4}", atAnyTime)),
			asOtherType(per(serial.PerHalfYear, half, "{type}{date:FFFF-M}-{seq:4}", "{type}{date:FFFF-Q}-{seq:4}", atAnyTime)),
		},
		"key": {
			{old: template(six), new: template(six, key), steps: byPrint},
			{old: template(six, key), new: template(six, otherKey), steps: byPrint},
		},
		"`WithSharedCounter`": {
			{old: template(dashes), new: template(slashes, otherPrefix, serial.WithSharedCounter()), steps: atAnyTime}},
		"key prefix": {{old: template(dashes), new: template(slashes, otherPrefix), steps: atAnyTime}},
	}
	var documented []string
	for _, row := range tableRows(t, "docs/settings.md", "what-may-change-when") {
		documented = append(documented, row[0])
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
	steps    string
	newType  string        // of those with the new settings; "" for IS
	says     string        // in the error of those with the new settings
	wait     time.Duration // length of a period; 0 for a day
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
	for step := range strings.FieldsSeq(c.steps) {
		r.do(step)
		require.False(t, t.Failed(), "%s of %s", step, c.steps)
	}
}

// do runs a step. In the steps "old", "new" and "both", eight callers with the old settings, the new settings or both
// call Next at the same time, and every call must succeed. In the steps "old!" and "new!", callers have both settings.
// Those with the named settings come first and must succeed, and the others must fail with ErrConflict. In the other
// steps, a period passes, or an operator calls Prepare or Takeover, which succeeds or is refused.
func (r *rollout) do(step string) {
	ctx := r.t.Context()
	switch step {
	case "both":
		r.issue(4, 4, true, true)
	case "old":
		r.issue(8, 0, true, false)
	case "new":
		r.issue(0, 8, false, true)
	case "old!":
		r.issue(1, 0, true, false)
		r.issue(4, 4, true, false)
	case "new!":
		r.issue(0, 1, false, true)
		r.issue(4, 4, false, true)
	case "takeover-old":
		require.NoError(r.t, r.older[0].Takeover(ctx, "IS", r.last))
	case "takeover-new":
		require.NoError(r.t, r.newer[0].Takeover(ctx, "IS", r.last))
	case "refuse-old":
		require.ErrorIs(r.t, r.older[0].Takeover(ctx, "IS", r.last), serial.ErrConflict)
	case "refuse-new":
		require.ErrorIs(r.t, r.newer[0].Takeover(ctx, "IS", r.last), serial.ErrConflict)
	case "prepare":
		require.NoError(r.t, r.older[0].Prepare(ctx, "IS"))
	case "wait":
		r.redis.Advance(cmp.Or(r.wait, 24*time.Hour))
		r.last = 0
	default:
		require.Fail(r.t, "unknown step", step)
	}
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
