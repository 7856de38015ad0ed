package serialpage

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// A match is a series that can read a number.
type match struct {
	Series *Series
	Period string
	Href   string // of the period's page, with the number
}

// lookUp leads from a number to the page of its period. It makes no audit.
func (h *handler) lookUp(w http.ResponseWriter, r *http.Request) error {
	typed := r.URL.Query().Get("number")
	text := strings.TrimSpace(typed)
	if text == "" {
		return badRequest("Enter a number as it is printed on the document.")
	}
	all, err := h.allSeries(r.Context())
	if err != nil {
		return err
	}
	matches, mistyped, impossible := []match{}, false, false
	for i := range all {
		s := &all[i]
		text, read := s.readTyped(typed, "")
		if read.period.label != "" {
			href := address("period", s.Key, read.period.Start, "number", text)
			matches = append(matches, match{s, read.period.Name, href})
		}
		mistyped, impossible = mistyped || read.mistyped, impossible || read.impossible
	}
	switch zone, _ := commonZone(all); len(matches) {
	case 1:
		w.Header().Set("Location", matches[0].Href)
		w.WriteHeader(http.StatusSeeOther)
		return nil
	case 0:
		return unreadable(text, mistyped, impossible, zone)
	}
	if r.Method == http.MethodHead {
		return writeHead(w)
	}
	h.write(w, http.StatusOK, "lookup.html", frame{Title: "Several series can have this number", Back: []link{home},
		Number: text}, struct {
		Number  string
		Count   int64
		Matches []match
	}{text, int64(len(matches)), matches[:min(len(matches), mostListed)]})
	return nil
}

// readTyped reads what somebody typed, without the blanks around it unless the template prints them.
func (s *Series) readTyped(typed, label string) (text string, r reading) {
	text = strings.TrimSpace(typed)
	if r = s.read(text, label); r.period.label == "" && text != typed {
		if raw := s.read(typed, label); raw.period.label != "" {
			return typed, raw
		}
	}
	return text, r
}

// unreadable says why no series can read a number.
func unreadable(text string, mistyped, impossible bool, zone *time.Location) error {
	p := &problem{status: http.StatusNotFound, title: "Number not found", number: text, zone: zone,
		text: "is not a number of these series. Enter it whole, as it is printed."}
	switch {
	case mistyped:
		p.text = "was mistyped: its check digit does not fit."
	case impossible:
		p.text = "cannot be a number of these series: its date is not possible."
	}
	return p
}

// lookedUp returns the number that the address of a period's page names, "" if there is none, and how it is read.
func lookedUp(s *Series, p span, query url.Values) (text string, r reading) {
	if text, r = s.readTyped(query.Get("number"), p.label); text == "" {
		return "", reading{}
	}
	return text, r
}

// aboutNumber adds the number looked up to an error that says why its period has no account.
func aboutNumber(err error, text string, s *Series, p span) error {
	var none *problem
	if text == "" || !errors.As(err, &none) || none.status != http.StatusNotFound {
		return err
	}
	about := *none
	about.series, about.period, about.number = s, p, text
	about.text = "is a number of this period. " + none.text
	return &about
}
