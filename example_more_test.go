package serial_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial"
)

// A request that is delivered twice gets one number.
func ExampleGenerator_NextOnce() {
	ctx := context.Background()
	rdb, shanghai, stop := noonOf(2021, time.October, 24)
	defer stop()
	gen, err := serial.New(rdb, serial.WithLocation(shanghai), anyClock)
	if err != nil {
		log.Fatal(err)
	}

	fmt.Println(gen.NextOnce(ctx, "IS", "order 8f14e45f"))
	fmt.Println(gen.NextOnce(ctx, "IS", "order c9f0f895"))
	fmt.Println(gen.NextOnce(ctx, "IS", "order 8f14e45f")) // again, from any process
	// Output:
	// IS202110240001 <nil>
	// IS202110240002 <nil>
	// IS202110240001 <nil>
}

// The evening before: at midnight nobody takes a lock.
func ExampleGenerator_Prepare() {
	ctx := context.Background()
	rdb, shanghai, stop := noonOf(2021, time.October, 24)
	defer stop()
	gen, err := serial.New(rdb, serial.WithLocation(shanghai), anyClock)
	if err != nil {
		log.Fatal(err)
	}

	fmt.Println(gen.Prepare(ctx, "IS", 2)) // today and tomorrow
	fmt.Println(rdb.Get(ctx, "serial:{IS}:20211025").Val())
	// Output:
	// <nil>
	// 0
}

func ExampleGenerator_History() {
	ctx := context.Background()
	rdb, shanghai, stop := noonOf(2021, time.October, 24)
	defer stop()
	gen, err := serial.New(rdb, serial.WithLocation(shanghai), anyClock, serial.WithRetention(30))
	if err != nil {
		log.Fatal(err)
	}
	rdb.Set(ctx, "serial:{IS}:20211022", 512, time.Hour) // what is left of two days ago
	if _, err := gen.NextN(ctx, "IS", 17); err != nil {
		log.Fatal(err)
	}

	days, err := gen.History(ctx, "IS", 7)
	for _, day := range days {
		fmt.Println(day.Start.Format(time.DateOnly), day.Seq)
	}
	fmt.Println(err)
	// Output:
	// 2021-10-24 17
	// 2021-10-22 512
	// <nil>
}

func ExampleWithRetention() {
	ctx := context.Background()
	rdb, shanghai, stop := noonOf(2021, time.October, 24)
	defer stop()
	gen, err := serial.New(rdb, serial.WithLocation(shanghai), anyClock, serial.WithRetention(30))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(gen.Next(ctx, "IS"))
	fmt.Println(rdb.TTL(ctx, "serial:{IS}:20211024").Val()) // twelve hours, and thirty days
	// Output:
	// IS202110240001 <nil>
	// 732h0m0s
}

func ExampleWithStart() {
	rdb, shanghai, stop := noonOf(2021, time.October, 24)
	defer stop()
	gen, err := serial.New(rdb, serial.WithLocation(shanghai), anyClock, serial.WithStart(5001))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(gen.Next(context.Background(), "IS"))
	// Output:
	// IS202110245001 <nil>
}

// The same instant is another day elsewhere.
func ExampleWithLocation() {
	ctx := context.Background()
	rdb, _, stop := noonOf(2021, time.October, 24)
	defer stop()
	for _, zone := range []string{"Asia/Shanghai", "Pacific/Honolulu"} {
		location, err := time.LoadLocation(zone)
		if err != nil {
			log.Fatal(err)
		}
		gen, err := serial.New(rdb, serial.WithLocation(location), serial.WithKeyPrefix(zone), anyClock)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(gen.Next(ctx, "IS"))
	}
	// Output:
	// IS202110240001 <nil>
	// IS202110230001 <nil>
}

// Every tenant has numbers of its own.
func ExampleWithKeyPrefix() {
	ctx := context.Background()
	rdb, shanghai, stop := noonOf(2021, time.October, 24)
	defer stop()
	for _, tenant := range []string{"acme", "globex"} {
		gen, err := serial.New(rdb, serial.WithKeyPrefix("serial/"+tenant), serial.WithLocation(shanghai), anyClock)
		if err != nil {
			log.Fatal(err)
		}
		number, err := gen.Next(ctx, "IS")
		fmt.Println(tenant, number, err)
	}
	// Output:
	// acme IS202110240001 <nil>
	// globex IS202110240001 <nil>
}

