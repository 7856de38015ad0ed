package serial

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dailyserial/serial/internal/calendar"
	"github.com/dailyserial/serial/internal/template"
)

// A Scheme is how numbers look and when they start again: what of a [Generator] needs no Redis. It parses and prints numbers
// and tells periods, for services that only check what a user typed, for audits, and for package gapless. Make it with
// [NewScheme], or take a Generator's by [Generator.Scheme]. It is safe for use by any number of goroutines.
type Scheme struct{ scheme }

type scheme struct {
	calendar calendar.Calendar
	text     string             // of the template
	template *template.Template // parsed
	limit    int64              // largest sequence that the template prints
	base     int64              // sequence before the first of a period
	prefix   string             // of keys
	key      []byte             // for hidden sequences, nil for none
	counts   string             // what a series counts by, for as long as it lives
	mark     string             // of all that could make two processes print different sequences alike
	brief    bool               // what is printed, or counted, is over in a second
}

const defaultPrefix = "serial"

func newScheme() scheme {
	days := calendar.Calendar{Location: time.Local, Unit: calendar.Day}
	return scheme{calendar: days, text: template.Default, prefix: defaultPrefix}
}

// NewScheme returns a Scheme. Allowed are the options [WithLocation], [WithTemplate], [WithPeriod], [WithDayStart],
// [WithYearStart], [WithStart], [WithHiddenSequence] and [WithKeyPrefix], which hidden sequences depend on. It is an error if
// an option is another or invalid; the message names it and says what is allowed.
func NewScheme(opts ...Option) (*Scheme, error) {
	c := &config{scheme: newScheme(), schemeOnly: true}
	errs := append(c.applyAll(opts), c.complete()...)
	for i, err := range errs {
		if err != nil && strings.HasPrefix(err.Error(), "serial: template ") {
			errs[i] = fmt.Errorf("%w (WithTemplate)", err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return &Scheme{c.scheme}, nil
}

// applyAll applies options, which may be given in any order.
func (c *config) applyAll(opts []Option) (errs []error) {
	for i, o := range opts {
		if o == nil {
			errs = append(errs, fmt.Errorf("serial: option %d is nil", i+1))
			continue
		}
		errs = append(errs, o.apply(c))
	}
	return errs
}

// complete checks what must fit together, and parses the template.
func (s *scheme) complete() (errs []error) {
	c, per := s.calendar, Period(s.calendar.Unit)
	if !c.Unit.Valid() {
		return []error{fmt.Errorf("serial: WithPeriod: %v is no period; %s", per, allowedPeriods)}
	}
	if c.DayStart != 0 && (c.Unit.ShorterThanDay() || per == Never) {
		errs = append(errs, fmt.Errorf("serial: WithDayStart: %v has no days; allowed are PerDay, PerWeek, PerMonth, PerQuarter and PerYear",
			per))
	}
	t, err := template.Parse(s.text, c)
	if err == nil {
		err = t.Prove()
	}
	if err != nil {
		if s.text == template.Default {
			err = fmt.Errorf("%w; %v needs a template of its own, such as %q", err, per, template.Usual(c))
		}
		return append(errs, err)
	}
	s.template, s.limit = t, t.Largest()
	if s.base >= s.limit {
		errs = append(errs, fmt.Errorf("serial: WithStart(%d): the template prints sequences up to %d; allowed are 1 to that", s.base+1, s.limit))
	}
	if s.key != nil {
		if err := t.Hide(s.key, s.prefix); err != nil {
			errs = append(errs, err)
		}
	}
	s.counts = c.Name(t.PrintsBusinessYear())
	s.mark = t.PrintMark()
	s.brief = per == PerSecond || t.PrintsSeconds()
	return errs
}

// Number returns the number of a type that is issued at an instant with a sequence.
//
// Errors: [ErrInvalidType]; [ErrExhausted] for a sequence above the last of [Scheme.Limits]; one for a sequence below 1, for an
// instant before 1970 or after the year 9999, and for a date that the template cannot print.
func (s *Scheme) Number(typ string, at time.Time, seq int64) (Number, error) {
	if err := s.template.CheckType(typ); err != nil {
		return Number{}, err
	}
	span, err := s.template.DatedSpan(at)
	switch {
	case err != nil:
		return Number{}, err
	case seq < 1:
		return Number{}, fmt.Errorf("serial: sequence %d of %s: allowed are 1 to %d", seq, typ, s.limit)
	case seq > s.limit:
		return Number{}, fmt.Errorf("%w: sequence %d of %s: allowed are 1 to %d", ErrExhausted, seq, typ, s.limit)
	}
	return newNumber(s.template, &span, strings.Clone(typ), seq), nil
}

// Parse takes apart a number that was issued with this Scheme. It refuses anything that cannot have been issued: a date that the
// calendar or the zone does not have, parts of a date that do not fit each other, sequence 0, missing or excess padding, text
// before or after. With a hidden sequence and another key, Seq is wrong. Errors: [ErrInvalidNumber], which [ErrCheckDigit]
// matches too.
func (s *Scheme) Parse(number string) (Number, error) { return s.parse(number) }

func (s *scheme) parse(number string) (Number, error) {
	n, err := s.template.ParseNumber(number)
	if err != nil {
		return Number{}, err
	}
	return parsedNumber(s.template, n), nil
}

// Series returns the name of a type's series, as a [Ledger] and package gapless know it: the key prefix, a colon and the type, such
// as "serial:IS". The error is [ErrInvalidType].
func (s *Scheme) Series(typ string) (string, error) {
	if err := s.template.CheckType(typ); err != nil {
		return "", err
	}
	return s.series(typ), nil
}

// local returns a Unix time in the time zone of the scheme.
func (s *scheme) local(unix int64) time.Time { return time.Unix(unix, 0).In(s.calendar.Location) }

func (s *scheme) series(typ string) string { return s.prefix + ":" + typ }

// Calendar returns what a series of this Scheme counts by, such as "days" or "years from April 1": its [Period] and, where quarters
// or business years are counted or printed, the first day of the business year. A series keeps it as long as it lives: a process
// with another one gets [ErrConflict].
func (s *Scheme) Calendar() string { return s.counts }

// PrintMark returns a hash of everything that decides whether two processes could print different sequences of one period alike:
// the order of fields and tokens, the alphabet, the check digit and the key of the hidden sequence. A period keeps it: a process
// with another one gets [ErrConflict] until a later period begins. Widths, literals and separators are not part of it.
func (s *Scheme) PrintMark() string { return s.mark }

// Span returns the first instant of the time around at in which the same date is printed, and the first one after it. That is at's
// period, or a part of it where the template prints more than the period.
//
// It is an error if the date of at is not in 1970 to 9999 in the Scheme's time zone, or if the template cannot print it.
func (s *Scheme) Span(at time.Time) (start, end time.Time, err error) {
	span, err := s.template.DatedSpan(at)
	if err != nil {
		return time.Time{}, time.Time{}, err
	}
	return s.local(span.From), s.local(span.To), nil
}

// Period returns the period of an instant: its label, as in keys and in a ledger, its first instant and the first one after it. If
// the date of the instant is not in 1970 to 9999 in the Scheme's time zone, there is none: all three are zero.
func (s *Scheme) Period(at time.Time) (label string, start, end time.Time) {
	if !s.calendar.Covers(at) {
		return "", time.Time{}, time.Time{}
	}
	p := s.calendar.At(at)
	return p.Label, s.local(p.Start), s.local(p.End)
}

// Limits returns the first and the last sequence of a period.
func (s *Scheme) Limits() (first, last int64) { return s.base + 1, s.limit }
