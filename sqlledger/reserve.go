package sqlledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/dailyserial/serial"
)

// Reserve implements [serial.Ledger]: it sets aside the r.N sequences after the greater of r.Above and the last one set
// aside for that series and period, and returns the one before them. It takes one short transaction, which is on disk
// before Reserve returns. Other reservations for the same series wait until it ends.
//
// The series has 1 to 255 bytes; period, calendar and print mark have 1 to 64; r.Above is 0 to 10^15-1 and r.N 1 to
// 10^15-1. Anything else is refused without using the database. The database refuses a last sequence beyond 2^63-1.
//
// The first reservation of a series decides its calendar, and the first one of a period its print mark. Another
// calendar or print mark causes an error that matches [serial.ErrConflict]; nothing is set aside. [Ledger.Purge]
// removes print marks with their periods, but never a calendar.
//
// Inside a transaction, do not wait for Reserve if the transaction has the only connection of the pool or, with SQLite,
// has written to the same file: Reserve would wait for the transaction until ctx ends. The error then says so.
//
// After a deadlock, or if a lock is in the way, Reserve tries again, for 30 s at most, while the context lives. Other
// errors are the driver's, wrapped; once the context has ended, they match its error too. After an error or a cancelled
// call, the block may have been set aside: it is then a gap.
func (l *Ledger) Reserve(ctx context.Context, r serial.Reservation) (after int64, err error) {
	for _, a := range []struct {
		name             string
		value, from, max int64
	}{
		{"the length of series", int64(len(r.Series)), 1, maxSeries},
		{"the length of period", int64(len(r.Period)), 1, maxText},
		{"the length of calendar", int64(len(r.Calendar)), 1, maxText},
		{"the length of print", int64(len(r.Print)), 1, maxText},
		{"above", r.Above, 0, maxSeq},
		{"n", r.N, 1, maxSeq},
	} {
		if a.value < a.from || a.value > a.max {
			return 0, fmt.Errorf("sqlledger: %s is %d: want %d to %d", a.name, a.value, a.from, a.max)
		}
	}
	err = l.do(ctx, "reserve", func(c *sql.Conn) (err error) {
		after, err = l.reserve(ctx, c, r)
		return err
	})
	if err != nil {
		return 0, err
	}
	return after, nil
}

// reserve is Reserve within a transaction, which must not be committed after an error.
func (l *Ledger) reserve(ctx context.Context, c *sql.Conn, r serial.Reservation) (after int64, err error) {
	args := arguments{
		"series": []byte(r.Series), "period": []byte(r.Period), "calendar": []byte(r.Calendar), "print": []byte(r.Print),
		"above": r.Above, "n": r.N, "first": r.Above + r.N,
	}
	if q := l.sql.upsert; q.text != "" {
		if _, err := c.ExecContext(ctx, q.text, q.bind(args)...); err != nil {
			return 0, err
		}
	}
	var flaw sql.NullString
	var schema string
	var calendar, printMark hexText
	row := c.QueryRowContext(ctx, l.sql.read.text, l.sql.read.bind(args)...)
	err = row.Scan(&after, &flaw, &schema, &calendar, &printMark)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return 0, lossy(altered)
	case err != nil:
		return 0, err
	case flaw.Valid:
		return 0, lossy(flaw.String)
	case after < r.Above || calendar == "":
		return 0, lossy(altered)
	}
	if err := r.Check(string(calendar), string(printMark)); err != nil {
		return 0, err
	}
	if q := l.sql.kept; q.text != "" {
		var last int64
		err := c.QueryRowContext(ctx, q.text, q.bind(args)...).Scan(&last)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return 0, err
		}
		if last != after+r.N {
			return 0, lossy(altered)
		}
	}
	if q := l.sql.show; q.text != "" {
		var name, create string
		if err := c.QueryRowContext(ctx, q.text).Scan(&name, &create); err != nil {
			return 0, err
		}
		if strings.HasPrefix(create, "CREATE TEMPORARY") {
			return 0, lossy("the table is temporary")
		}
	}
	if !l.schema.CompareAndSwap(nil, &schema) && *l.schema.Load() != schema {
		return 0, fmt.Errorf("the table is in %s on this connection, but was in %s: name the schema with WithTable",
			schema, *l.schema.Load())
	}
	return after, nil
}
