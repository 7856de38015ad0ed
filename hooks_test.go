package serial_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"math"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/serialtest"
)

// heard records what hooks receive, without durations unless they are remarkable.
type heard struct {
	mu    sync.Mutex
	lines []string
}

func (h *heard) say(ctx context.Context, format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, fmt.Sprintf(format, args...)+fmt.Sprint(ctx.Value(h)))
}

// take returns the events since the last call.
func (h *heard) take() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	lines := h.lines
	h.lines = nil
	return lines
}

func (h *heard) hooks() serial.Hooks {
	return serial.Hooks{
		Issued: func(ctx context.Context, i serial.IssuedInfo) {
			h.say(ctx, "issued %d to %v in %v", i.Count, i.Last, i.Duration)
		},
		Failed: func(ctx context.Context, i serial.FailedInfo) {
			h.say(ctx, "failed %d %s: %v", i.Count, i.Type, errors.Is(i.Err, serial.ErrExhausted))
		},
		Opened: func(ctx context.Context, i serial.OpenedInfo) {
			h.say(ctx, "opened %s %s after %v", i.Type, i.Start.Format("20060102"), i.Wait)
			time.Sleep(time.Minute) // not counted in the call's duration
		},
		Lost: func(ctx context.Context, i serial.LostInfo) {
			h.say(ctx, "lost %s %s: %q, %s", i.Type, i.Start.Format("20060102"), i.Held, outcome(i))
		},
		ClockCorrected: func(ctx context.Context, i serial.ClockInfo) { h.say(ctx, "clock %v, not %v", i.Offset, i.Before) },
		NearlyExhausted: func(ctx context.Context, i serial.ExhaustionInfo) {
			h.say(ctx, "%d of %d used, %v", i.Used, i.Size, i.Last)
		},
	}
}

// outcome names the outcome for a lost counter.
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

func TestHooks(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		h := &heard{}
		ctx := context.WithValue(t.Context(), h, " ok")
		slow := around(func(cmd redis.Cmder, send func() error) error {
			if cmd.Name() == "set" {
				time.Sleep(time.Second)
			}
			return send()
		})
		opts := []serial.Option{serial.WithLocation(time.UTC), serial.WithHooks(h.hooks()),
			serial.WithTemplate("{type}{date:yyyyMMdd}{seq:2}"), serial.WithStart(50)}
		gen := newGenerator(t, m.Client(slow), opts...)
		requireHeard := func(want ...string) {
			t.Helper()
			for i := range want {
				want[i] += " ok"
			}
			require.Equal(t, want, h.take())
		}
		next := func(gen *serial.Generator) {
			t.Helper()
			require.NoError(t, errOf(gen.Next(ctx, "IS")))
		}

		next(gen)
		requireHeard("opened IS 20000101 after 1s", "issued 1 to IS2000010150 in 1s")
		require.NoError(t, errOf(gen.NextN(ctx, "IS", 3)))
		require.NoError(t, errOf(gen.NextOnce(ctx, "IS", "a")))
		require.NoError(t, errOf(gen.NextOnce(ctx, "IS", "a")))
		requireHeard("issued 3 to IS2000010153 in 0s", "issued 1 to IS2000010154 in 0s", "issued 0 to IS2000010154 in 0s")

		require.ErrorIs(t, errOf(gen.NextN(ctx, "IS", 51)), serial.ErrExhausted)
		require.ErrorIs(t, errOf(gen.Next(ctx, "I S")), serial.ErrInvalidType)
		require.Error(t, errOf(gen.NextOnce(ctx, "IS", "")))
		require.Error(t, errOf(gen.NextN(ctx, "IS", 0)))
		requireHeard("failed 51 IS: true", "failed 1 I S: false", "failed 1 IS: false", "failed 0 IS: false")

		// 80 % of 50 numbers are 40: reached at 89.
		require.NoError(t, errOf(gen.NextN(ctx, "IS", 34)))
		next(gen)
		next(gen)
		requireHeard("issued 34 to IS2000010188 in 0s", "issued 1 to IS2000010189 in 0s", "40 of 50 used, IS2000010189",
			"issued 1 to IS2000010190 in 0s")

		m.Set("serial:{IS}:20000101", "7")
		require.ErrorIs(t, errOf(gen.Next(ctx, "IS")), serial.ErrCounterLost)
		require.ErrorIs(t, errOf(gen.Peek(ctx, "IS")), serial.ErrCounterLost)
		requireHeard(`lost IS 20000101: "7", not repaired`, "failed 1 IS: false", `lost IS 20000101: "7", not repaired`)
		require.NoError(t, gen.Raise(ctx, "IS", 60))
		next(gen)
		requireHeard(`lost IS 20000101: "7", repaired`, "opened IS 20000101 after 0s", "issued 1 to IS2000010191 in 0s")
		require.NoError(t, gen.Raise(ctx, "IS", 95))
		require.NoError(t, gen.Prepare(ctx, "IS"))
		requireHeard()

		// Redis's clock is an hour ahead: the hook runs once, on the next day.
		m.SetTime(time.Now().Add(24 * time.Hour))
		time.Sleep(23*time.Hour + 30*time.Minute)
		m.SetTime(time.Now().Add(59 * time.Minute))
		next(gen)
		got := h.take()
		require.Len(t, got, 2, got)
		require.Equal(t, "clock 59m0s, not 0s ok", got[0])
		m.SetTime(time.Time{})

		// With a ledger, a lost counter is repaired, and the hook runs too.
		time.Sleep(24 * time.Hour)
		l := new(serialtest.Ledger)
		gen = newGenerator(t, m.Client(), append(opts, serial.WithLedger(l, 10))...)
		next(gen)
		m.Del("serial:{IS}:" + time.Now().Format("20060102"))
		next(gen)
		got = h.take()
		require.Len(t, got, 5)
		require.Equal(t, "lost IS "+time.Now().Format("20060102")+`: "", repaired ok`, got[2])
	})
}

