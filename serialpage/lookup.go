package serialpage

import (
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"strings"

	"github.com/dailyserial/serial"
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
	switch len(matches) {
	case 1:
		w.Header().Set("Location", matches[0].Href)
		w.WriteHeader(http.StatusSeeOther)
		return nil
	case 0:
		return unreadable(text, mistyped, impossible)
	}
	f := frame{Title: "Several series can have this number", Back: []link{home}}
	h.write(w, http.StatusOK, "lookup.html", f, struct {
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
func unreadable(text string, mistyped, impossible bool) error {
	p := &problem{status: http.StatusNotFound, title: "Number not found", number: text,
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

// blanks pad stored numbers, as in CHAR columns. An audit ignores them.
const blanks = " \t\u00a0"

// A reading is how the schemes of a series read a text.
type reading struct {
	period span  // zero if the series cannot read the text
	seq    int64 // in the period

	other      bool // it is a number of another series or period
	mistyped   bool // a check digit is wrong
	impossible bool // its date cannot be
}

// read reads a text as a number of the series, and of the period with a label unless label is "".
func (s *Series) read(text, label string) (r reading) {
	name, current := s.series(), s.Source.scheme()
	for i, scheme := range s.schemes() {
		n, err := scheme.Parse(text)
		if err != nil {
			r.mistyped = r.mistyped || errors.Is(err, serial.ErrCheckDigit)
			ours := strings.Contains(text, s.Type) || strings.HasSuffix(name, ":*") // or all types share the series
			r.impossible = r.impossible || ours && errors.Is(err, serial.ErrImpossibleDate)
			continue
		}
		p, ok := spanAt(scheme, n.Start)
		if !s.has(n.Type, name) || label != "" && p.label != label {
			r.other = true
			continue
		}
		if i > 0 && ok { // the page shows the period as the current scheme has it
			if start, _, found := labelled(current, p); found {
				p = spanOf(s, start)
			} else {
				ok, r.impossible = false, true
			}
		}
		if ok {
			r.period, r.seq = p, n.Seq
			return r
		}
	}
	return r
}

// series returns the name of the series.
func (s *Series) series() string {
	name, _ := s.Source.scheme().Series(s.Type) // allSeries has refused an invalid type
	return name
}

// has reports whether numbers of a type belong to the series, which has that name.
func (s *Series) has(typ, name string) bool {
	if typ == s.Type {
		return true
	}
	series, err := s.Source.scheme().Series(typ)
	return err == nil && series == name
}

// mostAnswered is how many possible reasons the answer to a look-up lists.
const mostAnswered = 10

// A fate is what became of a number that somebody looked up, for people.
type fate struct {
	Number  string // as it was looked up
	Period  string // name
	Foreign bool   // it is not a number of the series and period
	Audit   bool   // the series is checked
	Ahead   bool   // the period has not begun

	Issued  bool
	Below   bool           // it is below the first number of the period
	Times   int            // it is stored: 0, 1, or 2 for more than once
	As      string         // its sequence is stored with this other text; "" if not
	Link    template.URL   // address of its document; "" if there is none
	Unused  *explainedLine // report that nobody received it, although it is stored; nil if there is none
	Reason  *explainedLine // why it is missing; nil if nobody has explained it
	Explain string         // address of the form with this number; "" if there is none

	Possible []explainedLine // possible reasons
	More     int             // possible reasons that are not listed
}

// knows reports whether the audit has everything that a page says about a sequence. It lacks the text of a stored one if
// it was not made for it and the sequence does not determine the text. 0 is no sequence.
func (a *audit) knows(seq int64) bool {
	e := a.Lookup(seq)
	return seq == 0 || seq == a.sought || e.Stored == 0 || len(e.Texts) > 0
}

// newFate words what became of a number.
func newFate(numbers printer, a *audit, text string, seq int64, mayExplain bool) *fate {
	r := &a.Report
	f := &fate{Number: text, Period: numbers.period.Name, Audit: a.stored, Ahead: a.at.Before(numbers.period.Start)}
	if f.Foreign = seq == 0; f.Foreign || f.Ahead {
		return f
	}
	e := r.Lookup(seq)
	f.Issued, f.Below, f.Times = e.Issued, seq < r.First, e.Stored
	switch {
	case f.Times > 0:
		if len(e.Texts) > 0 {
			f.Link = numbers.links.address(e.Texts[0])
			if strings.Trim(e.Texts[0], blanks) != strings.Trim(text, blanks) {
				f.As = e.Texts[0]
			}
		}
		for _, x := range e.Replaced {
			if x.Unused {
				line := numbers.line("", &x)
				f.Unused = &line
			}
		}
	case e.Explanation != nil && a.stored:
		line := numbers.line("", e.Explanation)
		if mayExplain {
			line.Correct = numbers.correction(serial.Range{First: seq, Last: seq}, e.Explanation)
		}
		f.Reason = &line
	case f.Issued && a.stored:
		if mayExplain {
			f.Explain = numbers.formAddress(serial.Range{First: seq, Last: seq}, commonOf(e.Possible))
		}
		for i := range e.Possible[:min(len(e.Possible), mostAnswered)] {
			f.Possible = append(f.Possible, numbers.possible(&e.Possible[i], r))
		}
		f.More = len(e.Possible) - len(f.Possible)
	}
	return f
}
