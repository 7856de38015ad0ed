package serialtest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/serialtest"
)

// Clinic is a service without a ledger. If Redis loses its data, an operator enters the last number that was used.
type Clinic struct{ Numbers *serial.Generator }

func (c *Clinic) Admit(ctx context.Context) string {
	number, err := c.Numbers.Next(ctx, "PT")
	if errors.Is(err, serial.ErrCounterLost) {
		return "call the operator"
	}
	return number
}

// Redis restarts without data. Without a ledger, only generators that have issued numbers of the day notice this.
func ExampleRedis_Lose() {
	t := new(testing.T) // go test passes it to a test
	ctx := context.Background()

	gen, r := serialtest.New(t, time.Date(2021, time.October, 24, 12, 0, 0, 0, time.UTC))
	clinic := &Clinic{Numbers: gen}
	fmt.Println(clinic.Admit(ctx))
	r.Lose()
	fmt.Println(clinic.Admit(ctx))
	fmt.Println(gen.Raise(ctx, "PT", 1)) // done by the operator
	fmt.Println(clinic.Admit(ctx))
	// Output:
	// PT202110240001
	// call the operator
	// <nil>
	// PT202110240002
}
