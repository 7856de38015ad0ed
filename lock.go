package serial

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredisclient "github.com/redis/go-redis/v9"
)

const (
	// lockExpiry is how long a crashed holder delays the others.
	lockExpiry = 8 * time.Second
	// floorMargin is what remains of it, once the floor has answered, to open the period.
	floorMargin = time.Second
	// unlockPatience is how long a caller that has its number waits for the unlock, and the unlock for its servers.
	unlockPatience = 2 * time.Second
)

// locks makes the redsync locks around opening periods.
type locks struct {
	redsync *redsync.Redsync
	spare   int // servers that may fail while the others are still a majority
}

func newLocks(clients []goredisclient.UniversalClient) locks {
	pools := make([]redis.Pool, len(clients))
	for i, client := range clients {
		pools[i] = goredis.NewPool(client)
	}
	return locks{redsync.New(pools...), (len(pools) - 1) / 2}
}

// A lock is held until it is released or, should that fail, until it expires.
type lock struct {
	mutex *redsync.Mutex
	since time.Time // when it was asked for, so that it expires lockExpiry later at the earliest
}

// errTaken is the cause where others kept the lock for too long.
var errTaken = errors.New("another process holds the lock")

// try makes one attempt at the lock and returns nil if another holds it. It answers as soon as ctx ends, and otherwise
// within unreachable.
//
// redsync is not handed ctx itself: it would forget why it ended, and with a dead context it could not give back what
// a server may have granted.
func (l locks) try(ctx context.Context, key string) (*lock, error) {
	k := &lock{
		// A mutex belongs to one acquisition. FailFast: a majority decides, however slow the other servers are.
		mutex: l.redsync.NewMutex(key, redsync.WithExpiry(lockExpiry), redsync.WithTimeoutFactor(0.5), redsync.WithFailFast(true)),
		since: time.Now(),
	}
	// Not buffered, so that either this call receives the answer or the goroutine learns that nobody will.
	answer := make(chan error)
	abandoned := make(chan struct{})
	defer close(abandoned)
	go func() {
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), unreachable)
		defer cancel()
		err := k.mutex.TryLockContext(within)
		select {
		case answer <- err:
		case <-abandoned:
			if err == nil {
				k.release(within)
			}
		}
	}()
	timeout := time.NewTimer(unreachable)
	defer timeout.Stop()
	select {
	case err := <-answer:
		switch {
		case err == nil:
			return k, nil
		case failed(err) <= l.spare:
			return nil, nil
		}
		return nil, fmt.Errorf("serial: the lock servers failed: %w", foreign(err))
	case <-ctx.Done():
		return nil, fmt.Errorf("serial: gave up waiting for the lock: %w", ctx.Err())
	case <-timeout.C:
		return nil, fmt.Errorf("serial: the lock servers did not answer within %v: %w", unreachable, os.ErrDeadlineExceeded)
	}
}

// failed counts the servers that could not say whether the lock is free. Where a majority could, it is with others, or
// torn between them.
func failed(err error) int {
	switch err := err.(type) {
	case *redsync.RedisError:
		return 1
	case interface{ Unwrap() []error }:
		n := 0
		for _, e := range err.Unwrap() {
			n += failed(e)
		}
		return n
	}
	return 0
}

// release gives the lock back, also for a caller whose context has ended, who does not wait for it. If it fails the
// lock expires by itself.
func (k *lock) release(ctx context.Context) {
	within, cancel := context.WithCancel(context.WithoutCancel(ctx))
	time.AfterFunc(unlockPatience, cancel) // not on return: FailFast returns before the slowest server is done
	_, _ = await(ctx, unlockPatience, func() (bool, error) { return k.mutex.UnlockContext(within) })
}
