package serial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dailyserial/serial/internal/calendar"
	"github.com/dailyserial/serial/internal/exchange"
	"github.com/dailyserial/serial/internal/issue"
	"github.com/dailyserial/serial/internal/program"
	"github.com/dailyserial/serial/internal/redisrun"
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
	if refusal, ok := errors.AsType[*exchange.Refusal](err); ok {
		err = g.describe(refusal)
	}
	if errors.Is(err, issue.ErrTaken) && len(g.lockClients) > 1 {
		err = fmt.Errorf("%w, or two of WithLockClients' clients are one server", err)
	}
	if end := redisrun.EndOf(ctx); end != nil && !errors.Is(err, end) {
		return fmt.Errorf("%w (and the caller's context has ended: %w)", err, end)
	}
	return err
}

// describe says why numbers were refused: what happened, with dates, and what ends it.
func (g *Generator) describe(r *exchange.Refusal) error {
	typ, label := g.subject(r.Type), calendar.FormatLabel(r.Period.Label)
	entered := r.EnteredPeriod() // scripts reply Future and Conflict only for records that this version wrote
	switch r.Status {
	case exchange.Unconfirmed:
		return fmt.Errorf("%w: %w", ErrNotReplicated, r.Unconfirmed)
	case exchange.Unsteady:
		return fmt.Errorf("%w: Redis's clock says %s, and does not stay in one period", ErrClockSkew, utc(r.Now))
	case exchange.Skewed:
		return fmt.Errorf("%w: %s of %s would be opened at %s by Redis's clock, and it is %s by this host's: "+
			"want at most %v apart; correct the clock that is wrong", ErrClockSkew, typ, label, utc(r.Now), utc(r.Received),
			g.issuing.MaxSkew)
	case exchange.Exhausted, exchange.Over:
		return g.describeExhausted(r)
	case exchange.Lost:
		content := describeContent(r.Detail, "string")
		if r.HighWater > 0 {
			content += fmt.Sprintf(", and %d is the last number that this process has seen", r.HighWater)
		}
		return fmt.Errorf("%w: numbers of %s were issued in %s, and %s %s; find the last one used, and run: %s",
			ErrCounterLost, typ, label, g.issuer.CounterKey(r.Type, r.Period.Label), content, g.operate(r, "raise"))
	case exchange.Future:
		return fmt.Errorf("%w: Redis's clock says %s, and %s is in %s already, entered by a clock that was "+
			"ahead; if Redis's clock is right now, run: %s", ErrClockSkew, utc(r.Now), typ, g.interval(entered),
			g.operate(r, "raise"))
	case exchange.Unknown:
		if master, replica := strings.CutPrefix(r.Detail, "role:slave "); replica {
			return fmt.Errorf("serial: WithLedger needs a master, and this server is a replica of %s; give the client the "+
				"master's address, or use Sentinel or a Cluster client", master)
		}
		return fmt.Errorf("serial: WithLedger needs INFO replication in scripts, to read the server's replication ID; "+
			"Redis says %q", r.Detail)
	case exchange.OtherPrint:
		used, cure := "of all time", "give this generator its old template and key, or another type or key prefix"
		if g.calendar.Unit != calendar.Never {
			last := calendar.FormatLabel(r.Detail)
			used = "up to " + last
			cure = "give it its old template and key until " + last + " has ended, and then the new one to all processes"
		}
		return fmt.Errorf("%w: numbers of %s %s were printed with another order of fields, alphabet, check digit or key, "+
			"so that this generator might print the same text again; %s", ErrConflict, typ, used, cure)
	case exchange.Calendar:
		if entered.Calendar == "" {
			return fmt.Errorf("%w: %s %s, which this version did not write; stop all processes that issue these numbers, "+
				"find the last one used, delete the key, and run: %s", ErrConflict, g.issuer.RecordKey(r.Type),
				describeContent(r.Entered, "hash"), g.operate(r, "raise"))
		}
		// Of days, for example, the year start counts only if the template prints a part of the business year.
		same, ofYears := "the same ones", " of years "
		if strings.HasPrefix(g.issuer.Counts, entered.Calendar+ofYears) {
			same = "a template without FFFF, FF, EEEE, EE, S and Q"
		} else if strings.HasPrefix(entered.Calendar, g.issuer.Counts+ofYears) {
			same = "a template with FFFF, FF, EEEE, EE, S or Q, and the same year start"
		}
		return fmt.Errorf("%w: %s: it is counted by %s, but this generator counts by %s; a series keeps its period and year "+
			"start: give this generator %s, or begin a new series with another type, or with another key prefix and another "+
			"literal in the template",
			ErrConflict, g.issuer.RecordKey(r.Type), entered.Calendar, g.issuer.Counts, same)
	case exchange.Conflict:
		return g.describeConflict(r, entered)
	}
	return fmt.Errorf("serial: unexpected script reply %q", r.Status)
}

