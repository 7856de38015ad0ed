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

// These are the errors that callers can handle; match them with [errors.Is]. Every other error wraps its cause.
//
// An error matches [context.Canceled] or [context.DeadlineExceeded] only if the caller's context has ended, or if a
// floor or a ledger has returned such an error. It may match one of the errors below, too.
var (
	// ErrInvalidType means that a type is not valid. A type must consist of 1 to 64 bytes of letters and digits (of any
	// script) and - _ . / without invisible characters. Unicode's normalization form NFKC must not change it. For example,
	// NFKC changes full-width letters and the KELVIN SIGN. Combining marks may follow a letter, as in Hindi, Bengali and
	// Thai. The Thai letter U+0E33 and the Lao letter U+0EB3 are allowed, although NFKC changes them. If the check digit
	// of the template covers letters, a type must be ASCII, and with the check digit s10 it must have no ASCII digits.
	// Nothing was sent to Redis.
	ErrInvalidType = template.ErrInvalidType

	// ErrExhausted means that fewer numbers are left in the period than the call requested, or that the day of [WithUntil]
	// has ended. The call issued nothing, but with a ledger it may have raised the counter to the beginning of a new
	// block. A call for fewer numbers may still succeed. To continue the period, increase the width of {seq}, or the last
	// sequence of [WithLast]. The error is also returned if the counter was set above 10^15-1 by hand.
	ErrExhausted = errors.New("serial: numbers exhausted")

	// ErrCounterLost means that the period was open, but that its counter is missing, too low or not a number. The last
	// number is then unknown, because the Generator has no floor. It also has no ledger, or its ledger was introduced
	// after the loss. A period that was opened while Redis's clock was ahead counts as open. To end the error, call
	// [Generator.Raise] with the last sequence that was used. [Generator.Peek] and [Generator.Audit] do not repair the
	// counter, so they return this error even if there is a floor or a ledger.
	ErrCounterLost = errors.New("serial: counter lost")

	// ErrClockSkew has three meanings:
	//
	//   - The period that the series is in has not begun by Redis's clock, because the clock was ahead before or was set
	//     back. If that period begins within 5 s and before the call's deadline, the call waits instead of failing.
	//   - Redis's clock and this host's clock differed by more than [WithMaxSkew] when a period had to be opened or a
	//     prepared period had to be entered.
	//   - Redis's clock keeps jumping from one period to another.
	ErrClockSkew = errors.New("serial: clock skew")

	// ErrConflict means that the type is in use with other settings. The message names them:
	//
	//   - The series has a different [Period] or year start. The conflict lasts as long as the series. To begin a new
	//     series, use another type, or another key prefix together with another literal in the template.
	//   - The period has different bounds, for example because of another time zone, or the series has a ledger that this
	//     Generator does not have. The conflict ends with the current period of the series, or at once with [Generator.Takeover].
	//   - A template or key with which two sequences could be printed as the same number. The conflict ends with the last
	//     period in which the other template or key was used.
	//
	// [Generator.NextOnce] also returns ErrConflict if the number of the request is hidden with a key that this Generator
	// does not have or, with [WithSharedCounter], if the number was issued for another type.
	ErrConflict = errors.New("serial: conflicting period")

	// ErrInvalidRequest means that the request ID for [Generator.NextOnce] is not 1 to 128 bytes of printable UTF-8, or
	// that the count for [Generator.NextN] is not 1 to 100,000. Nothing was sent to Redis.
	ErrInvalidRequest = errors.New("serial: invalid request")

	// ErrInvalidNumber means that a string cannot be a number with this template, period and time zone; see
	// [Generator.Parse] and [Scheme.Parse].
	ErrInvalidNumber = template.ErrInvalidNumber

	// ErrCheckDigit means that the check digit of a number is wrong, so the number was probably mistyped. The error also
	// matches [ErrInvalidNumber]. It takes precedence over an impossible sequence or date, but not over a character that
	// is not allowed at an earlier position.
	ErrCheckDigit = template.ErrCheckDigit

	// ErrImpossibleDate means that a string has the form of a number, but that no number can have its date. The date does
	// not exist in the calendar or the time zone, its parts contradict each other, or it is too early or too late. The
	// error also matches [ErrInvalidNumber].
	ErrImpossibleDate = template.ErrImpossibleDate

	// ErrNotReplicated means that too few replicas confirmed a number in time; see [WithReplicas]. The number is not
	// returned and leaves a gap. With [Generator.NextOnce], repeating the request returns the number as soon as enough
	// replicas confirm it.
	ErrNotReplicated = errors.New("serial: not replicated")
)

