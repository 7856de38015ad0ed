package serial_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	inner "github.com/dailyserial/serial/internal/series"
	"github.com/dailyserial/serial/serialtest"
)

// lines records the output of hooks or of a logger.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) add(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, fmt.Sprintf(format, args...))
}

// take returns the lines since the last call.
func (l *lines) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.all
	l.all = nil
	return all
}

// hooks returns hooks that add a line for each event, with the name of the caller from the context.
func (l *lines) hooks() serial.Hooks {
	return serial.Hooks{
		Issued: func(ctx context.Context, i serial.IssuedInfo) {
			l.add("%v: issued %d to %v in %v", ctx.Value(l), i.Count, i.Last, i.Duration)
		},
		Failed: func(ctx context.Context, i serial.FailedInfo) {
			l.add("%v: failed %d %s: %v", ctx.Value(l), i.Count, i.Type, errors.Is(i.Err, serial.ErrExhausted))
		},
		Opened: func(ctx context.Context, i serial.OpenedInfo) {
			l.add("%v: opened %s %s after %v", ctx.Value(l), i.Type, i.Start.Format("20060102"), i.Wait)
			time.Sleep(time.Minute) // not counted in the call's duration
		},
		Lost: func(ctx context.Context, i serial.LostInfo) {
			l.add("%v: lost %s %s: %q, %s", ctx.Value(l), i.Type, i.Start.Format("20060102"), i.Held, outcome(i))
		},
		ClockCorrected: func(ctx context.Context, i serial.ClockInfo) {
			l.add("%v: clock %v, not %v", ctx.Value(l), i.Offset, i.Before)
		},
		NearlyExhausted: func(ctx context.Context, i serial.ExhaustionInfo) {
			l.add("%v: %d of %d used, %v", ctx.Value(l), i.Used, i.Size, i.Last)
		},
	}
}

// outcome returns the result of a lost counter as text.
func outcome(i serial.LostInfo) string {
	switch {
	case i.Repaired && i.Pending:
		return "repaired and pending"
	case i.Repaired:
		return "repaired"
	case i.Pending:
		return "pending"
	}
	return "not repaired"
}

// Every kind of event occurs. The hooks must be called in the order of the events, with the context of the call.
func TestHooks(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		l := &lines{}
		ctx := context.WithValue(t.Context(), l, "me")
		slow := around(func(cmd redis.Cmder, send func() error) error {
			if cmd.Name() == "set" {
				time.Sleep(time.Second)
			}
			return send()
		})
		opts := []serial.Option{serial.WithLocation(time.UTC), serial.WithHooks(l.hooks()),
			serial.WithTemplate("{type}{date:yyyyMMdd}{seq:2}"), serial.WithStart(50)}
		gen := newGenerator(t, m.Client(slow), opts...)
		requireLines := func(want ...string) {
			t.Helper()
			for i := range want {
				want[i] = "me: " + want[i]
			}
			require.Equal(t, want, l.take())
		}
		next := func(n int) error { return errOf(gen.NextN(ctx, "IS", n)) }

		require.NoError(t, next(1))
		requireLines("opened IS 20000101 after 1s", "issued 1 to IS2000010150 in 1s")
		require.NoError(t, next(3))
		require.NoError(t, errOf(gen.NextOnce(ctx, "IS", "a")))
		require.NoError(t, errOf(gen.NextOnce(ctx, "IS", "a")))
		requireLines("issued 3 to IS2000010153 in 0s", "issued 1 to IS2000010154 in 0s", "issued 0 to IS2000010154 in 0s")

		require.ErrorIs(t, next(51), serial.ErrExhausted)
		require.ErrorIs(t, errOf(gen.Next(ctx, "I S")), serial.ErrInvalidType)
		require.Error(t, errOf(gen.NextOnce(ctx, "IS", "")))
		require.Error(t, next(0))
		requireLines("failed 51 IS: true", "failed 1 I S: false", "failed 1 IS: false", "failed 0 IS: false")

		// 80 % of 50 numbers are 40: reached at 89.
		require.NoError(t, next(34))
		require.NoError(t, next(1))
		require.NoError(t, next(1))
		requireLines("issued 34 to IS2000010188 in 0s", "issued 1 to IS2000010189 in 0s", "40 of 50 used, IS2000010189",
			"issued 1 to IS2000010190 in 0s")

		m.Set("serial:{IS}:20000101", "7")
		require.ErrorIs(t, next(1), serial.ErrCounterLost)
		requireLines(`lost IS 20000101: "7", not repaired`, "failed 1 IS: false")
		require.NoError(t, gen.Raise(ctx, "IS", 60))
		require.NoError(t, next(1))
		requireLines(`lost IS 20000101: "7", repaired`, "opened IS 20000101 after 0s", "issued 1 to IS2000010191 in 0s")
		require.NoError(t, gen.Prepare(ctx, "IS"))
		requireLines()

		// Redis's clock is an hour ahead. The hook must run once, on the next day.
		m.SetTime(time.Now().Add(24 * time.Hour))
		time.Sleep(23*time.Hour + 30*time.Minute)
		m.SetTime(time.Now().Add(59 * time.Minute))
		require.NoError(t, next(1))
		got := l.take()
		require.Len(t, got, 2, got)
		require.Equal(t, "me: clock 59m0s, not 0s", got[0])
	})
}

