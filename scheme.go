package serial

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dailyserial/serial/internal/calendar"
)

// A Scheme is how numbers look and when they start again: what of a [Generator] needs no Redis. It parses and prints numbers
// and tells periods, for services that only check what a user typed, for audits, and for package gapless. Make it with
// [NewScheme], or take a Generator's by [Generator.Scheme]. It is safe for use by any number of goroutines.
type Scheme struct{ scheme }

type scheme struct {
	calendar calendar.Calendar
	template string
	format   *format // parsed template
	limit    int64   // largest sequence that format prints
	base     int64   // sequence before the first of a period
	prefix   string  // of keys
	key      []byte  // for hidden sequences, nil for none
	counts   string  // what a series counts by, for as long as it lives
	mark     string  // of all that could make two processes print different sequences alike
	brief    bool    // what is printed, or counted, is over in a second
	varies   bool    // what is printed of the date may change within a period
	broken   bool    // what is printed of the date may come again within a period
}

const defaultPrefix = "serial"

func newScheme() scheme {
	return scheme{calendar: calendar.Calendar{Location: time.Local, Unit: calendar.Day}, template: defaultTemplate, prefix: defaultPrefix}
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
	f, err := parseTemplate(s.template)
	if err == nil {
		err = f.checkCalendar(s.template, c)
	}
	if err != nil {
		if s.template == defaultTemplate {
			err = fmt.Errorf("%w; %v needs a template of its own, such as %q", err, per, usualTemplate(c))
		}
		return append(errs, err)
	}
	s.format, s.limit = f, f.maxSeq()
	if s.base >= s.limit {
		errs = append(errs, fmt.Errorf("serial: WithStart(%d): the template prints sequences up to %d; allowed are 1 to that", s.base+1, s.limit))
	}
	if s.key != nil {
		if f.hidden, err = newHidden(s.key, s.prefix, f.alphabet, f.seqWidth, f.grows); err != nil {
			errs = append(errs, err)
		}
	}
	s.counts = c.Name(f.date != nil && (f.date.has[businessYear] || f.date.has[businessEnd] || f.date.has[quarter]))
	s.mark = s.printMark()
	s.brief = per == PerSecond || f.date != nil && f.date.has[second]
	s.varies = f.date != nil && f.date.varies(c)
	s.broken = f.date != nil && !f.date.unbroken(c.YearStart)
	return errs
}

// printMark is a hash of all that could make two processes print different sequences of a period alike: the order of fields and
// tokens, the alphabet, the check digit and the key. Widths, literals and spellings are not in it.
func (s *scheme) printMark() string {
	f := s.format
	var text strings.Builder
	for _, fl := range f.fields {
		switch fl.kind {
		case fieldType:
			text.WriteString("type;")
		case fieldDate:
			text.WriteString("date:" + f.date.usual() + ";")
		case fieldSeq:
			text.WriteString("seq:" + f.alphabet.name + ";")
		case fieldCheck:
			text.WriteString("check:" + f.check.Name + ";")
		}
	}
	if f.hidden != nil {
		text.WriteString("hidden:" + f.hidden.fingerprint)
	}
	sum := sha256.Sum256([]byte(text.String()))
	return hex.EncodeToString(sum[:6]) // with it, most records have no field above 64 bytes, which Redis keeps compact
}

// A stretch is a part of a period in which the same date is printed: usually all of it.
type stretch struct {
	calendar.Period
	from, to int64     // its first instant and the first one after it, Unix seconds
	earlier  int64     // seconds before from at which the period first printed the same; 0 unless that comes again
	reading  time.Time // of the clock, which is printed
	date     string    // as printed
}

// contains reports whether the instant t, in Unix seconds, lies in s.
func (s *stretch) contains(t int64) bool { return s.from <= t && t < s.to }

// stretchAt is the stretch of an instant.
func (s *scheme) stretchAt(t time.Time) stretch {
	p := s.calendar.At(t)
	of := stretch{Period: *p, from: p.Start, to: p.End, reading: p.Wall}
	if f := s.format; f.date != nil {
		of.from, of.to, of.reading = f.date.spanAt(s.calendar, t, p)
		of.date = f.print(of.reading)
		if s.broken {
			if first, err := f.find(of.date); err == nil {
				of.earlier = of.from - first.date.Unix()
			}
		}
	}
	return of
}

