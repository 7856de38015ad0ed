package serialpage

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/dailyserial/serial"
)

const (
	mostListed   = 1000 // entries of a list
	mostPossible = 3    // reasons beside a range
	foreignBytes = 256  // of a text that an audit lists
)

// A periodView is the account of a period, for people.
type periodView struct {
	Series *Series
	Period span
	Issued int64
	Range  string // of those issued; "" if none was, or if the first and the last one say nothing
	Totals string // for the signature
	At     time.Time
	Ahead  bool // the period has not begun
	Open   bool // it has not ended
	Closed bool
	Clean  bool
	Audit  bool // there is an account

	Findings     []finding
	Explained    []explainedLine
	ExplainedCut bool // there are more
	Replaced     []replacedLine
	ReplacedCut  bool // there may be more

	Saved     saved // by the form that has led here
	Form      *form // nil if nobody may explain
	CSV, JSON string
}

// A finding is a line of an account.
type finding struct {
	What  string
	Count int64
	List  []entry
	Cut   bool   // there are more
	Wrong bool   // none should be
	Class string // of the style
}

// An entry of a list is a number, a range of numbers, or a text that is not a number.
type entry struct {
	Text     string
	Explain  string          // address of the form with these numbers; "" if they cannot be explained
	Possible []explainedLine // reasons for which some of them may be missing
	More     int64           // further ones
}

// An explainedLine is numbers with a reason.
type explainedLine struct {
	Numbers    string
	Reason, By string
	At         time.Time
}

// A replacedLine is an explanation that does not count for some numbers, and the one that counts.
type replacedLine struct {
	explainedLine
	New explainedLine // without Numbers
}

// period is the page of a period, or its account as CSV or JSON.
func (h *handler) period(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	s, err := h.find(r, query)
	if err != nil {
		return err
	}
	p, err := periodIn(s, query.Get("start"))
	if err != nil {
		return err
	}
	_, format, _ := strings.Cut(r.URL.Path[strings.LastIndexByte(r.URL.Path, '/'):], ".")
	if r.Method == http.MethodHead { // makes no audit
		w.Header().Set("Content-Type", contentTypes[format])
		return nil
	}
	if format != "" && s.Stored == nil {
		return missing("This series is not checked here.")
	}
	closed, err := s.Source.closed(r.Context(), s.Type)
	if err != nil {
		return unavailable(err)
	}
	a, err := h.audit(r.Context(), w, s, p)
	if err != nil {
		return err
	}
	switch format {
	case "csv":
		return writeCSV(w, s, p, a)
	case "json":
		return writeJSON(w, s, p, a)
	}
	name, err := h.user(r)
	if err != nil {
		h.Logger.WarnContext(r.Context(), "serialpage: nobody may explain", "err", err)
		name = ""
	}
	numbers := newPrinter(s, p)
	explains := h.explains(s) && name != ""
	v := view(numbers, a, explains)
	v.Closed = !p.End.After(closed)
	if explains {
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

// periodIn returns the period of a series that an instant lies in, which is written in RFC 3339.
func periodIn(s *Series, text string) (span, error) {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return span{}, refused("The start of the period must be a time such as 2021-10-24T00:00:00Z.")
	}
	p, ok := spanAt(s.Source.scheme(), at)
	if !ok {
		return span{}, refused("There are no periods before 1970 or after 9999.")
	}
	return p, nil
}

// audit returns the account of a period: one of the last minute, or a new one. That is made even if the client leaves,
// so that it is there when the client comes back.
func (h *handler) audit(ctx context.Context, w http.ResponseWriter, s *Series, p span) (made *audit, err error) {
	k := periodKey{s.Key, p.Start.Unix()}
	if kept, ok := h.audits.kept(k); ok {
		return kept, nil
	}
	if ok, _ := h.audits.begin(k); !ok {
		w.Header().Set("Refresh", "2") // browsers come again
		return nil, &problem{status: http.StatusServiceUnavailable, again: true,
			text: "This check is running, or others are. This page reloads by itself."}
	}
	defer func() { h.audits.end(k, made) }()
	deadline, _ := ctx.Deadline()
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline)
	defer cancel()
	return makeAudit(ctx, s, p)
}

