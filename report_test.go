package serial_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/redistest"
)

// AuditAll says the same of each period as an audit of that period does, whatever was used and explained.
func TestAuditAll(t *testing.T) {
	t.Parallel()
	rng := redistest.Random(t)
	day := time.Date(2021, 10, 24, 15, 0, 0, 0, time.UTC)
	for name, opts := range map[string][]serial.Option{
		"usual":   nil,
		"start":   {serial.WithStart(5)},
		"hidden":  {serial.WithTemplate("{type}{date:yyyyMMdd}{seq:6}"), serial.WithHiddenSequence(make([]byte, 16))},
		"months":  {serial.WithTemplate("{type}{date:yyyyMMdd}{seq:4}"), serial.WithPeriod(serial.PerMonth)},
		"shared":  {serial.WithSharedCounter()},
		"all":     {serial.WithTemplate("{type}{seq:4}"), serial.WithPeriod(serial.Never)},
		"earlier": {serial.WithLocation(location(t, "Asia/Shanghai"))},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScheme(t, opts...)
			var earlier []*serial.Scheme
			if name == "earlier" {
				earlier = append(earlier, newScheme(t, serial.WithTemplate("{type}-{date:yyyyMMdd}-{seq:3}")))
			}
			first, _ := s.Limits()
			for range 50 {
				var last []serial.Number
				for _, i := range rng.Perm(6)[:1+rng.IntN(4)] {
					n, err := s.Number("IS", serial.At(day.AddDate(0, 0, i*i)), first+rng.Int64N(20))
					require.NoError(t, err)
					if !slices.ContainsFunc(last, func(l serial.Number) bool { return l.Start.Equal(n.Start) }) {
						last = append(last, n)
					}
				}
				var numbers []string
				for range rng.IntN(100) {
					from := append(earlier, s)[rng.IntN(1+len(earlier))]
					typ := []string{"IS", "IS", "IS", "PO"}[rng.IntN(4)]
					n, err := from.Number(typ, serial.At(day.AddDate(0, 0, rng.IntN(40)-5)), 1+rng.Int64N(25))
					require.NoError(t, err)
					numbers = append(numbers, n.String()+strings.Repeat(" ", rng.IntN(2)))
				}
				numbers = append(numbers, "foreign")
				var reasons []serial.Explanation
				for i := range rng.IntN(20) {
					_, start, _ := append(earlier, s)[rng.IntN(1+len(earlier))].Period(serial.At(day.AddDate(0, 0, rng.IntN(40)-5)))
					e := serial.Explanation{Start: start, First: 1 + rng.Int64N(20), Reason: fmt.Sprint(i), At: day}
					e.Series, _ = s.Series("IS")
					e.Last, e.Unused, e.By = e.First+rng.Int64N(9), rng.IntN(2) == 0, []string{"", "Ada"}[rng.IntN(2)]
					e.Possible = !e.Unused && rng.IntN(2) == 0
					reasons = append(reasons, e)
				}
				options := []serial.AuditOption{given(reasons...), serial.WithEarlier(earlier...), serial.WithLookup(1, 3, 7)}
				got, err := s.AuditAll("IS", last, used(numbers...), options...)
				require.NoError(t, err)
				require.EqualValues(t, 1, got.ForeignCount)
				require.Equal(t, []string{"foreign"}, got.Foreign)
				found := map[string]bool{}
				for i, r := range got.Periods {
					n := serial.Number{Start: r.Start}
					if i < len(last) {
						n = last[i]
						require.True(t, n.Start.Equal(r.Start), "in the order given")
					} else if i > len(last) {
						require.True(t, got.Periods[i-1].Start.Before(r.Start), "in order")
					}
					want, err := s.Audit("IS", serial.At(n.Start), n.Seq, used(numbers...), options...)
					require.NoError(t, err)
					want.Foreign, want.ForeignCount, want.OtherCount = nil, 0, 0
					require.EqualExportedValues(t, want, r)
					for seq := range int64(30) {
						require.Equal(t, want.Lookup(seq), r.Lookup(seq))
					}
					if i >= len(last) {
						require.Positive(t, r.BeyondCount)
					}
					label, _, _ := s.Period(serial.At(r.Start))
					require.False(t, found[label])
					found[label] = true
				}
				oldest := slices.MinFunc(last, func(a, b serial.Number) int { return a.Start.Compare(b.Start) }).Start
				newest := slices.MaxFunc(got.Periods, func(a, b serial.Report) int { return a.Start.Compare(b.Start) }).Start
				var without []time.Time
				for _, start, end := s.Period(serial.At(oldest)); start.Before(newest); _, start, end = s.Period(serial.At(end)) {
					if label, _, _ := s.Period(serial.At(start)); !found[label] {
						without = append(without, start)
					}
				}
				require.Equal(t, without, got.Without)
				require.EqualValues(t, len(without), got.WithoutCount)
			}
		})
	}
}

