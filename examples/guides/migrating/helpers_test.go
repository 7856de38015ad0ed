package migrating

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

// A published is the old system: GET, INCR and a lock, as published in many places.
type published struct {
	rdb  *redis.Client
	zone *time.Location
	key  string // of the counter, up to the day
	most int64  // largest number, 0 for any
}

func (o *published) next(ctx context.Context, typ string) (string, error) {
	for {
		now := time.Now().In(o.zone)
		y, m, d := now.Date()
		day := now.Format("20060102")
		key := o.key + day
		n, err := int64(1), o.rdb.Get(ctx, key).Err()
		if err == nil {
			n, err = o.rdb.Incr(ctx, key).Result()
		} else if errors.Is(err, redis.Nil) {
			if n, err = o.open(ctx, key, time.Date(y, m, d+1, 0, 0, 0, 0, o.zone)); n == 0 && err == nil {
				time.Sleep(5 * time.Millisecond) // another has the lock; the published sequence just waits
				continue
			}
		}
		switch {
		case err != nil:
			return "", err
		case o.most > 0 && n > o.most:
			return "", errExhausted
		}
		return fmt.Sprintf("%s%s%04d", typ, day, n), nil
	}
}

var errExhausted = errors.New("the old range is used up")

// open creates the counter under the lock and returns its first number, or 0 if the caller must start over.
func (o *published) open(ctx context.Context, key string, midnight time.Time) (int64, error) {
	if err := o.rdb.SetArgs(ctx, key+":oldlock", "1", redis.SetArgs{Mode: "NX", TTL: 8 * time.Second}).Err(); err != nil {
		if errors.Is(err, redis.Nil) {
			err = nil
		}
		return 0, err
	}
	defer o.rdb.Del(ctx, key+":oldlock")
	if o.rdb.Get(ctx, key).Err() == nil {
		return 0, nil
	}
	err := o.rdb.SetArgs(ctx, key, "1", redis.SetArgs{Mode: "NX", ExpireAt: midnight}).Err()
	if errors.Is(err, redis.Nil) {
		return 0, nil
	}
	return 1, err
}

// A changed is the old system with the two commands that the guide adds.
type changed struct {
	rdb  *redis.Client
	zone *time.Location
}

func (o *changed) next(ctx context.Context, typ string) (string, error) {
	now := time.Now().In(o.zone)
	y, m, d := now.Date()
	day := now.Format("20060102")
	key := "serial:{" + typ + "}:" + day
	late := time.Date(y, m, d+1, 1, 0, 0, 0, o.zone)
	if err := o.rdb.SetArgs(ctx, key, "0", redis.SetArgs{Mode: "NX", ExpireAt: late}).Err(); err != nil &&
		!errors.Is(err, redis.Nil) {
		return "", err
	}
	n, err := o.rdb.Incr(ctx, key).Result()
	return fmt.Sprintf("%s%s%04d", typ, day, n), err
}

// A source issues numbers: the old system, or a Generator.
type source interface {
	next(ctx context.Context, typ string) (string, error)
}

type generator struct{ *serial.Generator }

func (g generator) next(ctx context.Context, typ string) (string, error) { return g.Next(ctx, typ) }

// A journal collects the numbers that were issued.
type journal struct {
	mu  sync.Mutex
	all []string
}

// run has workers of each source issue numbers of IS, all at once, until stop returns true. pause is the time between
// two numbers.
func (j *journal) run(t *testing.T, stop func(i int) bool, pause time.Duration, sources ...source) {
	t.Helper()
	var wg sync.WaitGroup
	for _, s := range sources {
		for range 3 {
			wg.Go(func() {
				for i := 0; !stop(i); i++ {
					number, err := s.next(t.Context(), "IS")
					if err != nil {
						t.Error(err)
						return
					}
					j.mu.Lock()
					j.all = append(j.all, number)
					j.mu.Unlock()
					time.Sleep(pause)
				}
			})
		}
	}
	wg.Wait()
}

func times(n int) func(int) bool { return func(i int) bool { return i >= n } }

// requireAll requires that the numbers of a day are exactly those from one sequence to another, each once, and returns
// them.
func (j *journal) requireAll(t *testing.T, day string, from, to int) {
	t.Helper()
	var got, want []string
	for _, number := range j.all {
		if strings.HasPrefix(number, "IS"+day) {
			got = append(got, number)
		}
	}
	for seq := from; seq <= to; seq++ {
		want = append(want, fmt.Sprintf("IS%s%04d", day, seq))
	}
	slices.Sort(got)
	require.Equal(t, want, got)
}

// simulate starts a miniredis on the clock of a synctest bubble, and returns a client. The address is an IP, since
// goroutines outside the bubble would look up a name.
func simulate(t *testing.T) (*miniredis.Miniredis, *redis.Client) {
	t.Helper()
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	t.Cleanup(m.Close)
	c := redis.NewClient(&redis.Options{
		Addr:     "127.0.0.1:6379",
		PoolSize: 1000, // nobody waits for a connection: go-redis reuses the timers of such waits in other bubbles
		Dialer:   func(context.Context, string, string) (net.Conn, error) { return m.Dial() },
	})
	t.Cleanup(func() { _ = c.Close() })
	return m, c
}
