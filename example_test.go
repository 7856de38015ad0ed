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

	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/serialtest"
)

// setUp returns a context, a generator for UTC, and a Redis in memory whose clock is stopped at noon on 24 October
// 2021. A service calls serial.New with its own client instead.
func setUp(opts ...serial.Option) (context.Context, *serial.Generator, *serialtest.Redis) {
	t := new(testing.T) // a test passes its own
	gen, server := serialtest.New(t, time.Date(2021, time.October, 24, 12, 0, 0, 0, time.UTC), opts...)
	return context.Background(), gen, server
}

// newOrders returns a Scheme for UTC.
func newOrders(opts ...serial.Option) *serial.Scheme {
	return must(serial.NewScheme(append(opts, serial.WithLocation(time.UTC))...))
}

// must returns the result of a call. It panics if the call failed, but a service handles the error.
func must[T any](result T, err error) T {
	if err != nil {
		panic(err)
	}
	return result
}

// used yields numbers like an iterator over the rows of a query.
func used(numbers ...string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for _, number := range numbers {
			if !yield(number, nil) {
				return
			}
		}
	}
}

// Every type has its own numbers, which start again at midnight in Shanghai.
func Example() {
	shanghai, err := time.LoadLocation("Asia/Shanghai")
	if err != nil {
		log.Fatal(err)
	}
	// A Redis in memory stands in for yours. Its clock is that of 2021, so New must not compare it with the host's.
	server := serialtest.NewRedis(new(testing.T), time.Date(2021, time.October, 24, 23, 59, 0, 0, shanghai))
	defer server.Stop()
	gen, err := serial.New(server.Client(), serial.WithLocation(shanghai), serial.WithMaxSkew(-1))
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for _, typ := range []string{"IS", "IS", "PO"} {
		number, err := gen.Next(ctx, typ)
		if err != nil {
			log.Fatal(err) // see the example Errors
		}
		fmt.Println(number)
	}
	server.Advance(time.Minute)
	fmt.Println(gen.Next(ctx, "IS"))
	// Output:
	// IS202110240001
	// IS202110240002
	// PO202110240001
	// IS202110250001 <nil>
}

// New checks every option. Its errors tell you which values are allowed.
func ExampleNew() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"}) // New does not connect to it
	defer rdb.Close()
	_, err := serial.New(rdb, serial.WithTemplate("{type}{date:yyyymmdd}{seq:4}"))
	fmt.Println(err)
	// Output:
	// serial: template "{type}{date:yyyymmdd}{seq:4}": {date:yyyymmdd}: the month (MM) is missing: numbers of different days would read the same, and "mm" is the minute; print yyyyMMdd (WithTemplate)
}

// A request that is delivered twice gets the same number both times.
func ExampleGenerator_NextOnce() {
	ctx, gen, server := setUp(serial.WithOnceFor(7 * 24 * time.Hour))
	defer server.Stop()
	fmt.Println(gen.NextOnce(ctx, "IS", "order 8f14e45f"))
	fmt.Println(gen.NextOnce(ctx, "IS", "order c9f0f895"))
	server.Advance(6 * 24 * time.Hour)
	fmt.Println(gen.NextOnce(ctx, "IS", "order 8f14e45f")) // from any process
	// Output:
	// IS202110240001 <nil>
	// IS202110240002 <nil>
	// IS202110240001 <nil>
}

// A series that another system began today continues here.
func ExampleGenerator_Raise() {
	ctx, gen, server := setUp()
	defer server.Stop()
	fmt.Println(gen.Raise(ctx, "IS", 340)) // the other system's last number
	fmt.Println(gen.Next(ctx, "IS"))
	// Output:
	// <nil>
	// IS202110240341 <nil>
}

