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

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

// A journal has the calls of all workers, and everything that may have cost numbers.
type journal struct {
	mu        sync.Mutex
	calls     []call // that have ended
	open      map[[2]int64]call
	latest    map[int]map[string]int64 // start of the latest call that succeeded, by worker and type
	highest   map[series]int64
	unheard   map[string]int64 // numbers that commands without a reply may have taken, by type
	losses    []loss
	explained map[series][]serial.Explanation
	dead      map[int]bool // workers that were killed, and may not have reported everything
	disturbed int64        // until when some worker is suspended, or when one was killed
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

// A loss is a time in which each type may lose as many blocks, or numbers if there is no ledger.
type loss struct{ from, to, blocks int64 }

const unknown = "unknown" // failure of a call whose worker was killed

func newJournal() *journal {
	return &journal{open: map[[2]int64]call{}, latest: map[int]map[string]int64{}, highest: map[series]int64{},
		unheard: map[string]int64{}, explained: map[series][]serial.Explanation{}, dead: map[int]bool{}}
}

func (j *journal) begin(c call) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.open[[2]int64{int64(c.Worker), c.ID}] = c
}

func (j *journal) end(c call) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.open, [2]int64{int64(c.Worker), c.ID})
	j.calls = append(j.calls, c)
	if c.Failure == "" {
		if j.latest[c.Worker] == nil {
			j.latest[c.Worker] = map[string]int64{}
		}
		j.latest[c.Worker][c.Type] = max(j.latest[c.Worker][c.Type], c.Start)
		j.highest[series{c.Type, c.Period}] = max(j.highest[series{c.Type, c.Period}], c.Last)
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

func (j *journal) explain(at series, e serial.Explanation) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.explained[at] = append(j.explained[at], e)
}

func answerLost(e serial.Explanation) bool { return strings.HasPrefix(e.Reason, serial.AnswerLost) }

// disturb notes that a worker was just killed or suspended, with any reservation that it was making.
func (j *journal) disturb(pause time.Duration) {
	at := now()
	j.mayLoseBlocks(at-int64(time.Second), at+int64(pause+time.Second), 1)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.disturbed = max(j.disturbed, at+int64(pause))
}

// calmSince reports whether no worker has been killed or suspended since then.
func (j *journal) calmSince(t int64) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.disturbed < t
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
	calls, numbers, failed int64
	// Numbers below the last issued that were not returned; how many may be, and how many are explained.
	gaps, allowed, explained int64
	outage                   time.Duration // longest time without a number of a type that is always in use
	findings                 map[string][]string
}

// Findings, besides "calls failed as CLASS".
const (
	duplicates   = "duplicates"
	outOfOrder   = "numbers out of order"
	wrongPeriods = "numbers of another period than the call"
	excess       = "types with more gaps than failures explain"
	unexplained  = "types with gaps that workers should have explained"
	contradicted = "numbers that were reported as unused, and issued"
	unmissed     = "series in which deleted documents are not missed"
)

func (v *verdict) find(what, format string, args ...any) {
	v.findings[what] = append(v.findings[what], fmt.Sprintf(format, args...))
}

// An allowance is what a protection may cost besides failed calls and commands without a reply.
type allowance struct {
	block    int64                          // what a loss costs a type
	reserved func(typ string) []reservation // by the ledger
	skipped  func(typ string) (n int64)     // by a floor, or by a slow ledger
	silent   func(typ string) (n int64)     // numbers that may stay unexplained; nil if all may
}

// check reads the whole journal when the workers have ended.
func (j *journal) check(s setting, a allowance) *verdict {
	v := &verdict{findings: map[string][]string{}, calls: int64(len(j.calls))}
	issued, failed := map[string][]call{}, map[string][]call{}
	for _, c := range j.calls {
		if c.Failure != "" {
			v.failed++
			v.find("calls failed as "+c.Failure, "%s", c.Text)
			failed[c.Type] = append(failed[c.Type], c)
			continue
		}
		issued[c.Type] = append(issued[c.Type], c)
		v.numbers += c.Last - c.First + 1
		if c.Period < s.periodOf(c.Start) || c.Period > s.periodOf(c.End) {
			v.find(wrongPeriods, "%v", c)
		}
	}
	for _, typ := range slices.Sorted(maps.Keys(issued)) {
		j.checkType(v, s, a, typ, issued[typ], failed[typ])
	}
	return v
}

