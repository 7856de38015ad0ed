//go:build unix

package faults

import (
	"cmp"
	"context"
	"errors"
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

// A journal has the calls of all workers, everything that may have cost numbers, and the workers' ledger, which outlives
// the servers.
type journal struct {
	scheme *serial.Scheme
	server *rpc.Server // of the exported methods
	ledger serialtest.Ledger

	mu          sync.Mutex // guards the fields below
	stopping    bool       // the workers must end
	ledgerDown  bool
	ledgerDelay time.Duration    // of replies
	calls       []Call           // by ID-1; those that have not ended have no end
	latest      map[string]int64 // start of the latest call that succeeded, by worker and type
	unheard     map[string]int64 // numbers that may be gaps, of which workers know nothing, by type
	losses      []loss
	explained   map[series][]serial.Explanation
	dead        map[int]bool // workers that were killed, and may not have reported everything
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

// A loss is a time in which each type may lose as many numbers.
type loss struct{ from, to, numbers int64 }

const unknown = "unknown" // failure of a call that has not ended, because its worker was killed

func newJournal(scheme *serial.Scheme) *journal {
	j := &journal{scheme: scheme, server: rpc.NewServer(),
		latest: map[string]int64{}, unheard: map[string]int64{}, explained: map[series][]serial.Explanation{},
		dead: map[int]bool{}}
	if err := j.server.RegisterName("Journal", j); err != nil {
		panic(err)
	}
	return j
}

// Begin notes a call that begins. The ID is 0 if the worker must end. A call is reported twice, so if its worker is
// killed, only the result is missing.
func (j *journal) Begin(c Call, id *int64) error {
	j.set(func() {
		if !j.stopping {
			j.calls = append(j.calls, c)
			*id = int64(len(j.calls))
		}
	})
	return nil
}

// End notes the result of a call.
func (j *journal) End(c Call, _ *int64) error {
	j.set(func() {
		j.calls[c.ID-1] = c
		if worker := fmt.Sprint(c.Worker, c.Type); c.Failure == "" {
			j.latest[worker] = max(j.latest[worker], c.Start)
		}
	})
	return nil
}

// Lost notes N numbers of a type that a command without a reply may have taken.
func (j *journal) Lost(c Call, _ *int64) error {
	j.set(func() { j.unheard[c.Type] += c.N })
	return nil
}

// Unused notes numbers that were reported to Hooks.Unused.
func (j *journal) Unused(e serial.Explanation, _ *int64) error {
	at := series{e.Type, periodOf(j.scheme, e.Start.UnixNano())}
	j.set(func() { j.explained[at] = append(j.explained[at], e) })
	return nil
}

// Reserve reserves a block in the workers' ledger.
func (j *journal) Reserve(r serial.Reservation, last *int64) (err error) {
	var delay time.Duration
	j.set(func() {
		if delay = j.ledgerDelay; j.ledgerDown {
			err = errors.New("the ledger is down")
		}
	})
	if err == nil {
		*last, err = j.ledger.Reserve(context.Background(), r)
		time.Sleep(delay)
	}
	return err
}

// set changes or reads the journal.
func (j *journal) set(change func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	change()
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

// check reads the whole journal when the workers have ended.
func (j *journal) check() *verdict {
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
			if c.Period < periodOf(j.scheme, c.Start) || c.Period > periodOf(j.scheme, c.End) {
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
		missing[at.typ] += v.account(calls, j.explained[at])
	}
	for typ, n := range missing {
		for _, l := range j.losses {
			if l.from <= to[typ] && l.to >= from[typ] {
				allowed[typ] += l.numbers
			}
		}
		if n > allowed[typ] {
			v.find(unexplained, "%s: %d, %d may be", typ, n, allowed[typ])
		}
	}
	return v
}

// account accounts for the numbers of one series up to the last one issued, and returns how many are unexplained.
func (v *verdict) account(calls []Call, explanations []serial.Explanation) (unexplained int64) {
	explained := map[int64]bool{}
	for _, e := range explanations {
		for seq := e.First; seq <= e.Last && !e.Possible; seq++ {
			explained[seq] = true
		}
	}
	var highest Call // so far
	for _, c := range sorted(calls, func(c Call) int64 { return c.First }) {
		if c.First <= highest.Last {
			v.find(duplicates, "%v and %v", highest, c)
		}
		for seq := highest.Last + 1; seq < c.First; seq++ {
			v.gaps++
			if explained[seq] {
				v.explained++
			} else {
				unexplained++
			}
		}
		for seq := c.First; seq <= c.Last; seq++ {
			if explained[seq] {
				v.find(contradicted, "%d of %v", seq, c)
			}
		}
		if c.Last > highest.Last {
			highest = c
		}
	}
	return unexplained
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
			j := newJournal(scheme)
			j.unheard[typ] = c.unheard
			for text := range strings.FieldsSeq(c.calls) {
				j.calls = append(j.calls, call(text))
			}
			if c.explained > 0 {
				j.explained[series{typ, "19700101"}] = []serial.Explanation{{Series: "serial:" + typ, Type: typ,
					Start: time.Unix(0, 0), First: 2, Last: c.explained, Reason: "test", At: time.Now(), Unused: true}}
			}
			v := j.check()
			delete(v.findings, "calls failed as "+unknown)
			require.Equal(t, c.want, strings.Join(slices.Sorted(maps.Keys(v.findings)), ", "))
			require.Equal(t, c.gaps, v.gaps)
		})
	}
}
