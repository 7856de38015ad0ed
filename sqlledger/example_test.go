//go:build !race

package sqlledger_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/sqlledger"
)

// openFile opens a database in a new file. The program has to import the driver: _ "modernc.org/sqlite".
func openFile() (db *sql.DB, remove func()) {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	db, err = sql.Open("sqlite", "file:"+filepath.Join(dir, "shop.db"))
	if err != nil {
		log.Fatal(err)
	}
	return db, func() {
		_ = db.Close()
		_ = os.RemoveAll(dir)
	}
}

// This is what a Generator does with a ledger.
func Example() {
	ctx := context.Background()
	db, remove := openFile()
	defer remove()
	ledger, err := sqlledger.New(db, sqlledger.SQLite)
	if err != nil {
		log.Fatal(err)
	}
	if err := ledger.CreateTable(ctx); err != nil {
		log.Fatal(err)
	}
	for _, above := range []int64{0, 0, 7500} {
		after, err := ledger.Reserve(ctx, serial.Reservation{Series: "serial:IS", Period: "20211024", Calendar: "days",
			Print: "0d1f2a3b4c5d6e7f", Above: above, N: 1000})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%d to %d\n", after+1, after+1000)
	}
	// Output:
	// 1 to 1000
	// 1001 to 2000
	// 7501 to 8500
}

// A customer cancels the second order of the day, and its number has no document any more.
func ExampleRegister_ExplainIn() {
	ctx := context.Background()
	db, remove := openFile()
	defer remove()
	register, err := sqlledger.NewRegister(db, sqlledger.SQLite)
	if err != nil {
		log.Fatal(err)
	}
	if err := register.CreateTable(ctx); err != nil {
		log.Fatal(err)
	}
	day := time.Date(2021, time.October, 24, 0, 0, 0, 0, time.UTC)
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer tx.Rollback()
	// Here the application deletes the order, in the same transaction.
	err = register.ExplainIn(ctx, tx, serial.Explanation{
		Series: "serial:IS", Type: "IS", Start: day, First: 2, Last: 2,
		Reason: "cancelled by the customer", By: "Ada", At: day.Add(17 * time.Hour),
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		log.Fatal(err)
	}

	for e, err := range register.Explanations(ctx, "serial:IS", day) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%d to %d: %s (%s, %s)\n", e.First, e.Last, e.Reason, e.By, e.At.Format(time.RFC3339))
	}
	// Output:
	// 2 to 2: cancelled by the customer (Ada, 2021-10-24T17:00:00Z)
}
