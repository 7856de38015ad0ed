package serialpage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dailyserial/serial"
)

const (
	largestForm     = 64 << 10 // bytes
	oldestForm      = time.Hour
	longestTurn     = 5 * time.Second  // for which a form waits until it may check its numbers
	largestSequence = 1e15 - 1         // of an explanation
	formTime        = time.RFC3339Nano // of microseconds, which registers keep
)

// A form is what somebody wants to explain.
type form struct {
	Key, Start, At      string
	First, Last, Reason string
	Single              bool   // it takes no ranges
	Wrong               string // what must be corrected
}

// newForm is the form of a period, with the values of a query.
func newForm(numbers printer, query url.Values) *form {
	field := func(name string) string { return strings.TrimSpace(query.Get(name)) }
	return &form{Key: numbers.series.Key, Start: numbers.period.Start.UTC().Format(time.RFC3339),
		At: time.Now().UTC().Truncate(time.Microsecond).Format(formTime), First: field("first"), Last: field("last"),
		Reason: field("reason"), Single: numbers.hidden}
}

// formAddress is the address of the form with the numbers of a range, or "" if the template cannot print them.
func (n printer) formAddress(r serial.Range, reason string) string {
	first, last := n.whole(r.First), ""
	if r.Last > r.First {
		last = n.whole(r.Last)
	}
	if first == "" {
		return ""
	}
	return n.filledAddress(first, last, reason)
}

// filledAddress is the address of the form with these values.
func (n printer) filledAddress(first, last, reason string) string {
	return address("period", n.series.Key, n.period.Start, "first", first, "last", last, "reason", reason) + "#explain"
}

// explain stores why numbers are missing, and sends the client back to the period.
func (h *handler) explain(w http.ResponseWriter, r *http.Request) error {
	user, err := h.user(r)
	if err != nil || user == "" {
		return &problem{status: http.StatusForbidden, text: "You may not explain numbers here.", cause: err}
	}
	if err := r.ParseForm(); err != nil {
		return refused("The form could not be read.")
	}
	s, err := h.find(r, r.PostForm)
	if err != nil {
		return err
	}
	if !h.explains(s) {
		return &problem{status: http.StatusForbidden, text: "Numbers of this series cannot be explained here."}
	}
	p, err := periodIn(s, r.PostForm.Get("start"))
	if err != nil {
		return err
	}
	numbers := newPrinter(s, p)
	in := newForm(numbers, r.PostForm)
	at, err := time.Parse(formTime, r.PostForm.Get("at"))
	at = at.UTC().Truncate(time.Microsecond)
	if age := time.Since(at); err != nil || age < 0 || age > oldestForm {
		return &problem{status: http.StatusBadRequest,
			text: "Nothing was saved: this form is older than an hour, or its time lies in the future. Load the page again.",
			to:   &link{numbers.filledAddress(in.First, in.Last, in.Reason), "Load the page again"}}
	}
	again := func(status int, wrong string) error {
		in.Wrong = wrong
		h.write(w, status, "explain.html", frame{Title: "Explanation not saved",
			Back: []link{home, seriesLink(s), {address("period", s.Key, p.Start), p.Name}}}, struct{ Form *form }{in})
		return nil
	}
	e := serial.Explanation{Type: s.Type, Start: p.Start, Reason: in.Reason, By: user, At: at}
	if e.Series, err = s.Source.scheme().Series(s.Type); err != nil {
		return unavailable(err)
	}
	given, wrong := in.given(numbers)
	if wrong = cmp.Or(wrong, in.wrongReason()); wrong != "" {
		return again(http.StatusBadRequest, wrong)
	}
	e.First, e.Last = given.First, given.Last
	if err := e.Validate(); err != nil {
		return unavailable(fmt.Errorf("Options.User: %w", err))
	}
	report, err := h.missingIn(r.Context(), numbers, e)
	if err != nil {
		return err
	}
	var listed int64
	for _, g := range report.Unexplained {
		listed += g.Last - g.First + 1
	}
	switch {
	case listed == 0:
		return again(http.StatusBadRequest, "None of these numbers is missing now: they are stored, or have not been issued.")
	case listed < report.UnexplainedCount:
		return again(http.StatusBadRequest, "The missing numbers among these are in more than "+count(mostListed)+
			" places. Enter a smaller range.")
	}
	in.At = at.Format(formTime) // all attempts are one explanation
	defer h.audits.forget(periodKey{s.Key, p.Start.Unix()})
	if err := store(r.Context(), s.Explanations, e, report.Unexplained); err != nil {
		h.logProblem(r, "an explanation was not saved", err)
		w.Header().Set("Retry-After", "5")
		return again(http.StatusServiceUnavailable, "Not everything was saved. Send the form again to save the rest.")
	}
	w.Header().Set("Location", in.savedAddress(numbers))
	w.WriteHeader(http.StatusSeeOther)
	return nil
}

// given returns the sequences of the numbers in a form, or what is wrong with these.
func (in *form) given(numbers printer) (r serial.Range, wrong string) {
	if r.First, wrong = numbers.sequence(in.First); wrong != "" {
		return r, wrong
	}
	r.Last = r.First
	if in.Last != "" {
		r.Last, wrong = numbers.sequence(in.Last)
	}
	switch {
	case wrong != "":
		return r, wrong
	case in.Single && r.First != r.Last:
		return r, "Enter one number: in this series, numbers do not show which ones lie between them."
	case r.First > r.Last:
		return r, "Enter the lower number first."
	}
	return r, ""
}