// A process with the wrong time zone has opened the day, so calls in processes with the right time zone fail.
func ExampleGenerator_Takeover() {
	ctx, wrong, server := setUp(serial.WithLocation(time.UTC))
	defer server.Stop()
	shanghai := must(time.LoadLocation("Asia/Shanghai"))
	right := must(serial.New(server.Client(), serial.WithLocation(shanghai), serial.WithMaxSkew(-1)))
	fmt.Println(wrong.Next(ctx, "IS"))
	_, err := right.Next(ctx, "IS")
	fmt.Println(errors.Is(err, serial.ErrConflict))

	// An operator stops the wrong process, and finds the last number used.
	fmt.Println(right.Takeover(ctx, "IS", 1))
	fmt.Println(right.Next(ctx, "IS"))
	// Output:
	// IS202110240001 <nil>
	// true
	// <nil>
	// IS202110240002 <nil>
}

// A service has its own command. The errors of its generator contain the name of this command.
func ExampleGenerator_ForProgram() {
	ctx, gen, server := setUp()
	defer server.Stop()
	gen = gen.ForProgram("orders-serial", nil, serial.Hooks{})
	must(gen.Next(ctx, "IS"))
	server.Client().Del(ctx, "serial:{IS}:20211024") // the counter is lost
	_, err := gen.Next(ctx, "IS")
	_, advice, _ := strings.Cut(err.Error(), "; ")
	fmt.Println(advice)
	// Output:
	// find the last number used, and run: orders-serial raise IS SEQ, where SEQ is the last number used of 2021-10-24, or 0
}

// In the evening, a job opens the next day. At midnight, no caller has to wait for a lock.
func ExampleGenerator_Prepare() {
	ctx, gen, server := setUp()
	defer server.Stop()
	fmt.Println(gen.Prepare(ctx, "IS")) // today and tomorrow
	server.Advance(12 * time.Hour)      // to midnight
	fmt.Println(gen.Next(ctx, "IS"))
	// Output:
	// <nil>
	// IS202110250001 <nil>
}

// History returns the last number of each of the last seven days. Redis keeps the counter of a day for thirty days.
func ExampleGenerator_History() {
	ctx, gen, server := setUp(serial.WithRetention(30))
	defer server.Stop()
	must(gen.NextN(ctx, "IS", 512))
	server.Advance(48 * time.Hour)
	must(gen.NextN(ctx, "IS", 17))
	for _, day := range must(gen.History(ctx, "IS", 7)) {
		fmt.Println(day.Start.Format(time.DateOnly), day.Seq)
	}
	// Output:
	// 2021-10-26 17
	// 2021-10-24 512
}

// In JSON, a number is a string, which its reader parses. As the argument of a query, it is also a string.
func ExampleNumber_MarshalText() {
	orders := newOrders()
	number := must(orders.Number("IS", serial.On(2021, time.October, 24), 17))
	text := must(json.Marshal(map[string]any{"number": number, "total": 4200}))
	fmt.Println(string(text))

	var order struct{ Number string }
	if err := json.Unmarshal(text, &order); err != nil {
		log.Fatal(err)
	}
	n, err := orders.Parse(order.Number)
	fmt.Println(n.Seq, n.Equal(number), err)
	fmt.Println(number.Value()) // what the driver of a database receives
	fmt.Println(number.Int64()) // in a column, it sorts in the order of issue
	// Output:
	// {"number":"IS202110240017","total":4200}
	// 17 true <nil>
	// IS202110240017 <nil>
	// 202110240017 <nil>
}

// The numbers that a shop has stored are compared with those that Redis has counted today.
func ExampleGenerator_Audit() {
	ctx, gen, server := setUp()
	defer server.Stop()
	must(gen.NextN(ctx, "IS", 7))
	stored := used("IS202110240001", "IS202110240004", "IS202110240002", "IS202110240004", "IS202110240009", "IS-0003")
	report := must(gen.Audit(ctx, "IS", serial.On(2021, time.October, 24), stored))
	fmt.Println(report.Count, "of", report.Last, "missing:", report.Missing)
	fmt.Println("used twice:", report.Duplicates)
	fmt.Println("never issued:", report.Beyond)
	fmt.Println("not numbers:", report.Foreign)
	// Output:
	// 3 of 7 missing: [{3 3} {5 7}]
	// used twice: [IS202110240004]
	// never issued: [IS202110240009]
	// not numbers: [IS-0003]
}

