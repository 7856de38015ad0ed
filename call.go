package serial

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dailyserial/serial/internal/budget"
)

// A call is the state of one call of a public method.
type call struct {
	g      *Generator
	typ    string
	tower  *tower  // of the server that has its keys
	period *period // that the last script was sent for
	once   string  // key of a request that may come again, "" for none
	budget budget.Budget
	silent bool  // Redis did not answer the last script
	made   batch // what was issued

	trace   *trace                 // for hooks; nil if there are none
	failure *atomic.Pointer[error] // see flight.failure; nil for a call of its own
	slept   time.Duration          // waiting for Redis's clock to catch up
	opening *opening               // nil while there is nothing to open or to wait for
	work    *work                  // that others of this process wait for; nil if this call does none
}

// opening is the state of a call that its period is not open for, or that waits for others.
type opening struct {
	found   reply // of the take that found the counter missing
	waits   int   // for another opener, up to 10
	lockErr error // how the lock servers failed last
	checked bool  // by Prepare: the server's clock against this host's
}

const (
	catchUp    = 5 * time.Second // a clock set back by no more is waited for
	clockTries = 10              // a server's clock that is elsewhere so often in a row is not worth following
)

// begin makes c a call of g.
func (c *call) begin(ctx context.Context, g *Generator, typ string) error {
	c.g, c.typ, c.trace = g, typ, g.trace()
	if err := checkType(typ); err != nil {
		return outcome(ctx, err)
	}
	if err := endOf(ctx); err != nil {
		return fmt.Errorf("serial: nothing was sent: %w", err)
	}
	_, limited := ctx.Deadline()
	c.budget = budget.New(limited)
	c.tower = g.towers.only
	if c.tower == nil {
		c.tower = g.towers.of(ctx, c.recordKey())
	}
	return nil
}

// opens returns what the call knows of its opening.
func (c *call) opens() *opening {
	if c.opening == nil {
		c.opening = &opening{}
	}
	return c.opening
}

// issued remembers the last number that was issued in the call's period.
func (c *call) issued(seq int64) {
	if !c.g.memory.raise(c.typ, c.period, seq) {
		c.g.memory.add(c.typ, &seen{period: c.period, mark: seq, clock: &c.tower.clock, keys: c.keys(c.period)})
	}
}

// periodAt is the period of an instant by Redis's clock.
func (g *Generator) periodAt(t time.Time) *period {
	if p := g.current.Load(); p != nil && p.contains(t.Unix()) {
		return p
	}
	p := g.equip(g.calendar.at(t))
	if g.ledger != nil {
		p.args[0] = p.args[0].(string) + " ledger"
	}
	g.current.Store(p)
	return p
}

// equip adds what the options say to a period of the calendar.
func (g *Generator) equip(p *period) *period {
	p.date = g.format.dateOf(p.wall)
	p.expires = p.args[2]
	if g.retention > 0 {
		p.expires = g.calendar.later(p, g.retention).end
	}
	return p
}

// The keys of a type share its hash tag, and with it one Cluster slot.

func (c *call) recordKey() string  { return c.g.prefix + ":{" + c.typ + "}" }
func (c *call) counterKey() string { return c.keyOf(c.period) }
func (c *call) lockKey() string    { return c.counterKey() + ":lock" }

// start is the first instant of the call's period.
func (c *call) start() time.Time { return time.Unix(c.period.start, 0).In(c.g.calendar.location) }

// keyOf is the counter of a period.
func (c *call) keyOf(p *period) string { return c.recordKey() + ":" + p.label }

// ask runs take or peek for the period that it is now by Redis's clock. claim is what take is given besides n, see
// lua/take.lua.
func (c *call) ask(ctx context.Context, s *script, n int, claim ...any) (reply, error) {
	if s == takeScript && claim == nil {
		claim = c.g.alone
	}
	return c.follow(ctx, c.aim(), func(p *period) (reply, error) { return c.run(ctx, s, true, p, n, claim...) })
}