// Counters are lost. The hook Lost must report whether the call repaired the counter, whether a later call may repair
// it, or whether an operator must. LogHooks must log only the last case as an error.
func TestHooksOfLosses(t *testing.T) {
	next := func(ctx context.Context, gen *serial.Generator) error { return errOf(gen.Next(ctx, "IS")) }
	peek := func(ctx context.Context, gen *serial.Generator) error { return errOf(gen.Peek(ctx, "IS")) }
	audit := func(ctx context.Context, gen *serial.Generator) error {
		return errOf(gen.Audit(ctx, "IS", serial.At(time.Now()), func(func(string, error) bool) {}))
	}
	raise := func(ctx context.Context, gen *serial.Generator) error { return gen.Raise(ctx, "IS", 3) }
	prepare := func(ctx context.Context, gen *serial.Generator) error { return gen.Prepare(ctx, "IS") }
	broken := serial.WithFloor(func(context.Context, string, time.Time) (int64, error) { return 0, errBoom })
	for _, row := range []struct {
		option    serial.Option
		call      func(context.Context, *serial.Generator) error
		err       error
		want, log string
	}{
		{serial.WithRetention(1), next, serial.ErrCounterLost, "not repaired", "ERROR counter lost"},
		{serial.WithRetention(1), prepare, serial.ErrCounterLost, "not repaired", "ERROR counter lost"},
		{serial.WithRetention(1), audit, serial.ErrCounterLost, "not repaired", "ERROR counter lost"},
		{serial.WithRetention(1), raise, nil, "repaired", "WARN counter repaired"},
		{fixedFloor(3), next, nil, "repaired", "WARN counter repaired"},
		{fixedFloor(3), peek, serial.ErrCounterLost, "pending", "WARN counter lost"},
		{broken, next, errBoom, "pending", "WARN counter lost"},
		{serial.WithLedger(new(serialtest.Ledger), 10), peek, serial.ErrCounterLost, "pending", "WARN counter lost"},
		{serial.WithLedger(new(serialtest.Ledger), 10), next, serial.ErrCounterLost, "not repaired", "ERROR counter lost"},
	} {
		inBubble(t, func(t *testing.T, m *simulation) {
			var heard, logged lines
			require.NoError(t, errOf(newGenerator(t, m.Client(), serial.WithLocation(time.UTC)).Next(t.Context(), "IS")))
			m.Del("serial:{IS}:20000101")
			gen := newGenerator(t, m.Client(), serial.WithLocation(time.UTC), row.option,
				serial.WithHooks(serial.LogHooks(logged.logger())),
				serial.WithHooks(serial.Hooks{
					Lost: func(_ context.Context, i serial.LostInfo) { heard.add("%s", outcome(i)) },
				}))
			require.ErrorIs(t, row.call(t.Context(), gen), row.err)
			require.Equal(t, []string{row.want}, heard.take())
			level, event, _ := strings.Cut(row.log, " ")
			require.Equal(t, fmt.Sprintf(`level=%s msg="serial: %s" type=IS start=2000-01-01T00:00:00.000Z`, level, event),
				logged.take()[0])
		})
	}
}

