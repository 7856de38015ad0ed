package gapless_test

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/gapless"
)

// onlyErr returns the error of a call and drops its result.
func onlyErr[T any](_ T, err error) error { return err }

// requireResult returns a function that takes the results of a call, and requires that the call has succeeded with
// want.
func requireResult[T any](t testing.TB, want T, message ...any) func(got T, err error) {
	return func(got T, err error) {
		t.Helper()
		require.NoError(t, err, message...)
		require.Equal(t, want, got, message...)
	}
}

// requireSeq returns a function that takes the results of a call, and requires that the call has succeeded with a
// number that has the sequence want.
func requireSeq(t testing.TB, want int64, message ...any) func(n serial.Number, err error) {
	return func(n serial.Number, err error) {
		t.Helper()
		requireResult(t, want, message...)(n.Seq, err)
	}
}

// A database belongs to one test. It is a schema of a PostgreSQL server, a database of a MySQL server, or a file.
type database struct {
	dialect gapless.Dialect
	dsn     string
	name    string // name of the schema or the database
	comment string // text that MariaDB must read as the beginning of a comment, see Generator.AsOn
}

// each runs a test on every dialect. SERIAL_POSTGRES_DSN and SERIAL_MYSQL_DSN set the servers. By default, the tests
// use servers on the usual ports. If a server is missing, the test is skipped or, with SERIAL_REQUIRE_SQL=1, fails.
func each(t *testing.T, test func(t *testing.T, d *database)) {
	t.Run("PostgreSQL", func(t *testing.T) { test(t, postgreSQL(t)) })
	t.Run("MySQL", func(t *testing.T) { test(t, mariaDB(t)) })
	t.Run("SQLite", func(t *testing.T) { test(t, inFile(t)) })
}

// kinds runs a test with run, and again on MariaDB with the statements as MariaDB 10.4 and MySQL read them.
func kinds(t *testing.T, run func(*testing.T, func(*testing.T, *database)), test func(t *testing.T, d *database)) {
	run(t, test)
	for name, comment := range map[string]string{"like MariaDB 10.4": "/*M!100500", "like MySQL": "/*M!"} {
		t.Run(name, func(t *testing.T) {
			d := mariaDB(t)
			d.comment = comment
			test(t, d)
		})
	}
}

// servers runs a test on every dialect that allows more than one writer.
func servers(t *testing.T, test func(t *testing.T, d *database)) {
	each(t, func(t *testing.T, d *database) {
		if d.dialect == gapless.SQLite {
			t.Skip("has one writer")
		}
		test(t, d)
	})
}

func postgreSQL(t testing.TB) *database {
	dsn := cmp.Or(os.Getenv("SERIAL_POSTGRES_DSN"), "postgres://postgres@127.0.0.1:5432/test?sslmode=disable")
	return onServer(t, &database{dialect: gapless.PostgreSQL, dsn: dsn}, "CREATE SCHEMA", "DROP SCHEMA", "CASCADE")
}

func mariaDB(t testing.TB) *database {
	dsn := cmp.Or(os.Getenv("SERIAL_MYSQL_DSN"), "root@tcp(127.0.0.1:3306)/")
	return onServer(t, &database{dialect: gapless.MySQL, dsn: dsn}, "CREATE DATABASE", "DROP DATABASE", "")
}

// sqliteBusy is the parameter of SQLite's driver for a busy timeout.
var sqliteBusy string

func inFile(t testing.TB) *database {
	t.Helper()
	return &database{dialect: gapless.SQLite, dsn: "file:" + filepath.Join(t.TempDir(), "test.db") +
		"?_txlock=immediate&" + sqliteBusy}
}

func onServer(t testing.TB, d *database, create, drop, how string) *database {
	t.Helper()
	server := d.open(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := server.PingContext(ctx); err != nil {
		skip(t, "no server: %v", err)
	}
	d.name = fmt.Sprintf("gapless_%d_%d", os.Getpid(), time.Now().UnixNano())
	execSQL(t, server, create+" "+d.name)
	t.Cleanup(func() {
		// A transaction may still be in progress although its call was canceled.
		require.Eventually(t, func() bool {
			_, err := server.Exec(drop + " " + d.name + " " + how)
			return err == nil
		}, 30*time.Second, 50*time.Millisecond)
	})
	return d
}

// skip skips a test that the server cannot run. With SERIAL_REQUIRE_SQL=1, the test fails instead.
func skip(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("SERIAL_REQUIRE_SQL") == "1" {
		t.Fatalf("SERIAL_REQUIRE_SQL=1: "+format, args...)
	}
	t.Skipf(format, args...)
}

// execSQL executes a statement on a database or in a transaction.
func execSQL(t testing.TB, db interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}, query string, args ...any) {
	t.Helper()
	require.NoError(t, onlyErr(db.ExecContext(t.Context(), query, args...)), query)
}