// sequence reads a number of the period, or says what is wrong with it.
func (n printer) sequence(text string) (seq int64, wrong string) {
	number, err := n.series.Source.scheme().Parse(text)
	switch {
	case errors.Is(err, serial.ErrCheckDigit):
		return 0, "A number was mistyped: its check digit does not fit."
	case err != nil:
		return 0, "Enter numbers of this series, whole, as they are printed."
	case number.Type != n.series.Type || !number.Start.Equal(n.period.Start):
		return 0, "Enter numbers of this series and period."
	}
	return number.Seq, ""
}

// wrongReason says what is wrong with the reason, or nothing.
func (in *form) wrongReason() string {
	const most = 500
	other := strings.IndexFunc(in.Reason, func(r rune) bool { return !unicode.IsGraphic(r) })
	switch {
	case in.Reason == "":
		return "Enter a reason."
	case len(in.Reason) > most:
		return fmt.Sprintf("Enter a shorter reason: this one has %d bytes, and %d are possible.", len(in.Reason), most)
	case !utf8.ValidString(in.Reason):
		return "The reason is not valid UTF-8."
	case other >= 0:
		r, _ := utf8.DecodeRuneInString(in.Reason[other:])
		return fmt.Sprintf("Enter a reason without invisible characters: this one has %q.", r)
	}
	return ""
}

// missingIn returns a report whose Unexplained are the missing numbers in the range of e.
func (h *handler) missingIn(ctx context.Context, numbers printer, e serial.Explanation) (serial.Report, error) {
	s, p := numbers.series, numbers.period
	k, patience := periodKey{s.Key, p.Start.Unix()}, time.NewTimer(min(h.Limit/2, longestTurn))
	defer patience.Stop()
	for {
		ok, ended := h.audits.begin(k)
		if ok {
			break
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return serial.Report{}, unavailable(ctx.Err())
		case <-patience.C:
			return serial.Report{}, &problem{status: http.StatusServiceUnavailable, again: true,
				text: "Nothing was saved, since other checks are running. Go back and send the form again."}
		}
	}
	defer h.audits.end(k, nil)
	outside := func(yield func(serial.Explanation, error) bool) { // explains all other numbers
		below, above := e, e
		below.First, below.Last = 1, e.First-1
		above.First, above.Last = e.Last+1, largestSequence
		for _, e := range []serial.Explanation{below, above} {
			if e.First <= e.Last && !yield(e, nil) {
				return
			}
		}
	}
	report, err := s.Source.audit(ctx, s.Type, p.Start, s.Stored(ctx, p.Start, p.End), serial.WithExplanations(outside))
	if err != nil {
		return serial.Report{}, auditError(ctx, s, p, err)
	}
	return report, nil
}

// store adds e for each of the ranges, except for those that the register already has. So if storing fails halfway, the
// same form completes it, however little time an attempt has.
func store(ctx context.Context, register Explanations, e serial.Explanation, ranges []serial.Range) error {
	stored, err := storedRanges(ctx, register, e)
	if err != nil {
		return err
	}
	for _, g := range ranges {
		if slices.Contains(stored, g) {
			continue
		}
		e.First, e.Last = g.First, g.Last
		if err := register.Explain(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

// storedRanges returns the ranges for which the register has e. The range of e itself plays no part.
func storedRanges(ctx context.Context, register Explanations, e serial.Explanation) (all []serial.Range, err error) {
	for x, err := range register.Explanations(ctx, e.Series, e.Start) {
		if err != nil {
			return nil, err
		}
		found := serial.Range{First: x.First, Last: x.Last}
		x.First, x.Last = e.First, e.Last
		if x.Series == e.Series && x.Start.Equal(e.Start) && plain(x) == plain(e) {
			all = append(all, found)
		}
	}
	return all, nil
}

// saved says what a form has stored.
type saved struct {
	Numbers []string
	Count   int64 // 0 if no form led to the page
	Cut     bool  // there are more numbers than are listed
	Others  int64 // numbers given that were not missing
}

// savedAddress is the address of the page that says what the form has stored. It has the whole form: if somebody goes
// back, changes something and sends the form again, the time alone would stand for both explanations.
func (in *form) savedAddress(numbers printer) string {
	return address("period", in.Key, numbers.period.Start, "saved", in.At, "first", in.First, "last", in.Last,
		"reason", in.Reason) + "#saved"
}

// readSaved returns what the register has of the form that a query describes. The query proves nothing.
func readSaved(ctx context.Context, numbers printer, query url.Values, user string) (v saved, err error) {
	at, err := time.Parse(formTime, query.Get("saved"))
	if err != nil {
		return v, nil
	}
	in := newForm(numbers, query)
	given, wrong := in.given(numbers)
	if wrong != "" {
		return v, nil
	}
	s := numbers.series
	e := serial.Explanation{Start: numbers.period.Start, Reason: in.Reason, By: user, At: at}
	if e.Series, err = s.Source.scheme().Series(s.Type); err != nil {
		return v, err
	}
	stored, err := storedRanges(ctx, s.Explanations, e)
	if err != nil {
		return v, err
	}
	ranges := within(stored, given)
	for _, g := range ranges {
		v.Count += g.Last - g.First + 1
	}
	v.Cut = len(ranges) > mostListed
	for _, g := range ranges[:min(len(ranges), mostListed)] {
		v.Numbers = append(v.Numbers, numbers.ranged(g))
	}
	v.Others = given.Last - given.First + 1 - v.Count
	return v, nil
}

// within returns the numbers of ranges that lie in limits, as disjoint ranges in ascending order.
func within(ranges []serial.Range, limits serial.Range) (all []serial.Range) {
	slices.SortFunc(ranges, func(a, b serial.Range) int { return cmp.Compare(a.First, b.First) })
	next := limits.First
	for _, g := range ranges {
		g.First, g.Last = max(g.First, next), min(g.Last, limits.Last)
		if g.First <= g.Last {
			all, next = append(all, g), g.Last+1
		}
	}
	return all
}
