package serial_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/serialtest"
)

// Every type has its own number, which begins again at midnight in Shanghai.
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
	// Accept m's clock, which differs from this host's.
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

// New checks every option, and its errors say what is allowed.
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

	// An operator stops the wrong process, finds the last number used, and confirms which process is right.
	if err := right.Takeover(ctx, "IS", 1); err != nil {
		log.Fatal(err)
	}
	fmt.Println(right.Next(ctx, "IS"))
	// Output:
	// IS202110240001 <nil>
	// true
	// IS202110240002 <nil>
}

// A runbook takes series over, but leaves those with a ledger to a person. This one has none.
func ExampleGenerator_TakeoverKeepingLedger() {
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
	if err := gen.TakeoverKeepingLedger(ctx, "IS", 7); err != nil {
		log.Fatal(err)
	}
	fmt.Println(gen.Next(ctx, "IS"))
	// Output:
	// IS202110240008 <nil>
}

// In the service's own command, errors name that command.
func ExampleGenerator_ForProgram() {
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
	fmt.Println(gen.Next(ctx, "IS"))
	m.Del("serial:{IS}:20211024") // a mishap
	_, err = gen.ForProgram("orders-serial", nil, serial.Hooks{}).Next(ctx, "IS")
	_, advice, _ := strings.Cut(err.Error(), "; ")
	fmt.Println(advice)
	// Output:
	// IS202110240001 <nil>
	// find the last one used, and run: orders-serial raise IS SEQ, where SEQ is the last number used of 2021-10-24, or 0
}

func ExampleGenerator_Facts() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	defer rdb.Close()
	gen, err := serial.New(rdb, serial.WithLocation(time.UTC), serial.WithKeyPrefix("shop"))
	if err != nil {
		log.Fatal(err)
	}
	facts := gen.Facts()
	fmt.Println(facts.Prefix, facts.Text, facts.Ledger)
	// Output:
	// shop {type}{date:yyyyMMdd}{seq:4} false
}

