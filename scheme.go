package serial

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dailyserial/serial/internal/calendar"
	"github.com/dailyserial/serial/internal/template"
)

// A Scheme says how numbers look and when they start again: the part of a [Generator] that needs no Redis. It prints
// and parses numbers and knows their periods, for services that only check what a user typed, for audits, and for
// package gapless. Make one with [NewScheme], or get a Generator's from [Generator.Scheme]. It is safe for concurrent
// use.
type Scheme struct{ scheme }

type scheme struct {
	calendar calendar.Calendar
	text     string             // template as given
	template *template.Template // text, parsed
	last     int64              // largest sequence of a period, as given; 0 for the template's largest
	limit    int64              // largest sequence of a period
	base     int64              // sequence just before a period's first
	until    When               // last day for which numbers are issued, zero for none
	over     int64              // first instant after that day, Unix seconds; 0 for none
	nearOver int64              // from this instant on, hooks warn of that day, Unix seconds
	prefix   string             // first part of every key
	shared   bool               // all types of the prefix have one series
	key      []byte             // key that hides sequences, nil if they are not hidden
}

const defaultPrefix = "serial"

func newScheme() scheme {
	days := calendar.Calendar{Location: time.Local, Unit: calendar.Day}
	return scheme{calendar: days, text: template.Default, prefix: defaultPrefix}
}

// NewScheme returns a Scheme. It takes the options [WithLocation], [WithTemplate], [WithPeriod], [WithDayStart],
// [WithYearStart], [WithStart], [WithLast], [WithUntil], [WithSharedCounter], [WithHiddenSequence] and [WithKeyPrefix],
// on which hidden sequences depend.
//
// Any other option is an error, and so is an invalid option. The message names the option and says what is allowed.
func NewScheme(opts ...Option) (*Scheme, error) {
	c := &config{scheme: newScheme(), schemeOnly: true}
	if err := errors.Join(append(c.applyAll(opts), c.complete()...)...); err != nil {
		return nil, err
	}
	return &Scheme{c.scheme}, nil
}

// complete checks the settings against each other, and parses the template.
func (s *scheme) complete() (errs []error) {
	c, per := s.calendar, Period(s.calendar.Unit)
	if !c.Unit.Valid() {
		return []error{fmt.Errorf("serial: WithPeriod(%v): want "+
			"PerSecond, PerMinute, PerHour, PerDay, PerWeek, PerMonth, PerQuarter, PerHalfYear, PerYear or Never", per)}
	}
	t, err := template.Parse(s.text, c)
	if err == nil {
		if err = t.Prove(s.shared); err != nil && s.text != template.Default {
			if unit, ok := t.Dates.Named(); ok {
				err = fmt.Errorf("%w, or use WithPeriod(%v)", err, Period(unit))
			}
		}
	}
	errs = append(errs, refuseIf(c.DayStart != 0 && (c.Unit.ShorterThanDay() || per == Never),
		"serial: WithDayStart: %v has no days; want PerDay, PerWeek, PerMonth, PerQuarter, PerHalfYear or PerYear", per))
	if err != nil {
		if s.text == template.Default {
			err = fmt.Errorf("%w; %v needs a template of its own, such as %q", err, per, template.Usual(c))
		}
		return append(errs, fmt.Errorf("%w (WithTemplate)", err))
	}
	largest := t.Largest()
	s.template, s.limit = t, cmp.Or(s.last, largest)
	errs = append(errs, s.setUntil(), cmp.Or(
		refuseIf(s.base >= largest,
			"serial: WithStart(%d): the template prints sequences up to %d; want 1 to that", s.base+1, largest),
		refuseIf(s.limit <= s.base || s.limit > largest,
			"serial: WithLast(%d): want %d to %d, from the first sequence to the largest that the template prints",
			s.limit, s.base+1, largest)))
	if s.key != nil {
		errs = append(errs, t.Hide(s.key, s.prefix, s.sharedType()))
	}
	return errs
}

// Number returns the number of a type with the sequence seq, as printed if issued on the date or at the instant at. It
// need not have been issued.
//
// Errors: [ErrInvalidType]; [ErrExhausted] if seq is above the largest sequence that the template prints; one for a seq
// below 1; one for a [When] that names no period, for a date if the template prints the time of day, and for a date
// that the template cannot print. [WithLast] and [WithUntil] have no effect: the number may have been issued before.
func (s *Scheme) Number(typ string, at When, seq int64) (Number, error) {
	if err := s.template.CheckType(typ); err != nil {
		return Number{}, err
	}
	span, err := s.numberedSpan(at)
	switch largest := s.template.Largest(); {
	case err != nil:
		return Number{}, err
	case seq < 1:
		return Number{}, fmt.Errorf("serial: sequence %d of %s: want 1 to %d", seq, s.subject(typ), largest)
	case seq > largest:
		return Number{}, fmt.Errorf("%w: sequence %d of %s: want 1 to %d", ErrExhausted, seq, s.subject(typ), largest)
	}
	return newNumber(s.template, span, strings.Clone(typ), seq), nil
}

