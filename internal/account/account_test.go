package account_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/account"
)

// uses returns a use of each sequence, with distinct texts.
func uses(seqs []int64) []account.Use {
	var all []account.Use
	for i, seq := range seqs {
		all = append(all, account.Use{Seq: seq, Text: fmt.Sprint(i, " ", seq)})
	}
	return all
}

// simple makes a report in the simplest way. From the beginning, it knows how far the numbers are counted when the
// account is closed.
func simple(first, last, closed int64, uses []account.Use) account.Report {
	var r account.Report
	times := map[int64]int{}
	for _, u := range uses {
		if u.Seq >= first && u.Seq > last && u.Seq <= closed { // issued meanwhile
			continue
		}
		if times[u.Seq]++; times[u.Seq] == 2 {
			r.DuplicateCount++
			r.Duplicates = append(r.Duplicates, u)
		}
		switch {
		case u.Seq < first || u.Seq > last:
			r.BeyondCount++
			r.Beyond = append(r.Beyond, u)
		case times[u.Seq] == 1:
			r.Count++
		}
	}
	for seq := first; seq <= last; seq++ {
		if times[seq] > 0 {
			continue
		}
		r.MissingCount++
		if n := len(r.Missing) - 1; n >= 0 && r.Missing[n].Last == seq-1 {
			r.Missing[n].Last = seq
		} else {
			r.Missing = append(r.Missing, account.Range{First: seq, Last: seq})
		}
	}
	r.Unexplained, r.UnexplainedCount = r.Missing, r.MissingCount
	return r
}

func reported(t *testing.T, first, last, closed int64, uses []account.Use) account.Report {
	a, err := account.NewBook(account.Listed).New(first, last)
	require.NoError(t, err)
	for _, u := range uses {
		require.NoError(t, a.Add(u.Seq, u.Text))
	}
	return a.Close(closed)
}

// Whatever is used or counted meanwhile, the account agrees with a simple one.
func TestAccount(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		near := []int64{0, 4060, 8190}[rng.IntN(3)] // also across the pages of a tally
		first, last := near+1+rng.Int64N(3)*20, near+rng.Int64N(60)
		closed := last + rng.Int64N(20)
		var seqs []int64
		for range rng.IntN(100) {
			seqs = append(seqs, near+rng.Int64N(100))
		}
		used := uses(seqs)
		want, got := simple(first, last, closed, used), reported(t, first, last, closed, used)
		require.Equal(t, want, got, "%d to %d, closed at %d: %v", first, last, closed, seqs)
	}
}

// Sequences counted meanwhile leave their places in the lists to others that came later, even though the texts of these
// are no longer known.
func TestListsThatFillMeanwhile(t *testing.T) {
	const last, closed = 10, 5000
	var seqs []int64
	twice := func(from, to int64) {
		for seq := from; seq <= to; seq++ {
			seqs = append(seqs, seq, seq)
		}
	}
	twice(closed+601, closed+700) // these stay in the lists
	twice(last+1, closed+600)
	used := uses(seqs)
	got, want := reported(t, 1, last, closed, used), simple(1, last, closed, used)
	require.EqualValues(t, 700, got.DuplicateCount)
	require.EqualValues(t, 1400, got.BeyondCount)
	for i := range want.Duplicates[100:] {
		want.Duplicates[100+i].Text = ""
	}
	require.Equal(t, want.Duplicates, got.Duplicates)
	require.Equal(t, want.Beyond[:200], got.Beyond[:200])
	require.Len(t, got.Beyond, account.Listed)
	var beyond []int64
	for _, u := range got.Beyond {
		beyond = append(beyond, u.Seq)
		require.True(t, u.Seq > closed && u.Seq <= closed+700, u)
	}
	slices.Sort(beyond)
	require.Len(t, slices.Compact(beyond), account.Listed/2, "each came twice")
	require.Equal(t, want.Missing, got.Missing)
}