// makeAudit accounts for the numbers of a period.
func makeAudit(ctx context.Context, s *Series, p span) (*audit, error) {
	used, long := nothing, &longTexts{}
	if s.Stored != nil {
		used = long.in(s.Stored(ctx, p.Start, p.End))
	}
	var opts []serial.AuditOption
	all := &readExplanations{start: p.Start}
	if s.Explanations != nil {
		series, err := s.Source.scheme().Series(s.Type)
		if err != nil {
			return nil, unavailable(err)
		}
		all.series = series
		opts = append(opts, serial.WithExplanations(all.in(s.Explanations.Explanations(ctx, series, p.Start))))
	}
	report, err := s.Source.audit(ctx, s.Type, p.Start, used, opts...)
	if err != nil {
		return nil, auditError(ctx, s, p, err)
	}
	a := &audit{Report: report, at: time.Now(), period: p, stored: s.Stored != nil, cut: long.cut(report.Foreign)}
	a.replaced, a.replacedCut = all.replaced(&report)
	return a, nil
}

// auditError says why a period has no account.
func auditError(ctx context.Context, s *Series, p span, err error) error {
	if errors.Is(err, serial.ErrCounterLost) {
		return &problem{status: http.StatusServiceUnavailable, cause: err,
			text: "The counter was lost, so nobody knows how many numbers were issued. Inform whoever runs the service."}
	}
	// The error does not say whether the period is unknown. If so, it has no account without documents either.
	if _, unknown := s.Source.audit(ctx, s.Type, p.Start, nothing); unknown != nil {
		kept, failed := s.Source.history(ctx, s.Type, longestHistory)
		if failed == nil && !slices.ContainsFunc(kept, func(n serial.Number) bool { return n.Start.Equal(p.Start) }) {
			return missing("There is no record of this period.")
		}
	}
	return unavailable(err)
}

const longestHistory = 10_000 // periods

// nothing is stored.
func nothing(func(string, error) bool) {}

var _ iter.Seq2[string, error] = nothing

// longTexts are the beginnings of the first texts that are longer than an audit lists them.
type longTexts []string

// in yields texts, and notes the long ones.
func (l *longTexts) in(texts iter.Seq2[string, error]) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for text, err := range texts {
			if len(text) > foreignBytes && len(*l) < mostListed {
				*l = append(*l, strings.Clone(text[:foreignBytes]))
			}
			if !yield(text, err) {
				return
			}
		}
	}
}

// cut returns those of the listed texts that are beginnings of long ones.
func (l *longTexts) cut(listed []string) map[string]bool {
	cut := map[string]bool{}
	for _, text := range listed {
		if slices.ContainsFunc(*l, func(long string) bool {
			return len(text) > foreignBytes-4 && strings.HasPrefix(long, text) // cut between characters
		}) {
			cut[text] = true
		}
	}
	return cut
}

