package gapless

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/dailyserial/serial"
)

// Next takes the next number of a type, in the current period of the database's clock, for the document that tx stores.
// If others have taken numbers of that type and period and not yet ended their transactions, it waits for them. From
// then on, others wait for tx to end.
//
// Errors: [serial.ErrInvalidType]; [serial.ErrExhausted] if the period has no number left, or after the last day of
// [serial.WithUntil] by the database's clock; [ErrPeriodClosed] if the period is closed, which the current one can only
// be if the database's clock went back; [ErrOutOfOrder] if g has [WithChronology] and a number of the period has a
// later date; [serial.ErrConflict] if the type's numbers count by another period or year start, or if those of this
// period were taken by a scheme that prints sequences in another way; an error for a date that is not in 1970 to 9999
// or that the template cannot print; an error for a tx that is nil, that [Tx] says is refused, or in which another call
// is taking a number. After these, nothing was taken and tx can go on. If the database has ended the transaction, that
// is an error, and nothing was taken: roll back and repeat. If 20 periods (with WithChronology, 20 days) end, one after
// another, while it waits for others, that is an error too: roll back and repeat. Every other error wraps the driver's,
// and also matches the error of ctx if that has ended. Then tx must be rolled back: a number may have been taken, and
// would be a gap.
func (g *Generator) Next(ctx context.Context, tx Tx, typ string) (serial.Number, error) {
	return single(g.next(ctx, tx, typ, nil, 1))
}

// NextN takes n consecutive numbers, 1 to 100,000, like [Generator.Next]: all of them or none. Errors are those of
// Next, and [serial.ErrInvalidRequest] for any other n. After [serial.ErrExhausted], a smaller n may succeed.
func (g *Generator) NextN(ctx context.Context, tx Tx, typ string, n int) ([]serial.Number, error) {
	return g.next(ctx, tx, typ, nil, n)
}

// NextOn takes the next number of the period that date names, whatever the database's clock says: for documents that
// are dated back or ahead. For the date of a document, use [serial.On] or [serial.OnDateOf]; if the template prints the
// time of day, use [serial.At]. The number prints the date by the scheme's time zone and day start.
//
// Errors are those of [Generator.Next], such as [ErrPeriodClosed] in a period that [Generator.ClosePeriods] has closed,
// and one for a date that names no period or no number; see [serial.When]. After that one, nothing was taken and tx can
// go on. The date, not the clock, must be no later than that of [serial.WithUntil].
func (g *Generator) NextOn(ctx context.Context, tx Tx, typ string, date serial.When) (serial.Number, error) {
	return single(g.next(ctx, tx, typ, &date, 1))
}

// Raise makes sure that the next number of a type is at least seq+1, in the period that at names, if tx is committed.
// It never lowers anything. Use it once, to continue a series from elsewhere: seq is the last number used there. Use it
// also if a document already has the next number, because somebody typed it: seq is then that number's. Others who want
// a number of that type and period wait until tx ends.
//
// Errors: an error for a seq that is not 0 to the last sequence of [serial.Scheme.Limits], and [serial.ErrExhausted]
// for an at after the last day of [serial.WithUntil]: after these, nothing was raised and tx can go on. Otherwise those
// of [Generator.Next], except [ErrOutOfOrder] and that a period without numbers left is none. In a closed period, every
// seq is [ErrPeriodClosed].
func (g *Generator) Raise(ctx context.Context, tx Tx, typ string, at serial.When, seq int64) error {
	series, err := g.scheme.Series(typ)
	if err != nil {
		return fmt.Errorf("gapless: %w", err)
	}
	s, err := g.periodOf(typ, at)
	if err != nil {
		return err
	}
	if _, last := g.scheme.Limits(); seq < 0 || seq > last {
		return fmt.Errorf("gapless: Raise of %s to %d: want 0 to %d", series, seq, last)
	}
	if err := g.checkUntil(typ, at); err != nil {
		return err
	}
	leave, err := g.enter(tx)
	if err != nil {
		return err
	}
	defer leave()
	s.date = 0
	// To take no numbers after seq means to raise to seq.
	c, err := g.take(ctx, tx, typ, series, s, seq, 0)
	if err == nil && c.mark != g.mark {
		if err = g.undo(ctx, tx, series, s); err == nil {
			return g.conflict(typ, s.label, c.mark)
		}
	}
	if err != nil {
		return g.failed(ctx, "raise "+typ, err)
	}
	return nil
}

// checkUntil returns an error if the scheme issues no numbers any more on the business day of at.
func (g *Generator) checkUntil(typ string, at serial.When) error {
	last, ok := g.scheme.Until()
	if !ok {
		return nil
	}
	if date := g.scheme.BusinessDate(at); date.String() > last.String() { // the form 2026-08-01
		return fmt.Errorf("gapless: %w: the last day for numbers of %s is %v, and the date is %v; a later WithUntil takes "+
			"effect at once", serial.ErrExhausted, typ, last, date)
	}
	return nil
}

// single returns the only number of a batch of one.
func single(numbers []serial.Number, err error) (serial.Number, error) {
	if err != nil {
		return serial.Number{}, err
	}
	return numbers[0], nil
}

