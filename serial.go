package serial

import (
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

// sequence issues the numbers of a call, in the four steps that the README draws. Each step is safe even if another
// process acts between two steps.
func (g *Generator) sequence(ctx context.Context, c *series.Call) (numbers series.Numbers, err error) {
	defer c.End(&err)
	for {
		// 1. If the counter exists, increment it and return, in one round trip.
		out := c.Take(ctx)
		// 2. If the counter is missing, try to get the redsync lock of this type and period.
		if out.Step == series.Missing {
			out = c.Lock(ctx, g.locks, out)
		}
		// 3. Under the lock, check again. If the counter is still missing, query the floor and open the period.
		if out.Step == series.Locked {
			out = c.Open(ctx, out)
		}
		// 4. Without the lock, wait briefly for the caller that has it, and begin again.
		if out.Step == series.Wait {
			out = c.Wait(ctx)
		}
		if out.Step == series.Done {
			return out.Numbers, out.Err
		}
	}
}

// A Generator issues serial numbers. Most callers only need [Generator.Next]. Create one Generator per process with
// [New]. It is safe for concurrent use, and any number of Generators, in any number of processes, may issue numbers of
// the same type. A Generator does not have to be closed, because its goroutines end when they have finished their work.
// It does not close the Redis client.
type Generator struct {
	config
	counters *series.Series
	locks    locks
	reporter *reporter // reports unused numbers; nil without an Unused hook
	warned   sync.Map  // series for which the hooks have been told that the last day is near
}

// New returns a Generator that keeps its counters in client. The client may be a *redis.Client (for a single server, or
// from redis.NewFailoverClient) or a *redis.ClusterClient. New sends nothing to Redis.
//
// New returns an error if client is nil or a *redis.Ring, or if an option is invalid. The message lists the valid
// values.
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

// NextNumber issues the next number of a type, for the current period by Redis's clock.
//
// In an open period, the call takes one round trip. The first call in a period opens the period under a lock. While
// another caller opens it, the call waits until the period is open or ctx ends. If ctx has no deadline, it waits for at
// most 30 s. If Redis or the lock servers are slow or do not reply, the call fails within 10 s.
//
// The call returns as soon as ctx ends, even if Redis hangs. If the command had already been sent, the number may have
// been issued, which leaves a gap. The same is true if the call fails with an error that wraps a failure of Redis.
//
// The error matches [ErrInvalidType], [ErrExhausted], [ErrCounterLost], [ErrClockSkew], [ErrConflict] or
// [ErrNotReplicated], or it wraps the error of the floor, of the ledger, of ctx or of Redis.
func (g *Generator) NextNumber(ctx context.Context, typ string) (Number, error) {
	return g.issue(ctx, typ, "", 1, nil)
}

// NextN issues n consecutive numbers of a type in one round trip, and returns them in order. n must be 1 to 100,000.
// All numbers belong to the same period. If there is an error, NextN returns no numbers.
//
// The errors are those of [Generator.NextNumber], and [ErrInvalidRequest] if n is invalid. NextN fails with
// [ErrExhausted] if fewer than n numbers are left, or if a period has fewer than n numbers in all. No number is issued
// in these cases. If the call is canceled, all n numbers may have been issued, which leaves a gap.
func (g *Generator) NextN(ctx context.Context, typ string, n int) ([]Number, error) {
	const maxCount = 100_000
	var refused error
	switch {
	case n < 1 || n > maxCount:
		refused = fmt.Errorf("%w: %d numbers at once: want 1 to %d", ErrInvalidRequest, n, maxCount)
	case int64(n) > g.limit: // not g.limit-g.base, because the period may have been opened with a lower start
		refused = fmt.Errorf("%w: %d numbers of %s requested, but a period has %d", ErrExhausted, n, g.subject(typ), g.limit)
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

// issue issues n numbers of a type, and returns the last of them. The parameter request is the ID of a request for
// [Generator.NextOnce], or "". The parameter refused is the error in the caller's other arguments, or nil if they are
// valid. An error in the type takes precedence over it.
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

// begin begins a call for a type. The parameter refused is the error in the caller's other arguments, or nil if they
// are valid.
func (g *Generator) begin(ctx context.Context, typ, request string, n int, refused error) (*series.Call, error) {
	if err := g.template.CheckType(typ); err != nil { // with cmp.Or, a call that shares a request would take 1 % longer
		return nil, err
	}
	if refused != nil {
		return nil, refused
	}
	return g.counters.NewCall(ctx, typ, request, n)
}

// Peek returns the last number issued in the current period. If no number was issued, the Seq of the result is 0. Peek
// writes nothing, does not open the period and does not query the floor. Other callers may issue more numbers before
// Peek returns.
//
// The error matches [ErrInvalidType], [ErrClockSkew] or [ErrConflict], or it wraps the error of ctx or of Redis. It
// matches [ErrCounterLost] if the counter is lost, even if a floor or a ledger will repair it. It matches
// [ErrExhausted] if the counter was set above 10^15-1 by hand.
func (g *Generator) Peek(ctx context.Context, typ string) (n Number, err error) {
	c, err := g.begin(ctx, typ, "", 0, nil)
	if err != nil {
		return n, g.finish(ctx, c, typ, err)
	}
	counters, err := c.History(ctx)
	if err == nil {
		n = newNumber(g.template, g.template.Dates.SpanOf(&counters.Span.Period), typ, max(0, counters.Last[0]))
	}
	return n, g.finish(ctx, c, typ, err)
}

// Parse parses a number that was issued by a Generator with the same template, period, day start, year start and time
// zone. It does not use Redis. [Scheme.Parse] describes the strings that it refuses, and the errors.
func (g *Generator) Parse(s string) (Number, error) { return g.parse(s) }

// Scheme returns a Scheme with the settings of the Generator.
func (g *Generator) Scheme() *Scheme { return &Scheme{g.scheme} }

// NextOnce issues a number for a request that may be repeated. For 48 hours, or for the duration of [WithOnceFor], a
// repeated request of the same type gets the same number, even after midnight and from another process. Use NextOnce if
// a queue may deliver a message more than once, or if an HTTP client may repeat a request. You can also repeat a call
// whose reply was lost, without leaving a gap.
//
// requestID identifies the request among all requests of the type. The ID of a message is an example. requestID must be
// 1 to 128 bytes of printable UTF-8. The value of an Idempotency-Key header is not unique enough, because two users may
// send the same one. Combine it with the ID of the user, as in docs/business-numbers.md.
//
// Redis stores the number of a request in about 250 bytes. If Redis loses it, a repeated request gets another number. A
// repeated request gets its stored number even if the period is exhausted or the counter is lost by then. Nothing is
// stored for a request that is refused, for example with [ErrExhausted].
//
// The number is repeated as it was printed, even by a Generator with another template or [Period]. A hidden number can
// be repeated only by a Generator that has its key; see [WithHiddenSequence].
//
// The number of a request never changes. If a document with this number exists already, for example because the floor
// returned a sequence that was too low, repeating the request does not help; call [Generator.Next] instead.
//
// In an open period, the call takes one round trip. The errors are those of [Generator.NextNumber], and
// [ErrInvalidRequest] if requestID is invalid, in which case nothing was sent. [ErrConflict] can also mean that the
// stored number is hidden with a key that this Generator does not have or, with [WithSharedCounter], that it was issued
// for another type. After any other error, and after a canceled call, repeat the request with the same requestID.
func (g *Generator) NextOnce(ctx context.Context, typ, requestID string) (Number, error) {
	var refused error
	if wrong := checkText(requestID, 1, 128, unicode.IsPrint); wrong != "" {
		refused = fmt.Errorf("%w: request %.160q: %s", ErrInvalidRequest, requestID, wrong)
	}
	return g.issue(ctx, typ, requestID, 1, refused)
}

// plain is stored instead of the fingerprint of the key if the sequence is not hidden.
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
		return Number{}, fmt.Errorf("serial: %s contains %q, which is not a stored answer: %w", key, a.Text, err)
	}
	if g.shared && answered != typ {
		return Number{}, fmt.Errorf("%w: %s was answered with the type %q, not %q", ErrConflict, key, answered, typ)
	}
	return newNumber(t, span, typ, a.Seq), nil
}

// readAnswer returns the span and the template of the number in a stored answer and, if all types share a counter, the
// type of the number. The template may differ from that of g.
func (g *Generator) readAnswer(a *series.Answer) (s calendar.Span, t *template.Template, typ string, err error) {
	unit, start, ok := calendar.ParseName(a.Period.Calendar)
	if !ok {
		return s, nil, "", fmt.Errorf("got calendar %q; want a period, a date, a template, the type if all types share a "+
			"counter, a sequence and a key", a.Period.Calendar)
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
	if first, err := t.Dates.Find(s.Date); err == nil && t.Dates.Vary && s.Start <= first.From && first.From < s.End {
		s.From = first.From
	}
	return s, t, typ, nil
}
