package serial_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/race"
	"github.com/dailyserial/serial/internal/redistest/memory"
)

// explanations records what Hooks.Unused receives.
type explanations struct {
	mu  sync.Mutex
	all []serial.Explanation
}

func (e *explanations) hooks() serial.Option {
	return serial.WithHooks(serial.Hooks{Unused: func(_ context.Context, gap serial.Explanation) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.all = append(e.all, gap)
	}})
}

// flushed returns a generator's new reports: "TYPE FIRST-LAST REASON", and "!" if nobody got the numbers, or "?" if the
// reason is only possible.
func (e *explanations) flushed(t *testing.T, gen *serial.Generator) (all []string) {
	t.Helper()
	require.NoError(t, gen.Flush(t.Context()))
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, gap := range e.all {
		require.NoError(t, gap.Validate())
		require.Equal(t, "serial:"+gap.Type, gap.Series)
		require.True(t, gap.Start.Equal(startOf(gen, gap.At)), "%v is not the period of %v", gap.Start, gap.At)
		mark := map[bool]string{true: "!"}[gap.Unused] + map[bool]string{true: "?"}[gap.Possible]
		all = append(all, fmt.Sprintf("%s %d-%d %s%s", gap.Type, gap.First, gap.Last, gap.Reason, mark))
	}
	e.all = nil
	return all
}

// from returns all reports of generators.
func (e *explanations) from(t *testing.T, gens ...*serial.Generator) []serial.Explanation {
	t.Helper()
	for _, gen := range gens {
		require.NoError(t, gen.Flush(t.Context()))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.all)
}

// A fault affects the next command as a test wants, and no other.
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

// These faults affect a command: its answer comes after a moment or a second, or is lost, or the command does not
// arrive.
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

// unsent is the fault of a command that is not sent, though its error does not say so. then is called meanwhile.
func unsent(then func()) func(redis.Cmder, func() error) error {
	return func(cmd redis.Cmder, _ func() error) error {
		then()
		cmd.SetErr(io.EOF)
		return io.EOF
	}
}

// afterOne passes one command, and sets the fault of the next one.
func (f *fault) afterOne(next func(redis.Cmder, func() error) error) {
	f.set(func(_ redis.Cmder, send func() error) error {
		f.set(next)
		return send()
	})
}

func refuse(cmd redis.Cmder, _ func() error) error {
	err := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	cmd.SetErr(err)
	return err
}

// Exactly those numbers that were counted but never received are reported, each with its reason.
//
// Guarantees: gap-explained.
func TestUnused(t *testing.T) {
	type generator = *serial.Generator
	const most, lost1 = "9999", " answer lost: 1 attempt?"
	for name, f := range map[string]func(
		t *testing.T, gen generator, next *fault, brief context.Context,
	) (want []string){
		"nothing": func(t *testing.T, gen generator, _ *fault, _ context.Context) []string {
			_, err := gen.NextN(t.Context(), "IS", 7)
			require.NoError(t, err)
			return nil
		},
		"one of many callers leaves": func(t *testing.T, gen generator, next *fault, brief context.Context) []string {
			next.set(late)
			require.ErrorIs(t, errOf(gen.NextN(brief, "IS", 5)), context.DeadlineExceeded)
			return []string{"IS 2-6 caller left!"}
		},
		"a caller leaves a batch": func(t *testing.T, gen generator, next *fault, brief context.Context) []string {
			next.set(late)
			require.ErrorIs(t, errOf(gen.Next(brief, "IS")), context.DeadlineExceeded)
			return []string{"IS 2-2 caller left!"}
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
			return []string{"IS 4-4 caller left!"}
		},
		"an answer that is lost": func(t *testing.T, gen generator, next *fault, _ context.Context) []string {
			next.set(lose)
			require.NoError(t, errOf(gen.NextN(t.Context(), "IS", 5)))
			return []string{"IS 2-" + most + lost1}
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
				synctest.Wait()
			}
			return []string{"IS 2-" + most + lost1, "IS 2-" + most + lost1}
		},
		"a repeated request": func(t *testing.T, gen generator, next *fault, brief context.Context) []string {
			next.set(late)
			require.ErrorIs(t, errOf(gen.NextOnce(brief, "IS", "a")), context.DeadlineExceeded)
			next.set(lose)
			require.NoError(t, errOf(gen.NextOnce(t.Context(), "IS", "b")))
			return nil
		},
		"a request without any answer": func(t *testing.T, gen generator, next *fault, _ context.Context) []string {
			var again func(cmd redis.Cmder, send func() error) error
			again = func(cmd redis.Cmder, send func() error) error {
				next.set(again)
				return lose(cmd, send)
			}
			next.set(again)
			require.ErrorIs(t, errOf(gen.NextOnce(t.Context(), "IS", "a")), io.EOF)
			next.set(nil)
			return nil // its number is in its own key
		},
		"a caller leaves an opening": func(t *testing.T, gen generator, next *fault, brief context.Context) []string {
			next.afterOne(late) // the take under the lock
			require.ErrorIs(t, errOf(gen.NextN(brief, "NEW", 3)), context.DeadlineExceeded)
			return []string{"NEW 1-3 caller left!"}
		},
		"Raise": func(t *testing.T, gen generator, next *fault, _ context.Context) []string {
			require.NoError(t, gen.Raise(t.Context(), "IS", 41))
			require.NoError(t, gen.Raise(t.Context(), "IS", 41))
			require.NoError(t, gen.Raise(t.Context(), "IS", 20))
			require.NoError(t, gen.Takeover(t.Context(), "IS", 50))
			require.NoError(t, gen.Raise(t.Context(), "NEW", 5))
			return []string{"IS 2-41 raised?", "IS 42-50 raised?", "NEW 1-5 raised?"}
		},
		"Raise whose answer is lost": func(t *testing.T, gen generator, next *fault, _ context.Context) []string {
			next.afterOne(lose)
			require.NoError(t, gen.Raise(t.Context(), "IS", 41))
			return nil
		},
		"Raise that is never sent": func(t *testing.T, gen generator, next *fault, _ context.Context) []string {
			var again func()
			again = func() { next.set(unsent(again)) }
			next.afterOne(unsent(again)) // the take reads the state of the period
			require.ErrorIs(t, gen.Raise(t.Context(), "IS", 41), io.EOF)
			next.set(nil)
			return nil
		},
		"Raise whose answer is late": func(t *testing.T, gen generator, next *fault, brief context.Context) []string {
			next.afterOne(late)
			require.ErrorIs(t, gen.Raise(brief, "IS", 41), context.DeadlineExceeded)
			return []string{"IS 2-41 raised?"}
		},
		"Raise over numbers that others got meanwhile": func(
			t *testing.T, gen generator, next *fault, _ context.Context,
		) []string {
			// the script that would raise it
			next.afterOne(unsent(func() { require.NoError(t, errOf(gen.NextN(t.Context(), "IS", 3))) }))
			require.NoError(t, gen.Raise(t.Context(), "IS", 10))
			return []string{"IS 5-10 raised?"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, m *simulation) {
				reports, next := &explanations{}, &fault{}
				gen := newGenerator(t, m.Client(next.hook()), serial.WithLocation(time.UTC), reports.hooks())
				require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
				brief, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				want := f(t, gen, next, brief)
				require.ElementsMatch(t, want, reports.flushed(t, gen))
			})
		})
	}
}

