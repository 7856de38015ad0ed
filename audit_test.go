package serial_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/redistest"
)

var auditedDay = serial.On(2021, time.October, 24)

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
	n, err := s.Number("IS", at, seq)
	require.NoError(t, err)
	return n.String()
}

// countsOf returns the counts of a report: count, missing, duplicates, beyond, foreign, others.
func countsOf(r serial.Report) [6]int64 {
	return [6]int64{r.Count, r.MissingCount, r.DuplicateCount, r.BeyondCount, r.ForeignCount, r.OtherCount}
}

// Stored numbers of every kind of template are audited, with whitespace around them. Each must be counted. The tests of
// internal/account cover the results for the sequences.
func TestAudit(t *testing.T) {
	for name, opts := range map[string][]serial.Option{
		"usual":    nil,
		"growing":  {serial.WithTemplate("{type}-{date:yyyyMMdd}-{seq:2+}")},
		"letters":  {serial.WithTemplate("{seq:4:base32}{date:yyyyMMdd}{type}{check:37-36}")},
		"hidden":   {serial.WithTemplate("{type}{date:yyyyMMdd}{seq:6}"), serial.WithHiddenSequence(hiddenKey)},
		"per year": {serial.WithTemplate("{type}{date:yyyyMM}{seq:4}"), serial.WithPeriod(serial.PerYear)},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScheme(t, append(opts, serial.WithStart(3))...)
			text := func(seq int64) string { return textOfSeq(t, s, auditedDay, seq) }
			po, err := s.Number("PO", auditedDay, 4)
			require.NoError(t, err)
			long := strings.Repeat("é", 200)
			got, err := s.Audit("IS", auditedDay, 8, used(text(5), text(3)+"   ", "\t "+text(4)+"\u00a0", text(4), text(9),
				text(2), text(7)+"\n", "", long, "\x80"+long, po.String(), textOfSeq(t, s, serial.On(2020, time.October, 24), 6)))
			require.NoError(t, err)
			require.Equal(t, [6]int64{3, 3, 1, 2, 4, 2}, countsOf(got))
			require.Equal(t, []serial.Range{{First: 6, Last: 8}}, got.Missing)
			require.Equal(t, []string{text(4)}, texts(got.Duplicates))
			require.Equal(t, []string{text(9), text(2)}, texts(got.Beyond))
			require.Equal(t, []string{text(7) + "\n", "", long[:256], "\x80" + long[:254]}, got.Foreign, "cut at 256 bytes")
			require.Equal(t, []any{"serial:IS", "IS", int64(3), int64(8)}, []any{got.Series, got.Type, got.First, got.Last})
			_, start, _ := s.Period(auditedDay)
			require.Equal(t, start, got.Start)
		})
	}
	s := newScheme(t, serial.WithTemplate(" {type} {date:yyyyMMdd} {seq} "))
	got, err := s.Audit("IS", auditedDay, 1, used(" IS 20211024 0001 ", "IS 20211024 0001"))
	require.NoError(t, err)
	require.Equal(t, [6]int64{1, 0, 0, 0, 1, 0}, countsOf(got), "the template's own blanks belong to the number")
}

// A period has thousands of missing numbers, duplicates and other findings. Each list of a report must be cut off after
// 1,000 entries, and each kind of list in all reports of AuditAll together after 10,000.
func TestAuditLists(t *testing.T) {
	s := newScheme(t)
	var last []serial.Number
	var all []string
	for day := range 15 {
		at := serial.On(2021, time.October, 24-day)
		n, err := s.Number("IS", at, 3000)
		require.NoError(t, err)
		last = append(last, n)
		for seq := int64(1); seq <= 3000; seq += 2 { // every second one is missing, and the others are used twice
			all = append(all, textOfSeq(t, s, at, seq), textOfSeq(t, s, at, seq), "foreign")
		}
	}
	got, err := s.Audit("IS", auditedDay, 3000, used(all...))
	require.NoError(t, err)
	require.Equal(t, [6]int64{1500, 1500, 1500, 0, 22_500, 42_000}, countsOf(got))
	require.Equal(t, []int{1000, 1000, 1000}, []int{len(got.Missing), len(got.Duplicates), len(got.Foreign)})

	reports, err := s.AuditAll("IS", last, used(all...))
	require.NoError(t, err)
	missing, duplicates := 0, 0
	for _, r := range reports.Periods {
		require.Equal(t, [6]int64{1500, 1500, 1500}, countsOf(r))
		missing, duplicates = missing+len(r.Missing), duplicates+len(r.Duplicates)
		require.Equal(t, serial.Entry{Issued: true}, r.Lookup(2998), "a look-up does not need the lists")
		require.Equal(t, 2, r.Lookup(2999).Stored)
	}
	require.Equal(t, []int{10_000, 10_000}, []int{missing, duplicates})
	require.EqualValues(t, []int64{22_500, 1000}, []int64{reports.ForeignCount, int64(len(reports.Foreign))})
}

