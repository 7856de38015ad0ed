// Command orders is an HTTP service whose orders have business serial numbers such as IS202110240001. No number is used
// twice, whatever Redis loses and however often a request is repeated. It is a starting point for your own service; see
// README.md.
package main

import (
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

	"github.com/dailyserial/serial/examples/orders/internal/numbers"
)

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
	addr             string
	numbers.Settings // without RedisURL, a Redis in memory; without Database, a temporary SQLite file
}

// parseFlags lets flags take precedence over the environment. A URL with a password belongs in the environment, since
// other users of the host can see arguments.
func parseFlags(args []string) (*config, error) {
	cfg := &config{addr: "127.0.0.1:8080", Settings: numbers.FromEnvironment()}
	flags := flag.NewFlagSet("orders", flag.ContinueOnError)
	add := func(value *string, name, usage string) {
		flags.Func(name, usage, func(given string) error {
			if *value = given; given == "" { // from a shell variable that is not set: nobody asked for a demonstration
				return errors.New("give a value, or omit the flag")
			}
			return nil
		})
	}
	add(&cfg.addr, "addr", "the `address` to listen on; default "+cfg.addr)
	add(&cfg.RedisURL, "redis", "`URL` of Redis; default $ORDERS_REDIS_URL, else one in memory, for demonstration")
	add(&cfg.Database, "database",
		"postgres://..., \"host=... dbname=...\" or an SQLite `file`; default $ORDERS_DATABASE, else a temporary file")
	add(&cfg.Protect, "protect", "the `protection` against issuing numbers twice if Redis loses them: ledger or floor; "+
		"default $ORDERS_PROTECT, else ledger")
	add(&cfg.Zone, "tz", "the time `zone` whose midnight begins a new day; the same in every process; "+
		"default $ORDERS_TZ, else UTC")
	add(&cfg.Template, "template", "the `template` of the numbers; the same in every process; "+
		"default $ORDERS_TEMPLATE, else {type}{date:yyyyMMdd}{seq:4}")
	return cfg, flags.Parse(args)
}

// run starts what the command line does not name, for demonstration, and serves until ctx ends.
func run(ctx context.Context, args []string, out io.Writer, log *slog.Logger) error {
	cfg, err := parseFlags(args)
	if err != nil {
		return err
	}
	if cfg.RedisURL == "" {
		memory, err := embeddedRedis()
		if err != nil {
			return err
		}
		defer memory.Close()
		cfg.RedisURL = "redis://" + memory.Addr()
		_, _ = fmt.Fprintln(out, "Redis in memory, for demonstration:", cfg.RedisURL)
	}
	if cfg.Database == "" {
		folder, err := os.MkdirTemp("", "orders")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(folder) }()
		cfg.Database = filepath.Join(folder, "orders.db")
		_, _ = fmt.Fprintln(out, "SQLite in a temporary file:", cfg.Database)
	}
	return cfg.serve(ctx, out, log)
}

// serve connects to Redis and the database, and answers requests until ctx ends.
func (cfg *config) serve(ctx context.Context, out io.Writer, log *slog.Logger) (err error) {
	gen, err := numbers.Open(cfg.Settings, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, gen.Close()) }()
	orders, err := newTable(ctx, gen.DB)
	if err != nil {
		return err
	}
	if err := gen.CreateTable(ctx); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", cfg.addr)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, `orders on http://%[1]s

curl -i http://%[1]s/orders -H 'X-Forwarded-User: Ada' -H 'Idempotency-Key: first' -d '{"amount_cents": 1250}'
`, listener.Addr())
	return serve(ctx, listener, (&service{gen.Generator, orders, log}).routes(), log)
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
