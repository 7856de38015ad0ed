package serial_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial"
)

// Every type has a number of its own, which begins again at midnight in Shanghai.
func Example() {
	shanghai, err := time.LoadLocation("Asia/Shanghai")
	if err != nil {
		log.Fatal(err)
	}
	m, err := miniredis.Run() // a Redis in memory, in place of yours
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	m.SetTime(time.Date(2021, time.October, 24, 23, 59, 0, 0, shanghai)) // its clock
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer rdb.Close()
	// MaxSkew: m's clock is not this host's.
	gen, err := serial.New(rdb, serial.WithLocation(shanghai), serial.WithMaxSkew(-1))
	if err != nil {
		log.Fatal(err)
	}

	ctx := context.Background()
	for _, typ := range []string{"IS", "IS", "PO"} {
		number, err := gen.Next(ctx, typ)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(number)
	}
	m.SetTime(time.Date(2021, time.October, 25, 0, 0, 0, 0, shanghai))
	fmt.Println(gen.Next(ctx, "IS"))
	// Output:
	// IS202110240001
	// IS202110240002
	// PO202110240001
	// IS202110250001 <nil>
}

// New checks every option, and says what is allowed.
func ExampleNew() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"}) // nothing is sent
	defer rdb.Close()

	_, err := serial.New(rdb, serial.WithTemplate("{type}{date:yyyymmdd}{seq:4}"))
	fmt.Println(err)
	// Output:
	// serial: template "{type}{date:yyyymmdd}{seq:4}": {date:yyyymmdd}: the month (MM) is missing: numbers of different days would read the same, and "mm" is the minute; print yyyyMMdd (WithTemplate)
}

