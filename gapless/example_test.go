package gapless_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"maps"
	"strings"
	"time"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/gapless"
)

// If an invoice fails, the next one gets its number, so there is no gap.
func Example() {
	ctx := context.Background()
	db, err := sql.Open("sqlite", ":memory:") // the program imports the driver: _ "modernc.org/sqlite"
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1) // each connection would have its own memory
	if _, err := db.Exec("CREATE TABLE invoices (number TEXT NOT NULL UNIQUE, total INTEGER NOT NULL)"); err != nil {
		log.Fatal(err)
	}
	scheme, err := serial.NewScheme(serial.WithPeriod(serial.Never), serial.WithTemplate("{type}-{seq:6}"))
	if err != nil {
		log.Fatal(err)
	}
	numbers, err := gapless.New(gapless.SQLite, scheme)
	if err != nil {
		log.Fatal(err)
	}
	if err := numbers.CreateTable(ctx, db); err != nil {
		log.Fatal(err)
	}

	invoice := func(total int) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // does nothing after Commit
		number, err := numbers.Next(ctx, tx, "INV")
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO invoices VALUES (?, ?)", number, total); err != nil {
			return err
		}
		if total == 0 {
			return fmt.Errorf("%v: nothing to pay", number)
		}
		fmt.Println(number)
		return tx.Commit()
	}
	for _, total := range []int{1200, 0, 99} {
		if err := invoice(total); err != nil {
			fmt.Println("failed:", err)
		}
	}
	// Output:
	// INV-000001
	// failed: INV-000002: nothing to pay
	// INV-000002
}

// openNumbers opens a database in memory, as Example does. By default, invoices are numbered by year.
func openNumbers(ctx context.Context, opts ...serial.Option) (*sql.DB, *gapless.Generator) {
	scheme, err := serial.NewScheme(append([]serial.Option{serial.WithLocation(time.UTC),
		serial.WithPeriod(serial.PerYear), serial.WithTemplate("{type}-{date:yyyy}-{seq:4}")}, opts...)...)
	if err != nil {
		log.Fatal(err)
	}
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		log.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	numbers, err := gapless.New(gapless.SQLite, scheme)
	if err != nil {
		log.Fatal(err)
	}
	if err := numbers.CreateTable(ctx, db); err != nil {
		log.Fatal(err)
	}
	return db, numbers
}

// inTransaction runs f in a transaction, and commits it unless f returns an error.
func inTransaction(ctx context.Context, db *sql.DB, f func(tx *sql.Tx) error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	if err = f(tx); err == nil {
		err = tx.Commit()
	}
	if err != nil {
		log.Fatal(err)
	}
}

// An invoice for last year that is entered late gets the next number of last year.
func ExampleGenerator_NextOn() {
	ctx := context.Background()
	db, numbers := openNumbers(ctx, serial.WithYearStart(time.April, 1),
		serial.WithTemplate("{type}/{date:FFFF-EE}/{seq:4}"))
	defer db.Close()
	inTransaction(ctx, db, func(tx *sql.Tx) error {
		for _, date := range []serial.When{
			serial.On(2025, time.March, 30), serial.On(2025, time.April, 1), serial.On(2025, time.March, 31),
		} {
			number, err := numbers.NextOn(ctx, tx, "INV", date)
			if err != nil {
				return err
			}
			fmt.Println(number)
		}
		return nil
	})
	// Output:
	// INV/2024-25/0001
	// INV/2025-26/0001
	// INV/2024-25/0002
}

// An invoice with an earlier date would break the order of dates. The call fails, and the invoice is issued with
// today's date instead.
func ExampleWithChronology() {
	ctx := context.Background()
	db, numbers := openNumbers(ctx, serial.WithTemplate("{type}-{date:yyyyMMdd}-{seq:3}"))
	defer db.Close()
	numbers, err := gapless.New(gapless.SQLite, numbers.Scheme(), gapless.WithChronology())
	if err != nil {
		log.Fatal(err)
	}
	if err := numbers.CreateTable(ctx, db); err != nil { // adds the columns for the dates
		log.Fatal(err)
	}
	inTransaction(ctx, db, func(tx *sql.Tx) error {
		for _, day := range []int{24, 20, 26} {
			number, err := numbers.NextOn(ctx, tx, "INV", serial.On(2026, time.November, day))
			if errors.Is(err, gapless.ErrOutOfOrder) {
				fmt.Println(err)
				number, err = numbers.NextOn(ctx, tx, "INV", serial.On(2026, time.November, 26))
			}
			if err != nil {
				return err
			}
			fmt.Println(number)
		}
		return nil
	})
	// Output:
	// INV-20261124-001
	// gapless: out of order: INV on 2026-11-20: period 2026 already has a number dated 2026-11-24; want that date or a later one
	// INV-20261126-002
	// INV-20261126-003
}

