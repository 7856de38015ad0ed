package serial_test

import (
	"context"
	"fmt"
	"log"
	"testing"
	"time"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/serialtest"
)

// Redis loses everything, and no number comes twice.
func ExampleWithLedger() {
	t := new(testing.T) // go test passes one to a test
	redis := serialtest.NewRedis(t, time.Date(2021, time.October, 24, 12, 0, 0, 0, time.UTC))
	defer redis.Stop()
	ledger := new(serialtest.Ledger) // in a service, one that is durable: that of package sqlledger, say
	gen, err := serial.New(redis.Client(), serial.WithLocation(time.UTC), serial.WithLedger(ledger, 100),
		serial.WithMaxSkew(-1))
	if err != nil {
		log.Fatal(err)
	}

	ctx := context.Background()
	fmt.Println(gen.Next(ctx, "IS"))
	redis.Lose()
	fmt.Println(gen.Next(ctx, "IS"))
	// Output:
	// IS202110240001 <nil>
	// IS202110240101 <nil>
}