// Redis has passed midnight, and an audit of yesterday finds that the counter of today is lost. Hooks must not report a
// repair.
func TestHooksOfAuditAcrossMidnight(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		var l lines
		generator := func() *serial.Generator {
			return newGenerator(t, m.Client(), serial.WithLocation(time.UTC), serial.WithMaxSkew(-1), serial.WithRetention(1),
				serial.WithHooks(serial.Hooks{Lost: l.hooks().Lost}))
		}
		yesterday := time.Now()
		require.NoError(t, errOf(generator().Next(t.Context(), "IS")))
		m.SetTime(yesterday.AddDate(0, 0, 1))
		require.NoError(t, errOf(generator().Next(t.Context(), "IS")))
		m.Del("serial:{IS}:20000102")
		none := func(func(string, error) bool) {}
		require.NoError(t, errOf(generator().Audit(t.Context(), "IS", serial.At(yesterday), none)))
		require.Contains(t, l.take(), `<nil>: lost IS 20000102: "", not repaired`)
	})
}

// A period was opened with a lower start than the generator has. NearlyExhausted must be called once most numbers of
// the period are used.
func TestNearlyExhaustedBelowTheStart(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		h := &lines{}
		opts := options(serial.WithLocation(time.UTC), serial.WithTemplate("{type}{date:yyyyMMdd}{seq:2}"))
		require.NoError(t, errOf(newGenerator(t, m.Client(), opts...).NextN(t.Context(), "IS", 78)))
		late := newGenerator(t, m.Client(), append(opts, serial.WithStart(95), serial.WithHooks(h.hooks()))...)
		require.NoError(t, errOf(late.Next(t.Context(), "IS")))
		h.take()
		require.NoError(t, errOf(late.Next(t.Context(), "IS")))
		require.Contains(t, fmt.Sprint(h.take()), "80 of 99 used, IS2000010180")
	})
}

// A hook panics, blocks or calls the generator. Other callers must not be affected, and the number must be issued.
func TestHooksMisbehave(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		var gen *serial.Generator
		block := make(chan struct{})
		gen = newGenerator(t, m.Client(), serial.WithLocation(time.UTC), serial.WithHooks(serial.Hooks{
			Opened: func(context.Context, serial.OpenedInfo) { panic("boom") },
			Issued: func(ctx context.Context, i serial.IssuedInfo) {
				switch {
				case i.Last.Type == "BLOCKS":
					<-block
				case i.Last.Type == "ASKS" && i.Last.Seq == 1:
					requireResult(t, "ASKS200001010002")(gen.Next(ctx, "ASKS"))
				}
				panic("boom")
			},
			Failed: func(context.Context, serial.FailedInfo) { panic("boom") },
		}))
		var wg sync.WaitGroup
		wg.Go(func() { requireResult(t, "BLOCKS200001010001")(gen.Next(t.Context(), "BLOCKS")) })
		synctest.Wait()
		for _, typ := range []string{"IS", "ASKS"} {
			requireResult(t, typ+"200001010001")(gen.Next(t.Context(), typ))
		}
		other := newGenerator(t, m.Client(), serial.WithLocation(time.UTC))
		requireResult(t, "BLOCKS200001010002", "the lock is free")(other.Next(t.Context(), "BLOCKS"))
		require.ErrorIs(t, errOf(gen.Next(t.Context(), "")), serial.ErrInvalidType)
		close(block)
		wg.Wait()
	})
}