// undated is a period's stretch for a number of which nobody knows when in the period it was issued.
func (s *scheme) undated(p *calendar.Period) stretch {
	of := stretch{Period: *p, from: p.Start, to: p.End, reading: p.Wall}
	if !s.varies {
		of.date = s.format.print(p.Wall)
	}
	return of
}

// number is the number of a stretch that format prints. Where its date is not known, it is "".
func (s *stretch) number(typ string, seq int64, loc *time.Location, f *format) Number {
	n := Number{Type: typ, Start: time.Unix(s.Start, 0).In(loc), Seq: seq, date: s.date, label: s.Label, format: f}
	if n.Date = n.Start; s.from-s.earlier != s.Start {
		n.Date = time.Unix(s.from-s.earlier, 0).In(loc)
	}
	if s.date == "" && f.date != nil {
		n.Date = time.Time{}
	}
	return n
}

// Number returns the number of a type that is issued at an instant with a sequence.
//
// Errors: [ErrInvalidType]; [ErrExhausted] for a sequence above the last of [Scheme.Limits]; one for a sequence below 1, for an
// instant before 1970 or after the year 9999, and for a date that the template cannot print.
func (s *Scheme) Number(typ string, at time.Time, seq int64) (Number, error) {
	if err := s.format.checkType(typ); err != nil {
		return Number{}, err
	}
	of, err := s.datedSpan(at)
	switch {
	case err != nil:
		return Number{}, err
	case seq < 1:
		return Number{}, fmt.Errorf("serial: sequence %d of %s: allowed are 1 to %d", seq, typ, s.limit)
	case seq > s.limit:
		return Number{}, fmt.Errorf("%w: sequence %d of %s: allowed are 1 to %d", ErrExhausted, seq, typ, s.limit)
	}
	return of.number(strings.Clone(typ), seq, s.calendar.Location, s.format), nil
}

// Parse takes apart a number that was issued with this Scheme. It refuses anything that cannot have been issued: a date that the
// calendar or the zone does not have, parts of a date that do not fit each other, sequence 0, missing or excess padding, text
// before or after. With a hidden sequence and another key, Seq is wrong. Errors: [ErrInvalidNumber], which [ErrCheckDigit]
// matches too.
func (s *Scheme) Parse(number string) (Number, error) { return s.format.parse(number) }

// datedSpan is the span of an instant, or an error if the instant has no date that can be printed.
func (s *scheme) datedSpan(at time.Time) (stretch, error) {
	if !s.calendar.Covers(at) {
		last := "9999"
		if s.calendar.Unit == calendar.Never {
			last = "before " + time.Unix(calendar.EndOfNever, 0).UTC().Format(time.RFC3339)
		}
		return stretch{}, fmt.Errorf("serial: a number at Unix time %d in %v: allowed are 1970 to %s", at.Unix(), s.calendar.Location, last)
	}
	of := s.stretchAt(at)
	return of, s.format.printable(of.reading)
}

// Series returns the name of a type's series, as a [Ledger] and package gapless know it: the key prefix, a colon and the type, such
// as "serial:IS". The error is [ErrInvalidType].
func (s *Scheme) Series(typ string) (string, error) {
	if err := s.format.checkType(typ); err != nil {
		return "", err
	}
	return s.series(typ), nil
}

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
	of, err := s.datedSpan(at)
	if err != nil {
		return time.Time{}, time.Time{}, err
	}
	loc := s.calendar.Location
	return time.Unix(of.from, 0).In(loc), time.Unix(of.to, 0).In(loc), nil
}

// Period returns the period of an instant: its label, as in keys and in a ledger, its first instant and the first one after it. If
// the date of the instant is not in 1970 to 9999 in the Scheme's time zone, there is none: all three are zero.
func (s *Scheme) Period(at time.Time) (label string, start, end time.Time) {
	if !s.calendar.Covers(at) {
		return "", time.Time{}, time.Time{}
	}
	p, loc := s.calendar.At(at), s.calendar.Location
	return p.Label, time.Unix(p.Start, 0).In(loc), time.Unix(p.End, 0).In(loc)
}

// Limits returns the first and the last sequence of a period.
func (s *Scheme) Limits() (first, last int64) { return s.base + 1, s.limit }