// The hook hears of a lost answer at once, but once a second for each series and period. Those that come meanwhile are
// merged, and delay no other explanation. Flush waits for no second.
func TestAnswersLostWithinASecond(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		begin, next := time.Now(), &fault{}
		since := func(at time.Time) time.Duration { return at.Sub(begin).Round(100 * time.Millisecond) }
		var mu sync.Mutex // guards these
		var times []time.Time
		var heard []serial.Explanation
		var busy atomic.Int64 // time that the hook needs before it gives up
		generator := func(opts ...serial.Option) *serial.Generator {
			hook := func(ctx context.Context, e serial.Explanation) {
				mu.Lock()
				times, heard = append(times, time.Now()), append(heard, e)
				mu.Unlock()
				if wait := time.Duration(busy.Load()); wait > 0 {
					time.Sleep(wait)
					serial.UnusedFailed(ctx, errBoom)
				}
			}
			return newGenerator(t, m.Client(next.hook()), append(opts, serial.WithLocation(time.UTC),
				serial.WithHooks(serial.Hooks{Unused: hook}))...)
		}
		gen := generator()
		require.NoError(t, errOf(gen.NextN(t.Context(), "IS", 5)))
		require.NoError(t, errOf(gen.NextN(t.Context(), "PO", 5)))
		lost := func(at time.Duration, typ string) {
			t.Helper()
			time.Sleep(at - time.Since(begin))
			next.set(lose)
			require.NoError(t, errOf(gen.Next(t.Context(), typ)))
		}
		requireHeard := func(want ...string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			var got []string
			for i, e := range heard {
				got = append(got, fmt.Sprintf("%v: %s from %d, %s at %v", since(times[i]), e.Type, e.First, e.Reason, since(e.At)))
			}
			require.ElementsMatch(t, want, got)
			times, heard = nil, nil
		}
		const ms = time.Millisecond
		begin = time.Now()
		lost(0, "IS")
		requireHeard("0s: IS from 6, answer lost: 1 attempt at 0s")
		lost(300*ms, "IS")
		lost(600*ms, "IS")
		requireHeard()
		lost(700*ms, "PO")
		require.NoError(t, gen.Raise(t.Context(), "IS", 20))
		requireHeard("700ms: PO from 6, answer lost: 1 attempt at 700ms", "700ms: IS from 12, raised at 700ms")
		time.Sleep(time.Second - time.Since(begin))
		requireHeard("1s: IS from 8, answer lost: 2 attempts at 300ms")
		lost(1900*ms, "IS")
		requireHeard()
		time.Sleep(100 * ms)
		requireHeard("2s: IS from 12, answer lost: 1 attempt at 1.9s")
		lost(9*time.Second, "IS")
		requireHeard("9s: IS from 23, answer lost: 1 attempt at 9s")
		lost(9100*ms, "IS")
		requireHeard()
		require.NoError(t, gen.Flush(t.Context()))
		requireHeard("9.1s: IS from 25, answer lost: 1 attempt at 9.1s")

		// While a reply may still come, more answers may be lost, so Flush waits for it first.
		time.Sleep(19*time.Second - time.Since(begin))
		next.set(late)
		brief, cancel := context.WithTimeout(t.Context(), 100*ms)
		defer cancel()
		require.ErrorIs(t, errOf(gen.Next(brief, "PO")), context.DeadlineExceeded)
		lost(19500*ms, "IS")
		requireHeard("19.5s: IS from 27, answer lost: 1 attempt at 19.5s")
		go func() { _ = gen.Flush(t.Context()) }()
		lost(19600*ms, "IS")
		lost(19700*ms, "IS")
		requireHeard()
		time.Sleep(20100*ms - time.Since(begin))
		requireHeard("20s: PO from 8, caller left at 20s", "20s: IS from 29, answer lost: 2 attempts at 19.6s")

		// A day has its own.
		time.Sleep(24*time.Hour - 200*ms - time.Since(begin))
		begin = time.Now()
		lost(0, "IS")
		lost(300*ms, "IS")
		requireHeard("0s: IS from 33, answer lost: 1 attempt at 0s",
			"300ms: IS from 1, answer lost: 1 attempt at 300ms")

		// While the hook is busy for longer, they are merged all the same. Flush lists those that it has given up.
		begin = time.Now()
		busy.Store(int64(3500 * ms))
		lost(time.Second, "PO")
		for i := range 4 {
			lost(time.Duration(i+2)*time.Second, "IS")
		}
		require.ErrorContains(t, gen.Flush(t.Context()), "serial: Flush: not reported: IS from 2000-01-02T00:00:00Z (answer "+
			"lost): 2 to 9999; PO from 2000-01-02T00:00:00Z (answer lost): 1 to 9999; last error: ")
		requireHeard("1s: PO from 1, answer lost: 1 attempt at 1s", "4.5s: IS from 2, answer lost: 3 attempts at 2s",
			"8s: IS from 8, answer lost: 1 attempt at 5s")

		// Types that share a counter share the second.
		begin = time.Now()
		busy.Store(0)
		gen = generator(serial.WithSharedCounter())
		require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
		for i := range 4 {
			next.set(lose)
			require.NoError(t, errOf(gen.NextN(t.Context(), []string{"IS", "PO"}[i%2], 1+i/2)))
			synctest.Wait()
		}
		require.NoError(t, gen.Flush(t.Context()))
		requireHeard("0s:  from 2, answer lost: 1 attempt at 0s", "0s:  from 4, answer lost: 3 attempts at 0s")
	})
}

