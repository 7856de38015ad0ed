// Package floor has a floor that asks a table of a database. docs/transactions.md shows its code.
package floor

import (
	"context"
	"database/sql"
	"time"

	"github.com/dailyserial/serial"
)

// LastStored is a floor: it returns the greatest sequence of a type and day in a table, 0 if there is none. MySQL and
// MariaDB have ? in place of $1 and $2.
func LastStored(db *sql.DB) serial.Option {
	return serial.WithFloor(func(ctx context.Context, typ string, start time.Time) (last int64, err error) {
		row := db.QueryRowContext(ctx, "SELECT coalesce(max(seq), 0) FROM orders WHERE type = $1 AND day = $2",
			typ, start.Format(time.DateOnly))
		err = row.Scan(&last)
		return last, err
	})
}