// board is ask for one number, without a look at the clock, where a flight waits that can be shared. It returns nothing if
// none does, and where Redis's clock has left the flight's period.
func (c *call) board(ctx context.Context) (*batch, *reply, error) {
	if !c.tower.shares || c.once != "" {
		return nil, nil, nil
	}
	f, seat := c.tower.board(c)
	if f == nil {
		return nil, nil, nil
	}
	seq, r, err := f.ride(ctx, seat, &c.budget)
	if err != nil {
		return nil, nil, err
	}
	if r == nil {
		return c.batch(seq), nil, nil
	}
	c.learn(*r, nil)
	if r.status == statusClock || r.status == statusFuture {
		r = nil
	}
	return nil, r, nil
}

// follow has a script sent for the period that it is by Redis's clock, which seems to be now: it follows that clock where
// it is elsewhere, and waits a little where it went back.
func (c *call) follow(ctx context.Context, now time.Time, send func(*period) (reply, error)) (reply, error) {
	told := false  // by Redis what time it is
	elsewhere := 0 // answers in a row that its clock is in another period
	for {
		p := c.g.periodAt(now)
		if err := c.g.format.checkYear(p.wall.Year()); err != nil {
			if told {
				return reply{}, err
			}
			p = nowhere // this host's clock is wrong, or else Redis's will say the same
		}
		r, err := send(p)
		if err != nil {
			return r, err
		}
		told = true
		switch r.status {
		case statusClock:
			if elsewhere++; elsewhere > clockTries {
				return r, c.refusal(r)
			}
			now = r.now
			if c.g.calendar.period == PerSecond {
				now = now.Add(r.received.Sub(r.sent)) // until the next one arrives
			}
		case statusFuture:
			pause := c.begins(r).Sub(r.now)
			deadline, ok := ctx.Deadline()
			if c.slept+pause > catchUp || ok && time.Until(deadline) < pause {
				return r, nil
			}
			if err := sleep(ctx, pause); err != nil {
				return r, err
			}
			c.slept += pause
			now, elsewhere = c.aim(), 0
		default:
			return r, nil
		}
	}
}

// aim is the time by Redis's clock that a script is to be sent for: now, but where a period is over in a second it is
// when the script gets there.
func (c *call) aim() time.Time {
	if c.g.calendar.period == PerSecond {
		return c.tower.clock.arrival()
	}
	return c.tower.clock.now()
}

// nowhere is a period that no clock is in.
var nowhere = &period{label: "0", args: [3]any{"0 0 0", 0, 0}, expires: 0}

// run sends a script for p, and learns from what the answer says of the time.
func (c *call) run(ctx context.Context, s *script, repeat bool, p *period, n int, more ...any) (r reply, err error) {
	c.period = p
	if s == takeScript && n == 1 && c.once == "" && len(more) == len(c.g.alone) && c.tower.shares {
		r, err = c.tower.take(ctx, c, p)
	} else {
		r, err = c.send(ctx, s, repeat, p, n, nil, more...)
		if err == nil && r.status == statusIssued && n > 0 {
			c.issued(r.seq)
		}
	}
	c.learn(r, err)
	return r, err
}

// runKeys sends a script that issues nothing, and has keys besides counter and record.
func (c *call) runKeys(ctx context.Context, s *script, p *period, keys []any, more ...any) (reply, error) {
	r, err := c.send(ctx, s, true, p, 0, keys, more...)
	c.learn(r, err)
	return r, err
}

// learn notes how far the server's clock is ahead, if r says, and that a counter was lost.
func (c *call) learn(r reply, err error) {
	if err != nil || r.now.IsZero() {
		return
	}
	if r.status == statusLost || r.detail == lostDetail {
		c.sawLost(r)
	}
	offset := r.offset()
	before := time.Duration(c.tower.clock.offset.Swap(int64(offset)))
	if r.status == statusClock && offset != before && c.trace != nil { // callers who shared r tell it once
		c.trace.clock = &ClockInfo{offset, before}
	}
}

