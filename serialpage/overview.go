package serialpage

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/dailyserial/serial"
)

const (
	maxSeriesReads = 16 // number of series that are read at the same time
	maxRows        = 1000
	overviewLength = 30 // number of periods in the chart of a series
)

// An overviewRow is a series on the first page.
type overviewRow struct {
	Name, Type, Href string
	Failed           bool // whether the series could not be read
	Lost             bool // whether the counter was lost
	Period           period
	Last             string // last number, or its sequence if its date is unknown; "" if no number was issued
	Issued           int64
	Full             string // share of the period's numbers that are issued; "" if the period is practically unlimited
	Until            string // text with the last day for which numbers are issued; "" if there is none
	NearlyFull       bool   // whether at least 80% of the period's numbers have been issued
	NearlyOver       bool   // whether the last day is near or past
	Chart            chart
	Audited          *result // latest audit with discrepancies, or otherwise the latest audit; nil if there was none
	Checked          int64   // count of the periods with a valid check
	Wrong            int64   // count of the periods with a valid check and discrepancies
}

// A result is the outcome of an audit in the form in which a page shows it.
type result struct {
	outcome
	Period, Href string
	Since        string // reason why the outcome is out of date, or ""
}

// newResult returns the result for an outcome. The argument last is the last sequence issued in the period so far.
func newResult(s *Series, o outcome, last int64) *result {
	p := periodFrom(s, o.Start)
	o.At = o.At.In(p.Start.Location())
	return &result{o, p.Name, address("period", s.Key, o.Start), o.since(last)}
}

// overview serves the page of all series.
func (h *handler) overview(w http.ResponseWriter, r *http.Request) error {
	all, err := h.allSeries(r.Context())
	if err != nil {
		return err
	}
	shown := all[:min(len(all), maxRows)]
	rows := make([]overviewRow, len(shown))
	failed := make([]error, len(shown))
	summaries := h.audits.summaries()
	var work sync.WaitGroup
	next := make(chan int)
	for range min(maxSeriesReads, len(shown)) {
		work.Go(func() {
			for i := range next {
				found := summaries[shown[i].Key]
				rows[i], failed[i] = h.overviewRow(r, &shown[i], found.shown)
				rows[i].Checked, rows[i].Wrong = found.checked, found.wrong
			}
		})
	}
	for i := range shown {
		next <- i
	}
	close(next)
	work.Wait()
	if i := slices.IndexFunc(failed, func(err error) bool { return err != nil }); i >= 0 { // only one error is logged
		h.Logger.ErrorContext(r.Context(), "serialpage: a series could not be read", "series", shown[i].Key, "err", failed[i])
	}
	at := time.Now().UTC()
	if len(all) > 0 {
		at = at.In(all[0].zone())
	}
	h.write(w, http.StatusOK, "overview.html", frame{Title: home.Text}, struct {
		Rows    []overviewRow
		Count   int64
		Cut     bool
		Periods int
		At      time.Time
	}{rows, int64(len(all)), len(all) > len(shown), overviewLength, at})
	return nil
}

// overviewRow returns the row of a series. It returns when the context of the request ends, even if a method of the
// Source is still running.
func (h *handler) overviewRow(r *http.Request, s *Series, audited outcome) (overviewRow, error) {
	empty := overviewRow{Name: s.Name, Type: s.Type, Href: seriesLink(s).Href}
	if !audited.At.IsZero() {
		empty.Audited = newResult(s, audited, audited.last)
	}
	row := empty
	ctx := r.Context()
	if _, err := h.within(ctx, r, func() error { return row.read(ctx, s, audited) }); err != nil {
		empty.Failed = true
		return empty, err
	}
	return row, nil
}

// read sets the fields whose values come from the Source of a series.
func (row *overviewRow) read(ctx context.Context, s *Series, audited outcome) error {
	last, err := s.Source.last(ctx, s.Type)
	if errors.Is(err, serial.ErrCounterLost) {
		row.Lost = true
		return nil
	}
	if err != nil {
		return err
	}
	history, err := s.Source.history(ctx, s.Type, overviewLength)
	if err != nil {
		return err
	}
	scheme := s.Source.scheme()
	first, largest := scheme.Limits()
	row.Period = periodFrom(s, last.Start)
	row.Last = numberText(last)
	if row.Audited != nil && audited.Start.Equal(last.Start) {
		row.Audited = newResult(s, audited, last.Seq)
	}
	row.Issued = max(0, last.Seq-first+1)
	if size := largest - first + 1; size < endless {
		row.Full = fullText(row.Issued, size)
		if row.NearlyFull = float64(row.Issued) >= 0.8*float64(size); row.NearlyFull {
			row.Full = "nearly full: " + row.Full
		}
	}
	if day, ok := scheme.Until(); ok {
		row.Until, row.NearlyOver = untilText(day.String(), scheme.BusinessDate(serial.At(time.Now())).String())
	}
	row.Chart = usage(s, history, first)
	return nil
}

// untilText returns a text with the last day for which numbers are issued. The result near is true if this day is past
// or at most 29 days away, as in the warnings of serial.Hooks. Both days have the form 2026-08-01.
func untilText(last, today string) (text string, near bool) {
	date, _ := time.Parse(time.DateOnly, last)
	text = date.Format("2 January 2006")
	switch {
	case today > last:
		return "ended on " + text, true
	case today >= date.AddDate(0, 0, -29).Format(time.DateOnly):
		return "only until " + text, true
	}
	return "until " + text, false
}

// endless is a count that no application reaches in a period. If a period can have this many numbers or more, the pages
// do not show how full it is.
const endless = 1_000_000_000

// fullText returns the share of a period's numbers that are issued, as text. It is 0% only if no number was issued, and
// 100% only if all numbers were.
func fullText(issued, size int64) string {
	share := fmt.Sprintf("%.1f%%", min(float64(issued)/float64(size)*100, 99.9))
	switch {
	case issued == 0:
		share = "0%"
	case issued*1000 < size:
		share = "<0.1%"
	case issued >= size:
		share = "100%"
	}
	return share + " of " + count(size)
}