// The numbers that an old system has used are skipped. After the last number, the call fails, but the transaction can
// continue.
func ExampleGenerator_Raise() {
	ctx := context.Background()
	db, numbers := openNumbers(ctx)
	defer db.Close()
	year := serial.On(2026, time.January, 1)
	inTransaction(ctx, db, func(tx *sql.Tx) error {
		if err := numbers.Raise(ctx, tx, "INV", year, 9998); err != nil {
			return err
		}
		number, err := numbers.NextOn(ctx, tx, "INV", year)
		if err != nil {
			return err
		}
		fmt.Println(number)
		_, err = numbers.NextOn(ctx, tx, "INV", year)
		fmt.Println(errors.Is(err, serial.ErrExhausted))
		return nil
	})
	// Output:
	// INV-2026-9999
	// true
}

// October has been reported, so an invoice that is entered late gets a number of November.
func ExampleGenerator_ClosePeriods() {
	ctx := context.Background()
	db, numbers := openNumbers(ctx, serial.WithPeriod(serial.PerMonth),
		serial.WithTemplate("{type}-{date:yyyyMM}-{seq:4}"))
	defer db.Close()
	inTransaction(ctx, db, func(tx *sql.Tx) error {
		return numbers.ClosePeriods(ctx, tx, "INV", serial.On(2021, time.November, 1))
	})
	inTransaction(ctx, db, func(tx *sql.Tx) error {
		number, err := numbers.NextOn(ctx, tx, "INV", serial.On(2021, time.October, 24))
		if errors.Is(err, gapless.ErrPeriodClosed) {
			var open time.Time // beginning of the first open period
			if open, err = numbers.ClosedUntil(ctx, tx, "INV"); err == nil {
				number, err = numbers.NextOn(ctx, tx, "INV", serial.At(open))
			}
		}
		fmt.Println(number)
		return err
	})
	// Output:
	// INV-202111-0001
}

// The last number of each month shows how many invoices it has. An audit finds those that are not stored.
func ExampleGenerator_Audit() {
	ctx := context.Background()
	db, numbers := openNumbers(ctx, serial.WithPeriod(serial.PerMonth),
		serial.WithTemplate("{type}-{date:yyyyMM}-{seq:4}"))
	defer db.Close()
	inTransaction(ctx, db, func(tx *sql.Tx) error {
		for _, month := range []time.Month{10, 10, 11} {
			if _, err := numbers.NextOn(ctx, tx, "INV", serial.On(2021, month, 24)); err != nil {
				return err
			}
		}
		return nil
	})
	months, err := numbers.History(ctx, db, "INV", 12)
	if err != nil {
		log.Fatal(err)
	}
	stored := map[string]error{"INV-202110-0002": nil, "INV-202111-0001": nil}
	for _, last := range months {
		report, err := numbers.Audit(ctx, db, "INV", serial.At(last.Start), maps.All(stored))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(last, report.Clean(), report.Missing)
	}
	// Output:
	// INV-202111-0001 true []
	// INV-202110-0002 false [{1 1}]
}

// Every invoice takes its number in the transaction that stores it.
func ExampleGenerator_Next() {
	ctx := context.Background()
	db, numbers := openNumbers(ctx)
	defer db.Close()
	inTransaction(ctx, db, func(tx *sql.Tx) error {
		number, err := numbers.Next(ctx, tx, "INV")
		fmt.Println(number.Type, number.Seq)
		// Here the application stores the invoice with this number, in the same transaction.
		return err
	})
	// Output:
	// INV 1
}

