//go:build unix

package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

// Redis's clock jumps between calls and in the middle of them: forward, back, across midnight. With a ledger Redis loses
// things besides.
func TestClockJumps(t *testing.T) {
	seed, courses := seed(t), 4
	if soak(t) > 0 {
		courses = 200
	}
	for _, p := range []protection{{}, {Ledger: true}} {
		t.Run(fmt.Sprintf("ledger %v", p.Ledger), func(t *testing.T) {
			t.Parallel()
			refused, issued := 0, 0
			for i := range uint64(courses) {
				synctest.Test(t, func(t *testing.T) {
					w := newClockWorld(t, p, rand.New(rand.NewPCG(seed, i)))
					for range 25 {
						w.round()
					}
					// Past whatever was entered, everybody is served again.
					w.set(w.latest.Add(48 * time.Hour))
					for _, gen := range w.gens {
						require.NoError(t, w.call(gen, 1, time.Minute))
					}
					v := w.journal.check(time.UTC, allowance{})
					require.Empty(t, v.duplicates, "course %d", i)
					require.Empty(t, v.disorder, "course %d", i)
					refused, issued = refused+int(v.failed), issued+int(v.numbers)
				})
			}
			t.Logf("%d numbers, %d calls refused", issued, refused)
			require.Greater(t, issued, 50*courses)
		})
	}
}

// A clockWorld is a miniredis whose clock stands still until it is set.
type clockWorld struct {
	t       *testing.T
	random  *rand.Rand
	redis   *memoryRedis
	ledger  bool
	journal *journal
	gens    []*serial.Generator
	now     time.Time
	latest  time.Time
	order   atomic.Int64 // stands for instants in the journal
	before  atomic.Int64 // commands until the clock jumps in the middle of a call; not while several are made
}

func newClockWorld(t *testing.T, p protection, random *rand.Rand) *clockWorld {
	w := &clockWorld{t: t, random: random, redis: newMemoryRedis(t), ledger: p.Ledger, journal: newJournal()}
	w.set(time.Now().Add(12 * time.Hour))
	storage := newStorage(w.journal)
	for range 3 {
		client := w.redis.client(nil, 0)
		client.AddHook(jumping{w})
		opts := []serial.Option{serial.WithLocation(time.UTC), serial.WithMaxSkew(-1)}
		if p.Ledger {
			opts = append(opts, serial.WithLedger(storage, 20))
		}
		gen, err := serial.New(client, opts...)
		require.NoError(t, err)
		w.gens = append(w.gens, gen)
	}
	return w
}

func (w *clockWorld) set(t time.Time) {
	w.now = t
	if t.After(w.latest) {
		w.latest = t
	}
	w.redis.SetTime(t)
}

// jump sets the clock to somewhere that matters, in whole seconds: the package waits for a clock that is a little behind
// for as long as it is behind, and again, since this one stands still.
func (w *clockWorld) jump() {
	midnight := w.now.Truncate(24 * time.Hour).Add(24 * time.Hour)
	switch w.random.IntN(8) {
	case 0, 1:
		w.set(w.now.Add(time.Duration(w.random.IntN(9)) * time.Second))
	case 2:
		w.set(midnight.Add(-time.Second))
	case 3, 4:
		w.set(midnight.Add(time.Duration(w.random.IntN(4)) * time.Second))
	case 5:
		w.set(w.now.Add(-time.Duration(w.random.IntN(8)) * time.Second))
	case 6:
		w.set(w.now.Add(-time.Duration(w.random.IntN(30)) * time.Hour))
	case 7:
		w.set(w.now.Add(time.Duration(w.random.IntN(60)) * time.Hour))
	}
}

// lose has Redis forget something.
func (w *clockWorld) lose() {
	day := w.now.Format(dayLayout)
	counter := recordKey(alwaysUsed[0]) + ":" + day
	switch w.random.IntN(4) {
	case 0:
		w.redis.FlushAll()
	case 1:
		w.redis.reign.Add(1)
	case 2:
		w.redis.Del(counter)
	case 3:
		if held, err := w.redis.Get(counter); err == nil {
			n, _ := strconv.Atoi(held)
			require.NoError(w.t, w.redis.Set(counter, strconv.Itoa(n/2)))
		}
	}
}

// round is a jump, several calls at once, and one with a jump inside.
func (w *clockWorld) round() {
	w.jump()
	if w.ledger && w.random.IntN(3) == 0 {
		w.lose()
	}
	var wg sync.WaitGroup
	for i := range 9 {
		n, limit := 1+w.random.IntN(4), time.Duration(1+w.random.IntN(8))*time.Second
		wg.Go(func() { _ = w.call(w.gens[i%len(w.gens)], n, limit) })
	}
	wg.Wait()
	w.before.Store(1 + w.random.Int64N(6))
	_ = w.call(w.gens[w.random.IntN(len(w.gens))], 1, time.Minute)
	w.before.Store(0)
}

// call has numbers issued, of a day that it is by Redis's clock, or refused for good reason.
func (w *clockWorld) call(gen *serial.Generator, n int, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	id := callID{key: fmt.Sprint(w.order.Add(1))}
	from := w.now
	w.journal.begin(id, call{typ: alwaysUsed[0], n: int64(n), start: w.order.Add(1)})
	first, last, err := issue(ctx, gen, alwaysUsed[0], n)
	w.journal.finish(id, func(c *call) {
		c.end = w.order.Add(1)
		if err != nil {
			c.failure = class(ctx, err)
			return
		}
		c.day, c.first, c.last = first.Start.Format(dayLayout), first.Seq, last
	})
	if err == nil {
		require.Contains(w.t, []string{from.Format(dayLayout), w.now.Format(dayLayout)}, first.Start.Format(dayLayout))
		return nil
	}
	// While the clock is past midnight the day's counter expires, and comes back with the clock no more than its numbers.
	gone := !w.ledger && errors.Is(err, serial.ErrCounterLost)
	if ended := ctx.Err() != nil && errors.Is(err, ctx.Err()); !gone && !ended {
		require.ErrorIs(w.t, err, serial.ErrClockSkew)
	}
	return err
}

// jumping is a hook that lets the clock jump before one of the commands of a call.
type jumping struct{ w *clockWorld }

func (j jumping) DialHook(next redis.DialHook) redis.DialHook { return next }

func (j jumping) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (j jumping) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		// A command that a caller left behind may still come by.
		if j.w.before.Load() > 0 && j.w.before.Add(-1) == 0 {
			j.w.jump()
		}
		return next(ctx, cmd)
	}
}
