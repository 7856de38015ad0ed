//go:build unix

package faults

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/rpc"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/serialtest"
)

// A journal has the calls of all workers, everything that may have cost numbers, and the workers' ledger and floor, which
// outlive the servers.
type journal struct {
	setting setting
	server  *rpc.Server // of Tell

	mu          sync.Mutex // guards the fields below
	stopping    bool       // the workers must end
	disturbance string     // duration of a reservation, which a negative one follows; it fails if this is no duration
	ledger      serialtest.Ledger
	queries     map[string]int64 // to the floor, by type
	calls       []Call           // by ID-1; those that have not ended have no end
	latest      map[string]int64 // start of the latest call that succeeded, by worker and type
	highest     map[series]int64
	unheard     map[string]int64 // numbers that may be gaps, of which workers know nothing, by type
	losses      []loss
	explained   map[series][]serial.Explanation
	dead        map[int]bool // workers that were killed, and may not have reported everything
}

// A Message reports a call when it begins and when it ends, so even if the worker is killed, only unknown results are
// missing. The others report a gap, or are for the ledger and the floor. One field is set.
type Message struct {
	Begin, End, Lost  *Call // lost are the numbers that a command without a reply may have taken
	Unused            *serial.Explanation
	Reserve           *serial.Reservation
	Delay             bool   // of a reservation
	FloorOf, InPeriod string // type and period
}

// A Call requests N numbers. Times are nanoseconds since 1970, comparable across the processes of one host.
type Call struct {
	ID, N, Start, End int64
	Worker            int
	Type, Period      string
	Once              bool   // a number that was not returned is kept for the request
	First, Last       int64  // the numbers issued
	Failure, Text     string // class of the error, "" if numbers were issued; and the error
}

type series struct{ typ, period string }

// A loss is a time in which each type may lose as many blocks.
type loss struct{ from, to, blocks int64 }

const (
	unknown = "unknown" // failure of a call that has not ended, because its worker was killed
	margin  = 5000      // what a floor adds to the numbers that were reported: more than can be on their way
)

func newJournal(s setting) *journal {
	j := &journal{setting: s, server: rpc.NewServer(), queries: map[string]int64{},
		latest: map[string]int64{}, highest: map[series]int64{}, unheard: map[string]int64{},
		explained: map[series][]serial.Explanation{}, dead: map[int]bool{}}
	if err := j.server.RegisterName("Journal", j); err != nil {
		panic(err)
	}
	return j
}

// Tell notes a message. The reply is the ID of a call that begins, or 0 if the worker must end; a duration; or the last
// number reserved or reported.
func (j *journal) Tell(m Message, reply *int64) (err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case m.Begin != nil && !j.stopping:
		*reply = int64(len(j.calls) + 1)
		j.calls = append(j.calls, *m.Begin)
	case m.End != nil:
		c := *m.End
		j.calls[c.ID-1] = c
		if c.Failure == "" {
			worker, at := fmt.Sprint(c.Worker, c.Type), series{c.Type, c.Period}
			j.latest[worker] = max(j.latest[worker], c.Start)
			j.highest[at] = max(j.highest[at], c.Last)
		}
	case m.Lost != nil:
		j.unheard[m.Lost.Type] += m.Lost.N
	case m.Unused != nil:
		at := series{m.Unused.Type, j.setting.period(m.Unused.Start)}
		j.explained[at] = append(j.explained[at], *m.Unused)
	case m.Delay:
		var d time.Duration
		d, err = time.ParseDuration(cmp.Or(j.disturbance, "0s"))
		*reply = int64(d)
	case m.Reserve != nil:
		*reply, err = j.ledger.Reserve(context.Background(), *m.Reserve)
	case m.FloorOf != "":
		j.queries[m.FloorOf]++
		*reply = j.highest[series{m.FloorOf, m.InPeriod}] + margin
	}
	return err
}

// set changes the journal.
func (j *journal) set(change func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	change()
}

// mayLoseBlocks notes a loss of all types.
func (j *journal) mayLoseBlocks(from, to, blocks int64) {
	j.set(func() { j.losses = append(j.losses, loss{from, to, blocks}) })
}

// A verdict is what the checker found.
type verdict struct {
	numbers, failed int64
	gaps, explained int64 // numbers below the last issued that were not returned; how many of them are explained
	findings        map[string][]string
}