// view makes an account readable. explains reports whether whoever reads it may explain numbers.
func view(numbers printer, a *audit, explains bool) *periodView {
	s, p, r := numbers.series, numbers.period, &a.Report
	zone := p.Start.Location()
	v := &periodView{Series: s, Period: p, At: a.at.In(zone), Clean: r.Clean(), Ahead: a.at.Before(p.Start),
		Open: a.at.Before(p.End), Audit: s.Stored != nil, Issued: max(0, r.Last-r.First+1), ReplacedCut: a.replacedCut,
		CSV: address("period.csv", s.Key, p.Start), JSON: address("period.json", s.Key, p.Start)}
	issued := finding{What: "Issued", Count: v.Issued}
	if v.Issued > 0 && !numbers.hidden {
		v.Range = numbers.ranged(serial.Range{First: r.First, Last: r.Last})
		issued.List = []entry{{Text: v.Range}}
	}
	line := func(numbers string, e *serial.Explanation) explainedLine {
		return explainedLine{numbers, e.Reason, e.By, e.At.In(zone)}
	}
	var explained int64
	for _, e := range r.Explained {
		v.Explained = append(v.Explained, line(numbers.ranged(e.Range), &e.Explanation))
		explained += e.Last - e.First + 1
	}
	v.ExplainedCut = explained < r.ExplainedCount
	for _, x := range a.replaced {
		var texts []string
		for _, g := range x.ranges {
			texts = append(texts, numbers.ranged(g))
		}
		v.Replaced = append(v.Replaced, replacedLine{line(strings.Join(texts, ", "), &x.old), line("", &x.by)})
	}
	unexplained := finding{What: "not explained", Count: r.UnexplainedCount, Wrong: true, Class: "part"}
	var shown int64
	for _, g := range numbers.split(r.Unexplained, mostListed) {
		entry := entry{Text: numbers.ranged(g)}
		touching := possibleIn(r, g)
		for i := range touching {
			e := &touching[i]
			if i == mostPossible {
				entry.More = int64(len(touching) - i)
				break
			}
			of := ""
			if !numbers.hidden {
				of = numbers.ranged(serial.Range{First: max(e.First, r.First), Last: min(e.Last, r.Last)})
			}
			entry.Possible = append(entry.Possible, line(of, e))
		}
		if explains {
			entry.Explain = numbers.formAddress(g, commonReason(r, touching))
		}
		unexplained.List = append(unexplained.List, entry)
		shown += g.Last - g.First + 1
	}
	unexplained.Cut = shown < r.UnexplainedCount
	wrong := func(what string, n int64, list []entry) finding {
		return finding{what, n, list, int64(len(list)) < n, true, ""}
	}
	var foreign []entry
	for _, text := range r.Foreign {
		foreign = append(foreign, entry{Text: a.foreign(text)})
	}
	v.Findings = []finding{issued, {What: "Stored", Count: r.Count}, {What: "Missing", Count: r.MissingCount},
		{What: "explained", Count: r.ExplainedCount, Class: "part"}, unexplained,
		wrong("Stored more than once", r.DuplicateCount, entries(r.Duplicates)),
		wrong("Stored, but never issued", r.BeyondCount, entries(r.Beyond)),
		wrong("Stored, but reported as never received", r.ContradictedCount, entries(r.Contradicted)),
		wrong("Stored, but not one of our numbers", r.ForeignCount, foreign)}
	v.Totals = v.totals()
	return v
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

// possibleIn returns the possible reasons that touch a range.
func possibleIn(r *serial.Report, g serial.Range) (touching []serial.Explanation) {
	for _, e := range r.Possible {
		if e.First <= g.Last && e.Last >= g.First {
			touching = append(touching, e)
		}
	}
	return touching
}

// commonReason is the reason of all possible explanations that touch a range, or "" if they differ.
func commonReason(r *serial.Report, touching []serial.Explanation) string {
	if len(touching) == 0 || int64(len(r.Possible)) < r.PossibleCount || // others may touch it, too
		slices.ContainsFunc(touching, func(e serial.Explanation) bool { return e.Reason != touching[0].Reason }) {
		return ""
	}
	return touching[0].Reason
}

func entries(numbers []serial.Number) (all []entry) {
	for _, n := range numbers {
		all = append(all, entry{Text: numberText(n)})
	}
	return all
}

func texts(numbers []serial.Number) (all []string) {
	for _, n := range numbers {
		all = append(all, numberText(n))
	}
	return all
}

// user returns who sent a request, or "" if that may not explain anything.
func (h *handler) user(r *http.Request) (string, error) {
	if h.User == nil {
		return "", nil
	}
	return h.User(r)
}

// explains reports whether missing numbers of a series can be explained.
func (h *handler) explains(s *Series) bool { return s.Explanations != nil && s.Stored != nil }