func (j *journal) checkType(v *verdict, s setting, a allowance, typ string, issued, failed []call) {
	periods := map[string][]call{}
	for _, c := range issued {
		periods[c.Period] = append(periods[c.Period], c)
	}
	allowed, silent := j.unheard[typ], j.unheard[typ]
	var top, distinct, missing int64 // missing: numbers that are not explained
	for period, calls := range periods {
		n, highest := v.overlaps(calls)
		distinct, top = distinct+n, top+highest
		v.disorder(calls)
		report := j.audit(v, s, series{typ, period}, calls)
		v.explained += report.ExplainedCount
		missing += report.UnexplainedCount
		for _, n := range report.Contradicted {
			v.find(contradicted, "%v", n)
		}
		for _, e := range j.explained[series{typ, period}] {
			if e.Possible && !answerLost(e) {
				silent += e.Last - e.First + 1
			}
		}
	}
	v.gaps += top - distinct

	issued = sorted(issued, func(c call) int64 { return c.End })
	for i, c := range issued[1:] {
		if typ[0] == 'T' {
			v.outage = max(v.outage, time.Duration(c.End-issued[i].End))
		}
	}
	from := sorted(issued, func(c call) int64 { return c.Start })[0].Start
	for _, l := range j.losses {
		if l.from <= issued[len(issued)-1].End && l.to >= from {
			allowed += a.block * l.blocks
			silent += a.block * l.blocks
		}
	}
	for _, c := range failed {
		allowed += c.N
		if c.Failure == unknown || c.Once || j.dead[c.Worker] {
			silent += c.N
		}
	}
	var reserved int64
	if a.reserved != nil {
		for _, r := range a.reserved(typ) {
			if calls := periods[r.period]; calls != nil {
				n := r.last - r.first + 1
				reserved += n
				used := slices.ContainsFunc(calls, func(c call) bool { return c.Last >= r.first && c.First <= r.last })
				if !used && len(failed) > 0 { // a call may have failed over it
					failed = failed[1:]
					allowed += n
				}
			}
		}
	}
	if a.skipped != nil {
		allowed += a.skipped(typ)
	}
	v.allowed += allowed
	if top-distinct > allowed {
		v.find(excess, "%s: %d of %d are missing, %d may be", typ, top-distinct, top, allowed)
	}
	if allowed += a.block * int64(len(periods)); reserved-distinct > allowed {
		v.find(excess, "%s: %d of %d reserved are missing, %d may be", typ, reserved-distinct, reserved, allowed)
	}
	if a.silent != nil && missing > silent+a.silent(typ) {
		v.find(unexplained, "%s: %d of %d, %d may be", typ, missing, top, silent+a.silent(typ))
	}
}

// audit accounts for the numbers of one series up to the last one issued. Then it deletes all documents, each of which
// must be missed.
func (j *journal) audit(v *verdict, s setting, at series, calls []call) serial.Report {
	var last int64
	documents := map[int64]bool{}
	for _, c := range calls {
		for seq := c.First; seq <= c.Last; seq++ {
			documents[seq] = true
		}
		last = max(last, c.Last)
	}
	instant := time.Unix(0, calls[0].Start)
	if s.period(instant) != at.period {
		instant = time.Unix(0, calls[0].End)
	}
	audit := func() serial.Report {
		r, err := s.scheme().Audit(at.typ, serial.At(instant), last, func(yield func(string, error) bool) {
			for seq := range documents {
				n, err := s.scheme().Number(at.typ, serial.At(instant), seq)
				if !yield(n.String(), err) || err != nil {
					return
				}
			}
		}, serial.WithExplanations(func(yield func(serial.Explanation, error) bool) {
			for _, e := range j.explained[at] {
				if !yield(e, nil) {
					return
				}
			}
		}))
		if err != nil {
			v.find(excess, "%v: %v", at, err)
		}
		return r
	}
	before, deleted := audit(), int64(len(documents))
	clear(documents)
	if after := audit(); after.UnexplainedCount != before.UnexplainedCount+deleted {
		v.find(unmissed, "%v: %d unexplained, then %d were deleted, then %d unexplained", at, before.UnexplainedCount,
			deleted, after.UnexplainedCount)
	}
	return before
}

