package issue

import (
	"github.com/dailyserial/serial/internal/exchange"
	"github.com/dailyserial/serial/internal/store"
)

// outcome returns the outcome of a request for numbers.
func (c *Call) outcome(r exchange.Reply, err error) Outcome {
	switch {
	case err != nil:
		return Outcome{Err: err}
	case r.Status == store.Issued:
		return Outcome{Numbers: Numbers{Span: r.Span, Last: r.Last}}
	case r.Status == store.Repeated:
		c.session.Remember(r.Span, r.Answer)
		return Outcome{Numbers: Numbers{r.Span, r.Answer.Seq, r.Answer, r.EarlierErr == nil}}
	case r.Status == store.Missing, r.Status == store.Reserved, r.Status == store.Lost && c.issuer.Floor != nil:
		found := r // keeps r itself off the heap
		return Outcome{Step: Missing, Reply: &found}
	case r.Status == store.Claimed:
		c.noteOthers()
		return Outcome{Step: Wait}
	case r.Status == store.Late, r.Status == store.Clock:
		return Outcome{Step: Wait}
	}
	return Outcome{Err: c.session.Refuse(&r)}
}

// checkSkew returns an error if the server's clock is too far from this host's to open a period. r has the server's
// time, read at some moment between sending and receiving.
func (c *Call) checkSkew(r *exchange.Reply) error {
	skew := c.issuer.MaxSkew
	if skew < 0 || !r.Now.Before(r.Sent.Add(-skew)) && !r.Now.After(r.Received.Add(skew)) {
		return nil
	}
	refused := *r
	refused.Status = exchange.Skewed
	return c.session.Refuse(&refused)
}