// A late answer raises the high-water mark: a counter that falls behind it is lost.
func TestLateAnswerRaisesHighWaterMark(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		next := &fault{}
		gen := newGenerator(t, m.Client(next.hook()), serial.WithLocation(time.UTC))
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

// A floor explains nothing; a block explains the numbers that it skips.
//
// Guarantees: gap-explained.
func TestBlockSkipped(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		reports, next, ledger := &explanations{}, &fault{}, &spyLedger{}
		gen := newGenerator(t, m.Client(next.hook()), serial.WithLocation(time.UTC), serial.WithLedger(ledger, 10),
			reports.hooks(), fixedFloor(3))
		number, err := gen.Next(t.Context(), "IS")
		require.NoError(t, err)
		require.Equal(t, "IS"+today(time.UTC)+"0004", number)
		require.Empty(t, reports.flushed(t, gen))
		// A block of another process that never came is skipped.
		r := ledger.reservations()[0]
		r.Above = 13
		_, err = ledger.Reserve(t.Context(), r)
		require.NoError(t, err)
		_, err = gen.NextN(t.Context(), "IS", 9)
		require.NoError(t, err)
		require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
		require.Equal(t, []string{"IS 14-23 block skipped?"}, reports.flushed(t, gen))
		// The counter is lost, so nobody knows what was skipped.
		m.FlushAll()
		require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
		require.Empty(t, reports.flushed(t, gen))
		// It is lost again, and Redis forgets the lock, too, while a block is reserved. Another process opens the period
		// meanwhile, so the block is burned.
		m.FlushAll()
		other := newGenerator(t, m.Client(), serial.WithLocation(time.UTC), serial.WithLedger(ledger, 10))
		var forgot atomic.Bool
		ledger.before(func(serial.Reservation) error {
			if forgot.CompareAndSwap(false, true) {
				m.FlushAll()
				requireResult(t, "IS"+today(time.UTC)+"0044")(other.Next(t.Context(), "IS"))
			}
			return nil
		})
		requireResult(t, "IS"+today(time.UTC)+"0045")(gen.Next(t.Context(), "IS"))
		require.Equal(t, []string{"IS 54-63 block burned!"}, reports.flushed(t, gen))
	})
}

