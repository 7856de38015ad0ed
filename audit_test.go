package serial_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

var auditedDay = serial.On(2021, time.October, 24)

// perYear are the options of series that have few periods since 1970, so that AuditAll is fast.
var perYear = options(serial.WithLocation(time.UTC), serial.WithPeriod(serial.PerYear),
	serial.WithTemplate("{type}{date:yyyy}{seq:4}"))

// given returns an iterator over explanations.
func given(all ...serial.Explanation) serial.AuditOption {
	return serial.WithExplanations(func(yield func(serial.Explanation, error) bool) {
		for _, e := range all {
			if !yield(e, nil) {
				return
			}
		}
	})
}

// textOfSeq returns the text of a number of the type IS.
func textOfSeq(t *testing.T, s *serial.Scheme, at serial.When, seq int64) string {
	t.Helper()
	return must(s.Number("IS", at, seq)).String()
}

// countsOf returns the counts of a report: count, missing, duplicates, beyond, foreign, others.
func countsOf(r serial.Report) [6]int64 {
	return [6]int64{r.Count, r.MissingCount, r.DuplicateCount, r.BeyondCount, r.ForeignCount, r.OtherCount}
}

// Stored numbers of every kind of template are audited, with whitespace around them. Each must be counted. The tests of
// internal/account cover the results for the sequences.
func TestAudit(t *testing.T) {
	for template, opts := range map[string][]serial.Option{
		"{type}{date:yyyyMMdd}{seq:4}":                     nil,
		"{type}-{date:yyyyMMdd}-{seq:2+}":                  nil,
		"{seq:4:base32}{date:yyyyMMdd}{type}{check:37-36}": nil,
		"{type}{date:yyyyMMdd}{seq:6}":                     {serial.WithHiddenSequence(hiddenKey)},
		"{type}{date:yyyyMM}{seq:4}":                       {serial.WithPeriod(serial.PerYear)},
	} {
		s := newScheme(t, append(opts, serial.WithTemplate(template), serial.WithStart(3))...)
		text := func(seq int64) string { return textOfSeq(t, s, auditedDay, seq) }
		po, old := must(s.Number("PO", auditedDay, 4)).String(), textOfSeq(t, s, serial.On(2020, time.October, 24), 6)
		long := strings.Repeat("é", 200)
		got := must(s.Audit("IS", auditedDay, 8, used(text(5), text(3)+"   ", "\t "+text(4)+"\u00a0", text(4), text(9),
			text(2), text(7)+"\n", "", long, "\x80"+long, po, old)))
		require.Equal(t, [6]int64{3, 3, 1, 2, 4, 2}, countsOf(got), template)
		require.Equal(t, fmt.Sprintf("[{6 8}] [%s] [%s %s]", text(4), text(9), text(2)),
			fmt.Sprint(got.Missing, got.Duplicates, got.Beyond))
		require.Equal(t, []string{text(7) + "\n", "", long[:256], "\x80" + long[:254]}, got.Foreign, "cut at 256 bytes")
		_, start, _ := s.Period(auditedDay)
		require.Equal(t, []any{"serial:IS", "IS", start, int64(3), int64(8)},
			[]any{got.Series, got.Type, got.Start, got.First, got.Last})
	}
	s := newScheme(t, serial.WithTemplate(" {type} {date:yyyyMMdd} {seq} "))
	got := must(s.Audit("IS", auditedDay, 1, used(" IS 20211024 0001 ", "IS 20211024 0001")))
	require.Equal(t, [6]int64{1, 0, 0, 0, 1, 0}, countsOf(got), "the template's own blanks belong to the number")
}

// unread is an iterator that must not be used.
func unread(t *testing.T) iter.Seq2[string, error] {
	return func(func(string, error) bool) { t.Error("the numbers are read") }
}

