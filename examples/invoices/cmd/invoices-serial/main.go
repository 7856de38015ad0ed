// Command invoices-serial is for whoever operates the service: it issues, raises and audits order numbers, and does what
// the service's errors ask for. It reads the environment of the service. "invoices-serial help" lists its commands.
package main

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/dailyserial/serial/examples/invoices/internal/numbers"
	"github.com/dailyserial/serial/serialcmd"
)

func main() {
	orders, err := numbers.Open(numbers.FromEnvironment(), slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if err != nil {
		fmt.Fprintln(os.Stderr, "invoices-serial:", err)
		os.Exit(1)
	}
	os.Exit(serialcmd.Main(orders.Generator, serialcmd.WithRegister(orders.Register)))
}
