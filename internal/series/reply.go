package series

import (
	"encoding/json"
	"fmt"
	"time"
)

// A Status is the kind of a reply. The heads of the scripts in lua describe the details of each.
type Status string

const (
	Issued     Status = "issued"    // Last, Count
	Repeated   Status = "once"      // Detail: the stored answer
	Lost       Status = "lost"      // Found, Detail: content of the counter, which only a floor or an operator can repair
	Exhausted  Status = "exhausted" // Detail: the last sequence used
	Future     Status = "future"    // Detail: that period begins after the server's time
	Conflict   Status = "conflict"  // Detail: the period belongs to another time zone or day start, or has a ledger
	Calendar   Status = "calendar"  // Detail: the series is counted by that period's calendar
	OtherPrint Status = "print"     // Detail: the print mark may change after the period with that label
	Unknown    Status = "unknown"   // Detail: what INFO says instead of a master's replication ID

	// No script replies with these.
	Skewed      Status = "skewed"      // the server's clock is too far from this host's
	Unsteady    Status = "unsteady"    // the server's clock does not stay in one period
	Unconfirmed Status = "unconfirmed" // replicas did not confirm the number
	Over        Status = "over"        // the last day on which numbers are issued has ended

	// No call ends with these.
	missing Status = "missing" // Found: a grant is needed
	stale   Status = "stale"   // Found.Mixed: the grant is not valid any more
	clocked Status = "clock"   // the server's clock is not in the span

)

// issues has the statuses that are read as [Issued].
var issues = map[Status]bool{"part": true, "raised": true, "there": true}

// A Reply is the reply to a request, as the heads of the scripts describe it.
type Reply struct {
	Status   Status    `json:"status"`
	Detail   string    `json:"text"`        // see Status
	Last     int64     `json:"last,string"` // last sequence issued, or the position of the counter
	Count    int       `json:"count"`       // count of sequences issued, fewer than requested if there are no more
	Found              // for missing and Lost
	Opened   bool      `json:"-"`           // a grant opened the period, or raised its counter
	From     int64     `json:"from,string"` // with Opened: the counter's position before, -1 if it was lost; or 0
	Upto     int64     `json:"upto,string"` // with From: the last sequence skipped
	Seconds  int64     `json:"seconds"`     // time by the server's clock
	Micros   int64     `json:"micros"`
	Now      time.Time `json:"-"` // the same; zero if the reply does not have it
	Counters []int64   `json:"-"` // for a reading: first and last sequence of each period, as read.lua describes them

	Sent, Received time.Time     `json:"-"` // times around the round trip, by this host's clock
	Earlier        error         `json:"-"` // failure of an earlier attempt, which may have run too
	Unconfirmed    error         `json:"-"` // why replicas did not confirm the numbers; nil if they did, or need not
	offset, before time.Duration // new and previous offset of the server's clock; 0 without its time
}

// Found is the state of a period for which a grant is needed. A grant with a block is valid only while it lasts.
type Found struct {
	Entered string `json:"entered"`        // period entered, "" if none
	ID      string `json:"id"`             // replication ID of the server
	Ceiling int64  `json:"ceiling,string"` // last sequence reserved for the period entered, -1 if none
	Above   int64  `json:"above,string"`   // sequence above which a block must lie
	Exists  bool   `json:"exists"`         // the counter exists
	Starts  bool   `json:"starts"`         // the period begins at the caller's start, unless numbers above that were used
	Lost    bool   `json:"lost"`           // the counter existed once
	Mixed   bool   `json:"mixed"`          // callers without a ledger may issue numbers in the period
	Intact  bool   `json:"intact"`         // the counter is as the last number with a ledger left it
	Closed  bool   `json:"closed"`         // the period must be opened, or entered
}

// digest makes a Reply of a script's reply to a request for n numbers.
func digest(value any, n int) (Reply, error) {
	switch v := value.(type) {
	case int64:
		return Reply{Status: Issued, Last: v, Count: n, Opened: true}, nil
	case string:
		if r := decode(v); r.Status != "" {
			return r, nil
		}
	case []any:
		counters, valid := make([]int64, len(v)), len(v) > 1
		for i := range v {
			var ok bool
			counters[i], ok = v[i].(int64)
			valid = valid && ok
		}
		if valid {
			return Reply{Status: Issued, Counters: counters}, nil
		}
	}
	return Reply{}, fmt.Errorf("serial: unexpected script reply %v (%T); is a proxy in the way?", value, value)
}

// decode makes a Reply of a JSON object. Its Status is "" if the text is not a reply. It is apart from digest because r
// is on the heap.
func decode(text string) (r Reply) {
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return Reply{}
	}
	r.Now = time.Unix(r.Seconds, r.Micros*1000)
	if issues[r.Status] {
		r.Opened, r.Status = r.Status == "raised", Issued
	}
	return r
}

// A Refusal says why no numbers were issued. It is data, which the API puts into words.
type Refusal struct {
	Reply     // its Status is the reason
	Type      string
	Span      *Target
	HighWater int64 // largest sequence that this process has returned in the period, 0 if none
}

func (r *Refusal) Error() string { return "serial: " + string(r.Status) }

// EnteredPeriod returns the period entered, which is zero if the record cannot be read.
func (r *Refusal) EnteredPeriod() Recorded { return parseAnswer(r.Detail).Period }