// Invalid arguments must cause an error before any number is read, and the first error of an iterator must end the
// audit.
func TestAuditRefuses(t *testing.T) {
	template := serial.WithTemplate("{type}{date:yyMMdd}{seq:15}")
	s, gen, ctx := newScheme(t, template), parser(t, template), t.Context()
	audit := func(typ string, at serial.When, last int64, opts ...serial.AuditOption) error {
		return errOf(s.Audit(typ, at, last, unread(t), opts...))
	}
	day := func(opts ...serial.AuditOption) error { return audit("IS", auditedDay, 1, opts...) }
	auditAll := func(last []serial.Number, opts ...serial.AuditOption) error {
		return errOf(s.AuditAll("IS", last, unread(t), opts...))
	}
	after := serial.WithLastAfter(func() (int64, error) { return 0, nil })
	history := serial.WithHistoryAfter(func() ([]serial.Number, error) { return nil, nil })
	n := must(s.Number("IS", auditedDay, 1))
	high, other, old := n, n, n
	high.Seq, other.Type, old.Start = 1e15, "PO", time.Unix(920_000_000, 0)
	wide := func(yield func(string, error) bool) {
		for n := 0; yield(fmt.Sprintf("IS2110%02d%015d", 24+n%2, 1+n*1_000_000), nil); n++ {
			if n > 1_000_000 {
				t.Fatal("went on")
			}
		}
	}
	broken := func(yield func(string, error) bool) {
		_ = yield("IS211024000000000000001", nil) && yield("", errBoom) && yield("", errors.New("went on"))
	}
	tooMany := []serial.AuditOption{serial.WithLookup(upTo(1000)...), serial.WithLookup(7, 1001)}
	for says, err := range map[string]error{
		"it contains ':'":                                      audit("I:S", auditedDay, 1),
		"IS: last sequence -1: want 0 to 9":                    audit("IS", auditedDay, -1),
		"the year 2121 cannot be printed as yy":                audit("IS", serial.On(2121, time.October, 24), 1),
		"WithExplanations: nil":                                day(serial.WithExplanations(nil)),
		"Audit: option 2 is nil":                               day(given(), nil),
		"WithLookup: 1001 sequences; want at most 1000":        day(tooMany...),
		"WithLastAfter: the function is nil":                   day(serial.WithLastAfter(nil)),
		"WithHistoryAfter is for AuditAll; want WithLastAfter": day(history),
		"WithLastAfter is for Audit; want WithHistoryAfter":    auditAll(nil, after),
		"WithHistoryAfter: the function is nil":                auditAll(nil, serial.WithHistoryAfter(nil)),
		"WithLastAfter is for Scheme.Audit; a Generator reads": errOf(gen.Audit(ctx, "IS", auditedDay, unread(t), after)),
		"WithHistoryAfter is for Scheme.AuditAll":              errOf(gen.AuditAll(ctx, "IS", unread(t), history)),
		"the period 2021-10-24 is given twice":                 auditAll([]serial.Number{n, n}),
		"the last number of PO from 2021-10-24T00:00:00Z":      auditAll([]serial.Number{n, other}),
		"the last number of IS from ":                          auditAll([]serial.Number{{Type: "IS", Seq: 1}}),
		"the year 1999 cannot be printed as yy":                auditAll([]serial.Number{old}),
		"last sequence 1000000000000000: want 0 to 9":          auditAll([]serial.Number{high}),
		"Audit: the used numbers are nil":                      errOf(s.Audit("IS", auditedDay, 1, nil)),
		"Audit of IS in 2021-10-24: boom":                      errOf(s.Audit("IS", auditedDay, 1, broken)),
	} {
		require.Regexp(t, "^serial: .*"+regexp.QuoteMeta(says), err)
	}
	if !testing.Short() { // reads many numbers
		require.ErrorContains(t, errOf(s.AuditAll("IS", []serial.Number{n}, wide)), "the sequences are spread so widely")
	}
	require.ErrorIs(t, audit("I:S", auditedDay, 1), serial.ErrInvalidType)
	require.ErrorIs(t, errOf(s.Audit("IS", auditedDay, 1, broken)), errBoom)
}

