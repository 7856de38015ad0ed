package serialotel_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/serialotel"
)

// The metrics of the program contain the count of its numbers. A program with global providers needs no options.
func Example() {
	server, err := miniredis.Run() // in place of Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	server.SetTime(time.Date(2021, 10, 24, 12, 0, 0, 0, time.UTC))
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	reader := sdkmetric.NewManualReader() // in place of an exporter

	hooks, err := serialotel.Hooks(
		serialotel.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))),
		serialotel.WithTypes("IS", "PO"),
	)
	if err != nil {
		log.Fatal(err)
	}
	gen, err := serial.New(client, serial.WithLocation(time.UTC), serial.WithMaxSkew(-1), serial.WithHooks(hooks))
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	numbers, err := gen.NextN(ctx, "IS", 3)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(numbers)

	var metrics metricdata.ResourceMetrics
	if err := reader.Collect(ctx, &metrics); err != nil {
		log.Fatal(err)
	}
	for _, m := range metrics.ScopeMetrics[0].Metrics {
		if counter, ok := m.Data.(metricdata.Sum[int64]); ok {
			fmt.Println(m.Name, counter.DataPoints[0].Value, m.Unit)
		}
	}
	// Output:
	// [IS202110240001 IS202110240002 IS202110240003]
	// serial.numbers.issued 3 {number}
}

// The hooks are a struct. A field can be replaced by a function that calls the old function.
func Example_customHooks() {
	hooks, err := serialotel.Hooks()
	if err != nil {
		log.Fatal(err)
	}
	hooks.NearlyExhaustedAt = 0.95
	failed := hooks.Failed
	hooks.Failed = func(ctx context.Context, info serial.FailedInfo) {
		failed(ctx, info)
		fmt.Println(info.Type, info.Err)
	}
	// A Generator with serial.WithHooks(hooks) calls the function like this:
	hooks.Failed(context.Background(), serial.FailedInfo{Type: "IS", Count: 1, Err: serial.ErrExhausted})
	// Output: IS serial: numbers exhausted
}
