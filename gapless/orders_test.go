package gapless_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/gapless"
)

// A scenario consists of transactions that run at the same time. Each of them is written as its type and a colon (by
// default IS), followed by its steps (see steps). Raise to 0 changes nothing, but locks a row, and "look" is a query,
// with which a snapshot begins. The last step ends the transaction: "commit", or "any" for a COMMIT, or else a ROLLBACK
// or a lost connection after any step or while a step waits for a lock.
type scenario struct {
	before       string // transaction that is committed before the scenario begins
	transactions []string
	chronology   bool // whether October is one period, with WithChronology
	levels       bool // whether transactions that close nothing also run at higher isolation levels
	snapshot     bool // whether transactions that close periods run at REPEATABLE READ; only on MariaDB
	independent  bool // whether no step may ever wait
}

var scenarios = map[string]scenario{
	"one row":      {before: "on1", transactions: []string{"on1 on1 any", "on1 any"}, levels: true},
	"first number": {transactions: []string{"on1 any", "on1 any"}},
	"three first":  {before: "on9", transactions: []string{"on1 any", "on1 commit", "on1 commit"}},
	"savepoint":    {before: "on1", transactions: []string{"save on1 on2 back on1 commit", "on1 any"}},
	"two periods":  {before: "on1 on2", transactions: []string{"on1 on2 any", "on1 on2 commit"}},
	"snapshots":    {before: "on1", transactions: []string{"look on1 commit", "on1 any"}, levels: true},
	"types":        {before: "on1", transactions: []string{"on1 any", "IT: on1 on2 any"}, independent: true},
	"row":          {before: "on1 on9", transactions: []string{"on1 any", "close3 any"}, levels: true},
	"no row":       {before: "on1 on9", transactions: []string{"on2 any", "close3 any"}, levels: true},
	"look, no row": {before: "on1 on9", transactions: []string{"look on2 commit", "close3 commit"}, levels: true},
	"late row":     {before: "on1 on9", transactions: []string{"late1 any", "close3 any"}, levels: true},
	"late, no row": {before: "on1 on9", transactions: []string{"late2 any", "close3 any"}},
	"new series":   {transactions: []string{"on2 any", "close3 any"}},
	"raise":        {before: "on9", transactions: []string{"raise1 commit", "close3 any"}},
	"other day":    {before: "on1 on9", transactions: []string{"on9 any", "close3 any"}},
	"current": {before: "next on1", levels: true, independent: true,
		transactions: []string{"next next any", "close3 any"}},
	"older first":   {before: "on1", transactions: []string{"on1 on2 any", "close3 any"}},
	"two closings":  {before: "on1 on4", transactions: []string{"close3 any", "close5 any"}},
	"first closing": {transactions: []string{"close3 any", "close5 any"}},
	"reopening":     {before: "on1 close3", transactions: []string{"reopen1 any", "on1 any"}, levels: true},
	"reopen, close": {before: "on1 close3", transactions: []string{"reopen1 any", "close5 commit"}},
	"queue": {before: "on1 on2", levels: true,
		transactions: []string{"on9 commit", "close3 any", "on1 commit"}},
	"queue, row":   {before: "on1 on2", transactions: []string{"on1 commit", "close3 any", "on2 commit"}},
	"new in queue": {before: "on1", transactions: []string{"on1 commit", "close3 any", "on9 commit"}},
	"unused row":   {before: "on1 raise2", transactions: []string{"late1 commit", "close3 commit", "late2 commit"}},
	"neighbor before": {before: "on1 on2 next", independent: true,
		transactions: []string{"close3 any", "IR: on1 next any"}},
	"neighbor behind": {before: "on1 on2 next", independent: true,
		transactions: []string{"close3 any", "IT: on1 next any"}},
	"dates":         {before: "on5", chronology: true, transactions: []string{"on4 on7 any", "on6 any"}},
	"dates, closed": {before: "on5", chronology: true, transactions: []string{"on6 on5 any", "close32 any"}},
	"old snapshot":  {before: "on1", snapshot: true, transactions: []string{"look close3 commit", "on1 any"}},
	"old, no row":   {before: "on1", snapshot: true, transactions: []string{"look close3 commit", "on2 any"}},
	"old, late row": {before: "on1", snapshot: true, transactions: []string{"close3 commit", "late1 any"}},
	"old reopening": {before: "on1", snapshot: true, transactions: []string{"look reopen1 commit", "close3 commit"}},
}

