// Command orders-serial is for operators of the order service. It issues, raises and audits order numbers, and runs the
// commands that the service's errors contain. Its settings are the environment of the service. "orders-serial help"
// lists its commands.
package main

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/dailyserial/serial/examples/orders/internal/numbers"
	"github.com/dailyserial/serial/serialcmd"
)

func main() {
	gen, err := numbers.Open(slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if err != nil {
		fmt.Fprintln(os.Stderr, "orders-serial:", err)
		os.Exit(1)
	}
	os.Exit(serialcmd.Main(gen.Generator))
}
