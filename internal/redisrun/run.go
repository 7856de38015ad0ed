// Package redisrun sends scripts to the right server in bounded time: one command, or several in a pipeline, repeated where
// that is safe, and confirmed by replicas if the caller wishes. It does not know what the commands mean.
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

// A Script is sent by its digest. Its source is sent only to a server that does not have it.
type Script struct {
	Source string
	Digest any // a string, ready to be an argument: converting it costs an allocation
}

// NewScript returns the Script of a source.
func NewScript(source string) *Script {
	sum := sha1.Sum([]byte(source))
	return &Script{source, hex.EncodeToString(sum[:])}
}

// A Command is one run of a script. It is used once: go-redis may read Args even after its caller has left.
type Command struct {
	Script  *Script
	Args    []any // of EVALSHA: two free places for the name and the digest, the number of keys, the keys, the rest
	Once    bool  // whether it is sent at most once; then [ErrUnanswered] means that no answer came in time
	Confirm bool  // whether replicas have to confirm what it wrote
}

// A Reply is the answer to a command.
type Reply struct {
	Value          any
	Sent, Received time.Time // around the round trip, by this host's clock
	Before         error     // failure of an earlier attempt, which may have run too; nil if the first one was answered
	Unconfirmed    error     // why replicas did not confirm it; nil if they did, or if nobody asked
	Unanswered     []Attempt // attempts that may have run, of which this is not the answer, in order; also with an error
}

// An Attempt is one that may have run, and whose answer did not come, or not in time.
type Attempt struct {
	command onceCmd
	err     error
	left    *leftAlone // nil for one that ended with err
}

// A leftAlone is what go-redis goes on with, alone.
type leftAlone struct {
	over        chan struct{} // closed when go-redis is done; the rest is read after that
	unconfirmed error
	err         error
}

// Wait waits until the client is done with the attempt, and returns its late answer, or why there is none. The script did not run
// if [Unsent] says so of the error.
func (a *Attempt) Wait() (Reply, error) {
	if a.left == nil {
		return Reply{}, a.err
	}
	<-a.left.over
	return a.command.read(Reply{Unconfirmed: a.left.unconfirmed}, a.left.err)
}

// A Note holds the failure of the last attempt, for those who leave before the outcome.
type Note = atomic.Pointer[error]

// A Runner sends scripts to the servers of one client, in bounded time. Its methods may be called concurrently.
type Runner struct {
	client      redis.UniversalClient
	cluster     *redis.ClusterClient // the client, nil unless it is a Cluster's
	replicas    Replicas
	retries     int           // attempts after the first one, as the client is configured
	readTimeout time.Duration // see Configured

	answered   atomic.Int64                    // time of the last answer, in Unix nanoseconds; 0 before the first
	connecting atomic.Pointer[context.Context] // for connections of the calls that began lately, nil before the first
}

// New returns a Runner for the servers of client. replicas confirm the commands that ask for it.
func New(client redis.UniversalClient, replicas Replicas) *Runner {
	cluster, _ := client.(*redis.ClusterClient)
	retries, read := Configured(client)
	return &Runner{client: client, cluster: cluster, replicas: replicas, retries: retries, readTimeout: read}
}

// Configured returns how often the client tries again, and its read timeout, which is 0 if it is unknown, unlimited or too long to
// wait for.
func Configured(client redis.UniversalClient) (retries int, read time.Duration) {
	retries = 3
	switch client := client.(type) {
	case *redis.Client:
		retries, read = client.Options().MaxRetries, client.Options().ReadTimeout
	case *redis.ClusterClient:
		retries, read = client.Options().MaxRedirects, client.Options().ReadTimeout
	}
	if read < 0 || read > budget.Answers/2 {
		read = 0
	}
	return retries, read
}

// Run sends c to node and returns its reply, within what b has left. A command that may be repeated is sent again after an
// error that may pass, like a restart or a failover. An error leaves open whether the script ran. note may be nil; a failure
// that it holds already counts as an earlier attempt.
func (r *Runner) Run(ctx context.Context, b *budget.Budget, node *Node, c Command, note *Note) (Reply, error) {
	if note == nil {
		note = new(Note)
	}
	name, body := any("evalsha"), c.Script.Digest
	final := false // the attempt is a quick one, and the last
	var unanswered []Attempt
	for attempt := 0; ; attempt++ {
		limit, last := b.Attempt()
		if final = final || last; final {
			limit = min(limit, budget.Last)
		}
		command := newCommand(ctx, name, body, c.Args)
		reply, left, err := r.try(ctx, b, node, limit, c.Confirm, command)
		reply, err = command.read(reply, err)
		if lost := command.unanswered(left, err); lost != nil {
			unanswered = append(unanswered, *lost)
		}
		reply.Unanswered = unanswered
		if err == nil {
			if failure := note.Load(); failure != nil {
				reply.Before = *failure
			}
			return reply, nil
		}
		if name == "evalsha" && redis.HasErrorPrefix(err, "NOSCRIPT") {
			name, body = "eval", c.Script.Source
			attempt--
			continue
		}
		if end := EndOf(ctx); end != nil {
			return reply, GaveUp(end, note)
		}
		failure := err // so that err itself does not escape to the heap
		note.Store(&failure)
		if !final && isTimeout(err) {
			// Our own time limit. Either Redis is out of reach, or this process stood still for some seconds: one more
			// quick attempt tells.
			if c.Once {
				return reply, ErrUnanswered
			}
			final = true
			continue
		}
		// A slot is in between while it moves to another node, and a connection becomes free when others are done. After a
		// failover every connection to the old master has to be tried once, and is dropped then.
		lasts := redis.IsTryAgainError(err) || redis.IsReadOnlyError(err) || errors.Is(err, redis.ErrPoolTimeout)
		again := !final && Transient(err) && (!c.Once || Unsent(err)) && (lasts || attempt < r.retries)
		pause := 4 * time.Millisecond << min(attempt, 6)
		pause += rand.N(pause)
		if !again || pause >= b.Answer() {
			return reply, failed(err)
		}
		if Sleep(ctx, pause) != nil {
			return reply, GaveUp(ctx.Err(), note)
		}
		b.Spend(pause, pause)
	}
}

