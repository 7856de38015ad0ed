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

	"github.com/dailyserial/serial/internal/series"
	"github.com/dailyserial/serial/internal/wire"
)

// lockPatience is how long an attempt at the lock waits for a silent server, unless a majority answers first. It also
// limits the release.
const lockPatience = 2 * time.Second

// locks makes the redsync locks for opening periods, on independent servers.
type locks struct {
	servers    []*wire.Client
	onCounters bool // the counters' own server is the only lock server
}

// newLocks returns locks on clients, or on the counters' own client if there are none.
func newLocks(counters *wire.Client, clients []goredis.UniversalClient) locks {
	l := locks{onCounters: clients == nil}
	if l.onCounters {
		l.servers = []*wire.Client{counters}
	}
	for _, client := range clients {
		l.servers = append(l.servers, wire.New(client, wire.Replicas{}, func() any { return nil }))
	}
	return l
}

// A lock is held until it is released or, should that fail, until it expires.
type lock struct {
	mutex      *redsync.Mutex
	onCounters bool
	answered   atomic.Int32        // count of servers that granted or refused the lock in time
	granted    atomic.Int32        // count of servers that granted it
	panicked   atomic.Pointer[any] // value with which a hook of a client panicked, in a goroutine of redsync
}

// Try implements [series.Locks]. If the servers granted the lock to several callers, the error is ErrTaken, too.
//
// redsync does not get ctx itself: it would lose ctx's error, and with a dead context it could not release a lock that
// a server may have granted.
func (l locks) Try(ctx context.Context, deadline time.Time, tag, key string, behind *wire.Item, note *wire.Note,
) (_ series.Lock, sent bool, err error) {
	k, steady := &lock{onCounters: l.onCounters}, context.WithoutCancel(ctx)
	within, cancel := context.WithDeadline(ctx, deadline)
	defer cancel() // drops commands not sent yet
	var pools []redis.Pool
	var sets []*setting
	for _, server := range l.servers {
		set := &setting{deadline: deadline, begun: make(chan struct{}), over: make(chan struct{})}
		set.item.Note = note
		if l.onCounters {
			set.item.Then = behind
		}
		sets = append(sets, set)
		pools = append(pools, lockServer{lockConn{server: server, tag: tag, lock: k, within: within, set: set}})
	}
	// A mutex serves one acquisition. With FailFast, a majority decides, however slow the other servers are.
	k.mutex = redsync.New(pools...).NewMutex(key, redsync.WithFailFast(true), redsync.WithExpiry(series.LockExpiry),
		redsync.WithTimeoutFactor(lockPatience.Seconds()/series.LockExpiry.Seconds()))
	_, answered, err := wire.Await(within, func() (any, error) {
		return nil, k.mutex.TryLockContext(steady)
	}, func(_ any, err error) {
		if err == nil { // granted, but the caller is gone
			k.Release(steady)
		}
	})
	sent = behind != nil && l.onCounters && sets[0].wasSent()
	if err == nil {
		return k, sent, nil
	}
	return nil, sent, l.failure(ctx, k, answered, err, note)
}

// failure returns the error of an attempt at the lock k that failed with err. answered reports whether redsync has
// returned.
func (l locks) failure(ctx context.Context, k *lock, answered bool, err error, note *wire.Note) error {
	switch p := k.panicked.Load(); {
	case p != nil:
		panic(*p)
	case answered && int(k.granted.Load()) > len(l.servers)/2:
		err = wire.ErrNoAnswer // a majority granted it too late, so no other caller has it
	case answered && int(k.answered.Load()) > len(l.servers)/2:
		return series.ErrTaken
	}
	if end := wire.EndOf(ctx); end != nil { // and the attempt with it: that says nothing to others who wait for it
		return wire.After(fmt.Errorf("serial: gave up waiting for the lock: %w", end), note.Load())
	}
	if !l.onCounters {
		return wire.FailedAfter("the lock servers", err, note.Load())
	}
	if failure, ok := errors.AsType[*redsync.RedisError](err); ok {
		err = failure.Err // without the number of the lock server
	}
	return wire.FailedAfter("Redis", err, note.Load())
}

