package serialpage

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dailyserial/serial"
)

const (
	checksAtOnce  = 2
	checkPause    = time.Minute // at least, from the end of a check of a series to its next one
	pausePerCheck = 10          // the same in times that the last check took
)

// checks are the checks of all periods of a series, which belong to the handler: every reader sees them.
type checks struct {
	mu      sync.Mutex
	running map[string]*check   // by Series.Key
	ended   map[string]*checked // the last check of each series that ended
}

// A check is running.
type check struct {
	began time.Time
	read  atomic.Int64 // numbers so far
}

// A checked has what a check found that belongs to no single period.
type checked struct {
	at           time.Time // when it began to read the numbers; all results have this time
	took         time.Duration
	failed       bool // it has no result
	periods      int
	foreign      []string
	foreignCount int64
	without      []time.Time
	withoutCount int64
}

// begin begins a check of a series, unless text says why it must wait. If a check of the series is running, both are
// zero.
func (c *checks) begin(key string) (begun *check, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running[key] != nil {
		return nil, ""
	}
	if last := c.ended[key]; last != nil {
		pause := max(checkPause, pausePerCheck*last.took)
		if wait := time.Until(last.at.Add(last.took + pause)); wait > 0 {
			return nil, fmt.Sprintf("This series was checked just now. It can be checked again in %s.",
				plural(int64(wait/time.Minute)+1, "minute", "minutes"))
		}
	}
	if len(c.running) >= checksAtOnce {
		return nil, "Other series are being checked. Try again when their checks have ended."
	}
	begun = &check{began: time.Now()}
	c.running[key] = begun
	return begun, ""
}

// end ends a check.
func (c *checks) end(key string, result *checked) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.running, key)
	if last := c.ended[key]; last != nil && result.failed { // what the last one found still counts
		failed := *last
		failed.at, failed.took, failed.failed = result.at, result.took, true
		result = &failed
	}
	c.ended[key] = result
}

// of returns the running check of a series and the last one that ended; nil if there is none.
func (c *checks) of(key string) (*check, *checked) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running[key], c.ended[key]
}

// check begins a check of all periods of a series, and sends the client back to the page of the series.
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
	begun, wait := h.checks.begin(s.Key)
	switch {
	case wait != "":
		return s.inZone(&problem{status: http.StatusServiceUnavailable, text: wait, retry: true})
	case begun != nil:
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), h.CheckLimit)
		stop := context.AfterFunc(h.Context, cancel)
		go func() {
			defer cancel()
			defer stop()
			h.runCheck(ctx, r, s, begun)
		}()
	}
	w.Header().Set("Location", seriesLink(s).Href)
	w.WriteHeader(http.StatusSeeOther)
	return nil
}

// runCheck accounts for all periods of a series, and keeps the results.
func (h *handler) runCheck(ctx context.Context, r *http.Request, s *Series, c *check) {
	result := &checked{at: c.began, failed: true}
	defer func() {
		if value := recover(); value != nil {
			h.log(r, "a check of all periods failed", fmt.Sprintf("panic: %v\n%s", value, debug.Stack()))
		}
		result.took = time.Since(c.began)
		h.checks.end(s.Key, result)
	}()
	reports, err := h.reports(ctx, s, c)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		h.log(r, "a check of all periods failed", err)
		return
	}
	result = &checked{at: c.began, periods: len(reports.Periods), foreign: reports.Foreign,
		foreignCount: reports.ForeignCount, without: reports.Without, withoutCount: reports.WithoutCount}
	for i := range reports.Periods {
		h.audits.keep(s.Key, spanOf(s, reports.Periods[i].Start), &reports.Periods[i], c.began)
	}
}

// reports makes the reports of all periods that are kept.
func (h *handler) reports(ctx context.Context, s *Series, c *check) (none serial.Reports, err error) {
	kept, err := s.Source.history(ctx, s.Type, longestHistory)
	if err != nil {
		return none, err
	}
	used := noTexts
	if len(kept) > 0 {
		_, _, to := s.reach(spanOf(s, kept[0].Start))
		_, from, _ := s.reach(spanOf(s, kept[len(kept)-1].Start))
		used = c.count(s.Stored(ctx, from, to))
	}
	opts := []serial.AuditOption{serial.WithEarlier(s.Earlier...)}
	if s.Explanations != nil {
		opts = append(opts, serial.WithExplanations(s.Explanations.Explanations(ctx, s.series(), time.Time{})))
	}
	return s.Source.auditAll(ctx, s.Type, used, opts...)
}

// count yields texts and counts them.
func (c *check) count(texts iter.Seq2[string, error]) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for text, err := range texts {
			if c.read.Add(1); !yield(text, err) {
				return
			}
		}
	}
}

// A checkView says on the page of a series what a check of all periods found.
type checkView struct {
	Key     string
	Running bool
	Began   time.Time
	Read    int64 // numbers so far

	Done         bool // a check has ended
	Failed       bool // the last one
	At           time.Time
	Periods      int64
	Foreign      []string
	ForeignCount int64
	Without      []string // names of periods
	WithoutCount int64
}

// checkView returns what the page of a series says about checks; nil if the series is not checked.
func (h *handler) checkView(s *Series) *checkView {
	if s.Stored == nil {
		return nil
	}
	v := &checkView{Key: s.Key}
	running, ended := h.checks.of(s.Key)
	if running != nil {
		v.Running, v.Began, v.Read = true, running.began.In(s.zone()), running.read.Load()
	}
	if ended != nil {
		v.Done, v.Failed, v.At, v.Periods = true, ended.failed, ended.at.In(s.zone()), int64(ended.periods)
		v.ForeignCount, v.WithoutCount = ended.foreignCount, ended.withoutCount
		v.Foreign = slices.Clone(ended.foreign)
		for _, start := range ended.without[:min(len(ended.without), mostListed)] {
			v.Without = append(v.Without, spanOf(s, start).Name)
		}
	}
	return v
}
