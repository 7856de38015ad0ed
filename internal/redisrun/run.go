// Package redisrun sends scripts to the right server in bounded time: one command, or several in a pipeline, repeated where
// that is safe, and confirmed by replicas where that is asked for. It knows nothing of what the commands mean.
package redisrun

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial/internal/budget"
)

// A Script is sent by its digest, and whole only to a server that does not have it.
type Script struct{ Source, Digest string }

// NewScript returns the script of a source.
func NewScript(source string) *Script {
	sum := sha1.Sum([]byte(source))
	return &Script{source, hex.EncodeToString(sum[:])}
}

// A Command is one run of a script. It is used once: go-redis may read Args even after its caller has left.
type Command struct {
	Script  *Script
	Args    []any // of EVALSHA: two free places for the name and the digest, the number of keys, the keys, the rest
	Once    bool  // sent at most once; [ErrUnanswered] if no answer came in time
	Confirm bool  // replicas have to confirm what it wrote
}

// A Reply is what a command was answered.
type Reply struct {
	Value          any
	Sent, Received time.Time // around the round trip, by this host's clock
	Before         error     // failure of an earlier attempt, which may have run as well; nil if the first one was answered
	Unconfirmed    error     // why what the command wrote is not confirmed; nil if it is, or if nobody asked
}

// A Note holds the failure of the last attempt, for those who leave before the outcome.
type Note = atomic.Pointer[error]

// A Runner sends scripts to the servers of one client, in bounded time. Its methods may be called concurrently.
type Runner struct {
	client   redis.UniversalClient
	replicas Replicas
	retries  int           // after the first attempt, as the client is configured
	read     time.Duration // see ReadTimeout

	answered   atomic.Int64                 // time of the last answer, in Unix nanoseconds; 0 after an attempt that failed
	warm       atomic.Bool                  // a server has answered, so that the client knows a Cluster's slots
	connecting atomic.Pointer[connectLimit] // of the calls that began lately, nil before the first
}

// New returns a Runner that has replicas confirm the commands that ask for it.
func New(client redis.UniversalClient, replicas Replicas) *Runner {
	r := &Runner{client: client, replicas: replicas, retries: 3, read: ReadTimeout(client)}
	switch client := client.(type) {
	case *redis.Client:
		r.retries = client.Options().MaxRetries
	case *redis.ClusterClient:
		r.retries = client.Options().MaxRedirects
	}
	return r
}

// ReadTimeout is the client's. It is 0 where it is unknown, unlimited or too long to wait for.
func ReadTimeout(client redis.UniversalClient) (read time.Duration) {
	switch client := client.(type) {
	case *redis.Client:
		read = client.Options().ReadTimeout
	case *redis.ClusterClient:
		read = client.Options().ReadTimeout
	}
	if read < 0 || read > budget.Answers/2 {
		return 0
	}
	return read
}

