package serial_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

// explanations records what Hooks.Unused is told.
type explanations struct {
	mu  sync.Mutex
	all []serial.Explanation
}

func (e *explanations) hooks() serial.Option {
	return serial.WithHooks(serial.Hooks{Unused: func(_ context.Context, told serial.Explanation) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.all = append(e.all, told)
	}})
}

// flushed returns what a generator has told since the last time: "FIRST-LAST COUNT REASON", and "!" if the numbers are unused.
func (e *explanations) flushed(t *testing.T, gen *serial.Generator) (all []string) {
	t.Helper()
	require.NoError(t, gen.Flush(t.Context()))
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, told := range e.all {
		require.NoError(t, told.Validate())
		require.Equal(t, "serial:"+told.Type, told.Series)
		require.True(t, told.Start.Equal(startOf(gen, told.At)), "%v is not the period of %v", told.Start, told.At)
		unused := map[bool]string{true: "!"}[told.Unused]
		all = append(all, fmt.Sprintf("%s %d-%d %d %s%s", told.Type, told.First, told.Last, told.Count, told.Reason, unused))
	}
	e.all = nil
	return all
}

// A fault does to the next command what a test wants, and then nothing.
type fault struct {
	mu   sync.Mutex
	next func(cmd redis.Cmder, send func() error) error
}

func (f *fault) hook() redis.Hook {
	return around(func(cmd redis.Cmder, send func() error) error {
		if !strings.HasPrefix(cmd.Name(), "eval") {
			return send()
		}
		f.mu.Lock()
		next := f.next
		f.next = nil
		f.mu.Unlock()
		if next == nil {
			return send()
		}
		return next(cmd, send)
	})
}

func (f *fault) set(next func(cmd redis.Cmder, send func() error) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next = next
}

// These are faults of a command: its answer comes after a moment or a second, it is lost, or the command does not arrive.
func inFlight(_ redis.Cmder, send func() error) error {
	time.Sleep(3 * time.Millisecond)
	return send()
}

func late(_ redis.Cmder, send func() error) error {
	err := send()
	time.Sleep(time.Second)
	return err
}

func lose(cmd redis.Cmder, send func() error) error {
	_ = send()
	cmd.SetErr(io.EOF)
	return io.EOF
}

func refuse(cmd redis.Cmder, _ func() error) error {
	err := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	cmd.SetErr(err)
	return err
}

