package serialpage

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/dailyserial/serial"
)

// period serves the page of a period, or its report as CSV or JSON.
func (h *handler) period(w http.ResponseWriter, r *http.Request) error {
	s, p, err := h.findPeriod(r.Context(), r.URL.Query())
	if err != nil {
		return err
	}
	query := r.URL.Query()
	format := requestFormat(r)
	w.Header().Set("Content-Type", contentTypes[format])
	if r.Method == http.MethodHead {
		return nil // without an audit
	}
	if format != "" && s.Stored == nil {
		return notFound("The numbers of this series cannot be checked here.")
	}
	closed, err := s.Source.closed(r.Context(), s.Type)
	if err != nil {
		return unavailable(err)
	}
	numbers := newPrinter(s, p)
	text, sought := lookedUp(s, p, query)
	if format != "" {
		text, sought = "", parsedNumber{}
	}
	a, err := h.audit(r.Context(), w, numbers, sought.seq)
	if none := (*problem)(nil); text != "" && errors.As(err, &none) && none.status == http.StatusNotFound {
		none.number, none.text = text, "is a number of this period. "+none.text
	}
	if err != nil {
		return err
	}
	switch format {
	case "csv":
		return writeCSV(w, numbers, a)
	case "json":
		return writeJSON(w, s, p, a)
	}
	name, refused := h.user(r)
	mayExplain := s.explainable() && name != ""
	v := h.periodView(r, numbers, a, mayExplain, text, sought)
	v.Closed, v.Sheet = !p.End.After(closed), h.sheet(name, s)
	if v.Older, v.Newer, err = neighbours(r.Context(), s, p); err != nil {
		return err
	}
	if s.explainable() && a.UnexplainedCount > 0 {
		v.Refused = refused
	}
	if mayExplain {
		if v.Saved, err = readSaved(r.Context(), numbers, query, name); err != nil {
			return unavailable(err)
		}
		if len(v.Saved) > 0 {
			query = nil // so that the form is empty after a successful save
		}
		if a.UnexplainedCount > 0 || query.Get("first") != "" { // a filled form is shown in any case
			v.Form = newForm(numbers, query)
		}
	}
	h.write(w, http.StatusOK, "period.html", frame{Title: s.Name + ", " + p.Name, Back: []link{home, seriesLink(s)}}, v)
	return nil
}

// neighbours returns the addresses of the pages of the nearest periods before and after p whose counters still exist.
// An address is "" if there is no such period.
func neighbours(ctx context.Context, s *Series, p period) (older, newer string, err error) {
	_, err = s.kept(ctx, func(kept []serial.Number) bool {
		older, newer = "", ""
		for _, n := range kept { // newest first
			if n.Start.Before(p.Start) {
				older = address("period", s.Key, n.Start)
				return true
			}
			if n.Start.After(p.Start) {
				newer = address("period", s.Key, n.Start)
			}
		}
		return false
	})
	return older, newer, err
}

// periodView returns the view of a report. If text is not "", the view includes the result of looking up text. If Link
// of the series panics, the view has no links.
func (h *handler) periodView(r *http.Request, numbers printer, a *audit, mayExplain bool, text string,
	sought parsedNumber) *periodView {
	v := newPeriodView(numbers, a, mayExplain)
	if text != "" {
		v.Lookup = newLookupResult(numbers, a, text, sought.seq, mayExplain)
	}
	if failed := numbers.links.failed; failed != "" {
		h.log(r, "Link of a series failed", failed)
		numbers.links = &linker{}
		return h.periodView(r, numbers, a, mayExplain, text, sought)
	}
	return v
}

// user returns the name of the user who sent a request, or a text with the reason why this user may not explain
// numbers. Both are "" if Options.User is nil.
func (h *handler) user(r *http.Request) (name, refused string) {
	if h.User == nil {
		return "", ""
	}
	name, err := h.User(r)
	if err == nil && name == "" {
		return "", "You may not explain numbers here."
	}
	refused = "Your name could not be read, so you cannot explain numbers at the moment."
	if err == nil {
		err = serial.Explanation{First: 1, Last: 1, Reason: "any", By: name, At: time.Unix(0, 0)}.Validate()
		if err == nil {
			return name, ""
		}
		_, wrong, _ := strings.Cut(err.Error(), "By: ")
		refused = "Your name cannot be saved with an explanation: " + wrong + "."
	}
	h.Logger.WarnContext(r.Context(), "serialpage: a user may not explain numbers", "err",
		fmt.Errorf("Options.User: %w", err))
	return "", refused + " Inform the operator of this service."
}

// explainable reports whether missing numbers of the series can be explained.
func (s *Series) explainable() bool { return s.Explanations != nil && s.Stored != nil }
