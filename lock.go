package serial

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"
	goredis "github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial/internal/budget"
	"github.com/dailyserial/serial/internal/exchange"
	"github.com/dailyserial/serial/internal/issue"
	"github.com/dailyserial/serial/internal/redisrun"
)

// locks makes the redsync locks for opening periods, on independent servers.
type locks struct {
	servers    []*exchange.Pipe
	onCounters bool // the counters' own server is the only lock server
}

// newLocks returns locks on clients, or on the counters' own client if there are none.
func newLocks(counters goredis.UniversalClient, clients []goredis.UniversalClient) locks {
	l := locks{onCounters: clients == nil}
	if l.onCounters {
		clients = []goredis.UniversalClient{counters}
	}
	for _, client := range clients {
		l.servers = append(l.servers, exchange.NewPipe(client))
	}
	return l
}

// A lock is held until it is released or, should that fail, until it expires.
type lock struct {
	mutex      *redsync.Mutex
	onCounters bool                // the counters' own server is the only lock server
	answered   atomic.Int32        // count of servers that granted or refused the lock in time
	granted    atomic.Int32        // count of servers that granted it
	panicked   atomic.Pointer[any] // value with which a hook of a client panicked, in a goroutine of redsync
}

// Try makes one attempt at the lock. The error is issue.ErrTaken if another caller holds it, or if servers granted it
// to several callers. It returns as soon as ctx ends, and otherwise within an attempt of b.
//
// redsync does not get ctx itself: it would lose ctx's error, and with a dead context it could not release a lock that
// a server may have granted.
func (l locks) Try(ctx context.Context, b *budget.Budget, typ, key string) (issue.Lock, error) {
	if limit, _ := b.NextLimit(); limit <= 0 {
		return nil, redisrun.ErrUnsent
	}
	k, late := &lock{onCounters: l.onCounters}, b.IsLate()
	steady := context.WithoutCancel(ctx)
	within, withdraw := context.WithCancel(ctx)
	defer withdraw() // drops commands not sent yet
	var pools []redis.Pool
	for _, server := range l.servers {
		pools = append(pools, lockServer{lockConn{
			server: server, typ: typ, lock: k, within: within, set: &setting{begun: make(chan struct{})},
		}})
	}
	// A mutex serves one acquisition. With FailFast, a majority decides, however slow the other servers are.
	k.mutex = redsync.New(pools...).NewMutex(key, redsync.WithFailFast(true), redsync.WithExpiry(issue.LockExpiry),
		redsync.WithTimeoutFactor(issue.LockPatience.Seconds()/issue.LockExpiry.Seconds()))
	running := redisrun.Begin(func() (bool, error) { return true, k.mutex.TryLockContext(steady) })
	answered, err, over := running.WaitWithin(ctx, b)
	if !over && !running.Leave(func(_ bool, err error) {
		if err == nil { // granted, and nobody wants it
			k.Release(steady, 0)
		}
	}) {
		answered, err, _ = running.Wait(steady, redisrun.NoLimit)
	}
	switch p := k.panicked.Load(); {
	case err == nil:
		return k, nil
	case p != nil:
		panic(*p)
	case answered && int(k.granted.Load()) > len(l.servers)/2:
		err = redisrun.ErrNoAnswer // a majority granted it too late, so nobody else has it
	case answered && int(k.answered.Load()) > len(l.servers)/2:
		return nil, issue.ErrTaken
	}
	if end := redisrun.EndOf(ctx); end != nil { // and the attempt with it: that says nothing to others who wait for it
		return nil, fmt.Errorf("serial: gave up waiting for the lock: %w", end)
	}
	if !l.onCounters {
		return nil, redisrun.Failed("the lock servers", err, late)
	}
	if failure, ok := errors.AsType[*redsync.RedisError](err); ok {
		err = failure.Err // without the number of the lock server
	}
	return nil, redisrun.Failed("Redis", err, late)
}

// Content implements [issue.Lock].
func (k *lock) Content() string {
	if !k.onCounters {
		return ""
	}
	return k.mutex.Value()
}

// Release gives the lock back, even if the caller's context has ended; such a caller does not wait. If it fails, the
// lock expires by itself.
func (k *lock) Release(ctx context.Context, patience time.Duration) {
	_, _ = redisrun.Await(ctx, patience, func() (bool, error) {
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), issue.LockPatience)
		defer cancel()
		return k.mutex.UnlockContext(within)
	})
}

// A lockServer sends an acquisition's commands to one lock server in order. redsync sends the release without waiting
// for a slow server to answer the SET; on another connection the release could overtake the SET, and the lock would
// stay behind with nobody to release it. redsync also relies on contexts to end commands, which works only if go-redis
// is configured for it. So commands continue by themselves here, and redsync stops waiting for them.
type lockServer struct{ lockConn }

func (s lockServer) Get(ctx context.Context) (redis.Conn, error) {
	s.ctx = ctx
	return s.lockConn, nil
}

// A lockConn implements the part of a connection that redsync uses.
type lockConn struct {
	redis.Conn                 // nil: nothing else is called
	ctx        context.Context // redsync's
	within     context.Context // ends with the attempt; a SET still waiting then is not sent
	server     *exchange.Pipe
	typ        string
	lock       *lock
	set        *setting
}

// A setting is the SET of one acquisition on one server.
type setting struct {
	begun chan struct{} // closed once the rest is written
	*exchange.Sending
}

// Close does nothing: a command under way continues.
func (c lockConn) Close() error { return nil }

// SetNX waits for the server from the moment it is sent. Before that, the server's answers to others show that it
// works.
func (c lockConn) SetNX(name, value string, expiry time.Duration) (_ bool, err error) {
	defer c.keepPanic(&err)
	c.set.Sending = c.server.Send(c.within, issue.LockPatience, c.typ,
		"set", name, value, "px", expiry.Milliseconds(), "nx")
	close(c.set.begun)
	reply, err := c.set.Wait(c.within, issue.LockPatience)
	if err == nil || err == goredis.Nil { // granted or refused
		c.lock.answered.Add(1)
		err = nil
	}
	if reply == "OK" {
		c.lock.granted.Add(1)
	}
	return reply == "OK", err
}

// Eval runs the release, the only redsync script in use, once the SET is over. It continues by itself if redsync stops
// waiting.
func (c lockConn) Eval(script *redis.Script, keysAndArgs ...any) (_ any, err error) {
	defer c.keepPanic(&err)
	return redisrun.Await(c.ctx, issue.LockPatience, func() (any, error) {
		<-c.set.begun
		if !c.set.Over() {
			return int64(0), nil // nothing was asked for
		}
		steady := context.WithoutCancel(c.ctx)
		release := c.server.Send(steady, budget.Answers, c.typ,
			append([]any{"eval", script.Src, script.KeyCount}, keysAndArgs...)...)
		return release.Wait(steady, issue.LockPatience)
	})
}

// keepPanic stores a panic for the acquisition's caller; nobody else would recover it.
func (c lockConn) keepPanic(err *error) {
	if p := recover(); p != nil {
		c.lock.panicked.Store(&p)
		*err = redisrun.ErrEnded
	}
}
