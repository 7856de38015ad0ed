package serialtest

import (
	"cmp"
	"context"
	"fmt"
	"sync"

	"github.com/dailyserial/serial"
)

// A Ledger is a [serial.Ledger] in memory, for [serial.WithLedger]. The zero Ledger is ready for use. It must not be
// copied after its first use. A Ledger is not a part of a [Redis], so it keeps its data after [Redis.Lose]. Generators
// of several processes can share it.
type Ledger struct {
	mu        sync.Mutex           // guards the fields below
	calendars map[string]string    // by series
	prints    map[[2]string]string // by series and period
	last      map[[2]string]int64  // last reserved sequence, by series and period
}

// Reserve reserves r.N sequences. It stores the calendar of each series and the print mark of each period. If a later
// reservation has a different calendar or print mark, the error matches [serial.ErrConflict]. Reserve also returns an
// error if ctx has ended or if r.N is less than 1. After an error, nothing is reserved.
func (l *Ledger) Reserve(ctx context.Context, r serial.Reservation) (after int64, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if r.N < 1 {
		return 0, fmt.Errorf("serialtest: a reservation of %d numbers; want 1 or more", r.N)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	key := [2]string{r.Series, r.Period}
	if err := r.Check(cmp.Or(l.calendars[r.Series], r.Calendar), cmp.Or(l.prints[key], r.Print)); err != nil {
		return 0, err
	}
	if l.last == nil {
		l.calendars, l.prints, l.last = map[string]string{}, map[[2]string]string{}, map[[2]string]int64{}
	}
	after = max(r.Above, l.last[key])
	l.calendars[r.Series], l.prints[key], l.last[key] = r.Calendar, r.Print, after+r.N
	return after, nil
}
