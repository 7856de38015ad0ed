package store

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial/internal/budget"
	"github.com/dailyserial/serial/internal/redisrun"
)

// A Purpose is what a Take is for.
type Purpose string

const (
	Issue Purpose = "issue" // numbers, fewer than asked for if no more are left: callers share them
	All   Purpose = "all"   // all the numbers or none; with none asked for, how the period stands

	// The others take all or none too, and want to have a block set aside where that is needed, with a [Claim]:
	ForCeiling  Purpose = "ceiling"  // for a counter that is there
	ForOpening  Purpose = "open"     // also for one that is missing: the caller has the lock
	ForFloor    Purpose = "floor"    // the same with a floor to ask: also for one that is lost and that no ledger knows
	ForRaise    Purpose = "raise"    // an operator's Raise: whatever the state
	ForTakeover Purpose = "takeover" // an operator's Takeover: whoever owns the period
)

// A Take asks for the numbers that follow the counter.
type Take struct {
	Series
	N              int
	Purpose        Purpose
	ClockUntrusted bool           // the server's clock is far from this host's: nothing prepared may be entered
	Claim          Claim          // zero where no block is wanted
	Request        Request        // zero where none is to be remembered
	Note           *redisrun.Note // nil where nobody leaves before the outcome
}

// A Claim is the right to install one block of a ledger. The server gives it to one caller at a time.
type Claim struct {
	Token string        // unique
	Lease time.Duration // for which it lasts
	Until time.Time     // its end at the latest, by the server's clock; zero where there is no lock that it ends with
}

// A Request is one that may come again. It gets the answer that it got before.
type Request struct {
	ID      string
	Printed string // how its number is printed, kept with the answer
	Key     string // fingerprint of the key that hides the sequence, or "plain"
}

// An Answer is what a request was answered. Where the text cannot be read, the rest is zero.
type Answer struct {
	Text    string
	Period  Period
	Printed string // as in the Request
	Key     string // as in the Request
	Seq     int64
}

// Take issues numbers, or says why it does not.
func (s *Store) Take(ctx context.Context, b *budget.Budget, node *Node, t *Take) (Reply, error) {
	r, err := s.runner.Run(ctx, b, node, s.take(t), t.Note)
	return read(r, err, t.Asked())
}

// TakeAll is Take for several types of one period at once, with the purpose [Issue] and no claims and requests. It hands over
// each reply as it comes, from several goroutines.
//
// It is one script call, and one pipeline where a script may touch one slot only. If the server refuses the call as a whole, what
// is wrong may be one type's keys: then it is a pipeline too, as it is for those whose own commands fail.
func (s *Store) TakeAll(
	ctx context.Context, b *budget.Budget, node *Node, takes []Take, reply func(i int, r Reply, err error),
) {
	var all redisrun.Reply
	var err error
	each := make([]any, len(takes)) // nil or an error for a take that has to be sent alone
	if !node.OneSlot.Load() {
		all, err = s.runner.Run(ctx, b, node, s.take(&takes[0], takes[1:]...), new(redisrun.Note))
		values, _ := all.Value.([]any)
		copy(each, values)
		slots := redis.HasErrorPrefix(err, "CROSSSLOT") // a Cluster's server, though the client is a single one's
		node.OneSlot.Store(slots)
		if slots || redis.HasErrorPrefix(err, "NOPERM") {
			err = nil
		}
	}
	var alone []int // takes that are sent in a pipeline
	var commands []redisrun.Command
	var notes []*redisrun.Note
	for i := range takes {
		failure, failed := each[i].(error)
		switch {
		case err != nil || each[i] != nil && !failed:
			own := all
			own.Value, own.Unanswered = each[i], nil
			r, err := read(own, err, takes[i].Asked())
			r.Unanswered = append(takes[i].parts(i, all.Unanswered), r.Unanswered...)
			reply(i, r, err)
			continue
		case failed:
			takes[i].Note.Store(&failure)
		}
		alone, commands, notes = append(alone, i), append(commands, s.take(&takes[i])), append(notes, takes[i].Note)
	}
	if len(alone) > 0 {
		s.runner.RunAll(ctx, b, node, commands, notes, func(k int, in redisrun.Reply, err error) {
			i := alone[k]
			r, err := read(in, err, takes[i].Asked())
			before := takes[i].parts(i, all.Unanswered)
			if failure, ok := each[i].(error); ok {
				before = append(before, failed(failure))
			}
			r.Unanswered = append(before, r.Unanswered...)
			reply(i, r, err)
		})
	}
}

// Asked is what the take asks for.
func (t *Take) Asked() Asked { return Asked{t.N, t.HighWater, t.Request.ID != ""} }

// parts returns, of attempts at one script for several types, what was answered to this take, the i-th.
func (t *Take) parts(i int, attempts []redisrun.Attempt) (each []Attempt) {
	asked := t.Asked()
	for _, a := range attempts {
		each = append(each, func() (Reply, error) {
			in, err := a.Wait()
			if values, _ := in.Value.([]any); i < len(values) {
				in.Value = values[i]
			}
			return read(in, err, asked)
		})
	}
	return each
}

// take is for one type, or for more of the same period.
func (s *Store) take(t *Take, others ...Take) redisrun.Command {
	var keys []any
	more := append(make([]any, 0, 8), t.N, t.HighWater) // enough for one type, on the stack
	for i := range others {
		o := &others[i]
		keys, more = append(keys, o.Keys.counter, o.Keys.record), append(more, o.N, o.HighWater)
	}
	if s.ledger || t.Purpose != Issue || t.ClockUntrusted || t.Request.ID != "" {
		more = append(more, string(t.Purpose), t.ClockUntrusted)
	}
	if t.Claim.Token != "" {
		more = append(more, t.Claim.Token, t.Claim.Lease.Milliseconds(), max(0, t.Claim.Until.UnixMilli())) // 0 for none
	}
	return s.command(TakeScript, &t.Series, t.Request, keys, more...)
}

