// Command orders is an HTTP service whose orders have business serial numbers such as IS202110240001. No number is used
// twice, even if Redis loses its data, and a repeated request does not create a second order. It is a starting point
// for your own service; see README.md.
package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"github.com/dailyserial/serial/examples/orders/internal/numbers"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // so that a second signal ends the process immediately
	if err := run(ctx, os.Stdout, slog.New(slog.NewTextHandler(os.Stderr, nil))); err != nil {
		fmt.Fprintln(os.Stderr, "orders:", err)
		os.Exit(1)
	}
}

// run serves requests until ctx ends. If neither Redis nor a database is set, it uses temporary ones for demonstration.
func run(ctx context.Context, out io.Writer, log *slog.Logger) error {
	if os.Getenv("ORDERS_REDIS_URL") == "" && os.Getenv("ORDERS_DATABASE") == "" {
		stop, err := demonstrate()
		if err != nil {
			return err
		}
		defer stop()
	}
	gen, err := numbers.Open(log)
	if err != nil {
		return err
	}
	if err := gen.Ledger.CreateTable(ctx); err != nil {
		return err
	}
	if _, err := gen.DB.ExecContext(ctx, schema); err != nil {
		return fmt.Errorf("create the table of orders: %w", err)
	}
	listener, err := net.Listen("tcp", cmp.Or(os.Getenv("ORDERS_ADDR"), "127.0.0.1:8080"))
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, `orders on http://%[1]s

curl -i http://%[1]s/orders -H 'X-Forwarded-User: Ada' -H 'Idempotency-Key: first' -d '{"amount_cents": 1250}'
`, listener.Addr())

	server := &http.Server{
		Handler:      (&service{gen: gen.Generator, db: gen.DB, log: log}).routes(),
		ReadTimeout:  requestTimeout,
		WriteTimeout: 3 * requestTimeout, // also includes the time for reading the body
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done(): // wait for the current requests
		limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), server.WriteTimeout)
		defer cancel()
		return server.Shutdown(limit)
	}
}
