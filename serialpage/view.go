package serialpage

import (
	"html/template"
	"slices"
	"time"

	"github.com/dailyserial/serial"
)

const (
	maxListed   = 1000 // maximum number of entries in a list
	maxPossible = 3    // maximum number of possible reasons that are shown next to a range
)

// A periodView is the data for the page of a period.
type periodView struct {
	Series   *Series
	Period   period
	Limits   string // text with the limits of the series
	Start    int64  // first sequence of the period, or 0 if it is 1
	Issued   int64
	Range    string // range of the issued numbers; "" if no number was issued or the sequences are hidden
	At       time.Time
	Ahead    bool // whether the period has not begun
	NotEnded bool // whether the period has not ended
	Closed   bool
	Clean    bool
	Audit    bool // whether the series has Stored

	Lookup       *lookupResult // result of the look-up, or nil if no number was looked up
	Findings     []finding
	Explained    []explainedLine
	ExplainedCut bool // whether Explained is incomplete
	Replaced     []replacedLine
	ReplacedCut  bool      // whether Replaced may be incomplete
	Reasons      []wording // descriptions of the reasons from package serial that are in the lists

	Saved     []string // numbers that were explained by the form from which the client was redirected
	Form      *form    // nil if the reader may not explain numbers, or if no number needs an explanation
	Refused   string   // text why this reader may not explain numbers, or "" if the page shows no such text
	CSV, JSON string

	First, Last string // first and last issued number, or their sequences; "" if no number was issued
	Sheet       sheet

	Older, Newer string // addresses of the pages of the adjacent periods; "" if there is no such period
}

// A finding is a line of a report.
type finding struct {
	What  string
	Count int64
	List  []entry
	Cut   bool   // whether List is incomplete
	Wrong bool   // whether the count should be 0
	Class string // CSS class
}

// An entry is a part of a list: a number, a range of numbers, or a text that is not a number.
type entry struct {
	Text     string
	Note     string          // remark next to the number, or ""
	Link     template.URL    // address of the document, or "" if there is none
	Explain  string          // address of the form for explaining these numbers, or "" if the reader cannot use it
	Possible []explainedLine // possible reasons
	More     int64           // count of the possible reasons that are not listed
}

// An explainedLine is an explanation, or a possible reason, with its numbers.
type explainedLine struct {
	Numbers      string
	Reason, Help string // reason, and its description if it is a constant of package serial
	By           string
	At           time.Time
	Correct      string // address of the form for correcting the explanation, or "" if the reader cannot use it
}

// A replacedLine is an earlier explanation of some numbers, together with the explanation that has replaced it.
type replacedLine struct {
	explainedLine
	New explainedLine // without Numbers
}

// newPeriodView returns the view of a report. The argument mayExplain is true if the reader may explain numbers.
func newPeriodView(numbers printer, a *audit, mayExplain bool) *periodView {
	s, p, r := numbers.series, numbers.period, &a.Report
	v := &periodView{Series: s, Period: p, Limits: limitsText(s), At: a.at.In(p.Start.Location()), Clean: r.Clean(),
		Ahead: a.at.Before(p.Start), NotEnded: a.at.Before(p.End), Audit: s.Stored != nil,
		Issued: max(0, r.Last-r.First+1), ReplacedCut: a.replacedCut, Reasons: a.reasons(),
		CSV: address("period.csv", s.Key, p.Start), JSON: address("period.json", s.Key, p.Start)}
	if v.Issued > 0 && !numbers.hidden {
		v.Range = numbers.ranged(serial.Range{First: r.First, Last: r.Last})
	}
	if v.Issued > 0 {
		v.First = numbers.ranged(serial.Range{First: r.First, Last: r.First})
		v.Last = numbers.ranged(serial.Range{First: r.Last, Last: r.Last})
	}
	if r.First > 1 {
		v.Start = r.First
	}
	for _, e := range r.Explained {
		line := numbers.line(numbers.ranged(e.Range), &e.Explanation)
		if mayExplain {
			line.Correct = numbers.correction(e.Range, &e.Explanation)
		}
		v.Explained = append(v.Explained, line)
	}
	v.ExplainedCut = listedIn(r.Explained) < r.ExplainedCount
	for _, x := range a.replaced {
		v.Replaced = append(v.Replaced,
			replacedLine{numbers.line(numbers.ranged(x.Range), &x.old), numbers.line("", &x.by)})
	}
	v.Findings = findings(numbers, a, v, mayExplain)
	return v
}