// describeContent says what a key holds that should be of a type, "string" or "hash".
func describeContent(content, typ string) string {
	switch content {
	case "":
		return "is gone"
	case exchange.OtherType:
		return "holds a value that is not a " + typ
	}
	return fmt.Sprintf("holds %.80q", content)
}

// describeExhausted describes that too few numbers are left, or that the last day has ended.
func (g *Generator) describeExhausted(r *exchange.Refusal) error {
	over, cure := r.Status == exchange.Over, "the template can print no wider sequence, so use another type"
	if wider, err := g.Scheme().WithTemplate(g.template.Widen()); err == nil {
		cure = "a wider template, such as " + wider.text + ", takes effect at once"
	}
	switch {
	case r.EarlierErr != nil && over: // that attempt may have consumed numbers, but ErrExhausted means that none were
		return fmt.Errorf("serial: Redis failed, and the last day has ended since: %w", redisrun.Foreign(r.EarlierErr))
	case r.EarlierErr != nil:
		return fmt.Errorf("serial: Redis failed, and has too few numbers left since: %w", redisrun.Foreign(r.EarlierErr))
	case over:
		return fmt.Errorf("%w: the last day for numbers of %s was %v, and Redis's clock says %s; a later WithUntil takes "+
			"effect at once", ErrExhausted, g.subject(r.Type), g.until, utc(r.Now))
	case len(r.Detail) > len(strconv.FormatInt(template.MaxSequence, 10)):
		return fmt.Errorf("%w: %s holds more than any sequence, so somebody has changed it; find the last one used, delete "+
			"the key, and run: %s", ErrExhausted, g.issuer.CounterKey(r.Type, r.Period.Label), g.operate(r, "raise"))
	case g.limit < g.template.Largest():
		cure = "a larger WithLast takes effect at once"
	}
	return fmt.Errorf("%w: %s of %s is at %s of %d; %s",
		ErrExhausted, g.subject(r.Type), calendar.FormatLabel(r.Period.Label), r.Detail, g.limit, cure)
}

// describeConflict describes a conflict with the settings of the period entered.
func (g *Generator) describeConflict(r *exchange.Refusal, entered exchange.Period) error {
	here := *r.Period
	if entered.Ledger && g.ledger == nil {
		in := calendar.FormatLabel(here.Label)
		if entered.Label != here.Label || entered.Start != here.Start || entered.End != here.End {
			in = g.interval(entered)
		}
		return fmt.Errorf("%w: the numbers of %s in %s are %w, which this generator does not have; use the service's own "+
			"command, which has the ledger (see package serialcmd); to leave the ledger, stop the service and run: %s",
			ErrConflict, g.subject(r.Type), in, issue.ErrSetAside, g.operate(r, "takeover", "-leave-ledger"))
	}
	return fmt.Errorf("%w: %s is in %s, but this generator's settings put it in %s: another time zone or day start "+
		"is in use; if this generator is right, stop the other process and run: %s", ErrConflict, g.subject(r.Type),
		g.interval(entered), g.interval(here), g.operate(r, "takeover"))
}

