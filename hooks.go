package serial

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial/internal/issue"
	"github.com/dailyserial/serial/internal/redisrun"
)

// Hooks are functions that a [Generator] calls as it works, for metrics, traces and logs. [LogHooks] provides them for a log, and
// package github.com/dailyserial/serial/serialotel for OpenTelemetry. Each may be nil, and then costs nothing.
//
// A hook except Unused runs in the goroutine of the call that it reports, just before that call returns, and receives the call's context,
// which may have ended. No lock is held meanwhile, so a slow hook delays that call and no other. For one call, hooks run in
// this order: ClockCorrected, Lost, Opened, Issued or Failed, NearlyExhausted. Hooks must be safe for use by several
// goroutines. If a hook panics, the panic is dropped and the call returns its result all the same.
type Hooks struct {
	// Issued is called for every call that returns numbers.
	Issued func(context.Context, IssuedInfo)
	// Failed is called for every call that returns an error instead of numbers.
	Failed func(context.Context, FailedInfo)
	// Opened is called for every call that opened the current period, or reopened it after its counter was lost. It is not
	// called for periods that Prepare opens ahead, nor for a counter that a block of the ledger repaired.
	Opened func(context.Context, OpenedInfo)
	// Lost is called for every call that found a counter gone or set back, whether or not it was repaired. If many calls find
	// the same loss, Lost is called for each. It is not called by History, which leaves out lost counters.
	Lost func(context.Context, LostInfo)
	// ClockCorrected is called if a server's clock is in another period than this process assumed, for example because the
	// host's clock is wrong. From then on the process takes the offset into account. Around midnight, an offset of a few
	// milliseconds is enough.
	ClockCorrected func(context.Context, ClockInfo)
	// NearlyExhausted is called once per type and period by each Generator, when the share NearlyExhaustedAt of the period's
	// numbers is used.
	NearlyExhausted func(context.Context, ExhaustionInfo)
	// Unused is told which numbers were counted, or skipped, and which nobody received, as far as this process can know; see
	// [CallerLeft] and the other constants. It runs in a goroutine of its own, one call at a time for each Generator, and its
	// context never ends. [Generator.Flush] waits for it. Up to 10,000 explanations wait. Beyond that, the two oldest of one type,
	// period and reason are merged into one, with Unused false and a Count; where no two have those in common, the newest is
	// dropped, and the Reason of a later one says how many were.
	Unused func(context.Context, Explanation)
	// NearlyExhaustedAt is a share of the numbers of a period, more than 0 and at most 1; 0 means 0.8.
	NearlyExhaustedAt float64
}

// IssuedInfo describes a call that returned numbers.
type IssuedInfo struct {
	Last     Number        // last number issued
	Count    int           // count of numbers issued; 0 if [Generator.NextOnce] repeated an earlier answer
	Duration time.Duration // duration of the call
}

// FailedInfo describes a call that returned an error instead of numbers.
type FailedInfo struct {
	Type     string        // type that was asked for; it may be invalid
	Count    int           // count of numbers asked for
	Err      error         // error that the call returns
	Duration time.Duration // duration of the call
}

// OpenedInfo describes a period that was opened.
type OpenedInfo struct {
	Type  string
	Start time.Time     // first instant of the period
	Wait  time.Duration // time from the beginning of the call until the period was open
}

// LostInfo describes a counter that is gone or was set back.
type LostInfo struct {
	Type  string
	Start time.Time // first instant of the period
	Held  string    // current content of the counter, if known
}

// ClockInfo describes how far a server's clock is ahead of this host's.
type ClockInfo struct {
	Offset, Before time.Duration // new and previous estimate, each accurate to half a round trip
}

// ExhaustionInfo describes a period that has few numbers left.
type ExhaustionInfo struct {
	Last       Number // last number issued
	Used, Size int64  // count of the period's sequences that are used, and of all
}