// unread is an iterator that must not be used.
func unread(t *testing.T) iter.Seq2[string, error] {
	return func(func(string, error) bool) { t.Error("the numbers are read") }
}

// Invalid arguments must cause an error before any number is read, and the first error of an iterator must end the
// audit.
func TestAuditRefuses(t *testing.T) {
	s := newScheme(t, serial.WithTemplate("{type}{date:yyMMdd}{seq:15}"))
	gen := parser(t, serial.WithTemplate("{type}{date:yyMMdd}{seq:15}"))
	year := func(y int) serial.When { return serial.On(y, time.October, 24) }
	for _, row := range []struct {
		says string
		typ  string
		at   serial.When
		last int64
		used iter.Seq2[string, error]
		opts []serial.AuditOption
	}{
		{"it contains ':'", "I:S", auditedDay, 1, unread(t), nil},
		{"the used numbers are nil", "IS", auditedDay, 1, nil, nil},
		{"want 0 to 999999999999999", "IS", auditedDay, -1, unread(t), nil},
		{"want 0 to 999999999999999", "IS", auditedDay, math.MaxInt64, unread(t), nil},
		{"want 1970 to 9999", "IS", year(1921), 1, unread(t), nil},
		{"the year 2121 cannot be printed as yy", "IS", year(2121), 1, unread(t), nil},
		{"serial: WithExplanations: nil", "IS", auditedDay, 1, unread(t),
			[]serial.AuditOption{serial.WithExplanations(nil)}},
		{"serial: Audit: option 2 is nil", "IS", auditedDay, 1, unread(t), []serial.AuditOption{given(), nil}},
		{"serial: WithLookup: 1001 sequences; want at most 1000", "IS", auditedDay, 1, unread(t),
			[]serial.AuditOption{serial.WithLookup(upTo(1000)...), serial.WithLookup(7, 1001)}},
		{"serial: WithHistoryAfter is for AuditAll; want WithLastAfter", "IS", auditedDay, 1, unread(t),
			[]serial.AuditOption{serial.WithHistoryAfter(func() ([]serial.Number, error) { return nil, nil })}},
	} {
		got, err := s.Audit(row.typ, row.at, row.last, row.used, row.opts...)
		require.ErrorContains(t, err, row.says)
		require.True(t, strings.HasPrefix(err.Error(), "serial: "), err)
		require.Zero(t, got)
		if row.last == 1 { // a Generator returns the same error, without a call to Redis
			require.EqualError(t, errOf(gen.Audit(t.Context(), row.typ, row.at, row.used, row.opts...)), err.Error())
		}
	}
	require.ErrorIs(t, errOf(s.AuditAll("I:S", nil, unread(t))), serial.ErrInvalidType)

	broken := func(yield func(string, error) bool) {
		_ = yield("IS211024000000000000001", nil) && yield("", errBoom) && yield("", errors.New("went on"))
	}
	wide := func(yield func(string, error) bool) {
		for n := 0; yield(fmt.Sprintf("IS2110%02d%015d", 24+n%2, 1+n*1_000_000), nil); n++ {
			require.Less(t, n, 1_000_000)
		}
	}
	_, err := s.Audit("IS", auditedDay, 1, broken)
	require.ErrorIs(t, err, errBoom)
	require.EqualError(t, err, "serial: Audit of IS in 2021-10-24: boom")
	const spread = "the sequences are spread so widely"
	require.ErrorContains(t, errOf(s.Audit("IS", auditedDay, 1, wide)), "Audit of IS in 2021-10-24: "+spread)
	n, err := s.Number("IS", auditedDay, 1)
	require.NoError(t, err)
	require.ErrorContains(t, errOf(s.AuditAll("IS", []serial.Number{n}, wide)), "AuditAll of IS: "+spread)

	high, other, old := n, n, n
	high.Seq, other.Type, old.Start = 1e15, "PO", time.Unix(920_000_000, 0)
	for says, last := range map[string][]serial.Number{
		"AuditAll of IS: the period 2021-10-24 is given twice":            {n, n},
		"AuditAll of IS: the last number of PO from 2021-10-24T00:00:00Z": {n, other},
		"AuditAll of IS: the last number of IS from ":                     {{Type: "IS", Seq: 1}},
		"the year 1999 cannot be printed as yy":                           {old},
		"last sequence 1000000000000000: want 0 to 999999999999999":       {high},
	} {
		require.ErrorContains(t, errOf(s.AuditAll("IS", last, unread(t))), says)
	}
	after := serial.WithLastAfter(func() (int64, error) { return 0, nil })
	require.EqualError(t, errOf(s.AuditAll("IS", nil, unread(t), after)),
		"serial: WithLastAfter is for Audit; want WithHistoryAfter")
	require.EqualError(t, errOf(gen.Audit(t.Context(), "IS", auditedDay, unread(t), after)),
		"serial: Audit: WithLastAfter is for Scheme.Audit; a Generator reads its counter itself")
}

