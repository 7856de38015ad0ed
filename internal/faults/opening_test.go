//go:build unix

package faults

import (
	"context"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/race"
)

// An opening is a way to open a period or to reserve a block, during which one caller may delay another.
type opening struct {
	name string
	protection
	atCeiling bool
	call      func(ctx context.Context, gen *serial.Generator, typ string) error
	calendar  string
}

var openings = []opening{
	{"nothing", protection{}, false, nextOf, ""},
	{"floor", protection{Floor: true}, false, nextOf, ""},
	{"ledger", protection{Ledger: true}, false, nextOf, ""},
	{"ledger and floor", protection{Ledger: true, Floor: true}, false, nextOf, ""},
	{"ceiling", protection{Ledger: true}, true, nextOf, ""},
	{"Raise", protection{Ledger: true}, false, raiseOf, ""},
	{"NextOnce", protection{Ledger: true}, false, onceOf, ""},
	{"Prepare", protection{Ledger: true}, false, func(ctx context.Context, gen *serial.Generator, typ string) error {
		return gen.Prepare(ctx, typ)
	}, ""},
}

// withCalendars returns all, and the openings by Next with every calendar.
func withCalendars(all []opening) []opening {
	some := slices.Clone(all)
	for name := range calendars {
		if name != "years" && os.Getenv("SERIAL_TEST_LONG") != "1" { // CI tries the others
			continue
		}
		for _, o := range openings[:5] {
			if name != "" {
				o.name, o.calendar = o.name+", "+name, name
				some = append(some, o)
			}
		}
	}
	return some
}

func nextOf(ctx context.Context, gen *serial.Generator, typ string) error {
	return errOf(gen.Next(ctx, typ))
}

func onceOf(ctx context.Context, gen *serial.Generator, typ string) error {
	return errOf(gen.NextOnce(ctx, typ, request))
}

func raiseOf(ctx context.Context, gen *serial.Generator, typ string) error {
	return gen.Raise(ctx, typ, 40)
}

func peekOf(ctx context.Context, gen *serial.Generator, typ string) error {
	return errOf(gen.Peek(ctx, typ))
}

// A passage is a process that opens a period. The test decides what happens at the boundaries between its commands, its
// reservations and its questions to the floor.
type passage struct {
	serial.Ledger
	at func(boundary int) // the even ones are before a command, a reservation or a question

	passed atomic.Int64 // boundaries
}

func (p *passage) pass() { p.at(int(p.passed.Add(1) - 1)) }

func (p *passage) Reserve(ctx context.Context, r serial.Reservation) (int64, error) {
	p.pass()
	defer p.pass()
	return p.Ledger.Reserve(ctx, r)
}

func (p *passage) floor(context.Context, string, time.Time) (int64, error) {
	p.pass()
	defer p.pass()
	return 0, nil
}

// A meeting is a passage and another process, for a type whose period is not open or whose block is used up.
type meeting struct {
	passage    passage
	gen, other *serial.Generator // the passage's, and the other process's
}

func newMeeting(t *testing.T, o opening) *meeting {
	m, storage := newMemoryRedis(t), newStorage(newJournal())
	w := &meeting{passage: passage{Ledger: storage, at: func(int) {}}}
	client := m.client(nil, -1)
	client.AddHook(steps{new(atomic.Int64), func(_ int, run func() error) error {
		w.passage.pass()
		defer w.passage.pass()
		return run()
	}})
	s := setting{Protection: o.protection, Calendar: o.calendar}
	var err error
	w.gen, err = s.generator(client, &w.passage, w.passage.floor)
	require.NoError(t, err)
	w.other, err = s.generator(m.client(nil, 0), storage, noneUsed)
	require.NoError(t, err)
	for _, gen := range []*serial.Generator{w.gen, w.other} { // which connects, and loads the scripts into Redis
		require.NoError(t, o.call(t.Context(), gen, alwaysUsed[1]))
		require.NoError(t, nextOf(t.Context(), gen, alwaysUsed[2]))
	}
	w.passage.passed.Store(0)
	if o.atCeiling {
		require.NoError(t, errOf(w.other.NextN(t.Context(), alwaysUsed[0], block)))
	}
	return w
}

// next returns how long the other process waits for a number.
func (w *meeting) next(t *testing.T) time.Duration {
	began := time.Now()
	require.NoError(t, nextOf(context.Background(), w.other, alwaysUsed[0]))
	return time.Since(began)
}

func noneUsed(context.Context, string, time.Time) (int64, error) { return 0, nil }

