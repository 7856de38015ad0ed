package gapless

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/dailyserial/serial"
)

// ErrOutOfOrder is the error for a number whose date is earlier than that of a number before it, with [WithChronology].
// The error names the last date. Nothing was taken, and the transaction can go on.
var ErrOutOfOrder = errors.New("gapless: out of order")

// WithChronology keeps the numbers of each period in the order of their dates: [Generator.Next], [Generator.NextN] and
// [Generator.NextOn] return [ErrOutOfOrder] instead of a number whose date is earlier than that of a number before it.
// Numbers of one date may follow each other. The date is the business date, by the scheme's time zone and day start, of
// what is passed to NextOn and otherwise of the database's clock, whether or not the template prints it.
//
// A number that is dated ahead keeps Next and NextN from taking numbers of its period until that day, and so does a
// clock that was ahead. Nothing ends that earlier: check dates that people enter. [Generator.Raise] leaves the last
// date as it is, and [Generator.ReopenPeriods] opens a period for dates from its last one on.
//
// Every process that issues numbers of a series needs the option. A number taken without it has no date: the next one
// is compared with the last number that has one. Nothing detects that.
//
// The first table then has two more columns, dated and dated_before: the date of the last number and of the one before
// the last change, such as 20261124, or NULL. [Generator.CreateTable] adds them to a table that exists. Programs that
// manage their schema themselves do so in every database with
//
//	ALTER TABLE serial_gapless ADD COLUMN dated integer;
//	ALTER TABLE serial_gapless ADD COLUMN dated_before integer;
//
// Without them, calls fail with the driver's error. Default: numbers may have any dates.
func WithChronology() Option {
	return optionFunc(func(c *config) { c.chronology = true })
}

// dateOf returns the business date of at, such as 20261124, or 0 without WithChronology.
func (g *Generator) dateOf(at serial.When) int64 {
	if !g.chronology {
		return 0
	}
	date, _ := strconv.ParseInt(strings.ReplaceAll(g.scheme.BusinessDate(at).String(), "-", ""), 10, 64)
	return date
}

// statementsOf returns the statements for a number of s.
func (g *Generator) statementsOf(s *span) *statements {
	if s.date == 0 {
		return g.plain
	}
	return &g.sql
}

// into returns dest and, if the statements of s return the last date, where that goes.
func (c *counter) into(s *span, dest ...any) []any {
	if s.date != 0 {
		dest = append(dest, &c.dated)
	}
	return dest
}

// outOfOrder returns the error for a number of s in a row whose last date is last.
func outOfOrder(typ string, s *span, last int64) error {
	return fmt.Errorf("%w: %s on %s: period %s has a number of %s; want that date or a later one", ErrOutOfOrder, typ,
		formatDate(s.date), s.label, formatDate(last))
}

func formatDate(date int64) string {
	return fmt.Sprintf("%04d-%02d-%02d", date/10_000, date/100%100, date%100)
}