// Parse parses a number that was issued with this Scheme. It refuses any text that cannot have been issued: a date that
// does not exist in the calendar or the time zone, parts of a date that contradict each other, sequence 0, missing or
// excess padding, text before or after. If the number was issued with a hidden sequence and another key, Seq is wrong
// and there may be no error.
//
// Every error matches [ErrInvalidNumber]. If the check digit is wrong, the error also matches [ErrCheckDigit].
func (s *Scheme) Parse(number string) (Number, error) { return s.parse(number) }

func (s *scheme) parse(number string) (Number, error) {
	n, err := s.template.ParseNumber(number)
	if err != nil {
		return Number{}, err
	}
	return newNumber(s.template, *n.Span, strings.Clone(n.Type), n.Seq), nil // a copy, so the text can be freed
}

// Series returns the name of a type's series, as a [Ledger] and package gapless use it: the key prefix, a colon and the
// type, such as "serial:IS". With [WithSharedCounter] it is the same for every type, such as "serial:*". The only error
// is [ErrInvalidType].
func (s *Scheme) Series(typ string) (string, error) {
	if err := s.template.CheckType(typ); err != nil {
		return "", err
	}
	return s.series(typ), nil
}

func (s *scheme) series(typ string) string { return s.prefix + ":" + cmp.Or(s.sharedType(), typ) }

// sharedType returns the type that all types count as, "" if each has a series of its own. No type has an asterisk.
func (s *scheme) sharedType() string {
	if s.shared {
		return "*"
	}
	return ""
}

// subject names a type's numbers in messages: by the type, or by the series if the template prints no type.
func (s *scheme) subject(typ string) string { return cmp.Or(typ, s.series(typ)) }

// local returns a Unix time in the time zone of the scheme.
func (s *scheme) local(unix int64) time.Time { return time.Unix(unix, 0).In(s.calendar.Location) }

// Calendar returns the calendar of every series of this Scheme, such as "days" or "years from April 1": its [Period]
// and, if quarters, half-years or business years are counted or printed, the first day of the business year. A series
// keeps its calendar as long as it lives: a process with another calendar gets [ErrConflict].
func (s *Scheme) Calendar() string { return s.counts() }

func (s *scheme) counts() string {
	if s.template == nil { // in a Scheme that NewScheme did not make
		return ""
	}
	return s.calendar.Name(s.template.Dates.PrintBusinessYear())
}

// PrintMark returns a hash of the settings that two processes must share, or they could print the same number for
// different sequences of a period: the order of fields and tokens, the alphabet, the check digit and the key of the
// hidden sequence. Widths, literals and separators are not part of it. A period keeps its print mark: a process with
// another print mark gets [ErrConflict] until a later period begins.
func (s *Scheme) PrintMark() string { return s.template.PrintMark() }

// Span returns the span of at in which the same date is printed. It begins at start and ends before end. It is the
// period of at, or a part of it if the template prints more than the period.
//
// It is an error if at names no period, which the error explains; if at is a date and the template prints the time of
// day; and if the template cannot print the date. [WithUntil] has no effect.
func (s *Scheme) Span(at When) (start, end time.Time, err error) {
	span, err := s.numberedSpan(at)
	if err != nil {
		return time.Time{}, time.Time{}, err
	}
	return s.local(span.From), s.local(span.To), nil
}

// Period returns the period of at: its label, as in keys and in a ledger, its first instant, and the first instant
// after it. If at names no period, all three are zero, and [Scheme.Span] says why. With [Never], start and end are in
// UTC.
func (s *Scheme) Period(at When) (label string, start, end time.Time) {
	if p := s.period(at); p != nil {
		label, start, end = p.Label, s.local(p.Start), s.local(p.End)
	}
	return label, start, end
}

// period returns the period of a When, nil if it names none.
func (s *scheme) period(w When) *calendar.Period {
	at, err := s.firstInstant(w)
	if err != nil {
		return nil
	}
	return s.calendar.At(at)
}

