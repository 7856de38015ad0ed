package serial

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/dailyserial/serial/internal/budget"
	"github.com/dailyserial/serial/internal/redisrun"
	"github.com/dailyserial/serial/internal/store"
)

// A Ledger is durable storage that outlives Redis. It sets aside blocks of sequences before Redis may issue them; see
// [WithLedger]. Any number of processes, and any number of goroutines of each, may call it at once. Package
// github.com/dailyserial/serial/sqlledger keeps one in a database.
type Ledger interface {
	// Reserve durably sets aside r.N consecutive sequences of one period, all greater than r.Above and than every sequence
	// that was ever set aside for that series and period. It returns the sequence just before the first: those set aside are
	// after+1 to after+r.N. It must not return before they would survive a crash of the storage.
	//
	// Reserve should also keep the calendar of each series and the print mark of each period, from the first reservation. If a
	// later reservation has another one, Reserve should return the error of [Reservation.Check], which matches [ErrConflict],
	// and set nothing aside; the first reservation decides, even if its caller crashed. Redis compares them as well, but once it
	// has lost its record, only the ledger can. With a ledger that does not compare them, a number may be issued twice if the
	// settings of a series change and Redis loses its data.
	//
	// After an error the sequences may have been set aside or not; if they were, they are a gap. The same is true if ctx ends,
	// as it does before the lock or the claim for the reservation expires.
	Reserve(ctx context.Context, r Reservation) (after int64, err error)
}

// A Reservation is a request to a [Ledger] to set sequences aside. Its texts are compared byte by byte.
type Reservation struct {
	Series   string // result of [Scheme.Series], such as "serial:IS": 3 to 129 bytes
	Period   string // label of a period, such as "20211024": 1 to 14 bytes
	Calendar string // result of [Scheme.Calendar], such as "days": 1 to 64 bytes, the same for all periods of a series
	Print    string // result of [Scheme.PrintMark]: 1 to 64 bytes, the same for all reservations of a period
	Above    int64  // sequence that all those set aside must exceed: 0 to 10^15-1
	N        int64  // number of sequences to set aside: 1 to 10^15-1
}

// Check is for those who write a [Ledger]. It compares r with the calendar that the ledger keeps for the series, and with the print
// mark that it keeps for the period. If one differs, the error matches [ErrConflict] and says what to do.
func (r Reservation) Check(calendar, printMark string) error {
	const anew = "use another type, or another key prefix together with another literal in the template"
	switch {
	case r.Calendar != calendar:
		return fmt.Errorf("%w: series %q counts by %q in the ledger and by %q here, and a series keeps its calendar; "+
			"to change that, "+anew, ErrConflict, r.Series, calendar, r.Calendar)
	case r.Print != printMark:
		return fmt.Errorf("%w: numbers of period %q of series %q were printed with another order of fields, alphabet, "+
			"check digit or key, so two sequences could print alike; use the same until a later period begins, or "+anew,
			ErrConflict, r.Period, r.Series)
	}
	return nil
}

// WithLedger sets numbers aside in durable storage, block sequences at a time, before Redis may issue them. If Redis then loses data
// (in a failover, an empty restart, an old backup), there is a gap and never a duplicate: the counter continues above everything the
// ledger has ever set aside. The gap is at most the block in use and those being reserved.
//
// The ledger is asked once per block. With a larger block it is asked less often, and the gap is larger when Redis loses data. While
// the ledger is down, numbers that were set aside are still issued; then calls fail with the ledger's error. All processes that issue
// numbers of a type must have the same ledger, but may have different blocks. A process without it gets [ErrConflict] until the last
// period for which the ledger was used has ended. A ledger may be turned on within a period. But if the period's counter was lost
// before, calls fail with [ErrCounterLost] until a floor or [Generator.Raise] tells what was used without the ledger.
//
// Redis must allow INFO in scripts, which returns the server's replication ID: a new one means that the server was restarted or
// promoted and may have lost data. If INFO is refused, calls fail and say so.
//
// Default none. A nil ledger is refused. Allowed are blocks of 1 to 10^15-1 sequences.
func WithLedger(l Ledger, block int64) Option {
	err := cmp.Or(
		refuseIf(isNil(l), "serial: WithLedger: the ledger is nil"),
		refuseIf(block < 1 || block > store.MaxSeq,
			"serial: WithLedger: block %d: allowed are 1 to %d", block, int64(store.MaxSeq)))
	return option{"WithLedger", false, err, func(c *config) { c.ledger, c.block = l, block }}
}

// A claim is the right to install one block. Redis gives it to one caller at a time, for the lock's expiry, and open
// consumes it: so a block that comes late, from a process that stood still or to a server that has forgotten, is burned.
// The methods of a nil claim do nothing: there is no ledger.
type claim struct {
	call  *call       // that was given it
	block store.Block // its bounds once it is reserved
	floor int64       // the block has to lie above
	until time.Time   // the claim is of no use from then on
	over  bool        // the claim is used up, or was not given
}

