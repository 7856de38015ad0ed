package serialpage

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dailyserial/serial"
)

const (
	maxChecks     = 2
	checkPause    = time.Minute // minimum pause between two checks of a series
	pausePerCheck = 10          // pause after a check of a series, as a multiple of the duration of the check
)

// checks contains the running and finished checks of all periods, for each series. The checks belong to the handler, so
// every reader sees them.
type checks struct {
	mu      sync.Mutex
	running map[string]*check   // running checks by Series.Key
	ended   map[string]*checked // last results by Series.Key
}

// A check is a running check of all periods of a series.
type check struct {
	began time.Time
	read  atomic.Int64 // count of the stored numbers that have been read
}

// A checked is the result of the last successful check of a series. It contains only what does not belong to a single
// period; the results of the periods are in audits.
type checked struct {
	At             time.Time // start of the check; zero if no check has succeeded
	Periods        int64
	Uncounted      []string // texts about periods that have stored numbers but no counter, with the count of the numbers
	UncountedCount int64
	Without        []string // names of periods without numbers
	WithoutCount   int64
	Foreign        []string // stored texts that are not numbers of the series
	ForeignCount   int64

	Failed time.Time // start of a later check that failed; zero if there was none
	next   time.Time // time at which the next check may begin
}

// begin notes that a check of a series begins, and returns the check. If the check must not begin yet, begun is nil and
// text contains the reason. If a check of the series is already running, begun is nil and text is "".
func (c *checks) begin(key string) (begun *check, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running[key] != nil {
		return nil, ""
	}
	if last := c.ended[key]; last != nil {
		if wait := time.Until(last.next); wait > 0 {
			return nil, fmt.Sprintf("This series was checked just now. It can be checked again in %s.",
				plural(int64((wait+time.Minute-1)/time.Minute), "minute", "minutes"))
		}
	}
	if len(c.running) >= maxChecks {
		return nil, "Other series are being checked. Try again when their checks have ended."
	}
	begun = &check{began: time.Now()}
	c.running[key] = begun
	return begun, ""
}

// end notes that a check has ended, and stores its result. If the check failed, found is nil, and end keeps the
// previous result.
func (c *checks) end(key string, found *checked) {
	c.mu.Lock()
	defer c.mu.Unlock()
	began := c.running[key].began
	delete(c.running, key)
	if found == nil {
		found = &checked{}
		if last := c.ended[key]; last != nil {
			*found = *last
		}
		found.Failed = began
	}
	found.next = time.Now().Add(max(checkPause, pausePerCheck*time.Since(began)))
	c.ended[key] = found
}

// state returns the running check of a series and the last result. Either can be nil.
func (c *checks) state(key string) (*check, *checked) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running[key], c.ended[key]
}

// check starts a check of all periods of a series in the background, and redirects the client to the list from which
// the form was sent.
func (h *handler) check(w http.ResponseWriter, r *http.Request) error {
	if err := r.ParseForm(); err != nil {
		return badRequest("The form could not be read.")
	}
	s, err := h.find(r.Context(), r.PostForm)
	if err != nil {
		return err
	}
	if s.Stored == nil {
		return notFound("This series is not checked here.")
	}
	sel, err := readSelection(s, r.PostForm)
	if err != nil {
		return err
	}
	begun, wait := h.checks.begin(s.Key)
	switch {
	case wait != "":
		return &problem{status: http.StatusServiceUnavailable, text: wait, retry: true}
	case begun != nil:
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), h.CheckLimit)
		stop := context.AfterFunc(h.Context, cancel)
		go func() {
			defer cancel()
			defer stop()
			h.runCheck(ctx, r, s, begun)
		}()
	}
	w.Header().Set("Location", sel.address("series"))
	w.WriteHeader(http.StatusSeeOther)
	return nil
}

// runCheck audits all periods of a series, and stores the results.
func (h *handler) runCheck(ctx context.Context, r *http.Request, s *Series, c *check) {
	var reports serial.Reports
	err := <-h.run(r, func() (err error) {
		reports, err = h.reports(ctx, s, c)
		return cmp.Or(err, ctx.Err())
	})
	if err != nil {
		h.log(r, "a check of all periods failed", err)
		h.checks.end(s.Key, nil)
		return
	}
	found := &checked{At: c.began, Periods: int64(len(reports.Periods)), WithoutCount: reports.WithoutCount,
		Foreign: reports.Foreign, ForeignCount: reports.ForeignCount}
	for i := range reports.Periods {
		report := &reports.Periods[i]
		p := periodFrom(s, report.Start)
		h.audits.keep(s.Key, p, report, c.began)
		if report.Last == 0 && report.BeyondCount > 0 {
			found.UncountedCount++
			found.Uncounted = append(found.Uncounted, p.Name+": "+plural(report.BeyondCount, "number", "numbers"))
		}
	}
	found.Uncounted = found.Uncounted[:min(len(found.Uncounted), maxListed)]
	for _, start := range reports.Without[:min(len(reports.Without), maxListed)] {
		found.Without = append(found.Without, periodFrom(s, start).Name)
	}
	h.checks.end(s.Key, found)
}

// reports returns the reports of all periods of a series whose counters still exist.
func (h *handler) reports(ctx context.Context, s *Series, c *check) (none serial.Reports, err error) {
	kept, err := s.Source.history(ctx, s.Type, maxHistory)
	if err != nil {
		return none, err
	}
	used := noTexts
	if len(kept) > 0 {
		_, _, to := s.periodInAllSchemes(periodFrom(s, kept[0].Start))
		_, from, _ := s.periodInAllSchemes(periodFrom(s, kept[len(kept)-1].Start))
		used = counting(s.Stored(ctx, from, to), func() { c.read.Add(1) })
	}
	opts := []serial.AuditOption{serial.WithEarlier(s.Earlier...)}
	if s.Explanations != nil {
		opts = append(opts, serial.WithExplanations(s.Explanations.Explanations(ctx, s.series(), time.Time{})))
	}
	return s.Source.auditAll(ctx, s.Type, used, opts...)
}

// A checkView is the data for the part of a page that shows the progress and the results of checks of all periods.
type checkView struct {
	checked
	Key      string
	From, To string // dates of the selection, as typed
	Wrong    bool   // whether the selection has only periods with discrepancies or without a valid check
	List     string // address of the list with the same selection
	Running  bool
	Began    time.Time
	Read     int64 // count of the stored numbers that have been read
}

// checkView returns the checkView of a series, or nil if the series has no Stored.
func (h *handler) checkView(sel selection) *checkView {
	s := sel.series
	if s.Stored == nil {
		return nil
	}
	v := &checkView{Key: s.Key, From: sel.from, To: sel.to, Wrong: sel.wrong, List: sel.address("series")}
	running, ended := h.checks.state(s.Key)
	if running != nil {
		v.Running, v.Began, v.Read = true, running.began.In(s.zone()), running.read.Load()
	}
	if ended != nil {
		v.checked = *ended
		v.At, v.Failed = ended.At.In(s.zone()), ended.Failed.In(s.zone())
	}
	return v
}
