package redisrun

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// This file has commands and replies.

// A Script is a script, sent by its digest. Its source is sent only to a server that does not have it.
type Script struct {
	Source string
	Digest any // a string, ready to be an argument: converting it costs an allocation
}

// NewScript returns the Script with a source.
func NewScript(source string) *Script {
	sum := sha1.Sum([]byte(source))
	return &Script{source, hex.EncodeToString(sum[:])}
}

// A Command is one run of a script. It is used once, because go-redis may read Args even after its caller has left.
type Command struct {
	Script   *Script
	Args     []any // arguments of EVALSHA: room for the name and the digest, the number of keys, the keys, the rest
	NoRepeat bool  // it is sent at most once, and [ErrUnanswered] means that no answer came in time
	Confirm  bool  // replicas must confirm its writes
	Waiters  Waiters
	Last     *Note // gets each failure, for callers who leave; nil if nobody may
}

// Waiters are callers who may leave while their command is under way. Once all have left, it is not repeated. Nil means
// a caller who stays.
type Waiters interface{ Wanted() bool }

func (c *Command) isAbandoned() bool { return c.Waiters != nil && !c.Waiters.Wanted() }

// A Reply is the answer to a command.
type Reply struct {
	Value          any
	Sent, Received time.Time // times around the round trip, by this host's clock
	EarlierErr     error     // failure of an earlier attempt, which may have run too; nil if the first one was answered
	Unconfirmed    error     // reason why replicas did not confirm it; nil if they did, or if nobody asked
	Unanswered     []Attempt // other attempts that may have run, in order; also set with an error
}

// An Attempt is an attempt that may have run, but whose answer did not come in time.
type Attempt struct {
	command  onceCmd
	err      error
	detached *detachedAttempt // nil if the attempt ended with err
}

// A detachedAttempt is an attempt that go-redis continues while nobody waits for it.
type detachedAttempt struct {
	over        chan struct{} // closed when go-redis is done; the rest is only read after that
	unconfirmed error
	err         error
}

// Wait waits until the client is done with the attempt, and returns its late answer, or an error if there is none. If
// [Unsent] reports true for the error, the script did not run.
func (a *Attempt) Wait() (Reply, error) {
	if a.detached == nil {
		return Reply{}, a.err
	}
	<-a.detached.over
	return a.command.read(Reply{Unconfirmed: a.detached.unconfirmed}, a.detached.err)
}

// A Note holds the failure of the last attempt, for callers who leave before the outcome.
type Note = atomic.Pointer[error]

// A onceCmd is a command that go-redis does not retry.
type onceCmd struct{ *redis.Cmd }

func (onceCmd) NoRetry() bool { return true }

// newCommand returns an EVAL or EVALSHA command with the script's source or digest, and the other arguments from args.
func newCommand(ctx context.Context, name, body any, args []any) onceCmd {
	if args[0] != nil { // sent before, so go-redis may still be reading it
		args = slices.Clone(args)
	}
	args[0], args[1] = name, body
	command := onceCmd{redis.NewCmd(ctx, args...)}
	command.SetFirstKeyPos(3)
	command.SetStepCount(1) // otherwise go-redis asks a Cluster's nodes about the command, and waits for nodes that hang
	return command
}

// unanswered returns the attempt, which is detached or ended with err, if it may have run and its answer is unknown.
func (c onceCmd) unanswered(detached *detachedAttempt, err error) *Attempt {
	if err == nil || detached == nil && Unsent(err) {
		return nil
	}
	return &Attempt{c, err, detached}
}

// read adds the command's value to an attempt's reply, unless the attempt failed.
func (c onceCmd) read(reply Reply, err error) (Reply, error) {
	if err == nil {
		reply.Value, err = c.Result()
	}
	return reply, err
}
