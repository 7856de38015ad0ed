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
	servers []*redisrun.Pipe
	own     bool // the only server is the counters'
}

// newLocks returns the locks on clients, or on the counters' own client if there are none.
func newLocks(counters goredis.UniversalClient, clients []goredis.UniversalClient) locks {
	l := locks{own: clients == nil}
	if l.own {
		clients = []goredis.UniversalClient{counters}
	}
	for _, client := range clients {
		l.servers = append(l.servers, redisrun.NewPipe(client))
	}
	return l
}

// A lock is held until it is released or, should that fail, until it expires.
type lock struct {
	mutex    *redsync.Mutex
	own      bool                // it is on the counters' server only
	answered atomic.Int32        // servers that granted the lock or refused it, in time
	panicked atomic.Pointer[any] // what a hook of a client panicked with, in a goroutine of redsync
}

// Try makes one attempt at the lock. The error is issue.ErrTaken if another caller holds it, or if it is split between callers. It
// answers as soon as ctx ends, and otherwise within limit.
//
// redsync does not get ctx itself: it would forget why ctx ended, and with a dead context it could not give back what a server may
// have granted.
func (l locks) Try(ctx context.Context, typ, key string, limit time.Duration) (issue.Lock, error) {
	k := &lock{own: l.own}
	var pools []redis.Pool
	for _, server := range l.servers {
		pools = append(pools, lockServer{lockConn{server: server, typ: typ, lock: k, isSet: make(chan struct{})}})
	}
	// A mutex belongs to one acquisition. FailFast: a majority decides, however slow the other servers are.
	k.mutex = redsync.New(pools...).NewMutex(key, redsync.WithFailFast(true), redsync.WithExpiry(issue.LockExpiry),
		redsync.WithTimeoutFactor(issue.LockPatience.Seconds()/issue.LockExpiry.Seconds()))
	steady, over := context.WithoutCancel(ctx), make(chan struct{})
	answered, err := redisrun.Await(ctx, limit, func() (bool, error) {
		defer close(over)
		return true, k.mutex.TryLockContext(steady)
	})
	if !answered {
		go func() { // gives back what the attempt has been granted, if it has
			<-over
			k.Release(steady, 0)
		}()
	}
	switch p := k.panicked.Load(); {
	case err == nil:
		return k, nil
	case p != nil:
		panic(*p)
	case !answered && err != redisrun.ErrNoAnswer:
		return nil, fmt.Errorf("serial: gave up waiting for the lock: %w", err)
	case answered && int(k.answered.Load()) > len(l.servers)/2:
		return nil, issue.ErrTaken
	}
	return nil, redisrun.Outage(fmt.Errorf("serial: the lock servers failed: %w", redisrun.Foreign(err)))
}

// Held is what the lock's key holds on the counters' own server, "" if the lock is elsewhere.
func (k *lock) Held() string {
	if !k.own {
		return ""
	}
	return k.mutex.Value()
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
	server     *redisrun.Pipe
	typ        string
	lock       *lock
	isSet      chan struct{} // closed when the SET is over
}

// Close leaves a command that goes on alone.
func (c lockConn) Close() error { return nil }

func (c lockConn) SetNX(name, value string, expiry time.Duration) (bool, error) {
	reply, err := c.run(func(ctx context.Context) (any, error) {
		defer close(c.isSet)
		return c.server.Do(ctx, c.typ, "set", name, value, "px", expiry.Milliseconds(), "nx")
	})
	if err == nil || err == goredis.Nil { // granted or refused
		c.lock.answered.Add(1)
		err = nil
	}
	return reply == "OK", err
}

// Eval runs the release, the only script there is.
func (c lockConn) Eval(script *redis.Script, keysAndArgs ...any) (any, error) {
	return c.run(func(ctx context.Context) (any, error) {
		<-c.isSet
		return c.server.Do(ctx, c.typ, append([]any{"eval", script.Src, script.KeyCount}, keysAndArgs...)...)
	})
}

// run runs f, which sends a command, and stops waiting for it when redsync does. A panic is kept for the caller of the acquisition;
// nobody else would recover it.
func (c lockConn) run(f func(context.Context) (any, error)) (v any, err error) {
	defer func() {
		if p := recover(); p != nil {
			c.lock.panicked.Store(&p)
			err = redisrun.ErrEnded
		}
	}()
	return redisrun.Await(c.ctx, redisrun.NoLimit, func() (any, error) {
		within, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), budget.Answers)
		defer cancel()
		return f(within)
	})
}
