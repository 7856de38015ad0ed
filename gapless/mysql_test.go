package gapless_test

import (
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
			s := d.steps(t, nil)
			db, g := s.db, s.generators[""]
			s.run("begin on29991024=1 on29991024=2 on29991024=3 commit")
			if change.to != "" {
				g.AsOn(change.to)
			}
			for i, want := range change.costs {
				commits(t, db, func(tx *sql.Tx) {
					statements := 0
					requireSeq(t, int64(4+i))(g.NextOn(t.Context(), counting(tx, &statements), "IS", day))
					require.Equal(t, want, statements)
				})
			}
			s.run("begin on29991024=6 on29991024=7\n sql ROLLBACK\n on29991024!ended rollback last29991024=5")
		})
	}
}

var comment = regexp.MustCompile(`(?s)/\*[^M].*?\*/`)

// A statement that returns no rows must not be executed as a query, because some drivers fail then.
func TestQueriesReturnRows(t *testing.T) {
	kinds(t, each, func(t *testing.T, d *database) {
		db, g := d.start(t)
		for range 2 {
			tx := &hooked{beginAt(t, db, d.readCommitted()), func(query string, returnsRows bool) (string, error) {
				seen := strings.TrimSpace(comment.ReplaceAllString(query, ""))
				require.True(t, !returnsRows || strings.HasPrefix(seen, "SELECT") || strings.Contains(seen, "RETURNING"), query)
				return query, nil
			}}
			for _, step := range []string{"next", "next", "on24", "raise24=20", "close24"} {
				require.NoError(t, newCall(g, step).do(t.Context(), tx).err, step)
			}
			require.NoError(t, tx.Commit())
			if d.dialect == gapless.MySQL {
				g.AsOn("/*M!") // repeat this with a server that supports less than the previous one
			}
		}
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
		requireSeq(t, int64(2+i))(g.Next(t.Context(), counting(tx, &statements), "IS"))
		resume()
		require.Equal(t, row.costs, statements)
	}
}
