// Package gapless issues serial numbers without gaps, from a table in PostgreSQL, MySQL, MariaDB or SQLite, over
// [database/sql]. A number is taken inside the transaction that stores its document, so that it exists if and only if
// that transaction was committed:
//
//	scheme, err := serial.NewScheme(serial.WithLocation(time.UTC), serial.WithPeriod(serial.PerYear),
//		serial.WithTemplate("{type}-{date:yyyy}-{seq:6}"))
//	if err != nil {
//		return err
//	}
//	numbers, err := gapless.New(gapless.PostgreSQL, scheme)
//	if err != nil {
//		return err
//	}
//	if err := numbers.CreateTable(ctx, db); err != nil { // once, as the program starts
//		return err
//	}
//
//	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
//	if err != nil {
//		return err
//	}
//	defer func() { _ = tx.Rollback() }()
//	// Everything else that the transaction does comes first: from here until Commit, others who want an INV wait.
//	number, err := numbers.Next(ctx, tx, "INV") // INV-2026-000001
//	if err != nil {
//		return err
//	}
//	_, err = tx.ExecContext(ctx, "INSERT INTO invoices (number, total) VALUES ($1, $2)", number, total)
//	if err != nil {
//		return err
//	}
//	return tx.Commit()
//
// # What is guaranteed
//
//   - No gaps: the numbers of committed transactions of one type and period are 1, 2, 3, and so on. If a transaction is rolled
//     back, also to a savepoint, its number is free again, and the next transaction gets it. The same holds if its connection
//     breaks, or its process or the database crashes.
//   - No duplicates, however many processes ask at once.
//   - The order of numbers is the order of commits.
//   - The period is that of the database's clock at the instant when the number was taken, after any wait for others. The
//     clock of the program's host does not matter.
//
// This holds as long as nothing else writes to the table, and documents are not deleted: void them instead. It holds
// for one scheme per type at a time:
//
//   - A series, which is a key prefix and a type, keeps its period and year start, its [serial.Scheme.Calendar], as long as any of
//     its rows exists. A scheme with another calendar gets [serial.ErrConflict] in every period. To count in another way, begin
//     another series: another type, or another key prefix together with another literal in the template.
//   - A period keeps the order of fields, the alphabet, the check digit and the key. A scheme with others gets
//     [serial.ErrConflict] in that period.
//   - Another time zone, day start or literal is not noticed: change it together with the type.
//
// A type belongs to a [serial.Generator] on Redis or to this package, never to both: that is not noticed either. Keep a
// UNIQUE constraint on the documents' numbers. In MySQL and MariaDB, their column needs a binary collation: see
// [Generator.Schema].
//
// # What it costs
//
// Transactions that take numbers of the same type and period run one after another, from taking the number to the
// commit. So take the number last, keep the rest short, and wait for nobody in between. If a transaction takes numbers
// of several types, take them in the same order everywhere, such as by name. Otherwise two transactions may wait for
// each other, until the database ends one of them as a deadlock. Different types and periods do not wait for each
// other, with four exceptions: SQLite has one writer at a time; on MySQL, a new type or period may wait after another
// one's first transaction has rolled back; until the first transaction of a new type has ended, callers who want the
// first number of another period of that type wait for it; and while somebody closes periods of a type, callers who
// want the first number of a period or a number of one that has ended wait.
//
// How long a caller waits is bounded by its context and by the database's own limits: lock_timeout in PostgreSQL,
// innodb_lock_wait_timeout in MySQL. On SQLite only PRAGMA busy_timeout counts. With the driver lib/pq, set
// lock_timeout in any case: the server may miss the driver's request to cancel a statement, and then the end of the
// context does not end the wait.
//
// # Closing periods
//
// When a month has been reported, nothing may be booked into it any more. [Generator.ClosePeriods] closes all periods
// that end by an instant. From then on, their numbers are [ErrPeriodClosed], until [Generator.ReopenPeriods] opens them
// again:
//
//	month := time.Date(2026, time.November, 1, 0, 0, 0, 0, zone)
//	err := numbers.ClosePeriods(ctx, tx, "INV", month) // October and all before; in force once tx is committed
//
// It waits for the transactions that have taken a number there. For numbers of the current period it costs nothing.
//
// # When a transaction has ended
//
// Outside a transaction no number is taken, since it would be a gap if the document failed. Some databases end a
// transaction unasked: MySQL and MariaDB at a deadlock, and before a statement such as CREATE TABLE; SQLite when a
// write is interrupted, or fails with OR ROLLBACK. If the program goes on with the transaction, [Generator.Next] and
// [Generator.Raise] return an error, and take nothing. On SQLite this costs a statement that does nothing; on MySQL,
// two (SAVEPOINT and RELEASE SAVEPOINT), before the lock is taken; on MariaDB, none. PostgreSQL does not end
// transactions unasked: there, a COMMIT or ROLLBACK that the program sends as the text of a statement goes unnoticed,
// so always call Commit and Rollback.
//
// # What the database must be
//
// Use READ COMMITTED. At REPEATABLE READ and above, PostgreSQL gives the SQLSTATE 40001 if others have committed a
// number since the transaction's first statement; it then has to be repeated. MySQL and MariaDB work at REPEATABLE
// READ, their default, and at READ COMMITTED. If the first transaction of a period rolls back while others wait for it,
// they may get a deadlock, the error 1213, and have to be repeated. MariaDB with innodb_snapshot_isolation, its default
// since 11.6.2, needs READ COMMITTED, or gives the error 1020.
//
// On SQLite, begin transactions with BEGIN IMMEDIATE (_txlock=immediate in the data source name of some drivers) and
// set a busy timeout. Else a transaction that has read before it takes a number may fail at once, with "database is
// locked".
//
// Any driver will do, and any library that exposes its transactions: see [Tx].
package gapless

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dailyserial/serial"
)

