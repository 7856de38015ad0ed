package serial_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial"
)

func ExampleWithTemplate() {
	m, err := miniredis.Run() // a Redis in memory, in place of yours
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	m.SetTime(time.Date(2021, time.October, 24, 12, 0, 0, 0, time.UTC)) // its clock
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer rdb.Close()
	gen, err := serial.New(rdb, serial.WithMaxSkew(-1), serial.WithLocation(time.UTC),
		serial.WithTemplate("{type}-{date:yyMMdd}-{seq:6}"))
	if err != nil {
		log.Fatal(err)
	}

	fmt.Println(gen.Next(context.Background(), "PO"))
	// Output:
	// PO-211024-000001 <nil>
}

// The same instant is another day elsewhere.
func ExampleWithLocation() {
	m, err := miniredis.Run() // a Redis in memory, in place of yours
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	m.SetTime(time.Date(2021, time.October, 24, 12, 0, 0, 0, time.UTC)) // its clock
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer rdb.Close()

	for _, zone := range []string{"Asia/Shanghai", "Pacific/Kiritimati"} {
		location, err := time.LoadLocation(zone)
		if err != nil {
			log.Fatal(err)
		}
		gen, err := serial.New(rdb, serial.WithLocation(location), serial.WithKeyPrefix(zone), serial.WithMaxSkew(-1))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(gen.Next(context.Background(), "IS"))
	}
	// Output:
	// IS202110240001 <nil>
	// IS202110250001 <nil>
}

// A fiscal year of the United States begins on 1 October, and is named after the calendar year in which it ends.
func ExampleWithYearStart() {
	m, err := miniredis.Run() // a Redis in memory, in place of yours
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	m.SetTime(time.Date(2021, time.October, 24, 12, 0, 0, 0, time.UTC)) // its clock
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer rdb.Close()
	gen, err := serial.New(rdb, serial.WithMaxSkew(-1), serial.WithLocation(time.UTC), serial.WithPeriod(serial.PerYear),
		serial.WithYearStart(time.October, 1), serial.WithTemplate("{type}-FY{date:EE}-{seq:5}"))
	if err != nil {
		log.Fatal(err)
	}

	fmt.Println(gen.Next(context.Background(), "PO"))
	// Output:
	// PO-FY22-00001 <nil>
}

// Order numbers that do not tell how many orders there are.
func ExampleWithHiddenSequence() {
	m, err := miniredis.Run() // a Redis in memory, in place of yours
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	m.SetTime(time.Date(2021, time.October, 24, 12, 0, 0, 0, time.UTC)) // its clock
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer rdb.Close()
	key := []byte("an example's key") // yours is random, and secret
	gen, err := serial.New(rdb, serial.WithMaxSkew(-1), serial.WithLocation(time.UTC),
		serial.WithTemplate("{type}{date:yyMMdd}{seq:6}"), serial.WithHiddenSequence(key))
	if err != nil {
		log.Fatal(err)
	}

	for range 3 {
		n, err := gen.NextNumber(context.Background(), "ORD")
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(n, n.Seq)
	}
	// Output:
	// ORD211024381187 1
	// ORD211024754087 2
	// ORD211024185360 3
}

func ExamplePeriod() {
	fmt.Println(serial.PerDay, serial.PerMonth)
	// Output:
	// PerDay PerMonth
}

// Invoices start again every month, and have as many digits as it takes.
func ExampleWithPeriod() {
	m, err := miniredis.Run() // a Redis in memory, in place of yours
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	m.SetTime(time.Date(2021, time.October, 24, 12, 0, 0, 0, time.UTC)) // its clock
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer rdb.Close()
	gen, err := serial.New(rdb, serial.WithMaxSkew(-1), serial.WithLocation(time.UTC),
		serial.WithPeriod(serial.PerMonth), serial.WithTemplate("{type}-{date:yyyyMM}-{seq:3+}"))
	if err != nil {
		log.Fatal(err)
	}

	ctx := context.Background()
	fmt.Println(gen.Next(ctx, "INV"))
	if err := gen.Raise(ctx, "INV", 999); err != nil {
		log.Fatal(err)
	}
	fmt.Println(gen.Next(ctx, "INV"))
	// Output:
	// INV-202110-001 <nil>
	// INV-202110-1000 <nil>
}

// The late shift of a plant begins the business day at 18:00.
func ExampleWithDayStart() {
	m, err := miniredis.Run() // a Redis in memory, in place of yours
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	m.SetTime(time.Date(2021, time.October, 24, 12, 0, 0, 0, time.UTC)) // its clock
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer rdb.Close()
	gen, err := serial.New(rdb, serial.WithLocation(time.UTC), serial.WithDayStart(18*time.Hour), serial.WithMaxSkew(-1))
	if err != nil {
		log.Fatal(err)
	}

	n, err := gen.NextNumber(context.Background(), "IS") // at noon, before the day of the 24th begins
	fmt.Println(n, n.Start.Format(time.DateTime), err)
	// Output:
	// IS202110230001 2021-10-23 18:00:00 <nil>
}

