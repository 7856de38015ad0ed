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
)

var noon = time.Date(2021, 10, 24, 12, 0, 0, 0, time.UTC)

// A scenario has everything that an account is made of. Last is at least first - 1, and closed at least last.
type scenario struct {
	first, last, closed int64
	maxListed           int
	used                []int64
	explanations        []account.Explanation // with their ranks
}

// close returns the closed account, and its report.
func (s *scenario) close(t *testing.T) (*account.Account, account.Report) {
	t.Helper()
	a, err := account.NewBook(s.maxListed).New(s.first, s.last)
	require.NoError(t, err)
	for i, seq := range s.used {
		require.NoError(t, a.Add(seq, text(i, seq)))
	}
	for i := range s.explanations {
		a.Explain(s.explanations[i])
		s.explanations[i].Rank = uint32(i)
	}
	return a, a.Close(s.closed)
}

// text returns the text of the use with index i.
func text(i int, seq int64) string { return fmt.Sprint(i, " ", seq) }

// issuedMeanwhile reports whether seq was issued while the account was open.
func (s *scenario) issuedMeanwhile(seq int64) bool { return s.last < seq && seq <= s.closed }

// find computes the finding about a sequence in the simplest way.
func (s *scenario) find(seq int64) (f account.Finding) {
	if seq < 1 {
		return f
	}
	f.Issued = s.first <= seq && seq <= s.last
	for _, used := range s.used {
		if used == seq {
			f.Stored = min(f.Stored+1, 2)
		}
	}
	for i := range s.explanations {
		switch e := &s.explanations[i]; {
		case seq < e.First || seq > e.Last:
		case e.Possible:
			f.Possible = append(f.Possible, e)
		default:
			f.Replaced = append(f.Replaced, e)
			f.Contradicted = f.Contradicted || e.Unused && f.Stored > 0 && !s.issuedMeanwhile(seq)
			if f.Issued && f.Stored == 0 && (f.Explanation == nil || f.Explanation.By == "" || e.By != "") {
				f.Explanation = e
			}
		}
	}
	slices.SortStableFunc(f.Possible, func(x, y *account.Explanation) int { return x.At.Compare(y.At) })
	if f.Explanation != nil {
		f.Replaced = slices.DeleteFunc(f.Replaced, func(e *account.Explanation) bool { return e == f.Explanation })
	}
	return f
}

// report computes the report from the findings about the sequences from start on.
func (s *scenario) report(start int64, findings []account.Finding) (r account.Report) {
	reasons := map[*account.Explanation]bool{}
	for i, f := range findings {
		seq := start + int64(i)
		if f.Contradicted {
			r.ContradictedCount++
			r.Contradicted = append(r.Contradicted, account.Use{Seq: seq})
		}
		if f.Issued && f.Stored == 0 {
			r.MissingCount++
			r.Missing = extend(r.Missing, seq)
		}
		switch n := len(r.Explained) - 1; {
		case !f.Issued:
		case f.Stored > 0:
			r.Count++
		case f.Explanation == nil:
			r.UnexplainedCount++
			r.Unexplained = extend(r.Unexplained, seq)
			for _, e := range f.Possible {
				reasons[e] = true
			}
		case n >= 0 && r.Explained[n].Last == seq-1 && r.Explained[n].Explanation == f.Explanation:
			r.Explained[n].Last = seq
		default:
			one := account.Range{First: seq, Last: seq}
			r.Explained = append(r.Explained, account.Explained{Range: one, Explanation: f.Explanation})
		}
	}
	r.ExplainedCount = r.MissingCount - r.UnexplainedCount
	for e := range reasons {
		r.Possible = append(r.Possible, *e)
	}
	slices.SortFunc(r.Possible, func(x, y account.Explanation) int {
		return cmp.Or(x.At.Compare(y.At), cmp.Compare(x.Rank, y.Rank))
	})
	r.PossibleCount = int64(len(r.Possible))
	times := map[int64]int{}
	for i, seq := range s.used {
		if s.issuedMeanwhile(seq) {
			continue
		}
		use := account.Use{Seq: seq, Text: text(i, seq)}
		if times[seq]++; times[seq] == 2 {
			r.DuplicateCount++
			r.Duplicates = append(r.Duplicates, use)
		}
		if seq < s.first || seq > s.last {
			r.BeyondCount++
			r.Beyond = append(r.Beyond, use)
		}
	}
	r.Missing, r.Unexplained = head(r.Missing, s.maxListed), head(r.Unexplained, s.maxListed)
	r.Explained, r.Possible = head(r.Explained, s.maxListed), head(r.Possible, s.maxListed)
	r.Contradicted = head(r.Contradicted, s.maxListed)
	r.Duplicates, r.Beyond = head(r.Duplicates, s.maxListed), head(r.Beyond, s.maxListed)
	return r
}

