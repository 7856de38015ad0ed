package serialpage

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/dailyserial/serial"
)

const (
	askedAtOnce    = 16 // series of the first page
	overviewLength = 30 // periods in the chart of a series
)

// An overviewRow is a series on the first page.
type overviewRow struct {
	Name, Type, Href string
	Failed           bool // what follows is not known
	Lost             bool // its counter is
	Period           span
	Last             string // the number, or its sequence; "" if none was issued
	Full             int64  // per cent of the period's numbers that were issued
	Issued, Size     int64
	Chart            chart
	Audited          *result
}

// A result is what the last audit found, for people.
type result struct {
	outcome
	Period string
	Href   string
}

// At is when the audit was made.
func (r result) At() time.Time { return r.at }

// Text is what it found.
func (r result) Text() string { return r.outcome.text() }

// Clean reports whether all numbers are accounted for.
func (r result) Clean() bool { return r.clean }

// text says what an audit found.
func (o outcome) text() string {
	switch {
	case o.clean && o.explained > 0:
		return "All accounted for, " + count(o.explained) + " explained"
	case o.clean:
		return "All accounted for"
	case o.unexplained > 0:
		return count(o.unexplained) + " not explained"
	}
	return "Not all accounted for"
}

// overview is the page of all series.
func (h *handler) overview(w http.ResponseWriter, r *http.Request) error {
	all, err := h.shown(r.Context())
	if err != nil {
		return err
	}
	if r.Method == http.MethodHead {
		h.write(w, http.StatusOK, "overview.html", frame{Title: "Numbers"}, nil)
		return nil
	}
	rows := make([]overviewRow, len(all))
	var work sync.WaitGroup
	next := make(chan int)
	for range min(askedAtOnce, len(all)) {
		work.Go(func() {
			for i := range next {
				rows[i] = h.overviewRow(r.Context(), &all[i])
			}
		})
	}
	for i := range all {
		next <- i
	}
	close(next)
	work.Wait()
	h.write(w, http.StatusOK, "overview.html", frame{Title: "Numbers"}, struct {
		Rows  []overviewRow
		Count int64
		At    time.Time
	}{rows, int64(len(rows)), time.Now()})
	return nil
}

// overviewRow reads where a series is.
func (h *handler) overviewRow(ctx context.Context, s *Series) overviewRow {
	row := overviewRow{Name: s.Name, Type: s.Type, Href: address("series", s.Key, time.Time{})}
	if o, ok := h.audits.last(s.Key); ok {
		row.Audited = &result{outcome: o, Period: spanOf(s, o.start).Name(), Href: address("period", s.Key, o.start)}
	}
	last, err := s.Source.last(ctx, s.Type)
	if errors.Is(err, serial.ErrCounterLost) {
		row.Lost = true
		return row
	}
	var history []serial.Number
	if err == nil {
		history, err = s.Source.history(ctx, s.Type, overviewLength)
	}
	if err != nil {
		h.Logger.ErrorContext(ctx, "serialpage: a series could not be read", "series", s.Key, "err", err)
		row.Failed = true
		return row
	}
	scheme := s.Source.scheme()
	first, largest := scheme.Limits()
	row.Period = spanOf(s, last.Start)
	row.Last = numberText(scheme, last)
	row.Size, row.Issued = largest-first+1, max(0, last.Seq-first+1)
	row.Full = int64(float64(row.Issued) / float64(row.Size) * 100)
	row.Chart = usage(s, history, first)
	return row
}

// spanOf returns the period that begins at start.
func spanOf(s *Series, start time.Time) span {
	if p, ok := spanAt(s.Source.scheme(), start); ok {
		return p
	}
	return span{Start: start, End: start} // that of 1 January 1970 may begin before any date
}

// numberText is a number, or its sequence if its date is not known, or "" if none was issued.
func numberText(scheme *serial.Scheme, n serial.Number) string {
	switch {
	case n.Seq == 0:
		return ""
	case n.Date.IsZero():
		return digits(scheme, n.Seq)
	}
	return n.String()
}
