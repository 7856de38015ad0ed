package serialpage

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/dailyserial/serial"
)

const maxHistory = 10_000 // maximum number of periods that are read

// An audit is the report of a period, with the time at which the audit ended.
type audit struct {
	serial.Report
	at     time.Time
	period period
	stored bool // whether the series has Stored; without it, only the issued numbers of the report are meaningful

	replaced    []replacement
	replacedCut bool // whether replaced may be incomplete

	sought       int64 // sequence that was looked up, whose stored texts the report contains; 0 if there was none
	explanations int   // count of the explanations that were read
}

// audit returns the report of a period. It reuses a report that is less than a minute old, if this report contains
// everything that the page shows about the sequence seq. Otherwise it makes a new report. It completes the new report
// even if the client disconnects, so that the report is ready when the client tries again. The argument seq is 0 if no
// number was looked up.
func (h *handler) audit(ctx context.Context, w http.ResponseWriter, numbers printer, seq int64) (
	made *audit, err error) {
	k := periodKey{numbers.series.Key, numbers.period.Start.Unix()}
	if fresh, ok := h.audits.fresh(k); ok && fresh.knows(seq) {
		return fresh, nil
	}
	if ok, _ := h.audits.begin(k); !ok {
		w.Header().Set("Refresh", "2") // makes the browser try again after 2 s
		return nil, &problem{status: http.StatusServiceUnavailable, retry: true,
			text: "Another check is running. This page will reload automatically."}
	}
	defer func() { h.audits.end(k, made) }()
	deadline, _ := ctx.Deadline()
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline)
	defer cancel()
	return makeAudit(ctx, numbers, seq)
}

// makeAudit audits a period. If seq is not 0, the report also contains the stored texts of seq.
func makeAudit(ctx context.Context, numbers printer, seq int64) (*audit, error) {
	s, p := numbers.series, numbers.period
	used := noTexts
	starts, from, to := s.periodInAllSchemes(p)
	if s.Stored != nil {
		used = s.Stored(ctx, from, to)
	}
	a := &audit{period: p, stored: s.Stored != nil, sought: seq}
	opts := []serial.AuditOption{serial.WithEarlier(s.Earlier...)}
	if seq > 0 {
		opts = append(opts, serial.WithLookup(seq))
	}
	if s.Explanations != nil {
		for _, start := range starts {
			opts = append(opts, serial.WithExplanations(counting(s.Explanations.Explanations(ctx, s.series(), start),
				func() { a.explanations++ })))
		}
	}
	report, err := s.Source.audit(ctx, s.Type, p.Start, used, opts...)
	if unknown := unknownTexts(&report); err == nil && len(unknown) > 0 {
		a.explanations = 0
		report, err = s.Source.audit(ctx, s.Type, p.Start, used, append(opts, serial.WithLookup(unknown...))...)
	}
	if err != nil {
		return nil, auditError(ctx, s, p, err)
	}
	a.Report, a.at = report, time.Now()
	a.replaced, a.replacedCut = replacements(&report)
	return a, nil
}

// counting yields the elements of the given iterator, and calls count for each of them.
func counting[T any](all iter.Seq2[T, error], count func()) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for v, err := range all {
			if count(); !yield(v, err) {
				return
			}
		}
	}
}

// bytes estimates the memory that an audit occupies. Its report contains two bits for each number, and several lists.
func (a *audit) bytes() int {
	const lists, explanation = 500_000, 128
	return lists + int(a.Count/4) + a.explanations*explanation
}

// unknownTexts returns the contradicted sequences (stored, but reported as never received) whose stored texts are not
// in the report. There are usually few or none. If there are any, makeAudit audits the period again to find these
// texts.
func unknownTexts(r *serial.Report) (seqs []int64) {
	// Together with the sequence that is looked up, these are at most maxListed sequences.
	for _, n := range r.Contradicted[:min(len(r.Contradicted), maxListed-1)] {
		if len(r.Lookup(n.Seq).Texts) == 0 {
			seqs = append(seqs, n.Seq)
		}
	}
	return seqs
}

// text returns the text with which a listed number is stored. If this text is unknown, it returns the number as
// printed. If the date is unknown, too, it returns "".
func (a *audit) text(n serial.Number) string {
	if texts := a.Lookup(n.Seq).Texts; len(texts) > 0 {
		return strings.Trim(texts[0], blanks)
	}
	return n.String()
}

// texts returns the stored text of each number, or its sequence if the text is unknown.
func (a *audit) texts(numbers []serial.Number) []string {
	all := []string{}
	for _, n := range numbers {
		all = append(all, cmp.Or(a.text(n), decimal(n.Seq)))
	}
	return all
}

// auditError returns the problem for a period that could not be audited because of err. It distinguishes a lost
// counter, a failure, a period that has not begun, and a period without a counter.
func auditError(ctx context.Context, s *Series, p period, err error) error {
	if errors.Is(err, serial.ErrCounterLost) {
		return &problem{status: http.StatusServiceUnavailable, cause: err,
			text: "The counter was lost, so it is unknown how many numbers were issued. Inform the operator of this service."}
	}
	last, failed := s.Source.last(ctx, s.Type)
	kept, alsoFailed := s.Source.history(ctx, s.Type, maxHistory)
	begins := func(n serial.Number) bool { return n.Start.Equal(p.Start) }
	switch {
	case failed != nil || alsoFailed != nil || begins(last) || slices.ContainsFunc(kept, begins):
		return unavailable(err)
	case p.Start.After(last.Start):
		return &problem{status: http.StatusNotFound, series: s, period: p, text: "This period has not begun."}
	}
	return &problem{status: http.StatusNotFound, series: s, period: p,
		text: "Nothing is known about this period. Either no number was issued in it, or its data has been deleted."}
}

// noTexts yields no stored numbers.
func noTexts(func(string, error) bool) {}

// maxProbed is the maximum number of explained sequences of a period that replacements looks up.
const maxProbed = 20_000

// A replacement is an earlier explanation of some missing numbers, together with the explanation that counts instead.
type replacement struct {
	serial.Range
	old, by serial.Explanation
}

// replacements returns the explanations of missing numbers that were replaced by another explanation, in the order of
// the numbers. The result more is true if the list may be incomplete.
func replacements(r *serial.Report) (list []replacement, more bool) {
	probed := 0
	for _, x := range r.Explained {
		by := plain(x.Explanation)
		for seq := x.First; seq <= x.Last; seq++ {
			if probed++; probed > maxProbed {
				return list, true
			}
			for _, old := range r.Lookup(seq).Replaced {
				if old = plain(old); old == by {
					continue
				}
				i := slices.IndexFunc(list, func(x replacement) bool { return x.Last >= seq-1 && x.old == old && x.by == by })
				switch {
				case i >= 0:
					list[i].Last = seq
				case len(list) == maxListed:
					return list, true
				default:
					list = append(list, replacement{serial.Range{First: seq, Last: seq}, old, by})
				}
			}
		}
	}
	return list, listedIn(r.Explained) < r.ExplainedCount
}

// listedIn returns the total count of the numbers in the ranges of a list.
func listedIn(list []serial.Explained) (n int64) {
	for _, e := range list {
		n += size(e.Range)
	}
	return n
}

// plain returns e without its series and period, and with a normalized time, so that two explanations can be compared
// with ==.
func plain(e serial.Explanation) serial.Explanation {
	e.Series, e.Type, e.Start, e.At = "", "", time.Time{}, e.At.Round(0).UTC()
	return e
}