// An audit must use the explanations of its own series and period. It must ignore all other explanations, even invalid
// ones. A possible reason must not explain a missing number. The tests of internal/account cover the order of several
// explanations for one sequence.
// Guarantees: deletion-unexplained.
func TestAuditExplains(t *testing.T) {
	s := newScheme(t, serial.WithKeyPrefix("shop"), serial.WithLocation(location(t, "Asia/Shanghai")))
	_, start, end := s.Period(auditedDay)
	e := func(first, last int64, reason string) serial.Explanation {
		return serial.Explanation{Series: "shop:IS", Type: "IS", Start: start, First: first, Last: last, Reason: reason,
			At: start.Add(time.Hour).UTC()}
	}
	left, void, later, burned := e(2, 2, serial.CallerLeft), e(7, 7, "void"), e(7, 9, "twice"), e(4, 5, serial.BlockBurned)
	lost := e(1, 9998, serial.AnswerLost+": 3 attempts")
	left.Unused, lost.Possible = true, true
	later.By, burned.Type = "Bob", "PO" // for information only
	others := []serial.Explanation{void, left}
	others[0].Start = start.UTC() // the same instant
	for _, other := range []serial.Explanation{e(1, 1000, "other"), e(5, 1, "")} {
		series, before, after := other, other, other
		series.Series, before.Start, after.Start = "serial:IS", start.Add(-1), end
		others = append(others, series, before, after)
	}
	got := must(s.Audit("IS", auditedDay, 10, used("IS202110240001", "IS202110240002"), given(others...), given(lost),
		given(later, burned)))
	burned.Type = "IS"
	require.Equal(t, []serial.Explained{{Range: serial.Range{First: 4, Last: 5}, Explanation: burned},
		{Range: serial.Range{First: 7, Last: 9}, Explanation: later}}, got.Explained)
	require.Equal(t, []serial.Explanation{lost}, got.Possible)
	require.Equal(t, "8 [{3 10}] 5 3 [{3 3} {6 6} {10 10}] 1 1 [IS202110240002]", fmt.Sprint(got.MissingCount, got.Missing,
		got.ExplainedCount, got.UnexplainedCount, got.Unexplained, got.PossibleCount, got.ContradictedCount,
		got.Contradicted))
	require.Equal(t, serial.Entry{Issued: true, Explanation: &later, Replaced: []serial.Explanation{void},
		Possible: []serial.Explanation{lost}}, got.Lookup(7))
	require.Equal(t, serial.Entry{Issued: true, Stored: 1, Texts: []string{"IS202110240002"}, Contradicted: true,
		Replaced: []serial.Explanation{left}, Possible: []serial.Explanation{lost}}, got.Lookup(2))
	require.Zero(t, got.Lookup(0))
	require.Zero(t, (&serial.Report{}).Lookup(1))

	void.First, void.Last = 2, 2
	for _, row := range []struct {
		second string // second text that is used; 2 was the last number issued
		given  serial.AuditOption
		clean  bool
	}{
		{"IS202110240002", given(), true}, {"IS202110240002", given(left), false},
		{"ORDER", given(), false}, {"ORDER", given(void), true}, {"ORDER", given(lost), false},
		{"IS202110240001", given(void), false}, {"IS202110240003", given(void), false},
	} {
		got := must(s.Audit("IS", auditedDay, 2, used("IS202110240001", row.second), row.given))
		require.Equal(t, row.clean, got.Clean(), "%+v", row)
	}

	// An invalid explanation of the audited period ends the audit.
	broken, inside := void, withStart(void, start.Add(time.Hour))
	broken.Unused, broken.Possible = true, true
	for says, e := range map[string]serial.Explanation{
		"serial: explanation of IS 2 to 2: Unused and Possible are both set": broken,
		"serial: explanation of IS 2 to 2: Start 2021-10-23T17:00:00Z lies in the period 2021-10-24, which begins at " +
			"2021-10-23T16:00:00Z": inside,
		"serial: Audit of IS in 2021-10-24: boom": {},
	} {
		got, err := s.Audit("IS", auditedDay, 9, used(), given(void), serial.WithExplanations(
			func(yield func(serial.Explanation, error) bool) {
				require.False(t, yield(e, map[bool]error{true: errBoom}[e.First == 0]), "went on")
			}))
		require.ErrorContains(t, err, says)
		require.Zero(t, got)
	}
}

// withStart returns a copy of an explanation with another Start.
func withStart(e serial.Explanation, start time.Time) serial.Explanation {
	e.Start = start
	return e
}

// With WithLastAfter and WithHistoryAfter, the last numbers must be read again after the used numbers.
func TestAuditReadsLastAgain(t *testing.T) {
	s := newScheme(t)
	audit := func(again int64, err error) (serial.Report, error) {
		return s.Audit("IS", auditedDay, 2, used("IS202110240001", "IS202110240005", "IS202110240005", "IS202110240006"),
			serial.WithLastAfter(func() (int64, error) { return again, err }))
	}
	r := must(audit(5, nil))
	require.Equal(t, [6]int64{1, 1, 0, 1, 0, 0}, countsOf(r), "0005 was issued in the meantime")
	require.EqualValues(t, 2, r.Last)
	require.ErrorIs(t, errOf(audit(0, errBoom)), errBoom)
	require.EqualError(t, errOf(audit(1, nil)),
		"serial: Audit of IS in 2021-10-24: the last sequence went back from 2 to 1 while the used numbers were read")

	auditAll := func(last string, err error, after ...string) (serial.Reports, error) {
		var again []serial.Number
		for _, text := range after {
			again = append(again, must(s.Parse(text)))
		}
		return s.AuditAll("IS", []serial.Number{must(s.Parse(last))},
			used("IS202110240001", "IS202110240002", "IS202110250001", "IS202110250002"),
			serial.WithHistoryAfter(func() ([]serial.Number, error) { return again, err }))
	}
	got := must(auditAll("IS202110240001", nil, "IS202110250001", "IS202110240002"))
	require.True(t, got.Periods[0].Clean())
	require.Equal(t, []string{"IS202110250002"}, texts(got.Periods[1].Beyond))
	require.EqualError(t, errOf(auditAll("IS202110240005", nil, "IS202110240002")),
		"serial: AuditAll of IS: the last sequence went back from 5 to 2 while the used numbers were read")
	require.ErrorIs(t, errOf(auditAll("IS202110240001", errBoom)), errBoom)
}