// PeriodName returns the name of at's period as people write it, such as "24 October 2021", "October 2021", "week 42 of
// 2021", "quarter 4 of 2021", "half-year 2 of 2021", "2021", "24 October 2021, 15:00 to 16:00" or "all time". A year
// that begins on another day than 1 January is "business year 2021". Weeks are ISO 8601 weeks. If [Scheme.Period]
// returns zeros, the name is "".
func (s *Scheme) PeriodName(at When) string {
	p := s.period(at)
	if p == nil {
		return ""
	}
	return s.calendar.PeriodName(p, s.local(p.Start), s.local(p.End))
}

// BusinessDate returns the date that at has by the scheme's time zone and day start: a date for itself, and for an
// instant the date of its business day. If [Scheme.Period] returns zeros, BusinessDate returns the zero When.
func (s *Scheme) BusinessDate(at When) When {
	first, err := s.firstInstant(at)
	if err != nil {
		return When{}
	}
	return OnDateOf(s.calendar.With(calendar.Day).At(first).Wall)
}

// Limits returns the first and the last sequence of a period; see [WithStart] and [WithLast].
func (s *Scheme) Limits() (first, last int64) { return s.base + 1, s.limit }

// Until returns the last day for which a number is issued, and false if there is none; see [WithUntil].
func (s *Scheme) Until() (last When, ok bool) { return s.until, s.over > 0 }

// WithTemplate returns the same Scheme with another template, which the key of the hidden sequence, if there is one,
// hides too, and without [WithLast]. [WithEarlier] takes the result for numbers printed before a template was changed.
// s does not change.
//
// The errors are those of [NewScheme]: for a template that is not valid, that does not suit the calendar, that cannot
// hide sequences, or that cannot print the first sequence of [WithStart].
func (s *Scheme) WithTemplate(template string) (*Scheme, error) {
	other := s.scheme
	other.text, other.last = template, 0
	if err := errors.Join(other.complete()...); err != nil {
		return nil, err
	}
	return &Scheme{other}, nil
}

// WithEarlier has an audit also account for numbers that other schemes printed in the same series, such as those from
// before a template was widened from {seq:4} to {seq:6}. The audited scheme comes first, then these, in order; if the
// option is given more than once, all of them count.
//
// A text counts for the first scheme that reads it as a number of the audited type, in the period with the same label,
// as [Scheme.Period] returns it. If there is none, the text is of another type or period if any scheme reads it, and
// foreign if none does. A sequence that two schemes have printed is a duplicate. In a [Report], a number looks as the
// scheme that read it prints it, and its Start is by that scheme. Contradicted numbers, explanations, Start, First and
// Last are by the audited scheme.
//
// An explanation counts if its Start is the first instant of the period with that label by any of the schemes. Ask a
// register for each of these instants that differ.
//
// The key prefix, [Scheme.Calendar], [WithSharedCounter] and the key of the hidden sequence must be those of the
// audited scheme. Otherwise, and if a scheme is nil, the audit returns an error before it reads the used numbers.
// Template, time zone, day start and [WithStart] may differ. Default none.
func WithEarlier(schemes ...*Scheme) AuditOption {
	return auditOption(func(c *auditConfig) error {
		c.earlier = append(c.earlier, schemes...)
		return nil
	})
}

// addEarlier adds the earlier schemes to an audit, after the audited one.
func (a *audit) addEarlier() error {
	s := a.scheme
	for i, e := range a.earlier {
		if e == nil {
			return fmt.Errorf("serial: WithEarlier: scheme %d is nil", i+1)
		}
		if e.prefix != s.prefix || e.counts() != s.counts() || e.shared != s.shared || string(e.key) != string(s.key) {
			return fmt.Errorf("serial: WithEarlier: scheme %d has the key prefix %q and the calendar %q: want %q, %q and the "+
				"same hidden key and WithSharedCounter, as in the audited scheme", i+1, e.prefix, e.counts(), s.prefix, s.counts())
		}
		a.schemes = append(a.schemes, &e.scheme)
	}
	return nil
}

// beginning returns the periods that begin at an instant, by any of the schemes. If there is none, it returns a period
// in which the instant lies, unless another period begins there.
func (a *audit) beginning(at time.Time) (begin []*auditedPeriod, inside *auditedPeriod) {
	begun := false
	for _, s := range a.schemes {
		c := s.calendar.At(at)
		p, first := a.periods[c.Label], at.Equal(time.Unix(c.Start, 0))
		begun = begun || first
		switch {
		case p == nil:
		case first && !slices.Contains(begin, p):
			begin = append(begin, p)
		case !first && c.Start <= at.Unix() && at.Unix() < c.End:
			inside = p
		}
	}
	if begun {
		inside = nil
	}
	return begin, inside
}
