package serial_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"os"
	"regexp"
	"strings"
	"sync"
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

// A callerKey is the key of a context's value for the name of the caller.
type callerKey struct{}

// hooks returns hooks that add a line for each event, with the name of the caller from the context.
func (l *lines) hooks() serial.Hooks {
	add := func(ctx context.Context, format string, args ...any) {
		l.add("%v: %s", ctx.Value(callerKey{}), fmt.Sprintf(format, args...))
	}
	return serial.Hooks{
		Issued: func(ctx context.Context, i serial.IssuedInfo) {
			add(ctx, "issued %d to %v in %v", i.Count, i.Last, i.Duration)
		},
		Failed: func(ctx context.Context, i serial.FailedInfo) { add(ctx, "failed %d %s", i.Count, i.Type) },
		Opened: func(ctx context.Context, i serial.OpenedInfo) {
			add(ctx, "opened %s %s after %v", i.Type, i.Start.Format("20060102"), i.Wait)
			time.Sleep(time.Minute) // not counted in the call's duration
		},
		Lost: func(ctx context.Context, i serial.LostInfo) {
			add(ctx, "lost %s %s: %q, repaired %v, pending %v", i.Type, i.Start.Format("20060102"), i.Held, i.Repaired,
				i.Pending)
		},
		ClockCorrected: func(ctx context.Context, i serial.ClockInfo) { add(ctx, "clock %v, not %v", i.Offset, i.Before) },
		NearlyExhausted: func(ctx context.Context, i serial.ExhaustionInfo) {
			add(ctx, "%d of %d used, %v", i.Used, i.Size, i.Last)
		},
	}
}

// Every kind of event occurs. The hooks must be called in the order of the events, with the context of the call.
// LogHooks must log the events that concern an operator, at the right level and with the same context. It must not log
// issued numbers.
func TestHooks(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		l := &lines{}
		hooks := serial.LogHooks(l.logger())
		require.Nil(t, hooks.Issued)
		require.Nil(t, hooks.Unused)
		hooks.NearlyExhaustedAt = 0.5
		ctx := context.WithValue(t.Context(), callerKey{}, "me")
		gen := newGenerator(t, m.Client(slowing("set", time.Second)), serial.WithLocation(time.FixedZone("", 3600)),
			serial.WithHooks(l.hooks()), serial.WithHooks(hooks), serial.WithStart(50),
			serial.WithTemplate("{type}{date:yyyyMMdd}{seq:2}"))
		next := func(n int) error { return errOf(gen.NextN(ctx, "IS", n)) }
		// requireLines requires the lines of hooks without the caller, and log entries as LEVEL EVENT with more.
		requireLines := func(want ...string) {
			t.Helper()
			logged := regexp.MustCompile(`^me: (INFO|WARN|ERROR) (.*".*)`)
			for i, line := range want {
				line = logged.ReplaceAllString("me: "+line, `level=$1 msg="serial: $2 caller=me`)
				want[i] = strings.Replace(line, "DAY", "type=IS start=2000-01-01T00:00:00.000+01:00", 1)
			}
			require.Equal(t, want, l.take())
		}

		require.NoError(t, next(1))
		requireLines("opened IS 20000101 after 1s", `INFO period opened" DAY wait=1s`, "issued 1 to IS2000010150 in 1s")
		require.NoError(t, next(3))
		require.NoError(t, errOf(gen.NextOnce(ctx, "IS", "a")))
		require.NoError(t, errOf(gen.NextOnce(ctx, "IS", "a")))
		requireLines("issued 3 to IS2000010153 in 0s", "issued 1 to IS2000010154 in 0s", "issued 0 to IS2000010154 in 0s")

		require.ErrorIs(t, next(51), serial.ErrExhausted)
		require.ErrorIs(t, errOf(gen.Next(ctx, "I S")), serial.ErrInvalidType)
		require.ErrorIs(t, errOf(gen.NextOnce(ctx, "IS", "")), serial.ErrInvalidRequest)
		requireLines("failed 51 IS", `ERROR no number issued" type=IS error="serial: numbers exhausted" duration=0s`,
			"failed 1 I S", `INFO no number issued" error="serial: invalid type" duration=0s`,
			"failed 1 IS", `INFO no number issued" type=IS error="serial: invalid request" duration=0s`)

		// Half of the 50 numbers are used at 74, and 80 % of them at 89.
		for _, n := range []int{34, 1, 1} {
			require.NoError(t, next(n))
		}
		requireLines("issued 34 to IS2000010188 in 0s", `WARN numbers nearly exhausted" DAY`,
			"issued 1 to IS2000010189 in 0s", "40 of 50 used, IS2000010189", "issued 1 to IS2000010190 in 0s")

		require.NoError(t, m.Set("serial:{IS}:20000101", "7"))
		require.ErrorIs(t, next(1), serial.ErrCounterLost)
		requireLines(`lost IS 20000101: "7", repaired false, pending false`, `ERROR counter lost" DAY`, "failed 1 IS",
			`ERROR no number issued" type=IS error="serial: counter lost" duration=0s`)
		require.NoError(t, gen.Raise(ctx, "IS", 60))
		require.NoError(t, next(1))
		requireLines(`lost IS 20000101: "7", repaired true, pending false`, "opened IS 20000101 after 0s",
			`WARN counter repaired" DAY`, `INFO period opened" DAY wait=0s`, "issued 1 to IS2000010191 in 0s")
		require.NoError(t, gen.Prepare(ctx, "IS"))
		requireLines()

		// Redis's clock is an hour ahead. The hook must run once, on the next day.
		m.SetTime(time.Now().Add(24 * time.Hour))
		time.Sleep(22*time.Hour + 30*time.Minute)
		m.SetTime(time.Now().Add(59 * time.Minute))
		require.NoError(t, next(1))
		requireLines("clock 59m0s, not 0s", `WARN clock differs" offset=59m0s before=0s`, "issued 1 to IS2000010250 in 0s")
	})
}

