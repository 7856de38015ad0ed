package gapless_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/gapless"
)

// Types that share a counter have one row, which concurrent transactions take numbers from in turn.
func TestSharedCounter(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		db, g := d.start(t, serial.WithSharedCounter(), serial.WithPeriod(serial.PerYear),
			serial.WithTemplate("{type}-{date:yyyy}-{seq:4}"))
		year := d.clock(t, db).UTC().Year()
		on := serial.On(year, time.January, 1)
		types := []string{"FA", "AV", "CN"}
		var mu sync.Mutex
		var used []string
		var seqs []int64
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				for j := range 6 {
					err := inTx(context.Background(), db, sql.LevelDefault, func(tx *sql.Tx) error {
						n, err := g.Next(context.Background(), tx, types[(i+j)%3])
						if err != nil || j == 3 {
							return fmt.Errorf("rolled back: %w", err)
						}
						mu.Lock()
						defer mu.Unlock()
						used, seqs = append(used, n.String()), append(seqs, n.Seq)
						return nil
					})
					if j != 3 && err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		slices.Sort(seqs)
		require.Len(t, seqs, 20)
		for i, seq := range seqs {
			require.EqualValues(t, i+1, seq)
		}

		last, err := g.Last(t.Context(), db, "X", on)
		require.NoError(t, err)
		require.Equal(t, []any{"X", int64(20)}, []any{last.Type, last.Seq})
		report, err := g.Audit(t.Context(), db, "FA", on, func(yield func(string, error) bool) {
			for _, text := range used {
				if !yield(text, nil) {
					return
				}
			}
		})
		require.NoError(t, err)
		require.True(t, report.Clean(), "%+v", report)
		require.Equal(t, "serial:*", report.Series)

		commits(t, db, func(tx *sql.Tx) {
			require.NoError(t, g.Raise(t.Context(), tx, "AV", on, 30))
			requireSeq(t, 31)(g.Next(t.Context(), tx, "FA"))
		})
		commits(t, db, func(tx *sql.Tx) {
			require.NoError(t, g.ClosePeriods(t.Context(), tx, "CN", on))
		})
		tx := begin(t, db)
		require.ErrorIs(t, errOf(g.NextOn(t.Context(), tx, "FA", serial.On(year-1, time.May, 1))), gapless.ErrPeriodClosed)
	})
}

func TestSharedCounterWithoutType(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		db, g := d.start(t, serial.WithSharedCounter(), serial.WithPeriod(serial.PerYear),
			serial.WithTemplate("{seq:1+}/{date:yyyy}"))
		on := serial.On(2018, time.March, 5)
		commits(t, db, func(tx *sql.Tx) {
			n, err := g.NextOn(t.Context(), tx, "", on)
			require.NoError(t, err)
			require.Equal(t, "1/2018", n.String())
			require.ErrorIs(t, errOf(g.NextOn(t.Context(), tx, "FA", on)), serial.ErrInvalidType)
			require.ErrorContains(t, g.Raise(t.Context(), tx, "", on, -1), "Raise of serial:* to -1")
		})
		last, err := g.Last(t.Context(), db, "", on)
		require.NoError(t, err)
		require.EqualValues(t, 1, last.Seq)
	})
}
