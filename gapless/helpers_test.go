package gapless_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/gapless"
)

// errOf returns the error of a call.
func errOf[T any](_ T, err error) error { return err }

// requireResult requires that the call whose results follow succeeds with want.
func requireResult[T any](t testing.TB, want T, message ...any) func(got T, err error) {
	return func(got T, err error) {
		t.Helper()
		require.NoError(t, err, message...)
		require.Equal(t, want, got, message...)
	}
}

// requireSeq requires that the call whose results follow succeeds with a number of this sequence.
func requireSeq(t testing.TB, want int64, message ...any) func(n serial.Number, err error) {
	return func(n serial.Number, err error) {
		t.Helper()
		requireResult(t, want, message...)(n.Seq, err)
	}
}

// A database is one test's own: a schema of a PostgreSQL server, a database of a MySQL server, or a file.
type database struct {
	dialect gapless.Dialect
	dsn     string
	name    string // of the schema or the database
	comment string // what MariaDB is to read as the beginning of a comment, see Generator.AsOn
}

// each runs a test on every dialect. SERIAL_POSTGRES_DSN and SERIAL_MYSQL_DSN name the servers; by default, the usual
// ports are tried. With SERIAL_REQUIRE_SQL=1, a missing server is a failure.
func each(t *testing.T, test func(t *testing.T, d *database)) {
	t.Run("PostgreSQL", func(t *testing.T) { test(t, postgreSQL(t)) })
	t.Run("MySQL", func(t *testing.T) { test(t, mariaDB(t)) })
	t.Run("SQLite", func(t *testing.T) { test(t, inFile(t)) })
}

// kinds runs a test as run does, and on MariaDB also with the statements that MariaDB 10.4 and MySQL see.
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

// servers runs a test on every dialect with more than one writer.
func servers(t *testing.T, test func(t *testing.T, d *database)) {
	each(t, func(t *testing.T, d *database) {
		if d.dialect == gapless.SQLite {
			t.Skip("has one writer")
		}
		test(t, d)
	})
}

func postgreSQL(t testing.TB) *database {
	dsn := env("SERIAL_POSTGRES_DSN", "postgres://postgres@127.0.0.1:5432/test?sslmode=disable")
	return onServer(t, &database{dialect: gapless.PostgreSQL, dsn: dsn}, "CREATE SCHEMA", "DROP SCHEMA", "CASCADE")
}

func mariaDB(t testing.TB) *database {
	dsn := env("SERIAL_MYSQL_DSN", "root@tcp(127.0.0.1:3306)/")
	return onServer(t, &database{dialect: gapless.MySQL, dsn: dsn}, "CREATE DATABASE", "DROP DATABASE", "")
}

// The driver of SQLite, and its parameter for a busy timeout.
var (
	sqliteDriver driver.Driver
	sqliteBusy   string
)

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
		// A transaction whose caller has left may still be in progress.
		require.Eventually(t, func() bool {
			_, err := server.Exec(drop + " " + d.name + " " + how)
			return err == nil
		}, 30*time.Second, 50*time.Millisecond)
	})
	return d
}

// skip skips a test that the server cannot run. With SERIAL_REQUIRE_SQL=1, that is a failure.
func skip(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("SERIAL_REQUIRE_SQL") == "1" {
		t.Fatalf("SERIAL_REQUIRE_SQL=1: "+format, args...)
	}
	t.Skipf(format, args...)
}

func env(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}

// countRows counts the rows of both tables.
const countRows = "SELECT (SELECT count(*) FROM serial_gapless) + (SELECT count(*) FROM serial_gapless_series)"

func execSQL(t testing.TB, db *sql.DB, query string, args ...any) {
	t.Helper()
	require.NoError(t, errOf(db.ExecContext(t.Context(), query, args...)), query)
}

// with returns d with another parameter in its DSN.
func (d *database) with(parameter string) *database {
	e := *d
	if e.dsn += "?"; strings.Count(e.dsn, "?") > 1 {
		e.dsn = d.dsn + "&"
	}
	e.dsn += parameter
	return &e
}

