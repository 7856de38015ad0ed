package serialpage

import (
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"strings"

	"github.com/dailyserial/serial"
)

// A match is a series to which a number can belong, and the period of the number in this series.
type match struct {
	Series *Series
	Period string
	Href   string // address of the page of the period, with the number in its query
}

// lookUp redirects the client from a number to the page of its period. If several series match the number, it shows a
// list of them. It audits nothing.
func (h *handler) lookUp(w http.ResponseWriter, r *http.Request) error {
	typed := r.URL.Query().Get("number")
	text := strings.TrimSpace(typed)
	if text == "" {
		return badRequest("Enter a number, as it is printed on the document.")
	}
	all, err := h.allSeries(r.Context())
	if err != nil {
		return err
	}
	matches, mistyped, impossible := []match{}, false, false
	for i := range all {
		s := &all[i]
		text, read := s.parseTyped(typed, "")
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
	}{text, int64(len(matches)), matches[:min(len(matches), maxListed)]})
	return nil
}

// parseTyped parses a number that a user has typed, and returns the text that it has parsed. It first removes
// whitespace around the number. If the rest is not a number of the series, it tries to parse the text with the
// whitespace.
func (s *Series) parseTyped(typed, label string) (text string, r parsedNumber) {
	text = strings.TrimSpace(typed)
	if r = s.parse(text, label); r.period.label == "" && text != typed {
		if raw := s.parse(typed, label); raw.period.label != "" {
			return typed, raw
		}
	}
	return text, r
}

// unreadable returns the error page for a text that is a number of no series.
func unreadable(text string, mistyped, impossible bool) error {
	p := &problem{status: http.StatusNotFound, title: "Number not found", number: text,
		text: "is not a number of these series. Enter the complete number, as it is printed."}
	switch {
	case mistyped:
		p.text = "has a wrong check digit, so it was probably mistyped."
	case impossible:
		p.text = "cannot be a number of these series, because its date is impossible."
	}
	return p
}

// lookedUp returns the number in the query of the page of a period, and parses it as a number of this period. The
// result text is "" if the query contains no number.
func lookedUp(s *Series, p period, query url.Values) (text string, r parsedNumber) {
	if text, r = s.parseTyped(query.Get("number"), p.label); text == "" {
		return "", parsedNumber{}
	}
	return text, r
}

// blanks contains the characters with which stored numbers can be padded, for example in CHAR columns. An audit ignores
// them.
const blanks = " \t\u00a0"

// A parsedNumber is the result of parsing a text with the schemes of a series.
type parsedNumber struct {
	period period // period of the number; zero if the text is not a number of the series
	seq    int64  // sequence of the number

	other      bool // whether the text is a number of another series or period
	mistyped   bool // whether a check digit is wrong
	impossible bool // whether the date does not exist
}

// parse parses a text as a number of the series. If label is not "", parse accepts only numbers of the period with this
// label.
func (s *Series) parse(text, label string) (r parsedNumber) {
	name, current := s.series(), s.Source.scheme()
	for i, scheme := range s.schemes() {
		n, err := scheme.Parse(text)
		if err != nil {
			r.mistyped = r.mistyped || errors.Is(err, serial.ErrCheckDigit)
			likely := strings.Contains(text, s.Type) || strings.HasSuffix(name, ":*") // ":*" if types share the series
			r.impossible = r.impossible || likely && errors.Is(err, serial.ErrImpossibleDate)
			continue
		}
		p, ok := periodAt(scheme, n.Start)
		if !s.has(n.Type, name) || label != "" && p.label != label {
			r.other = true
			continue
		}
		if i > 0 && ok { // the pages show a period as it is in the current scheme
			if start, _, found := labelled(current, p); found {
				p = periodFrom(s, start)
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
	name, _ := s.Source.scheme().Series(s.Type) // cannot fail, because allSeries has checked the type
	return name
}

// has reports whether numbers of the given type belong to the series. The argument name is the name of the series.
func (s *Series) has(typ, name string) bool {
	if typ == s.Type {
		return true
	}
	series, err := s.Source.scheme().Series(typ)
	return err == nil && series == name
}

// maxLookupReasons is the maximum number of possible reasons in the result of a look-up.
const maxLookupReasons = 10

// A lookupResult is the result of a look-up in the form in which the page of the period shows it.
type lookupResult struct {
	Number  string // number as it was typed
	Period  string // name of the period
	Foreign bool   // whether Number is not a number of the series and period
	Audit   bool   // whether the series has Stored
	Ahead   bool   // whether the period has not begun

	Issued  bool
	Below   bool           // whether the number is below the first number of the period
	Times   int            // how many times the number is stored; 2 also means more than twice
	As      string         // text with which the number is stored, if it differs from Number; otherwise ""
	Link    template.URL   // address of the document, or "" if there is none
	Unused  *explainedLine // report that a stored number was never received, or nil if there is none
	Reason  *explainedLine // explanation of a missing number, or nil if there is none
	Explain string         // address of the form for explaining this number, or "" if the reader cannot use it

	Possible []explainedLine // possible reasons
	More     int             // count of the possible reasons that are not listed
}

// knows reports whether the report contains everything that the page shows about a sequence. Only the stored text can
// be missing. The report contains this text if the sequence was looked up, or if the sequence determines the text. If
// seq is 0, no sequence was looked up, so nothing is missing.
func (a *audit) knows(seq int64) bool {
	e := a.Lookup(seq)
	return seq == 0 || seq == a.sought || e.Stored == 0 || len(e.Texts) > 0
}

// newLookupResult returns the result of looking up a number. The argument seq is 0 if the text is not a number of the
// period.
func newLookupResult(numbers printer, a *audit, text string, seq int64, mayExplain bool) *lookupResult {
	r, p := &a.Report, numbers.period
	f := &lookupResult{Number: text, Period: p.Name, Audit: a.stored, Ahead: a.at.Before(p.Start)}
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
			f.Explain = numbers.formAddress(serial.Range{First: seq, Last: seq}, commonReason(e.Possible))
		}
		for i := range e.Possible[:min(len(e.Possible), maxLookupReasons)] {
			f.Possible = append(f.Possible, numbers.possible(&e.Possible[i], r))
		}
		f.More = len(e.Possible) - len(f.Possible)
	}
	return f
}
