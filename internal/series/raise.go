package series

import (
	"context"
	"errors"

	"github.com/dailyserial/serial/internal/wire"
)

// ErrReserved marks every refusal of a series that has a ledger, for a caller that has none.
var ErrReserved = errors.New("reserved in a ledger")

// These are the purposes of [Call.Raise].
const (
	ForRaise    = "raise"
	ForTakeover = "takeover"
)

// Raise raises the counter of the current period to seq, for an operator. A takeover also gives the series to this
// process; with keep, it refuses a series that has a ledger, if this process has none. If the caller leaves after the
// state of the period is known, Raise continues in the background.
func (c *Call) Raise(ctx context.Context, purpose string, seq int64, keep bool) error {
	c.n = 0
	for {
		r := &request{options: &options{Purpose: purpose, Seq: seq, Keep: keep && c.series.Reserve == nil}}
		got, _, err := c.ask(ctx, r)
		if err != nil {
			return err
		}
		out := c.outcome(got, 0, nil)
		switch f := &got.reply.Found; {
		case got.reply.Status == Exhausted, out.Step == Missing && c.series.Reserve != nil && f.Above >= MaxSeq && !f.Lost &&
			purpose == ForRaise:
			return nil // the counter is already higher
		case got.reply.Status == Lost: // seq says how far the counter had come
			out = Outcome{Step: Missing, found: got}
		}
		if out.Step == Missing {
			if end := wire.EndOf(ctx); end != nil { // seq was not meant for a period that may have begun meanwhile
				return c.gaveUp(end)
			}
			o := &opening{Call: c.detach(out), caller: ctx, Outcome: out, purpose: purpose, seq: seq}
			o.look = true
			out = c.await(ctx, o)
		}
		if out.Step == Wait {
			out = c.Wait(ctx)
		}
		if out.Step == Done {
			return out.Err
		}
	}
}
