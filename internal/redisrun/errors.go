package redisrun

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// This file tells failures apart: those of the caller's context, those that may pass, those of commands that were never sent, and
// those that all callers share.

var (
	// ErrNoAnswer means that a time limit of ours has passed.
	ErrNoAnswer = fmt.Errorf("no answer in time: %w", os.ErrDeadlineExceeded)
	// ErrUnanswered means that no answer came in time to a command that is sent at most once. It may have run.
	ErrUnanswered = errors.New("serial: no answer in time to a command that cannot be repeated")
	// ErrEnded means that a hook of the client ended a goroutine.
	ErrEnded = errors.New("serial: the goroutine of a command was ended from outside")
)

// EndOf returns the error of a context that has ended, and nil while it lives. A deadline that has just passed counts
// even if the context's timer has not fired yet: go-redis may give up on it a moment earlier.
func EndOf(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if d, ok := ctx.Deadline(); ok && !time.Now().Before(d) {
		return context.DeadlineExceeded
	}
	return nil
}

// GaveUp returns the error of a call whose context ended with end. note has the failure of the attempt before.
func GaveUp(end error, note *Note) error {
	err := fmt.Errorf("serial: gave up waiting for Redis, where the command may have run: %w", end)
	if failure := note.Load(); failure != nil {
		err = fmt.Errorf("%w; before that: %w", err, Foreign(*failure))
	}
	return err
}

// Foreign hides that an error of go-redis, redsync or our own time limits stems from a context, because that context
// was not the caller's. Everything else about the error still matches.
func Foreign(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return foreignError{err}
	}
	return err
}

type foreignError struct{ cause error }

func (e foreignError) Error() string { return e.cause.Error() }

// There is no Unwrap: errors.Is and errors.As would walk through it.

func (e foreignError) Is(target error) bool {
	return target != context.Canceled && target != context.DeadlineExceeded && errors.Is(e.cause, target)
}

func (e foreignError) As(target any) bool { return errors.As(e.cause, target) }

// isTimeout reports whether a time limit of ours ended a command.
func isTimeout(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrNoAnswer)
}

// failed returns the error of a call whose last attempt failed with err.
func failed(err error) error { return Outage(fmt.Errorf("serial: Redis failed: %w", Foreign(err))) }

// Outage marks a server's failure as one that all callers who want the same share: each would ask in vain.
func Outage(err error) error { return outageError{err} }

// IsOutage reports whether err is an Outage, or wraps one.
func IsOutage(err error) bool { return errors.As(err, new(outageError)) }

type outageError struct{ error }

func (e outageError) Unwrap() error { return e.error }

// Transient reports whether the same command may succeed a moment later.
func Transient(err error) bool {
	return errors.As(err, new(net.Error)) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) ||
		redis.IsLoadingError(err) || redis.IsReadOnlyError(err) || redis.IsClusterDownError(err) ||
		redis.IsTryAgainError(err) || redis.IsMasterDownError(err) || redis.IsMaxClientsError(err)
}

// Unsent reports whether the script did not run: the server said so, or there was no connection to send it on.
func Unsent(err error) bool {
	refusals := []string{"NOSCRIPT", "MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "CROSSSLOT", "LOADING", "MASTERDOWN",
		"BUSY", "NOAUTH", "NOPERM"}
	network, _ := errors.AsType[*net.OpError](err)
	return slices.ContainsFunc(refusals, func(prefix string) bool { return redis.HasErrorPrefix(err, prefix) }) ||
		redis.IsReadOnlyError(err) || // in Redis 6.2, READONLY is inside the error of a script
		errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) ||
		network != nil && network.Op == "dial"
}
