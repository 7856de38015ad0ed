package serial

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/dailyserial/serial/internal/calendar"
	"github.com/dailyserial/serial/internal/store"
)

// plain stands for the fingerprint of a key where the sequence is not hidden.
const plain = "plain"

// printed is the call's request, zero if there is none. Its answer also holds the printed date, the template, and which key hides
// the sequence, so that the same text comes again, whatever this Generator's template is by then.
func (c *call) printed() store.Request {
	if c.request == "" {
		return store.Request{}
	}
	r := store.Request{ID: c.request, Printed: strconv.Quote(c.span.date) + " " + strconv.Quote(c.g.template), Key: plain}
	if h := c.g.format.hidden; h != nil {
		r.Key = h.fingerprint
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
		return failed, fmt.Errorf("serial: %s holds %q, which is not a stored answer: %w", key, r.Held, err)
	}
	if s.Label == c.span.Label && s.Start == c.span.Start && s.End == c.span.End {
		// The answer of before may have been lost, and with it what the number would have been remembered by.
		c.g.marks.raise(c.typ, c.span, r.Answer.Seq, &c.node.clock)
	}
	c.made = result{span: s, last: r.Answer.Seq, format: f, repeated: r.Before == nil}
	return done, nil
}

// readAnswer returns the span of an answer, and the format that printed it.
func (g *Generator) readAnswer(a *store.Answer) (*span, *format, error) {
	if a == nil {
		return nil, nil, errors.New("want a period, a date, a template, a sequence and a key")
	}
	per, start, ok := calendar.ParseName(a.Period.Calendar)
	if !ok {
		return nil, nil, fmt.Errorf("unknown calendar %q", a.Period.Calendar)
	}
	s := &span{stretch: stretch{Period: calendar.Period{Label: a.Period.Label, Start: a.Period.Start, End: a.Period.End}}}
	s.from, s.to = s.Start, s.End
	var template string
	if _, err := fmt.Sscanf(a.Printed, "%q %q", &s.date, &template); err != nil {
		return nil, nil, err
	}
	f, err := parseTemplate(template)
	if err != nil {
		return nil, nil, err
	}
	if a.Key != plain {
		if f.hidden = g.format.hidden; f.hidden == nil || f.hidden.fingerprint != a.Key {
			return nil, nil, fmt.Errorf("%w: the request was answered with a hidden sequence, whose key this generator does not have", ErrConflict)
		}
		if f.hidden, err = newHidden(g.key, g.prefix, f.alphabet, f.seqWidth, f.grows); err != nil {
			return nil, nil, err
		}
	}
	f.calendar = g.calendar.With(per)
	f.calendar.YearStart = start
	if f.date == nil {
		return s, f, nil
	}
	if at, err := f.find(s.date); err == nil && s.Start <= at.date.Unix() && at.date.Unix() < s.End {
		s.from = at.date.Unix()
	}
	return s, f, nil
}
