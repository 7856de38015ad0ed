package sqlledger_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/sqlledger"
)

// A reservation must be committed durably, whatever the setting of the connection. Afterwards, the connection must have
// its old setting.
func TestCommitsDurably(t *testing.T) {
	check := func(t *testing.T, d *database, ask, set, value, want string) {
		t.Helper()
		d.ledger(t, nil)
		var commit string
		db := d.open(t, on("COMMIT", func(s *statement) (err error) {
			if commit, err = s.ask(ask); err != nil {
				return err
			}
			return s.run(s.text)
		}), set+value)
		db.SetMaxOpenConns(1)
		require.NoError(t, onlyErr(d.ledgerOn(t, db).Reserve(t.Context(), days("IS", day, 0, 1))))
		require.Equal(t, want, commit, value)
		var after string
		require.NoError(t, db.QueryRowContext(t.Context(), ask).Scan(&after))
		require.Equal(t, value, after, "only for the transaction")
	}
	t.Run("PostgreSQL", func(t *testing.T) {
		d := postgres(t)
		for set, want := range map[string]string{"off": "on", "local": "on", "remote_write": "on", "on": "on",
			"remote_apply": "remote_apply"} {
			check(t, d, "SHOW synchronous_commit", "SET synchronous_commit = ", set, want)
		}
	})
	t.Run("SQLite", func(t *testing.T) {
		for _, journal := range []string{"WAL", "DELETE", "PERSIST"} {
			for _, set := range []string{"0", "1", "2", "3"} {
				check(t, sqlite3(t).with("_pragma=journal_mode("+journal+")"), "PRAGMA synchronous",
					"PRAGMA synchronous = ", set, "3")
			}
		}
	})
}

// If the database could lose a block in a crash, Reserve must fail and reserve nothing.
func TestLossy(t *testing.T) {
	refused := func(t *testing.T, l *sqlledger.Ledger, why string) {
		t.Helper()
		_, err := l.Reserve(t.Context(), days("IS", day, 0, 10))
		require.EqualError(t, err, "sqlledger: reserve: the database can lose committed data: "+why)
	}
	// The tests must not change the configuration of a server, so they change the settings in the text of the query.
	for _, s := range []struct {
		open           func(*testing.T) *database
		setting, value string
		why            string
	}{
		{postgres, "current_setting('fsync')", "'off'", "fsync is off"},
		{mariadb, "@@GLOBAL.innodb_flush_log_at_trx_commit", "2", "innodb_flush_log_at_trx_commit is not 1"},
		{mariadb, "@@GLOBAL.log_bin AND @@GLOBAL.sync_binlog", "1 AND 0", "log_bin is on and sync_binlog is not 1"},
		{mariadb, "@@GLOBAL.log_bin AND @@GLOBAL.sync_binlog", "1 AND 1", ""},
		{mariadb, "@@GLOBAL.log_bin AND @@GLOBAL.sync_binlog", "0 AND 0", ""},
	} {
		t.Run(fmt.Sprintf("%s is %s", s.setting, s.value), func(t *testing.T) {
			d := s.open(t)
			replaced := false
			l := d.ledger(t, func(st *statement) error {
				text := strings.Replace(st.text, s.setting, s.value, 1)
				replaced = replaced || text != st.text
				return st.run(text)
			})
			if s.why == "" {
				require.NoError(t, onlyErr(l.Reserve(t.Context(), days("IS", day, 0, 10))))
			} else {
				refused(t, l, s.why)
				requireResult(t, int64(0))(d.ledger(t, nil).Reserve(t.Context(), days("IS", day, 0, 1)))
			}
			require.True(t, replaced)
		})
	}
	t.Run("PostgreSQL/table", func(t *testing.T) {
		for _, kind := range []string{"UNLOGGED", "TEMPORARY"} {
			d := postgres(t)
			db := d.open(t, nil)
			db.SetMaxOpenConns(1)
			execSQL(t, db, strings.Replace(sqlledger.PostgreSQLSchema, "CREATE", "CREATE "+kind, 1))
			refused(t, d.ledgerOn(t, db), "the table is unlogged or temporary")
		}
	})
	t.Run("MySQL/table", func(t *testing.T) {
		for _, changed := range []string{
			strings.Replace(sqlledger.MySQLSchema, "CREATE", "CREATE TEMPORARY", 1),
			strings.Replace(sqlledger.MySQLSchema, "InnoDB", "MyISAM", 1),
			strings.Replace(sqlledger.MySQLSchema, "InnoDB", "MEMORY", 1),
		} {
			d := mariadb(t)
			db := d.open(t, nil)
			db.SetMaxOpenConns(1)
			execSQL(t, db, "CREATE TABLE other (a int) ENGINE = InnoDB")
			execSQL(t, db, changed)
			_, err := d.ledgerOn(t, db).Reserve(t.Context(), days("IS", day, 0, 10))
			// MariaDB 11.2 and later list temporary tables in information_schema, so only this reason may be reported.
			require.ErrorContains(t, err, "the database can lose committed data: the table is temporary")
		}
	})
	t.Run("SQLite/journal", func(t *testing.T) {
		for _, mode := range []string{"off", "memory"} {
			d := sqlite3(t)
			d.ledger(t, nil)
			refused(t, d.ledgerOn(t, d.open(t, nil, "PRAGMA journal_mode = "+mode)), "journal_mode is "+mode)
		}
	})
	t.Run("SQLite/memory", func(t *testing.T) {
		sqlite3(t) // skips the test if the build has no driver
		for _, dsn := range []string{
			":memory:", "file::memory:?cache=shared", "file:x?mode=memory&cache=shared", "", "file:/x?vfs=memdb",
		} {
			const why = "it is in memory or temporary"
			d := &database{dialect: sqlledger.SQLite, dsn: dsn}
			db := d.open(t, nil)
			db.SetMaxOpenConns(1)
			execSQL(t, db, sqlledger.SQLiteSchema)
			l := d.ledgerOn(t, db)
			refused(t, l, why)
			require.ErrorContains(t, l.CreateTable(t.Context()), why)
		}
	})
}
