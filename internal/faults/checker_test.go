//go:build unix

package faults

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

// A journal collects the calls of all processes, and everything that may have cost numbers.
type journal struct {
	mu     sync.Mutex
	calls  []call
	open   map[callID]call
	latest map[callID]int64 // start of the latest call that succeeded, by worker and type
	high   map[series]int64
	lost   map[string]int64 // numbers of commands without an answer, by type
	losses []loss
	upset  int64 // when a worker was last killed or stopped, or when its pause ends

	explained map[series][]explanation
	untold    map[callID]int64 // numbers of commands without an answer, by worker and type
	dead      map[int]int64    // when workers were killed
}

// An explanation is a worker's report of numbers that nobody received.
type explanation struct {
	first, last            int64
	unused, possible, lost bool // lost: it concerns attempts without an answer, which the journal counts
	by                     string
}

// A call issues n numbers, or fails. Instants are nanoseconds since 1970, comparable across the processes of one host.
type call struct {
	worker      int
	typ         string
	n           int64
	start, end  int64
	day         string // of the numbers issued
	first, last int64
	failure     string // its class; "" if the numbers were issued, unknown if the process died
	text        string // of the error
}

type callID struct {
	worker int
	key    string // the call's own number, or a type
}

type series struct{ typ, day string }

// A loss is a period in which each type may have lost a number of blocks.
type loss struct{ from, to, blocks int64 }

const unknown = "unknown"

func newJournal() *journal {
	return &journal{open: map[callID]call{}, latest: map[callID]int64{}, high: map[series]int64{},
		lost: map[string]int64{}, explained: map[series][]explanation{}, untold: map[callID]int64{}, dead: map[int]int64{}}
}

func (j *journal) begin(id callID, c call) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.open[id] = c
}

// finish completes a call that began; set records the result.
func (j *journal) finish(id callID, set func(c *call)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	c := j.open[id]
	delete(j.open, id)
	set(&c)
	j.calls = append(j.calls, c)
	if c.failure == "" {
		at := callID{c.worker, c.typ}
		j.latest[at] = max(j.latest[at], c.start)
		j.high[series{c.typ, c.day}] = max(j.high[series{c.typ, c.day}], c.last)
	}
}

// died ends the calls of a dead worker.
func (j *journal) died(worker int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for id, c := range j.open {
		if id.worker == worker {
			c.failure = unknown
			j.calls = append(j.calls, c)
			delete(j.open, id)
		}
	}
}

// unanswered records a command that may have taken n numbers for nobody.
func (j *journal) unanswered(worker int, typ string, n int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lost[typ] += n
	j.untold[callID{worker, typ}] += n
}

// killed records that a worker may have died before reporting everything that it knew.
func (j *journal) killed(worker int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.dead[worker] = stamp()
}

func (j *journal) explain(typ, day string, e explanation) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.explained[series{typ, day}] = append(j.explained[series{typ, day}], e)
}

func (j *journal) mayLose(l loss) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.losses = append(j.losses, l)
}

// mishap records that a worker was just killed or stopped, with any reservation that it was making.
func (j *journal) mishap(pause time.Duration) {
	now := stamp()
	j.mayLose(loss{now - int64(time.Second), now + int64(pause+time.Second), 1})
	j.mu.Lock()
	defer j.mu.Unlock()
	j.upset = max(j.upset, now+int64(pause))
}

// calmSince reports whether no worker has been killed or stopped since t.
func (j *journal) calmSince(t int64) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.upset < t
}

func (j *journal) succeededSince(worker int, typ string, t int64) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.latest[callID{worker, typ}] >= t
}

func (j *journal) highest(typ, day string) int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.high[series{typ, day}]
}

// A verdict is the checker's result. Only entries in text are errors, except disorder where there may be two masters.
type verdict struct {
	calls, numbers, failed int64
	failures               map[string][]string // texts by class
	// Numbers below the last issued that nobody received; how many are allowed; how many are explained.
	gaps, allowed, told int64
	// The longest time in which nobody got a number of at least one type that is always in use.
	outage               time.Duration
	duplicates, disorder []string
	wrongDays, excess    []string
	// Numbers that nobody received and no worker explained, beyond those that killed workers may have lost; and numbers
	// that somebody received although a worker reported them unused.
	unexplained, contradicted []string
}

