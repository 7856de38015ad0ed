package gapless

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/dailyserial/serial"
)

// Next takes the next number of a type in the current period of the database's clock, for the document that tx stores.
// If other transactions have taken numbers of this type and period and have not ended yet, Next waits for them.
// Afterwards, other callers that need such a number wait until tx ends.
//
// After the following errors, nothing was taken and tx can continue:
//
//   - [serial.ErrInvalidType]
//   - [serial.ErrExhausted], if the period has no more numbers, or if the database's clock is past the last day of
//     [serial.WithUntil]
//   - [ErrPeriodClosed], if the period is closed; this can happen only if the database's clock was set back
//   - [ErrOutOfOrder], if g has [WithChronology] and a number of the period has a later date
//   - [serial.ErrConflict], if the numbers of the type have a different period length or year start, or if the numbers
//     of this period were taken by a scheme with a different print mark (see [serial.Scheme.PrintMark])
//   - an error if the date is not in 1970 to 9999, or if the template cannot print it
//   - an error if tx is nil or, on PostgreSQL, has a type of package bun (see [Tx]), or if another call is taking a
//     number in it
//
// Next also returns an error if the database has ended the transaction, or if 20 periods (with WithChronology, 20 days)
// have ended one after another while it waited for other transactions. In both cases nothing was taken. Roll tx back,
// and repeat the transaction.
//
// Every other error wraps the driver's error, and also matches the error of ctx if ctx has ended. After such an error,
// you must roll tx back. Otherwise, if a number was taken, it becomes a gap.
func (g *Generator) Next(ctx context.Context, tx Tx, typ string) (serial.Number, error) {
	return single(g.next(ctx, tx, typ, nil, 1))
}

// NextN takes n consecutive numbers (1 to 100,000), as [Generator.Next] takes a single one. It takes either all of them
// or none. It returns the errors of Next, and [serial.ErrInvalidRequest] if n is out of range. After
// [serial.ErrExhausted], a call with a smaller n may succeed.
func (g *Generator) NextN(ctx context.Context, tx Tx, typ string, n int) ([]serial.Number, error) {
	return g.next(ctx, tx, typ, nil, n)
}

// NextOn takes the next number of the period that contains the given date, regardless of the database's clock. Use it
// for documents that are not dated today. Pass the date of the document with [serial.On] or [serial.OnDateOf], or with
// [serial.At] if the template prints the time of day. The number prints the business date of the argument, by the
// scheme's time zone and day start.
//
// NextOn returns the errors of [Generator.Next]. In particular, the error is [ErrPeriodClosed] if
// [Generator.ClosePeriods] has closed the period. NextOn also returns an error if the argument is in no period, or if
// no number can be printed for it (see [serial.When]). After these errors, nothing was taken, and tx can continue. The
// last day of [serial.WithUntil] is compared with the argument, not with the clock.
func (g *Generator) NextOn(ctx context.Context, tx Tx, typ string, date serial.When) (serial.Number, error) {
	return single(g.next(ctx, tx, typ, &date, 1))
}

