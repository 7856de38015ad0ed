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
	maxTurnWait = 5 * time.Second // maximum time for which a request with a form waits until its audit may begin
	maxSequence = 1e15 - 1        // largest sequence in an explanation
)

// explain stores the explanation in a form, and redirects the client to the page of the period.
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
			"None of these numbers is missing at the moment. They are stored, or have not been issued.")
	case size(report.Unexplained...) < report.UnexplainedCount:
		return h.formAgain(w, numbers, in, http.StatusBadRequest,
			"The missing numbers in this range form more than "+count(maxListed)+" groups. Enter a smaller range.")
	}
	in.At = at.Format(formTime) // so that all attempts store the same explanation
	defer h.audits.explained(periodKey{s.Key, p.Start.Unix()})
	if err := store(r.Context(), s.Explanations, e, report.Unexplained); err != nil {
		h.logFailure(r, "an explanation was not saved", err)
		w.Header().Set("Retry-After", "5")
		return h.formAgain(w, numbers, in, http.StatusServiceUnavailable,
			"The explanation was not saved for all of these numbers. Send the form again to save the rest.")
	}
	w.Header().Set("Location", address("period", s.Key, p.Start, "saved", in.At, "reason", in.Reason)+"#saved")
	w.WriteHeader(http.StatusSeeOther)
	return nil
}

// explaining parses a form, and returns the printer for its series and period. It returns an error if numbers of the
// series cannot be explained.
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

// formAgain responds with the form and the text wrong, which describes the mistake.
func (h *handler) formAgain(w http.ResponseWriter, numbers printer, in *form, status int, wrong string) error {
	in.Wrong = wrong
	s, p := numbers.series, numbers.period
	h.write(w, status, "explain.html", frame{Title: "Explanation not saved",
		Back: []link{home, seriesLink(s), {address("period", s.Key, p.Start), p.Name}}}, struct{ Form *form }{in})
	return nil
}

// missingIn audits the period, and returns a report whose Unexplained contains the missing numbers in the range of e.
// If this audit may not run yet because of other audits, missingIn waits.
func (h *handler) missingIn(ctx context.Context, numbers printer, e serial.Explanation) (serial.Report, error) {
	s, p := numbers.series, numbers.period
	k := periodKey{s.Key, p.Start.Unix()}
	if err := h.waitTurn(ctx, k); err != nil {
		return serial.Report{}, err
	}
	defer h.audits.end(k, nil)
	_, from, to := s.periodInAllSchemes(p)
	report, err := s.Source.audit(ctx, s.Type, p.Start, s.Stored(ctx, from, to), serial.WithEarlier(s.Earlier...),
		serial.WithExplanations(allOthers(e)))
	if err != nil {
		return serial.Report{}, auditError(ctx, s, p, err)
	}
	return report, nil
}

// waitTurn waits until an audit of the period may run, and then reserves a slot for the audit. If it returns no error,
// the caller must call audits.end.
func (h *handler) waitTurn(ctx context.Context, k periodKey) error {
	ctx, cancel := context.WithTimeout(ctx, min(h.Limit/2, maxTurnWait))
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

// allOthers yields explanations of all sequences outside the range of e. With these explanations, only the missing
// numbers in the range remain unexplained.
func allOthers(e serial.Explanation) iter.Seq2[serial.Explanation, error] {
	return func(yield func(serial.Explanation, error) bool) {
		below, above := e, e
		below.First, below.Last = 1, e.First-1
		above.First, above.Last = e.Last+1, maxSequence
		for _, e := range []serial.Explanation{below, above} {
			if e.First <= e.Last && !yield(e, nil) {
				return
			}
		}
	}
}

// store adds e to the register for each of the ranges. It skips the ranges for which the register already contains e.
// So if store fails halfway, the user can send the same form again to store the remaining ranges.
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

// storedRanges returns the ranges for which the register contains the explanation e. It ignores the range in e.
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

// readSaved returns the numbers that were explained by the form from which the client was redirected. The address of
// the page contains the time of the form and the reason. Explanations by users other than the reader are ignored.
func readSaved(ctx context.Context, numbers printer, query url.Values, user string) (texts []string, err error) {
	at, err := time.Parse(formTime, query.Get("saved"))
	if err != nil {
		return nil, nil // the client was not redirected from a form
	}
	s := numbers.series
	ranges, err := storedRanges(ctx, s.Explanations, serial.Explanation{Series: s.series(), Start: numbers.period.Start,
		Reason: query.Get("reason"), By: user, At: at})
	slices.SortFunc(ranges, func(x, y serial.Range) int { return cmp.Compare(x.First, y.First) })
	for _, g := range ranges[:min(len(ranges), maxListed)] {
		texts = append(texts, numbers.ranged(g))
	}
	return texts, err
}
