package gapless_test

import (
	"context"
	"database/sql"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/gapless"
)

// Between two calls, the server is replaced by one of another kind. The generator must take every number exactly once,
// and detect that a transaction has ended.
func TestKindsOfServers(t *testing.T) {
	day := serial.On(2999, time.October, 24) // has not ended, so no statement has to check for closed periods
	for name, change := range map[string]struct {
		from, to string // texts that MariaDB reads as the beginning of a comment, before and after the change
		costs    [2]int // numbers of statements for the first two numbers after the change
	}{
		"from MariaDB to 10.4":  {"", "/*M!100500", [2]int{4, 2}},
		"from MariaDB to MySQL": {"", "/*M!", [2]int{6, 4}},
		"from 10.4 to MySQL":    {"/*M!100500", "/*M!", [2]int{7, 4}},
		"the same":              {"", "", [2]int{1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			d := mariaDB(t)
			d.comment = change.from
			db, g := d.start(t)
			commits(t, db, func(tx *sql.Tx) {
				for want := range int64(3) {
					requireSeq(t, want+1)(g.NextOn(t.Context(), tx, "IS", day))
				}
			})
			if change.to != "" {
				g.AsOn(change.to)
			}
			for i, want := range change.costs {
				commits(t, db, func(tx *sql.Tx) {
					statements := 0
					requireSeq(t, int64(4+i))(g.NextOn(t.Context(), counting{tx, &statements}, "IS", day))
					require.Equal(t, want, statements)
				})
			}
			tx := begin(t, db)
			requireSeq(t, 6)(g.NextOn(t.Context(), tx, "IS", day))
			requireSeq(t, 7)(g.NextOn(t.Context(), tx, "IS", day))
			require.NoError(t, onlyErr(tx.ExecContext(t.Context(), "ROLLBACK")))
			require.ErrorContains(t, onlyErr(g.NextOn(t.Context(), tx, "IS", day)), "the database has ended the transaction")
			requireSeq(t, 5)(g.Last(t.Context(), db, "IS", day))
		})
	}
}

// strict is a Tx that fails if a statement that returns no rows is executed as a query. Some drivers do the same.
type strict struct {
	*sql.Tx
	t *testing.T
}

var comment = regexp.MustCompile(`(?s)/\*[^M].*?\*/`)

func (tx strict) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	seen := strings.TrimSpace(comment.ReplaceAllString(query, ""))
	require.True(tx.t, strings.HasPrefix(seen, "SELECT") || strings.Contains(seen, "RETURNING"), query)
	return tx.Tx.QueryRowContext(ctx, query, args...)
}

func TestQueriesReturnRows(t *testing.T) {
	kinds(t, each, func(t *testing.T, d *database) {
		db, g := d.start(t)
		at := serial.At(october(24))
		for i := range int64(2) {
			tx := strict{beginAt(t, db, d.readCommitted()), t}
			requireSeq(t, 2*i+1)(g.Next(t.Context(), tx, "IS"))
			requireSeq(t, 2*i+2)(g.Next(t.Context(), tx, "IS"))
			requireSeq(t, 8*i+1)(g.NextOn(t.Context(), tx, "IS", at))
			require.NoError(t, g.Raise(t.Context(), tx, "IS", at, 8*i+8))
			require.NoError(t, tx.Commit())
			if d.dialect == gapless.MySQL {
				g.AsOn("/*M!") // repeat this with a server that supports less than the previous one
			}
		}
		tx := beginAt(t, db, d.readCommitted())
		require.NoError(t, g.ClosePeriods(t.Context(), strict{tx, t}, "IS", serial.At(october(25))))
		require.NoError(t, tx.Commit())
	})
}

// The host is suspended while a call waits. If the day may have ended in the meantime, the call must read the clock
// again.
func TestSuspended(t *testing.T) {
	d := mariaDB(t)
	db := d.open(t)
	g := d.generator(t, db, serial.WithLocation(d.noon(t, db)))
	tx := begin(t, db)
	requireSeq(t, 1)(g.Next(t.Context(), tx, "IS"))
	for i, row := range []struct {
		suspended time.Duration
		costs     int
	}{{0, 1}, {24 * time.Hour, 2}} {
		statements := 0
		resume := gapless.Suspend(row.suspended)
		requireSeq(t, int64(2+i))(g.Next(t.Context(), counting{tx, &statements}, "IS"))
		resume()
		require.Equal(t, row.costs, statements)
	}
}
