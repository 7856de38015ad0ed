package serial

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// NextOnce issues a number for a request that may come again: the same request of the same type, from any process, gets
// the same number for 48 hours, across midnights too. It is for callers that deliver at least once, queues and retried
// HTTP requests, and for retrying a call of which the answer was lost: neither leaves a duplicate, or a gap.
//
// requestID is 1 to 128 bytes of printable UTF-8 that tell the request from every other of that type, such as a message's
// ID. An Idempotency-Key is not enough: two users may send the same one, so combine it with the ID of the user, as the
// recipe in the README does. A request that was refused is not remembered, and one that was answered is answered again even
// if the period is by now exhausted or lost. A request takes about 250 bytes of Redis's memory for those 48 hours; if Redis
// loses them, a request that comes again gets another number.
//
// The number is repeated as it was printed, by a Generator with another template or [Period] too.
//
// The answer stays. Should the number be taken already, as only a floor that knew too little can bring about, the same
// request would get it again: use [Generator.Next] for that one.
//
// The call costs one round trip, and does not share it with others. Errors are those of [Generator.NextNumber], and one
// for an invalid requestID, where nothing was sent. [ErrConflict] also tells that version 0.1.0 of this package answered the
// request with a number that this Generator cannot print: of another [Period], or larger than its template holds. After any
// other error, and after a cancelled call, ask again with the same requestID.
func (g *Generator) NextOnce(ctx context.Context, typ, requestID string) (string, error) {
	var c call
	err := c.begin(ctx, g, typ)
	var b *batch
	if err == nil {
		if msg := checkRequest(requestID); msg != "" {
			err = fmt.Errorf("serial: request %.160q: %s", requestID, msg)
		} else {
			c.once = c.recordKey() + ":once:" + requestID
			b, err = c.sequence(ctx, 1)
		}
	}
	if b, err = c.toldIssued(ctx, 1, b, err); err != nil {
		return "", err
	}
	return b.number(b.last).String(), nil
}

// checkRequest says what is wrong with the ID of a request, or nothing.
func checkRequest(id string) string {
	const most = 128
	switch {
	case id == "":
		return "empty; allowed are 1 to 128 bytes"
	case len(id) > most:
		return fmt.Sprintf("%d bytes; allowed are 1 to %d", len(id), most)
	case !utf8.ValidString(id):
		return "not valid UTF-8; allowed is printable UTF-8"
	}
	for _, r := range id {
		if !unicode.IsPrint(r) {
			return fmt.Sprintf("it has %q; allowed is printable UTF-8", r)
		}
	}
	return ""
}

// printed is what the answer to a request holds besides its period and its sequence, so that the same text comes again,
// whatever the template is by then.
func (c *call) printed(p *period) string {
	return strconv.Quote(p.date) + " " + strconv.Quote(c.g.template)
}

// answered is the number that the request was answered with before.
func (c *call) answered(r reply) (*batch, error) {
	a, err := parseAnswer(r.detail)
	if err != nil {
		return nil, fmt.Errorf("serial: %s holds %q, which no request was answered: %w", c.once, r.detail, err)
	}
	p := a.period
	if a.format == nil { // 0.1.0 left the printing to whoever repeats the answer
		per := c.g.calendar.period
		if len(p.label) != kinds[per].digits {
			return nil, fmt.Errorf("%w: %s was answered with a number of %s, which is not %v: this generator cannot print it",
				ErrConflict, c.once, p.label, per)
		}
		if a.seq > c.g.limit {
			return nil, fmt.Errorf("%w: %s was answered with number %d of %s: this generator prints numbers up to %d",
				ErrConflict, c.once, a.seq, p.label, c.g.limit)
		}
		if err := c.g.format.checkYear(p.wall.Year()); err != nil {
			return nil, err
		}
		a.format, p.date = c.g.format, c.g.format.dateOf(p.wall)
	}
	if p.label == c.period.label && p.start == c.period.start && p.end == c.period.end {
		c.issued(a.seq) // the answer of before may have been lost, and with it what it would have been remembered by
	}
	return &batch{g: c.g, typ: c.typ, period: p, last: a.seq, printed: a.format, repeated: r.failure == nil}, nil
}

// An answer is what a request was answered; see lua/once.lua.
type answer struct {
	period *period
	seq    int64
	format *format // of the template at the time; nil if 0.1.0 answered
}

func parseAnswer(s string) (a answer, err error) {
	end := strings.LastIndexByte(s, ' ')
	p := &period{}
	if _, err = fmt.Sscanf(s[:max(end, 0)], "%s %d %d", &p.label, &p.start, &p.end); err != nil {
		return a, err
	}
	if a.seq, err = strconv.ParseInt(s[end+1:], 10, 64); err != nil {
		return a, err
	}
	per, err := periodOf(p.label)
	if err != nil {
		return a, err
	}
	if p.wall, err = time.Parse("20060102150405"[:len(p.label)], p.label); err != nil {
		return a, err
	}
	if quoted := strings.IndexByte(s, '"'); quoted >= 0 {
		var template string
		if _, err = fmt.Sscanf(s[quoted:end], "%q %q", &p.date, &template); err == nil {
			a.format, err = parseTemplate(template, per)
		}
	}
	a.period = p
	return a, err
}

// periodOf returns the Period whose labels look like this one.
func periodOf(label string) (Period, error) {
	for per := PerSecond; per.known(); per++ {
		if kinds[per].digits == len(label) {
			return per, nil
		}
	}
	return 0, fmt.Errorf("no period is called %q", label)
}
