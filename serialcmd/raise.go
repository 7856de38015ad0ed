package serialcmd

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/series"
)

func (c *command) raise(ctx context.Context) error {
	return c.skipping(ctx, func(seq int64) error { return c.gen.Raise(ctx, c.args[0], seq) })
}

// takeover takes a series out of its ledger only with -leave-ledger. The first attempt always keeps the ledger, and
// only its reply shows whether there is a ledger. So takeover does not miss a ledger that is introduced in the
// meantime.
func (c *command) takeover(ctx context.Context) error {
	if c.leaveLedger && c.Ledger {
		return misused("-leave-ledger: this program has the ledger; to stop using it, %s", c.leaving())
	}
	if c.leaveLedger && c.reason != "" {
		return misused("-reason and -leave-ledger cannot be combined, because only the ledger shows which numbers may have " +
			"been issued; audit the period afterwards, and explain the missing numbers")
	}
	return c.skipping(ctx, func(seq int64) error {
		typ := c.args[0]
		err := c.gen.TakeoverKeepingLedger(ctx, typ, seq)
		if !errors.Is(err, series.ErrReserved) {
			return err
		}
		does := map[bool]string{true: "leaves", false: "would leave"}[c.leaveLedger]
		c.warn("takeover %s the ledger of %s: if Redis loses data later, numbers may be issued twice; SEQ must be the last "+
			"sequence reserved in the ledger, because all numbers above SEQ will be issued, even those of blocks that were "+
			"dropped; if the ledger is used again later, the rest of its block is skipped", does, typ)
		if c.leaveLedger {
			err = c.gen.Takeover(ctx, typ, seq)
		}
		return err
	})
}

// seq parses the argument SEQ.
func (c *command) seq() (int64, error) {
	seq, err := Integer(c.args[1], 64)
	if err == nil && seq < 0 {
		err = errors.New("want at least 0")
	}
	if err != nil {
		return 0, misused("SEQ %q: %w", c.args[1], err)
	}
	return seq, nil
}

func (c *command) prepare(ctx context.Context) error {
	if err := c.gen.Prepare(ctx, c.args[0]); err != nil {
		return err
	}
	return c.announce(ctx, nil)
}

// announce prints the next number, which another process may issue in the meantime. If s is not nil, it also prints the
// skipped numbers. If the date of the next number is unknown, it prints the number with today's date, and the sequence.
func (c *command) announce(ctx context.Context, s *explanation) error {
	l, undated, err := c.upcoming(ctx)
	if err != nil {
		c.printSkipped(s)
		if !errors.Is(err, serial.ErrExhausted) { // otherwise, the counter was already above all numbers
			err = fmt.Errorf("%s succeeded, but %w", c.row.name, err)
		}
		return err
	}
	if l.Next == "" {
		c.warn("no number of %s is left in the period that began at %s", c.series(l.Type), l.Start.Format(time.RFC3339))
	}
	if c.json {
		l.Skipped = s
		c.printJSON(l)
	} else {
		if l.Next != "" {
			c.println("next", l.Next)
		}
		if undated > 0 {
			c.println("seq", undated)
		}
		c.printSkipped(s)
	}
	if err := c.out.Flush(); err != nil {
		skipped := ""
		if s != nil {
			skipped = fmt.Sprintf(" and skipped %d to %d", s.First, s.Last)
		}
		return fmt.Errorf("%s succeeded%s, but the output could not be written: %w", c.row.name, skipped, err)
	}
	return nil
}

// upcoming returns the line for the last number, with the next number if one is left. If the date of the next number is
// unknown, undated is its sequence.
func (c *command) upcoming(ctx context.Context) (l line, undated int64, err error) {
	last, err := c.gen.Peek(ctx, c.args[0])
	if err != nil {
		return line{}, 0, fmt.Errorf("the next number could not be read: %w", err)
	}
	const noDate = "the date of the next number could not be read: %w"
	if l, err = c.lineNow(ctx, last); err != nil {
		return line{}, 0, fmt.Errorf(noDate, err)
	}
	next := last
	first, largest := c.scheme.Limits()
	if next.Seq++; last.Seq == 0 {
		next.Seq = first
	}
	if next.Seq > largest {
		return l, 0, nil
	}
	if next.Date.IsZero() {
		undated = next.Seq
		if next, err = c.dateNow(ctx, next); err != nil {
			return line{}, 0, fmt.Errorf(noDate, err)
		}
	}
	l.Next = next.String()
	return l, undated, nil
}

