package gapless

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/dailyserial/serial"
)

// ErrOutOfOrder is the error of a call that would take a number with an earlier date than an existing number of the
// period, if the Generator has [WithChronology]. The message contains the date of the last number. Nothing was taken,
// and the transaction can continue.
var ErrOutOfOrder = errors.New("gapless: out of order")

// WithChronology keeps the numbers of each period in the order of their dates. [Generator.Next], [Generator.NextN] and
// [Generator.NextOn] return [ErrOutOfOrder] if the new number would have an earlier date than an existing number of the
// period. Several numbers may have the same date. The date is the business date, by the scheme's time zone and day
// start, whether or not the template prints it. For NextOn, it is the date of the argument, and otherwise the date of
// the database's clock.
//
// If a number has a date in the future, Next and NextN take no numbers of its period until that day. The same happens
// if the database's clock was ahead. Nothing can end this earlier, so check the dates that users enter.
// [Generator.Raise] does not change the last date. A period that [Generator.ReopenPeriods] has reopened still accepts
// only dates from its last date onwards.
//
// Every process that issues numbers of a series needs this option. A number that is taken without it has no date, so
// the next number is compared with the last number that has a date. A process that lacks the option is not detected.
//
// With this option, the first table has two more columns. The column dated contains the date of the last number, such
// as 20261124, or NULL. The column dated_before contains the value that dated had before its last change.
// [Generator.CreateTable] adds these columns to an existing table. Programs that manage their schema themselves add
// them with the following statements, which are the same for every database:
//
//	ALTER TABLE serial_gapless ADD COLUMN dated integer;
//	ALTER TABLE serial_gapless ADD COLUMN dated_before integer;
//
// If the columns are missing, calls fail with the driver's error. By default, a number may have any date.
func WithChronology() Option {
	return optionFunc(func(c *config) { c.chronology = true })
}

// businessDate returns the business date of a date or an instant, as an integer such as 20261124. It returns 0 without
// WithChronology.
func (g *Generator) businessDate(at serial.When) int64 {
	if !g.chronology {
		return 0
	}
	date, _ := strconv.ParseInt(strings.ReplaceAll(g.scheme.BusinessDate(at).String(), "-", ""), 10, 64)
	return date
}

// statementsFor returns the statements with which numbers of s are taken. They use the columns for dates only if s has
// a date.
func (g *Generator) statementsFor(s *span) *statements {
	if s.date == 0 {
		return g.plain
	}
	return &g.sql
}

// into returns dest as the destinations of a row. If the statements for s also return the date of the previous number,
// it appends &c.dated as the destination of this date.
func (c *counter) into(s *span, dest ...any) []any {
	if s.date != 0 {
		dest = append(dest, &c.dated)
	}
	return dest
}

// outOfOrder returns the error for a number with the date of s in a period that already has a number with the later
// date last.
func outOfOrder(typ string, s *span, last int64) error {
	return fmt.Errorf("%w: %s on %s: period %s already has a number dated %s; want that date or a later one",
		ErrOutOfOrder, typ, formatDate(s.date), s.label, formatDate(last))
}

func formatDate(date int64) string {
	return fmt.Sprintf("%04d-%02d-%02d", date/10_000, date/100%100, date%100)
}
