// Package numbers makes the Generator that numbers the orders. The service and its command, invoices-serial, share it,
// so the command can do whatever the service's errors ask for.
package numbers

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // zones are known on a host without a zone database, too

	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/sqlledger"
)

const kept = 400 // days for which Redis keeps the counters of orders

// Settings must be the same in all processes.
type Settings struct {
	RedisURL string
	Database string // SQLite file
	Zone     string // name of the time zone whose midnight begins a new day
}

// FromEnvironment returns the settings that the environment names. Only Zone has a default.
func FromEnvironment() Settings {
	return Settings{
		RedisURL: os.Getenv("INVOICES_REDIS_URL"),
		Database: os.Getenv("INVOICES_DATABASE"),
		Zone:     cmp.Or(os.Getenv("INVOICES_TZ"), "UTC"),
	}
}

// A Generator numbers the orders.
type Generator struct {
	*serial.Generator
	Register *sqlledger.Register // why numbers are missing
	Redis    redis.UniversalClient
	DB       *sql.DB
	Zone     *time.Location

	log *slog.Logger
}

// Open connects to Redis and the database, and returns a Generator. It contacts neither of them yet. The caller must
// close the Generator.
func Open(s Settings, log *slog.Logger) (*Generator, error) {
	switch {
	case s.RedisURL == "":
		return nil, errors.New("INVOICES_REDIS_URL is not set")
	case s.Database == "":
		return nil, errors.New("INVOICES_DATABASE is not set")
	}
	zone, err := time.LoadLocation(s.Zone)
	if err != nil {
		return nil, err
	}
	options, err := redis.ParseURL(s.RedisURL)
	if err != nil { // it may show a password
		return nil, errors.New("the URL of Redis is not of the form redis://USER:PASSWORD@HOST:PORT/DB")
	}
	db, err := OpenDatabase(s.Database)
	if err != nil {
		return nil, err
	}
	return New(redis.NewClient(options), db, zone, log)
}

// New returns a Generator. It contacts neither Redis nor the database yet.
func New(rdb redis.UniversalClient, db *sql.DB, zone *time.Location, log *slog.Logger, opts ...serial.Option) (
	*Generator, error) {
	g := &Generator{Redis: rdb, DB: db, Zone: zone, log: log}
	var err error
	if g.Register, err = sqlledger.NewRegister(db, sqlledger.SQLite); err != nil {
		return nil, err
	}
	// Orders are counted by day. If Redis loses a counter, it continues above the stored orders. Numbers that are lost
	// on their way from Redis are explained.
	opts = append(opts, serial.WithLocation(zone), serial.WithRetention(kept), serial.WithFloor(g.lastOrder),
		serial.WithHooks(g.Register.Hooks(g.NotKept)))
	g.Generator, err = serial.New(rdb, opts...)
	return g, err
}

// Close closes the connections to Redis and the database.
func (g *Generator) Close() error { return errors.Join(g.Redis.Close(), g.DB.Close()) }

// OpenDatabase opens an SQLite file. Transactions begin with BEGIN IMMEDIATE: a transaction that reads first and writes
// later would fail at once if another one wrote in between. Writers wait for each other up to the busy timeout, and for
// a connection as long as their contexts allow.
func OpenDatabase(file string) (*sql.DB, error) {
	if !slices.Contains(sql.Drivers(), "sqlite") {
		return nil, errors.New("built with the race detector, and therefore without SQLite")
	}
	db, err := sql.Open("sqlite", "file:"+file+
		"?_txlock=immediate&_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_pragma=foreign_keys(1)")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(4)
	db.SetMaxIdleConns(4)
	return db, nil
}

// lastOrder is the floor for [serial.WithFloor]. Deleted orders count, since their numbers may be on paper, and so do
// numbers that an operator skipped with Raise. Other possible reasons do not: the range of a lost answer reaches up to
// the largest number.
func (g *Generator) lastOrder(ctx context.Context, typ string, start time.Time) (last int64, err error) {
	row := g.DB.QueryRowContext(ctx, "SELECT coalesce(max(seq), 0) FROM orders WHERE day = ?", start.Format(time.DateOnly))
	if err := row.Scan(&last); err != nil {
		return 0, err
	}
	series, err := g.Scheme().Series(typ)
	if err != nil {
		return 0, err
	}
	for e, err := range g.Register.Explanations(ctx, series, start) {
		if err != nil {
			return 0, err
		}
		if !e.Possible || strings.HasPrefix(e.Reason, serial.Raised) {
			last = max(last, e.Last)
		}
	}
	return last, nil
}

// NotKept logs an explanation that could not be stored.
func (g *Generator) NotKept(e serial.Explanation, err error) {
	g.log.Error("an explanation could not be stored", "type", e.Type, "first", e.First, "last", e.Last, "reason", e.Reason,
		"err", err)
}