// An allowance is how many numbers may be missing for reasons other than failed calls and commands without an answer.
type allowance struct {
	block    int64                          // of a ledger, 0 without one: the cost of a loss
	reserved func(typ string) []reservation // by a ledger, nil without one
	other    func(typ string) int64         // skipped by a slow ledger or a floor
	silent   func(typ string) int64         // may stay unexplained; nil if nobody explains
}

// check reads the whole journal, once nothing is added to it any more. Its days are the setting's periods.
func (j *journal) check(s setting, a allowance) verdict {
	v := verdict{failures: map[string][]string{}, calls: int64(len(j.calls))}
	types := map[string][]call{}
	failed, failures := map[string]int64{}, map[string]int{}
	for _, c := range j.calls {
		if c.failure != "" {
			v.failed++
			v.failures[c.failure] = append(v.failures[c.failure], c.text)
			failed[c.typ] += c.n
			failures[c.typ]++
			continue
		}
		types[c.typ] = append(types[c.typ], c)
		v.numbers += c.last - c.first + 1
		if from, to := s.dayOf(c.start), s.dayOf(c.end); c.day < from || c.day > to {
			v.wrongDays = append(v.wrongDays, fmt.Sprintf("%v in a call of %s to %s", c, from, to))
		}
	}
	for _, typ := range slices.Sorted(maps.Keys(types)) {
		calls := types[typ]
		days := map[string][]call{}
		for _, c := range calls {
			days[c.day] = append(days[c.day], c)
		}
		var top, distinct, explained, unexplained int64
		for label, day := range days {
			r, err := s.audit(typ, label, day, j.explained[series{typ, label}])
			if err != nil {
				v.excess = append(v.excess, fmt.Sprintf("%s: %v", typ, err))
			}
			explained += r.ExplainedCount
			unexplained += r.UnexplainedCount
			for _, n := range r.Contradicted {
				v.contradicted = append(v.contradicted, n.String())
			}
			v.disorder = append(v.disorder, disorder(day)...)
			n, highest, duplicates := overlaps(day)
			v.duplicates = append(v.duplicates, duplicates...)
			distinct += n
			top += highest
		}
		v.gaps += top - distinct
		v.told += explained

		from, to := calls[0].start, int64(0)
		slices.SortFunc(calls, func(a, b call) int { return cmp.Compare(a.end, b.end) })
		for i, c := range calls {
			from, to = min(from, c.start), c.end
			if i > 0 && typ[0] == 'T' {
				v.outage = max(v.outage, time.Duration(c.end-calls[i-1].end))
			}
		}
		allowed := j.lost[typ] + failed[typ]
		if a.other != nil {
			allowed += a.other(typ)
		}
		for _, l := range j.losses {
			if l.from <= to && l.to >= from {
				allowed += a.block * l.blocks
			}
		}
		var reserved int64
		if a.reserved != nil {
			unused := failures[typ] // calls may have failed over a reservation
			for _, r := range a.reserved(typ) {
				n := r.last - r.first + 1
				reserved += n
				if unused > 0 && !slices.ContainsFunc(days[r.day], func(c call) bool {
					return c.last >= r.first && c.first <= r.last
				}) {
					unused--
					allowed += n
				}
			}
		}
		if a.silent != nil {
			silent := a.silent(typ) + j.lost[typ]
			for label := range days {
				for _, e := range j.explained[series{typ, label}] {
					if e.possible && !e.lost {
						silent += e.last - e.first + 1
					}
				}
			}
			for _, l := range j.losses { // the counter's last value is unknown
				if l.from <= to && l.to >= from {
					silent += a.block * l.blocks
				}
			}
			for _, c := range j.calls {
				// The worker may not have heard of callers who left shortly before it was killed.
				killed, dead := j.dead[c.worker]
				if c.typ == typ && (c.failure == unknown || dead && c.failure != "" && c.end > killed-int64(5*time.Second)) {
					silent += c.n
				}
			}
			for worker := range j.dead {
				silent += j.untold[callID{worker, typ}]
			}
			if unexplained > silent {
				v.unexplained = append(v.unexplained, fmt.Sprintf("%s: %d of %d, %d may be", typ, unexplained, top, silent))
			}
		}
		v.allowed += allowed
		if top-distinct > allowed {
			v.excess = append(v.excess, fmt.Sprintf("%s: %d of %d are missing, %d may be", typ, top-distinct, top, allowed))
		}
		allowed += a.block * int64(len(days)) // the unused part of a day's last block
		if reserved-distinct > allowed {
			v.excess = append(v.excess, fmt.Sprintf("%s: %d of %d reserved are missing, %d may be", typ, reserved-distinct,
				reserved, allowed))
		}
	}
	return v
}

