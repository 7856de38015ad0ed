package serial_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial"
)

func Example() {
	ctx := context.Background()
	rdb, shanghai, stop := noonOf(2021, time.October, 24)
	defer stop()

	gen, err := serial.New(rdb, serial.WithLocation(shanghai), anyClock)
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		number, err := gen.Next(ctx, "IS")
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(number)
	}
	number, _ := gen.Next(ctx, "PO")
	fmt.Println(number)
	// Output:
	// IS202110240001
	// IS202110240002
	// IS202110240003
	// PO202110240001
}

func ExampleNew() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	defer func() { _ = rdb.Close() }()

	_, err := serial.New(rdb, serial.WithTemplate("{type}{date:yyyymmdd}{seq:4}"))
	fmt.Println(err)
	// Output:
	// serial: template "{type}{date:yyyymmdd}{seq:4}": {date:yyyymmdd}: "mm" is finer than the period, a day; allowed are yyyy, yy, MM, dd and separators
}

func ExampleGenerator_Next() {
	rdb, shanghai, stop := noonOf(2021, time.October, 24)
	defer stop()
	gen, err := serial.New(rdb, serial.WithLocation(shanghai), anyClock)
	if err != nil {
		log.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	number, err := gen.Next(ctx, "IS")
	switch {
	case errors.Is(err, serial.ErrExhausted):
		log.Fatal("no numbers left today: widen {seq} in the template")
	case errors.Is(err, serial.ErrCounterLost):
		log.Fatal("Redis lost today's counter: Raise it to the last number used")
	case err != nil:
		log.Fatal(err)
	}
	fmt.Println(number)
	// Output:
	// IS202110240001
}

func ExampleGenerator_NextNumber() {
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
	fmt.Println(n, n.Type, n.Start.Format(time.RFC3339), n.Seq)
	// Output:
	// IS202110240001 IS 2021-10-24T00:00:00+08:00 1
}

func ExampleGenerator_NextN() {
	rdb, shanghai, stop := noonOf(2021, time.October, 24)
	defer stop()
	gen, err := serial.New(rdb, serial.WithLocation(shanghai), anyClock)
	if err != nil {
		log.Fatal(err)
	}

	numbers, err := gen.NextN(context.Background(), "IS", 3)
	fmt.Println(numbers, err)
	// Output:
	// [IS202110240001 IS202110240002 IS202110240003] <nil>
}

func ExampleGenerator_Peek() {
	ctx := context.Background()
	rdb, shanghai, stop := noonOf(2021, time.October, 24)
	defer stop()
	gen, err := serial.New(rdb, serial.WithLocation(shanghai), anyClock)
	if err != nil {
		log.Fatal(err)
	}

	n, _ := gen.Peek(ctx, "IS")
	fmt.Println(n.Seq)
	_, _ = gen.NextN(ctx, "IS", 41)
	n, _ = gen.Peek(ctx, "IS")
	fmt.Println(n.Seq, n)
	// Output:
	// 0
	// 41 IS202110240041
}

// A series that another system began today goes on here.
func ExampleGenerator_Raise() {
	ctx := context.Background()
	rdb, shanghai, stop := noonOf(2021, time.October, 24)
	defer stop()
	gen, err := serial.New(rdb, serial.WithLocation(shanghai), anyClock)
	if err != nil {
		log.Fatal(err)
	}

	if err := gen.Raise(ctx, "IS", 340); err != nil {
		log.Fatal(err)
	}
	number, err := gen.Next(ctx, "IS")
	fmt.Println(number, err)
	// Output:
	// IS202110240341 <nil>
}

func ExampleGenerator_Parse() {
	rdb, shanghai, stop := noonOf(2021, time.October, 24)
	defer stop()
	gen, err := serial.New(rdb, serial.WithLocation(shanghai))
	if err != nil {
		log.Fatal(err)
	}

	n, err := gen.Parse("IS202110240017")
	fmt.Println(n.Type, n.Start.Format(time.DateOnly), n.Seq, err)
	_, err = gen.Parse("IS202106310001")
	fmt.Println(err)
	// Output:
	// IS 2021-10-24 17 <nil>
	// serial: "IS202106310001" is no number of this generator: there is no day 2021-06-31
}

func ExampleNumber_Int64() {
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
	fmt.Println(n.Int64())
	// Output:
	// 202110240001 <nil>
}

func ExampleWithTemplate() {
	rdb, shanghai, stop := noonOf(2021, time.October, 24)
	defer stop()
	gen, err := serial.New(rdb, serial.WithLocation(shanghai), anyClock,
		serial.WithTemplate("{type}-{date:yyMMdd}-{seq:6}"))
	if err != nil {
		log.Fatal(err)
	}

	number, err := gen.Next(context.Background(), "PO")
	fmt.Println(number, err)
	// Output:
	// PO-211024-000001 <nil>
}

// A database that stores the numbers tells how far a day had come, should Redis have lost it.
func ExampleWithFloor() {
	rdb, shanghai, stop := noonOf(2021, time.October, 24)
	defer stop()
	lastStored := func(_ context.Context, typ string, start time.Time) (int64, error) {
		// SELECT coalesce(max(seq), 0) FROM numbers WHERE type = $1 AND day = $2
		fmt.Println("asked for", typ, start.Format(time.DateOnly))
		return 340, nil
	}
	gen, err := serial.New(rdb, serial.WithLocation(shanghai), anyClock, serial.WithFloor(lastStored))
	if err != nil {
		log.Fatal(err)
	}

	for range 2 {
		number, err := gen.Next(context.Background(), "IS")
		fmt.Println(number, err)
	}
	// Output:
	// asked for IS 2021-10-24
	// IS202110240341 <nil>
	// IS202110240342 <nil>
}

// shelf is a ledger for the example; real ones are durable, like those of package sqlledger.
type shelf map[string]int64

func (l shelf) Reserve(_ context.Context, series, period string, above, n int64) (int64, error) {
	after := max(l[series+" "+period], above)
	l[series+" "+period] = after + n
	return after, nil
}

func ExampleWithLedger() {
	ctx := context.Background()
	m, err := miniredis.Run()
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	reigning(m) // only a miniredis needs that: it lacks the identity that a ledger checks
	m.SetTime(time.Date(2021, time.October, 24, 12, 0, 0, 0, time.UTC))
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer func() { _ = rdb.Close() }()

	gen, err := serial.New(rdb, serial.WithLocation(time.UTC), anyClock, serial.WithLedger(shelf{}, 100))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(gen.Next(ctx, "IS"))
	m.FlushAll() // Redis forgets everything
	fmt.Println(gen.Next(ctx, "IS"))
	// Output:
	// IS202110240001 <nil>
	// IS202110240101 <nil>
}

func ExampleWithReplicas() {
	rdb := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName:    "mymaster",
		SentinelAddrs: []string{"sentinel-1:26379", "sentinel-2:26379", "sentinel-3:26379"},
	})
	defer func() { _ = rdb.Close() }()

	// Both replicas may be promoted, so both have to have a number before it is returned.
	gen, err := serial.New(rdb, serial.WithLocation(time.UTC), serial.WithReplicas(2, 200*time.Millisecond))
	if err != nil {
		log.Fatal(err)
	}
	next := func(ctx context.Context) (string, error) {
		number, err := gen.Next(ctx, "IS")
		if errors.Is(err, serial.ErrNotReplicated) { // the number is burned; the replicas may be back
			number, err = gen.Next(ctx, "IS")
		}
		return number, err
	}
	_ = next
}

