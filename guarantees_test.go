package serial_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/redistest"
	"github.com/dailyserial/serial/serialtest"
)

// Each promise in the index of docs/guarantees.md must list the tests that prove it, and the comments of these tests
// must contain the name of the promise.
func TestGuarantees(t *testing.T) {
	var named, naming []string // "promise: folder test"
	index := regexp.MustCompile(`(?m)^- \*\*([a-z]+(?:-[a-z]+)+)\*\*: (.*(?:\n  .*)*)$`)
	for _, promise := range index.FindAllStringSubmatch(guide(t, "guarantees.md"), -1) {
		require.NotEmpty(t, quoted(promise[2]), promise[1])
		for tests := range strings.SplitSeq(promise[2], ";") { // of a folder, or of this one
			folder := cmp.Or(strings.Join(found(`(\w+): `, tests), ""), ".")
			for _, test := range quoted(tests) {
				named = append(named, fmt.Sprintf("%s: %s %s", promise[1], folder, test))
			}
		}
	}
	for _, path := range files("*_test.go", "*/*_test.go", "*/*/*_test.go", "*/*/*/*_test.go") {
		source := unix(t, path)
		comments := regexp.MustCompile(`(?m)^// Guarantees: (.*)\.\nfunc (Test\w+)\(t `).FindAllStringSubmatch(source, -1)
		require.Equal(t, strings.Count(source, "\n// Guarantees: "), len(comments),
			"%s: the line belongs directly above a test", path)
		for _, c := range comments {
			for promise := range strings.SplitSeq(c[1], ", ") {
				naming = append(naming, fmt.Sprintf("%s: %s %s", promise, filepath.Base(filepath.Dir(path)), c[2]))
			}
		}
	}
	require.NotEmpty(t, named)
	require.ElementsMatch(t, named, naming, "the page's promises and tests, and those in the comments of tests")
}

// The tests below demonstrate losses that, according to docs/guarantees.md, no protection prevents. If such a test
// fails, correct that page.

// limits runs f with each protection, on a new generator and on one that remembers its numbers. want contains the
// sequences that f must return, or "lost" for ErrCounterLost.
func limits(t *testing.T, want string,
	f func(t *testing.T, remembers bool, stored *int64, opts []serial.Option) (serial.Number, error)) {
	for i, want := range strings.Fields(want) {
		t.Run([]string{"nothing", "floor", "ledger"}[i/2]+", remembers "+strconv.Itoa(i%2), func(t *testing.T) {
			stored := new(int64)
			opts := [][]serial.Option{
				nil,
				{serial.WithFloor(func(context.Context, string, time.Time) (int64, error) { return *stored, nil })},
				ledgerIf(true, 10),
			}[i/2]
			number, err := f(t, i%2 == 1, stored, opts)
			if want == "lost" {
				require.ErrorIs(t, err, serial.ErrCounterLost)
			} else {
				requireResult(t, want)(strconv.FormatInt(number.Seq, 10), err)
			}
		})
	}
}

// Redis's clock is nine days ahead for two seconds, so the counter and the record expire. Only with a floor, with a
// ledger or in a process that remembers its numbers can the series be distinguished from a new one. WithRetention does
// not help.
// Guarantees: record-expired.
func TestLimitOfAClockNineDaysAhead(t *testing.T) {
	limits(t, "1 lost 4 4 11 11", func(t *testing.T, remembers bool, stored *int64,
		opts []serial.Option) (n serial.Number, err error) {
		inBubble(t, func(t *testing.T, m *simulation) {
			opts = append(opts, serial.WithLocation(time.UTC), serial.WithRetention(5))
			gen := newGenerator(t, m.Client(), opts...)
			require.NoError(t, errOf(gen.NextN(t.Context(), "IS", 3)))
			*stored = 3
			m.SetTime(time.Now().AddDate(0, 0, 9))
			_, err = newGenerator(t, m.Client()).Next(t.Context(), "OTHER")
			require.ErrorIs(t, err, serial.ErrClockSkew, "a wrong clock opens nothing")
			synctest.Wait() // until the lock is released
			require.Empty(t, m.Keys())
			m.SetTime(time.Time{})
			m.ClockTTL(true)
			if !remembers {
				gen = newGenerator(t, m.Client(), opts...)
			}
			n, err = gen.NextNumber(t.Context(), "IS")
		})
		return n, err
	})
}