const (
	defaultTable = "serial_gapless"
	most         = 100_000 // numbers at once
	// patience is the number of periods that Next tries. A second one is usual at midnight. More are needed only if a
	// period is shorter than the wait for others.
	patience = 20
)

// A Tx is a transaction of the caller, who commits it or rolls it back. Examples are:
//
//   - [*sql.Tx], whatever the driver; pgx is used through its package stdlib, and its own pgx.Tx is not a Tx
//   - sqlx's *sqlx.Tx
//   - GORM's tx.Statement.ConnPool.(gapless.Tx), with the tx that its method Transaction passes to a function
//   - bun's tx.Tx, which its bun.Tx embeds; bun.Tx itself is refused on PostgreSQL, because it drops the arguments of statements
//
// A [*sql.DB] or [*sql.Conn] is not a Tx, and does not compile: without a transaction nothing is guaranteed. This
// package never calls Commit and Rollback.
//
// A Tx is for one goroutine at a time. If a second one takes a number while a call is taking one in the same Tx, it
// gets an error, and nothing was taken for it. Calls are recognised by comparing Tx values: two wrappers of one
// transaction differ, and on MySQL both callers may then get the same number.
type Tx interface {
	Querier
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	Commit() error
	Rollback() error
}

// A Querier can run a query: a transaction, a [*sql.DB] or a [*sql.Conn].
type Querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// A Generator issues numbers without gaps: [Generator.Next] is what most callers want. It is safe for use by any number
// of goroutines, and any number of processes may use the same table at once. It has no connection of its own, so that
// one Generator may serve several databases.
type Generator struct {
	scheme     *serial.Scheme
	mark       string // calendar and print mark, for rows of periods
	dialect    Dialect
	sql        statements
	clock      atomic.Pointer[clock]
	span       atomic.Pointer[span] // of the last instant asked for
	savepoints atomic.Bool          // the server is MySQL, which cannot tell otherwise that it is outside a transaction
}

// A span is a time within one period in which the same date is printed.
type span struct {
	number   serial.Number // of that date; its type and sequence mean nothing
	label    string        // of the period
	from, to int64         // Unix seconds
	end      int64         // end of the period, in Unix seconds
	whole    bool          // it is the whole period
}

// contains reports whether t is in s.
func (s *span) contains(t time.Time) bool { return s.from <= t.Unix() && t.Unix() < s.to }

// A clock is a reading of the database's clock, and when it was taken; nil before the first. The time now follows from
// the time that has passed since, whatever happens to this host's wall clock, and is late by the time the answer took
// to arrive. So it is never ahead, and nobody begins a period early: whoever did would keep the next period's row
// locked while waiting for the row of this one, which can be a deadlock.
type clock struct{ said, read time.Time }

