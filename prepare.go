package serial

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dailyserial/serial/internal/budget"
	"github.com/dailyserial/serial/internal/calendar"
	"github.com/dailyserial/serial/internal/store"
)

// Prepare opens the current period and those that follow it, 1 to 100 in all. The first caller in a prepared period then
// only has to enter it, without a lock and without asking the floor of [WithFloor]. Prepare is for the evening before a
// busy day, or for a job that runs every day. It may run any number of times, and in any number of processes at once.
//
// A prepared period belongs to the same time zone and day start: with others, calls fail with [ErrConflict] until the last
// prepared period has ended. A prepared counter that is gone when its period begins is lost, see [ErrCounterLost]. Prepare returns
// the same for a later period that a fast clock had used, if its counter is gone: with a ledger the first call of that period
// repairs it, otherwise [Generator.Raise] does once the period has begun.
// With a ledger, the first call of a period still has a block set aside.
//
// Prepare costs a round trip for each period, and one more to compare the clocks if any is to be opened. With a floor, each
// period that is to be opened also costs the lock and a call of the floor. After an error, or if ctx ends, some of the
// periods may be open; Prepare may be repeated. Errors: [ErrInvalidType], [ErrCounterLost], [ErrClockSkew], [ErrConflict],
// [ErrNotReplicated], one for any other periods, the floor's or the ledger's own, ctx's, or a failure of Redis.
func (g *Generator) Prepare(ctx context.Context, typ string, periods int) error {
	const most = 100
	var p preparation
	if err := p.begin(ctx, g, typ); err != nil {
		return err
	}
	allowed := most
	if g.calendar.Unit == calendar.Never {
		allowed = 1
	}
	if periods < 1 || periods > allowed {
		return outcome(ctx, fmt.Errorf("serial: Prepare of %d periods: allowed are 1 to %d", periods, allowed))
	}
	if g.floor != nil {
		p.floor = store.FloorToAsk()
	}
	return p.finish(ctx, p.run(ctx, periods))
}

// A preparation opens one period after the other, as the server's clock and the record have them meanwhile.
type preparation struct {
	call
	floor   store.Floor      // to be asked, if there is one
	current *span            // of the server's clock, a moment ago
	open    *calendar.Period // the last one that is known to be open
	checked bool             // the server's clock was compared with this host's
}

func (p *preparation) run(ctx context.Context, periods int) error {
	if err := p.openCurrent(ctx); err != nil {
		return err
	}
	last := p.g.calendar.Later(p.open, periods-1)
	for p.open.Start < last.Start {
		before := p.open
		if err := p.openNext(ctx); err != nil {
			return err
		}
		if p.open.Start > before.Start { // each period has a budget of its own
			_, limited := ctx.Deadline()
			p.opening, p.budget = opening{}, budget.New(limited)
		}
	}
	return nil
}

// openCurrent has no number issued, and the period opened if it is not. One that is full is open.
func (p *preparation) openCurrent(ctx context.Context) error {
	err := p.sequence(ctx, 0)
	p.current, p.open = p.span, &p.span.Period
	if errors.Is(err, ErrExhausted) {
		return nil
	}
	return err
}

// openNext makes one attempt to open the period after the last one that is open.
func (p *preparation) openNext(ctx context.Context) error {
	next := &span{Span: p.g.template.SpanAt(time.Unix(p.open.End, 0))}
	next.stored = p.g.store.NewPeriod(next.Label, next.Start, next.End, next.From, next.To,
		p.g.calendar.Later(&next.Period, p.g.retention).End)
	if err := p.g.template.CheckYear(next.Reading); err != nil {
		return err
	}
	r, err := p.send(ctx, next, p.floor)
	if err != nil {
		return err
	}
	if p.current.Start >= next.Start { // it has begun
		return p.openCurrent(ctx)
	}
	switch r.Status {
	case store.Issued:
		p.open = &next.Period
		return nil
	case store.Missing: // the record is not as this call has left it
		if _, err := p.wait(ctx); err != nil {
			return err
		}
		err := p.sequence(ctx, 0) // that it is full does not do: it is to be entered
		p.current = p.span
		return err // what is open ahead still is
	case store.Gap:
		if _, err := p.wait(ctx); err != nil {
			return err
		}
		return p.openCurrent(ctx)
	case store.Unchecked:
		p.checked = true
		return p.checkSkew(r)
	case store.NeedsFloor:
		return p.aboveFloor(ctx, next)
	}
	return p.refusal(r)
}

// aboveFloor opens next above the floor, which one caller asks at a time. Whether it is open then is to be seen.
func (p *preparation) aboveFloor(ctx context.Context, next *span) error {
	p.span = next
	defer p.endWork(nil)
	lock, out, err := p.tryLock(ctx)
	if out != locked {
		if out != failed {
			_, err = p.wait(ctx)
		}
		return err
	}
	defer p.release(ctx, lock)
	r, err := p.send(ctx, next, p.floor)
	if err != nil || p.current.Start >= next.Start || r.Status != store.NeedsFloor {
		return err
	}
	p.span = next
	used, err := p.askFloor(ctx, lock.since.Add(lockExpiry-floorMargin))
	if err != nil {
		return err
	}
	// However late it comes: nothing has been issued of a period that has not begun, and its counter is only lifted.
	_, err = p.send(ctx, next, store.FloorAt(used))
	return err
}

// send has the store prepare next, unless that has begun by the server's clock.
func (p *preparation) send(ctx context.Context, next *span, floor store.Floor) (store.Reply, error) {
	return p.follow(ctx, time.Unix(p.current.From, 0), func() (store.Reply, error) {
		p.current = p.span
		if p.span.Start >= next.Start {
			return store.Reply{}, nil
		}
		r, err := p.g.store.Prepare(ctx, &p.budget, p.node.Node, &store.Prepare{
			Series: p.series(), Next: &next.stored, Base: p.g.base, Floor: floor, Checked: p.g.maxSkew < 0 || p.checked,
		})
		if r.Status == store.Lost || r.WasThere {
			p.span = next // whose counter it is
		}
		return r, p.heard(&r, err)
	})
}
