package serial

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"
	goredis "github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial/internal/budget"
	"github.com/dailyserial/serial/internal/issue"
	"github.com/dailyserial/serial/internal/redisrun"
)

// locks makes the redsync locks around opening periods, on independent servers.
type locks struct {
	clients []goredis.UniversalClient
	split   atomic.Bool // some servers granted an attempt that others refused, and none has succeeded since
}

// A lock is held until it is released or, should that fail, until it expires.
type lock struct{ mutex *redsync.Mutex }

// Try makes one attempt at the lock. The error is issue.ErrTaken if another caller holds it. It answers as soon as ctx ends, and
// otherwise within limit.
//
// redsync does not get ctx itself: it would forget why ctx ended, and with a dead context it could not give back what a server may
// have granted.
func (l *locks) Try(ctx context.Context, key string, limit time.Duration) (issue.Lock, error) {
	steady := context.WithoutCancel(ctx)
	votes := &votes{split: l.split.Load()}
	pools := make([]redis.Pool, len(l.clients))
	for i, client := range l.clients {
		pools[i] = lockServer{lockConn{client: client, number: i + 1, votes: votes, answered: make(chan struct{})}}
	}
	// A mutex belongs to one acquisition. FailFast: a majority decides, however slow the other servers are.
	k := &lock{redsync.New(pools...).NewMutex(key, redsync.WithFailFast(true), redsync.WithExpiry(issue.LockExpiry),
		redsync.WithTimeoutFactor(issue.LockPatience.Seconds()/issue.LockExpiry.Seconds()))}
	over := make(chan struct{})
	answered, err := redisrun.Await(ctx, limit, func() (bool, error) {
		defer close(over)
		return true, k.mutex.TryLockContext(steady)
	})
	if !answered {
		go func() { // gives back what the attempt has been granted, if it has
			<-over
			k.Release(steady, 0)
		}()
		if err == redisrun.ErrNoAnswer {
			return nil, redisrun.Outage(fmt.Errorf("serial: the lock servers failed: %w", err))
		}
		return nil, fmt.Errorf("serial: gave up waiting for the lock: %w", err)
	}
	l.split.Store(err != nil && (votes.split || votes.granted.Load() > 0 && votes.refused.Load() > 0))
	if err != nil {
		return nil, votes.failure(len(l.clients), err)
	}
	return k, nil
}

// Release gives the lock back, also for a caller whose context has ended, who does not wait for it. If it fails, the lock expires
// by itself.
func (k *lock) Release(ctx context.Context, patience time.Duration) {
	_, _ = redisrun.Await(ctx, patience, func() (bool, error) {
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), issue.LockPatience)
		defer cancel()
		return k.mutex.UnlockContext(within)
	})
}

// votes are what the lock servers answer to one acquisition.
//
// If two clients are of one server, as localhost and 127.0.0.1 may be, it refuses the second SET because of the first. That looks as
// if another caller had split the servers, and would go on for ever. So while attempts are split, a client that is refused looks at
// what the lock holds, which tells the acquisition and the client.
type votes struct {
	granted, refused atomic.Int32          // servers that answered so in time
	split            bool                  // earlier attempts were
	sameServer       atomic.Pointer[error] // two clients are of one server
	panicked         atomic.Pointer[any]   // what a hook of a client panicked with, in a goroutine of redsync
}

// failure translates redsync's error for an acquisition that failed.
func (v *votes) failure(servers int, err error) error {
	if p := v.panicked.Load(); p != nil {
		panic(*p)
	}
	if same := v.sameServer.Load(); same != nil {
		return *same
	}
	if int(v.granted.Load()+v.refused.Load()) > servers/2 { // a majority could say: another caller holds it, or it is split between them
		return issue.ErrTaken
	}
	return redisrun.Outage(fmt.Errorf("serial: the lock servers failed: %w", redisrun.Foreign(err)))
}

