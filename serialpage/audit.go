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

const longestHistory = 10_000 // periods

// An audit is a report with its time.
type audit struct {
	serial.Report
	at     time.Time
	period span
	stored bool // without Stored, the report only says what was issued

	replaced    []replacement
	replacedCut bool // there may be others

	sought       int64 // sequence for which it was made, and of which it has the texts; 0 if there is none
	explanations int   // explanations that were read
}

// audit returns the account of a period: one less than a minute old that knows a sequence, or a new one. A new one is
// completed even if the client leaves, so it is there when the client comes back. seq is 0 if nothing was looked up.
func (h *handler) audit(ctx context.Context, w http.ResponseWriter, numbers printer, seq int64) (
	made *audit, err error) {
	k := periodKey{numbers.series.Key, numbers.period.Start.Unix()}
	if fresh, ok := h.audits.fresh(k); ok && fresh.knows(seq) {
		return fresh, nil
	}
	if ok, _ := h.audits.begin(k); !ok {
		w.Header().Set("Refresh", "2") // the browser tries again
		return nil, &problem{status: http.StatusServiceUnavailable, retry: true,
			text: "Another check is running. This page will reload by itself."}
	}
	defer func() { h.audits.end(k, made) }()
	deadline, _ := ctx.Deadline()
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline)
	defer cancel()
	return makeAudit(ctx, numbers, seq)
}

// makeAudit accounts for the numbers of a period, and records all that it sees of a sequence.
func makeAudit(ctx context.Context, numbers printer, seq int64) (*audit, error) {
	s, p := numbers.series, numbers.period
	used := noTexts
	starts, from, to := s.reach(p)
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

// counting yields what all yields, and calls count for each.
func counting[T any](all iter.Seq2[T, error], count func()) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for v, err := range all {
			if count(); !yield(v, err) {
				return
			}
		}
	}
}

// bytes is roughly the memory that an audit takes: its report has two bits for each number, and its lists.
func (a *audit) bytes() int {
	const lists, explanation = 500_000, 128
	return lists + int(a.Count/4) + a.explanations*explanation
}

// unknownTexts returns the contradicted sequences whose stored texts another audit must find. There are few, if any.
func unknownTexts(r *serial.Report) (seqs []int64) {
	for _, n := range r.Contradicted[:min(len(r.Contradicted), mostListed-1)] { // with the one that is looked up
		if len(r.Lookup(n.Seq).Texts) == 0 {
			seqs = append(seqs, n.Seq)
		}
	}
	return seqs
}

// text returns the text with which a number of a list is stored, or "" if that is not known.
func (a *audit) text(n serial.Number) string {
	if texts := a.Lookup(n.Seq).Texts; len(texts) > 0 {
		return strings.Trim(texts[0], blanks)
	}
	return n.String()
}

// texts returns the texts of numbers, or their sequences where these are not known.
func (a *audit) texts(numbers []serial.Number) []string {
	all := []string{}
	for _, n := range numbers {
		all = append(all, cmp.Or(a.text(n), decimal(n.Seq)))
	}
	return all
}

// auditError says why a period has no account.
func auditError(ctx context.Context, s *Series, p span, err error) error {
	if errors.Is(err, serial.ErrCounterLost) {
		return &problem{status: http.StatusServiceUnavailable, cause: err,
			text: "The counter was lost, so it is not known how many numbers were issued. Inform whoever runs the service."}
	}
	last, failed := s.Source.last(ctx, s.Type)
	kept, alsoFailed := s.Source.history(ctx, s.Type, longestHistory)
	begins := func(n serial.Number) bool { return n.Start.Equal(p.Start) }
	switch {
	case failed != nil || alsoFailed != nil || begins(last) || slices.ContainsFunc(kept, begins):
		return unavailable(err)
	case p.Start.After(last.Start):
		return &problem{status: http.StatusNotFound, series: s, period: p, text: "This period has not begun."}
	}
	return &problem{status: http.StatusNotFound, series: s, period: p,
		text: "There is no record of this period: it is no longer kept, or no number was issued in it."}
}

// noTexts yields nothing.
func noTexts(func(string, error) bool) {}

// mostProbed is how many explained numbers of a period are looked up to find replaced explanations.
const mostProbed = 20_000

// A replacement is an explanation that does not count for some missing numbers, and the one that counts instead.
type replacement struct {
	serial.Range
	old, by serial.Explanation
}

// replacements returns the explanations that fit a missing number but do not count for it, in the order of the numbers.
// more reports that there may be others.
func replacements(r *serial.Report) (list []replacement, more bool) {
	probed := 0
	for _, x := range r.Explained {
		by := plain(x.Explanation)
		for seq := x.First; seq <= x.Last; seq++ {
			if probed++; probed > mostProbed {
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
				case len(list) == mostListed:
					return list, true
				default:
					list = append(list, replacement{serial.Range{First: seq, Last: seq}, old, by})
				}
			}
		}
	}
	return list, listedIn(r.Explained) < r.ExplainedCount
}

// listedIn returns how many numbers a list of explained ranges has.
func listedIn(list []serial.Explained) (n int64) {
	for _, e := range list {
		n += size(e.Range)
	}
	return n
}

// plain returns an explanation without its series and period, in a form that == compares correctly.
func plain(e serial.Explanation) serial.Explanation {
	e.Series, e.Type, e.Start, e.At = "", "", time.Time{}, e.At.Round(0).UTC()
	return e
}
