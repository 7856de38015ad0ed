package main

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dailyserial/serial"
)

// A skip collects what raise or takeover skipped, as the library reports it. It is safe for concurrent use.
type skip struct {
	mu     sync.Mutex
	raised *serial.Explanation // nil if nothing was skipped
	lost   bool                // the counter was lost, so nobody knows what was skipped
}

// hooks collect the skip.
func (s *skip) hooks() serial.Hooks {
	return serial.Hooks{
		Unused: func(_ context.Context, e serial.Explanation) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if e.Reason == serial.Raised {
				s.raised = &e
			}
		},
		Lost: func(context.Context, serial.LostInfo) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.lost = true
		},
	}
}

func (s *skip) get() (raised *serial.Explanation, lost bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.raised, s.lost
}

// A skipped is a range of skipped sequences, as a line of a file for audit -explained.
type skipped struct {
	gap
	Reason   string    `json:"reason"`
	By       string    `json:"by"`
	At       time.Time `json:"at"`
	Possible bool      `json:"possible"`
}

// skipping lifts a counter, and prints the next number and what was skipped. Nothing can find that out later, so it is
// printed even if something else failed.
func (c *command) skipping(ctx context.Context, lift func(seq int64) error) error {
	seq, err := c.seq()
	if err != nil {
		return err
	}
	if err := c.checkReason(); err != nil {
		return err
	}
	err = lift(seq)
	steady, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	unknown := c.gen.Flush(steady)
	e, lost := c.skip.get()
	var s *skipped
	if e != nil {
		s = &skipped{gap{e.First, e.Last}, e.Reason, "", e.At.In(c.zone).Truncate(time.Second), e.Possible}
		if c.reason != "" {
			s.Reason, s.By, s.Possible = c.reason, c.by, false
		}
	}
	switch {
	case err != nil:
		c.out.printSkipped(s)
		return err
	case unknown != nil:
		unknown = fmt.Errorf("what %s skipped is not known: %w", c.row.name, unknown)
	case s == nil && lost && seq > 0:
		_, _ = fmt.Fprintln(c.stderr, "serial: the counter was lost, so it is not known which numbers were skipped, and "+
			"none are explained")
	}
	return errors.Join(c.announce(ctx, s), unknown)
}

// checkReason refuses a reason or name that is invalid in an explanation, and one without the other.
func (s *settings) checkReason() error {
	switch {
	case s.reason == "" && s.by == "":
		return nil
	case s.by == "":
		return misused("-reason needs -by NAME: who says so")
	case s.reason == "":
		return misused("-by needs -reason TEXT: why nobody has the numbers")
	}
	err := serial.Explanation{First: 1, Last: 1, Reason: s.reason, By: s.by, At: time.Now()}.Validate()
	if err == nil {
		return nil
	}
	_, wrong, _ := strings.Cut(err.Error(), "1 to 1: ")
	field, wrong, _ := strings.Cut(wrong, ": ")
	return misused("-%s: %s", strings.ToLower(field), wrong)
}

// printSkipped prints what was skipped, unless s is nil.
func (p *printer) printSkipped(s *skipped) {
	switch {
	case s == nil:
	case p.json:
		_ = json.NewEncoder(p).Encode(map[string]any{"skipped": s})
	default:
		_ = csv.NewWriter(p).WriteAll([][]string{ // p remembers an error
			{"first", "last", "reason", "by", "at", "possible"},
			{strconv.FormatInt(s.First, 10), strconv.FormatInt(s.Last, 10), s.Reason, s.By, p.time(s.At),
				strconv.FormatBool(s.Possible)},
		})
	}
}
