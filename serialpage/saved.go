package serialpage

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"time"

	"github.com/dailyserial/serial"
)

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
	v.Count = size(ranges...)
	v.Cut = len(ranges) > mostListed
	for _, g := range ranges[:min(len(ranges), mostListed)] {
		v.Numbers = append(v.Numbers, numbers.ranged(g))
	}
	v.Others = size(given) - v.Count
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