// A Generator must be able to audit the current period, a prepared one, and each earlier period whose counter is kept.
// The audit of the current or of a prepared period must begin at the start in the record, and the audit of an earlier
// period at the start of the Generator.
func TestAuditPeriods(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		const year = 366 * 24 * time.Hour
		generator := func(start int64) *serial.Generator {
			return newGenerator(t, m.Client(), append(perYear, serial.WithLocation(location(t, "Asia/Shanghai")),
				serial.WithRetention(9), serial.WithStart(start))...)
		}
		low, high := generator(1), generator(1000)
		issue := func(gen *serial.Generator, n int) []string { return must(textsOf(gen.NextN(t.Context(), "IS", n))) }
		// audit requires the first and the last sequence of a year, and the number of those beyond.
		audit := func(gen *serial.Generator, year int, all []string, want ...int64) {
			t.Helper()
			got := must(gen.Audit(t.Context(), "IS", serial.On(year, time.May, 1), used(all...)))
			require.Equal(t, want, []int64{got.First, got.Last, got.BeyondCount})
			require.Zero(t, got.MissingCount)
			require.Equal(t, fmt.Sprintf("%d-01-01 00:00:00 +0800 CST", year), got.Start.String())
		}
		auditAll := func(gen *serial.Generator, want ...int64) {
			t.Helper()
			var firsts []int64
			for _, r := range must(gen.AuditAll(t.Context(), "IS", used())).Periods {
				firsts = append(firsts, r.First)
			}
			require.Equal(t, want, firsts)
		}
		audit(low, 2000, []string{"IS20000001"}, 1, 0, 1)
		require.Empty(t, m.Keys(), "it writes nothing")
		numbers := append(issue(low, 6), issue(high, 1)...)
		audit(high, 2000, numbers, 1, 7, 0)
		for year, says := range map[int]string{
			2001: "2001: the period has not begun by Redis's clock, which is in 2000",
			1999: "1999: Redis has no counter for this period: no number was issued, or the counter has expired",
		} {
			require.ErrorContains(t, errOf(low.Audit(t.Context(), "IS", serial.On(year, time.May, 1), used())), says)
		}
		elsewhere := newGenerator(t, m.Client(), perYear...)
		err := errOf(elsewhere.Audit(t.Context(), "IS", serial.At(time.Now()), unread(t)))
		require.ErrorIs(t, err, serial.ErrConflict)

		require.NoError(t, low.Prepare(t.Context(), "IS"))
		time.Sleep(year)
		audit(high, 2001, nil, 1, 0, 0)
		audit(high, 2000, numbers, 1, 7, 0) // the second year has not been entered
		auditAll(high, 1, 1)
		audit(high, 2001, issue(high, 3), 1, 3, 0)
		audit(high, 2000, numbers, 1000, 7, 7)
		time.Sleep(year)
		audit(low, 2002, issue(high, 2), 1000, 1001, 0)
		auditAll(low, 1000, 1, 1)
		slow := func(func(string, error) bool) { time.Sleep(year) } // the year ends in the meantime
		require.NoError(t, errOf(low.Audit(t.Context(), "IS", serial.On(2002, time.May, 1), slow)))
	})
}

