package serialpage

import (
	"html/template"
	"slices"
	"strings"

	"github.com/dailyserial/serial"
)

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
	Later   bool           // it may have been issued after the check began
	Times   int            // it is stored: 0, 1, or 2 for more than once
	As      string         // its sequence is stored with this other text; "" if not
	Link    template.URL   // address of its document; "" if there is none
	Unused  *explainedLine // report that nobody received it, although it is stored; nil if there is none
	Reason  *explainedLine // why it is missing; nil if nobody has explained it
	Explain string         // address of the form with this number; "" if there is none

	Possible []explainedLine // possible reasons
	More     int             // possible reasons that are not listed
}

// knows reports whether the audit has everything that a page says about a sequence: all but the text of a stored one, if
// the audit was not made for it and the sequence does not determine the text. 0 is no sequence.
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
	f.Issued, f.Times = e.Issued, e.Stored
	switch {
	case f.Times > 0:
		f.Later = seq > r.Last && !a.neverIssued(seq)
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

// neverIssued reports whether a stored sequence above Last is known not to have been issued during the audit either.
func (a *audit) neverIssued(seq int64) bool {
	return slices.ContainsFunc(a.Beyond, func(n serial.Number) bool { return n.Seq > a.Last && n.Seq <= seq })
}
