package gapless

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/dailyserial/serial"
)

// ErrOutOfOrder is the error of a call that would issue a number with an earlier date than an existing number of the
// period, if the Generator has [WithChronology]. The error names the date of the last number. Nothing was taken, and
// the transaction can continue.
var ErrOutOfOrder = errors.New("gapless: out of order")

// WithChronology keeps the numbers of each period in the order of their dates. [Generator.Next], [Generator.NextN] and
// [Generator.NextOn] return [ErrOutOfOrder] if the new number would have an earlier date than an existing number of the
// period. Several numbers may have the same date. The date is the business date, by the scheme's time zone and day
// start, whether or not the template prints it. For NextOn, it is the date of the argument, and otherwise the date of
// the database's clock.
//
// If a number has a date in the future, Next and NextN take no numbers of its period until that day. The same happens
// if the database's clock was ahead. There is no way to end this earlier, so check the dates that users enter.
// [Generator.Raise] does not change the last date. If [Generator.ReopenPeriods] reopens a period, that period still
// accepts only dates from its last date onwards.
//
// Every process that issues numbers of a series needs this option. A number that is taken without it has no date, so
// the next number is compared with the last one that has a date. Nothing detects a process without the option.
//
// With this option, the first table needs two more columns. dated is the date of the last number, such as 20261124, or
// NULL. dated_before is the value of dated before the last change. [Generator.CreateTable] adds these columns to an
// existing table. Programs that manage their schema themselves add them with the same statements in every database:
//
//	ALTER TABLE serial_gapless ADD COLUMN dated integer;
//	ALTER TABLE serial_gapless ADD COLUMN dated_before integer;
//
// If the columns are missing, calls fail with the driver's error. By default, a number may have any date.
func WithChronology() Option {
	return optionFunc(func(c *config) { c.chronology = true })
}

// dateOf returns the business date of at as an integer such as 20261124, or 0 if g does not have WithChronology.
func (g *Generator) dateOf(at serial.When) int64 {
	if !g.chronology {
		return 0
	}
	date, _ := strconv.ParseInt(strings.ReplaceAll(g.scheme.BusinessDate(at).String(), "-", ""), 10, 64)
	return date
}

// statementsOf returns the statements that take a number of s: those with the columns for dates only if s has a date.
func (g *Generator) statementsOf(s *span) *statements {
	if s.date == 0 {
		return g.plain
	}
	return &g.sql
}

// into returns dest. If the statements for s also return the date of the last number, it appends the destination for
// it.
func (c *counter) into(s *span, dest ...any) []any {
	if s.date != 0 {
		dest = append(dest, &c.dated)
	}
	return dest
}

// outOfOrder returns the error for a number of s if last is the date of the last number in the row.
func outOfOrder(typ string, s *span, last int64) error {
	return fmt.Errorf("%w: %s on %s: period %s has a number of %s; want that date or a later one", ErrOutOfOrder, typ,
		formatDate(s.date), s.label, formatDate(last))
}

func formatDate(date int64) string {
	return fmt.Sprintf("%04d-%02d-%02d", date/10_000, date/100%100, date%100)
}
