package series

import "context"

// Counters contains the first and the last sequence of each requested period, beginning with the current one.
type Counters struct {
	Span  *Target // current span
	First []int64 // first sequence of each period, or 0 if Redis does not know it
	Last  []int64 // last sequence issued, 0 if none was issued, or -1 if there is no counter with a valid sequence
}

// History returns the sequences of the current period and of the periods with the given labels. It writes nothing. If
// there are no labels and the counter of the current period is lost, it returns an error.
func (c *asker) History(ctx context.Context, labels ...string) (Counters, error) {
	c.reads = true
	r := &request{reads: true}
	for _, label := range labels {
		r.keys = append(r.keys, c.series.CounterKey(c.typ, label))
	}
	got, _, err := c.ask(ctx, r)
	counters := Counters{Span: got.span}
	if err != nil { // the reply must not be read, because it may still change if ctx has ended
		return counters, err
	}
	if got.reply.Status != Issued {
		err = c.refuse(got)
	}
	for i := 1; i < len(got.reply.Counters); i += 2 {
		counters.First = append(counters.First, got.reply.Counters[i-1])
		counters.Last = append(counters.Last, got.reply.Counters[i])
	}
	return counters, err
}
