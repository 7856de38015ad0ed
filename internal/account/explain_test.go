package account_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/account"
	"github.com/dailyserial/serial/internal/race"
)

var noon = time.Date(2021, 10, 24, 12, 0, 0, 0, time.UTC)

// explained returns the report of an account in which these sequences were used. It sets the ranks of the explanations.
func explained(t testing.TB, first, last, closed int64, used []int64, all []account.Explanation) account.Report {
	t.Helper()
	_, r := closedAccount(t, first, last, closed, used, all)
	return r
}

func closedAccount(t testing.TB, first, last, closed int64, used []int64, all []account.Explanation) (
	*account.Account, account.Report) {
	t.Helper()
	a, err := account.NewBook(account.Listed).New(first, last)
	require.NoError(t, err)
	for _, seq := range used {
		require.NoError(t, a.Add(seq, ""))
	}
	for i := range all {
		a.Explain(all[i])
		all[i].Rank = uint32(i)
	}
	return a, a.Close(closed)
}

// random returns explanations of sequences up to most, with distinct reasons.
func random(rng *rand.Rand, n int, most int64) []account.Explanation {
	var all []account.Explanation
	for i := range n {
		e := account.Explanation{First: 1 + rng.Int64N(most), Reason: fmt.Sprintf("%03d", i),
			At: noon.Add(time.Duration(rng.IntN(3)))}
		e.Last = e.First + rng.Int64N(min(most-e.First, 1+rng.Int64N(most))+1)
		e.Possible = rng.IntN(3) == 0
		e.Unused = !e.Possible && rng.IntN(2) == 0
		e.By = []string{"", "", "Ada"}[rng.IntN(3)]
		all = append(all, e)
	}
	return all
}

func covers(e account.Explanation, seq int64) bool { return e.First <= seq && seq <= e.Last }

// simply adds the explanations of all missing sequences to a report, in the simplest way.
func simply(r *account.Report, all []account.Explanation, used func(seq int64) bool, most, last, closed int64) {
	r.ExplainedCount, r.UnexplainedCount = 0, 0
	r.Unexplained = nil
	touched := map[int]bool{}
	for _, missing := range r.Missing {
		for seq := missing.First; seq <= missing.Last; seq++ {
			best := -1
			for i, e := range all {
				if !e.Possible && covers(e, seq) && (best < 0 || e.By != "" || all[best].By == "") {
					best = i
				}
			}
			if best < 0 {
				r.UnexplainedCount++
				if n := len(r.Unexplained); n > 0 && r.Unexplained[n-1].Last == seq-1 {
					r.Unexplained[n-1].Last = seq
				} else {
					r.Unexplained = append(r.Unexplained, account.Range{First: seq, Last: seq})
				}
				for i, e := range all {
					touched[i] = touched[i] || e.Possible && covers(e, seq)
				}
				continue
			}
			r.ExplainedCount++
			if n := len(r.Explained); n > 0 && r.Explained[n-1].Last == seq-1 && *r.Explained[n-1].Explanation == all[best] {
				r.Explained[n-1].Last = seq
			} else {
				r.Explained = append(r.Explained, account.Explained{
					Range: account.Range{First: seq, Last: seq}, Explanation: &all[best]})
			}
		}
	}
	for i, e := range all {
		if touched[i] {
			r.Possible = append(r.Possible, e)
		}
	}
	slices.SortStableFunc(r.Possible, func(a, b account.Explanation) int { return a.At.Compare(b.At) })
	r.PossibleCount = int64(len(r.Possible))
	for seq := range most + 1 {
		if used(seq) && (seq <= last || seq > closed) &&
			slices.ContainsFunc(all, func(e account.Explanation) bool { return e.Unused && covers(e, seq) }) {
			r.Contradicted = append(r.Contradicted, account.Use{Seq: seq})
		}
	}
	r.ContradictedCount = int64(len(r.Contradicted))
}

// fewer returns how many of n random cases are tried.
func fewer(n int) int {
	if race.Enabled {
		return n / 10
	}
	return n
}

// Whatever is used and explained, the account agrees with a simple one. Possible reasons explain nothing.
func TestExplain(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range fewer(3000) {
		most, n := int64(14), rng.IntN(7)
		if i%10 == 0 {
			most, n = 200, rng.IntN(150)
		}
		first := 1 + rng.Int64N(3)
		last := first - 1 + rng.Int64N(most-3)
		closed := last + rng.Int64N(3)
		var seqs []int64
		for range rng.Int64N(most) {
			seqs = append(seqs, 1+rng.Int64N(most))
		}
		all := random(rng, n, most)
		a, got := closedAccount(t, first, last, closed, seqs, all)
		want := simple(first, last, closed, uses(seqs))
		simply(&want, all, func(seq int64) bool { return slices.Contains(seqs, seq) }, most, last, closed)
		for _, list := range [][]account.Use{want.Duplicates, want.Beyond} { // explained sets no texts
			for i := range list {
				list[i].Text = ""
			}
		}
		require.Equal(t, want, got, "%d to %d, closed at %d: %v, %v", first, last, closed, seqs, all)
		for seq := int64(-1); seq <= most+1; seq++ {
			require.Equal(t, simpleEntry(seq, first, last, closed, seqs, all), a.Lookup(seq), "%d of %d to %d, closed at %d: "+
				"%v, %v", seq, first, last, closed, seqs, all)
		}
	}
}

