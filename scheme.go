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

// A Scheme determines how numbers are printed and when they start again. It is the part of a [Generator] that does not
// need Redis. It prints and parses numbers, and finds their periods. Use it to check numbers that users type, for
// audits, and with package gapless. Create a Scheme with [NewScheme], or get the Scheme of a Generator from
// [Generator.Scheme]. It is safe for concurrent use.
type Scheme struct{ scheme }

type scheme struct {
	calendar calendar.Calendar
	text     string             // template as given
	template *template.Template // parsed text
	last     int64              // argument of WithLast, or 0 if none
	limit    int64              // largest sequence of a period
	base     int64              // first sequence of a period, minus 1
	until    When               // last day on which numbers are issued, or zero if none
	over     int64              // first instant after the last day, in Unix seconds; 0 if there is none
	nearOver int64              // instant from which on hooks are told of the last day, in Unix seconds
	prefix   string             // first part of every Redis key
	shared   bool               // whether all types of the prefix share one series
	key      []byte             // key that hides sequences, or nil if they are not hidden
}

const defaultPrefix = "serial"

func newScheme() scheme {
	days := calendar.Calendar{Location: time.Local, Unit: calendar.Day}
	return scheme{calendar: days, text: template.Default, prefix: defaultPrefix}
}

// NewScheme returns a Scheme. It accepts the options [WithLocation], [WithTemplate], [WithPeriod], [WithDayStart],
// [WithYearStart], [WithStart], [WithLast], [WithUntil], [WithSharedCounter], [WithHiddenSequence] and [WithKeyPrefix].
// (Hidden sequences depend on the key prefix.)
//
// NewScheme returns an error if any other option is given, or if an option is invalid. The message contains the option
// and the valid values.
func NewScheme(opts ...Option) (*Scheme, error) {
	c := &config{scheme: newScheme(), schemeOnly: true}
	if err := errors.Join(append(c.applyAll(opts), c.complete()...)...); err != nil {
		return nil, err
	}
	return &Scheme{c.scheme}, nil
}

// complete parses the template, and checks the settings and their combinations.
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
		"serial: WithDayStart does not apply to %v; want PerDay, PerWeek, PerMonth, PerQuarter, PerHalfYear or PerYear", per))
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
			"serial: WithStart(%d): want 1 to %d, the largest sequence that the template prints", s.base+1, largest),
		refuseIf(s.limit <= s.base || s.limit > largest,
			"serial: WithLast(%d): want %d to %d, from the first sequence to the largest that the template prints",
			s.limit, s.base+1, largest)))
	if s.key != nil {
		errs = append(errs, t.Hide(s.key, s.prefix, s.sharedType()))
	}
	return errs
}

// Number returns the number with sequence seq, as a [Generator] would print it for typ on the given date or at the
// given instant. Number does not check whether the number was issued.
//
// The error matches [ErrInvalidType] if the type is invalid, and [ErrExhausted] if seq is larger than the template can
// print. Number also fails if seq is less than 1, if the date or instant is in no period, if the template cannot print
// the date, or if the template prints the time of day and only a date is given. [WithLast] and [WithUntil] have no
// effect, because the number may have been issued before they were set.
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

// Parse parses a number that was issued with this Scheme. It refuses any string that cannot be such a number. For
// example, the date does not exist in the calendar or the time zone, or parts of the date contradict each other; the
// sequence is 0, or has too little or too much padding; or there is text before or after the number. If the sequence is
// hidden and the number was issued with another key, Seq is wrong, and there may be no error.
//
// Every error matches [ErrInvalidNumber]. The error also matches [ErrCheckDigit] if the check digit is wrong, and
// [ErrImpossibleDate] if only the date is wrong.
func (s *Scheme) Parse(number string) (Number, error) { return s.parse(number) }

func (s *scheme) parse(number string) (Number, error) {
	n, err := s.template.ParseNumber(number)
	if err != nil {
		return Number{}, err
	}
	return newNumber(s.template, *n.Span, strings.Clone(n.Type), n.Seq), nil // cloned, so that the parameter can be freed
}

// Series returns the name of the series of a type, for a [Ledger] and package gapless. The name consists of the key
// prefix, a colon and the type, such as "serial:IS". With [WithSharedCounter], all types have the same series, such as
// "serial:*". The only possible error is [ErrInvalidType].
func (s *Scheme) Series(typ string) (string, error) {
	if err := s.template.CheckType(typ); err != nil {
		return "", err
	}
	return s.series(typ), nil
}

func (s *scheme) series(typ string) string { return s.prefix + ":" + cmp.Or(s.sharedType(), typ) }

// sharedType returns "*" if all types share a series. The shared series is named like the series of a type "*". There
// is no such type, because types contain no asterisks. If each type has a separate series, sharedType returns "".
func (s *scheme) sharedType() string {
	if s.shared {
		return "*"
	}
	return ""
}

// subject returns the type for messages, or the series if the template prints no type.
func (s *scheme) subject(typ string) string { return cmp.Or(typ, s.series(typ)) }

// local returns a Unix time in the time zone of the scheme.
func (s *scheme) local(unix int64) time.Time { return time.Unix(unix, 0).In(s.calendar.Location) }

// Calendar returns the name of the calendar of every series of this Scheme, such as "days" or "years from April 1". It
// consists of the [Period] and, if business years matter, of their first day. They matter if they do not begin on
// January 1, and the period or the template uses quarters, half-years or business years. The calendar of a series
// cannot change. A process with another calendar gets [ErrConflict].
func (s *Scheme) Calendar() string { return s.counts() }