// Concurrent transactions run with their steps in every order, and with every kind of end. The following must hold:
//
//   - A new number is one more than the last committed number, and no other open transaction has a number of the same
//     period.
//   - After a closing, no transaction takes a number of a closed period. The closing transaction sees all documents.
//   - A step waits only for a transaction that holds what the step needs, and no step overtakes a closing that waits.
//   - No transaction fails, except in the documented cases.
func TestOrders(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		if quick := d.with("deadlock_timeout=20ms&synchronous_commit=off"); d.dialect == gapless.PostgreSQL &&
			quick.open(t).PingContext(t.Context()) == nil { // only a superuser may set deadlock_timeout
			d = quick
		}
		tables := 0
		for name, s := range scenarios {
			levels := []sql.IsolationLevel{d.readCommitted()}
			switch {
			case s.snapshot:
				if levels = nil; d.dialect == gapless.MySQL {
					levels = []sql.IsolationLevel{sql.LevelRepeatableRead}
				}
			case d.dialect == gapless.MySQL: // its default is REPEATABLE READ
				levels = append(levels, sql.LevelRepeatableRead)
			case s.levels && d.dialect == gapless.PostgreSQL:
				levels = append(levels, sql.LevelRepeatableRead, sql.LevelSerializable)
			}
			for _, level := range levels {
				tables++
				table := fmt.Sprint("t", tables) // separate, because in MariaDB the neighboring rows in a table can matter
				t.Run(fmt.Sprintf("%s/%v", name, level), func(t *testing.T) {
					t.Parallel()
					d.tryOrders(t, s, table, level)
				})
			}
		}
	})
}

// tryOrders runs a scenario in several orders. With SERIAL_TEST_LONG=1, it runs all of them, and otherwise a random
// sample.
func (d *database) tryOrders(t *testing.T, s scenario, table string, level sql.IsolationLevel) {
	db := d.open(t)
	db.SetMaxIdleConns(8)
	opts := []serial.Option{serial.WithTemplate("{type}{date:yyyyMMdd}-{seq:4}"), serial.WithLocation(d.noon(t, db))}
	if s.chronology {
		opts = append(opts, serial.WithPeriod(serial.PerMonth))
	}
	generator := func(prefix string) *gapless.Generator {
		options := []gapless.Option{gapless.WithTable(table)}
		if s.chronology {
			options = append(options, gapless.WithChronology())
		}
		g, err := gapless.New(d.dialect, scheme(t, append(opts, serial.WithKeyPrefix(prefix))...), options...)
		require.NoError(t, err)
		return g
	}
	require.NoError(t, generator("x").CreateTable(t.Context(), db))
	execSQL(t, db, "CREATE TABLE documents_"+table+" (run integer, number varchar(100), PRIMARY KEY (run, number))")
	all := os.Getenv("SERIAL_TEST_LONG") == "1"
	sample := 12
	if testing.Short() {
		sample = 2
	}
	var path, options []int // the choice made at each point of the order, and the number of choices there
	for tried := 0; all || tried < sample; tried++ {
		o := &order{t: t, d: d, db: db, scenario: s, table: "documents_" + table, run: tried,
			last: map[string]int64{}, dated: map[string]int{}, closed: map[string]int{}}
		for _, script := range append([]string{s.before + " commit"}, s.transactions...) {
			x := newTransaction(script, level, generator(fmt.Sprint("o", tried)))
			if !s.snapshot && slices.ContainsFunc(x.steps, closesOrReopens) {
				x.level = d.readCommitted()
			}
			o.transactions = append(o.transactions, x)
		}
		defer o.end()
		depth, r := 0, rand.New(rand.NewPCG(uint64(tried), 0))
		o.try(func(choices, steps int) int {
			if !all && steps > 0 && r.IntN(4) > 0 { // let most transactions overlap with another one before they end
				choices = steps
			}
			if !all {
				return r.IntN(choices)
			}
			if depth == len(path) {
				path, options = append(path, 0), append(options, choices)
			}
			depth++
			return path[depth-1] % choices // choices may have changed, because another transaction may get a lock first
		})
		for len(path) > 0 && path[len(path)-1]+1 >= options[len(path)-1] {
			path, options = path[:len(path)-1], options[:len(options)-1]
		}
		if all && len(path) == 0 {
			return
		}
		if all {
			path[len(path)-1]++
		}
	}
}

