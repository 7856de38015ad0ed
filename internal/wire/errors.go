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

// This file classifies failures: whether the caller's context has ended, whether the failure is temporary, whether the
// command may have run, and whether other callers would fail in the same way.

var (
	// ErrNoAnswer means that a time limit of this package or of its callers has passed.
	ErrNoAnswer = fmt.Errorf("no answer in time: %w", os.ErrDeadlineExceeded)
	// ErrUnsent means that nothing was sent before the deadline. The server may be available to other callers.
	ErrUnsent = fmt.Errorf("serial: Redis failed: %w", ErrNoAnswer)
	// ErrEnded means that a hook of the client, or another function that was called, panicked or ended its goroutine.
	ErrEnded = errors.New("serial: external code panicked or ended its goroutine")
	// errNoConnection means that no connection was available in time. Nothing was sent.
	errNoConnection = fmt.Errorf("no connection became free or could be made in time: %w: %w", redis.ErrPoolTimeout,
		os.ErrDeadlineExceeded)
)

// ContextErr returns the error of a context, or nil if the context has not ended. A context whose deadline has passed
// counts as ended even if its timer has not fired yet, because go-redis may give up a moment before that.
func ContextErr(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if d, ok := ctx.Deadline(); ok && !time.Now().Before(d) {
		return context.DeadlineExceeded
	}
	return nil
}

// GaveUp returns the error of a caller that has stopped waiting. The error end is the reason for that. The parameter
// before is the failure of an earlier attempt, or nil if there was none.
func GaveUp(end error, before *error) error {
	return After(fmt.Errorf("serial: gave up waiting for Redis, which may have run the command: %w", end), before)
}

// After adds the failure of an earlier attempt to the error of a caller that gave up. If failure is nil, or if err
// already contains an earlier failure, After returns err unchanged.
func After(err error, failure *error) error {
	if failure == nil || strings.Contains(err.Error(), "; before that: ") {
		return err
	}
	return &afterError{err, describe(Foreign(*failure))}
}

// An afterError is the failure of the final attempt together with that of an earlier one. errors.Is and errors.As find
// both.
type afterError struct{ final, earlier error }

func (e *afterError) Error() string   { return e.final.Error() + "; before that: " + e.earlier.Error() }
func (e *afterError) Unwrap() []error { return []error{e.final, e.earlier} }

// finalError returns the failure of the final attempt. Only this failure shows whether the command may have run.
func finalError(err error) error {
	if after, ok := errors.AsType[*afterError](err); ok {
		return after.final
	}
	return err
}

// Late returns err. If the deadline passed more than a second ago, Late adds the current time, the deadline, and the
// question whether the process was suspended.
func Late(err error, deadline time.Time) error {
	now := time.Now()
	if now.Sub(deadline) <= time.Second {
		return err
	}
	const layout = "15:04:05.000"
	return fmt.Errorf("%w (the call ended at %s, although its deadline was %s: was this process suspended?)",
		err, now.Format(layout), deadline.In(now.Location()).Format(layout))
}

// Foreign wraps an error so that it does not match the two errors of contexts, but everything else that it matched
// before. It is for errors of go-redis, of redsync or of internal time limits, whose contexts are not the caller's.
func Foreign(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return foreignError{err}
	}
	return err
}

type foreignError struct{ cause error }

func (e foreignError) Error() string { return e.cause.Error() }

// There is no Unwrap, because with it errors.Is and errors.As would find the errors of contexts.

func (e foreignError) Is(target error) bool {
	return target != context.Canceled && target != context.DeadlineExceeded && errors.Is(e.cause, target)
}

func (e foreignError) As(target any) bool { return errors.As(e.cause, target) }

// Failed returns the error of a command whose final attempt failed with err. The parameter servers is the name of the
// servers in the message, such as "Redis". The error is an [Outage], unless err is [ErrUnsent]. If servers is "Redis",
// an err that Failed has already returned stays unchanged, as when the lock is on the server of the counters.
func Failed(servers string, err error) error {
	if err == ErrUnsent || servers == "Redis" && IsOutage(err) {
		return err
	}
	return Outage(fmt.Errorf("serial: %s failed: %w", servers, describe(Foreign(err))))
}

// FailedAfter is like Failed. If err is a timeout, it adds the failure of an earlier attempt, unless that is nil or a
// timeout, too.
func FailedAfter(servers string, err error, before *error) error {
	if before == nil || !isTimeout(err) || isTimeout(*before) {
		return Failed(servers, err)
	}
	return After(Failed(servers, err), before)
}

