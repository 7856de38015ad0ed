// Package gapless issues serial numbers without gaps. It keeps its counters in a table in PostgreSQL, MySQL, MariaDB or
// SQLite, and accesses it through [database/sql]. A number is taken in the transaction that stores its document, so the
// number exists if and only if that transaction is committed:
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
//	if err := numbers.CreateTable(ctx, db); err != nil { // once, when the program starts
//		return err
//	}
//
//	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
//	if err != nil {
//		return err
//	}
//	defer func() { _ = tx.Rollback() }()
//	// Do everything else first: from Next to Commit, other callers that want an INV number have to wait.
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
//   - There are no gaps: the numbers of committed transactions of one type and period are 1, 2, 3, and so on. If a
//     transaction is rolled back, completely or to a savepoint, its number becomes free, and the next transaction gets
//     it. The same happens if its connection breaks, or if its process or the database crashes.
//   - There are no duplicates, however many processes take numbers at the same time.
//   - The order of the numbers is the order of the commits. With [WithChronology], it is also the order of the
//     documents' dates.
//   - The period is decided by the database's clock at the instant when the number is taken, after any wait for other
//     transactions. The clock of the program's host does not matter.
//
// This holds as long as no other program writes to the tables and no documents are deleted: void a document instead. It
// also requires that each type has one scheme at a time:
//
//   - A series is a key prefix and a type. As long as any of its rows exists, its period and year start (its
//     [serial.Scheme.Calendar]) cannot change: a scheme with a different calendar gets [serial.ErrConflict] in every
//     period. If you want to number by a different calendar, begin another series, which has another type, or another
//     key prefix together with another literal in the template.
//   - Within a period, the field order, the alphabet, the check digit and the key cannot change: a scheme that differs
//     in one of them gets [serial.ErrConflict] in that period.
//   - A change of the time zone, the day start or a literal is not detected. Change the type at the same time.
//
// A type must belong either to a [serial.Generator] on Redis or to this package, never to both. Nothing detects a
// violation of this rule. Keep a UNIQUE constraint on the documents' numbers. On MySQL and MariaDB, their column needs
// a binary collation: see [Generator.Schema].
//
// # What it costs
//
// Transactions that take numbers of the same type and period run one after another, from taking the number to the
// commit. So take the number last, keep the rest of the transaction short, and do not wait for anything else in it. If
// transactions take numbers of several types, take them in the same order everywhere, for example by name. Otherwise
// two transactions may wait for each other until the database ends one of them because of the deadlock.
//
// Transactions with different types or periods do not wait for each other, with four exceptions:
//
//   - SQLite allows one writer at a time.
//   - On MySQL, after the first transaction of a type or period has been rolled back, transactions of other new types
//     or periods may have to wait.
//   - Until the first transaction of a new type has ended, callers that want the first number of another period of that
//     type wait for it.
//   - While a transaction closes or reopens periods of a type, callers that want the first number of a period of that
//     type, or a number of a period that has ended, wait for it.
//
// The wait is limited by the caller's context and by the database's own settings: lock_timeout in PostgreSQL and
// innodb_lock_wait_timeout in MySQL. On SQLite only PRAGMA busy_timeout limits it. With the driver lib/pq, always set
// lock_timeout: the server may miss the driver's request to cancel a statement, and then the wait continues after the
// context has ended.
//
// # Closing periods
//
// After a month has been reported, no more documents may be booked into it. [Generator.ClosePeriods] closes all periods
// that end by a date or an instant. Afterwards, calls that request a number of these periods fail with
// [ErrPeriodClosed] until [Generator.ReopenPeriods] opens them again:
//
//	month := serial.On(2026, time.November, 1)
//	err := numbers.ClosePeriods(ctx, tx, "INV", month) // October and all earlier months, after tx.Commit
//
// ClosePeriods waits for the transactions that have taken a number of these periods. It does not make numbers of the
// current period more expensive.
//
// # When a transaction has ended
//
// No number is taken outside a transaction, because it would become a gap if the document could not be stored. But some
// databases end a transaction although the program has not requested it: MySQL and MariaDB after a deadlock and before
// a statement such as CREATE TABLE, and SQLite when a write is interrupted or fails with OR ROLLBACK. If the program
// continues to use such a transaction, [Generator.Next] and [Generator.Raise] return an error and take nothing. The
// check costs one statement without effect on SQLite, and two on MySQL (SAVEPOINT and RELEASE SAVEPOINT), before the
// lock is taken. MariaDB needs these two only for the first number of a Generator. PostgreSQL does not end transactions
// by itself. But if the program sends COMMIT or ROLLBACK as the text of a statement, that is not detected on
// PostgreSQL, so always call Commit and Rollback.
//
// # What the database must be
//
// Use READ COMMITTED. At REPEATABLE READ and above, PostgreSQL fails with SQLSTATE 40001 if another transaction has
// committed a number since the first statement of this one. You then have to repeat the transaction. MySQL and MariaDB
// work both at REPEATABLE READ, their default, and at READ COMMITTED. If the first transaction of a period is rolled
// back while other transactions wait for it, these may fail with a deadlock (error 1213) and have to be repeated.
// MariaDB with innodb_snapshot_isolation, which is on by default since 11.6.2, needs READ COMMITTED. Otherwise it fails
// with error 1020.
//
// On SQLite, begin transactions with BEGIN IMMEDIATE (some drivers accept _txlock=immediate in the data source name),
// and set a busy timeout. Otherwise a transaction that has read something before it takes a number may fail at once
// with "database is locked".
//
// You can use any driver, and any library that exposes its transactions: see [Tx].
package gapless

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/dailyserial/serial"
)

