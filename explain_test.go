package serial_test

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	"github.com/dailyserial/serial/internal/redistest/memory"
	"github.com/dailyserial/serial/serialtest"
)

// explanations records the explanations that Hooks.Unused receives.
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

// flushed calls Flush and returns the new reports of a generator in the form "TYPE FIRST-LAST REASON". A "!" follows if
// the numbers were not returned to a caller, and a "?" if the reason is only possible.
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

// from returns the reports of all given generators.
func (e *explanations) from(t *testing.T, gens ...*serial.Generator) []serial.Explanation {
	t.Helper()
	for _, gen := range gens {
		require.NoError(t, gen.Flush(t.Context()))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.all)
}

// A fault affects the next command of a client, and then no other command.
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

// These faults delay the reply to a command by a second, or lose the reply.

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

// unsent returns a fault in which the command is not sent, although its error does not show this. The fault calls then.
func unsent(then func()) func(redis.Cmder, func() error) error {
	return func(cmd redis.Cmder, _ func() error) error {
		then()
		cmd.SetErr(io.EOF)
		return io.EOF
	}
}

// afterOne lets one command pass, and applies a fault to the next one.
func (f *fault) afterOne(next func(redis.Cmder, func() error) error) {
	f.set(func(_ redis.Cmder, send func() error) error {
		f.set(next)
		return send()
	})
}

