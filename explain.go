package serial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dailyserial/serial/internal/backlog"
	"github.com/dailyserial/serial/internal/series"
	"github.com/dailyserial/serial/internal/template"
)

// The Reason of an [Explanation] that comes from this package begins with one of these constants.
//
// CallerLeft, BlockBurned and, with a ledger, NotReplicated are certain reasons. Their explanations have Unused set,
// and explain missing numbers. The others are only possible reasons. Their explanations have Possible set, and explain
// no number.
//
// If every process of the series has the ledger, a number for which Unused is set is never issued. Otherwise, it may
// still be issued: after Redis has lost data, or after a [Generator.Takeover] that takes the series out of the ledger
// with a sequence below the number.
const (
	// CallerLeft means that the call was canceled or timed out before its reply arrived. The reply contained exactly these
	// numbers, so they were not returned to a caller.
	CallerLeft = "caller left"
	// NotReplicated means that a call for exactly these numbers returned [ErrNotReplicated]. With a ledger, they are never
	// issued. Without a ledger, this is only a possible reason, because the numbers may be issued again after a failover.
	NotReplicated = "not replicated"
	// BlockBurned means that this process reserved a block of these numbers in the ledger, and that the block can no
	// longer be used.
	BlockBurned = "block burned"
	// AnswerLost is a possible reason. It means that an attempt may have issued numbers, because there was no reply, or
	// because the error leaves open whether the script ran. The range begins above the largest sequence that the process
	// had returned before, and ends with the largest sequence of the period. The hook receives at most one such
	// explanation per second for each series and period. All further ones within that second are merged into one, which
	// has the smallest First, the earliest At and the number of attempts, such as "answer lost: 3 attempts".
	// [Generator.Flush] passes the merged one on without waiting for the second to end.
	AnswerLost = "answer lost"
	// Raised is a possible reason. It means that [Generator.Raise] or [Generator.Takeover] raised the counter above these
	// numbers. Redis may have lost data before, so some of the numbers may have been issued. If the counter was lost, or
	// if there was no reply, there is no explanation.
	Raised = "raised"
	// BlockSkipped is a possible reason. It means that a block of the ledger began above the counter, or that an operator
	// raised the counter above earlier blocks. Redis may have issued some of these numbers before it lost data. If the
	// counter was lost, there is no explanation.
	BlockSkipped = "block skipped"
)

// An Explanation gives a reason why numbers of a type are missing in a period. [Hooks].Unused receives the explanations
// of a [Generator]. An application adds its own explanations, for example for a voided document. [WithExplanations]
// passes them to an audit.
//
// An Explanation covers all sequences from First to Last. If Possible is set, it names a reason why some of them may be
// missing. An audit lists it next to the unexplained sequences, but treats none of them as explained.
type Explanation struct {
	Series      string    // result of [Scheme.Series], such as "serial:IS"; it includes the key prefix
	Type        string    // business type, for information only, because explanations are found by Series and Start
	Start       time.Time // first instant of the period
	First, Last int64     // first and last sequence, inclusive: 1 to 10^15-1
	// Reason has 1 to 500 bytes of UTF-8: letters, marks, digits, punctuation, symbols and spaces. The joiners U+200C and
	// U+200D are allowed between two letters or symbols, also if marks follow the first of the two.
	Reason   string
	By       string    // name of a person or job, at most 100 bytes of the same characters; "" for this package
	At       time.Time // time when the explanation was given; not zero
	Unused   bool      // whether no document may have the sequences, because no caller got them; not with Possible
	Possible bool      // whether the reason is only possible, and explains none of the sequences; not with Unused
}

// Validate returns an error if a field is invalid, and nil otherwise. The message names the field and the valid values.
func (e Explanation) Validate() error {
	const largest = template.MaxSequence
	err := func(format string, args ...any) error {
		about := []any{cmp.Or(e.Type, e.Series), e.First, e.Last}
		return fmt.Errorf("serial: explanation of %s %d to %d: "+format, append(about, args...)...)
	}
	switch {
	case e.First < 1 || e.First > e.Last || e.Last > largest:
		return err("sequences must be 1 to %d, in order", largest)
	case e.At.IsZero():
		return err("At is zero; want the time at which the explanation was given")
	case e.Unused && e.Possible:
		return err("Unused and Possible are both set; want at most one of them")
	}
	if wrong := checkProse(e.Reason, 1, 500); wrong != "" {
		return err("Reason: %s", wrong)
	}
	if wrong := checkProse(e.By, 0, 100); wrong != "" {
		return err("By: %s", wrong)
	}
	return nil
}