// isTimeout reports whether err is a timeout. An earlier failure shows more about the cause than a timeout.
func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// refusals contains the error replies of Redis that an operator must resolve, each with its meaning and the remedy. The
// texts may be anywhere in the error, because before Redis 7.2, the error of a command in a script does not begin with
// a code. docs/errors.md has a row for each text.
var refusals = []struct{ text, means string }{
	{"NOPERM", denied},
	{"The user executing the script can't", denied},
	{"ACL failure in script", denied},
	{"NOAUTH", noPassword},
	{"unauthenticated", noPassword},
	{"WRONGPASS", "this client's user name or password is wrong, or an ACL turns the user off"},
	{"Unknown Redis command", "a command that is needed was renamed or disabled: restore its name"},
	{"READONLY", "this client reaches a replica: give the client the master's address, or use Sentinel or a Cluster " +
		"client"},
	{"OOM", "Redis has reached maxmemory: free memory, or raise maxmemory; do not let Redis evict keys"},
	{"MISCONF", "Redis cannot save its data, and Redis's log says why: correct that; without a ledger, do not set " +
		"stop-writes-on-bgsave-error to no, because a restart could then repeat numbers"},
	{"NOREPLICAS", "fewer replicas than min-replicas-to-write are in sync: bring them back"},
	{"BUSY", "another script has been running for too long: end it with SCRIPT KILL"},
	{"TRYAGAIN", moving},
	{"ASK ", moving},
}

const (
	denied     = "an ACL denies this client's user a command or a key that is needed"
	noPassword = "Redis requires a password, but this client has none"
	moving     = "the slot of the keys is being moved to another node: wait, or finish the migration"
)

// describe adds the meaning of an error reply to err, if refusals contains the reply.
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

// Outage wraps the failure of a server that other callers would encounter, too. Callers that wait for the caller with
// this error fail with the same error, instead of trying one after another.
func Outage(err error) error { return outageError{err} }

// IsOutage reports whether err is the result of [Outage], or wraps such an error.
func IsOutage(err error) bool { return errors.As(err, new(outageError)) }

type outageError struct{ error }

func (e outageError) Unwrap() error { return e.error }

// Transient reports whether a failure is temporary, so that the same command may succeed a moment later.
func Transient(err error) bool {
	return errors.As(err, new(net.Error)) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) ||
		redis.IsLoadingError(err) || redis.IsReadOnlyError(err) || redis.IsClusterDownError(err) ||
		redis.IsTryAgainError(err) || redis.IsMasterDownError(err) || redis.IsMaxClientsError(err)
}

// persists reports whether a temporary failure may last for many attempts. A slot may be moving to another server, or
// all connections may be in use. After a failover, a connection to the old master is dropped only when a command on
// this connection has failed.
func persists(err error) bool {
	return redis.IsTryAgainError(err) || redis.IsReadOnlyError(err) || errors.Is(err, redis.ErrPoolTimeout)
}

// Unsent reports whether it is certain that the command did not run, because the server refused it, or because there
// was no connection or no time to send it.
func Unsent(err error) bool {
	err = finalError(err)
	refusals := []string{"NOSCRIPT", "MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "CROSSSLOT", "LOADING", "MASTERDOWN",
		"BUSY", "NOAUTH", "NOPERM", "WRONGPASS", "TIME", "OOM", "MISCONF", "NOREPLICAS"}
	return slices.ContainsFunc(refusals, func(prefix string) bool { return redis.HasErrorPrefix(err, prefix) }) ||
		redis.IsReadOnlyError(err) || // in Redis 6.2, the error of a script does not begin with READONLY
		errors.Is(err, ErrUnsent) || neverRan(err)
}

// Silent reports whether the command may still run, because it was sent, but the server has not replied.
func Silent(err error) bool {
	_, replied := errors.AsType[redis.Error](finalError(err))
	return !Unsent(err) && !replied
}

// isRedirection reports whether err means that another server of a Cluster has the key.
func isRedirection(err error) bool {
	return redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK")
}

// neverRan reports whether err proves that the command did not run, because there was no connection, or because its
// slot is being moved. An item with [IfProven] is sent again only after such an error. (There are two other cases,
// which mayRepeat handles before it calls neverRan: the server does not know a script, or a slot has been moved.)
func neverRan(err error) bool {
	network, _ := errors.AsType[*net.OpError](err)
	return redis.IsTryAgainError(err) || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) ||
		network != nil && network.Op == "dial"
}
