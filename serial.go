package serial

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"
	"unicode"

	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial/internal/calendar"
	"github.com/dailyserial/serial/internal/series"
	"github.com/dailyserial/serial/internal/template"
)

// Next issues the next number of a type, such as "IS202110240001". See [Generator.NextNumber].
func (g *Generator) Next(ctx context.Context, typ string) (string, error) {
	n, err := g.issue(ctx, typ, "", 1, nil)
	return n.String(), err
}

// sequence issues the call's numbers. It is the published sequence, with each of its four ifs made safe.
func (g *Generator) sequence(ctx context.Context, c *series.Call) (numbers series.Numbers, err error) {
	defer c.End(&err)
	for {
		// 1. The counter exists: increment and return. One script, one round trip.
		out := c.Take(ctx)
		// 2. It is missing: one attempt at the redsync lock of this type and period.
		if out.Step == series.Missing {
			out = c.Lock(ctx, g.locks, out)
		}
		// 3. Got it: look again, and only if the counter is still missing query the floor and open the period.
		if out.Step == series.Locked {
			out = c.Open(ctx, out)
		}
		// 4. Did not get it: wait briefly for the caller that did, and take again.
		if out.Step == series.Wait {
			out = c.Wait(ctx)
		}
		if out.Step == series.Done {
			return out.Numbers, out.Err
		}
	}
}

// A Generator issues serial numbers; most callers want [Generator.Next]. It is safe for concurrent use. There is
// nothing to close: its goroutines end with their work, and the Redis client remains the caller's. Make it once, with
// [New]. Any number of Generators, in any number of processes, may issue numbers of the same type.
type Generator struct {
	config
	counters *series.Series
	locks    locks
	reporter *reporter // reports unused numbers; nil without an Unused hook
	warned   sync.Map  // series, whose hooks were warned of the last day
}

// New returns a Generator that keeps its counters in client, which may be a *redis.Client (of a single server or from
// redis.NewFailoverClient) or a *redis.ClusterClient. New sends nothing to Redis.
//
// It is an error if client is nil or a *redis.Ring, or if an option is invalid. The message says what is allowed.
func New(client redis.UniversalClient, opts ...Option) (*Generator, error) {
	c, err := newConfig(client, opts)
	if err != nil {
		return nil, err
	}
	return newGenerator(c), nil
}

func newGenerator(c *config) *Generator {
	g := &Generator{config: *c, reporter: newReporter(c)}
	if g.reporter != nil {
		c.issuing.Explain, c.issuing.Pending = g.reporter.report, g.reporter.addPending
	}
	g.counters = c.newSeries()
	g.locks = newLocks(g.counters.Wire(), c.lockClients)
	return g
}

// NextNumber issues the next number of a type, for the period that Redis's clock shows at the instant of issue.
//
// In an open period the call costs one round trip. The first call in a period opens it under a lock. While another
// caller does that, the call waits until ctx ends, or for 30 s if ctx has no deadline. If Redis or the lock servers are
// slow or silent, the call fails within 10 s, which all its steps share.
//
// The call returns as soon as ctx ends, even if Redis hangs. If the command was already sent, the number may have been
// consumed: a gap, never a duplicate. The same is true of every other error that wraps a failure of Redis.
//
// Errors: [ErrInvalidType], [ErrExhausted], [ErrCounterLost], [ErrClockSkew], [ErrConflict], [ErrNotReplicated], the
// floor's or the ledger's own, ctx's, or a failure of Redis.
func (g *Generator) NextNumber(ctx context.Context, typ string) (Number, error) {
	return g.issue(ctx, typ, "", 1, nil)
}

// NextN issues n consecutive numbers of a type, 1 to 100,000, in one round trip: all of them, in order, or, with an
// error, none. They all belong to one period.
//
// Errors: as for [Generator.NextNumber], and [ErrInvalidRequest] for an invalid n. [ErrExhausted], which is also
// returned if n exceeds a whole period, means that nothing was consumed. A cancelled call may have consumed all n.
func (g *Generator) NextN(ctx context.Context, typ string, n int) ([]Number, error) {
	const most = 100_000
	var refused error
	switch {
	case n < 1 || n > most:
		refused = fmt.Errorf("%w: %d numbers at once: want 1 to %d", ErrInvalidRequest, n, most)
	case int64(n) > g.limit: // a period opened before WithStart took effect may have more
		refused = fmt.Errorf("%w: %d of %s were asked for, and a period has %d", ErrExhausted, n, g.subject(typ), g.limit)
	}
	last, err := g.issue(ctx, typ, "", n, refused)
	if err != nil {
		return nil, err
	}
	numbers := make([]Number, n)
	for i := range numbers {
		numbers[i] = last
		numbers[i].Seq -= int64(n - 1 - i)
	}
	return numbers, nil
}

// issue issues n numbers of a type, for a request if there is one, and returns the last. An invalid type is reported
// before refused, the error in the call's other arguments.
func (g *Generator) issue(
	ctx context.Context, typ, request string, n int, refused error,
) (last Number, err error) {
	var began time.Time
	if len(g.hooks) > 0 {
		began = time.Now()
	}
	c, err := g.begin(ctx, typ, request, n, refused)
	var numbers series.Numbers
	if err == nil {
		numbers, err = g.sequence(ctx, c)
	}
	switch {
	case err != nil:
	case numbers.Answer != nil:
		last, err = g.repeated(typ, request, numbers.Answer)
	default:
		last = newNumber(g.template, numbers.Span.Span, typ, numbers.Last)
	}
	if err != nil {
		return last, g.failed(ctx, c, typ, n, began, err)
	}
	if len(g.hooks) > 0 {
		if numbers.Repeated {
			n = 0
		}
		g.issued(ctx, c, last, n, began)
	}
	c.Free()
	return last, nil
}

// begin begins a call for a type, unless refused, the error in the call's other arguments, is set.
func (g *Generator) begin(ctx context.Context, typ, request string, n int, refused error) (*series.Call, error) {
	if err := cmp.Or(g.template.CheckType(typ), refused); err != nil {
		return nil, err
	}
	return g.counters.NewCall(ctx, typ, request, n)
}

// Peek returns the last number issued in the current period, with Seq 0 if there was none. It writes nothing, opens
// nothing and does not ask the floor. By the time it returns, others may have issued more.
//
// Errors: [ErrInvalidType], [ErrCounterLost] (also with a floor or a ledger), [ErrExhausted] if somebody has set the
// counter above 10^15-1, [ErrClockSkew], [ErrConflict], ctx's, or a failure of Redis.
func (g *Generator) Peek(ctx context.Context, typ string) (n Number, err error) {
	c, err := g.begin(ctx, typ, "", 0, nil)
	if err != nil {
		return n, g.finish(ctx, c, typ, err)
	}
	counted, err := c.History(ctx)
	if err == nil {
		n = newNumber(g.template, g.template.Dates.SpanOf(&counted.Span.Period), typ, max(0, counted.Last[0]))
	}
	return n, g.finish(ctx, c, typ, err)
}

// Parse parses a number that was issued by a Generator with the same template, period, day start, year start and time
// zone. It refuses anything that cannot have been issued: a date that does not exist in the calendar or the zone,
// sequence 0, missing or excess padding, text before or after. It does not ask Redis. See [Scheme.Parse] for its
// errors.
func (g *Generator) Parse(s string) (Number, error) { return g.parse(s) }

// Scheme returns the Generator's Scheme: the part of it that needs no Redis.
func (g *Generator) Scheme() *Scheme { return &Scheme{g.scheme} }

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