// The context of a caller ends while the audit reads numbers or explanations, or before. The audit must end, too.
func TestAuditEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		gen, now := newGenerator(t, m.Client(), serial.WithLocation(time.UTC)), serial.At(time.Now())
		require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
		ctx, cancel := context.WithCancel(t.Context())
		require.ErrorIs(t, errOf(gen.Audit(ctx, "IS", now, func(yield func(string, error) bool) {
			cancel()
			require.False(t, yield("IS200001010001", nil), "went on")
		})), context.Canceled)
		require.ErrorIs(t, errOf(gen.Audit(ctx, "IS", now, unread(t))), context.Canceled)
		ctx, cancel = context.WithCancel(t.Context())
		canceling := serial.WithExplanations(func(yield func(serial.Explanation, error) bool) {
			cancel()
			require.False(t, yield(serial.Explanation{}, nil), "went on")
		})
		require.ErrorIs(t, errOf(gen.Audit(ctx, "IS", now, used(), canceling)), context.Canceled)
	})
}

// AuditAll must have the reports of the given periods, in their order, and then of all later periods with numbers. It
// must list the periods without numbers. It must count numbers of periods before the oldest one in OthersCount, and all
// numbers if there is no period.
func TestAuditAll(t *testing.T) {
	s := newScheme(t)
	last := []serial.Number{must(s.Parse("IS202110240001"))}
	all := []string{"IS202110230001", "IS202110240001", "PO202110240001", "IS202110270002"}
	got := must(s.AuditAll("IS", last, used(all...)))
	day := time.Date(2021, 10, 25, 0, 0, 0, 0, time.UTC)
	require.Equal(t, []time.Time{day, day.AddDate(0, 0, 1)}, got.Without)
	require.Equal(t, []int64{2, 2, 2, 1}, []int64{got.OtherCount, got.WithoutCount, int64(len(got.Periods)),
		got.Periods[1].BeyondCount})
	require.False(t, got.Clean(), "the second period is not")
	got = must(s.AuditAll("IS", last, used(all[:3]...)))
	require.True(t, got.Clean())
	got = must(s.AuditAll("IS", append(last, must(s.Parse("IS202110230004"))), used("IS202110300001", "IS202110280007",
		"IS202110230002")))
	var starts []string
	for _, r := range got.Periods {
		starts = append(starts, fmt.Sprint(r.Start.Day(), countsOf(r)))
	}
	require.Equal(t, []string{"24 [0 1 0 0 0 0]", "23 [1 3 0 0 0 0]", "28 [0 0 0 1 0 0]", "30 [0 0 0 1 0 0]"}, starts)
	got = must(s.AuditAll("IS", nil, used(append(all, "x")...)))
	require.Equal(t, serial.Reports{OtherCount: 4, Foreign: []string{"x"}, ForeignCount: 1}, got)
	require.False(t, got.Clean(), "foreign")

	// The lists of all reports may have 10,000 entries together, but only 1,000 texts that are not numbers.
	got = must(s.AuditAll("IS", last, used(slices.Concat(numbers("IS", "20211025", 1, 600),
		numbers("IS", "20211026", 1, 600), slices.Repeat([]string{"x"}, 1001))...)))
	require.Equal(t, []int{600, 600, 1000},
		[]int{len(got.Periods[1].Beyond), len(got.Periods[2].Beyond), len(got.Foreign)})

	var many []string
	for day := range 18 {
		many = append(many, numbers("IS", fmt.Sprint(20211101+day), 1, 600)...)
	}
	listed := 0
	for _, r := range must(s.AuditAll("IS", last, used(many...))).Periods {
		listed += len(r.Beyond)
	}
	require.Equal(t, 10_000, listed)

	// Only the first 10,000 periods without numbers are listed, however many there are.
	s = newScheme(t, serial.WithPeriod(serial.PerSecond), serial.WithTemplate("{type}{date:yyyyMMddHHmmss}{seq:4}"))
	last = []serial.Number{must(s.Parse("IS197101010000000001")), must(s.Parse("IS999801010000000001"))}
	got = must(s.AuditAll("IS", last, used()))
	require.Len(t, got.Without, 10_000)
	require.Equal(t, last[0].Start.Add(time.Second), got.Without[0])
	require.EqualValues(t, last[1].Start.Unix()-last[0].Start.Unix()-1, got.WithoutCount)
}