func ExampleGenerator_Next() {
	m, err := miniredis.Run() // a Redis in memory, in place of yours
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	m.SetTime(time.Date(2021, time.October, 24, 12, 0, 0, 0, time.UTC)) // its clock
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer rdb.Close()
	gen, err := serial.New(rdb, serial.WithLocation(time.UTC), serial.WithMaxSkew(-1))
	if err != nil {
		log.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	number, err := gen.Next(ctx, "IS")
	if err != nil {
		log.Fatal(err) // see the example Errors
	}
	fmt.Println(number)
	// Output:
	// IS202110240001
}

// A number taken apart, to store it in columns.
func ExampleGenerator_NextNumber() {
	m, err := miniredis.Run() // a Redis in memory, in place of yours
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	m.SetTime(time.Date(2021, time.October, 24, 12, 0, 0, 0, time.UTC)) // its clock
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer rdb.Close()
	gen, err := serial.New(rdb, serial.WithLocation(time.UTC), serial.WithMaxSkew(-1))
	if err != nil {
		log.Fatal(err)
	}

	n, err := gen.NextNumber(context.Background(), "IS")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(n, n.Type, n.Start.Format(time.DateOnly), n.Seq)
	// Output:
	// IS202110240001 IS 2021-10-24 1
}

// A bulk import takes its numbers in one round trip.
func ExampleGenerator_NextN() {
	m, err := miniredis.Run() // a Redis in memory, in place of yours
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	m.SetTime(time.Date(2021, time.October, 24, 12, 0, 0, 0, time.UTC)) // its clock
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer rdb.Close()
	gen, err := serial.New(rdb, serial.WithLocation(time.UTC), serial.WithMaxSkew(-1))
	if err != nil {
		log.Fatal(err)
	}

	numbers, err := gen.NextN(context.Background(), "IS", 3)
	if err != nil {
		log.Fatal(err)
	}
	for _, n := range numbers {
		fmt.Println(n, n.Seq)
	}
	// Output:
	// IS202110240001 1
	// IS202110240002 2
	// IS202110240003 3
}

// A request that is delivered twice gets one number.
func ExampleGenerator_NextOnce() {
	m, err := miniredis.Run() // a Redis in memory, in place of yours
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	m.SetTime(time.Date(2021, time.October, 24, 12, 0, 0, 0, time.UTC)) // its clock
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer rdb.Close()
	gen, err := serial.New(rdb, serial.WithLocation(time.UTC), serial.WithMaxSkew(-1))
	if err != nil {
		log.Fatal(err)
	}

	ctx := context.Background()
	fmt.Println(gen.NextOnce(ctx, "IS", "order 8f14e45f"))
	fmt.Println(gen.NextOnce(ctx, "IS", "order c9f0f895"))
	fmt.Println(gen.NextOnce(ctx, "IS", "order 8f14e45f")) // again, from any process
	// Output:
	// IS202110240001 <nil>
	// IS202110240002 <nil>
	// IS202110240001 <nil>
}

func ExampleGenerator_Peek() {
	m, err := miniredis.Run() // a Redis in memory, in place of yours
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	m.SetTime(time.Date(2021, time.October, 24, 12, 0, 0, 0, time.UTC)) // its clock
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer rdb.Close()
	gen, err := serial.New(rdb, serial.WithLocation(time.UTC), serial.WithMaxSkew(-1))
	if err != nil {
		log.Fatal(err)
	}

	ctx := context.Background()
	n, err := gen.Peek(ctx, "IS")
	fmt.Println(n.Seq, err) // none so far
	if _, err := gen.NextN(ctx, "IS", 41); err != nil {
		log.Fatal(err)
	}
	n, err = gen.Peek(ctx, "IS")
	fmt.Println(n.Seq, n, err)
	// Output:
	// 0 <nil>
	// 41 IS202110240041 <nil>
}

// A series that another system began today continues here.
func ExampleGenerator_Raise() {
	m, err := miniredis.Run() // a Redis in memory, in place of yours
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	m.SetTime(time.Date(2021, time.October, 24, 12, 0, 0, 0, time.UTC)) // its clock
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer rdb.Close()
	gen, err := serial.New(rdb, serial.WithLocation(time.UTC), serial.WithMaxSkew(-1))
	if err != nil {
		log.Fatal(err)
	}

	ctx := context.Background()
	if err := gen.Raise(ctx, "IS", 340); err != nil { // the other system's last number
		log.Fatal(err)
	}
	fmt.Println(gen.Next(ctx, "IS"))
	// Output:
	// IS202110240341 <nil>
}

// A process in the wrong time zone has opened the day, and the right one is refused.
func ExampleGenerator_Takeover() {
	shanghai, err := time.LoadLocation("Asia/Shanghai")
	if err != nil {
		log.Fatal(err)
	}
	m, err := miniredis.Run() // a Redis in memory, in place of yours
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	m.SetTime(time.Date(2021, time.October, 24, 12, 0, 0, 0, time.UTC)) // its clock
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer rdb.Close()
	wrong, err := serial.New(rdb, serial.WithLocation(time.UTC), serial.WithMaxSkew(-1))
	if err != nil {
		log.Fatal(err)
	}
	right, err := serial.New(rdb, serial.WithLocation(shanghai), serial.WithMaxSkew(-1))
	if err != nil {
		log.Fatal(err)
	}

	ctx := context.Background()
	fmt.Println(wrong.Next(ctx, "IS"))
	_, err = right.Next(ctx, "IS")
	fmt.Println(errors.Is(err, serial.ErrConflict))

	// An operator stops the wrong process, finds the last number used, and says which process is right.
	if err := right.Takeover(ctx, "IS", 1); err != nil {
		log.Fatal(err)
	}
	fmt.Println(right.Next(ctx, "IS"))
	// Output:
	// IS202110240001 <nil>
	// true
	// IS202110240002 <nil>
}

// In the evening, a job opens the next day. At midnight nobody waits for a lock.
func ExampleGenerator_Prepare() {
	m, err := miniredis.Run() // a Redis in memory, in place of yours
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	m.SetTime(time.Date(2021, time.October, 24, 12, 0, 0, 0, time.UTC)) // its clock
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer rdb.Close()
	gen, err := serial.New(rdb, serial.WithLocation(time.UTC), serial.WithMaxSkew(-1))
	if err != nil {
		log.Fatal(err)
	}

	ctx := context.Background()
	if err := gen.Prepare(ctx, "IS", 2); err != nil { // today and tomorrow
		log.Fatal(err)
	}
	m.SetTime(time.Date(2021, time.October, 25, 0, 0, 0, 0, time.UTC))
	fmt.Println(gen.Next(ctx, "IS"))
	// Output:
	// IS202110250001 <nil>
}

// How many numbers were issued on each of the last seven days.
func ExampleGenerator_History() {
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
	if _, err := gen.NextN(ctx, "IS", 512); err != nil {
		log.Fatal(err)
	}
	m.SetTime(time.Date(2021, time.October, 26, 12, 0, 0, 0, time.UTC)) // two days later
	if _, err := gen.NextN(ctx, "IS", 17); err != nil {
		log.Fatal(err)
	}

	days, err := gen.History(ctx, "IS", 7)
	if err != nil {
		log.Fatal(err)
	}
	for _, day := range days {
		fmt.Println(day.Start.Format(time.DateOnly), day.Seq)
	}
	// Output:
	// 2021-10-26 17
	// 2021-10-24 512
}

// What a user has typed is checked without asking Redis.
func ExampleGenerator_Parse() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"}) // nothing is sent
	defer rdb.Close()
	gen, err := serial.New(rdb, serial.WithLocation(time.UTC))
	if err != nil {
		log.Fatal(err)
	}

	n, err := gen.Parse("IS202110240017")
	fmt.Println(n.Type, n.Start.Format(time.DateOnly), n.Seq, err)
	_, err = gen.Parse("IS202106310001")
	fmt.Println(err)
	// Output:
	// IS 2021-10-24 17 <nil>
	// serial: invalid number: "IS202106310001" is not a number of this scheme: there is no day 2021-06-31
}

