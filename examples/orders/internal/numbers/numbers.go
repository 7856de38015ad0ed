// Package numbers makes the Generator that numbers the orders. The service and its command, orders-serial, share it, so
// the command can do whatever the service's errors ask for.
package numbers

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"
	_ "time/tzdata" // zones are known on a host without a zone database, too

	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/sqlledger"
)

// Type begins every order's number.
const Type = "IS"

// block is how many numbers the ledger sets aside at a time. If Redis loses its data, at most that many of the day's
// 9,999 numbers are skipped.
const block = 100

// Settings must be the same in all processes.
type Settings struct {
	RedisURL string
	Database string // postgres://..., "host=... dbname=..." or an SQLite file
	Protect  string // ledger or floor
	Zone     string // name of the time zone whose midnight begins a new day
	Template string // of the numbers
}

// FromEnvironment returns the settings that the environment names, or their defaults. RedisURL and Database have none.
func FromEnvironment() Settings {
	return Settings{
		RedisURL: os.Getenv("ORDERS_REDIS_URL"),
		Database: os.Getenv("ORDERS_DATABASE"),
		Protect:  cmp.Or(os.Getenv("ORDERS_PROTECT"), "ledger"),
		Zone:     cmp.Or(os.Getenv("ORDERS_TZ"), "UTC"),
		Template: cmp.Or(os.Getenv("ORDERS_TEMPLATE"), "{type}{date:yyyyMMdd}{seq:4}"),
	}
}

// A Generator numbers the orders. It keeps its ledger in the database of the orders.
type Generator struct {
	*serial.Generator
	DB *sql.DB

	redis  *redis.Client
	ledger *sqlledger.Ledger // nil with a floor
}

// Open returns a Generator. It contacts neither Redis nor the database yet: if one of them is out of reach, the command
// says what to do. The caller must close the Generator.
func Open(s Settings, log *slog.Logger) (*Generator, error) {
	switch {
	case s.RedisURL == "":
		return nil, errors.New("ORDERS_REDIS_URL is not set")
	case s.Database == "":
		return nil, errors.New("ORDERS_DATABASE is not set")
	}
	zone, err := time.LoadLocation(s.Zone)
	if err != nil {
		return nil, err
	}
	options, err := redis.ParseURL(s.RedisURL)
	if err != nil { // it may show a password
		return nil, errors.New("the URL of Redis is not of the form redis://USER:PASSWORD@HOST:PORT/DB")
	}
	db, dialect, err := openDatabase(s.Database)
	if err != nil {
		return nil, err
	}
	g := &Generator{DB: db, redis: redis.NewClient(options)}
	protection, err := g.protection(s.Protect, dialect)
	if err == nil {
		g.Generator, err = serial.New(g.redis, serial.WithLocation(zone), serial.WithTemplate(s.Template), protection,
			serial.WithHooks(logHooks(log)))
	}
	if err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

// protection returns the option that prevents issuing numbers twice if Redis loses them.
func (g *Generator) protection(name string, dialect sqlledger.Dialect) (serial.Option, error) {
	switch name {
	case "ledger":
		// The database sets numbers aside before Redis issues them, so Redis may lose everything.
		var err error
		if g.ledger, err = sqlledger.New(g.DB, dialect); err != nil {
			return nil, err
		}
		return serial.WithLedger(g.ledger, block), nil
	case "floor":
		// This saves a table and a query per block, but protects less; see lastSeq.
		return serial.WithFloor(g.lastSeq), nil
	}
	return nil, fmt.Errorf("protection %q: want ledger or floor", name)
}

// CreateTable creates the ledger's table, if the Generator has a ledger. The service calls it when it starts.
func (g *Generator) CreateTable(ctx context.Context) error {
	if g.ledger == nil {
		return nil
	}
	return g.ledger.CreateTable(ctx)
}

// Close closes the connections to Redis and the database.
func (g *Generator) Close() error { return errors.Join(g.redis.Close(), g.DB.Close()) }

// logHooks log what an operator may want to know.
func logHooks(log *slog.Logger) serial.Hooks {
	return serial.Hooks{
		Opened: func(ctx context.Context, i serial.OpenedInfo) {
			log.InfoContext(ctx, "a day was opened", "type", i.Type, "start", i.Start, "wait", i.Wait)
		},
		Lost: func(ctx context.Context, i serial.LostInfo) {
			log.WarnContext(ctx, "Redis lost a counter", "type", i.Type, "start", i.Start, "held", i.Held,
				"repaired", i.Repaired)
		},
		NearlyExhausted: func(ctx context.Context, i serial.ExhaustionInfo) {
			log.WarnContext(ctx, "few numbers are left: widen {seq}", "last", i.Last.String(), "used", i.Used, "of", i.Size)
		},
	}
}
