package series

import (
	"context"
	"errors"

	"github.com/dailyserial/serial/internal/wire"
)

// ErrReserved is matched by the error for a series that has a ledger, if the Generator has none.
var ErrReserved = errors.New("reserved in a ledger")

// These are the possible purposes of [Call.Raise].
const (
	ForRaise    = "raise"
	ForTakeover = "takeover"
)

// Raise raises the counter of the current period to seq, for an operator. If purpose is [ForTakeover], it also changes
// the settings of the series to those of this process. If keep is true and this process has no ledger, Raise refuses a
// series that has a ledger. If ctx ends while the counter is being raised, Raise returns, but the operation continues
// in the background.
func (c *Call) Raise(ctx context.Context, purpose string, seq int64, keep bool) error {
	c.n = 0
	for {
		r := &request{options: &options{Purpose: purpose, Seq: seq, Keep: keep && c.series.Reserve == nil}}
		got, _, err := c.ask(ctx, r)
		if err != nil {
			return err
		}
		out := c.outcome(got, 0, nil)
		f := &got.reply.Found
		full := c.series.Reserve != nil && f.Above >= MaxSeq && !f.Lost // the ledger has no sequences left to reserve
		if got.reply.Status == Exhausted || out.Step == Missing && full && purpose == ForRaise {
			return nil // the counter is already above seq
		}
		if out.Step == Missing {
			if end := wire.ContextErr(ctx); end != nil { // another period may have begun, for which seq was not meant
				return c.gaveUp(end)
			}
			out.checked = true // no lock is needed, because the script never lowers a counter
			o := &opening{Call: c.detach(out), caller: ctx, Outcome: out, purpose: purpose, seq: seq}
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
