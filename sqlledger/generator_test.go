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

// Generators use a ledger in a database, and a Redis that loses everything again and again.
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
	})
}

// Redis comes back empty after a series got another Period or key: the ledger in the database still knows the old ones.
func TestGeneratorKeepsSettings(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		rdb := redistest.Start(t).Client(t)
		now := time.Now().UTC()
		zone := time.FixedZone("noon", (12-now.Hour())*3600)
		generator := func(typ string, opts ...serial.Option) func() (int64, error) {
			opts = append(opts, serial.WithTemplate("{type}{date:yyyyMMdd}{seq:6}"), serial.WithLocation(zone),
				serial.WithLedger(newLedger(t, d, d.open(t, nil)), 10))
			gen, err := serial.New(rdb, opts...)
			require.NoError(t, err)
			return func() (int64, error) {
				n, err := gen.NextNumber(t.Context(), typ)
				return n.Seq, err
			}
		}
		months := generator("IS", serial.WithPeriod(serial.PerMonth))
		daily := generator("IS")
		hidden := generator("PO", serial.WithHiddenSequence([]byte("an example's key")))
		rotated := generator("PO", serial.WithHiddenSequence([]byte("another's secret")))
		for round := range int64(2) {
			for _, next := range []func() (int64, error){months, hidden} {
				requireResult(t, 10*round+1)(next())
			}
			require.NoError(t, rdb.FlushAll(t.Context()).Err())
			for range 2 {
				_, err := daily()
				require.ErrorIs(t, err, serial.ErrConflict)
				require.ErrorContains(t, err, `counts by "months" in the ledger and by "days" here`)
				_, err = rotated()
				require.ErrorIs(t, err, serial.ErrConflict)
				require.ErrorContains(t, err, "check digit or key")
			}
		}
	})
}
