package sqlledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/dailyserial/serial"
)

// Reserve implements [serial.Ledger]. It reserves r.N sequences of the series and period. They begin after r.Above, or
// after the last reserved sequence if that is larger. Reserve returns the sequence before the first of them. It uses
// one short transaction, which is on disk before Reserve returns. Other reservations for the same series wait until
// this transaction ends.
//
// The series must have 1 to 255 bytes, and the period, the calendar and the print mark 1 to 64 bytes each. r.Above must
// be 0 to 10^15-1, and r.N 1 to 10^15-1. Reserve rejects other arguments without accessing the database. If the last
// sequence of the block would be larger than 2^63-1, the database rejects it.
//
// The first reservation of a series determines its calendar, and the first reservation of a period determines its print
// mark. If a later reservation has a different calendar or print mark, the error matches [serial.ErrConflict], and
// nothing is reserved. [Ledger.Purge] removes print marks with their periods, but never a calendar.
//
// A goroutine must not call Reserve, or a method that may call it such as [serial.Generator.Next], while it has a
// transaction open that uses the only connection of the pool or, on SQLite, has written to the same file. Reserve would
// wait for that transaction until ctx ends. The error mentions this possibility.
//
// After a deadlock, or if the database reports that a lock is in the way, Reserve tries again for up to 30 s or until
// ctx ends. Every other error wraps the driver's error, and also matches the error of ctx if ctx has ended. After an
// error or a canceled call, the block may have been reserved, and is then a gap.
func (l *Ledger) Reserve(ctx context.Context, r serial.Reservation) (after int64, err error) {
	for _, a := range []struct {
		name             string
		value, from, max int64
	}{
		{"the length of Series", int64(len(r.Series)), 1, maxSeries},
		{"the length of Period", int64(len(r.Period)), 1, maxText},
		{"the length of Calendar", int64(len(r.Calendar)), 1, maxText},
		{"the length of Print", int64(len(r.Print)), 1, maxText},
		{"Above", r.Above, 0, maxSeq},
		{"N", r.N, 1, maxSeq},
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

// reserve does the work of Reserve on a connection on which a transaction has begun. After an error, the caller must
// not commit the transaction.
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
	if q := l.sql.verify; q.text != "" {
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
		return 0, fmt.Errorf("on this connection, the table is in schema %s, but earlier it was in %s; include the schema "+
			"in the name that you pass to WithTable", schema, *l.schema.Load())
	}
	return after, nil
}