// next takes n numbers in the period of date or, if that is nil, of the database's clock.
func (g *Generator) next(ctx context.Context, tx Tx, typ string, date *serial.When, n int) ([]serial.Number, error) {
	series, err := g.scheme.Series(typ)
	if err != nil {
		return nil, fmt.Errorf("gapless: %w", err)
	}
	if n < 1 || n > most {
		return nil, fmt.Errorf("gapless: %w: %d numbers at once: want 1 to %d", serial.ErrInvalidRequest, n, most)
	}
	if date != nil {
		if err := g.checkUntil(typ, *date); err != nil {
			return nil, err
		}
	}
	leave, err := g.enter(tx)
	if err != nil {
		return nil, err
	}
	defer leave()
	what := "next number of " + typ
	s, err := g.begin(ctx, tx, typ, date, what)
	if err != nil {
		return nil, err
	}
	for range patience {
		numbers, current, err := g.takeIn(ctx, tx, typ, series, what, s, date == nil, n)
		if err != nil || current.like(s) {
			return numbers, err
		}
		s = current
	}
	return nil, fmt.Errorf("gapless: %s: %d periods ended, one after another, while the transaction waited for others: "+
		"repeat it",
		what, patience)
}

// takeIn takes n numbers in the period of s. If byClock, it takes none if that period is not the current one by the
// database's clock. It returns the span that it found to be current: s unless byClock.
func (g *Generator) takeIn(ctx context.Context, tx Tx, typ, series, what string, s *span, byClock bool, n int) (
	numbers []serial.Number, current *span, err error,
) {
	first, last := g.scheme.Limits()
	c, err := g.take(ctx, tx, typ, series, s, first-1, int64(n))
	if byClock && errors.Is(err, ErrPeriodClosed) {
		// The period has ended meanwhile, unless the clock was set back into it.
		now, failure := g.query(ctx, tx, g.sql.ask, nil)
		if failure != nil {
			return nil, s, g.failed(ctx, what, failure)
		}
		current, failure = g.spanAt(typ, now)
		if failure != nil || current.label != s.label {
			return nil, current, failure
		}
	}
	if err == nil && byClock {
		err = g.readAgain(ctx, tx, typ, s, &c)
	}
	if err != nil {
		return nil, s, g.failed(ctx, what, err)
	}
	current = s
	if byClock && !g.holds(s, c.now) {
		// Only now is it known when the number was taken. If that was in the period that was tried, the number is good,
		// even if the printed date says more.
		current, err = g.spanAt(typ, c.now)
	}
	if err == nil && current.like(s) {
		if byClock {
			err = g.checkUntil(typ, serial.At(c.now))
		}
		switch {
		case err != nil:
		case c.mark != g.mark:
			err = g.conflict(typ, s.label, c.mark)
		case c.dated.Int64 > s.date:
			err = outOfOrder(typ, s, c.dated.Int64)
		case c.last > last:
			err = fmt.Errorf("gapless: %w: %d more after sequence %d of %s in period %s: want %d to %d",
				serial.ErrExhausted, n, cmp.Or(c.previous, first-1), typ, s.label, first, last)
		default:
			return batch(current.number, typ, c.last, n), current, nil
		}
	}
	if failure := g.undo(ctx, tx, series, s); failure != nil {
		return nil, s, g.failed(ctx, what, failure)
	}
	return nil, current, err
}

// readAgain reads the clock again, now under the lock, if s or the last day may have ended while c waited for it.
func (g *Generator) readAgain(ctx context.Context, tx Tx, typ string, s *span, c *counter) (err error) {
	latest := c.now.Add(c.waited)
	if c.waited > 0 && !(g.holds(s, c.now) && g.holds(s, latest) && g.checkUntil(typ, serial.At(latest)) == nil) {
		c.now, err = g.query(ctx, tx, g.sql.ask, nil)
	}
	return err
}

// batch returns n numbers of a type that end with sequence last, and are otherwise like number.
func batch(number serial.Number, typ string, last int64, n int) []serial.Number {
	number.Type = strings.Clone(typ)
	numbers := make([]serial.Number, n)
	for i := range numbers {
		number.Seq = last - int64(n-1-i)
		numbers[i] = number
	}
	return numbers
}

// conflict returns the error for a row or a gate with the mark of another scheme. It names the settings that differ.
func (g *Generator) conflict(typ, label, mark string) error {
	if calendar, _, _ := strings.Cut(mark, markJoint); calendar != g.calendar {
		return fmt.Errorf("gapless: %w: %s is counted by %s, but this scheme counts by %s; a series keeps its period and "+
			"year start, which the template sets if it prints FFFF, FF, EEEE, EE, S or Q: to count in another way, use "+
			"another type, or another key prefix together with another literal in the template",
			serial.ErrConflict, typ, calendar, g.calendar)
	}
	return fmt.Errorf("gapless: %w: numbers of %s in period %s were taken by a scheme that differs in the order of "+
		"fields, the alphabet, the check digit or the key, and could print the same; use that scheme until the period "+
		"ends, or another type",
		serial.ErrConflict, typ, label)
}
