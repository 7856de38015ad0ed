package serialcmd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/account"
	"github.com/dailyserial/serial/internal/template"
)

// imports raises the counters of the current period to the largest numbers of another system. It checks everything
// before the first write, with one exception: only an attempt to raise a series shows that the series has a ledger.
func (c *command) imports(ctx context.Context) error {
	typ, name := c.args[0], c.args[1]
	if typ != "" && name == "" && c.isFile(typ) {
		typ, name = "", typ
	}
	if c.Shared { // all types share the counter
		typ = ""
	}
	dry := isTerminal(c.Stdin)
	if c.dryRun != nil {
		dry = *c.dryRun
	}
	if err := c.checkOutput(); err != nil {
		return err
	}
	input, err := c.openInput(name)
	if err != nil {
		return err
	}
	defer func() { _ = input.Close() }()
	now, down := c.redisTime(ctx)
	all, err := c.collect(ctx, input, typ, now)
	if err = cmp.Or(err, down); err != nil { // an error in the input takes precedence
		return err
	}
	doubts, err := c.plan(ctx, all, typ)
	if err != nil {
		return err
	}
	if len(doubts) > 0 && !c.force {
		for _, f := range all {
			c.printFound(f)
		}
		return errors.Join(append(doubts, errors.New("nothing was written; if the numbers are correct, use -force"))...)
	}
	for _, doubt := range doubts {
		c.warn("%v", doubt)
	}
	if err := c.raiseAll(ctx, all, dry); err != nil {
		return err
	}
	switch {
	case !slices.ContainsFunc(all, func(f *found) bool { return f.Action != ignored }):
		c.warn("none of the numbers belongs to a current period, so nothing was written; is the time zone correct?")
	case dry:
		c.warn("dry run: nothing was written; to write, add -dry-run=false")
	}
	return nil
}

// plan sets the action for the numbers of each type and period, and returns doubts about the numbers. If typ is not
// empty, it ignores all other types.
func (c *command) plan(ctx context.Context, all []*found, typ string) (doubts []error, err error) {
	current := map[string]serial.Number{}
	for _, f := range all {
		if typ != "" && f.Type != typ {
			continue
		}
		last, ok := current[f.Type]
		if !ok {
			if last, err = c.last(ctx, f.Type); err != nil {
				return nil, err
			}
			current[f.Type] = last
		}
		if !last.Start.Equal(f.Start) {
			continue
		}
		if f.sequences == nil {
			return nil, fmt.Errorf("%s: Redis's clock was set back while the input was read, so nothing was "+
				"written", c.series(f.Type))
		}
		f.Action = wouldRaise
		if last.Seq >= 0 {
			f.Last = &last.Seq
			if last.Seq >= f.Largest {
				f.Action = stays
			}
		}
		f.findGaps()
		doubts = append(doubts, c.doubts(f)...)
	}
	if typ != "" && len(current) == 0 {
		hint := ""
		if c.args[1] == "" {
			hint = ", and there is no file of that name"
		}
		return nil, fmt.Errorf("the input has no numbers of type %s%s, so nothing was written", typ, hint)
	}
	if len(all) == 0 { // for example, because the command that writes to the pipe has failed
		return nil, errors.New("the input has no numbers, so nothing was written")
	}
	return doubts, nil
}

// raiseAll raises the counters as planned, unless dry is true, and prints the result for each type and period. After an
// error, it raises no further counter.
func (c *command) raiseAll(ctx context.Context, all []*found, dry bool) (failed error) {
	count := int64(0)
	for _, f := range all {
		if f.Action == wouldRaise && !dry && failed == nil {
			if err := c.raiseTo(ctx, f); err != nil {
				f.Action, failed = failing, err
				c.warn("the counters of %s were raised before %s, and none after it", counted(count, "type"), c.series(f.Type))
			} else {
				f.Action = raised
				count++
			}
		}
		if f.Action == wouldRaise && failed != nil {
			f.Action = notRaised
		}
		c.printFound(f)
	}
	return failed
}

// isFile reports whether a single argument is FILE and not TYPE. This is the case if the file exists, or if stdin is a
// terminal, because the numbers then have to be in a file.
func (c *command) isFile(arg string) bool {
	info, err := os.Stat(arg)
	return err == nil && !info.IsDir() || arg == "-" || isTerminal(c.Stdin)
}

