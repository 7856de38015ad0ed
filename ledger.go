package serial

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A Ledger is durable storage that outlives Redis, in which blocks of sequences are set aside before Redis may issue
// from them; see [WithLedger]. It is called from any number of processes at once, and by a [Generator] from any number
// of goroutines. Package github.com/dailyserial/serial/sqlledger keeps one in a database.
type Ledger interface {
	// Reserve durably sets aside n sequences of one period: n that follow each other, all greater than above and than
	// every sequence that was ever set aside for that series and period before. It returns the one just before the first:
	// those set aside are after+1 to after+n. It must not answer before that would survive a crash of whatever stores it.
	//
	// series is unique per key prefix and type, period the label of one of its periods, 20211024; both are compared byte
	// by byte. above is at least 0 and n at least 1; both are below 10^15.
	//
	// An error leaves open whether anything was set aside: what was is a gap. The same is true where the context ends;
	// it does so before the lock or the claim under which the ledger is asked expires.
	Reserve(ctx context.Context, series, period string, above, n int64) (after int64, err error)
}

// WithLedger sets aside numbers in durable storage, in blocks of that many, before Redis may issue them. Whatever Redis
// then loses (a failover, an empty restart, an old backup) costs a gap, of at most the block that was in use and those
// being reserved, and never a duplicate: the counter continues above everything the ledger has ever set aside.
//
// The ledger is asked once per block, so that a larger block asks less often and loses more when Redis does. While it is
// down, what was set aside is still issued; then calls fail with its own error. All processes that issue numbers of a
// type must have the same ledger, though blocks may differ: one without fails with [ErrConflict] as long as a period
// that the ledger is used for lasts. Turning a ledger on within a period works.
//
// Redis must allow INFO in scripts, to tell one reign of a master from the next; where it doesn't, calls fail and say so.
//
// Default none. nil and a block that is not 1 to 10^15-1 are refused.
func WithLedger(l Ledger, block int64) Option {
	return optionFunc(func(c *config) error {
		if isNil(l) {
			return errors.New("serial: WithLedger: the ledger is nil")
		}
		if most := maxSeq(maxWidth); block < 1 || block > most {
			return fmt.Errorf("serial: WithLedger: a block of %d: allowed are 1 to %d", block, most)
		}
		c.ledger, c.block = l, block
		return nil
	})
}

// What a take wants to have a block set aside for; see lua/take.lua.
const (
	wantCeiling = "ceiling"
	wantOpen    = "open"
	wantRaise   = "raise"
)

// A claim is the right to install one block. Redis gives it to one caller at a time, for the lock's expiry, and open
// consumes it: so a block that comes late, from a process that stood still or to a server that has forgotten, is burned.
type claim struct {
	c           call // that it was given to
	token       string
	reign       string // of the server that gave it
	floor       int64  // the block has to lie above
	until       time.Time
	after, upto int64 // the block, once it is reserved
	over        bool  // used up, or of no use any more
}

// look is a take that, with a ledger, comes back with a claim where a block has to be set aside: statusReserve. Without a
// ledger the claim is nil, whose methods do nothing.
func (c *call) look(ctx context.Context, n int, want string) (reply, *claim, error) {
	if c.g.ledger == nil {
		r, err := c.ask(ctx, takeScript, n)
		return r, nil, err
	}
	k := &claim{token: rand.Text(), over: true}
	r, err := c.ask(ctx, takeScript, n, "", want, k.token, lockExpiry.Milliseconds())
	if err != nil || r.status != statusReserve {
		return r, k, err
	}
	k.c = *c
	k.over = false
	k.until = r.sent.Add(lockExpiry - floorMargin)
	_, err = fmt.Sscanf(r.detail, "%s %d", &k.reign, &k.floor)
	return r, k, err
}

// above has the block lie above seq.
func (k *claim) above(seq int64) {
	if k != nil {
		k.floor = max(k.floor, seq)
	}
}

// reserve asks the ledger for a block that n numbers fit into, if the period has so many left.
func (k *claim) reserve(ctx context.Context, n int) error {
	g, typ, label := k.c.g, k.c.typ, k.c.period.label
	k.above(g.base)
	size := max(1, min(max(g.block, int64(n)), g.limit-k.floor)) // the last block is as small as needed
	if k.floor >= maxSeq(maxWidth) {                             // by a counter that something else has written
		return fmt.Errorf("%w: %s %s is at %d", ErrExhausted, typ, label, k.floor)
	}
	series, above := k.c.recordKey(), k.floor
	within, cancel := context.WithDeadline(ctx, k.until)
	// As with a floor, one that doesn't heed its context is not waited for.
	after, err := await(ctx, time.Until(k.until)+floorMargin/2, func() (int64, error) {
		defer cancel()
		return g.ledger.Reserve(within, series, label, above, size)
	})
	if err != nil {
		return ledgerError{fmt.Errorf("serial: the ledger of %s %s: %w", typ, label, err)}
	}
	widest := maxSeq(maxWidth)
	most := widest - size
	if g.limit == widest { // whose last block may reach beyond it
		most = 2 * widest
	}
	if after < above || after > most {
		return ledgerError{fmt.Errorf("serial: the ledger of %s %s set aside %d above %d and answered %d: allowed are %d to %d",
			typ, label, size, above, after, above, most)}
	}
	k.after, k.upto = min(after, widest), min(after+size, widest)
	return nil
}