func (s *scheme) counts() string {
	if s.template == nil { // in a zero Scheme
		return ""
	}
	return s.calendar.Name(s.template.Dates.PrintBusinessYear())
}

// PrintMark returns a hash of the settings that must be the same in all processes, because otherwise two sequences of a
// period could be printed as the same number. These settings are the order of fields and tokens, the alphabet, the
// check digit and the key that hides sequences. Widths, literals and separators may differ. The print mark of a period
// cannot change. A process with another print mark gets [ErrConflict] until a later period begins.
func (s *Scheme) PrintMark() string { return s.template.PrintMark() }

// Span returns the interval that contains the given date or instant, and in which the same date is printed. It returns
// the first instant of the interval, and the first instant after it. The interval is a complete period, or a part of
// one if the template prints more of the date than the period, such as the month in a yearly period.
//
// Span fails if the date or instant is in no period; the error contains the reason. It also fails if the template
// cannot print the date, or if the template prints the time of day and only a date is given. [WithUntil] has no effect.
func (s *Scheme) Span(at When) (start, end time.Time, err error) {
	span, err := s.numberedSpan(at)
	if err != nil {
		return time.Time{}, time.Time{}, err
	}
	return s.local(span.From), s.local(span.To), nil
}

// Period returns the label of the period that contains the given date or instant, the first instant of the period, and
// the first instant after it. The label is used in keys and in a ledger. If there is no such period, all three results
// are zero, and the error of [Scheme.Span] contains the reason. With [Never], the period begins and ends at midnight
// UTC.
func (s *Scheme) Period(at When) (label string, start, end time.Time) {
	if p := s.period(at); p != nil {
		label, start, end = p.Label, s.local(p.Start), s.local(p.End)
	}
	return label, start, end
}

// period returns the period of w, or nil if w is in no period.
func (s *scheme) period(w When) *calendar.Period {
	at, err := s.firstInstant(w)
	if err != nil {
		return nil
	}
	return s.calendar.At(at)
}

// PeriodName returns a readable name of the period that contains the given date or instant, such as "24 October 2021",
// "October 2021", "week 42 of 2021", "quarter 4 of 2021", "half-year 2 of 2021", "2021", "24 October 2021, 15:00 to
// 16:00" or "all time". If years do not begin on 1 January, the names of years, half-years and quarters contain
// "business year 2021", for example. Weeks are those of ISO 8601. If there is no such period, the name is "".
func (s *Scheme) PeriodName(at When) string {
	p := s.period(at)
	if p == nil {
		return ""
	}
	return s.calendar.PeriodName(p, s.local(p.Start), s.local(p.End))
}

// BusinessDate returns the date of the business day that contains the given instant, in the time zone and with the day
// start of the scheme. If a date is given, BusinessDate returns this date. For a date or an instant in no period, it
// returns the zero When.
func (s *Scheme) BusinessDate(at When) When {
	first, err := s.firstInstant(at)
	if err != nil {
		return When{}
	}
	return OnDateOf(s.calendar.With(calendar.Day).At(first).Wall)
}

// Limits returns the first and the last sequence of a period; see [WithStart] and [WithLast].
func (s *Scheme) Limits() (first, last int64) { return s.base + 1, s.limit }

// Until returns the last day on which numbers are issued, and whether there is such a day; see [WithUntil].
func (s *Scheme) Until() (last When, ok bool) { return s.until, s.over > 0 }

// WithTemplate returns a copy of the Scheme with another template and without [WithLast]. If s hides sequences, the
// copy hides them with the same key. Pass the copy to [WithEarlier] for numbers that were printed before a template was
// changed.
//
// WithTemplate returns the same errors as [NewScheme]. It fails if the template is invalid, does not suit the calendar,
// or cannot print the first sequence of [WithStart]. If s hides sequences, it also fails if the template cannot print
// hidden ones.
func (s *Scheme) WithTemplate(template string) (*Scheme, error) {
	other := s.scheme
	other.text, other.last = template, 0
	if err := errors.Join(other.complete()...); err != nil {
		return nil, err
	}
	return &Scheme{other}, nil
}

// WithEarlier makes an audit also account for numbers that other schemes have printed in the same series, for example
// before a template was widened from {seq:4} to {seq:6}. The audit tries to parse a string with the audited scheme
// first, and then with these schemes in their order. If the option is given more than once, all its schemes are used.
//
// A string belongs to the first scheme that parses it as a number of the audited type, in the period with the audited
// label (see [Scheme.Period]). A string that the schemes only parse as numbers of other types or periods counts as a
// number of another type or period. A string that no scheme can parse is foreign. A sequence that was printed by two
// schemes is a duplicate. In a [Report], a number has the form and the Start of the scheme that it belongs to.
// Contradicted numbers have the form of the audited scheme. The Start, First and Last of the Report, and the Start of
// its explanations, are also those of the audited scheme.
//
// Each scheme has a period with the audited label. An explanation applies if its Start is the first instant of one of
// these periods. If these instants differ, query a register of explanations for each of them.
//
// The key prefix, [Scheme.Calendar], [WithSharedCounter] and the key that hides sequences must be those of the audited
// scheme. Otherwise, or if a scheme is nil, the audit fails before it reads the used numbers. Template, time zone, day
// start and [WithStart] may differ. By default, there are no earlier schemes.
func WithEarlier(schemes ...*Scheme) AuditOption {
	return auditOption(func(c *auditConfig) error {
		c.earlier = append(c.earlier, schemes...)
		return nil
	})
}

// addEarlier adds the schemes of WithEarlier to an audit.
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

// beginning returns the audited periods that begin at an instant in any of the schemes. If no scheme has a period that
// begins at that instant, the result inside is an audited period that contains the instant, or nil if there is none.
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
