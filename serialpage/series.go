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
	shownPeriods = 50   // on a page of a series
	fewPeriods   = 1000 // read at first; most series have no more
	chartWidth   = 900
	chartHeight  = 120
)

// A periodRow is a period on the page of a series.
type periodRow struct {
	span
	Href        string
	First, Last string // numbers, or their sequences; "" if none was issued
	Issued      int64
	Closed      bool
	Current     bool
	Audited     *result // last audit; nil if there was none
}

// A selection says which of a series' periods a page shows, newest first.
type selection struct {
	series *Series
	before time.Time // they are older than this start of a period; zero: the newest ones
	after  time.Time // they are the ones next to this start that are newer; zero: as above
	wrong  bool      // only those with discrepancies, and those not checked

	from, to string // first and last business day, such as 2021-10-24; "" is open
	whole    bool   // all of them, as in exports
}

const (
	discrepancies = "discrepancies" // value of the parameter "show" for a selection of periods with discrepancies
	onePage       = "one"           // value of the parameter "pages" for all periods of a selection on one page
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
			return sel, badRequest("A page of periods begins at a time such as 2021-10-24T00:00:00Z.")
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

// covers reports whether a period has one of the days of a selection.
func (sel selection) covers(start time.Time) bool {
	p := spanOf(sel.series, start)
	if sel.from == "" && sel.to == "" || !p.Ends() {
		return true
	}
	day := func(at time.Time) string { return p.scheme.BusinessDate(serial.At(at)).String() }
	return day(p.End.Add(-time.Second)) >= sel.from && (sel.to == "" || day(p.Start) <= sel.to)
}

// address is the address of a page or a file with the same choice of periods. more has further names and values.
func (sel selection) address(page string, more ...string) string {
	more = append(more, "from", sel.from, "to", sel.to)
	if sel.wrong {
		more = append(more, "show", discrepancies)
	}
	return address(page, sel.series.Key, time.Time{}, more...)
}

// A listing is what a page shows of a series' periods, newest first.
type listing struct {
	shown        []serial.Number
	newer, older bool // there are others
	cut          bool // there may be periods that are too old to be listed
}

// list returns the periods of a selection.
func (h *handler) list(ctx context.Context, sel selection) (l listing, err error) {
	_, err = sel.series.kept(ctx, func(kept []serial.Number) bool {
		l = sel.part(h.lookAt(sel, kept))
		l.cut = len(kept) == longestHistory
		return l.older // the rest makes no difference
	})
	return l, err
}

// kept returns the periods of a series that are kept, newest first: the first ones if these are enough, otherwise all.
func (s *Series) kept(ctx context.Context, enough func([]serial.Number) bool) (kept []serial.Number, err error) {
	for _, most := range []int{fewPeriods, longestHistory} {
		if kept, err = s.Source.history(ctx, s.Type, most); err != nil {
			return nil, unavailable(err)
		}
		if enough(kept) {
			break
		}
	}
	return kept, nil
}

// lookAt returns the periods that a selection is about, wherever they are in the list.
func (h *handler) lookAt(sel selection, kept []serial.Number) []serial.Number {
	return slices.DeleteFunc(slices.Clone(kept), func(n serial.Number) bool {
		if !sel.covers(n.Start) {
			return true
		}
		o, checked := h.audits.outcome(periodKey{sel.series.Key, n.Start.Unix()})
		return sel.wrong && checked && o.Clean && o.counts()
	})
}

// part returns the part of a list that a page shows.
func (sel selection) part(all []serial.Number) listing {
	if sel.whole {
		return listing{shown: all}
	}
	first := func(old func(serial.Number) bool) int { // in the list, which is sorted
		if i := slices.IndexFunc(all, old); i >= 0 {
			return i
		}
		return len(all)
	}
	from, to := 0, min(len(all), shownPeriods)
	switch {
	case !sel.before.IsZero():
		from = first(func(n serial.Number) bool { return n.Start.Before(sel.before) })
		to = min(len(all), from+shownPeriods)
	case !sel.after.IsZero():
		to = first(func(n serial.Number) bool { return !n.Start.After(sel.after) })
		from = max(0, to-shownPeriods)
	}
	return listing{shown: all[from:to], newer: from > 0, older: to < len(all)}
}

// A seriesView is the page of a series.
type seriesView struct {
	Series       *Series
	Zone, Reach  string
	Rows         []periodRow
	Chart        chart
	At           time.Time
	Wrong        bool   // it shows only the periods at which somebody should look
	All, Some    string // addresses of the pages with all and with these; "" if there is no choice
	From, To     string // first and last day, as typed
	Newer, Older string // addresses of the next pages; "" if there is none
	Whole        string // address of the page with all periods; "" if this page has all
	CSV, JSON    string // addresses of the list in other forms
	Total        *total // nil if other pages have more periods
	Sheet        sheet
	Cut          bool  // there may be periods that are too old to be listed
	Most         int64 // periods listed on all pages
	Check        *checkView
}

// series is the page of a series, or the list of its periods as CSV or JSON.
func (h *handler) series(w http.ResponseWriter, r *http.Request) error {
	s, err := h.find(r.Context(), r.URL.Query())
	if err != nil {
		return err
	}
	sel, err := readSelection(s, r.URL.Query())
	if err != nil {
		return err
	}
	format := formatOf(r)
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

// seriesView reads what a page of a series shows, without its Sheet.
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
	v := &seriesView{Series: s, Zone: zoneName(s.zone()), Reach: reachText(s), At: time.Now().In(s.zone()),
		From: sel.from, To: sel.to, Wrong: sel.wrong, Cut: l.cut && !l.older, Most: longestHistory, Check: h.checkView(s)}
	for _, n := range l.shown {
		v.Rows = append(v.Rows, h.periodRow(s, n, first, closed))
	}
	if !sel.whole {
		v.Chart = accountChart(v.Rows)
	}
	if !l.newer && !l.older && len(v.Rows) > 0 {
		v.Total = totalOf(v.Rows)
	}
	v.addLinks(sel, l)
	return v, nil
}

// addLinks adds the addresses of the same list in other forms, and of its other pages.
func (v *seriesView) addLinks(sel selection, l listing) {
	v.CSV, v.JSON = sel.address("series.csv"), sel.address("series.json")
	beside := func(name string, n serial.Number) string {
		return sel.address("series", name, n.Start.UTC().Format(time.RFC3339))
	}
	switch {
	case !l.newer && !l.older:
	case len(l.shown) == 0: // nothing is older, or newer, than somebody's address says
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
	p, now := spanOf(s, n.Start), time.Now()
	row := periodRow{span: p, Href: address("period", s.Key, n.Start), Last: numberText(n),
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

// accountChart draws how many numbers of each period are stored, explained and unexplained, as far as it was audited.
func accountChart(rows []periodRow) chart {
	var stacks []stack
	for _, row := range slices.Backward(rows) {
		stack := stack{title: fmt.Sprintf("%s: %s issued, not checked", row.Name, count(row.Issued)), label: row.Name,
			parts: []part{{"issued", row.Issued}}}
		if a := row.Audited; a != nil {
			stack.title = fmt.Sprintf("%s: %s stored, %s explained, %s not explained", row.Name, count(a.Stored),
				count(a.Explained), count(a.Unexplained))
			stack.parts = []part{{"stored", a.Stored}, {"explained", a.Explained}, {"unexplained", a.Unexplained},
				{"issued", row.Issued - a.Stored - a.Explained - a.Unexplained}} // since then
		}
		stacks = append(stacks, stack)
	}
	return draw(stacks, min(chartWidth/max(len(stacks), 1), 28), chartHeight)
}