// Numbers that replicas did not confirm are certainly unused only if a ledger prevents reissuing them. A request's
// number is in its own key.
//
// Guarantees: gap-explained.
func TestNotReplicatedExplained(t *testing.T) {
	for mark, opts := range map[string][]serial.Option{"?": nil, "!": {serial.WithLedger(&spyLedger{}, 100)}} {
		inBubble(t, func(t *testing.T, m *simulation) { // which has no replicas
			reports := &explanations{}
			gen := newGenerator(t, m.Client(), append(opts, serial.WithLocation(time.UTC), reports.hooks(), confirmedBy(1))...)
			require.ErrorIs(t, errOf(gen.NextN(t.Context(), "IS", 3)), serial.ErrNotReplicated)
			require.ErrorIs(t, errOf(gen.Next(t.Context(), "IS")), serial.ErrNotReplicated)
			require.ErrorIs(t, errOf(gen.NextOnce(t.Context(), "IS", "a")), serial.ErrNotReplicated)
			require.Equal(t, []string{"IS 1-3 not replicated" + mark, "IS 4-4 not replicated" + mark}, reports.flushed(t, gen))
		})
	}
}

// A block is burned if it is known, and no part of it can be installed any more. It is not if its installation is
// uncertain.
//
// Guarantees: gap-explained.
func TestBlockBurned(t *testing.T) {
	next := func(ctx context.Context, gen *serial.Generator) error { return errOf(gen.Next(ctx, "IS")) }
	once := func(ctx context.Context, gen *serial.Generator) error { return errOf(gen.NextOnce(ctx, "IS", "a")) }
	raise := func(ctx context.Context, gen *serial.Generator) error { return gen.Raise(ctx, "IS", 3) }
	refuseLate := func(cmd redis.Cmder, send func() error) error {
		time.Sleep(lockExpiry)
		return refuse(cmd, send)
	}
	arriveLate := func(_ redis.Cmder, send func() error) error {
		time.Sleep(20 * time.Second) // longer than its call
		return send()
	}
	for name, row := range map[string]struct {
		open   func(cmd redis.Cmder, send func() error) error // fault of the first open.lua
		always bool                                           // it affects all of them
		sleep  time.Duration                                  // the ledger's time for a block
		floor  int64
		call   func(ctx context.Context, gen *serial.Generator) error // next if nil
		fails  bool
		want   []string
	}{
		"an open that is not sent at first": {open: refuse},
		"an open that is not sent in time":  {open: refuseLate, fails: true, want: []string{"IS 1-10 block burned!"}},
		"an open that is not sent": {open: refuse, always: true, fails: true,
			want: []string{"IS 1-10 block burned!"}},
		"an open whose answer is lost": {open: lose, fails: true,
			want: []string{"IS 1-9999 answer lost: 1 attempt?"}},
		"an open whose answer is late": {open: late},
		"an open for more than is left": {floor: 9998, call: func(ctx context.Context, gen *serial.Generator) error {
			require.ErrorIs(t, errOf(gen.NextN(ctx, "IS", 2)), serial.ErrExhausted)
			return next(ctx, gen)
		}},
		"a ledger that answers after its time":    {sleep: time.Minute, fails: true, want: []string{"IS 1-10 block burned!"}},
		"an operator's open whose answer is lost": {open: lose, call: raise, fails: true},
		"an operator's open that arrives late": {
			open: arriveLate, call: raise, fails: true, want: []string{"IS 1-13 block burned!"}},
		"a request's open that arrives late": {
			open: arriveLate, call: once, fails: true, want: []string{"IS 1-10 block burned!"}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, m *simulation) {
				reports, ledger := &explanations{}, &spyLedger{}
				var opened sync.Once
				armed := false
				hook := hook(func(process redis.ProcessHook) redis.ProcessHook {
					return func(ctx context.Context, cmd redis.Cmder) error {
						// A command in flight arrives, even after its time limit.
						send := func() error { return process(context.WithoutCancel(ctx), cmd) }
						if !armed || !strings.HasPrefix(cmd.Name(), "eval") {
							return send()
						}
						fails := row.always
						if isOpen(cmd) && row.open != nil {
							if opened.Do(func() { fails = true }); fails {
								return row.open(cmd, send)
							}
						}
						return send()
					}
				})
				gen := newGenerator(t, m.Client(hook), serial.WithLocation(time.UTC), serial.WithLedger(ledger, 10),
					reports.hooks(),
					fixedFloor(row.floor))
				require.NoError(t, errOf(gen.Next(t.Context(), "SO"))) // the server knows the scripts
				armed = true
				ledger.before(func(serial.Reservation) error { time.Sleep(row.sleep); return nil })
				if row.call == nil {
					row.call = next
				}
				err := row.call(t.Context(), gen)
				require.Equal(t, row.fails, err != nil, err)
				require.ElementsMatch(t, row.want, reports.flushed(t, gen))
			})
		})
	}
}

