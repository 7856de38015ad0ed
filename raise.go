package serial

import (
	"context"

	"github.com/dailyserial/serial/internal/series"
)

// Raise makes sure that the next number of the current period is at least seq+1. seq is 0 to the largest sequence;
// Raise never lowers a counter. Use it to continue a series from elsewhere, or to end [ErrCounterLost] if you know the
// last number used: seq is that number, or 0 if none was. Numbers that this Generator has issued itself stay used,
// whatever seq is. If the period is not open yet, Raise opens it, above the floor if there is one. With a ledger, Raise
// sets the next block aside above seq.
//
// If Redis's clock was set back to before a period already entered, Next fails with [ErrClockSkew]; Raise then enters
// the current period of Redis's clock again. It fails with [ErrConflict] if that period was used with another print
// mark; see [Scheme.PrintMark].
//
// After an error or a cancelled call, the counter may or may not have been raised; Raise may be repeated. Errors:
// [ErrInvalidType], [ErrClockSkew] (beyond [WithMaxSkew]), [ErrConflict], [ErrNotReplicated], one for an invalid seq,
// the floor's or the ledger's own, ctx's, or a failure of Redis.
func (g *Generator) Raise(ctx context.Context, typ string, seq int64) error {
	return g.raise(ctx, "Raise", series.ForRaise, typ, seq, true)
}

// Takeover gives a series to this Generator: from then on, the series has its time zone, day start and ledger, and
// every process with others gets [ErrConflict]. It is for an operator, and immediately ends an ErrConflict that would
// otherwise last until the period in force has ended: after a process in the wrong time zone has opened a day (stop
// that process first), to change the time zone in the middle of a month or a year, or to leave a ledger in the middle
// of a period. Another [Period] or year start, or another print mark in the same period (see [Scheme.PrintMark]), is
// still refused with ErrConflict.
//
// seq is the last number used in the current period as this Generator counts, whoever printed it; 0 if none was used.
// To leave a ledger, it is the last sequence set aside (reserved) in the ledger for that period, because otherwise
// numbers of burned blocks are issued. It must be 0 to the largest sequence. The next number is above seq, above the
// counter of that period if there is one, and above the answers of the floor and of the ledger, if this Generator has
// them. If the old and the new settings give the period the same label, as two time zones do for a day, its counter
// continues. No counter is ever lowered.
//
// Periods that [Generator.Prepare] has opened for the other time zone are dropped. A later period whose label was used
// before, such as a day that another time zone entered first, continues above its counter; if that counter is gone, the
// error is [ErrCounterLost].
//
// If no other process's period is in force, Takeover does the same as [Generator.Raise]. So it may be repeated after an
// error or a cancelled call, which may or may not have taken effect. Errors: as for Raise, and [ErrClockSkew] if
// Redis's clock differs from this host's by more than [WithMaxSkew], because then the current period is uncertain.
func (g *Generator) Takeover(ctx context.Context, typ string, seq int64) error {
	return g.raise(ctx, "Takeover", series.ForTakeover, typ, seq, false)
}

// TakeoverKeepingLedger is [Generator.Takeover], but never takes a series out of its ledger: if the series has one and
// this Generator has none, the error is [ErrConflict], and nothing changes.
func (g *Generator) TakeoverKeepingLedger(ctx context.Context, typ string, seq int64) error {
	return g.raise(ctx, "Takeover", series.ForTakeover, typ, seq, true)
}

// raise is Raise or Takeover. With keep, it refuses a series that has a ledger if the Generator has none.
func (g *Generator) raise(ctx context.Context, method, purpose, typ string, seq int64, keep bool) error {
	c, err := g.begin(ctx, typ, "", 0, refuseIf(seq < 0 || seq > g.limit,
		"serial: %s of %s to %d: want 0 to %d", method, g.subject(typ), seq, g.limit))
	if err == nil {
		err = c.Raise(ctx, purpose, seq, keep)
	}
	return g.finish(ctx, c, typ, err)
}
