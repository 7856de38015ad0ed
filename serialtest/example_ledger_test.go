package serialtest_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/serialtest"
)

// Bank is a service with a ledger. In production, the ledger is in a database, and in tests it is in memory.
type Bank struct{ numbers *serial.Generator }

func (b *Bank) Transfer(ctx context.Context) (string, error) { return b.numbers.Next(ctx, "TR") }

// Redis restarts without data. With a ledger, numbers continue above the reserved ones.
func ExampleLedger() {
	t := new(testing.T) // go test passes it to a test
	ctx := context.Background()

	var ledger serialtest.Ledger
	now := time.Date(2021, time.October, 24, 12, 0, 0, 0, time.UTC)
	gen, r := serialtest.New(t, now, serial.WithLedger(&ledger, 100))
	bank := &Bank{numbers: gen}
	fmt.Println(bank.Transfer(ctx))
	r.Lose()
	fmt.Println(bank.Transfer(ctx))
	// Output:
	// TR202110240001 <nil>
	// TR202110240101 <nil>
}
