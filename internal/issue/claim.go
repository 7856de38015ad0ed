package issue

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/dailyserial/serial/internal/exchange"
	"github.com/dailyserial/serial/internal/redisrun"
	"github.com/dailyserial/serial/internal/store"
)

// This file has blocks set aside in a ledger.

// ErrLedger is in every error of a ledger, so a log can name it without the text of the error.
var ErrLedger = errors.New("the ledger")

// A claim is the right to install one block. Redis gives it to one caller at a time, for the lock's expiry, and
// open.lua consumes it. So a block that comes late, from a process that was suspended or to a server that has lost its
// data, is burned.
type claim struct {
	call   *Call
	held   bool // the caller may have the claim
	token  string
	until  time.Time     // the claim is of no use from then on
	period store.Granted // by the reply that gave it
}

// ask returns the claim to ask for. It does not outlive the lock, so a process that dies with both delays the others
// once.
func (cl *claim) ask(c *Call, lock Held, found *exchange.Reply) *store.Claim {
	since := time.Now()
	asked := &store.Claim{Token: rand.Text(), Lease: LockExpiry, Base: c.issuer.Base}
	if lock.Lock != nil {
		since = lock.Since
		// By the server's clock, shortly before the lock was asked for.
		asked.Until = found.Now.Add(since.Sub(found.Received) + LockExpiry)
	}
	*cl = claim{call: c, held: true, token: asked.Token, until: since.Add(LockExpiry - floorMargin)}
	return asked
}

// granted notes the reply to the request that asked for the claim.
func (cl *claim) granted(r *exchange.Reply, err error) {
	cl.held = err != nil && err != redisrun.ErrUnsent || err == nil && r.Status == store.Reserved
	cl.period = r.Granted
}

// used notes the reply to the request that consumes the claim.
func (cl *claim) used(r *exchange.Reply, err error) {
	cl.held = cl.held && (err != nil || r.Status != store.Issued && r.Status != store.Exhausted)
}

// Release gives a claim back that was not used, so the next caller need not wait until it expires. One that may have
// been used, or may not have been given, is given back too: that does no harm.
func (cl *claim) Release(ctx context.Context, patience time.Duration) {
	if cl.held {
		_, _ = redisrun.Await(ctx, patience, func() (bool, error) {
			return true, cl.call.session.Release(ctx, cl.token)
		})
	}
}

// reserve has the ledger set aside the block of an Open, above the floor and an operator's seq, and sets the Open's
// Base. The Open's numbers fit into the block, if the period has so many left.
//
// A start counts only if the ledger has set nothing aside. A reservation above the start would not show that, so one of
// a single sequence comes first. If the call then fails, that sequence remains in the ledger and was not used. Redis
// knows that somebody has begun, so the next caller leaves out the first reservation.
func (cl *claim) reserve(ctx context.Context, span *exchange.Span, request *store.Open, floor, seq int64) error {
	i, p := cl.call.issuer, cl.period
	above := max(p.Above, floor, seq)
	if above >= store.MaxSeq && request.Purpose == "" { // by a counter that something else has written
		full := exchange.Reply{Span: span, About: &span.Stored}
		full.Status, full.Detail = store.Exhausted, strconv.FormatInt(above, 10)
		return cl.call.session.Refuse(&full)
	}
	above = min(above, store.MaxSeq)
	used := int64(0) // what the ledger shows
	if starts := p.Unused && floor == 0 && i.Base > 0; !starts {
		request.Base = 0
	} else if !p.Tried {
		first, err := cl.askLedger(ctx, span, 0, 1)
		if err != nil {
			return err
		}
		if used = first.After; used > 0 {
			request.Base = 0
		}
	}
	above = max(above, request.Base, used)
	size := max(1, min(max(i.Block, int64(request.N)), i.Limit-above)) // the last block is as small as needed
	block, err := cl.askLedger(ctx, span, above, size)
	if err != nil {
		return err
	}
	if used > 0 && used == above && block.After == above+1 {
		block.After = above // with the sequence that was set aside first
	}
	block.Token, block.ReplicationID = cl.token, p.ReplicationID
	request.Block = &block
	return nil
}

// askLedger has the ledger set aside size sequences above another, and returns the block. A block that comes late is
// burned.
func (cl *claim) askLedger(ctx context.Context, span *exchange.Span, above, size int64) (block store.Block, err error) {
	c, mixed := cl.call, cl.period.Mixed
	typ := c.session.Type
	after, err := askOutside(ctx, c, cl.until, func(ctx context.Context) (int64, error) {
		return c.issuer.Reserve(ctx, typ, span.Label, above, size)
	}, func(after int64) {
		if block, err := c.issuer.newBlock(after, above, size); err == nil {
			c.session.Burn(span, block, mixed)
		}
	})
	if err == nil {
		block, err = c.issuer.newBlock(after, above, size)
	}
	if err != nil {
		return store.Block{}, redisrun.Outage(fmt.Errorf("serial: %w of %s %s: %w", ErrLedger, typ, span.Label, err))
	}
	return block, nil
}

// newBlock returns the block that a ledger answered, or why it cannot be one.
func (i *Issuer) newBlock(after, above, size int64) (store.Block, error) {
	most := int64(store.MaxSeq) - size
	if i.Limit == store.MaxSeq { // whose last block may reach beyond it
		most = 2 * store.MaxSeq
	}
	if after < above || after > most {
		return store.Block{}, fmt.Errorf("set aside %d above %d and answered %d: want %d to %d",
			size, above, after, above, most)
	}
	return store.Block{After: min(after, store.MaxSeq), Upto: min(after+size, store.MaxSeq)}, nil
}