// WithHooks adds functions to call as the Generator works; see [Hooks]. If it is given more than once, all are called, in that order,
// each with its own NearlyExhaustedAt.
//
// Default none. Allowed is a NearlyExhaustedAt of 0 to 1; 0 means 0.8. At most 64 may be given.
func WithHooks(hooks Hooks) Option {
	hooks.NearlyExhaustedAt = cmp.Or(hooks.NearlyExhaustedAt, 0.8)
	at := hooks.NearlyExhaustedAt
	err := refuseIf(!(at >= 0 && at <= 1),
		"serial: WithHooks: NearlyExhaustedAt %v: allowed are more than 0 to 1, and 0 for 0.8", at)
	return option{"WithHooks", false, err, func(c *config) { c.hooks, c.issuing.Timed = append(c.hooks, hooks), true }}
}

// LogHooks returns hooks for [WithHooks] that log what an operator should know, each event with the context of its call:
//
//	serial: period opened             Info   type, start, wait
//	serial: counter lost              Error  type, start
//	serial: clock corrected           Warn   offset, before (Info if they differ by less than a second)
//	serial: numbers nearly exhausted  Warn   type, start
//	serial: no number issued          Error  type, error, duration (Warn or Info for what may be the caller's doing)
//
// A failed call is logged at Warn if the caller's deadline has passed, which an outage may have caused, and at Info if the caller has
// left ([context.Canceled]) or for [ErrInvalidType] and [ErrInvalidRequest]. An invalid type is left out. [ErrExhausted] and other
// errors that an operator has to end are logged at Error in any case.
//
// Numbers, sequences, how many are used, keys, request IDs and what a counter holds are never logged. So the log does not tell what
// [WithHiddenSequence] hides, except when a period is first used, nearly exhausted and exhausted. The text of an error may have any of
// these, so it is not logged either. The attribute error has instead: the texts of the errors that it matches, such as "serial: counter
// lost" or "context canceled"; whether the floor or the ledger failed; the text of a network error, which has addresses; and the code
// of an error that Redis answers, such as "NOPERM".
//
// Issued and Unused are nil, since all that they could log is numbers. Any field may be set or wrapped before the hooks are used, for
// example to set NearlyExhaustedAt, or to log more where it is not secret. One result may serve any number of Generators.
//
// If logger is nil, each event goes to what [slog.Default] returns at that moment.
func LogHooks(logger *slog.Logger) Hooks {
	log := func(ctx context.Context, level slog.Level, event string, attrs ...slog.Attr) {
		cmp.Or(logger, slog.Default()).LogAttrs(ctx, level, "serial: "+event, attrs...)
	}
	return Hooks{
		Opened: func(ctx context.Context, i OpenedInfo) {
			log(ctx, slog.LevelInfo, "period opened",
				slog.String("type", i.Type), slog.Time("start", i.Start), slog.Duration("wait", i.Wait))
		},
		Lost: func(ctx context.Context, i LostInfo) {
			log(ctx, slog.LevelError, "counter lost", slog.String("type", i.Type), slog.Time("start", i.Start))
		},
		ClockCorrected: func(ctx context.Context, i ClockInfo) {
			level := slog.LevelWarn
			if (i.Offset - i.Before).Abs() < time.Second {
				level = slog.LevelInfo
			}
			log(ctx, level, "clock corrected", slog.Duration("offset", i.Offset), slog.Duration("before", i.Before))
		},
		NearlyExhausted: func(ctx context.Context, i ExhaustionInfo) {
			log(ctx, slog.LevelWarn, "numbers nearly exhausted",
				slog.String("type", i.Last.Type), slog.Time("start", i.Last.Start))
		},
		Failed: func(ctx context.Context, i FailedInfo) {
			attrs := []slog.Attr{slog.String("type", i.Type), slog.String("error", loggable(i.Err)),
				slog.Duration("duration", i.Duration)}
			if errors.Is(i.Err, ErrInvalidType) { // it may be anything, of any length
				attrs = attrs[1:]
			}
			log(ctx, failureLevel(ctx, i.Err), "no number issued", attrs...)
		},
	}
}

