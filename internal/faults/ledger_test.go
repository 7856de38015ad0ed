//go:build unix

package faults

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial"
)

// A storage is a process's connection to the ledger and the floor of all workers. The watching process has both in a
// Redis in memory, which outlives the servers.
type storage struct {
	*redis.Client
	setting setting
}

var errStorage = errors.New("storage failed")

const (
	disturbance = "disturbance" // key of how long a reservation takes; a negative duration passes after it
	margin      = 5000          // what a floor adds to the numbers that were reported: more than can be on their way
)

// floorKey returns the key of the last number that was reported, and queriesKey returns the key of the
// number of queries to the floor.
func floorKey(at series) string { return fmt.Sprint("floor:", at) }

func queriesKey(typ string) string { return "queries:" + typ }

// newStorage connects to a storage. Nothing is sent twice, because each reservation takes another block.
func newStorage(s setting) storage {
	return storage{redis.NewClient(&redis.Options{Addr: s.Storage, MaxRetries: -1, ReadTimeout: time.Minute}), s}
}

var reserve = redis.NewScript(`local last = math.max(tonumber(redis.call('GET', KEYS[1]) or '0'), tonumber(ARGV[1]))
redis.call('SET', KEYS[1], string.format('%.0f', last + ARGV[2]))
return last`)

// Reserve implements serial.Ledger. It never returns the error of ctx, because the worker would
// take this for the end of its own context.
func (s storage) Reserve(ctx context.Context, r serial.Reservation) (last int64, err error) {
	delay, err := time.ParseDuration(cmp.Or(s.Get(ctx, disturbance).Val(), "0s"))
	if err == nil {
		err = sleep(ctx, delay)
	}
	if err == nil {
		last, err = reserve.Run(ctx, s.Client, []string{r.Series + r.Period}, r.Above, r.N).Int64()
	}
	if err == nil {
		err = sleep(ctx, -delay)
	}
	if err != nil {
		return 0, fmt.Errorf("%w: %v", errStorage, err)
	}
	return last, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s storage) floor(ctx context.Context, typ string, start time.Time) (int64, error) {
	s.Incr(ctx, queriesKey(typ))
	last, err := s.Get(ctx, floorKey(series{typ, s.setting.period(start)})).Int64()
	if err != nil && err != redis.Nil {
		return 0, fmt.Errorf("%w: %v", errStorage, err)
	}
	return last + margin, nil
}

// Every type of the suite has such a name, so it is found in any key or series.
var typePattern = regexp.MustCompile(`[TR]-\d{8}`)

func typeIn(s string) string { return typePattern.FindString(s) }
