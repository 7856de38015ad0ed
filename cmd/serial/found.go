package main

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/tally"
)

// A found sums up the input's numbers of one type and period.
type found struct {
	Type     string    `json:"type"`
	Start    time.Time `json:"start"`
	Action   string    `json:"action"` // see below
	Count    int64     `json:"count"`  // numbers found
	Greatest int64     `json:"greatest"`
	Last     *int64    `json:"last,omitempty"` // the counter before; omitted if lost, or if the numbers are ignored

	// These are omitted if the numbers are ignored.
	Missing        []gap    `json:"missing,omitempty"`        // ranges between the least and the greatest; the first 1,000
	MissingCount   int64    `json:"missingCount,omitempty"`   // sequences
	Duplicates     []string `json:"duplicates,omitempty"`     // second occurrence of each sequence; the first 10
	DuplicateCount int64    `json:"duplicateCount,omitempty"` // sequences
	Jump           int64    `json:"jump,omitempty"`           // from the second greatest to the greatest, if suspicious

	sequences *tally.Tally // nil for ignored types, and for periods that were over when the input was opened
	below     int64        // the second greatest sequence
	lines     []int        // of the Duplicates
}

// The actions of import.
const (
	raised     = "raised"      // to the greatest number found
	wouldRaise = "would raise" // if the import wrote anything
	stays      = "stays"       // the counter is already at that number, or above
	ignored    = "ignored"     // of another period, or not of the named type
)

// add records a number of the input.
func (f *found) add(n serial.Number, line int) error {
	f.Count++
	f.Greatest = max(f.Greatest, n.Seq)
	if f.sequences == nil {
		return nil
	}
	before, err := f.sequences.Add(n.Seq)
	if err != nil || before != 1 {
		return err
	}
	if f.DuplicateCount++; len(f.Duplicates) < mostShown {
		f.Duplicates, f.lines = append(f.Duplicates, n.String()), append(f.lines, line)
	}
	return nil
}

// account finds the missing sequences, and whether the greatest one is far above the others.
func (f *found) account() {
	const most, far = 1000, 1000
	var last, different int64
	for seq := range f.sequences.All() {
		if f.below = last; different > 0 && seq > last+1 {
			f.MissingCount += seq - last - 1
			if len(f.Missing) < most {
				f.Missing = append(f.Missing, gap{last + 1, seq - 1})
			}
		}
		last = seq
		different++
	}
	if jump := last - f.below; different > 1 && jump > far && jump > different {
		f.Jump = jump
	}
}

// doubts describes what looks like a mistake in the input.
func (p *printer) doubts(f *found) (all []error) {
	series := p.series(f.Type) + " in " + p.name(f.Start)
	for i, number := range f.Duplicates {
		n, _ := p.scheme.Parse(number)
		all = append(all, fmt.Errorf("line %d: %s: the sequence %s of %s appears twice", f.lines[i], number, p.digits(n.Seq),
			series))
	}
	if f.DuplicateCount > mostShown {
		all = append(all, fmt.Errorf("%d sequences of %s appear twice, of which the first %d are shown", f.DuplicateCount,
			series, mostShown))
	}
	if f.Jump > 0 {
		all = append(all, fmt.Errorf("the greatest sequence of %s, %s, is %d above the next lower one, %s", series,
			p.digits(f.Greatest), f.Jump, p.digits(f.below)))
	}
	return all
}

func (p *printer) printFound(f *found) {
	if p.json {
		_ = json.NewEncoder(p).Encode(f)
		return
	}
	how, found := "", counted(f.Count, "number")
	switch greatest := p.digits(f.Greatest); {
	case f.Action == ignored:
		how = fmt.Sprintf("%s up to %s", found, greatest)
	case f.Action == stays:
		how = fmt.Sprintf("at %s; %s up to %s", p.digits(*f.Last), found, greatest)
	case f.Last == nil:
		how = fmt.Sprintf("to %s, the counter is lost; %s", greatest, found)
	default:
		how = fmt.Sprintf("from %s to %s; %s", p.digits(*f.Last), greatest, found)
	}
	_, _ = fmt.Fprintf(p, "%s %s in %s: %s\n", f.Action, p.series(f.Type), p.name(f.Start), how)
	if f.MissingCount > 0 {
		p.listRanges("lacks", f.MissingCount, f.Missing)
	}
}

// counted returns a count with its noun, as in "3 numbers".
func counted(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