// The memory of a server or its keys are reset to an earlier state, but its replication ID stays the same. The loss
// goes unnoticed even with a ledger.
// Guarantees: memory-goes-back, restored-keys.
func TestLimitOfAServerThatGoesBack(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for name, save := range map[string]func(t *testing.T) (goBack func() error){
		"its memory": func(t *testing.T) func() error {
			require.NoError(t, s.Do("SAVE").Err())
			return func() error { return s.Do("DEBUG", "RELOAD", "NOSAVE").Err() }
		},
		"its keys": func(t *testing.T) func() error {
			dumps := map[string]string{}
			for _, key := range must(s.Do("KEYS", "*").StringSlice()) {
				dumps[key] = must(s.Do("DUMP", key).Text())
			}
			return func() (err error) {
				for key, dump := range dumps {
					err = errors.Join(err, s.Do("RESTORE", key, time.Hour.Milliseconds(), dump, "REPLACE").Err())
				}
				return err
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			limits(t, "4 lost 4 7 4 11", func(t *testing.T, remembers bool, stored *int64,
				opts []serial.Option) (serial.Number, error) {
				require.NoError(t, s.Do("FLUSHALL").Err())
				opts = append(opts, serial.WithLocation(noon()))
				gen := newGenerator(t, s.Client(t), opts...)
				require.NoError(t, errOf(gen.NextN(t.Context(), "IS", 3)))
				goBack := save(t)
				require.NoError(t, errOf(gen.NextN(t.Context(), "IS", 3)))
				*stored = 6
				require.NoError(t, goBack())
				if !remembers {
					gen = newGenerator(t, s.Client(t), opts...)
				}
				return gen.NextNumber(t.Context(), "IS")
			})
		})
	}
}

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
	const plain, six = "{type}{date:yyyyMMdd}{seq:4}", "{type}{date:yyyyMMdd}{seq:6}"
	const dashes, slashes = "{type}-{date:yyyyMMdd}-{seq:4}", "{type}/{date:yyyyMMdd}/{seq:4}"
	template := func(text string, more ...serial.Option) []serial.Option {
		return append(more, serial.WithTemplate(text))
	}
	with := func(steps string, opts ...serial.Option) *rollout { return &rollout{new: opts, steps: steps} }
	days := func(old, new, steps string) *rollout {
		return &rollout{old: template(old), new: template(new), steps: steps}
	}
	asOtherType := func(r *rollout) *rollout { r.newType = "IT"; return r }
	april, october := serial.WithYearStart(time.April, 1), serial.WithYearStart(time.October, 1)
	ledger, otherLedger := ledgerIf(true, 50), ledgerIf(true, 50)
	blocks, shanghai := new(serialtest.Ledger), serial.WithLocation(location(t, "Asia/Shanghai"))
	months, otherPrefix := serial.WithPeriod(serial.PerMonth), serial.WithKeyPrefix("other")
	key := serial.WithHiddenSequence([]byte("an example's key"))

	rows := map[string][]*rollout{
		"literals, separators": {days(plain, "{type}-{date:yyyy-MM-dd}-{seq:4}", atAnyTime)},
		"width of `{seq}`": {
			days(plain, six, atAnyTime),
			{old: template(six, key), new: template("{type}{date:yyyyMMdd}{seq:8}", key), steps: atAnyTime},
		},
		"first sequence, retention": {with(atAnyTime, serial.WithStart(101), serial.WithRetention(30))},
		"last sequence, last day": {
			with(atAnyTime, serial.WithLast(5000), serial.WithUntil(serial.On(2021, time.December, 31)))},
		"floor, skew, hooks, lock servers, replicas": {
			with(atAnyTime, fixedFloor(0), serial.WithHooks(serial.Hooks{}), serial.WithMaxSkew(-1))},
		"block of a ledger": {
			{old: options(serial.WithLedger(blocks, 10)), new: options(serial.WithLedger(blocks, 40)), steps: atAnyTime}},
		"a ledger": {
			with("old new! new wait old", ledger...), with("old new! new takeover-old old", otherLedger...)},
		"time zone, day start": {
			with(betweenPeriods, shanghai), with(withTakeover, serial.WithDayStart(4*time.Hour))},
		"period, year start": {
			with(never, monthly.opts...), with(never, endless.opts...), with(never, months), // the same template
			{old: template("{type}-{date:FFFFMM}-{seq:4}", months, april),
				new: template("{type}-{date:FFFFMM}-{seq:4}", months, october), steps: never},
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
			days(plain, plain+"{check:damm}", byPrint),
			{old: template("{type}{seq:7}", serial.WithPeriod(serial.Never)),
				new:   template("{type}{seq:7}{check:luhn}", serial.WithPeriod(serial.Never)),
				steps: "old old! refuse-new wait old!"},
		},
		"year token, order of tokens in a date": {
			days("{type}-{date:yyMMdd}-{seq:4}", "{type}/{date:ddMMyy}/{seq:4}", byPrint)},
		"`yy` to `BB`": {
			days("{type}-{date:yyMMdd}-{seq:4}", "{type}/{date:BBMMdd}/{seq:4}", byPrint),
			asOtherType(days("{type}-{date:yyMMdd}-{seq:4}", "{type}-{date:BBMMdd}-{seq:4}", atAnyTime)),
		},
		"half-year `S` or month `M` replaced by quarter `Q`": {
			asOtherType(days("{type}{date:FFFF-SMMdd}-{seq:4}", "{type}{date:FFFF-QMMdd}-{seq:4}", atAnyTime))},
		"key": {{old: template(six), new: template(six, key), steps: byPrint}},
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
		if testing.Short() {
			changes = changes[:1]
		}
		t.Run(strings.ReplaceAll(row, "`", ""), func(t *testing.T) {
			t.Parallel()
			for i, r := range changes {
				t.Run(fmt.Sprint(i), r.run)
			}
		})
	}
}

