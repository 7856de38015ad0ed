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
		require.ErrorContains(t, err, "sqlledger: reserve: the database can lose committed data: "+why)
	}
	// The tests must not change the configuration of a server, so they change the settings in the text of the query.
	const binlog = "@@GLOBAL.log_bin AND @@GLOBAL.sync_binlog"
	for _, s := range []struct {
		open                func(*testing.T) *database
		setting, value, why string
	}{
		{postgres, "current_setting('fsync')", "'off'", "fsync is off"},
		{mariadb, "@@GLOBAL.innodb_flush_log_at_trx_commit", "2", "innodb_flush_log_at_trx_commit is not 1"},
		{mariadb, binlog, "1 AND 0", "log_bin is on and sync_binlog is not 1"},
		{mariadb, binlog, "1 AND 1", ""},
		{mariadb, binlog, "0 AND 0", ""},
	} {
		t.Run(fmt.Sprintf("%s is %s", s.setting, s.value), func(t *testing.T) {
			d := s.open(t)
			replaced := false
			l := d.ledger(t, func(st *statement) error {
				text := strings.Replace(st.text, s.setting, s.value, 1)
				replaced = replaced || text != st.text
				return st.run(text)
			})
			if s.why != "" {
				refused(t, l, s.why)
				l = d.ledger(t, nil)
			}
			requireResult(t, int64(0))(l.Reserve(t.Context(), days("IS", day, 0, 1)))
			require.True(t, replaced)
		})
	}
	file := func(dsn string) func(*testing.T) *database {
		return func(t *testing.T) *database {
			sqlite3(t) // skips the test if the build has no driver
			return &database{dialect: sqlledger.SQLite, dsn: dsn}
		}
	}
	mysqlTable := func(old, changed string) []string {
		return []string{"CREATE TABLE other (a int) ENGINE = InnoDB", strings.Replace(sqlledger.MySQLSchema, old, changed, 1)}
	}
	unlogged := strings.Replace(sqlledger.PostgreSQLSchema, "CREATE", "CREATE UNLOGGED", 1)
	// MariaDB 11.2 and later list temporary tables in information_schema, so only one reason may be reported.
	const notLogged, temporary = "the table is unlogged or temporary", "the table is temporary"
	const inMemory = "it is in memory or temporary"
	for i, s := range []struct {
		open   func(*testing.T) *database
		why    string
		before []string // statements on the connection of the ledger
	}{
		{postgres, notLogged, []string{unlogged}},
		{postgres, notLogged, []string{strings.Replace(sqlledger.PostgreSQLSchema, "CREATE", "CREATE TEMPORARY", 1)}},
		// A temporary table cannot hide the catalog tables that the statements read, either.
		{postgres, notLogged, []string{unlogged, "CREATE TEMPORARY TABLE pg_class AS " +
			"SELECT oid, relnamespace, 'p'::\"char\" AS relpersistence FROM pg_class"}},
		{mariadb, temporary, mysqlTable("CREATE", "CREATE TEMPORARY")},
		{mariadb, temporary, mysqlTable("InnoDB", "MyISAM")},
		{mariadb, temporary, mysqlTable("InnoDB", "MEMORY")},
		{sqlite3, "journal_mode is off", []string{sqlledger.SQLiteSchema, "PRAGMA journal_mode = off"}},
		{sqlite3, "journal_mode is memory", []string{sqlledger.SQLiteSchema, "PRAGMA journal_mode = memory"}},
		{file(":memory:"), inMemory, []string{sqlledger.SQLiteSchema}},
		{file("file::memory:?cache=shared"), inMemory, []string{sqlledger.SQLiteSchema}},
		{file("file:x?mode=memory&cache=shared"), inMemory, []string{sqlledger.SQLiteSchema}},
		{file(""), inMemory, []string{sqlledger.SQLiteSchema}},
		{file("file:/x?vfs=memdb"), inMemory, []string{sqlledger.SQLiteSchema}},
	} {
		t.Run(fmt.Sprint(s.why, " ", i), func(t *testing.T) {
			d := s.open(t)
			db := d.open(t, nil)
			db.SetMaxOpenConns(1)
			execSQL(t, db, s.before...)
			l := d.ledgerOn(t, db)
			refused(t, l, s.why)
			if s.why == inMemory {
				require.ErrorContains(t, l.CreateTable(t.Context()), s.why)
			}
		})
	}
}
