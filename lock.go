package serial

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"
	goredis "github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial/internal/budget"
	"github.com/dailyserial/serial/internal/issue"
	"github.com/dailyserial/serial/internal/redisrun"
)

// locks makes the redsync locks around opening periods.
type locks struct {
	clients []goredis.UniversalClient
	split   atomic.Bool // an attempt was granted by some servers and refused by others, and none has succeeded since
}

// A lock is held until it is released or, should that fail, until it expires.
type lock struct {
	mutex *redsync.Mutex
	since time.Time // when it was asked for, so that it expires issue.LockExpiry later at the earliest
}

// Try makes one attempt at the lock. The error is issue.ErrTaken if another holds it. It answers as soon as ctx ends, and otherwise
// within limit.
//
// redsync is not handed ctx itself: it would forget why it ended, and with a dead context it could not give back what
// a server may have granted.
func (l *locks) Try(ctx context.Context, key string, limit time.Duration) (issue.Lock, error) {
	lanes := make([]redis.Pool, len(l.clients))
	votes := &votes{look: l.split.Load()}
	for i, server := range l.clients {
		lanes[i] = &lane{server: server, client: i + 1, votes: votes, set: make(chan struct{})}
	}
	k := &lock{
		// A mutex belongs to one acquisition. FailFast: a majority decides, however slow the other servers are.
		mutex: redsync.New(lanes...).NewMutex(key, redsync.WithFailFast(true), redsync.WithExpiry(issue.LockExpiry),
			redsync.WithTimeoutFactor(issue.LockPatience.Seconds()/issue.LockExpiry.Seconds())),
		since: time.Now(),
	}
	// Not buffered, so that either this call receives the answer or the goroutine learns that nobody will.
	answer := make(chan error)
	abandoned := make(chan struct{})
	defer close(abandoned)
	go func() {
		err := k.mutex.TryLockContext(context.WithoutCancel(ctx))
		select {
		case answer <- err:
		case <-abandoned:
			if err == nil {
				k.Release(context.WithoutCancel(ctx), 0)
			}
		}
	}()
	select {
	case err := <-answer:
		if err == nil {
			l.split.Store(false)
			return k, nil
		}
		if p := votes.panicked.Load(); p != nil {
			panic(*p)
		}
		if same := votes.same.Load(); same != nil {
			return nil, *same
		}
		granted, refused := votes.granted.Load(), votes.refused.Load()
		if granted > 0 && refused > 0 {
			l.split.Store(true)
		}
		if int(granted+refused) > len(l.clients)/2 { // a majority could say: it is with others, or split between them
			return nil, issue.ErrTaken
		}
		return nil, redisrun.Outage(fmt.Errorf("serial: the lock servers failed: %w", redisrun.Foreign(err)))
	case <-ctx.Done():
		return nil, fmt.Errorf("serial: gave up waiting for the lock: %w", ctx.Err())
	case <-time.After(limit):
		return nil, redisrun.Outage(fmt.Errorf("serial: the lock servers did not answer: %w", os.ErrDeadlineExceeded))
	}
}

// Release gives the lock back, also for a caller whose context has ended, who does not wait for it. If it fails the
// lock expires by itself.
// Since is when the lock was asked for.
func (k *lock) Since() time.Time { return k.since }

func (k *lock) Release(ctx context.Context, patience time.Duration) {
	_, _ = redisrun.Await(ctx, patience, func() (bool, error) {
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), issue.LockPatience)
		defer cancel()
		return k.mutex.UnlockContext(within)
	})
}

// votes are what the lock servers answer to one acquisition.
//
// If two clients are of one server, as localhost and 127.0.0.1 may be, it refuses the second SET on account of the first.
// That looks as if another caller had split the servers, and would go on for ever. So while attempts are split, a lane that is
// refused looks at what the lock holds, which tells the acquisition and the client.
type votes struct {
	granted, refused atomic.Int32          // servers that have answered so in time
	look             bool                  // at what the lock holds where it is refused
	same             atomic.Pointer[error] // that two clients are of one server
	panicked         atomic.Pointer[any]   // what a hook of a client panicked with, in a goroutine of redsync
}