// publicError converts an error for the caller of a public method. It describes a refusal in words, and adds the error
// of ctx if ctx has ended. An error that publicError has already returned stays unchanged.
func (g *Generator) publicError(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if refusal, ok := errors.AsType[*series.Refusal](err); ok {
		err = g.describe(refusal)
	}
	if errors.Is(err, series.ErrTaken) && len(g.lockClients) > 1 {
		err = fmt.Errorf("%w, or two clients of WithLockClients use the same server", err)
	}
	if end := series.ContextErr(ctx); end != nil && !errors.Is(err, end) {
		return fmt.Errorf("%w (and the caller's context has ended: %w)", err, end)
	}
	return err
}

// describe returns the error for a refusal. The message says what happened, with dates, and contains the remedy.
func (g *Generator) describe(r *series.Refusal) error {
	typ, label := g.subject(r.Type), calendar.FormatLabel(r.Span.Label)
	entered := r.EnteredPeriod() // never zero after Future and Conflict
	switch r.Status {
	case series.Unconfirmed:
		return fmt.Errorf("%w: %w", ErrNotReplicated, r.Unconfirmed)
	case series.Unsteady:
		return fmt.Errorf("%w: Redis's clock shows %s, but keeps jumping between periods", ErrClockSkew, utc(r.Now))
	case series.Skewed:
		return fmt.Errorf("%w: %s of %s was not opened, because it is %s by Redis's clock and %s by this host's; "+
			"want a difference of at most %v; if this host's clock is wrong, correct it; if Redis's clock is wrong, stop Redis "+
			"before you correct its clock", ErrClockSkew, typ, label, utc(r.Now), utc(r.Received), g.issuing.MaxSkew)
	case series.Exhausted, series.Over:
		return g.describeExhausted(r)
	case series.Lost:
		content := describeContent(r.Detail, "string")
		if r.HighWater > 0 {
			content += fmt.Sprintf(", and %d is the last number that this process has seen", r.HighWater)
		}
		if seq, err := strconv.ParseInt(r.Detail, 10, 64); err == nil && seq < r.HighWater {
			content += "; Redis has lost data, or the counter was changed by hand, so other processes may be issuing numbers " +
				"twice; stop all processes that issue numbers"
		}
		return fmt.Errorf("%w: %s of %s was opened before, but %s %s; find the last number used, and run: %s",
			ErrCounterLost, typ, label, g.counters.CounterKey(r.Type, r.Span.Label), content, g.operate(r, "raise"))
	case series.Future:
		return fmt.Errorf("%w: Redis's clock shows %s, but %s is already in %s, because a clock was ahead; "+
			"if Redis's clock is correct now, run: %s", ErrClockSkew, utc(r.Now), typ, g.interval(entered),
			g.operate(r, "raise"))
	case series.Unknown:
		if master := replica.FindStringSubmatch(r.Detail); master != nil {
			return fmt.Errorf("serial: WithLedger needs a master, and this server is a replica of %s:%s; give the client the "+
				"master's address, or use Sentinel or a Cluster client", cmp.Or(master[1], "?"), cmp.Or(master[2], "?"))
		}
		return fmt.Errorf("serial: WithLedger needs INFO replication in scripts, to read the server's replication ID; "+
			"Redis replied %q", r.Detail)
	case series.OtherPrint:
		used, cure := "of all time", "use the old template and key, or another type or key prefix"
		if g.calendar.Unit != calendar.Never {
			latest := calendar.FormatLabel(r.Detail)
			used = "in periods up to " + latest
			cure = "use the old template and key until " + latest + " has ended, then switch all processes to the new ones"
		}
		return fmt.Errorf("%w: numbers of %s %s were printed with a different field order, alphabet, check digit or key, "+
			"so this generator could print a number that already exists; %s", ErrConflict, typ, used, cure)
	case series.Calendar:
		return g.describeCalendar(r, entered)
	case series.Conflict:
		return g.describeConflict(r, entered)
	}
	return fmt.Errorf("serial: unexpected script reply %q", r.Status)
}