func head[T any](list []T, n int) []T { return list[:min(n, len(list))] }

// extend adds a sequence to ascending ranges.
func extend(ranges []account.Range, seq int64) []account.Range {
	if n := len(ranges) - 1; n >= 0 && ranges[n].Last == seq-1 {
		ranges[n].Last = seq
		return ranges
	}
	return append(ranges, account.Range{First: seq, Last: seq})
}

// randomScenario returns a scenario with sequences from start to start + size.
func randomScenario(rng *rand.Rand, start, size int64, explanations int) *scenario {
	s := &scenario{first: max(1, start+rng.Int64N(20)), maxListed: account.Listed}
	s.last = s.first - 1 + rng.Int64N(size-15)
	s.closed = s.last + rng.Int64N(10)
	if rng.IntN(2) == 0 { // short lists, which are simple only if nothing is issued meanwhile
		s.maxListed, s.closed = 1+rng.IntN(5), s.last
	}
	for range rng.Int64N(size) {
		s.used = append(s.used, start+rng.Int64N(size))
	}
	for i := range explanations {
		e := account.Explanation{First: start + 1 + rng.Int64N(size), Reason: fmt.Sprint(i), Possible: rng.IntN(3) == 0}
		e.By = []string{"", "", "Ada"}[rng.IntN(3)]
		e.At = noon.AddDate(1000*(rng.IntN(4)-2), 0, 0) // also outside the years that fit into nanoseconds
		e.Last = e.First + rng.Int64N(1+rng.Int64N(size))
		e.Unused = !e.Possible && rng.IntN(2) == 0
		s.explanations = append(s.explanations, e)
	}
	return s
}

// Whatever is used, explained or issued meanwhile, an account agrees with the simplest one.
func TestAccount(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range map[bool]int{false: 1500, true: 50}[testing.Short()] {
		size, explanations := int64(20+rng.IntN(20)), rng.IntN(7)
		if i%20 == 0 {
			size, explanations = 200, rng.IntN(150)
		}
		// Some sequences lie in several pages of a Tally.
		start := []int64{0, 4060, 8190, 999_999_999_990_000}[rng.IntN(4)]
		s := randomScenario(rng, start, size, explanations)
		a, got := s.close(t)
		var want, found []account.Finding
		for seq := start; seq < start+3*size; seq++ {
			want, found = append(want, s.find(seq)), append(found, a.Lookup(seq))
		}
		require.Equal(t, want, found, "scenario %d", i)
		require.Equal(t, s.report(start, want), got, "scenario %d", i)
	}
}

// Uses of sequences that were issued meanwhile leave their room in the lists to later uses, whose texts are then no
// longer known. No list exceeds its bound.
func TestListsThatFillMeanwhile(t *testing.T) {
	t.Parallel()
	s := &scenario{first: 1, last: 10, closed: 5000, maxListed: 1 << 20}
	for i := range s.closed + 700 - s.last { // twice each; the first 100 are listed with their texts
		seq := s.last + 1 + (s.closed+590+i)%(s.closed+690)
		s.used = append(s.used, seq, seq)
	}
	_, got := s.close(t)
	require.EqualValues(t, 700, got.DuplicateCount)
	require.EqualValues(t, 1400, got.BeyondCount)
	require.Len(t, got.Beyond, account.Listed)
	seqs := map[int64]int{}
	for i, use := range got.Beyond {
		seqs[use.Seq]++
		if i < len(got.Duplicates) {
			want := account.Use{Seq: s.closed - 99 + int64(i)}
			if i < 100 {
				want = account.Use{Seq: s.used[2*i], Text: text(2*i+1, s.used[2*i])}
			}
			require.Equal(t, want, got.Duplicates[i])
		}
	}
	require.Len(t, seqs, account.Listed/2, "two uses of each")
}

// A million explanations of ten million sequences take less than 160 MB. The test has fewer, with a proportional share.
func TestMemoryOfExplanations(t *testing.T) {
	const n = 20_000
	for _, possible := range []bool{false, true} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		rng := rand.New(rand.NewPCG(5, 6))
		a, err := account.NewBook(account.Listed).New(1, 10*n)
		require.NoError(t, err)
		for seq := int64(1); seq <= 10*n; seq++ {
			if seq%10 > 0 && a.Add(seq, "") != nil {
				t.Fatal("full")
			}
		}
		for range n {
			first := 1 + rng.Int64N(10*n)
			a.Explain(account.Explanation{First: first, Last: first + rng.Int64N(1e6), Reason: "call canceled",
				At: noon.Add(time.Duration(rng.Int64N(1e18))), Possible: possible})
		}
		got := a.Close(10 * n)
		runtime.ReadMemStats(&after)
		require.Positive(t, got.ExplainedCount+got.PossibleCount)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(160*n), possible)
	}
}