// Redis has passed midnight, and the counter of its new day is lost. The hook Lost must report whether the call repaired
// the counter, whether a later call may repair it, or whether an operator must. LogHooks must log only the last case as
// an error.
func TestHooksOfLosses(t *testing.T) {
	none, ledger := serial.WithMaxSkew(-1), serial.WithLedger(new(serialtest.Ledger), 10)
	broken := serial.WithFloor(func(context.Context, string, time.Time) (int64, error) { return 0, errBoom })
	logs := map[string]string{"repaired true, pending false": `WARN msg="serial: counter repaired"`,
		"repaired false, pending true":  `WARN msg="serial: counter lost"`,
		"repaired false, pending false": `ERROR msg="serial: counter lost"`}
	for _, row := range []struct {
		option serial.Option
		script string
		want   string
	}{
		{none, "gen next = lost", "repaired false, pending false"},
		{none, "gen prepare = lost", "repaired false, pending false"},
		{none, "audit today", "repaired false, pending false"},
		{none, "audit yesterday", "repaired false, pending false"},
		{none, "gen raise 3", "repaired true, pending false"},
		{fixedFloor(3), "gen next", "repaired true, pending false"},
		{fixedFloor(3), "gen peek = lost", "repaired false, pending true"},
		{broken, "gen next = boom", "repaired false, pending true"},
		{ledger, "gen peek = lost", "repaired false, pending true"},
		{ledger, "gen next = lost", "repaired false, pending false"},
	} {
		inBubble(t, func(t *testing.T, m *simulation) {
			var heard, logged lines
			hooks := serial.LogHooks(logged.logger())
			hooks.ClockCorrected = nil
			opts := options(serial.WithLocation(time.UTC), serial.WithMaxSkew(-1), serial.WithRetention(1))
			require.NoError(t, errOf(newGenerator(t, m.Client(), opts...).Next(t.Context(), "IS")))
			m.SetTime(time.Now().AddDate(0, 0, 1))
			require.NoError(t, errOf(newGenerator(t, m.Client(), opts...).Next(t.Context(), "IS")))
			m.Del("serial:{IS}:20000102")
			gen := newGenerator(t, m.Client(), append(opts, row.option, serial.WithHooks(hooks),
				serial.WithHooks(serial.Hooks{Lost: heard.hooks().Lost}))...)
			steps(t, map[string]*serial.Generator{"gen": gen}, map[string]func(string){"audit": func(day string) {
				at := map[string]serial.When{"yesterday": serial.On(2000, 1, 1), "today": serial.On(2000, 1, 2)}[day]
				err := errOf(gen.Audit(t.Context(), "IS", at, used()))
				if day == "yesterday" {
					require.NoError(t, err)
				} else {
					require.ErrorIs(t, err, serial.ErrCounterLost)
				}
			}}, row.script)
			require.Equal(t, `<nil>: lost IS 20000102: "", `+row.want, heard.take()[0])
			require.Equal(t, "level="+logs[row.want]+" type=IS start=2000-01-02T00:00:00.000Z", logged.take()[0])
		})
	}
}

