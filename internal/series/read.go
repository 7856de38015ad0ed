package series

import "context"

// A Reading has the first and the last sequence of each requested period, beginning with the current one. A last
// sequence is 0 if none was issued, and -1 if the counter does not exist or contains no sequence.
type Reading struct {
	Span  *Target // current span
	First []int64 // first sequence of each period, 0 if Redis does not know it
	Last  []int64
}

// History returns the sequences of the current period and of the periods with the given labels. It writes nothing. If
// there are no labels and the counter of the current period is lost, it returns an error.
func (c *asker) History(ctx context.Context, labels ...string) (Reading, error) {
	c.reads = true
	r := &request{reads: true}
	for _, label := range labels {
		r.keys = append(r.keys, c.series.counter(c.typ, label))
	}
	got, _, err := c.ask(ctx, r)
	reading := Reading{Span: got.span}
	if err != nil { // if the caller has left, got may still change
		return reading, err
	}
	if got.reply.Status != Issued {
		err = c.refuse(got)
	}
	for i := 1; i < len(got.reply.Counters); i += 2 {
		reading.First = append(reading.First, got.reply.Counters[i-1])
		reading.Last = append(reading.Last, got.reply.Counters[i])
	}
	return reading, err
}
