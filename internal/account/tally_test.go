package account_test

import (
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/account"
)

// A Tally counts like a map.
func TestTally(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	for range 60 {
		spread := []int64{1, 60, 70, 5000, 20_000, 1e15}[rng.IntN(6)]
		exact := rng.Int64N(spread + 1)
		counted, times := account.NewTally(exact), map[int64]int64{}
		for range rng.IntN(2000) {
			n := rng.Int64N(spread)
			if rng.IntN(3) == 0 {
				n = spread - 1
			}
			before, err := counted.Add(n)
			require.NoError(t, err)
			require.EqualValues(t, min(times[n], 2), before)
			times[n]++
		}
		want := [][2]int64{}
		for _, n := range slices.Sorted(maps.Keys(times)) {
			if n <= exact {
				times[n] = min(times[n], 2)
			}
			want = append(want, [2]int64{n, times[n]})
		}
		require.Equal(t, want, pairs(counted.All(), -1))
		if len(want) > 1 {
			require.Equal(t, want[:1], pairs(counted.All(), 1))
		}
	}
}

// pairs returns the first n pairs of seq, or all for -1.
func pairs(seq iter.Seq2[int64, int64], n int) [][2]int64 {
	all := [][2]int64{}
	for a, b := range seq {
		if all = append(all, [2]int64{a, b}); len(all) == n {
			break
		}
	}
	return all
}

// A Tally that would take more than 256 MB refuses integers, and keeps what it has counted.
func TestFull(t *testing.T) {
	t.Parallel()
	const page = 4096
	counted := account.NewTally(0)
	var err error
	n := int64(0)
	for ; err == nil; n++ {
		_, err = counted.Add(n * page)
	}
	require.Equal(t, account.ErrFull, err)
	require.InEpsilon(t, 256<<20, (n-1)*(page/4), 0.1, "bytes of the pages")
	require.Equal(t, account.ErrFull, errOf(counted.Add((n-1)*page)))
	require.NoError(t, errOf(counted.Add(page-1)), "its page exists")
	for n, err = page, nil; err == nil; n++ { // a third occurrence takes memory too
		_, _ = counted.Add(n)
		_, _ = counted.Add(n)
		_, err = counted.Add(n)
	}
	require.Equal(t, account.ErrFull, err)
	require.Less(t, n, int64(page+20))
	all := pairs(counted.All(), -1)
	i := slices.Index(all, [2]int64{n - 1, 2})
	require.Positive(t, i)
	require.Equal(t, [2]int64{2 * page, 1}, all[i+1])
}

// errOf returns the error of a call.
func errOf(_ int, err error) error { return err }
