package serial

import (
	"context"
	"errors"
	"fmt"

	"github.com/dailyserial/serial/internal/redisrun"
)

// The errors that callers decide by; match them with [errors.Is]. Every other failure wraps its cause.
//
// An error matches [context.Canceled] or [context.DeadlineExceeded] if and only if the caller's own context ended, or a
// floor's or ledger's own error does. It may match one of the errors below at the same time.
var (
	// ErrInvalidType means that a type is not 1 to 64 bytes of letters, digits (of any script) and - _ . /, that it has a
	// letter that prints nothing, or that Unicode's normalization form NFKC changes it, as it does full-width letters and
	// the KELVIN SIGN. Nothing was sent to Redis.
	ErrInvalidType = errors.New("serial: invalid type")

	// ErrExhausted means that the period has fewer numbers left than were asked for. The counter did not move,
	// but, with a ledger, to where a block was set aside; a smaller batch may still succeed. A wider {seq} helps from the
	// next number on.
	ErrExhausted = errors.New("serial: numbers exhausted")

	// ErrCounterLost means that the period was open and its counter is gone, went back or holds no number, and nothing tells
	// how far it had come: there is no floor, and no ledger, or one that was turned on after the loss. It is given, too, for
	// a period that Redis's clock had entered when it was ahead, and whose counter is gone. [Generator.Raise] with the last
	// number used ends it. [Generator.Peek], which repairs nothing, gives it with a floor or a ledger too.
	ErrCounterLost = errors.New("serial: counter lost")

	// ErrClockSkew means that Redis's clock is more than 5 s behind the start of a period already entered, or, when a
	// period is to be opened, or one that was prepared to be entered, differs from this host's by more than [WithMaxSkew].
	ErrClockSkew = errors.New("serial: clock skew")

	// ErrConflict means that the type is in use with other period bounds, where another time zone is configured, or with
	// a ledger that this Generator does not have. From [Generator.NextOnce] it may also mean that version 0.1.0 answered the
	// request with a number that this Generator cannot print.
	ErrConflict = errors.New("serial: conflicting period")

	// ErrNotReplicated means that too few replicas confirmed a number in time; see [WithReplicas]. It is not issued, and
	// it is a gap, unless it was for [Generator.NextOnce]: the same request gets it when replicas confirm it.
	ErrNotReplicated = errors.New("serial: not replicated")
)

// outcome completes the error of a public method: where the caller's context has ended it says so.
func outcome(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if end := redisrun.EndOf(ctx); end != nil && !errors.Is(err, end) {
		return fmt.Errorf("%w (and the caller's context has ended: %w)", err, end)
	}
	return err
}