// Numbers are issued while an audit reads the used numbers, and a new period begins. The reports must not include these
// numbers. The explanations must be read last, when no other iterator is open.
func TestAuditWhileIssuing(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		var reads atomic.Int64
		gen := newGenerator(t, m.Client(counting(&reads, "evalsha")), append(perYear, serial.WithRetention(5),
			serial.WithStart(3))...)
		const year = 366 * 24 * time.Hour
		issue := func() []string { return must(textsOf(gen.NextN(t.Context(), "IS", 3))) }
		stored, open := issue(), false
		explanations := serial.WithExplanations(func(func(serial.Explanation, error) bool) {
			require.False(t, open)
			require.Positive(t, reads.Load(), "the counters are read again before")
		})
		// meanwhile yields the stored numbers; those that are issued now, of which one is used twice; and more numbers.
		meanwhile := func(pause time.Duration, more ...string) iter.Seq2[string, error] {
			return func(yield func(string, error) bool) {
				open = true
				later := issue()
				time.Sleep(pause)
				for _, text := range slices.Concat(stored, later, later[:1], issue(), more) {
					yield(text, nil)
				}
				open = false
				reads.Store(0)
			}
		}
		r := must(gen.Audit(t.Context(), "IS", serial.At(time.Now()), meanwhile(0, "IS20000012"), explanations))
		require.Equal(t, []int64{3, 5, 1, 0}, []int64{r.First, r.Last, r.BeyondCount, r.DuplicateCount + r.MissingCount})
		time.Sleep(2 * year)
		stored = append(numbers("IS", "2000", 3, 11), issue()...)
		got := must(gen.AuditAll(t.Context(), "IS", meanwhile(year, "IS20030006", "IS20030007"), explanations))
		for i, want := range [][]int64{{3, 5, 0}, {3, 11, 0}, {3, 0, 2}} {
			r := got.Periods[i]
			require.Equal(t, want, []int64{r.First, r.Last, r.BeyondCount})
			require.Equal(t, i < 2, r.Clean(), "%+v", r)
		}
		require.Equal(t, []int{3, 1}, []int{len(got.Periods), len(got.Without)})

		m.Del("serial:{IS}:2002") // without it, the stored numbers of that year were never issued
		got = must(gen.AuditAll(t.Context(), "IS", used(stored...)))
		require.EqualValues(t, 3, got.Periods[2].BeyondCount)
		_, err := gen.AuditAll(t.Context(), "IS", func(func(string, error) bool) {
			require.NoError(t, m.Set("serial:{IS}:2000", "1"))
		})
		require.ErrorIs(t, err, serial.ErrCounterLost)
		require.ErrorContains(t, err, "2000 went back from 11 to 1")

		forgetting := newGenerator(t, m.Client(), perYear...)
		require.NoError(t, errOf(forgetting.Next(t.Context(), "PO")))
		_, err = forgetting.AuditAll(t.Context(), "PO", func(func(string, error) bool) { time.Sleep(year) })
		require.ErrorContains(t, err, "the period 2003 ended while the used numbers were read")
	})
}

// With WithLookup, a report must contain the stored texts of the given sequences, up to a thousand. For any other
// sequence, it must contain a text only if the sequence determines the text.
func TestLookupTexts(t *testing.T) {
	numbers := []string{"IS202110240001", "IS202110240002  ", "IS202110240002", " IS202110240003", "IS-20211024-0005"}
	s := newScheme(t)
	earlier := serial.WithEarlier(must(s.WithTemplate("{type}-{date:yyyyMMdd}-{seq:4}")))
	months := newScheme(t, serial.WithPeriod(serial.PerMonth), serial.WithTemplate("{type}{date:yyyyMMdd}{seq:4}"))
	for _, row := range []struct {
		scheme *serial.Scheme
		opts   []serial.AuditOption
		want   [6][]string
	}{
		{s, nil, [6][]string{1: numbers[:1], 3: {"IS202110240003"}}},
		{s, []serial.AuditOption{serial.WithLookup(2, 3)}, [6][]string{nil, numbers[:1], numbers[1:3], numbers[3:4]}},
		{s, []serial.AuditOption{earlier, serial.WithLookup(9), serial.WithLookup(5)}, [6][]string{5: numbers[4:]}},
		{newScheme(t, serial.WithSharedCounter()), []serial.AuditOption{serial.WithLookup(1)}, [6][]string{1: numbers[:1]}},
		{months, []serial.AuditOption{serial.WithLookup(1)}, [6][]string{1: numbers[:1]}},
	} {
		r := must(row.scheme.Audit("IS", auditedDay, 5, used(numbers...), row.opts...))
		for seq, want := range row.want {
			require.Equal(t, want, r.Lookup(int64(seq)).Texts, seq)
		}
	}
	r := must(s.Audit("IS", auditedDay, 1, used(slices.Repeat(numbers[:1], 1001)...), serial.WithLookup(1)))
	require.Len(t, r.Lookup(1).Texts, 1000)
}
