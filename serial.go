package serial

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial/internal/budget"
)

// Next issues the next number of a type, such as "IS202110240001". See [Generator.NextNumber].
func (g *Generator) Next(ctx context.Context, typ string) (string, error) {
	n, err := g.NextNumber(ctx, typ)
	return n.String(), err
}

// sequence issues n numbers. It is the published sequence, each of its four ifs made safe.
func (c *call) sequence(ctx context.Context, n int) (b *batch, err error) {
	defer func() { c.endWork(err) }()
	for {
		// 1. The counter exists: increment and return. One script, one round trip.
		b, err = c.take(ctx, n)
		if b != nil || err != nil {
			return b, err
		}
		// 2. It is missing: one attempt at the redsync lock of this type and period.
		lock, err := c.tryLock(ctx)
		if err != nil {
			return nil, err
		}
		// 3. Got it: take again, and only if the counter is still missing ask the floor and open the period.
		if lock != nil {
			b, err = c.open(ctx, n, lock)
			if b != nil || err != nil {
				return b, err
			}
		}
		// 4. Did not get it: wait a little for whoever did, and take again.
		if err := c.wait(ctx); err != nil {
			return nil, err
		}
	}
}

// A Generator issues serial numbers; most callers want [Generator.Next]. It is safe for use by any number of goroutines,
// starts none that outlives its work, and has nothing to close: the Redis client stays the caller's. Make it once, with
// [New]. Any number of Generators, in any number of processes, may issue numbers of one type.
type Generator struct {
	config
	caller  *caller
	locks   locks
	memory  memory
	towers  *towers
	works   works
	current atomic.Pointer[period] // the one computed last

	alone, shared []any // what take is given besides, for one caller and for several
}

// New returns a Generator that keeps its counters in client, which may be a *redis.Client (of a single server or from
// redis.NewFailoverClient) or a *redis.ClusterClient. It sends nothing yet.
//
// It is an error if client is nil or a *redis.Ring, or if an option is invalid; the message of each says what is
// allowed.
func New(client redis.UniversalClient, opts ...Option) (*Generator, error) {
	c, err := newConfig(client, opts)
	if err != nil {
		return nil, err
	}
	caller := newCaller(client, c.confirm)
	g := &Generator{
		config: *c,
		caller: caller,
		locks:  newLocks(c.lockClients),
		memory: memory{series: map[string]*seen{}},
		towers: newTowers(caller),
		works:  works{underway: map[gate]*work{}},
		shared: []any{"1"},
	}
	if c.ledger != nil {
		g.alone, g.shared = []any{"", ""}, []any{"1", ""}
	}
	return g, nil
}

// NextNumber issues the next number of a type, of the period that it is by Redis's clock at the instant of issue.
//
// In a period that is open it costs one round trip. The first call of a period opens it under a lock. While another caller
// does that the call waits, as long as ctx lives, and 30 s if ctx has no deadline. If Redis or the lock servers do not
// answer, or answer slowly, the call fails within 10 s, which all its steps share.
//
// The call returns as soon as ctx ends, even if Redis hangs. Where the command was already sent the number may have been
// consumed: that leaves a gap, never a duplicate. The same is true of every other error that wraps a failure of Redis.
//
// Errors: [ErrInvalidType], [ErrExhausted], [ErrCounterLost], [ErrClockSkew], [ErrConflict], [ErrNotReplicated], the
// floor's or the ledger's own, ctx's, or a failure of Redis.
func (g *Generator) NextNumber(ctx context.Context, typ string) (Number, error) {
	var c call // stays on the stack, with the batch: a number costs one allocation, of its string
	b, err := g.issue(ctx, &c, typ, 1)
	if err != nil {
		return Number{}, err
	}
	return b.number(b.last), nil
}

// NextN issues n numbers of a type, 1 to 100,000, that follow each other without a gap, in one round trip: all of them
// or, with an error, none. Errors are those of [Generator.NextNumber], and one for any other n. After [ErrExhausted], also
// if n exceeds a whole period, nothing was consumed. A cancelled call may have consumed all n.
func (g *Generator) NextN(ctx context.Context, typ string, n int) ([]string, error) {
	var c call
	b, err := g.issue(ctx, &c, typ, n)
	if err != nil {
		return nil, err
	}
	numbers := make([]string, n)
	for i := range numbers {
		numbers[i] = b.number(b.last - int64(n-1-i)).String()
	}
	return numbers, nil
}

