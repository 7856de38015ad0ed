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

// Till is a service that continues to sell while Redis is unavailable, and numbers its receipts later.
type Till struct{ Numbers *serial.Generator }

var errLater = errors.New("the receipt is numbered later")

func (s *Till) Sell(ctx context.Context) (string, error) {
	number, err := s.Numbers.Next(ctx, "RC")
	if err != nil {
		return "", errLater
	}
	return number, nil
}

// Redis is unavailable for a while.
func ExampleRedis_Stop() {
	t := new(testing.T) // go test passes it to a test
	ctx := context.Background()

	gen, r := serialtest.New(t, time.Date(2021, time.October, 24, 12, 0, 0, 0, time.UTC))
	till := &Till{Numbers: gen}
	fmt.Println(till.Sell(ctx))
	r.Stop()
	fmt.Println(till.Sell(ctx))
	r.Start()
	fmt.Println(till.Sell(ctx))
	// Output:
	// RC202110240001 <nil>
	//  the receipt is numbered later
	// RC202110240002 <nil>
}