// Lost reports whether the call repaired the counter, whether a later one may, or whether an operator must. LogHooks
// logs only the last case as an error.
func TestHooksOfLosses(t *testing.T) {
	const repaired, pending, lost = "repaired", "pending", "not repaired"
	const none, floor, ledger = "", "floor", "ledger"
	next := func(ctx context.Context, gen *serial.Generator) error { return errOf(gen.Next(ctx, "IS")) }
	peek := func(ctx context.Context, gen *serial.Generator) error { return errOf(gen.Peek(ctx, "IS")) }
	audit := func(ctx context.Context, gen *serial.Generator) error {
		return errOf(gen.Audit(ctx, "IS", serial.At(time.Now()), func(func(string, error) bool) {}))
	}
	raise := func(ctx context.Context, gen *serial.Generator) error { return gen.Raise(ctx, "IS", 3) }
	prepare := func(ctx context.Context, gen *serial.Generator) error { return gen.Prepare(ctx, "IS") }
	impatient := func(ctx context.Context, gen *serial.Generator) error {
		ctx, cancel := context.WithTimeout(ctx, time.Second/2)
		defer cancel()
		return next(ctx, gen)
	}
	for _, row := range []struct {
		before, source string // before and after the loss
		name           string
		call           func(context.Context, *serial.Generator) error
		fault, err     error
		want           string
	}{
		{none, none, "next", next, nil, serial.ErrCounterLost, lost},
		{none, none, "prepare", prepare, nil, serial.ErrCounterLost, lost},
		{none, none, "peek", peek, nil, serial.ErrCounterLost, lost},
		{none, none, "audit", audit, nil, serial.ErrCounterLost, lost},
		{none, none, "raise", raise, nil, nil, repaired},
		{floor, floor, "next", next, nil, nil, repaired},
		{floor, floor, "prepare", prepare, nil, nil, repaired},
		{floor, floor, "peek", peek, nil, serial.ErrCounterLost, pending},
		{floor, floor, "audit", audit, nil, serial.ErrCounterLost, pending},
		{floor, floor, "failure", next, errBoom, errBoom, pending},
		{floor, floor, "caller leaves", impatient, nil, context.DeadlineExceeded, pending},
		{ledger, ledger, "next", next, nil, nil, repaired},
		{ledger, ledger, "peek", peek, nil, serial.ErrCounterLost, pending},
		{ledger, ledger, "failure", next, errBoom, errBoom, pending},
		{none, ledger, "next", next, nil, serial.ErrCounterLost, lost},
	} {
		runInBubble(t, fmt.Sprintf("%s, %s, %s", row.before, row.source, row.name), func(t *testing.T, m *simulation) {
			var outcomes []string
			var l logbook
			var fault error
			after := int64(-10)
			generator := func(source string) *serial.Generator {
				opts := options(serial.WithLocation(time.UTC), serial.WithHooks(serial.LogHooks(l.logger())),
					serial.WithHooks(serial.Hooks{
						Lost: func(_ context.Context, i serial.LostInfo) { outcomes = append(outcomes, outcome(i)) },
					}))
				switch source {
				case floor:
					opts = append(opts, serial.WithFloor(func(context.Context, string, time.Time) (int64, error) {
						time.Sleep(time.Second)
						return 3, fault
					}))
				case ledger:
					opts = append(opts, serial.WithLedger(ledgerFunc(func() (int64, error) {
						after += 10
						return after, fault
					}), 10))
				}
				return newGenerator(t, m.Client(), opts...)
			}
			gen := generator(row.before)
			require.NoError(t, next(t.Context(), gen))
			if row.source != row.before {
				gen = generator(row.source)
			}
			m.Del("serial:{IS}:20000101")
			require.Empty(t, outcomes)
			l.take()
			fault = row.fault

			if err := row.call(t.Context(), gen); row.err != nil {
				require.ErrorIs(t, err, row.err)
			} else {
				require.NoError(t, err)
			}
			require.Equal(t, []string{row.want}, outcomes)
			want := map[string]string{
				repaired: `level=WARN msg="serial: counter repaired"`,
				pending:  `level=WARN msg="serial: counter lost"`,
				lost:     `level=ERROR msg="serial: counter lost"`,
			}[row.want]
			require.Equal(t, want+" type=IS start=2000-01-01T00:00:00.000Z", l.take()[0])
			time.Sleep(time.Minute) // for abandoned commands
		})
	}
}

