package account_test

import (
	"cmp"
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

// explained returns the report of an account in which these sequences were used.
func explained(t testing.TB, first, last, closed int64, used []int64, all []account.Explanation) account.Report {
	t.Helper()
	a := account.New(first, last)
	for _, seq := range used {
		require.NoError(t, a.Add(seq, ""))
	}
	for _, e := range all {
		a.Explain(e)
	}
	return a.Close(closed)
}

// random returns explanations of sequences up to most, whose reasons differ.
func random(rng *rand.Rand, n int, most int64) []account.Explanation {
	var all []account.Explanation
	for i := range n {
		e := account.Explanation{First: 1 + rng.Int64N(most), Reason: fmt.Sprintf("%03d", i),
			At: noon.Add(time.Duration(rng.IntN(3)))}
		e.Last = e.First + rng.Int64N(min(most-e.First, 1+rng.Int64N(most))+1)
		if rng.IntN(3) > 0 {
			e.Count = 1 + rng.Int64N(e.Last-e.First+1)
		}
		e.Unused = e.Count == 0 && rng.IntN(2) == 0
		e.By = []string{"", "", "Ada"}[rng.IntN(3)]
		all = append(all, e)
	}
	return all
}

// byStrength orders explanations, the strongest first.
func byStrength(all []account.Explanation) []account.Explanation {
	return slices.SortedFunc(slices.Values(all), func(a, b account.Explanation) int {
		person := func(e account.Explanation) int { return map[bool]int{false: 1}[e.By != ""] }
		return cmp.Or(cmp.Compare(min(a.Count, 1), min(b.Count, 1)), cmp.Compare(person(a), person(b)), -a.At.Compare(b.At),
			cmp.Compare(a.Last-a.First, b.Last-b.First), cmp.Compare(a.Reason, b.Reason))
	})
}

func covers(e account.Explanation, seq int64) bool { return e.First <= seq && seq <= e.Last }

// missingOf returns the sequences that were not used.
func missingOf(first, last int64, used []int64) (missing []int64) {
	for seq := first; seq <= last; seq++ {
		if !slices.Contains(used, seq) {
			missing = append(missing, seq)
		}
	}
	return missing
}

// openOf explains what explanations without Count explain, in the simplest way, and returns the rest.
func openOf(missing []int64, all []account.Explanation) (by map[int64]string, open []int64) {
	by = map[int64]string{}
	for _, seq := range missing {
		i := slices.IndexFunc(all, func(e account.Explanation) bool { return e.Count == 0 && covers(e, seq) })
		if i < 0 {
			open = append(open, seq)
		} else {
			by[seq] = all[i].Reason
		}
	}
	return by, open
}

// best tries all ways to explain open sequences by those with a Count. The best one explains most; of these, the one in which the
// strongest explanation explains most, then the next one; and of these, the one in which the first sequence has the strongest
// explanation, then the next one.
func best(open []int64, all []account.Explanation) []int {
	var found, score []int
	used, way := make([]int, len(all)), make([]int, len(open))
	var try func(at, total int)
	try = func(at, total int) {
		if at == len(open) {
			now := []int{total}
			now = append(now, used...)
			for _, i := range way {
				now = append(now, -i)
			}
			if slices.Compare(now, score) > 0 {
				found, score = slices.Clone(way), now
			}
			return
		}
		for i, e := range all {
			if covers(e, open[at]) && int64(used[i]) < e.Count {
				used[i]++
				way[at] = i
				try(at+1, total+1)
				used[i]--
			}
		}
		way[at] = len(all)
		try(at+1, total)
	}
	try(0, 0)
	return found
}

// expand returns the reasons of a report by sequence. No range of it could be joined to the one before.
func expand(t *testing.T, r account.Report) map[int64]string {
	t.Helper()
	by := map[int64]string{}
	for i, e := range r.Explained {
		for seq := e.First; seq <= e.Last; seq++ {
			require.NotContains(t, by, seq)
			by[seq] = e.Explanation.Reason
		}
		if i > 0 {
			before := r.Explained[i-1]
			require.Greater(t, e.First, before.Last)
			require.False(t, before.Last+1 == e.First && before.Explanation == e.Explanation)
		}
	}
	return by
}

// fewer is how many of n random cases are tried.
func fewer(n int) int {
	if race.Enabled {
		return n / 10
	}
	return n
}

// In small cases, no other way of explaining is better.
func TestExplainBest(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	for range fewer(2000) {
		first := 1 + rng.Int64N(3)
		last := first - 1 + rng.Int64N(11)
		closed := last + rng.Int64N(3)
		var used []int64
		for range rng.IntN(12) {
			used = append(used, 1+rng.Int64N(14))
		}
		all := random(rng, rng.IntN(7), 14)
		missing := missingOf(first, last, used)
		strongest := byStrength(all)
		want, open := openOf(missing, strongest)
		var unexplained []account.Range
		for i, by := range best(open, strongest) {
			seq := open[i]
			if by < len(strongest) {
				want[seq] = strongest[by].Reason
			} else if n := len(unexplained); n > 0 && unexplained[n-1].Last == seq-1 {
				unexplained[n-1].Last = seq
			} else {
				unexplained = append(unexplained, account.Range{First: seq, Last: seq})
			}
		}
		var contradicted []account.Use
		for seq := range int64(15) {
			if slices.Contains(used, seq) && (seq <= last || seq > closed) &&
				slices.ContainsFunc(all, func(e account.Explanation) bool { return e.Unused && covers(e, seq) }) {
				contradicted = append(contradicted, account.Use{Seq: seq})
			}
		}
		got := explained(t, first, last, closed, used, all)
		says := fmt.Sprintf("%d to %d, closed at %d: %v, %v", first, last, closed, used, all)
		require.Equal(t, want, expand(t, got), says)
		require.Equal(t, unexplained, got.Unexplained, says)
		require.Equal(t, contradicted, got.Contradicted, says)
		require.EqualValues(t, len(want), got.ExplainedCount, says)
		require.EqualValues(t, len(missing)-len(want), got.UnexplainedCount, says)
		require.EqualValues(t, len(contradicted), got.ContradictedCount, says)
		for _, e := range got.Explained {
			require.Contains(t, all, e.Explanation, "as it was given")
		}
	}
}

// With many explanations, each explains as many sequences as augmenting paths say, which start at the strongest.
func TestExplainMost(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	for range fewer(150) {
		const most = 200
		var used []int64
		for range rng.IntN(300) {
			used = append(used, 1+rng.Int64N(most))
		}
		all := random(rng, rng.IntN(150), most)
		for i := range all {
			if rng.IntN(10) > 0 || all[i].Count == 0 && all[i].Last-all[i].First > 9 {
				all[i].Count, all[i].Unused = 1+rng.Int64N(min(4, all[i].Last-all[i].First+1)), false
			}
		}
		strongest := byStrength(all)
		by, open := openOf(missingOf(1, most, used), strongest)
		want := map[string]int{}
		for _, reason := range by {
			want[reason]++
		}
		holder := map[int64]int{}
		var augment func(i int, seen map[int64]bool) bool
		augment = func(i int, seen map[int64]bool) bool {
			for _, seq := range open {
				if !covers(strongest[i], seq) || seen[seq] {
					continue
				}
				seen[seq] = true
				if other, held := holder[seq]; !held || augment(other, seen) {
					holder[seq] = i
					return true
				}
			}
			return false
		}
		for i, e := range strongest {
			for range e.Count {
				if augment(i, map[int64]bool{}) {
					want[e.Reason]++
				}
			}
		}
		got := explained(t, 1, most, most, used, all)
		each, total := map[string]int{}, int64(0)
		for seq, reason := range expand(t, got) {
			i := slices.IndexFunc(all, func(e account.Explanation) bool { return e.Reason == reason })
			require.True(t, covers(all[i], seq) && !slices.Contains(used, seq))
			each[reason]++
			total++
		}
		require.Equal(t, want, each)
		require.Equal(t, total, got.ExplainedCount)
		require.Equal(t, got.MissingCount-total, got.UnexplainedCount)
	}
}

// Which explanation wins, a case each.
func TestExplainPrecedence(t *testing.T) {
	t.Parallel()
	at := func(e account.Explanation, seconds int64) account.Explanation {
		e.At = time.Unix(noon.Unix()+seconds, 0).UTC()
		return e
	}
	whole := func(first, last int64, by string) account.Explanation {
		return account.Explanation{First: first, Last: last, By: by, At: noon, Reason: fmt.Sprint(by, first, "-", last)}
	}
	some := func(count, first, last int64, by string) account.Explanation {
		e := whole(first, last, by)
		e.Count, e.Reason = count, fmt.Sprint(count, " of ", e.Reason)
		return e
	}
	type list = []account.Explanation
	for name, row := range map[string]struct {
		all  list
		want string // of 1 to 5, all missing
	}{
		"without Count before a person with": {list{some(1, 3, 3, "Ada"), whole(3, 3, "")}, "3-3: 3-3"},
		"a person before a later one": {list{at(whole(2, 3, ""), 9), whole(3, 3, "Ada")},
			"2-2: 2-3; 3-3: Ada3-3"},
		"a later person":             {list{at(whole(3, 3, "Ada"), 1), whole(3, 3, "Bob")}, "3-3: Ada3-3"},
		"at one time, the narrower":  {list{whole(1, 5, ""), whole(2, 3, "")}, "1-1: 1-5; 2-3: 2-3; 4-5: 1-5"},
		"before 1678":                {list{at(whole(2, 2, ""), -1e10), at(whole(2, 3, ""), -2e10)}, "2-2: 2-2; 3-3: 2-3"},
		"after 2262":                 {list{at(whole(2, 2, ""), 1e10), at(whole(2, 3, ""), 2e10)}, "2-3: 2-3"},
		"before and after":           {list{at(whole(2, 2, ""), 1e10), at(whole(2, 3, ""), -2e10)}, "2-2: 2-2; 3-3: 2-3"},
		"neighbours are one range":   {list{whole(1, 3, ""), whole(2, 2, ""), at(whole(1, 5, "Ada"), 1)}, "1-5: Ada1-5"},
		"a person's Count":           {list{some(1, 2, 2, ""), some(1, 2, 2, "Ada")}, "2-2: 1 of Ada2-2"},
		"a later Count":              {list{at(some(1, 2, 2, "Ada"), 1), some(1, 2, 2, "Bob")}, "2-2: 1 of Ada2-2"},
		"a Count that is left":       {list{whole(1, 2, ""), some(1, 1, 4, "")}, "1-2: 1-2; 3-3: 1 of 1-4"},
		"a person's Count gives way": {list{some(1, 1, 1, ""), some(1, 1, 2, "Ada")}, "1-1: 1 of 1-1; 2-2: 1 of Ada1-2"},
		"a person's Count is first":  {list{some(1, 1, 5, ""), some(1, 1, 4, "Ada")}, "1-1: 1 of Ada1-4; 2-2: 1 of 1-5"},
		"a person's Count ends later": {list{some(1, 1, 2, ""), some(2, 1, 4, "Ada"), whole(3, 5, "")},
			"1-2: 2 of Ada1-4; 3-5: 3-5"},
		"outside": {list{whole(6, 9, ""), some(2, 5, 9, "")}, "5-5: 2 of 5-9"},
	} {
		t.Run(name, func(t *testing.T) {
			for range 2 {
				got, says := explained(t, 1, 5, 5, nil, row.all), ""
				for i, e := range got.Explained {
					if i > 0 {
						says += "; "
					}
					says += fmt.Sprintf("%d-%d: %s", e.First, e.Last, e.Explanation.Reason)
					require.Contains(t, row.all, e.Explanation)
				}
				require.Equal(t, row.want, says)
				slices.Reverse(row.all) // the order in which they are given does not matter
			}
		})
	}
}

// Sequences and Counts may be as large as they come.
func TestExplainWide(t *testing.T) {
	t.Parallel()
	const most int64 = 999_999_999_999_999
	got := explained(t, 1, most, most, []int64{7, most - 1}, []account.Explanation{
		{First: 1, Last: most, Count: most, Reason: "all", At: noon},
		{First: 5, Last: most, Count: most - 4, Reason: "most", By: "Ada", At: noon},
		{First: 10, Last: most - 10, Count: 3, Reason: "three", By: "Ada", At: noon.Add(1)},
		{First: 20, Last: 30, Reason: "some", At: noon},
	})
	require.Equal(t, most-2, got.ExplainedCount)
	require.Zero(t, got.UnexplainedCount)
	require.Empty(t, got.Unexplained)
	says := ""
	for _, e := range got.Explained {
		says += fmt.Sprintf("%d-%d %s\n", e.First, e.Last, e.Explanation.Reason)
	}
	require.Equal(t, "1-4 all\n5-6 most\n8-9 most\n10-12 three\n13-19 most\n20-30 some\n31-999999999999997 most\n"+
		"999999999999999-999999999999999 most\n", says)

	five := account.Explanation{First: 1, Last: most, Count: 5, Reason: "five", At: noon}
	got = explained(t, 1, most, most, nil, []account.Explanation{five})
	require.Equal(t, most-5, got.UnexplainedCount)
	require.Equal(t, []account.Range{{First: 6, Last: most}}, got.Unexplained)
}

// The lists hold the first thousand, whole ranges.
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

// Reasons that differ are kept too, however many there are.
func TestExplainTexts(t *testing.T) {
	t.Parallel()
	const n = 6000
	var all []account.Explanation
	for seq := int64(n); seq > 0; seq-- { // so that the last ones are listed
		all = append(all, account.Explanation{First: seq, Last: seq, Reason: fmt.Sprint("reason ", seq), At: noon})
	}
	got := explained(t, 1, n, n, nil, append(all, all...))
	for i, e := range got.Explained {
		require.Equal(t, all[n-1-i], e.Explanation)
	}
	require.Len(t, got.Explained, account.Listed)
}

// manyExplained accounts for n sequences, every tenth of which is missing, with explanations of width or less.
func manyExplained(t testing.TB, sequences, explanations int64, counted bool, width int64) account.Report {
	rng := rand.New(rand.NewPCG(5, 6))
	a := account.New(1, sequences)
	for seq := int64(1); seq <= sequences; seq++ {
		if seq%10 > 0 && a.Add(seq, "") != nil {
			t.Fatal("full")
		}
	}
	for range explanations {
		e := account.Explanation{First: 1 + rng.Int64N(sequences), Reason: "caller left", By: "", At: noon}
		e.Last = e.First + rng.Int64N(width)
		e.At = noon.Add(time.Duration(rng.Int64N(1e18)))
		if counted {
			e.Reason, e.Count = "answer lost", 1+rng.Int64N(min(3, e.Last-e.First+1))
		}
		a.Explain(e)
	}
	return a.Close(sequences)
}

// A million explanations of ten million sequences take less than 64 MB in all, whatever was freed meanwhile. Here are some less, of
// which each takes its share.
func TestExplainMemory(t *testing.T) {
	const n = 50_000
	for _, counted := range []bool{false, true} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got := manyExplained(t, n*10, n, counted, 1e6)
		runtime.ReadMemStats(&after)
		require.Positive(t, got.ExplainedCount)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64*n+2<<20), counted)
	}
}

func BenchmarkExplain(b *testing.B) {
	for name, width := range map[string]int64{"narrow": 30, "wide": 1e6, "all": 9e14} {
		for _, counted := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/counted=%v", name, counted), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					manyExplained(b, 1e7, 1e6, counted, width)
				}
			})
		}
	}
}