// An audit must use the explanations of its own series and period. It must ignore all other explanations, even invalid
// ones. The tests of internal/account cover the order of several explanations for one sequence.
func TestAuditExplains(t *testing.T) {
	s := newScheme(t, serial.WithKeyPrefix("shop"), serial.WithLocation(location(t, "Asia/Shanghai")))
	_, start, end := s.Period(auditedDay)
	e := func(first, last int64, reason, by string) serial.Explanation {
		return serial.Explanation{Series: "shop:IS", Type: "IS", Start: start, First: first, Last: last,
			Reason: reason, By: by, At: start.Add(time.Hour).UTC()}
	}
	left, void, later := e(2, 2, serial.CallerLeft, ""), e(7, 7, "void", "Ada"), e(7, 9, "printed twice", "Bob")
	left.Unused = true
	void.Start = start.UTC() // the same instant
	burned := e(4, 5, serial.BlockBurned, "")
	burned.Type = "PO" // for information only
	lost, raised := e(1, 9998, serial.AnswerLost+": 3 attempts", ""), e(3, 3, serial.Raised, "")
	lost.Possible, raised.Possible, raised.At = true, true, raised.At.Add(-time.Second)
	var others []serial.Explanation
	for _, change := range []func(*serial.Explanation){
		func(e *serial.Explanation) { e.Series = "serial:IS" },
		func(e *serial.Explanation) { e.Series, e.Type = "shop:PO", "PO" },
		func(e *serial.Explanation) { e.Start = end },
		func(e *serial.Explanation) { e.Start = start.Add(-1) },
	} {
		for _, other := range []serial.Explanation{e(1, 1000, "other", "Eve"), e(5, 1, "", "")} {
			change(&other)
			others = append(others, other)
		}
	}
	got, err := s.Audit("IS", auditedDay, 10, used("IS202110240001", "IS202110240002"),
		given(append(others, void, left)...), given(lost), given(raised, later, burned))
	require.NoError(t, err)
	burned.Type = "IS"
	require.Equal(t, []serial.Explained{{Range: serial.Range{First: 4, Last: 5}, Explanation: burned},
		{Range: serial.Range{First: 7, Last: 9}, Explanation: later}}, got.Explained)
	require.Equal(t, []serial.Range{{First: 3, Last: 10}}, got.Missing, "it stays unchanged")
	require.Equal(t, []serial.Range{{First: 3, Last: 3}, {First: 6, Last: 6}, {First: 10, Last: 10}}, got.Unexplained)
	require.Equal(t, []serial.Explanation{raised, lost}, got.Possible, "by At")
	require.Equal(t, []string{"IS202110240002"}, texts(got.Contradicted))
	require.Equal(t, []int64{8, 5, 3, 2, 1}, []int64{got.MissingCount, got.ExplainedCount, got.UnexplainedCount,
		got.PossibleCount, got.ContradictedCount})
	require.Equal(t, serial.Entry{Issued: true, Explanation: &later,
		Replaced: []serial.Explanation{withStart(void, start)}, Possible: []serial.Explanation{lost}}, got.Lookup(7))
	require.Equal(t, serial.Entry{Issued: true, Stored: 1, Texts: []string{"IS202110240002"}, Contradicted: true,
		Replaced: []serial.Explanation{left}, Possible: []serial.Explanation{lost}}, got.Lookup(2))
	require.Zero(t, got.Lookup(0))
	require.Zero(t, (&serial.Report{}).Lookup(1))

	for last, row := range map[string]struct {
		clean bool
		given []serial.Explanation
	}{ // the last of the numbers 1, 2 and so on that are used; 2 was the last one issued
		"IS202110240002":        {true, nil},
		"ORD2O26":               {false, nil},
		"ORD2026":               {true, []serial.Explanation{e(2, 2, "void", "Ada")}},
		"ORDER":                 {false, []serial.Explanation{lost}}, // only possible
		"IS202110240002 ":       {false, []serial.Explanation{left}}, // contradicted
		"IS202110240001":        {false, []serial.Explanation{e(2, 2, "void", "Ada")}},
		"IS202110240003":        {false, []serial.Explanation{e(2, 2, "void", "Ada")}},
		"\u00a0IS202110240002 ": {true, nil},
	} {
		got, err := s.Audit("IS", auditedDay, 2, used("IS202110240001", last), given(row.given...))
		require.NoError(t, err)
		require.Equal(t, row.clean, got.Clean(), last)
	}
}

