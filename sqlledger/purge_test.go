package sqlledger_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/sqlledger"
)

// oldRows inserts n old rows of a series, which Purge must delete, and one current row, which is the youngest.
func oldRows(t *testing.T, d *database, l *sqlledger.Ledger, series string, n int) {
	t.Helper()
	require.NoError(t, onlyErr(l.Reserve(t.Context(), days(series, day, 0, 1))))
	values := make([]string, n)
	for i := range values {
		values[i] = fmt.Sprintf("(%s, %s, %s, 1, '2020-01-01 00:00:00.000')",
			literal(d, series), literal(d, fmt.Sprintf("%06d", i)), literal(d, days("", "", 0, 0).Print))
	}
	execSQL(t, d.open(t, nil), "INSERT INTO serial_ledger VALUES "+strings.Join(values, ", "))
}

// Purge must delete old periods, but never the youngest period of a series.
func TestPurge(t *testing.T) { each(t, purges) }

func purges(t *testing.T, d *database) {
	back := map[sqlledger.Dialect]string{
		sqlledger.PostgreSQL: "reserved_at - %d * interval '1 hour'",
		sqlledger.MySQL:      "reserved_at - INTERVAL %d HOUR",
		sqlledger.SQLite:     "strftime('%%Y-%%m-%%d %%H:%%M:%%f', reserved_at, '-%d hours')",
	}
	db := d.open(t, nil)
	l := newLedger(t, d, db)
	// aged reserves numbers of a period, unless it is empty, and makes the row of the period as old as the given number
	// of hours.
	aged := func(series, period string, hours int) {
		if period != "" {
			require.NoError(t, onlyErr(l.Reserve(t.Context(), days(series, period, 0, 7))))
		}
		if hours > 0 {
			execSQL(t, db, fmt.Sprintf(
				"UPDATE serial_ledger SET reserved_at = "+back[d.dialect]+" WHERE series = %s AND period = %s", hours,
				literal(d, series), literal(d, period)))
		}
	}
	for n := range 5 {
		aged("daily", fmt.Sprint(20211020+n), 24*(4-n))
	}
	aged("yearly", "2020", 10000)
	aged("yearly", "2021", 5000) // the youngest period; its block is large, so it was not reserved again
	aged("daily", "20211019", 0) // reserved just now
	aged("quiet", "20210101", 9000)
	aged("labels", "b", 5000) // the order of the labels does not matter
	aged("labels", "a", 4000)
	for _, series := range []string{"daily", "yearly", "labels"} {
		aged(series, "", 20000) // the series' own row, which in quiet is newer than the period's row
	}

	requireResult(t, int64(3))(l.Purge(t.Context(), 73*time.Hour))
	left := func(series string) int {
		return value[int](t, db, "SELECT count(*) FROM serial_ledger WHERE series = "+literal(d, series))
	}
	require.Equal(t, []int{6, 2, 2, 2}, []int{left("daily"), left("labels"), left("quiet"), left("yearly")})
	requireResult(t, int64(1), "one that is 72 h and some moments old")(l.Purge(t.Context(), 72*time.Hour))
	requireResult(t, int64(0))(l.Purge(t.Context(), 72*time.Hour))

	requireResult(t, int64(7))(l.Reserve(t.Context(), days("yearly", "2021", 0, 1)))
}

// If rows cannot be deleted, Purge must return an error, but still delete the others. If the context ends, Purge must
// return.
func TestPurgeUndeletableRows(t *testing.T) {
	const more = 1100 // more rows than Purge reads at once
	each(t, func(t *testing.T, d *database) {
		l, admin := d.ledger(t, nil), d.open(t, nil)
		for series, n := range map[string]int{"a": 10, "kept": more, "z": 10} {
			oldRows(t, d, l, series, n)
		}
		switch d.dialect {
		case sqlledger.PostgreSQL:
			execSQL(t, admin, "CREATE RULE keeps AS ON DELETE TO serial_ledger WHERE OLD.series = 'kept'::bytea "+
				"DO INSTEAD NOTHING")
		case sqlledger.SQLite:
			execSQL(t, admin, "CREATE TRIGGER keeps BEFORE DELETE ON serial_ledger WHEN OLD.series = x'6b657074' "+
				"BEGIN SELECT RAISE(IGNORE); END")
		}
		stop := false
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		purging := d.ledgerOn(t, d.open(t, on("DELETE", func(s *statement) error {
			if stop {
				cancel()
			}
			if d.dialect == sqlledger.MySQL { // MySQL has no such feature
				return s.run(strings.Replace(s.text, "WHERE", "WHERE series <> 'kept' AND", 1))
			}
			return s.run(s.text)
		})))
		for _, want := range []int64{20, 0} {
			purged, err := purging.Purge(ctx, 72*time.Hour)
			require.EqualError(t, err, fmt.Sprintf("sqlledger: purge: %d old rows were found but not deleted, such as "+
				`period "000000" of "kept": row security, a rule or a trigger may prevent it`, more))
			require.Equal(t, want, purged)
		}
		stop = true
		require.ErrorIs(t, onlyErr(purging.Purge(ctx, 72*time.Hour)), context.Canceled)
	})
}

// During a Purge, another Purge deletes a row, or a reservation renews it. Purge must return no error.
func TestPurgeAtOnce(t *testing.T) {
	onServers(t, func(t *testing.T, d *database) {
		l := d.ledger(t, nil)
		oldRows(t, d, l, "a", 1100)
		oldRows(t, d, l, "b", 1)
		var once atomic.Bool
		purging := d.ledgerOn(t, d.open(t, on("DELETE", func(s *statement) error {
			if once.CompareAndSwap(false, true) {
				_, err := l.Reserve(context.Background(), days("a", "000500", 0, 1))
				purged, failed := l.Purge(context.Background(), 72*time.Hour)
				if err := errors.Join(err, failed); err != nil || purged != 1100 {
					t.Errorf("%d purged meanwhile: %v", purged, err)
				}
			}
			return s.run(s.text)
		})))
		requireResult(t, int64(0))(purging.Purge(t.Context(), 72*time.Hour))
		require.True(t, once.Load())
	})
}