// with returns a copy of d with an additional parameter in its DSN.
func (d *database) with(parameter string) *database {
	e := *d
	if e.dsn += "?"; strings.Count(e.dsn, "?") > 1 {
		e.dsn = d.dsn + "&"
	}
	e.dsn += parameter
	return &e
}

// open returns a pool of new connections to d, which is closed when the test ends.
func (d *database) open(t testing.TB) (db *sql.DB) {
	t.Helper()
	switch d.dialect {
	case gapless.PostgreSQL:
		config, err := pgx.ParseConfig(d.dsn)
		require.NoError(t, err)
		if d.name != "" {
			config.RuntimeParams["search_path"] = d.name
			config.RuntimeParams["application_name"] = d.name
		}
		db = stdlib.OpenDB(*config)
	case gapless.MySQL:
		config, err := mysql.ParseDSN(d.dsn)
		require.NoError(t, err)
		config.DBName, config.Logger = d.name, &mysql.NopLogger{} // tests break connections
		connector, err := mysql.NewConnector(config)
		require.NoError(t, err)
		db = sql.OpenDB(connector)
	default:
		var err error
		db, err = sql.Open("sqlite", d.dsn)
		require.NoError(t, err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// generator returns a generator and creates its tables.
func (d *database) generator(t testing.TB, db *sql.DB, opts ...serial.Option) *gapless.Generator {
	t.Helper()
	return d.generatorWith(t, db, opts)
}

// generatorWith does what generator does, with options of this package.
func (d *database) generatorWith(
	t testing.TB, db *sql.DB, opts []serial.Option, options ...gapless.Option,
) *gapless.Generator {
	t.Helper()
	g, err := gapless.New(d.dialect, scheme(t, opts...), options...)
	require.NoError(t, err)
	require.NoError(t, g.CreateTable(t.Context(), db))
	if d.comment != "" {
		g.AsOn(d.comment)
	}
	return g
}

// start returns a pool of new connections to d, and a generator whose tables have been created.
func (d *database) start(t testing.TB, opts ...serial.Option) (*sql.DB, *gapless.Generator) {
	t.Helper()
	db := d.open(t)
	return db, d.generator(t, db, opts...)
}

// scheme returns a scheme in UTC, unless opts set another time zone.
func scheme(t testing.TB, opts ...serial.Option) *serial.Scheme {
	t.Helper()
	s, err := serial.NewScheme(append([]serial.Option{serial.WithLocation(time.UTC)}, opts...)...)
	require.NoError(t, err)
	return s
}

// begin begins a transaction. It is rolled back when the test ends, if it is still open then.
func begin(t testing.TB, db *sql.DB) *sql.Tx {
	t.Helper()
	return beginAt(t, db, sql.LevelDefault)
}

// beginAt does what begin does, at the given isolation level.
func beginAt(t testing.TB, db *sql.DB, level sql.IsolationLevel) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// commits runs f in a transaction and commits it.
func commits(t testing.TB, db *sql.DB, f func(tx *sql.Tx)) {
	t.Helper()
	tx := begin(t, db)
	f(tx)
	require.NoError(t, tx.Commit())
}

// inTx runs f in a transaction, and commits it unless f returns an error.
func inTx(ctx context.Context, db *sql.DB, level sql.IsolationLevel, f func(tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: level})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := f(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// clock returns the time of the database's clock.
func (d *database) clock(t testing.TB, db *sql.DB) time.Time {
	t.Helper()
	var micros int64
	require.NoError(t, db.QueryRowContext(t.Context(), map[gapless.Dialect]string{
		gapless.PostgreSQL: "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
		gapless.MySQL:      "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))",
		gapless.SQLite:     "SELECT strftime('%s', 'now') * 1000000 + substr(strftime('%f', 'now'), 4) * 1000",
	}[d.dialect]).Scan(&micros))
	return time.UnixMicro(micros)
}

// noon returns a time zone in which it is noon by the database's clock, so that no day ends during a test.
func (d *database) noon(t testing.TB, db *sql.DB) *time.Location {
	t.Helper()
	return time.FixedZone("noon", (12-d.clock(t, db).UTC().Hour())*3600)
}

// readCommitted returns READ COMMITTED or, for SQLite, its only isolation level.
func (d *database) readCommitted() sql.IsolationLevel {
	if d.dialect == gapless.SQLite {
		return sql.LevelDefault
	}
	return sql.LevelReadCommitted
}

// connection returns the ID that the server has given to a transaction's connection, or 0 on SQLite.
func (d *database) connection(t testing.TB, tx *sql.Tx) (id int64) {
	t.Helper()
	query := map[gapless.Dialect]string{gapless.PostgreSQL: "SELECT pg_backend_pid()",
		gapless.MySQL: "SELECT connection_id()", gapless.SQLite: "SELECT 0"}[d.dialect]
	require.NoError(t, tx.QueryRowContext(t.Context(), query).Scan(&id))
	return id
}

// kill ends a connection and returns when the server has released its locks.
func (d *database) kill(t testing.TB, db *sql.DB, id int64) {
	t.Helper()
	if d.dialect == gapless.PostgreSQL {
		execSQL(t, db, fmt.Sprintf("SELECT pg_terminate_backend(%d, 30000)", id))
		return
	}
	execSQL(t, db, fmt.Sprint("KILL ", id))
	require.Eventually(t, func() bool {
		var alive bool
		err := db.QueryRowContext(t.Context(), fmt.Sprintf("SELECT count(*) > 0 FROM information_schema.processlist "+
			"WHERE id = %d", id)).Scan(&alive)
		return err == nil && !alive
	}, 30*time.Second, time.Millisecond)
}

// waits reports whether a connection is waiting for a lock.
func (d *database) waits(t testing.TB, db *sql.DB, id int64) (waits bool) {
	t.Helper()
	if d.dialect == gapless.PostgreSQL {
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT coalesce(max(wait_event_type), '') = 'Lock' "+
			"FROM pg_stat_activity WHERE pid = $1", id).Scan(&waits))
		return waits
	}
	// The content of the tables in information_schema is up to 100 ms old, so they cannot be used here.
	var engine, name, status string
	require.NoError(t, db.QueryRowContext(t.Context(), "SHOW ENGINE INNODB STATUS").Scan(&engine, &name, &status))
	for transaction := range strings.SplitSeq(status, "---TRANSACTION ") {
		if strings.Contains(transaction, fmt.Sprintf(" thread id %d,", id)) {
			return strings.Contains(transaction, "LOCK WAIT")
		}
	}
	return false
}

// repeatable reports whether err was caused only by concurrent transactions, so that the transaction can be repeated.
func repeatable(err error) bool {
	var state *pgconn.PgError
	var number *mysql.MySQLError
	return errors.As(err, &state) && (state.Code == "40001" || state.Code == "40P01") ||
		errors.As(err, &number) && number.Number == 1213
}

// october returns the beginning of the given day of October 2021 in UTC.
func october(day int) time.Time { return time.Date(2021, 10, day, 0, 0, 0, 0, time.UTC) }

// hooked is a Tx that calls hook before each statement. The hook can change the statement, and make it fail unless it
// is a query.
type hooked struct {
	*sql.Tx
	hook func(query string, returnsRows bool) (string, error)
}

func (tx *hooked) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	query, err := tx.hook(query, false)
	if err != nil {
		return nil, err
	}
	return tx.Tx.ExecContext(ctx, query, args...)
}

func (tx *hooked) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	query, _ = tx.hook(query, true)
	return tx.Tx.QueryRowContext(ctx, query, args...)
}

func (tx *hooked) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	query, _ = tx.hook(query, true)
	return tx.Tx.QueryContext(ctx, query, args...)
}

// counting returns a Tx that counts its statements.
func counting(tx *sql.Tx, statements *int) *hooked {
	return &hooked{tx, func(query string, _ bool) (string, error) {
		*statements++
		return query, nil
	}}
}
