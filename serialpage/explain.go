package serialpage

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dailyserial/serial"
)

const (
	largestForm     = 64 << 10 // bytes
	keptSubmissions = 1000
)

// explain keeps why numbers are missing, and sends the client back to the period.
func (h *handler) explain(w http.ResponseWriter, r *http.Request) error {
	user, err := h.user(r)
	if err != nil || user == "" {
		return &problem{status: http.StatusForbidden, text: "You may not explain numbers here.", cause: err}
	}
	r.Body = http.MaxBytesReader(w, r.Body, largestForm)
	if err := r.ParseForm(); err != nil {
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			return &problem{status: http.StatusRequestEntityTooLarge, text: "The form is too large."}
		}
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
	in := form{Key: s.Key, Start: r.PostForm.Get("start"), First: strings.TrimSpace(r.PostForm.Get("first")),
		Last: strings.TrimSpace(r.PostForm.Get("last")), Reason: strings.TrimSpace(r.PostForm.Get("reason")),
		Nonce: r.PostForm.Get("nonce")}
	if in.Nonce == "" || len(in.Nonce) > 64 {
		return refused("This form has expired. Go back and reload the page.")
	}
	e, wrong, err := h.explanation(r.Context(), s, p, in, user)
	if err != nil {
		return err
	}
	if wrong != "" {
		in.Wrong = wrong
		h.write(w, http.StatusBadRequest, "explain.html", frame{Title: "Explanation not saved",
			Back: []link{home, seriesLink(s), {address("period", s.Key, p.Start), p.Name()}}}, struct{ Form *form }{&in})
		return nil
	}
	k := submission{in.Nonce, e.Series, e.Start.Unix(), e.First, e.Last, e.Reason, e.By}
	if err := h.submissions.once(r.Context(), k, func(at time.Time) error {
		e.At = at
		return s.Explanations.Explain(r.Context(), e)
	}); err != nil {
		return unavailable(err)
	}
	h.audits.forget(periodKey{s.Key, p.Start.Unix()})
	w.Header().Set("Location", address("period", s.Key, p.Start)+"#account")
	w.WriteHeader(http.StatusSeeOther)
	return nil
}

// explanation is what a form says, or what is wrong with it.
func (h *handler) explanation(ctx context.Context, s *Series, p span, in form, user string) (
	e serial.Explanation, wrong string, err error) {
	scheme := s.Source.scheme()
	series, err := scheme.Series(s.Type)
	if err != nil {
		return e, "", unavailable(err)
	}
	// The account of nothing tells how far the numbers go.
	r, err := s.Source.audit(ctx, s.Type, p.Start, nothing)
	if err != nil {
		return e, "", unavailable(err)
	}
	issued := rangeText(s, p, serial.Range{First: r.First, Last: r.Last})
	first, ok := sequence(s, p, in.First)
	last, okLast := first, true
	if in.Last != "" {
		last, okLast = sequence(s, p, in.Last)
	}
	switch {
	case r.Last < r.First:
		return e, "No number of this period was issued.", nil
	case !ok || !okLast || first < r.First || last > r.Last || first > last:
		return e, "Enter numbers of this period, whole or only their last digits, the lower one first: " + issued + ".", nil
	case in.Reason == "":
		return e, "Enter a reason.", nil
	case len(in.Reason) > 500:
		return e, fmt.Sprintf("Enter a shorter reason: this one has %d bytes, and 500 are possible.", len(in.Reason)), nil
	}
	e = serial.Explanation{Series: series, Type: s.Type, Start: p.Start, First: first, Last: last, Reason: in.Reason,
		By: user, At: time.Now()}
	if err := e.Validate(); err != nil {
		return e, "The explanation was not saved: " + strings.TrimPrefix(err.Error(), "serial: ") + ".", nil
	}
	return e, "", nil
}

// sequence reads a number of the period, or only its sequence.
func sequence(s *Series, p span, text string) (seq int64, ok bool) {
	if n, err := s.Source.scheme().Parse(text); err == nil {
		return n.Seq, n.Type == s.Type && n.Start.Equal(p.Start)
	}
	seq, err := strconv.ParseInt(text, 10, 64)
	return seq, err == nil
}

// A submission is what a form of a page sent.
type submission struct {
	nonce, series      string
	start, first, last int64
	reason, by         string
}

// submissions are the latest, so that one that comes again is kept once.
type submissions struct {
	mu   sync.Mutex // guards all below
	seen recent[submission, *sent]
}

// sent is a submission under way, or done.
type sent struct {
	turn chan struct{} // holds one value, unless an attempt is under way; guards done
	at   time.Time
	done bool
}

func newSubmissions() *submissions {
	return &submissions{seen: newRecent[submission, *sent](keptSubmissions)}
}

// once runs keep unless it has succeeded for the same submission. All attempts have one time, so that an explanation that was kept
// although keep failed is the same one again.
func (all *submissions) once(ctx context.Context, k submission, keep func(at time.Time) error) error {
	all.mu.Lock()
	s, ok := all.seen.get(k)
	if !ok {
		s = &sent{turn: make(chan struct{}, 1), at: time.Now()}
		s.turn <- struct{}{}
		all.seen.put(k, s)
	}
	all.mu.Unlock()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.turn:
	}
	defer func() { s.turn <- struct{}{} }()
	if s.done {
		return nil
	}
	err := keep(s.at)
	s.done = err == nil
	return err
}