// A caller that leaves in the middle of an opening delays nobody, wherever it leaves. The suite had missed a caller that
// left while the answer was under way: its callers' deadlines were 20 ms and more, long enough for an opening.
// Guarantees: caller-leaves.
func TestCallerLeavesOpening(t *testing.T) {
	t.Parallel()
	for _, o := range withCalendars(openings) {
		t.Run(o.name, func(t *testing.T) {
			for boundary, passed := -1, 0; boundary < passed; boundary++ { // the first call runs to its end
				var took time.Duration
				race.Bubble(t, func(t *testing.T) {
					w := newMeeting(t, o)
					ctx, leave := context.WithCancel(t.Context())
					left := make(chan struct{})
					w.passage.at = func(i int) {
						if i == boundary {
							leave()
							<-left
						}
					}
					_ = o.call(ctx, w.gen, alwaysUsed[0])
					close(left)
					took = w.next(t)
					time.Sleep(time.Minute) // for abandoned commands
					passed = max(passed, int(w.passage.passed.Load()))
				})
				if boundary < 0 {
					require.Greater(t, passed, 3)
				}
				if took > time.Second {
					t.Errorf("caller left at boundary %d, and another waited for %v", boundary, took)
				}
			}
		})
	}
}

// A process that dies in the middle of an opening delays the others by the lock's expiry in total, even if it stood
// still before its last step, or that step's request was delayed. The suite had missed that a second lock had a lease
// of its own: it killed processes or stopped them, never one after the other, and waited for more than twice that time.
// Guarantees: opener-killed.
func TestHolderStandsStill(t *testing.T) {
	t.Parallel()
	const expiry = 8 * time.Second
	for _, o := range withCalendars(openings[:6]) {
		t.Run(o.name, func(t *testing.T) {
			for still, passed := -1, 0; still < passed; still++ {
				// Before a command, as its request; or between two, for less than it takes to consider a lock server
				// dead.
				pause, dies := expiry-500*time.Millisecond, still+1
				if still%2 != 0 {
					pause, dies = 1900*time.Millisecond, still+2
				}
				var took time.Duration
				race.Bubble(t, func(t *testing.T) {
					w := newMeeting(t, o)
					holds, dead := make(chan struct{}), make(chan struct{})
					var once sync.Once
					w.passage.at = func(i int) {
						// It has the lock, unless it dies before. The first call runs to its end.
						if still >= 0 && i >= min(3, dies) {
							once.Do(func() { close(holds) })
						}
						if still >= 0 && i >= dies {
							<-dead
						}
						if i == still {
							time.Sleep(pause)
						}
					}
					ctx, bury := context.WithCancel(t.Context())
					go func() {
						_ = o.call(ctx, w.gen, alwaysUsed[0])
						once.Do(func() { close(holds) })
					}()
					<-holds
					took = w.next(t)
					bury()
					close(dead)
					time.Sleep(time.Minute) // for abandoned commands
					if still < 0 {
						passed = int(w.passage.passed.Load())
					}
				})
				if still < 0 {
					require.Greater(t, passed, 3)
				}
				if took > expiry+500*time.Millisecond {
					t.Errorf("stood still for %v at boundary %d, died at %d, and another waited for %v", pause, still,
						dies, took)
				}
			}
		})
	}
}

// The same with many callers whose deadlines end anywhere in an opening. After they have left, a caller with time gets
// a number at once. (Not parallel, because it measures time.)
// Guarantees: caller-leaves.
func TestShortDeadlines(t *testing.T) {
	for _, p := range []protection{{}, {Floor: true}, {Ledger: true}} {
		w := build(t, serverTopology, p, false, zoneOfMidnightIn(12*time.Hour))
		w.proxy.turn(slow, time.Millisecond) // a network
		types := typesNamed(150)
		var gens []*serial.Generator
		for range 2 {
			client := w.setting.client(nil)
			t.Cleanup(func() { _ = client.Close() })
			gen, err := w.setting.generator(client, w.storage, noneUsed)
			require.NoError(t, err)
			gens = append(gens, gen)
		}
		const together = 10 // types, few enough for some deadline to reach every step
		for some := range slices.Chunk(types, together) {
			var hasty sync.WaitGroup
			for i := range 4 * together {
				hasty.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), 200*time.Microsecond+rand.N(20*time.Millisecond))
					defer cancel()
					if err := nextOf(ctx, gens[i%2], some[i/2%together]); err != nil && class(ctx, err) != "deadline" {
						t.Errorf("%+v: %v", p, err)
					}
				})
			}
			hasty.Wait()
		}
		var longest atomic.Int64
		var patient sync.WaitGroup
		for i, typ := range types {
			patient.Go(func() {
				began := time.Now()
				if err := nextOf(t.Context(), gens[i%2], typ); err != nil {
					t.Errorf("%+v: %v", p, err)
				}
				for took := int64(time.Since(began)); ; {
					if before := longest.Load(); took <= before || longest.CompareAndSwap(before, took) {
						return
					}
				}
			})
		}
		patient.Wait()
		if took := time.Duration(longest.Load()); took > 4*time.Second { // an abandoned lease lasts 8 s
			t.Errorf("%+v: a later caller waited for %v", p, took)
		}
	}
}
