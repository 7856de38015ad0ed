package series

import (
	"context"
	"strconv"
	"time"

	"github.com/dailyserial/serial/internal/wire"
)

// Take is the first step of the sequence. It takes numbers from a counter that exists. For a call for 0 numbers, Take
// only checks whether the period is open.
func (c *Call) Take(ctx context.Context) Outcome {
	if span := c.series.spans.latest.Load(); c.n == 1 && c.requestID == "" && span != nil && c.node.Waiting.Load() > 0 {
		// The latest span is good enough: if a request for it is waiting, the caller of that request has just read the clock.
		merge := wire.Merge{Name: c.counts, At: span.From}
		item, position, err := c.series.wire.Join(ctx, c.node, merge, c.deadline)
		if err != nil {
			return Outcome{Err: c.after(err)}
		}
		if item != nil {
			if r := item.Command.(*request); r.reply.Status != clocked && r.reply.Status != Future {
				c.observe(r, position)
				return c.outcome(r, position, r.err)
			}
		}
	}
	r, position, err := c.ask(ctx, &request{n: c.n})
	return c.outcome(r, position, err)
}

// ask sends a request for the span that the server's clock is in. If the reply shows that the clock is in another span,
// ask tries again with that span, up to clockTries times in a row. If the server's clock was set back to before the
// period entered, ask waits until that period begins by the clock, for up to catchUp in all. It returns the request
// that got the reply, and the caller's position in this request. The request may be that of another caller.
func (c *asker) ask(ctx context.Context, r *request) (*request, int, error) {
	span := c.Current()
	for tries := 0; ; r = r.again() {
		got, position, err := c.send(ctx, r, span)
		if err != nil {
			return got, position, err
		}
		switch got.reply.Status {
		case clocked:
			if tries++; tries > clockTries {
				return got, position, &Refusal{Reply: Reply{Status: Unsteady, Now: got.reply.Now}, Type: c.typ, Span: span}
			}
			if span, err = c.spanAfter(&got.reply); err != nil {
				return got, position, err
			}
		case Future:
			if again, err := c.awaitClock(ctx, got); !again {
				return got, position, err
			}
			span, tries = c.Current(), 0
		default:
			return got, position, nil
		}
	}
}

// spanAfter returns the span for the next request, after a reply has shown that the server's clock is not in the span
// of the previous request.
func (c *asker) spanAfter(r *Reply) (*Target, error) {
	at := r.Now
	if c.series.Seconds {
		at = at.Add(r.Received.Sub(r.Sent)) // about the time at which the next request arrives
	}
	span := c.series.spans.at(at)
	if span.Over && !c.reads {
		span = c.series.spans.at(r.Now) // the next request may still arrive before the last day ends
	}
	if span.Unprintable != nil {
		return nil, span.Unprintable
	}
	if span.Over && !c.reads {
		return nil, &Refusal{Reply: Reply{Status: Over, Now: r.Now, Earlier: r.Earlier}, Type: c.typ, Span: span}
	}
	return span, nil
}

// send sends a request for a span, or makes the caller join a waiting request for the span. It returns the request that
// has the reply, and the caller's position in it.
func (c *asker) send(ctx context.Context, r *request, span *Target) (*request, int, error) {
	c.aim(r, span)
	item, position, err := c.series.wire.Do(ctx, c.node, &r.Item)
	if err != nil {
		return r, 0, c.after(err)
	}
	got := item.Command.(*request)
	c.observe(got, position)
	return got, position, got.err
}

// aim prepares a request for a span.
func (c *asker) aim(r *request, span *Target) {
	r.server, r.typ, r.counts, r.requestID, r.span = c.server, c.typ, c.counts, c.requestID, span
	r.Command, r.Deadline, r.Confirm, r.Script, r.Note = r, c.deadline, !r.reads, SerialScript, c.note
	switch {
	case r.reads:
		r.Script = readScript
	case c.requestID != "" && r.n > 0:
		r.stored = c.stored(span)
	case r.n == 1 && r.options == nil:
		if c.series.Shared {
			r.typ = ""
		}
		r.Merge = wire.Merge{Name: c.counts, At: span.From}
	}
}

