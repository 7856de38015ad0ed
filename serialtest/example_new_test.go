package serialtest_test

import (
	"context"
	"fmt"
	"log"
	"testing"
	"time"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/serialtest"
)

// invoiceNumbers returns the options that the service uses in production and in tests.
func invoiceNumbers() []serial.Option {
	return []serial.Option{
		serial.WithLocation(time.FixedZone("Shanghai", 8*60*60)), // in a service, from time.LoadLocation
		serial.WithPeriod(serial.PerMonth),
		serial.WithTemplate("{type}-{date:yyyyMM}-{seq:5}"),
	}
}

// The options of a service are tested at the end of a month.
func ExampleNew() {
	t := new(testing.T) // go test passes it to a test
	ctx := context.Background()

	gen, r := serialtest.New(t, time.Date(2021, time.October, 31, 15, 59, 59, 0, time.UTC), invoiceNumbers()...)
	for range 2 {
		number, err := gen.Next(ctx, "INV")
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(number)
		r.Advance(time.Second)
	}
	// Output:
	// INV-202110-00001
	// INV-202111-00001
}
