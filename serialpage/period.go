package serialpage

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dailyserial/serial"
)

// A periodView is the account of a period, for people.
type periodView struct {
	Series *Series
	Period span
	Issued int64
	Range  string // of those issued
	At     time.Time
	Open   bool // it has not ended
	Closed bool
	Clean  bool
	Audit  bool // there is an account

	Findings     []finding
	Explained    []explainedLine
	ExplainedCut bool // there are more

	Form      *form // nil if nobody may explain
	CSV, JSON string
}

// A finding is a line of an account.
type finding struct {
	What  string
	Count int64
	List  []string
	Cut   bool   // there are more
	Wrong bool   // none should be
	Class string // of the style
}

// An explainedLine is missing numbers with their reason.
type explainedLine struct {
	Numbers    string
	Reason, By string
	At         time.Time
}

// A form is what somebody wants to explain.
type form struct {
	Key, Start          string
	First, Last, Reason string
	Nonce               string
	Wrong               string // what has to be mended
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
	f := frame{Title: s.Name + ", " + p.Name(), Back: []link{home, seriesLink(s)}}
	if format != "" {
		w.Header().Set("Content-Type", contentTypes[format])
	}
	if r.Method == http.MethodHead { // makes no audit
		if format == "" {
			h.write(w, http.StatusOK, "period.html", f, nil)
		}
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
	v := view(s, p, a)
	v.Closed = !p.End.After(closed)
	name, err := h.user(r)
	if err != nil {
		h.Logger.WarnContext(r.Context(), "serialpage: nobody may explain", "err", err)
	} else if h.explains(s) && name != "" {
		v.Form = &form{Key: s.Key, Start: p.Start.UTC().Format(time.RFC3339), Nonce: newNonce()}
	}
	h.write(w, http.StatusOK, "period.html", f, v)
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

// audit returns the account of a period: one of the last minute, or a new one. That is made even if the client leaves, so that it is
// there when the client comes back. Whatever hangs, the answer comes when ctx ends.
func (h *handler) audit(ctx context.Context, w http.ResponseWriter, s *Series, p span) (*audit, error) {
	k := periodKey{s.Key, p.Start.Unix()}
	kept, ok := h.audits.begin(k)
	if kept != nil {
		return kept, nil
	}
	if !ok {
		w.Header().Set("Refresh", "2") // browsers come again
		return nil, &problem{status: http.StatusServiceUnavailable, again: true,
			text: "This check is running, or others are. This page reloads by itself."}
	}
	deadline, _ := ctx.Deadline()
	own, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline)
	type result struct {
		made *audit
		err  error
	}
	ended := make(chan result, 1)
	go func() {
		r := result{err: unavailable(errors.New("the goroutine of an audit was ended"))}
		defer func() {
			cancel()
			if panicked := recover(); panicked != nil {
				r.err = unavailable(fmt.Errorf("panic in an audit: %v\n%s", panicked, debug.Stack()))
			}
			h.audits.end(k, r.made)
			ended <- r
		}()
		r.made, r.err = makeAudit(own, s, p)
	}()
	select {
	case r := <-ended:
		return r.made, r.err
	case <-ctx.Done():
		return nil, unavailable(fmt.Errorf("an audit of %s: %w", s.Key, ctx.Err()))
	}
}

// makeAudit accounts for the numbers of a period.
func makeAudit(ctx context.Context, s *Series, p span) (*audit, error) {
	used := nothing
	if s.Stored != nil {
		used = s.Stored(ctx, p.Start, p.End)
	}
	var opts []serial.AuditOption
	if s.Explanations != nil {
		series, err := s.Source.scheme().Series(s.Type)
		if err != nil {
			return nil, unavailable(err)
		}
		opts = append(opts, serial.WithExplanations(s.Explanations.Explanations(ctx, series, p.Start)))
	}
	report, err := s.Source.audit(ctx, s.Type, p.Start, used, opts...)
	if err == nil {
		return &audit{Report: report, at: time.Now(), stored: s.Stored != nil}, nil
	}
	if errors.Is(err, serial.ErrCounterLost) {
		return nil, &problem{status: http.StatusServiceUnavailable, cause: err,
			text: "The counter was lost, so nobody knows how many numbers were issued. Tell whoever runs the service."}
	}
	if kept, failed := s.Source.history(ctx, s.Type, longestHistory); failed == nil &&
		!slices.ContainsFunc(kept, func(n serial.Number) bool { return n.Start.Equal(p.Start) }) {
		return nil, missing("There is no record of this period.")
	}
	return nil, unavailable(err)
}

const longestHistory = 10_000 // periods

// nothing is stored.
func nothing(func(string, error) bool) {}

var _ iter.Seq2[string, error] = nothing

// view makes an account readable.
func view(s *Series, p span, a *audit) *periodView {
	scheme, r := s.Source.scheme(), &a.Report
	zone := p.Start.Location()
	v := &periodView{Series: s, Period: p, At: a.at.In(zone), Clean: r.Clean(), Open: a.at.Before(p.End),
		Audit: s.Stored != nil, Issued: max(0, r.Last-r.First+1), CSV: address("period.csv", s.Key, p.Start),
		JSON: address("period.json", s.Key, p.Start)}
	issued := finding{What: "Issued", Count: v.Issued}
	if v.Issued > 0 {
		v.Range = rangeText(s, p, serial.Range{First: r.First, Last: r.Last})
		issued.List = []string{v.Range}
	}
	var explained int64
	for _, e := range r.Explained {
		v.Explained = append(v.Explained, explainedLine{rangeText(s, p, e.Range), e.Explanation.Reason, e.Explanation.By,
			e.Explanation.At.In(zone)})
		explained += e.Last - e.First + 1
	}
	v.ExplainedCut = explained < r.ExplainedCount
	unexplained := finding{What: "not explained", Count: r.UnexplainedCount, Wrong: true, Class: "part"}
	var listed int64
	for _, gap := range r.Unexplained {
		unexplained.List = append(unexplained.List, rangeText(s, p, gap))
		listed += gap.Last - gap.First + 1
	}
	unexplained.Cut = listed < r.UnexplainedCount
	wrong := func(what string, n int64, list []string) finding {
		return finding{what, n, list, int64(len(list)) < n, true, ""}
	}
	v.Findings = []finding{issued, {What: "Stored", Count: r.Count}, {What: "Missing", Count: r.MissingCount},
		{What: "explained", Count: r.ExplainedCount, Class: "part"}, unexplained,
		wrong("Stored more than once", r.DuplicateCount, texts(scheme, r.Duplicates)),
		wrong("Stored, but never issued", r.BeyondCount, texts(scheme, r.Beyond)),
		wrong("Stored, but reported as never received", r.ContradictedCount, texts(scheme, r.Contradicted)),
		wrong("Stored, but not one of our numbers", r.ForeignCount, r.Foreign)}
	return v
}

func texts(scheme *serial.Scheme, numbers []serial.Number) (all []string) {
	for _, n := range numbers {
		all = append(all, numberText(scheme, n))
	}
	return all
}

// digits is a sequence, as wide as most templates print it.
func digits(scheme *serial.Scheme, seq int64) string {
	_, largest := scheme.Limits()
	width := len(strconv.FormatInt(largest, 10))
	if width > 9 { // sequences that grow
		width = 4
	}
	return fmt.Sprintf("%0*d", width, seq)
}

// rangeText is a range of numbers as they are printed if the period says how, else of sequences.
func rangeText(s *Series, p span, r serial.Range) string {
	scheme := s.Source.scheme()
	start, end, err := scheme.Span(p.Start)
	known := err == nil && start.Equal(p.Start) && end.Equal(p.End)
	text := func(seq int64) string {
		if n, err := scheme.Number(s.Type, p.Start, seq); known && err == nil {
			return n.String()
		}
		return digits(scheme, seq)
	}
	if r.First == r.Last {
		return text(r.First)
	}
	return text(r.First) + " – " + text(r.Last)
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