// A ledgerError is one that all who wait for the same block share.
type ledgerError struct{ error }

func (e ledgerError) Unwrap() error { return e.error }

// release gives back a claim that has not been used, so that the next one need not wait until it expires. Nobody waits
// for long for that.
func (k *claim) release(ctx context.Context) {
	if k == nil || k.over {
		return
	}
	k.over = true
	own := k.c
	_, _ = await(ctx, lockPatience, func() (reply, error) {
		return own.g.caller.run(context.WithoutCancel(ctx), time.Now(), abandonScript, true, own.abandonment(k.token), nil)
	})
}

func (c *call) abandonment(token string) []any {
	keys := c.keys(c.period)
	return []any{nil, nil, 2, keys[0], keys[1], token}
}

// install sends open, for the period that was looked at: Redis refuses it if that is over. floor, checked and lease are
// those of lua/open.lua. With a claim, a block is set aside first.
func (c *call) install(ctx context.Context, n int, repeat bool, claim *claim, floor, checked, lease any) (reply, error) {
	args := []any{c.g.base, floor, checked, lease}
	if claim != nil {
		if err := claim.reserve(ctx, n); err != nil {
			return reply{}, err
		}
		args = append(args, claim.token, claim.reign, claim.after, claim.upto)
	}
	r, err := c.run(ctx, openScript, repeat, c.period, n, args...)
	if claim != nil && (err != nil || r.status == statusIssued || r.status == statusExhausted) {
		claim.over = true
	}
	return r, err
}

// A refill is the reservation of a block for a counter at its ceiling. The callers of one process share it.
type refill struct {
	done    chan struct{}
	err     error        // written before done is closed
	waiting atomic.Int64 // callers who still want it, with the one who makes it
}

type refills struct {
	mu       sync.Mutex
	underway map[gate]*refill
}

// refill has a block set aside for a counter that is there, but at its ceiling or not as it was left, and issues n numbers
// from it. It returns nil where another caller of this process did it: then take again.
//
// It goes on without a caller that leaves, since others wait for it.
func (c *call) refill(ctx context.Context, n int) (*batch, error) {
	at := gate{c.typ, c.period.start}
	all := &c.g.refills
	all.mu.Lock()
	r := all.underway[at]
	if r != nil {
		all.mu.Unlock()
		return nil, c.join(ctx, r)
	}
	r = &refill{done: make(chan struct{})}
	r.waiting.Add(1)
	defer r.waiting.Add(-1)
	all.underway[at] = r
	all.mu.Unlock()

	own := *c
	own.typ, own.trace = strings.Clone(c.typ), nil
	own.opening = &opening{waited: c.opens().waited}
	if deadline, ok := ctx.Deadline(); ok { // which is to end the wait, and not its limit
		own.opening.longer = max(0, own.opening.waited+time.Until(deadline)+time.Second-waitLimit)
	}
	detached := context.WithoutCancel(ctx)
	b, err := await(ctx, noLimit, func() (b *batch, err error) {
		defer func() {
			var shared ledgerError
			if errors.As(err, &shared) {
				r.err = err
			}
			all.mu.Lock()
			delete(all.underway, at)
			all.mu.Unlock()
			close(r.done)
		}()
		return own.fill(detached, n, r)
	})
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("serial: gave up waiting for the ledger: %w", err)
	}
	return b, err
}

// fill is refill in a goroutine of its own. While nobody waits for r it gives up as soon as one without a deadline would.
func (c *call) fill(ctx context.Context, n int, r *refill) (*batch, error) {
	for {
		b, again, err := c.fillOnce(ctx, n)
		if !again {
			return b, err
		}
		if r.waiting.Load() == 0 {
			c.opening.longer = 0
		}
		if err := c.wait(ctx); err != nil { // for another process that is at it
			return nil, err
		}
	}
}

// join waits for a refill that another caller of this process makes.
func (c *call) join(ctx context.Context, r *refill) error {
	r.waiting.Add(1)
	defer r.waiting.Add(-1)
	var tick <-chan time.Time
	if _, ok := ctx.Deadline(); !ok {
		ticker := time.NewTicker(time.Second) // one at most for all the time that this process stands still
		defer ticker.Stop()
		tick = ticker.C
	}
	o := c.opens()
	for last := time.Now(); ; last = time.Now() {
		select {
		case <-r.done:
			o.waitedAt = time.Now()
			o.waited += min(o.waitedAt.Sub(last), time.Second)
			return r.err
		case <-ctx.Done():
			return fmt.Errorf("serial: gave up waiting for the ledger: %w", ctx.Err())
		case <-tick:
			if o.waited += time.Second; o.waited >= waitLimit {
				return fmt.Errorf("serial: no block of %s %s was set aside within %v: %w", c.typ, c.period.label, waitLimit, errTaken)
			}
		}
	}
}

func (c *call) fillOnce(ctx context.Context, n int) (b *batch, again bool, err error) {
	r, claim, err := c.look(ctx, n, wantCeiling)
	defer claim.release(ctx)
	if err == nil && r.status == statusReserve {
		r, err = c.install(ctx, n, false, claim, "", r.now.UnixMilli(), lockExpiry.Milliseconds())
	}
	if err != nil {
		return nil, false, err
	}
	if r.status == statusClaimed || r.status == statusLate || r.status == statusClock {
		return nil, true, nil
	}
	b, err = c.taken(r)
	return b, false, err
}