// Run sends c to node and returns its reply, within what b has left. A command that may be repeated is sent again after an
// error that may pass, like a restart or a failover. An error leaves open whether the script ran. note may be nil; a failure
// that it holds already counts as an earlier attempt.
func (r *Runner) Run(ctx context.Context, b *budget.Budget, node *Node, c Command, note *Note) (Reply, error) {
	quick := false    // the attempt is a probe, and the last one
	var failure error // of the last attempt
	if note != nil && note.Load() != nil {
		failure = *note.Load()
	}
	for attempt := 0; ; attempt++ {
		reply, limit, err := r.try(ctx, b, &quick, node, &c, "evalsha", c.Script.Digest)
		if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
			reply, limit, err = r.try(ctx, b, &quick, node, &c, "eval", c.Script.Source)
		}
		if err == nil {
			reply.Before = failure
			return reply, nil
		}
		if end := EndOf(ctx); end != nil {
			return Reply{}, GaveUp(end, failure)
		}
		failure = err
		if note != nil {
			note.Store(&err)
		}
		if !quick && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrNoAnswer)) {
			// Our own time limit. Either Redis is out of reach, or this process stood still for some seconds: one more
			// quick attempt tells.
			if c.Once {
				return Reply{}, ErrUnanswered
			}
			quick = true
			continue
		}
		// A slot that moves to another node is in between for as long as that takes, and a connection is free when others
		// are done. After a failover every connection to the old master has to be tried once, and is dropped then.
		tries := attempt < r.retries || redis.IsTryAgainError(err) || redis.IsReadOnlyError(err) || errors.Is(err, redis.ErrPoolTimeout)
		pause := min(8*time.Millisecond<<min(attempt, 6), 512*time.Millisecond)
		pause = pause/2 + rand.N(pause/2)
		if c.Once && !unsent(err) || quick || limit <= 0 || !tries || !Transient(err) || pause >= b.Answer() {
			return Reply{}, Outage(fmt.Errorf("serial: Redis failed: %w", Foreign(err)))
		}
		if err := Sleep(ctx, pause); err != nil {
			return Reply{}, fmt.Errorf("%w; before that: %w", err, Foreign(failure))
		}
		b.Spend(pause, pause)
	}
}

// try makes one attempt, and says what limit it had: 0 or less if there was no time left for one. A quick attempt is short;
// so is the one that the budget has left at its end.
//
// A context that ends does not interrupt go-redis while it reads (unless the client has ContextTimeoutEnabled), so the
// caller does not wait for the command but for whichever comes first. That costs a goroutine; a caller whose context
// can never end does without where the client's own timeouts bound the call: there is an idle connection, and one has just
// served. (Should another caller take it, and the server turn slow at that very moment, the call takes longer by the replies
// of a new one.) Where one has to be made, or replaces one that has died, each reply may take the whole read timeout.
func (r *Runner) try(ctx context.Context, b *budget.Budget, quick *bool, node *Node, c *Command, name, body string) (
	Reply, time.Duration, error) {
	const fresh = 100 * time.Millisecond // after an answer connections are taken to be alive
	limit, last := b.Attempt()
	if *quick = *quick || last; *quick {
		limit = min(limit, budget.Last)
	}
	if limit <= 0 {
		return Reply{}, limit, ErrNoAnswer
	}
	command, confirm := newCommand(ctx, name, body, c.Args), c.Confirm && r.replicas.N > 0
	pool := r.poolOf(node, confirm)
	var reply Reply
	var stood bool
	var err error
	sent := time.Now()
	if ctx.Done() == nil && limit > r.read && pool.idle && sent.UnixNano()-r.answered.Load() < int64(fresh) {
		within, cancel := r.connectWithin(ctx, sent.Add(limit-r.read))
		defer cancel()
		reply, err = r.process(within, command, confirm)
	} else {
		reply, stood, err = awaitAnswer(ctx, pool, limit, func(within context.Context) (Reply, error) {
			return r.process(within, command, confirm)
		})
	}
	reply.Sent, reply.Received = sent, time.Now()
	if took := reply.Received.Sub(sent); !stood && !pool.stood(took) {
		b.Spend(took, limit+budget.Last)
	}
	if err != nil {
		r.answered.Store(0)
		return Reply{}, limit, err
	}
	r.answered.Store(reply.Received.UnixNano())
	r.warm.Store(true)
	return reply, limit, nil
}

