package gapless_test

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/gapless"
)

// steps runs scripts on a database. Each line of a script may begin with the name of a session and a colon. The rest of
// the line is SQL after the word "sql", or steps, each of which may begin with the name of a generator and a dot, and
// with a type and a slash (by default IS):
//
//	begin             begin a transaction; begin=serializable sets its isolation level
//	commit, rollback  end it
//	save, back        SAVEPOINT and ROLLBACK TO SAVEPOINT
//	on5=1             NextOn for 5 October 2021 takes sequence 1 or, without a value, any sequence
//	late5=1           the same, by a generator that believes that this day has not ended
//	next=1, take3=4   Next takes sequence 1, and NextN takes three, the last of which is 4
//	raise5=7          Raise to 7
//	last5=7           Last returns sequence 7
//	close5, reopen5   ClosePeriods up to 5 October, or ReopenPeriods from that day
//	until=20211005    ClosedUntil returns the beginning of that day, or until=0 the zero time
//	rows=2            both tables together have two rows
//	row202110=1,20211005,0  last sequence of IS in a period, its date and the previous date
//	cancel            end the context of a step that waits
//
// Without "begin", a step has a transaction of its own. A date may also be written as 20211005, an instant as
// 20211005T23, and the current time as nothing. A value may also be a number as printed. After "!", a step names the
// failure that it must have without changing the last sequence. If it ends with "&", it must wait for a lock; the step
// "=1" or "!conflict" of the same session then has its result.
type steps struct {
	t          testing.TB
	d          *database
	db         *sql.DB
	generators map[string]*gapless.Generator // the one that steps use by default is called ""
	sessions   map[string]*session
}

type session struct {
	tx     *sql.Tx // nil outside a transaction
	cancel context.CancelFunc
	result chan outcome // receives the result of a step that waits
}

// An outcome is the result of a call, with the last number that was taken or read.
type outcome struct {
	seq  int64
	text string
	err  error
}

// failures are errors, or parts of their messages, by their names in scripts.
var failures = map[string]any{
	"closed": gapless.ErrPeriodClosed, "open": gapless.ErrPeriodOpen, "order": gapless.ErrOutOfOrder,
	"conflict": serial.ErrConflict, "exhausted": serial.ErrExhausted, "type": serial.ErrInvalidType,
	"canceled": context.Canceled, "ended": "the database has ended the transaction", "level": "want READ COMMITTED",
	"ending": "gapless: period closed: IS in period 20211002: all periods that end by 2021-10-05 " +
		"(2021-10-05T00:00:00Z) are closed; use a later period",
	"dated":   " already has a number dated 2021-10-09; want that date or a later one",
	"latest":  "all periods that end by 2021-10-05 (",
	"instant": "want an instant, from At", "unprintable": "cannot be printed as yy", "above": "want 0 to 3",
}

var isolationLevels = map[string]sql.IsolationLevel{"": sql.LevelDefault, "uncommitted": sql.LevelReadUncommitted,
	"committed": sql.LevelReadCommitted, "repeatable": sql.LevelRepeatableRead, "serializable": sql.LevelSerializable}

var stepPattern = regexp.MustCompile(`^(?:(\w+)\.)?(?:([^=]+)/)?([a-z]*)([\dT]*)(?:=([^!&]+))?(?:!(\w+))?(&?)$`)

// schemes are options of schemes by the names of their generators.
type schemes map[string][]serial.Option

// steps returns steps with new connections to d, and with generators of the given schemes, by default one.
func (d *database) steps(t testing.TB, all schemes) *steps {
	t.Helper()
	s := &steps{t: t, d: d, db: d.open(t), generators: map[string]*gapless.Generator{}, sessions: map[string]*session{}}
	if all == nil {
		all = schemes{"": nil}
	}
	for name, opts := range all {
		s.generators[name] = d.generator(t, s.db, opts...)
	}
	return s
}

// run runs a script.
func (s *steps) run(script string) {
	s.t.Helper()
	for line := range strings.Lines(script) {
		line, _, _ = strings.Cut(line, "# ")
		name, rest, found := strings.Cut(strings.TrimSpace(line), ": ")
		if !found {
			name, rest = "", name
		}
		if s.sessions[name] == nil {
			s.sessions[name] = &session{}
		}
		x := s.sessions[name]
		if query, ok := strings.CutPrefix(rest, "sql "); ok && x.tx != nil {
			execSQL(s.t, x.tx, query)
		} else if ok {
			execSQL(s.t, s.db, query)
		} else {
			for _, step := range strings.Fields(rest) {
				s.step(x, step)
			}
		}
	}
}

