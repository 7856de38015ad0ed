package wire_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/wire"
)

func TestForeign(t *testing.T) {
	cause := &net.OpError{Op: "dial", Err: context.Canceled}
	err := fmt.Errorf("wrapped: %w", wire.Foreign(cause))
	require.NotErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, cause)
	require.NotErrorIs(t, err, io.EOF)
	require.ErrorAs(t, err, new(*net.OpError))
	require.ErrorContains(t, err, "context canceled")
	require.Equal(t, io.EOF, wire.Foreign(io.EOF))
}

// A deadline has passed, but the timer of the context has not fired yet. The error must be that of an ended context.
func TestContextErr(t *testing.T) {
	require.NoError(t, wire.ContextErr(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, context.Canceled, wire.ContextErr(ctx))
	require.NoError(t, wire.ContextErr(untilThen{t.Context(), time.Now().Add(time.Hour)}))
	require.Equal(t, context.DeadlineExceeded, wire.ContextErr(untilThen{t.Context(), time.Now().Add(-time.Microsecond)}))
}

// untilThen is a context with a deadline whose timer never fires.
type untilThen struct {
	context.Context
	then time.Time
}

func (c untilThen) Deadline() (time.Time, bool) { return c.then, true }

// An attempt fails before a caller gives up or the last attempt fails. The error must contain the earlier failure if
// that is more informative, but only once.
func TestEarlierFailures(t *testing.T) {
	readOnly, timeout := errors.New("READONLY You can't write against a read only replica."), error(os.ErrDeadlineExceeded)
	err := wire.GaveUp(context.Canceled, &timeout)
	require.EqualError(t, err, "serial: gave up waiting for Redis, which may have run the command: context canceled; "+
		"before that: "+timeout.Error())
	require.Equal(t, err, wire.After(err, &readOnly), "one is enough")
	deadline := context.DeadlineExceeded
	require.NotErrorIs(t, wire.GaveUp(context.Canceled, &deadline), deadline, "that is not the caller's")
	for _, last := range []error{context.DeadlineExceeded, os.ErrDeadlineExceeded, wire.ErrNoAnswer} {
		require.ErrorContains(t, wire.FailedAfter("Redis", last, &readOnly), "; before that: READONLY ", "%v", last)
		require.NotContains(t, wire.FailedAfter("Redis", last, &timeout).Error(), "before")
		require.NotContains(t, wire.FailedAfter("Redis", last, nil).Error(), "before")
	}
	require.NotContains(t, wire.FailedAfter("Redis", readOnly, &readOnly).Error(), "before")

	require.Equal(t, wire.ErrUnsent, wire.Failed("Redis", wire.ErrUnsent))
	require.False(t, wire.IsOutage(wire.ErrUnsent), "it says nothing about the server")
	err = wire.Failed("Redis", refusal("OOM command not allowed"))
	require.Equal(t, err, wire.Failed("Redis", err), "one prefix is enough")
	err = wire.Failed("the lock servers", io.EOF)
	require.EqualError(t, err, "serial: the lock servers failed: EOF")
	require.True(t, wire.IsOutage(fmt.Errorf("wrapped: %w", err)))
	require.ErrorIs(t, err, io.EOF)
}

// A call ends long after its deadline. The error must ask whether the process was suspended.
func TestLate(t *testing.T) {
	err := errors.New("failed")
	require.Equal(t, err, wire.Late(err, time.Now().Add(-time.Second/2)))
	late := wire.Late(err, time.Now().Add(-2*time.Second))
	require.ErrorIs(t, late, err)
	require.Regexp(t, `^failed \(the call ended at [0-9:.]{12}, although its deadline was [0-9:.]{12}: `+
		`was this process suspended\?\)$`, late.Error())
}

func TestUnsentAndTransient(t *testing.T) {
	for _, c := range []struct {
		err               error
		unsent, transient bool
	}{
		{refusal("NOSCRIPT No matching script."), true, false},
		{refusal("MOVED 1 127.0.0.1:1"), true, false},
		{refusal("TRYAGAIN Multiple keys request during rehashing of slot"), true, true},
		{refusal("LOADING Redis is loading the dataset in memory"), true, true},
		{refusal("BUSY Redis is busy running a script."), true, false},
		{refusal("NOPERM"), true, false},
		{refusal("ERR Error running script: -READONLY You can't write against a read only replica."), true, true},
		{refusal("WRONGTYPE Operation against a key"), false, false},
		{refusal("OOM command not allowed"), true, false},
		{redis.ErrPoolTimeout, true, true},
		{&net.OpError{Op: "dial", Err: io.EOF}, true, true},
		{&net.OpError{Op: "read", Err: io.EOF}, false, true},
		{io.EOF, false, true},
		{wire.ErrUnsent, true, true},
		{context.DeadlineExceeded, false, true},
	} {
		require.Equal(t, c.unsent, wire.Unsent(c.err), "%v", c.err)
		require.Equal(t, c.transient, wire.Transient(c.err), "%v", c.err)
	}
	require.True(t, wire.Silent(io.EOF))
	require.False(t, wire.Silent(refusal("ERR it failed")))
	before := error(refusal("TRYAGAIN Multiple keys request during rehashing of slot"))
	for _, err := range []error{wire.FailedAfter("Redis", os.ErrDeadlineExceeded, &before), wire.GaveUp(io.EOF, &before)} {
		require.True(t, wire.Silent(err), "%v: the last attempt may have run", err)
		require.ErrorIs(t, err, before)
	}
}

// A refusal is an error that a server has returned.
type refusal string

func (r refusal) Error() string { return string(r) }
func (refusal) RedisError()     {}