// withStart returns a copy of an explanation with another Start.
func withStart(e serial.Explanation, start time.Time) serial.Explanation {
	e.Start = start
	return e
}

// An explanation of the audited period has a field that is out of bounds. The audit must end with an error.
func TestAuditRefusesExplanations(t *testing.T) {
	s := newScheme(t)
	_, start, _ := s.Period(auditedDay)
	fine := serial.Explanation{Series: "serial:IS", Type: "IS", Start: start, First: 3, Last: 5, Reason: "void", At: start}
	broken := fine
	broken.Unused, broken.Possible = true, true
	for says, row := range map[string]struct {
		e   serial.Explanation
		err error
	}{
		"serial: explanation of IS 3 to 5: Unused and Possible are both set": {broken, nil},
		"serial: explanation of IS 3 to 5: Start 2021-10-24T01:00:00Z lies in the period 2021-10-24, which begins at " +
			"2021-10-24T00:00:00Z": {withStart(fine, start.Add(time.Hour)), nil},
		"serial: Audit of IS in 2021-10-24: boom": {serial.Explanation{}, errBoom},
	} {
		got, err := s.Audit("IS", auditedDay, 9, used(), given(fine), serial.WithExplanations(
			func(yield func(serial.Explanation, error) bool) { require.False(t, yield(row.e, row.err), "went on") }))
		require.ErrorContains(t, err, says)
		require.Zero(t, got)
	}
}

// Numbers are issued while an audit reads the used numbers. The report must not include them. The explanations must be
// read last, when no other iterator is open.
func TestAuditWhileIssuing(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		gen := newGenerator(t, m.Client(), serial.WithLocation(time.UTC), serial.WithStart(3))
		numbers, err := textsOf(gen.NextN(t.Context(), "IS", 10)) // 3 to 12
		require.NoError(t, err)
		var reads atomic.Int64
		m.Server().SetPreHook(func(_ *server.Peer, cmd string, _ ...string) bool {
			if strings.EqualFold(cmd, "EVALSHA") {
				reads.Add(1)
			}
			return false
		})
		open := false
		e := serial.Explanation{Series: "serial:IS", Start: time.Now(), First: 3, Last: 2000, Reason: "void", At: time.Now(),
			Unused: true}
		got, err := gen.Audit(t.Context(), "IS", serial.At(time.Now()), func(yield func(string, error) bool) {
			open = true
			later, err := textsOf(gen.NextN(t.Context(), "IS", 1500)) // 13 to 1512
			require.NoError(t, err)
			reads.Store(0)
			for _, text := range slices.Concat(numbers[1:], later, later[:600],
				[]string{"IS200001011513", "IS200001011513", "IS200001010002", "IS200001010012"}) {
				yield(text, nil)
			}
			open = false
		}, serial.WithExplanations(func(yield func(serial.Explanation, error) bool) {
			require.False(t, open)
			require.EqualValues(t, 1, reads.Load(), "the counter is read again before the explanations")
			yield(e, nil)
		}))
		require.NoError(t, err)
		require.EqualValues(t, 1, reads.Load())
		require.Equal(t, []int64{3, 12}, []int64{got.First, got.Last})
		require.Equal(t, [6]int64{9, 1, 2, 3, 0, 0}, countsOf(got))
		require.Equal(t, []serial.Range{{First: 3, Last: 3}}, got.Missing)
		require.ElementsMatch(t, []string{"IS200001010002", "IS200001011513", "IS200001011513"}, texts(got.Beyond))
		require.ElementsMatch(t, []string{"IS200001010012", "IS200001011513"}, texts(got.Duplicates))
		require.EqualValues(t, 10, got.ContradictedCount, "4 to 12 and 1513")
	})
}