// A rollout is a change of settings, with the steps that follow.
type rollout struct {
	old, new []serial.Option
	steps    string
	newType  string // of those with the new settings; "" for IS
	says     string // in the error of those with the new settings

	t     *testing.T
	redis *serialtest.Redis
	gens  map[string][2]*serial.Generator // of two processes with the "old" settings, and two with the "new" ones

	mu     sync.Mutex // guards the rest
	issued map[string]bool
	last   int64 // last sequence of the period
}

func (r *rollout) run(t *testing.T) {
	r.t, r.gens, r.issued = t, map[string][2]*serial.Generator{}, map[string]bool{}
	r.redis = serialtest.NewRedis(t, time.Date(2021, time.October, 24, 9, 0, 0, 0, time.UTC))
	for settings, opts := range map[string][]serial.Option{"old": r.old, "new": r.new} {
		opts = append(options(serial.WithLocation(time.UTC), serial.WithMaxSkew(-1)), opts...)
		r.gens[settings] = [2]*serial.Generator{newGenerator(t, r.redis.Client(), opts...),
			newGenerator(t, r.redis.Client(), opts...)}
	}
	for step := range strings.FieldsSeq(r.steps) {
		r.do(step)
		require.False(t, t.Failed(), "%s of %s", step, r.steps)
	}
}

// do runs a step. In the steps "old", "new" and "both", four callers with the old settings, the new settings or both
// call Next at the same time, and every call must succeed. In the steps "old!" and "new!", callers have both settings.
// Those with the named settings come first and must succeed, and the others must fail with ErrConflict. In the other
// steps, a period passes, or an operator calls Prepare or Takeover, which succeeds or is refused.
func (r *rollout) do(step string) {
	switch whose, other, _ := strings.Cut(step, "-"); whose {
	case "both":
		r.issue(2, 2, "old new")
	case "old":
		r.issue(4, 0, "old")
	case "new":
		r.issue(0, 4, "new")
	case "old!", "new!":
		r.do(strings.TrimSuffix(step, "!"))
		r.issue(2, 2, step)
	case "takeover":
		require.NoError(r.t, r.gens[other][0].Takeover(r.t.Context(), "IS", r.last))
	case "refuse":
		require.ErrorIs(r.t, r.gens[other][0].Takeover(r.t.Context(), "IS", r.last), serial.ErrConflict)
	case "prepare":
		require.NoError(r.t, r.gens["old"][0].Prepare(r.t.Context(), "IS"))
	case "wait":
		r.redis.Advance(24 * time.Hour)
		r.last = 0
	default:
		require.Fail(r.t, "unknown step", step)
	}
}

// issue lets callers with old and with new settings call Next at the same time. It requires that the callers with the
// settings in succeed are issued numbers, and that the others fail.
func (r *rollout) issue(old, new int, succeed string) {
	barrier(r.t, old+new, func(i int) (string, error) {
		settings, typ := "old", "IS"
		if i >= old {
			settings, typ = "new", cmp.Or(r.newType, "IS")
		}
		for range 2 {
			n, err := r.gens[settings][i%2].NextNumber(r.t.Context(), typ)
			if !strings.Contains(succeed, settings) {
				require.ErrorIs(r.t, err, serial.ErrConflict, "%v", n)
				require.ErrorContains(r.t, err, r.says)
				continue
			}
			require.NoError(r.t, err)
			r.mu.Lock()
			twice := r.issued[n.String()]
			r.issued[n.String()], r.last = true, max(r.last, n.Seq)
			r.mu.Unlock()
			require.False(r.t, twice, "%s was issued twice", n)
		}
		return "", nil
	})
}
