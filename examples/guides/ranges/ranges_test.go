package ranges

import (
	"context"
	"database/sql"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/examples/guides/internal/guidetest"
	"github.com/dailyserial/serial/gapless"
	"github.com/dailyserial/serial/sqlledger"
)

func TestGuide(t *testing.T) {
	guidetest.RequireCode(t, "business-numbers.md#An authorised range", "ranges.go")
}

// A range is used up by half when the next one begins, in the same series, while invoices are still issued. The rest
// and everything between is explained, and the audit is clean.
func TestRanges(t *testing.T) {
	zone := guidetest.Noon()
	today := serial.OnDateOf(time.Now().In(zone))
	yesterday := serial.OnDateOf(time.Now().In(zone).AddDate(0, 0, -1))
	db, _ := guidetest.PostgreSQL(t)
	t.Run("PostgreSQL", func(t *testing.T) {
		testRanges(t, db, sqlledger.PostgreSQL, func(last int64, until serial.When) (*gapless.Generator, error) {
			return newNumbers(zone, last, until)
		}, today, yesterday)
	})
	t.Run("SQLite", func(t *testing.T) {
		db := guidetest.SQLite(t)
		db.SetMaxOpenConns(1)
		testRanges(t, db, sqlledger.SQLite, func(last int64, until serial.When) (*gapless.Generator, error) {
			g, err := newNumbers(zone, last, until)
			if err != nil {
				return nil, err
			}
			return gapless.New(gapless.SQLite, g.Scheme())
		}, today, yesterday)
	})
}

func testRanges(t *testing.T, db *sql.DB, dialect sqlledger.Dialect,
	newRange func(last int64, until serial.When) (*gapless.Generator, error), today, yesterday serial.When) {
	ctx := t.Context()
	first, err := newRange(110, today)
	require.NoError(t, err)
	require.NoError(t, first.CreateTable(ctx, db))
	register, err := sqlledger.NewRegister(db, dialect)
	require.NoError(t, err)
	require.NoError(t, register.CreateTable(ctx))
	guidetest.Exec(t, db, "CREATE TABLE invoices (number text PRIMARY KEY)")
	issue := func(numbers *gapless.Generator) error {
		tx, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		n, err := numbers.Next(ctx, tx, "B01")
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, "INSERT INTO invoices VALUES ($1)", n.String())
		require.NoError(t, err)
		return tx.Commit()
	}
	for range 3 {
		require.NoError(t, issue(first))
	}
	second, err := newRange(503, today)
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 3 { // processes that still have the first range
		wg.Go(func() {
			if err := issue(first); err != nil {
				require.ErrorIs(t, err, serial.ErrExhausted)
			}
		})
	}
	require.NoError(t, beginRange(ctx, db, second, register, "B01", 501, today, "Ada"))
	wg.Wait()
	require.ErrorIs(t, issue(first), serial.ErrExhausted)
	require.NoError(t, issue(second))
	require.NoError(t, issue(second))
	require.ErrorContains(t, beginRange(ctx, db, second, register, "B01", 501, today, "Ada"), "B01 is at 502")
	require.NoError(t, issue(second))
	require.ErrorIs(t, issue(second), serial.ErrExhausted)

	ended, err := newRange(900, yesterday)
	require.NoError(t, err)
	require.ErrorIs(t, beginRange(ctx, db, ended, register, "B01", 601, today, "Ada"), serial.ErrExhausted)

	numbers := guidetest.Strings(t, db, "SELECT number FROM invoices ORDER BY number")
	require.Equal(t, "B0100000101", numbers[0])
	require.Equal(t, []string{"B0100000501", "B0100000502", "B0100000503"}, numbers[len(numbers)-3:])
	report := audit(ctx, t, db, second, register, today, numbers)
	require.True(t, report.Clean(), "%+v", report)
	require.EqualValues(t, 503, report.Last)
	require.EqualValues(t, len(numbers), report.Count)
	require.EqualValues(t, 403-len(numbers), report.MissingCount)

	guidetest.Exec(t, db, "DELETE FROM invoices WHERE number = 'B0100000502'")
	numbers = guidetest.Strings(t, db, "SELECT number FROM invoices")
	require.False(t, audit(ctx, t, db, second, register, today, numbers).Clean())
}

func audit(ctx context.Context, t *testing.T, db *sql.DB, g *gapless.Generator, register *sqlledger.Register,
	at serial.When, used []string) serial.Report {
	t.Helper()
	_, start, _ := g.Scheme().Period(at)
	report, err := g.Audit(ctx, db, "B01", at, func(yield func(string, error) bool) {
		for _, n := range used {
			if !yield(n, nil) {
				return
			}
		}
	}, serial.WithExplanations(register.Explanations(ctx, "serial:B01", start)))
	require.NoError(t, err)
	return report
}

// A Colombian resolution: a prefix, and numbers that have as many digits at the end as at the beginning.
func TestResolution(t *testing.T) {
	scheme, err := serial.NewScheme(serial.WithPeriod(serial.Never), serial.WithTemplate("{type}{seq:9}"),
		serial.WithStart(990_000_000), serial.WithLast(995_000_000), serial.WithUntil(serial.On(2030, time.January, 19)))
	require.NoError(t, err)
	first, _ := scheme.Limits()
	n, err := scheme.Number("SETP", serial.On(2026, time.January, 1), first)
	require.NoError(t, err)
	require.Equal(t, "SETP990000000", n.String())
}