// A deleted document stays unexplained, whatever this package has reported: a possible reason is listed, but excuses
// nothing.
//
// Guarantees: deletion-unexplained.
func TestDeletedDocument(t *testing.T) {
	type scene struct {
		*simulation
		t      *testing.T
		gen    *serial.Generator // affected by next
		next   *fault
		other  *serial.Generator // in another process
		stored []string
	}
	// issue has a generator issue numbers up to last, which are stored.
	issue := func(s *scene, gen *serial.Generator, n int, last int64) {
		numbers, err := gen.NextN(s.t.Context(), "IS", n)
		require.NoError(s.t, err)
		require.Equal(s.t, last, numbers[n-1].Seq)
		s.stored = append(s.stored, texts(numbers)...)
	}
	// restore sets the counter back to the value in a backup, along with its copy in the record.
	restore := func(s *scene, seq int) {
		memory.AddReplicationID(s.Miniredis)() // as a restart does
		require.NoError(s.t, s.Client().Set(s.t.Context(), "serial:{IS}:"+today(time.UTC), seq, redis.KeepTTL).Err())
		s.HSet("serial:{IS}", "counterCopy", fmt.Sprint(seq))
	}
	for name, row := range map[string]struct {
		block       int64 // of a ledger, 0 for none
		happens     func(s *scene)
		deleted     int
		unexplained []serial.Range
		possible    []string
	}{
		"Raise is never sent": {0, func(s *scene) {
			issue(s, s.gen, 5, 5)
			var again func()
			again = func() { s.next.set(unsent(again)) }
			s.next.afterOne(unsent(again))
			require.ErrorIs(s.t, s.gen.Raise(s.t.Context(), "IS", 10), io.EOF)
			s.next.set(nil)
			issue(s, s.gen, 6, 11)
		}, 8, []serial.Range{{First: 8, Last: 8}}, nil},
		"Raise is sent at the second attempt": {0, func(s *scene) {
			issue(s, s.gen, 5, 5)
			s.next.afterOne(unsent(func() { issue(s, s.gen, 3, 8) }))
			require.NoError(s.t, s.gen.Raise(s.t.Context(), "IS", 10))
			issue(s, s.gen, 1, 11)
		}, 7, []serial.Range{{First: 7, Last: 7}, {First: 9, Last: 10}}, []string{"9-10 raised"}},
		"Raise after a restored backup": {0, func(s *scene) {
			issue(s, s.gen, 10, 10)
			restore(s, 5)
			require.ErrorIs(s.t, errOf(s.gen.Next(s.t.Context(), "IS")), serial.ErrCounterLost)
			require.NoError(s.t, s.other.Raise(s.t.Context(), "IS", 10))
			issue(s, s.gen, 1, 11)
		}, 7, []serial.Range{{First: 7, Last: 7}}, []string{"6-10 raised"}},
		"a ledger's block after a restored backup": {100, func(s *scene) {
			issue(s, s.gen, 57, 57)
			restore(s, 40)
			issue(s, s.other, 1, 101)
		}, 41, []serial.Range{{First: 41, Last: 41}, {First: 58, Last: 100}}, []string{"41-100 block skipped"}},
	} {
		runInBubble(t, name, func(t *testing.T, m *simulation) {
			s, reports := &scene{simulation: m, t: t, next: &fault{}}, &explanations{}
			opts := append(ledgerIf(row.block > 0, row.block), serial.WithLocation(time.UTC), reports.hooks())
			s.gen, s.other = newGenerator(t, m.Client(s.next.hook()), opts...), newGenerator(t, m.Client(), opts...)
			row.happens(s)
			all := reports.from(t, s.gen, s.other)
			r, err := s.gen.Audit(t.Context(), "IS", serial.At(time.Now()), used(s.stored...), given(all...))
			require.NoError(t, err)
			require.Zero(t, r.ContradictedCount+r.ExplainedCount)
			deleted := fmt.Sprintf("IS%s%04d", today(time.UTC), row.deleted)
			s.stored = slices.DeleteFunc(s.stored, func(n string) bool { return n == deleted })
			r, err = s.gen.Audit(t.Context(), "IS", serial.At(time.Now()), used(s.stored...), given(all...))
			require.NoError(t, err)
			require.Equal(t, row.unexplained, r.Unexplained)
			require.Empty(t, r.Explained)
			require.False(t, r.Clean())
			var possible []string
			for _, e := range r.Possible {
				possible = append(possible, fmt.Sprintf("%d-%d %s", e.First, e.Last, e.Reason))
			}
			require.Equal(t, row.possible, possible)
		})
	}
}