// Several callers share a run of the script. Issued must be called for each of them. The hooks for a nearly exhausted
// period must be called once, each when its own share of the numbers is used.
func TestHooksOfMany(t *testing.T) {
	m := simulate(t)
	var issued atomic.Int64
	var shares [3]lines
	opts := options(serial.WithLocation(noon()), serial.WithTemplate("{type}{date:yyyyMMdd}{seq:2}"))
	for i := range shares {
		opts = append(opts, serial.WithHooks(serial.Hooks{
			Issued:            func(_ context.Context, info serial.IssuedInfo) { issued.Add(int64(info.Count)) },
			NearlyExhausted:   func(_ context.Context, info serial.ExhaustionInfo) { shares[i].add("%d", info.Used) },
			NearlyExhaustedAt: float64(i+1) / 4,
		}))
	}
	gen := newGenerator(t, m.Client(), opts...)
	barrier(t, 20, func(int) (string, error) { return gen.Next(t.Context(), "IS") })
	for range 79 {
		require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
	}
	require.EqualValues(t, 3*99, issued.Load())
	for i, want := range []string{"25", "50", "75"} {
		require.Equal(t, []string{want}, shares[i].take())
	}
}

// logger returns a logger that adds lines, without times.
func (l *lines) logger() *slog.Logger {
	return slog.New(callerHandler{slog.NewTextHandler(l, &slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	})})
}

func (l *lines) Write(line []byte) (int, error) {
	l.add("%s", bytes.TrimSuffix(line, []byte("\n")))
	return len(line), nil
}

// A callerHandler is a slog.Handler that adds the name of the caller from the context.
type callerHandler struct{ slog.Handler }

func (h callerHandler) Handle(ctx context.Context, r slog.Record) error {
	if caller, ok := ctx.Value(callerHandler{}).(string); ok {
		r.Add("caller", caller)
	}
	return h.Handler.Handle(ctx, r)
}

// LogHooks must log the events that concern an operator, at the right level and with the context of the call. It must
// not log issued numbers.
func TestLogHooks(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		l := &lines{}
		hooks := serial.LogHooks(l.logger())
		require.Nil(t, hooks.Issued)
		require.Nil(t, hooks.Unused)
		ctx := context.WithValue(t.Context(), callerHandler{}, "me")
		slow := around(func(cmd redis.Cmder, send func() error) error {
			if cmd.Name() == "set" {
				time.Sleep(time.Second)
			}
			return send()
		})
		gen := newGenerator(t, m.Client(slow), serial.WithLocation(time.FixedZone("", 3600)), serial.WithHooks(hooks),
			serial.WithTemplate("{type}{date:yyyyMMdd}{seq:2}"))
		next := func(n int) error { return errOf(gen.NextN(ctx, "IS", n)) }
		const day = "type=IS start=2000-01-01T00:00:00.000+01:00"

		require.NoError(t, next(79))
		require.NoError(t, next(1))
		require.NoError(t, next(1))
		require.Equal(t, []string{
			`level=INFO msg="serial: period opened" ` + day + " wait=1s caller=me",
			`level=WARN msg="serial: numbers nearly exhausted" ` + day + " caller=me",
		}, l.take())

		require.ErrorIs(t, next(20), serial.ErrExhausted)
		require.Equal(t, []string{
			`level=ERROR msg="serial: no number issued" type=IS error="serial: numbers exhausted" duration=0s caller=me`,
		}, l.take())

		m.Del("serial:{IS}:20000101")
		require.ErrorIs(t, next(1), serial.ErrCounterLost)
		require.NoError(t, gen.Raise(ctx, "IS", 0))
		require.Equal(t, []string{
			`level=ERROR msg="serial: counter lost" ` + day + " caller=me",
			`level=ERROR msg="serial: no number issued" type=IS error="serial: counter lost" duration=0s caller=me`,
			`level=WARN msg="serial: counter repaired" ` + day + " caller=me",
			`level=INFO msg="serial: period opened" ` + day + " wait=0s caller=me",
		}, l.take())

		invalid := strings.Repeat("I S", 1000)
		require.ErrorIs(t, errOf(gen.Next(ctx, invalid)), serial.ErrInvalidType)
		require.ErrorIs(t, errOf(gen.NextOnce(ctx, "IS", "")), serial.ErrInvalidRequest)
		require.Equal(t, []string{
			`level=INFO msg="serial: no number issued" error="serial: invalid type" duration=0s caller=me`,
			`level=INFO msg="serial: no number issued" type=IS error="serial: invalid request" duration=0s caller=me`,
		}, l.take())
	})
}

