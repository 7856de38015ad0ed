// Command invoices is an HTTP service that numbers two kinds of documents: orders from Redis, fast and with gaps, and
// invoices from the database, in the invoice's own transaction and without gaps. Its pages below /numbers/ account for
// every number. See README.md.
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

	"github.com/alicebob/miniredis/v2"

	"github.com/dailyserial/serial/examples/invoices/internal/numbers"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	err := run(ctx, os.Args[1:], os.Stdout, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "invoices:", err)
		os.Exit(1)
	}
}

// A config is what the command line and the environment ask for.
type config struct {
	numbers.Settings // without RedisURL, a Redis in memory; without Database, a temporary SQLite file

	addr  string
	users access
	demo  *miniredis.Miniredis // gets sample data; nil if Redis or the database is named
}

func parseFlags(args []string) (*config, error) {
	cfg := &config{Settings: numbers.FromEnvironment()}
	flags := flag.NewFlagSet("invoices", flag.ContinueOnError)
	flags.StringVar(&cfg.addr, "addr", "127.0.0.1:8080", "the `address` to listen on")
	set := func(value *string) func(string) error {
		return func(given string) error { *value = given; return nil }
	}
	flags.Func("redis", "`URL` of Redis; default $INVOICES_REDIS_URL, else one in memory, for demonstration",
		set(&cfg.RedisURL))
	flags.Func("database", "SQLite `file`; default $INVOICES_DATABASE, else a temporary one", set(&cfg.Database))
	flags.Func("tz", "the time `zone` whose midnight begins a new day; the same in every process; "+
		"default $INVOICES_TZ, else UTC", set(&cfg.Zone))
	flags.StringVar(&cfg.users.header, "user-header", "X-Forwarded-User",
		"the `header` in which the login proxy passes the name of the user, who may explain numbers")
	flags.StringVar(&cfg.users.origin, "origin", "",
		"the `origin` under which browsers reach the login proxy, such as https://numbers.example.com; needed if the proxy "+
			"changes the Host header")
	return cfg, flags.Parse(args)
}

// run starts what the command line does not name, for demonstration, and serves until ctx ends.
func run(ctx context.Context, args []string, out io.Writer, log *slog.Logger) error {
	cfg, err := parseFlags(args)
	if err != nil {
		return err
	}
	var memory *miniredis.Miniredis
	if cfg.RedisURL == "" {
		if memory, err = embeddedRedis(); err != nil {
			return err
		}
		defer memory.Close()
		cfg.RedisURL = "redis://" + memory.Addr()
		_, _ = fmt.Fprintln(out, "Redis in memory, for demonstration:", cfg.RedisURL)
	}
	if cfg.Database == "" {
		folder, err := os.MkdirTemp("", "invoices")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(folder) }()
		cfg.Database = filepath.Join(folder, "invoices.db")
		_, _ = fmt.Fprintln(out, "SQLite in a temporary file:", cfg.Database)
		if memory != nil {
			cfg.demo, cfg.users.user = memory, "demo" // nobody is behind a proxy here
		}
	}
	return cfg.serve(ctx, out, log)
}

// serve connects to Redis and the database, and answers requests until ctx ends.
func (cfg *config) serve(ctx context.Context, out io.Writer, log *slog.Logger) (err error) {
	orders, err := numbers.Open(cfg.Settings, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, orders.Close()) }()
	s, err := newService(ctx, orders, log)
	if err != nil {
		return err
	}
	handler, err := s.routes(cfg.users)
	if err != nil {
		return err
	}
	if cfg.demo != nil {
		if err := sample(ctx, cfg.demo, s, time.Now()); err != nil {
			return err
		}
	}
	listener, err := net.Listen("tcp", cfg.addr)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, invitation, listener.Addr())
	err = serve(ctx, listener, handler, log)
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	return errors.Join(err, s.orders.Flush(limit)) // the register now has everything known of unused numbers
}

const invitation = `
Look at http://%[1]s/numbers/

curl http://%[1]s/orders -d '{"customer": "Ada", "amount_cents": 1250}'
curl -X POST http://%[1]s/orders/NUMBER/invoice
curl -X POST http://%[1]s/invoices/NUMBER/void
curl http://%[1]s/orders/NUMBER/void -d '{"reason": "ordered twice", "by": "Ada"}'
curl http://%[1]s/months/2021-09/close -d '{"reason": "reported", "by": "Ada"}'
curl http://%[1]s/invoices
`

func serve(ctx context.Context, listener net.Listener, handler http.Handler, log *slog.Logger) error {
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      patience + 10*time.Second,
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
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), server.WriteTimeout)
	defer cancel()
	return server.Shutdown(limit)
}
