package serialpage

import (
	"slices"
	"sync"
	"time"

	"github.com/dailyserial/serial"
)

const (
	atOnce       = 2           // audits
	keptFor      = time.Minute // an audit's report
	keptReports  = 100
	keptOutcomes = 10_000
)

// A periodKey names a period of a series.
type periodKey struct {
	series string // its Key
	start  int64  // Unix seconds
}

// An audit is a report with its time.
type audit struct {
	serial.Report
	at     time.Time
	period span
	stored bool            // without Stored, the report only says what was issued
	cut    map[string]bool // foreign texts of the report that are longer in the documents

	replaced    []replacement
	replacedCut bool // there may be more
}

// foreign is a text of the report, with a sign if it was cut.
func (a *audit) foreign(text string) string {
	if a.cut[text] {
		return text + "…"
	}
	return text
}

// audits are those that were made lately. An audit is made once at a time for a period, and two are made at a time in
// all.
type audits struct {
	mu       sync.Mutex               // guards all below
	running  map[periodKey]bool       // whether the report will be kept
	ended    chan struct{}            // closed when an audit ends
	reports  recent[periodKey, audit] // for a minute
	outcomes recent[periodKey, outcome]
	latest   recent[string, outcome] // of each series
}

// An outcome is what remains of an audit.
type outcome struct {
	at, start                      time.Time
	stored, explained, unexplained int64
	clean                          bool
}

func newAudits() *audits {
	return &audits{
		running: map[periodKey]bool{}, ended: make(chan struct{}), latest: newRecent[string, outcome](keptOutcomes),
		reports: newRecent[periodKey, audit](keptReports), outcomes: newRecent[periodKey, outcome](keptOutcomes),
	}
}

// kept returns the report of a period if there is a fresh one.
func (a *audits) kept(k periodKey) (*audit, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	kept, found := a.reports.get(k)
	return &kept, found && time.Since(kept.at) < keptFor
}

// begin reports whether an audit may be made now; end ends it. Otherwise ended is closed when another audit has ended.
func (a *audits) begin(k periodKey) (ok bool, ended <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, busy := a.running[k]; busy || len(a.running) >= atOnce {
		return false, a.ended
	}
	a.running[k] = true
	return true, nil
}

// end ends an audit. It keeps the report, unless that is nil or was forgotten meanwhile.
func (a *audits) end(k periodKey, made *audit) {
	a.mu.Lock()
	defer a.mu.Unlock()
	close(a.ended)
	a.ended = make(chan struct{})
	fresh := a.running[k]
	delete(a.running, k)
	if made == nil || !fresh {
		return
	}
	a.reports.put(k, *made)
	r := made.Report
	if current := !made.at.Before(made.period.Start) && made.at.Before(made.period.End); !made.stored ||
		r.Last < r.First && !current {
		return // a period that no page lists, opened by its address
	}
	o := outcome{at: made.at, start: r.Start, stored: r.Count, explained: r.ExplainedCount,
		unexplained: r.UnexplainedCount, clean: r.Clean()}
	a.outcomes.put(k, o)
	if !made.at.Before(r.Start) {
		a.latest.put(k.series, o)
	}
}

// forget drops the report of a period, also one that is being made: a later page has a new one made.
func (a *audits) forget(k periodKey) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.running[k]; ok {
		a.running[k] = false
	}
	a.reports.remove(k)
}

// outcome returns what the last audit of a period found.
func (a *audits) outcome(k periodKey) (outcome, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.outcomes.get(k)
}

// checked returns how many periods of each series were audited, and how many of them were not clean.
func (a *audits) checked() map[string][2]int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := map[string][2]int64{}
	for k, o := range a.outcomes.values {
		n := all[k.series]
		n[0]++
		if !o.clean {
			n[1]++
		}
		all[k.series] = n
	}
	return all
}

// last returns what the last audit of a series found, whatever its period.
func (a *audits) last(series string) (outcome, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.latest.get(series)
}

// recent keeps the latest values, up to a number.
type recent[K comparable, V any] struct {
	most   int
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
