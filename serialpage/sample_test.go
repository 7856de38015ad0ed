package serialpage

import (
	"context"
	"database/sql"
	"iter"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/gapless"
)

// sample serves the pages of a firm that has numbered orders and delivery notes for forty days, and invoices for three months.
// today is the page of the orders' current day, of which some numbers are missing without a reason.
func sample(t *testing.T, change func(*site)) (s *site, today string) {
	t.Helper()
	now := time.Now().UTC().Truncate(24 * time.Hour).Add(12 * time.Hour)
	s = open(t, func(s *site) {
		rdb := redis.NewClient(&redis.Options{Addr: s.redis.Addr()})
		t.Cleanup(func() { require.NoError(t, rdb.Close()) })
		generator := func(opts ...serial.Option) *serial.Generator {
			gen, err := serial.New(rdb, append(opts, serial.WithLocation(time.UTC), serial.WithMaxSkew(-1))...)
			require.NoError(t, err)
			return gen
		}
		orders := generator(serial.WithRetention(60))
		notes := generator(serial.WithKeyPrefix("north"), serial.WithRetention(60))
		s.start = now.Truncate(24 * time.Hour)
		s.stored = nil
		stored := map[string][]string{}
		issue := func(name string, gen *serial.Generator, typ string, day, n int) {
			at := now.AddDate(0, 0, -day).Truncate(24 * time.Hour).Add(time.Minute)
			s.redis.SetTime(at)
			numbers, err := gen.NextN(t.Context(), typ, n)
			require.NoError(t, err)
			series, err := gen.Scheme().Series(typ)
			require.NoError(t, err)
			explain := func(seq int64, reason, by string) {
				require.NoError(t, s.register.Explain(t.Context(), serial.Explanation{Series: series, Type: typ,
					Start: numbers[0].Start, First: seq, Last: seq, Reason: reason, By: by, At: at}))
			}
			for _, number := range numbers {
				switch i := number.Seq + int64(3*day); {
				case i%29 == 5:
					explain(number.Seq, "caller left", "")
				case i%41 == 7:
					explain(number.Seq, "ordered twice, void", "Ada Lovelace")
				case day%9 == 0 && i%17 == 11: // nobody said why
				default:
					stored[name] = append(stored[name], number.String())
				}
			}
		}
		for day := 39; day >= 0; day-- {
			issue("orders", orders, "ORD", day, 24+day*11%37)
			issue("notes", notes, "DN", day, 5+day*5%13)
		}
		of := func(name string) func(context.Context, time.Time, time.Time) iter.Seq2[string, error] {
			return func(context.Context, time.Time, time.Time) iter.Seq2[string, error] { return yields(stored[name]) }
		}
		s.series = []Series{
			{Type: "ORD", Name: "Orders", Source: Redis(orders), Stored: of("orders"), Explanations: s.register},
			{Type: "DN", Name: "Delivery notes, north", Source: Redis(notes), Stored: of("notes"), Explanations: s.register},
			{Type: "RMA", Name: "Returns", Source: Redis(orders), Stored: of("returns"), Explanations: s.register},
		}
		if slices.Contains(sql.Drivers(), "sqlite") {
			invoices := table(t, now)
			invoices.Explanations = s.register
			s.series = slices.Insert(s.series, 1, invoices)
		}
		if change != nil {
			change(s)
		}
	})
	return s, "/numbers/" + address("period", "ORD", s.start)
}

// yields yields numbers.
func yields(numbers []string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for _, number := range numbers {
			if !yield(number, nil) {
				return
			}
		}
	}
}

// table has invoices of three months, numbered without gaps, of which the first month is closed.
func table(t *testing.T, now time.Time) Series {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "invoices.db")+"?_txlock=immediate")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	scheme, err := serial.NewScheme(serial.WithLocation(time.UTC), serial.WithPeriod(serial.PerMonth),
		serial.WithTemplate("{type}-{date:yyyyMM}-{seq:4}"))
	require.NoError(t, err)
	gen, err := gapless.New(gapless.SQLite, scheme)
	require.NoError(t, err)
	require.NoError(t, gen.CreateTable(t.Context(), db))
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	var numbers []string
	month := time.Date(now.Year(), now.Month(), 1, 12, 0, 0, 0, time.UTC)
	for i, many := range []int{212, 187, 64} {
		for range many {
			n, err := gen.NextOn(t.Context(), tx, "INV", month.AddDate(0, i-2, 0))
			require.NoError(t, err)
			numbers = append(numbers, n.String())
		}
	}
	require.NoError(t, gen.ClosePeriods(t.Context(), tx, "INV", month.AddDate(0, -1, 0).Truncate(24*time.Hour)))
	require.NoError(t, tx.Commit())
	return Series{Type: "INV", Name: "Invoices", Source: Table(db, gen),
		Stored: func(context.Context, time.Time, time.Time) iter.Seq2[string, error] { return yields(numbers) }}
}
