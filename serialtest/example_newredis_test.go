package serialtest_test

import (
	"context"
	"fmt"
	"log"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/serialtest"
)

// Warehouse is a service that creates its own generator, and stores other data in Redis, too.
type Warehouse struct {
	rdb     redis.UniversalClient
	numbers *serial.Generator
}

// NewWarehouse accepts options, so that a test can add one.
func NewWarehouse(rdb redis.UniversalClient, opts ...serial.Option) (*Warehouse, error) {
	gen, err := serial.New(rdb, append([]serial.Option{serial.WithLocation(time.UTC)}, opts...)...)
	return &Warehouse{rdb, gen}, err
}

func (w *Warehouse) Receive(ctx context.Context, goods string) (string, error) {
	number, err := w.numbers.Next(ctx, "GR")
	if err != nil {
		return "", err
	}
	return number, w.rdb.Set(ctx, number, goods, 0).Err()
}

// A service that creates its own generator gets a client.
func ExampleNewRedis() {
	t := new(testing.T) // go test passes it to a test
	ctx := context.Background()

	r := serialtest.NewRedis(t, time.Date(2021, time.October, 24, 12, 0, 0, 0, time.UTC))
	warehouse, err := NewWarehouse(r.Client(), serial.WithMaxSkew(-1)) // Redis's clock is not the host's
	if err != nil {
		log.Fatal(err)
	}
	number, err := warehouse.Receive(ctx, "tea")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(number, r.Client().Get(ctx, number).Val())
	// Output:
	// GR202110240001 tea
}