// A lockServer sends the commands of one acquisition to one lock server, one after the other. redsync sends the release without
// waiting for a slow server to answer the SET; on another connection the two could change places, and the lock would stay behind
// with nobody to release it. And it relies on contexts to end commands, which go-redis does only where it is configured to: so
// commands go on by themselves here, and redsync stops waiting for them.
type lockServer struct{ lockConn }

func (s lockServer) Get(ctx context.Context) (redis.Conn, error) {
	s.ctx = ctx
	return s.lockConn, nil
}

// A lockConn has what redsync uses of a connection.
type lockConn struct {
	redis.Conn                 // nil: nothing else is called
	ctx        context.Context // redsync's
	client     goredis.UniversalClient
	number     int // position of the client in WithLockClients, from 1
	votes      *votes
	answered   chan struct{} // closed when the SET is over
}

// Close leaves a command that goes on alone.
func (c lockConn) Close() error { return nil }

// token adds the client's number to the value that redsync gives the acquisition.
func (c lockConn) token(value any) string { return fmt.Sprintf("%s#%d", value, c.number) }

// send sends a command straight to the server that has its key. Of a command whose keys' distance it is not told, go-redis first asks
// nodes of a Cluster, replicas too, and waits for each that hangs.
func (c lockConn) send(ctx context.Context, args ...any) (any, error) {
	cmd := goredis.NewCmd(ctx, args...)
	cmd.SetStepCount(1)
	_ = c.client.Process(ctx, cmd)
	return cmd.Result()
}

// run runs f, which sends commands, and stops waiting for it when redsync does. A panic is kept for the caller of the acquisition;
// nobody else would recover it.
func (c lockConn) run(f func(context.Context) (any, error)) (v any, err error) {
	defer func() {
		if p := recover(); p != nil {
			c.votes.panicked.Store(&p)
			err = redisrun.ErrEnded
		}
	}()
	return redisrun.Await(c.ctx, redisrun.NoLimit, func() (any, error) {
		within, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), budget.Answers)
		defer cancel()
		return f(within)
	})
}

func (c lockConn) SetNX(name, value string, expiry time.Duration) (bool, error) {
	granted, err := c.run(func(ctx context.Context) (any, error) {
		defer close(c.answered)
		reply, err := c.send(ctx, "set", name, c.token(value), "px", expiry.Milliseconds(), "nx")
		if err != nil && err != goredis.Nil {
			return false, err
		}
		return reply == "OK" || c.votes.split && c.holds(ctx, name, value), nil
	})
	switch {
	case err != nil:
	case granted == true:
		c.votes.granted.Add(1)
	default:
		c.votes.refused.Add(1)
	}
	return granted == true, err
}

// holds reports whether a lock that was refused is this client's after all, by a SET that was sent twice since its answer was lost.
// If it is another client's of this acquisition, both are of one server.
func (c lockConn) holds(ctx context.Context, name, value string) bool {
	held, _ := c.send(ctx, "eval", "return redis.call('get', KEYS[1])", 1, name) // a plain GET may go to a replica
	text, _ := held.(string)
	var other int
	if n, _ := fmt.Sscanf(text, value+"#%d", &other); n == 1 && other != c.number {
		err := sameServer(min(other, c.number), max(other, c.number))
		c.votes.sameServer.Store(&err)
	}
	return text == c.token(value)
}

// sameServer is the error where two clients of WithLockClients, counted from 1, are of one server.
func sameServer(first, second int) error {
	return fmt.Errorf("serial: WithLockClients: clients %d and %d are the same server, which grants a lock only once; "+
		"give every server once", first, second)
}

// Eval runs the release, the only script there is.
func (c lockConn) Eval(script *redis.Script, keysAndArgs ...any) (any, error) {
	return c.run(func(ctx context.Context) (any, error) {
		<-c.answered
		name, token := keysAndArgs[0], c.token(keysAndArgs[1])
		v, err := c.send(ctx, "evalsha", script.Hash, 1, name, token)
		if goredis.HasErrorPrefix(err, "NOSCRIPT") {
			v, err = c.send(ctx, "eval", script.Src, 1, name, token)
		}
		return v, err
	})
}