// What one scheme reads as a number of one period, and another as one of another period, counts in both.
func TestAuditAllOfAmbiguousText(t *testing.T) {
	days := newScheme(t, serial.WithTemplate("{type}{date:yyMMdd}{seq:4}"))
	other := newScheme(t, serial.WithTemplate("{type}{date:ddMMyy}{seq:4}"))
	var last []serial.Number
	for _, day := range []int{21, 12} {
		n, err := days.Number("IS", serial.On(2000+33-day, time.November, day), 1)
		require.NoError(t, err)
		last = append(last, n)
	}
	got, err := days.AuditAll("IS", last, used("IS1211210001"), serial.WithEarlier(other))
	require.NoError(t, err)
	require.Len(t, got.Periods, 2)
	for _, r := range got.Periods {
		require.True(t, r.Clean(), r)
		require.EqualValues(t, 1, r.Count)
	}
	// In one period, it counts once.
	got, err = days.AuditAll("IS", last, used("IS1211210001"), serial.WithEarlier(days))
	require.NoError(t, err)
	require.Zero(t, got.Periods[1].DuplicateCount+got.Periods[0].DuplicateCount)
}

// Numbers of periods before the oldest one are others, and so are all if there is no period.
func TestAuditAllOthers(t *testing.T) {
	s := newScheme(t)
	last, err := s.Number("IS", serial.On(2021, time.October, 24), 1)
	require.NoError(t, err)
	texts := []string{"IS202110230001", "IS202110240001", "PO202110240001", "IS202110260002"}
	got, err := s.AuditAll("IS", []serial.Number{last}, used(texts...))
	require.NoError(t, err)
	require.EqualValues(t, 2, got.OtherCount)
	require.Len(t, got.Periods, 2)
	require.Equal(t, []time.Time{time.Date(2021, 10, 25, 0, 0, 0, 0, time.UTC)}, got.Without)
	require.EqualValues(t, []int64{0, 1}, []int64{got.Periods[1].Last, got.Periods[1].BeyondCount})
	require.False(t, got.Clean())
	got, err = s.AuditAll("IS", []serial.Number{last}, used(texts[:3]...))
	require.NoError(t, err)
	require.True(t, got.Clean())
	got, err = s.AuditAll("IS", nil, used(append(texts, "x")...))
	require.NoError(t, err)
	require.Equal(t, serial.Reports{OtherCount: 4, Foreign: []string{"x"}, ForeignCount: 1}, got)
	require.False(t, got.Clean(), "foreign")
}

