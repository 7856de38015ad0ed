package serialtest

import (
	"context"
	"fmt"
	"sync"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/settings"
)

// A Ledger is a [serial.Ledger] in memory, for [serial.WithLedger]. The zero Ledger is ready for use, and must not be copied
// after that. It is no part of a [Redis], so it outlives [Redis.Lose]. Generators that stand for several processes share one.
type Ledger struct {
	mu        sync.Mutex
	calendars map[string]string          // by series; guarded by mu, as is periods
	periods   map[periodKey]periodLedger // what is kept of each period
}

type periodKey struct{ series, period string }

type periodLedger struct {
	last      int64 // the greatest sequence set aside
	printMark string
}

// Reserve sets aside r.N sequences. It keeps the calendar of each series and the print mark of each period: for another one
// the error matches [serial.ErrConflict]. It also fails if ctx has ended or r.N is less than 1. After an error nothing is set
// aside.
func (l *Ledger) Reserve(ctx context.Context, r serial.Reservation) (after int64, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if r.N < 1 {
		return 0, fmt.Errorf("serialtest: a reservation of %d numbers", r.N)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	calendar, ok := l.calendars[r.Series]
	if !ok {
		calendar = r.Calendar
	}
	key := periodKey{r.Series, r.Period}
	kept, ok := l.periods[key]
	if !ok {
		kept.printMark = r.Print
	}
	if err := settings.Check(r, calendar, kept.printMark); err != nil {
		return 0, err
	}
	if l.periods == nil {
		l.calendars, l.periods = map[string]string{}, map[periodKey]periodLedger{}
	}
	after = max(r.Above, kept.last)
	kept.last = after + r.N
	l.calendars[r.Series], l.periods[key] = calendar, kept
	return after, nil
}