// try makes one attempt at commands that are sent together, within limit, and charges b for it. The commands hold their results,
// which must not be read after an error: go-redis may still be at them. The reply is what they share.
//
// A context that ends does not interrupt go-redis while it reads (unless the client has ContextTimeoutEnabled), so the caller
// waits for the command or the context, whichever ends first. That costs a goroutine. A caller whose context can never end does
// without where the client's own timeouts bound the call: there is an idle connection, and a server has just answered. (Should
// another caller take that connection, and the server turn slow at that very moment, the call takes longer by the replies to a new
// connection, each of which may take the whole read timeout.)
//
// If an attempt outlasts its limit, either the server answers slowly while a connection is made, or this process stood still, or a
// hook of the client does. Another connection tells which. If it was not the server, the attempt costs nothing, and is waited
// for as long as it takes: nothing could be sent before it is done, since go-redis may hold a lock.
func (r *Runner) try(ctx context.Context, b *budget.Budget, node *Node, limit time.Duration, confirmed bool,
	commands ...onceCmd) (reply Reply, left *leftAlone, err error) {
	const recently = 100 * time.Millisecond // connections that served since then are taken to be alive
	if limit <= 0 {
		return Reply{}, nil, ErrNoAnswer
	}
	confirm := confirmed && r.replicas.N > 0
	bounded := node.server != nil && r.readTimeout > 0 && r.readTimeout < limit // by go-redis, once it is connected
	reply.Sent = time.Now()
	var answer Pending[error]
	over := true
	if ctx.Done() == nil && bounded && reply.Sent.UnixNano()-r.answered.Load() < int64(recently) &&
		node.hasIdle(confirm || len(commands) > 1) {
		within, cancel := r.connectWithin(ctx, reply.Sent.Add(limit-r.readTimeout))
		defer cancel()
		reply.Unconfirmed = r.process(within, node, confirm, commands)
	} else {
		within, cancel := context.WithTimeout(ctx, limit)
		answer = Begin(func() (unconfirmed, err error) {
			defer cancel()
			return r.process(within, node, confirm, commands), nil
		})
		reply.Unconfirmed, err, over = answer.Wait(ctx, limit)
	}
	reply.Received = time.Now()
	stood := reply.Received.Sub(reply.Sent) >= limit && bounded && node.answers(ctx)
	if !stood {
		b.Spend(time.Since(reply.Sent), limit+budget.Last)
	} else if err == ErrNoAnswer {
		reply.Unconfirmed, err, over = answer.Wait(ctx, NoLimit)
		reply.Received = time.Now()
	}
	if !over {
		left = &leftAlone{over: make(chan struct{})}
		if !answer.Leave(left.end) { // it came at this moment, after its time
			unconfirmed, failure, _ := answer.Wait(context.Background(), NoLimit)
			left.end(unconfirmed, failure)
		}
	}
	if err == nil && commands[0].Err() == nil {
		r.answered.Store(reply.Received.UnixNano())
	}
	return reply, left, err
}

func (l *leftAlone) end(unconfirmed, err error) {
	l.unconfirmed, l.err = unconfirmed, err
	close(l.over)
}

// connectWithin limits the time to wait for a connection and to make one. Calls that begin at about the same time share one
// context, if theirs holds nothing: a context for each costs five allocations and a microsecond, a thirtieth of a round trip.
func (r *Runner) connectWithin(ctx context.Context, end time.Time) (context.Context, context.CancelFunc) {
	const sharing = 250 * time.Millisecond
	if ctx != context.Background() {
		return context.WithDeadline(ctx, end)
	}
	if shared := r.connecting.Load(); shared != nil {
		if at, _ := (*shared).Deadline(); !end.Before(at) && end.Sub(at) <= sharing {
			return *shared, func() {}
		}
	}
	within, cancel := context.WithDeadline(ctx, end)
	_ = cancel // others may share it, so it ends by itself
	r.connecting.Store(&within)
	return within, func() {}
}