// Numbers that start again every hour, and every month with as many digits as it takes.
func ExampleWithPeriod() {
	ctx := context.Background()
	rdb, shanghai, stop := noonOf(2021, time.October, 24)
	defer stop()

	hourly, err := serial.New(rdb, serial.WithLocation(shanghai), anyClock,
		serial.WithPeriod(serial.PerHour), serial.WithTemplate("{type}{date:yyyyMMddHH}{seq:4}"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(hourly.Next(ctx, "IS"))

	monthly, err := serial.New(rdb, serial.WithLocation(shanghai), anyClock,
		serial.WithPeriod(serial.PerMonth), serial.WithTemplate("{type}-{date:yyyyMM}-{seq:3+}"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(monthly.Next(ctx, "PO"))
	if err := monthly.Raise(ctx, "PO", 999); err != nil {
		log.Fatal(err)
	}
	fmt.Println(monthly.Next(ctx, "PO"))

	_, err = serial.New(rdb, serial.WithPeriod(serial.PerMonth))
	fmt.Println(err)
	// Output:
	// IS20211024120001 <nil>
	// PO-202110-001 <nil>
	// PO-202110-1000 <nil>
	// serial: template "{type}{date:yyyyMMdd}{seq:4}": {date:yyyyMMdd}: "dd" is finer than the period, a month; allowed are yyyy, yy, MM and separators; PerMonth needs a template of its own, such as "{type}{date:yyyyMM}{seq:4}"
}

// A plant whose late shift opens the business day at 18:00.
func ExampleWithDayStart() {
	rdb, shanghai, stop := noonOf(2021, time.October, 24)
	defer stop()
	gen, err := serial.New(rdb, serial.WithLocation(shanghai), anyClock, serial.WithDayStart(18*time.Hour))
	if err != nil {
		log.Fatal(err)
	}

	n, err := gen.NextNumber(context.Background(), "IS") // at noon, before the day of the 24th begins at 18:00
	fmt.Println(n, n.Start.Format(time.RFC3339), err)
	// Output:
	// IS202110230001 2021-10-23T18:00:00+08:00 <nil>
}
