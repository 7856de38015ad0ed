package serialpage

import (
	"html/template"
	"slices"
	"strings"
	"time"

	"github.com/dailyserial/serial"
)

const (
	mostListed   = 1000 // entries of a list
	mostPossible = 3    // possible reasons beside a range
)

// A periodView is the account of a period, for people.
type periodView struct {
	Series *Series
	Period span
	Reach  string // how far the numbers of the series go
	Start  int64  // first sequence of the period, 0 if it is 1
	Issued int64
	Range  string // numbers issued; "" if there are none, or if the first and the last say nothing
	Totals string // for the signature
	At     time.Time
	Ahead  bool // the period has not begun
	Open   bool // the period has not ended
	Closed bool
	Clean  bool
	Audit  bool // there is an account

	Fate         *fate // of the number that was looked up; nil if there is none
	Findings     []finding
	Explained    []explainedLine
	ExplainedCut bool // there are more
	Replaced     []replacedLine
	ReplacedCut  bool      // there may be more
	Reasons      []wording // what reasons of package serial in the lists mean

	Saved     saved  // by the form that led here
	Form      *form  // nil if the reader may not explain, or has nothing to explain
	Refused   string // why the reader may not; "" if nobody may, or nothing is unexplained
	CSV, JSON string

	First, Last string // numbers issued, or their sequences; "" if there are none
	Sheet       sheet

	Older, Newer string // addresses of the periods before and after; "" if there is none
}

// A finding is a line of an account.
type finding struct {
	What  string
	Count int64
	List  []entry
	Cut   bool   // there are more
	Wrong bool   // the count should be 0
	Class string // of the style
}

// An entry of a list is a number, a range of numbers, or a text that is not a number.
type entry struct {
	Text     string
	Note     string          // question beside it; "" if there is none
	Link     template.URL    // address of the document; "" if there is none
	Explain  string          // address of the form with these numbers; "" if there is none
	Possible []explainedLine // possible reasons
	More     int64           // possible reasons that are not listed
}

// An explainedLine is a reason with the numbers that it explains.
type explainedLine struct {
	Numbers      string
	Reason, Help string // Help says what a reason of package serial means
	By           string
	At           time.Time
}

// A replacedLine is an explanation that does not count for some numbers, and the one that counts instead.
type replacedLine struct {
	explainedLine
	New explainedLine // without Numbers
}

// newPeriodView words an account for people. mayExplain reports whether the reader may explain numbers.
func newPeriodView(numbers printer, a *audit, mayExplain bool) *periodView {
	s, p, r := numbers.series, numbers.period, &a.Report
	v := &periodView{Series: s, Period: p, Reach: reachText(s), At: a.at.In(p.Start.Location()), Clean: r.Clean(),
		Ahead: a.at.Before(p.Start), Open: a.at.Before(p.End), Audit: s.Stored != nil,
		Issued: max(0, r.Last-r.First+1), ReplacedCut: a.replacedCut,
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
		v.Explained = append(v.Explained, numbers.line(numbers.ranged(e.Range), &e.Explanation))
	}
	v.ExplainedCut = listedIn(r.Explained) < r.ExplainedCount
	for _, x := range a.replaced {
		var texts []string
		for _, g := range x.ranges {
			texts = append(texts, numbers.ranged(g))
		}
		v.Replaced = append(v.Replaced,
			replacedLine{numbers.line(strings.Join(texts, ", "), &x.old), numbers.line("", &x.by)})
	}
	v.Findings = findings(numbers, a, v, mayExplain)
	v.Reasons = v.reasons()
	v.Totals = v.totals()
	return v
}

// reasons returns what the reasons of package serial in the lists mean, each once.
func (v *periodView) reasons() (all []wording) {
	for _, f := range v.Findings {
		for _, e := range f.List {
			all = addHelp(all, e.Possible...)
		}
	}
	all = addHelp(all, v.Explained...)
	for _, r := range v.Replaced {
		all = addHelp(all, r.explainedLine, r.New)
	}
	return all
}

// line words an explanation of numbers.
func (n printer) line(numbers string, e *serial.Explanation) explainedLine {
	w := worded(e)
	return explainedLine{numbers, w.Words, w.Help, e.By, e.At.In(n.period.Start.Location())}
}

