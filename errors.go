package serial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/dailyserial/serial/internal/calendar"
	"github.com/dailyserial/serial/internal/operator"
	"github.com/dailyserial/serial/internal/series"
	"github.com/dailyserial/serial/internal/template"
)

// These are the errors that callers act on; match them with [errors.Is]. Every other failure wraps its cause.
//
// An error matches [context.Canceled] or [context.DeadlineExceeded] if and only if the caller's own context ended, or
// the error of a floor or ledger matches it. It may match one of the errors below at the same time.
var (
	// ErrInvalidType means that a type is not 1 to 64 bytes of letters, digits (of any script) and - _ . /, that it
	// contains an invisible character, or that Unicode's normalization form NFKC changes it. For example, NFKC changes
	// full-width letters and the KELVIN SIGN. Marks of a script may follow a letter, as in Hindi, Bengali and Thai, and
	// the letters U+0E33 of Thai and U+0EB3 of Lao are allowed although NFKC changes them. With a template whose check
	// digit covers letters, only ASCII types are allowed, and with the check digit s10 only types without ASCII digits.
	// Nothing was sent to Redis.
	ErrInvalidType = template.ErrInvalidType

	// ErrExhausted means that the period has fewer numbers left than the call asked for. The counter did not move,
	// although a ledger may have moved it to the start of a new block. A smaller batch may still succeed. To continue
	// the period, make {seq} wider, or the last sequence of [WithLast] larger. It also means that the day of [WithUntil]
	// has ended, or that somebody has set the counter above 10^15-1.
	ErrExhausted = errors.New("serial: numbers exhausted")

	// ErrCounterLost means that the period was open, but its counter is gone, went back or holds something other than a
	// number, and the last number is unknown: there is no floor, and there is no ledger or it was turned on after the
	// loss. It is also returned for a period that Redis's clock entered while it was ahead, if that period's counter is
	// gone. To end it, call [Generator.Raise] with the last number used. [Generator.Peek] and [Generator.Audit] repair
	// nothing, so they return it even with a floor or a ledger.
	ErrCounterLost = errors.New("serial: counter lost")

	// ErrClockSkew means that Redis's clock is more than 5 s behind the start of a period already entered, or that it
	// differs from this host's clock by more than [WithMaxSkew] when a period is opened or a prepared period is
	// entered.
	ErrClockSkew = errors.New("serial: clock skew")

	// ErrConflict means that the type is in use with other settings. The message names them:
	//
	//   - another [Period] or year start: the conflict lasts as long as the series. To begin a new series, use another
	//     type, or another key prefix together with another literal in the template.
	//   - other period bounds, for example from another time zone, or a ledger that this Generator does not have: the
	//     conflict ends with the period in force, or at once with [Generator.Takeover].
	//   - a template or key that could print two sequences as the same number: the conflict ends with the last period
	//     in which the other one was used.
	//
	// From [Generator.NextOnce] it may also mean that the stored answer has a sequence hidden by a key that this
	// Generator does not have.
	ErrConflict = errors.New("serial: conflicting period")

	// ErrInvalidRequest means that the request ID for [Generator.NextOnce] is not 1 to 128 bytes of printable UTF-8, or
	// that the count for [Generator.NextN] is not 1 to 100,000. Nothing was sent to Redis.
	ErrInvalidRequest = errors.New("serial: invalid request")

	// ErrInvalidNumber means that a text cannot have been issued as a number with this template, period and time zone;
	// see [Generator.Parse] and [Scheme.Parse].
	ErrInvalidNumber = template.ErrInvalidNumber

	// ErrCheckDigit means that a number is mistyped, because its check digit is wrong. It is reported before any other
	// fault of the sequence or the date, unless a character is not allowed in its place at all. The error also matches
	// [ErrInvalidNumber].
	ErrCheckDigit = template.ErrCheckDigit

	// ErrImpossibleDate means that only the date keeps a text from being a number: it does not exist in the calendar or
	// the time zone, its parts contradict each other, or no number has a date so early or late. The error also matches
	// [ErrInvalidNumber].
	ErrImpossibleDate = template.ErrImpossibleDate

	// ErrNotReplicated means that too few replicas confirmed a number in time; see [WithReplicas]. The number is not
	// returned and leaves a gap, except with [Generator.NextOnce]: if the request is repeated, it gets the number once
	// enough replicas confirm it.
	ErrNotReplicated = errors.New("serial: not replicated")
)

