package serial_test

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"strings"
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

// collecting returns an option whose hook adds each explanation to all. They may be read after Flush.
func collecting(all *[]serial.Explanation) serial.Option {
	return serial.WithHooks(serial.Hooks{Unused: func(_ context.Context, e serial.Explanation) { *all = append(*all, e) }})
}

// described returns explanations in the form "TYPE FIRST-LAST REASON". A "!" follows if the numbers were not returned
// to a caller, and a "?" if the reason is only possible.
func described(explanations []serial.Explanation) string {
	var all []string
	for _, e := range explanations {
		mark := map[bool]string{true: "!"}[e.Unused] + map[bool]string{true: "?"}[e.Possible]
		all = append(all, fmt.Sprintf("%s %d-%d %s%s", e.Type, e.First, e.Last, e.Reason, mark))
	}
	return strings.Join(all, ", ")
}

// A fault affects the next run of a script, and then no other command.
type fault struct {
	next atomic.Pointer[func(cmd redis.Cmder, send func() error) error]
}

func (f *fault) hook() redis.Hook {
	return around(func(cmd redis.Cmder, send func() error) error {
		if strings.HasPrefix(cmd.Name(), "eval") {
			if next := f.next.Swap(nil); next != nil {
				return (*next)(cmd, send)
			}
		}
		return send()
	})
}

func (f *fault) set(next func(cmd redis.Cmder, send func() error) error) { f.next.Store(&next) }

// afterOne lets one run pass, and applies a fault to the next one.
func (f *fault) afterOne(next func(redis.Cmder, func() error) error) {
	f.set(func(_ redis.Cmder, send func() error) error {
		f.set(next)
		return send()
	})
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

// Numbers are counted, but not returned to a caller, for each of the possible reasons. Exactly these numbers must be
// reported, each with its reason. The tests of internal/series cover which numbers these are.
// Guarantees: gap-explained.
func TestUnused(t *testing.T) {
	slow := options(serial.WithLedger(slowLedger{new(serialtest.Ledger)}, 10))
	for _, row := range []struct {
		opts         []serial.Option
		script, want string
	}{
		{nil, "gen next 2, late, leave 5", "IS 3-7 caller left!"},
		{nil, "other, second-late, leave 3", "IS 1-3 caller left!"}, // during an opening
		{nil, "gen next, late-batch, leave 1", "IS 4-4 caller left!"},
		{nil, "gen next, lose, gen next 5, lose, gen once", "IS 2-9999 answer lost: 1 attempt?"},
		{nil, "gen next, panic 3", "IS 2-9999 answer lost: 1 attempt?"},
		{nil, "gen next, gen raise 41, gen raise 41, gen raise 20, gen takeover 50", "IS 2-41 raised?, IS 42-50 raised?"},
		{nil, "gen raise 5, second-lose, gen raise 7", "IS 1-5 raised?"}, // a new type
		{options(confirmedBy(1)), "gen next 3 = not replicated, gen once = not replicated", "IS 1-3 not replicated?"},
		{append(ledgerIf(true, 10), confirmedBy(1)), "gen next 3 = not replicated", "IS 1-3 not replicated!"},
		{ledgerIf(true, 10), "gen next 4, restart, gen next, lose-all, gen next", "IS 5-10 block skipped?"},
		{slow, "burn", "IS 1-10 block burned!"},
	} {
		runInBubble(t, row.script, func(t *testing.T, m *simulation) {
			var reports []serial.Explanation
			next := &fault{}
			gen := newGenerator(t, m.Client(next.hook()), append(row.opts, serial.WithLocation(time.UTC),
				collecting(&reports))...)
			issue := func(ctx context.Context, n string) error {
				return errOf(gen.NextN(ctx, "IS", must(strconv.Atoi(n))))
			}
			steps(t, map[string]*serial.Generator{"gen": gen}, map[string]func(string){
				"burn":        func(string) { require.Error(t, issue(t.Context(), "1")) },
				"other":       func(string) { require.NoError(t, errOf(gen.Next(t.Context(), "PO"))) }, // loads the script
				"late":        func(string) { next.set(late) },
				"lose":        func(string) { next.set(lose) },
				"second-late": func(string) { next.afterOne(late) },
				"second-lose": func(string) { next.afterOne(lose) },
				"restart":     func(string) { memory.AddReplicationID(m.Miniredis)() },
				"lose-all":    func(string) { m.FlushAll() },
				"leave": func(n string) {
					brief, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
					defer cancel()
					require.ErrorIs(t, issue(brief, n), context.DeadlineExceeded)
				},
				"late-batch": func(string) {
					for range 2 { // the second call waits for the first one, and the next call joins it
						next.set(late)
						go func() { require.NoError(t, issue(t.Context(), "1")) }()
						synctest.Wait()
					}
				},
				"panic": func(n string) {
					next.set(func(_ redis.Cmder, send func() error) error {
						_ = send()
						panic("boom")
					})
					require.PanicsWithValue(t, "boom", func() { _ = issue(t.Context(), n) })
				},
			}, row.script)
			require.NoError(t, gen.Flush(t.Context()))
			require.Equal(t, row.want, described(reports))
			for _, e := range reports {
				require.NoError(t, e.Validate())
				require.Equal(t, "serial:IS", e.Series)
				require.True(t, e.Start.Equal(startOf(gen, e.At)), "%v is not the period of %v", e.Start, e.At)
			}
		})
	}
}

// A slowLedger reserves a block so late that the block cannot be installed any more.
type slowLedger struct{ *serialtest.Ledger }

func (l slowLedger) Reserve(_ context.Context, r serial.Reservation) (int64, error) {
	time.Sleep(time.Minute)
	return l.Ledger.Reserve(context.Background(), r)
}

// Replies are lost repeatedly. The hook must be called immediately, but then at most once a second for each series and
// period. Explanations that arrive within this second must be merged, and must not delay any other explanation. Flush
// must not wait until the second has passed. TestPace in internal/backlog covers more cases.
func TestAnswersLostWithinASecond(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		next, begin := &fault{}, time.Now()
		since := func(at time.Time) time.Duration { return at.Sub(begin).Round(100 * time.Millisecond) }
		var calls lines
		gen := newGenerator(t, m.Client(next.hook()), serial.WithLocation(time.UTC), serial.WithHooks(serial.Hooks{
			Unused: func(_ context.Context, e serial.Explanation) {
				calls.add("%v: %s from %d, %s at %v", since(time.Now()), e.Type, e.First, e.Reason, since(e.At))
			}}))
		// at runs steps at a time in milliseconds, and requires the calls of the hook since the steps before.
		at := func(ms time.Duration, script string, want ...string) {
			t.Helper()
			time.Sleep(ms*time.Millisecond - time.Since(begin))
			steps(t, map[string]*serial.Generator{"gen": gen}, map[string]func(string){
				"lose":  func(string) { next.set(lose) },
				"PO":    func(string) { require.NoError(t, errOf(gen.Next(t.Context(), "PO"))) },
				"flush": func(string) { require.NoError(t, gen.Flush(t.Context())) },
			}, script)
			synctest.Wait()
			require.Equal(t, want, calls.take())
		}
		at(0, "PO, gen next 5, lose, gen next", "0s: IS from 6, answer lost: 1 attempt at 0s")
		at(300, "lose, gen next")
		at(600, "lose, gen next")
		at(700, "lose, PO", "700ms: PO from 2, answer lost: 1 attempt at 700ms")
		at(800, "gen raise 20", "800ms: IS from 12, raised at 800ms")
		at(1000, "flush", "1s: IS from 8, answer lost: 2 attempts at 300ms")
		at(1900, "lose, gen next")
		at(1900, "flush", "1.9s: IS from 12, answer lost: 1 attempt at 1.9s")
	})
}