// last returns the last number of a type. If the counter is lost, the Seq of the number is negative, and raising
// repairs the counter.
func (c *command) last(ctx context.Context, typ string) (serial.Number, error) {
	n, err := c.gen.Peek(ctx, typ)
	if !errors.Is(err, serial.ErrCounterLost) {
		return n, err
	}
	now, err := c.redisTime(ctx) // determines the current period
	_, start, _ := c.scheme.Period(serial.At(now))
	return serial.Number{Type: typ, Start: start, Seq: -1}, err
}

// raiseTo raises a counter to f.Largest. Raise acts on the current period, so raiseTo afterwards checks that this was
// still the period of f.
func (c *command) raiseTo(ctx context.Context, f *found) error {
	c.typ = f.Type
	if err := c.gen.Raise(ctx, f.Type, f.Largest); err != nil {
		return err
	}
	now, err := c.gen.Peek(ctx, f.Type)
	if err != nil {
		return err
	}
	if !now.Start.Equal(f.Start) {
		return fmt.Errorf("%s: %s ended in the meantime, so the counter of %s may have been raised",
			c.series(f.Type), c.name(f.Start), c.name(now.Start))
	}
	return nil
}

// A found is a summary of the numbers of one type and period in the input.
type found struct {
	Type    string    `json:"type"`
	Start   time.Time `json:"start"`
	Action  string    `json:"action"` // one of the constants below
	Count   int64     `json:"count"`  // count of the numbers
	Largest int64     `json:"greatest"`
	Last    *int64    `json:"last,omitempty"` // counter before the import; omitted if lost, or if the numbers are ignored

	// The following fields are omitted if the numbers are ignored.
	Missing        []gap    `json:"missing,omitempty"`        // ranges between smallest and largest; the first 1,000
	MissingCount   int64    `json:"missingCount,omitempty"`   // sequences
	Duplicates     []string `json:"duplicates,omitempty"`     // second occurrence of each sequence; the first 10
	DuplicateCount int64    `json:"duplicateCount,omitempty"` // sequences
	Jump           int64    `json:"jump,omitempty"`           // from the second largest to the largest, if suspicious

	sequences *account.Tally // nil for ignored types, and for periods that have ended before the input was opened
	below     int64          // second largest sequence
	lines     []int          // line numbers of the Duplicates
}

// The actions of import.
const (
	raised     = "raised"      // the counter was raised to the largest number
	wouldRaise = "would raise" // the counter was not raised because of -dry-run or of doubts
	failing    = "failed"      // raising the counter failed, and the import ends with this error
	notRaised  = "not raised"  // the counter was not raised because of an earlier error
	stays      = "stays"       // the counter is already at the largest number, or above it
	ignored    = "ignored"     // the period is not the current one, or the type is not TYPE
)

// add adds a number of the input, which is on the given line.
func (f *found) add(n serial.Number, line int) error {
	f.Count++
	f.Largest = max(f.Largest, n.Seq)
	if f.sequences == nil {
		return nil
	}
	before, err := f.sequences.Add(n.Seq)
	if err != nil || before != 1 {
		return err
	}
	if f.DuplicateCount++; len(f.Duplicates) < maxShown {
		f.Duplicates, f.lines = append(f.Duplicates, n.String()), append(f.lines, line)
	}
	return nil
}

