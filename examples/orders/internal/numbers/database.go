package numbers

import (
	"context"
	"database/sql"
	"errors"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/dailyserial/serial/sqlledger"
)

// ErrDatabase means that the settings do not name a database. It never shows a password.
var ErrDatabase = errors.New("invalid database: want postgres://USER:PASSWORD@HOST:PORT/NAME, \"host=HOST port=PORT " +
	"user=USER password=PASSWORD dbname=NAME\", or a file name without =, @ and ://")

// keywords matches what libpq calls a keyword/value string, such as "host=localhost dbname=shop".
var keywords = regexp.MustCompile(`^\s*\w+\s*=`)

// openDatabase opens PostgreSQL or an SQLite file. It does not connect yet.
func openDatabase(dsn string) (*sql.DB, sqlledger.Dialect, error) {
	dialect, driver, connections := sqlledger.PostgreSQL, "pgx", 20
	if strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://") || keywords.MatchString(dsn) {
		if _, err := pgx.ParseConfig(dsn); err != nil {
			return nil, 0, ErrDatabase // err may show part of a password
		}
	} else {
		if strings.Contains(dsn, "://") || strings.Contains(dsn, "@") { // an address of another kind of database
			return nil, 0, ErrDatabase
		}
		// SQLite has one writer at a time, so callers queue for the connection instead.
		dialect, driver, connections = sqlledger.SQLite, "sqlite", 1
		dsn = "file:" + dsn + "?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)"
		if !slices.Contains(sql.Drivers(), driver) {
			return nil, 0, errors.New("built with the race detector, and therefore without SQLite: the database must be " +
				"PostgreSQL")
		}
	}
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return nil, 0, err
	}
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	return db, dialect, nil
}

// lastSeq is a floor for [serial.WithFloor]: it returns the highest sequence of a day, including deleted orders. The
// table of orders has one type only.
//
// It does not know numbers that are issued but not committed yet. If Redis loses everything at that moment, they are
// issued again, and the order that reaches the table second has to take another number. This is harmless here, because
// nobody learns a number before its order is stored. If numbers are printed or sent earlier, use the ledger.
func (g *Generator) lastSeq(ctx context.Context, _ string, start time.Time) (last int64, err error) {
	row := g.DB.QueryRowContext(ctx, "SELECT coalesce(max(seq), 0) FROM orders WHERE day = $1",
		start.Format(time.DateOnly))
	err = row.Scan(&last)
	return last, err
}