// A hook stores explanations in a database, and reports the cause if that fails. Before the process ends, Flush waits
// for the hook. Its error contains the explanations that were lost.
func ExampleUnusedFailed() {
	store := func(e serial.Explanation) error {
		fmt.Println(e.Type, e.First, "to", e.Last, e.Reason)
		return errors.New("the database is away")
	}
	ctx, gen, server := setUp(serial.WithHooks(serial.Hooks{
		Unused: func(ctx context.Context, e serial.Explanation) { serial.UnusedFailed(ctx, store(e)) },
	}))
	defer server.Stop()
	if err := gen.Raise(ctx, "IS", 41); err != nil {
		log.Fatal(err)
	}
	fmt.Println(gen.Flush(ctx))
	// Output:
	// IS 1 to 41 raised
	// serial: Flush: not reported: IS from 2021-10-24T00:00:00Z (raised): 1 to 41; latest error: the database is away
}

// Ada has voided the third invoice. The other explanation is only a possible reason, so it explains nothing.
func ExampleWithExplanations() {
	day := time.Date(2021, time.October, 24, 0, 0, 0, 0, time.UTC)
	voided := serial.Explanation{Series: "serial:IS", Type: "IS", Start: day, First: 3, Last: 3, Reason: "voided",
		By: "Ada", At: day.Add(9 * time.Hour)}
	lost := serial.Explanation{Series: "serial:IS", Type: "IS", Start: day, First: 2, Last: 9999, Possible: true,
		Reason: serial.AnswerLost + ": 1 attempt", At: day.Add(8 * time.Hour)}
	reasons := func(yield func(serial.Explanation, error) bool) { // in a service, the rows of a table
		_ = yield(voided, nil) && yield(lost, nil)
	}
	report := must(newOrders().Audit("IS", serial.At(day), 5, used("IS202110240001", "IS202110240004"),
		serial.WithExplanations(reasons)))
	for _, e := range report.Explained {
		fmt.Println(e.Range, e.Explanation.Reason)
	}
	fmt.Println("not explained:", report.Unexplained, "possible:", report.Possible[0].Reason)
	// Output:
	// {3 3} voided
	// not explained: [{2 2} {5 5}] possible: answer lost: 1 attempt
}

// AuditAll reads the stored numbers of October once. Two were deleted, and no number was issued on the 25th.
func ExampleScheme_AuditAll() {
	orders := newOrders()
	last := []serial.Number{ // in a service, from History
		must(orders.Parse("IS202110260003")), must(orders.Parse("IS202110240003")),
	}
	stored := used("IS202110240001", "IS202110240003", "IS202110260001", "IS202110260002", "IS-0003")
	reports := must(orders.AuditAll("IS", last, stored))
	for _, report := range reports.Periods {
		fmt.Println(orders.PeriodName(serial.At(report.Start)), report.Clean(), report.Unexplained)
	}
	fmt.Println(orders.PeriodName(serial.At(reports.Without[0])), "has no numbers")
	fmt.Println(reports.Clean(), "not numbers:", reports.Foreign)
	// Output:
	// 26 October 2021 false [{3 3}]
	// 24 October 2021 false [{2 2}]
	// 25 October 2021 has no numbers
	// false not numbers: [IS-0003]
}

// Lookup reports whether a number was issued, how often it is stored, and with which text.
func ExampleReport_Lookup() {
	stored := used("IS202110240001 ", "IS202110240003")
	report := must(newOrders().Audit("IS", serial.On(2021, time.October, 24), 2, stored, serial.WithLookup(1)))
	for seq := int64(1); seq <= 3; seq++ {
		e := report.Lookup(seq)
		fmt.Printf("%d issued: %t, stored: %d %q\n", seq, e.Issued, e.Stored, e.Texts)
	}
	// Output:
	// 1 issued: true, stored: 1 ["IS202110240001 "]
	// 2 issued: true, stored: 0 []
	// 3 issued: false, stored: 1 ["IS202110240003"]
}