// With WithLastAfter and WithHistoryAfter, the last numbers must be read again after the used numbers.
func TestAuditReadsLastAgain(t *testing.T) {
	s := newScheme(t)
	numbers := used("IS202110240001", "IS202110240005", "IS202110240005", "IS202110240006")
	last := func(seq int64, err error) serial.AuditOption {
		return serial.WithLastAfter(func() (int64, error) { return seq, err })
	}
	r, err := s.Audit("IS", auditedDay, 2, numbers, last(5, nil))
	require.NoError(t, err)
	require.Equal(t, [6]int64{1, 1, 0, 1, 0, 0}, countsOf(r), "0005 was issued in the meantime")
	require.EqualValues(t, 2, r.Last)
	require.ErrorIs(t, errOf(s.Audit("IS", auditedDay, 2, used(), last(0, errBoom))), errBoom)
	require.EqualError(t, errOf(s.Audit("IS", auditedDay, 2, used(), last(1, nil))),
		"serial: Audit of IS in 2021-10-24: the last sequence went back from 2 to 1 while the used numbers were read")
	require.ErrorContains(t, errOf(s.Audit("IS", auditedDay, 2, used(), serial.WithLastAfter(nil))), "the function is nil")

	history := func(err error, all ...serial.Number) serial.AuditOption {
		return serial.WithHistoryAfter(func() ([]serial.Number, error) { return all, err })
	}
	n := func(text string) serial.Number { return must(s.Parse(text)) }
	numbers = used("IS202110240001", "IS202110240002", "IS202110250001", "IS202110250002")
	got, err := s.AuditAll("IS", []serial.Number{n("IS202110240001")}, numbers,
		history(nil, n("IS202110250001"), n("IS202110240002")))
	require.NoError(t, err)
	require.True(t, got.Periods[0].Clean())
	require.Equal(t, []string{"IS202110250002"}, texts(got.Periods[1].Beyond))
	require.EqualError(t, errOf(s.AuditAll("IS", []serial.Number{n("IS202110240005")}, numbers,
		history(nil, n("IS202110240002")))),
		"serial: AuditAll of IS: the last sequence went back from 5 to 2 while the used numbers were read")
	require.ErrorIs(t, errOf(s.AuditAll("IS", nil, used(), history(errBoom))), errBoom)
	require.ErrorContains(t, errOf(s.AuditAll("IS", nil, used(), serial.WithHistoryAfter(nil))), "the function is nil")
	require.ErrorContains(t, errOf(parser(t).AuditAll(t.Context(), "IS", used(), history(nil))),
		"WithHistoryAfter is for Scheme.AuditAll")
}

// A Generator must be able to audit the current period, and each earlier period whose counter is kept.
func TestAuditPeriods(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		loc := location(t, "Asia/Shanghai") // it is 08:00 there
		keeping := newGenerator(t, m.Client(), serial.WithLocation(loc), serial.WithRetention(2))
		forgetting := newGenerator(t, m.Client(), serial.WithLocation(loc))
		audit := func(gen *serial.Generator, typ string, at time.Time, numbers ...string) (serial.Report, error) {
			return gen.Audit(t.Context(), typ, serial.At(at), used(numbers...))
		}
		day1 := time.Now()
		got, err := audit(keeping, "IS", day1, "IS200001010001")
		require.NoError(t, err, "never used")
		require.Equal(t, [6]int64{0, 0, 0, 1}, countsOf(got))
		require.Empty(t, m.Keys(), "it writes nothing")

		require.NoError(t, errOf(keeping.NextN(t.Context(), "IS", 3)))
		require.NoError(t, errOf(forgetting.NextN(t.Context(), "PO", 3)))
		require.ErrorContains(t, errOf(audit(keeping, "IS", day1.AddDate(0, 0, 1))),
			"2000-01-02: the period has not begun by Redis's clock, which is in 2000-01-01")
		require.ErrorContains(t, errOf(audit(keeping, "IS", day1.AddDate(0, 0, -1))),
			"1999-12-31: Redis has no counter for this period: no number was issued, or the counter has expired")

		time.Sleep(24 * time.Hour)
		require.NoError(t, errOf(keeping.NextN(t.Context(), "IS", 2)))
		require.NoError(t, errOf(keeping.Next(t.Context(), "PO")))
		for _, gen := range []*serial.Generator{keeping, forgetting} {
			got, err = audit(gen, "IS", day1, "IS200001010002", "IS200001020001")
			require.NoError(t, err)
			require.Equal(t, [6]int64{1, 2, 0, 0, 0, 1}, countsOf(got))
			require.Equal(t, time.Date(2000, 1, 1, 0, 0, 0, 0, loc), got.Start)
		}
		require.ErrorContains(t, errOf(audit(keeping, "PO", day1)), "the counter has expired")

		slow := func(func(string, error) bool) { time.Sleep(24 * time.Hour) } // the day ends in the meantime
		got, err = keeping.Audit(t.Context(), "IS", serial.At(time.Now()), slow)
		require.NoError(t, err)
		require.Equal(t, [6]int64{0, 2}, countsOf(got))
		require.NoError(t, errOf(forgetting.Next(t.Context(), "QQ")))
		require.ErrorContains(t, errOf(forgetting.Audit(t.Context(), "QQ", serial.At(time.Now()), slow)), "has expired")
	})
}

