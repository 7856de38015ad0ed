package gapless_test

import (
	"context"
	"database/sql"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/gapless"
)

// account compares the numbers of all invoices with the numbers taken in a period.
func account(ctx context.Context, db *sql.DB, numbers *gapless.Generator, at serial.When) (serial.Report, error) {
	return numbers.Audit(ctx, db, "INV", at, func(yield func(string, error) bool) {
		rows, err := db.QueryContext(ctx, "SELECT number FROM invoices")
		if err != nil {
			yield("", err)
			return
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var number string
			err := rows.Scan(&number)
			if !yield(number, err) || err != nil {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield("", err)
		}
	})
}

// dateOf reads the date of a document, whatever the driver makes of a DATE.
func dateOf(ctx context.Context, tx gapless.Tx, query string) (serial.When, error) {
	var text string // in MySQL and SQLite, select CAST(day AS char)
	if err := tx.QueryRowContext(ctx, query).Scan(&text); err != nil {
		return serial.When{}, err
	}
	date, err := time.Parse(time.DateOnly, text)
	return serial.OnDateOf(date), err
}

// closeBooks closes the books of INV up to a day, and records who did it and why.
func closeBooks(ctx context.Context, db *sql.DB, numbers *gapless.Generator, until serial.When, who, why string) error {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted}) // without effect on SQLite
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := numbers.ClosePeriods(ctx, tx, "INV", until); err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, "INSERT INTO closings (until, who, why) VALUES ($1, $2, $3)", until.String(), who, why)
	if err != nil {
		return err
	}
	return tx.Commit()
}

// requireInGuide checks that the guide has the function of this file whose comment begins with comment.
func requireInGuide(t *testing.T, comment string) {
	t.Helper()
	source, err := os.ReadFile("guide_test.go")
	require.NoError(t, err)
	text, err := os.ReadFile("../docs/gapless.md")
	require.NoError(t, err)
	unix := strings.NewReplacer("\r\n", "\n")
	_, code, found := strings.Cut(unix.Replace(string(text)), "```go\n"+comment)
	require.True(t, found)
	code, _, _ = strings.Cut(code, "```")
	require.Contains(t, unix.Replace(string(source)), comment+code)
}

// The guide's account is the function above. It is clean at every instant while invoices are issued, and finds missing
// numbers.
func TestAccount(t *testing.T) {
	requireInGuide(t, "// account ")

	each(t, func(t *testing.T, d *database) {
		db := d.open(t)
		execSQL(t, db, "CREATE TABLE invoices (number varchar(100) NOT NULL)")
		g, day := d.generator(t, db), date(t, "2021-10-24")
		place := func(stored bool) {
			commits(t, db, func(tx *sql.Tx) {
				n, err := g.NextOn(t.Context(), tx, "INV", serial.At(day))
				require.NoError(t, err)
				if stored {
					_, err = tx.ExecContext(t.Context(), "INSERT INTO invoices VALUES ('"+n.String()+"')")
					require.NoError(t, err)
				}
			})
		}
		place(true)
		const more = 50
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for range more {
				place(true)
			}
		}()
		for running := true; running; {
			select {
			case <-ended:
				running = false
			default:
			}
			r, err := account(t.Context(), db, g, serial.At(day))
			require.NoError(t, err)
			require.Zero(t, r.MissingCount+r.DuplicateCount+r.BeyondCount+r.ForeignCount, "%+v", r)
		}
		place(false)
		place(true)
		r, err := account(t.Context(), db, g, serial.At(day))
		require.NoError(t, err)
		require.Equal(t, []serial.Range{{First: more + 2, Last: more + 2}}, r.Missing)
		require.EqualValues(t, more+2, r.Count)
	})
}

// The guide closes a month with closeBooks, which records it if and only if it closes.
func TestCloseBooks(t *testing.T) {
	requireInGuide(t, "// closeBooks ")
	d := postgreSQL(t)
	db, g := d.start(t)
	execSQL(t, db, "CREATE TABLE closings (until date NOT NULL, who text NOT NULL, why text NOT NULL)")
	require.NoError(t, closeBooks(t.Context(), db, g, serial.On(2021, time.October, 5), "Ada", "September is reported"))
	open := serial.OnDateOf(time.Now().UTC().AddDate(0, 1, 0))
	require.ErrorIs(t, closeBooks(t.Context(), db, g, open, "Bob", "by mistake"), gapless.ErrPeriodOpen)
	var closings int
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT count(*) FROM closings").Scan(&closings))
	require.Equal(t, 1, closings)
	requireResult(t, october(5))(g.ClosedUntil(t.Context(), db, "INV"))
}
