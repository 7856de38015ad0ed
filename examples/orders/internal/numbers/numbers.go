// Package numbers creates the Generator of order numbers. The service and its command, orders-serial, share this
// package, so that both have the same settings.
package numbers

import (
	"cmp"
	"database/sql"
	"errors"
	"log/slog"
	"os"
	"strings"
	"time"
	_ "time/tzdata" // time zone database for hosts without one

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/sqlledger"
)

// Type is the beginning of every order number.
const Type = "IS"

// block is the count of numbers that the ledger reserves at a time. Each time Redis loses its data, at most this many
// of the day's 9,999 numbers are skipped.
const block = 100

// A Generator issues order numbers. Its ledger is in the database of the orders.
type Generator struct {
	*serial.Generator
	DB     *sql.DB
	Ledger *sqlledger.Ledger
}

// Open returns a Generator with the settings in the environment, which must be the same for all processes. It does not
// connect to Redis or the database. So the command also works while one of them is down, and can print the cause.
func Open(log *slog.Logger) (*Generator, error) {
	zone, err := time.LoadLocation(cmp.Or(os.Getenv("ORDERS_TZ"), "UTC")) // zone in which days begin at midnight
	if err != nil {
		return nil, err
	}
	options, err := redis.ParseURL(os.Getenv("ORDERS_REDIS_URL"))
	if err != nil { // err may contain the password
		return nil, errors.New("ORDERS_REDIS_URL: want redis://USER:PASSWORD@HOST:PORT/DB")
	}
	db, dialect, err := openDatabase(os.Getenv("ORDERS_DATABASE"))
	if err != nil {
		return nil, err
	}
	ledger, err := sqlledger.New(db, dialect)
	if err != nil {
		return nil, err
	}
	// The database reserves numbers before Redis issues them. If Redis loses its data, no number is issued twice.
	gen, err := serial.New(redis.NewClient(options), serial.WithLocation(zone), serial.WithLedger(ledger, block),
		serial.WithHooks(serial.LogHooks(log)))
	return &Generator{gen, db, ledger}, err
}

// openDatabase opens PostgreSQL if name is a URL, and otherwise an SQLite file.
func openDatabase(name string) (*sql.DB, sqlledger.Dialect, error) {
	switch {
	case name == "":
		return nil, 0, errors.New("ORDERS_DATABASE is not set")
	case strings.Contains(name, "://"):
		db, err := sql.Open("pgx", name)
		if err == nil {
			db.SetMaxOpenConns(10)
		}
		return db, sqlledger.PostgreSQL, err
	}
	db, err := sql.Open("sqlite", "file:"+name+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)")
	return db, sqlledger.SQLite, err
}