// Numbers are counted, but not returned to a caller, for each of the possible reasons. Exactly these numbers must be
// reported, each with its reason. The tests of internal/series cover which numbers these are.
//
// Guarantees: gap-explained.
func TestUnused(t *testing.T) {
	type call = func(t *testing.T, m *simulation, gen *serial.Generator, next *fault, brief context.Context)
	ledger := func() []serial.Option { return []serial.Option{serial.WithLedger(new(serialtest.Ledger), 10)} }
	unconfirmed := func(t *testing.T, _ *simulation, gen *serial.Generator, _ *fault, _ context.Context) {
		require.ErrorIs(t, errOf(gen.NextN(t.Context(), "IS", 3)), serial.ErrNotReplicated)
		require.ErrorIs(t, errOf(gen.NextOnce(t.Context(), "IS", "a")), serial.ErrNotReplicated, "it is in its own key")
	}
	for name, row := range map[string]struct {
		opts []serial.Option
		call call
		want []string
	}{
		"a call is canceled": {nil, func(t *testing.T, _ *simulation, gen *serial.Generator, next *fault,
			brief context.Context) {
			require.NoError(t, errOf(gen.NextN(t.Context(), "IS", 2)))
			next.set(late)
			require.ErrorIs(t, errOf(gen.NextN(brief, "IS", 5)), context.DeadlineExceeded)
		}, []string{"IS 3-7 caller left!"}},
		"a call is canceled during an opening": {nil, func(t *testing.T, _ *simulation, gen *serial.Generator, next *fault,
			brief context.Context) {
			require.NoError(t, errOf(gen.Next(t.Context(), "PO"))) // the server knows the script
			next.afterOne(late)                                    // the take under the lock
			require.ErrorIs(t, errOf(gen.NextN(brief, "IS", 3)), context.DeadlineExceeded)
		}, []string{"IS 1-3 caller left!"}},
		"one call of a batch is canceled": {nil, func(t *testing.T, _ *simulation, gen *serial.Generator, next *fault,
			brief context.Context) {
			require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
			all, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			var wg sync.WaitGroup
			for range 2 { // the second one waits for the first, and the third joins it
				next.set(late)
				wg.Go(func() { require.NoError(t, errOf(gen.Next(all, "IS"))) })
				synctest.Wait()
			}
			require.ErrorIs(t, errOf(gen.Next(brief, "IS")), context.DeadlineExceeded)
			wg.Wait()
		}, []string{"IS 4-4 caller left!"}},
		"a reply is lost, and that of a request": {nil, func(
			t *testing.T, _ *simulation, gen *serial.Generator, next *fault, _ context.Context) {
			require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
			next.set(lose)
			require.NoError(t, errOf(gen.NextN(t.Context(), "IS", 5)))
			next.set(lose)
			require.NoError(t, errOf(gen.NextOnce(t.Context(), "IS", "b")))
		}, []string{"IS 2-9999 answer lost: 1 attempt?"}},
		"a hook panics": {nil, func(t *testing.T, _ *simulation, gen *serial.Generator, next *fault, _ context.Context) {
			require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
			next.set(func(_ redis.Cmder, send func() error) error {
				_ = send()
				panic("boom")
			})
			require.PanicsWithValue(t, "boom", func() { _, _ = gen.NextN(t.Context(), "IS", 3) })
		}, []string{"IS 2-9999 answer lost: 1 attempt?"}},
		"Raise": {nil, func(t *testing.T, _ *simulation, gen *serial.Generator, next *fault, _ context.Context) {
			require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
			for _, seq := range []int64{41, 41, 20} {
				require.NoError(t, gen.Raise(t.Context(), "IS", seq))
			}
			require.NoError(t, gen.Takeover(t.Context(), "IS", 50))
			require.NoError(t, gen.Raise(t.Context(), "NEW", 5))
			next.afterOne(lose)
			require.NoError(t, gen.Raise(t.Context(), "NEW", 7), "nothing is known")
		}, []string{"IS 2-41 raised?", "IS 42-50 raised?", "NEW 1-5 raised?"}},
		"not replicated": {options(confirmedBy(1)), unconfirmed, []string{"IS 1-3 not replicated?"}},
		"not replicated, with a ledger": {append(ledger(), confirmedBy(1)), unconfirmed,
			[]string{"IS 1-3 not replicated!"}},
		"a block is skipped": {ledger(), func(t *testing.T, m *simulation, gen *serial.Generator, _ *fault,
			_ context.Context) {
			require.NoError(t, errOf(gen.NextN(t.Context(), "IS", 4)))
			memory.AddReplicationID(m.Miniredis)() // as a restart does
			requireSeq(t, 11)(gen.NextNumber(t.Context(), "IS"))
			m.FlushAll() // nothing is known
			require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
		}, []string{"IS 5-10 block skipped?"}},
		"a block is burned": {options(serial.WithLedger(new(slowLedger), 10)), func(t *testing.T, _ *simulation,
			gen *serial.Generator, _ *fault, _ context.Context) {
			require.Error(t, errOf(gen.Next(t.Context(), "IS")))
		}, []string{"IS 1-10 block burned!"}},
	} {
		runInBubble(t, name, func(t *testing.T, m *simulation) {
			reports, next := &explanations{}, &fault{}
			gen := newGenerator(t, m.Client(next.hook()), append(row.opts, serial.WithLocation(time.UTC), reports.hooks())...)
			brief, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			row.call(t, m, gen, next, brief)
			require.ElementsMatch(t, row.want, reports.flushed(t, gen))
		})
	}
}

// A slowLedger reserves a block so late that the block cannot be installed any more.
type slowLedger struct{ serialtest.Ledger }

func (l *slowLedger) Reserve(_ context.Context, r serial.Reservation) (int64, error) {
	time.Sleep(time.Minute)
	return l.Ledger.Reserve(context.Background(), r)
}

