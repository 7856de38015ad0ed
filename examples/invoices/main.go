// Command invoices is an HTTP service that numbers two kinds of documents. Orders get their numbers from Redis, which
// is fast but leaves gaps. Invoices get theirs in the transaction that stores the invoice, so there are no gaps. The
// web pages below /numbers/ account for every number. See README.md.
package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
	_ "time/tzdata" // time zone database for hosts without one

	"github.com/redis/go-redis/v9"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // so that a second signal ends the process immediately
	if err := run(ctx, os.Stdout, slog.New(slog.NewTextHandler(os.Stderr, nil))); err != nil {
		fmt.Fprintln(os.Stderr, "invoices:", err)
		os.Exit(1)
	}
}

// run serves requests until ctx ends. If neither Redis nor a database is set, it creates temporary sample data.
func run(ctx context.Context, out io.Writer, log *slog.Logger) error {
	zone, err := time.LoadLocation(cmp.Or(os.Getenv("INVOICES_TZ"), "UTC")) // zone in which days begin at midnight
	if err != nil {
		return err
	}
	if os.Getenv("INVOICES_REDIS_URL") == "" && os.Getenv("INVOICES_DATABASE") == "" {
		stop, err := demonstrate(ctx, zone, log)
		if err != nil {
			return err
		}
		defer stop()
	}
	options, err := redis.ParseURL(os.Getenv("INVOICES_REDIS_URL"))
	if err != nil { // err may contain the password
		return errors.New("INVOICES_REDIS_URL: want redis://USER:PASSWORD@HOST:PORT/DB")
	}
	db, err := openDatabase(os.Getenv("INVOICES_DATABASE"))
	if err != nil {
		return err
	}
	s, err := newService(ctx, redis.NewClient(options), db, zone, log)
	if err != nil {
		return err
	}
	page, err := newPage(s)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", cmp.Or(os.Getenv("INVOICES_ADDR"), "127.0.0.1:8080"))
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "Look at http://%s/numbers/\n", listener.Addr())

	server := &http.Server{Handler: s.routes(page), ReadTimeout: requestTimeout, WriteTimeout: 2 * requestTimeout}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), server.WriteTimeout)
	defer cancel()
	err = server.Shutdown(limit)                   // waits for the current requests
	return errors.Join(err, s.orders.Flush(limit)) // waits until unused numbers are explained in the register
}

// openDatabase opens an SQLite file. With _txlock=immediate, a transaction locks the file when it begins. Otherwise, it
// would fail if another transaction wrote between its first read and its first write.
func openDatabase(file string) (*sql.DB, error) {
	if file == "" {
		return nil, errors.New("INVOICES_DATABASE is not set")
	}
	return sql.Open("sqlite", "file:"+file+
		"?_txlock=immediate&_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_pragma=foreign_keys(1)")
}