func (c *clock) now() time.Time { return c.said.Add(time.Since(c.read)) }

// An Option configures the Generator that [New] returns.
type Option interface{ apply(*config) }

type config struct{ table string }

type optionFunc func(*config)

func (f optionFunc) apply(c *config) { f(c) }

// WithTable names the table, exactly as it is written, case included. A name has 1 to 63 ASCII letters, digits and _,
// and does not begin with a digit. PostgreSQL's search_path or MySQL's current database says where it is. All processes
// that issue numbers of a type must use the same table.
//
// Default serial_gapless.
func WithTable(name string) Option {
	return optionFunc(func(c *config) { c.table = name })
}

// New returns a Generator of numbers of a scheme, whose [serial.WithKeyPrefix] keeps tenants who share a table apart.
// It refuses a scheme that is nil or empty, an unknown Dialect, a nil option and a table name that [WithTable] does not
// allow. It does not use a database.
func New(dialect Dialect, scheme *serial.Scheme, opts ...Option) (*Generator, error) {
	if scheme == nil {
		return nil, errors.New("gapless: the scheme is nil")
	}
	c := config{table: defaultTable}
	for i, o := range opts {
		if o == nil {
			return nil, fmt.Errorf("gapless: option %d of %d is nil", i+1, len(opts))
		}
		o.apply(&c)
	}
	s, err := dialect.forTable(c.table)
	if err != nil {
		return nil, err
	}
	calendar := scheme.Calendar()
	if calendar == "" {
		return nil, errors.New("gapless: the scheme is empty; want those of serial.NewScheme and Generator.Scheme")
	}
	return &Generator{scheme: scheme, mark: calendar + markJoint + scheme.PrintMark(), dialect: dialect, sql: s}, nil
}

// Scheme returns the scheme of g's numbers.
func (g *Generator) Scheme() *serial.Scheme { return g.scheme }

// Next takes the next number of a type, in the current period of the database's clock, for the document that tx stores.
// If others have taken numbers of that type and period and not yet ended their transactions, it waits for them. From
// then on, others wait for tx to end.
//
// Errors: [serial.ErrInvalidType]; [serial.ErrExhausted] if the period has no number left; [ErrPeriodClosed] if the
// period is closed, which the current one can only be if the database's clock went back; [serial.ErrConflict] if the
// type's numbers count by another period or year start, or if those of this period were taken by a scheme that prints
// sequences in another way; an error for a date that is not in 1970 to 9999 or that the template cannot print; an error
// for a tx that is nil, that [Tx] says is refused, or in which another call is taking a number. After these, nothing
// was taken and tx can go on. If the database has ended the transaction, that is an error, and nothing was taken: roll
// back and repeat. If 20 periods end, one after another, while it waits for others, that is an error too: roll back and
// repeat. Every other error wraps the driver's, and also matches the error of ctx if that has ended. Then tx must be
// rolled back: a number may have been taken, and would be a gap.
func (g *Generator) Next(ctx context.Context, tx Tx, typ string) (serial.Number, error) {
	return single(g.next(ctx, tx, typ, nil, 1))
}

// NextN takes n consecutive numbers, 1 to 100,000, like [Generator.Next]: all of them or none. Errors are those of
// Next, and [serial.ErrInvalidRequest] for any other n. After [serial.ErrExhausted], a smaller n may succeed.
func (g *Generator) NextN(ctx context.Context, tx Tx, typ string, n int) ([]serial.Number, error) {
	return g.next(ctx, tx, typ, nil, n)
}

// NextOn takes the next number of the period that date lies in, whatever the database's clock says: for documents that
// are dated back or ahead. The number prints date in the scheme's time zone. In that zone, date may be any from 1970 to
// 9999 that the template can print; with [serial.Never], it must be before 31 December 9999 in UTC. Errors are those of
// [Generator.Next], such as [ErrPeriodClosed] in a period that [Generator.ClosePeriods] has closed.
func (g *Generator) NextOn(ctx context.Context, tx Tx, typ string, date time.Time) (serial.Number, error) {
	return single(g.next(ctx, tx, typ, &date, 1))
}

