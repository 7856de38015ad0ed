package store

import (
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/dailyserial/serial/internal/redisrun"
)

// What crosses to Lua is built and read in this file. The heads of the scripts in lua say what each argument and each
// element of a reply means; docs/design.md says which field is which.

// A Status is how a script answered.
type Status string

const (
	Issued     Status = "issued"    // Last, and Count for a Take
	Clock      Status = "clock"     // the server's clock is not in the period
	Calendar   Status = "calendar"  // Entered: the series counts by its calendar, which is another
	Conflict   Status = "conflict"  // Entered: another time zone's or day start's, or one with a ledger
	OtherPrint Status = "print"     // Held: the print mark may change with a label greater than that
	Future     Status = "future"    // Entered: it begins after the server's now
	Lost       Status = "lost"      // Held: what the counter holds; it was there once
	Missing    Status = "missing"   // the period has to be opened
	Exhausted  Status = "exhausted" // Held: the last sequence issued
	Ceiling    Status = "ceiling"   // a block has to be set aside first
	Reserved   Status = "reserve"   // the caller has the claim: ReplicationID, Above
	Claimed    Status = "claimed"   // another has it
	Late       Status = "late"      // the lock, the claim or the caller's time has passed
	Unknown    Status = "unknown"   // Held: what INFO says instead of a master's replication ID
	Repeated   Status = "once"      // Answer: of a request that came before
	Unchecked  Status = "check"     // of Prepare: the clocks have to be compared first
	Gap        Status = "gap"       // of Prepare: the periods before have to be opened first
	NeedsFloor Status = "floor"     // of Prepare: the floor has to be asked

	part, block = "part", "block" // read as Issued: the last numbers of the period or of the block, fewer than asked for
)

// A Reply is what a script answered.
type Reply struct {
	Status Status

	Last          int64   // the last sequence issued, or where the counter stands
	Count         int     // numbers issued, all that were asked for unless Rest says why there are fewer
	Rest          Status  // Exhausted or Ceiling
	Each          []int64 // of History: the last sequence of each period, -1 where there is none
	Held          string  // as the Status says
	Entered       string  // the period entered, as the record has it
	WasThere      bool    // with Missing, Ceiling and NeedsFloor: the counter was there once
	ReplicationID string  // of the server that gave the claim
	Above         int64   // the block has to lie above that
	Answer        *Answer // of Repeated

	Now            time.Time // the server's clock; zero if numbers were issued
	Sent, Received time.Time // around the round trip, by this host's clock
	Before         error     // failure of an earlier attempt, which may have run as well; nil if the first one was answered
	Unconfirmed    error     // why replicas do not confirm the numbers issued; nil if they do, or need not
}

// command makes a script's command for a series. keys are those besides counter and record, and own the arguments besides those
// that all judged scripts have.
func (s *Store) command(script *redisrun.Script, series *Series, keys []any, own ...any) redisrun.Command {
	k, p := series.Keys, series.Period
	if k == (Keys{}) {
		k = s.KeysOf(series.Type, p)
	}
	args := make([]any, 0, 5+len(keys)+5+len(own))
	args = append(args, nil, nil, 2+len(keys), k.counter, k.record) // behind the name and the digest
	args = append(args, keys...)
	args = append(args, p.text, p.from, p.to, s.limit, p.expires)
	return redisrun.Command{Script: script, Args: append(args, own...)}
}

// take is for one type, or for more of the same period.
func (s *Store) take(t *Take, more ...Take) redisrun.Command {
	var keys []any
	own := append(make([]any, 0, 8), t.N, t.Mark) // enough for one type, on the stack
	for i := range more {
		k := more[i].Keys
		if k == (Keys{}) {
			k = s.KeysOf(more[i].Type, more[i].Period)
		}
		keys, own = append(keys, k.counter, k.record), append(own, more[i].N, more[i].Mark)
	}
	if s.ledger || t.Purpose != Issue || t.ClockUntrusted || t.Request.ID != "" {
		clock := ""
		if t.ClockUntrusted {
			clock = "untrusted"
		}
		own = append(own, string(t.Purpose), clock)
	}
	if t.Claim.Token != "" {
		var until any = ""
		if !t.Claim.Until.IsZero() {
			until = t.Claim.Until.UnixMilli()
		}
		own = append(own, t.Claim.Token, t.Claim.Lease.Milliseconds(), until)
	}
	if t.Request.ID != "" {
		keys, own = append(keys, s.RequestKey(t.Type, t.Request.ID)), append(own, t.Request.Printed, t.Request.Key)
	}
	c := s.command(takeScript, &t.Series, keys, own...)
	c.Confirm = true
	return c
}

