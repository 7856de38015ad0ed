package account_test

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/account"
)

// decimals are numbers that are their sequence: what begins with o belongs elsewhere, and what has no digits is no number.
type decimals struct{ parsed string }

func (d *decimals) Parse(text string) (account.Kind, int64) {
	if text[0] == 'o' {
		return account.Other, 0
	}
	seq, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return account.Foreign, 0
	}
	d.parsed = text
	return account.Own, seq
}

func (d *decimals) Parsed() string { return d.parsed }

func (d *decimals) Number(seq int64) string { return strconv.FormatInt(seq, 10) }

// simple makes a report in the simplest way. It knows from the beginning how far is counted when the account is closed.
func simple(first, last, closed int64, texts []string) account.Report[string] {
	r := account.Report[string]{First: first, Last: last}
	times := map[int64]int{}
	for _, text := range texts {
		seq, err := strconv.ParseInt(text, 10, 64)
		switch {
		case text[0] == 'o':
			r.OtherCount++
			continue
		case err != nil:
			r.ForeignCount++
			r.Foreign = append(r.Foreign, text)
			continue
		case seq >= first && seq > last && seq <= closed: // issued meanwhile
			continue
		}
		if times[seq]++; times[seq] == 2 {
			r.DuplicateCount++
			r.Duplicates = append(r.Duplicates, text)
		}
		switch {
		case seq < first || seq > last:
			r.BeyondCount++
			r.Beyond = append(r.Beyond, text)
		case times[seq] == 1:
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
	return r
}

// Whatever is used, and whatever was counted meanwhile, the account is what a simple one says.
func TestAccount(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		first, last := 1+rng.Int64N(3)*20, rng.Int64N(60)
		closed := last + rng.Int64N(20)
		var texts []string
		for range rng.IntN(100) {
			texts = append(texts, []string{strconv.FormatInt(rng.Int64N(100), 10), strconv.FormatInt(rng.Int64N(100), 10), "o1", "?"}[rng.IntN(4)])
		}
		a := account.New(first, last, &decimals{})
		for _, text := range texts {
			require.NoError(t, a.Add(text))
		}
		require.Equal(t, simple(first, last, closed, texts), a.Close(closed), "%d to %d, closed at %d: %v", first, last, closed, texts)
	}
}

// What was counted meanwhile leaves the place in the lists to others that came later, though these are no longer known by their texts.
func TestListsThatFillMeanwhile(t *testing.T) {
	const last, closed = 10, 5000
	a := account.New(1, last, &decimals{})
	var texts []string
	twice := func(from, to int64) {
		for seq := from; seq <= to; seq++ {
			texts = append(texts, strconv.FormatInt(seq, 10), strconv.FormatInt(seq, 10))
		}
	}
	twice(closed+601, closed+700) // these stay in the lists
	twice(last+1, closed+600)
	for _, text := range texts {
		require.NoError(t, a.Add(text))
	}
	got, want := a.Close(closed), simple(1, last, closed, texts)
	require.EqualValues(t, 700, got.DuplicateCount)
	require.EqualValues(t, 1400, got.BeyondCount)
	require.Equal(t, want.Duplicates, got.Duplicates)
	require.Len(t, got.Beyond, account.Listed)
	slices.Sort(got.Beyond)
	require.Len(t, slices.Compact(slices.Clone(got.Beyond)), account.Listed/2, "each came twice")
	require.Subset(t, want.Beyond, got.Beyond)
	require.Equal(t, want.Missing, got.Missing)
}