// issue makes the call c. The batch is a part of it.
func (g *Generator) issue(ctx context.Context, c *call, typ string, n int) (*batch, error) {
	if err := c.begin(ctx, g, typ); err != nil {
		return c.toldIssued(ctx, n, nil, err)
	}
	const most = 100_000
	if n < 1 || n > most {
		return c.toldIssued(ctx, n, nil, fmt.Errorf("serial: NextN of %d numbers: allowed are 1 to %d", n, most))
	}
	if all := g.limit; int64(n) > all { // a period that is open may have begun before WithStart
		return c.toldIssued(ctx, n, nil, fmt.Errorf("%w: %d of %s were asked for, and a period has %d", ErrExhausted, n, typ, all))
	}
	b, err := c.sequence(ctx, n)
	return c.toldIssued(ctx, n, b, err)
}

// Peek returns the last number issued in the current period, with Seq 0 if there was none. It writes nothing, opens
// nothing and asks no floor. By the time it returns the number may no longer be the last.
//
// Errors: [ErrInvalidType], [ErrCounterLost] (also with a floor or a ledger), [ErrClockSkew], [ErrConflict], ctx's, or a failure of
// Redis.
func (g *Generator) Peek(ctx context.Context, typ string) (Number, error) {
	var c call
	err := c.begin(ctx, g, typ)
	if err != nil {
		return Number{}, err
	}
	r, err := c.ask(ctx, peekScript, 0)
	if err == nil && r.status != statusIssued && r.status != statusMissing {
		err = c.refusal(r)
	}
	if err = c.told(ctx, err); err != nil {
		return Number{}, err
	}
	seq := c.unlessUnused(r.seq)
	return c.batch(seq).number(seq), nil
}

// Raise makes sure that the next number of the current period is at least seq+1, from 0 to the largest sequence. It
// never lowers a counter. It is how a series is continued from elsewhere, and the operator's word that ends
// [ErrCounterLost]: the last number used, or 0 if none was. Numbers that this Generator has issued itself stay used
// whatever seq says. A period that is not open yet is opened, above the floor if there is one. With a ledger, the next
// block is set aside above seq.
//
// With Redis's clock set back behind a period already entered, Next fails with [ErrClockSkew]; Raise then enters the
// period of Redis's clock again.
//
// Raise may be repeated; after an error it may have been carried out or not. Errors: [ErrInvalidType], [ErrClockSkew]
// (beyond [WithMaxSkew]), [ErrConflict], [ErrNotReplicated], the floor's or the ledger's own, ctx's, or a failure of Redis.
func (g *Generator) Raise(ctx context.Context, typ string, seq int64) error {
	var c call
	err := c.begin(ctx, g, typ)
	if err != nil {
		return err
	}
	if limit := g.limit; seq < 0 || seq > limit {
		return outcome(ctx, fmt.Errorf("serial: Raise of %s to %d: allowed are 0 to %d", typ, seq, limit))
	}
	return c.told(ctx, c.raise(ctx, seq))
}

// Parse takes apart a number that a Generator with the same template, period, day start and time zone has issued.
// Anything that cannot have been issued is an error: a date that the calendar or the zone does not have, sequence 0,
// padding that is missing or too long, text before or after. Redis is not asked.
func (g *Generator) Parse(s string) (Number, error) {
	return g.format.parse(s, g.calendar)
}

// A batch is a run of consecutive numbers that were issued together.
type batch struct {
	g      *Generator
	typ    string
	period *period
	last   int64

	printed  *format // how the same request was answered before; nil otherwise
	repeated bool    // so it was
}

func (b *batch) number(seq int64) Number {
	format := b.g.format
	if b.printed != nil {
		format = b.printed
	}
	date := b.period.date
	if date == "" { // a period that did not come from periodAt
		date = format.dateOf(b.period.wall)
	}
	return Number{
		Type:   b.typ,
		Start:  time.Unix(b.period.start, 0).In(b.g.calendar.location),
		Seq:    seq,
		date:   date,
		format: format,
	}
}