// look is a take that, with a ledger, comes back with a claim where a block has to be set aside. ctx must not end: whoever is
// given a claim has to give it back. lock is the caller's, nil if it has none; the claim does not outlive it, so that a process
// that dies with both delays the others once.
func (c *call) look(ctx context.Context, n int, purpose store.Purpose, lock *lock) (store.Reply, *claim, error) {
	take := store.Take{N: n, Purpose: store.All}
	var k *claim
	if c.g.ledger != nil {
		take.Purpose, take.Claim = purpose, store.Claim{Token: rand.Text(), Lease: lockExpiry}
		since := time.Now()
		if lock != nil {
			since = lock.since
			found := c.opening.found // by the server's clock, shortly before the lock was asked for
			take.Claim.Until = found.Now.Add(since.Sub(found.Received) + lockExpiry)
		}
		k = &claim{call: c, until: since.Add(lockExpiry - floorMargin)}
		k.block.Token = take.Claim.Token
	}
	r, err := c.follow(ctx, c.aim(), func() (store.Reply, error) { return c.send(ctx, take) })
	if k != nil {
		k.floor, k.block.ReplicationID = r.Above, r.ReplicationID
		k.over = err == nil && r.Status != store.Reserved
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
func (k *claim) reserve(ctx context.Context, n int) error {
	const widest = store.MaxSeq
	c, g, label := k.call, k.call.g, k.call.span.Label
	k.above(g.base)
	if k.floor >= widest { // by a counter that something else has written
		return fmt.Errorf("%w: %s %s is at %d", ErrExhausted, c.typ, label, k.floor)
	}
	size := max(1, min(max(g.block, int64(n)), g.limit-k.floor)) // the last block is as small as needed
	r := Reservation{Series: g.series(c.typ), Period: label, Calendar: g.counts, Print: g.mark, Above: k.floor, N: size}
	after, err := c.askOutside(ctx, k.until, func(ctx context.Context) (int64, error) {
		return g.ledger.Reserve(ctx, r)
	})
	if err != nil {
		return redisrun.Outage(fmt.Errorf("serial: the ledger of %s %s: %w", c.typ, label, err))
	}
	most := widest - size
	if g.limit == widest { // whose last block may reach beyond it
		most = 2 * widest
	}
	if after < r.Above || after > most {
		return redisrun.Outage(fmt.Errorf("serial: the ledger of %s %s set aside %d above %d and answered %d: allowed are %d to %d",
			c.typ, label, size, r.Above, after, r.Above, most))
	}
	k.block.After, k.block.Upto = min(after, widest), min(after+size, widest)
	return nil
}

// release gives a claim back that has not been used, so that the next one need not wait until it expires. One that may have
// been used, or not been given, is given back too: it does no harm, and nobody knows better.
func (k *claim) release(ctx context.Context, patience time.Duration) {
	if k == nil || k.over {
		return
	}
	k.over = true
	_, _ = redisrun.Await(ctx, patience, func() (bool, error) {
		own, c := budget.New(false), k.call
		return true, c.g.store.Release(ctx, &own, c.node.Node, c.typ, k.block.Token)
	})
}

// install sends open, for the period that was looked at: Redis refuses it if that is over. With a claim, a block is set aside
// first.
func (c *call) install(ctx context.Context, claim *claim, o store.Open) (store.Reply, error) {
	if claim != nil {
		if !time.Now().Before(claim.until) {
			return store.Reply{Status: store.Late}, nil
		}
		if err := claim.reserve(ctx, o.N); err != nil {
			return store.Reply{}, err
		}
		o.Block = &claim.block
	}
	if now := c.g.spanAt(c.aim()); now.Start == c.span.Start && c.g.template.CheckYear(now.Reading) == nil {
		c.span = now // what is printed of the date may have changed since the period was looked at
	}
	o.Series, o.Base, o.Request = c.series(), c.g.base, c.printed()
	r, err := c.g.store.Open(ctx, &c.budget, c.node.Node, &o)
	err = c.heard(&r, err)
	if claim != nil && err == nil && (r.Status == store.Issued || r.Status == store.Exhausted) {
		claim.over = true
	}
	return r, err
}

// refill has a block set aside for a counter that is there, but at its ceiling or not as it was left, and issues n numbers
// from it. It comes out as again where another caller of this process did it. An attempt goes on without a caller that leaves.
func (c *call) refill(ctx context.Context, n int) (step, error) {
	if others := c.beginWork(); others != nil {
		return c.join(ctx, others)
	}
	return c.onward(ctx, func(c *call) (next step, err error) {
		defer func() { c.endWork(err) }()
		steady := context.WithoutCancel(ctx)
		for {
			if next, err = c.fill(steady, n); next != wait {
				return next, err
			}
			if next, err = c.wait(ctx); next != again { // for another process that is at it
				return next, err
			}
		}
	})
}

// fill makes one attempt of a refill.
func (c *call) fill(ctx context.Context, n int) (step, error) {
	r, claim, err := c.look(ctx, n, store.ForCeiling, nil)
	defer c.release(ctx, claim)
	if err == nil && r.Status == store.Reserved {
		r, err = c.install(ctx, claim, store.Open{N: n, Checked: r.Now, Lease: lockExpiry})
	}
	return c.taken(r, err)
}