// Redis is restored from a backup, and a counter or a block begins above the numbers that were issued before. Then a
// document is deleted. The report must list the possible reason, but the number must remain unexplained.
// Guarantees: deletion-unexplained.
func TestDeletedDocument(t *testing.T) {
	for possible, ledger := range map[string]bool{"IS 6-100 raised?": false, "IS 6-100 block skipped?": true} {
		runInBubble(t, possible, func(t *testing.T, m *simulation) {
			var reports []serial.Explanation
			opts := append(ledgerIf(ledger, 100), serial.WithLocation(time.UTC))
			gen := newGenerator(t, m.Client(), opts...)
			other := newGenerator(t, m.Client(), append(opts, collecting(&reports))...)
			stored := must(textsOf(gen.NextN(t.Context(), "IS", 10)))
			memory.AddReplicationID(m.Miniredis)() // as a restart does
			require.NoError(t, m.Client().Set(t.Context(), "serial:{IS}:20000101", 5, redis.KeepTTL).Err())
			m.HSet("serial:{IS}", "counterCopy", "5")
			if !ledger {
				require.ErrorIs(t, errOf(gen.Next(t.Context(), "IS")), serial.ErrCounterLost)
				require.NoError(t, other.Raise(t.Context(), "IS", 100))
			}
			requireResult(t, "IS200001010101")(other.Next(t.Context(), "IS"))
			require.NoError(t, other.Flush(t.Context()))
			r := must(gen.Audit(t.Context(), "IS", serial.At(time.Now()),
				used(append(slices.Delete(stored, 6, 7), "IS200001010101")...), given(reports...)))
			require.Equal(t, []serial.Range{{First: 7, Last: 7}, {First: 11, Last: 100}}, r.Unexplained)
			require.Equal(t, possible, described(r.Possible))
			require.Zero(t, r.ContradictedCount+r.ExplainedCount)
			require.False(t, r.Clean())
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

	// Joiners (U+200C and U+200D) must be accepted between letters or symbols, which may have combining marks, and
	// rejected everywhere else.
	for text, ok := range map[string]bool{
		"نمی\u200cخواهم": true, "क्\u200dष": true, "👩🏽\u200d🚀": true, "❤\ufe0f\u200d🔥": true, "$\u200da": true,
		"\u200cخ": false, "خ\u200c": false, "خ\u200c\u200dخ": false, "1\u200cخ": false,
		"خ\u200c1": false, "1\u0301\u200ca": false, "a \u200cb": false, "a\u200c b": false,
		"a\u200c\u0301b": false, "\u0301\u200cb": false,
	} {
		reason, by := fine, fine
		reason.Reason, by.By = text, text
		for _, e := range []serial.Explanation{reason, by} {
			if ok {
				require.NoError(t, e.Validate(), "%+q", text)
			} else {
				require.ErrorContains(t, e.Validate(), "; want it only between two letters or symbols", "%+q", text)
			}
		}
	}
}

// The hook panics or ends its goroutine. Flush must wait until it has ended, and then return.
func TestFlush(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		stop, reports := make(chan struct{}), 0
		gen := newGenerator(t, m.Client(), serial.WithLocation(time.UTC), serial.WithHooks(serial.Hooks{
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
		for _, typ := range []string{"A", "B", "C"} {
			require.NoError(t, gen.Raise(t.Context(), typ, 1))
		}
		within, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.ErrorIs(t, gen.Flush(within), context.DeadlineExceeded)
		close(stop)
		require.ErrorIs(t, gen.Flush(t.Context()), errBoom, "the second one is lost")
		require.Equal(t, 3, reports)
		require.NoError(t, gen.Flush(within), "nothing is left, so an ended context does no harm")
	})
}

// The hook fails, and Flush returns an error. The error must list the explanations that are still waiting because the
// hook tries again, and those for which the hook has given up since the last Flush, with the cause. It must match an
// error of a context only if the caller's context has ended.
func TestFlushListsTheRest(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		away := fmt.Errorf("the register is away: %w", context.DeadlineExceeded)
		tries := make(chan error) // of the hook; for each explanation, it tries again until it succeeds or gives up
		gen := newGenerator(t, m.Client(), serial.WithLocation(time.UTC), serial.WithHooks(serial.Hooks{
			Unused: func(ctx context.Context, e serial.Explanation) {
				serial.UnusedFailed(ctx, away)
				serial.UnusedFailed(ctx, <-tries)
			},
		}), serial.WithHooks(serial.Hooks{Unused: func(context.Context, serial.Explanation) {}}))
		flush := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			return gen.Flush(ctx)
		}
		steps(t, map[string]*serial.Generator{"gen": gen}, map[string]func(string){
			"PO": func(string) { require.NoError(t, gen.Raise(t.Context(), "PO", 1)) },
		}, "gen raise 3, gen raise 5, PO, gen next = 6, gen raise 7")
		err := flush()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.EqualError(t, err, "serial: Flush: gave up waiting until all unused numbers are reported: context deadline "+
			"exceeded; not reported: IS from 2000-01-01T00:00:00Z (raised): 1 to 5, 7; PO from 2000-01-01T00:00:00Z "+
			"(raised): 1; latest error: the register is away: context deadline exceeded")
		for _, err := range []error{nil, errBoom, errBoom, errBoom} {
			tries <- err
		}
		err = flush()
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, errBoom)
		require.EqualError(t, err, "serial: Flush: not reported: IS from 2000-01-01T00:00:00Z (raised): 4 to 5, 7; "+
			"PO from 2000-01-01T00:00:00Z (raised): 1; latest error: boom")
		require.NoError(t, flush(), "Flush has listed them")
		serial.UnusedFailed(t.Context(), away) // not the context of a hook
		require.NoError(t, flush())
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
		leave := func(seq int64) { // before IS gets seq
			reply.Store(seq)
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			require.ErrorIs(t, errOf(gen.Next(ctx, "IS")), context.DeadlineExceeded)
		}
		raise := func(typ string, seq int64) { require.NoError(t, gen.Raise(t.Context(), typ, seq)) }
		require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
		leave(5) // this one is being reported
		time.Sleep(time.Second)
		raise("PO", 10)
		for i := range int64(9_999) {
			leave(10*i + 10)
			time.Sleep(time.Second)
		}
		raise("PO", 30) // it is merged
		raise("QR", 1)  // it is dropped
		leave(100_000)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorContains(t, gen.Flush(ended), "99990; PO from 2000-01-01T00:00:00Z (raised): 1 to 30; explanations "+
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
	first := must(s.Parse("IS202608010002"))
	last := serial.Number{Type: "IS", Start: first.Start, Seq: 3} // as from Peek
	e := must(s.Explanation(first, last, "void", "Ada"))
	require.WithinDuration(t, time.Now(), e.At, time.Minute)
	require.Equal(t, serial.Explanation{Series: "serial:IS", Type: "IS", Start: first.Start, First: 2, Last: 3,
		Reason: "void", By: "Ada", At: e.At}, e)
	used := used("IS202608010001", "IS202608010004")
	require.True(t, must(s.Audit("IS", serial.On(2026, time.August, 31), 4, used, given(e))).Clean())
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