// A Floor is the highest sequence that may have been used in a period. The zero Floor is none.
type Floor struct{ arg any } // go-redis sends nil as an empty argument

// FloorAt is a floor that has answered.
func FloorAt(seq int64) Floor { return Floor{seq} }

// FloorToAsk is a floor that is asked if [Prepare] is answered [NeedsFloor].
func FloorToAsk() Floor { return Floor{"?"} }

// An Open creates a period's counter, or lifts it, and takes numbers from it. It is sent at most once, since a second
// one would issue again.
type Open struct {
	Series
	N       int
	Base    int64 // the sequence before the first that a period has
	Floor   Floor
	Purpose Purpose       // of an operator, ForRaise or ForTakeover, who needs no lock; else empty
	Checked time.Time     // when the counter was seen to be missing, by the server's clock; the server looks again
	Lease   time.Duration // since then, after which the server refuses to open
	Lock    string        // what the caller's lock holds, which is given back; "" for none, or one on another server
	Block   *Block        // nil without a ledger
	Request Request       // zero where none is to be remembered
}

// A Block is what a ledger has set aside: the sequences after After, up to Upto.
type Block struct {
	Token         string // of the claim
	ReplicationID string // of the server that gave the claim
	After, Upto   int64
}

// Before is the last sequence before the block, 0 if there is none.
func (b *Block) Before() int64 {
	if b == nil {
		return 0
	}
	return b.After
}

// Open opens a period. [Late] may also mean that no answer came in time.
func (s *Store) Open(ctx context.Context, b *budget.Budget, node *Node, o *Open) (Reply, error) {
	r, err := s.runner.Run(ctx, b, node, s.open(o), nil)
	return read(r, err, o.Asked())
}

// OpenAll is Open for several types at once, in a pipeline. It hands over each reply as it comes, from several goroutines.
func (s *Store) OpenAll(
	ctx context.Context, b *budget.Budget, node *Node, opens []*Open, reply func(i int, r Reply, err error),
) {
	commands, notes := make([]redisrun.Command, len(opens)), make([]*redisrun.Note, len(opens))
	for i, o := range opens {
		commands[i], notes[i] = s.open(o), new(redisrun.Note)
	}
	s.runner.RunAll(ctx, b, node, commands, notes, func(i int, in redisrun.Reply, err error) {
		r, err := read(in, err, opens[i].Asked())
		reply(i, r, err)
	})
}

// Asked is what the open asks for.
func (o *Open) Asked() Asked { return Asked{o.N, o.HighWater, o.Request.ID != ""} }

func (s *Store) open(o *Open) redisrun.Command {
	var checked any = string(o.Purpose)
	if o.Purpose == "" {
		checked = o.Checked.UnixMilli()
	}
	more := []any{o.N, o.HighWater, o.Base, o.Floor.arg, checked, o.Lease.Milliseconds(), o.Lock}
	var keys []any
	if o.Lock != "" {
		keys = append(keys, s.LockKey(o.Type, o.Period.Label))
	}
	if o.Block != nil {
		more = append(more, o.Block.Token, o.Block.ReplicationID, o.Block.After, o.Block.Upto)
	}
	c := s.command(OpenScript, &o.Series, o.Request, keys, more...)
	c.Once = o.Purpose == "" // an operator's may be repeated
	return c
}

// Peek reads the counter and writes nothing.
func (s *Store) Peek(ctx context.Context, b *budget.Budget, node *Node, series *Series) (Reply, error) {
	r, err := s.runner.Run(ctx, b, node, s.command(peekScript, series, Request{}, nil, series.HighWater), nil)
	return read(r, err, Asked{})
}

// A Prepare opens the period Next of a type ahead of time.
type Prepare struct {
	Series  // of the period that it is now
	Next    *Period
	Base    int64 // the sequence before the first that a period has
	Floor   Floor
	Checked bool // the server's clock has been compared with this host's
}

// Prepare opens a period that has not begun.
func (s *Store) Prepare(ctx context.Context, b *budget.Budget, node *Node, p *Prepare) (Reply, error) {
	c := s.command(prepareScript, &p.Series, Request{}, []any{s.CounterKey(p.Type, p.Next.Label)},
		p.HighWater, p.Next.bounds, p.Next.Start, p.Next.expires, p.Base, p.Floor.arg, p.Checked)
	r, err := s.runner.Run(ctx, b, node, c, nil)
	return read(r, err, Asked{})
}

// History reads the counter of the series and those of the periods with these labels, into [Reply.Each].
func (s *Store) History(
	ctx context.Context, b *budget.Budget, node *Node, series *Series, labels []string,
) (Reply, error) {
	keys := make([]any, len(labels))
	for i, label := range labels {
		keys[i] = s.CounterKey(series.Type, label)
	}
	in, err := s.runner.Run(ctx, b, node, s.command(historyScript, series, Request{}, keys, series.HighWater), nil)
	values, _ := in.Value.([]any)
	if each := integers(values...); err == nil && len(each) == 1+len(labels) {
		return Reply{Status: Issued, Each: each, Sent: in.Sent, Received: in.Received}, nil
	}
	return read(in, err, Asked{})
}

// Release gives a claim back, so that nobody waits until it expires.
func (s *Store) Release(ctx context.Context, b *budget.Budget, node *Node, typ, token string) error {
	command := redisrun.Command{Script: releaseScript, Args: []any{nil, nil, 1, s.RecordKey(typ), token}}
	_, err := s.runner.Run(ctx, b, node, command, nil)
	return err
}
