package serialpage

import (
	"html/template"
	"slices"

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

// why is what explanations say about a sequence.
type why struct {
	chosen, unused *serial.Explanation
	possible       []serial.Explanation // the first 1,000
	more           int                  // possible ones that are not listed
}

// add adds an explanation that was read after the others. A person's one counts, or else the last.
func (w *why) add(e serial.Explanation, seq int64) {
	if seq < e.First || seq > e.Last {
		return
	}
	switch {
	case e.Possible && len(w.possible) == mostListed:
		w.more++
	case e.Possible:
		w.possible = append(w.possible, e)
	case w.chosen == nil || w.chosen.By == "" || e.By != "":
		w.chosen = &e
	}
	if e.Unused {
		w.unused = &e
	}
}

// common returns the reason in words that all possible ones share, or "" if they differ.
func (w *why) common() string {
	if w.more > 0 {
		return ""
	}
	return commonOf(w.possible)
}

// knows reports whether the audit has everything that a page says about the uses of a sequence. It has for most, but
// for one in an enormous period only if it was made for that one. 0 is no sequence.
func (a *audit) knows(seq int64) bool { return seq == 0 || seq == a.uses.asked || !a.uses.cut }

// newFate words what became of a number, and what explanations say about it.
func newFate(numbers printer, a *audit, text string, seq int64, why why, mayExplain bool) *fate {
	r := &a.Report
	f := &fate{Number: text, Period: numbers.period.Name, Audit: a.stored, Ahead: a.at.Before(numbers.period.Start)}
	if f.Foreign = seq == 0; f.Foreign || f.Ahead {
		return f
	}
	f.Issued = seq >= r.First && seq <= r.Last
	f.Times = a.uses.times(seq)
	switch {
	case f.Times > 0:
		f.Later = seq > r.Last && !a.neverIssued(seq)
		if stored, ok := a.uses.text(seq); ok {
			f.Link = numbers.links.address(stored)
			if trim(stored) != trim(text) {
				f.As = stored
			}
		}
		if why.unused != nil {
			line := numbers.line("", why.unused)
			f.Unused = &line
		}
	case f.Issued && a.stored && why.chosen != nil:
		line := numbers.line("", why.chosen)
		f.Reason = &line
	case f.Issued && a.stored:
		if mayExplain {
			f.Explain = numbers.formAddress(serial.Range{First: seq, Last: seq}, why.common())
		}
		slices.SortStableFunc(why.possible, func(a, b serial.Explanation) int { return a.At.Compare(b.At) })
		for i := range why.possible[:min(len(why.possible), mostAnswered)] {
			f.Possible = append(f.Possible, numbers.possible(&why.possible[i], r))
		}
		f.More = len(why.possible) + why.more - len(f.Possible)
	}
	return f
}

// neverIssued reports whether a stored sequence above Last is known not to have been issued during the audit either.
func (a *audit) neverIssued(seq int64) bool {
	return slices.ContainsFunc(a.Beyond, func(n serial.Number) bool { return n.Seq > a.Last && n.Seq <= seq })
}
