package issue

import (
	"context"

	"github.com/dailyserial/serial/internal/exchange"
	"github.com/dailyserial/serial/internal/redisrun"
	"github.com/dailyserial/serial/internal/store"
)

// Take is the sequence's first step: it takes n numbers from an existing counter. With n = 0, it checks the state of
// the period.
func (c *Call) Take(ctx context.Context, n int) Outcome {
	if n == 1 {
		if span, last, err := c.session.Join(ctx); span != nil || err != nil {
			return Outcome{Numbers: Numbers{Span: span, Last: last}, Err: err}
		}
	}
	return take(ctx, c, n)
}

// take continues where Join got no number. It is apart for its large frame, which slows down many callers.
func take(ctx context.Context, c *Call, n int) Outcome {
	r, err := c.session.Send(ctx, c.session.TakeNumbers(n), false)
	if err == nil && r.Status == store.Ceiling {
		return c.refill(ctx, n, r.Span)
	}
	return c.outcome(r, err)
}

// refill sets a block aside for a counter that exists, but is at its ceiling or not as it was left, and issues n
// numbers from the block. The next step is Again if another caller of this process did that. If the caller leaves,
// refill continues.
func (c *Call) refill(ctx context.Context, n int, span *exchange.Span) Outcome {
	if others := c.startFlight(span); others != nil {
		return others.wait(ctx, c)
	}
	return await(ctx, c, n, redisrun.Begin(func() (out Outcome, _ error) {
		defer func() { c.endFlight(out.Err) }()
		for {
			o := &opening{call: c}
			if out = o.refill(context.WithoutCancel(ctx), n); out.Step != Wait {
				return out, nil
			}
			if out = c.Wait(ctx); out.Step != Again { // another process is at work
				return out, nil
			}
		}
	}))
}