// possible words a possible reason, with the numbers that it may be about, up to the last one that was issued.
func (n printer) possible(e *serial.Explanation, r *serial.Report) explainedLine {
	reach := ""
	if !n.hidden {
		reach = n.ranged(serial.Range{First: max(e.First, r.First), Last: min(e.Last, r.Last)})
	}
	return n.line(reach, e)
}

// findings returns the lines of the account.
func findings(numbers printer, a *audit, v *periodView, mayExplain bool) []finding {
	r := &a.Report
	issued := finding{What: "Issued", Count: v.Issued}
	if v.Range != "" {
		issued.List = []entry{{Text: v.Range}}
	}
	wrong := func(what string, n int64, list []entry) finding {
		return finding{what, n, list, int64(len(list)) < n, true, ""}
	}
	var foreign []entry
	for _, text := range r.Foreign {
		foreign = append(foreign, entry{Text: a.foreign(text)})
	}
	return []finding{issued, {What: "Stored", Count: r.Count}, {What: "Missing", Count: r.MissingCount},
		{What: "explained", Count: r.ExplainedCount, Class: "part"}, unexplained(numbers, r, mayExplain),
		wrong("Stored more than once", r.DuplicateCount, numbers.entries(a, r.Duplicates, true)),
		wrong("Stored, but never issued", r.BeyondCount, numbers.entries(a, r.Beyond, true)),
		wrong("Stored, but reported as never received", r.ContradictedCount, numbers.entries(a, r.Contradicted, false)),
		{What: "Stored, but not one of our numbers", Count: r.ForeignCount, List: foreign,
			Cut: int64(len(foreign)) < r.ForeignCount}} // it belongs to no period, so it does not make this one red
}

// entries lists numbers that are stored. asRead says that the report has them as they were read.
func (n printer) entries(a *audit, numbers []serial.Number, asRead bool) (all []entry) {
	for _, number := range numbers {
		e := entry{Text: numberText(number)}
		if text, known := a.text(number, asRead); known {
			e = entry{Text: text, Link: n.links.address(text)}
		}
		if number.Seq < a.First {
			e.Note = "below the start: was it changed?"
		}
		all = append(all, e)
	}
	return all
}

// unexplained is the line of the missing numbers that nobody has explained, with their possible reasons.
func unexplained(numbers printer, r *serial.Report, mayExplain bool) finding {
	f := finding{What: "not explained", Count: r.UnexplainedCount, Wrong: true, Class: "part"}
	listed := numbers.split(r.Unexplained, mostListed)
	for _, g := range listed {
		touching := possibleIn(r, g)
		listedReasons := touching[:min(len(touching), mostPossible)]
		entry := entry{Text: numbers.ranged(g), More: int64(len(touching) - len(listedReasons))}
		for i := range listedReasons {
			entry.Possible = append(entry.Possible, numbers.possible(&listedReasons[i], r))
		}
		if mayExplain {
			entry.Explain = numbers.formAddress(g, commonReason(r, touching))
		}
		f.List = append(f.List, entry)
	}
	f.Cut = size(listed...) < r.UnexplainedCount
	return f
}

// possibleIn returns the possible reasons that touch a range.
func possibleIn(r *serial.Report, g serial.Range) (touching []serial.Explanation) {
	for _, e := range r.Possible {
		if e.First <= g.Last && e.Last >= g.First {
			touching = append(touching, e)
		}
	}
	return touching
}

// commonReason returns the reason in words that all possible explanations of a range share, or "" if they differ.
func commonReason(r *serial.Report, touching []serial.Explanation) string {
	if int64(len(r.Possible)) < r.PossibleCount { // those not listed may touch it, too
		return ""
	}
	return commonOf(touching)
}

func commonOf(all []serial.Explanation) string {
	if len(all) == 0 {
		return ""
	}
	first := worded(&all[0])
	if slices.ContainsFunc(all, func(e serial.Explanation) bool { return worded(&e) != first }) {
		return ""
	}
	return first.Words
}

// totals says what the account counts, for the signature.
func (v *periodView) totals() string {
	if !v.Audit {
		return count(v.Issued) + " issued"
	}
	var all []string
	for i, f := range v.Findings {
		if i < 5 || f.Count > 0 {
			all = append(all, count(f.Count)+" "+strings.ToLower(f.What[:1])+f.What[1:])
		}
	}
	return strings.Join(all, "; ")
}