// describeContent returns a predicate for a message about a key that is missing or has unexpected content. typ is the
// expected type of the key, "string" or "hash".
func describeContent(content, typ string) string {
	switch content {
	case "":
		return "is gone"
	case series.OtherType:
		return "contains a value that is not a " + typ
	}
	return fmt.Sprintf("contains %.80q", content)
}

// describeExhausted returns the error for the case that too few numbers are left, or that the last day has ended.
func (g *Generator) describeExhausted(r *series.Refusal) error {
	over, cure := r.Status == series.Over, "the template can print no wider sequence, so use another type"
	if wider, err := g.Scheme().WithTemplate(g.template.Widen()); err == nil && wider.template.Largest() > g.limit {
		cure = "a wider template, such as " + wider.text + ", takes effect at once"
	}
	switch {
	case r.Earlier != nil && over: // not ErrExhausted, because an earlier attempt of the call may have issued numbers
		return fmt.Errorf("serial: Redis failed, and the last day has ended since: %w", series.Foreign(r.Earlier))
	case r.Earlier != nil:
		return fmt.Errorf("serial: Redis failed, and has too few numbers left since: %w", series.Foreign(r.Earlier))
	case over:
		return fmt.Errorf("%w: the last day for numbers of %s was %v, and Redis's clock shows %s; if the authorized range "+
			"was extended, a later WithUntil takes effect at once", ErrExhausted, g.subject(r.Type), g.until,
			r.Now.In(g.calendar.Location).Format(time.RFC3339))
	case len(r.Detail) > len(strconv.FormatInt(template.MaxSequence, 10)):
		return fmt.Errorf("%w: %s is larger than any sequence, so it was changed by hand; find the last number used, delete "+
			"the key, and run: %s", ErrExhausted, g.counters.CounterKey(r.Type, r.Span.Label), g.operate(r, "raise"))
	case g.limit < g.template.Largest():
		cure = "if the authorized range was extended, a larger WithLast takes effect at once"
	}
	return fmt.Errorf("%w: %s of %s is at %s of %d; %s",
		ErrExhausted, g.subject(r.Type), calendar.FormatLabel(r.Span.Label), r.Detail, g.limit, cure)
}

// describeCalendar returns the error for a series that uses another calendar.
func (g *Generator) describeCalendar(r *series.Refusal, entered series.Recorded) error {
	if entered.Calendar == "" {
		return fmt.Errorf("%w: %s %s, which this version did not write; stop all processes that issue these numbers, "+
			"find the last number used, delete the key, and run: %s", ErrConflict, g.counters.RecordKey(r.Type),
			describeContent(r.Detail, "hash"), g.operate(r, "raise"))
	}
	// With days, for example, the year start is part of the calendar only if the template prints a business year.
	same, ofYears := "the same period and year start", " of years "
	if strings.HasPrefix(g.counters.Counts, entered.Calendar+ofYears) {
		same = "a template without FFFF, FF, EEEE, EE, S and Q"
	} else if strings.HasPrefix(entered.Calendar, g.counters.Counts+ofYears) {
		same = "a template with FFFF, FF, EEEE, EE, S or Q, and the same year start"
	}
	return fmt.Errorf("%w: %s uses the calendar %q, but this generator uses %q; the calendar of a series cannot change; "+
		"give this generator %s, or begin a new series with another type, or with another key prefix and another literal "+
		"in the template", ErrConflict, g.counters.RecordKey(r.Type), entered.Calendar, g.counters.Counts, same)
}