func (s *steps) step(x *session, step string) {
	s.t.Helper()
	parts := stepPattern.FindStringSubmatch(step)
	require.NotNil(s.t, parts, step)
	c := newCall(s.generators[parts[1]], step)
	failure, waits := parts[6], parts[7] == "&"
	require.True(s.t, c.g != nil && (failure == "" || failures[failure] != nil), step)
	q := gapless.Querier(s.db)
	if x.tx != nil {
		q = x.tx
	}
	switch c.verb {
	case "begin":
		level := isolationLevels[c.value]
		if level == sql.LevelReadCommitted {
			level = s.d.readCommitted()
		}
		x.tx = beginAt(s.t, s.db, level)
		return
	case "commit":
		require.NoError(s.t, x.tx.Commit(), step)
		x.tx = nil
		return
	case "rollback":
		_ = x.tx.Rollback() // the context may have ended the transaction
		x.tx = nil
		return
	case "rows":
		require.Equal(s.t, c.value, fmt.Sprint(rows(s.t, q)), step)
		return
	case "row":
		require.Equal(s.t, c.value, s.d.row(s.t, q, c.date), step)
		return
	case "cancel":
		x.cancel()
		return
	case "":
		s.check(c, step, failure, <-x.result)
		return
	}
	tx := x.tx
	if tx == nil {
		tx = beginAt(s.t, s.db, s.d.readCommitted())
	}
	last := c
	if last.verb = "last"; c.verb == "take" {
		last.date = ""
	}
	switch {
	case waits:
		id, ctx := s.d.connection(s.t, tx), context.Context(nil)
		ctx, x.cancel = context.WithCancel(s.t.Context())
		x.result = make(chan outcome, 1)
		go func() { x.result <- c.do(ctx, tx) }()
		require.Eventually(s.t, func() bool { return s.d.waits(s.t, s.db, id) }, 30*time.Second, time.Millisecond, step)
	case failure != "":
		before := last.do(s.t.Context(), tx)
		s.check(c, step, failure, c.do(s.t.Context(), tx))
		require.Equal(s.t, before.seq, last.do(s.t.Context(), tx).seq, step)
	default:
		s.check(c, step, "", c.do(s.t.Context(), tx))
	}
	if x.tx == nil {
		require.NoError(s.t, tx.Commit(), step)
	}
}

// check checks the result of a call.
func (s *steps) check(c call, step, failure string, got outcome) {
	s.t.Helper()
	switch want := failures[failure].(type) {
	case error:
		require.ErrorIs(s.t, got.err, want, step)
		return
	case string:
		require.ErrorContains(s.t, got.err, want, step)
		return
	}
	require.NoError(s.t, got.err, step)
	if c.value != "" && c.verb != "raise" {
		require.Contains(s.t, []string{strconv.FormatInt(got.seq, 10), got.text}, c.value, step)
	}
}

// rows returns the number of rows in both tables.
func rows(t testing.TB, q gapless.Querier) (n int) {
	t.Helper()
	require.NoError(t, q.QueryRowContext(t.Context(), "SELECT (SELECT count(*) FROM serial_gapless) + "+
		"(SELECT count(*) FROM serial_gapless_series)").Scan(&n))
	return n
}

// A call is a step that calls a method of a generator.
type call struct {
	g                      *gapless.Generator
	typ, verb, date, value string
}

func newCall(g *gapless.Generator, step string) call {
	parts := stepPattern.FindStringSubmatch(step)
	return call{g, cmp.Or(parts[2], "IS"), parts[3], parts[4], parts[5]}
}

func (c call) do(ctx context.Context, tx gapless.Tx) (o outcome) {
	var n serial.Number
	at := parseWhen(c.date)
	switch c.verb {
	case "next":
		n, o.err = c.g.Next(ctx, tx, c.typ)
	case "take":
		var all []serial.Number
		count, _ := strconv.Atoi(c.date)
		if all, o.err = c.g.NextN(ctx, tx, c.typ, count); o.err == nil {
			n = all[len(all)-1]
			for i, number := range all {
				if number.Seq != n.Seq-int64(count-1-i) {
					o.err = fmt.Errorf("NextN returns %v", all)
				}
			}
		}
	case "late", "on":
		if c.verb == "late" {
			_, start, _ := c.g.Scheme().Period(at)
			c.g.Misjudge(time.Until(start))
		}
		n, o.err = c.g.NextOn(ctx, tx, c.typ, at)
	case "last":
		n, o.err = c.g.Last(ctx, tx, c.typ, at)
	case "raise":
		seq, _ := strconv.ParseInt(c.value, 10, 64)
		o.err = c.g.Raise(ctx, tx, c.typ, at, seq)
	case "close":
		o.err = c.g.ClosePeriods(ctx, tx, c.typ, at)
	case "reopen":
		o.err = c.g.ReopenPeriods(ctx, tx, c.typ, at)
	case "until":
		var until time.Time
		if until, o.err = c.g.ClosedUntil(ctx, tx, c.typ); !until.IsZero() {
			o.seq, _ = strconv.ParseInt(until.Format("20060102"), 10, 64)
		}
		return o
	case "save":
		o.err = onlyErr(tx.ExecContext(ctx, "SAVEPOINT mine"))
	case "back":
		o.err = onlyErr(tx.ExecContext(ctx, "ROLLBACK TO SAVEPOINT mine"))
	default:
		o.err = fmt.Errorf("there is no step %q", c.verb)
	}
	return outcome{n.Seq, n.String(), o.err}
}

// parseWhen returns the date or the instant that a step contains, by default the current time.
func parseWhen(text string) serial.When {
	if text == "" {
		return serial.At(time.Now())
	}
	if day, err := strconv.Atoi(text); err == nil && day < 100 { // 32 is 1 November
		return serial.OnDateOf(october(day))
	}
	if at, err := time.Parse("20060102T15", text); err == nil {
		return serial.At(at)
	}
	date, err := time.Parse("20060102", text)
	if err != nil {
		return serial.When{}
	}
	return serial.OnDateOf(date)
}