// Replies are lost repeatedly. The hook must be called immediately, but then at most once a second for each series and
// period. Explanations that arrive within this second must be merged, and must not delay any other explanation. Flush
// must not wait until the second has passed.
func TestAnswersLostWithinASecond(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		begin, next := time.Now(), &fault{}
		since := func(at time.Time) time.Duration { return at.Sub(begin).Round(100 * time.Millisecond) }
		var mu sync.Mutex // guards calls
		var calls []string
		var busy atomic.Int64 // time that the hook needs before it gives up
		hooks := serial.WithHooks(serial.Hooks{Unused: func(ctx context.Context, e serial.Explanation) {
			mu.Lock()
			calls = append(calls, fmt.Sprintf("%v: %s from %d, %s at %v", since(time.Now()), e.Type, e.First, e.Reason,
				since(e.At)))
			mu.Unlock()
			if wait := time.Duration(busy.Load()); wait > 0 {
				time.Sleep(wait)
				serial.UnusedFailed(ctx, errBoom)
			}
		}})
		gen := newGenerator(t, m.Client(next.hook()), serial.WithLocation(time.UTC), hooks)
		require.NoError(t, errOf(gen.NextN(t.Context(), "IS", 5)))
		require.NoError(t, errOf(gen.NextN(t.Context(), "PO", 5)))
		lost := func(at time.Duration, typ string) {
			t.Helper()
			time.Sleep(at - time.Since(begin))
			next.set(lose)
			require.NoError(t, errOf(gen.Next(t.Context(), typ)))
		}
		requireCalls := func(want ...string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			require.ElementsMatch(t, want, calls)
			calls = nil
		}
		const ms = time.Millisecond
		begin = time.Now()
		lost(0, "IS")
		requireCalls("0s: IS from 6, answer lost: 1 attempt at 0s")
		lost(300*ms, "IS")
		lost(600*ms, "IS")
		requireCalls()
		lost(700*ms, "PO")
		require.NoError(t, gen.Raise(t.Context(), "IS", 20))
		requireCalls("700ms: PO from 6, answer lost: 1 attempt at 700ms", "700ms: IS from 12, raised at 700ms")
		time.Sleep(time.Second - time.Since(begin))
		requireCalls("1s: IS from 8, answer lost: 2 attempts at 300ms")
		lost(1900*ms, "IS")
		requireCalls()
		require.NoError(t, gen.Flush(t.Context()))
		requireCalls("1.9s: IS from 12, answer lost: 1 attempt at 1.9s")

		// As long as a reply can still arrive, it can also be lost, so Flush must wait for it first.
		time.Sleep(9*time.Second - time.Since(begin))
		next.set(late)
		brief, cancel := context.WithTimeout(t.Context(), 100*ms)
		defer cancel()
		require.ErrorIs(t, errOf(gen.Next(brief, "PO")), context.DeadlineExceeded)
		lost(9500*ms, "IS")
		requireCalls("9.5s: IS from 23, answer lost: 1 attempt at 9.5s")
		go func() { _ = gen.Flush(t.Context()) }()
		lost(9600*ms, "IS")
		requireCalls()
		time.Sleep(10100*ms - time.Since(begin))
		requireCalls("10s: PO from 8, caller left at 10s", "10s: IS from 25, answer lost: 1 attempt at 9.6s")

		// The interval of a second must be separate for another day.
		time.Sleep(24*time.Hour - 200*ms - time.Since(begin))
		begin = time.Now()
		lost(0, "IS")
		lost(300*ms, "IS")
		requireCalls("0s: IS from 27, answer lost: 1 attempt at 0s", "300ms: IS from 1, answer lost: 1 attempt at 300ms")

		// The hook is busy for longer. The explanations must still be merged, and Flush must list those for which the
		// hook has given up.
		busy.Store(int64(3500 * ms))
		for i := range 3 {
			lost(time.Duration(i+2)*time.Second, "IS")
		}
		require.ErrorContains(t, gen.Flush(t.Context()), "serial: Flush: not reported: IS from 2000-01-02T00:00:00Z (answer "+
			"lost): 2 to 9999; latest error: ")
		requireCalls("2s: IS from 2, answer lost: 1 attempt at 2s", "5.5s: IS from 4, answer lost: 2 attempts at 3s")
	})
}