// operatorErrors are those that an operator has to end, whether or not the caller has left.
var operatorErrors = []error{ErrExhausted, ErrCounterLost, ErrClockSkew, ErrConflict, ErrNotReplicated}

// failureLevel returns the level at which a call's error is logged.
func failureLevel(ctx context.Context, err error) slog.Level {
	matches := func(target error) bool { return errors.Is(err, target) }
	end := redisrun.EndOf(ctx)
	switch {
	case matches(ErrInvalidType), matches(ErrInvalidRequest):
		return slog.LevelInfo
	case end == nil, !matches(end), slices.ContainsFunc(operatorErrors, matches):
		return slog.LevelError
	case end == context.Canceled:
		return slog.LevelInfo
	}
	return slog.LevelWarn
}

// harmless are errors whose own texts never have a number or a key, in the order in which they are logged.
var harmless = slices.Concat(
	[]error{issue.ErrFloor, issue.ErrLedger},
	operatorErrors,
	[]error{ErrInvalidType, ErrInvalidRequest, issue.ErrTaken, redisrun.ErrNoAnswer, redisrun.ErrUnanswered,
		redisrun.ErrEnded, io.EOF, io.ErrUnexpectedEOF, redis.ErrClosed, redis.ErrPoolTimeout, redis.ErrPoolExhausted,
		context.Canceled, context.DeadlineExceeded})

// loggable returns what a log may have of an error. Its whole text may have numbers and keys, from this package or from the server,
// the floor or the ledger.
func loggable(err error) string {
	var texts []string
	for _, e := range harmless {
		if errors.Is(err, e) {
			texts = append(texts, e.Error())
		}
	}
	if network, ok := errors.AsType[*net.OpError](err); ok {
		texts = append(texts, network.Error())
	}
	if reply, ok := errors.AsType[redis.Error](err); ok {
		code, _, _ := strings.Cut(reply.Error(), " ")
		if strings.Trim(code, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == "" {
			texts = append(texts, code)
		}
	}
	return cmp.Or(strings.Join(texts, ": "), "another failure")
}

// finish ends a call, which is nil if it never began: it calls the hooks for what happened, and returns the error for the caller.
func (g *Generator) finish(ctx context.Context, c *issue.Call, err error) error {
	err = g.publicError(ctx, err)
	if len(g.hooks) == 0 || c == nil {
		return err
	}
	e := c.Events()
	for _, h := range g.hooks {
		if e.Offset != e.Before {
			tell(ctx, h.ClockCorrected, ClockInfo{e.Offset, e.Before})
		}
	}
	for _, h := range g.hooks {
		if e.Lost != nil {
			tell(ctx, h.Lost, LostInfo{e.Type, g.local(e.Lost.Start), e.Held})
		}
	}
	for _, h := range g.hooks {
		if e.Opened != nil {
			tell(ctx, h.Opened, OpenedInfo{e.Type, g.local(e.Opened.Start), e.Wait})
		}
	}
	return err
}

// tellIssued calls the hooks for a call that issued n numbers, or failed with err.
func (g *Generator) tellIssued(ctx context.Context, typ string, n int, last Number, took time.Duration, err error) {
	for _, h := range g.hooks {
		if err != nil {
			tell(ctx, h.Failed, FailedInfo{typ, n, err, took})
		} else {
			tell(ctx, h.Issued, IssuedInfo{last, n, took})
		}
	}
	used, size := last.Seq-g.base, g.limit-g.base
	for i, h := range g.hooks {
		due := int64(math.Ceil(h.NearlyExhaustedAt * float64(size)))
		if n > 0 && err == nil && h.NearlyExhausted != nil && used >= due && g.issuer.WarnOnce(typ, last.Start.Unix(), i) {
			tell(ctx, h.NearlyExhausted, ExhaustionInfo{last, used, size})
		}
	}
}

// tell calls one hook, if there is one, and drops its panic.
func tell[T any](ctx context.Context, hook func(context.Context, T), info T) {
	if hook == nil {
		return
	}
	defer func() { _ = recover() }()
	hook(ctx, info)
}