// Another program issues numbers during the audit, so its counter is read again afterwards.
func ExampleWithLastAfter() {
	counter := int64(2)
	stored := func(yield func(string, error) bool) {
		counter = 4
		_ = yield("IS202110240001", nil) && yield("IS202110240002", nil) && yield("IS202110240004", nil)
	}
	report := must(newOrders().Audit("IS", serial.On(2021, time.October, 24), counter, stored,
		serial.WithLastAfter(func() (int64, error) { return counter, nil })))
	fmt.Println(report.Last, report.Missing, report.Clean())
	// Output:
	// 2 [] true
}

// The template was widened in June. The audit also accounts for the numbers that were printed before.
func ExampleWithEarlier() {
	orders := newOrders(serial.WithPeriod(serial.PerYear), serial.WithTemplate("{type}{date:yyyy}-{seq:6}"))
	earlier := must(orders.WithTemplate("{type}{date:yyyy}-{seq:4}"))
	stored := used("IS2021-0001", "IS2021-0002", "IS2021-000004")
	report := must(orders.Audit("IS", serial.On(2021, time.June, 30), 4, stored, serial.WithEarlier(earlier)))
	fmt.Println(report.Count, report.Missing, report.Foreign)
	// Output:
	// 3 [{3 3}] []
}

// whatToDo returns what to do about an error of a call.
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

// A program handles each error in a different way.
func Example_errors() {
	ctx, gen, server := setUp()
	defer server.Stop()
	_, ok := gen.Next(ctx, "IS")
	_, invalid := gen.Next(ctx, "I S")
	_, mistyped := gen.Parse("IS2021102400l7") // with an l
	_, exhausted := gen.NextN(ctx, "IS", 9999) // number 1 is used
	server.Lose()
	_, lost := gen.Next(ctx, "IS")
	for _, err := range []error{ok, invalid, mistyped, exhausted, lost} {
		fmt.Println(whatToDo(err))
	}
	// Output:
	// use the number
	// correct the caller
	// ask for the number again
	// widen {seq} in every process
	// call an operator: the error says which command ends it
}

// Redis loses everything, but no number is issued twice.
func ExampleWithLedger() {
	ledger := new(serialtest.Ledger) // in a service, a durable one, such as sqlledger's
	ctx, gen, server := setUp(serial.WithLedger(ledger, 100))
	defer server.Stop()
	fmt.Println(gen.Next(ctx, "IS"))
	server.Lose()
	fmt.Println(gen.Next(ctx, "IS"))
	// Output:
	// IS202110240001 <nil>
	// IS202110240101 <nil>
}

// These order numbers do not reveal how many orders there are.
func ExampleWithHiddenSequence() {
	key := []byte("an example's key") // use a random, secret key
	ctx, gen, server := setUp(serial.WithTemplate("{type}{date:yyMMdd}{seq:6}"), serial.WithHiddenSequence(key))
	defer server.Stop()
	for _, n := range must(gen.NextN(ctx, "ORD", 3)) {
		fmt.Println(n, n.Seq)
	}
	// Output:
	// ORD211024381187 1
	// ORD211024754087 2
	// ORD211024185360 3
}

// Invoice numbers start again every month, and have as many digits as they need.
func ExampleWithPeriod() {
	ctx, gen, server := setUp(serial.WithPeriod(serial.PerMonth), serial.WithTemplate("{type}-{date:yyyyMM}-{seq:3+}"))
	defer server.Stop()
	for _, n := range must(gen.NextN(ctx, "INV", 1000))[998:] {
		fmt.Println(n)
	}
	// Output:
	// INV-202110-999
	// INV-202110-1000
}

