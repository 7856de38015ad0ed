//go:build unix

package faults

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

// A journal has the calls of all workers, and everything that may have cost numbers.
type journal struct {
	storage *miniredis.Miniredis // has the highest numbers, for the floor

	mu        sync.Mutex
	calls     []call // that have ended
	open      map[[2]int64]call
	latest    map[string]int64 // start of the latest call that succeeded, by worker and type
	highest   map[series]int64
	unheard   map[string]int64 // numbers that commands without a reply may have taken, by type
	losses    []loss
	explained map[series][]serial.Explanation
	dead      map[int]bool // workers that were killed, and may not have reported everything
}

// A call requests N numbers. Times are nanoseconds since 1970, comparable across the processes of one host.
type call struct {
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

const unknown = "unknown" // failure of a call whose worker was killed

func newJournal(storage *miniredis.Miniredis) *journal {
	return &journal{storage: storage, open: map[[2]int64]call{}, latest: map[string]int64{}, highest: map[series]int64{},
		unheard: map[string]int64{}, explained: map[series][]serial.Explanation{}, dead: map[int]bool{}}
}

// note notes that a call begins or, if it has an end, that it has ended.
func (j *journal) note(c call) {
	j.mu.Lock()
	defer j.mu.Unlock()
	id := [2]int64{int64(c.Worker), c.ID}
	if c.End == 0 {
		j.open[id] = c
		return
	}
	delete(j.open, id)
	j.calls = append(j.calls, c)
	if c.Failure == "" {
		worker, at := fmt.Sprint(c.Worker, c.Type), series{c.Type, c.Period}
		j.latest[worker] = max(j.latest[worker], c.Start)
		j.highest[at] = max(j.highest[at], c.Last)
		_ = j.storage.Set(floorKey(at), fmt.Sprint(j.highest[at]))
	}
}

// ended ends the open calls of a worker that has ended.
func (j *journal) ended(worker int, killed bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.dead[worker] = killed
	for id, c := range j.open {
		if c.Worker == worker {
			c.Failure = unknown
			j.calls = append(j.calls, c)
			delete(j.open, id)
		}
	}
}

func (j *journal) last(typ, period string) int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.highest[series{typ, period}]
}

// servedSince reports whether a worker has got a number of a type in a call that began after since.
func (j *journal) servedSince(since int64, worker int, typ string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.latest[fmt.Sprint(worker, typ)] >= since
}

func (j *journal) explain(s setting, e serial.Explanation) {
	at := series{e.Type, s.period(e.Start)}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.explained[at] = append(j.explained[at], e)
}

// disturb notes that a worker was just killed or suspended, with any reservation that it was making.
func (j *journal) disturb(pause time.Duration) {
	at := now()
	j.mayLoseBlocks(at-int64(time.Second), at+int64(pause+time.Second), 1)
}

// mayLose notes that n numbers of a type may be gaps, of which workers know nothing.
func (j *journal) mayLose(typ string, n int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.unheard[typ] += n
}