func ExampleWithStart() {
	m, err := miniredis.Run() // a Redis in memory, in place of yours
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	m.SetTime(time.Date(2021, time.October, 24, 12, 0, 0, 0, time.UTC)) // its clock
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer rdb.Close()
	gen, err := serial.New(rdb, serial.WithLocation(time.UTC), serial.WithStart(5001), serial.WithMaxSkew(-1))
	if err != nil {
		log.Fatal(err)
	}

	fmt.Println(gen.Next(context.Background(), "IS"))
	// Output:
	// IS202110245001 <nil>
}

func ExampleWithRetention() {
	m, err := miniredis.Run() // a Redis in memory, in place of yours
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	m.SetTime(time.Date(2021, time.October, 24, 12, 0, 0, 0, time.UTC)) // its clock
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer rdb.Close()
	gen, err := serial.New(rdb, serial.WithLocation(time.UTC), serial.WithRetention(30), serial.WithMaxSkew(-1))
	if err != nil {
		log.Fatal(err)
	}

	ctx := context.Background()
	fmt.Println(gen.Next(ctx, "IS"))
	fmt.Println(rdb.TTL(ctx, "serial:{IS}:20211024").Val()) // twelve hours, and thirty days
	// Output:
	// IS202110240001 <nil>
	// 732h0m0s
}

// Every tenant has numbers of its own.
func ExampleWithKeyPrefix() {
	m, err := miniredis.Run() // a Redis in memory, in place of yours
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	m.SetTime(time.Date(2021, time.October, 24, 12, 0, 0, 0, time.UTC)) // its clock
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer rdb.Close()

	for _, tenant := range []string{"acme", "globex"} {
		gen, err := serial.New(rdb, serial.WithKeyPrefix("serial/"+tenant), serial.WithLocation(time.UTC),
			serial.WithMaxSkew(-1))
		if err != nil {
			log.Fatal(err)
		}
		number, err := gen.Next(context.Background(), "IS")
		fmt.Println(tenant, number, err)
	}
	// Output:
	// acme IS202110240001 <nil>
	// globex IS202110240001 <nil>
}

// A database that stores the numbers says how far a day has come, in case Redis has lost it.
func ExampleWithFloor() {
	m, err := miniredis.Run() // a Redis in memory, in place of yours
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	m.SetTime(time.Date(2021, time.October, 24, 12, 0, 0, 0, time.UTC)) // its clock
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer rdb.Close()
	lastStored := func(_ context.Context, typ string, start time.Time) (int64, error) {
		// SELECT coalesce(max(seq), 0) FROM orders WHERE type = $1 AND day = $2
		fmt.Println("asked for", typ, start.Format(time.DateOnly))
		return 340, nil
	}
	gen, err := serial.New(rdb, serial.WithLocation(time.UTC), serial.WithFloor(lastStored), serial.WithMaxSkew(-1))
	if err != nil {
		log.Fatal(err)
	}

	for range 2 {
		fmt.Println(gen.Next(context.Background(), "IS"))
	}
	// Output:
	// asked for IS 2021-10-24
	// IS202110240341 <nil>
	// IS202110240342 <nil>
}

// A number is returned when a replica has it. This Redis has no replica.
func ExampleWithReplicas() {
	m, err := miniredis.Run() // a Redis in memory, in place of yours
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	m.SetTime(time.Date(2021, time.October, 24, 12, 0, 0, 0, time.UTC)) // its clock
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer rdb.Close()
	gen, err := serial.New(rdb, serial.WithLocation(time.UTC), serial.WithReplicas(1, 100*time.Millisecond),
		serial.WithMaxSkew(-1))
	if err != nil {
		log.Fatal(err)
	}

	_, err = gen.Next(context.Background(), "IS")
	fmt.Println(errors.Is(err, serial.ErrNotReplicated)) // the number is a gap; try again when replicas are back
	// Output:
	// true
}