// What was counted and nobody received is told with its reason, and nothing else.
//
// Guarantees: gap-explained.
func TestUnused(t *testing.T) {
	type generator = *serial.Generator
	const most = "9999"
	for name, f := range map[string]func(
		t *testing.T, gen generator, next *fault, brief context.Context,
	) (want []string){
		"nothing": func(t *testing.T, gen generator, _ *fault, _ context.Context) []string {
			_, err := gen.NextN(t.Context(), "IS", 7)
			require.NoError(t, err)
			return nil
		},
		"a caller of many who leaves": func(t *testing.T, gen generator, next *fault, brief context.Context) []string {
			next.set(late)
			require.ErrorIs(t, errOf(gen.NextN(brief, "IS", 5)), context.DeadlineExceeded)
			return []string{"IS 2-6 0 caller left!"}
		},
		"a caller who leaves a batch": func(t *testing.T, gen generator, next *fault, brief context.Context) []string {
			next.set(late)
			require.ErrorIs(t, errOf(gen.Next(brief, "IS")), context.DeadlineExceeded)
			return []string{"IS 2-2 0 caller left!"}
		},
		"one of a batch": func(t *testing.T, gen generator, next *fault, brief context.Context) []string {
			all, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			var wg sync.WaitGroup
			next.set(inFlight)
			wg.Go(func() { require.NoError(t, errOf(gen.Next(all, "IS"))) })
			synctest.Wait()
			next.set(late)
			wg.Go(func() { require.NoError(t, errOf(gen.Next(all, "IS"))) })
			synctest.Wait()
			require.ErrorIs(t, errOf(gen.Next(brief, "IS")), context.DeadlineExceeded)
			wg.Wait()
			return []string{"IS 4-4 0 caller left!"}
		},
		"several types": func(t *testing.T, gen generator, next *fault, brief context.Context) []string {
			require.NoError(t, errOf(gen.Next(t.Context(), "SO")))
			all, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			var wg sync.WaitGroup
			together := func(fault func(cmd redis.Cmder, send func() error) error) {
				next.set(inFlight)
				wg.Go(func() { require.NoError(t, errOf(gen.Next(all, "IS"))) })
				synctest.Wait()
				next.set(fault)
				wg.Go(func() { require.NoError(t, errOf(gen.Next(all, "IS"))) })
				wg.Go(func() { require.NoError(t, errOf(gen.Next(all, "SO"))) })
				synctest.Wait()
			}
			together(lose) // IS 3 and SO 2
			wg.Wait()
			require.NoError(t, errOf(gen.Next(t.Context(), "IS"))) // a quick one, so that calls go one by one again
			together(late)                                         // SO 4
			require.ErrorIs(t, errOf(gen.Next(brief, "SO")), context.DeadlineExceeded)
			wg.Wait()
			return []string{"IS 3-" + most + " 1 answer lost", "SO 2-" + most + " 1 answer lost", "SO 5-5 0 caller left!"}
		},
		"an answer that is lost": func(t *testing.T, gen generator, next *fault, _ context.Context) []string {
			next.set(lose)
			require.NoError(t, errOf(gen.NextN(t.Context(), "IS", 5)))
			return []string{"IS 2-" + most + " 5 answer lost"}
		},
		"a command that is not sent": func(t *testing.T, gen generator, next *fault, _ context.Context) []string {
			next.set(refuse)
			require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
			return nil
		},
		"a hook that panics": func(t *testing.T, gen generator, next *fault, _ context.Context) []string {
			for _, n := range []int{1, 3} {
				next.set(func(_ redis.Cmder, send func() error) error {
					_ = send()
					panic("boom")
				})
				require.PanicsWithValue(t, "boom", func() { _, _ = gen.NextN(t.Context(), "IS", n) })
			}
			return []string{"IS 2-" + most + " 1 answer lost", "IS 2-" + most + " 3 answer lost"}
		},
		"a request that comes again": func(t *testing.T, gen generator, next *fault, brief context.Context) []string {
			next.set(late)
			require.ErrorIs(t, errOf(gen.NextOnce(brief, "IS", "a")), context.DeadlineExceeded)
			next.set(lose)
			require.NoError(t, errOf(gen.NextOnce(t.Context(), "IS", "b")))
			return nil
		},
		"the last attempt of a request": func(t *testing.T, gen generator, next *fault, _ context.Context) []string {
			var again func(cmd redis.Cmder, send func() error) error
			again = func(cmd redis.Cmder, send func() error) error {
				next.set(again)
				return lose(cmd, send)
			}
			next.set(again)
			require.ErrorIs(t, errOf(gen.NextOnce(t.Context(), "IS", "a")), io.EOF)
			next.set(nil)
			return []string{"IS 2-" + most + " 1 answer lost"}
		},
		"a caller who leaves an opening": func(t *testing.T, gen generator, next *fault, brief context.Context) []string {
			next.set(func(cmd redis.Cmder, send func() error) error { // the first take
				next.set(late) // the take under the lock
				return send()
			})
			require.ErrorIs(t, errOf(gen.NextN(brief, "NEW", 3)), context.DeadlineExceeded)
			return []string{"NEW 1-3 0 caller left!"}
		},
		"Raise": func(t *testing.T, gen generator, next *fault, _ context.Context) []string {
			require.NoError(t, gen.Raise(t.Context(), "IS", 41))
			require.NoError(t, gen.Raise(t.Context(), "IS", 41))
			require.NoError(t, gen.Raise(t.Context(), "IS", 20))
			require.NoError(t, gen.Takeover(t.Context(), "IS", 50))
			require.NoError(t, gen.Raise(t.Context(), "NEW", 5))
			return []string{"IS 2-41 0 raised", "IS 42-50 0 raised", "NEW 1-5 0 raised"}
		},
		"Raise whose answer is lost": func(t *testing.T, gen generator, next *fault, _ context.Context) []string {
			next.set(func(cmd redis.Cmder, send func() error) error {
				next.set(lose)
				return send()
			})
			require.NoError(t, gen.Raise(t.Context(), "IS", 41))
			return []string{"IS 2-41 0 raised"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, m *simulation) {
				told, next := &explanations{}, &fault{}
				gen := newGenerator(t, m.client(next.hook()), serial.WithLocation(time.UTC), told.hooks())
				require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
				brief, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				want := f(t, gen, next, brief)
				require.ElementsMatch(t, want, told.flushed(t, gen))
			})
		})
	}
}

// A late answer raises the high-water mark: a counter that falls behind it is lost.
func TestLateAnswerRaisesHighWaterMark(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		next := &fault{}
		gen := newGenerator(t, m.client(next.hook()), serial.WithLocation(time.UTC))
		require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
		next.set(late)
		brief, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		require.ErrorIs(t, errOf(gen.NextN(brief, "IS", 5)), context.DeadlineExceeded)
		time.Sleep(2 * time.Second)
		counter := "serial:{IS}:" + today(time.UTC)
		require.NoError(t, m.Set(counter, "5"))
		require.ErrorIs(t, errOf(gen.Next(t.Context(), "IS")), serial.ErrCounterLost)
	})
}

