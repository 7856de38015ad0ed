package gapless_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/gapless"
)

// requireEnded checks that no number can be taken in tx, which the database has ended, and that none was taken.
func requireEnded(t *testing.T, db *sql.DB, g *gapless.Generator, tx *sql.Tx, want string) {
	t.Helper()
	day := october(24)
	for _, typ := range []string{"IS", "NEW"} {
		before, err := g.Last(t.Context(), db, typ, serial.At(day))
		require.NoError(t, err)
		for _, step := range []string{"on24", "raise24=100", "on24", "raise24=100", "next", "close5", "reopen1"} {
			err := newCall(g, typ+"/"+step).do(t.Context(), tx).err
			require.ErrorContains(t, err, want, step)
			require.NotErrorIs(t, err, serial.ErrConflict)
		}
		requireResult(t, before)(g.Last(t.Context(), db, typ, serial.At(day)))
	}
	_ = tx.Rollback() // some drivers report that there is no transaction
	require.Equal(t, 2, rows(t, db), "the rows of the period and of the series")
	commits(t, db, func(tx *sql.Tx) {
		requireSeq(t, 2)(g.NextOn(t.Context(), tx, "IS", serial.At(day)))
	})
}

// The database ends a transaction that the program has not ended, in every way in which each kind of database can do
// so. The program continues to use the transaction. All calls must fail and take nothing.
func TestDatabaseEndsTransaction(t *testing.T) {
	const ended = "the database has ended the transaction"
	text := func(query string) func(*testing.T, *sql.DB, *sql.Tx) {
		return func(t *testing.T, _ *sql.DB, tx *sql.Tx) { _, _ = tx.ExecContext(t.Context(), query) } // may fail
	}
	deadlock := func(t *testing.T, db *sql.DB, tx *sql.Tx) {
		other := begin(t, db)
		execSQL(t, other, "INSERT INTO documents VALUES ('d'), ('e'), ('f')") // tx has written less and is rolled back
		execSQL(t, other, "UPDATE documents SET number = 'a' WHERE number = 'a'")
		execSQL(t, tx, "UPDATE documents SET number = 'b' WHERE number = 'b'")
		waits := make(chan error)
		go func() {
			_, err := other.ExecContext(context.Background(), "UPDATE documents SET number = 'b' WHERE number = 'b'")
			waits <- err
		}()
		_, err := tx.ExecContext(t.Context(), "UPDATE documents SET number = 'a' WHERE number = 'a'")
		require.True(t, repeatable(err), "%v", err)
		require.NoError(t, <-waits)
		require.NoError(t, other.Rollback())
	}
	interrupted := func(t *testing.T, _ *sql.DB, tx *sql.Tx) {
		for { // repeat, because an interrupt before the first step of a statement has no effect
			ctx, cancel := context.WithCancel(t.Context())
			go cancel()
			_, _ = tx.ExecContext(ctx, "INSERT OR REPLACE INTO documents "+
				"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 100000) SELECT 'n' || i FROM n")
			if _, err := tx.ExecContext(t.Context(), "BEGIN"); err == nil { // otherwise the transaction is still open
				execSQL(t, tx, "ROLLBACK")
				return
			}
		}
	}
	const insert = "INSERT OR ROLLBACK INTO documents VALUES ('a')"
	for name, c := range map[string]struct {
		open    func(testing.TB) *database
		comment string
		end     func(*testing.T, *sql.DB, *sql.Tx)
		want    string
	}{
		// After an error, PostgreSQL rejects every statement of the transaction.
		"PostgreSQL/error": {postgreSQL, "", text("INSERT INTO documents VALUES ('a')"), "25P02"},
		"MariaDB/DDL":      {mariaDB, "", text("CREATE TABLE more (a int)"), ended},
		"MariaDB/text":     {mariaDB, "", text("ROLLBACK"), ended},
		"MariaDB/deadlock": {mariaDB, "", deadlock, ended},
		"MySQL/DDL":        {mariaDB, "/*M!", text("CREATE TABLE more (a int)"), ended},
		"MySQL/text":       {mariaDB, "/*M!", text("ROLLBACK"), ended},
		"MySQL/deadlock":   {mariaDB, "/*M!", deadlock, ended},
		"SQLite/write":     {inFile, "", text(insert), ended},
		"SQLite/interrupt": {inFile, "", interrupted, ended},
		"SQLite/text":      {inFile, "", text("COMMIT"), ended},
	} {
		t.Run(name, func(t *testing.T) {
			d := c.open(t)
			d.comment = c.comment
			db, g := d.start(t)
			execSQL(t, db, "CREATE TABLE documents (number varchar(100) NOT NULL PRIMARY KEY)")
			execSQL(t, db, "INSERT INTO documents VALUES ('a'), ('b')")
			commits(t, db, func(tx *sql.Tx) {
				require.NoError(t, onlyErr(g.NextOn(t.Context(), tx, "IS", serial.At(october(24)))))
			})
			tx := begin(t, db)
			execSQL(t, tx, "INSERT INTO documents VALUES ('c')")
			c.end(t, db, tx)
			requireEnded(t, db, g, tx, c.want)
		})
	}
}

// While one call takes a number in a transaction, another call in the same transaction must fail, even if it uses a
// different Generator.
func TestSharedTx(t *testing.T) {
	d := inFile(t)
	db := d.open(t)
	g, other := d.generator(t, db), d.generator(t, db)
	tx, refused := &hooked{Tx: begin(t, db)}, 0
	tx.hook = func(query string, _ bool) (string, error) {
		if refused < 0 {
			return query, nil
		}
		for _, g := range []*gapless.Generator{g, other} {
			for _, step := range []string{"on24", "raise24=7", "close24"} {
				require.ErrorContains(t, newCall(g, step).do(t.Context(), tx).err, "only one goroutine at a time may use a Tx")
				refused++
			}
		}
		return query, nil
	}
	at := serial.At(october(24))
	requireSeq(t, 1)(g.NextOn(t.Context(), tx, "IS", at))
	require.NotZero(t, refused)
	refused = -1 // from now on, no other call uses the transaction
	requireSeq(t, 2)(other.NextOn(t.Context(), tx, "IS", at))
}
