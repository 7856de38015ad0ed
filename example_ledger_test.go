package serial_test

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"sync"
	"testing"
	"time"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/serialtest"
)

// A memoryLedger shows what a ledger does. One that is of use stores the same durably, as that of package sqlledger does.
type memoryLedger struct {
	mu        sync.Mutex
	calendars map[string]string // by series
	prints    map[string]string // by series and period
	last      map[string]int64  // last sequence set aside, by series and period
}

func (l *memoryLedger) Reserve(_ context.Context, r serial.Reservation) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := r.Series + " " + r.Period
	if err := r.Check(cmp.Or(l.calendars[r.Series], r.Calendar), cmp.Or(l.prints[key], r.Print)); err != nil {
		return 0, err
	}
	l.calendars[r.Series], l.prints[key] = r.Calendar, r.Print
	after := max(l.last[key], r.Above)
	l.last[key] = after + r.N
	return after, nil
}

// Redis loses everything, and no number comes twice.
func ExampleWithLedger() {
	t := new(testing.T) // go test passes one to a test
	redis := serialtest.NewRedis(t, time.Date(2021, time.October, 24, 12, 0, 0, 0, time.UTC))
	defer redis.Stop()
	ledger := &memoryLedger{calendars: map[string]string{}, prints: map[string]string{}, last: map[string]int64{}}
	gen, err := serial.New(redis.Client(), serial.WithLocation(time.UTC), serial.WithLedger(ledger, 100), serial.WithMaxSkew(-1))
	if err != nil {
		log.Fatal(err)
	}

	ctx := context.Background()
	fmt.Println(gen.Next(ctx, "IS"))
	redis.Lose()
	fmt.Println(gen.Next(ctx, "IS"))
	// Output:
	// IS202110240001 <nil>
	// IS202110240101 <nil>
}