// A document is deleted after this package has reported a possible reason for its number. The report must list the
// reason, but the number must remain unexplained.
//
// Guarantees: deletion-unexplained.
func TestDeletedDocument(t *testing.T) {
	type scene struct {
		*simulation
		gen    *serial.Generator // affected by next
		next   *fault
		other  *serial.Generator // in another process
		stored []string
	}
	// issue lets a generator issue numbers up to last, and stores them.
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
			s, reports := &scene{simulation: m, next: &fault{}}, &explanations{}
			opts := append(ledgerIf(row.block > 0, row.block), serial.WithLocation(time.UTC), reports.hooks())
			s.gen, s.other = newGenerator(t, m.Client(s.next.hook()), opts...), newGenerator(t, m.Client(), opts...)
			row.happens(s)
			all := reports.from(t, s.gen, s.other)
			deleted := fmt.Sprintf("IS%s%04d", today(time.UTC), row.deleted)
			s.stored = slices.DeleteFunc(s.stored, func(n string) bool { return n == deleted })
			r, err := s.gen.Audit(t.Context(), "IS", serial.At(time.Now()), used(s.stored...), given(all...))
			require.NoError(t, err)
			require.Equal(t, row.unexplained, r.Unexplained)
			require.Zero(t, r.ContradictedCount+r.ExplainedCount)
			require.False(t, r.Clean())
			var possible []string
			for _, e := range r.Possible {
				possible = append(possible, fmt.Sprintf("%d-%d %s", e.First, e.Last, e.Reason))
			}
			require.Equal(t, row.possible, possible)
		})
	}
}

// A field of an explanation is out of bounds. The error must contain the name of the field.
func TestValidateExplanation(t *testing.T) {
	fine := serial.Explanation{Series: "serial:IS", Type: "IS", First: 1, Last: 999_999_999_999_999,
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
		`Reason: it contains '\n'`:               func(e *serial.Explanation) { e.Reason = "a\nb" },
		`Reason: it contains '\u202e'`:           func(e *serial.Explanation) { e.Reason = "a\u202eb" },
		"By: 101 bytes; want 0":                  func(e *serial.Explanation) { e.By = strings.Repeat("x", 101) },
		`By: it contains '\u200b'; want`:         func(e *serial.Explanation) { e.By = "a\u200bb" },
	} {
		e := fine
		change(&e)
		require.ErrorContains(t, e.Validate(), says)
	}
}

// Joiners (U+200C and U+200D) must be accepted between letters or symbols, which may have combining marks, and rejected
// everywhere else.
func TestJoinersInExplanations(t *testing.T) {
	for text, ok := range map[string]bool{
		"نمی\u200cخواهم": true, "क्\u200dष": true, "👩🏽\u200d🚀": true, "❤\ufe0f\u200d🔥": true, "$\u200da": true,
		"\u200cخ": false, "خ\u200c": false, "خ\u200c\u200dخ": false, "1\u200cخ": false,
		"خ\u200c1": false, "1\u0301\u200ca": false,
		"a \u200cb": false, "a\u200c b": false, "a\u200c\u0301b": false, "\u0301\u200cb": false,
	} {
		e := serial.Explanation{Series: "serial:IS", First: 1, Last: 1, Reason: text, By: text, At: time.Unix(0, 0)}
		err := e.Validate()
		require.Equal(t, ok, err == nil, "%+q: %v", text, err)
		e.Reason = "void"
		if err := e.Validate(); !ok {
			require.ErrorContains(t, err, "; want it only between two letters or symbols", "%+q", text)
		}
	}
}

// The hook panics or ends its goroutine. Flush must wait until it has ended, and then return.
func TestFlush(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		next, stop := &fault{}, make(chan struct{})
		reports := 0
		gen := newGenerator(t, m.Client(next.hook()), serial.WithLocation(time.UTC), serial.WithHooks(serial.Hooks{
			Unused: func(ctx context.Context, _ serial.Explanation) {
				require.NoError(t, ctx.Err())
				<-stop
				switch reports++; reports {
				case 1:
					panic("dropped")
				case 2:
					serial.UnusedFailed(ctx, errBoom)
					runtime.Goexit()
				}
			},
		}))
		require.NoError(t, gen.Flush(t.Context()))
		brief, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
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
		require.Equal(t, 4, reports)
		require.NoError(t, gen.Flush(within), "nothing is left, so an ended context does no harm")
	})
}

