package main

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"strconv"
	"sync"
	"time"

	"github.com/dailyserial/serial"
)

// skips collects the sequences over which a command lifts counters. It is safe for use by any number of goroutines.
type skips struct {
	mu  sync.Mutex
	all []serial.Explanation
}

// add is [serial.Hooks].Unused.
func (s *skips) add(_ context.Context, e serial.Explanation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.Reason == serial.Raised {
		s.all = append(s.all, e)
	}
}

// A skipped range is a line of a file that audit reads with -explained.
type skipped struct {
	gap
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
	Type   string    `json:"type"`
	Start  time.Time `json:"start"`
}

// print waits until everything is told, and prints a file that audit reads with -explained, or with -json one line. Nothing can
// tell that later, so it is printed even if the command failed.
func (s *skips) print(ctx context.Context, gen *serial.Generator, p *printer) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	err := gen.Flush(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) == 0 {
		return err
	}
	var all []skipped
	lines := [][]string{{"first", "last", "reason", "at", "type", "start"}}
	for _, e := range s.all {
		all = append(all, skipped{gap{e.First, e.Last}, e.Reason, e.At, e.Type, e.Start})
		lines = append(lines, []string{strconv.FormatInt(e.First, 10), strconv.FormatInt(e.Last, 10), e.Reason,
			p.time(e.At), e.Type, p.time(e.Start)})
	}
	if p.json {
		_ = json.NewEncoder(p).Encode(map[string]any{"skipped": all})
	} else {
		_ = csv.NewWriter(p).WriteAll(lines) // p remembers an error
	}
	return err
}
