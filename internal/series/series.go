// Package series is what a series says: the four steps of the published sequence, blocks of a ledger, and an operator's
// requests. It alone knows keys, fields of the record and arguments of the scripts in lua. It knows neither how a number
// is printed nor what the lock is made of: spans of time, labels and sequences go in and out, and a refusal is data.
package series

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial/internal/calendar"
	"github.com/dailyserial/serial/internal/wire"
)

const (
	// MaxSeq is the largest possible sequence. A number in Lua is a double: from 16 digits on, replies would repeat.
	MaxSeq = 1e15 - 1

	// LockExpiry is how long a crashed holder of the lock delays the others.
	LockExpiry = 8 * time.Second

	longest    = 30 * time.Second // a call's time in all, if its context has no deadline
	margin     = time.Second      // part of the lock's time that remains when an opening ends
	clockTries = 10               // consecutive replies from outside the span after which a call gives up
)

// A Config configures a [Series]. Its functions are called from any number of goroutines.
type Config struct {
	Client    redis.UniversalClient
	Replicas  wire.Replicas
	Prefix    string // of keys
	Shared    bool   // all types have one series
	Calendar  calendar.Calendar
	Counts    string // name of the calendar by which a series counts
	PrintMark string // print mark of every period, hexadecimal digits
	Base      int64  // sequence just before a period's first
	Limit     int64  // largest sequence
	Largest   int64  // largest sequence that a floor may return, if that is more than Limit
	Until     int64  // first instant at which no number is issued any more, Unix seconds; 0 for none
	Seconds   bool   // a period or a span lasts one second
	MaxSkew   time.Duration
	Retention int           // periods for which a counter is kept after its own
	Template  string        // stored with the answer to a request
	Key       string        // fingerprint of the key that hides sequences, or "plain"; likewise
	OnceFor   time.Duration // duration for which the answer to a request is stored

	// SpanAt returns the span of an instant, and an error if its numbers cannot be printed.
	SpanAt func(time.Time) (calendar.Span, error)
	// Floor returns the highest sequence that may have been used; nil for none.
	Floor func(ctx context.Context, typ string, start time.Time) (int64, error)
	// Reserve reserves n sequences above a given one in a ledger, and returns the one before the first; nil for none.
	Reserve func(ctx context.Context, typ, label string, above, n int64) (after int64, err error)
	Block   int64 // sequences that are reserved at once

	// Explain receives every gap, and Pending each change in the number of gaps that may still be reported. Both may be
	// nil.
	Explain func(Gap)
	Pending func(int)
}

// A Series issues the sequences of all types of one key prefix. It is safe for concurrent use.
type Series struct {
	*Config
	keys
	spans   *spans
	memory  memory
	gaps    gaps
	limit   any   // Limit as an argument
	skew    int64 // MaxSkew in microseconds
	wire    *wire.Client
	flights sync.Map // openings under way in this process, *flight by flightKey
}

// A server is this process's state of one server that has keys.
type server struct {
	*Series
	clock clock
}

// New returns a Series.
func New(c Config) *Series {
	k := keys{c.Prefix, c.Shared}
	s := &Series{Config: &c, keys: k, spans: newSpans(&c), limit: c.Limit, skew: c.MaxSkew.Microseconds()}
	s.memory = memory{keys: k, endless: c.Calendar.Unit == calendar.Never, made: time.Now(), types: map[string]*entry{}}
	s.gaps = gaps{c.Explain, c.Pending, c.Limit, s.spans.probe}
	s.wire = wire.New(c.Client, c.Replicas, func() any { return &server{Series: s} })
	return s
}

// Wire returns the client by which the counters' commands travel.
func (s *Series) Wire() *wire.Client { return s.wire }

// Key returns the key of a type's counter in the period with that label.
func (s *Series) Key(typ, label string) string { return s.counter(typ, label) }

// NoteUsed notes how many sequences of a type's period are used, and returns the largest count noted before, 0 if there
// was none. It returns used if the type is not remembered in the period.
func (s *Series) NoteUsed(typ string, start, used int64) int64 {
	return s.memory.noteUsed(s.countedAs(typ), start, used)
}

// subject names what a type counts, for messages: the type, or the series of a template without one.
func (s *Series) subject(typ string) string { return cmp.Or(typ, s.Prefix+":*") }

// A Call is one call of a public method for one type: the steps of the sequence. One goroutine uses it at a time.
type Call struct {
	asker
	began   time.Time
	endless bool    // only its context ends a wait for other callers
	waits   int     // count of waits for other callers, up to 10
	flight  *flight // flight that other callers of this process wait for, nil for none
	refused error   // last refusal of the lock, or last failure of a lock server
}

// An asker sends a call's requests, and says what their replies mean.
type asker struct {
	Events Events

	series   *Series
	server   *server
	node     *wire.Node
	typ      string
	counts   string        // type that it counts as
	once     string        // ID of a repeatable request, "" for none
	n        int           // numbers to issue
	deadline time.Time     // nothing is sent after it, apart from what was begun under a lock
	reads    bool          // the call only reads
	slept    time.Duration // time spent waiting for a server's clock
	note     *wire.Note    // gets the failures of what other callers wait for, too; nil before that
}

// Events are the events of a call that hooks report. A nil Span means none.
type Events struct {
	Opened         *Target       // span that the call opened
	Wait           time.Duration // time from the beginning of the call until Opened was open
	Lost           *Target       // span whose counter is gone or went back
	Held           string        // content of the lost counter
	Offset, Before time.Duration // new and previous offset of the server's clock
}