// overlaps counts the distinct numbers of one series, and finds those that were issued twice.
func overlaps(calls []call) (distinct, highest int64, duplicates []string) {
	calls = slices.SortedFunc(slices.Values(calls), func(a, b call) int { return cmp.Compare(a.first, b.first) })
	var before call // the call so far that reaches farthest
	for _, c := range calls {
		if c.first <= highest {
			duplicates = append(duplicates, fmt.Sprintf("%v and %v", before, c))
		}
		if c.last > highest {
			distinct += c.last - max(c.first-1, highest)
			highest, before = c.last, c
		}
	}
	return distinct, highest, duplicates
}

// audit accounts for the numbers of one series, up to the greatest issued, with the workers' explanations.
func (s setting) audit(typ, day string, calls []call, explained []explanation) (serial.Report, error) {
	at := s.instantOf(day, calls)
	var stored []int64
	for _, c := range calls {
		for seq := c.first; seq <= c.last; seq++ {
			stored = append(stored, seq)
		}
	}
	return s.scheme().Audit(typ, serial.At(at), slices.Max(stored), s.documents(typ, at, stored),
		s.explanations(typ, at, explained))
}

// instantOf returns an instant of a day, taken from the calls that got its numbers.
func (s setting) instantOf(day string, calls []call) time.Time {
	at := time.Unix(0, calls[0].start)
	if s.label(at) != day {
		at = time.Unix(0, calls[0].end)
	}
	return at
}

// documents yields the documents' numbers.
func (s setting) documents(typ string, at time.Time, seqs []int64) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for _, seq := range seqs {
			n, err := s.scheme().Number(typ, serial.At(at), seq)
			if !yield(n.String(), err) || err != nil {
				return
			}
		}
	}
}

// explanations gives an audit the workers' explanations, and more.
func (s setting) explanations(typ string, at time.Time, explained []explanation,
	more ...explanation) serial.AuditOption {
	return serial.WithExplanations(func(yield func(serial.Explanation, error) bool) {
		series, err := s.scheme().Series(typ)
		_, start, _ := s.scheme().Period(serial.At(at))
		for _, e := range slices.Concat(explained, more) {
			if !yield(serial.Explanation{Series: series, Type: typ, Start: start, First: e.first, Last: e.last,
				Unused: e.unused, Possible: e.possible, Reason: "reported", By: e.by, At: at}, err) || err != nil {
				return
			}
		}
	})
}

// disorder finds the calls of one series that began after another had returned but got no greater number.
func disorder(calls []call) (found []string) {
	ended := slices.SortedFunc(slices.Values(calls), func(a, b call) int { return cmp.Compare(a.end, b.end) })
	began := slices.SortedFunc(slices.Values(calls), func(a, b call) int { return cmp.Compare(a.start, b.start) })
	var latest call // the returned call with the greatest number
	for _, c := range began {
		for len(ended) > 0 && ended[0].end < c.start {
			if ended[0].last > latest.last {
				latest = ended[0]
			}
			ended = ended[1:]
		}
		if c.first <= latest.last {
			found = append(found, fmt.Sprintf("%v after %v", c, latest))
		}
	}
	return found
}

func (c call) String() string {
	return fmt.Sprintf("%s %s %d-%d (worker %d, %s to %s)", c.typ, c.day, c.first, c.last, c.worker, clock(c.start),
		clock(c.end))
}

