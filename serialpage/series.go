package serialpage

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
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
	Name, Href string
	Last       string
	Issued     int64
	Closed     bool
	Current    bool
	Audited    *result // last audit; nil if there was none
}

// A selection says which of a series' periods a page shows, newest first.
type selection struct {
	before time.Time // they are older than this start of a period; zero: the newest ones
	after  time.Time // they are the ones next to this start that are newer; zero: as above
	wrong  bool      // only those with discrepancies, and those not checked
}

// discrepancies is the value of the parameter "show" for a selection of periods with discrepancies.
const discrepancies = "discrepancies"

func readSelection(s *Series, query url.Values) (sel selection, err error) {
	sel.wrong = s.Stored != nil && query.Get("show") == discrepancies
	for name, at := range map[string]*time.Time{"before": &sel.before, "after": &sel.after} {
		text := query.Get(name)
		if text == "" {
			continue
		}
		if *at, err = time.Parse(time.RFC3339, text); err != nil {
			return sel, badRequest("A page of periods begins at a time such as 2021-10-24T00:00:00Z.")
		}
	}
	return sel, nil
}

// address is the address of the page with a selection.
func (sel selection) address(s *Series) string {
	var more []string
	for name, at := range map[string]time.Time{"before": sel.before, "after": sel.after} {
		if !at.IsZero() {
			more = append(more, name, at.UTC().Format(time.RFC3339))
		}
	}
	if sel.wrong {
		more = append(more, "show", discrepancies)
	}
	return address("series", s.Key, time.Time{}, more...)
}

// A listing is what a page shows of a series' periods, newest first.
type listing struct {
	shown        []serial.Number
	newer, older bool // there are others
	cut          bool // there may be periods that are too old to be listed
}

// list returns the periods of a selection.
func (h *handler) list(ctx context.Context, s *Series, sel selection) (l listing, err error) {
	for _, most := range []int{fewPeriods, longestHistory} {
		history, err := s.Source.history(ctx, s.Type, most)
		if err != nil {
			return l, unavailable(err)
		}
		whole := h.beginnings.reached(s.Key, history, most)
		l = sel.of(h.lookAt(s, sel, history))
		if l.cut = len(history) == longestHistory; l.older || whole {
			break // the rest makes no difference
		}
	}
	return l, nil
}

// beginnings remember the oldest period of series that have no more than a history lists. No older one can appear,
// unless somebody restores it, so they are forgotten after an hour.
type beginnings struct{ bySeries sync.Map } // Series.Key to a beginning

type beginning struct {
	start, read time.Time
}

// reached reports whether a history of up to most periods is known to have the oldest period of a series.
func (b *beginnings) reached(key string, history []serial.Number, most int) bool {
	if len(history) == 0 {
		return false
	}
	oldest := history[len(history)-1].Start
	if most == longestHistory {
		b.bySeries.Store(key, beginning{oldest, time.Now()})
		return true
	}
	known, ok := b.bySeries.Load(key)
	return ok && !oldest.After(known.(beginning).start) && time.Since(known.(beginning).read) < time.Hour
}

// lookAt returns the periods that a selection is about, wherever they are in the list.
func (h *handler) lookAt(s *Series, sel selection, history []serial.Number) []serial.Number {
	if !sel.wrong {
		return history
	}
	return slices.DeleteFunc(history, func(n serial.Number) bool {
		o, checked := h.audits.outcome(periodKey{s.Key, n.Start.Unix()})
		return checked && o.clean && time.Since(o.at) < resultAge
	})
}

// of returns the part of a list that a page shows.
func (sel selection) of(all []serial.Number) listing {
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
	Newer, Older string // addresses of the next pages; "" if there is none
	Cut          bool   // there may be periods that are too old to be listed
	Most         int64  // periods listed on all pages
	Check        *checkView
}

// series is the page of a series.
func (h *handler) series(w http.ResponseWriter, r *http.Request) error {
	s, err := h.find(r.Context(), r.URL.Query())
	if err != nil {
		return err
	}
	if r.Method == http.MethodHead {
		return writeHead(w)
	}
	v, err := h.seriesView(r.Context(), s, r.URL.Query())
	if err != nil {
		return s.inZone(err)
	}
	h.write(w, http.StatusOK, "series.html", frame{Title: s.Name, Back: []link{home}}, v)
	return nil
}

func (h *handler) seriesView(ctx context.Context, s *Series, query url.Values) (*seriesView, error) {
	sel, err := readSelection(s, query)
	if err != nil {
		return nil, err
	}
	l, err := h.list(ctx, s, sel)
	if err != nil {
		return nil, err
	}
	closed, err := s.Source.closed(ctx, s.Type)
	if err != nil {
		return nil, unavailable(err)
	}
	first, _ := s.Source.scheme().Limits()
	v := &seriesView{Series: s, Zone: zoneName(s.zone()), Reach: reachText(s), Chart: h.accountChart(s, l.shown, first),
		At: time.Now().In(s.zone()), Wrong: sel.wrong, Cut: l.cut && !l.older, Most: longestHistory, Check: h.checkView(s)}
	for _, n := range l.shown {
		v.Rows = append(v.Rows, h.periodRow(s, n, first, closed))
	}
	if s.Stored != nil {
		v.All, v.Some = selection{}.address(s), selection{wrong: true}.address(s)
	}
	switch {
	case len(l.shown) > 0:
		if l.newer {
			v.Newer = selection{wrong: sel.wrong, after: l.shown[0].Start}.address(s)
		}
		if l.older {
			v.Older = selection{wrong: sel.wrong, before: l.shown[len(l.shown)-1].Start}.address(s)
		}
	case l.newer || l.older: // nothing is older, or newer, than somebody's address says
		v.Newer = selection{wrong: sel.wrong}.address(s)
	}
	return v, nil
}

func (h *handler) periodRow(s *Series, n serial.Number, first int64, closed time.Time) periodRow {
	p, now := spanOf(s, n.Start), time.Now()
	row := periodRow{Name: p.Name, Href: address("period", s.Key, n.Start), Last: numberText(n),
		Issued: max(0, n.Seq-first+1), Closed: !p.End.After(closed),
		Current: !now.Before(p.Start) && now.Before(p.End)}
	if o, ok := h.audits.outcome(periodKey{s.Key, n.Start.Unix()}); ok {
		row.Audited = newResult(s, o)
	}
	return row
}

// accountChart draws how many numbers of each period are stored, explained and unexplained, as far as it was audited.
func (h *handler) accountChart(s *Series, shown []serial.Number, first int64) chart {
	var stacks []stack
	for _, n := range slices.Backward(shown) {
		issued, name := max(0, n.Seq-first+1), spanOf(s, n.Start).Name
		stack := stack{title: fmt.Sprintf("%s: %s issued, not checked", name, count(issued)), label: name,
			parts: []part{{"issued", issued}}}
		if o, ok := h.audits.outcome(periodKey{s.Key, n.Start.Unix()}); ok {
			stack.title = fmt.Sprintf("%s: %s stored, %s explained, %s not explained", name, count(o.stored), count(o.explained),
				count(o.unexplained))
			stack.parts = []part{{"stored", o.stored}, {"explained", o.explained}, {"unexplained", o.unexplained},
				{"issued", issued - o.stored - o.explained - o.unexplained}} // since then
		}
		stacks = append(stacks, stack)
	}
	return draw(stacks, min(chartWidth/max(len(stacks), 1), 28), chartHeight)
}
