package sqlledger_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/redistest"
)

// Several generators use a ledger in a database, while Redis repeatedly loses all its data. No number may be issued
// twice, and a generator with another calendar must still fail.
func TestGenerator(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		server := redistest.Start(t)
		admin := server.Client(t)
		d.ledger(t, nil) // creates the table
		now := time.Now().UTC()
		noon := time.FixedZone("noon", (12-now.Hour())*3600)
		var gens []*serial.Generator
		for range 3 {
			rdb := redis.NewClient(server.Options())
			t.Cleanup(func() { require.NoError(t, rdb.Close()) })
			gen, err := serial.New(rdb, serial.WithLocation(noon), serial.WithLedger(newLedger(t, d, d.open(t, nil)), 10))
			require.NoError(t, err)
			gens = append(gens, gen)
		}
		day := time.Now().In(noon).Format("20060102")
		seen := map[string]bool{}
		for round := range 3 {
			var mu sync.Mutex
			var got []string
			var wg sync.WaitGroup
			for i := range 25 {
				wg.Go(func() {
					number, err := gens[i%3].Next(context.Background(), "IS")
					require.NoError(t, err)
					mu.Lock()
					defer mu.Unlock()
					got = append(got, number)
				})
			}
			wg.Wait()
			slices.Sort(got)
			for i, number := range got {
				require.False(t, seen[number], "%s was issued twice", number)
				seen[number] = true
				require.Equal(t, fmt.Sprintf("IS%s%04d", day, 30*round+i+1), number)
			}
			require.NoError(t, admin.FlushAll(t.Context()).Err())
		}
		weekly, err := serial.New(admin, serial.WithLocation(noon), serial.WithPeriod(serial.PerWeek),
			serial.WithTemplate("{type}{date:yyyyMMdd}{seq:4}"), serial.WithLedger(newLedger(t, d, d.open(t, nil)), 10))
		require.NoError(t, err)
		_, err = weekly.Next(t.Context(), "IS")
		require.ErrorIs(t, err, serial.ErrConflict)
		require.ErrorContains(t, err, `uses calendar "days" in the ledger and "weeks" here`)
	})
}