// simpleEntry looks up a sequence in the simplest way.
func simpleEntry(seq, first, last, closed int64, seqs []int64, all []account.Explanation) (e account.Finding) {
	e.Issued = first <= seq && seq <= last
	for _, used := range seqs {
		if used == seq {
			e.Stored = min(e.Stored+1, 2)
		}
	}
	for i := range all {
		switch x := &all[i]; {
		case !covers(*x, seq):
		case x.Possible:
			e.Possible = append(e.Possible, x)
		default:
			e.Replaced = append(e.Replaced, x)
			e.Contradicted = e.Contradicted || x.Unused && e.Stored > 0 && (seq <= last || seq > closed)
			if e.Issued && e.Stored == 0 && (e.Explanation == nil || e.Explanation.By == "" || x.By != "") {
				e.Explanation = x
			}
		}
	}
	slices.SortStableFunc(e.Possible, func(x, y *account.Explanation) int { return x.At.Compare(y.At) })
	if e.Explanation != nil {
		e.Replaced = slices.DeleteFunc(e.Replaced, func(x *account.Explanation) bool { return x == e.Explanation })
	}
	return e
}

// Which explanation wins, case by case.
func TestExplainPrecedence(t *testing.T) {
	t.Parallel()
	at := func(e account.Explanation, seconds int64) account.Explanation {
		e.At = time.Unix(noon.Unix()+seconds, 0).UTC()
		return e
	}
	whole := func(first, last int64, by string) account.Explanation {
		return account.Explanation{First: first, Last: last, By: by, At: noon, Reason: fmt.Sprint(by, first, "-", last)}
	}
	type list = []account.Explanation
	for name, row := range map[string]struct {
		all  list
		want string // for 1 to 5, all missing
	}{
		"a person before a later one":      {list{whole(3, 3, "Ada"), at(whole(2, 3, ""), 9)}, "2-2: 2-3; 3-3: Ada3-3"},
		"the one added later, whatever At": {list{at(whole(3, 3, "Ada"), 1), whole(3, 3, "Bob")}, "3-3: Bob3-3"},
		"a later one that is wider":        {list{whole(2, 3, ""), whole(1, 5, "")}, "1-5: 1-5"},
		"a later one that is narrower":     {list{whole(1, 5, ""), whole(2, 3, "")}, "1-1: 1-5; 2-3: 2-3; 4-5: 1-5"},
		"before 1678":                      {list{at(whole(2, 2, ""), -1e10), at(whole(2, 3, ""), -2e10)}, "2-3: 2-3"},
		"after 2262": {list{at(whole(2, 3, ""), 1e10), at(whole(2, 2, ""), 2e10)},
			"2-2: 2-2; 3-3: 2-3"},
		"neighbours are one range": {list{whole(1, 3, ""), whole(2, 2, ""), whole(1, 5, "Ada")}, "1-5: Ada1-5"},
		"outside":                  {list{whole(6, 9, ""), whole(5, 9, "")}, "5-5: 5-9"},
	} {
		t.Run(name, func(t *testing.T) {
			got, says := explained(t, 1, 5, 5, nil, row.all), ""
			for i, e := range got.Explained {
				if i > 0 {
					says += "; "
				}
				says += fmt.Sprintf("%d-%d: %s", e.First, e.Last, e.Explanation.Reason)
				require.Contains(t, row.all, *e.Explanation)
			}
			require.Equal(t, row.want, says)
		})
	}
}

// Possible reasons are ordered by At, even outside the years that fit in nanoseconds, then by when they were added.
func TestPossibleOrder(t *testing.T) {
	t.Parallel()
	at := func(year int, reason string) account.Explanation {
		return account.Explanation{First: 1, Last: 5, Reason: reason, Possible: true,
			At: time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)}
	}
	all := []account.Explanation{at(2600, "g"), at(2021, "c"), at(2263, "f"), at(2021, "d"), at(1600, "b"), at(1500, "a"),
		at(2262, "e"), {First: 6, Last: 6, Reason: "beyond", Possible: true, At: noon}}
	got := explained(t, 1, 5, 5, nil, all)
	var reasons string
	for _, e := range got.Possible {
		reasons += e.Reason
		require.Contains(t, all, e)
	}
	require.Equal(t, "abcdefg", reasons)
	require.EqualValues(t, 5, got.UnexplainedCount)
}

