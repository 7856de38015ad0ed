package serialpage

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/dailyserial/serial"
)

const (
	atOnce       = 2           // running audits
	keptFor      = time.Minute // a report
	keptReports  = 100
	keptBytes    = 64 << 20 // of reports
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
	mu       sync.Mutex                 // guards all fields below
	running  map[periodKey]bool         // whether the report will be kept
	ended    chan struct{}              // closed when an audit ends
	reports  recent[periodKey, audit]   // used for a minute
	outcomes recent[periodKey, outcome] // last outcome of each period
}

// An outcome is what is kept of an audit after a minute.
type outcome struct {
	at, start                      time.Time
	stored, explained, unexplained int64
	clean                          bool
	empty                          bool // another period than the current one, without numbers: it may have been typed
}

func newAudits() *audits {
	return &audits{
		running: map[periodKey]bool{}, ended: make(chan struct{}),
		reports: newRecent[periodKey, audit](keptReports), outcomes: newRecent[periodKey, outcome](keptOutcomes),
	}
}

// fresh returns the report of a period if it is less than a minute old.
func (a *audits) fresh(k periodKey) (*audit, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	kept, found := a.reports.get(k)
	return &kept, found && time.Since(kept.at) < keptFor
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

// end ends an audit. It keeps the report, unless the report is nil or was forgotten during the audit.
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
	a.reports.put(k, *made)
	a.dropReports()
	if made.stored {
		a.note(k, made.period, &made.Report, made.at)
	}
}

// keep keeps the outcome of a period from a check of all periods that began at at, unless a later audit has one.
func (a *audits) keep(series string, p span, r *serial.Report, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	k := periodKey{series, r.Start.Unix()}
	if o, ok := a.outcomes.get(k); !ok || o.at.Before(at) {
		a.note(k, p, r, at)
	}
}

// note keeps the outcome of an audit.
func (a *audits) note(k periodKey, p span, r *serial.Report, at time.Time) {
	current := !at.Before(p.Start) && at.Before(p.End)
	a.outcomes.put(k, outcome{at: at, start: r.Start, stored: r.Count, explained: r.ExplainedCount,
		unexplained: r.UnexplainedCount, clean: r.Clean(), empty: r.Last < r.First && r.BeyondCount == 0 && !current})
}

// dropReports drops reports that are no longer used, and the oldest ones if they take too much memory.
func (a *audits) dropReports() {
	bytes := 0
	for _, kept := range a.reports.values {
		bytes += kept.bytes()
	}
	for len(a.reports.order) > 0 {
		oldest := a.reports.values[a.reports.order[0]]
		if time.Since(oldest.at) < keptFor && bytes <= keptBytes {
			return
		}
		bytes -= oldest.bytes()
		a.reports.remove(a.reports.order[0])
	}
}

// forget drops the report of a period, and that of an audit that is running: the next page makes a new audit.
func (a *audits) forget(k periodKey) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.running[k]; ok {
		a.running[k] = false
	}
	a.reports.remove(k)
}

// outcome returns the outcome of a period's last audit.
func (a *audits) outcome(k periodKey) (outcome, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.outcomes.get(k)
}

// resultAge is how long a result counts. Afterwards it is shown with its age, and its period counts as not checked.
const resultAge = 24 * time.Hour

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
	for k, o := range a.outcomes.values {
		if o.empty {
			continue
		}
		s := all[k.series]
		if time.Since(o.at) < resultAge {
			s.checked++
			if !o.clean {
				s.wrong++
			}
		}
		if o.at.Before(o.start) { // somebody has asked for a period that has not begun
			all[k.series] = s
			continue
		}
		if later := cmp.Or(o.at.Compare(s.shown.at), o.start.Compare(s.shown.start)) > 0; s.shown.at.IsZero() ||
			o.clean == s.shown.clean && later || s.shown.clean && !o.clean {
			s.shown = o
		}
		all[k.series] = s
	}
	return all
}

// recent keeps the latest values.
type recent[K comparable, V any] struct {
	most   int // values
	values map[K]V
	order  []K // oldest first
}

func newRecent[K comparable, V any](most int) recent[K, V] {
	return recent[K, V]{most: most, values: map[K]V{}}
}

func (r *recent[K, V]) get(k K) (V, bool) {
	v, ok := r.values[k]
	return v, ok
}

func (r *recent[K, V]) put(k K, v V) {
	r.remove(k)
	if len(r.order) == r.most {
		r.remove(r.order[0])
	}
	r.values[k], r.order = v, append(r.order, k)
}

func (r *recent[K, V]) remove(k K) {
	if _, ok := r.values[k]; ok {
		delete(r.values, k)
		i := slices.Index(r.order, k)
		r.order = slices.Delete(r.order, i, i+1)
	}
}
