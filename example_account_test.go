package serial_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial"
)

// The numbers that a shop has stored, against those that Redis has counted today. Number 2 was issued, and nobody stored it.
func ExampleGenerator_Audit() {
	m, err := miniredis.Run() // a Redis in memory, in place of yours
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	noon := time.Date(2021, time.October, 24, 12, 0, 0, 0, time.UTC)
	m.SetTime(noon) // its clock
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer rdb.Close()
	gen, err := serial.New(rdb, serial.WithLocation(time.UTC), serial.WithMaxSkew(-1))
	if err != nil {
		log.Fatal(err)
	}

	ctx := context.Background()
	if _, err := gen.NextN(ctx, "IS", 3); err != nil {
		log.Fatal(err)
	}
	stored := func(yield func(string, error) bool) { // in a service, the rows of a query
		_ = yield("IS202110240001", nil) && yield("IS202110240003", nil)
	}
	report, err := gen.Audit(ctx, "IS", noon, stored)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(report.Count, "of", report.Last, "are accounted for, missing are", report.Missing)
	// Output:
	// 2 of 3 are accounted for, missing are [{2 2}]
}

// What a process knows of numbers that nobody received is kept before it ends.
func ExampleGenerator_Flush() {
	m, err := miniredis.Run() // a Redis in memory, in place of yours
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer rdb.Close()
	gen, err := serial.New(rdb, serial.WithHooks(serial.Hooks{
		Unused: func(_ context.Context, e serial.Explanation) {
			fmt.Println(e.Type, e.First, "to", e.Last, e.Reason) // or write it to a database
		},
	}))
	if err != nil {
		log.Fatal(err)
	}

	ctx := context.Background()
	if _, err := gen.Next(ctx, "IS"); err != nil {
		log.Fatal(err)
	}
	if err := gen.Raise(ctx, "IS", 5000); err != nil {
		log.Fatal(err)
	}
	if err := gen.Flush(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// IS 2 to 5000 raised
}