// An order is one order in which the steps of a scenario run.
type order struct {
	t            *testing.T
	d            *database
	db           *sql.DB
	scenario     scenario
	table        string // table of the documents
	run          int    // ID of the order in the table of the documents
	transactions []*transaction
	trace        []string
	commits      int              // number of committed transactions
	undone       bool             // whether the first number of a row was rolled back
	last         map[string]int64 // committed last sequences by type and period
	dated        map[string]int   // committed dates of the last numbers by type
	closed       map[string]int   // committed ends of the last closed periods, as days, by type
}

// A transaction of a scenario takes its steps one after another.
type transaction struct {
	typ   string
	steps []string
	any   bool
	level sql.IsolationLevel
	g     *gapless.Generator

	conn      *sql.Conn // nil before the first step
	tx        *sql.Tx
	id        int64        // ID of its connection
	begun     int          // number of transactions that were committed before it began
	step      string       // step that was begun last
	running   chan error   // receives the result of the step; nil unless the step is running
	behind    *transaction // transaction whose closing was already waiting when the step began
	got       outcome      // result of the step
	seen      int64        // number of documents that the step has seen
	failed    bool
	ended     bool
	pending   changes
	saved     changes         // changes before the savepoint
	touched   map[string]bool // rows that the transaction may have locked
	seriesRow bool            // whether the transaction may have locked the series' row
}

// changes are the uncommitted changes of a transaction.
type changes struct {
	taken  map[string]int64 // how many numbers were taken, by type and period
	dated  int              // date of the last number
	closed int              // end of the last closed period as a day, or -1 if it was not changed
}

func (c changes) clone() changes {
	c.taken = maps.Clone(c.taken)
	return c
}

func newTransaction(script string, level sql.IsolationLevel, g *gapless.Generator) *transaction {
	typ, rest, found := strings.Cut(script, ": ")
	if !found {
		typ, rest = "IS", script
	}
	steps := strings.Fields(rest)
	end := len(steps) - 1
	return &transaction{typ: typ, steps: steps[:end], any: steps[end] == "any", level: level, g: g,
		pending: changes{taken: map[string]int64{}, closed: -1}, touched: map[string]bool{}}
}

// closesOrReopens reports whether a step closes or reopens periods.
func closesOrReopens(step string) bool {
	return strings.HasPrefix(step, "close") || strings.HasPrefix(step, "reopen")
}

const today = 99 // represents the current day, which has not ended

// takenDay returns the day of which a step takes a number: today for Next, and 0 if the step takes no number.
func takenDay(step string) int {
	if step == "next" {
		return today
	}
	if closesOrReopens(step) {
		return 0
	}
	return argument(step)
}

// argument returns the day in the name of a step, or 0 if there is none.
func argument(step string) int {
	day, _ := strconv.Atoi(strings.TrimLeft(step, "abcdefghijklmnopqrstuvwxyz"))
	return day
}

// key returns the key of the period that contains a day, for a type.
func (o *order) key(typ string, day int) string {
	if o.scenario.chronology && day < today {
		return typ + " October"
	}
	return fmt.Sprint(typ, " ", day)
}

