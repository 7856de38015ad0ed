package serial

import (
	"cmp"
	"context"
	"fmt"

	"github.com/dailyserial/serial/internal/series"
)

// A Ledger is durable storage that outlives Redis. It reserves blocks of sequences before Redis may issue them; see
// [WithLedger]. It must be safe for concurrent use, also by several processes. Package
// github.com/dailyserial/serial/sqlledger keeps a ledger in an SQL database.
type Ledger interface {
	// Reserve reserves r.N consecutive sequences of one period. All of them must be larger than r.Above and larger than
	// every sequence that was ever reserved for the series and period. Reserve returns the first of them minus 1, so the
	// sequences from after+1 to after+r.N are reserved. It must not return before the reservation would survive a crash of
	// the storage.
	//
	// With the first reservation, Reserve should also store the calendar of the series and the print mark of the period.
	// If the calendar or the print mark of a later reservation differs, Reserve should reserve nothing and return the
	// error of [Reservation.Check], which matches [ErrConflict]. The settings of the first reservation apply even if its
	// caller crashed. Redis compares these settings, too, but after a loss of the record, only the ledger can compare
	// them. If the ledger does not, a number may be issued twice when the settings of a series change and Redis loses its
	// data.
	//
	// If Reserve returns an error, the sequences may or may not have been reserved. Reserved sequences become a gap. The
	// same is true if ctx ends. The context ends before the lock that protects the reservation expires.
	Reserve(ctx context.Context, r Reservation) (after int64, err error)
}

// A Reservation is a request to a [Ledger] to reserve sequences. Its strings are compared byte by byte.
type Reservation struct {
	Series   string // result of [Scheme.Series], such as "serial:IS": 3 to 129 bytes
	Period   string // label of a period, such as "20211024": 1 to 14 bytes
	Calendar string // result of [Scheme.Calendar], such as "days": 1 to 64 bytes, the same for all periods of a series
	Print    string // result of [Scheme.PrintMark]: 1 to 64 bytes, the same for all reservations of a period
	Above    int64  // sequence above which the reserved ones must lie: 0 to 10^15-1
	N        int64  // number of sequences to reserve: 1 to 10^15-1
}

// Check helps to implement a [Ledger]. It compares r with the calendar of the series and the print mark of the period,
// as the ledger has stored them. If one of them differs, Check returns an error that matches [ErrConflict] and contains
// the remedy.
func (r Reservation) Check(calendar, printMark string) error {
	const anew = "use another type, or another key prefix together with another literal in the template"
	switch {
	case r.Calendar != calendar:
		return fmt.Errorf("%w: series %q uses calendar %q in the ledger and %q here, but the calendar of a series "+
			"cannot change; "+anew, ErrConflict, r.Series, calendar, r.Calendar)
	case r.Print != printMark:
		return fmt.Errorf("%w: numbers of period %q of series %q were printed with a different field order, alphabet, check "+
			"digit or key, so two sequences could print the same number; use the old settings until a later period begins, "+
			"or "+anew,
			ErrConflict, r.Period, r.Series)
	}
	return nil
}

// WithLedger reserves numbers in durable storage before Redis may issue them. The parameter block is the number of
// sequences that are reserved at once. If Redis loses data (in a failover, in a restart without data, or by starting on
// an old backup), the counter continues above everything that the ledger has ever reserved. So a loss causes a gap, but
// never a duplicate. The gap consists of at most the current block and the blocks that are being reserved.
//
// The ledger is called once per block. A larger block means fewer calls, and a larger gap after a loss. While the
// ledger is unavailable, numbers that are already reserved are still issued. When they are used up, calls fail with the
// error of the ledger.
//
// All processes that issue numbers of a type must use the same ledger, but their blocks may differ in size. A process
// without the ledger gets [ErrConflict] until the last period for which the ledger was used has ended. You may
// introduce a ledger in the middle of a period. If the counter of that period had been lost before, calls fail with
// [ErrCounterLost] until a floor or [Generator.Raise] provides the last number that was used without the ledger.
//
// Redis must allow INFO in scripts, because INFO returns the replication ID of the server. A new ID means that the
// server was restarted or promoted, and may have lost data. If INFO is refused, calls fail with an error that says so.
//
// There is no ledger by default. l must not be nil. block must be 1 to 10^15-1.
func WithLedger(l Ledger, block int64) Option {
	err := cmp.Or(
		refuseIf(isNil(l), "serial: WithLedger: the ledger is nil"),
		refuseIf(block < 1 || block > series.MaxSeq,
			"serial: WithLedger: block %d: want 1 to %d", block, int64(series.MaxSeq)))
	return option{"WithLedger", false, err, func(c *config) { c.ledger, c.issuing.Block = l, block }}
}