// A floor explains nothing, and a block what it skips.
//
// Guarantees: gap-explained.
func TestBlockSkipped(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		told, next, ledger := &explanations{}, &fault{}, &spyLedger{}
		gen := newGenerator(t, m.client(next.hook()), serial.WithLocation(time.UTC), serial.WithLedger(ledger, 10),
			told.hooks(), fixedFloor(3))
		number, err := gen.Next(t.Context(), "IS")
		require.NoError(t, err)
		require.Equal(t, "IS"+today(time.UTC)+"0004", number)
		require.Empty(t, told.flushed(t, gen))
		// A block of another process that never came is skipped.
		r := ledger.reservations()[0]
		r.Above = 13
		_, err = ledger.Reserve(t.Context(), r)
		require.NoError(t, err)
		_, err = gen.NextN(t.Context(), "IS", 9)
		require.NoError(t, err)
		require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
		require.Equal(t, []string{"IS 14-23 0 block skipped"}, told.flushed(t, gen))
		// The counter is lost: at most a block above the mark, 24.
		m.FlushAll()
		require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
		require.Equal(t, []string{"IS 25-33 9 block skipped"}, told.flushed(t, gen))
		// It is lost again, and Redis forgets who may install a block while one is set aside: that is burned, beside the rest of the last
		// one, and another one is set aside above it.
		m.FlushAll()
		var forget sync.Once
		ledger.before(func(serial.Reservation) error { forget.Do(func() { m.HDel("serial:{IS}", "claim") }); return nil })
		requireResult(t, "IS"+today(time.UTC)+"0054")(gen.Next(t.Context(), "IS"))
		require.Equal(t, []string{"IS 44-53 0 block skipped", "IS 35-53 10 block skipped"}, told.flushed(t, gen))
	})
}

func TestFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := simulate(t)
		next, stop := &fault{}, make(chan struct{})
		var told []serial.Explanation
		gen := newGenerator(t, m.client(next.hook()), serial.WithLocation(time.UTC), serial.WithHooks(serial.Hooks{
			Unused: func(ctx context.Context, e serial.Explanation) {
				require.NoError(t, ctx.Err())
				<-stop
				told = append(told, e)
				switch len(told) {
				case 1:
					panic("dropped")
				case 2:
					runtime.Goexit()
				}
			},
		}))
		require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
		require.NoError(t, gen.Flush(t.Context()))
		brief, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		next.set(late)
		require.ErrorIs(t, errOf(gen.Next(brief, "IS")), context.DeadlineExceeded)
		within, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.ErrorIs(t, gen.Flush(within), context.DeadlineExceeded)
		for i := range 3 {
			require.NoError(t, gen.Raise(t.Context(), "IS", int64(10+i)))
		}
		close(stop)
		require.NoError(t, gen.Flush(t.Context()))
		require.Len(t, told, 4)
		require.NoError(t, gen.Flush(within), "nothing is left, so an ended context does no harm")
	})
}

// While a hook is slow, 10,000 explanations wait; then the two oldest that are alike become one, or the newest is dropped.
func TestUnusedWhileTheHookIsSlow(t *testing.T) {
	const waiting = 10_000
	for name, c := range map[string]struct {
		typeOf func(i int) any
		check  func(t *testing.T, told []serial.Explanation)
	}{
		"one type": {func(int) any { return "IS" }, func(t *testing.T, told []serial.Explanation) {
			require.Len(t, told, 1+waiting)
			merged := told[1]
			require.EqualValues(t, []int64{2, 12, 6}, []int64{merged.First, merged.Last, merged.Count})
			require.False(t, merged.Unused)
			for i, e := range told[2:] {
				require.EqualValues(t, []int64{int64(14 + 2*i), 0}, []int64{e.First, e.Count})
			}
		}},
		"a type again": {func(i int) any { return i % (1 + waiting) }, func(t *testing.T, told []serial.Explanation) {
			require.Len(t, told, 1+waiting)
			require.Equal(t, "1", told[1].Type)
			require.EqualValues(t, []int64{2, 2*waiting + 4, 2}, []int64{told[1].First, told[1].Last, told[1].Count})
		}},
		"other types": {func(i int) any { return i }, func(t *testing.T, told []serial.Explanation) {
			require.Len(t, told, 1+waiting)
			require.Equal(t, "caller left", told[0].Reason)
			require.Equal(t, "caller left; 5 other explanations were dropped before, since too many were waiting",
				told[1].Reason)
			require.Equal(t, "caller left", told[2].Reason)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stop := make(chan struct{})
				var told []serial.Explanation
				gen := newGenerator(t, simulate(t).client(), serial.WithHooks(serial.Hooks{
					Unused: func(_ context.Context, e serial.Explanation) {
						<-stop
						told = append(told, e)
					},
				}))
				for i := range 1 + waiting + 5 {
					gen.TellLeft(fmt.Sprint(c.typeOf(i)), int64(2*i), int64(2*i))
					synctest.Wait() // the first is being told
				}
				close(stop)
				require.NoError(t, gen.Flush(t.Context()))
				c.check(t, told)
			})
		})
	}
}

func startOf(gen *serial.Generator, at time.Time) time.Time {
	_, start, _ := gen.Scheme().Period(at)
	return start
}
