package serial

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/dailyserial/serial/internal/store"
)

// printed is the call's request, zero if there is none. Its answer also holds the printed date, the template, and which key hides
// the sequence, so that the same text comes again, whatever this Generator's template is by then.
func (c *call) printed() store.Request {
	if c.request == "" {
		return store.Request{}
	}
	r := store.Request{ID: c.request, Printed: strconv.Quote(c.span.date) + " " + strconv.Quote(c.g.template)}
	if c.g.mark != "" {
		r.Key = "plain"
		if h := c.g.format.hidden; h != nil {
			r.Key = h.fingerprint
		}
	}
	return r
}

// repeat makes the number that the request was answered with before the call's result.
func (c *call) repeat(r store.Reply) (step, error) {
	key := c.g.store.RequestKey(c.typ, c.request)
	s, f, err := c.g.readAnswer(r.Answer)
	switch {
	case errors.Is(err, ErrConflict):
		return failed, fmt.Errorf("%w: %s", err, key)
	case err != nil:
		return failed, fmt.Errorf("serial: %s holds %q, which no request was answered: %w", key, r.Held, err)
	}
	if s.label == c.span.label && s.start == c.span.start && s.end == c.span.end {
		// The answer of before may have been lost, and with it what the number would have been remembered by.
		c.g.marks.raise(c.typ, c.span, r.Answer.Seq, &c.node.clock)
	}
	c.made = result{span: s, last: r.Answer.Seq, format: f, repeated: r.Before == nil}
	return done, nil
}

// readAnswer returns the span of an answer, and the format that printed it.
func (g *Generator) readAnswer(a *store.Answer) (*span, *format, error) {
	if a == nil {
		return nil, nil, errors.New("it is no period, date, template and sequence")
	}
	per, ok := kindOf(a.Period.Label)
	if !ok {
		return nil, nil, fmt.Errorf("no period is called %q", a.Period.Label)
	}
	s := &span{stretch: stretch{period: period{label: a.Period.Label, start: a.Period.Start, end: a.Period.End}}}
	s.from, s.to = s.start, s.end
	if a.Printed == "" { // version 0.1.0 left the printing to whoever repeats the answer
		return s, g.format, g.printAnswer(s, per, a.Seq)
	}
	var template string
	if _, err := fmt.Sscanf(a.Printed, "%q %q", &s.date, &template); err != nil {
		return nil, nil, err
	}
	f, err := parseTemplate(template)
	if err != nil {
		return nil, nil, err
	}
	if a.Key != "" && a.Key != "plain" {
		if f.hidden = g.format.hidden; f.hidden == nil || f.hidden.fingerprint != a.Key {
			return nil, nil, fmt.Errorf("%w: the request was answered with a hidden sequence, whose key this generator does not have", ErrConflict)
		}
		if f.hidden, err = newHidden(g.key, g.prefix, f.alphabet, f.seqWidth, f.grows); err != nil {
			return nil, nil, err
		}
	}
	f.calendar = g.calendar.per(per)
	if f.date == nil {
		return s, f, nil
	}
	if at, err := f.find(s.date); err == nil && s.start <= at.date.Unix() && at.date.Unix() < s.end {
		s.from = at.date.Unix()
	}
	return s, f, nil
}

// printAnswer completes the span of an answer of version 0.1.0, which holds no date.
func (g *Generator) printAnswer(s *span, per Period, seq int64) error {
	wall, err := time.Parse(kinds[per].label, s.label)
	switch {
	case per != g.calendar.period || g.mark != "":
		return fmt.Errorf("%w: the request was answered with a number of %s, which this generator cannot print", ErrConflict, readable(s.label))
	case err != nil:
		return err
	case seq > g.limit:
		return fmt.Errorf("%w: the request was answered with number %d of %s: this generator prints numbers up to %d",
			ErrConflict, seq, s.label, g.limit)
	}
	s.date = g.format.print(wall)
	return g.format.printable(wall)
}