func (s *Store) open(o *Open) redisrun.Command {
	var keys []any
	var checked any = string(o.Purpose)
	if o.Purpose == "" {
		checked = o.Checked.UnixMilli()
	}
	own := []any{o.N, o.Mark, o.Base, o.Floor.arg, checked, o.Lease.Milliseconds()}
	if o.Block != nil {
		own = append(own, o.Block.Token, o.Block.ReplicationID, o.Block.After, o.Block.Upto)
	}
	if o.Request.ID != "" {
		keys, own = append(keys, s.RequestKey(o.Type, o.Request.ID)), append(own, o.Request.Printed, o.Request.Key)
	}
	c := s.command(openScript, &o.Series, keys, own...)
	c.Confirm, c.Once = true, o.Purpose == "" // an operator's may be repeated
	return c
}

func (s *Store) prepare(p *Prepare) redisrun.Command {
	checked := ""
	if p.Checked {
		checked = "checked"
	}
	c := s.command(prepareScript, &p.Series, []any{s.CounterKey(p.Type, p.Next.Label)},
		p.Mark, p.Next.bounds(), p.Next.Start, p.Next.expires, p.Base, p.Floor.arg, checked)
	c.Confirm = true
	return c
}

// read makes a Reply of what a script answered that was asked for n numbers.
func read(in redisrun.Reply, err error, n int) (Reply, error) {
	r := Reply{Sent: in.Sent, Received: in.Received, Before: in.Before}
	if err != nil {
		return r, err
	}
	switch v := in.Value.(type) {
	case int64:
		r.Status, r.Last, r.Count = Issued, v, n
	case []any:
		if !r.status(v) {
			return r, unreadable(v)
		}
	default:
		return r, unreadable(v)
	}
	if r.Status == Issued || r.Status == Repeated { // otherwise nothing rests on what was written
		r.Unconfirmed = in.Unconfirmed
	}
	return r, nil
}

func unreadable(v any) error {
	return fmt.Errorf("serial: unexpected script reply %v (%T); is a proxy in the way?", v, v)
}

// integers returns v as integers, nil if they are not.
func integers(v []any) []int64 {
	each := make([]int64, len(v))
	for i := range v {
		var ok bool
		if each[i], ok = v[i].(int64); !ok {
			return nil
		}
	}
	return each
}

// status reads {status, seconds, microseconds, text, integer, integer}, and reports false if it cannot.
func (r *Reply) status(v []any) bool {
	if len(v) != 6 {
		return false
	}
	status, ok1 := v[0].(string)
	text, ok2 := v[3].(string)
	n := integers([]any{v[1], v[2], v[4], v[5]})
	if !ok1 || !ok2 || n == nil {
		return false
	}
	r.Status, r.Now = Status(status), time.Unix(n[0], n[1]*1000)
	switch r.Status {
	case part, block: // fewer were issued than asked for
		r.Status, r.Rest, r.Now = Issued, Exhausted, time.Time{}
		if status == block {
			r.Rest = Ceiling
		}
		r.Count, r.Last = int(n[2]), n[3]
	case Calendar, Conflict, Future:
		r.Entered = text
	case Missing, Ceiling, NeedsFloor:
		r.WasThere = text == "lost"
	case Reserved:
		r.ReplicationID, r.Above = text, n[2]
	case Repeated:
		r.Answer = parseAnswer(text)
	default:
		r.Held = text
	}
	return true
}

var answered = regexp.MustCompile(`(?s)^([^"]+) (".*") (\d+) ([0-9a-z]+)$`)

// parseAnswer reads 'PERIOD "DATE" "TEMPLATE" SEQUENCE KEY'.
func parseAnswer(text string) *Answer {
	unreadable := &Answer{Text: text}
	m := answered.FindStringSubmatch(text)
	if m == nil {
		return unreadable
	}
	p, ok := ParsePeriod(m[1])
	seq, err := strconv.ParseInt(m[3], 10, 64)
	if !ok || err != nil {
		return unreadable
	}
	return &Answer{text, p, m[2], m[4], seq}
}