// send sends a script for p by itself. keys are those that it has besides counter and record.
func (c *call) send(ctx context.Context, s *script, repeat bool, p *period, n int, keys []any, more ...any) (reply, error) {
	c.period = p
	args := c.arguments(p, n)
	if s == takeScript && c.wary() {
		args[11] = 0
	}
	args = append(args, more...)
	switch {
	case c.once == "":
	case s == takeScript:
		s, keys, args = takeOnceScript, []any{c.once}, append(args, c.printed(p))
	case s == openScript:
		s, keys, args = openOnceScript, []any{c.once}, append(args, c.printed(p))
	}
	if len(keys) > 0 {
		args[2] = 2 + len(keys)
		args = slices.Insert(args, 5, keys...)
	}
	r, err := c.g.caller.run(ctx, &c.budget, c.tower.server, s, repeat, args, c.failure)
	c.silent = err != nil
	if err == nil && !r.received.IsZero() {
		if !c.g.towers.warm.Load() {
			c.g.towers.warm.Store(true)
		}
		c.tower.clock.took(r.received.Sub(r.sent))
	}
	return r, err
}

// wary reports whether the server's clock is so far from this host's that a take may not enter what was prepared: the
// sequence then checks it, as it does before it opens a period.
func (c *call) wary() bool {
	offset := c.tower.clock.offset.Load()
	return c.g.maxSkew >= 0 && max(offset, -offset) > int64(c.g.maxSkew)
}

// arguments are what the scripts are given for p, as the arguments of EVALSHA; its first two are left out.
func (c *call) arguments(p *period, n int) []any {
	keys, own := c.given(p, n)
	args := make([]any, 12, 14) // as many as the usual take has
	args[2], args[3], args[4] = 2, keys[0], keys[1]
	copy(args[5:], own[:])
	args[11] = p.expires
	return args
}

// given is what scripts are given for each type.
func (c *call) given(p *period, n int) (keys [2]any, args [6]any) {
	mark, keys := c.g.memory.mark(c.typ, p)
	if keys[0] == nil {
		keys = c.keys(p)
	}
	return keys, [6]any{n, p.args[0], p.args[1], p.args[2], c.g.limitArg, mark}
}

// keys are the counter and the record, made once for as long as the type is remembered.
func (c *call) keys(p *period) [2]any {
	return [2]any{c.keyOf(p), c.recordKey()}
}

// onward runs f to its end even if ctx ends before: the caller may leave, but not what it holds, a lock or a claim. f works
// on a copy of the call, so that the call itself can stay on its goroutine's stack.
func onward[T any](ctx context.Context, c *call, f func(c *call) (T, error)) (T, error) {
	if ctx.Done() == nil {
		own := *c
		defer func() { *c = own }()
		return f(&own)
	}
	own := *c
	c.work = nil // it is f's now
	own.typ = strings.Clone(c.typ)
	own.opening = new(opening)
	*own.opening = *c.opens()
	if c.trace != nil {
		own.trace = new(trace)
		*own.trace = *c.trace
	}
	type result struct {
		v  T
		of *call
	}
	r, err := await(ctx, noLimit, func() (result, error) {
		v, err := f(&own)
		return result{v, &own}, err
	})
	if r.of == nil && err != nil {
		return r.v, fmt.Errorf("serial: gave up waiting: %w", err)
	}
	*c = *r.of
	return r.v, err
}

// askFloor asks the floor, which has until then, and the caller's context, to answer.
func (c *call) askFloor(ctx context.Context, until time.Time) (int64, error) {
	ask, typ, start := c.g.floor, c.typ, c.start()
	used, err := c.askOutside(ctx, until, func(ctx context.Context) (int64, error) { return ask(ctx, typ, start) })
	if err != nil {
		return 0, fmt.Errorf("serial: the floor of %s %s: %w", c.typ, c.period.label, err)
	}
	if limit := c.g.limit; used < 0 || used > limit {
		return 0, fmt.Errorf("serial: the floor of %s %s answered %d: allowed are 0 to %d", c.typ, c.period.label, used, limit)
	}
	return used, nil
}