func sorted(calls []call, by func(c call) int64) []call {
	return slices.SortedFunc(slices.Values(calls), func(a, b call) int { return cmp.Compare(by(a), by(b)) })
}

// overlaps counts the distinct numbers of one series, and finds those that were issued twice.
func (v *verdict) overlaps(calls []call) (distinct, highest int64) {
	var before call // the call so far with the greatest number
	for _, c := range sorted(calls, func(c call) int64 { return c.First }) {
		if c.First <= highest {
			v.find(duplicates, "%v and %v", before, c)
		}
		if c.Last > highest {
			distinct += c.Last - max(c.First-1, highest)
			highest, before = c.Last, c
		}
	}
	return distinct, highest
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
	failed := call{Type: typ, N: 3, Failure: "failed"}
	nextDay := issued(3, 4, 3, 3)
	nextDay.Period = "19700102"
	gap := []call{issued(1, 2, 1, 1), issued(3, 4, 5, 5)}
	unused := func(first, last int64) []serial.Explanation {
		return []serial.Explanation{{Series: "serial:" + typ, Type: typ, Start: time.Unix(0, 0), First: first, Last: last,
			Reason: "test", At: time.Now(), Unused: true}}
	}
	for name, c := range map[string]struct {
		calls     []call
		unheard   int64
		explained []serial.Explanation
		gaps      int64
		want      []string // findings
	}{
		"clean":           {calls: []call{issued(1, 5, 1, 3), issued(2, 9, 5, 6), issued(3, 4, 4, 4), issued(10, 11, 7, 7)}},
		"the same number": {calls: []call{issued(1, 5, 1, 1), issued(2, 6, 1, 1)}, want: []string{duplicates}},
		"within a batch": {calls: []call{issued(1, 5, 1, 50), issued(2, 6, 20, 20), issued(2, 6, 51, 51)},
			want: []string{duplicates}},
		"batches that overlap": {calls: []call{issued(1, 9, 1, 20), issued(2, 9, 20, 30), issued(3, 9, 30, 40)},
			want: []string{duplicates, duplicates}},
		"out of order":         {calls: []call{issued(1, 2, 2, 2), issued(3, 4, 1, 1)}, want: []string{outOfOrder}},
		"at once in any order": {calls: []call{issued(1, 3, 2, 2), issued(3, 4, 1, 1)}},
		"another day": {calls: []call{issued(1, 2, 1, 2), nextDay}, gaps: 2,
			want: []string{excess, unexplained, wrongPeriods}},
		"a gap":                              {calls: gap, gaps: 3, want: []string{excess, unexplained}},
		"a gap of a call that failed":        {calls: append(gap[:2:2], failed), gaps: 3, want: []string{unexplained}},
		"a gap of a command without a reply": {calls: gap, unheard: 3, gaps: 3},
		"an explained gap":                   {calls: append(gap[:2:2], failed), explained: unused(2, 4), gaps: 3},
		"a gap that is explained in part": {calls: append(gap[:2:2], failed), explained: unused(2, 3), gaps: 3,
			want: []string{unexplained}},
		"an explanation of a number that was issued": {calls: append(gap[:2:2], failed), explained: unused(2, 5), gaps: 3,
			want: []string{contradicted, unmissed}},
	} {
		t.Run(name, func(t *testing.T) {
			j := newJournal()
			j.calls = c.calls
			j.unheard[typ] = c.unheard
			j.explained[series{typ, "19700101"}] = c.explained
			v := j.check(setting{}, allowance{silent: func(string) int64 { return 0 }})
			delete(v.findings, "calls failed as failed")
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