// try runs the scenario. At each point, choose selects one of the possible actions: steps come first, then ends of
// transactions.
func (o *order) try(choose func(choices, steps int) int) {
	o.t.Helper()
	first := o.transactions[0]
	o.transactions = o.transactions[1:]
	for _, typ := range []string{"IS", "IT", "IR"} {
		if !slices.ContainsFunc(o.transactions, func(y *transaction) bool { return y.typ == typ }) {
			continue
		}
		x := *first
		x.typ, x.pending, x.touched = typ, first.pending.clone(), map[string]bool{}
		o.transactions = append(o.transactions, &x)
		for range x.steps {
			o.do(&x, "step")
		}
		if x.conn != nil {
			o.do(&x, "commit")
		}
		o.transactions = o.transactions[:len(o.transactions)-1]
	}
	o.commits = 0
	for {
		type choice struct {
			x    *transaction
			what string
		}
		var steps, ends []choice
		open := 0
		for _, x := range o.transactions {
			alone := o.d.dialect != gapless.SQLite || !slices.ContainsFunc(o.transactions, func(y *transaction) bool {
				return y != x && y.conn != nil && !y.ended // SQLite allows only one writer
			})
			if x.ended || !alone {
				continue
			}
			open++
			switch {
			case x.running != nil:
			case x.failed:
				ends = append(ends, choice{x, "rollback"})
				continue
			case len(x.steps) > 0:
				steps = append(steps, choice{x, "step"})
			default:
				ends = append(ends, choice{x, "commit"})
			}
			if x.any && x.conn != nil {
				if x.running == nil {
					ends = append(ends, choice{x, "rollback"})
				}
				if o.d.dialect != gapless.SQLite { // SQLite has no server that could end the connection
					ends = append(ends, choice{x, "lost"})
				}
			}
		}
		if open == 0 {
			break
		}
		choices := append(steps, ends...)
		o.require(len(choices) > 0, "a deadlock")
		c := choices[choose(len(choices), len(steps))]
		o.do(c.x, c.what)
	}
	for key, want := range o.last {
		typ, _, _ := strings.Cut(key, " ")
		at := serial.OnDateOf(october(9))
		if day := takenDay(strings.Replace(key, typ+" ", "on", 1)); day == today {
			at = serial.At(time.Now())
		} else if day > 0 {
			at = serial.OnDateOf(october(day))
		}
		n, err := first.g.Last(o.t.Context(), o.db, typ, at)
		o.require(err == nil && n.Seq == want, "the last number of %s is %d, %v; want %d", key, n.Seq, err, want)
	}
	for typ, want := range o.closed {
		until, err := first.g.ClosedUntil(o.t.Context(), o.db, typ)
		o.require(err == nil && (until.IsZero() && want <= 1 || until.Equal(o.boundary(want))), "%s is closed until %v, %v",
			typ, until, err)
	}
}

// boundary returns the beginning of the period that contains a day of October, in the scheme's zone.
func (o *order) boundary(day int) time.Time {
	_, start, _ := o.transactions[0].g.Scheme().Period(serial.OnDateOf(october(day)))
	return start
}

// require fails the test if ok is false, and prints the steps so far.
func (o *order) require(ok bool, format string, args ...any) {
	if !ok {
		o.t.Helper()
		o.t.Fatalf("%s\nafter %s", fmt.Sprintf(format, args...), strings.Join(o.trace, ", "))
	}
}

// do takes the next step of x or ends x. It returns when every running step is waiting for a lock.
func (o *order) do(x *transaction, what string) {
	ctx := o.t.Context()
	i := slices.Index(o.transactions, x)
	switch what {
	case "step":
		x.step, x.steps = x.steps[0], x.steps[1:]
		o.trace = append(o.trace, fmt.Sprintf("%d: %s", i, x.step))
		if x.conn == nil {
			o.begin(x)
		}
		for _, y := range o.transactions {
			if y != x && y.running != nil && closesOrReopens(y.step) && y.typ == x.typ && !x.seriesRow {
				x.behind = y
			}
		}
		if takenDay(x.step) == 0 && !closesOrReopens(x.step) { // the step does not wait, and it may release locks
			o.finish(x, o.take(ctx, x))
			break
		}
		x.running = make(chan error, 1)
		go func() { x.running <- o.take(ctx, x) }()
	default:
		o.trace = append(o.trace, fmt.Sprintf("%d: %s", i, what))
		var err error
		switch what {
		case "commit":
			if err = x.tx.Commit(); err == nil {
				o.commit(x)
			} else if o.mayFail(x, err) {
				err, what = nil, "rollback"
			}
		case "rollback":
			err = x.tx.Rollback()
		case "lost":
			err = o.lose(x)
		}
		o.require(err == nil || x.failed, "%v", err)
		if what != "commit" {
			for key := range x.touched {
				o.undone = o.undone || o.last[key] == 0
			}
		}
		x.ended = true
		_ = x.conn.Close()
	}
	o.settle()
}

// end rolls back the transactions that a failed test has left open.
func (o *order) end() {
	for _, x := range o.transactions {
		if x.tx != nil && !x.ended {
			_ = x.tx.Rollback()
		}
	}
}