// The lock is kept on three independent servers, two of which must grant it.
func ExampleWithLockClients() {
	m, err := miniredis.Run() // a Redis in memory, in place of yours
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	m.SetTime(time.Date(2021, time.October, 24, 12, 0, 0, 0, time.UTC)) // its clock
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer rdb.Close()
	var locks []redis.UniversalClient
	for range 3 {
		server, err := miniredis.Run()
		if err != nil {
			log.Fatal(err)
		}
		defer server.Close()
		client := redis.NewClient(&redis.Options{Addr: server.Addr()})
		defer client.Close()
		locks = append(locks, client)
	}
	gen, err := serial.New(rdb, serial.WithLocation(time.UTC), serial.WithLockClients(locks...), serial.WithMaxSkew(-1))
	if err != nil {
		log.Fatal(err)
	}

	fmt.Println(gen.Next(context.Background(), "IS"))
	// Output:
	// IS202110240001 <nil>
}

// A Redis whose clock is years off opens no day.
func ExampleWithMaxSkew() {
	m, err := miniredis.Run() // a Redis in memory, in place of yours
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	m.SetTime(time.Date(2021, time.October, 24, 12, 0, 0, 0, time.UTC)) // its clock
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer rdb.Close()
	gen, err := serial.New(rdb, serial.WithLocation(time.UTC), serial.WithMaxSkew(time.Minute))
	if err != nil {
		log.Fatal(err)
	}

	_, err = gen.Next(context.Background(), "IS")
	fmt.Println(errors.Is(err, serial.ErrClockSkew))
	// Output:
	// true
}

// What an operator wants to know goes to the log.
func ExampleWithHooks() {
	m, err := miniredis.Run() // a Redis in memory, in place of yours
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	m.SetTime(time.Date(2021, time.October, 24, 12, 0, 0, 0, time.UTC)) // its clock
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer rdb.Close()
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey { // it differs each time
				return slog.Attr{}
			}
			return a
		},
	}))
	hooks := serial.Hooks{
		Opened: func(ctx context.Context, i serial.OpenedInfo) {
			logger.InfoContext(ctx, "period opened", "type", i.Type, "start", i.Start)
		},
		Lost: func(ctx context.Context, i serial.LostInfo) {
			logger.ErrorContext(ctx, "counter lost", "type", i.Type, "start", i.Start, "holds", i.Held,
				"repaired", i.Repaired)
		},
		NearlyExhausted: func(ctx context.Context, i serial.ExhaustionInfo) {
			logger.WarnContext(ctx, "few numbers left", "last", i.Last, "used", i.Used, "of", i.Size)
		},
		NearlyExhaustedAt: 0.9,
	}
	gen, err := serial.New(rdb, serial.WithLocation(time.UTC), serial.WithHooks(hooks), serial.WithMaxSkew(-1))
	if err != nil {
		log.Fatal(err)
	}

	ctx := context.Background()
	if _, err := gen.NextN(ctx, "IS", 9500); err != nil {
		log.Fatal(err)
	}
	m.FlushAll()
	_, err = gen.Next(ctx, "IS")
	fmt.Println(errors.Is(err, serial.ErrCounterLost))
	// Output:
	// level=INFO msg="period opened" type=IS start=2021-10-24T00:00:00.000Z
	// level=WARN msg="few numbers left" last=IS202110249500 used=9500 of=9999
	// level=ERROR msg="counter lost" type=IS start=2021-10-24T00:00:00.000Z holds="" repaired=false
	// true
}

// The operator's part of the log, without a number: how many orders there are is a secret.
func ExampleLogHooks() {
	m, err := miniredis.Run() // a Redis in memory, in place of yours
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	m.SetTime(time.Date(2021, time.October, 24, 12, 0, 0, 0, time.UTC)) // its clock
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer rdb.Close()
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			switch a.Key { // these differ each time
			case slog.TimeKey, "wait", "duration":
				return slog.Attr{}
			}
			return a
		},
	}))
	hooks := serial.LogHooks(logger)
	hooks.ClockCorrected = nil // this clock stands still in 2021
	key := []byte("an example's key")
	gen, err := serial.New(rdb, serial.WithMaxSkew(-1), serial.WithLocation(time.UTC), serial.WithHooks(hooks),
		serial.WithTemplate("{type}{date:yyMMdd}{seq:6}"), serial.WithHiddenSequence(key))
	if err != nil {
		log.Fatal(err)
	}

	ctx := context.Background()
	if _, err := gen.NextN(ctx, "ORD", 340); err != nil {
		log.Fatal(err)
	}
	m.Set("serial:{ORD}:20211024", "17")
	_, err = gen.Next(ctx, "ORD")
	fmt.Println(errors.Is(err, serial.ErrCounterLost))
	// Output:
	// level=INFO msg="serial: period opened" type=ORD start=2021-10-24T00:00:00.000Z
	// level=ERROR msg="serial: counter lost" type=ORD start=2021-10-24T00:00:00.000Z
	// level=ERROR msg="serial: no number issued" type=ORD error="serial: counter lost"
	// true
}
