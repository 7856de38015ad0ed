package serial

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial/internal/series"
)

// LogHooks returns hooks for [WithHooks] that log events which an operator should know about. Each event is logged with
// the context of its call:
//
//	serial: period opened             Info   type, start, wait
//	serial: counter lost              Error  type, start (Warn if a later call may repair it, see [LostInfo])
//	serial: counter repaired          Warn   type, start
//	serial: clock differs             Warn   offset, before (Info if these differ by less than a second)
//	serial: clock corrected           Warn   the same (if offset is less than a second again)
//	serial: numbers nearly exhausted  Warn   type, start, until (if there is a date, see [WithUntil])
//	serial: no number issued          Error  type, error, duration (see below for Warn and Info)
//
// A failed call is logged at Warn if the caller's deadline has passed, because the reason may be an outage. It is
// logged at Info if the call was canceled ([context.Canceled]), or if the error matches [ErrInvalidType] or
// [ErrInvalidRequest]. An invalid type is omitted. [ErrExhausted] and the other errors that an operator must resolve
// are always logged at Error.
//
// Numbers, sequences, counts of used numbers, keys, request IDs and the content of counters are never logged. So the
// log does not reveal what [WithHiddenSequence] hides, except for the times at which a period is first used, nearly
// exhausted and exhausted. The text of an error is not logged, because it may contain such data. Instead, the attribute
// error consists of the texts of known errors that the error matches, such as "serial: counter lost" or "context
// canceled". These texts also show whether the floor or the ledger has failed. They are followed by the text of a
// network error, which contains addresses, and by the code of a Redis error, such as "NOPERM".
//
// Issued and Unused are nil, because they could only log numbers. You may set or wrap any field before you use the
// hooks, for example to set NearlyExhaustedAt. Several Generators may use the same hooks.
//
// If logger is nil, each event is logged to the current [slog.Default].
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
			level, event := slog.LevelError, "counter lost"
			if i.Repaired || i.Pending {
				level = slog.LevelWarn
			}
			if i.Repaired {
				event = "counter repaired"
			}
			log(ctx, level, event, slog.String("type", i.Type), slog.Time("start", i.Start))
		},
		ClockCorrected: func(ctx context.Context, i ClockInfo) {
			level, event := slog.LevelWarn, "clock differs"
			if (i.Offset - i.Before).Abs() < time.Second {
				level = slog.LevelInfo
			}
			if i.Offset.Abs() < time.Second && i.Before.Abs() >= time.Second {
				event = "clock corrected"
			}
			log(ctx, level, event, slog.Duration("offset", i.Offset), slog.Duration("before", i.Before))
		},
		NearlyExhausted: func(ctx context.Context, i ExhaustionInfo) {
			attrs := []slog.Attr{slog.String("type", i.Last.Type), slog.Time("start", i.Last.Start)}
			if i.Until != (When{}) {
				attrs = append(attrs, slog.String("until", i.Until.String()))
			}
			log(ctx, slog.LevelWarn, "numbers nearly exhausted", attrs...)
		},
		Failed: func(ctx context.Context, i FailedInfo) {
			attrs := []slog.Attr{slog.String("type", i.Type), slog.String("error", loggable(i.Err)),
				slog.Duration("duration", i.Duration)}
			if errors.Is(i.Err, ErrInvalidType) { // an invalid type may have any content and length
				attrs = attrs[1:]
			}
			log(ctx, failureLevel(ctx, i.Err), "no number issued", attrs...)
		},
	}
}

// operatorErrors are the errors that an operator must resolve. They are logged at Error even if the call was canceled.
var operatorErrors = []error{ErrExhausted, ErrCounterLost, ErrClockSkew, ErrConflict, ErrNotReplicated}

// failureLevel returns the log level for the error of a call.
func failureLevel(ctx context.Context, err error) slog.Level {
	matches := func(target error) bool { return errors.Is(err, target) }
	end := series.ContextErr(ctx)
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

// harmless contains errors whose texts contain neither numbers nor keys, in the order in which they are logged.
var harmless = slices.Concat(
	[]error{series.ErrFloor, series.ErrLedger},
	operatorErrors,
	[]error{ErrInvalidType, ErrInvalidRequest, series.ErrTaken, series.ErrNoAnswer, series.ErrEnded,
		io.EOF, io.ErrUnexpectedEOF, redis.ErrClosed, redis.ErrPoolTimeout, redis.ErrPoolExhausted,
		context.Canceled, context.DeadlineExceeded})

// loggable returns the parts of an error that may be logged. The full text may contain numbers and keys from this
// package, the server, the floor or the ledger.
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
