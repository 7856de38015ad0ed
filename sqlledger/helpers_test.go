package sqlledger_test

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
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
	"github.com/dailyserial/serial/sqlledger"
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

// value returns the value of a query that returns one row with one column.
func value[T any](t *testing.T, db *sql.DB, query string) (v T) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(t.Context(), query).Scan(&v), query)
	return v
}

// A database belongs to one test. It is a schema of a PostgreSQL server, a database of a MySQL server, or a file.
type database struct {
	dialect sqlledger.Dialect
	dsn     string
	name    string // name of the schema or the database
}

// each runs a test on every dialect. SERIAL_POSTGRES_DSN and SERIAL_MYSQL_DSN set the servers. By default, the tests
// use servers on the usual ports. If a server is missing, the test is skipped or, with SERIAL_REQUIRE_SQL=1, fails.
func each(t *testing.T, test func(t *testing.T, d *database)) {
	onServers(t, test)
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		test(t, sqlite3(t))
	})
}

// onServers runs a test on every dialect that has a server, and thus has rights, schemas and row locks.
func onServers(t *testing.T, test func(t *testing.T, d *database)) {
	for name, open := range map[string]func(*testing.T) *database{"PostgreSQL": postgres, "MySQL": mariadb} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

func postgres(t *testing.T) *database {
	dsn := cmp.Or(os.Getenv("SERIAL_POSTGRES_DSN"), "postgres://postgres@127.0.0.1:5432/test?sslmode=disable")
	return onServer(t, &database{dialect: sqlledger.PostgreSQL, dsn: dsn}, "CREATE SCHEMA", "DROP SCHEMA", "CASCADE")
}

func mariadb(t *testing.T) *database {
	dsn := cmp.Or(os.Getenv("SERIAL_MYSQL_DSN"), "root@tcp(127.0.0.1:3306)/")
	return onServer(t, &database{dialect: sqlledger.MySQL, dsn: dsn}, "CREATE DATABASE", "DROP DATABASE", "")
}

// sqliteDriver is nil under the race detector; see sqlite_test.go.
var sqliteDriver driver.Driver

func sqlite3(t *testing.T) *database {
	t.Helper()
	if sqliteDriver == nil {
		t.Skip("SQLite is tested only without the race detector")
	}
	return &database{dialect: sqlledger.SQLite, dsn: "file:" + filepath.Join(t.TempDir(), "ledger.db")}
}

func onServer(t *testing.T, d *database, create, drop, how string) *database {
	t.Helper()
	server := d.open(t, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := server.PingContext(ctx); err != nil {
		if os.Getenv("SERIAL_REQUIRE_SQL") == "1" {
			t.Fatalf("SERIAL_REQUIRE_SQL=1: %v", err)
		}
		t.Skipf("no server: %v", err)
	}
	d.name = fmt.Sprintf("sqlledger_%d_%d", os.Getpid(), time.Now().UnixNano())
	execSQL(t, server, create+" "+d.name)
	t.Cleanup(func() {
		require.NoError(t, onlyErr(server.Exec(drop+" "+d.name+" "+how)))
	})
	return d
}

// A statement is the text that is to be executed on a connection.
type statement struct {
	text string
	run  func(text string) error // executes this text or another one
	conn innerConn
}

// A hook is called instead of executing a statement.
type hook func(s *statement) error

// on returns a hook that calls h only for statements that begin with word.
func on(word string, h hook) hook {
	return func(s *statement) error {
		if strings.HasPrefix(s.text, word) {
			return h(s)
		}
		return s.run(s.text)
	}
}

// ask runs a query on the same connection, and returns the value of its only row and column.
func (s *statement) ask(query string) (string, error) {
	rows, err := s.conn.QueryContext(context.Background(), query, nil)
	if err != nil {
		return "", err
	}
	value := make([]driver.Value, 1)
	err = errors.Join(rows.Next(value), rows.Close())
	if bytes, ok := value[0].([]byte); ok {
		return string(bytes), err
	}
	return fmt.Sprint(value[0]), err
}

// open returns a pool of new connections to d, which is closed when the test ends. It executes init on each connection.
func (d *database) open(t *testing.T, h hook, init ...string) *sql.DB {
	t.Helper()
	c := &connector{hook: h, init: init}
	switch d.dialect {
	case sqlledger.PostgreSQL:
		config, err := pgx.ParseConfig(d.dsn)
		require.NoError(t, err)
		if d.name != "" {
			config.RuntimeParams["search_path"] = d.name
		}
		c.connect = stdlib.GetConnector(*config).Connect
	case sqlledger.MySQL:
		config, err := mysql.ParseDSN(d.dsn)
		require.NoError(t, err)
		config.DBName, config.Logger = d.name, &mysql.NopLogger{}
		mc, err := mysql.NewConnector(config)
		require.NoError(t, err)
		c.connect = mc.Connect
	default:
		c.connect = func(context.Context) (driver.Conn, error) { return sqliteDriver.Open(d.dsn) }
	}
	db := sql.OpenDB(c)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// ledger returns a ledger on a new pool, and creates its table.
func (d *database) ledger(t *testing.T, h hook, init ...string) *sqlledger.Ledger {
	t.Helper()
	return newLedger(t, d, d.open(t, h, init...))
}

// days returns a reservation for a series with the calendar "days". All these reservations have the same print mark.
func days(series, period string, above, n int64) serial.Reservation {
	return serial.Reservation{
		Series: series, Period: period, Calendar: "days", Print: "0123456789abcdef", Above: above, N: n,
	}
}

func newLedger(t *testing.T, d *database, db *sql.DB) *sqlledger.Ledger {
	t.Helper()
	l := d.ledgerOn(t, db)
	require.NoError(t, l.CreateTable(t.Context()))
	return l
}

// ledgerOn returns a ledger without creating its table.
func (d *database) ledgerOn(t *testing.T, db *sql.DB, opts ...sqlledger.Option) *sqlledger.Ledger {
	t.Helper()
	l, err := sqlledger.New(db, d.dialect, opts...)
	require.NoError(t, err)
	return l
}

// with returns a copy of d with an additional parameter in its DSN.
func (d *database) with(parameter string) *database {
	e := *d
	e.dsn += map[bool]string{true: "&", false: "?"}[strings.Contains(d.dsn, "?")] + parameter
	return &e
}

// A connector opens connections that call hook instead of executing a statement.
type connector struct {
	connect func(context.Context) (driver.Conn, error)
	hook    hook
	init    []string
}

func (c *connector) Driver() driver.Driver { return nil }

func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	dc, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	inner, ok := dc.(innerConn)
	if !ok {
		return nil, errors.New("the driver does not support contexts")
	}
	for _, query := range c.init {
		if _, err := inner.ExecContext(ctx, query, nil); err != nil {
			return nil, errors.Join(err, dc.Close())
		}
	}
	if c.hook == nil {
		return dc, nil
	}
	return &hookedConn{inner, c.hook}, nil
}

type innerConn interface {
	driver.Conn
	driver.ExecerContext
	driver.QueryerContext
	driver.ConnPrepareContext
	driver.SessionResetter
}

type hookedConn struct {
	innerConn
	hook hook
}

func (c *hookedConn) CheckNamedValue(v *driver.NamedValue) error {
	if checker, ok := c.innerConn.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

// hooked calls the hook of a connection instead of run, which executes a text.
func hooked[T any](c *hookedConn, query string, run func(query string) (T, error)) (r T, err error) {
	err = c.hook(&statement{query, func(query string) (err error) {
		r, err = run(query)
		return err
	}, c.innerConn})
	return r, err
}

func (c *hookedConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return hooked(c, query, func(query string) (driver.Result, error) {
		return c.innerConn.ExecContext(ctx, query, args)
	})
}

func (c *hookedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	r, err := hooked(c, query, func(query string) (driver.Rows, error) {
		return c.innerConn.QueryContext(ctx, query, args)
	})
	if err != nil && r != nil { // the reply is lost
		_, r = r.Close(), nil
	}
	return r, err
}

// database/sql calls PrepareContext if a driver does not take arguments directly.
func (c *hookedConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	return hooked(c, query, func(query string) (driver.Stmt, error) { return c.innerConn.PrepareContext(ctx, query) })
}