func clock(ns int64) string { return time.Unix(0, ns).UTC().Format("05.000000") }

const dayLayout = "20060102"

// The checker finds each fault it is made for, and nothing in a clean journal.
func TestChecker(t *testing.T) {
	const typ = "T-00000001"
	at := func(start, end, first, last int64) call {
		return call{typ: typ, n: last - first + 1, day: "19700101", start: start, end: end, first: first, last: last}
	}
	failing := func(n int64) call { return call{typ: typ, n: n, failure: "failed"} }
	nextDay := at(3, 4, 3, 3)
	nextDay.day = "19700102"
	for _, c := range []struct {
		name                                          string
		calls                                         []call
		lost                                          int64
		duplicates, disorder, wrongDays, gaps, excess int
	}{
		{"clean", []call{at(1, 5, 1, 3), at(2, 9, 5, 6), at(3, 4, 4, 4), at(10, 11, 7, 7)}, 0, 0, 0, 0, 0, 0},
		{"the same number", []call{at(1, 5, 1, 1), at(2, 6, 1, 1)}, 0, 1, 0, 0, 0, 0},
		{"within a batch", []call{at(1, 5, 1, 50), at(2, 6, 20, 20), at(2, 6, 51, 51)}, 0, 1, 0, 0, 0, 0},
		{"batches that overlap", []call{at(1, 9, 1, 20), at(2, 9, 20, 30), at(3, 9, 30, 40)}, 0, 2, 0, 0, 0, 0},
		{"out of order", []call{at(1, 2, 2, 2), at(3, 4, 1, 1)}, 0, 0, 1, 0, 0, 0},
		{"at once in any order", []call{at(1, 3, 2, 2), at(3, 4, 1, 1)}, 0, 0, 0, 0, 0, 0},
		{"another day", []call{at(1, 2, 1, 2), nextDay}, 0, 0, 0, 1, 2, 1},
		{"a gap", []call{at(1, 2, 1, 1), at(3, 4, 5, 5)}, 0, 0, 0, 0, 3, 1},
		{"a gap that calls explain", []call{at(1, 2, 1, 1), failing(3), at(3, 4, 5, 5)}, 0, 0, 0, 0, 3, 0},
		{"a gap that commands explain", []call{at(1, 2, 1, 1), at(3, 4, 5, 5)}, 3, 0, 0, 0, 3, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := newJournal()
			j.calls = c.calls
			j.lost[typ] = c.lost
			v := j.check(setting{}, allowance{})
			require.Equal(t, []int{c.duplicates, c.disorder, c.wrongDays, c.gaps, c.excess},
				[]int{len(v.duplicates), len(v.disorder), len(v.wrongDays), int(v.gaps), len(v.excess)})
		})
	}
}

// The checker finds numbers that nobody explained, and numbers that were reported unused but were used.
func TestCheckerExplains(t *testing.T) {
	const typ, day = "T-00000001", "19700101"
	at := series{typ, day}
	for _, c := range []struct {
		told                      []explanation
		silent                    int64
		unexplained, contradicted int
	}{
		{nil, 2, 1, 0},
		{nil, 3, 0, 0},
		{[]explanation{{first: 2, last: 3, unused: true}}, 0, 1, 0},
		{[]explanation{{first: 2, last: 3, unused: true}, {first: 1, last: 9, possible: true, lost: true}}, 0, 1, 0},
		{[]explanation{{first: 2, last: 3, unused: true}, {first: 4, last: 4, possible: true}}, 0, 0, 0},
		{[]explanation{{first: 2, last: 5, unused: true}}, 0, 0, 1},
		{[]explanation{{first: 1, last: 9}}, 0, 0, 0},
	} {
		j := newJournal()
		j.calls = []call{{typ: typ, n: 1, day: day, first: 1, last: 1}, {typ: typ, n: 2, day: day, first: 5, last: 6}}
		j.explained[at] = c.told
		v := j.check(setting{}, allowance{silent: func(string) int64 { return c.silent }})
		require.Equal(t, []int{c.unexplained, c.contradicted}, []int{len(v.unexplained), len(v.contradicted)}, "%+v", c)
	}
}
