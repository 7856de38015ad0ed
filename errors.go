package serial

import (
	"context"
	"errors"
	"fmt"

	"github.com/dailyserial/serial/internal/redisrun"
	"github.com/dailyserial/serial/internal/template"
)

// These are the errors that callers act on; match them with [errors.Is]. Every other failure wraps its cause.
//
// An error matches [context.Canceled] or [context.DeadlineExceeded] if and only if the caller's own context ended, or the
// error of a floor or ledger matches it. It may match one of the errors below at the same time.
var (
	// ErrInvalidType means that a type is not 1 to 64 bytes of letters, digits (of any script) and - _ . /, that it has a
	// letter that prints nothing, or that Unicode's normalization form NFKC changes it. NFKC changes full-width letters and
	// the KELVIN SIGN, for example. Nothing was sent to Redis.
	ErrInvalidType = template.ErrInvalidType

	// ErrExhausted means that the period has fewer numbers left than the call asked for. The counter did not move, except
	// that a ledger may have moved it to the start of a new block. A smaller batch may still succeed. A wider {seq} takes
	// effect with the next number.
	ErrExhausted = errors.New("serial: numbers exhausted")

	// ErrCounterLost means that the period was open, that its counter is gone, went back or holds no number, and that
	// nothing tells how far it had come: there is no floor, and no ledger or one that was turned on after the loss. It is
	// also returned for a period that Redis's clock had entered while it was ahead, if that period's counter is gone.
	// [Generator.Raise] with the last number used ends it. [Generator.Peek], which repairs nothing, returns it even with a
	// floor or a ledger.
	ErrCounterLost = errors.New("serial: counter lost")

	// ErrClockSkew means that Redis's clock is more than 5 s behind the start of a period already entered. It also means
	// that Redis's clock differs from this host's by more than [WithMaxSkew] when a period is to be opened or a prepared
	// one entered.
	ErrClockSkew = errors.New("serial: clock skew")

	// ErrConflict means that the type is in use with other settings. The message names them:
	//
	//   - another [Period] or year start: the series keeps its own, so that this never ends. A new series needs another type, or
	//     another key prefix together with another literal in the template.
	//   - other period bounds, such as those of another time zone, or a ledger that this Generator does not have: it ends with the
	//     period in force, or at once by [Generator.Takeover]
	//   - a template or key by which two sequences could print alike: it ends with the last period that was used with it
	//
	// From [Generator.NextOnce] it may also mean that the request was answered with a number whose sequence is hidden by a key
	// that this Generator does not have.
	ErrConflict = errors.New("serial: conflicting period")

	// ErrInvalidRequest means that [Generator.NextOnce] was given a request ID that is not 1 to 128 bytes of printable UTF-8, or
	// [Generator.NextN] a count that is not 1 to 100,000. Nothing was sent to Redis.
	ErrInvalidRequest = errors.New("serial: invalid request")

	// ErrInvalidNumber means that a text is no number that can have been issued with the template, period and time zone given;
	// see [Generator.Parse] and [Scheme.Parse].
	ErrInvalidNumber = template.ErrInvalidNumber

	// ErrCheckDigit means that a number is mistyped: its check digit does not fit. It comes before what else may be wrong with
	// the sequence or the date, but not before a character that cannot stand where it does. [ErrInvalidNumber] matches too.
	ErrCheckDigit = template.ErrCheckDigit

	// ErrNotReplicated means that too few replicas confirmed a number in time; see [WithReplicas]. The number is not issued
	// and leaves a gap, except with [Generator.NextOnce]: the same request gets it once replicas confirm it.
	ErrNotReplicated = errors.New("serial: not replicated")
)

// outcome completes the error of a public method: if the caller's context has ended, the error says so.
func outcome(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if end := redisrun.EndOf(ctx); end != nil && !errors.Is(err, end) {
		return fmt.Errorf("%w (and the caller's context has ended: %w)", err, end)
	}
	return err
}
