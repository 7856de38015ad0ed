package serial_test

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/redistest/memory"
)

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
// reported, each with its reason. A "!" follows if they were certainly not returned, and a "?" if the reason is only
// possible. The tests of internal/series cover which numbers these are.
// Guarantees: gap-explained.
func TestUnused(t *testing.T) {
	slow := serial.WithLedger(ledgerFunc(func(context.Context) (int64, error) {
		time.Sleep(time.Minute) // so long that the block cannot be installed any more
		return 0, nil
	}), 10)
	for _, row := range []struct {
		opts         []serial.Option
		script, want string
	}{
		{nil, "gen next 2, late, leave 5", "IS 3-7 caller left!"},
		{nil, "gen next, lose, gen next 5, lose, gen once a", "IS 2-9999 answer lost: 1 attempt?"},
		{nil, "gen next, panic 3", "IS 2-9999 answer lost: 1 attempt?"},
		{nil, "gen next, gen raise 41, gen raise 41, gen raise 20, gen takeover 50", "IS 2-41 raised?, IS 42-50 raised?"},
		{options(confirmedBy(1)), "gen next 3 = unconfirmed, gen once a = unconfirmed", "IS 1-3 not replicated?"},
		{append(ledgerIf(true, 10), confirmedBy(1)), "gen next 3 = unconfirmed", "IS 1-3 not replicated!"},
		{ledgerIf(true, 10), "gen next 4, restart, gen next, lose-all, gen next", "IS 5-10 block skipped?"},
		{options(slow), "burn", "IS 1-10 block burned!"},
	} {
		runInBubble(t, row.script, func(t *testing.T, m *simulation) {
			var reports lines
			next := &fault{}
			gen := newGenerator(t, m.Client(next.hook()), append(row.opts, serial.WithLocation(time.UTC),
				serial.WithHooks(serial.Hooks{Unused: func(_ context.Context, e serial.Explanation) {
					require.NoError(t, e.Validate())
					require.Equal(t, "serial:IS", e.Series)
					require.Equal(t, time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC), e.Start)
					mark := map[bool]string{true: "!"}[e.Unused] + map[bool]string{true: "?"}[e.Possible]
					reports.add("%s %d-%d %s%s", e.Type, e.First, e.Last, e.Reason, mark)
				}}))...)
			issue := func(ctx context.Context, n string) error {
				return errOf(gen.NextN(ctx, "IS", must(strconv.Atoi(n))))
			}
			steps(t, map[string]*serial.Generator{"gen": gen}, map[string]func(string){
				"burn":     func(string) { require.Error(t, issue(t.Context(), "1")) },
				"late":     func(string) { next.set(late) },
				"lose":     func(string) { next.set(lose) },
				"restart":  func(string) { memory.AddReplicationID(m.Miniredis)() },
				"lose-all": func(string) { m.FlushAll() },
				"leave": func(n string) {
					brief, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
					defer cancel()
					require.ErrorIs(t, issue(brief, n), context.DeadlineExceeded)
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
			require.Equal(t, row.want, strings.Join(reports.take(), ", "))
		})
	}
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
		steps(t, map[string]*serial.Generator{"gen": gen}, map[string]func(string){
			"at":    func(d string) { time.Sleep(must(time.ParseDuration(d)) - time.Since(begin)) },
			"lose":  func(string) { next.set(lose) },
			"PO":    func(string) { require.NoError(t, errOf(gen.Next(t.Context(), "PO"))) },
			"flush": func(string) { require.NoError(t, gen.Flush(t.Context())) },
		}, "PO, gen next 5, lose, gen next, at 300ms, lose, gen next, at 600ms, lose, gen next, at 700ms, lose, PO, "+
			"at 800ms, gen raise 20, at 1900ms, lose, gen next, flush")
		require.Equal(t, []string{
			"0s: IS from 6, answer lost: 1 attempt at 0s",
			"700ms: PO from 2, answer lost: 1 attempt at 700ms",
			"800ms: IS from 12, raised at 800ms",
			"1s: IS from 8, answer lost: 2 attempts at 300ms",
			"1.9s: IS from 12, answer lost: 1 attempt at 1.9s",
		}, calls.take())
	})
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
		e := fine
		e.Reason = text
		if ok {
			require.NoError(t, e.Validate(), "%+q", text)
		} else {
			require.ErrorContains(t, e.Validate(), "; want it only between two letters or symbols", "%+q", text)
		}
	}
}

// The hook fails, and then panics or ends its goroutine. Flush must wait for the hook. The error of Flush must list the
// explanations that are still waiting because the hook tries again, and those for which the hook has given up since the
// last Flush, with the cause. It must match an error of a context only if the caller's context has ended.
func TestFlush(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		away := fmt.Errorf("the register is away: %w", context.DeadlineExceeded)
		tries := make(chan error) // of the hook; for each explanation, it tries twice
		gen := newGenerator(t, m.Client(), serial.WithLocation(time.UTC), serial.WithHooks(serial.Hooks{
			Unused: func(ctx context.Context, e serial.Explanation) {
				require.NoError(t, ctx.Err())
				serial.UnusedFailed(ctx, away)
				err := <-tries
				if serial.UnusedFailed(ctx, err); err != nil {
					runtime.Goexit()
				}
				panic("the explanation was stored before")
			},
		}), serial.WithHooks(serial.Hooks{Unused: func(context.Context, serial.Explanation) {}}))
		flush := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			return gen.Flush(ctx)
		}
		require.NoError(t, flush())
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
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, gen.Flush(ended), "nothing is left, so an ended context does no harm")
	})
}

// A hook is slow, so explanations have to wait. At most 10,000 must wait, and others that cannot be merged with them
// must be dropped. The next explanation and the error of Flush must contain the number of dropped explanations.
func TestUnusedWhileTheHookIsSlow(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		stop := make(chan struct{})
		var reports []serial.Explanation
		gen := newGenerator(t, m.Client(around(func(cmd redis.Cmder, _ func() error) error { // nothing is sent
			cmd.(interface{ SetVal(any) }).SetVal(int64(1))
			time.Sleep(time.Second)
			return nil
		})), serial.WithLocation(time.UTC), serial.WithHooks(serial.Hooks{
			Unused: func(_ context.Context, e serial.Explanation) {
				<-stop
				reports = append(reports, e)
			},
		}))
		leave := func(typ string) { // before it gets its number
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			require.ErrorIs(t, errOf(gen.Next(ctx, typ)), context.DeadlineExceeded)
		}
		for i := range 1 + 10_000 + 2 { // one is being reported, and two are dropped
			leave(fmt.Sprintf("T%05d", i))
			time.Sleep(time.Second)
		}
		leave("LATE")
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorContains(t, gen.Flush(ended), "; T10000 from 2000-01-01T00:00:00Z (caller left): 1; explanations "+
			"dropped, because too many were waiting: 2; numbers of requests that may still get a reply: 1")
		time.Sleep(time.Second)
		close(stop)
		require.NoError(t, gen.Flush(t.Context()))
		require.Len(t, reports, 1+10_000)
		require.Equal(t, "caller left; 3 other explanations were dropped before, because too many were waiting",
			reports[1].Reason)
	})
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
