package serial

import (
	"context"
	"errors"
	"fmt"
	"sync"
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
	k := &lock{onCounters: l.onCounters}
	within, cancel := context.WithDeadline(ctx, deadline)
	defer cancel() // drops commands not sent yet
	var pools []redis.Pool
	var sets []*setting
	for _, server := range l.servers {
		set := &setting{deadline: deadline, over: make(chan struct{})}
		set.item.Note = note
		if l.onCounters {
			set.item.Then = behind
		}
		sets = append(sets, set)
		pools = append(pools, lockServer{lockConn{within: within, server: server, tag: tag, lock: k, set: set}})
	}
	// A mutex serves one acquisition. With FailFast, a majority decides, however slow the other servers are.
	k.mutex = redsync.New(pools...).NewMutex(key, redsync.WithFailFast(true), redsync.WithExpiry(series.LockExpiry),
		redsync.WithTimeoutFactor(lockPatience.Seconds()/series.LockExpiry.Seconds()))
	err = k.mutex.TryLockContext(context.WithoutCancel(ctx))
	sent = behind != nil && l.onCounters && sets[0].wasSent()
	if err == nil {
		return k, sent, nil
	}
	return nil, sent, l.failure(ctx, k, within.Err(), err, note)
}

// failure returns the error of an attempt at the lock k that failed with err. ended is the error of the attempt's
// context, nil if the servers have answered or failed before its end.
func (l locks) failure(ctx context.Context, k *lock, ended, err error, note *wire.Note) error {
	switch p := k.panicked.Load(); {
	case p != nil:
		panic(*p)
	case ended != nil:
		err = ended
	case int(k.granted.Load()) > len(l.servers)/2:
		err = wire.ErrNoAnswer // a majority granted it too late, so no other caller has it
	case int(k.answered.Load()) > len(l.servers)/2:
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
func (k *lock) Release(ctx context.Context) { _, _ = k.mutex.UnlockContext(ctx) }

// A lockServer sends an acquisition's commands to one lock server in order. redsync sends the release without waiting
// for a slow server to answer the SET; on another connection the release could overtake the SET, and the lock would
// stay behind with no caller to release it.
type lockServer struct{ lockConn }

func (s lockServer) Get(context.Context) (redis.Conn, error) { return s.lockConn, nil }

// A lockConn implements the part of a connection that redsync uses.
type lockConn struct {
	redis.Conn                 // nil: nothing else is called
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
	over     chan struct{} // closed once the client is done with it

	mu     sync.Mutex // guards all below
	sent   bool       // the item is queued
	barred bool       // the item must not be queued any more
}

// Done implements [wire.Command].
func (s *setting) Done() { close(s.over) }

// wasSent reports whether the SET was queued. Otherwise, it will not be.
func (s *setting) wasSent() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.barred = !s.sent
	return s.sent
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
func (c lockConn) SetNX(name, value string, expiry time.Duration) (granted bool, err error) {
	// A panic of a client's hook is for the acquisition's caller. In redsync's goroutine, it would end the process.
	defer func() {
		if p := recover(); p != nil {
			c.lock.panicked.Store(&p)
			err = wire.ErrEnded
		}
	}()
	if !c.send("set", name, value, "px", expiry.Milliseconds(), "nx") {
		return false, wire.ErrUnsent
	}
	if err := c.set.item.Wait(c.within); err != nil {
		return false, err
	}
	r := &c.set.item.Result
	granted = r.Value == "OK"
	if granted {
		c.lock.granted.Add(1)
	}
	if r.Err == nil { // granted or refused
		c.lock.answered.Add(1)
	}
	return granted, r.Err
}

// send queues the SET, unless it must not be queued any more.
func (c lockConn) send(args ...any) (sent bool) {
	set, node := c.set, c.server.Node(c.within, c.tag)
	set.mu.Lock()
	defer set.mu.Unlock()
	if set.barred {
		return false
	}
	set.args, set.sent = args, true
	set.item.Command, set.item.Key, set.item.Deadline = set, 1, time.Now().Add(lockPatience)
	if set.deadline.Before(set.item.Deadline) {
		set.item.Deadline = set.deadline
	}
	c.server.Start(c.within, node, &set.item)
	return true
}

// Eval runs the release, the only redsync script in use, in the background: no caller waits for it.
func (c lockConn) Eval(script *redis.Script, keysAndArgs ...any) (any, error) {
	go c.release(append([]any{"eval", script.Src, script.KeyCount}, keysAndArgs...))
	return int64(1), nil
}

// release sends the release once the SET is over, unless that was not sent. A panic of a client's hook concerns no
// caller here.
func (c lockConn) release(args []any) {
	defer func() { _ = recover() }()
	if !c.set.wasSent() {
		return
	}
	if <-c.set.over; wire.Unsent(c.set.item.Result.Err) {
		return
	}
	release := &plainCommand{args: args}
	release.item = wire.Item{Command: release, Key: 3, Deadline: time.Now().Add(lockPatience)}
	steady := context.WithoutCancel(c.within)
	_, _, _ = c.server.Do(steady, c.server.Node(steady, c.tag), &release.item)
}