// A batch of invoices takes its numbers at once.
func ExampleGenerator_NextN() {
	ctx := context.Background()
	db, numbers := openNumbers(ctx)
	defer db.Close()
	inTransaction(ctx, db, func(tx *sql.Tx) error {
		batch, err := numbers.NextN(ctx, tx, "INV", 3)
		for _, number := range batch {
			fmt.Println(number.Seq)
		}
		return err
	})
	// Output:
	// 1
	// 2
	// 3
}

// The last number of a year shows how many were taken.
func ExampleGenerator_Last() {
	ctx := context.Background()
	db, numbers := openNumbers(ctx)
	defer db.Close()
	may := serial.On(2021, time.May, 3)
	inTransaction(ctx, db, func(tx *sql.Tx) error {
		_, err := numbers.NextOn(ctx, tx, "INV", may)
		return err
	})
	last, err := numbers.Last(ctx, db, "INV", may)
	fmt.Println(last, err)
	// Output:
	// INV-2021-0001 <nil>
}

// History returns the last number of each year, latest year first.
func ExampleGenerator_History() {
	ctx := context.Background()
	db, numbers := openNumbers(ctx)
	defer db.Close()
	inTransaction(ctx, db, func(tx *sql.Tx) error {
		for _, year := range []int{2020, 2021, 2021} {
			if _, err := numbers.NextOn(ctx, tx, "INV", serial.On(year, time.May, 3)); err != nil {
				return err
			}
		}
		return nil
	})
	years, err := numbers.History(ctx, db, "INV", 10)
	fmt.Println(years, err)
	// Output:
	// [INV-2021-0002 INV-2020-0001] <nil>
}

// The tax adviser needs another invoice in a year that has already been closed.
func ExampleGenerator_ReopenPeriods() {
	ctx := context.Background()
	db, numbers := openNumbers(ctx)
	defer db.Close()
	inTransaction(ctx, db, func(tx *sql.Tx) error {
		return numbers.ClosePeriods(ctx, tx, "INV", serial.On(2022, time.January, 1)) // all years up to 2021
	})
	inTransaction(ctx, db, func(tx *sql.Tx) error {
		if err := numbers.ReopenPeriods(ctx, tx, "INV", serial.On(2021, time.January, 1)); err != nil {
			return err
		}
		number, err := numbers.NextOn(ctx, tx, "INV", serial.On(2021, time.December, 30))
		fmt.Println(number)
		return err
	})
	// Output:
	// INV-2021-0001
}

// ClosedUntil returns the end of the last closed year.
func ExampleGenerator_ClosedUntil() {
	ctx := context.Background()
	db, numbers := openNumbers(ctx)
	defer db.Close()
	inTransaction(ctx, db, func(tx *sql.Tx) error {
		return numbers.ClosePeriods(ctx, tx, "INV", serial.On(2022, time.January, 1))
	})
	end, err := numbers.ClosedUntil(ctx, db, "INV")
	fmt.Println(end.Format(time.DateOnly), err)
	// Output:
	// 2022-01-01 <nil>
}

// Programs that manage their schema themselves run these statements in a migration instead of calling CreateTable.
func ExampleGenerator_Schema() {
	db, numbers := openNumbers(context.Background())
	defer db.Close()
	for _, statement := range numbers.Schema() {
		first, _, _ := strings.Cut(statement, "\n")
		fmt.Println(first)
	}
	// Output:
	// CREATE TABLE IF NOT EXISTS "serial_gapless" (
	// CREATE TABLE IF NOT EXISTS "serial_gapless_series" (
}

// Every process may call CreateTable whenever it starts.
func ExampleGenerator_CreateTable() {
	ctx := context.Background()
	db, numbers := openNumbers(ctx) // has already called CreateTable
	defer db.Close()
	fmt.Println(numbers.CreateTable(ctx, db))
	// Output:
	// <nil>
}

// The scheme parses a number that a customer quotes.
func ExampleGenerator_Scheme() {
	db, numbers := openNumbers(context.Background())
	defer db.Close()
	number, err := numbers.Scheme().Parse("INV-2021-0042")
	fmt.Println(number.Start.Year(), number.Seq, err)
	// Output:
	// 2021 42 <nil>
}