// An audit of yesterday that finds today's counter lost, since Redis has passed midnight, repairs nothing.
func TestHooksOfAuditAcrossMidnight(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		h := &heard{}
		generator := func() *serial.Generator {
			return newGenerator(t, m.Client(), serial.WithLocation(time.UTC), serial.WithMaxSkew(-1),
				serial.WithRetention(1), serial.WithHooks(serial.Hooks{Lost: h.hooks().Lost}))
		}
		yesterday := time.Now()
		require.NoError(t, errOf(generator().Next(t.Context(), "IS")))
		m.SetTime(yesterday.AddDate(0, 0, 1))
		require.NoError(t, errOf(generator().Next(t.Context(), "IS")))
		m.Del("serial:{IS}:20000102")
		ctx := context.WithValue(t.Context(), h, "")
		require.NoError(t, errOf(generator().Audit(ctx, "IS", serial.At(yesterday), used("IS200001010001"))))
		require.Contains(t, h.take(), `lost IS 20000102: "", not repaired`)
	})
}

// A period that was opened with a lower start is also nearly exhausted once most of its numbers are used.
func TestNearlyExhaustedBelowTheStart(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		h := &heard{}
		opts := options(serial.WithLocation(time.UTC), serial.WithTemplate("{type}{date:yyyyMMdd}{seq:2}"))
		require.NoError(t, errOf(newGenerator(t, m.Client(), opts...).NextN(t.Context(), "IS", 78)))
		late := newGenerator(t, m.Client(), append(opts, serial.WithStart(95), serial.WithHooks(h.hooks()))...)
		require.NoError(t, errOf(late.Next(t.Context(), "IS")))
		h.take()
		require.NoError(t, errOf(late.Next(t.Context(), "IS")))
		require.Contains(t, fmt.Sprint(h.take()), "80 of 99 used, IS2000010180")
	})
}