// A series was opened with another start than the Generator has. The audit of the current or of a prepared period must
// begin at the start of the record, and the audit of an earlier period at the start of the Generator.
func TestAuditWithAnotherStart(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		opts := options(serial.WithLocation(time.UTC), serial.WithRetention(9))
		low := newGenerator(t, m.Client(), opts...)
		high := newGenerator(t, m.Client(), append(opts, serial.WithStart(1000))...)
		day1 := time.Now()
		issue := func(gen *serial.Generator, n int) []string {
			t.Helper()
			all, err := textsOf(gen.NextN(t.Context(), "IS", n))
			require.NoError(t, err)
			return all
		}
		audit := func(gen *serial.Generator, day time.Time, all []string, first, last, beyond int64) {
			t.Helper()
			got, err := gen.Audit(t.Context(), "IS", serial.At(day), used(all...))
			require.NoError(t, err)
			require.Equal(t, []int64{first, last, beyond}, []int64{got.First, got.Last, got.BeyondCount})
			require.Zero(t, got.MissingCount)
			reports, err := gen.AuditAll(t.Context(), "IS", used(all...))
			require.NoError(t, err)
			require.Equal(t, first, reports.Periods[slices.IndexFunc(reports.Periods, func(r serial.Report) bool {
				return r.Start.Equal(got.Start)
			})].First)
		}
		first := append(issue(low, 6), issue(high, 1)...)
		audit(high, day1, first, 1, 7, 0)
		require.NoError(t, low.Prepare(t.Context(), "IS"))
		time.Sleep(24 * time.Hour)
		audit(high, time.Now(), nil, 1, 0, 0)
		audit(high, day1, first, 1, 7, 0) // the second day has not been entered
		second := issue(high, 3)
		audit(high, time.Now(), second, 1, 3, 0)
		audit(high, day1, first, 1000, 7, 7)
		audit(low, day1, first, 1, 7, 0)
		time.Sleep(24 * time.Hour)
		audit(low, time.Now(), issue(high, 2), 1000, 1001, 0)
	})
}

// A counter is lost before an audit reads the used numbers, or while it reads them. Both must be reported as errors.
func TestAuditOfALostCounter(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		gen := newGenerator(t, m.Client(), serial.WithLocation(time.UTC))
		require.NoError(t, errOf(gen.NextN(t.Context(), "IS", 3)))
		now := serial.At(time.Now())
		const counter = "serial:{IS}:20000101"
		while := func(what func()) error { // a new Generator remembers nothing
			_, err := newGenerator(t, m.Client(), serial.WithLocation(time.UTC)).Audit(t.Context(), "IS", now,
				func(func(string, error) bool) { what() })
			return err
		}
		err := while(func() { require.NoError(t, m.Set(counter, "2")) })
		require.ErrorIs(t, err, serial.ErrCounterLost)
		require.ErrorContains(t, err, "went back from 3 to 2")
		require.ErrorIs(t, errOf(gen.Audit(t.Context(), "IS", now, unread(t))), serial.ErrCounterLost)
		require.ErrorIs(t, while(func() { m.Del(counter) }), serial.ErrCounterLost)
		require.ErrorIs(t, while(func() { t.Error("the numbers are read") }), serial.ErrCounterLost)
		elsewhere := newGenerator(t, m.Client(), serial.WithLocation(location(t, "Asia/Shanghai")))
		require.ErrorIs(t, errOf(elsewhere.Audit(t.Context(), "IS", now, unread(t))), serial.ErrConflict)
	})
}

// The context of a caller ends before an audit, or while the audit reads numbers or explanations. The audit must end,
// too.
func TestAuditEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		gen := newGenerator(t, m.Client(), serial.WithLocation(time.UTC))
		require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
		now := serial.At(time.Now())
		ctx, cancel := context.WithCancel(t.Context())
		_, err := gen.Audit(ctx, "IS", now, func(yield func(string, error) bool) {
			cancel()
			require.False(t, yield("IS200001010001", nil), "went on")
		})
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, errOf(gen.Audit(ctx, "IS", now, unread(t))), context.Canceled)
		ctx, cancel = context.WithCancel(t.Context())
		_, err = gen.Audit(ctx, "IS", now, used(), serial.WithExplanations(func(yield func(serial.Explanation, error) bool) {
			cancel()
			require.False(t, yield(serial.Explanation{}, nil), "went on")
		}))
		require.ErrorIs(t, err, context.Canceled)
	})
}