// publicError returns the error of a public method: err, with a refusal described, and with a note if the caller's
// context has ended. Calling it again changes nothing.
func (g *Generator) publicError(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if refusal, ok := errors.AsType[*series.Refusal](err); ok {
		err = g.describe(refusal)
	}
	if errors.Is(err, series.ErrTaken) && len(g.lockClients) > 1 {
		err = fmt.Errorf("%w, or two of WithLockClients' clients are one server", err)
	}
	if end := series.EndOf(ctx); end != nil && !errors.Is(err, end) {
		return fmt.Errorf("%w (and the caller's context has ended: %w)", err, end)
	}
	return err
}

// describe says why numbers were refused: what happened, with dates, and what ends it.
func (g *Generator) describe(r *series.Refusal) error {
	typ, label := g.subject(r.Type), calendar.FormatLabel(r.Span.Label)
	entered := r.EnteredPeriod() // scripts reply Future and Conflict only for records that this version wrote
	switch r.Status {
	case series.Unconfirmed:
		return fmt.Errorf("%w: %w", ErrNotReplicated, r.Unconfirmed)
	case series.Unsteady:
		return fmt.Errorf("%w: Redis's clock says %s, and does not stay in one period", ErrClockSkew, utc(r.Now))
	case series.Skewed:
		return fmt.Errorf("%w: %s of %s would be opened at %s by Redis's clock, and it is %s by this host's: "+
			"want at most %v apart; correct the clock that is wrong", ErrClockSkew, typ, label, utc(r.Now), utc(r.Received),
			g.issuing.MaxSkew)
	case series.Exhausted, series.Over:
		return g.describeExhausted(r)
	case series.Lost:
		content := describeContent(r.Detail, "string")
		if r.HighWater > 0 {
			content += fmt.Sprintf(", and %d is the last number that this process has seen", r.HighWater)
		}
		return fmt.Errorf("%w: numbers of %s were issued in %s, and %s %s; find the last one used, and run: %s",
			ErrCounterLost, typ, label, g.counters.Key(r.Type, r.Span.Label), content, g.operate(r, "raise"))
	case series.Future:
		return fmt.Errorf("%w: Redis's clock says %s, and %s is in %s already, entered by a clock that was "+
			"ahead; if Redis's clock is right now, run: %s", ErrClockSkew, utc(r.Now), typ, g.interval(entered),
			g.operate(r, "raise"))
	case series.Unknown:
		if master := replica.FindStringSubmatch(r.Detail); master != nil {
			return fmt.Errorf("serial: WithLedger needs a master, and this server is a replica of %s:%s; give the client the "+
				"master's address, or use Sentinel or a Cluster client", cmp.Or(master[1], "?"),
				cmp.Or(master[2], "?"))
		}
		return fmt.Errorf("serial: WithLedger needs INFO replication in scripts, to read the server's replication ID; "+
			"Redis says %q", r.Detail)
	case series.OtherPrint:
		used, cure := "of all time", "give this generator its old template and key, or another type or key prefix"
		if g.calendar.Unit != calendar.Never {
			last := calendar.FormatLabel(r.Detail)
			used = "up to " + last
			cure = "give it its old template and key until " + last + " has ended, and then the new one to all processes"
		}
		return fmt.Errorf("%w: numbers of %s %s were printed with another order of fields, alphabet, check digit or key, "+
			"so that this generator might print the same text again; %s", ErrConflict, typ, used, cure)
	case series.Calendar:
		return g.describeCalendar(r, entered)
	case series.Conflict:
		return g.describeConflict(r, entered)
	}
	return fmt.Errorf("serial: unexpected script reply %q", r.Status)
}