// Two clocks differ slightly around midnight. A difference of less than a second must not be logged as a warning, and a
// clock must be reported as corrected only if it no longer differs.
func TestLogHooksOfClocks(t *testing.T) {
	for _, row := range []struct {
		offset, before      time.Duration
		level, event, attrs string
	}{
		{time.Hour, 0, "WARN", "differs", "offset=1h0m0s before=0s"},
		{0, time.Hour, "WARN", "corrected", "offset=0s before=1h0m0s"},
		{-time.Second, 0, "WARN", "differs", "offset=-1s before=0s"},
		{time.Millisecond, -time.Second, "WARN", "corrected", "offset=1ms before=-1s"},
		{-999 * time.Millisecond, 0, "INFO", "differs", "offset=-999ms before=0s"},
		{time.Hour, time.Hour - time.Millisecond, "INFO", "differs", "offset=1h0m0s before=59m59.999s"},
	} {
		l := &lines{}
		serial.LogHooks(l.logger()).ClockCorrected(t.Context(), serial.ClockInfo{Offset: row.offset, Before: row.before})
		require.Equal(t, []string{"level=" + row.level + ` msg="serial: clock ` + row.event + `" ` + row.attrs}, l.take())
	}
}

// Calls fail for different causes. The level of the log entry must depend on the cause, and only harmless parts of the
// error text must be logged.
func TestLogHooksOfFailures(t *testing.T) {
	left, leave := context.WithCancel(t.Context())
	leave()
	late, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	const both = "serial: counter lost: context canceled"
	for _, row := range []struct {
		ctx  context.Context
		err  error
		want string
	}{
		{nil, serial.ErrExhausted, "ERROR serial: numbers exhausted"},
		{nil, serial.ErrCounterLost, "ERROR serial: counter lost"},
		{nil, serial.ErrClockSkew, "ERROR serial: clock skew"},
		{nil, serial.ErrConflict, "ERROR serial: conflicting period"},
		{nil, serial.ErrNotReplicated, "ERROR serial: not replicated"},
		{nil, serial.ErrInvalidType, "INFO serial: invalid type"},
		{nil, serial.ErrInvalidRequest, "INFO serial: invalid request"},
		{left, fmt.Errorf("%w (%w)", serial.ErrCounterLost, context.Canceled), "ERROR " + both},
		{left, fmt.Errorf("%w (%w)", serial.ErrInvalidRequest, context.Canceled),
			"INFO serial: invalid request: context canceled"},
		{left, context.Canceled, "INFO context canceled"},
		{late, context.DeadlineExceeded, "WARN context deadline exceeded"},
		{nil, context.Canceled, "ERROR context canceled"}, // error that the floor returned
		{left, errBoom, "ERROR another failure"},          // before the caller left
		{nil, io.EOF, "ERROR EOF"},
		{nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)},
			"ERROR dial tcp: connect: " + syscall.ECONNREFUSED.Error()},
		{nil, redis.ErrPoolTimeout, "ERROR " + redis.ErrPoolTimeout.Error()},
		{nil, redisError("NOPERM no permission for the key serial:{IS}"), "ERROR NOPERM"},
		{nil, redisError("serial:{IS}"), "ERROR another failure"},
		{nil, redisError("X1 7"), "ERROR another failure"},
		{nil, redis.Nil, "ERROR another failure"},
		{nil, fmt.Errorf("%w of IS failed: %w", inner.ErrFloor, io.EOF), "ERROR the floor: EOF"},
		{nil, fmt.Errorf("%w of IS failed: %w", inner.ErrLedger, serial.ErrConflict),
			"ERROR the ledger: serial: conflicting period"},
	} {
		l := &lines{}
		if row.ctx == nil {
			row.ctx = t.Context()
		}
		err := fmt.Errorf("serial:{IS}:20000101 is at 740291: %w", row.err)
		serial.LogHooks(l.logger()).Failed(row.ctx, serial.FailedInfo{Type: "IS", Count: 1, Err: err, Duration: time.Second})
		level, text, _ := strings.Cut(row.want, " ")
		if strings.Contains(text, " ") {
			text = strconv.Quote(text)
		}
		typ := "type=IS "
		if row.err == serial.ErrInvalidType {
			typ = ""
		}
		require.Equal(t, []string{fmt.Sprintf(`level=%s msg="serial: no number issued" %serror=%s duration=1s`,
			level, typ, text)}, l.take(), "%v", row.err)
	}
}