// Explanation returns an explanation for the missing numbers from first to last, for example those of voided documents.
// Its At is the current time. Set Unused or Possible in the result if they apply. The numbers may come from
// [Scheme.Parse], [Scheme.Number], [Generator.Peek] and similar methods, even if their Date is not known.
//
// The error matches [ErrInvalidType] if the type is invalid. Explanation also fails if a Number is zero, if the numbers
// are of different series or periods, if they are in the wrong order, and if the reason or the name is invalid; see
// [Explanation].
func (s *Scheme) Explanation(first, last Number, reason, by string) (Explanation, error) {
	series, err := s.Series(first.Type)
	other, otherErr := s.Series(last.Type)
	switch {
	case first.Start.IsZero() || last.Start.IsZero():
		return Explanation{}, errors.New("serial: Explanation: a Number is zero: want the first and the last to explain")
	case cmp.Or(err, otherErr) != nil:
		return Explanation{}, cmp.Or(err, otherErr)
	case series != other:
		return Explanation{}, fmt.Errorf("serial: Explanation of %s and %s: want numbers of one series", series, other)
	case !first.Start.Equal(last.Start):
		return Explanation{}, fmt.Errorf("serial: Explanation of %s: want numbers of one period, not of those that begin "+
			"at %v and %v", series, At(first.Start), At(last.Start))
	}
	e := Explanation{Series: series, Type: first.Type, Start: first.Start, First: first.Seq, Last: last.Seq,
		Reason: reason, By: by, At: time.Now().Round(0).UTC()}
	if err := e.Validate(); err != nil {
		return Explanation{}, err
	}
	return e, nil
}

// checkText describes what is wrong with a string. It returns "" if the string is UTF-8, its length is minBytes to
// maxBytes, and all of its characters are allowed.
func checkText(text string, minBytes, maxBytes int, allowed func(rune) bool) string {
	switch {
	case len(text) < minBytes || len(text) > maxBytes:
		return fmt.Sprintf("%d bytes; want %d to %d", len(text), minBytes, maxBytes)
	case !utf8.ValidString(text):
		return "not valid UTF-8; want printable UTF-8"
	}
	for _, r := range text {
		if !allowed(r) {
			return fmt.Sprintf("it contains %q; want printable UTF-8", r)
		}
	}
	return ""
}

// checkProse is like checkText, for strings that people write. It allows all graphic characters, which include spaces
// such as U+00A0 and U+202F. It also allows the joiners that Persian, Hindi and emoji need, but only between two
// letters or symbols. Marks may follow the first of the two.
func checkProse(text string, minBytes, maxBytes int) string {
	isJoiner := func(r rune) bool { return r == '\u200c' || r == '\u200d' }
	allowed := func(r rune) bool { return unicode.IsGraphic(r) || isJoiner(r) }
	if wrong := checkText(text, minBytes, maxBytes, allowed); wrong != "" {
		return wrong
	}
	joinable := func(r rune, size int) bool { return size > 0 && (unicode.IsLetter(r) || unicode.IsSymbol(r)) }
	for i, r := range text {
		if !isJoiner(r) {
			continue
		}
		before, after := strings.TrimRightFunc(text[:i], unicode.IsMark), text[i+utf8.RuneLen(r):]
		if !joinable(utf8.DecodeLastRuneInString(before)) || !joinable(utf8.DecodeRuneInString(after)) {
			return fmt.Sprintf("it contains %q; want it only between two letters or symbols", r)
		}
	}
	return ""
}

// reasons contains the Reason of the explanations of gaps, by the cause of the gap.
var reasons = [...]string{
	series.CallerLeft: CallerLeft, series.NotReplicated: NotReplicated, series.AnswerLost: AnswerLost,
	series.Raised: Raised, series.BlockSkipped: BlockSkipped, series.BlockBurned: BlockBurned,
}

// UnusedFailed notes that a call of [Hooks].Unused could not store its explanation because of err. ctx must be the
// context of that call; otherwise UnusedFailed does nothing. A hook that tries again should call UnusedFailed after
// every failure, and call it with nil once it succeeds. If the latest err is not nil when the hook returns, the
// explanation is lost. The error of [Generator.Flush] lists lost explanations, and wraps the latest err.
func UnusedFailed(ctx context.Context, err error) {
	if note, ok := ctx.Value(noteKey{}).(func(error)); ok {
		note(err)
	}
}

type noteKey struct{} // key of a func(error) in the context of an Unused hook