// An audit is called with different instants of a period, including instants whose date the template cannot print.
// Every instant must select the period.
func TestAuditAtEveryInstant(t *testing.T) {
	noon := time.Date(2021, 10, 24, 12, 0, 0, 0, time.UTC)
	for _, row := range []struct {
		per      serial.Period
		template string
		at       time.Time
	}{
		{serial.Never, "{type}{date:yyMMdd}{seq:6}", noon},
		{serial.PerYear, "{type}{date:FFFFyyMM}{seq:6}", noon.AddDate(-21, -9, 0)}, // from 1999, which yy does not print
		{serial.PerYear, "{type}{date:FFyyMM}{seq:6}", noon.AddDate(78, 0, 0)},     // to 2100
		{serial.PerDay, "{type}{date:yyMMddHH}{seq:6}", noon},
	} {
		s := newScheme(t, serial.WithPeriod(row.per), serial.WithTemplate(row.template), serial.WithYearStart(time.April, 1),
			serial.WithLocation(location(t, "America/Sao_Paulo")))
		text := textOfSeq(t, s, serial.At(row.at), 2)
		_, start, end := s.Period(serial.At(row.at))
		for _, at := range []time.Time{start, start.Add(time.Second), row.at, end.Add(-time.Second)} {
			got, err := s.Audit("IS", serial.At(at), 3, used(text))
			require.NoError(t, err, "%s at %v", row.template, at)
			require.Equal(t, [6]int64{1, 2}, countsOf(got), row.template)
			require.True(t, start.Equal(got.Start), row.template)
		}
	}
}

// AuditAll runs on random used numbers and explanations. Its report of each period must be equal to the report of an
// audit of this period.
func TestAuditAll(t *testing.T) {
	t.Parallel()
	rng := redistest.Random(t)
	day := time.Date(2021, 10, 24, 15, 0, 0, 0, time.UTC)
	for name, opts := range map[string][]serial.Option{
		"days":    {serial.WithStart(5)},
		"months":  {serial.WithTemplate("{type}{date:yyyyMMdd}{seq:4}"), serial.WithPeriod(serial.PerMonth)},
		"shared":  {serial.WithSharedCounter()},
		"earlier": {serial.WithLocation(location(t, "Asia/Shanghai"))},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScheme(t, opts...)
			schemes := []*serial.Scheme{s}
			if name == "earlier" {
				schemes = append(schemes, newScheme(t, serial.WithTemplate("{type}-{date:yyyyMMdd}-{seq:3}")))
			}
			series, err := s.Series("IS")
			require.NoError(t, err)
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
				numbers := []string{"foreign"}
				for range rng.IntN(100) {
					at := serial.At(day.AddDate(0, 0, rng.IntN(40)-5))
					n, err := schemes[rng.IntN(len(schemes))].Number([]string{"IS", "IS", "PO"}[rng.IntN(3)], at, 1+rng.Int64N(25))
					require.NoError(t, err)
					numbers = append(numbers, n.String())
				}
				var reasons []serial.Explanation
				for i := range rng.IntN(20) {
					e := serial.Explanation{Series: series, First: 1 + rng.Int64N(20), Reason: fmt.Sprint(i), At: day}
					_, e.Start, _ = schemes[rng.IntN(len(schemes))].Period(serial.At(day.AddDate(0, 0, rng.IntN(40)-5)))
					e.Last, e.Unused = e.First+rng.Int64N(9), rng.IntN(2) == 0
					reasons = append(reasons, e)
				}
				opts := []serial.AuditOption{given(reasons...), serial.WithEarlier(schemes[1:]...), serial.WithLookup(1, 3, 7)}
				got, err := s.AuditAll("IS", last, used(numbers...), opts...)
				require.NoError(t, err)
				require.Equal(t, []string{"foreign"}, got.Foreign)
				for i, r := range got.Periods {
					n := serial.Number{Start: r.Start}
					if i < len(last) {
						n = last[i]
						require.True(t, n.Start.Equal(r.Start), "in the order given")
					} else if i > len(last) {
						require.True(t, got.Periods[i-1].Start.Before(r.Start), "in order")
					}
					want, err := s.Audit("IS", serial.At(n.Start), n.Seq, used(numbers...), opts...)
					require.NoError(t, err)
					want.Foreign, want.ForeignCount, want.OtherCount = nil, 0, 0
					require.EqualExportedValues(t, want, r)
					for seq := range int64(30) {
						require.Equal(t, want.Lookup(seq), r.Lookup(seq))
					}
				}
			}
		})
	}
}

