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

// account compares the numbers of all invoices with the last one taken in a period.
func account(ctx context.Context, db *sql.DB, numbers *gapless.Generator, scheme *serial.Scheme,
	at time.Time) (serial.Report, error) {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return serial.Report{}, err
	}
	defer func() { _ = tx.Rollback() }()
	last, err := numbers.Last(ctx, tx, "INV", at)
	if err != nil {
		return serial.Report{}, err
	}
	rows, err := tx.QueryContext(ctx, "SELECT number FROM invoices")
	if err != nil {
		return serial.Report{}, err
	}
	defer func() { _ = rows.Close() }()
	return scheme.Audit("INV", at, last.Seq, func(yield func(string, error) bool) {
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

// The guide's account is the function above. It is clean at every instant while invoices are issued, and finds what is missing.
func TestAccount(t *testing.T) {
	source, err := os.ReadFile("guide_test.go")
	require.NoError(t, err)
	text, err := os.ReadFile("../docs/gapless.md")
	require.NoError(t, err)
	unix := strings.NewReplacer("\r\n", "\n")
	_, code, found := strings.Cut(unix.Replace(string(text)), "```go\n// account ")
	require.True(t, found)
	code, _, _ = strings.Cut(code, "```")
	require.Contains(t, unix.Replace(string(source)), "// account "+code)

	each(t, func(t *testing.T, d *database) {
		db := d.open(t)
		execSQL(t, db, "CREATE TABLE invoices (number varchar(100) NOT NULL)")
		s, g, day := scheme(t), d.generator(t, db), date(t, "2021-10-24")
		place := func(stored bool) {
			commits(t, db, func(tx *sql.Tx) {
				n, err := g.NextOn(t.Context(), tx, "INV", day)
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
			r, err := account(t.Context(), db, g, s, day)
			require.NoError(t, err)
			require.Zero(t, r.MissingCount+r.DuplicateCount+r.BeyondCount+r.ForeignCount, "%+v", r)
		}
		place(false)
		place(true)
		r, err := account(t.Context(), db, g, s, day)
		require.NoError(t, err)
		require.Equal(t, []serial.Range{{First: more + 2, Last: more + 2}}, r.Missing)
		require.EqualValues(t, more+2, r.Count)
	})
}
