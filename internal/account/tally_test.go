package account_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/account"
)

// A Tally counts like a map, and lists its integers in ascending order.
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
		for n := range times {
			if n <= exact {
				times[n] = min(times[n], 2)
			}
		}
		require.Equal(t, times, maps.Collect(counted.All()))
		want := slices.Sorted(maps.Keys(times))
		for n := range counted.All() {
			require.Equal(t, want[0], n)
			if want = want[1:]; len(want) == 1 {
				break // in the middle of the pairs
			}
		}
	}
}

// A Tally that would take more than 256 MB refuses integers, and keeps what it has counted.
func TestFull(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes 256 MB")
	}
	const page = 4096
	counted := account.NewTally(0)
	var err error
	n := int64(0)
	for ; err == nil; n++ {
		_, err = counted.Add(n * page)
	}
	require.Equal(t, account.ErrFull, err)
	require.InEpsilon(t, 256<<20, (n-1)*(page/4), 0.1, "bytes of the pages")
	_, err = counted.Add((n - 1) * page)
	require.Equal(t, account.ErrFull, err)
	_, err = counted.Add(page - 1)
	require.NoError(t, err, "its page exists")
	for n = page; err == nil; n++ { // a third occurrence takes memory too
		_, _ = counted.Add(n)
		_, _ = counted.Add(n)
		_, err = counted.Add(n)
	}
	require.Equal(t, account.ErrFull, err)
	require.Less(t, n, int64(page+20))
	all := maps.Collect(counted.All())
	require.Equal(t, []int64{2, 0, 1}, []int64{all[n-1], all[n], all[2*page]})
}