// A number can be taken apart and stored in columns.
func ExampleNumber() {
	orders, err := serial.NewScheme(serial.WithLocation(time.UTC))
	if err != nil {
		log.Fatal(err)
	}

	n, err := orders.Parse("IS202110240017")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(n.Type, n.Start.Format(time.DateOnly), n.Seq)
	// Output:
	// IS 2021-10-24 17
}

func ExampleNumber_String() {
	orders, err := serial.NewScheme(serial.WithLocation(time.UTC))
	if err != nil {
		log.Fatal(err)
	}

	n, err := orders.Parse("IS202110240017")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(n.String())
	fmt.Printf("%q\n", serial.Number{}.String())
	// Output:
	// IS202110240017
	// ""
}

// A column of integers sorts in the order of issue.
func ExampleNumber_Int64() {
	orders, err := serial.NewScheme(serial.WithLocation(time.UTC))
	if err != nil {
		log.Fatal(err)
	}

	n, err := orders.Parse("IS202110240017")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(n.Int64())
	// Output:
	// 202110240017 <nil>
}

// A number that a user typed is compared with the one that an order has.
func ExampleNumber_Equal() {
	orders, err := serial.NewScheme(serial.WithLocation(time.UTC))
	if err != nil {
		log.Fatal(err)
	}
	issued, err := orders.Number("IS", time.Date(2021, time.October, 24, 12, 0, 0, 0, time.UTC), 17)
	if err != nil {
		log.Fatal(err)
	}

	typed, err := orders.Parse("IS202110240017")
	fmt.Println(typed.Equal(issued), err)
	typed, err = orders.Parse("IS202110240018")
	fmt.Println(typed.Equal(issued), err)
	// Output:
	// true <nil>
	// false <nil>
}

// A number in JSON is a string. Whoever reads it parses it.
func ExampleNumber_MarshalText() {
	orders, err := serial.NewScheme(serial.WithLocation(time.UTC))
	if err != nil {
		log.Fatal(err)
	}
	number, err := orders.Number("IS", time.Date(2021, time.October, 24, 12, 0, 0, 0, time.UTC), 17)
	if err != nil {
		log.Fatal(err)
	}

	text, err := json.Marshal(map[string]any{"number": number, "total": 4200})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(text))

	var order struct{ Number string }
	if err := json.Unmarshal(text, &order); err != nil {
		log.Fatal(err)
	}
	n, err := orders.Parse(order.Number)
	fmt.Println(n.Seq, n.Equal(number), err)
	// Output:
	// {"number":"IS202110240017","total":4200}
	// 17 true <nil>
}

// A number is an argument of a query as it is: db.ExecContext(ctx, "INSERT INTO orders (number) VALUES ($1)", number).
func ExampleNumber_Value() {
	orders, err := serial.NewScheme(serial.WithLocation(time.UTC))
	if err != nil {
		log.Fatal(err)
	}
	number, err := orders.Number("IS", time.Date(2021, time.October, 24, 12, 0, 0, 0, time.UTC), 17)
	if err != nil {
		log.Fatal(err)
	}

	fmt.Println(number.Value()) // what the driver gets
	fmt.Println(serial.Number{}.Value())
	// Output:
	// IS202110240017 <nil>
	// <nil> serial: Value of a Number that no Generator or Scheme made
}