// Findings, besides "calls failed as CLASS".
const (
	duplicates   = "duplicates"
	outOfOrder   = "numbers out of order"
	wrongPeriods = "numbers of another period than the call"
	unexplained  = "types with gaps that workers should have explained"
	contradicted = "numbers that were reported as unused, and issued"
)

func (v *verdict) find(what, format string, args ...any) {
	v.findings[what] = append(v.findings[what], fmt.Sprintf(format, args...))
}

// check reads the whole journal when the workers have ended. A loss costs a type a block. silent returns how many other
// numbers of a type the protection may leave unexplained; it is nil if all may be.
func (j *journal) check(block int64, silent func(typ string) int64) *verdict {
	v := &verdict{findings: map[string][]string{}}
	issued, missing, allowed := map[series][]Call{}, map[string]int64{}, maps.Clone(j.unheard)
	from, to := map[string]int64{}, map[string]int64{} // when each type was in use
	for _, c := range j.calls {
		if c.End == 0 {
			c.Failure = unknown
		}
		if c.Failure == "" {
			at := series{c.Type, c.Period}
			issued[at] = append(issued[at], c)
			from[c.Type], to[c.Type] = min(cmp.Or(from[c.Type], c.Start), c.Start), max(to[c.Type], c.End)
			v.numbers += c.Last - c.First + 1
			if c.Period < j.setting.periodOf(c.Start) || c.Period > j.setting.periodOf(c.End) {
				v.find(wrongPeriods, "%v", c)
			}
			continue
		}
		v.failed++
		v.find("calls failed as "+c.Failure, "%s", c.Text)
		if c.Failure == unknown || c.Once || j.dead[c.Worker] {
			allowed[c.Type] += c.N
		}
	}
	for at, calls := range issued {
		v.disorder(calls)
		for _, e := range j.explained[at] {
			if e.Possible && !strings.HasPrefix(e.Reason, serial.AnswerLost) { // a lost answer is in unheard
				allowed[at.typ] += e.Last - e.First + 1
			}
		}
		missing[at.typ] += j.audit(v, at, calls)
	}
	for typ, n := range missing {
		for _, l := range j.losses {
			if l.from <= to[typ] && l.to >= from[typ] {
				allowed[typ] += block * l.blocks
			}
		}
		if silent != nil && n > allowed[typ]+silent(typ) {
			v.find(unexplained, "%s: %d, %d may be", typ, n, allowed[typ]+silent(typ))
		}
	}
	return v
}

// audit accounts for the numbers of one series up to the last one issued, and returns how many are unexplained.
func (j *journal) audit(v *verdict, at series, calls []Call) (unexplained int64) {
	scheme, day := j.setting.scheme, serial.At(time.Unix(0, calls[0].Start))
	if j.setting.periodOf(calls[0].Start) != at.period {
		day = serial.At(time.Unix(0, calls[0].End))
	}
	last := sorted(calls, func(c Call) int64 { return -c.Last })[0].Last
	r, err := scheme.Audit(at.typ, day, last, func(yield func(string, error) bool) {
		for _, c := range calls {
			for seq := c.First; seq <= c.Last; seq++ {
				if n, err := scheme.Number(at.typ, day, seq); !yield(n.String(), err) || err != nil {
					return
				}
			}
		}
	}, serial.WithExplanations(func(yield func(serial.Explanation, error) bool) {
		for _, e := range j.explained[at] {
			e.Unused = !e.Possible // otherwise, a document that is deleted would seem to be explained
			if !yield(e, nil) {
				return
			}
		}
	}))
	if err != nil {
		v.find(wrongPeriods, "%v: %v", at, err)
	}
	for _, n := range r.Duplicates {
		twice := slices.DeleteFunc(slices.Clone(calls), func(c Call) bool { return n.Seq < c.First || n.Seq > c.Last })
		v.find(duplicates, "%v", twice)
	}
	for _, n := range r.Contradicted {
		v.find(contradicted, "%v", n)
	}
	v.gaps += r.MissingCount
	v.explained += r.ExplainedCount
	return r.UnexplainedCount
}

func sorted(calls []Call, by func(c Call) int64) []Call {
	return slices.SortedFunc(slices.Values(calls), func(a, b Call) int { return cmp.Compare(by(a), by(b)) })
}