// recovered keeps a panic for the caller of the acquisition; nobody else would recover it.
func (v *votes) recovered(err *error) {
	if p := recover(); p != nil {
		v.panicked.Store(&p)
		*err = redisrun.ErrEnded
	}
}

// A lane carries the commands of one acquisition to one lock server, one after the other. redsync sends the release
// without waiting for a slow server to answer the SET; on another connection the two could change places, and the lock
// would stay behind with nobody to release it. And it relies on contexts to end commands, which go-redis does only
// where it is configured to: so commands go on by themselves here, and redsync stops waiting for them.
type lane struct {
	server goredis.UniversalClient
	client int // of WithLockClients, from 1
	votes  *votes
	set    chan struct{} // closed when the SET is over
}

func (l *lane) Get(ctx context.Context) (redis.Conn, error) { return laneConn{lane: l, ctx: ctx}, nil }

// mark adds the client to the value that redsync gives the acquisition.
func (l *lane) mark(value string) string { return fmt.Sprintf("%s#%d", value, l.client) }

// send sends a command straight to the server that has its key. Of a command whose keys' distance it is not told go-redis
// first asks nodes of a Cluster, replicas too, and waits for each that hangs.
func (l *lane) send(ctx context.Context, args ...any) (any, error) {
	cmd := goredis.NewCmd(ctx, args...)
	cmd.SetStepCount(1)
	_ = l.server.Process(ctx, cmd)
	return cmd.Result()
}

// A laneConn has what redsync uses of a connection.
type laneConn struct {
	redis.Conn // nil: nothing else is called
	lane       *lane
	ctx        context.Context // redsync's
}

// Close leaves a command that goes on alone.
func (c laneConn) Close() error { return nil }

// run runs f, which sends commands, and stops waiting for it when redsync does.
func (c laneConn) run(f func(context.Context) (any, error)) (v any, err error) {
	defer c.lane.votes.recovered(&err)
	return redisrun.Await(c.ctx, redisrun.NoLimit, func() (any, error) {
		within, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), budget.Answers)
		defer cancel()
		return f(within)
	})
}

func (c laneConn) SetNX(name, value string, expiry time.Duration) (bool, error) {
	granted, err := c.run(func(ctx context.Context) (any, error) {
		defer close(c.lane.set)
		reply, err := c.lane.send(ctx, "set", name, c.lane.mark(value), "px", expiry.Milliseconds(), "nx")
		if err != nil && err != goredis.Nil {
			return false, err
		}
		return reply == "OK" || c.lane.votes.look && c.ours(ctx, name, value), nil
	})
	switch {
	case err != nil:
	case granted == true:
		c.lane.votes.granted.Add(1)
	default:
		c.lane.votes.refused.Add(1)
	}
	return granted == true, err
}

// ours reports whether a lock that was refused is this lane's own after all, by a SET that was sent twice since its answer
// was lost. It notes if it is another lane's of this acquisition.
func (c laneConn) ours(ctx context.Context, name, value string) bool {
	held, _ := c.lane.send(ctx, "eval", "return redis.call('get', KEYS[1])", 1, name) // a plain GET may go to a replica
	text, _ := held.(string)
	var client int
	if n, _ := fmt.Sscanf(text, value+"#%d", &client); n == 1 && client != c.lane.client {
		err := sameServer(min(client, c.lane.client), max(client, c.lane.client))
		c.lane.votes.same.Store(&err)
	}
	return text == c.lane.mark(value)
}

// sameServer is the error where two clients of WithLockClients, counted from 1, are of one server.
func sameServer(first, second int) error {
	return fmt.Errorf("serial: WithLockClients: clients %d and %d are the same server, which grants a lock only once; "+
		"give every server once", first, second)
}

// Eval runs the release, the only script there is.
func (c laneConn) Eval(script *redis.Script, keysAndArgs ...any) (any, error) {
	return c.run(func(ctx context.Context) (any, error) {
		<-c.lane.set
		name, value := keysAndArgs[0], c.lane.mark(keysAndArgs[1].(string))
		v, err := c.lane.send(ctx, "evalsha", script.Hash, 1, name, value)
		if goredis.HasErrorPrefix(err, "NOSCRIPT") {
			v, err = c.lane.send(ctx, "eval", script.Src, 1, name, value)
		}
		return v, err
	})
}
