package serial

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/dailyserial/serial/internal/calendar"
	"github.com/dailyserial/serial/internal/store"
	"github.com/dailyserial/serial/internal/template"
)

// plain stands for the fingerprint of a key where the sequence is not hidden.
const plain = "plain"

// printed is the call's request, zero if there is none. Its answer also holds the printed date, the template, and which key hides
// the sequence, so that the same text comes again, whatever this Generator's template is by then.
func (c *call) printed() store.Request {
	if c.request == "" {
		return store.Request{}
	}
	r := store.Request{ID: c.request, Printed: strconv.Quote(c.span.Date) + " " + strconv.Quote(c.g.text), Key: plain}
	if key := c.g.template.Fingerprint(); key != "" {
		r.Key = key
	}
	return r
}

// repeat makes the number that the request was answered with before the call's result.
func (c *call) repeat(r store.Reply) (step, error) {
	key := c.g.store.RequestKey(c.typ, c.request)
	s, t, err := c.g.readAnswer(r.Answer)
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
	c.made = result{span: s, last: r.Answer.Seq, template: t, repeated: r.Before == nil}
	return done, nil
}

// readAnswer returns the span of an answer, and the template that printed it.
func (g *Generator) readAnswer(a *store.Answer) (*span, *template.Template, error) {
	if a == nil {
		return nil, nil, errors.New("want a period, a date, a template, a sequence and a key")
	}
	unit, start, ok := calendar.ParseName(a.Period.Calendar)
	if !ok {
		return nil, nil, fmt.Errorf("unknown calendar %q", a.Period.Calendar)
	}
	c := g.calendar.With(unit)
	c.YearStart = start
	s := &span{}
	s.Period = calendar.Period{Label: a.Period.Label, Start: a.Period.Start, End: a.Period.End}
	s.From, s.To = s.Start, s.End
	var text string
	if _, err := fmt.Sscanf(a.Printed, "%q %q", &s.Date, &text); err != nil {
		return nil, nil, err
	}
	t, err := template.Parse(text, c)
	if err != nil {
		return nil, nil, err
	}
	if a.Key != plain {
		if g.key == nil || g.template.Fingerprint() != a.Key {
			return nil, nil, fmt.Errorf("%w: the request was answered with a hidden sequence, whose key this generator does not have", ErrConflict)
		}
		if err := t.Hide(g.key, g.prefix); err != nil {
			return nil, nil, err
		}
	}
	if date, err := t.FindDate(s.Date); err == nil && s.Start <= date.First.Unix() && date.First.Unix() < s.End {
		s.From = date.First.Unix()
	}
	return s, t, nil
}