// disorder finds the calls of one series that began after another had returned but got no greater number.
func (v *verdict) disorder(calls []Call) {
	ended := sorted(calls, func(c Call) int64 { return c.End })
	var latest Call // the returned call with the greatest number
	for _, c := range sorted(calls, func(c Call) int64 { return c.Start }) {
		for len(ended) > 0 && ended[0].End < c.Start {
			if ended[0].Last > latest.Last {
				latest = ended[0]
			}
			ended = ended[1:]
		}
		if c.First <= latest.Last {
			v.find(outOfOrder, "%v after %v", c, latest)
		}
	}
}

func (c Call) String() string {
	return fmt.Sprintf("%s %s %d-%d (worker %d, %s to %s)", c.Type, c.Period, c.First, c.Last, c.Worker, clock(c.Start),
		clock(c.End))
}

func clock(ns int64) string { return time.Unix(0, ns).UTC().Format("05.000000") }

// The checker finds each fault that it is made for, and nothing in a clean journal.
func TestChecker(t *testing.T) {
	const typ = "T-00000001"
	call := func(text string) (c Call) { // from and to, first and last number, and + for the next day
		_, err := fmt.Sscanf(text, "%d-%d:%d-%d", &c.Start, &c.End, &c.First, &c.Last)
		c.Type, c.N, c.Period = typ, c.Last-c.First+1, "19700101"
		if strings.HasSuffix(text, "+") {
			c.Period = "19700102"
		}
		if err != nil {
			c = Call{Type: typ, N: 3}
		}
		return c
	}
	scheme, err := serial.NewScheme(setting{}.options()...)
	require.NoError(t, err)
	for _, c := range []struct {
		name, calls     string
		unheard         int64 // numbers
		explained, gaps int64 // numbers up to explained; number of gaps
		want            string
	}{
		{"clean", "1-5:1-3 2-9:5-6 3-4:4-4 10-11:7-7", 0, 0, 0, ""},
		{"at once in any order", "1-3:2-2 3-4:1-1", 0, 0, 0, ""},
		{"the same number", "1-5:1-1 2-6:1-1", 0, 0, 0, duplicates},
		{"within a batch", "1-5:1-50 2-6:20-20 2-6:51-51", 0, 0, 0, duplicates},
		{"batches that overlap", "1-9:1-20 2-9:20-30 3-9:30-40", 0, 0, 0, duplicates + ", " + duplicates},
		{"out of order", "1-2:2-2 3-4:1-1", 0, 0, 0, outOfOrder},
		{"another day", "1-2:1-2 3-4:3-3+", 0, 0, 2, wrongPeriods + ", " + unexplained},
		{"a gap", "1-2:1-1 3-4:5-5", 0, 0, 3, unexplained},
		{"a gap of a killed worker", "1-2:1-1 3-4:5-5 killed", 0, 0, 3, ""},
		{"a gap of a command without a reply", "1-2:1-1 3-4:5-5", 3, 0, 3, ""},
		{"an explained gap", "1-2:1-1 3-4:5-5", 0, 4, 3, ""},
		{"a gap that is explained in part", "1-2:1-1 3-4:5-5", 0, 3, 3, unexplained},
		{"an issued number that was explained", "1-2:1-1 3-4:5-5", 0, 5, 3, contradicted},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := newJournal(setting{scheme: scheme})
			j.unheard[typ] = c.unheard
			for text := range strings.FieldsSeq(c.calls) {
				j.calls = append(j.calls, call(text))
			}
			if c.explained > 0 {
				j.explained[series{typ, "19700101"}] = []serial.Explanation{{Series: "serial:" + typ, Type: typ,
					Start: time.Unix(0, 0), First: 2, Last: c.explained, Reason: "test", At: time.Now(), Unused: true}}
			}
			v := j.check(0, func(string) int64 { return 0 })
			delete(v.findings, "calls failed as "+unknown)
			var found []string
			for what, all := range v.findings {
				found = append(found, slices.Repeat([]string{what}, len(all))...)
			}
			slices.Sort(found)
			require.Equal(t, c.want, strings.Join(found, ", "))
			require.Equal(t, c.gaps, v.gaps)
		})
	}
}