// Several generators may share one option, concurrently.
func TestHooksOfSeveral(t *testing.T) {
	rdb := simulate(t).Client()
	option := serial.WithHooks(serial.Hooks{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			require.NoError(t, errOf(serial.New(rdb, option)))
		})
	}
	wg.Wait()
}

// A hook that panics, blocks or calls the generator stops no other caller, and the number is issued.
func TestHooksMisbehave(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		var gen *serial.Generator
		block := make(chan struct{})
		var blocked, inner atomic.Bool
		gen = newGenerator(t, m.Client(), serial.WithLocation(time.UTC), serial.WithHooks(serial.Hooks{
			Opened: func(context.Context, serial.OpenedInfo) { panic("boom") },
			Issued: func(ctx context.Context, i serial.IssuedInfo) {
				switch {
				case i.Last.Type == "BLOCKS":
					blocked.Store(true)
					<-block
				case i.Last.Type == "ASKS" && inner.CompareAndSwap(false, true):
					require.NoError(t, errOf(gen.Next(ctx, "ASKS")))
				}
				panic("boom")
			},
			Failed: func(context.Context, serial.FailedInfo) { panic("boom") },
		}))
		var wg sync.WaitGroup
		wg.Go(func() {
			requireResult(t, "BLOCKS200001010001")(gen.Next(t.Context(), "BLOCKS"))
		})
		synctest.Wait()
		require.True(t, blocked.Load())
		for _, typ := range []string{"IS", "ASKS"} {
			requireResult(t, typ+"200001010001")(gen.Next(t.Context(), typ))
		}
		number, err := newGenerator(t, m.Client(), serial.WithLocation(time.UTC)).Next(t.Context(), "BLOCKS")
		require.NoError(t, err)
		require.Equal(t, "BLOCKS200001010002", number, "the lock is free")
		require.ErrorIs(t, errOf(gen.Next(t.Context(), "")), serial.ErrInvalidType)
		close(block)
		wg.Wait()
	})
}

// Callers who share a script call run Issued for each of them, and NearlyExhausted once.
func TestHooksOfMany(t *testing.T) {
	m := simulate(t)
	var issued, near atomic.Int64
	gen := newGenerator(t, m.Client(), serial.WithLocation(noon()), serial.WithTemplate("{type}{date:yyyyMMdd}{seq:2}"),
		serial.WithHooks(serial.Hooks{
			Issued:            func(_ context.Context, i serial.IssuedInfo) { issued.Add(int64(i.Count)) },
			NearlyExhausted:   func(context.Context, serial.ExhaustionInfo) { near.Add(1) },
			NearlyExhaustedAt: 0.5,
		}))
	barrier(t, 99, func(int) (string, error) { return gen.Next(t.Context(), "IS") })
	require.EqualValues(t, 99, issued.Load())
	require.EqualValues(t, 1, near.Load())
}

// A logbook holds a logger's lines, without times.
type logbook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logbook) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

// take returns the lines since the last call.
func (l *logbook) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := strings.TrimSuffix(l.text.String(), "\n")
	l.text.Reset()
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

func (l *logbook) logger() *slog.Logger {
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

// A callerHandler adds the caller from the context.
type callerHandler struct{ slog.Handler }

func (h callerHandler) Handle(ctx context.Context, r slog.Record) error {
	if caller, ok := ctx.Value(callerHandler{}).(string); ok {
		r.Add("caller", caller)
	}
	return h.Handler.Handle(ctx, r)
}

// Events that an operator should know are logged, at their level and with the call's context; issued numbers are not.
func TestLogHooks(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		l := &logbook{}
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

// A clock that differs by less than a second is no reason to warn: around midnight, every clock does. Only a clock that
// no longer differs has been corrected.
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
		l := &logbook{}
		serial.LogHooks(l.logger()).ClockCorrected(t.Context(), serial.ClockInfo{Offset: row.offset, Before: row.before})
		require.Equal(t, []string{"level=" + row.level + ` msg="serial: clock ` + row.event + `" ` + row.attrs}, l.take())
	}

	inBubble(t, func(t *testing.T, m *simulation) {
		l := &logbook{}
		gen := newGenerator(t, m.Client(), serial.WithLocation(time.UTC), serial.WithHooks(serial.LogHooks(l.logger())))
		m.SetTime(time.Now().AddDate(0, 0, 9))
		require.ErrorIs(t, errOf(gen.Next(t.Context(), "IS")), serial.ErrClockSkew)
		require.Regexp(t, `^level=WARN msg="serial: clock differs" offset=216h0m0s before=0s$`, l.take()[0])
	})
}