// askOutside asks a floor or a ledger, which has until then to answer, and as long as the call has time for it. One that
// heeds its context answers in time with an error of its own; one that doesn't is not waited for.
func (c *call) askOutside(ctx context.Context, until time.Time, ask func(context.Context) (int64, error)) (int64, error) {
	start := time.Now()
	rest := min(floorMargin/2, c.budget.Answer())
	limit := max(0, min(until.Sub(start), c.budget.Answer()-rest))
	if k := c.work; k != nil {
		k.asking.Store(start.UnixNano())
		defer func() {
			k.asked.Add(int64(time.Since(start)))
			k.asking.Store(0)
		}()
	}
	within, cancel := context.WithTimeout(ctx, limit)
	v, err := await(ctx, limit+rest, func() (int64, error) {
		defer cancel()
		return ask(within)
	})
	c.budget.Spend(time.Since(start), limit+rest)
	return v, err
}

// giveBack gives back what the call holds, and waits a little for that: not for a server that has failed already.
func (c *call) giveBack(ctx context.Context, held interface {
	release(ctx context.Context, patience time.Duration)
}) {
	patience := min(lockPatience, c.budget.Answer())
	if c.silent {
		patience = 0
	}
	start := time.Now()
	held.release(ctx, patience)
	c.budget.Spend(time.Since(start), max(patience, 0))
}

// checkSkew refuses to open a period by a clock that is too far from this host's. r is the answer that told Redis's
// time; it arose at some moment between being asked for and received.
func (c *call) checkSkew(r reply) error {
	skew := c.g.maxSkew
	if skew < 0 || !r.now.Before(r.sent.Add(-skew)) && !r.now.After(r.received.Add(skew)) {
		return nil
	}
	return fmt.Errorf("%w: %s %s would be opened at %s by Redis's clock, and it is %s by this host's: allowed are %v",
		ErrClockSkew, c.typ, c.period.label, r.now.UTC().Format(time.RFC3339), r.received.UTC().Format(time.RFC3339), skew)
}

// begins returns the start of the period entered that a reply of statusFuture tells of.
func (c *call) begins(r reply) time.Time {
	var label string
	var start int64
	_, _ = fmt.Sscanf(r.detail, "%s %d", &label, &start)
	return time.Unix(start, 0)
}

// refusal turns a status that ends a call into its error.
func (c *call) refusal(r reply) error {
	switch r.status {
	case statusExhausted:
		return fmt.Errorf("%w: %s %s is at %s of %d", ErrExhausted, c.typ, c.period.label, r.detail, c.g.limit)
	case statusLost:
		mark, _ := c.g.memory.mark(c.typ, c.period)
		return fmt.Errorf("%w: %s was open, and its counter holds %q; %d is the last number seen here",
			ErrCounterLost, c.counterKey(), r.detail, mark)
	case statusFuture:
		return fmt.Errorf("%w: Redis's clock says %s, and %s has already entered %s",
			ErrClockSkew, r.now.UTC().Format(time.RFC3339), c.typ, r.detail)
	case statusUnknown:
		if strings.HasPrefix(r.detail, "role:") {
			return fmt.Errorf("serial: WithLedger needs a master, and Redis says %q: a replica that takes writes shares its master's "+
				"identity, so that the same numbers would be issued on both; set replica-read-only yes", r.detail)
		}
		return fmt.Errorf("serial: WithLedger needs INFO replication in scripts, to tell one reign of a master from the next; Redis says %q",
			r.detail)
	case statusClock:
		return fmt.Errorf("%w: Redis's clock says %s, and does not stay in one period", ErrClockSkew, r.now.UTC().Format(time.RFC3339))
	case statusConflict:
		return fmt.Errorf("%w: %s is in %q, and this generator's would be %s; do all use the same time zone, period, day start and ledger?",
			ErrConflict, c.typ, r.detail, c.period)
	}
	return fmt.Errorf("serial: a script answered %q, which it cannot", r.status)
}
