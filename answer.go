package serial

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/dailyserial/serial/internal/store"
)

// printed is the call's request, zero if there is none. Its answer also holds the printed date and
// the template, so that the same text comes again, whatever the template is by then.
func (c *call) printed() store.Request {
	if c.request == "" {
		return store.Request{}
	}
	return store.Request{ID: c.request, Printed: strconv.Quote(c.span.date) + " " + strconv.Quote(c.g.template)}
}

// repeat makes the number that the request was answered with before the call's result.
func (c *call) repeat(r store.Reply) (step, error) {
	key := c.g.store.RequestKey(c.typ, c.request)
	s, f, err := c.g.readAnswer(r.Answer)
	if err != nil {
		return failed, fmt.Errorf("serial: %s holds %q, which no request was answered: %w", key, r.Held, err)
	}
	if f == nil { // version 0.1.0 left the printing to whoever repeats the answer
		switch per := c.g.calendar.period; {
		case len(s.label) != kinds[per].digits:
			return failed, fmt.Errorf("%w: %s was answered with a number of %s, which is not %v: this generator cannot print it",
				ErrConflict, key, s.label, per)
		case r.Answer.Seq > c.g.limit:
			return failed, fmt.Errorf("%w: %s was answered with number %d of %s: this generator prints numbers up to %d",
				ErrConflict, key, r.Answer.Seq, s.label, c.g.limit)
		}
		f = c.g.format
		if err := f.checkYear(s.wall.Year()); err != nil {
			return failed, err
		}
		s.date = f.dateOf(s.wall)
	}
	if s.label == c.span.label && s.start == c.span.start && s.end == c.span.end {
		// The answer of before may have been lost, and with it what the number would have been remembered by.
		c.g.marks.raise(c.typ, c.span, r.Answer.Seq, &c.node.clock)
	}
	c.made = result{span: s, last: r.Answer.Seq, format: f, repeated: r.Before == nil}
	return done, nil
}

// readAnswer returns the span of an answer, and the format that printed it, which is nil if version 0.1.0 answered.
func (g *Generator) readAnswer(a *store.Answer) (*span, *format, error) {
	if a == nil {
		return nil, nil, errors.New("it is no period, date, template and sequence")
	}
	s := &span{period: period{label: a.Period.Label, start: a.Period.Start, end: a.Period.End}}
	per := PerSecond
	for per.known() && kinds[per].digits != len(s.label) {
		per++
	}
	if !per.known() {
		return nil, nil, fmt.Errorf("no period is called %q", s.label)
	}
	var err error
	if s.wall, err = time.Parse("20060102150405"[:len(s.label)], s.label); err != nil || a.Printed == "" {
		return s, nil, err
	}
	var template string
	if _, err = fmt.Sscanf(a.Printed, "%q %q", &s.date, &template); err != nil {
		return nil, nil, err
	}
	f, err := parseTemplate(template, per)
	return s, f, err
}