// Last returns the last number taken of a type, in the period that at lies in: Seq is 0 if none was. It takes nothing
// and waits for nobody, except on MySQL in a transaction at SERIALIZABLE. In a transaction, Last sees the numbers taken
// there and otherwise the snapshot. In a pool, it sees what was committed: on MySQL it begins a transaction of its own,
// since autocommit=0 may have left an old snapshot. A [*sql.Conn] with autocommit=0 is in a transaction. If the
// template prints more of the date than the period, the printed date is not known: Date is then zero, and String
// returns "".
//
// Errors: [serial.ErrInvalidType]; [serial.ErrConflict] if the type's numbers count by another period or year start, or
// if those of the period were taken by a scheme that prints sequences in another way; an error for a date that is not
// in 1970 to 9999 or that the template cannot print; one for a q that is nil or bun's on PostgreSQL; the driver's own,
// as for a missing table.
func (g *Generator) Last(ctx context.Context, q Querier, typ string, at time.Time) (serial.Number, error) {
	series, err := g.scheme.Series(typ)
	if err != nil {
		return serial.Number{}, fmt.Errorf("gapless: %w", err)
	}
	s, err := g.spanAt(typ, at)
	if err != nil {
		return serial.Number{}, err
	}
	what := "the last number of " + typ
	q, leave, err := g.view(ctx, q, what)
	if err != nil {
		return serial.Number{}, err
	}
	defer leave()
	var seq sql.NullInt64
	var gate, mark []byte
	key, period := []byte(series), []byte(s.label)
	query, args := g.dialect.bind(g.sql.last, key, period, key, period, key, period)
	if err := q.QueryRowContext(ctx, query, args...).Scan(&gate, &mark, &seq); err != nil {
		return serial.Number{}, g.failed(ctx, what, err)
	}
	if calendar, _, _ := strings.Cut(string(gate), markJoint); gate != nil && calendar != g.scheme.Calendar() {
		return serial.Number{}, g.conflict(typ, s.label, calendar)
	}
	if seq.Int64 != 0 && string(mark) != g.mark {
		return serial.Number{}, g.conflict(typ, s.label, string(mark))
	}
	return s.lastNumber(typ, seq.Int64), nil
}

// lastNumber returns the number of a type that has the sequence seq in the period of s. If the template prints more of
// the date than the period, its Date is zero.
func (s *span) lastNumber(typ string, seq int64) serial.Number {
	number := s.number
	number.Type, number.Seq = strings.Clone(typ), seq
	if !s.whole {
		number = serial.Number{Type: number.Type, Start: number.Start, Seq: number.Seq}
	}
	return number
}

// view returns what is read instead of q, until leave is called.
func (g *Generator) view(ctx context.Context, q Querier, what string) (_ Querier, leave func(), err error) {
	if err := g.check(q, "Querier"); err != nil {
		return nil, nil, err
	}
	db, ok := q.(pool)
	if !ok || g.dialect != MySQL {
		return q, func() {}, nil
	}
	// If autocommit is off, a connection of the pool may be in a transaction whose snapshot is old.
	tx, err := db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return nil, nil, g.failed(ctx, what, err)
	}
	return tx, func() { _ = tx.Rollback() }, nil
}

// A pool is a [*sql.DB], or wraps one.
type pool interface {
	BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error)
	Stats() sql.DBStats
}

// Raise makes sure that the next number of a type is at least seq+1, in the period that at lies in, if tx is committed.
// It never lowers anything. Use it once, to continue a series from elsewhere: seq is the last number used there. Others
// who want a number of that type and period wait until tx ends.
//
// Errors: an error for a seq that is not 0 to the largest sequence, after which nothing was raised and tx can go on;
// otherwise those of [Generator.Next], except [serial.ErrExhausted]. In a closed period, every seq is
// [ErrPeriodClosed].
func (g *Generator) Raise(ctx context.Context, tx Tx, typ string, at time.Time, seq int64) error {
	series, err := g.scheme.Series(typ)
	if err != nil {
		return fmt.Errorf("gapless: %w", err)
	}
	s, err := g.spanAt(typ, at)
	if err != nil {
		return err
	}
	if _, last := g.scheme.Limits(); seq < 0 || seq > last {
		return fmt.Errorf("gapless: Raise of %s to %d: want 0 to %d", typ, seq, last)
	}
	leave, err := g.enter(tx)
	if err != nil {
		return err
	}
	defer leave()
	// To take no numbers after seq means to raise to seq.
	c, err := g.take(ctx, tx, typ, series, s, seq, 0)
	if err == nil && c.mark != g.mark {
		if err = g.undo(ctx, tx, series, s.label); err == nil {
			return g.conflict(typ, s.label, c.mark)
		}
	}
	if err != nil {
		return g.failed(ctx, "raise "+typ, err)
	}
	return nil
}

