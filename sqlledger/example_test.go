//go:build !race

package sqlledger_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/sqlledger"
)

// This is what a Generator does with a ledger. The program imports the driver: _ "modernc.org/sqlite".
func Example() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "ledger.db"))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	ctx := context.Background()
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