func utc(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// interval describes a period, in UTC and in the Generator's time zone.
func (g *Generator) interval(p exchange.Period) string {
	from, to, zone := time.Unix(p.Start, 0), time.Unix(p.End, 0), g.calendar.Location
	return fmt.Sprintf("%s from %s to %s (%s to %s in %s)", calendar.FormatLabel(p.Label), utc(from), utc(to),
		from.In(zone).Format(time.DateTime), to.In(zone).Format(time.DateTime), zone)
}

// Package serialcmd reaches settings of a Generator through package program.
func init() {
	program.Describe = func(of any) program.Facts {
		if s, ok := of.(*Scheme); ok {
			return s.facts()
		}
		g := of.(*Generator)
		f := g.facts()
		f.Client, f.Leave = g.issuing.Client, g.leave
		l, ok := g.ledger.(*watchedLedger)
		f.Ledger, f.LedgerFails = g.ledger != nil, func() bool { return ok && l.failing.Load() }
		return f
	}
	program.Derive = func(generator any, name string, flags []string, hooks any) any {
		c := generator.(*Generator).config
		c.program, c.hooks = programName{name, flags}, append([]Hooks{hooks.(Hooks)}, c.hooks...)
		if c.ledger != nil {
			c.ledger = &watchedLedger{Ledger: c.ledger}
		}
		return newGenerator(&c)
	}
}

func (s *scheme) facts() program.Facts {
	return program.Facts{Calendar: s.calendar, Template: s.text, PrintSeq: s.template.PrintSeq, Shared: s.shared,
		Hidden: s.key != nil}
}

// A watchedLedger reports whether a ledger fails.
type watchedLedger struct {
	Ledger
	failing atomic.Bool // the last request has not succeeded, or not yet
}

func (l *watchedLedger) Reserve(ctx context.Context, r Reservation) (after int64, err error) {
	l.failing.Store(true)
	if after, err = l.Ledger.Reserve(ctx, r); err == nil {
		l.failing.Store(false)
	}
	return after, err
}

// A programName is the name of the command that errors name; "" in a process that is not one.
type programName struct {
	name  string
	flags []string // after those for the settings; nil if the command needs none
}

// lastReserved is the SEQ of a command that leaves a ledger. With the last number used, numbers of burned blocks above
// it would be issued.
const lastReserved = "SEQ is the last sequence set aside (reserved) in the ledger for "

// operate returns the command that ends a refusal. The operator fills in SEQ. The only flag is -leave-ledger.
func (g *Generator) operate(r *exchange.Refusal, command string, flags ...string) string {
	where := "SEQ is the last number used of "
	if len(flags) > 0 {
		where = lastReserved
	}
	where += calendar.FormatLabel(r.Period.Label) + ", or 0"
	line := append([]string{cmp.Or(g.program.name, "serial"), command}, flags...)
	switch own := g.ledger != nil || g.issuing.Floor != nil || g.key != nil; {
	case g.program.flags != nil || g.program.name == "" && !own:
		settings, zone := g.flags(r.Period.Start, r.Period.End)
		line, where = append(append(line, settings...), g.program.flags...), zone+where
	case g.program.name == "":
		line[0] = "PROGRAM"
		where = "PROGRAM is the service's own command (see package serialcmd), and " + where
	}
	return strings.Join(append(line, operands(r.Type)...), " ") + ", where " + where
}

// leave returns the command that leaves the ledger, which only a program without it can run.
func (g *Generator) leave(typ string) string {
	settings, where := g.flags(time.Now().Unix())
	line := append([]string{"serial", "takeover", "-leave-ledger"}, settings...)
	if g.key != nil {
		line = append(line, "-hidden-key", "FILE")
		where += "FILE has the key that hides sequences, and "
	}
	return strings.Join(append(line, operands(typ)...), " ") + ", where " + where +
		lastReserved + "the current period, or 0"
}

// operands returns the arguments TYPE and SEQ.
func operands(typ string) []string {
	switch {
	case typ == "":
		return []string{"SEQ"}
	case typ[0] == '-':
		return []string{"--", typ, "SEQ"}
	}
	return []string{typ, "SEQ"}
}

// flags returns cmd/serial's flags for the settings that are not the default and that such a command needs, except a
// hidden key. If the name of the time zone does not mean that zone at these instants, the operator fills in ZONE, and
// where says so.
func (g *Generator) flags(instants ...int64) (line []string, where string) {
	s := &g.scheme
	flag := func(name, value, usual string) {
		separator := " "
		if strings.HasPrefix(value, "-") {
			separator = "="
		}
		if value != usual {
			line = append(line, fmt.Sprintf("-%s%s'%s'", name, separator, strings.ReplaceAll(value, "'", `'\''`)))
		}
	}
	if name := s.calendar.Location.String(); s.zoneHasName(name, instants) {
		flag("tz", name, "")
	} else {
		line, where = []string{"-tz ZONE"}, "ZONE is the IANA name of the service's time zone, and "
	}
	flag("period", s.calendar.Unit.Noun(), calendar.Day.Noun())
	y := s.calendar.YearStart
	flag("year-start", fmt.Sprintf("%02d-%02d", y.Month+1, y.Day+1), "01-01")
	flag("day-start", (time.Duration(s.calendar.DayStart) * time.Second).String(), "0s")
	flag("template", s.text, template.Usual(s.calendar))
	flag("start", strconv.FormatInt(s.base+1, 10), "1")
	flag("last", strconv.FormatInt(s.last, 10), "0")
	flag("prefix", s.prefix, defaultPrefix)
	flag("retention", strconv.Itoa(g.issuing.Retention), "0")
	if s.over > 0 {
		line = append(line, "-until "+s.until.String())
	}
	if s.shared {
		line = append(line, "-shared")
	}
	return line, where
}

// zoneHasName reports whether a command understands a name as this time zone at these instants, Unix seconds.
func (s *scheme) zoneHasName(name string, instants []int64) bool {
	named, err := time.LoadLocation(name)
	return err == nil && name != "" && !slices.ContainsFunc(instants, func(unix int64) bool {
		_, here := s.local(unix).Zone()
		_, there := time.Unix(unix, 0).In(named).Zone()
		return here != there
	})
}