// The lock on three independent masters, two of which must grant it.
func ExampleWithLockClients() {
	counters := redis.NewClient(&redis.Options{Addr: "counters:6379"})
	defer func() { _ = counters.Close() }()
	var locks []redis.UniversalClient
	for _, addr := range []string{"lock-1:6379", "lock-2:6379", "lock-3:6379"} {
		client := redis.NewClient(&redis.Options{Addr: addr})
		defer func() { _ = client.Close() }()
		locks = append(locks, client)
	}
	gen, err := serial.New(counters, serial.WithLocation(time.UTC), serial.WithLockClients(locks...))
	fmt.Println(gen != nil, err)
	// Output:
	// true <nil>
}

// A Redis whose clock is years off opens no day.
func ExampleWithMaxSkew() {
	rdb, shanghai, stop := noonOf(2021, time.October, 24)
	defer stop()
	gen, err := serial.New(rdb, serial.WithLocation(shanghai), serial.WithMaxSkew(time.Minute))
	if err != nil {
		log.Fatal(err)
	}
	_, err = gen.Next(context.Background(), "IS")
	fmt.Println(errors.Is(err, serial.ErrClockSkew))
	// Output:
	// true
}

// Logs with slog.
func ExampleWithHooks() {
	ctx := context.Background()
	rdb, shanghai, stop := noonOf(2021, time.October, 24)
	defer stop()
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey && len(groups) == 0 {
				return slog.Attr{} // another one each time
			}
			return a
		},
	}))
	gen, err := serial.New(rdb, serial.WithLocation(shanghai), anyClock, serial.WithHooks(serial.Hooks{
		Opened: func(ctx context.Context, i serial.OpenedInfo) {
			logger.InfoContext(ctx, "period opened", "type", i.Type, "start", i.Start)
		},
		Lost: func(ctx context.Context, i serial.LostInfo) {
			logger.ErrorContext(ctx, "counter lost", "type", i.Type, "start", i.Start, "holds", i.Held)
		},
		NearlyExhausted: func(ctx context.Context, i serial.ExhaustionInfo) {
			logger.WarnContext(ctx, "numbers run out", "last", i.Last, "used", i.Used, "of", i.Size)
		},
		NearlyExhaustedAt: 0.9,
	}))
	if err != nil {
		log.Fatal(err)
	}
	_, _ = gen.NextN(ctx, "IS", 9500)
	rdb.Del(ctx, "serial:{IS}:20211024")
	_, _ = gen.Next(ctx, "IS")
	// Output:
	// level=INFO msg="period opened" type=IS start=2021-10-24T00:00:00.000+08:00
	// level=WARN msg="numbers run out" last=IS202110249500 used=9500 of=9999
	// level=ERROR msg="counter lost" type=IS start=2021-10-24T00:00:00.000+08:00 holds=""
}

// A number can be taken apart, stored and sorted.
func ExampleNumber() {
	rdb, shanghai, stop := noonOf(2021, time.October, 24)
	defer stop()
	gen, err := serial.New(rdb, serial.WithLocation(shanghai), anyClock)
	if err != nil {
		log.Fatal(err)
	}
	n, err := gen.NextNumber(context.Background(), "IS")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(n.Type, n.Start.Format(time.DateOnly), n.Seq)
	// Output:
	// IS 2021-10-24 1
}

func ExampleNumber_String() {
	rdb, shanghai, stop := noonOf(2021, time.October, 24)
	defer stop()
	gen, err := serial.New(rdb, serial.WithLocation(shanghai), anyClock)
	if err != nil {
		log.Fatal(err)
	}
	n, _ := gen.NextNumber(context.Background(), "IS")
	fmt.Println(n.String())
	fmt.Printf("%q\n", serial.Number{}.String())
	// Output:
	// IS202110240001
	// ""
}

func ExamplePeriod() {
	fmt.Println(serial.PerDay, serial.PerMonth)
	// Output:
	// PerDay PerMonth
}

// What to do on each error.
func Example_errors() {
	rdb, shanghai, stop := noonOf(2021, time.October, 24)
	defer stop()
	gen, err := serial.New(rdb, serial.WithLocation(shanghai), anyClock)
	if err != nil {
		log.Fatal(err)
	}
	_, err = gen.Next(context.Background(), "I S")
	switch {
	case err == nil:
		// use the number
	case errors.Is(err, serial.ErrInvalidType):
		fmt.Println("correct the type")
	case errors.Is(err, serial.ErrExhausted):
		fmt.Println("widen {seq} in every process")
	case errors.Is(err, serial.ErrCounterLost), errors.Is(err, serial.ErrClockSkew), errors.Is(err, serial.ErrConflict):
		fmt.Println("call an operator")
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		fmt.Println("the caller gave up; a number may be a gap")
	default: // Redis, a floor or a ledger failed, or serial.ErrNotReplicated
		fmt.Println("try again")
	}
	// Output:
	// correct the type
}