// Sequences may have any size.
func TestExplainWide(t *testing.T) {
	t.Parallel()
	const most int64 = 999_999_999_999_999
	got := explained(t, 1, most, most, []int64{7, most - 1}, []account.Explanation{
		{First: 1, Last: most, Reason: "all", At: noon},
		{First: 5, Last: most, Reason: "most", By: "Ada", At: noon},
		{First: 10, Last: 12, Reason: "three", By: "Ada", At: noon},
		{First: 20, Last: 30, Reason: "some", At: noon},
	})
	require.Equal(t, most-2, got.ExplainedCount)
	require.Zero(t, got.UnexplainedCount)
	require.Empty(t, got.Unexplained)
	says := ""
	for _, e := range got.Explained {
		says += fmt.Sprintf("%d-%d %s\n", e.First, e.Last, e.Explanation.Reason)
	}
	require.Equal(t, "1-4 all\n5-6 most\n8-9 most\n10-12 three\n13-999999999999997 most\n"+
		"999999999999999-999999999999999 most\n", says)
}

// The lists hold the first thousand ranges, each whole.
func TestExplainLists(t *testing.T) {
	t.Parallel()
	var used []int64
	all := []account.Explanation{
		{First: 1999, Last: 2001, Reason: "x", At: noon}, {First: 2002, Last: 2002, Reason: "y", At: noon},
		{First: 1, Last: 1998, Reason: "to the limit", At: noon},
		{First: 10_000, Last: 20_000, Reason: "z", At: noon, Unused: true},
	}
	for seq := int64(1); seq <= 14_000; seq++ {
		if seq%2 == 0 && seq < 2000 || seq > 2002 && seq%3 == 0 {
			used = append(used, seq)
		}
	}
	got := explained(t, 1, 14_000, 14_000, used, all)
	require.Len(t, got.Explained, account.Listed)
	require.Equal(t, account.Range{First: 1999, Last: 2001}, got.Explained[999].Range)
	require.Len(t, got.Unexplained, account.Listed)
	require.Equal(t, account.Range{First: 2003, Last: 2003}, got.Unexplained[0])
	require.Equal(t, account.Range{First: 4999, Last: 5000}, got.Unexplained[999])
	require.Len(t, got.Contradicted, account.Listed)
	require.EqualValues(t, 10_002, got.Contradicted[0].Seq)
	require.EqualValues(t, 4001/3, got.ContradictedCount)
	require.Equal(t, got.MissingCount, got.ExplainedCount+got.UnexplainedCount)
}

// Distinct reasons are all kept, however many there are.
func TestExplainTexts(t *testing.T) {
	t.Parallel()
	const n = 6000
	var all []account.Explanation
	for seq := int64(n); seq > 0; seq-- { // so the last ones are listed
		all = append(all, account.Explanation{First: seq, Last: seq, Reason: fmt.Sprint("reason ", seq), At: noon})
	}
	all = append(all, all...)
	got := explained(t, 1, n, n, nil, all)
	for i, e := range got.Explained {
		require.Equal(t, all[2*n-1-i], *e.Explanation)
	}
	require.Len(t, got.Explained, account.Listed)
}

// manyExplained accounts for n sequences, every tenth of which is missing, with explanations of width or less.
func manyExplained(t testing.TB, sequences, explanations int64, possible bool, width int64) account.Report {
	rng := rand.New(rand.NewPCG(5, 6))
	a, err := account.NewBook(account.Listed).New(1, sequences)
	require.NoError(t, err)
	for seq := int64(1); seq <= sequences; seq++ {
		if seq%10 > 0 && a.Add(seq, "") != nil {
			t.Fatal("full")
		}
	}
	for range explanations {
		e := account.Explanation{First: 1 + rng.Int64N(sequences), Reason: "caller left", By: "", At: noon}
		e.Last = e.First + rng.Int64N(width)
		e.At = noon.Add(time.Duration(rng.Int64N(1e18)))
		e.Possible = possible
		a.Explain(e)
	}
	return a.Close(sequences)
}

// A million explanations of ten million sequences take less than 160 MB in all, with what was freed meanwhile. This test
// has fewer, with a proportional share.
func TestExplainMemory(t *testing.T) {
	const n = 50_000
	for _, possible := range []bool{false, true} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got := manyExplained(t, n*10, n, possible, 1e6)
		runtime.ReadMemStats(&after)
		require.Positive(t, got.ExplainedCount+got.PossibleCount)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(160*n), possible)
	}
}

func BenchmarkExplain(b *testing.B) {
	for name, width := range map[string]int64{"narrow": 30, "wide": 1e6, "all": 9e14} {
		for _, possible := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/possible=%v", name, possible), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					manyExplained(b, 1e7, 1e6, possible, width)
				}
			})
		}
	}
}