// Raise raises the counter of a type to seq, in the period that contains the given date or instant. If tx is committed,
// the next number has a sequence of at least seq+1. Raise never lowers a counter. It has two uses. To continue a series
// of another system, call Raise once with the last sequence that was used there. If a document already has the next
// number because a user typed it, call Raise with the sequence of that number. Other callers that need a number of this
// type and period wait until tx ends.
//
// Raise returns an error if seq is less than 0 or above the last sequence of [serial.Scheme.Limits], and
// [serial.ErrExhausted] if the date is after the last day of [serial.WithUntil]. After these errors, nothing was raised
// and tx can continue. It also returns the errors of [Generator.Next], with two exceptions: it never returns
// [ErrOutOfOrder], and it does not fail because the period has no more numbers. In a closed period, Raise returns
// [ErrPeriodClosed] for every seq.
func (g *Generator) Raise(ctx context.Context, tx Tx, typ string, at serial.When, seq int64) error {
	series, err := g.scheme.Series(typ)
	if err != nil {
		return fmt.Errorf("gapless: %w", err)
	}
	s, err := g.findPeriod(typ, at)
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

// checkUntil returns an error if the business day of a date or an instant is after the last day on which the scheme
// issues numbers.
func (g *Generator) checkUntil(typ string, at serial.When) error {
	last, ok := g.scheme.Until()
	if !ok {
		return nil
	}
	if date := g.scheme.BusinessDate(at); date.String() > last.String() { // both have the form 2026-08-01
		return fmt.Errorf("gapless: %w: the last day for numbers of %s is %v, but the date is %v; if the authorized "+
			"range was extended, a later WithUntil takes effect at once", serial.ErrExhausted, typ, last, date)
	}
	return nil
}

// single returns the only number in numbers, or err.
func single(numbers []serial.Number, err error) (serial.Number, error) {
	if err != nil {
		return serial.Number{}, err
	}
	return numbers[0], nil
}

// next takes n numbers in the period that contains the given date. If the date is nil, it takes them in the current
// period of the database's clock.
func (g *Generator) next(ctx context.Context, tx Tx, typ string, date *serial.When, n int) ([]serial.Number, error) {
	series, err := g.scheme.Series(typ)
	if err != nil {
		return nil, fmt.Errorf("gapless: %w", err)
	}
	if n < 1 || n > maxCount {
		return nil, fmt.Errorf("gapless: %w: %d numbers at once: want 1 to %d", serial.ErrInvalidRequest, n, maxCount)
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
	s, err := g.findSpan(ctx, tx, typ, date, what)
	if err != nil {
		return nil, err
	}
	for range maxTries {
		numbers, current, err := g.takeIn(ctx, tx, typ, series, what, s, date == nil, n)
		if err != nil || current.like(s) {
			return numbers, err
		}
		s = current
	}
	return nil, fmt.Errorf("gapless: %s: %d periods have ended one after another while the call waited for other "+
		"transactions; roll back and repeat the transaction", what, maxTries)
}

// takeIn takes n numbers in the period of s. The result current is the span whose date the numbers print. But if
// byClock is true and the database's clock is in another period (with WithChronology, on another day), takeIn takes
// none, and current is the span of the clock. After an error of the database, numbers may have been taken. After any
// other error, none were taken.
func (g *Generator) takeIn(ctx context.Context, tx Tx, typ, series, what string, s *span, byClock bool, n int) (
	numbers []serial.Number, current *span, err error,
) {
	first, last := g.scheme.Limits()
	c, err := g.take(ctx, tx, typ, series, s, first-1, int64(n))
	if byClock && errors.Is(err, ErrPeriodClosed) {
		// Either the period has ended during the call and was then closed, or the clock was set back to a closed period.
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
	if byClock && !g.contains(s, c.now) {
		// Only now is it known at what time the number was taken. If this time is still in the period of s, the number is
		// valid, but may have to be printed with another date.
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
			err = fmt.Errorf("gapless: %w: %s in period %s has the sequences %d to %d, so %d more cannot follow after %d",
				serial.ErrExhausted, typ, s.label, first, last, n, cmp.Or(c.previous, first-1))
		default:
			return batch(current.number, typ, c.last, n), current, nil
		}
	}
	if failure := g.undo(ctx, tx, series, s); failure != nil {
		return nil, s, g.failed(ctx, what, failure)
	}
	return nil, current, err
}

// readAgain reads the clock again, now that the transaction has the lock. It does this only if the span s, or the last
// day of the scheme, may have ended while the statement was waiting for the lock.
func (g *Generator) readAgain(ctx context.Context, tx Tx, typ string, s *span, c *counter) (err error) {
	latest := c.now.Add(c.waited)
	if c.waited > 0 && !(g.contains(s, c.now) && g.contains(s, latest) && g.checkUntil(typ, serial.At(latest)) == nil) {
		c.now, err = g.query(ctx, tx, g.sql.ask, nil)
	}
	return err
}

// batch returns n numbers with consecutive sequences that end with the sequence last. They have the given type, and the
// date of the given number.
func batch(number serial.Number, typ string, last int64, n int) []serial.Number {
	number.Type = strings.Clone(typ)
	numbers := make([]serial.Number, n)
	for i := range numbers {
		number.Seq = last - int64(n-1-i)
		numbers[i] = number
	}
	return numbers
}

// conflict returns the error for a row whose mark differs from g's. The message contains the settings that differ.
func (g *Generator) conflict(typ, label, mark string) error {
	if calendar, _, _ := strings.Cut(mark, markSeparator); calendar != g.calendar {
		return fmt.Errorf("gapless: %w: %s is counted by %s, but this scheme counts by %s; a series keeps its period length "+
			"and its year start, which also belongs to the scheme if the template prints FFFF, FF, EEEE, EE, S or Q; to "+
			"count in another way, use another type, or another key prefix together with another literal in the template",
			serial.ErrConflict, typ, calendar, g.calendar)
	}
	return fmt.Errorf("gapless: %w: numbers of %s in period %s were taken by a scheme with a different field order, "+
		"alphabet, check digit or key, so this scheme could print a number that already exists; use the other scheme until "+
		"the period has ended, or use another type",
		serial.ErrConflict, typ, label)
}