const (
	defaultTable = "serial_gapless"
	most         = 100_000 // maximum of NextN
	// patience is the number of periods in which Next tries to take a number. At midnight it often needs a second one.
	// It needs more only if a period is shorter than the wait for other transactions.
	patience = 20
)

// A Generator issues numbers without gaps. Most callers need only [Generator.Next]. A Generator is safe for use by any
// number of goroutines, and any number of processes may use the same table at the same time. It has no connection, so
// one Generator can serve several databases.
type Generator struct {
	scheme     *serial.Scheme
	calendar   string // the scheme's calendar
	mark       string // the scheme's calendar and print mark, as stored in the rows of periods
	dialect    Dialect
	chronology bool // whether the generator was created with WithChronology
	sql        statements
	plain      *statements // the statements without the columns for dates
	clock      atomic.Pointer[clock]
	span       atomic.Pointer[span] // cached span of the last call for the current period
	server     atomic.Int32         // kind of the MySQL or MariaDB server that replied last; at first mySQLServer
}

// An Option configures the Generator that [New] returns.
type Option interface{ apply(*config) }

type config struct {
	table      string
	chronology bool
}

type optionFunc func(*config)

func (f optionFunc) apply(c *config) { f(c) }

// WithTable sets the name of the first table, exactly as written, including case. The name of the second table is the
// same name with _series appended. A name has 1 to 56 ASCII letters, digits and _, and does not begin with a digit.
// PostgreSQL's search_path or MySQL's current database decides where the tables are. All processes that issue numbers
// of a type must use the same tables.
//
// The default is serial_gapless.
func WithTable(name string) Option {
	return optionFunc(func(c *config) { c.table = name })
}

// New returns a Generator that issues numbers of the given scheme. If tenants share a table, give each of them its own
// [serial.WithKeyPrefix]. New returns an error if the scheme is nil or empty, if the Dialect is unknown, if an option
// is nil, or if [WithTable] does not allow the name. It does not use a database.
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
	s, err := dialect.forTable(c.table, c.chronology)
	if err != nil {
		return nil, err
	}
	calendar := scheme.Calendar()
	if calendar == "" {
		return nil, errors.New("gapless: the scheme is empty; want one from serial.NewScheme or Generator.Scheme")
	}
	g := &Generator{scheme: scheme, calendar: calendar, mark: calendar + markJoint + scheme.PrintMark(),
		dialect: dialect, chronology: c.chronology, sql: s}
	if g.plain = &g.sql; c.chronology {
		s, err = dialect.forTable(c.table, false)
		g.plain = &s
	}
	return g, err
}

// Scheme returns the scheme of g's numbers.
func (g *Generator) Scheme() *serial.Scheme { return g.scheme }
