package migrating

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/dailyserial/serial"
)

// placeBesideMax stores an order while old code still numbers with max() + 1.
func placeBesideMax(ctx context.Context, gen *serial.Generator, db *sql.DB, typ, customer string) (string, error) {
	for {
		number, err := gen.NextNumber(ctx, typ)
		if err != nil {
			return "", err
		}
		day := number.Start.Format(time.DateOnly)
		result, err := db.ExecContext(ctx, `INSERT INTO orders (number, type, day, seq, customer) VALUES ($1, $2, $3, $4, $5)
			ON CONFLICT (number) DO NOTHING`, number, typ, day, number.Seq, customer)
		if err != nil {
			return "", err
		}
		if rows, err := result.RowsAffected(); err != nil || rows == 1 {
			return number.String(), err
		}
		// The old code was here first. Continue above everything that it has stored.
		var last int64
		row := db.QueryRowContext(ctx, "SELECT max(seq) FROM orders WHERE type = $1 AND day = $2", typ, day)
		if err := row.Scan(&last); err != nil {
			return "", err
		}
		if err := gen.Raise(ctx, typ, last); err != nil {
			return "", err
		}
	}
}

// closeSequence closes the sequence at its last number, and raises the counter to it.
func closeSequence(ctx context.Context, db *sql.DB, gen *serial.Generator, typ string) (err error) {
	for range 1000 { // a number may be taken between the two statements, which the second one then refuses
		var last int64
		row := db.QueryRowContext(ctx, "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM order_numbers")
		if err := row.Scan(&last); err != nil {
			return err
		}
		_, err = db.ExecContext(ctx, fmt.Sprintf("ALTER SEQUENCE order_numbers MINVALUE 0 MAXVALUE %d NO CYCLE",
			max(last, 1)))
		if err == nil {
			return gen.Raise(ctx, typ, max(last, 1))
		}
	}
	return err
}