// describeContent says what a key holds that should be of a type, "string" or "hash".
func describeContent(content, typ string) string {
	switch content {
	case "":
		return "is gone"
	case series.OtherType:
		return "holds a value that is not a " + typ
	}
	return fmt.Sprintf("holds %.80q", content)
}

// describeExhausted describes that too few numbers are left, or that the last day has ended.
func (g *Generator) describeExhausted(r *series.Refusal) error {
	over, cure := r.Status == series.Over, "the template can print no wider sequence, so use another type"
	if wider, err := g.Scheme().WithTemplate(g.template.Widen()); err == nil {
		cure = "a wider template, such as " + wider.text + ", takes effect at once"
	}
	switch {
	case r.Earlier != nil && over: // that attempt may have consumed numbers, but ErrExhausted means that none were
		return fmt.Errorf("serial: Redis failed, and the last day has ended since: %w", series.Foreign(r.Earlier))
	case r.Earlier != nil:
		return fmt.Errorf("serial: Redis failed, and has too few numbers left since: %w", series.Foreign(r.Earlier))
	case over:
		return fmt.Errorf("%w: the last day for numbers of %s was %v, and Redis's clock says %s; a later WithUntil takes "+
			"effect at once", ErrExhausted, g.subject(r.Type), g.until, utc(r.Now))
	case len(r.Detail) > len(strconv.FormatInt(template.MaxSequence, 10)):
		return fmt.Errorf("%w: %s holds more than any sequence, so somebody has changed it; find the last one used, delete "+
			"the key, and run: %s", ErrExhausted, g.counters.Key(r.Type, r.Span.Label), g.operate(r, "raise"))
	case g.limit < g.template.Largest():
		cure = "a larger WithLast takes effect at once"
	}
	return fmt.Errorf("%w: %s of %s is at %s of %d; %s",
		ErrExhausted, g.subject(r.Type), calendar.FormatLabel(r.Span.Label), r.Detail, g.limit, cure)
}

// describeCalendar describes a conflict with the calendar of the series.
func (g *Generator) describeCalendar(r *series.Refusal, entered series.Recorded) error {
	if entered.Calendar == "" {
		return fmt.Errorf("%w: %s %s, which this version did not write; stop all processes that issue these numbers, "+
			"find the last one used, delete the key, and run: %s", ErrConflict, g.counters.RecordKey(r.Type),
			describeContent(r.Detail, "hash"), g.operate(r, "raise"))
	}
	// Of days, for example, the year start counts only if the template prints a part of the business year.
	same, ofYears := "the same ones", " of years "
	if strings.HasPrefix(g.counters.Counts, entered.Calendar+ofYears) {
		same = "a template without FFFF, FF, EEEE, EE, S and Q"
	} else if strings.HasPrefix(entered.Calendar, g.counters.Counts+ofYears) {
		same = "a template with FFFF, FF, EEEE, EE, S or Q, and the same year start"
	}
	return fmt.Errorf("%w: %s: it is counted by %s, but this generator counts by %s; a series keeps its period and year "+
		"start: give this generator %s, or begin a new series with another type, or with another key prefix and another "+
		"literal in the template",
		ErrConflict, g.counters.RecordKey(r.Type), entered.Calendar, g.counters.Counts, same)
}

