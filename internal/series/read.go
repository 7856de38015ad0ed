package series

import "context"

// A Reading has the first and the last sequence of periods, the current one first. The last one is 0 if none was issued,
// and -1 if the counter does not exist or holds no sequence.
type Reading struct {
	Span  *Target // current span
	First []int64 // first sequence of each period; 0 if Redis does not have it
	Last  []int64
}

// History returns the last sequences of the current period and of each labelled one. It writes nothing. Without labels,
// a lost counter is an error.
func (c *asker) History(ctx context.Context, labels ...string) (Reading, error) {
	c.reads = true
	r := &request{reads: true}
	for _, label := range labels {
		r.keys = append(r.keys, c.series.counter(c.typ, label))
	}
	got, _, err := c.ask(ctx, r)
	reading := Reading{Span: got.span}
	if err != nil { // after the caller has left, the reply belongs to others
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
