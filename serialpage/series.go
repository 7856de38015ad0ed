package serialpage

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/dailyserial/serial"
)

const (
	mostPeriods = 1000 // on the page of a series
	mostColumns = 60   // in its chart
	chartWidth  = 900
	chartHeight = 120
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

// series is the page of a series.
func (h *handler) series(w http.ResponseWriter, r *http.Request) error {
	s, err := h.find(r.Context(), r.URL.Query())
	if err != nil {
		return err
	}
	f := frame{Title: s.Name, Back: []link{home}}
	if r.Method == http.MethodHead {
		return writeHead(w)
	}
	history, err := s.Source.history(r.Context(), s.Type, mostPeriods+1)
	if err != nil {
		return unavailable(err)
	}
	closed, err := s.Source.closed(r.Context(), s.Type)
	if err != nil {
		return unavailable(err)
	}
	more := len(history) > mostPeriods
	history = history[:min(len(history), mostPeriods)]
	scheme := s.Source.scheme()
	first, _ := scheme.Limits()
	current, _ := spanAt(scheme, time.Now())
	rows := []periodRow{}
	for _, n := range history {
		p := spanOf(s, n.Start)
		row := periodRow{Name: p.Name, Href: address("period", s.Key, n.Start), Last: numberText(n),
			Issued: max(0, n.Seq-first+1), Closed: !p.End.After(closed), Current: p.Start.Equal(current.Start)}
		if o, ok := h.audits.outcome(periodKey{s.Key, n.Start.Unix()}); ok {
			row.Audited = newResult(s, o)
		}
		rows = append(rows, row)
	}
	h.write(w, http.StatusOK, "series.html", f, struct {
		Series *Series
		Zone   string
		Rows   []periodRow
		More   bool
		Most   int64
		Chart  chart
		At     time.Time
	}{s, current.Zone(), rows, more, mostPeriods, h.accountChart(s, history, first),
		time.Now().In(current.Start.Location())})
	return nil
}

// accountChart draws how many numbers of each period are stored, explained and unexplained, as far as it was audited.
func (h *handler) accountChart(s *Series, history []serial.Number, first int64) chart {
	var stacks []stack
	for _, n := range slices.Backward(history[:min(len(history), mostColumns)]) {
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
