package store

import (
	"fmt"
	"slices"
	"time"

	"github.com/dailyserial/serial/internal/redisrun"
)

// The heads of the scripts in lua say what each argument and each element of a reply means; docs/design.md says which field is which.

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

	part   = "part"   // read as Issued: fewer numbers than asked for, the last of the period or of the block
	lifted = "lifted" // read as Issued: From, Upto
	there  = "there"  // read as Issued: of Open, which another caller's was before
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

	There bool // of Open: another caller had opened the period

	From int64 // of Open, if it skipped sequences: where the counter stood, -1 if it was lost
	Upto int64 // of Open, likewise: the last sequence that was used or skipped

	Asked
	Unanswered []Attempt // attempts that may have run, of which this is not the answer, in order; also with an error

	Now            time.Time // the server's clock; zero if all numbers were issued
	Sent, Received time.Time // around the round trip, by this host's clock
	Before         error     // failure of an earlier attempt, which may have run too; nil for none
	Unconfirmed    error     // why replicas do not confirm the numbers issued; nil if they do, or need not
}

// Asked is what a script was asked for.
type Asked struct {
	N         int   // numbers
	HighWater int64 // of the series, then
	Once      bool  // for a request that may come again
}

// An Attempt waits until the client is done with an attempt, and returns its late answer, or why there is none.
type Attempt func() (Reply, error)

// command makes a script's command for a series. keys are those behind counter and record, and more the arguments behind those of
// every script with rules. A request adds to both.
func (s *Store) command(
	script *redisrun.Script, series *Series, request Request, keys []any, more ...any,
) redisrun.Command {
	if request.ID != "" {
		keys, more = append(keys, s.RequestKey(series.Type, request.ID)), append(more, request.Printed, request.Key)
	}
	p := series.Period
	args := make([]any, 0, 5+len(keys)+5+len(more))
	args = append(args, nil, nil, 2+len(keys), series.Keys.counter, series.Keys.record) // behind the name and the digest
	args = append(args, keys...)
	args = append(args, p.text, p.from, p.to, s.limit, p.expires)
	writes := script != peekScript && script != historyScript
	return redisrun.Command{Script: script, Args: append(args, more...), Confirm: writes}
}

// read makes a Reply of what a script answered.
func read(in redisrun.Reply, err error, asked Asked) (Reply, error) {
	r := Reply{Sent: in.Sent, Received: in.Received, Before: in.Before, Asked: asked}
	for _, a := range in.Unanswered {
		r.Unanswered = append(r.Unanswered, func() (Reply, error) {
			late, err := a.Wait()
			return read(late, err, asked)
		})
	}
	last, issued := in.Value.(int64)
	switch {
	case err == redisrun.ErrUnanswered:
		r.Status = Late
	case err != nil:
		return r, err
	case issued:
		r.Status, r.Last, r.Count = Issued, last, asked.N
	case !r.readStatus(in.Value):
		err = fmt.Errorf("serial: unexpected script reply %v (%T); is a proxy in the way?", in.Value, in.Value)
		r.Unanswered = append(r.Unanswered, failed(err))
		return r, err
	}
	if r.Status == Issued || r.Status == Repeated { // otherwise nothing rests on what was written
		r.Unconfirmed = in.Unconfirmed
	}
	return r, nil
}

// failed is an attempt that failed with err.
func failed(err error) Attempt { return func() (Reply, error) { return Reply{}, err } }

// integers returns v as integers, nil if they are not.
func integers(v ...any) []int64 {
	each := make([]int64, len(v))
	for i := range v {
		var ok bool
		if each[i], ok = v[i].(int64); !ok {
			return nil
		}
	}
	return each
}

// readStatus reads {status, seconds, microseconds, text, integer, integer}, of which the last three may be missing, and reports false
// if it cannot.
func (r *Reply) readStatus(value any) bool {
	v, _ := value.([]any)
	none := []any{"", int64(0), int64(0)}
	if len(v) < 3 || len(v) > 6 {
		return false
	}
	v = slices.Concat(v, none[len(v)-3:])
	status, ok := v[0].(string)
	text, isText := v[3].(string)
	n := integers(v[1], v[2], v[4], v[5])
	if !ok || !isText || n == nil {
		return false
	}
	r.Status, r.Now = Status(status), time.Unix(n[0], n[1]*1000)
	switch r.Status {
	case part:
		r.Status, r.Rest, r.Count, r.Last = Issued, Status(text), int(n[2]), n[3]
	case there:
		r.Status, r.There, r.Count, r.Last = Issued, true, r.N, n[3]
	case lifted:
		r.Status, r.Count, r.From, r.Last, r.Upto = Issued, r.N, n[2], n[3], n[3]-int64(r.N)
	case Exhausted:
		r.Held, r.From, r.Upto = text, n[2], n[3]
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