// open returns new connections to d, closed when the test ends.
func (d *database) open(t testing.TB) *sql.DB {
	t.Helper()
	db, err := d.connect()
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func (d *database) connect() (*sql.DB, error) {
	switch d.dialect {
	case gapless.PostgreSQL:
		config, err := pgx.ParseConfig(d.dsn)
		if err != nil {
			return nil, err
		}
		if d.name != "" {
			config.RuntimeParams["search_path"] = d.name
			config.RuntimeParams["application_name"] = d.name
		}
		return stdlib.OpenDB(*config), nil
	case gapless.MySQL:
		config, err := mysql.ParseDSN(d.dsn)
		if err != nil {
			return nil, err
		}
		config.DBName = d.name
		config.Logger = silent{}
		connector, err := mysql.NewConnector(config)
		if err != nil {
			return nil, err
		}
		return sql.OpenDB(connector), nil
	default:
		return sql.OpenDB(fileConnector(d.dsn)), nil
	}
}

// silent discards messages about the connections that a test breaks.
type silent struct{}

func (silent) Print(...any) {}

type fileConnector string

func (c fileConnector) Connect(context.Context) (driver.Conn, error) {
	return sqliteDriver.Open(string(c))
}
func (c fileConnector) Driver() driver.Driver { return sqliteDriver }

// generator returns a generator and creates its tables.
func (d *database) generator(t testing.TB, db *sql.DB, opts ...serial.Option) *gapless.Generator {
	t.Helper()
	g, err := gapless.New(d.dialect, scheme(t, opts...))
	require.NoError(t, err)
	require.NoError(t, g.CreateTable(t.Context(), db))
	if d.comment != "" {
		g.AsOn(d.comment)
	}
	return g
}

// start returns new connections to d, and a generator whose tables exist.
func (d *database) start(t testing.TB, opts ...serial.Option) (*sql.DB, *gapless.Generator) {
	t.Helper()
	db := d.open(t)
	return db, d.generator(t, db, opts...)
}

// scheme is in UTC unless opts say otherwise.
func scheme(t testing.TB, opts ...serial.Option) *serial.Scheme {
	t.Helper()
	s, err := serial.NewScheme(append([]serial.Option{serial.WithLocation(time.UTC)}, opts...)...)
	require.NoError(t, err)
	return s
}

// begin begins a transaction that is rolled back when the test ends, unless it has ended before.
func begin(t testing.TB, db *sql.DB) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
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

// inTx runs f in a transaction, and commits it unless f fails.
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

// date is a day's noon in UTC.
func date(t testing.TB, day string) time.Time {
	t.Helper()
	at, err := time.Parse("2006-01-02", day)
	require.NoError(t, err)
	return at.Add(12 * time.Hour)
}

// clock reads the database's clock.
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

// noon returns a time zone in which it is noon by the database's clock, so no day ends during a test.
func (d *database) noon(t testing.TB, db *sql.DB) *time.Location {
	t.Helper()
	return time.FixedZone("noon", (12-d.clock(t, db).UTC().Hour())*3600)
}

// waiting requires that n transactions come to wait for a lock. SQLite does not report this.
func (d *database) waiting(t testing.TB, db *sql.DB, n int) {
	t.Helper()
	if d.dialect == gapless.SQLite {
		return
	}
	require.Eventually(t, func() bool { return d.waiters(t, db) == n }, 30*time.Second, d.tick())
}

// waiters counts the transactions that wait for a lock.
func (d *database) waiters(t testing.TB, db *sql.DB) (found int) {
	t.Helper()
	query := "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = '" + d.name + "'"
	switch d.dialect {
	case gapless.MySQL:
		query = "SELECT count(*) FROM information_schema.innodb_trx t JOIN information_schema.processlist p ON p.id = " +
			"t.trx_mysql_thread_id WHERE t.trx_state = 'LOCK WAIT' AND p.db = '" + d.name + "'"
	case gapless.SQLite:
		return 0
	}
	require.NoError(t, db.QueryRowContext(t.Context(), query).Scan(&found))
	return found
}

// tick is how often waiters may be asked: InnoDB renews its list if nobody has asked for 100 ms, and another process
// may test on the same server.
func (d *database) tick() time.Duration {
	if d.dialect == gapless.MySQL {
		return 250 * time.Millisecond
	}
	return 10 * time.Millisecond
}
