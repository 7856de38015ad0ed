package serialpage

import (
	"net/http"
	"strings"
)

// period is the page of a period, or its account as CSV or JSON.
func (h *handler) period(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	s, p, err := h.findPeriod(r.Context(), query)
	if err != nil {
		return err
	}
	_, format, _ := strings.Cut(r.URL.Path[strings.LastIndexByte(r.URL.Path, '/'):], ".")
	w.Header().Set("Content-Type", contentTypes[format])
	if r.Method == http.MethodHead {
		return nil // without an audit
	}
	if format != "" && s.Stored == nil {
		return notFound("This series is not checked here.")
	}
	closed, err := s.Source.closed(r.Context(), s.Type)
	if err != nil {
		return unavailable(err)
	}
	a, err := h.audit(r.Context(), w, s, p)
	if err != nil {
		return err
	}
	numbers := newPrinter(s, p)
	switch format {
	case "csv":
		return writeCSV(w, numbers, a)
	case "json":
		return writeJSON(w, s, p, a)
	}
	name, err := h.user(r)
	if err != nil {
		h.Logger.WarnContext(r.Context(), "serialpage: nobody may explain", "err", err)
		name = ""
	}
	mayExplain := s.explainable() && name != ""
	v := newPeriodView(numbers, a, mayExplain)
	v.Closed = !p.End.After(closed)
	if mayExplain {
		if v.Saved, err = readSaved(r.Context(), numbers, query, name); err != nil {
			return unavailable(err)
		}
		if v.Saved.Count > 0 {
			query = nil // what was saved does not fill the form again
		}
		v.Form = newForm(numbers, query)
	}
	h.write(w, http.StatusOK, "period.html", frame{Title: s.Name + ", " + p.Name, Back: []link{home, seriesLink(s)}}, v)
	return nil
}

// user returns the name of the person who sent a request, or "" if that person may not explain anything.
func (h *handler) user(r *http.Request) (string, error) {
	if h.User == nil {
		return "", nil
	}
	return h.User(r)
}

// explainable reports whether missing numbers of the series can be explained.
func (s *Series) explainable() bool { return s.Explanations != nil && s.Stored != nil }
