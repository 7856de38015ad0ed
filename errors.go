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
// An error matches [context.Canceled] or [context.DeadlineExceeded] if and only if the caller's own context ended, or the error of
// a floor or ledger matches it. It may match one of the errors below at the same time.
var (
	// ErrInvalidType means that a type is not 1 to 64 bytes of letters, digits (of any script) and - _ . /, that it contains an
	// invisible letter, or that Unicode's normalization form NFKC changes it. For example, NFKC changes full-width letters and
	// the KELVIN SIGN. With a template whose check digit covers letters, only ASCII types are allowed. Nothing was sent to Redis.
	ErrInvalidType = template.ErrInvalidType

	// ErrExhausted means that the period has fewer numbers left than the call asked for. The counter did not move, except that
	// a ledger may have moved it to the start of a new block. A smaller batch may still succeed. If {seq} is made wider, the
	// period continues.
	ErrExhausted = errors.New("serial: numbers exhausted")

	// ErrCounterLost means that the period was open, but its counter is gone, went back or holds something other than a number,
	// and nothing tells what the last number was: there is no floor, and no ledger or one that was turned on after the loss. It is
	// also returned for a period that Redis's clock had entered while it was ahead, if that period's counter is gone.
	// [Generator.Raise] with the last number used ends it. [Generator.Peek] and [Generator.Audit], which repair nothing, return
	// it even with a floor or a ledger.
	ErrCounterLost = errors.New("serial: counter lost")

	// ErrClockSkew means that Redis's clock is more than 5 s behind the start of a period that was already entered, or that it
	// differs from this host's clock by more than [WithMaxSkew] when a period is opened or a prepared one is entered.
	ErrClockSkew = errors.New("serial: clock skew")

	// ErrConflict means that the type is in use with other settings. The message names them:
	//
	//   - another [Period] or year start: the conflict lasts as long as the series. To begin a new series, use another type, or
	//     another key prefix together with another literal in the template.
	//   - other period bounds, such as those of another time zone, or a ledger that this Generator does not have: the conflict
	//     ends with the period in force, or at once with [Generator.Takeover].
	//   - a template or key by which two sequences could print alike: the conflict ends with the last period in which the other
	//     one was used.
	//
	// From [Generator.NextOnce] it may also mean that the request was answered before with a number whose sequence is hidden by a
	// key that this Generator does not have.
	ErrConflict = errors.New("serial: conflicting period")

	// ErrInvalidRequest means that the request ID for [Generator.NextOnce] is not 1 to 128 bytes of printable UTF-8, or that the
	// count for [Generator.NextN] is not 1 to 100,000. Nothing was sent to Redis.
	ErrInvalidRequest = errors.New("serial: invalid request")

	// ErrInvalidNumber means that a text cannot have been issued as a number with this template, period and time zone; see
	// [Generator.Parse] and [Scheme.Parse].
	ErrInvalidNumber = template.ErrInvalidNumber

	// ErrCheckDigit means that a number is mistyped, because its check digit is wrong. It is reported before any other fault of
	// the sequence or the date, unless a character cannot occur at its place at all. [ErrInvalidNumber] matches too.
	ErrCheckDigit = template.ErrCheckDigit

	// ErrNotReplicated means that too few replicas confirmed a number in time; see [WithReplicas]. The number is not returned and
	// leaves a gap, except with [Generator.NextOnce]: the same request gets it once enough replicas confirm it.
	ErrNotReplicated = errors.New("serial: not replicated")
)

// outcome returns the error of a public method: err, with a note if the caller's context has ended.
func outcome(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if end := redisrun.EndOf(ctx); end != nil && !errors.Is(err, end) {
		return fmt.Errorf("%w (and the caller's context has ended: %w)", err, end)
	}
	return err
}