// The hook fails, and Flush returns an error. The error must list the explanations that are still waiting because the
// hook tries again, and those for which the hook has given up since the last Flush, with the cause. It must match an
// error of a context only if the caller's context has ended.
func TestFlushListsTheRest(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
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
			"(raised): 1; latest error: the register is away: context deadline exceeded")
		tries <- nil
		for range 3 {
			tries <- recovers // it gives up
		}
		err = flush()
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, recovers)
		require.EqualError(t, err, "serial: Flush: not reported: IS from 2000-01-01T00:00:00Z (raised): 4 to 5, 7; "+
			"PO from 2000-01-01T00:00:00Z (raised): 1; latest error: unused")
		require.NoError(t, flush(), "Flush has listed them")
		serial.UnusedFailed(t.Context(), away) // not the context of a hook
		require.NoError(t, flush())
		close(tries)
	})
}

// A hook is slow, so explanations have to wait. At most 10,000 must wait, and explanations that cannot be merged with
// them must be dropped. The next explanation and the error of Flush must contain the number of dropped explanations.
func TestUnusedWhileTheHookIsSlow(t *testing.T) {
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
		leave := func(seq int64, wait time.Duration) { // before IS gets seq
			reply.Store(seq)
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			require.ErrorIs(t, errOf(gen.Next(ctx, "IS")), context.DeadlineExceeded)
			time.Sleep(wait)
		}
		require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
		leave(5, time.Second) // this one is being reported
		require.NoError(t, gen.Raise(t.Context(), "PO", 10))
		for i := range int64(9_999) {
			leave(10*i+10, time.Second)
		}
		require.NoError(t, gen.Raise(t.Context(), "PO", 30), "it is merged")
		require.NoError(t, gen.Raise(t.Context(), "QR", 1), "it is dropped")
		leave(100_000, 0)
		brief, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		require.ErrorContains(t, gen.Flush(brief), "99990; PO from 2000-01-01T00:00:00Z (raised): 1 to 30; explanations "+
			"dropped, because too many were waiting: 1; numbers of requests that may still get a reply: 1")
		time.Sleep(time.Second)
		close(stop)
		require.NoError(t, gen.Flush(t.Context()))
		require.Len(t, reports, 1+10_000)
		require.Equal(t, "raised; 2 other explanations were dropped before, because too many were waiting", reports[1].Reason)
	})
}

func startOf(gen *serial.Generator, at time.Time) time.Time {
	_, start, _ := gen.Scheme().Period(serial.At(at))
	return start
}

// An explanation is made from two numbers. An audit of their period must accept it.
func TestSchemeExplanation(t *testing.T) {
	s := newScheme(t, serial.WithLocation(location(t, "America/Sao_Paulo")), serial.WithDayStart(4*time.Hour),
		serial.WithPeriod(serial.PerMonth), serial.WithTemplate("{type}{date:yyyyMMdd}{seq}"))
	first, fourth := must(s.Parse("IS202608010002")), "IS202608010004"
	last := serial.Number{Type: "IS", Start: first.Start, Seq: 3} // as from Peek
	before := time.Now()
	e, err := s.Explanation(first, last, "void", "Ada")
	require.NoError(t, err)
	require.True(t, !e.At.Before(before.Round(0)) && !e.At.After(time.Now()))
	require.Equal(t, serial.Explanation{Series: "serial:IS", Type: "IS", Start: first.Start, First: 2, Last: 3,
		Reason: "void", By: "Ada", At: e.At}, e)
	r, err := s.Audit("IS", serial.On(2026, time.August, 31), 4, used("IS202608010001", fourth), given(e))
	require.NoError(t, err)
	require.True(t, r.Clean())
	for says, err := range map[string]error{
		"a Number is zero":          errOf(s.Explanation(first, serial.Number{}, "void", "Ada")),
		"want numbers of one serie": errOf(s.Explanation(first, must(s.Parse("RE202608010003")), "void", "Ada")),
		"want numbers of one perio": errOf(s.Explanation(first, must(s.Parse("IS202609010003")), "void", "Ada")),
		"in order":                  errOf(s.Explanation(last, first, "void", "Ada")),
		"Reason: 0 bytes":           errOf(s.Explanation(first, last, "", "Ada")),
	} {
		require.ErrorContains(t, err, says)
	}
}
