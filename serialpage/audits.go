package serialpage

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dailyserial/serial"
)

const (
	atOnce       = 2           // running audits
	keptFor      = time.Minute // a report
	keptBytes    = 64 << 20    // of reports
	keptOutcomes = 100_000
)

// A periodKey names a period of a series.
type periodKey struct {
	series string // its Key
	start  int64  // Unix seconds
}

// audits are the running audits and what is kept of earlier ones. At most one audit runs at a time for a period, and at
// most two in all.
type audits struct {
	mu       sync.Mutex            // guards all fields below
	running  map[periodKey]bool    // whether the report will be kept
	ended    chan struct{}         // closed when an audit ends
	reports  map[periodKey]*audit  // used for a minute
	outcomes map[periodKey]outcome // last outcome of each period
}

// An outcome is what is kept of an audit after a minute.
type outcome struct {
	At, Start                      time.Time
	Stored, Explained, Unexplained int64
	Clean                          bool

	last      int64     // sequence that was issued last
	explained time.Time // when numbers of the period were last explained through this handler
	empty     bool      // another period than the current one, without numbers: it may have been typed
}

func newAudits() *audits {
	return &audits{running: map[periodKey]bool{}, ended: make(chan struct{}), reports: map[periodKey]*audit{},
		outcomes: map[periodKey]outcome{}}
}

// fresh returns the report of a period if it is less than a minute old.
func (a *audits) fresh(k periodKey) (*audit, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	kept, found := a.reports[k]
	return kept, found && time.Since(kept.at) < keptFor
}

// begin reports whether an audit may run now. If so, the caller must call end. Otherwise, ended is closed when another
// audit ends.
func (a *audits) begin(k periodKey) (ok bool, ended <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, busy := a.running[k]; busy || len(a.running) >= atOnce {
		return false, a.ended
	}
	a.running[k] = true
	return true, nil
}

// end ends an audit. It keeps the report, unless the report is nil or numbers were explained during the audit.
func (a *audits) end(k periodKey, made *audit) {
	a.mu.Lock()
	defer a.mu.Unlock()
	close(a.ended)
	a.ended = make(chan struct{})
	keep := a.running[k]
	delete(a.running, k)
	if made == nil || !keep {
		return
	}
	a.reports[k] = made
	a.dropReports()
	if made.stored {
		a.note(k, made.period, &made.Report, made.at)
	}
}

// dropReports drops reports that are no longer used, and the oldest ones if all together take too much memory.
func (a *audits) dropReports() {
	bytes := 0
	for _, k := range slices.SortedFunc(maps.Keys(a.reports), func(x, y periodKey) int {
		return a.reports[y].at.Compare(a.reports[x].at) // the newest first
	}) {
		kept := a.reports[k]
		if bytes += kept.bytes(); bytes > keptBytes || time.Since(kept.at) >= keptFor {
			delete(a.reports, k)
		}
	}
}

// keep keeps the outcome of a period from a check of all periods that began at at, unless a later audit has one.
func (a *audits) keep(series string, p span, r *serial.Report, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	k := periodKey{series, r.Start.Unix()}
	if a.outcomes[k].At.Before(at) {
		a.note(k, p, r, at)
	}
}

// note keeps the outcome of an audit.
func (a *audits) note(k periodKey, p span, r *serial.Report, at time.Time) {
	current := !at.Before(p.Start) && at.Before(p.End)
	explained := a.outcomes[k].explained
	for other := range a.outcomes {
		if len(a.outcomes) < keptOutcomes {
			break
		}
		delete(a.outcomes, other)
	}
	a.outcomes[k] = outcome{At: at, Start: r.Start, Stored: r.Count, Explained: r.ExplainedCount,
		Unexplained: r.UnexplainedCount, Clean: r.Clean(), last: r.Last, explained: explained,
		empty: r.Last < r.First && r.BeyondCount == 0 && !current}
}

// explained notes that numbers of a period were explained. The next page makes a new audit, even if one is running, and
// until then the last result does not count.
func (a *audits) explained(k periodKey) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.running[k]; ok {
		a.running[k] = false
	}
	delete(a.reports, k)
	if o, ok := a.outcomes[k]; ok {
		o.explained = time.Now()
		a.outcomes[k] = o
	}
}

// outcome returns the outcome of a period's last audit.
func (a *audits) outcome(k periodKey) (outcome, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	o, ok := a.outcomes[k]
	return o, ok
}

// resultAge is how long a result counts. Afterwards it is shown with its age, and its period counts as not checked.
const resultAge = 24 * time.Hour

// counts reports whether the outcome counts as a check of its period.
func (o outcome) counts() bool { return time.Since(o.At) < resultAge && !o.explained.After(o.At) }

// since says what the audit does not know because it happened later. last is the sequence that was issued last.
func (o outcome) since(last int64) string {
	var all []string
	if o.explained.After(o.At) {
		all = append(all, "numbers were explained since")
	}
	if last > o.last {
		all = append(all, "numbers were issued since")
	}
	if time.Since(o.At) >= resultAge {
		all = append(all, "more than a day ago")
	}
	return strings.Join(all, ", ")
}

// Text says what the audit found.
func (o outcome) Text() string {
	if o.Clean {
		return "accounted for"
	}
	return "discrepancies"
}

// A summary has what the audits of a series found.
type summary struct {
	checked, wrong int64   // periods whose results count, and those of them that are not clean
	shown          outcome // the last one that is not clean, or else the last one; zero if there is none
}

// summaries returns a summary for each series that was audited.
func (a *audits) summaries() map[string]summary {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := map[string]summary{}
	for k, o := range a.outcomes {
		if o.empty {
			continue
		}
		s := all[k.series]
		if o.counts() {
			s.checked++
			if !o.Clean {
				s.wrong++
			}
		}
		later := cmp.Or(o.At.Compare(s.shown.At), o.Start.Compare(s.shown.Start)) > 0
		begun := !o.At.Before(o.Start) // otherwise, somebody has asked for a period that has not begun
		if begun && (s.shown.At.IsZero() || o.Clean == s.shown.Clean && later || s.shown.Clean && !o.Clean) {
			s.shown = o
		}
		all[k.series] = s
	}
	return all
}