// describeConflict describes a conflict with the settings of the period entered.
func (g *Generator) describeConflict(r *series.Refusal, entered series.Recorded) error {
	here := series.Recorded{Period: r.Span.Period}
	if entered.Ledger && g.ledger == nil {
		in := calendar.FormatLabel(here.Label)
		if entered.Label != here.Label || entered.Start != here.Start || entered.End != here.End {
			in = g.interval(entered)
		}
		return fmt.Errorf("%w: the numbers of %s in %s are %w, which this generator does not have; use the service's own "+
			"command, which has the ledger (see package serialcmd); to leave the ledger, stop the service and run: %s",
			ErrConflict, g.subject(r.Type), in, series.ErrReserved, g.operate(r, "takeover", "-leave-ledger"))
	}
	return fmt.Errorf("%w: %s is in %s, but this generator's settings put it in %s: another time zone or day start "+
		"is in use; if this generator is right, stop the other process and run: %s", ErrConflict, g.subject(r.Type),
		g.interval(entered), g.interval(here), g.operate(r, "takeover"))
}

// replica matches INFO of a replica, with the host and the port of its master.
var replica = regexp.MustCompile(`(?s)role:slave(?:.*master_host:(\S+)\s+master_port:(\d+))?`)

func utc(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// interval describes a period, in UTC and in the Generator's time zone.
func (g *Generator) interval(p series.Recorded) string {
	from, to, zone := time.Unix(p.Start, 0), time.Unix(p.End, 0), g.calendar.Location
	return fmt.Sprintf("%s from %s to %s (%s to %s in %s)", calendar.FormatLabel(p.Label), utc(from), utc(to),
		from.In(zone).Format(time.DateTime), to.In(zone).Format(time.DateTime), zone)
}

// Facts returns settings of s that package serialcmd needs. Their type is not part of the public API and may change in
// any release.
func (s *Scheme) Facts() operator.Facts { return s.facts() }

// Facts returns settings of g that package serialcmd needs. Their type is not part of the public API and may change in
// any release.
func (g *Generator) Facts() operator.Facts {
	f := g.facts()
	f.Client, f.Retention, f.Ledger = g.issuing.Client, g.issuing.Retention, g.ledger != nil
	return f
}

func (s *scheme) facts() operator.Facts {
	return operator.Facts{Calendar: s.calendar, Text: s.text, Template: s.template, Start: s.base + 1, Last: s.last,
		Until: s.until.String(), Prefix: s.prefix, Shared: s.shared, Hidden: s.key != nil}
}

// ForProgram returns a copy of g for a program that serves an operator. If an error of the copy says what to run, the
// command begins with name, the name of the program. If flags is nil, the program has g's settings, as programs made
// with package serialcmd have. Otherwise the command also has command serial's flags for g's settings, followed by
// flags. hooks are called before g's own; NearlyExhaustedAt must be 0 to 1, as for [WithHooks].
func (g *Generator) ForProgram(name string, flags []string, hooks Hooks) *Generator {
	c := g.config
	hooks.NearlyExhaustedAt = cmp.Or(hooks.NearlyExhaustedAt, 0.8)
	c.program, c.hooks = programName{name, flags}, append([]Hooks{hooks}, c.hooks...)
	return newGenerator(&c)
}

// A programName is the name of the command that errors name; "" in a process that is not one.
type programName struct {
	name  string
	flags []string // after those for the settings; nil if the command needs none
}

// operate returns the command that ends a refusal. The operator fills in SEQ. The only flag is -leave-ledger.
func (g *Generator) operate(r *series.Refusal, command string, flags ...string) string {
	where := "SEQ is the last number used of "
	if len(flags) > 0 {
		where = operator.LastReserved
	}
	where += calendar.FormatLabel(r.Span.Label) + ", or 0"
	line := append([]string{cmp.Or(g.program.name, "serial"), command}, flags...)
	switch own := g.ledger != nil || g.issuing.Floor != nil || g.key != nil; {
	case g.program.flags != nil || g.program.name == "" && !own:
		settings, zone := g.Facts().Flags(r.Span.Start, r.Span.End)
		line, where = append(append(line, settings...), g.program.flags...), zone+where
	case g.program.name == "":
		line[0] = "PROGRAM"
		where = "PROGRAM is the service's own command (see package serialcmd), and " + where
	}
	return strings.Join(append(line, operator.Operands(r.Type)...), " ") + ", where " + where
}
