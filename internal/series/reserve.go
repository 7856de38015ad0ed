package series

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/dailyserial/serial/internal/wire"
)

// ErrLedger and ErrFloor mark every error from a ledger or a floor, so that a log can name it without the error's text.
var (
	ErrLedger = errors.New("the ledger")
	ErrFloor  = errors.New("the floor")
)

// An opening creates a counter, raises it, or has a block installed.
type opening struct {
	*Call
	Outcome                 // what the caller found, and its lock
	caller  context.Context // the caller's context, for the floor
	purpose string          // an operator's purpose, "" for none
	seq     int64           // operator's sequence, 0 for none
	floor   int64           // floor's answer, 0 if it was not asked
	kept    bool            // the lock must expire, since an installation under it got no answer
}

// reserve has the ledger reserve the block of a grant. It begins above everything that the period may have used. What
// an operator's sequence skips becomes part of the block, so the ledger shows which of it was reserved before.
func (o *opening) reserve(ctx context.Context, g *grant, l *lifts) error {
	found, s := &o.found.reply.Found, o.series
	above := max(found.Above, o.floor)
	if found.Starts {
		above = max(above, g.Base)
	}
	from := max(above, o.seq)
	if from >= MaxSeq && o.purpose == "" {
		full := Reply{Status: Exhausted, Detail: strconv.FormatInt(from, 10)} // another program wrote the counter
		return &Refusal{Reply: full, Type: o.typ, Span: o.found.span}
	}
	above, from = min(above, MaxSeq), min(from, MaxSeq)
	size := max(1, min(max(s.Block, int64(o.n)), s.Limit-from)) // the last block is as small as needed
	after, err := o.askLedger(ctx, above, size+from-above)
	if err != nil {
		return err
	}
	l.after, l.upto = min(after, MaxSeq), min(after+size+from-above, MaxSeq)
	l.follow, l.mixed = found.Intact && after == found.Ceiling, found.Mixed
	g.Block = &[2]int64{l.after, l.upto}
	g.Entered, g.Ceiling, g.ID, g.Held = found.Entered, found.Ceiling, found.ID, found.Exists
	return nil
}

// askLedger has the ledger reserve size sequences above a given one, and returns the one before the first. A block that
// comes too late is burned.
func (o *opening) askLedger(ctx context.Context, above, size int64) (int64, error) {
	s, span := o.series, o.found.span
	highest := int64(MaxSeq) - size
	if s.Limit == MaxSeq { // the last block may reach beyond it
		highest = 2 * MaxSeq
	}
	invalid := func(after int64) bool { return after < above || after > highest }
	after, err := o.askOutside(ctx, func(ctx context.Context) (int64, error) {
		return s.Reserve(ctx, o.typ, span.Label, above, size)
	}, func(after int64) {
		if !invalid(after) && !o.found.reply.Mixed {
			s.gaps.skip(o.typ, span, BlockBurned, min(after, MaxSeq), min(after+size, MaxSeq))
		}
	})
	if err == nil && invalid(after) {
		err = fmt.Errorf("reserved %d above %d and returned %d: want %d to %d", size, above, after, above, highest)
	}
	if err != nil {
		err = fmt.Errorf("serial: %w of %s %s: %w", ErrLedger, s.subject(o.typ), span.Label, err)
		return 0, wire.Outage(err)
	}
	return after, nil
}

// askFloor queries the floor.
func (o *opening) askFloor(ctx context.Context, span *Target) (int64, error) {
	s := o.series
	start := time.Unix(span.Start, 0).In(s.Calendar.Location)
	used, err := o.askOutside(ctx, func(ctx context.Context) (int64, error) { return s.Floor(ctx, o.typ, start) }, nil)
	if err != nil {
		return 0, fmt.Errorf("serial: %w of %s %s: %w", ErrFloor, s.subject(o.typ), span.Label, err)
	}
	if limit := max(s.Limit, s.Largest); used < 0 || used > limit {
		return 0, fmt.Errorf("serial: %w of %s %s answered %d: want 0 to %d", ErrFloor, s.subject(o.typ), span.Label,
			used, limit)
	}
	return used, nil
}

// askOutside asks a floor or a ledger, until shortly before the opening ends. If the function heeds its context, it
// returns its own error in time. Otherwise askOutside leaves it, and late, unless nil, gets its answer.
func (o *opening) askOutside(
	ctx context.Context, ask func(context.Context) (int64, error), late func(int64),
) (int64, error) {
	within, cancel := context.WithDeadline(ctx, o.deadline.Add(-margin/2))
	limit, stop := context.WithDeadline(ctx, o.deadline)
	defer stop()
	v, over, err := wire.Await(limit, func() (int64, error) {
		defer cancel()
		return ask(within)
	}, func(v int64, err error) {
		defer o.series.gaps.addPending(-1)
		if late != nil && err == nil {
			late(v)
		}
	})
	if over {
		return v, err
	}
	o.series.gaps.addPending(1)
	if end := wire.EndOf(ctx); end != nil {
		return 0, end
	}
	return 0, wire.ErrNoAnswer
}
