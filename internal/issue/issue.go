// Package issue is what a call wants: the steps of the published sequence (take, lock, open, wait), blocks of a ledger,
// and what operators ask for. It knows neither how a number is printed nor who keeps the lock: spans of time, labels
// and sequences go in and out, and a refusal is data.
package issue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dailyserial/serial/internal/exchange"
	"github.com/dailyserial/serial/internal/redisrun"
	"github.com/dailyserial/serial/internal/store"
)

// MaxSeq is the largest possible sequence.
const MaxSeq = store.MaxSeq

// An Answer is the stored answer to a request that may come again.
type Answer = store.Answer

// A Config says how an [Issuer] issues. Its functions are called from any number of goroutines.
type Config struct {
	exchange.Config
	Base        int64 // sequence before the first of a period
	MeasureWait bool  // somebody wants to know how long openings take

	// Floor returns the highest sequence that may have been used; nil for none.
	Floor func(ctx context.Context, typ string, start time.Time) (int64, error)
	// Reserve sets sequences aside in a ledger, Block at a time, and returns the one before the first; nil for none.
	Reserve func(ctx context.Context, typ, label string, above, n int64) (after int64, err error)
	Block   int64
}

// An Issuer issues sequences. Its methods may be called concurrently.
type Issuer struct {
	Config
	*exchange.Exchange
	flights sync.Map // under way: flightKey to *flight
}

// New returns an Issuer.
func New(c Config) *Issuer {
	c.Ledger = c.Reserve != nil
	return &Issuer{Config: c, Exchange: exchange.New(&c.Config)}
}

// A Call is one call of a public method for one type. One goroutine uses it at a time. A caller that leaves a step
// which continues without it, such as an opening, may still call End and Events, and nothing else.
type Call struct {
	issuer    *Issuer
	session   exchange.Session
	began     time.Time
	flight    *flight // that others of this process wait for, nil for none
	waits     int     // for others, up to 10
	lockErr   error   // error of the last attempt at the lock
	abandoned bool    // the caller has left a step that continues
}

// NewCall begins a call for a type, whose request may come again if it has an ID.
func (i *Issuer) NewCall(ctx context.Context, typ, requestID string) (*Call, error) {
	if err := redisrun.EndOf(ctx); err != nil {
		return nil, fmt.Errorf("serial: nothing was sent: %w", err)
	}
	c := &Call{issuer: i, session: i.Begin(ctx, typ, requestID)}
	if i.MeasureWait {
		c.began = time.Now()
	}
	return c, nil
}

// Events returns what the call came across so far.
func (c *Call) Events() exchange.Events { return c.session.Events() }

// Current returns the span that the server's clock is in, as far as that is known.
func (c *Call) Current() *exchange.Span { return c.session.Current() }

// ErrTaken is the error of an attempt at a lock that others hold, and of a call that has waited for them in vain.
var ErrTaken = errors.New("others kept the lock")

// A Step says what to do next.
type Step int

const (
	Done    Step = iota // nothing: there are numbers or an error
	Missing             // lock: the counter is missing, or lost while a floor can say how far it had come
	Locked              // open: the caller has the lock
	Wait                // wait: others are at work, or the period must be looked at again
	Again               // the same again
	Enter               // for Prepare: enter the current period, which must not be full
)

// An Outcome is how a step ended, and what the next one needs.
type Outcome struct {
	Step    Step
	Numbers Numbers         // of Done, without Err
	Reply   *exchange.Reply // of Missing and Locked: the reply that the counter is missing
	Held    Held            // of Locked
	Err     error
}

// Numbers are sequences that were issued.
type Numbers struct {
	Span     *exchange.Span
	Last     int64         // the last sequence
	Answer   *store.Answer // the stored answer to the request, nil if there was none
	Repeated bool          // another call got it
}

// A Lock is held until it is released or, should that fail, until it expires.
type Lock interface {
	// Content returns the content of the lock's key on the counters' own server, "" if the lock is elsewhere.
	Content() string
	releaser
}

// Held is a lock that the caller has. The Lock is nil in a period too short for one.
type Held struct {
	Lock  Lock
	Since time.Time // when it was asked for: it lives for LockExpiry from then on, or longer
}

// A releaser can be given back before it expires.
type releaser interface {
	Release(ctx context.Context, patience time.Duration)
}

// A flight is what one caller of this process does for all that want the same: it has a period opened, by itself or by
// another process, or a block set aside.
type flight struct {
	key     flightKey
	done    chan struct{}
	ended   Outcome      // for all who wait; written before done is closed
	others  atomic.Int64 // replies of servers that other processes are at work
	outside atomic.Bool  // a floor or a ledger is being asked, and no server
}

// A flightKey is what callers who want the same have in common.
type flightKey struct {
	typ   string
	start int64 // of the period, Unix seconds
}
