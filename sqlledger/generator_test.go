package sqlledger_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/redistest"
)

// Several generators use a ledger in a database, while Redis repeatedly loses all its data. No number may be issued
// twice, and a generator with another calendar must still fail.
func TestGenerator(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		server := redistest.Start(t)
		generator := func(opts ...serial.Option) *serial.Generator {
			l := newLedger(t, d, d.open(t, nil))
			gen, err := serial.New(server.Client(t), append(opts, serial.WithLedger(l, 10))...)
			require.NoError(t, err)
			return gen
		}
		never := []serial.Option{serial.WithPeriod(serial.Never), serial.WithTemplate("{type}{seq}")}
		gens := []*serial.Generator{generator(never...), generator(never...), generator(never...)}
		for round := range 3 {
			want, got := make([]string, 25), make([]string, 25)
			var wg sync.WaitGroup
			for i := range got {
				want[i] = fmt.Sprintf("IS%04d", 30*round+i+1)
				wg.Go(func() {
					number, err := gens[i%3].Next(context.Background(), "IS")
					if got[i] = number; err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			require.ElementsMatch(t, want, got)
			require.NoError(t, server.Client(t).FlushAll(t.Context()).Err())
		}
		require.ErrorIs(t, onlyErr(generator().Next(t.Context(), "IS")), serial.ErrConflict)
	})
}
