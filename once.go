package serial

import (
	"context"
	"fmt"
	"unicode"

	"github.com/dailyserial/serial/internal/calendar"
	"github.com/dailyserial/serial/internal/series"
	"github.com/dailyserial/serial/internal/template"
)

// NextOnce issues a number for a request that may be repeated. For 48 hours, or as long as [WithOnceFor] says, the same
// request of the same type gets the same number, across midnights and from any process. It is for callers that deliver
// at least once, such as queues and HTTP clients that retry, and for repeating a call whose answer was lost: the
// repetition leaves neither a duplicate nor a gap.
//
// requestID is 1 to 128 bytes of printable UTF-8 that distinguish the request from every other of that type, such as a
// message's ID. An Idempotency-Key alone is not enough: two users may send the same one, so combine it with the user's
// ID, as the recipe in the README does. A refused request is not remembered. An answered request gets its answer again
// even if the period is exhausted or lost by then. A request takes about 250 bytes of Redis's memory for that time; if
// Redis loses them, a repeated request gets another number.
//
// The number is repeated as it was printed, even by a Generator with another template or [Period]. Only a Generator
// that has its key can repeat a hidden number; see [WithHiddenSequence].
//
// The answer is final. If the number turns out to be taken already, which only a floor that answered too low can cause,
// the same request would get it again: use [Generator.Next] instead.
//
// The call costs one round trip, which it does not share with other calls. Errors: as for [Generator.NextNumber], and
// [ErrInvalidRequest] for an invalid requestID, in which case nothing was sent. [ErrConflict] may also mean that the
// stored answer is a hidden number whose key this Generator does not have, or, with [WithSharedCounter], that it has
// another type. After any other error, and after a cancelled call, ask again with the same requestID.
func (g *Generator) NextOnce(ctx context.Context, typ, requestID string) (Number, error) {
	var refused error
	if wrong := checkText(requestID, 1, 128, unicode.IsPrint); wrong != "" {
		refused = fmt.Errorf("%w: request %.160q: %s", ErrInvalidRequest, requestID, wrong)
	}
	return g.issue(ctx, typ, requestID, 1, refused)
}

// plain is stored instead of the key's fingerprint if the sequence is not hidden.
const plain = "plain"

// repeated returns the number in the stored answer to a request.
func (g *Generator) repeated(typ, request string, a *series.Answer) (Number, error) {
	key := g.counters.RequestKey(typ, request)
	if a.Key != plain && a.Key != g.template.Fingerprint && a.Key != "" {
		return Number{}, fmt.Errorf("%w: %s was answered with a hidden sequence, whose key this generator does not have",
			ErrConflict, key)
	}
	span, t, answered, err := g.readAnswer(a)
	if err != nil {
		return Number{}, fmt.Errorf("serial: %s holds %q, which is not a stored answer: %w", key, a.Text, err)
	}
	if g.shared && answered != typ {
		return Number{}, fmt.Errorf("%w: %s was answered with the type %q, not %q", ErrConflict, key, answered, typ)
	}
	return newNumber(t, span, typ, a.Seq), nil
}

// readAnswer returns an answer's span, the template that printed it, which may not be this Generator's, and its type if
// types share a counter.
func (g *Generator) readAnswer(a *series.Answer) (s calendar.Span, t *template.Template, typ string, err error) {
	unit, start, ok := calendar.ParseName(a.Period.Calendar)
	if !ok {
		return s, nil, "", fmt.Errorf("got calendar %q; want a period, a date, a template, the type if all types share a "+
			"counter, a sequence and a key",
			a.Period.Calendar)
	}
	c := g.calendar.With(unit)
	c.YearStart = start
	s.Period, s.From, s.To = a.Period.Period, a.Period.Start, a.Period.End
	var text string
	into := []any{&s.Date, &text, &typ}
	if !g.shared {
		into = into[:2]
	}
	_, err = fmt.Sscanf(a.Printed, "%q %q %q"[:3*len(into)-1], into...)
	if err == nil {
		t, err = template.Parse(text, c)
	}
	if err == nil && a.Key != plain {
		err = t.Hide(g.key, g.prefix, g.sharedType())
	}
	if err != nil {
		return s, nil, "", err
	}
	if first, err := t.Dates.Find(s.Date); err == nil && s.Start <= first.From && first.From < s.End {
		s.From = first.From
	}
	return s, t, typ, nil
}
