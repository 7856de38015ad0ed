package serial_test

import (
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial"
)

// A Scheme prints and parses invoices of Indian business years, without Redis.
func ExampleScheme() {
	invoices, err := serial.NewScheme(serial.WithLocation(time.UTC), serial.WithPeriod(serial.PerYear),
		serial.WithYearStart(time.April, 1), serial.WithTemplate("{type}/{date:FFFF-EE}/{seq:4}"))
	if err != nil {
		log.Fatal(err)
	}

	n, err := invoices.Number("INV", time.Date(2025, time.March, 31, 12, 0, 0, 0, time.UTC), 512)
	fmt.Println(n, err)
	n, err = invoices.Parse("INV/2024-25/0512")
	fmt.Println(n.Type, n.Start.Format(time.DateOnly), n.Seq, err)
	// Output:
	// INV/2024-25/0512 <nil>
	// INV 2024-04-01 512 <nil>
}

// What cannot work is refused, with what can.
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
	fmt.Println(slips.Number("PICK", day, 17))
	_, err = slips.Number("PICK", day, 10_000)
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

	label, start, end := batches.Period(time.Date(2024, time.December, 31, 12, 0, 0, 0, time.UTC))
	fmt.Println(label, start.Format(time.DateOnly), end.Format(time.DateOnly))
	// Output:
	// 2025W01 2024-12-30 2025-01-06
}

// A week as people write it.
func ExampleScheme_PeriodName() {
	batches, err := serial.NewScheme(serial.WithLocation(time.UTC), serial.WithPeriod(serial.PerWeek),
		serial.WithTemplate("{type}{date:GGGG-WW}-{seq:4}"))
	if err != nil {
		log.Fatal(err)
	}

	fmt.Println(batches.PeriodName(time.Date(2024, time.December, 31, 12, 0, 0, 0, time.UTC)))
	// Output:
	// week 1 of 2025
}

// How much a short ticket can hold.
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

// A Generator's own Scheme prints what the Generator would.
func ExampleGenerator_Scheme() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"}) // nothing is sent
	defer rdb.Close()
	gen, err := serial.New(rdb, serial.WithLocation(time.UTC))
	if err != nil {
		log.Fatal(err)
	}

	fmt.Println(gen.Scheme().Number("IS", time.Date(2021, time.October, 24, 12, 0, 0, 0, time.UTC), 17))
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

// A template may be made wider within a day, but get no check digit.
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

	start, end, err := invoices.Span(time.Date(2021, time.October, 24, 12, 0, 0, 0, time.UTC))
	fmt.Println(start.Format(time.DateOnly), end.Format(time.DateOnly), err)
	// Output:
	// 2021-10-01 2021-11-01 <nil>
}