// findGaps sets the missing sequences. It also sets Jump if the largest sequence is suspiciously far above the others.
func (f *found) findGaps() {
	const maxListed, far = 1000, 1000
	var last, different int64
	for seq := range f.sequences.All() {
		if f.below = last; different > 0 && seq > last+1 {
			f.MissingCount += seq - last - 1
			if len(f.Missing) < maxListed {
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

// doubts returns an error for everything in f that looks like a mistake.
func (c *command) doubts(f *found) (all []error) {
	series := c.series(f.Type) + " in " + c.name(f.Start)
	for i, number := range f.Duplicates {
		n, _ := c.scheme.Parse(number)
		all = append(all, fmt.Errorf("line %d: %s: the sequence %s of %s appears twice", f.lines[i], number,
			c.Template.PrintSeq(n.Seq), series))
	}
	if f.DuplicateCount > maxShown {
		all = append(all, fmt.Errorf("%d sequences of %s appear twice, of which the first %d are shown", f.DuplicateCount,
			series, maxShown))
	}
	if f.Jump > 0 {
		all = append(all, fmt.Errorf("the largest sequence of %s, %s, is %d above the second largest, %s", series,
			c.Template.PrintSeq(f.Largest), f.Jump, c.Template.PrintSeq(f.below)))
	}
	return all
}

func (c *command) printFound(f *found) {
	if c.json {
		_ = json.NewEncoder(c.out).Encode(f)
		return
	}
	how, found := "", counted(f.Count, "number")
	switch largest := c.Template.PrintSeq(f.Largest); {
	case f.Action == ignored:
		how = fmt.Sprintf("%s up to %s", found, largest)
	case f.Action == stays:
		how = fmt.Sprintf("at %s; %s up to %s", c.Template.PrintSeq(*f.Last), found, largest)
	case f.Last == nil:
		how = fmt.Sprintf("to %s, the counter is lost; %s", largest, found)
	default:
		how = fmt.Sprintf("from %s to %s; %s", c.Template.PrintSeq(*f.Last), largest, found)
	}
	c.printf("%s %s in %s: %s\n", f.Action, c.series(f.Type), c.name(f.Start), how)
	if f.MissingCount > 0 {
		c.listRanges("lacks", f.MissingCount, f.Missing)
	}
}

// counted returns a count with its noun, such as "3 numbers".
func counted(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// collect reads the input and returns a summary for each type and period, sorted by type and period. For periods that
// have not ended by the given time, it stores the sequences of typ, or of all types if typ is empty. The error lists
// lines that are not numbers.
func (c *command) collect(ctx context.Context, input io.Reader, typ string, now time.Time) ([]*found, error) {
	const tolerance = 5 * time.Second // maximum difference between the clocks of servers
	type key struct {
		typ   string
		start int64
	}
	_, start, _ := c.scheme.Period(serial.At(now.Add(-tolerance)))
	all, bad, first, hint := map[key]*found{}, int64(0), []error(nil), ""
	for e, err := range c.entries(ctx, input) {
		if err != nil {
			return nil, err
		}
		n, err := c.parsePadded(e.text)
		if err != nil {
			if bad++; bad <= maxShown {
				first = append(first, fmt.Errorf("line %d: %s", e.line, strings.TrimPrefix(err.Error(), "serial: ")))
			}
			if c.isCSV(e) {
				hint = "; " + useColumn
			}
			continue
		}
		k := key{c.series(n.Type), n.Start.Unix()}
		f := all[k]
		if f == nil {
			f = &found{Type: n.Type, Start: n.Start, Action: ignored}
			if !n.Start.Before(start) && (typ == "" || n.Type == typ) {
				f.sequences = account.NewTally(math.MaxInt64)
			}
			all[k] = f
		}
		if err := f.add(n, e.line); err != nil {
			return nil, fmt.Errorf("line %d: %w", e.line, err)
		}
	}
	return slices.SortedFunc(maps.Values(all), func(a, b *found) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), a.Start.Compare(b.Start))
	}), unreadable(first, bad, hint)
}

// parsePadded parses a number with or without the whitespace around it, because a template may begin or end with
// whitespace.
func (c *command) parsePadded(text string) (serial.Number, error) {
	n, err := c.scheme.Parse(strings.Trim(text, template.Blanks))
	if err != nil {
		if padded, err := c.scheme.Parse(text); err == nil {
			return padded, nil
		}
	}
	return n, err
}

// maxShown is the maximum count of lines of the input that are shown for each kind of problem.
const maxShown = 10

// unreadable returns an error for the lines of the input that are not numbers. It contains the errors of the first such
// lines, the count of all such lines, and a hint. If the count is 0, unreadable returns nil.
func unreadable(first []error, count int64, hint string) error {
	if count == 0 {
		return nil
	}
	more := ""
	if count > int64(len(first)) {
		more = fmt.Sprintf(", of which the first %d are shown", len(first))
	}
	return errors.Join(append(first, fmt.Errorf("%s cannot be parsed%s; nothing was written%s", counted(count, "line"),
		more, hint))...)
}
