package wire

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

// This file classifies failures: the caller's context ended, the failure may pass, the command never ran, or all
// callers share the failure.

var (
	// ErrNoAnswer means that a time limit of ours has passed.
	ErrNoAnswer = fmt.Errorf("no answer in time: %w", os.ErrDeadlineExceeded)
	// ErrUnsent means that nothing was sent before the deadline. It says nothing about the server.
	ErrUnsent = fmt.Errorf("serial: Redis failed: %w", ErrNoAnswer)
	// ErrEnded means that a hook of the client ended a goroutine, or panicked in it.
	ErrEnded = errors.New("serial: the goroutine of a command was ended from outside")
	// errNoConnection means that no connection became free in time. Nothing was sent.
	errNoConnection = fmt.Errorf("no connection became free or could be made in time: %w: %w", redis.ErrPoolTimeout,
		os.ErrDeadlineExceeded)
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

// GaveUp returns the error of a caller whose wait ended with end. before is the failure of an earlier attempt, nil for
// none.
func GaveUp(end error, before *error) error {
	return After(fmt.Errorf("serial: gave up waiting for Redis, where the command may have run: %w", end), before)
}

// After returns err, the error of a caller that gave up, with the failure of an earlier attempt, unless that is nil or
// err has one already.
func After(err error, failure *error) error {
	if failure == nil || strings.Contains(err.Error(), "; before that: ") {
		return err
	}
	return &afterError{err, describe(Foreign(*failure))}
}

// An afterError is the failure of the last attempt, with that of an earlier one. errors.Is and errors.As find both.
type afterError struct{ last, earlier error }

func (e *afterError) Error() string   { return e.last.Error() + "; before that: " + e.earlier.Error() }
func (e *afterError) Unwrap() []error { return []error{e.last, e.earlier} }

// lastOf returns the failure of the last attempt. Only that one says whether the command may have run.
func lastOf(err error) error {
	if after, ok := errors.AsType[*afterError](err); ok {
		return after.last
	}
	return err
}

// Late returns err. If the deadline passed more than a second ago, the error has both times, and asks whether the
// process was suspended.
func Late(err error, deadline time.Time) error {
	now := time.Now()
	if now.Sub(deadline) <= time.Second {
		return err
	}
	const layout = "15:04:05.000"
	return fmt.Errorf("%w (the call ended at %s, although its deadline was %s: was this process suspended?)",
		err, now.Format(layout), deadline.In(now.Location()).Format(layout))
}

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

// Failed returns the error of a command whose last attempt failed with err. servers is "Redis" or another name. The
// error is an [Outage], unless nothing was sent.
func Failed(servers string, err error) error {
	if err == ErrUnsent {
		return err
	}
	return Outage(fmt.Errorf("serial: %s failed: %w", servers, describe(Foreign(err))))
}

// FailedAfter is Failed, with the failure of an earlier attempt if err only says that the time was up. before may be nil.
func FailedAfter(servers string, err error, before *error) error {
	if before == nil || !isTimeout(err) || isTimeout(*before) {
		return Failed(servers, err)
	}
	return After(Failed(servers, err), before)
}

// isTimeout reports whether an attempt failed for want of time, which says less than the failure before it.
func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
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

// lasts reports whether a failure may take many attempts to pass. A slot may be moving to another server, and a
// connection becomes free when others are done. After a failover, every connection to the old master has to be tried
// once before it is dropped.
func lasts(err error) bool {
	return redis.IsTryAgainError(err) || redis.IsReadOnlyError(err) || errors.Is(err, redis.ErrPoolTimeout)
}

// Unsent reports whether the command did not run: the server said so, or there was no connection or no time to send it.
func Unsent(err error) bool {
	err = lastOf(err)
	refusals := []string{"NOSCRIPT", "MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "CROSSSLOT", "LOADING", "MASTERDOWN",
		"BUSY", "NOAUTH", "NOPERM", "WRONGPASS", "TIME", "OOM", "MISCONF", "NOREPLICAS"}
	return slices.ContainsFunc(refusals, func(prefix string) bool { return redis.HasErrorPrefix(err, prefix) }) ||
		redis.IsReadOnlyError(err) || // in Redis 6.2, READONLY is inside a script's error
		errors.Is(err, ErrUnsent) || neverRan(err)
}

// Silent reports whether a command may still run, because the server has not replied to it.
func Silent(err error) bool {
	_, replied := errors.AsType[redis.Error](lastOf(err))
	return !Unsent(err) && !replied
}

// isRedirection reports whether another server of a Cluster has the key.
func isRedirection(err error) bool {
	return redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK")
}

// neverRan reports whether err proves that a command did not run: there was no connection to send it on, or its slot is
// moving. Only then is a command sent again that must not run twice. (A script that the server does not know, and a slot
// that has moved, are no failures: see mayRepeat.)
func neverRan(err error) bool {
	network, _ := errors.AsType[*net.OpError](err)
	return redis.IsTryAgainError(err) || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) ||
		network != nil && network.Op == "dial"
}