func TestAuditAllRefuses(t *testing.T) {
	t.Parallel()
	s := newScheme(t, serial.WithTemplate("{type}{date:yyMMdd}{seq:15}"))
	number := func(typ string, day, seq int) serial.Number {
		n, err := s.Number(typ, serial.On(2021, time.October, day), int64(seq))
		require.NoError(t, err)
		return n
	}
	unread := func(func(string, error) bool) { t.Error("the numbers are read") }
	old := serial.Number{Type: "IS", Start: time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC), Seq: 1}
	high := number("IS", 24, 1)
	high.Seq = 1e15
	for says, last := range map[string][]serial.Number{
		"AuditAll of IS: the period 2021-10-24 is given twice":            {number("IS", 24, 1), number("IS", 24, 2)},
		"AuditAll of IS: the last number of PO from 2021-10-24T00:00:00Z": {number("IS", 24, 1), number("PO", 24, 2)},
		"AuditAll of IS: the last number of IS from ":                     {{Type: "IS", Seq: 1}},
		"1999": {old},
		"last sequence 1000000000000000: want 0 to 999999999999999": {high},
	} {
		got, err := s.AuditAll("IS", last, unread)
		require.ErrorContains(t, err, says)
		require.Zero(t, got)
	}
	for says, opt := range map[string]serial.AuditOption{
		"serial: AuditAll: option 1 is nil":                         nil,
		"serial: WithLastAfter is for Audit; want WithHistoryAfter": serial.WithLastAfter(func() (int64, error) { return 0, nil }),
		"serial: WithHistoryAfter: the function is nil":             serial.WithHistoryAfter(nil),
		"serial: WithLookup: 1001 sequences; want at most 1000":     serial.WithLookup(slices.Collect(seqs(1001))...),
	} {
		require.EqualError(t, errOf(s.AuditAll("IS", nil, unread, opt)), says)
	}
	require.NoError(t, errOf(s.AuditAll("IS", nil, used(), serial.WithLookup(slices.Collect(seqs(1000))...),
		serial.WithLookup(7))))
	require.EqualError(t, errOf(s.Audit("IS", serial.On(2021, 10, 24), 0, unread,
		serial.WithHistoryAfter(func() ([]serial.Number, error) { return nil, nil }))),
		"serial: WithHistoryAfter is for AuditAll; want WithLastAfter")
	require.ErrorIs(t, errOf(s.AuditAll("I:S", nil, unread)), serial.ErrInvalidType)
	require.ErrorContains(t, errOf(s.AuditAll("IS", nil, nil)), "serial: AuditAll: the used numbers are nil")

	// The periods share the bound on memory.
	wide := func(yield func(string, error) bool) {
		for n := 0; yield(fmt.Sprintf("IS2110%02d%015d", 24+n%2, 1+n*1_000_000), nil); n++ {
			require.Less(t, n, 300_000)
		}
	}
	require.ErrorContains(t, errOf(s.AuditAll("IS", []serial.Number{number("IS", 24, 1)}, wide)),
		"AuditAll of IS: the sequences are spread so widely")
}

// seqs yields the sequences 1 to n.
func seqs(n int64) func(yield func(int64) bool) {
	return func(yield func(int64) bool) {
		for i := int64(1); i <= n && yield(i); i++ {
		}
	}
}

// All lists of a kind together hold ten thousand entries. The counts are exact, and a look-up knows the rest.
func TestAuditAllLists(t *testing.T) {
	t.Parallel()
	s := newScheme(t)
	const days = 15
	var last []serial.Number
	var texts []string
	for day := range days {
		at := serial.On(2021, time.October, 1+day)
		n, err := s.Number("IS", at, 3000)
		require.NoError(t, err)
		last = append(last, n)
		for seq := int64(1); seq <= 3000; seq += 2 { // every second one is missing, and the others are there twice
			n, err := s.Number("IS", at, seq)
			require.NoError(t, err)
			texts = append(texts, n.String(), n.String())
		}
	}
	got, err := s.AuditAll("IS", last, used(texts...))
	require.NoError(t, err)
	missing, duplicates := 0, 0
	for _, r := range got.Periods {
		require.EqualValues(t, []int64{1500, 1500, 1500}, []int64{r.MissingCount, r.UnexplainedCount, r.DuplicateCount})
		require.LessOrEqual(t, len(r.Missing), 1000)
		missing, duplicates = missing+len(r.Missing), duplicates+len(r.Duplicates)
		require.Equal(t, serial.Entry{Issued: true}, r.Lookup(2998))
		require.Equal(t, 2, r.Lookup(2999).Stored)
	}
	require.Equal(t, []int{10_000, 10_000}, []int{missing, duplicates})
}

// Without has the first ten thousand periods, and WithoutCount their number, at once.
func TestAuditAllWithout(t *testing.T) {
	t.Parallel()
	s := newScheme(t, serial.WithPeriod(serial.PerSecond), serial.WithTemplate("{type}{date:yyyyMMddHHmmss}{seq:4}"))
	var last []serial.Number
	for _, year := range []int{1971, 9998} {
		n, err := s.Number("IS", serial.At(time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)), 1)
		require.NoError(t, err)
		last = append(last, n)
	}
	got, err := s.AuditAll("IS", last, used())
	require.NoError(t, err)
	require.Len(t, got.Without, 10_000)
	require.Equal(t, last[0].Start.Add(time.Second), got.Without[0])
	require.EqualValues(t, last[1].Start.Unix()-last[0].Start.Unix()-1, got.WithoutCount)
}