// reasons returns the wordings of all reasons from package serial that occur in a report, each of them once.
func (a *audit) reasons() (all []wording) {
	for _, w := range wordings {
		has := func(e serial.Explanation) bool { return worded(&e) == w }
		if slices.ContainsFunc(a.Possible, has) ||
			slices.ContainsFunc(a.Explained, func(x serial.Explained) bool { return has(x.Explanation) }) ||
			slices.ContainsFunc(a.replaced, func(x replacement) bool { return has(x.old) || has(x.by) }) {
			all = append(all, w)
		}
	}
	return all
}

// line returns the explainedLine for an explanation of the given numbers.
func (n printer) line(numbers string, e *serial.Explanation) explainedLine {
	w := worded(e)
	return explainedLine{numbers, w.Words, w.Help, e.By, e.At.In(n.period.Start.Location()), ""}
}

// correction returns the address of the form for correcting an explanation. If a user wrote the explanation, the form
// contains its reason.
func (n printer) correction(r serial.Range, e *serial.Explanation) string {
	if e.By == "" {
		return n.formAddress(r, "")
	}
	return n.formAddress(r, e.Reason)
}

// possible returns the line for a possible reason, with the issued numbers to which the reason can apply. If sequences
// are hidden, it omits the numbers.
func (n printer) possible(e *serial.Explanation, r *serial.Report) explainedLine {
	reach := ""
	if !n.hidden {
		reach = n.ranged(serial.Range{First: max(e.First, r.First), Last: min(e.Last, r.Last)})
	}
	return n.line(reach, e)
}

// findings returns the lines of the report in the order of the page.
func findings(numbers printer, a *audit, v *periodView, mayExplain bool) []finding {
	r := &a.Report
	issued := finding{What: "Issued", Count: v.Issued}
	if v.Range != "" {
		issued.List = []entry{{Text: v.Range}}
	}
	wrong := func(what string, n int64, list []entry) finding {
		return finding{what, n, list, int64(len(list)) < n, true, ""}
	}
	return []finding{issued, {What: "Stored", Count: r.Count}, {What: "Missing", Count: r.MissingCount},
		{What: "explained", Count: r.ExplainedCount, Class: "part"}, unexplained(numbers, r, mayExplain),
		wrong("Stored more than once", r.DuplicateCount, numbers.entries(a, r.Duplicates)),
		wrong("Stored, but never issued", r.BeyondCount, numbers.entries(a, r.Beyond)),
		wrong("Stored, but reported as never received", r.ContradictedCount, numbers.entries(a, r.Contradicted))}
}

// entries returns a list of stored numbers, with links to their documents.
func (n printer) entries(a *audit, numbers []serial.Number) (all []entry) {
	for _, number := range numbers {
		e := entry{Text: numberText(number)}
		if text := a.text(number); text != "" {
			e = entry{Text: text, Link: n.links.address(text)}
		}
		if number.Seq < a.First {
			e.Note = "below the first number of the period; was the start changed?"
		}
		all = append(all, e)
	}
	return all
}

// unexplained returns the line for the missing numbers that are not explained, with their possible reasons.
func unexplained(numbers printer, r *serial.Report, mayExplain bool) finding {
	f := finding{What: "not explained", Count: r.UnexplainedCount, Wrong: true, Class: "part"}
	listed := numbers.split(r.Unexplained, maxListed)
	for _, g := range listed {
		touching := possibleIn(r, g)
		listedReasons := touching[:min(len(touching), maxPossible)]
		entry := entry{Text: numbers.ranged(g), More: int64(len(touching) - len(listedReasons))}
		for i := range listedReasons {
			entry.Possible = append(entry.Possible, numbers.possible(&listedReasons[i], r))
		}
		if int64(len(r.Possible)) < r.PossibleCount { // reasons that are not listed may apply to the range, too
			touching = nil
		}
		if mayExplain {
			entry.Explain = numbers.formAddress(g, commonReason(touching))
		}
		f.List = append(f.List, entry)
	}
	f.Cut = size(listed...) < r.UnexplainedCount
	return f
}

// possibleIn returns the possible reasons of numbers in a range.
func possibleIn(r *serial.Report, g serial.Range) []serial.Explanation {
	return slices.DeleteFunc(slices.Clone(r.Possible), func(e serial.Explanation) bool {
		return e.First > g.Last || e.Last < g.First
	})
}

// commonReason returns the words of the reason that all explanations have in common, or "" if their reasons differ.
func commonReason(all []serial.Explanation) string {
	differs := func(e serial.Explanation) bool { return worded(&e) != worded(&all[0]) }
	if len(all) == 0 || slices.ContainsFunc(all, differs) {
		return ""
	}
	return worded(&all[0]).Words
}
