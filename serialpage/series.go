package serialpage

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/dailyserial/serial"
)

const (
	periodsPerPage = 50
	fewPeriods     = 1000 // number of periods that are read at first, because most series have no more
	chartWidth     = 900
	chartHeight    = 120
)

// A periodRow is the row of a period on the page of a series.
type periodRow struct {
	period
	Href        string
	First, Last string // first and last number, or their sequences if the dates are unknown; "" if none was issued
	Issued      int64
	Closed      bool
	Current     bool
	Audited     *result // result of the latest audit, or nil if there was none
}

// A selection defines which periods of a series a page shows.
type selection struct {
	series *Series
	before time.Time // if not zero, the page shows the newest periods that begin before this time
	after  time.Time // if not zero, the page shows the oldest periods that begin after this time
	wrong  bool      // whether only periods with discrepancies or without a valid check are shown

	from, to string // first and last business day, such as 2021-10-24; "" if there is no limit
	whole    bool   // whether all periods are shown on one page, as in exports
}

const (
	discrepancies = "discrepancies" // value of the parameter "show" if selection.wrong is set
	onePage       = "one"           // value of the parameter "pages" if selection.whole is set
)

func readSelection(s *Series, query url.Values) (sel selection, err error) {
	sel = selection{series: s, wrong: s.Stored != nil && query.Get("show") == discrepancies,
		whole: query.Get("pages") == onePage}
	for name, at := range map[string]*time.Time{"before": &sel.before, "after": &sel.after} {
		text := query.Get(name)
		if text == "" {
			continue
		}
		if *at, err = time.Parse(time.RFC3339, text); err != nil {
			return sel, badRequest("The address of this page needs a time such as 2021-10-24T00:00:00Z.")
		}
	}
	for name, day := range map[string]*string{"from": &sel.from, "to": &sel.to} {
		*day = strings.TrimSpace(query.Get(name))
		if date, err := time.Parse(time.DateOnly, *day); *day != "" && (err != nil || date.Year() < 1970) {
			return sel, badRequest("Enter days from 1970 on, such as 2021-10-24.")
		}
	}
	if sel.to != "" && sel.to < sel.from {
		return sel, badRequest("The last day is before the first day.")
	}
	return sel, nil
}

// covers reports whether the period that begins at start contains a business day of the selection.
func (sel selection) covers(start time.Time) bool {
	p := periodFrom(sel.series, start)
	if sel.from == "" && sel.to == "" || !p.Ends() {
		return true
	}
	day := func(at time.Time) string { return p.scheme.BusinessDate(serial.At(at)).String() }
	return day(p.End.Add(-time.Second)) >= sel.from && (sel.to == "" || day(p.Start) <= sel.to)
}

// address returns the address of a page or a file with the same selection of periods. The arguments more are additional
// query parameters: names, each followed by its value.
func (sel selection) address(page string, more ...string) string {
	more = append(more, "from", sel.from, "to", sel.to)
	if sel.wrong {
		more = append(more, "show", discrepancies)
	}
	return address(page, sel.series.Key, time.Time{}, more...)
}

// A listing is the part of the selected periods that a page shows, newest first.
type listing struct {
	shown        []serial.Number
	newer, older bool // whether there are newer or older periods on other pages
	covered      bool // whether any kept period is between the dates of the selection
	cut          bool // whether there may be older periods that the history does not contain
}

// list returns the part of the selected periods that the page shows.
func (h *handler) list(ctx context.Context, sel selection) (l listing, err error) {
	_, err = sel.series.kept(ctx, func(kept []serial.Number) bool {
		l = sel.part(h.filter(sel, kept))
		l.covered = slices.ContainsFunc(kept, func(n serial.Number) bool { return sel.covers(n.Start) })
		l.cut = len(kept) == maxHistory
		return l.older // even older periods would not change the page
	})
	return l, err
}

// kept returns the periods of a series whose counters still exist, newest first. It reads at most fewPeriods of them at
// first. If the function enough returns false for these, it reads all.
func (s *Series) kept(ctx context.Context, enough func([]serial.Number) bool) (kept []serial.Number, err error) {
	for _, limit := range []int{fewPeriods, maxHistory} {
		if kept, err = s.Source.history(ctx, s.Type, limit); err != nil {
			return nil, unavailable(err)
		}
		if enough(kept) {
			break
		}
	}
	return kept, nil
}

// filter returns those of the kept periods that are selected, before they are divided into pages.
func (h *handler) filter(sel selection, kept []serial.Number) []serial.Number {
	return slices.DeleteFunc(slices.Clone(kept), func(n serial.Number) bool {
		if !sel.covers(n.Start) {
			return true
		}
		o, checked := h.audits.outcome(periodKey{sel.series.Key, n.Start.Unix()})
		return sel.wrong && checked && o.Clean && o.counts()
	})
}

// part returns the part of the selected periods that the page shows.
func (sel selection) part(all []serial.Number) listing {
	if sel.whole {
		return listing{shown: all}
	}
	first := func(old func(serial.Number) bool) int { // index of the first period for which the function old returns true
		if i := slices.IndexFunc(all, old); i >= 0 {
			return i
		}
		return len(all)
	}
	from, to := 0, min(len(all), periodsPerPage)
	switch {
	case !sel.before.IsZero():
		from = first(func(n serial.Number) bool { return n.Start.Before(sel.before) })
		to = min(len(all), from+periodsPerPage)
	case !sel.after.IsZero():
		to = first(func(n serial.Number) bool { return !n.Start.After(sel.after) })
		from = max(0, to-periodsPerPage)
	}
	return listing{shown: all[from:to], newer: from > 0, older: to < len(all)}
}