// Content implements [series.Lock].
func (k *lock) Content() string {
	if !k.onCounters {
		return ""
	}
	return k.mutex.Value()
}

// Release implements [series.Lock]. If it fails, the lock expires by itself.
func (k *lock) Release(ctx context.Context) {
	go func() {
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), lockPatience)
		defer cancel()
		_, _ = k.mutex.UnlockContext(within)
	}()
}

// A lockServer sends an acquisition's commands to one lock server in order. redsync sends the release without waiting
// for a slow server to answer the SET; on another connection the release could overtake the SET, and the lock would
// stay behind with no caller to release it. redsync also relies on contexts to end commands, which works only if
// go-redis is configured for it. So commands continue by themselves here, and redsync stops waiting for them.
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
	server     *wire.Client
	tag        string
	lock       *lock
	set        *setting
}

// Close does nothing: a command under way continues.
func (c lockConn) Close() error { return nil }

// A setting is the SET of one acquisition on one server.
type setting struct {
	plainCommand
	deadline time.Time
	state    atomic.Int32  // 0, 1 once it is sent, or 2 if it will not be
	begun    chan struct{} // closed once the item is queued
	over     chan struct{} // closed once the client is done with it
}

// Done implements [wire.Command].
func (s *setting) Done() { close(s.over) }

// wasSent reports whether the SET was queued. Otherwise, it will not be.
func (s *setting) wasSent() bool {
	if s.state.CompareAndSwap(0, 2) || s.state.Load() == 2 {
		return false
	}
	<-s.begun
	return true
}

// A plainCommand is a command without a script.
type plainCommand struct {
	item wire.Item
	args []any
}

func (p *plainCommand) Arguments() []any { return p.args }
func (p *plainCommand) Done()            {}
func (p *plainCommand) Lost(error)       {}
func (p *plainCommand) Leave()           {}
func (p *plainCommand) Left(int)         {}

// SetNX sends the SET, and waits for the server's answer.
func (c lockConn) SetNX(name, value string, expiry time.Duration) (_ bool, err error) {
	defer c.keepPanic(&err)
	set := c.set
	if !set.state.CompareAndSwap(0, 1) {
		return false, wire.ErrUnsent
	}
	set.args = []any{"set", name, value, "px", expiry.Milliseconds(), "nx"}
	set.item.Command, set.item.Key, set.item.Deadline = set, 1, time.Now().Add(lockPatience)
	if set.deadline.Before(set.item.Deadline) {
		set.item.Deadline = set.deadline
	}
	c.server.Start(c.within, c.server.Node(c.within, c.tag), &set.item)
	close(set.begun)
	if err := set.item.Wait(c.within); err != nil {
		return false, err
	}
	r := &set.item.Result
	if r.Err == nil { // granted or refused
		c.lock.answered.Add(1)
	}
	if r.Value == "OK" {
		c.lock.granted.Add(1)
	}
	return r.Value == "OK", r.Err
}

// Eval runs the release, the only redsync script in use, once the SET is over. It continues by itself if redsync stops
// waiting.
func (c lockConn) Eval(script *redis.Script, keysAndArgs ...any) (_ any, err error) {
	defer c.keepPanic(&err)
	reply, _, err := wire.Await(c.ctx, func() (any, error) {
		if !c.set.wasSent() {
			return int64(0), nil
		}
		if <-c.set.over; wire.Unsent(c.set.item.Result.Err) {
			return int64(0), nil
		}
		release := &plainCommand{args: append([]any{"eval", script.Src, script.KeyCount}, keysAndArgs...)}
		release.item = wire.Item{Command: release, Key: 3, Deadline: time.Now().Add(lockPatience)}
		steady := context.WithoutCancel(c.ctx)
		item, _, err := c.server.Do(steady, c.server.Node(steady, c.tag), &release.item)
		if err != nil {
			return nil, err
		}
		return item.Result.Value, item.Result.Err
	}, nil)
	return reply, err
}

// keepPanic stores a panic for the acquisition's caller, which would otherwise end the process.
func (c lockConn) keepPanic(err *error) {
	if p := recover(); p != nil {
		c.lock.panicked.Store(&p)
		*err = wire.ErrEnded
	}
}
