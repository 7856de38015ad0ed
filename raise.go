package serial

import (
	"context"

	"github.com/dailyserial/serial/internal/series"
)

// Raise raises the counter of the current period to seq, so that the sequence of the next number is at least seq+1. It
// never lowers a counter. Operators use it to continue a series from another system, or to end [ErrCounterLost]. To end
// ErrCounterLost, pass the last sequence that was used, or 0 if none was used. The next number is always above all
// numbers of the period that this Generator has issued.
//
// seq must be 0 to the largest sequence. If the period is not open, Raise opens it, above the floor if there is one.
// With a ledger, Raise reserves the next block above seq.
//
// If Redis's clock was set back to before a period in which numbers were issued, [Generator.Next] fails with
// [ErrClockSkew]. Raise then takes the series back to the period that Redis's clock is in. It fails with [ErrConflict]
// if numbers of that period have another print mark; see [Scheme.PrintMark].
//
// After an error or a canceled call, the counter may or may not have been raised, and Raise may be repeated. The error
// matches [ErrInvalidType], [ErrClockSkew] (if the clocks differ by more than [WithMaxSkew]), [ErrConflict] or
// [ErrNotReplicated], or it wraps the error of the floor, of the ledger, of ctx or of Redis. Raise also fails if seq is
// invalid.
func (g *Generator) Raise(ctx context.Context, typ string, seq int64) error {
	return g.raise(ctx, "Raise", series.ForRaise, typ, seq, true)
}

// Takeover makes the time zone, day start and ledger of this Generator those of the series. Every process with other
// settings then gets [ErrConflict]. Operators use Takeover to end an ErrConflict that would otherwise last until the
// current period ends. It has three uses:
//
//   - to recover from a process that opened a day in the wrong time zone (stop that process first)
//   - to change the time zone in the middle of a month or a year
//   - to stop using a ledger in the middle of a period
//
// Another [Period] or year start is still refused with ErrConflict, and so is another print mark in the same period;
// see [Scheme.PrintMark].
//
// seq is the last sequence that any process used in the current period of this Generator, or 0 if none was used. If the
// series leaves a ledger, seq must be the last sequence that the ledger reserved for the period; otherwise numbers of
// unused blocks may be issued. seq must be 0 to the largest sequence. The next number is above seq, above the counter
// of the period if there is one, and above the answers of the floor and the ledger. If the period has the same label
// with the old and the new settings, as a day has in two time zones, its counter continues. No counter is ever lowered.
//
// If [Generator.Prepare] has opened the next period with the old settings, that period has to be opened again. If the
// label of a later period was used before, for example because that day began earlier in another time zone, the period
// continues above its counter. If that counter is gone, calls fail with [ErrCounterLost].
//
// If the current period of the series already has the settings of this Generator, Takeover does the same as
// [Generator.Raise]. A call that failed or was canceled may or may not have taken effect, and may therefore be
// repeated. The errors are those of Raise.
func (g *Generator) Takeover(ctx context.Context, typ string, seq int64) error {
	return g.raise(ctx, "Takeover", series.ForTakeover, typ, seq, false)
}

// TakeoverKeepingLedger is like [Generator.Takeover], but never takes a series out of its ledger. It is only for package
// serialcmd, and applications do not need it. If the series has a ledger and this Generator has none, the error is
// [ErrConflict], and nothing changes.
func (g *Generator) TakeoverKeepingLedger(ctx context.Context, typ string, seq int64) error {
	return g.raise(ctx, "Takeover", series.ForTakeover, typ, seq, true)
}

// raise implements Raise and both forms of Takeover. If keep is true, a Generator without a ledger does not take a
// series out of its ledger.
func (g *Generator) raise(ctx context.Context, method, purpose, typ string, seq int64, keep bool) error {
	c, err := g.begin(ctx, typ, "", 0, refuseIf(seq < 0 || seq > g.limit,
		"serial: %s of %s to %d: want 0 to %d", method, g.subject(typ), seq, g.limit))
	if err == nil {
		err = c.Raise(ctx, purpose, seq, keep)
	}
	return g.finish(ctx, c, typ, err)
}
