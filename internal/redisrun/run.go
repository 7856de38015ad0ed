// Package redisrun sends scripts to the right server in bounded time: one command, or several in a pipeline, repeated
// if that is safe, and confirmed by replicas if the caller asks for it. It does not know what the commands mean.
package redisrun

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial/internal/budget"
)

// A Runner sends scripts to the servers of one client, in bounded time. It is safe for concurrent use.
type Runner struct {
	client      redis.UniversalClient
	cluster     *redis.ClusterClient // the client, nil unless it is a Cluster's
	replicas    Replicas
	retries     int           // attempts after the first one, as the client is configured
	readTimeout time.Duration // see Configured

	answered   atomic.Int64                    // time of the last answer, in Unix nanoseconds; 0 before the first
	connecting atomic.Pointer[context.Context] // shared context for making connections, nil before the first
}

// New returns a Runner for the servers of client. replicas confirm the commands that ask for it.
func New(client redis.UniversalClient, replicas Replicas) *Runner {
	cluster, _ := client.(*redis.ClusterClient)
	retries, read := Configured(client)
	return &Runner{client: client, cluster: cluster, replicas: replicas, retries: retries, readTimeout: read}
}

// Configured returns the client's number of retries, and its read timeout: 0 if that is unknown, unlimited or too long
// to wait for.
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

// Run sends c to node and returns its reply, within the time that b has left. If c may be repeated, Run sends it again
// after a transient error, as in a restart or a failover, while somebody waits for it. After an error, the script may
// have run. note may be nil; if it has a failure already, that counts as an earlier attempt.
func (r *Runner) Run(ctx context.Context, b *budget.Budget, node *Node, c Command, note *Note) (Reply, error) {
	if note == nil {
		note = new(Note)
	}
	name, body := any("evalsha"), c.Script.Digest
	late := b.IsLate() && note.Load() == nil
	final := false // this attempt is the quick, last one
	var unanswered []Attempt
	for attempt := 0; ; attempt++ {
		limit, last := b.NextLimit()
		if final = final || last; final {
			limit = min(limit, budget.Last)
		}
		command := newCommand(ctx, name, body, c.Args)
		reply, detached, err := r.try(ctx, b, node, limit, c.Confirm, command)
		reply, err = command.read(reply, err)
		if lost := command.unanswered(detached, err); lost != nil {
			unanswered = append(unanswered, *lost)
		}
		if err == ErrUnsent && note.Load() != nil {
			err = ErrNoAnswer // no answer to the earlier attempts
		}
		reply.Unanswered = unanswered
		if err == nil {
			if failure := note.Load(); failure != nil {
				reply.EarlierErr = *failure
			}
			return reply, nil
		}
		if c.isAbandoned() {
			return reply, Failed("Redis", err, late)
		}
		if name == "evalsha" && redis.HasErrorPrefix(err, "NOSCRIPT") {
			name, body = "eval", c.Script.Source
			attempt--
			continue
		}
		if end := EndOf(ctx); end != nil {
			return reply, GaveUp(end, note)
		}
		failure := err // keeps err itself off the heap
		if c.Last != nil {
			c.Last.Store(&failure)
		}
		if before := note.Load(); before == nil || !isTimeout(err) { // what was refused says more than silence
			note.Store(&failure)
		}
		if !final && isTimeout(err) {
			// Our own time limit. Either Redis is unreachable, or this process was suspended for some seconds: one more
			// quick attempt shows which.
			if c.NoRepeat {
				return reply, ErrUnanswered
			}
			final = true
			continue
		}
		if final || !r.pause(ctx, b, &c, attempt, err) {
			if ctx.Err() != nil {
				return reply, GaveUp(ctx.Err(), note)
			}
			failed := Failed("Redis", err, late)
			if isTimeout(err) && !isTimeout(*note.Load()) {
				failed = After(note, failed)
			}
			return reply, failed
		}
	}
}

