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

// lockPatience limits the time for which an attempt to get the lock waits for servers that do not reply. The attempt
// ends earlier if a majority has granted or refused the lock. lockPatience also limits the time for releasing the lock.
const lockPatience = 2 * time.Second

// locks creates the redsync locks for opening periods, on independent servers.
type locks struct {
	servers    []*wire.Client
	onCounters bool          // the only lock server is that of the counters
	releases   *sync.RWMutex // held for reading by each running release
}

// newLocks returns locks on the servers of clients. If clients is nil, the locks are on the server of the counters.
func newLocks(counters *wire.Client, clients []goredis.UniversalClient) locks {
	l := locks{onCounters: clients == nil, releases: new(sync.RWMutex)}
	if l.onCounters {
		l.servers = []*wire.Client{counters}
	}
	for _, client := range clients {
		l.servers = append(l.servers, wire.New(client, wire.Replicas{}, func() any { return nil }))
	}
	return l
}

// A lock is held until it is released, or until it expires if releasing it fails.
type lock struct {
	mutex    *redsync.Mutex
	settings locks
	replied  atomic.Int32        // number of servers that granted or refused the lock in time
	granted  atomic.Int32        // number of servers that granted it
	panicked atomic.Pointer[any] // value with which a hook of a client panicked, in a goroutine of redsync
}

// Try implements [series.Locks]. The error is also ErrTaken if each caller got the lock only on a minority of the
// servers.
//
// ctx is not passed to redsync. redsync would not return the error of ctx, and after ctx has ended, it could not
// release a lock that a server may have granted.
func (l locks) Try(ctx context.Context, deadline time.Time, tag, key string, behind *wire.Item, note *wire.Note,
) (_ series.Lock, sent bool, err error) {
	k := &lock{settings: l}
	within, cancel := context.WithDeadline(ctx, deadline)
	defer cancel() // drops commands that have not been sent
	var pools []redis.Pool
	var conn *lockConn
	for _, server := range l.servers {
		conn = &lockConn{within: within, server: server, tag: tag, lock: k, over: make(chan struct{})}
		conn.item.Note = note
		pools = append(pools, lockServer{conn})
	}
	if l.onCounters {
		conn.item.Then = behind
	}
	// The mutex is used only once. With FailFast, it does not wait for the other servers once a majority has replied.
	k.mutex = redsync.New(pools...).NewMutex(key, redsync.WithFailFast(true), redsync.WithExpiry(series.LockExpiry))
	err = k.mutex.TryLockContext(context.WithoutCancel(ctx))
	sent = conn.item.Then != nil && conn.wasSent()
	if err == nil {
		return k, sent, nil
	}
	return nil, sent, l.failure(ctx, k, within.Err(), err, note)
}

// failure returns the error of a failed attempt to get the lock k, for which redsync has returned err. The parameter
// ended is the error of the attempt's context, or nil if that context has not ended.
func (l locks) failure(ctx context.Context, k *lock, ended, err error, note *wire.Note) error {
	switch p := k.panicked.Load(); {
	case p != nil:
		panic(*p)
	case ended != nil:
		err = ended
	case int(k.granted.Load()) > len(l.servers)/2:
		err = wire.ErrNoAnswer // not ErrTaken: a majority granted the lock to this caller, but too late
	case int(k.replied.Load()) > len(l.servers)/2:
		return series.ErrTaken
	}
	if end := wire.ContextErr(ctx); end != nil { // not an outage: the servers may be available to other callers
		return wire.After(fmt.Errorf("serial: gave up waiting for the lock: %w", end), note.Load())
	}
	if !l.onCounters {
		return wire.FailedAfter("the lock servers", err, note.Load())
	}
	if failure, ok := errors.AsType[*redsync.RedisError](err); ok {
		err = failure.Err // omits the number of the lock server
	}
	return wire.FailedAfter("Redis", err, note.Load())
}

// Content implements [series.Lock].
func (k *lock) Content() string {
	if !k.settings.onCounters {
		return ""
	}
	return k.mutex.Value()
}

