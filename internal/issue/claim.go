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

// This file sets blocks aside in a ledger.

// ErrLedger marks every error from a ledger, so a log can name the ledger without the error's text.
var ErrLedger = errors.New("the ledger")

// A claim is the right to install one block. Redis gives it to one caller at a time, for the lock's expiry, and
// open.lua consumes it. So a late block, from a process that was suspended or to a server that has lost its data, is
// burned.
type claim struct {
	call   *Call
	held   bool // the server may have granted the claim
	token  string
	until  time.Time     // time from which the claim is useless
	period store.Granted // state of the period when the claim was granted
	before int64         // last sequence set aside before the block, as the ledger shows; 0 if it was not asked
}

// ask returns the claim to request. It does not outlive the lock, so a process that dies holding both delays the others
// only once.
func (cl *claim) ask(c *Call, lock Held, found *exchange.Reply) *store.Claim {
	since := time.Now()
	asked := &store.Claim{Token: rand.Text(), Lease: LockExpiry, Base: c.issuer.Base}
	if lock.Lock != nil {
		since = lock.Since
		// By the server's clock, shortly before the lock was requested.
		asked.Until = found.Now.Add(since.Sub(found.Received) + LockExpiry)
	}
	*cl = claim{call: c, held: true, token: asked.Token, until: since.Add(LockExpiry - floorMargin)}
	return asked
}

// granted notes the reply to the request for the claim.
func (cl *claim) granted(r *exchange.Reply, err error) {
	cl.held = err != nil && err != redisrun.ErrUnsent || err == nil && r.Status == store.Reserved
	cl.period = r.Granted
}

// used notes the reply to the request that consumes the claim.
func (cl *claim) used(r *exchange.Reply, err error) {
	cl.held = cl.held && (err != nil || r.Status != store.Issued && r.Status != store.Exhausted)
}

// Release gives back an unused claim, so the next caller need not wait until it expires. It does so even if the claim
// may have been used, or may not have been granted, which does no harm.
func (cl *claim) Release(ctx context.Context, patience time.Duration) {
	if cl.held {
		_, _ = redisrun.Await(ctx, patience, func() (bool, error) {
			return true, cl.call.session.Release(ctx, cl.token)
		})
	}
}

// reserve has the ledger set aside an Open's block, above the floor and an operator's seq, and sets the Open's Base.
// The Open's numbers fit into the block, if the period has that many left.
//
// A start counts only if the ledger has set nothing aside, and a person must not explain numbers that may have been
// issued. A reservation above the start or the seq would not show that, so a single sequence is reserved first. What a
// person skips becomes part of the block, so nobody else has it. If the call then fails, the first sequence stays reserved
// but unused. Redis knows that somebody has begun, so the next caller with a start skips the first reservation.
func (cl *claim) reserve(ctx context.Context, span *exchange.Span, request *store.Open, floor, seq int64) error {
	i, p := cl.call.issuer, cl.period
	above := max(p.Above, floor, seq)
	if above >= store.MaxSeq && request.Purpose == "" { // the counter was written by another program
		full := exchange.Reply{Span: span, About: &span.Stored}
		full.Status, full.Detail = store.Exhausted, strconv.FormatInt(above, 10)
		return cl.call.session.Refuse(&full)
	}
	above = min(above, store.MaxSeq)
	starts := p.Unused && floor == 0 && i.Base > 0
	if !starts && max(p.Above, floor) <= i.Base {
		request.Base = 0
	}
	person := seq > p.Above && isByPerson(ctx)
	if person || starts && !p.Tried {
		first, err := cl.askLedger(ctx, span, max(p.Above, floor), 1)
		if err != nil {
			return err
		}
		if cl.before = first.After; !p.Tried {
			request.Base = i.baseAbove(cl.before)
		}
	}
	above = max(above, request.Base, cl.before)
	size := max(1, min(max(i.Block, int64(request.N)), i.Limit-above)) // the last block is as small as needed
	from := above
	if person && cl.before < above {
		from = cl.before + 1
	}
	block, err := cl.askLedger(ctx, span, from, size+above-from)
	if err != nil {
		return err
	}
	if person && block.After > cl.before+1 { // another server's block came in between
		cl.before = block.After
	}
	if cl.before > 0 && cl.before == above && block.After == above+1 {
		block.After = above // includes the sequence reserved first
	}
	block.Token, block.ReplicationID = cl.token, p.ReplicationID
	request.Block = &block
	return nil
}

// askLedger has the ledger set aside size sequences above a given one, and returns the block. A late block is burned.
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
		err = fmt.Errorf("serial: %w of %s %s: %w", ErrLedger, c.issuer.subject(typ), span.Label, err)
		return store.Block{}, redisrun.Outage(err)
	}
	return block, nil
}

// newBlock returns the block in a ledger's answer, or an error if the answer is invalid.
func (i *Issuer) newBlock(after, above, size int64) (store.Block, error) {
	most := int64(store.MaxSeq) - size
	if i.Limit == store.MaxSeq { // the last block may reach beyond it
		most = 2 * store.MaxSeq
	}
	if after < above || after > most {
		return store.Block{}, fmt.Errorf("set aside %d above %d and answered %d: want %d to %d",
			size, above, after, above, most)
	}
	return store.Block{After: min(after, store.MaxSeq), Upto: min(after+size, store.MaxSeq)}, nil
}