// RunAll sends commands to one node in a pipeline; none of them is to be sent only once, and replicas have to confirm all of
// them if one asks for it. One that did not get through, because the server does not know the script or has the slot no more, or
// for a failure that may pass, is repeated by itself with what is left of b, and all those at the same time. Each has its note.
// outcome is told what became of each, by its index, as soon as it is known, from several goroutines.
func (r *Runner) RunAll(ctx context.Context, b *budget.Budget, node *Node, commands []Command, notes []*Note,
	outcome func(i int, r Reply, err error)) {
	var repeats []pending[bool]
	for i, o := range r.tryAll(ctx, b, node, commands) {
		if o.err == nil && o.reply.Value != nil {
			outcome(i, o.reply, nil)
			continue
		}
		if err := o.err; err != nil && !unsent(err) {
			notes[i].Store(&err)
		}
		own := *b
		repeats = append(repeats, begin(func() (bool, error) {
			reply, err := r.Run(ctx, &own, node, commands[i], notes[i])
			outcome(i, reply, err)
			return true, nil
		}))
	}
	var panicked any
	for _, p := range repeats { // all of them, so that a panic of one is not told to the others' callers
		if r := <-p; r.panicked != nil {
			panicked = r.panicked
		}
	}
	if panicked != nil {
		panic(panicked)
	}
}

// An attempt is what became of one command of a pipeline.
type attempt struct {
	reply Reply
	err   error
}

// tryAll makes one attempt.
func (r *Runner) tryAll(ctx context.Context, b *budget.Budget, node *Node, commands []Command) []attempt {
	confirm := r.replicas.N > 0 && slices.ContainsFunc(commands, func(c Command) bool { return c.Confirm })
	sendable := make([]onceCmd, len(commands))
	for i, c := range commands {
		sendable[i] = newCommand(ctx, "evalsha", c.Script.Digest, c.Args)
	}
	limit, _ := b.Attempt()
	pool := r.poolOf(node, true)
	sent := time.Now()
	outcomes, stood, failed := awaitAnswer(ctx, pool, limit, func(within context.Context) ([]attempt, error) {
		return r.exec(within, node.server.Pipeline(), confirm, sendable...), nil
	})
	received := time.Now()
	if took := received.Sub(sent); !stood && !pool.stood(took) {
		b.Spend(took, limit+budget.Last)
	}
	if outcomes == nil { // go-redis may still be at the commands
		outcomes = slices.Repeat([]attempt{{err: failed}}, len(commands))
	}
	for i := range outcomes {
		outcomes[i].reply.Sent, outcomes[i].reply.Received = sent, received
	}
	return outcomes
}

// A onceCmd is not sent again by go-redis itself.
type onceCmd struct{ *redis.Cmd }

func (onceCmd) NoRetry() bool { return true }

// newCommand takes arguments whose first two are the name and the script's digest or source.
func newCommand(ctx context.Context, name, body string, args []any) onceCmd {
	if args[0] != nil { // sent before: go-redis may still be reading it
		args = slices.Clone(args)
	}
	args[0], args[1] = name, body
	command := onceCmd{redis.NewCmd(ctx, args...)}
	command.SetFirstKeyPos(3)
	command.SetStepCount(1) // otherwise go-redis asks a Cluster's nodes about the command, and waits for those that hang
	return command
}

// process sends one command and returns its reply without the times.
func (r *Runner) process(ctx context.Context, command onceCmd, confirm bool) (Reply, error) {
	if confirm {
		return r.processConfirmed(ctx, command)
	}
	if err := r.client.Process(ctx, command); err != nil {
		return Reply{}, err
	}
	v, err := command.Result()
	return Reply{Value: v}, err
}

// exec sends commands in a pipeline, and WAIT behind them if replicas have to confirm.
func (r *Runner) exec(ctx context.Context, pipe redis.Pipeliner, confirm bool, commands ...onceCmd) []attempt {
	for _, c := range commands {
		_ = pipe.Process(ctx, c)
	}
	check := func() error { return nil }
	if confirm {
		check = r.replicas.wait(ctx, pipe)
	}
	_, failed := pipe.Exec(ctx)
	unconfirmed := check()
	outcomes := make([]attempt, len(commands))
	for i, c := range commands {
		v, err := c.Result()
		if v == nil && err == nil {
			err = failed // a hook did not set it
		}
		outcomes[i] = attempt{Reply{Value: v, Unconfirmed: unconfirmed}, err}
	}
	return outcomes
}
