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
	maxAudits      = 2           // maximum number of audits that run at the same time
	maxReportAge   = time.Minute // age up to which a report is reused
	maxReportBytes = 64 << 20    // maximum estimated memory of all stored reports
	maxOutcomes    = 100_000
)

// A periodKey identifies a period of a series.
type periodKey struct {
	series string // Key of the series
	start  int64  // start of the period in Unix seconds
}

// audits contains the running audits, and the reports and outcomes of earlier ones. At most two audits run at the same
// time, and at most one for each period.
type audits struct {
	mu       sync.Mutex            // guards all fields below
	running  map[periodKey]bool    // running audits; the value is false if the report must not be kept
	ended    chan struct{}         // closed when any audit ends
	reports  map[periodKey]*audit  // reports that are at most a minute old
	outcomes map[periodKey]outcome // outcome of the latest audit of each period
}

// An outcome is a summary of an audit. It is stored for longer than the report.
type outcome struct {
	At, Start                      time.Time
	Stored, Explained, Unexplained int64
	Clean                          bool

	last      int64     // last issued sequence at the time of the audit
	explained time.Time // latest time at which numbers of the period were explained through this handler

	// empty reports whether the period has no numbers and is not the current period. Such a period is not counted, because
	// a reader can audit any period by typing its address.
	empty bool
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
	return kept, found && time.Since(kept.at) < maxReportAge
}

// begin reserves a slot for an audit of a period. If ok is true, the caller must call end. If ok is false, the audit
// must not run now, and begin returns the channel ended, which is closed when another audit ends.
func (a *audits) begin(k periodKey) (ok bool, ended <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, busy := a.running[k]; busy || len(a.running) >= maxAudits {
		return false, a.ended
	}
	a.running[k] = true
	return true, nil
}

// end releases the slot that begin reserved, and stores the audit. It does not store the audit if it is nil, or if
// numbers of the period were explained while the audit was running.
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

// dropReports deletes reports that are older than a minute. If the remaining reports take more than maxReportBytes, it
// also deletes the oldest of them.
func (a *audits) dropReports() {
	bytes := 0
	for _, k := range slices.SortedFunc(maps.Keys(a.reports), func(x, y periodKey) int {
		return a.reports[y].at.Compare(a.reports[x].at) // newest first
	}) {
		kept := a.reports[k]
		if bytes += kept.bytes(); bytes > maxReportBytes || time.Since(kept.at) >= maxReportAge {
			delete(a.reports, k)
		}
	}
}

// keep stores the outcome of a period that a check of all periods has found. The argument at is the time at which this
// check began. If a later audit has already stored its outcome, keep changes nothing.
func (a *audits) keep(series string, p period, r *serial.Report, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	k := periodKey{series, r.Start.Unix()}
	if a.outcomes[k].At.Before(at) {
		a.note(k, p, r, at)
	}
}

// note stores the outcome of an audit. The caller must hold mu. If there are maxOutcomes outcomes, note deletes an
// arbitrary one.
func (a *audits) note(k periodKey, p period, r *serial.Report, at time.Time) {
	current := !at.Before(p.Start) && at.Before(p.End)
	explained := a.outcomes[k].explained
	for other := range a.outcomes {
		if len(a.outcomes) < maxOutcomes {
			break
		}
		delete(a.outcomes, other)
	}
	a.outcomes[k] = outcome{At: at, Start: r.Start, Stored: r.Count, Explained: r.ExplainedCount,
		Unexplained: r.UnexplainedCount, Clean: r.Clean(), last: r.Last, explained: explained,
		empty: r.Last < r.First && r.BeyondCount == 0 && !current}
}

// explained must be called when numbers of a period have been explained, because earlier results are then out of date.
// It deletes the latest report of the period. If an audit of the period is running, its report will not be kept. The
// latest outcome no longer counts as a check of the period.
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

// outcome returns the outcome of the latest audit of a period.
func (a *audits) outcome(k periodKey) (outcome, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	o, ok := a.outcomes[k]
	return o, ok
}

// resultAge is the age at which a result is out of date. The pages still show such a result, with its age, but its
// period counts as not checked.
const resultAge = 24 * time.Hour

// counts reports whether the outcome counts as a check of its period.
func (o outcome) counts() bool { return time.Since(o.At) < resultAge && !o.explained.After(o.At) }

// since returns a text with the reasons why the outcome is out of date, or "" if it is not. The argument last is the
// last sequence issued in the period so far.
func (o outcome) since(last int64) string {
	var all []string
	if o.explained.After(o.At) {
		all = append(all, "numbers have been explained since then")
	}
	if last > o.last {
		all = append(all, "numbers have been issued since then")
	}
	if time.Since(o.At) >= resultAge {
		all = append(all, "more than a day ago")
	}
	return strings.Join(all, ", ")
}

// Text returns the result of the audit in words.
func (o outcome) Text() string {
	if o.Clean {
		return "accounted for"
	}
	return "discrepancies"
}

// A summary combines the outcomes of all audits of a series.
type summary struct {
	checked, wrong int64   // count of the periods with a valid check, and count of those that are not clean
	shown          outcome // latest outcome that is not clean, or otherwise the latest outcome; zero if there is none
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
		begun := !o.At.Before(o.Start) // false if a reader has opened the page of a future period
		if begun && (s.shown.At.IsZero() || o.Clean == s.shown.Clean && later || s.shown.Clean && !o.Clean) {
			s.shown = o
		}
		all[k.series] = s
	}
	return all
}
