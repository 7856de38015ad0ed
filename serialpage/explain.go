package serialpage

import (
	"cmp"
	"context"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/dailyserial/serial"
)

const (
	longestTurn     = 5 * time.Second // a form's wait for its audit
	largestSequence = 1e15 - 1        // of an explanation
)

// explain stores why numbers are missing, and sends the client back to the period.
func (h *handler) explain(w http.ResponseWriter, r *http.Request) error {
	user, refused := h.user(r)
	if user == "" && refused == "" {
		return forbidden("Numbers cannot be explained here.")
	}
	numbers, err := h.explaining(r)
	switch {
	case err != nil && refused != "":
		return forbidden(refused)
	case err != nil:
		return err
	case refused != "":
		return h.formAgain(w, numbers, newForm(numbers, r.PostForm), http.StatusForbidden, refused)
	}
	s, p, in := numbers.series, numbers.period, newForm(numbers, r.PostForm)
	given, wrong := in.check(numbers)
	at, old := readTime(r.PostForm.Get("at"))
	if wrong = cmp.Or(old, wrong); wrong != "" {
		return h.formAgain(w, numbers, in, http.StatusBadRequest, wrong)
	}
	e := serial.Explanation{Series: s.series(), Type: s.Type, Start: p.Start, First: given.First, Last: given.Last,
		Reason: in.Reason, By: user, At: at}
	report, err := h.missingIn(r.Context(), numbers, e)
	if err != nil {
		return err
	}
	switch {
	case report.UnexplainedCount == 0:
		return h.formAgain(w, numbers, in, http.StatusBadRequest,
			"None of these numbers is missing now: they are stored, or have not been issued.")
	case size(report.Unexplained...) < report.UnexplainedCount:
		return h.formAgain(w, numbers, in, http.StatusBadRequest,
			"The missing numbers among these are in more than "+count(mostListed)+" places. Enter a smaller range.")
	}
	in.At = at.Format(formTime) // all attempts are one explanation
	defer h.audits.explained(periodKey{s.Key, p.Start.Unix()})
	if err := store(r.Context(), s.Explanations, e, report.Unexplained); err != nil {
		h.logFailure(r, "an explanation was not saved", err)
		w.Header().Set("Retry-After", "5")
		return h.formAgain(w, numbers, in, http.StatusServiceUnavailable,
			"Not everything was saved. Send the form again to save the rest.")
	}
	w.Header().Set("Location", address("period", s.Key, p.Start, "saved", in.At, "reason", in.Reason)+"#saved")
	w.WriteHeader(http.StatusSeeOther)
	return nil
}

// explaining returns the series and period that a form is about, or an error if these numbers cannot be explained.
func (h *handler) explaining(r *http.Request) (numbers printer, err error) {
	if err := r.ParseForm(); err != nil {
		return numbers, badRequest("The form could not be read.")
	}
	s, p, err := h.findPeriod(r.Context(), r.PostForm)
	if err != nil {
		return numbers, err
	}
	if !s.explainable() {
		return numbers, forbidden("Numbers of this series cannot be explained here.")
	}
	return newPrinter(s, p), nil
}

// formAgain answers with the form and what must be corrected.
func (h *handler) formAgain(w http.ResponseWriter, numbers printer, in *form, status int, wrong string) error {
	in.Wrong = wrong
	s, p := numbers.series, numbers.period
	h.write(w, status, "explain.html", frame{Title: "Explanation not saved",
		Back: []link{home, seriesLink(s), {address("period", s.Key, p.Start), p.Name}}}, struct{ Form *form }{in})
	return nil
}

// missingIn returns a report whose Unexplained are the missing numbers in the range of e.
func (h *handler) missingIn(ctx context.Context, numbers printer, e serial.Explanation) (serial.Report, error) {
	s, p := numbers.series, numbers.period
	k := periodKey{s.Key, p.Start.Unix()}
	if err := h.waitTurn(ctx, k); err != nil {
		return serial.Report{}, err
	}
	defer h.audits.end(k, nil)
	_, from, to := s.reach(p)
	report, err := s.Source.audit(ctx, s.Type, p.Start, s.Stored(ctx, from, to), serial.WithEarlier(s.Earlier...),
		serial.WithExplanations(allOthers(e)))
	if err != nil {
		return serial.Report{}, auditError(ctx, s, p, err)
	}
	return report, nil
}

// waitTurn waits until an audit of the period may run, and begins it.
func (h *handler) waitTurn(ctx context.Context, k periodKey) error {
	ctx, cancel := context.WithTimeout(ctx, min(h.Limit/2, longestTurn))
	defer cancel()
	for {
		ok, ended := h.audits.begin(k)
		if ok {
			return nil
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return &problem{status: http.StatusServiceUnavailable, retry: true,
				text: "Nothing was saved because other checks are running. Go back and send the form again."}
		}
	}
}

// allOthers explains every sequence outside the range of e.
func allOthers(e serial.Explanation) iter.Seq2[serial.Explanation, error] {
	return func(yield func(serial.Explanation, error) bool) {
		below, above := e, e
		below.First, below.Last = 1, e.First-1
		above.First, above.Last = e.Last+1, largestSequence
		for _, e := range []serial.Explanation{below, above} {
			if e.First <= e.Last && !yield(e, nil) {
				return
			}
		}
	}
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

// readSaved returns the numbers for which the register has the explanation that the address of a page describes. Its
// time is that of the form that led there, and its user the one who reads the page.
func readSaved(ctx context.Context, numbers printer, query url.Values, user string) (texts []string, err error) {
	at, err := time.Parse(formTime, query.Get("saved"))
	if err != nil {
		return nil, nil // no form led to the page
	}
	s := numbers.series
	ranges, err := storedRanges(ctx, s.Explanations, serial.Explanation{Series: s.series(), Start: numbers.period.Start,
		Reason: query.Get("reason"), By: user, At: at})
	slices.SortFunc(ranges, func(x, y serial.Range) int { return cmp.Compare(x.First, y.First) })
	for _, g := range ranges[:min(len(ranges), mostListed)] {
		texts = append(texts, numbers.ranged(g))
	}
	return texts, err
}
