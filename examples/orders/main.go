// Command orders is an HTTP service whose orders have business serial numbers such as IS202110240001. No number is used
// twice, whatever Redis loses and however often a request is repeated. It is a starting point for your own service; see
// README.md.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
	_ "time/tzdata" // -tz works on a host without a zone database, too

	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/sqlledger"
)

// businessType begins every order's number.
const businessType = "IS"

// block is how many numbers the ledger sets aside at a time. If Redis loses its data, at most that many of the day's
// 9,999 numbers are skipped.
const block = 100

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	err := run(ctx, os.Args[1:], os.Stdout, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "orders:", err)
		os.Exit(1)
	}
}

// A config is what the command line and the environment ask for.
type config struct {
	addr     string
	redisURL string // "" for a Redis in memory
	database string // "" for a temporary SQLite file
	protect  string
	zone     *time.Location
}

// parseFlags reads URLs from the environment, too: other users of the host can see arguments, and so a password in
// them.
func parseFlags(args []string) (*config, error) {
	cfg := &config{}
	flags := flag.NewFlagSet("orders", flag.ContinueOnError)
	flags.StringVar(&cfg.addr, "addr", "127.0.0.1:8080", "the `address` to listen on")
	flags.StringVar(&cfg.redisURL, "redis", "",
		"`URL` of Redis; default $ORDERS_REDIS_URL, else one in memory, for demonstration")
	flags.StringVar(&cfg.database, "database", "",
		"postgres://..., \"host=... dbname=...\" or an SQLite file; default $ORDERS_DATABASE, else a temporary file")
	flags.StringVar(&cfg.protect, "protect", "ledger",
		"the protection against issuing numbers twice if Redis loses them: ledger or floor")
	zone := flags.String("tz", "UTC", "the time `zone` whose midnight begins a new day; the same in every process")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	var err error
	flags.Visit(func(f *flag.Flag) {
		if f.Value.String() == "" { // from a shell variable that is not set: nobody asked for a demonstration
			err = errors.Join(err, fmt.Errorf("-%s is empty; give a value, or omit the flag", f.Name))
		}
	})
	if err != nil {
		return nil, err
	}
	cfg.redisURL = cmp.Or(cfg.redisURL, os.Getenv("ORDERS_REDIS_URL"))
	cfg.database = cmp.Or(cfg.database, os.Getenv("ORDERS_DATABASE"))
	cfg.zone, err = time.LoadLocation(*zone)
	return cfg, err
}

// run starts what the command line does not name, for demonstration, and serves until ctx ends.
func run(ctx context.Context, args []string, out io.Writer, log *slog.Logger) error {
	cfg, err := parseFlags(args)
	if err != nil {
		return err
	}
	if cfg.redisURL == "" {
		memory, err := embeddedRedis()
		if err != nil {
			return err
		}
		defer memory.Close()
		cfg.redisURL = "redis://" + memory.Addr()
		_, _ = fmt.Fprintln(out, "Redis in memory, for demonstration:", cfg.redisURL)
	}
	if cfg.database == "" {
		folder, err := os.MkdirTemp("", "orders")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(folder) }()
		cfg.database = filepath.Join(folder, "orders.db")
		_, _ = fmt.Fprintln(out, "SQLite in a temporary file:", cfg.database)
	}
	return cfg.serve(ctx, out, log)
}

// serve connects to Redis and the database, and answers requests until ctx ends.
func (cfg *config) serve(ctx context.Context, out io.Writer, log *slog.Logger) (err error) {
	options, err := redis.ParseURL(cfg.redisURL)
	if err != nil {
		return errors.New("the URL of Redis is not of the form redis://USER:PASSWORD@HOST:PORT/DB") // err may show a password
	}
	rdb := redis.NewClient(options)
	defer func() { err = errors.Join(err, rdb.Close()) }()
	table, err := openTable(ctx, cfg.database)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, table.db.Close()) }()
	gen, err := newGenerator(ctx, rdb, table, cfg.protect, cfg.zone, log)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", cfg.addr)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, `orders on http://%[1]s

curl -i http://%[1]s/orders -H 'X-Forwarded-User: Ada' -H 'Idempotency-Key: first' -d '{"amount_cents": 1250}'
`, listener.Addr())
	return serve(ctx, listener, (&service{gen, table, log}).routes(), log)
}

func serve(ctx context.Context, listener net.Listener, handler http.Handler, log *slog.Logger) error {
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second, // from the first byte of a request; handle gives a body less time
		WriteTimeout:      15 * time.Second, // from the end of the header, so it exceeds ReadTimeout and patience
		IdleTimeout:       time.Minute,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	log.Info("stopping once the requests under way are answered")
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), server.WriteTimeout)
	defer cancel()
	return server.Shutdown(limit)
}

// newGenerator returns the Generator that numbers the orders. It uses the database, but does not contact Redis yet;
// /readyz reports whether Redis responds.
func newGenerator(ctx context.Context, rdb redis.UniversalClient, t *table, protect string, zone *time.Location,
	log *slog.Logger) (*serial.Generator, error) {
	var protection serial.Option
	switch protect {
	case "ledger":
		// The database sets numbers aside before Redis issues them, so Redis may lose everything.
		ledger, err := sqlledger.New(t.db, t.dialect)
		if err != nil {
			return nil, err
		}
		if err := ledger.CreateTable(ctx); err != nil {
			return nil, err
		}
		protection = serial.WithLedger(ledger, block)
	case "floor":
		// This saves a table and a query per block, but protects less; see lastSeq.
		protection = serial.WithFloor(t.lastSeq)
	default:
		return nil, fmt.Errorf("-protect %q: want ledger or floor", protect)
	}
	return serial.New(rdb, serial.WithLocation(zone), protection, serial.WithHooks(serial.Hooks{
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
	}))
}