// AuditAll must list the periods without numbers. It must count numbers of periods before the oldest one in
// OthersCount, and all numbers if there is no period.
func TestAuditAllOthers(t *testing.T) {
	s := newScheme(t)
	last := []serial.Number{must(s.Parse("IS202110240001"))}
	all := []string{"IS202110230001", "IS202110240001", "PO202110240001", "IS202110270002"}
	got, err := s.AuditAll("IS", last, used(all...))
	require.NoError(t, err)
	require.EqualValues(t, 2, got.OtherCount)
	require.Len(t, got.Periods, 2)
	day := time.Date(2021, 10, 25, 0, 0, 0, 0, time.UTC)
	require.Equal(t, []time.Time{day, day.AddDate(0, 0, 1)}, got.Without)
	require.EqualValues(t, 2, got.WithoutCount)
	require.Equal(t, [6]int64{0, 0, 0, 1}, countsOf(got.Periods[1]))
	require.False(t, got.Clean(), "the second period is not")
	got, err = s.AuditAll("IS", last, used(all[:3]...))
	require.NoError(t, err)
	require.True(t, got.Clean())
	got, err = s.AuditAll("IS", nil, used(append(all, "x")...))
	require.NoError(t, err)
	require.Equal(t, serial.Reports{OtherCount: 4, Foreign: []string{"x"}, ForeignCount: 1}, got)
	require.False(t, got.Clean(), "foreign")

	// Only the first 10,000 are listed, however many there are.
	seconds := newScheme(t, serial.WithPeriod(serial.PerSecond), serial.WithTemplate("{type}{date:yyyyMMddHHmmss}{seq:4}"))
	last = []serial.Number{must(seconds.Parse("IS197101010000000001")), must(seconds.Parse("IS999801010000000001"))}
	got, err = seconds.AuditAll("IS", last, used())
	require.NoError(t, err)
	require.Len(t, got.Without, 10_000)
	require.Equal(t, last[0].Start.Add(time.Second), got.Without[0])
	require.EqualValues(t, last[1].Start.Unix()-last[0].Start.Unix()-1, got.WithoutCount)
}

// Numbers are issued while AuditAll reads the used numbers, and a new period begins. AuditAll must ignore them.
func TestAuditAllWhileIssuing(t *testing.T) {
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
			for _, text := range slices.Concat(numbers, later, later[:1], issue(),
				[]string{"IS200001040006", "IS200001040007"}) {
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

		m.Del("serial:{IS}:20000103") // without it, the stored numbers of that day were never issued
		got, err = gen.AuditAll(t.Context(), "IS", used(numbers...))
		require.NoError(t, err)
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
	})
}

// With WithLookup, a report must contain the stored texts of the given sequences, up to a thousand. For any other
// sequence, it must contain a text only if the sequence determines the text.
func TestLookupTexts(t *testing.T) {
	numbers := []string{"IS202110240001", "IS202110240002  ", "IS202110240002", " IS202110240003", "IS-20211024-0005"}
	s := newScheme(t)
	earlier, err := s.WithTemplate("{type}-{date:yyyyMMdd}-{seq:4}")
	require.NoError(t, err)
	months := newScheme(t, serial.WithPeriod(serial.PerMonth), serial.WithTemplate("{type}{date:yyyyMMdd}{seq:4}"))
	shared := newScheme(t, serial.WithSharedCounter())
	for _, row := range []struct {
		scheme *serial.Scheme
		want   [6][]string
		opts   []serial.AuditOption
	}{
		{s, [6][]string{1: {"IS202110240001"}, 3: {"IS202110240003"}}, nil},
		{s, [6][]string{1: {"IS202110240001"}, 2: numbers[1:3], 3: {" IS202110240003"}},
			[]serial.AuditOption{serial.WithLookup(2, 3), serial.WithLookup(9)}},
		{s, [6][]string{5: {"IS-20211024-0005"}}, []serial.AuditOption{serial.WithEarlier(earlier), serial.WithLookup(5)}},
		{shared, [6][]string{1: {"IS202110240001"}}, []serial.AuditOption{serial.WithLookup(1)}},
		{months, [6][]string{1: {"IS202110240001"}}, []serial.AuditOption{serial.WithLookup(1)}},
	} {
		r, err := row.scheme.Audit("IS", auditedDay, 5, used(numbers...), row.opts...)
		require.NoError(t, err)
		for seq, want := range row.want {
			require.Equal(t, want, r.Lookup(int64(seq)).Texts, seq)
		}
	}
	r, err := s.Audit("IS", auditedDay, 1, used(slices.Repeat(numbers[:1], 1001)...), serial.WithLookup(1))
	require.NoError(t, err)
	require.Len(t, r.Lookup(1).Texts, 1000)
}
