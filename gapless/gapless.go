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
//   - No gaps: the numbers of committed transactions of one type and period are 1, 2, 3, and so on. If a transaction is
//     rolled back, also to a savepoint, its number is free again, and the next transaction gets it. The same holds if
//     its connection breaks, or its process or the database crashes.
//   - No duplicates, however many processes ask at once.
//   - The order of numbers is the order of commits. With [WithChronology], it is also the order of the documents' dates.
//   - The database's clock decides the period, at the instant when the number is taken, after any wait for others.
//     The clock of the program's host does not matter.
//
// This holds as long as nothing else writes to the tables, and documents are not deleted: void them instead. It holds
// for one scheme per type at a time:
//
//   - A series, which is a key prefix and a type, keeps its period and year start, its [serial.Scheme.Calendar], as
//     long as any of its rows exists. A scheme with another calendar gets [serial.ErrConflict] in every period. To
//     count in another way, begin another series: another type, or another key prefix together with another literal in
//     the template.
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
// that end by a date or an instant. From then on, their numbers are [ErrPeriodClosed], until [Generator.ReopenPeriods]
// opens them again:
//
//	month := serial.On(2026, time.November, 1)
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
// two (SAVEPOINT and RELEASE SAVEPOINT), before the lock is taken; on MariaDB, only for a Generator's first number.
// PostgreSQL does not end transactions unasked: there, a COMMIT or ROLLBACK that the program sends as the text of a
// statement goes unnoticed, so always call Commit and Rollback.
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
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/dailyserial/serial"
)

const (
	defaultTable = "serial_gapless"
	most         = 100_000 // numbers at once
	// patience is the number of periods that Next tries. A second one is usual at midnight. More are needed only if a
	// period is shorter than the wait for others.
	patience = 20
)

// A Generator issues numbers without gaps: [Generator.Next] is what most callers want. It is safe for use by any number
// of goroutines, and any number of processes may use the same table at once. It has no connection of its own, so that
// one Generator may serve several databases.
type Generator struct {
	scheme     *serial.Scheme
	calendar   string // of the scheme
	mark       string // calendar and print mark, for rows of periods
	dialect    Dialect
	chronology bool // numbers are kept in the order of their dates
	sql        statements
	plain      *statements // sql without the dates
	clock      atomic.Pointer[clock]
	span       atomic.Pointer[span] // of the last instant asked for
	server     atomic.Int32         // kind of the server last used with the statements of MySQL; at first mySQLServer
}

// An Option configures the Generator that [New] returns.
type Option interface{ apply(*config) }

type config struct {
	table      string
	chronology bool
}

type optionFunc func(*config)

func (f optionFunc) apply(c *config) { f(c) }

// WithTable names the table, exactly as it is written, case included; the name of the second table is that and _series.
// A name has 1 to 56 ASCII letters, digits and _, and does not begin with a digit. PostgreSQL's search_path or MySQL's
// current database says where the tables are. All processes that issue numbers of a type must use the same ones.
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
