package serial

import (
	"fmt"
	"strings"
	"time"

	"github.com/dailyserial/serial/internal/calendar"
	"github.com/dailyserial/serial/internal/redisrun"
	"github.com/dailyserial/serial/internal/store"
	"github.com/dailyserial/serial/internal/template"
)

// refusal turns the status of a reply that ends a call into an error. It says what happened, with dates, and what ends it.
func (c *call) refusal(r store.Reply) error {
	label := calendar.FormatLabel(c.span.Label)
	switch r.Status {
	case store.Exhausted:
		if r.Before != nil { // the attempt before may have consumed what is missing, and ErrExhausted says that nothing was
			return fmt.Errorf("serial: Redis failed, and has too few numbers left since: %w", redisrun.Foreign(r.Before))
		}
		return fmt.Errorf("%w: %s of %s is at %s of %d; a wider {seq} in the template takes effect at once",
			ErrExhausted, c.typ, label, r.Held, c.g.limit)
	case store.Lost:
		held := fmt.Sprintf("holds %.40q", r.Held)
		if r.Held == "" {
			held = "is gone"
		}
		if mark := c.g.marks.series(c.typ, c.span).Mark; mark > 0 {
			held += fmt.Sprintf(", and %d is the last number that this process has seen", mark)
		}
		return fmt.Errorf("%w: numbers of %s were issued in %s, and %s %s; find the last one used, and run: %s",
			ErrCounterLost, c.typ, label, c.g.store.CounterKey(c.typ, c.span.Label), held, c.operate("raise"))
	case store.Future:
		return fmt.Errorf("%w: Redis's clock says %s, and %s is in %s already, entered by a clock that was ahead; if Redis's clock is right "+
			"now, run: %s", ErrClockSkew, r.Now.UTC().Format(time.RFC3339), c.typ, c.g.interval(r.Entered), c.operate("raise"))
	case store.Unknown:
		if strings.HasPrefix(r.Held, "role:") {
			return fmt.Errorf("serial: WithLedger needs a master, and Redis says %q: a replica that takes writes shares its master's "+
				"identity, so that the same numbers would be issued on both; set replica-read-only yes", r.Held)
		}
		return fmt.Errorf("serial: WithLedger needs INFO replication in scripts, to read the server's replication ID; Redis says %q",
			r.Held)
	case store.OtherPrint:
		used := "up to " + calendar.FormatLabel(r.Held)
		if c.g.calendar.Unit == calendar.Never {
			used = "of all time"
		}
		return fmt.Errorf("%w: numbers of %s %s were printed with another order of fields, alphabet, check digit or key, so that this "+
			"generator might print the same text again; %s", ErrConflict, c.typ, used, c.switchPrint(r.Held))
	case store.Calendar:
		p, ok := store.ParsePeriod(r.Entered)
		if !ok || p.Calendar == "" {
			return fmt.Errorf("%w: %s holds %.80q, which this version did not write; find the last number used, delete the key, and run: %s",
				ErrConflict, c.g.store.RecordKey(c.typ), r.Entered, c.operate("raise"))
		}
		return fmt.Errorf("%w: %s: it counts by %s, and this generator by %s; a series keeps its period and year start: give this generator the "+
			"same ones, or begin a new series with another type, or with another key prefix and another literal in the template",
			ErrConflict, c.g.store.RecordKey(c.typ), p.Calendar, c.g.counts)
	case store.Conflict:
		own := store.Period{Label: c.span.Label, Start: c.span.Start, End: c.span.End}
		if p, ok := store.ParsePeriod(r.Entered); ok && p.Ledger && p.Label == own.Label && p.Start == own.Start && p.End == own.End {
			return fmt.Errorf("%w: the numbers of %s in %s are set aside in a ledger, which this generator does not have; let a process do "+
				"this that has it, or, to go on without the ledger, stop those and run: %s", ErrConflict, c.typ, label, c.operate("takeover"))
		}
		return fmt.Errorf("%w: %s is in %s, and by this generator's clock it would be in %s: another time zone or day start is in use; "+
			"if this generator is right, stop the other process and run: %s", ErrConflict, c.typ, c.g.interval(r.Entered),
			c.g.describe(own), c.operate("takeover"))
	}
	return fmt.Errorf("serial: unexpected script reply %q", r.Status)
}

// switchPrint says when what is printed may change, given the greatest label that was used.
func (c *call) switchPrint(greatest string) string {
	if c.g.calendar.Unit == calendar.Never {
		return "give this generator its old template and key, or another type or key prefix"
	}
	return fmt.Sprintf("give it its old template and key until %s has ended, and then the new one to all processes", calendar.FormatLabel(greatest))
}

// interval describes a period as the record has it, in UTC and in the Generator's time zone.
func (g *Generator) interval(recorded string) string {
	p, ok := store.ParsePeriod(recorded)
	if !ok {
		return fmt.Sprintf("%.80q", recorded)
	}
	return g.describe(p)
}

func (g *Generator) describe(p store.Period) string {
	from, to := time.Unix(p.Start, 0), time.Unix(p.End, 0)
	zone := g.calendar.Location
	return fmt.Sprintf("%s from %s to %s (%s to %s in %s)", calendar.FormatLabel(p.Label), from.UTC().Format(time.RFC3339), to.UTC().Format(time.RFC3339),
		from.In(zone).Format(time.DateTime), to.In(zone).Format(time.DateTime), zone)
}

// operate is the command of cmd/serial with which an operator ends an error of the call's type. SEQ is left to be filled in. A
// ledger or a key is only in the process that has it.
func (c *call) operate(command string) string {
	g := c.g
	if g.ledger != nil || g.key != nil {
		what := "ledger"
		if g.ledger == nil {
			what = "key of the hidden sequence"
		}
		return fmt.Sprintf("Generator.%s%s(ctx, %q, SEQ) in a process with the %s", strings.ToUpper(command[:1]), command[1:], c.typ, what)
	}
	line := "serial " + command
	flag := func(name, value, usual string) {
		if value != usual {
			line += fmt.Sprintf(" -%s '%s'", name, strings.ReplaceAll(value, "'", `'\''`))
		}
	}
	flag("tz", g.calendar.Location.String(), "")
	period := g.calendar.Unit.Noun()
	if g.calendar.Unit == calendar.Never {
		period = "never"
	}
	flag("period", period, calendar.Day.Noun())
	if y := g.calendar.YearStart; y != (calendar.YearStart{}) {
		flag("year-start", fmt.Sprintf("%02d-%02d", y.Month+1, y.Day+1), "")
	}
	flag("day-start", (time.Duration(g.calendar.DayStart) * time.Second).String(), "0s")
	flag("template", g.text, template.Usual(g.calendar))
	flag("prefix", g.prefix, defaultPrefix)
	return line + " " + c.typ + " SEQ, where SEQ is the last number used of " + calendar.FormatLabel(c.span.Label) + ", or 0"
}