// take is the sequence's first step. It returns nil where the period has to be opened: its counter is missing, or lost
// while a floor can tell how far it had come.
func (c *call) take(ctx context.Context, n int) (*batch, error) {
	for {
		var r *reply
		if n == 1 {
			var b *batch
			var err error
			if b, r, err = c.board(ctx); b != nil || err != nil {
				return b, err
			}
		}
		if r == nil {
			asked, err := c.ask(ctx, takeScript, n)
			if err != nil {
				return nil, err
			}
			r = &asked
		}
		if r.status != statusCeiling {
			return c.taken(*r)
		}
		if b, err := c.refill(ctx, n); b != nil || err != nil {
			return b, err
		}
	}
}

func (c *call) taken(r reply) (*batch, error) {
	switch {
	case r.status == statusIssued:
		return c.batch(r.seq), nil
	case r.status == statusOnce:
		return c.answered(r)
	case r.status == statusMissing, r.status == statusLost && c.g.floor != nil:
		c.opens().found = r
		return nil, nil
	}
	return nil, c.refusal(r)
}

func (c *call) batch(last int64) *batch {
	c.made = batch{g: c.g, typ: c.typ, period: c.period, last: last}
	return &c.made
}

// tryLock is the sequence's second step. It returns nil where another holds the lock: another process, or a caller of this
// one, who was waited for then. Lock servers that fail may be well a moment later, and the counter may be there by then;
// so it returns nil for them too while there is time for another attempt.
//
// A second is too short for a lock. Open is safe without, and there is no floor to ask.
func (c *call) tryLock(ctx context.Context) (*lock, error) {
	if c.g.calendar.period == PerSecond {
		return &lock{}, nil
	}
	if others := c.beginWork(); others != nil {
		return nil, c.join(ctx, others)
	}
	start := time.Now()
	limit, _ := c.budget.Attempt()
	l, err := c.g.locks.try(ctx, c.lockKey(), limit)
	const attempt = 2 * lockPatience // to ask, and to give back what was granted
	c.budget.Spend(time.Since(start), attempt)
	c.opens().lockErr = err
	switch {
	case l != nil:
	case err == nil:
		c.sawOthers()
	case endOf(ctx) == nil && transient(err) && c.budget.Answer() >= attempt:
		err = nil
	}
	return l, err
}

// open is the sequence's third step. It returns nil where the period is to be looked at afresh: it ended meanwhile, or
// the lock expired. Once it is begun it goes on, so that a caller who leaves stops nobody; but a floor is not asked for it.
func (c *call) open(ctx context.Context, n int, lock *lock) (*batch, error) {
	if lock.mutex == nil {
		return c.openAlone(ctx, n)
	}
	return onward(ctx, c, func(c *call) (b *batch, err error) {
		steady := context.WithoutCancel(ctx)
		defer func() {
			c.giveBack(steady, lock)
			c.endWork(err)
		}()
		return c.openLocked(ctx, steady, n, lock)
	})
}

// openLocked is open by whoever has the lock. ctx is the caller's, and steady does not end.
func (c *call) openLocked(ctx, steady context.Context, n int, lock *lock) (b *batch, err error) {
	locked, want := c.period, wantOpen
	if c.g.floor != nil {
		want = wantFloor
	}
	r, claim, err := c.look(steady, n, want, lock)
	defer c.giveBack(steady, claim)
	if err != nil {
		return nil, err
	}
	switch r.status {
	case statusClaimed:
		c.sawOthers()
		return nil, nil
	case statusLate:
		return nil, nil
	case statusReserve:
	default:
		if b, err := c.taken(r); b != nil || err != nil {
			return b, err
		}
	}
	if c.period.start != locked.start || lock.left() <= floorMargin {
		return nil, nil // the lock is another period's, or it took too long to get here
	}
	left := lockExpiry - r.sent.Sub(lock.since) // when r was asked for, or later
	if err := c.checkSkew(r); err != nil {
		return nil, err
	}
	floor := ""
	if c.g.floor != nil {
		used, err := c.askFloor(ctx, lock.since.Add(lockExpiry-floorMargin))
		if err != nil {
			return nil, err
		}
		floor = strconv.FormatInt(used, 10)
		claim.above(used)
	}
	// Sent once: should the answer be lost, a second one would issue again. It is for the period of the check, and Redis
	// refuses it if it comes too late.
	r, err = c.install(steady, n, false, claim, floor, r.now.UnixMilli(), left.Milliseconds())
	if err != nil {
		return nil, err
	}
	return c.opened(r)
}