// NewCall begins a call of a type, for n numbers. A request with an ID may be repeated.
func (s *Series) NewCall(ctx context.Context, typ, requestID string, n int) (*Call, error) {
	if ctx.Done() != nil {
		if err := wire.EndOf(ctx); err != nil {
			return nil, fmt.Errorf("serial: nothing was sent: %w", err)
		}
	}
	c := calls.Get().(*Call)
	now := s.memory.made.Add(time.Since(s.memory.made)) // this reads one clock, and time.Now two
	*c = Call{asker: asker{series: s, typ: typ, counts: typ, once: requestID, n: n}, began: now}
	if s.Shared {
		c.counts = SharedType
	}
	c.deadline = c.began.Add(AnswerTime)
	c.node = s.wire.Node(ctx, c.counts)
	c.server = c.node.Local.(*server)
	_, c.endless = ctx.Deadline()
	return c, nil
}

// calls has Calls to use again: with many callers, a new one each time costs a tenth of the throughput.
var calls = sync.Pool{New: func() any { return new(Call) }}

// Free lets another call use the memory of c, which has ended without an error. The caller must not use it any more. What
// continues after its caller has left has a copy.
func (c *Call) Free() { calls.Put(c) }

// Restart gives the call the time of a new one.
func (c *Call) Restart() {
	c.began = time.Now()
	c.deadline, c.waits, c.slept = c.began.Add(AnswerTime), 0, 0
}

// extend adds the time for which the call has waited for other callers.
func (c *Call) extend(waited time.Duration) {
	c.deadline = c.deadline.Add(waited)
	if last := c.began.Add(longest); !c.endless && c.deadline.After(last) {
		c.deadline = last
	}
}

// Reads reports whether the call only reads, and so repairs nothing.
func (c *asker) Reads() bool { return c.reads }

// Now returns the time by the server's clock, as far as it is known.
func (c *asker) Now() time.Time { return c.server.clock.now() }

// Current returns the current span by the server's clock, as far as it is known: the span of now or, if spans last a
// second, of the instant when a request arrives. If the call gets no number in that span, this host's clock may be
// wrong, and a request must first ask the server for the time.
func (c *asker) Current() *Target {
	at := c.server.clock.now()
	if c.series.Seconds {
		at = c.server.clock.arrival()
	}
	if span := c.series.spans.at(at); span.Unprintable == nil && (!span.Over || c.reads) {
		return span
	}
	return c.series.spans.probe
}

// Locks grants a key's lock to one caller at a time, across all processes.
type Locks interface {
	// Try makes one attempt at the lock of a key with that hash tag, until deadline or until ctx ends. behind, unless
	// nil, leaves right behind the lock's command, if that goes to the counters' own server; sent reports whether it
	// did. note gets the failures of the attempt. The error is ErrTaken if another caller holds the lock.
	Try(ctx context.Context, deadline time.Time, tag, key string, behind *wire.Item, note *wire.Note) (
		l Lock, sent bool, err error)
}

// A Lock is held until it is released or, should that fail, until it expires.
type Lock interface {
	// Content returns the value of the lock's key on the counters' own server, "" if the lock is elsewhere.
	Content() string
	// Release releases the lock in the background.
	Release(ctx context.Context)
}

// A Step says what to do next.
type Step int

const (
	Done    Step = iota // nothing: there are numbers or an error
	Missing             // lock: a grant is needed
	Locked              // open: the caller has the lock
	Wait                // wait: other callers are at work, or the period must be checked again
	Again               // take again
)

// An Outcome is the result of a step, with the input of the next one.
type Outcome struct {
	Step    Step
	Numbers Numbers // numbers issued, if Step is Done and Err is nil
	Err     error

	found *request  // request whose reply says that a grant is needed
	look  bool      // found was sent with the lock, or after it
	lock  Lock      // lock that the caller holds
	since time.Time // time when the lock was requested; it lives for at least LockExpiry from then
}

// Numbers are issued sequences.
type Numbers struct {
	Span     *Target
	Last     int64   // last sequence
	Answer   *Answer // stored answer to the request, nil if there was none
	Repeated bool    // an earlier call got the answer
}

// ErrTaken means that other callers hold the lock, or held it for as long as the call could wait.
var ErrTaken = errors.New("others kept the lock")

// A flight is work that one caller of this process does for all callers that need it: it opens a period, waits until
// another process has opened it, or has a block reserved.
type flight struct {
	key   flightKey
	done  chan struct{}
	ended Outcome   // outcome for all who wait; written before done is closed
	note  wire.Note // last failure
}

// A flightKey identifies the flight that a caller may share.
type flightKey struct {
	typ   string
	start int64 // start of the period, Unix seconds
}

// startFlight starts the call's flight for the period of a span. If another caller's flight is under way, it returns
// that one instead.
func (c *Call) startFlight(span *Target) (others *flight) {
	if c.flight != nil {
		if c.flight.key.start == span.Start {
			return nil
		}
		c.endFlight(nil) // a flight for a period that is over
	}
	key := flightKey{strings.Clone(c.counts), span.Start}
	started := &flight{key: key, done: make(chan struct{}), ended: Outcome{Step: Again}}
	if others, found := c.series.flights.LoadOrStore(started.key, started); found {
		return others.(*flight)
	}
	c.flight, c.note = started, &started.note
	return nil
}

// endFlight ends the call's flight, if it has one. An outage ends those who wait, too, because each of them would meet
// it again.
func (c *Call) endFlight(err error) {
	f := c.flight
	if f == nil {
		return
	}
	c.flight = nil
	if err != nil && wire.IsOutage(err) {
		f.ended = Outcome{Err: err}
	}
	c.series.flights.Delete(f.key)
	close(f.done)
}

// End ends the call. Callers who wait for it continue, with *err if that is an outage.
func (c *Call) End(err *error) {
	if c.flight != nil {
		c.endFlight(*err)
	}
}