// Every tenant has its own numbers.
func ExampleWithKeyPrefix() {
	ctx, acme, server := setUp(serial.WithKeyPrefix("serial/acme"))
	defer server.Stop()
	globex := must(serial.New(server.Client(), serial.WithKeyPrefix("serial/globex"), serial.WithLocation(time.UTC),
		serial.WithMaxSkew(-1)))
	fmt.Println(acme.Next(ctx, "IS"))
	fmt.Println(globex.Next(ctx, "IS"))
	// Output:
	// IS202110240001 <nil>
	// IS202110240001 <nil>
}

// A database stores the numbers. If Redis has no counter for the day, the numbers continue above the last one stored.
func ExampleWithFloor() {
	lastStored := func(_ context.Context, typ string, start time.Time) (int64, error) {
		// SELECT coalesce(max(seq), 0) FROM orders WHERE type = $1 AND day = $2
		fmt.Println("queried for", typ, start.Format(time.DateOnly))
		return 340, nil
	}
	ctx, gen, server := setUp(serial.WithFloor(lastStored))
	defer server.Stop()
	for range 2 {
		fmt.Println(gen.Next(ctx, "IS"))
	}
	// Output:
	// queried for IS 2021-10-24
	// IS202110240341 <nil>
	// IS202110240342 <nil>
}

// A number is returned once a replica has confirmed it. This Redis has no replica, so the call fails, and its number is
// a gap.
func ExampleWithReplicas() {
	ctx, gen, server := setUp(serial.WithReplicas(1, 100*time.Millisecond))
	defer server.Stop()
	_, err := gen.Next(ctx, "IS")
	fmt.Println(errors.Is(err, serial.ErrNotReplicated))
	// Output:
	// true
}

// The lock is kept on three independent servers, of which two must grant it.
func ExampleWithLockClients() {
	var locks []redis.UniversalClient
	for range 3 {
		server := serialtest.NewRedis(new(testing.T), time.Now())
		defer server.Stop()
		locks = append(locks, server.Client())
	}
	ctx, gen, server := setUp(serial.WithLockClients(locks...))
	defer server.Stop()
	fmt.Println(gen.Next(ctx, "IS"))
	// Output:
	// IS202110240001 <nil>
}

// An office has authorised the numbers from 101 to 500 until 24 October. After that day, no number is issued.
func ExampleWithUntil() {
	ctx, gen, server := setUp(serial.WithStart(101), serial.WithLast(500),
		serial.WithUntil(serial.On(2021, time.October, 24)))
	defer server.Stop()
	fmt.Println(gen.Next(ctx, "IS"))
	server.Advance(12 * time.Hour) // to midnight
	_, err := gen.Next(ctx, "IS")
	fmt.Println(errors.Is(err, serial.ErrExhausted))
	// Output:
	// IS202110240101 <nil>
	// true
}

// LogHooks logs the events that matter to an operator. It omits numbers, because they can reveal how many orders there
// are.
func ExampleLogHooks() {
	hooks := serial.LogHooks(slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == "wait" || a.Key == "duration" { // differs in every run
				return slog.Attr{}
			}
			return a
		},
	})))
	hooks.ClockCorrected = nil // this clock stands still in 2021
	ctx, gen, server := setUp(serial.WithHooks(hooks))
	defer server.Stop()
	must(gen.NextN(ctx, "ORD", 340))
	server.Lose()
	_, err := gen.Next(ctx, "ORD")
	fmt.Println(errors.Is(err, serial.ErrCounterLost))
	// Output:
	// level=INFO msg="serial: period opened" type=ORD start=2021-10-24T00:00:00.000Z
	// level=ERROR msg="serial: counter lost" type=ORD start=2021-10-24T00:00:00.000Z
	// level=ERROR msg="serial: no number issued" type=ORD error="serial: counter lost"
	// true
}

