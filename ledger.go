package serial

import (
	"cmp"
	"context"
	"fmt"

	"github.com/dailyserial/serial/internal/series"
)

// A Ledger is durable storage that outlives Redis. It sets aside blocks of sequences before Redis may issue them; see
// [WithLedger]. Any number of processes and goroutines may call it at once. Package
// github.com/dailyserial/serial/sqlledger keeps one in a database.
type Ledger interface {
	// Reserve durably sets aside r.N consecutive sequences of one period, all greater than r.Above and every sequence
	// ever set aside for that series and period. It returns the sequence just before the first: after+1 to after+r.N
	// are set aside. It must not return before they would survive a crash of the storage.
	//
	// Reserve should also keep the calendar of each series and the print mark of each period, from the first
	// reservation. If a later reservation has another one, Reserve should return the error of [Reservation.Check],
	// which matches [ErrConflict], and set nothing aside; the first reservation decides, even if its caller crashed.
	// Redis compares them too, but once it has lost its record, only the ledger can. If the ledger does not compare
	// them, a number may be issued twice if a series's settings change and Redis loses its data.
	//
	// After an error the sequences may or may not have been set aside; if they were, they are a gap. The same is true
	// if ctx ends, which it does before the lock for the reservation expires.
	Reserve(ctx context.Context, r Reservation) (after int64, err error)
}

// A Reservation is a request to a [Ledger] to set sequences aside. Its texts are compared byte by byte.
type Reservation struct {
	Series   string // result of [Scheme.Series], such as "serial:IS": 3 to 129 bytes
	Period   string // label of a period, such as "20211024": 1 to 14 bytes
	Calendar string // result of [Scheme.Calendar], such as "days": 1 to 64 bytes, the same for all periods of a series
	Print    string // result of [Scheme.PrintMark]: 1 to 64 bytes, the same for all reservations of a period
	Above    int64  // sequence below all those to set aside: 0 to 10^15-1
	N        int64  // number of sequences to set aside: 1 to 10^15-1
}

// Check is for authors of a [Ledger]. It compares r with the series's calendar and the period's print mark, as the
// ledger keeps them. If one differs, the error matches [ErrConflict] and says what to do.
func (r Reservation) Check(calendar, printMark string) error {
	const anew = "use another type, or another key prefix together with another literal in the template"
	switch {
	case r.Calendar != calendar:
		return fmt.Errorf("%w: series %q counts by %q in the ledger and by %q here, and a series keeps its calendar; "+
			"to change that, "+anew, ErrConflict, r.Series, calendar, r.Calendar)
	case r.Print != printMark:
		return fmt.Errorf("%w: numbers of period %q of series %q were printed with another order of fields, alphabet, "+
			"check digit or key, so two sequences could print alike; use the same until a later period begins, or "+anew,
			ErrConflict, r.Period, r.Series)
	}
	return nil
}

// WithLedger sets numbers aside in durable storage, block sequences at a time, before Redis may issue them. If Redis
// then loses data (in a failover, an empty restart, an old backup), there is a gap but never a duplicate: the counter
// continues above everything the ledger has ever set aside. The gap is at most the block in use and the blocks being
// reserved.
//
// The ledger is asked once per block. A larger block means fewer requests, and a larger gap when Redis loses data.
// While the ledger is down, the numbers already set aside are still issued; then calls fail with the ledger's error.
// All processes that issue numbers of a type must have the same ledger, but may have different blocks. A process
// without it gets [ErrConflict] until the last period for which the ledger was used has ended. A ledger may be turned
// on within a period. But if the period's counter was lost before, calls fail with [ErrCounterLost] until a floor or
// [Generator.Raise] gives the last number used without the ledger.
//
// Redis must allow INFO in scripts. It returns the server's replication ID: a new one means that the server was
// restarted or promoted and may have lost data. If INFO is refused, calls fail and say so.
//
// Default none. A nil ledger is refused. A block must be 1 to 10^15-1 sequences.
func WithLedger(l Ledger, block int64) Option {
	err := cmp.Or(
		refuseIf(isNil(l), "serial: WithLedger: the ledger is nil"),
		refuseIf(block < 1 || block > series.MaxSeq,
			"serial: WithLedger: block %d: want 1 to %d", block, int64(series.MaxSeq)))
	return option{"WithLedger", false, err, func(c *config) { c.ledger, c.issuing.Block = l, block }}
}