// describeConflict returns the error for a series whose current period has other settings.
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

// replica matches the INFO reply of a replica, with the host and the port of its master.
var replica = regexp.MustCompile(`(?s)role:slave(?:.*master_host:(\S+)\s+master_port:(\d+))?`)

func utc(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// interval returns the label and the bounds of a period for a message. The bounds are in UTC and, in parentheses, in
// the time zone of the Generator.
func (g *Generator) interval(p series.Recorded) string {
	from, to, zone := time.Unix(p.Start, 0), time.Unix(p.End, 0), g.calendar.Location
	return fmt.Sprintf("%s from %s to %s (%s to %s in %s)", calendar.FormatLabel(p.Label), utc(from), utc(to),
		from.In(zone).Format(time.DateTime), to.In(zone).Format(time.DateTime), zone)
}

// Facts returns settings of s. It is only for package serialcmd, and applications do not need it. The type of the result
// is not part of the public API, and may change in any release.
func (s *Scheme) Facts() operator.Facts {
	return operator.Facts{Calendar: s.calendar, Text: s.text, Template: s.template, Start: s.base + 1, Last: s.last,
		Until: s.until.String(), Prefix: s.prefix, Shared: s.shared, Hidden: s.key != nil}
}

// Facts returns settings of g. It is only for package serialcmd, and applications do not need it. The type of the result
// is not part of the public API, and may change in any release.
func (g *Generator) Facts() operator.Facts {
	f := g.Scheme().Facts()
	f.Client, f.Retention, f.Ledger, f.Releases = g.issuing.Client, g.issuing.Retention, g.ledger != nil, g.locks.releases
	return f
}

// ForProgram returns a copy of g for a program that operators run. It is only for package serialcmd, and applications do
// not need it. Some errors of the copy contain a command that ends the error. This command begins with the name of the
// program. If the parameter flags is nil, the program must have the settings of g built in, like a program made with
// package serialcmd. Otherwise the command also contains the flags with which cmd/serial gets the settings of g,
// followed by the given flags. The given hooks are called before the hooks of g. Their NearlyExhaustedAt must be 0 to 1,
// as in [WithHooks].
func (g *Generator) ForProgram(name string, flags []string, hooks Hooks) *Generator {
	c := g.config
	hooks.NearlyExhaustedAt = cmp.Or(hooks.NearlyExhaustedAt, 0.8)
	c.program, c.hooks = programName{name, flags}, append([]Hooks{hooks}, c.hooks...)
	return newGenerator(&c)
}

// A programName is the program for the commands in errors. In a service, the name is "", because operators do not run
// it.
type programName struct {
	name  string
	flags []string // flags that follow those for the settings; nil if the program has the settings built in
}

// operate returns the command that ends an error, followed by an explanation of the words that the operator must
// replace, such as SEQ. The only possible flag is -leave-ledger.
func (g *Generator) operate(r *series.Refusal, command string, flags ...string) string {
	where := "SEQ is the last number used of "
	if len(flags) > 0 {
		where = operator.LastReserved
	}
	where += calendar.FormatLabel(r.Span.Label) + ", or 0"
	line := append([]string{cmp.Or(g.program.name, "serial"), command}, flags...)
	switch special := g.ledger != nil || g.issuing.Floor != nil || g.key != nil; {
	case g.program.flags != nil || g.program.name == "" && !special:
		settings, zone := g.Facts().Flags(r.Span.Start, r.Span.End)
		line, where = append(append(line, settings...), g.program.flags...), zone+where
	case g.program.name == "":
		line[0] = "PROGRAM"
		where = "PROGRAM is the service's own command (see package serialcmd), and " + where
	}
	return strings.Join(append(line, operator.Operands(r.Type)...), " ") + ", where " + where
}