// pause waits before a failed command is sent again. It returns false if sending it again is pointless.
func (r *Runner) pause(ctx context.Context, b *budget.Budget, c *Command, attempt int, err error) bool {
	pause := 4 * time.Millisecond << min(attempt, 6)
	pause += rand.N(pause)
	if !r.mayRepeat(c, attempt, err) || pause >= b.Answer() || Sleep(ctx, pause) != nil {
		return false
	}
	b.Spend(pause, pause)
	return !c.isAbandoned() // meanwhile
}

// mayRepeat reports whether a failed command may be sent again. A slot may be moving to another node, and a connection
// becomes free when others are done. After a failover, every connection to the old master has to be tried once before
// it is dropped.
func (r *Runner) mayRepeat(c *Command, attempt int, err error) bool {
	lasts := redis.IsTryAgainError(err) || redis.IsReadOnlyError(err) || errors.Is(err, redis.ErrPoolTimeout)
	return Transient(err) && (!c.NoRepeat || Unsent(err)) && (lasts || attempt < r.retries)
}

// try makes one attempt at commands that are sent together, within limit, and charges b for it. The commands hold their
// results, which must not be read after an error: go-redis may still be using them. The reply holds the results that
// they share.
//
// A context that ends does not interrupt go-redis while it reads (unless the client has ContextTimeoutEnabled), so the
// caller waits for the command or the context, whichever ends first. That costs a goroutine. A caller whose context can
// never end needs none if the client's own timeouts bound the call: there is an idle connection, and a server has just
// answered. (If another caller takes that connection and the server turns slow at that very moment, the call also waits
// for the replies to a new connection, each of which may take the whole read timeout.)
//
// If an attempt outlasts its limit, either the server answers slowly while a connection is made, or this process or a
// hook of the client was suspended. Another connection shows which. If the server is not to blame, the attempt is not
// charged, and try waits for it as long as it takes: nothing else could be sent before, since go-redis may hold a lock.
func (r *Runner) try(ctx context.Context, b *budget.Budget, node *Node, limit time.Duration, confirmed bool,
	commands ...onceCmd) (reply Reply, detached *detachedAttempt, err error) {
	const recently = 100 * time.Millisecond // connections used this recently are assumed to be alive
	if limit <= 0 {
		return Reply{}, nil, ErrUnsent
	}
	confirm := confirmed && r.replicas.N > 0
	bounded := node.server != nil && r.readTimeout > 0 && r.readTimeout < limit // by go-redis, once connected
	reply.Sent = time.Now()
	var answer Pending[error]
	over := true
	if ctx.Done() == nil && bounded && reply.Sent.UnixNano()-r.answered.Load() < int64(recently) &&
		node.hasIdle(confirm || len(commands) > 1) {
		within := r.connectWithin(ctx, reply.Sent, limit-r.readTimeout)
		reply.Unconfirmed = r.process(within, node, confirm, commands)
		err = noConnection(within, commands[0].Err()) // others have taken the idle connections
	} else {
		// It ends a little sooner, so that go-redis can say that there was no connection.
		within, cancel := context.WithTimeout(ctx, limit-limit/20)
		answer = Begin(func() (unconfirmed, err error) {
			defer cancel()
			unconfirmed = r.process(within, node, confirm, commands)
			return unconfirmed, noConnection(within, commands[0].Err())
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
		if err == errNoConnection { // or a hook that always hangs would be called for ever
			b.Spend(limit, limit)
		}
	}
	if !over {
		detached = &detachedAttempt{over: make(chan struct{})}
		if !answer.Leave(detached.end) { // the answer has just come, after its limit
			unconfirmed, failure, _ := answer.Wait(context.Background(), NoLimit)
			detached.end(unconfirmed, failure)
		}
	}
	if err == nil && commands[0].Err() == nil {
		r.answered.Store(reply.Received.UnixNano())
	}
	return reply, detached, err
}

func (l *detachedAttempt) end(unconfirmed, err error) {
	l.unconfirmed, l.err = unconfirmed, err
	close(l.over)
}

// connectWithin returns a context with the values of ctx, which never ends, that limits the time to get or make a
// connection: at least half of limit, from start on. Calls that begin at about the same time share it: one for each would
// cost five allocations and a microsecond, a thirtieth of a round trip.
func (r *Runner) connectWithin(ctx context.Context, start time.Time, limit time.Duration) context.Context {
	const sharing = 250 * time.Millisecond
	end := start.Add(limit)
	within := r.connecting.Load()
	if within != nil {
		if at, _ := (*within).Deadline(); end.Before(at) || end.Sub(at) > min(sharing, limit/2) {
			within = nil
		}
	}
	if within == nil {
		limit, cancel := context.WithDeadline(context.Background(), end)
		_ = cancel // others may share the context, so it ends by itself
		within = &limit
		r.connecting.Store(within)
	}
	if ctx == context.Background() {
		return *within
	}
	return limited{*within, ctx}
}

// limited is a context that ends with another one.
type limited struct {
	context.Context
	values context.Context // never ends
}

func (l limited) Value(key any) any { return l.values.Value(key) }

// RunAll sends commands to one node in a pipeline, within the least time left in budgets. Replicas must confirm all of
// them if the first one asks for it. A command is repeated alone, within its remaining budget, if the server did not
// know its script, no longer had its slot, or had a transient failure. It is not repeated if it may be sent only once
// and may have run, or if nobody waits for it. All repeats run at the same time. Each command has its own budget and
// note. RunAll calls outcome with each command's index as soon as its outcome is known, from several goroutines.
func (r *Runner) RunAll(ctx context.Context, budgets []*budget.Budget, node *Node, commands []Command, notes []*Note,
	outcome func(i int, r Reply, err error)) {
	sent := make([]onceCmd, len(commands))
	for i, c := range commands {
		sent[i] = newCommand(ctx, "evalsha", c.Script.Digest, c.Args)
	}
	least := *slices.MinFunc(budgets, func(a, b *budget.Budget) int { return cmp.Compare(a.Answer(), b.Answer()) })
	before, late := least.Answer(), least.IsLate()
	limit, _ := least.NextLimit()
	shared, detached, failure := r.try(ctx, &least, node, limit, commands[0].Confirm, sent...)
	for i, c := range sent {
		took := before - least.Answer()
		budgets[i].Spend(took, took)
		reply, err := c.read(shared, failure)
		lost := c.unanswered(detached, err)
		if err == nil {
			outcome(i, reply, nil)
			continue
		}
		if commands[i].NoRepeat && !Unsent(err) || commands[i].isAbandoned() {
			if lost != nil {
				reply.Unanswered = []Attempt{*lost}
			}
			if commands[i].NoRepeat && isTimeout(err) {
				outcome(i, reply, ErrUnanswered)
			} else {
				outcome(i, reply, Failed("Redis", err, late))
			}
			continue
		}
		if !Unsent(err) {
			notes[i].Store(&err)
		}
		wait := Beside(func() {
			reply, err := r.Run(ctx, budgets[i], node, commands[i], notes[i])
			if lost != nil {
				reply.Unanswered = append([]Attempt{*lost}, reply.Unanswered...)
			}
			outcome(i, reply, err)
		})
		defer wait() // so a panic in one repeat waits for the others
	}
}

// Process sends one command as the client does, following redirections. The command holds its error.
func (r *Runner) Process(ctx context.Context, cmd *redis.Cmd) {
	_ = r.client.Process(ctx, cmd)
	if err := cmd.Err(); err == nil || err == redis.Nil {
		r.answered.Store(1)
	}
}

// process sends commands, in a pipeline if there are several or replicas must confirm them. The error says why replicas
// did not confirm them.
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

// exec sends commands in a pipeline, followed by WAIT if replicas must confirm them. The commands must write: after a
// script that wrote nothing, WAIT confirms nothing or, from Redis 7.2 on, returns at once.
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
			c.SetErr(failure) // a hook did not set it
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
