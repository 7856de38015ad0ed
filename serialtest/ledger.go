package serialtest

import (
	"context"
	"fmt"
	"sync"
)

// A Ledger is a [serial.Ledger] in memory, for [serial.WithLedger]. The zero Ledger is ready for use, and must not be copied
// after that. It is no part of a [Redis], so it outlives [Redis.Lose]. Generators that stand for several processes share one.
type Ledger struct {
	mu   sync.Mutex
	last map[[2]string]int64 // the greatest sequence set aside, by series and period; guarded by mu
}

// Reserve sets aside n sequences. It fails only if ctx has ended or n is less than 1; nothing is set aside then.
func (l *Ledger) Reserve(ctx context.Context, series, period string, above, n int64) (after int64, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if n < 1 {
		return 0, fmt.Errorf("serialtest: a reservation of %d numbers", n)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last == nil {
		l.last = map[[2]string]int64{}
	}
	key := [2]string{series, period}
	after = max(above, l.last[key])
	l.last[key] = after + n
	return after, nil
}