func ExampleScheme_Facts() {
	scheme, err := serial.NewScheme(serial.WithLocation(time.UTC), serial.WithStart(100))
	if err != nil {
		log.Fatal(err)
	}
	facts := scheme.Facts()
	fmt.Println(facts.Start, facts.Shared, facts.Hidden)
	// Output:
	// 100 false false
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
	if err := gen.Prepare(ctx, "IS"); err != nil { // today and tomorrow
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

// A number typed by a user is checked without asking Redis.
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

// A number typed by a user is compared with an order's.
func ExampleNumber_Equal() {
	orders, err := serial.NewScheme(serial.WithLocation(time.UTC))
	if err != nil {
		log.Fatal(err)
	}
	issued, err := orders.Number("IS", serial.At(time.Date(2021, time.October, 24, 12, 0, 0, 0, time.UTC)), 17)
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

// A number in JSON is a string. The reader parses it.
func ExampleNumber_MarshalText() {
	orders, err := serial.NewScheme(serial.WithLocation(time.UTC))
	if err != nil {
		log.Fatal(err)
	}
	number, err := orders.Number("IS", serial.At(time.Date(2021, time.October, 24, 12, 0, 0, 0, time.UTC)), 17)
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

// A number can be passed to a query directly: db.ExecContext(ctx, "INSERT INTO orders (number) VALUES ($1)", number).
func ExampleNumber_Value() {
	orders, err := serial.NewScheme(serial.WithLocation(time.UTC))
	if err != nil {
		log.Fatal(err)
	}
	number, err := orders.Number("IS", serial.At(time.Date(2021, time.October, 24, 12, 0, 0, 0, time.UTC)), 17)
	if err != nil {
		log.Fatal(err)
	}

	fmt.Println(number.Value()) // the value passed to the driver
	fmt.Println(serial.Number{}.Value())
	// Output:
	// IS202110240017 <nil>
	// <nil> serial: Value of a Number that no Generator or Scheme made
}

// The numbers that a shop has stored, compared with those that Redis has counted today. Number 2 was issued, but not
// stored.
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
	report, err := gen.Audit(ctx, "IS", serial.At(noon), stored)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(report.Count, "of", report.Last, "are accounted for, missing are", report.Missing)
	// Output:
	// 2 of 3 are accounted for, missing are [{2 2}]
}

// Before a process ends, it reports what it knows about numbers that nobody received.
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

// A hook that keeps explanations in a database notes why that fails, so that Flush can say what is lost.
func ExampleUnusedFailed() {
	m, err := miniredis.Run() // a Redis in memory, in place of yours
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer rdb.Close()
	keep := func(serial.Explanation) error { return errors.New("the database is away") }
	gen, err := serial.New(rdb, serial.WithPeriod(serial.Never), serial.WithTemplate("{type}{seq}"),
		serial.WithLocation(time.UTC), serial.WithHooks(serial.Hooks{
			Unused: func(ctx context.Context, e serial.Explanation) { serial.UnusedFailed(ctx, keep(e)) },
		}))
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	if err := gen.Raise(ctx, "IS", 41); err != nil {
		log.Fatal(err)
	}
	fmt.Println(gen.Flush(ctx))
	// Output:
	// serial: Flush: not reported: IS from 1970-01-01T00:00:00Z (raised): 1 to 41; last error: the database is away
}

// An account of the numbers that a shop has stored on invoices. In a service they come from a query, and
// Generator.Audit asks Redis for the last number issued.
func ExampleScheme_Audit() {
	scheme, err := serial.NewScheme(serial.WithLocation(time.UTC))
	if err != nil {
		log.Fatal(err)
	}
	var stored iter.Seq2[string, error] = func(yield func(string, error) bool) {
		for _, number := range []string{"IS202110240001", "IS202110240004", "IS202110240002", "IS202110240004",
			"IS202110240009", "IS-0003"} {
			if !yield(number, nil) {
				return
			}
		}
	}
	report, err := scheme.Audit("IS", serial.At(time.Date(2021, 10, 24, 0, 0, 0, 0, time.UTC)), 7, stored)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(report.Count, "of", report.Last)
	fmt.Println("missing:", report.Missing)
	fmt.Println("double:", report.Duplicates)
	fmt.Println("never issued:", report.Beyond)
	fmt.Println("no numbers:", report.Foreign)
	// Output:
	// 3 of 7
	// missing: [{3 3} {5 7}]
	// double: [IS202110240004]
	// never issued: [IS202110240009]
	// no numbers: [IS-0003]
}

// A report with a missing number that is not explained is not clean.
func ExampleReport_Clean() {
	scheme, err := serial.NewScheme(serial.WithLocation(time.UTC))
	if err != nil {
		log.Fatal(err)
	}
	stored := func(yield func(string, error) bool) {
		_ = yield("IS202110240002", nil) && yield("IS202110240001", nil)
	}
	for _, last := range []int64{2, 3} {
		report, err := scheme.Audit("IS", serial.At(time.Date(2021, time.October, 24, 0, 0, 0, 0, time.UTC)), last, stored)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(report.Clean(), report.Missing)
	}
	// Output:
	// true []
	// false [{3 3}]
}

// A clerk has voided the third invoice, and a process lost an answer, which may have had one of the others. That is
// only possible, so it explains nothing.
func ExampleWithExplanations() {
	scheme, err := serial.NewScheme(serial.WithLocation(time.UTC))
	if err != nil {
		log.Fatal(err)
	}
	day := time.Date(2021, time.October, 24, 0, 0, 0, 0, time.UTC)
	stored := func(yield func(string, error) bool) {
		_ = yield("IS202110240001", nil) && yield("IS202110240004", nil)
	}
	// In a service they come from a table.
	reasons := func(yield func(serial.Explanation, error) bool) {
		e := serial.Explanation{Series: "serial:IS", Type: "IS", Start: day, First: 2, Last: 9999, Possible: true,
			Reason: serial.AnswerLost + ": 1 attempt", At: day.Add(9 * time.Hour)}
		if !yield(e, nil) {
			return
		}
		e.First, e.Last, e.Possible, e.Reason, e.By = 3, 3, false, "voided by Ada", "Ada"
		yield(e, nil)
	}
	report, err := scheme.Audit("IS", serial.At(day), 5, stored, serial.WithExplanations(reasons))
	if err != nil {
		log.Fatal(err)
	}
	for _, e := range report.Explained {
		fmt.Println(e.Range, e.Explanation.Reason)
	}
	fmt.Println("not explained:", report.Unexplained)
	for _, e := range report.Possible {
		fmt.Println("possible:", e.Reason)
	}
	// Output:
	// {3 3} voided by Ada
	// not explained: [{2 2} {5 5}]
	// possible: answer lost: 1 attempt
}

// The numbers of October are accounted for from one reading of what is stored. Two were deleted on different days, and
// no number was issued on the 25th.
func ExampleScheme_AuditAll() {
	scheme, err := serial.NewScheme(serial.WithLocation(time.UTC))
	if err != nil {
		log.Fatal(err)
	}
	var last []serial.Number // from History
	for _, day := range []int{26, 24} {
		n, err := scheme.Number("IS", serial.On(2021, time.October, day), 3)
		if err != nil {
			log.Fatal(err)
		}
		last = append(last, n)
	}
	stored := func(yield func(string, error) bool) {
		for _, text := range []string{"IS202110240001", "IS202110240003", "IS202110260001", "IS202110260002", "IS-0003"} {
			if !yield(text, nil) {
				return
			}
		}
	}
	reports, err := scheme.AuditAll("IS", last, stored)
	if err != nil {
		log.Fatal(err)
	}
	for _, report := range reports.Periods {
		fmt.Println(scheme.PeriodName(serial.At(report.Start)), report.Clean(), report.Unexplained)
	}
	for _, start := range reports.Without {
		fmt.Println(scheme.PeriodName(serial.At(start)), "no numbers")
	}
	fmt.Println(reports.Clean(), "no numbers:", reports.Foreign)
	// Output:
	// 26 October 2021 false [{3 3}]
	// 24 October 2021 false [{2 2}]
	// 25 October 2021 no numbers
	// false no numbers: [IS-0003]
}

// What became of a number that somebody holds in their hands.
func ExampleReport_Lookup() {
	scheme, err := serial.NewScheme(serial.WithLocation(time.UTC))
	if err != nil {
		log.Fatal(err)
	}
	day := serial.On(2021, time.October, 24)
	stored := func(yield func(string, error) bool) {
		_ = yield("IS202110240001 ", nil) && yield("IS202110240003", nil)
	}
	report, err := scheme.Audit("IS", day, 3, stored, serial.WithLookup(1))
	if err != nil {
		log.Fatal(err)
	}
	for seq := int64(1); seq <= 4; seq++ {
		e := report.Lookup(seq)
		fmt.Printf("%d issued: %t, stored: %d %q, explained: %t\n", seq, e.Issued, e.Stored, e.Texts, e.Explanation != nil)
	}
	// Output:
	// 1 issued: true, stored: 1 ["IS202110240001 "], explained: false
	// 2 issued: true, stored: 0 [], explained: false
	// 3 issued: true, stored: 1 ["IS202110240003"], explained: false
	// 4 issued: false, stored: 0 [], explained: false
}

// Numbers are issued during an audit: a counter that is not a Generator's is read again afterwards.
func ExampleWithLastAfter() {
	scheme, err := serial.NewScheme(serial.WithLocation(time.UTC))
	if err != nil {
		log.Fatal(err)
	}
	last := int64(2)
	stored := func(yield func(string, error) bool) {
		last = 4
		_ = yield("IS202110240001", nil) && yield("IS202110240002", nil) && yield("IS202110240004", nil)
	}
	report, err := scheme.Audit("IS", serial.At(time.Date(2021, time.October, 24, 0, 0, 0, 0, time.UTC)), last, stored,
		serial.WithLastAfter(func() (int64, error) { return last, nil }))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(report.Last, report.Missing, report.Clean())
	// Output:
	// 2 [] true
}

// In June, the template was widened. Numbers printed before that are accounted for, too.
func ExampleWithEarlier() {
	scheme, err := serial.NewScheme(serial.WithLocation(time.UTC), serial.WithPeriod(serial.PerYear),
		serial.WithTemplate("{type}{date:yyyy}-{seq:6}"))
	if err != nil {
		log.Fatal(err)
	}
	earlier, err := scheme.WithTemplate("{type}{date:yyyy}-{seq:4}")
	if err != nil {
		log.Fatal(err)
	}
	stored := func(yield func(string, error) bool) {
		_ = yield("IS2021-0001", nil) && yield("IS2021-0002", nil) && yield("IS2021-000004", nil)
	}
	report, err := scheme.Audit("IS", serial.On(2021, time.June, 30), 4, stored, serial.WithEarlier(earlier))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(report.Count, report.Missing, report.Foreign)
	// Output:
	// 3 [{3 3}] []
}

// The other scheme has the same key, so it reads the numbers that its template printed.
func ExampleScheme_WithTemplate() {
	scheme, err := serial.NewScheme(serial.WithLocation(time.UTC), serial.WithHiddenSequence([]byte("0123456789abcdef")),
		serial.WithTemplate("{type}-{date:yyyyMMdd}-{seq:8}"))
	if err != nil {
		log.Fatal(err)
	}
	earlier, err := scheme.WithTemplate("{type}{date:yyyyMMdd}{seq:6}")
	if err != nil {
		log.Fatal(err)
	}
	number, err := earlier.Number("IS", serial.On(2021, time.October, 24), 7)
	if err != nil {
		log.Fatal(err)
	}
	parsed, err := earlier.Parse(number.String())
	fmt.Println(len(number.String()), parsed.Seq, err)
	// Output:
	// 16 7 <nil>
}

// whatToDo sorts a call's errors by who can resolve them.
func whatToDo(err error) string {
	switch {
	case err == nil:
		return "use the number"
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return "nothing: the caller has left, and the number may be a gap"
	case errors.Is(err, serial.ErrInvalidType), errors.Is(err, serial.ErrInvalidRequest):
		return "correct the caller"
	case errors.Is(err, serial.ErrInvalidNumber): // of Parse; serial.ErrCheckDigit, too
		return "ask for the number again"
	case errors.Is(err, serial.ErrExhausted):
		return "widen {seq} in every process"
	case errors.Is(err, serial.ErrCounterLost), errors.Is(err, serial.ErrClockSkew), errors.Is(err, serial.ErrConflict):
		return "call an operator: the error says which command ends it"
	default: // serial.ErrNotReplicated, or Redis, the floor or the ledger has failed
		return "try again"
	}
}

// What to do about each error.
func Example_errors() {
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
	_, err = gen.Next(ctx, "IS")
	fmt.Println(whatToDo(err))
	_, err = gen.Next(ctx, "I S")
	fmt.Println(whatToDo(err))
	_, err = gen.Parse("IS2021102400l7") // with an l
	fmt.Println(whatToDo(err))
	_, err = gen.NextN(ctx, "IS", 9999) // one of them is used
	fmt.Println(whatToDo(err))
	m.FlushAll()
	_, err = gen.Next(ctx, "IS")
	fmt.Println(whatToDo(err))
	// Output:
	// use the number
	// correct the caller
	// ask for the number again
	// widen {seq} in every process
	// call an operator: the error says which command ends it
}

// Redis loses everything, but no number is issued twice.
func ExampleWithLedger() {
	t := new(testing.T) // go test passes one to a test
	redis := serialtest.NewRedis(t, time.Date(2021, time.October, 24, 12, 0, 0, 0, time.UTC))
	defer redis.Stop()
	ledger := new(serialtest.Ledger) // in a service, a durable one, such as sqlledger's
	gen, err := serial.New(redis.Client(), serial.WithLocation(time.UTC), serial.WithLedger(ledger, 100),
		serial.WithMaxSkew(-1))
	if err != nil {
		log.Fatal(err)
	}

	ctx := context.Background()
	fmt.Println(gen.Next(ctx, "IS"))
	redis.Lose()
	fmt.Println(gen.Next(ctx, "IS"))
	// Output:
	// IS202110240001 <nil>
	// IS202110240101 <nil>
}

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

// The same instant falls on another day elsewhere.
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

// Order numbers that do not reveal how many orders there are.
func ExampleWithHiddenSequence() {
	m, err := miniredis.Run() // a Redis in memory, in place of yours
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	m.SetTime(time.Date(2021, time.October, 24, 12, 0, 0, 0, time.UTC)) // its clock
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer rdb.Close()
	key := []byte("an example's key") // use a random, secret key
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

// Invoices start again every month, and have as many digits as needed.
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

// Every tenant has its own numbers.
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

// A database that stores the numbers supplies the last one, in case Redis has lost it.
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

// A number is returned once a replica has it. This Redis has no replica.
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

// An office has authorised the numbers up to 500, and until the end of 2026.
func ExampleWithLast() {
	scheme, err := serial.NewScheme(serial.WithLocation(time.UTC), serial.WithPeriod(serial.Never),
		serial.WithTemplate("{type}{seq:8}"), serial.WithStart(101), serial.WithLast(500),
		serial.WithUntil(serial.On(2026, time.December, 31)))
	if err != nil {
		log.Fatal(err)
	}

	fmt.Println(scheme.Limits())
	fmt.Println(scheme.Until())
	// Output:
	// 101 500
	// 2026-12-31 true
}

// After the last day, no number is issued.
func ExampleWithUntil() {
	m, err := miniredis.Run() // a Redis in memory, in place of yours
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer rdb.Close()
	gen, err := serial.New(rdb, serial.WithLocation(time.UTC), serial.WithMaxSkew(-1),
		serial.WithUntil(serial.On(2026, time.December, 31)))
	if err != nil {
		log.Fatal(err)
	}

	m.SetTime(time.Date(2026, time.December, 31, 23, 59, 59, 0, time.UTC))
	fmt.Println(gen.Next(context.Background(), "IS"))
	m.SetTime(time.Date(2027, time.January, 1, 0, 0, 0, 0, time.UTC))
	_, err = gen.Next(context.Background(), "IS")
	fmt.Println(errors.Is(err, serial.ErrExhausted))
	// Output:
	// IS202612310001 <nil>
	// true
}

// The day on which an authorisation ends.
func ExampleScheme_Until() {
	scheme, err := serial.NewScheme(serial.WithUntil(serial.On(2026, time.December, 31)))
	if err != nil {
		log.Fatal(err)
	}

	fmt.Println(scheme.Until())
	// Output:
	// 2026-12-31 true
}

// A queue may deliver a message again after a long weekend.
func ExampleWithOnceFor() {
	m, err := miniredis.Run() // a Redis in memory, in place of yours
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer rdb.Close()
	gen, err := serial.New(rdb, serial.WithLocation(time.UTC), serial.WithOnceFor(7*24*time.Hour))
	if err != nil {
		log.Fatal(err)
	}

	first, err := gen.NextOnce(context.Background(), "IS", "message 4711")
	if err != nil {
		log.Fatal(err)
	}
	m.FastForward(6 * 24 * time.Hour)
	again, err := gen.NextOnce(context.Background(), "IS", "message 4711")
	fmt.Println(again.Equal(first), err)
	// Output:
	// true <nil>
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

// Events that matter to an operator are logged.
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

// The operator's events are logged without numbers: how many orders there are is a secret.
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

// A Scheme prints and parses invoices of Indian business years, without Redis.
func ExampleScheme() {
	invoices, err := serial.NewScheme(serial.WithLocation(time.UTC), serial.WithPeriod(serial.PerYear),
		serial.WithYearStart(time.April, 1), serial.WithTemplate("{type}/{date:FFFF-EE}/{seq:4}"))
	if err != nil {
		log.Fatal(err)
	}

	n, err := invoices.Number("INV", serial.At(time.Date(2025, time.March, 31, 12, 0, 0, 0, time.UTC)), 512)
	fmt.Println(n, err)
	n, err = invoices.Parse("INV/2024-25/0512")
	fmt.Println(n.Type, n.Start.Format(time.DateOnly), n.Seq, err)
	// Output:
	// INV/2024-25/0512 <nil>
	// INV 2024-04-01 512 <nil>
}

// A template that cannot work is refused, and the error names one that does.
func ExampleNewScheme() {
	_, err := serial.NewScheme(serial.WithLocation(time.UTC), serial.WithPeriod(serial.PerWeek),
		serial.WithTemplate("{type}{date:yyyy-WW}-{seq:4}"))
	fmt.Println(err)
	// Output:
	// serial: template "{type}{date:yyyy-WW}-{seq:4}": {date:yyyy-WW}: yyyy-WW does not tell weeks apart: 2024-01 is printed for 1 January 2024 and for 30 December 2024; print GGGG-WW (WithTemplate)
}

// A number of a past day, printed again for a report.
func ExampleScheme_Number() {
	slips, err := serial.NewScheme(serial.WithLocation(time.UTC),
		serial.WithTemplate("{type}-{date:yyMMdd}-{seq:4}-{check:damm}"))
	if err != nil {
		log.Fatal(err)
	}

	day := time.Date(2021, time.October, 24, 12, 0, 0, 0, time.UTC)
	fmt.Println(slips.Number("PICK", serial.At(day), 17))
	_, err = slips.Number("PICK", serial.At(day), 10_000)
	fmt.Println(errors.Is(err, serial.ErrExhausted))
	// Output:
	// PICK-211024-0017-1 <nil>
	// true
}

// A clerk types a number, and swaps two digits.
func ExampleScheme_Parse() {
	slips, err := serial.NewScheme(serial.WithLocation(time.UTC),
		serial.WithTemplate("{type}-{date:yyMMdd}-{seq:4}-{check:damm}"))
	if err != nil {
		log.Fatal(err)
	}

	n, err := slips.Parse("PICK-211024-0017-1")
	fmt.Println(n.Seq, err)
	_, err = slips.Parse("PICK-211024-0071-1")
	fmt.Println(errors.Is(err, serial.ErrCheckDigit), errors.Is(err, serial.ErrInvalidNumber))
	// Output:
	// 17 <nil>
	// true true
}

// The week of a day, by ISO 8601.
func ExampleScheme_Period() {
	batches, err := serial.NewScheme(serial.WithLocation(time.UTC), serial.WithPeriod(serial.PerWeek),
		serial.WithTemplate("{type}{date:GGGG-WW}-{seq:4}"))
	if err != nil {
		log.Fatal(err)
	}

	label, start, end := batches.Period(serial.At(time.Date(2024, time.December, 31, 12, 0, 0, 0, time.UTC)))
	fmt.Println(label, start.Format(time.DateOnly), end.Format(time.DateOnly))
	// Output:
	// 2025W01 2024-12-30 2025-01-06
}

// Before the business day begins at 04:00, an instant has the date of the day before.
func ExampleScheme_BusinessDate() {
	shifts, err := serial.NewScheme(serial.WithLocation(time.UTC), serial.WithDayStart(4*time.Hour))
	if err != nil {
		log.Fatal(err)
	}

	fmt.Println(shifts.BusinessDate(serial.At(time.Date(2026, time.August, 1, 3, 59, 0, 0, time.UTC))))
	fmt.Println(shifts.BusinessDate(serial.On(2026, time.August, 1)))
	// Output:
	// 2026-07-31
	// 2026-08-01
}

// A week in words.
func ExampleScheme_PeriodName() {
	batches, err := serial.NewScheme(serial.WithLocation(time.UTC), serial.WithPeriod(serial.PerWeek),
		serial.WithTemplate("{type}{date:GGGG-WW}-{seq:4}"))
	if err != nil {
		log.Fatal(err)
	}

	fmt.Println(batches.PeriodName(serial.At(time.Date(2024, time.December, 31, 12, 0, 0, 0, time.UTC))))
	// Output:
	// week 1 of 2025
}

// The limits of a short ticket number.
func ExampleScheme_Limits() {
	tickets, err := serial.NewScheme(serial.WithLocation(time.UTC),
		serial.WithTemplate("{type}{date:yyDDD}{seq:3:base32}"))
	if err != nil {
		log.Fatal(err)
	}

	fmt.Println(tickets.Limits())
	// Output:
	// 1 32767
}

// A Generator's Scheme prints the same numbers as the Generator.
func ExampleGenerator_Scheme() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"}) // nothing is sent
	defer rdb.Close()
	gen, err := serial.New(rdb, serial.WithLocation(time.UTC))
	if err != nil {
		log.Fatal(err)
	}

	fmt.Println(gen.Scheme().Number("IS", serial.At(time.Date(2021, time.October, 24, 12, 0, 0, 0, time.UTC)), 17))
	// Output:
	// IS202110240017 <nil>
}

// What identifies a series in a ledger and in the tables of package gapless.
func ExampleScheme_Series() {
	invoices, err := serial.NewScheme(serial.WithLocation(time.UTC), serial.WithKeyPrefix("shop"))
	if err != nil {
		log.Fatal(err)
	}

	fmt.Println(invoices.Series("INV"))
	// Output:
	// shop:INV <nil>
}

// A series keeps its calendar.
func ExampleScheme_Calendar() {
	invoices, err := serial.NewScheme(serial.WithLocation(time.UTC), serial.WithPeriod(serial.PerYear),
		serial.WithYearStart(time.April, 1), serial.WithTemplate("{type}/{date:FFFF-EE}/{seq:4}"))
	if err != nil {
		log.Fatal(err)
	}

	fmt.Println(invoices.Calendar())
	// Output:
	// years from April 1
}

// A template may be widened within a day, but not get a check digit.
func ExampleScheme_PrintMark() {
	mark := func(template string) string {
		s, err := serial.NewScheme(serial.WithLocation(time.UTC), serial.WithTemplate(template))
		if err != nil {
			log.Fatal(err)
		}
		return s.PrintMark()
	}

	today := mark("{type}{date:yyyyMMdd}{seq:4}")
	fmt.Println(today == mark("{type}{date:yyyyMMdd}{seq:5}"))
	fmt.Println(today == mark("{type}{date:yyyyMMdd}{seq:4}{check:damm}"))
	// Output:
	// true
	// false
}

// Numbers are counted by the year and print the month, which is their span.
func ExampleScheme_Span() {
	invoices, err := serial.NewScheme(serial.WithLocation(time.UTC), serial.WithPeriod(serial.PerYear),
		serial.WithTemplate("{type}-{date:yyyyMM}-{seq:5}"))
	if err != nil {
		log.Fatal(err)
	}

	start, end, err := invoices.Span(serial.At(time.Date(2021, time.October, 24, 12, 0, 0, 0, time.UTC)))
	fmt.Println(start.Format(time.DateOnly), end.Format(time.DateOnly), err)
	// Output:
	// 2021-10-01 2021-11-01 <nil>
}

// A date names its business day by the scheme's calendar.
func ExampleOn() {
	zone, err := time.LoadLocation("America/Sao_Paulo")
	if err != nil {
		log.Fatal(err)
	}
	invoices, err := serial.NewScheme(serial.WithLocation(zone), serial.WithPeriod(serial.PerMonth),
		serial.WithTemplate("{type}-{date:yyyyMM}-{seq:5}"))
	if err != nil {
		log.Fatal(err)
	}

	fmt.Println(invoices.PeriodName(serial.On(2026, time.August, 1)))
	_, _, err = invoices.Span(serial.On(2026, time.June, 31))
	fmt.Println(err)
	// Output:
	// August 2026
	// serial: the date 2026-06-31 does not exist: want a date of the calendar
}

// Forms and DATE columns give dates as midnight UTC, which is still the evening before in Brazil.
func ExampleOnDateOf() {
	zone, err := time.LoadLocation("America/Sao_Paulo")
	if err != nil {
		log.Fatal(err)
	}
	invoices, err := serial.NewScheme(serial.WithLocation(zone), serial.WithPeriod(serial.PerMonth),
		serial.WithTemplate("{type}-{date:yyyyMM}-{seq:5}"))
	if err != nil {
		log.Fatal(err)
	}

	date, err := time.Parse(time.DateOnly, "2026-08-01")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(invoices.PeriodName(serial.OnDateOf(date)))
	fmt.Println(invoices.PeriodName(serial.At(date)))
	// Output:
	// August 2026
	// July 2026
}

// Instants are equal whatever their zone.
func ExampleAt() {
	at := time.Date(2026, time.August, 1, 0, 0, 0, 0, time.FixedZone("", -3*60*60))
	fmt.Println(serial.At(at), serial.At(at) == serial.At(at.UTC()))
	// Output:
	// 2026-08-01T03:00:00Z true
}

// Messages show a date as it was given, and an instant in UTC.
func ExampleWhen_String() {
	fmt.Println(serial.On(2026, time.August, 1))
	fmt.Println(serial.At(time.Date(2026, time.August, 1, 8, 30, 0, 0, time.FixedZone("", 5*60*60+30*60))))
	// Output:
	// 2026-08-01
	// 2026-08-01T03:00:00Z
}

// An order with two numbers was never stored, and somebody knows why.
func ExampleScheme_Explanation() {
	orders, err := serial.NewScheme(serial.WithLocation(time.UTC))
	if err != nil {
		log.Fatal(err)
	}

	first, err := orders.Parse("IS202110240002")
	if err != nil {
		log.Fatal(err)
	}
	last, err := orders.Parse("IS202110240003")
	if err != nil {
		log.Fatal(err)
	}
	e, err := orders.Explanation(first, last, "the till was reset", "Ada")
	fmt.Println(e.Series, e.First, e.Last, e.Reason, e.By, err)
	// Output:
	// serial:IS 2 3 the till was reset Ada <nil>
}

func ExampleWithSharedCounter() {
	m, err := miniredis.Run() // a Redis in memory, in place of yours
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	m.SetTime(time.Date(2021, 1, 9, 12, 0, 0, 0, time.UTC))
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer rdb.Close()
	gen, err := serial.New(rdb, serial.WithLocation(time.UTC), serial.WithMaxSkew(-1), serial.WithSharedCounter(),
		serial.WithPeriod(serial.PerYear), serial.WithTemplate("{type}{date:yyMM}-{seq:4}"))
	if err != nil {
		log.Fatal(err)
	}

	for _, typ := range []string{"FA", "AV", "FA"} { // invoices and credit notes
		number, err := gen.Next(context.Background(), typ)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(number)
	}
	// Output:
	// FA2101-0001
	// AV2101-0002
	// FA2101-0003
}

// A form checks what a person has entered before it stores the explanation.
func ExampleExplanation_Validate() {
	e := serial.Explanation{
		Series: "serial:IS", Type: "IS", Start: time.Date(2021, 10, 24, 0, 0, 0, 0, time.UTC), First: 17, Last: 12,
		Reason: "voided", By: "Ada", At: time.Now(),
	}
	fmt.Println(e.Validate())
	e.Last = 17
	fmt.Println(e.Validate())
	// Output:
	// serial: explanation of IS 17 to 12: sequences must be 1 to 999999999999999, in order
	// <nil>
}

// A ledger refuses a process that counts the series in another way.
func ExampleReservation_Check() {
	months, err := serial.NewScheme(serial.WithPeriod(serial.PerMonth), serial.WithTemplate("{type}{date:yyyyMM}{seq:4}"))
	if err != nil {
		log.Fatal(err)
	}
	series, err := months.Series("IS")
	if err != nil {
		log.Fatal(err)
	}
	r := serial.Reservation{
		Series: series, Period: "202110", Calendar: months.Calendar(), Print: months.PrintMark(), N: 100,
	}

	fmt.Println(r.Check("months", months.PrintMark()))
	fmt.Println(errors.Is(r.Check("days", months.PrintMark()), serial.ErrConflict))
	// Output:
	// <nil>
	// true
}
