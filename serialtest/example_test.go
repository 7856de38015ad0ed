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

// Shop is a service that numbers its orders.
type Shop struct{ Numbers *serial.Generator }

func (s *Shop) Order(ctx context.Context, what string) (string, error) {
	number, err := s.Numbers.Next(ctx, "IS")
	return number + ": " + what, err
}

// A test sets the clock, and lets midnight pass.
func Example() {
	t := new(testing.T) // go test passes it to a test

	gen, r := serialtest.New(t, time.Date(2021, time.October, 24, 23, 59, 0, 0, time.UTC))
	shop := &Shop{Numbers: gen}
	for _, what := range []string{"tea", "cups"} {
		order, err := shop.Order(context.Background(), what)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(order)
	}

	r.SetTime(time.Date(2021, time.October, 25, 0, 0, 0, 0, time.UTC))
	order, err := shop.Order(context.Background(), "more tea")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(order)
	// Output:
	// IS202110240001: tea
	// IS202110240002: cups
	// IS202110250001: more tea
}