// A server that hangs for a while leaves few possible reasons behind, and they excuse no deletion.
//
// Guarantees: deletion-unexplained.
func TestDeletedDocumentsAfterAStall(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		const pause, within = 3 * time.Second, 200 * time.Millisecond
		var network line
		reports := &explanations{}
		rdb := network.client(m, within)
		gen := newGenerator(t, rdb, serial.WithLocation(time.UTC), reports.hooks())
		stored, err := textsOf(gen.NextN(t.Context(), "IS", 5))
		require.NoError(t, err)
		var conns []*redis.Conn // one for each attempt: while the server hangs, no new one is made
		for range 20 {
			conns = append(conns, rdb.Conn())
			require.NoError(t, conns[len(conns)-1].Ping(t.Context()).Err())
		}
		for _, conn := range conns {
			require.NoError(t, conn.Close())
		}

		var mu sync.Mutex
		var wg sync.WaitGroup
		began := time.Now()
		network.slow(pause)
		time.AfterFunc(pause, func() { network.slow(0) })
		for range 50 {
			wg.Go(func() {
				for time.Since(began) < pause {
					brief, cancel := context.WithTimeout(t.Context(), within)
					number, err := gen.Next(brief, "IS")
					cancel()
					if mu.Lock(); err == nil {
						stored = append(stored, number)
					}
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		all := reports.from(t, gen)
		took := time.Since(began)
		documents, err := textsOf(gen.NextN(t.Context(), "IS", 200))
		require.NoError(t, err)
		stored = append(stored, documents...)

		audit := func(stored []string) serial.Report {
			r, err := gen.Audit(t.Context(), "IS", serial.At(time.Now()), used(stored...), given(all...))
			require.NoError(t, err)
			require.Zero(t, r.ContradictedCount)
			return r
		}
		before := audit(stored) // clean, unless an answer was lost at the very end of the pause
		after := audit(stored[:len(stored)-199])
		require.Equal(t, before.UnexplainedCount+199, after.UnexplainedCount)
		require.Equal(t, before.Explained, after.Explained)
		require.False(t, after.Clean())
		attempts, merged := 0, 0
		for _, e := range after.Possible {
			var n int
			_, err := fmt.Sscanf(e.Reason, serial.AnswerLost+": %d attempt", &n)
			require.NoError(t, err, e.Reason)
			attempts, merged = attempts+n, merged+1
		}
		require.Greater(t, attempts, 10)
		require.LessOrEqual(t, merged, 2+int(took/time.Second), "one for each second, and one for Flush")
		time.Sleep(time.Minute) // for abandoned replies
	})
}

// A field out of bounds causes an error that names it.
func TestValidateExplanation(t *testing.T) {
	t.Parallel()
	fine := serial.Explanation{Series: "serial:IS", Type: "IS", Start: time.Unix(0, 0), First: 1,
		Last:   999_999_999_999_999,
		Reason: "annul\u00e9e le 5\u202fmai\u00a0: \u5e9f e\u0301 €", By: "Zo\u00eb\u00a0B.", At: time.Unix(0, 0)}
	require.NoError(t, fine.Validate())
	for says, change := range map[string]func(e *serial.Explanation){
		"sequences must be 1 to 999999999999999": func(e *serial.Explanation) { e.First = 0 },
		"in order":                               func(e *serial.Explanation) { e.First, e.Last = 3, 2 },
		"999999999999999":                        func(e *serial.Explanation) { e.Last++ },
		"At is zero":                             func(e *serial.Explanation) { e.At = time.Time{} },
		"Unused and Possible":                    func(e *serial.Explanation) { e.Unused, e.Possible = true, true },
		"Reason: 0 bytes; want 1":                func(e *serial.Explanation) { e.Reason = "" },
		"Reason: 501 bytes":                      func(e *serial.Explanation) { e.Reason = strings.Repeat("x", 501) },
		"Reason: not valid UTF-8":                func(e *serial.Explanation) { e.Reason = "\xff" },
		`Reason: it has '\n'`:                    func(e *serial.Explanation) { e.Reason = "a\nb" },
		`Reason: it has '\u202e'`:                func(e *serial.Explanation) { e.Reason = "a\u202eb" },
		`Reason: it has '\u2028'`:                func(e *serial.Explanation) { e.Reason = "a\u2028b" },
		"By: 101 bytes; want 0":                  func(e *serial.Explanation) { e.By = strings.Repeat("x", 101) },
		`By: it has '\u200b'; want`:              func(e *serial.Explanation) { e.By = "a\u200bb" },
	} {
		e := fine
		change(&e)
		require.ErrorContains(t, e.Validate(), says)
	}
}

// Joiners stand between letters or symbols, which may have marks, and nowhere else.
func TestJoinersInExplanations(t *testing.T) {
	t.Parallel()
	e := serial.Explanation{Series: "serial:IS", Type: "IS", First: 1, Last: 1, Reason: "void", At: time.Unix(0, 0)}
	for text, ok := range map[string]bool{
		"نمی\u200cخواهم": true, "ک\u200cک\u200cک": true, // Persian
		"क्\u200dष": true, "क्\u200cष": true, // Hindi, with a mark before the joiner
		"👩\u200d🚀": true, "👩🏽\u200d🚀": true, "❤\ufe0f\u200d🔥": true, "👩\u200d❤\ufe0f\u200d👩": true, "$\u200da": true,
		"\u200cخ": false, "خ\u200c": false, "\u200d": false, "خ\u200c\u200cخ": false, "خ\u200c\u200dخ": false,
		"1\u200c2": false, "1\u200cخ": false, "خ\u200c1": false, "٣\u200cخ": false, "1\u0301\u200ca": false,
		"a \u200cb": false, "a\u200c b": false, "a.\u200cb": false, "a\u200c\u0301b": false, "\u0301\u200cb": false,
		"a\u200bb": false, "a\u2060b": false, "a\ufeffb": false, "a\u00adb": false,
	} {
		reason, by := e, e
		reason.Reason, by.By = text, text
		for field, err := range map[string]error{"Reason: ": reason.Validate(), "By: ": by.Validate()} {
			if ok {
				require.NoError(t, err, "%+q", text)
				continue
			}
			require.ErrorContains(t, err, field+"it has '\\u", "%+q", text)
			if strings.ContainsAny(text, "\u200c\u200d") {
				require.ErrorContains(t, err, "; want it only between two letters or symbols", "%+q", text)
			}
		}
	}
}

func TestFlush(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		m := simulate(t)
		next, stop := &fault{}, make(chan struct{})
		var reports []serial.Explanation
		gen := newGenerator(t, m.Client(next.hook()), serial.WithLocation(time.UTC), serial.WithHooks(serial.Hooks{
			Unused: func(ctx context.Context, e serial.Explanation) {
				require.NoError(t, ctx.Err())
				<-stop
				reports = append(reports, e)
				switch len(reports) {
				case 1:
					panic("dropped")
				case 2:
					serial.UnusedFailed(ctx, errBoom)
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
		require.ErrorIs(t, gen.Flush(t.Context()), errBoom, "the second one is lost")
		require.Len(t, reports, 4)
		require.NoError(t, gen.Flush(within), "nothing is left, so an ended context does no harm")
	})
}

// The error of Flush lists what was not reported, and why: what waits while a hook tries again, and what a hook has given
// up since the last Flush. The caller's context ends only where it matches.
func TestFlushListsTheRest(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		m := simulate(t)
		away := fmt.Errorf("the register is away: %w", context.DeadlineExceeded)
		tries, recovers := make(chan error), errors.New("unused") // of the hook, for each explanation
		gen := newGenerator(t, m.Client(), serial.WithLocation(time.UTC), serial.WithHooks(serial.Hooks{
			Unused: func(ctx context.Context, e serial.Explanation) {
				serial.UnusedFailed(ctx, away)
				for err := range tries {
					if serial.UnusedFailed(ctx, err); err == nil || err == recovers {
						return
					}
				}
			},
		}), serial.WithHooks(serial.Hooks{Unused: func(context.Context, serial.Explanation) {}}))
		raise := func(typ string, seqs ...int64) {
			for _, seq := range seqs {
				require.NoError(t, gen.Raise(t.Context(), typ, seq))
			}
		}
		flush := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			return gen.Flush(ctx)
		}
		raise("IS", 3, 5)
		raise("PO", 1)
		requireResult(t, "IS200001010006")(gen.Next(t.Context(), "IS"))
		raise("IS", 7)
		err := flush()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.EqualError(t, err, "serial: Flush: gave up waiting until all unused numbers are reported: context deadline "+
			"exceeded; not reported: IS from 2000-01-01T00:00:00Z (raised): 1 to 5, 7; PO from 2000-01-01T00:00:00Z "+
			"(raised): 1; last error: the register is away: context deadline exceeded")
		tries <- nil
		for range 3 {
			tries <- recovers // it gives up
		}
		err = flush()
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, recovers)
		require.EqualError(t, err, "serial: Flush: not reported: IS from 2000-01-01T00:00:00Z (raised): 4 to 5, 7; "+
			"PO from 2000-01-01T00:00:00Z (raised): 1; last error: unused")
		require.NoError(t, flush(), "Flush has listed them")
		serial.UnusedFailed(t.Context(), away) // not the context of a hook
		require.NoError(t, flush())
		close(tries)
	})
}

// While a hook is slow, 10,000 explanations may wait. Then a new one is merged into the newest one with its type and
// reason that is adjacent, or into any such one if it is only possible; otherwise it is dropped.
func TestUnusedWhileTheHookIsSlow(t *testing.T) {
	const waiting = 10_000
	inBubble(t, func(t *testing.T, m *simulation) {
		stop := make(chan struct{})
		var reports []serial.Explanation
		var reply atomic.Int64 // to scripts of IS, which do not reach the server
		gen := newGenerator(t, m.Client(around(func(cmd redis.Cmder, send func() error) error {
			if reply.Load() == 0 || !strings.Contains(fmt.Sprint(cmd.Args()...), "{IS}") {
				return send()
			}
			cmd.(interface{ SetVal(any) }).SetVal(reply.Load())
			time.Sleep(time.Second)
			return nil
		})), serial.WithLocation(time.UTC), serial.WithTemplate("{type}{date:yyyyMMdd}{seq:9}"),
			serial.WithHooks(serial.Hooks{Unused: func(_ context.Context, e serial.Explanation) {
				<-stop
				reports = append(reports, e)
			}}))
		leave := func(seq int64) { // before IS gets seq
			reply.Store(seq)
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			require.ErrorIs(t, errOf(gen.Next(ctx, "IS")), context.DeadlineExceeded)
			time.Sleep(time.Second)
		}
		require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
		leave(5) // this one is being reported
		require.NoError(t, gen.Raise(t.Context(), "PO", 10))
		for i := range int64(waiting - 1) {
			leave(10*i + 10)
		}
		leave(10*waiting - 10 + 1)
		require.NoError(t, errOf(gen.Next(t.Context(), "PO")))
		require.NoError(t, gen.Raise(t.Context(), "PO", 30))
		require.NoError(t, gen.Raise(t.Context(), "QR", 1))
		brief, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		reply.Store(10 * waiting)
		require.ErrorIs(t, errOf(gen.Next(brief, "IS")), context.DeadlineExceeded)
		err := gen.Flush(brief)
		require.ErrorContains(t, err, ", 10, 20, 30, ")
		require.ErrorContains(t, err, "99990 to 99991; PO from 2000-01-01T00:00:00Z (raised): 1 to 30; explanations "+
			"dropped, since too many were waiting: 1; numbers of requests that may still get a reply: 1")
		time.Sleep(time.Second)
		close(stop)
		require.NoError(t, gen.Flush(t.Context()))

		var got []string
		for _, i := range []int{0, 1, 2, waiting} {
			e := reports[i]
			got = append(got, fmt.Sprintf("%s %d-%d %s, unused %v, possible %v", e.Type, e.First, e.Last, e.Reason, e.Unused,
				e.Possible))
		}
		require.Equal(t, []string{
			"IS 5-5 caller left, unused true, possible false",
			"PO 1-30 raised; 2 other explanations were dropped before, since too many were waiting, unused false, possible true",
			"IS 10-10 caller left, unused true, possible false",
			"IS 99990-99991 caller left, unused true, possible false",
		}, got)
		require.Len(t, reports, 1+waiting)
	})
}

func startOf(gen *serial.Generator, at time.Time) time.Time {
	_, start, _ := gen.Scheme().Period(serial.At(at))
	return start
}

// An explanation from numbers fits an audit of their period, in every zone; what does not fit is an error.
func TestSchemeExplanation(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"America/Sao_Paulo", "Asia/Kolkata", "Pacific/Apia"} {
		for _, dayStart := range []time.Duration{0, 4 * time.Hour} {
			s := newScheme(t, serial.WithLocation(location(t, zone)), serial.WithDayStart(dayStart),
				serial.WithPeriod(serial.PerMonth), serial.WithTemplate("{type}{date:yyyyMMdd}{seq}"))
			number := func(typ string, month time.Month, seq int64) serial.Number {
				n, err := s.Number(typ, serial.On(2026, month, 1), seq)
				require.NoError(t, err)
				return n
			}
			first, last := number("IS", time.August, 2), number("IS", time.August, 3)
			last.Date = time.Time{}
			before := time.Now()
			e, err := s.Explanation(first, serial.Number{Type: "IS", Start: last.Start, Seq: 3}, "void", "Ada")
			require.NoError(t, err)
			require.True(t, !e.At.Before(before.Round(0)) && !e.At.After(time.Now()))
			require.Equal(t, serial.Explanation{Series: "serial:IS", Type: "IS", Start: first.Start, First: 2, Last: 3,
				Reason: "void", By: "Ada", At: e.At}, e)
			r, err := s.Audit("IS", serial.On(2026, time.August, 31), 4, used(number("IS", time.August, 1).String(),
				number("IS", time.August, 4).String()), given(e))
			require.NoError(t, err)
			require.True(t, r.Clean())
			// Midnight UTC is not the beginning of a month here: it is within this one or another.
			e.Start = time.Date(2026, 8, 1, 0, 0, 0, 0, time.UTC)
			_, err = s.Audit("IS", serial.At(e.Start), 4, used(), given(e))
			require.ErrorContains(t, err, "Start 2026-08-01T00:00:00Z lies in the period 2026-0")
			for says, err := range map[string]error{
				"a Number is zero":       errOf(s.Explanation(first, serial.Number{}, "void", "Ada")),
				"want numbers of one se": errOf(s.Explanation(first, number("RE", time.August, 3), "void", "Ada")),
				"want numbers of one pe": errOf(s.Explanation(first, number("IS", time.September, 3), "void", "Ada")),
				"in order":               errOf(s.Explanation(last, first, "void", "Ada")),
				"Reason: 0 bytes":        errOf(s.Explanation(first, last, "", "Ada")),
				"By: ":                   errOf(s.Explanation(first, last, "void", strings.Repeat("A", 101))),
			} {
				require.ErrorContains(t, err, says)
			}
		}
	}
}