// stored returns the key and the contents of the answer to a repeatable request.
func (c *asker) stored(span *Target) *storedAnswer {
	s, printed := c.series, span.printed
	if c.counts != c.typ {
		printed += " " + strconv.Quote(c.typ)
	}
	return &storedAnswer{s.RequestKey(c.typ, c.requestID), printed, s.Fingerprint, s.OnceFor.Milliseconds()}
}

// again returns a copy of r that can be sent.
func (r *request) again() *request {
	a := &request{n: r.n, reads: r.reads, options: r.options, keys: r.keys}
	if r.Merge != (wire.Merge{}) {
		a.n = 1 // only one of the callers that shared r sends the copy
	}
	return a
}

// observe stores the events in a reply that hooks report. Of all callers that share a reply, only the first one stores
// a new offset of the clock.
func (c *asker) observe(r *request, position int) {
	p, e := &r.reply, &c.Events
	if p.Status == clocked && position == 0 && p.offset != p.before {
		e.Offset, e.Before = p.offset, p.before
	}
	lost := p.Status == Lost || p.Lost || p.Opened && p.From < 0
	if lost && e.Lost == nil {
		e.Lost, e.Content = r.span, p.Detail
	}
}

// awaitClock waits until the period entered begins by a server's clock that was set back. If that would take too long,
// it returns false without waiting.
func (c *asker) awaitClock(ctx context.Context, r *request) (again bool, _ error) {
	begins := time.Unix(parseAnswer(r.reply.Detail).Period.Start, 0)
	pause := max(begins.Sub(r.reply.Now), c.slept/8) // grows, to limit the number of attempts if the clock is stopped
	deadline, ok := ctx.Deadline()
	if c.slept+pause > catchUp || time.Until(c.deadline) < pause || ok && time.Until(deadline) < pause {
		return false, nil
	}
	c.slept += pause
	return true, wire.Sleep(ctx, pause)
}

// refuse returns a Refusal with the reply to a request.
func (c *asker) refuse(r *request) error {
	return &Refusal{Reply: r.reply, Type: c.typ, Span: r.span, HighWater: r.highWater}
}

// outcome returns the outcome of a request for the caller at the given position. err is the error of the request.
func (c *asker) outcome(r *request, position int, err error) Outcome {
	if err != nil {
		return Outcome{Err: err}
	}
	switch p := &r.reply; {
	case p.Status == Issued:
		if _, last, ok := r.share(position); ok || r.n == 0 {
			if r.n == 0 {
				last = p.Last
			}
			return Outcome{Numbers: Numbers{Span: r.span, Last: last}}
		}
		return Outcome{Step: Again} // other callers got the last numbers of the period or of the block
	case p.Status == Repeated:
		a := parseAnswer(p.Detail)
		if stored := a.Period; stored.Label == r.span.Label && stored.Start == r.span.Start && stored.End == r.span.End {
			c.series.memory.remember(c.counts, r.span, a.Seq, &c.server.clock) // the reply to the first attempt may be lost
		}
		return Outcome{Numbers: Numbers{r.span, a.Seq, a, p.Earlier == nil}}
	case p.Status == missing, p.Status == Lost && c.series.Floor != nil:
		return Outcome{Step: Missing, found: r}
	case p.Status == stale, p.Status == clocked:
		return Outcome{Step: Wait}
	}
	return Outcome{Err: c.refuse(r)}
}

// checkSkew returns an error if the server's clock differs from this host's by more than MaxSkew. In that case, no period
// may be opened. The reply to r must contain the server's time.
func (c *asker) checkSkew(r *request) error {
	skew, p := c.series.MaxSkew, &r.reply
	if skew < 0 || !p.Now.Before(p.Sent.Add(-skew)) && !p.Now.After(p.Received.Add(skew)) {
		return nil
	}
	refused := *p
	refused.Status = Skewed
	return &Refusal{Reply: refused, Type: c.typ, Span: r.span}
}