// A skip collects the numbers that raise or takeover skip, as the library reports them to hooks.
type skip struct {
	raised atomic.Pointer[serial.Explanation] // skipped numbers, or nil if none were skipped
	lost   atomic.Bool                        // whether the counter was lost; then the skipped numbers are unknown
	blocks atomic.Bool                        // whether blocks of the ledger were skipped; callers may have their numbers
}

// hooks returns hooks that set the fields of s.
func (s *skip) hooks() serial.Hooks {
	return serial.Hooks{
		Unused: func(_ context.Context, e serial.Explanation) {
			if e.Reason == serial.Raised {
				s.raised.Store(&e)
			}
			s.blocks.CompareAndSwap(false, e.Reason == serial.BlockSkipped)
		},
		Lost: func(context.Context, serial.LostInfo) { s.lost.Store(true) },
	}
}

// skipping raises a counter by calling the function raise, and prints the next number and the skipped numbers. The
// skipped numbers cannot be determined later, so they are printed even if something fails.
func (c *command) skipping(ctx context.Context, raise func(seq int64) error) error {
	seq, err := c.seq()
	if err != nil {
		return err
	}
	if err := c.checkReason(); err != nil {
		return err
	}
	if err := c.checkOutput(); err != nil {
		return err
	}
	err = raise(seq)
	unknown := c.flush(ctx)
	s, unstored := c.explainSkip(ctx, err == nil)
	switch {
	case err != nil:
		c.printSkipped(s)
		return errors.Join(unstored, err)
	case unknown != nil && s == nil:
		unknown = fmt.Errorf("the numbers that %s skipped are unknown: %w", c.row.name, unknown)
	case s == nil && c.skip.lost.Load() && seq > 0:
		c.warn("it is not known which numbers were skipped, because the counter was lost; none of them is explained, so an " +
			"audit will list them as not explained")
	case c.skip.blocks.Load() && seq > 0:
		c.warn("the numbers of blocks that the ledger had reserved are not explained, because callers may have them")
	}
	return errors.Join(c.announce(ctx, s), unstored, unknown)
}

// explainSkip returns the skipped numbers, or nil if there are none. It stores the user's explanation in the register,
// but only if raising has succeeded. If it has failed, callers may still get these numbers after a failover.
func (c *command) explainSkip(ctx context.Context, succeeded bool) (*explanation, error) {
	raised := c.skip.raised.Load()
	if raised == nil {
		return nil, nil
	}
	e := *raised
	e.At = e.At.In(c.Calendar.Location).Truncate(time.Second)
	var failed error
	if c.reason != "" && succeeded {
		e.Reason, e.By, e.Possible = c.reason, c.by, false
		if r := c.Register; r != nil {
			ctx, cancel := briefly(ctx)
			defer cancel()
			if failed = r.Explain(ctx, e); failed != nil {
				failed = fmt.Errorf("the explanation could not be stored; keep the printed lines: %w", failed)
			}
		}
	}
	s := asJSON(gap{e.First, e.Last}, e)
	return &s, failed
}

// checkReason returns an error if the reason or the name is invalid in an explanation, or if only one of them is given.
func (c *command) checkReason() error {
	switch {
	case c.reason == "" && c.by == "":
		return nil
	case c.by == "":
		return misused("-reason needs -by NAME, the name of the person who gives the reason")
	case c.reason == "":
		return misused("-by needs -reason TEXT, the reason why the skipped numbers are not used")
	}
	err := serial.Explanation{First: 1, Last: 1, Reason: c.reason, By: c.by, At: time.Now()}.Validate()
	if err == nil {
		return nil
	}
	_, wrong, _ := strings.Cut(err.Error(), "1 to 1: ")
	field, wrong, _ := strings.Cut(wrong, ": ")
	return misused("-%s: %s", strings.ToLower(field), wrong)
}

// printSkipped prints the skipped numbers, unless s is nil.
func (c *command) printSkipped(s *explanation) {
	switch {
	case s == nil:
	case c.json:
		_ = json.NewEncoder(c.out).Encode(map[string]any{"skipped": s})
	default:
		_ = csv.NewWriter(c.out).WriteAll([][]string{ // out.Flush returns the error again
			{"first", "last", "reason", "by", "at", "possible"},
			{strconv.FormatInt(s.First, 10), strconv.FormatInt(s.Last, 10), s.Reason, s.By, c.time(s.At),
				strconv.FormatBool(s.Possible)},
		})
	}
}