// Release implements [series.Lock]. If it fails, the lock expires.
func (k *lock) Release(ctx context.Context) { _, _ = k.mutex.UnlockContext(ctx) }

// A lockServer is a pool with one connection.
type lockServer struct{ conn *lockConn }

func (s lockServer) Get(context.Context) (redis.Conn, error) { return s.conn, nil }

// A lockConn sends both commands of one attempt at the lock to a lock server: first the SET, then the release. redsync
// may request the release before a slow server has replied to the SET. If the release were sent on another connection
// at once, it could overtake the SET, and the lock would stay held. A lockConn therefore sends the release after the
// SET has finished. It implements only the methods of a connection that redsync uses.
type lockConn struct {
	redis.Conn                   // nil, because no other method is called
	plainCommand                 // the SET
	within       context.Context // context of the attempt; once it has ended, a waiting SET is not sent
	server       *wire.Client
	tag          string
	lock         *lock
	over         chan struct{} // closed when the SET is finished

	mu     sync.Mutex // guards all below
	sent   bool       // the SET has been queued
	barred bool       // the SET must not be queued any more
}

// Close does nothing, so that running commands continue.
func (c *lockConn) Close() error { return nil }

// Done implements [wire.Command].
func (c *lockConn) Done() { close(c.over) }

// wasSent reports whether the SET has been queued. If it has not, wasSent makes sure that it will not be queued later.
func (c *lockConn) wasSent() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.barred = !c.sent
	return c.sent
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

// SetNX sends the SET and waits for the reply.
func (c *lockConn) SetNX(name, value string, expiry time.Duration) (granted bool, err error) {
	// If a hook of the client panics, the panic is passed to the caller of Try. In a goroutine of redsync, it would end
	// the process.
	defer func() {
		if p := recover(); p != nil {
			c.lock.panicked.Store(&p)
			err = wire.ErrEnded
		}
	}()
	if !c.send("set", name, value, "px", expiry.Milliseconds(), "nx") {
		return false, wire.ErrUnsent
	}
	if err := c.item.Wait(c.within); err != nil {
		return false, err
	}
	r := &c.item.Result
	granted = r.Value == "OK"
	if granted {
		c.lock.granted.Add(1)
	}
	if r.Err == nil { // granted or refused
		c.lock.replied.Add(1)
	}
	return granted, r.Err
}

// send queues the SET. It returns false if the SET must not be queued.
func (c *lockConn) send(args ...any) (sent bool) {
	node := c.server.Node(c.within, c.tag)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.barred {
		return false
	}
	c.args, c.sent = args, true
	c.item.Command, c.item.Key, c.item.Deadline = c, 1, time.Now().Add(lockPatience)
	if end, _ := c.within.Deadline(); end.Before(c.item.Deadline) {
		c.item.Deadline = end
	}
	c.server.Start(c.within, node, &c.item)
	return true
}

// Eval starts the release, which is the only script that redsync runs here. The release runs in the background, because
// no caller has to wait for it.
func (c *lockConn) Eval(script *redis.Script, keysAndArgs ...any) (any, error) {
	releases := c.lock.settings.releases
	releases.RLock()
	go func() {
		defer releases.RUnlock()
		c.release(append([]any{"eval", script.Src, script.KeyCount}, keysAndArgs...))
	}()
	return int64(1), nil
}

// release sends the release after the SET has finished, unless it is certain that the SET did not run. If a hook of the
// client panics, the panic is ignored, because no caller is waiting.
func (c *lockConn) release(args []any) {
	defer func() { _ = recover() }()
	if !c.wasSent() {
		return
	}
	if <-c.over; wire.Unsent(c.item.Result.Err) {
		return
	}
	release := &plainCommand{args: args}
	release.item = wire.Item{Command: release, Key: 3, Deadline: time.Now().Add(lockPatience)}
	detached := context.WithoutCancel(c.within)
	_, _, _ = c.server.Do(detached, c.server.Node(detached, c.tag), &release.item)
}