// A period was opened with a lower start than the generator has. NearlyExhausted must be called once most numbers of
// the period are used.
func TestNearlyExhaustedBelowTheStart(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		var l lines
		opts := options(serial.WithLocation(time.UTC), serial.WithTemplate("{type}{date:yyyyMMdd}{seq:2}"))
		require.NoError(t, errOf(newGenerator(t, m.Client(), opts...).NextN(t.Context(), "IS", 78)))
		late := newGenerator(t, m.Client(), append(opts, serial.WithStart(95),
			serial.WithHooks(serial.Hooks{NearlyExhausted: l.hooks().NearlyExhausted}))...)
		require.NoError(t, errOf(late.Next(t.Context(), "IS")))
		require.NoError(t, errOf(late.Next(t.Context(), "IS")))
		require.Equal(t, []string{"<nil>: 80 of 99 used, IS2000010180"}, l.take())
	})
}

// A hook panics, blocks or calls the generator. Other callers must not be affected, and the number must be issued.
func TestHooksMisbehave(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		var gen *serial.Generator
		next := func(typ, seq string) { requireResult(t, typ+"20000101000"+seq)(gen.Next(t.Context(), typ)) }
		block := make(chan struct{})
		gen = newGenerator(t, m.Client(), serial.WithLocation(time.UTC), serial.WithHooks(serial.Hooks{
			Opened: func(context.Context, serial.OpenedInfo) { panic("boom") },
			Failed: func(context.Context, serial.FailedInfo) { panic("boom") },
			Issued: func(ctx context.Context, i serial.IssuedInfo) {
				switch fmt.Sprint(i.Last.Type, i.Last.Seq) {
				case "BLOCKS1":
					<-block
				case "ASKS1":
					next("ASKS", "2")
				}
				panic("boom")
			},
		}))
		var wg sync.WaitGroup
		wg.Go(func() { next("BLOCKS", "1") })
		synctest.Wait()
		next("IS", "1")
		next("ASKS", "1")
		next("BLOCKS", "2") // the lock is free
		require.ErrorIs(t, errOf(gen.Next(t.Context(), "")), serial.ErrInvalidType)
		close(block)
		wg.Wait()
	})
}

// logger returns a logger that adds lines, without times.
func (l *lines) logger() *slog.Logger {
	return slog.New(callerHandler{slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug})})
}

func (l *lines) Write(line []byte) (int, error) {
	l.add("%s", bytes.TrimSuffix(line, []byte("\n")))
	return len(line), nil
}

// A callerHandler is a slog.Handler that adds the name of the caller from the context, and removes the time.
type callerHandler struct{ slog.Handler }

func (h callerHandler) Handle(ctx context.Context, r slog.Record) error {
	if caller, ok := ctx.Value(callerKey{}).(string); ok {
		r.Add("caller", caller)
	}
	r.Time = time.Time{}
	return h.Handler.Handle(ctx, r)
}