// RunAll sends commands to one node in a pipeline. Replicas have to confirm all of them if the first one asks for it. A command that
// failed is repeated by itself with what is left of b, unless it may be sent only once and may have run: the server did not know
// its script, no longer had its slot, or had a failure that may pass. All repeats run at the same time. Each command has its note.
// outcome is called for each, by its index, as soon as its outcome is known, from several goroutines.
func (r *Runner) RunAll(ctx context.Context, b *budget.Budget, node *Node, commands []Command, notes []*Note,
	outcome func(i int, r Reply, err error)) {
	sent := make([]onceCmd, len(commands))
	for i, c := range commands {
		sent[i] = newCommand(ctx, "evalsha", c.Script.Digest, c.Args)
	}
	limit, _ := b.Attempt()
	shared, left, failure := r.try(ctx, b, node, limit, commands[0].Confirm, sent...)
	for i, c := range sent {
		reply, err := c.read(shared, failure)
		lost := c.unanswered(left, err)
		if err == nil {
			outcome(i, reply, nil)
			continue
		}
		if commands[i].Once && !Unsent(err) {
			if lost != nil {
				reply.Unanswered = []Attempt{*lost}
			}
			if isTimeout(err) {
				outcome(i, reply, ErrUnanswered)
			} else {
				outcome(i, reply, failed(err))
			}
			continue
		}
		if !Unsent(err) {
			notes[i].Store(&err)
		}
		rest := *b
		repeat := Begin(func() (none any, _ error) {
			reply, err := r.Run(ctx, &rest, node, commands[i], notes[i])
			if lost != nil {
				reply.Unanswered = append([]Attempt{*lost}, reply.Unanswered...)
			}
			outcome(i, reply, err)
			return none, nil
		})
		// Deferred, so that a panic of one repeat waits for the others.
		defer func() { _, _, _ = repeat.Wait(context.Background(), NoLimit) }()
	}
}

// A onceCmd is not sent again by go-redis itself.
type onceCmd struct{ *redis.Cmd }

func (onceCmd) NoRetry() bool { return true }

// newCommand returns a command of that name, EVAL or EVALSHA, with the script's source or digest, and the other arguments from args.
func newCommand(ctx context.Context, name, body any, args []any) onceCmd {
	if args[0] != nil { // sent before: go-redis may still be reading it
		args = slices.Clone(args)
	}
	args[0], args[1] = name, body
	command := onceCmd{redis.NewCmd(ctx, args...)}
	command.SetFirstKeyPos(3)
	command.SetStepCount(1) // else go-redis asks a Cluster's nodes about the command, and waits for those that hang
	return command
}

// unanswered returns the attempt if it may have run and its answer is not known: it was left alone, or ended with err.
func (c onceCmd) unanswered(left *leftAlone, err error) *Attempt {
	if err == nil || left == nil && (err == ErrNoAnswer || Unsent(err)) { // that was not sent, or did not run
		return nil
	}
	return &Attempt{c, err, left}
}

// read adds the command's value to the reply of an attempt, unless that failed.
func (c onceCmd) read(reply Reply, err error) (Reply, error) {
	if err == nil {
		reply.Value, err = c.Result()
	}
	return reply, err
}

// process sends commands, in a pipeline if there are several or replicas have to confirm them. It returns why replicas did not.
func (r *Runner) process(ctx context.Context, node *Node, confirm bool, commands []onceCmd) (unconfirmed error) {
	switch {
	case len(commands) == 1 && confirm && r.cluster != nil:
		return r.processOnMaster(ctx, commands)
	case len(commands) > 1 || confirm:
		return r.exec(ctx, node.server.Pipeline(), confirm, commands)
	}
	commands[0].SetErr(r.client.Process(ctx, commands[0]))
	return nil
}

// exec sends commands in a pipeline, followed by WAIT if replicas have to confirm them. The commands must write: after a script that
// wrote nothing, WAIT confirms nothing, or, from Redis 7.2 on, agrees at once.
func (r *Runner) exec(ctx context.Context, pipe redis.Pipeliner, confirm bool, commands []onceCmd) (unconfirmed error) {
	for _, c := range commands {
		_ = pipe.Process(ctx, c)
	}
	var wait *redis.Cmd
	if confirm {
		wait = pipe.Do(ctx, "wait", r.replicas.N, r.replicas.Timeout.Milliseconds())
	}
	_, failure := pipe.Exec(ctx)
	for _, c := range commands {
		if c.Val() == nil && c.Err() == nil {
			c.SetErr(failure) // a hook did not
		}
	}
	if !confirm {
		return nil
	}
	acks, err := wait.Int()
	if err == nil && acks < r.replicas.N {
		err = fmt.Errorf("%d of %d replicas confirmed within %v", acks, r.replicas.N, r.replicas.Timeout)
	}
	return Foreign(err)
}