// A redisError is an error that Redis replies.
type redisError string

func (e redisError) Error() string { return string(e) }
func (redisError) RedisError()     {}

// Calls of a series with hidden sequences fail in many ways, with errors that contain numbers, sequences, keys and
// requests. None of these must appear in the log.
func TestLogHooksKeepSecrets(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		const counter = "serial:{ORD}:20000101"
		l, ctx := &lines{}, t.Context()
		generator := func(key string, opts ...serial.Option) *serial.Generator {
			return newGenerator(t, m.Client(), append(opts, serial.WithLocation(time.UTC),
				serial.WithTemplate("{type}-{date:yyMMdd}-{seq:6}"), serial.WithHiddenSequence([]byte(key)),
				serial.WithHooks(serial.LogHooks(l.logger())))...)
		}
		gen, other := generator("an example's key"), generator("another's secret")
		require.NoError(t, gen.Raise(ctx, "ORD", 740_290))
		number, err := gen.NextOnce(ctx, "ORD", "ticket-9")
		require.NoError(t, err)
		errs := errors.Join(
			errOf(gen.Next(ctx, counter+" is at 740291")),
			errOf(gen.NextOnce(ctx, "ORD", "ticket-9\n")),
			errOf(generator("an example's key", serial.WithLast(740_291)).Next(ctx, "ORD")),
			errOf(other.Next(ctx, "ORD")),
			errOf(other.NextOnce(ctx, "ORD", "ticket-9")),
			m.Set(counter, "740255"), // the counter goes back
			errOf(gen.Next(ctx, "ORD")),
		)
		m.Del(counter)
		errs = errors.Join(errs, errOf(generator("an example's key", fixedFloor(7402910)).Next(ctx, "ORD")))
		m.SetError("NOPERM no permission: " + counter + " is at 740291")
		errs = errors.Join(errs, errOf(gen.Next(ctx, "ORD")))

		logged := l.take()
		require.Len(t, logged, 11, "a period opened, eight failures, and two losses")
		for _, line := range logged {
			line = regexp.MustCompile(` (duration|wait)=[0-9a-zµ.]+`).ReplaceAllString(line, "") // may have any digits
			for _, secret := range []string{strings.TrimPrefix(number.String(), "ORD-000101-"), "7402", "serial:{", "ticket-9",
				"an example's key"} {
				require.NotContains(t, line, secret)
			}
		}
		for _, secret := range []string{"7402", "serial:{", "ticket-9"} {
			require.ErrorContains(t, errs, secret)
		}
	})
}

// LogHooks is called without a logger, and the program sets the default logger afterwards. Events must be logged with
// this default logger.
func TestLogHooksWithoutLogger(t *testing.T) {
	was, output, flags := slog.Default(), log.Writer(), log.Flags()
	t.Cleanup(func() {
		slog.SetDefault(was)
		log.SetOutput(output) // SetDefault has replaced it
		log.SetFlags(flags)
	})
	hooks := serial.LogHooks(nil)
	for range 2 {
		l := &lines{}
		slog.SetDefault(l.logger())
		hooks.Lost(t.Context(), serial.LostInfo{Type: "IS", Held: "740291"})
		require.Equal(t, []string{`level=ERROR msg="serial: counter lost" type=IS start=0001-01-01T00:00:00.000Z`}, l.take())
	}
}