// Two clocks differ slightly around midnight. A difference of less than a second must not be logged as a warning, and a
// clock must be reported as corrected only if it no longer differs.
func TestLogHooksOfClocks(t *testing.T) {
	var l lines
	for want, i := range map[string]serial.ClockInfo{
		`WARN msg="serial: clock differs" offset=1h0m0s before=0s`:               {Offset: time.Hour},
		`WARN msg="serial: clock differs" offset=-1s before=0s`:                  {Offset: -time.Second},
		`WARN msg="serial: clock corrected" offset=1ms before=-1s`:               {Offset: 1e6, Before: -time.Second},
		`INFO msg="serial: clock differs" offset=-999ms before=0s`:               {Offset: -999 * time.Millisecond},
		`INFO msg="serial: clock differs" offset=1h0m0s before=59m59.999999999s`: {Offset: time.Hour, Before: time.Hour - 1},
	} {
		serial.LogHooks(l.logger()).ClockCorrected(t.Context(), i)
		require.Equal(t, []string{"level=" + want}, l.take())
	}
}

// Calls fail for different causes. The level of the log entry must depend on the cause, and only harmless parts of the
// error text must be logged.
func TestLogHooksOfFailures(t *testing.T) {
	var l lines
	left, leave := context.WithCancel(t.Context())
	leave()
	late, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	calls, canceled := t.Context(), context.Canceled
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	for _, row := range []struct {
		ctx  context.Context
		err  error
		want string
	}{
		{calls, serial.ErrExhausted, `ERROR "serial: numbers exhausted"`},
		{calls, serial.ErrCounterLost, `ERROR "serial: counter lost"`},
		{calls, serial.ErrClockSkew, `ERROR "serial: clock skew"`},
		{calls, serial.ErrConflict, `ERROR "serial: conflicting period"`},
		{calls, serial.ErrNotReplicated, `ERROR "serial: not replicated"`},
		{calls, serial.ErrInvalidRequest, `INFO "serial: invalid request"`},
		{left, fmt.Errorf("%w (%w)", serial.ErrCounterLost, canceled), `ERROR "serial: counter lost: context canceled"`},
		{left, fmt.Errorf("%w (%w)", serial.ErrInvalidRequest, canceled), `INFO "serial: invalid request: context canceled"`},
		{left, canceled, `INFO "context canceled"`}, {late, context.DeadlineExceeded, `WARN "context deadline exceeded"`},
		{calls, canceled, `ERROR "context canceled"`}, // error that the floor returned
		{left, errBoom, `ERROR "another failure"`},    // before the caller left
		{calls, io.EOF, "ERROR EOF"}, {calls, redis.ErrPoolTimeout, fmt.Sprintf("ERROR %q", redis.ErrPoolTimeout)},
		{calls, refused, fmt.Sprintf(`ERROR "dial tcp: connect: %v"`, syscall.ECONNREFUSED)},
		{calls, redisError("NOPERM no permission for the key serial:{IS}"), "ERROR NOPERM"},
		{calls, redisError("serial:{IS}"), `ERROR "another failure"`}, {calls, redisError("X1 7"), `ERROR "another failure"`},
		{calls, fmt.Errorf("%w of IS failed: %w", inner.ErrFloor, io.EOF), `ERROR "the floor: EOF"`},
		{calls, fmt.Errorf("%w of IS failed: %w", inner.ErrLedger, serial.ErrConflict),
			`ERROR "the ledger: serial: conflicting period"`},
	} {
		err := fmt.Errorf("serial:{IS}:20000101 is at 740291: %w", row.err)
		serial.LogHooks(l.logger()).Failed(row.ctx, serial.FailedInfo{Type: "IS", Count: 1, Err: err, Duration: time.Second})
		level, text, _ := strings.Cut(row.want, " ")
		require.Equal(t, []string{fmt.Sprintf(`level=%s msg="serial: no number issued" type=IS error=%s duration=1s`,
			level, text)}, l.take(), "%v", row.err)
	}
}

// A redisError is an error that Redis replies.
type redisError string

func (e redisError) Error() string { return string(e) }
func (redisError) RedisError()     {}

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
		var l lines
		slog.SetDefault(l.logger())
		hooks.Lost(t.Context(), serial.LostInfo{Type: "IS", Held: "740291"})
		require.Equal(t, []string{`level=ERROR msg="serial: counter lost" type=IS start=0001-01-01T00:00:00.000Z`}, l.take())
	}
}