// A Scheme prints and parses invoice numbers of Indian business years, without Redis. A clerk types a number, and swaps
// two digits the second time. The third time, the number has no date.
func ExampleScheme() {
	invoices := newOrders(serial.WithPeriod(serial.PerYear), serial.WithYearStart(time.April, 1),
		serial.WithTemplate("{type}/{date:FFFF-EE}/{seq:4}/{check:damm}"))
	fmt.Println(invoices.Number("INV", serial.On(2025, time.March, 31), 512))
	n, err := invoices.Parse("INV/2024-25/0512/2")
	fmt.Println(n.Type, n.Start.Format(time.DateOnly), n.Seq, err)
	_, err = invoices.Parse("INV/2024-25/0521/2")
	fmt.Println(errors.Is(err, serial.ErrCheckDigit), errors.Is(err, serial.ErrInvalidNumber))
	_, err = invoices.Parse("INV/0512/2")
	fmt.Println(errors.Is(err, serial.ErrCheckDigit), errors.Is(err, serial.ErrInvalidNumber))
	// Output:
	// INV/2024-25/0512/2 <nil>
	// INV 2024-04-01 512 <nil>
	// true true
	// false true
}

// By ISO 8601, 31 December 2024 is in the first week of 2025.
func ExampleScheme_Period() {
	batches := newOrders(serial.WithPeriod(serial.PerWeek), serial.WithTemplate("{type}{date:GGGG-WW}-{seq:4}"))
	label, start, end := batches.Period(serial.On(2024, time.December, 31))
	fmt.Println(label, start.Format(time.DateOnly), end.Format(time.DateOnly))
	fmt.Println(batches.PeriodName(serial.On(2024, time.December, 31)))
	// Output:
	// 2025W01 2024-12-30 2025-01-06
	// week 1 of 2025
}

// The business day begins at 04:00, so 03:59 belongs to the day before.
func ExampleScheme_BusinessDate() {
	shifts := newOrders(serial.WithDayStart(4 * time.Hour))
	fmt.Println(shifts.BusinessDate(serial.At(time.Date(2026, time.August, 1, 3, 59, 0, 0, time.UTC))))
	// Output:
	// 2026-07-31
}

// Forms and DATE columns return dates as midnight UTC. In Brazil, this instant is on the evening of the previous day.
func ExampleOnDateOf() {
	invoices := must(serial.NewScheme(serial.WithLocation(must(time.LoadLocation("America/Sao_Paulo"))),
		serial.WithPeriod(serial.PerMonth), serial.WithTemplate("{type}-{date:yyyyMM}-{seq:5}")))
	date := must(time.Parse(time.DateOnly, "2026-08-01"))
	fmt.Println(invoices.PeriodName(serial.OnDateOf(date)))
	fmt.Println(invoices.PeriodName(serial.At(date)))
	// Output:
	// August 2026
	// July 2026
}

// An order with two numbers was never stored, and Ada knows why.
func ExampleScheme_Explanation() {
	orders := newOrders()
	first, last := must(orders.Parse("IS202110240002")), must(orders.Parse("IS202110240003"))
	e := must(orders.Explanation(first, last, "the till was reset", "Ada"))
	fmt.Println(e.Series, e.First, e.Last, e.Reason, e.By)
	// Output:
	// serial:IS 2 3 the till was reset Ada
}

// Invoices and credit notes share a counter.
func ExampleWithSharedCounter() {
	ctx, gen, server := setUp(serial.WithSharedCounter())
	defer server.Stop()
	fmt.Println(gen.Next(ctx, "FA"))
	fmt.Println(gen.Next(ctx, "AV"))
	// Output:
	// FA202110240001 <nil>
	// AV202110240002 <nil>
}

// A ledger checks the settings of a reservation against those that it has stored for the series.
func ExampleReservation_Check() {
	r := serial.Reservation{Series: "serial:IS", Period: "202110", Calendar: "months", Print: "d6f0", N: 100}
	fmt.Println(r.Check("months", "d6f0"), errors.Is(r.Check("days", "d6f0"), serial.ErrConflict))
	// Output:
	// <nil> true
}