// errEnded reports a transaction that ended, but not by the caller.
var errEnded = errors.New("the database has ended the transaction, as for a deadlock, a statement that creates or " +
	"changes a table, or a write that failed or was interrupted; nothing was taken: roll back and begin again")

// busy holds each Tx in which a number is being taken.
var busy sync.Map

// enter keeps other calls out of tx until leave is called.
func (g *Generator) enter(tx Tx) (leave func(), err error) {
	if err := g.check(tx, "transaction"); err != nil {
		return nil, err
	}
	if !reflect.ValueOf(tx).Comparable() {
		return func() {}, nil
	}
	if _, taken := busy.LoadOrStore(tx, nil); taken {
		return nil, errors.New("gapless: another call is taking a number in this transaction, and this one has taken " +
			"nothing: a Tx is for one goroutine at a time")
	}
	return func() { busy.Delete(tx) }, nil
}

// single returns the only number of a batch of one.
func single(numbers []serial.Number, err error) (serial.Number, error) {
	if err != nil {
		return serial.Number{}, err
	}
	return numbers[0], nil
}

// next takes n numbers in the period of date or, if that is nil, of the database's clock.
func (g *Generator) next(ctx context.Context, tx Tx, typ string, date *time.Time, n int) ([]serial.Number, error) {
	series, err := g.scheme.Series(typ)
	if err != nil {
		return nil, fmt.Errorf("gapless: %w", err)
	}
	if n < 1 || n > most {
		return nil, fmt.Errorf("gapless: %w: %d numbers at once: want 1 to %d", serial.ErrInvalidRequest, n, most)
	}
	leave, err := g.enter(tx)
	if err != nil {
		return nil, err
	}
	defer leave()
	what := "next number of " + typ
	s, err := g.begin(ctx, tx, typ, date, what)
	if err != nil {
		return nil, err
	}
	first, last := g.scheme.Limits()
	for range patience {
		c, err := g.take(ctx, tx, typ, series, s, first-1, int64(n))
		if date == nil && errors.Is(err, ErrPeriodClosed) {
			// The period has ended meanwhile, unless the clock was set back into it.
			now, failure := g.query(ctx, tx, g.sql.ask, nil)
			if failure != nil {
				return nil, g.failed(ctx, what, failure)
			}
			current, failure := g.spanAt(typ, now)
			if failure != nil {
				return nil, failure
			}
			if current.label != s.label {
				s = current
				continue
			}
		}
		if err != nil {
			return nil, g.failed(ctx, what, err)
		}
		taken := s.label
		if date == nil && !s.contains(c.now) {
			// Only now is it known when the number was taken. If that was in the period that was tried, the number is
			// good, even if the printed date says more.
			s, err = g.spanAt(typ, c.now)
		}
		if err == nil && s.label == taken {
			switch {
			case c.mark != g.mark:
				err = g.conflict(typ, s.label, c.mark)
			case c.last > last:
				err = fmt.Errorf("gapless: %w: %d more after sequence %d of %s in period %s: want %d to %d",
					serial.ErrExhausted, n, cmp.Or(c.previous, first-1), typ, s.label, first, last)
			default:
				return batch(s.number, typ, c.last, n), nil
			}
		}
		if failure := g.undo(ctx, tx, series, taken); failure != nil {
			return nil, g.failed(ctx, what, failure)
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("gapless: %s: %d periods ended, one after another, while the transaction waited for others: "+
		"repeat it",
		what, patience)
}

// now returns the time by the last known clock: the database's or, if that was not read yet, this host's.
func (g *Generator) now() time.Time {
	if c := g.clock.Load(); c != nil {
		return c.now()
	}
	return time.Now()
}

// begin is spanAt for date or, if that is nil, for the time now by the database's clock.
func (g *Generator) begin(ctx context.Context, tx Tx, typ string, date *time.Time, what string) (*span, error) {
	if date != nil {
		return g.spanAt(typ, *date)
	}
	if c := g.clock.Load(); c != nil {
		if s, err := g.spanAt(typ, c.now()); err == nil {
			return s, nil
		} // the clock was wrong when last read
	}
	now, err := g.query(ctx, tx, g.sql.ask, nil)
	if err != nil {
		return nil, g.failed(ctx, what, err)
	}
	return g.spanAt(typ, now)
}

// Whatever the zone, these instants have dates in 1970 to 9999.
const (
	dated    = 4 * 24 * 3600
	datedEnd = 253_402_300_800 - 4*24*3600
)

// spanAt returns a span that contains at and in which a number of typ can be printed, or an error if there is none. The
// span is cut off at dated and datedEnd, unless at lies beyond.
func (g *Generator) spanAt(typ string, at time.Time) (*span, error) {
	if s := g.span.Load(); s != nil && s.contains(at) {
		return s, nil
	}
	s, err := g.newSpan(typ, at)
	if err == nil {
		g.span.Store(s)
	}
	return s, err
}

func (g *Generator) newSpan(typ string, at time.Time) (*span, error) {
	number, err := g.scheme.Number(typ, at, 1)
	if err != nil {
		return nil, fmt.Errorf("gapless: %w", err)
	}
	from, to, err := g.scheme.Span(at)
	if err != nil {
		return nil, fmt.Errorf("gapless: %w", err)
	}
	label, start, end := g.scheme.Period(at)
	return &span{number: number, label: label, from: max(from.Unix(), dated), to: min(to.Unix(), datedEnd),
		end: end.Unix(), whole: from.Equal(start) && to.Equal(end)}, nil
}

// batch returns n numbers of a type that end with sequence last, and are otherwise like number.
func batch(number serial.Number, typ string, last int64, n int) []serial.Number {
	number.Type = strings.Clone(typ)
	numbers := make([]serial.Number, n)
	for i := range numbers {
		number.Seq = last - int64(n-1-i)
		numbers[i] = number
	}
	return numbers
}

// conflict returns the error for a row or a gate with the mark of another scheme. It names the settings that differ.
func (g *Generator) conflict(typ, label, mark string) error {
	if calendar, _, _ := strings.Cut(mark, markJoint); calendar != g.scheme.Calendar() {
		return fmt.Errorf("gapless: %w: numbers of %s count by %s, and this scheme's by %s; a series keeps its period and "+
			"year start: to count in another way, use another type, or another key prefix together with another literal "+
			"in the template",
			serial.ErrConflict, typ, calendar, g.scheme.Calendar())
	}
	return fmt.Errorf("gapless: %w: numbers of %s in period %s were taken by a scheme that differs in the order of "+
		"fields, the alphabet, the check digit or the key, and could print the same; use that scheme until the period "+
		"ends, or another type",
		serial.ErrConflict, typ, label)
}

// check returns an error if q cannot be used: it is nil, as after a BeginTx that failed, or bun's on PostgreSQL. The
// error calls it by name.
func (g *Generator) check(q Querier, name string) error {
	v := reflect.ValueOf(q)
	if !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return fmt.Errorf("gapless: the %s is nil", name)
	}
	if g.dialect != PostgreSQL {
		return nil
	}
	typ := v.Type()
	if v.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	if typ.PkgPath() == "github.com/uptrace/bun" {
		return fmt.Errorf("gapless: a %T drops the arguments of PostgreSQL's statements: use what it embeds, such as tx.Tx",
			q)
	}
	return nil
}

// failed completes an error of take or of the database. If the caller's context has ended, the error says so: not all
// drivers do.
func (g *Generator) failed(ctx context.Context, what string, err error) error {
	if refused(err) {
		return err
	}
	if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) {
		return fmt.Errorf("gapless: %s: %w (and the context has ended: %w)", what, err, ended)
	}
	return fmt.Errorf("gapless: %s: %w", what, err)
}
