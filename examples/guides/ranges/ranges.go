// Package ranges contains the code of docs/business-numbers.md for a range that an office has authorised.
package ranges

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/gapless"
	"github.com/dailyserial/serial/sqlledger"
)

// newNumbers returns the Generator of a range such as B0100000101 to B0100000110. The arguments last and until are the
// last sequence and the last day of the range.
func newNumbers(zone *time.Location, last int64, until serial.When) (*gapless.Generator, error) {
	scheme, err := serial.NewScheme(serial.WithLocation(zone), serial.WithPeriod(serial.Never),
		serial.WithTemplate("{type}{seq:8}"), serial.WithStart(101), serial.WithLast(last), serial.WithUntil(until))
	if err != nil {
		return nil, err
	}
	return gapless.New(gapless.PostgreSQL, scheme)
}

// beginRange continues a series with the next range, whose first sequence is the argument first. It stores why the
// numbers before this range are missing. The argument numbers is the Generator of the new range.
func beginRange(ctx context.Context, db *sql.DB, numbers *gapless.Generator, register *sqlledger.Register, typ string,
	first int64, today serial.When, who string) error {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted}) // without effect on SQLite
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := numbers.Raise(ctx, tx, typ, today, 0); err != nil { // locks the series, and raises nothing
		return err
	}
	last, err := numbers.Last(ctx, tx, typ, today)
	if err != nil {
		return err
	}
	if last.Seq >= first {
		return fmt.Errorf("%s is at %d, which is in the new range", typ, last.Seq)
	}
	if err := numbers.Raise(ctx, tx, typ, today, first-1); err != nil {
		return err
	}
	if last.Seq < first-1 {
		from, to := last, last
		from.Seq, to.Seq = last.Seq+1, first-1
		e, err := numbers.Scheme().Explanation(from, to, "before the range from "+fmt.Sprint(first), who)
		if err != nil {
			return err
		}
		if err := register.ExplainIn(ctx, tx, e); err != nil {
			return err
		}
	}
	return tx.Commit()
}