// Numbers issued while the used numbers are read are ignored, also those of a period that has begun since.
func TestAuditAllMeanwhile(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		gen := newGenerator(t, m.Client(), serial.WithLocation(time.UTC), serial.WithRetention(5), serial.WithStart(3))
		issue := func() []string {
			numbers, err := textsOf(gen.NextN(t.Context(), "IS", 3))
			require.NoError(t, err)
			return numbers
		}
		numbers := issue()
		time.Sleep(48 * time.Hour)
		numbers = append(numbers, issue()...)
		got, err := gen.AuditAll(t.Context(), "IS", func(yield func(string, error) bool) {
			later := issue()
			time.Sleep(24 * time.Hour)
			for _, text := range slices.Concat(numbers, later, later[:1], issue(), []string{"IS200001040006", "IS200001040007"}) {
				yield(text, nil)
			}
		})
		require.NoError(t, err)
		require.Len(t, got.Periods, 3)
		for i, want := range []int64{5, 5, 0} {
			require.Equal(t, []int64{3, want}, []int64{got.Periods[i].First, got.Periods[i].Last})
			require.Equal(t, i < 2, got.Periods[i].Clean(), "%+v", got.Periods[i])
		}
		require.EqualValues(t, 2, got.Periods[2].BeyondCount)
		require.Len(t, got.Without, 1)

		// The counter of a deleted day is gone: what is stored of it was never issued, as far as anybody knows.
		m.Del("serial:{IS}:20000103")
		got, err = gen.AuditAll(t.Context(), "IS", used(numbers...))
		require.NoError(t, err)
		require.Len(t, got.Periods, 3)
		require.EqualValues(t, 3, got.Periods[2].BeyondCount)

		_, err = gen.AuditAll(t.Context(), "IS", func(func(string, error) bool) {
			require.NoError(t, m.Set("serial:{IS}:20000101", "1"))
		})
		require.ErrorIs(t, err, serial.ErrCounterLost)
		require.ErrorContains(t, err, "2000-01-01 went back from 5 to 1")

		forgetting := newGenerator(t, m.Client(), serial.WithLocation(time.UTC))
		require.NoError(t, errOf(forgetting.Next(t.Context(), "PO")))
		_, err = forgetting.AuditAll(t.Context(), "PO", func(func(string, error) bool) { time.Sleep(24 * time.Hour) })
		require.ErrorContains(t, err, "the period 2000-01-04 ended while the used numbers were read")
		got, err = forgetting.AuditAll(t.Context(), "PO", used("PO200001040001"))
		require.NoError(t, err)
		require.Equal(t, serial.Reports{OtherCount: 1}, got, "nothing is kept")
	})
}

// A start that Redis knows counts, as in an audit of one period.
func TestAuditAllWithAnotherStart(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		high := newGenerator(t, m.Client(), serial.WithLocation(time.UTC), serial.WithStart(100))
		numbers, err := textsOf(high.NextN(t.Context(), "IS", 2))
		require.NoError(t, err)
		low := newGenerator(t, m.Client(), serial.WithLocation(time.UTC))
		got, err := low.AuditAll(t.Context(), "IS", used(numbers...))
		require.NoError(t, err)
		require.True(t, got.Clean())
		require.EqualValues(t, 100, got.Periods[0].First)
	})
}

// WithHistoryAfter reads the last numbers again.
func TestHistoryAfter(t *testing.T) {
	s := newScheme(t)
	at := func(day int, seq int64) serial.Number {
		n, err := s.Number("IS", serial.On(2021, time.October, day), seq)
		require.NoError(t, err)
		return n
	}
	numbers := used("IS202110240001", "IS202110240002", "IS202110250001", "IS202110250002")
	after := func(all ...serial.Number) serial.AuditOption {
		return serial.WithHistoryAfter(func() ([]serial.Number, error) { return all, nil })
	}
	got, err := s.AuditAll("IS", []serial.Number{at(24, 1)}, numbers, after(at(25, 1), at(24, 2)))
	require.NoError(t, err)
	require.True(t, got.Periods[0].Clean())
	require.Equal(t, []string{"IS202110250002"}, texts(got.Periods[1].Beyond))
	require.EqualError(t, errOf(s.AuditAll("IS", []serial.Number{at(24, 5)}, numbers, after(at(24, 2)))),
		"serial: AuditAll of IS: the last sequence went back from 5 to 2 while the used numbers were read")
	require.ErrorIs(t, errOf(s.AuditAll("IS", nil, used(), serial.WithHistoryAfter(func() ([]serial.Number, error) {
		return nil, errBoom
	}))), errBoom)
	require.ErrorContains(t, errOf(parser(t).AuditAll(t.Context(), "IS", used(), after())),
		"WithHistoryAfter is for Scheme.AuditAll")
}

