// Package settings compares what a ledger keeps of a series with what a reservation has, for the ledgers of this project.
package settings

import (
	"fmt"

	"github.com/dailyserial/serial"
)

// Check compares a reservation with the calendar and the print mark that a ledger keeps for its series and period. If one is
// another, the error says what that means and how to go on; it matches [serial.ErrConflict].
func Check(r serial.Reservation, calendar, printMark string) error {
	switch {
	case r.Calendar != calendar:
		return fmt.Errorf("%w: series %q counts by %q in the ledger and by %q here; a series keeps what it counts by: "+
			"to change that, use another type, or another key prefix together with another literal in the template",
			serial.ErrConflict, r.Series, calendar, r.Calendar)
	case r.Print != printMark:
		return fmt.Errorf("%w: numbers of period %q of series %q were printed with another order of fields, alphabet, "+
			"check digit or key, by which two sequences could print alike: keep to that until a later period begins, or use "+
			"another type, or another key prefix together with another literal in the template",
			serial.ErrConflict, r.Period, r.Series)
	}
	return nil
}
