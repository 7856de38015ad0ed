package serial

import (
	"context"
	"errors"
	"fmt"

	"github.com/dailyserial/serial/internal/store"
)

// A Ledger is durable storage that outlives Redis. It sets aside blocks of sequences before Redis may issue from them; see
// [WithLedger]. It is called from any number of processes at once, and by a [Generator] from any number of goroutines.
// Package github.com/dailyserial/serial/sqlledger keeps one in a database.
type Ledger interface {
	// Reserve durably sets aside r.N consecutive sequences of one period, all greater than r.Above and than every sequence
	// that was ever set aside for that series and period. It returns the one just before the first: those set aside are
	// after+1 to after+r.N. It must not return before they would survive a crash of the storage.
	//
	// Reserve should also keep the calendar of each series and the print mark of each period, as the first reservation had
	// them. To a reservation with another one it should answer the error of [Reservation.Check], which matches [ErrConflict],
	// and set nothing aside; the first reservation decides, even if its caller died. Redis compares them as well, but once it has
	// lost its record, only the ledger can. A ledger that does not compare them lets numbers come twice if the settings of a series
	// change and Redis loses its data.
	//
	// After an error the sequences may have been set aside or not; if they were, they are a gap. The same is true if ctx
	// ends, which it does before the lock or the claim of the reservation expires.
	Reserve(ctx context.Context, r Reservation) (after int64, err error)
}

// A Reservation is what a [Ledger] is asked to set aside. Its texts are compared byte by byte.
type Reservation struct {
	Series   string // as [Scheme.Series] returns it, such as "serial:IS": 3 to 129 bytes
	Period   string // label of one of its periods, such as "20211024": 1 to 14 bytes
	Calendar string // as [Scheme.Calendar] returns it, such as "days": 1 to 64 bytes, one for a series
	Print    string // as [Scheme.PrintMark] returns it: 1 to 64 bytes, one for a period of a series
	Above    int64  // the sequences set aside are greater: 0 to 10^15-1
	N        int64  // how many to set aside: 1 to 10^15-1
}

// Check is for those who write a [Ledger]. It compares r with the calendar that the ledger keeps for the series and the print mark
// that it keeps for the period. If one is another, the error matches [ErrConflict] and says how to go on.
func (r Reservation) Check(calendar, printMark string) error {
	const anew = "use another type, or another key prefix together with another literal in the template"
	switch {
	case r.Calendar != calendar:
		return fmt.Errorf("%w: series %q counts by %q in the ledger and by %q here; a series keeps what it counts by: "+
			"to change that, "+anew, ErrConflict, r.Series, calendar, r.Calendar)
	case r.Print != printMark:
		return fmt.Errorf("%w: numbers of period %q of series %q were printed with another order of fields, alphabet, "+
			"check digit or key, by which two sequences could print alike: keep to that until a later period begins, or "+anew,
			ErrConflict, r.Period, r.Series)
	}
	return nil
}

// WithLedger has numbers set aside in durable storage, block at a time, before Redis may issue them. Whatever Redis then
// loses (a failover, an empty restart, an old backup) costs a gap and never a duplicate: the counter continues above
// everything the ledger has ever set aside. The gap is at most the block in use and those being reserved.
//
// The ledger is asked once per block: a larger block asks less often, and costs a larger gap when Redis loses data. While
// the ledger is down, what was set aside is still issued; then calls fail with the ledger's error. All processes that issue
// numbers of a type must have the same ledger, but may have different blocks. A process without it gets [ErrConflict] until
// the last period for which the ledger was used has ended. A ledger may be turned on within a period; but if the period's
// counter is lost by then, it stays [ErrCounterLost] until a floor or [Generator.Raise] tells what was used without the
// ledger.
//
// Redis must allow INFO in scripts, which tells the server's replication ID: a new one means that the server was restarted
// or promoted and may have lost data. If INFO is refused, calls fail and say so.
//
// Default none. A nil ledger is refused, and so is a block that is not 1 to 10^15-1.
func WithLedger(l Ledger, block int64) Option {
	return option{"WithLedger", false, func(c *config) error {
		if isNil(l) {
			return errors.New("serial: WithLedger: the ledger is nil")
		}
		if most := int64(store.MaxSeq); block < 1 || block > most {
			return fmt.Errorf("serial: WithLedger: a block of %d: allowed are 1 to %d", block, most)
		}
		c.ledger, c.block = l, block
		return nil
	}}
}
