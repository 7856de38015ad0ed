package series

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/dailyserial/serial/internal/wire"
)

// Every error of a ledger matches ErrLedger, and every error of a floor matches ErrFloor. So a log can contain the kind
// of the error without its text.
var (
	ErrLedger = errors.New("the ledger")
	ErrFloor  = errors.New("the floor")
)

// An opening creates a counter, raises it, or installs a block.
type opening struct {
	*Call
	Outcome                 // request that made the opening necessary, and the lock
	caller  context.Context // context of the caller, for the query to the floor
	purpose string          // purpose of an operator's request, or ""
	seq     int64           // operator's sequence, or 0 if none
	floor   int64           // answer of the floor, or 0 if the floor was not queried
	kept    bool            // whether the lock is left to expire, because the request that opens the period got no reply
}

// reserve has the ledger reserve a block, and adds the block to the grant g and to contents. The block begins above
// every sequence of the period that may have been used. Sequences that an operator skips become part of the block. So
// no other caller gets them, and the ledger's answer shows which of them had been reserved before.
func (o *opening) reserve(ctx context.Context, g *grant, contents *granted) error {
	found, s := &o.found.reply.Found, o.series
	above := max(found.Above, o.floor)
	if found.Starts {
		above = max(above, g.Base)
	}
	from := max(above, o.seq)
	if from >= MaxSeq && o.purpose == "" {
		full := Reply{Status: Exhausted, Detail: strconv.FormatInt(from, 10)} // this package did not write the counter
		return &Refusal{Reply: full, Type: o.typ, Span: o.found.span}
	}
	above, from = min(above, MaxSeq), min(from, MaxSeq)
	size := max(1, min(max(s.Block, int64(o.n)), s.Limit-from)) // the last block ends at the limit
	after, err := o.callLedger(ctx, above, size+from-above)
	if err != nil {
		return err
	}
	contents.after, contents.upto = min(after, MaxSeq), min(after+size+from-above, MaxSeq)
	contents.follow, contents.mixed = found.Intact && after == found.Ceiling, found.Mixed
	g.Block = &[2]int64{contents.after, contents.upto}
	g.Entered, g.Ceiling, g.ID, g.Exists = found.Entered, found.Ceiling, found.ID, found.Exists
	return nil
}

// callLedger has the ledger reserve size sequences that are larger than above, and returns the first of them minus 1.
// If the ledger answers too late, the block is reported as a gap.
func (o *opening) callLedger(ctx context.Context, above, size int64) (int64, error) {
	s, span := o.series, o.found.span
	largest := int64(MaxSeq) - size
	if s.Limit == MaxSeq { // the last block may extend beyond the limit
		largest = 2 * MaxSeq
	}
	invalid := func(after int64) bool { return after < above || after > largest }
	after, err := o.callExternal(ctx, func(ctx context.Context) (int64, error) {
		return s.Reserve(ctx, o.typ, span.Label, above, size)
	}, func(after int64) {
		if !invalid(after) && !o.found.reply.Mixed {
			s.gaps.skip(o.typ, span, BlockBurned, min(after, MaxSeq), min(after+size, MaxSeq))
		}
	})
	if err == nil && invalid(after) {
		err = fmt.Errorf("reserved %d above %d and returned %d: want %d to %d", size, above, after, above, largest)
	}
	if err != nil {
		err = fmt.Errorf("serial: %w of %s %s: %w", ErrLedger, s.subject(o.typ), span.Label, err)
		return 0, wire.Outage(err)
	}
	return after, nil
}

// queryFloor returns the answer of the floor for the period of a span.
func (o *opening) queryFloor(ctx context.Context, span *Target) (int64, error) {
	s := o.series
	start := time.Unix(span.Start, 0).In(s.Calendar.Location)
	used, err := o.callExternal(ctx, func(ctx context.Context) (int64, error) { return s.Floor(ctx, o.typ, start) }, nil)
	if err != nil {
		return 0, fmt.Errorf("serial: %w of %s %s: %w", ErrFloor, s.subject(o.typ), span.Label, err)
	}
	if limit := max(s.Limit, s.Largest); used < 0 || used > limit {
		return 0, fmt.Errorf("serial: %w of %s %s answered %d: want 0 to %d", ErrFloor, s.subject(o.typ), span.Label,
			used, limit)
	}
	return used, nil
}

// callExternal calls a floor or a ledger. The context of the call ends shortly before the deadline of the opening, so a
// function that heeds its context can still return its own error. At the deadline, callExternal returns without waiting
// any longer for the function. If the function succeeds later, its answer is passed to the function late, unless that
// is nil.
func (o *opening) callExternal(
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
	if end := wire.ContextErr(ctx); end != nil {
		return 0, end
	}
	return 0, wire.ErrNoAnswer
}
