package redisrun

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// This file classifies failures: the caller's context ended, the failure may pass, the command was never sent, or all
// callers share the failure.

var (
	// ErrNoAnswer means that a time limit of ours has passed.
	ErrNoAnswer = fmt.Errorf("no answer in time: %w", os.ErrDeadlineExceeded)
	// ErrUnsent means that nothing was sent, because the call had no time left. It says nothing about the server.
	ErrUnsent = fmt.Errorf("serial: Redis failed: %w", ErrNoAnswer)
	// ErrUnanswered means that no answer came in time to a command that is sent at most once. It may have run.
	ErrUnanswered = errors.New("serial: no answer in time to a command that cannot be repeated")
	// errNoConnection means that no connection became free in time, and none could be made. Nothing was sent.
	errNoConnection = fmt.Errorf("no connection became free or could be made in time: %w: %w", redis.ErrPoolTimeout,
		os.ErrDeadlineExceeded)
	// ErrEnded means that a hook of the client ended a goroutine.
	ErrEnded = errors.New("serial: the goroutine of a command was ended from outside")
)

// EndOf returns a context's error, nil while it lives. A deadline that has just passed counts even if the context's
// timer has not fired yet: go-redis may give up a moment before that.
func EndOf(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if d, ok := ctx.Deadline(); ok && !time.Now().Before(d) {
		return context.DeadlineExceeded
	}
	return nil
}

// GaveUp returns the error of a call whose context ended with end. note holds the failure of the previous attempt.
func GaveUp(end error, note *Note) error {
	return After(note, fmt.Errorf("serial: gave up waiting for Redis, where the command may have run: %w", end))
}

// After returns err, the error of a call that gave up, with the failure in note, unless there is none, err has it, or
// err has an earlier failure already.
func After(note *Note, err error) error {
	if failure := note.Load(); failure != nil && !strings.Contains(err.Error(), (*failure).Error()) &&
		!errors.As(err, new(afterError)) {
		return afterError{fmt.Errorf("%w; before that: %w", err, describe(Foreign(*failure)))}
	}
	return err
}

// An afterError has the failure before the error that ended the call.
type afterError struct{ error }

func (e afterError) Unwrap() error { return e.error }

// Foreign hides that an error from go-redis, redsync or our own time limits comes from a context, because that context
// is not the caller's. The error still matches everything else.
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

// noConnection returns errNoConnection if err, the error of a command, shows that within has ended before the command
// had a connection: go-redis returns a context's error only until then.
func noConnection(within context.Context, err error) error {
	if end := within.Err(); end != nil && errors.Is(err, end) && !errors.As(err, new(*net.OpError)) {
		return errNoConnection
	}
	return nil
}

// isTimeout reports whether a time limit of ours ended a command.
func isTimeout(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrNoAnswer)
}

// Failed returns the error of a call whose last attempt failed with err. servers is "Redis" or another name. The error
// is an Outage, unless the call's own limit has passed: late means that the call had little time left for its attempts.
func Failed(servers string, err error, late bool) error {
	if err == ErrUnsent {
		return err
	}
	failed := fmt.Errorf("serial: %s failed: %w", servers, describe(Foreign(err)))
	if late && isTimeout(err) {
		return failed
	}
	return Outage(failed)
}

// refusals are Redis's errors that an operator has to end, with their meaning, which some texts hide, and what ends
// them. Before Redis 7.2, the refusal of a script's command has no code. docs/errors.md has a row for each.
var refusals = []struct{ text, means string }{
	{"NOPERM", denied},
	{"The user executing the script can't", denied},
	{"ACL failure in script", denied},
	{"NOAUTH", noPassword},
	{"unauthenticated", noPassword},
	{"WRONGPASS", "this client's user name or password is wrong, or an ACL turns the user off"},
	{"Unknown Redis command", "a command that is needed was renamed or disabled: give it back its name"},
	{"READONLY", "this client reaches a replica: give the client the master's address, or use Sentinel or a Cluster " +
		"client"},
	{"OOM", "Redis has reached maxmemory: free memory, or raise maxmemory; do not let Redis evict keys"},
	{"MISCONF", "Redis cannot save its data, and Redis's log says why: correct that; without a ledger, do not set " +
		"stop-writes-on-bgsave-error to no, because a restart could then repeat numbers"},
	{"NOREPLICAS", "fewer replicas are in sync than min-replicas-to-write asks for: bring them back"},
	{"BUSY", "another script has been running for too long: end it with SCRIPT KILL"},
	{"TRYAGAIN", "the slot of the keys moves to another node: wait until it has moved, or finish the migration"},
}

const (
	denied     = "an ACL denies this client's user a command or a key that is needed"
	noPassword = "Redis wants a password, and this client has none"
)

// describe returns err, with its meaning if that is not obvious.
func describe(err error) error {
	if reply, ok := errors.AsType[redis.Error](err); ok {
		for _, r := range refusals {
			if strings.Contains(reply.Error(), r.text) && !strings.Contains(err.Error(), r.means) {
				return fmt.Errorf("%w; %s", err, r.means)
			}
		}
	}
	return err
}

// Outage marks a server's failure that all callers with the same request share, because each would ask in vain.
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

// Unsent reports whether the script did not run: the server said so, or there was no connection or no time to send it.
func Unsent(err error) bool {
	refusals := []string{"NOSCRIPT", "MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "CROSSSLOT", "LOADING", "MASTERDOWN",
		"BUSY", "NOAUTH", "NOPERM", "WRONGPASS", "TIME", "OOM", "MISCONF", "NOREPLICAS"}
	network, _ := errors.AsType[*net.OpError](err)
	return slices.ContainsFunc(refusals, func(prefix string) bool { return redis.HasErrorPrefix(err, prefix) }) ||
		redis.IsReadOnlyError(err) || // in Redis 6.2, READONLY is inside a script's error
		errors.Is(err, ErrUnsent) || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) ||
		network != nil && network.Op == "dial"
}