// A seriesView is the data for the page of a series.
type seriesView struct {
	Series       *Series
	Zone, Limits string
	Rows         []periodRow
	Chart        chart
	At           time.Time
	Wrong        bool   // whether only periods with discrepancies or without a valid check are shown
	Covered      bool   // whether any kept period is between From and To, even if it is not shown
	All, Some    string // addresses of the pages with Wrong false and true; "" if the series has no Stored
	From, To     string // first and last day, as typed
	Newer, Older string // addresses of the adjacent pages; "" if there is no such page
	Whole        string // address of the page with all periods, or "" if this page has all of them
	CSV, JSON    string // addresses of the list in other formats
	Total        *total // totals, or nil if other pages have more periods
	Sheet        sheet
	Cut          bool  // whether there may be periods that are too old to be listed
	Max          int64 // maximum number of periods on all pages together
	Check        *checkView
}

// series serves the page of a series, or the list of its periods as CSV or JSON.
func (h *handler) series(w http.ResponseWriter, r *http.Request) error {
	s, err := h.find(r.Context(), r.URL.Query())
	if err != nil {
		return err
	}
	sel, err := readSelection(s, r.URL.Query())
	if err != nil {
		return err
	}
	format := requestFormat(r)
	w.Header().Set("Content-Type", contentTypes[format])
	sel.whole = sel.whole || format != ""
	v, err := h.seriesView(r.Context(), sel)
	if err != nil {
		return err
	}
	switch format {
	case "csv":
		return writePeriodsCSV(w, v)
	case "json":
		return writePeriodsJSON(w, v)
	}
	name, _ := h.user(r)
	v.Sheet = h.sheet(name, s)
	h.write(w, http.StatusOK, "series.html", frame{Title: s.Name, Back: []link{home}}, v)
	return nil
}

// seriesView returns the data for the page of a series. It does not set Sheet.
func (h *handler) seriesView(ctx context.Context, sel selection) (*seriesView, error) {
	s := sel.series
	l, err := h.list(ctx, sel)
	if err != nil {
		return nil, err
	}
	closed, err := s.Source.closed(ctx, s.Type)
	if err != nil {
		return nil, unavailable(err)
	}
	first, _ := s.Source.scheme().Limits()
	v := &seriesView{Series: s, Zone: zoneName(s.zone()), Limits: limitsText(s), At: time.Now().In(s.zone()),
		From: sel.from, To: sel.to, Wrong: sel.wrong, Covered: l.covered, Cut: l.cut && !l.older, Max: maxHistory,
		Check: h.checkView(sel)}
	for _, n := range l.shown {
		v.Rows = append(v.Rows, h.periodRow(s, n, first, closed))
	}
	if !sel.whole {
		v.Chart = resultChart(v.Rows)
	}
	if !l.newer && !l.older && len(v.Rows) > 0 {
		v.Total = sumRows(v.Rows)
	}
	v.addLinks(sel, l)
	return v, nil
}

// addLinks adds the addresses of the list in other formats, and of the other pages of the list.
func (v *seriesView) addLinks(sel selection, l listing) {
	v.CSV, v.JSON = sel.address("series.csv"), sel.address("series.json")
	beside := func(name string, n serial.Number) string {
		return sel.address("series", name, n.Start.UTC().Format(time.RFC3339))
	}
	switch {
	case !l.newer && !l.older:
	case len(l.shown) == 0: // no period begins before or after the time in the address
		v.Newer = sel.address("series")
	default:
		if l.newer {
			v.Newer = beside("after", l.shown[0])
		}
		if l.older {
			v.Older = beside("before", l.shown[len(l.shown)-1])
		}
	}
	if l.newer || l.older {
		v.Whole = sel.address("series", "pages", onePage)
	}
	if sel.series.Stored != nil {
		sel.wrong = false
		v.All = sel.address("series")
		sel.wrong = true
		v.Some = sel.address("series")
	}
}

func (h *handler) periodRow(s *Series, n serial.Number, first int64, closed time.Time) periodRow {
	p, now := periodFrom(s, n.Start), time.Now()
	row := periodRow{period: p, Href: address("period", s.Key, n.Start), Last: numberText(n),
		Issued: max(0, n.Seq-first+1), Closed: !p.End.After(closed),
		Current: !now.Before(p.Start) && now.Before(p.End)}
	if row.Issued > 0 {
		row.First = newPrinter(s, p).ranged(serial.Range{First: first, Last: first})
	}
	if o, ok := h.audits.outcome(periodKey{s.Key, n.Start.Unix()}); ok {
		row.Audited = newResult(s, o, n.Seq)
	}
	return row
}

// resultChart returns a chart of the stored, explained and unexplained numbers of each period. If a period has not been
// audited, its column shows the issued numbers instead.
func resultChart(rows []periodRow) chart {
	var stacks []stack
	for _, row := range slices.Backward(rows) {
		stack := stack{title: fmt.Sprintf("%s: %s issued, not checked", row.Name, count(row.Issued)), label: row.Name,
			parts: []part{{"issued", row.Issued}}}
		if a := row.Audited; a != nil {
			stack.title = fmt.Sprintf("%s: %s stored, %s explained, %s not explained", row.Name, count(a.Stored),
				count(a.Explained), count(a.Unexplained))
			stack.parts = []part{{"stored", a.Stored}, {"explained", a.Explained}, {"unexplained", a.Unexplained},
				{"issued", row.Issued - a.Stored - a.Explained - a.Unexplained}} // numbers issued after the audit
		}
		stacks = append(stacks, stack)
	}
	return draw(stacks, min(chartWidth/max(len(stacks), 1), 28), chartHeight)
}