// A look-up has the texts of the sequences that the audit was asked for; others only if their sequence determines them.
func TestLookupTexts(t *testing.T) {
	numbers := []string{"IS202110240001", "IS202110240002  ", "IS202110240002", " IS202110240003", "IS202110240004",
		"IS-20211024-0005"}
	s := newScheme(t)
	earlier, err := s.WithTemplate("{type}-{date:yyyyMMdd}-{seq:4}")
	require.NoError(t, err)
	shared := newScheme(t, serial.WithSharedCounter())
	months := newScheme(t, serial.WithPeriod(serial.PerMonth), serial.WithTemplate("{type}{date:yyyyMMdd}{seq:4}"))
	for _, row := range []struct {
		scheme *serial.Scheme
		want   [6][]string
		opts   []serial.AuditOption
	}{
		{s, [6][]string{nil, {"IS202110240001"}, nil, {"IS202110240003"}, {"IS202110240004"}}, nil},
		{s, [6][]string{nil, {"IS202110240001"}, numbers[1:3], {" IS202110240003"}, {"IS202110240004"}},
			[]serial.AuditOption{serial.WithLookup(2, 3), serial.WithLookup(9)}},
		{s, [6][]string{5: {"IS-20211024-0005"}}, []serial.AuditOption{serial.WithEarlier(earlier), serial.WithLookup(5)}},
		{shared, [6][]string{4: {"IS202110240004"}}, []serial.AuditOption{serial.WithLookup(4)}},
		{months, [6][]string{4: {"IS202110240004"}}, []serial.AuditOption{serial.WithLookup(4)}},
	} {
		r, err := row.scheme.Audit("IS", serial.On(2021, time.October, 24), 5, used(numbers...), row.opts...)
		require.NoError(t, err)
		for seq, want := range row.want {
			require.Equal(t, want, r.Lookup(int64(seq)).Texts, seq)
		}
	}
	require.Zero(t, (&serial.Report{}).Lookup(1))
}

// Explanations that fit a number and do not count for it are replaced.
func TestLookupExplanations(t *testing.T) {
	s := newScheme(t)
	_, start, _ := s.Period(serial.On(2021, time.October, 24))
	e := func(first, last int64, reason, by string) serial.Explanation {
		return serial.Explanation{Series: "serial:IS", Type: "IS", Start: start, First: first, Last: last, Reason: reason,
			By: by, At: start}
	}
	left, void, corrected, lost := e(1, 3, serial.CallerLeft, ""), e(2, 2, "void", "Ada"), e(2, 5, "no, lost", "Bob"),
		e(1, 9, serial.AnswerLost, "")
	left.Unused, lost.Possible = true, true
	r, err := s.Audit("IS", serial.At(start), 4, used("IS202110240001"), given(void, corrected), given(lost, left))
	require.NoError(t, err)
	require.Equal(t, serial.Entry{Issued: true, Stored: 1, Texts: []string{"IS202110240001"}, Contradicted: true,
		Replaced: []serial.Explanation{left}, Possible: []serial.Explanation{lost}}, r.Lookup(1))
	require.Equal(t, serial.Entry{Issued: true, Explanation: &corrected, Replaced: []serial.Explanation{void, left},
		Possible: []serial.Explanation{lost}}, r.Lookup(2))
	require.Equal(t, serial.Entry{Replaced: []serial.Explanation{corrected}, Possible: []serial.Explanation{lost}}, r.Lookup(5))
	require.Zero(t, r.Lookup(0))
	require.Zero(t, r.Lookup(-1<<63))
}

// A period is clean whatever is foreign, since a foreign text belongs to no period.
func TestCleanWithForeign(t *testing.T) {
	s := newScheme(t)
	r, err := s.Audit("IS", serial.On(2021, time.October, 24), 1, used("IS202110240001", "ORD2O26"))
	require.NoError(t, err)
	require.True(t, r.Clean())
	require.EqualValues(t, 1, r.ForeignCount)
}
