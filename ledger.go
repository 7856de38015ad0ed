package serial

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/dailyserial/serial/internal/budget"
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
// that the ledger is used for lasts. Turning a ledger on within a period works; but if the period's counter is lost by then,
// it stays [ErrCounterLost] until a floor or [Generator.Raise] tells what was used without the ledger.
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
	wantFloor   = "floor"
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
// ledger the claim is nil, whose methods do nothing. ctx must not end: whoever is given a claim has to give it back. lock is
// the caller's, nil if it has none; the claim does not outlive it, so that who dies with both delays the others once.
func (c *call) look(ctx context.Context, n int, want string, lock *lock) (reply, *claim, error) {
	if c.g.ledger == nil {
		r, err := c.ask(ctx, takeScript, n)
		return r, nil, err
	}
	var past any = ""
	since := time.Now()
	if lock != nil {
		found := c.opens().found // by the server's clock, shortly before the lock was asked for
		past = found.now.Add(lock.since.Sub(found.received) + lockExpiry).UnixMilli()
		since = lock.since
	}
	k := &claim{token: rand.Text(), until: since.Add(lockExpiry - floorMargin)}
	r, err := c.ask(ctx, takeScript, n, "", want, k.token, lockExpiry.Milliseconds(), past)
	k.c = *c
	k.over = err == nil && r.status != statusReserve
	if err == nil && !k.over {
		_, err = fmt.Sscanf(r.detail, "%s %d", &k.reign, &k.floor)
	}
	return r, k, err
}

// above has the block lie above seq.
func (k *claim) above(seq int64) {
	if k != nil {
		k.floor = max(k.floor, seq)
	}
}

// reserve asks the ledger for a block that n numbers fit into, if the period has so many left.
func (k *claim) reserve(ctx context.Context, c *call, n int) error {
	g, typ, label := k.c.g, k.c.typ, k.c.period.label
	k.above(g.base)
	size := max(1, min(max(g.block, int64(n)), g.limit-k.floor)) // the last block is as small as needed
	if k.floor >= maxSeq(maxWidth) {                             // by a counter that something else has written
		return fmt.Errorf("%w: %s %s is at %d", ErrExhausted, typ, label, k.floor)
	}
	series, above := k.c.recordKey(), k.floor
	after, err := c.askOutside(ctx, k.until, func(ctx context.Context) (int64, error) {
		return g.ledger.Reserve(ctx, series, label, above, size)
	})
	if err != nil {
		return sharedError{fmt.Errorf("serial: the ledger of %s %s: %w", typ, label, err)}
	}
	widest := maxSeq(maxWidth)
	most := widest - size
	if g.limit == widest { // whose last block may reach beyond it
		most = 2 * widest
	}
	if after < above || after > most {
		return sharedError{fmt.Errorf("serial: the ledger of %s %s set aside %d above %d and answered %d: allowed are %d to %d",
			typ, label, size, above, after, above, most)}
	}
	k.after, k.upto = min(after, widest), min(after+size, widest)
	return nil
}

// release gives a claim back that has not been used, so that the next one need not wait until it expires. One that may have
// been used, or not been given, is given back too: it does no harm, and nobody knows better.
func (k *claim) release(ctx context.Context, patience time.Duration) {
	if k == nil || k.over {
		return
	}
	k.over = true
	own := k.c
	own.budget = budget.New(false)
	_, _ = await(ctx, patience, func() (reply, error) {
		return own.g.caller.run(ctx, &own.budget, own.tower.server, abandonScript, true, own.abandonment(k.token), nil)
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
		if !time.Now().Before(claim.until) {
			return reply{status: statusLate}, nil
		}
		if err := claim.reserve(ctx, c, n); err != nil {
			return reply{}, err
		}
		args = append(args, claim.token, claim.reign, claim.after, claim.upto)
	}
	r, err := c.run(ctx, openScript, repeat, c.period, n, args...)
	if claim != nil && err == nil && (r.status == statusIssued || r.status == statusExhausted) {
		claim.over = true
	}
	return r, err
}

// refill has a block set aside for a counter that is there, but at its ceiling or not as it was left, and issues n numbers
// from it. It returns nil where another caller of this process did it: then take again. It goes on without a caller that
// leaves, as long as others wait for it.
func (c *call) refill(ctx context.Context, n int) (*batch, error) {
	if others := c.beginWork(); others != nil {
		return nil, c.join(ctx, others)
	}
	work := c.work
	work.waiting.Add(1)
	defer work.waiting.Add(-1)
	return onward(ctx, c, func(c *call) (b *batch, err error) {
		defer func() { c.endWork(err) }()
		steady := context.WithoutCancel(ctx)
		for {
			b, again, err := c.fill(steady, n)
			if !again {
				return b, err
			}
			if work.waiting.Load() == 0 {
				return nil, errTaken // nobody is told
			}
			if err := c.wait(steady); err != nil { // for another process that is at it
				return nil, err
			}
		}
	})
}

// fill makes one attempt of a refill.
func (c *call) fill(ctx context.Context, n int) (b *batch, again bool, err error) {
	r, claim, err := c.look(ctx, n, wantCeiling, nil)
	defer c.giveBack(ctx, claim)
	if err == nil && r.status == statusReserve {
		r, err = c.install(ctx, n, false, claim, "", r.now.UnixMilli(), lockExpiry.Milliseconds())
	}
	if err != nil {
		return nil, false, err
	}
	switch r.status {
	case statusClaimed:
		c.sawOthers()
		return nil, true, nil
	case statusLate, statusClock:
		return nil, true, nil
	}
	b, err = c.taken(r)
	return b, false, err
}