func (o *order) begin(x *transaction) {
	var err error
	x.conn, err = o.db.Conn(o.t.Context())
	require.NoError(o.t, err)
	x.tx, err = x.conn.BeginTx(context.WithoutCancel(o.t.Context()), &sql.TxOptions{Isolation: x.level})
	require.NoError(o.t, err)
	x.id, x.begun = o.d.connection(o.t, x.tx), o.commits
}

// lose breaks the connection of x.
func (o *order) lose(x *transaction) error {
	o.d.kill(o.t, o.db, x.id)
	if x.running != nil {
		o.require(<-x.running != nil, "a step succeeds without a connection")
		x.running = nil
	}
	_ = x.tx.Rollback()
	return nil
}

func (o *order) commit(x *transaction) {
	o.commits++
	for key, n := range x.pending.taken {
		o.last[key] += n
	}
	if x.pending.dated > 0 {
		o.dated[x.typ] = x.pending.dated
	}
	if x.pending.closed >= 0 {
		o.closed[x.typ] = x.pending.closed
	}
}

// take runs the current step of x.
func (o *order) take(ctx context.Context, x *transaction) error {
	count := func(before string) error {
		return x.tx.QueryRowContext(ctx, fmt.Sprintf("SELECT count(*) FROM %s WHERE run = %d AND number LIKE '%s%%' AND %s",
			o.table, o.run, x.typ, before)).Scan(&x.seen)
	}
	if x.step == "look" {
		return count("1 = 1")
	}
	c := newCall(x.g, x.typ+"/"+x.step)
	x.got = c.do(ctx, x.tx)
	text := x.got.text
	switch {
	case x.got.err != nil:
		return x.got.err
	case c.verb == "close":
		return count(fmt.Sprintf("number < '%s%s'", x.typ, october(argument(x.step)).Format("20060102")))
	case text == "": // the step takes no number
		return nil
	}
	before := fmt.Sprintf("number LIKE '%s%%'", text[:len(x.typ)+8])
	if o.scenario.chronology {
		before = fmt.Sprintf("number < '%s'", text[:len(x.typ)+6]+"99")
	}
	if err := count(before); err != nil {
		return err
	}
	return onlyErr(x.tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO %s VALUES (%d, '%s')", o.table, o.run, text)))
}

// settle waits until each running step has finished, or is waiting for a lock for which it may wait.
func (o *order) settle() {
	o.t.Helper()
	for end := time.Now().Add(30 * time.Second); ; {
		quiet, possible := true, !slices.ContainsFunc(o.transactions, func(x *transaction) bool { return x.running != nil })
		for _, x := range o.transactions {
			possible = possible || !x.ended && (x.any || x.running == nil)
			if x.running == nil {
				continue
			}
			select {
			case err := <-x.running:
				x.running = nil
				o.finish(x, err)
				quiet = false // other steps may be able to continue now
			default:
				quiet = quiet && o.mayWait(x) && o.d.waits(o.t, o.db, x.id)
			}
		}
		if quiet && possible {
			return
		}
		o.require(time.Now().Before(end), "a step neither ends nor may wait")
		time.Sleep(time.Millisecond)
	}
}

// mayWait reports whether another transaction holds what the step of x needs.
func (o *order) mayWait(x *transaction) bool {
	day := takenDay(x.step)
	key := o.key(x.typ, day)
	return !o.scenario.independent && slices.ContainsFunc(o.transactions, func(y *transaction) bool {
		if y == x || y.conn == nil || y.ended || y.typ != x.typ {
			return false
		}
		closing := closesOrReopens(y.step) || y.pending.closed >= 0
		if closesOrReopens(x.step) {
			return closing || y.seriesRow || len(y.touched) > 0
		}
		return y.touched[key] || closing || y.seriesRow && o.committedCount(x.typ) == 0
	})
}

// committedCount returns how many numbers of a type have been committed.
func (o *order) committedCount(typ string) (n int64) {
	for key, last := range o.last {
		if strings.HasPrefix(key, typ+" ") {
			n += last
		}
	}
	return n
}

// finish checks the result of a step of x, and stores what the step has changed.
func (o *order) finish(x *transaction, err error) {
	o.t.Helper()
	o.require(x.behind == nil || x.behind.running == nil || takenDay(x.step) == today || strings.HasPrefix(x.step, "late"),
		"%s passes a closing that waits", x.step)
	x.behind = nil
	day := takenDay(x.step)
	key := o.key(x.typ, day)
	closed := o.closed[x.typ]
	if x.pending.closed >= 0 {
		closed = x.pending.closed
	}
	others := func(has func(y *transaction) bool) bool {
		return slices.ContainsFunc(o.transactions, func(y *transaction) bool {
			return y != x && !y.ended && !y.failed && y.typ == x.typ && has(y)
		})
	}
	switch {
	case err != nil && o.mayFail(x, err):
		x.failed, x.pending = true, changes{closed: -1}
		return
	case x.step == "look" || x.step == "save" || x.step == "back":
		o.require(err == nil, "%v", err)
		if x.step == "save" {
			x.saved = x.pending.clone()
		} else if x.step == "back" {
			x.pending = x.saved.clone()
		}
		return
	case closesOrReopens(x.step):
		o.finishClosing(x, err, closed, others)
		return
	}
	x.touched[key], x.seriesRow = true, true
	o.require(!others(func(y *transaction) bool { return y.pending.taken[key] > 0 }),
		"another transaction has %s, too: %v", key, err)
	o.require(day == today || !others(func(y *transaction) bool {
		return y.pending.closed >= 0 && max(y.pending.closed, o.closed[x.typ]) > day
	}), "another transaction is closing or reopening %s", key)
	last := o.last[key] + x.pending.taken[key]
	dated := max(o.dated[x.typ], x.pending.dated)
	if o.scenario.chronology {
		closed = min(closed, 32) / 32 * today // either the whole month is closed or nothing
	}
	switch {
	case day < closed && day < today:
		o.require(errors.Is(err, gapless.ErrPeriodClosed), "%s in a closed period: %v", x.step, err)
	case o.scenario.chronology && day < dated:
		o.require(errors.Is(err, gapless.ErrOutOfOrder), "%s after %d: %v", x.step, dated, err)
	case strings.HasPrefix(x.step, "raise"):
		o.require(err == nil, "%v", err)
	default:
		o.require(err == nil, "%v", err)
		o.require(x.got.seq == last+1, "%s takes %s; want %d", x.step, x.got.text, last+1)
		o.require(x.level > sql.LevelReadCommitted || x.seen == last, "%s sees %d documents", x.got.text, x.seen)
		x.pending.taken[key]++
		if o.scenario.chronology {
			x.pending.dated = day
		}
	}
}

// finishClosing does what finish does, for ClosePeriods and ReopenPeriods.
func (o *order) finishClosing(x *transaction, err error, closed int, others func(func(*transaction) bool) bool) {
	o.t.Helper()
	end := argument(x.step)
	want, wantSeen := max(closed, end), int64(0)
	if strings.HasPrefix(x.step, "reopen") {
		want = min(closed, end)
	}
	if err != nil && x.level == sql.LevelRepeatableRead && strings.Contains(err.Error(), "READ COMMITTED") {
		o.require(o.commits > x.begun, "a snapshot that lacks nothing: %v", err)
		return // nothing was changed, and the transaction continues
	}
	o.require(err == nil, "%v", err)
	x.seriesRow = true
	o.require(!others(func(y *transaction) bool { return y.pending.closed >= 0 }), "another transaction is closing, too")
	for day := 1; day < end; day++ {
		key := o.key(x.typ, day)
		taken := func(y *transaction) bool { return y.pending.taken[key] > 0 }
		o.require(!others(taken), "another transaction still has %s", key)
		if !o.scenario.chronology || day == 1 {
			wantSeen += o.last[key] + x.pending.taken[key]
		}
	}
	if want != closed {
		x.pending.closed = want
	}
	if strings.HasPrefix(x.step, "close") {
		o.require(x.seen == wantSeen, "the closing transaction sees %d documents of %d", x.seen, wantSeen)
	}
}

// mayFail reports whether the documentation allows a step to fail with err.
func (o *order) mayFail(x *transaction, err error) bool {
	switch {
	case !repeatable(err):
		return false
	case o.d.dialect == gapless.PostgreSQL: // the snapshot may be too old
		return x.level > sql.LevelReadCommitted && (o.commits > x.begun || x.level == sql.LevelSerializable)
	}
	return o.undone // transactions that wait for the first number of a row can get a deadlock
}