// openAlone is open without a lock, for the second in which it arrives.
func (c *call) openAlone(ctx context.Context, n int) (*batch, error) {
	found := c.opens().found
	if err := c.checkSkew(found); err != nil {
		return nil, err
	}
	p := c.g.periodAt(c.aim())
	r, err := c.run(ctx, openScript, false, p, n, c.g.base, "", found.now.UnixMilli(), lockExpiry.Milliseconds())
	if err != nil {
		return nil, err
	}
	return c.opened(r)
}

// opened is what open answered: nil if it came too late.
func (c *call) opened(r reply) (*batch, error) {
	switch r.status {
	case statusClock, statusLate:
		return nil, nil
	case statusIssued:
		c.sawOpened()
	}
	return c.taken(r)
}

// raise is what remains of Raise after its checks. Take with no numbers tells how the period stands.
func (c *call) raise(ctx context.Context, seq int64) error {
	for {
		done, err := onward(ctx, c, func(c *call) (bool, error) {
			return c.raiseOnce(ctx, context.WithoutCancel(ctx), seq)
		})
		if done || err != nil {
			return err
		}
		if err := c.wait(ctx); err != nil {
			return err
		}
	}
}

// raiseOnce makes one attempt. ctx is the caller's, and steady does not end.
func (c *call) raiseOnce(ctx, steady context.Context, seq int64) (done bool, err error) {
	r, err := c.ask(ctx, takeScript, 0)
	if err != nil && !(errors.Is(err, ErrNotReplicated) && r.seq < seq) { // nothing rests on that one
		return false, err
	}
	floor, missing := seq, false
	switch r.status {
	case statusIssued:
		if r.seq >= seq {
			return true, nil
		}
	case statusExhausted: // by a counter that stands higher than this template can print
		return true, nil
	case statusCeiling: // by a counter that is not as it was left
	case statusMissing, statusLost, statusFuture:
		missing = true
		if err := c.checkSkew(r); err != nil {
			return false, err
		}
		if c.g.floor != nil {
			used, err := c.askFloor(ctx, time.Now().Add(lockExpiry-floorMargin))
			if err != nil {
				return false, err
			}
			floor = max(seq, used)
		}
	default:
		return false, c.refusal(r)
	}
	var claim *claim
	if c.g.ledger != nil {
		looked := c.period
		r, claim, err = c.look(steady, 0, wantRaise, nil)
		defer c.giveBack(steady, claim)
		if err != nil {
			return false, err
		}
		if r.status == statusClaimed {
			c.sawOthers()
			return false, nil
		}
		if c.period.start != looked.start {
			return false, nil
		}
		if r.status != statusReserve {
			return false, c.refusal(r)
		}
		claim.above(floor)
	}
	// For the period that was looked at: if that is over by now, nothing is written.
	r, err = c.install(steady, 0, true, claim, floor, "", 0)
	switch {
	case errors.Is(err, ErrExhausted): // so was it without a ledger
		return true, nil
	case err != nil:
		return false, err
	case r.status == statusIssued:
		if missing {
			c.sawOpened()
		}
		return true, nil
	case r.status == statusClock || r.status == statusLate:
		return false, nil
	}
	return false, c.refusal(r)
}

// wait lets another process open the period, for a random time that grows to a tenth of a second.
func (c *call) wait(ctx context.Context) error {
	o := c.opens()
	pause := min(2*time.Millisecond<<o.waits, 100*time.Millisecond)
	pause = pause/2 + rand.N(pause)
	if pause > c.budget.Wait() {
		return c.waitedTooLong()
	}
	if o.waits < 10 {
		o.waits++
	}
	err := sleep(ctx, pause)
	c.budget.Spend(pause, pause)
	return err
}

// waitedTooLong is the error of a call that has waited for others as long as it may.
func (c *call) waitedTooLong() error {
	err := c.opens().lockErr
	if err == nil {
		err = errTaken
	}
	return fmt.Errorf("serial: %s %s was not opened within %v: %w", c.typ, c.period.label, budget.Others, err)
}
