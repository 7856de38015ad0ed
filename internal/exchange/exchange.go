// Package exchange talks to the servers. It keeps each server's clock, sends requests and reads replies, lets callers
// share a request, remembers the last number of each type, and reports numbers that nobody received. It does not know
// what a call is for.
package exchange

import (
	"cmp"
	"context"
	"math"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial/internal/budget"
	"github.com/dailyserial/serial/internal/calendar"
	"github.com/dailyserial/serial/internal/coalesce"
	"github.com/dailyserial/serial/internal/redisrun"
	"github.com/dailyserial/serial/internal/store"
)

// A Config configures an [Exchange]. Its functions are called from any number of goroutines.
type Config struct {
	Client    redis.UniversalClient
	Replicas  redisrun.Replicas
	Prefix    string // of keys
	Shared    bool   // all types have one series
	Calendar  calendar.Calendar
	Counts    string // calendar of a series, as in the record
	PrintMark string // print mark of every period, hexadecimal digits
	Limit     int64  // largest sequence
	Until     int64  // first instant at which no number is issued any more, Unix seconds; 0 for none
	Seconds   bool   // a period or a span lasts one second
	MaxSkew   time.Duration
	Retention int           // periods for which a counter is kept after its own
	Template  string        // stored with the answer to a request
	Key       string        // fingerprint of the key that hides sequences, or "plain"; likewise
	OnceFor   time.Duration // duration for which the answer to a request is stored
	Ledger    bool          // a ledger sets sequences aside before they are issued

	// SpanAt returns the span of an instant, and an error if its numbers cannot be printed.
	SpanAt func(time.Time) (calendar.Span, error)

	// Explain receives every gap, and Pending each change in the number of gaps that may still be reported. Both may be
	// nil.
	Explain func(Gap)
	Pending func(int)
}

// An Exchange holds this process's state of the servers of one client. It is safe for concurrent use.
type Exchange struct {
	common
	nodes *redisrun.Nodes[*server]
}

// New returns an Exchange.
func New(c *Config) *Exchange {
	x := &Exchange{common: common{
		runner:  redisrun.New(c.Client, c.Replicas),
		store:   store.New(c.Prefix, c.Limit, c.Counts, c.PrintMark, c.Ledger, c.Shared),
		maxSkew: c.MaxSkew, seconds: c.Seconds, key: c.Key, onceFor: c.OnceFor,
	}}
	clockProbe := &Span{Stored: x.store.NewPeriod("0", 0, 0, 0, 0, 0)}
	clockProbe.Label = "0"
	x.spans = spans{
		calendar: c.Calendar, retention: c.Retention, template: c.Template, find: c.SpanAt, store: x.store,
		clockProbe: clockProbe, until: cmp.Or(c.Until, math.MaxInt64),
	}
	x.gaps = gaps{c.Explain, c.Pending, c.Limit, clockProbe}
	x.memory = memory{
		types: map[string]*entry{}, store: x.store, made: time.Now(), endless: c.Calendar.Unit == calendar.Never,
	}
	x.nodes = redisrun.NewNodes(x.runner, x.newServer)
	return x
}

func (x *Exchange) newServer(n *redisrun.Node) *server {
	s := &server{common: &x.common, node: n}
	s.takes = coalesce.New(n.Together(), 1, n.InFlight(8), s.sendBatches, s.leftBehind)
	// An opening takes Redis longer than this process, so two are in flight.
	s.requests = coalesce.New(min(n.Together(), requestsTogether), 2, n.InFlight(pipelinesInFlight),
		s.sendPipeline, func(*pipelined, int) {}) // no caller leaves
	return s
}

// Begin makes s, which is zero, the Session of a call for a type. requestID is the ID of a repeatable request, "" for none.
func (x *Exchange) Begin(ctx context.Context, s *Session, typ, requestID string) {
	_, limited := ctx.Deadline()
	s.Type, s.Budget, s.request = typ, budget.New(limited), requestID
	s.server = x.nodes.Of(ctx, x.store.CountedAs(typ))
}

// SpanAt returns the span of an instant.
func (x *Exchange) SpanAt(t time.Time) *Span { return x.spans.make(t) }

// NoteUsed notes how many sequences of a type's period are used, and returns the greatest count noted before, 0 if
// there was none. It returns used if the type is not remembered in the period.
func (x *Exchange) NoteUsed(typ string, start, used int64) int64 {
	return x.memory.noteUsed(typ, start, used)
}

// CountedAs returns the type that a type counts as: itself, or * if all types have one series.
func (x *Exchange) CountedAs(typ string) string { return x.store.CountedAs(typ) }

// RecordKey returns the key of a type's record.
func (x *Exchange) RecordKey(typ string) string { return x.store.RecordKey(typ) }

// CounterKey returns the key of a type's counter in the period with that label.
func (x *Exchange) CounterKey(typ, label string) string { return x.store.CounterKey(typ, label) }

// LockKey returns the key of the lock for creating the counter of a type in a span.
func (x *Exchange) LockKey(typ string, span *Span) string { return x.store.LockKey(typ, span.Label) }

// RequestKey returns the key of the answer to a request.
func (x *Exchange) RequestKey(typ, id string) string { return x.store.RequestKey(typ, id) }

// AddPending adds n to the count of gaps that may still be reported.
func (x *Exchange) AddPending(n int) { x.gaps.addPending(n) }