// Flush waits until [Hooks].Unused has received all unused numbers, including those of canceled calls whose reply has
// not arrived yet. Call it before a process ends, because numbers that are not reported stay unexplained. Do not call
// it from the hook. Without such a hook, Flush returns immediately.
//
// If ctx ends first, Flush returns an error that matches the error of ctx, and the remaining numbers are still reported
// later. Flush also returns an error if the hook has lost an explanation since the previous call of Flush. The error
// lists the ranges of the numbers that have not been reported, and contains the latest error that was passed to
// [UnusedFailed].
func (g *Generator) Flush(ctx context.Context) error {
	if g.reporter == nil {
		return nil
	}
	var err error
	for _, part := range g.reporter.flush(ctx) {
		if err == nil {
			err = fmt.Errorf("serial: Flush: %w", part)
		} else {
			err = fmt.Errorf("%w; %w", err, part)
		}
	}
	return err
}

// flush waits until everything is reported or ctx ends. It returns up to three errors: the error of ctx, a list of the
// ranges that are not reported, and the latest error of a hook. It then forgets the explanations that hooks have lost.
func (r *reporter) flush(ctx context.Context) (errs []error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.flushing++
	r.signal()
	for ctx.Err() == nil && (r.running || r.pending > 0) {
		r.await(ctx)
	}
	r.flushing--
	if r.running || r.pending > 0 {
		errs = append(errs, fmt.Errorf("gave up waiting until all unused numbers are reported: %w", ctx.Err()))
	}
	all, dropped := r.lost.Rest()
	latest := r.latestErr
	r.lost, r.latestErr = backlog.New[gapKey](maxWaiting, 0), nil
	if r.current != nil {
		all, latest = append(all, r.current.Entry), cmp.Or(cmp.Or(r.current.errs...), latest)
	}
	waiting, more := r.queue.Rest()
	text := r.list(append(all, waiting...))
	if n := dropped + more; n > 0 {
		text += fmt.Sprintf("; explanations dropped, because too many were waiting: %d", n)
	}
	if r.pending > 0 {
		text += fmt.Sprintf("; numbers of requests that may still get a reply: %d", r.pending)
	}
	if text != "" {
		errs = append(errs, errors.New("not reported: "+strings.TrimPrefix(text, "; ")))
	}
	if latest != nil {
		errs = append(errs, fmt.Errorf("latest error: %w", series.Foreign(latest)))
	}
	return errs
}

// A gapKey identifies queue entries that may be merged.
type gapKey struct {
	typ   string
	start int64 // first instant of the period, in Unix seconds
	cause series.Cause
}

// list returns a string with the ranges of all entries, grouped by key. The string is empty or begins with "; ".
func (r *reporter) list(all []*backlog.Entry[gapKey]) string {
	slices.SortFunc(all, func(a, b *backlog.Entry[gapKey]) int {
		return cmp.Or(cmp.Compare(a.Key.typ, b.Key.typ), cmp.Compare(a.Key.start, b.Key.start),
			cmp.Compare(a.Key.cause, b.Key.cause), cmp.Compare(a.First, b.First))
	})
	var text strings.Builder
	for i := 0; i < len(all); {
		e, group := *all[i], i == 0 || all[i].Key != all[i-1].Key
		for i++; i < len(all) && all[i].Key == e.Key && all[i].First <= e.Last+1; i++ {
			e.Last = max(e.Last, all[i].Last)
		}
		if group {
			fmt.Fprintf(&text, "; %s from %s (%s): %d", cmp.Or(e.Key.typ, r.series("")),
				r.local(e.Key.start).Format(time.RFC3339), reasons[e.Key.cause], e.First)
		} else {
			fmt.Fprintf(&text, ", %d", e.First)
		}
		if e.First < e.Last {
			fmt.Fprintf(&text, " to %d", e.Last)
		}
	}
	return text.String()
}

// possible reports whether a cause is only a possible reason for a gap.
func (r *reporter) possible(c series.Cause) bool {
	return c == series.AnswerLost || c == series.Raised || c == series.BlockSkipped ||
		c == series.NotReplicated && r.ledger == nil
}

// explanation returns the Explanation for a queue entry.
func (r *reporter) explanation(e *backlog.Entry[gapKey]) Explanation {
	k, reason, possible := e.Key, reasons[e.Key.cause], r.possible(e.Key.cause)
	if e.Gathers {
		reason += fmt.Sprintf(": %d attempts", e.Merged)
		if e.Merged == 1 {
			reason = strings.TrimSuffix(reason, "s")
		}
	}
	if e.Dropped > 0 {
		reason += fmt.Sprintf("; %d other explanations were dropped before, because too many were waiting", e.Dropped)
	}
	return Explanation{
		Series: r.series(k.typ), Type: k.typ, Start: r.local(k.start), First: e.First, Last: e.Last,
		Reason: reason, At: e.At, Unused: !possible, Possible: possible,
	}
}
