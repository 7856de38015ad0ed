// Package issue carries out calls: the steps of the published sequence (take, lock, open, wait), blocks of a ledger,
// and operators' requests. It knows neither how a number is printed nor who keeps the lock: spans of time, labels and
// sequences go in and out, and a refusal is data.
package issue

import (
	"cmp"
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

// An Answer is the stored answer to a repeatable request.
type Answer = store.Answer

// A Config configures an [Issuer]. Its functions are called from any number of goroutines.
type Config struct {
	exchange.Config
	Base        int64 // sequence just before a period's first
	Largest     int64 // largest sequence that a floor may answer, if that is more than Limit
	MeasureWait bool  // openings are timed for a hook

	// Floor returns the highest sequence that may have been used; nil for none.
	Floor func(ctx context.Context, typ string, start time.Time) (int64, error)
	// Reserve sets sequences aside in a ledger, Block at a time, and returns the sequence before the first; nil for
	// none.
	Reserve func(ctx context.Context, typ, label string, above, n int64) (after int64, err error)
	Block   int64
}

// An Issuer issues sequences. It is safe for concurrent use.
type Issuer struct {
	Config
	*exchange.Exchange
	flights sync.Map // flights under way, *flight by flightKey
}

// New returns an Issuer.
func New(c Config) *Issuer {
	c.Ledger = c.Reserve != nil
	return &Issuer{Config: c, Exchange: exchange.New(&c.Config)}
}

// A Call is one call of a public method for one type. One goroutine uses it at a time. A caller that leaves a step that
// continues without it, such as an opening, may still call only End and Events.
type Call struct {
	issuer    *Issuer
	flight    *flight // flight that other callers of this process wait for, nil for none
	abandoned bool    // the caller has left a step that continues
	waits     int     // count of waits for others, up to 10
	lockErr   error   // error of the last attempt at the lock
	began     time.Time
	session   exchange.Session
}

// NewCall begins a call for a type. A request with an ID may be repeated.
func (i *Issuer) NewCall(ctx context.Context, typ, requestID string) (*Call, error) {
	if err := redisrun.EndOf(ctx); err != nil {
		return nil, fmt.Errorf("serial: nothing was sent: %w", err)
	}
	c := calls.Get().(*Call)
	c.issuer = i
	i.Begin(ctx, &c.session, typ, requestID)
	if i.MeasureWait {
		c.began = time.Now()
	}
	return c, nil
}

// calls has calls to use again: with many callers, a new one each time costs a tenth of the throughput or more.
var calls = sync.Pool{New: func() any { return new(Call) }}

// Free lets another call use the memory of c, which has ended without an error. The caller must not use it any more. A
// call that sent something itself is not used again: an opening may still be at work.
func (i *Issuer) Free(c *Call) {
	if !c.session.SentOwn {
		*c = Call{}
		calls.Put(c)
	}
}

// Events returns the call's events so far.
func (c *Call) Events() exchange.Events { return c.session.Events() }

// subject names what a type counts, for messages: the type, or the series of a template without one.
func (i *Issuer) subject(typ string) string { return cmp.Or(typ, i.Prefix+":*") }

// Current returns the current span by the server's clock, as far as it is known.
func (c *Call) Current() *exchange.Span { return c.session.Current() }

// ErrTaken means that others hold the lock, or held it for as long as the call could wait.
var ErrTaken = errors.New("others kept the lock")

// A Step says what to do next.
type Step int

const (
	Done    Step = iota // nothing: there are numbers or an error
	Missing             // lock: the counter is missing, or lost and a floor can replace it
	Locked              // open: the caller has the lock
	Wait                // wait: others are at work, or the period must be checked again
	Again               // repeat the step
	Enter               // for Prepare: enter the current period, which must not be full
)

// An Outcome is the result of a step, with the input of the next one.
type Outcome struct {
	Step    Step
	Numbers Numbers         // numbers issued, if Step is Done and Err is nil
	Reply   *exchange.Reply // reply that the counter is missing, for Missing and Locked
	Held    Held            // lock that the caller holds, for Locked
	Err     error
}

// Numbers are issued sequences.
type Numbers struct {
	Span     *exchange.Span
	Last     int64         // last sequence
	Answer   *store.Answer // stored answer to the request, nil if there was none
	Repeated bool          // an earlier call got the answer
}

// A Lock is held until it is released or, should that fail, until it expires.
type Lock interface {
	// Content returns the value of the lock's key on the counters' own server, "" if the lock is elsewhere.
	Content() string
	releaser
}

// Held is a lock that the caller holds. The Lock is nil in a period too short for one.
type Held struct {
	Lock  Lock
	Since time.Time // time of the request; the lock lives for at least LockExpiry from then
}

// A releaser is a lock or a claim, which can be given back before it expires.
type releaser interface {
	Release(ctx context.Context, patience time.Duration)
}

// A flight is work that one caller of this process does for all callers that need it: it opens a period, waits until
// another process has opened it, or sets a block aside.
type flight struct {
	key     flightKey
	done    chan struct{}
	ended   Outcome       // outcome for all waiters; written before done is closed
	others  atomic.Int64  // count of replies that other processes are at work
	outside atomic.Bool   // the flight is waiting for a floor or a ledger, not for a server
	last    redisrun.Note // the last failure
}

// A flightKey identifies the flight that a caller may share.
type flightKey struct {
	typ   string
	start int64 // start of the period, Unix seconds
}
