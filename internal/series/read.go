package series

import "context"

// Counters has the first and the last sequence of each requested period, beginning with the current one. A last
// sequence is 0 if none was issued, and -1 if the counter does not exist or contains no sequence.
type Counters struct {
	Span  *Target // current span
	First []int64 // first sequence of each period, 0 if Redis does not know it
	Last  []int64
}

// History returns the sequences of the current period and of the periods with the given labels. It writes nothing. If
// there are no labels and the counter of the current period is lost, it returns an error.
func (c *asker) History(ctx context.Context, labels ...string) (Counters, error) {
	c.reads = true
	r := &request{reads: true}
	for _, label := range labels {
		r.keys = append(r.keys, c.series.counter(c.typ, label))
	}
	got, _, err := c.ask(ctx, r)
	counters := Counters{Span: got.span}
	if err != nil { // if the caller has left, got may still change
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
