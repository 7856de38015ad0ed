package gapless

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/dailyserial/serial"
)

// Last returns the last number taken of a type, in the period that at lies in: Seq is 0 if none was. It takes nothing
// and waits for nobody, except on MySQL in a transaction at SERIALIZABLE. In a transaction, Last sees the numbers taken
// there and otherwise the snapshot. In a pool, it sees what was committed: on MySQL it begins a transaction of its own,
// since autocommit=0 may have left an old snapshot. A [*sql.Conn] with autocommit=0 is in a transaction. If the
// template prints more of the date than the period, the printed date is not known: Date is then zero, and String
// returns "".
//
// Errors: [serial.ErrInvalidType]; [serial.ErrConflict] if the type's numbers count by another period or year start, or
// if those of the period were taken by a scheme that prints sequences in another way; an error for a date that is not
// in 1970 to 9999, or in a period of which the template can print no date; one for a q that is nil or bun's on
// PostgreSQL; the driver's own, as for a missing table.
func (g *Generator) Last(ctx context.Context, q Querier, typ string, at serial.When) (serial.Number, error) {
	series, err := g.scheme.Series(typ)
	if err != nil {
		return serial.Number{}, fmt.Errorf("gapless: %w", err)
	}
	s, err := g.periodOf(typ, at)
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
	if !calendar.Valid { // somebody has deleted the gate
		calendar.String, _, calendar.Valid = strings.Cut(other.String, markJoint)
	}
	if calendar.Valid && calendar.String != g.calendar {
		return serial.Number{}, g.conflict(typ, s.label, calendar.String)
	}
	if seq.Int64 != 0 && mark.String != g.mark {
		return serial.Number{}, g.conflict(typ, s.label, mark.String)
	}
	return s.lastNumber(typ, seq.Int64), nil
}

// lastNumber returns the number of a type that has the sequence seq in the period of s. If the template prints more of
// the date than the period, its Date is zero.
func (s *span) lastNumber(typ string, seq int64) serial.Number {
	number := s.number
	number.Type, number.Seq = strings.Clone(typ), seq
	if !s.whole {
		number = serial.Number{Type: number.Type, Start: number.Start, Seq: number.Seq}
	}
	return number
}