// The level of a failed call depends on who caused the failure. Only harmless parts of its error's text are logged.
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
		{nil, context.Canceled, "ERROR context canceled"}, // the floor's own
		{left, errBoom, "ERROR another failure"},          // before the caller left
		{nil, io.EOF, "ERROR EOF"},
		{nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)},
			"ERROR dial tcp: connect: " + syscall.ECONNREFUSED.Error()},
		{nil, redis.ErrPoolTimeout, "ERROR " + redis.ErrPoolTimeout.Error()},
		{nil, redisError("NOPERM no permission for the key serial:{IS}"), "ERROR NOPERM"},
		{nil, redisError("serial:{IS}"), "ERROR another failure"},
		{nil, redisError("X1 7"), "ERROR another failure"},
		{nil, redis.Nil, "ERROR another failure"},
	} {
		l := &logbook{}
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

// The log distinguishes a failure of the floor or the ledger from one of Redis.
func TestLogHooksNameFloorAndLedger(t *testing.T) {
	ledger := func(err error) serial.Option {
		return serial.WithLedger(ledgerFunc(func() (int64, error) { return -1, err }), 10)
	}
	for _, row := range []struct {
		option serial.Option
		want   string
	}{
		{fixedFloor(-1), "the floor"},
		{serial.WithFloor(func(context.Context, string, time.Time) (int64, error) { return 0, io.EOF }), "the floor: EOF"},
		{ledger(nil), "the ledger"},
		{ledger(serial.ErrConflict), "the ledger: serial: conflicting period"},
	} {
		inBubble(t, func(t *testing.T, m *simulation) {
			l := &logbook{}
			gen := newGenerator(t, m.Client(), serial.WithHooks(serial.LogHooks(l.logger())), row.option)
			require.Error(t, errOf(gen.Next(t.Context(), "IS")))
			require.Equal(t, []string{`level=ERROR msg="serial: no number issued" type=IS error="` + row.want + `" duration=0s`},
				l.take())
		})
	}
}

// A redisError is an error that Redis replies.
type redisError string

func (e redisError) Error() string { return string(e) }
func (redisError) RedisError()     {}

// secretSeries is the type ORD, whose sequence is hidden, and at 740291.
type secretSeries struct {
	*simulation
	book    logbook         // what LogHooks has logged
	reports strings.Builder // what the hooks received
	printed []string        // the numbers issued
	gen     *serial.Generator
}

// generator returns a generator of the series whose hooks log.
func (s *secretSeries) generator(client redis.UniversalClient, opts ...serial.Option) *serial.Generator {
	return newGenerator(s.t, client, append(options(serial.WithLocation(time.UTC), serial.WithHooks(s.hooks()),
		serial.WithTemplate("{type}-{date:yyMMdd}-{seq:6}"), serial.WithHiddenSequence([]byte("an example's key")),
		serial.WithHooks(serial.LogHooks(s.book.logger()))), opts...)...)
}

// other returns a generator like another process's.
func (s *secretSeries) other(opts ...serial.Option) *serial.Generator {
	return s.generator(s.Client(), opts...)
}

func (s *secretSeries) hooks() serial.Hooks {
	return serial.Hooks{
		Issued: func(_ context.Context, i serial.IssuedInfo) { s.printed = append(s.printed, i.Last.String()) },
		Failed: func(_ context.Context, i serial.FailedInfo) { fmt.Fprintln(&s.reports, i.Type, i.Err) },
		Lost:   func(_ context.Context, i serial.LostInfo) { fmt.Fprintln(&s.reports, i.Held) },
	}
}

func (s *secretSeries) next(gen *serial.Generator) error {
	return errOf(gen.Next(s.t.Context(), "ORD"))
}

func (s *secretSeries) once(gen *serial.Generator, id string) error {
	return errOf(gen.NextOnce(s.t.Context(), "ORD", id))
}

// answerInfo sets the server's reply to INFO.
func (s *secretSeries) answerInfo(answer func(c *server.Peer)) {
	s.Server().SetPreHook(func(c *server.Peer, cmd string, _ ...string) bool {
		if strings.EqualFold(cmd, "INFO") {
			answer(c)
			return true
		}
		return false
	})
}

// Whatever is refused or fails: the log of a hidden series contains no number, sequence, key or request. The texts of
// the errors contain all of these, except the AES key.
func TestLogHooksKeepSecrets(t *testing.T) {
	const counter, revealing = "serial:{ORD}:20000101", "serial:{ORD}:20000101 is at 740291"
	var errs strings.Builder
	for says, call := range map[string]func(s *secretSeries) error{
		`holds "740255", and 740291 is the last`: func(s *secretSeries) error {
			require.NoError(s.t, s.Set(counter, "740255"))
			return s.next(s.gen)
		},
		"is gone, and 740291 is the last": func(s *secretSeries) error {
			s.Del(counter)
			return s.next(s.gen)
		},
		"holds a value that is not a string": func(s *secretSeries) error {
			s.Del(counter)
			s.HSet(counter, "740291", revealing)
			return s.next(s.gen)
		},
		"is at 940291 of 999999": func(s *secretSeries) error {
			var err error
			for range 3 {
				_, err = s.gen.NextN(s.t.Context(), "ORD", 100_000)
			}
			return err
		},
		"too few numbers left since": func(s *secretSeries) error {
			lost := false
			gen := s.generator(s.Client(losing(io.ErrUnexpectedEOF, func(cmd redis.Cmder, err error) bool {
				first := isAnsweredScript(cmd, err) && !lost
				lost = lost || first
				return first
			})))
			require.NoError(s.t, s.gen.Raise(s.t.Context(), "ORD", 940_200))
			return errOf(gen.NextN(s.t.Context(), "ORD", 50_000))
		},
		"entered by a clock that was ahead": func(s *secretSeries) error {
			time.Sleep(24 * time.Hour)
			require.NoError(s.t, s.next(s.gen))
			s.SetTime(time.Now().Add(-time.Minute))
			return s.next(s.gen)
		},
		"would be opened at": func(s *secretSeries) error {
			s.SetTime(time.Now().AddDate(0, 0, 9))
			return s.next(s.gen)
		},
		"does not stay in one period": func(s *secretSeries) error {
			now, jump := time.Now(), 24*time.Hour
			return s.next(s.generator(s.Client(around(func(cmd redis.Cmder, send func() error) error {
				now, jump = now.Add(jump), -jump
				s.SetTime(now)
				return send()
			})), serial.WithMaxSkew(-1)))
		},
		"serial: not replicated": func(s *secretSeries) error { return s.next(s.other(confirmedBy(1))) },
		"were printed with another": func(s *secretSeries) error {
			return s.next(s.other(serial.WithHiddenSequence([]byte("another's secrets"[:16]))))
		},
		"it is counted by days": func(s *secretSeries) error {
			return s.next(s.other(serial.WithPeriod(serial.PerMonth), serial.WithTemplate("{type}-{date:yyMM}-{seq:6}")))
		},
		"this version did not write": func(s *secretSeries) error {
			s.HSet("serial:{ORD}", "entered", revealing)
			return s.next(s.gen)
		},
		"another time zone or day start": func(s *secretSeries) error {
			return s.next(s.other(serial.WithLocation(time.FixedZone("", 3600))))
		},
		"are reserved in a ledger": func(s *secretSeries) error {
			require.NoError(s.t, s.next(s.other(ledgerIf(true, 10)...)))
			return s.next(s.gen)
		},
		"WithLedger needs a master": func(s *secretSeries) error {
			s.answerInfo(func(c *server.Peer) { c.WriteBulk("role:slave\r\nmaster_replid:" + strings.Repeat("7", 40)) })
			return s.next(s.other(ledgerIf(true, 10)...))
		},
		"WithLedger needs INFO": func(s *secretSeries) error {
			s.answerInfo(func(c *server.Peer) { c.WriteError("ERR " + revealing) })
			return s.next(s.other(ledgerIf(true, 10)...))
		},
		"whose key this generator does not have": func(s *secretSeries) error {
			require.NoError(s.t, s.once(s.gen, "ticket-9"))
			return s.once(s.other(serial.WithHiddenSequence([]byte("another's secrets"[:16]))), "ticket-9")
		},
		"which is not a stored answer": func(s *secretSeries) error {
			require.NoError(s.t, s.Set("serial:{ORD}:once:ticket-9", "20000101 946684800 946771200 moons 740291"))
			return s.once(s.gen, "ticket-9")
		},
		`request "ticket-9\n"`: func(s *secretSeries) error { return s.once(s.gen, "ticket-9\n") },
		"0 numbers at once":    func(s *secretSeries) error { return errOf(s.gen.NextN(s.t.Context(), "ORD", 0)) },
		"serial: invalid type": func(s *secretSeries) error {
			return errOf(s.gen.Next(s.t.Context(), counter+" "+s.printed[0]))
		},
		"the floor of": func(s *secretSeries) error {
			s.Del(counter)
			return s.next(s.other(serial.WithFloor(func(context.Context, string, time.Time) (int64, error) {
				return 0, errors.New(revealing)
			})))
		},
		"answered 7402910": func(s *secretSeries) error {
			s.Del(counter)
			return s.next(s.other(fixedFloor(7402910)))
		},
		"the ledger of": func(s *secretSeries) error {
			return s.next(s.other(serial.WithLedger(ledgerFunc(func() (int64, error) { return 0, errors.New(revealing) }), 10)))
		},
		"above 740291 and returned 740255": func(s *secretSeries) error {
			return s.next(s.other(serial.WithLedger(ledgerFunc(func() (int64, error) { return 740255, nil }), 10)))
		},
		"NOPERM": func(s *secretSeries) error {
			s.SetError("NOPERM no permission: " + revealing)
			return s.next(s.gen)
		},
		"unexpected script reply": func(s *secretSeries) error {
			return s.next(s.generator(s.Client(around(func(cmd redis.Cmder, send func() error) error {
				err := send()
				if isAnsweredScript(cmd, err) {
					cmd.(interface{ SetVal(any) }).SetVal(revealing)
				}
				return err
			}))))
		},
		"others kept the lock": func(s *secretSeries) error {
			time.Sleep(24 * time.Hour)
			require.NoError(s.t, s.Set("serial:{ORD}:20000102:lock", "taken"))
			return s.next(s.gen)
		},
		"nothing was sent": func(s *secretSeries) error {
			ctx, cancel := context.WithCancel(s.t.Context())
			cancel()
			return errOf(s.gen.Next(ctx, "ORD"))
		},
		"where the command may have run": func(s *secretSeries) error {
			ctx, cancel := context.WithTimeout(s.t.Context(), time.Second)
			defer cancel()
			defer time.Sleep(time.Minute)
			return errOf(s.generator(s.Client(around(func(cmd redis.Cmder, send func() error) error {
				time.Sleep(2 * time.Second)
				return errors.New(revealing)
			}))).Next(ctx, "ORD"))
		},
	} {
		runInBubble(t, says, func(t *testing.T, m *simulation) {
			s := &secretSeries{simulation: m}
			s.gen = s.other()
			require.NoError(t, s.gen.Raise(t.Context(), "ORD", 740_290))
			require.NoError(t, s.next(s.gen))
			require.ErrorContains(t, call(s), says)
			synctest.Wait()

			lines := strings.Join(s.book.take(), "\n")
			require.Contains(t, lines, `msg="serial: period opened" type=ORD start=2000-01-01T00:00:00.000Z`)
			require.Contains(t, lines, `msg="serial: no number issued"`)
			lines = regexp.MustCompile(` (duration|wait)=[0-9a-zµ.]+`).ReplaceAllString(lines, "") // may have any digits
			for _, number := range s.printed {
				require.NotContains(t, lines, strings.TrimPrefix(number, "ORD-000101-"))
			}
			secrets := []string{"7402", "9402", "serial:{", "ticket-9"} // of sequences, the first digits
			for _, secret := range append(secrets, "an example's key", fmt.Sprintf("%x", "an example's key")) {
				require.NotContains(t, lines, secret)
			}
			errs.WriteString(strings.ReplaceAll(s.reports.String(), s.printed[0], "PRINTED"))
		})
	}
	for _, secret := range []string{"7402", "9402", "serial:{", "ticket-9", "PRINTED"} {
		require.Contains(t, errs.String(), secret, "the errors have what the log must not have")
	}
}

// Any number of goroutines and generators may share the hooks, and a logger that panics stops nobody.
func TestLogHooksOfMany(t *testing.T) {
	m := simulate(t)
	l := &logbook{}
	hooks := serial.LogHooks(l.logger())
	var gens []*serial.Generator
	for _, more := range []serial.Hooks{hooks, serial.LogHooks(slog.New(panickingHandler{l.logger().Handler()}))} {
		gens = append(gens, newGenerator(t, m.Client(), serial.WithLocation(noon()), serial.WithHooks(hooks),
			serial.WithHooks(more), serial.WithTemplate("{type}{date:yyyyMMdd}{seq:2}")))
	}
	got := barrier(t, 98, func(i int) (string, error) {
		require.ErrorIs(t, errOf(gens[i%2].Next(t.Context(), "I S")), serial.ErrInvalidType)
		return gens[i%2].Next(t.Context(), "IS")
	})
	slices.Sort(got)
	require.Equal(t, "IS"+today(noon())+"98", got[97])
	require.Len(t, slices.Compact(got), 98)
	text := strings.Join(l.take(), "\n")
	require.Equal(t, 98+49, strings.Count(text, "invalid type"))
	require.Contains(t, text, "period opened")
	require.Contains(t, text, "nearly exhausted")
}

type panickingHandler struct{ slog.Handler }

func (panickingHandler) Handle(context.Context, slog.Record) error { panic("boom") }

// Without a logger, events go to the current default one, which a program may set after making the hooks.
func TestLogHooksWithoutLogger(t *testing.T) {
	was, output, flags := slog.Default(), log.Writer(), log.Flags()
	t.Cleanup(func() {
		slog.SetDefault(was)
		log.SetOutput(output) // SetDefault has replaced it
		log.SetFlags(flags)
	})
	hooks := serial.LogHooks(nil)
	for range 2 {
		l := &logbook{}
		slog.SetDefault(l.logger())
		hooks.Lost(t.Context(), serial.LostInfo{Type: "IS", Held: "740291"})
		require.Equal(t, []string{`level=ERROR msg="serial: counter lost" type=IS start=0001-01-01T00:00:00.000Z`}, l.take())
	}
}

// Each of any number of hooks is called once for a nearly exhausted period, when its own share is used.
func TestManyHooksNearlyExhausted(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		const hooks = 70
		heard := make([][]int64, hooks)
		opts := options(serial.WithTemplate("{type}{date:yyyyMMdd}{seq:2}"))
		for i := range hooks {
			opts = append(opts, serial.WithHooks(serial.Hooks{
				NearlyExhaustedAt: float64(i+1) / hooks,
				NearlyExhausted: func(_ context.Context, e serial.ExhaustionInfo) {
					heard[i] = append(heard[i], e.Used)
				},
			}))
		}
		gen := newGenerator(t, m.Client(), opts...)
		for range 99 {
			require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
		}
		for i := range hooks {
			due := int64(math.Ceil(float64(i+1) / hooks * 99))
			require.Equal(t, []int64{due}, heard[i], "hook %d", i)
		}
	})
}
