package serial

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/dailyserial/serial/internal/budget"
	"github.com/dailyserial/serial/internal/redisrun"
	"github.com/dailyserial/serial/internal/store"
	"github.com/dailyserial/serial/internal/template"
)

// A call is the state of one call of a public method. It stays on the stack of the caller's goroutine.
type call struct {
	g       *Generator
	typ     string
	node    *node  // that has the type's keys
	span    *span  // of the last script sent
	request string // ID of a request that may come again, "" for none
	budget  budget.Budget
	made    result
	slept   time.Duration // waiting for the server's clock to catch up
	silent  bool          // the server did not answer the last script
	trace   trace
	opening opening
	work    *work // that others of this process wait for, nil for none
}

// An opening is the state of a call whose period is not open, or that waits for others, else zero.
type opening struct {
	found   store.Reply // of the take that found the counter missing
	waits   int         // for others, up to 10
	lockErr error       // last failure of the lock servers
}

// A result is the numbers that a call issued.
type result struct {
	span     *span
	last     int64              // the last sequence
	template *template.Template // that prints them
	repeated bool               // the same request was answered before
}

// begin makes c a call of g for a type.
func (c *call) begin(ctx context.Context, g *Generator, typ string) error {
	c.g, c.typ = g, typ
	if g.hooks != nil {
		c.trace.began = time.Now()
	}
	if err := g.template.CheckType(typ); err != nil {
		return outcome(ctx, err)
	}
	if err := redisrun.EndOf(ctx); err != nil {
		return fmt.Errorf("serial: nothing was sent: %w", err)
	}
	_, limited := ctx.Deadline()
	c.budget = budget.New(limited)
	var single bool
	if c.node, single = g.nodes.Only(); !single {
		c.node = g.nodes.Of(ctx, g.store.RecordKey(typ))
	}
	return nil
}

// start is the first instant of the call's period.
func (c *call) start() time.Time { return time.Unix(c.span.Start, 0).In(c.g.calendar.Location) }

// series is the series of the call's type and span.
func (c *call) series() store.Series { return c.g.marks.series(c.typ, c.span) }

// issued makes numbers of the call's span up to last the call's result.
func (c *call) issued(last int64) step {
	c.made = result{span: c.span, last: last, template: c.g.template}
	return done
}

// number is one of the numbers issued.
func (c *call) number(seq int64) Number {
	return newNumber(c.made.template, &c.made.span.Span, c.typ, seq)
}

// heard is what follows every script that was sent for the call: it keeps what the reply tells.
func (c *call) heard(r *store.Reply, err error) error {
	if c.silent = err != nil; c.silent {
		return err
	}
	c.learn(r)
	return c.node.noted(c.typ, c.span, r)
}

// learn keeps what a reply tells of the clock and of a lost counter.
func (c *call) learn(r *store.Reply) {
	if c.trace.lost == nil && (r.Status == store.Lost || r.WasThere) {
		c.trace.lost = &LostInfo{c.typ, c.start(), r.Held}
	}
	offset, before := c.node.clock.learn(r)
	if r.Status == store.Clock && offset != before { // callers who shared a reply tell it once
		c.trace.clock = &ClockInfo{offset, before}
	}
}

// sawOthers notes that a server has answered, and that it is others who are waited for.
func (c *call) sawOthers() {
	c.budget.Renew()
	if c.work != nil {
		c.work.others.Add(1)
	}
}

// noted keeps what a reply tells of its time and of numbers. Numbers that are not confirmed are an error.
func (n *node) noted(typ string, s *span, r *store.Reply) error {
	n.clock.measure(r)
	if r.Unconfirmed != nil {
		return fmt.Errorf("%w: %w", ErrNotReplicated, r.Unconfirmed)
	}
	if r.Status == store.Issued && r.Count > 0 {
		n.g.marks.raise(typ, s, r.Last, &n.clock)
	}
	return nil
}

// taken says what follows from the outcome of a take or an open.
func (c *call) taken(r store.Reply, err error) (step, error) {
	switch {
	case err != nil:
		return failed, err
	case r.Status == store.Issued:
		return c.issued(r.Last), nil
	case r.Status == store.Repeated:
		return c.repeat(r)
	case r.Status == store.Missing, r.Status == store.Lost && c.g.floor != nil:
		c.opening.found = r
		return tryLock, nil
	case r.Status == store.Claimed:
		c.sawOthers()
		return wait, nil
	case r.Status == store.Late, r.Status == store.Clock:
		return wait, nil
	}
	return failed, c.refusal(r)
}

// wait lets others open the period, for a random time that grows to a tenth of a second.
func (c *call) wait(ctx context.Context) (step, error) {
	o := &c.opening
	pause := min(2*time.Millisecond<<o.waits, 100*time.Millisecond)
	pause = pause/2 + rand.N(pause)
	if pause > c.budget.Wait() {
		return failed, c.waitedTooLong()
	}
	o.waits = min(o.waits+1, 10)
	if err := redisrun.Sleep(ctx, pause); err != nil {
		return failed, err
	}
	c.budget.Spend(pause, pause)
	return again, nil
}

// waitedTooLong is the error of a call that has waited for others as long as it may.
func (c *call) waitedTooLong() error {
	err := cmp.Or(c.opening.lockErr, errTaken)
	return fmt.Errorf("serial: %s %s was not opened within %v: %w", c.typ, c.span.Label, budget.Others, err)
}

// gaveUp is the error of a call whose context ended while a period was opened or a block set aside.
func (c *call) gaveUp(end error) error {
	what := "its period to be opened"
	if c.g.ledger != nil {
		what += " and for its ledger, which may itself wait for a transaction that the caller holds"
	}
	return fmt.Errorf("serial: gave up waiting for %s, for %s: %w", c.typ, what, end)
}

// onward runs f to its end even if ctx ends before: the caller may leave, but not what it holds, a lock or a claim. f works
// on a copy of the call, so that the call itself can stay on its goroutine's stack.
func (c *call) onward(ctx context.Context, f func(c *call) (step, error)) (step, error) {
	own := *c
	c.work = nil // it is f's now
	own.typ = strings.Clone(c.typ)
	type end struct {
		next step
		of   *call
	}
	e, err := redisrun.Await(ctx, redisrun.NoLimit, func() (end, error) {
		next, err := f(&own)
		return end{next, &own}, err
	})
	if e.of == nil {
		return failed, c.gaveUp(err)
	}
	*c = *e.of
	return e.next, err
}

// release gives back what the call holds, and waits a little for that: not for a server that has failed already.
func (c *call) release(ctx context.Context, held interface {
	release(context.Context, time.Duration)
}) {
	patience, start := time.Duration(0), time.Now()
	if !c.silent {
		patience = max(0, min(lockPatience, c.budget.Answer()))
	}
	held.release(ctx, patience)
	c.budget.Spend(time.Since(start), patience)
}
