package serialtest

import (
	"context"
	"fmt"
	"sync"

	"github.com/dailyserial/serial"
)

// A Ledger is a [serial.Ledger] in memory, for [serial.WithLedger]. The zero Ledger is ready for use, and must not be copied
// after that. It is no part of a [Redis], so it outlives [Redis.Lose]. Generators that stand for several processes share one.
type Ledger struct {
	mu   sync.Mutex
	last map[[2]string]int64 // the greatest sequence set aside, by series and period; guarded by mu
}

// Reserve sets aside r.N sequences. It fails only if ctx has ended or r.N is less than 1; nothing is set aside then.
func (l *Ledger) Reserve(ctx context.Context, r serial.Reservation) (after int64, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if r.N < 1 {
		return 0, fmt.Errorf("serialtest: a reservation of %d numbers", r.N)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last == nil {
		l.last = map[[2]string]int64{}
	}
	key := [2]string{r.Series, r.Period}
	after = max(r.Above, l.last[key])
	l.last[key] = after + r.N
	return after, nil
}
