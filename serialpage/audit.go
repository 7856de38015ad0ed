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
	foreignBytes   = 256    // of a text, in the list of a report
	longestHistory = 10_000 // periods
)

// An audit is a report with its time.
type audit struct {
	serial.Report
	at     time.Time
	period span
	stored bool            // without Stored, the report only says what was issued
	cut    map[string]bool // foreign texts that the report has cut

	replaced    []replacement
	replacedCut bool // there may be others

	sought       int64 // sequence for which it was made, and of which it has the texts; 0 if there is none
	explanations int   // explanations that were read
}

// foreign is a foreign text of the report, marked if it was cut.
func (a *audit) foreign(text string) string {
	if a.cut[text] {
		return text + "…"
	}
	return text
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
	used, long := noTexts, &longTexts{}
	starts, from, to := s.reach(p)
	if s.Stored != nil {
		used = long.record(s.Stored(ctx, from, to))
	}
	a := &audit{period: p, stored: s.Stored != nil, sought: seq}
	opts := []serial.AuditOption{serial.WithEarlier(s.Earlier...)}
	if seq > 0 {
		opts = append(opts, serial.WithLookup(seq))
	}
	if s.Explanations != nil {
		series, err := s.Source.scheme().Series(s.Type)
		if err != nil {
			return nil, unavailable(err)
		}
		for _, start := range starts {
			opts = append(opts, serial.WithExplanations(a.count(s.Explanations.Explanations(ctx, series, start))))
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
	a.Report, a.at, a.cut = report, time.Now(), long.cut(report.Foreign)
	a.replaced, a.replacedCut = replacements(&report)
	return a, nil
}

// count yields explanations and counts them.
func (a *audit) count(all iter.Seq2[serial.Explanation, error]) iter.Seq2[serial.Explanation, error] {
	return func(yield func(serial.Explanation, error) bool) {
		for e, err := range all {
			if a.explanations++; !yield(e, err) {
				return
			}
		}
	}
}

// bytes is roughly the memory that an audit takes: its report has two bits for each number.
func (a *audit) bytes() int {
	const explanation = 128 // bytes
	return int(a.Count/4) + a.explanations*explanation
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

// text returns the text with which a number of a list is stored, and false if that is not known. asRead says that the
// report has the number as it was read.
func (a *audit) text(n serial.Number, asRead bool) (text string, ok bool) {
	if text = n.String(); asRead && text != "" {
		return text, true
	}
	if texts := a.Lookup(n.Seq).Texts; len(texts) > 0 {
		return strings.Trim(texts[0], blanks), true
	}
	return decimal(n.Seq), false
}

// texts returns the texts of numbers, or their sequences where these are not known.
func (a *audit) texts(numbers []serial.Number, asRead bool) []string {
	all := []string{}
	for _, n := range numbers {
		text, _ := a.text(n, asRead)
		all = append(all, text)
	}
	return all
}

// auditError says why a period has no account.
func auditError(ctx context.Context, s *Series, p span, err error) error {
	if errors.Is(err, serial.ErrCounterLost) {
		return &problem{status: http.StatusServiceUnavailable, cause: err,
			text: "The counter was lost, so nobody knows how many numbers were issued. Inform whoever runs the service."}
	}
	// The error does not say whether the period is unknown. If it is, an audit without documents fails, too.
	if _, unknown := s.Source.audit(ctx, s.Type, p.Start, noTexts); unknown != nil {
		kept, failed := s.Source.history(ctx, s.Type, longestHistory)
		if failed == nil && !slices.ContainsFunc(kept, func(n serial.Number) bool { return n.Start.Equal(p.Start) }) {
			if last, err := s.Source.last(ctx, s.Type); err == nil && p.Start.After(last.Start) {
				return notFound("This period has not begun.")
			}
			return notFound("There is no record of this period: it is no longer kept, or no number was issued in it.")
		}
	}
	return unavailable(err)
}

// noTexts yields nothing.
func noTexts(func(string, error) bool) {}

var _ iter.Seq2[string, error] = noTexts

// longTexts are the beginnings of the first texts that are too long for the list of a report.
type longTexts []string

// record yields texts and records the long ones.
func (l *longTexts) record(texts iter.Seq2[string, error]) iter.Seq2[string, error] {
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

// cut returns which of the listed texts were cut.
func (l *longTexts) cut(listed []string) map[string]bool {
	cut := map[string]bool{}
	for _, text := range listed {
		if slices.ContainsFunc(*l, func(long string) bool {
			return len(text) > foreignBytes-4 && strings.HasPrefix(long, text) // a text is cut between characters
		}) {
			cut[text] = true
		}
	}
	return cut
}

// mostProbed is how many explained numbers of a period are looked up to find replaced explanations.
const mostProbed = 20_000

// A replacement is an explanation that does not count for some missing numbers, and the one that counts instead.
type replacement struct {
	ranges  []serial.Range
	old, by serial.Explanation
}

// replacements returns the explanations that fit a missing number but do not count for it, in the order of the numbers.
// more reports that there may be others.
func replacements(r *serial.Report) (list []replacement, more bool) {
	probed, listed := 0, 0
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
				i := slices.IndexFunc(list, func(r replacement) bool { return r.old == old && r.by == by })
				if i < 0 {
					i, list = len(list), append(list, replacement{old: old, by: by})
				}
				ranges := &list[i].ranges
				if n := len(*ranges); n > 0 && (*ranges)[n-1].Last == seq-1 && seq > x.First {
					(*ranges)[n-1].Last = seq
				} else if n == 0 || (*ranges)[n-1].Last < seq { // not the same explanation, read twice
					if listed++; listed > mostListed {
						return list[:min(len(list), mostListed)], true
					}
					*ranges = append(*ranges, serial.Range{First: seq, Last: seq})
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
