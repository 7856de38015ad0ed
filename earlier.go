package serial

import (
	"errors"
	"fmt"
	"time"

	"github.com/dailyserial/serial/internal/template"
)

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

// find returns the first scheme that reads a text as a number of the audited type and period, and the number. If there
// is none, it returns nil, and whether a scheme reads the text.
func (a *audit) find(text string) (s *scheme, n template.Number, other bool) {
	for _, s := range a.schemes {
		n, err := s.template.ParseStored(text)
		if err == nil && (s.shared || n.Type == a.report.Type) && n.Span.Label == a.period.Label {
			return s, n, false
		}
		other = other || err == nil
	}
	return nil, n, other
}

// begins reports whether the period with the audited label begins at an instant, by any of the schemes, and whether the
// instant lies in such a period although no scheme has a period that begins there.
func (a *audit) begins(at time.Time) (begins, inside bool) {
	if at.Equal(a.report.Start) {
		return true, false
	}
	first := false
	for _, s := range a.schemes {
		p := s.calendar.At(at)
		audited, begun := p.Label == a.period.Label, at.Equal(time.Unix(p.Start, 0))
		first, begins = first || begun, begins || begun && audited
		inside = inside || audited && p.Start <= at.Unix() && at.Unix() < p.End
	}
	return begins, inside && !first
}
