package gapless

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/dailyserial/serial"
)

// Last returns the last number of a type in the period that contains the given date or instant. The Seq of the result
// is 0 if no number was taken. If the template prints a more exact date than the period (such as the day, although
// periods are months), the printed date of the number is unknown. Its Date is then zero, and its String returns "".
//
// Last takes no number, and waits for no other transaction unless q is a MySQL transaction at SERIALIZABLE. If q is a
// transaction, Last includes the numbers that this transaction has taken, and otherwise reads its snapshot. A
// [*sql.Conn] with autocommit=0 is in a transaction, too. If q is a pool, Last returns what has been committed. On
// MySQL, it begins a separate transaction for this purpose, because a connection of the pool with autocommit=0 may have
// an old snapshot.
//
// Last returns the following errors:
//
//   - [serial.ErrInvalidType]
//   - [serial.ErrConflict], if the numbers of the type have a different period length or year start, or if the numbers
//     of this period were taken by a scheme with a different print mark (see [serial.Scheme.PrintMark])
//   - an error if the date is not in 1970 to 9999, or if the template can print no date of its period
//   - an error if q is nil or, on PostgreSQL, has a type of package bun; see [Tx]
//   - an error of the driver, for example because the table does not exist
func (g *Generator) Last(ctx context.Context, q Querier, typ string, at serial.When) (serial.Number, error) {
	series, err := g.scheme.Series(typ)
	if err != nil {
		return serial.Number{}, fmt.Errorf("gapless: %w", err)
	}
	s, err := g.findPeriod(typ, at)
	if err != nil {
		return serial.Number{}, err
	}
	what := "the last number of " + typ
	q, leave, err := g.view(ctx, q, what)
	if err != nil {
		return serial.Number{}, err
	}
	defer leave()
	var seq sql.NullInt64
	var calendar, other, mark sql.NullString
	if err := g.scan(ctx, q, g.sql.last, g.row(series, s.label), &calendar, &other, &mark, &seq); err != nil {
		return serial.Number{}, g.failed(ctx, what, err)
	}
	if !calendar.Valid { // the series' row was deleted
		calendar.String, _, calendar.Valid = strings.Cut(other.String, markSeparator)
	}
	if calendar.Valid && calendar.String != g.calendar {
		return serial.Number{}, g.conflict(typ, s.label, calendar.String)
	}
	if seq.Int64 != 0 && mark.String != g.mark {
		return serial.Number{}, g.conflict(typ, s.label, mark.String)
	}
	return s.lastNumber(typ, seq.Int64), nil
}

// lastNumber returns the number of a type with sequence seq in the period of s. Its Date is zero if the template prints
// a more exact date than the period.
func (s *span) lastNumber(typ string, seq int64) serial.Number {
	number := s.number
	number.Type, number.Seq = strings.Clone(typ), seq
	if !s.whole {
		number = serial.Number{Type: number.Type, Start: number.Start, Seq: number.Seq}
	}
	return number
}