// mayLoseBlocks notes a loss of all types.
func (j *journal) mayLoseBlocks(from, to, blocks int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.losses = append(j.losses, loss{from, to, blocks})
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
func (j *journal) check(s setting, block int64, silent func(typ string) int64) *verdict {
	v := &verdict{findings: map[string][]string{}}
	issued, missing, allowed := map[series][]call{}, map[string]int64{}, maps.Clone(j.unheard)
	from, to := map[string]int64{}, map[string]int64{} // when each type was in use
	for _, c := range j.calls {
		if c.Failure == "" {
			at := series{c.Type, c.Period}
			issued[at] = append(issued[at], c)
			from[c.Type], to[c.Type] = min(cmp.Or(from[c.Type], c.Start), c.Start), max(to[c.Type], c.End)
			v.numbers += c.Last - c.First + 1
			if c.Period < s.periodOf(c.Start) || c.Period > s.periodOf(c.End) {
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
		missing[at.typ] += j.audit(v, s, at, calls)
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
func (j *journal) audit(v *verdict, s setting, at series, calls []call) (unexplained int64) {
	instant := time.Unix(0, calls[0].Start)
	if s.period(instant) != at.period {
		instant = time.Unix(0, calls[0].End)
	}
	var last int64
	for _, c := range calls {
		last = max(last, c.Last)
	}
	r, err := s.scheme.Audit(at.typ, serial.At(instant), last, func(yield func(string, error) bool) {
		for _, c := range calls {
			for seq := c.First; seq <= c.Last; seq++ {
				if n, err := s.scheme.Number(at.typ, serial.At(instant), seq); !yield(n.String(), err) || err != nil {
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
		twice := slices.DeleteFunc(slices.Clone(calls), func(c call) bool { return n.Seq < c.First || n.Seq > c.Last })
		v.find(duplicates, "%v", twice)
	}
	for _, n := range r.Contradicted {
		v.find(contradicted, "%v", n)
	}
	v.gaps += r.MissingCount
	v.explained += r.ExplainedCount
	return r.UnexplainedCount
}

func sorted(calls []call, by func(c call) int64) []call {
	return slices.SortedFunc(slices.Values(calls), func(a, b call) int { return cmp.Compare(by(a), by(b)) })
}

// disorder finds the calls of one series that began after another had returned but got no greater number.
func (v *verdict) disorder(calls []call) {
	ended := sorted(calls, func(c call) int64 { return c.End })
	var latest call // the returned call with the greatest number
	for _, c := range sorted(calls, func(c call) int64 { return c.Start }) {
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

func (c call) String() string {
	return fmt.Sprintf("%s %s %d-%d (worker %d, %s to %s)", c.Type, c.Period, c.First, c.Last, c.Worker, clock(c.Start),
		clock(c.End))
}

func clock(ns int64) string { return time.Unix(0, ns).UTC().Format("05.000000") }

// The checker finds each fault that it is made for, and nothing in a clean journal.
func TestChecker(t *testing.T) {
	const typ = "T-00000001"
	issued := func(start, end, first, last int64) call {
		return call{Type: typ, N: last - first + 1, Period: "19700101", Start: start, End: end, First: first, Last: last}
	}
	nextDay := issued(3, 4, 3, 3)
	nextDay.Period = "19700102"
	gap := []call{issued(1, 2, 1, 1), issued(3, 4, 5, 5)}
	killed := call{Type: typ, N: 3, Failure: unknown}
	unused := func(first, last int64) []serial.Explanation {
		return []serial.Explanation{{Series: "serial:" + typ, Type: typ, Start: time.Unix(0, 0), First: first, Last: last,
			Reason: "test", At: time.Now(), Unused: true}}
	}
	scheme, err := serial.NewScheme(setting{}.options()...)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		calls     []call
		unheard   int64
		explained []serial.Explanation
		gaps      int64
		want      []string // findings
	}{
		"clean": {calls: []call{issued(1, 5, 1, 3), issued(2, 9, 5, 6), issued(3, 4, 4, 4),
			issued(10, 11, 7, 7)}},
		"at once in any order": {calls: []call{issued(1, 3, 2, 2), issued(3, 4, 1, 1)}},
		"the same number":      {calls: []call{issued(1, 5, 1, 1), issued(2, 6, 1, 1)}, want: []string{duplicates}},
		"within a batch": {calls: []call{issued(1, 5, 1, 50), issued(2, 6, 20, 20), issued(2, 6, 51, 51)},
			want: []string{duplicates}},
		"batches that overlap": {calls: []call{issued(1, 9, 1, 20), issued(2, 9, 20, 30), issued(3, 9, 30, 40)},
			want: []string{duplicates, duplicates}},
		"out of order": {calls: []call{issued(1, 2, 2, 2), issued(3, 4, 1, 1)}, want: []string{outOfOrder}},
		"another day": {calls: []call{issued(1, 2, 1, 2), nextDay}, gaps: 2,
			want: []string{unexplained, wrongPeriods}},
		"a gap":                               {calls: gap, gaps: 3, want: []string{unexplained}},
		"a gap of a killed worker":            {calls: append(gap[:2:2], killed), gaps: 3},
		"a gap of a command without a reply":  {calls: gap, unheard: 3, gaps: 3},
		"an explained gap":                    {calls: gap, explained: unused(2, 4), gaps: 3},
		"a gap that is explained in part":     {calls: gap, explained: unused(2, 3), gaps: 3, want: []string{unexplained}},
		"an issued number that was explained": {calls: gap, explained: unused(2, 5), gaps: 3, want: []string{contradicted}},
	} {
		t.Run(name, func(t *testing.T) {
			j := newJournal(nil)
			j.calls, j.unheard[typ], j.explained[series{typ, "19700101"}] = c.calls, c.unheard, c.explained
			v := j.check(setting{scheme: scheme}, 0, func(string) int64 { return 0 })
			delete(v.findings, "calls failed as "+unknown)
			var found []string
			for what, all := range v.findings {
				for range all {
					found = append(found, what)
				}
			}
			require.ElementsMatch(t, c.want, found)
			require.Equal(t, c.gaps, v.gaps)
		})
	}
}
