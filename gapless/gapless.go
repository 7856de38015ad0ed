// Package gapless issues serial numbers without gaps. It keeps its counters in a table of a PostgreSQL, MySQL, MariaDB
// or SQLite database, which it accesses through [database/sql]. A number is taken in the transaction that stores its
// document. The number therefore exists if and only if that transaction is committed:
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
//	// Do everything else first, because other callers that need an INV number wait from Next until Commit.
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
//   - There are no gaps: the committed transactions of one type and period have the numbers 1, 2, 3, and so on. If a
//     transaction is rolled back, completely or to a savepoint, its number becomes free again, and the next transaction
//     gets it. The same happens if its connection breaks, or if its process or the database crashes.
//   - There are no duplicates, however many processes take numbers at the same time.
//   - The numbers have the order of the commits. With [WithChronology], they also have the order of the documents'
//     dates.
//   - The database's clock determines the period, at the instant when the number is taken. If the call has to wait for
//     other transactions, this instant is after the wait. The clock of the program's host does not matter.
//
// These guarantees hold only if no other program writes to the tables and no document is deleted. Void documents
// instead. All processes must also use the same scheme for a type:
//
//   - A series is identified by a key prefix and a type. Its calendar, which is the period length and the year start
//     (see [serial.Scheme.Calendar]), cannot change as long as any row of the series exists. If a Generator has a
//     scheme with a different calendar, its calls return [serial.ErrConflict] in every period. To count by a different
//     calendar, begin another series. So that its numbers differ, give it another type, or another key prefix and
//     another literal in the template.
//   - The field order, the alphabet, the check digit and the key of hidden sequences cannot change within a period. If
//     the scheme of a Generator differs in one of them, its calls return [serial.ErrConflict] in that period.
//   - A change of the time zone, the day start or a literal is not detected. Change the type at the same time.
//
// A type must belong either to a [serial.Generator] on Redis or to this package. If both issue its numbers, there are
// duplicates, and neither of them detects this. So keep a UNIQUE constraint on the column that contains the documents'
// numbers. On MySQL and MariaDB, that column also needs a binary collation, as described at [Generator.Schema].
//
// # What it costs
//
// Transactions that take numbers of the same type and period run one after another, from the call until the commit. So
// take the number last, keep the rest of the transaction short, and do not wait for anything else in it. If
// transactions take numbers of several types, let all of them use the same order, for example by name. Otherwise two
// transactions may wait for each other, until the database ends one of them because of the deadlock.
//
// Transactions with different types or periods do not wait for each other, with four exceptions:
//
//   - SQLite allows only one writer at a time.
//   - On MySQL, after the first transaction of a type or period has been rolled back, transactions of other new types
//     or periods may have to wait.
//   - While the first transaction of a new type is running, callers that need the first number of another period of
//     that type wait for it.
//   - While a transaction closes or reopens periods of a type, callers wait for it if they need the first number of a
//     period of that type, or a number of a period that has ended.
//
// The caller's context limits the wait, and so do settings of the database: lock_timeout in PostgreSQL, and
// innodb_lock_wait_timeout in MySQL. On SQLite, only PRAGMA busy_timeout limits it. If you use the driver lib/pq,
// always set lock_timeout. The server can miss this driver's request to cancel a statement, and then the wait continues
// after the context has ended.
//
// # Closing periods
//
// After a month has been reported, no more documents may be booked into it. [Generator.ClosePeriods] closes all periods
// that end at or before a date or an instant. Afterwards, calls that request a number of these periods fail with
// [ErrPeriodClosed], until [Generator.ReopenPeriods] opens the periods again:
//
//	month := serial.On(2026, time.November, 1)
//	err := numbers.ClosePeriods(ctx, tx, "INV", month) // closes October and all earlier months when tx is committed
//
// ClosePeriods waits for the transactions that have taken a number in one of these periods. Taking numbers of the
// current period does not become slower.
//
// # When a transaction has ended
//
// No number is taken outside a transaction, because it would become a gap if the document could not be stored. But some
// databases end a transaction that the program has not ended. MySQL and MariaDB do this after a deadlock, and before a
// statement such as CREATE TABLE. SQLite does it if a write is interrupted or fails with OR ROLLBACK. If the program
// continues to use such a transaction, [Generator.Next] and [Generator.Raise] return an error and take nothing.
//
// To detect this, a call runs additional statements before it takes the lock: on SQLite one without effect, and on
// MySQL two (SAVEPOINT and RELEASE SAVEPOINT). On MariaDB, only the first call of a Generator runs these two.
// PostgreSQL does not end transactions on its own, so nothing is checked there. But that also means that a COMMIT or
// ROLLBACK that the program sends as the text of a statement is not detected. Always call Commit and Rollback.
//
// # What the database must be
//
// Use READ COMMITTED. At REPEATABLE READ and above, PostgreSQL returns an error with SQLSTATE 40001 if another
// transaction has committed a number since the first statement of this transaction. You then have to repeat the
// transaction. MySQL and MariaDB work both at REPEATABLE READ, their default, and at READ COMMITTED. If the first
// transaction of a period is rolled back while other transactions wait for it, these may fail with a deadlock (error
// 1213) and have to be repeated. MariaDB with innodb_snapshot_isolation, which is on by default since 11.6.2, needs
// READ COMMITTED. Otherwise calls fail with error 1020.
//
// On SQLite, begin transactions with BEGIN IMMEDIATE (some drivers accept _txlock=immediate in the data source name),
// and set a busy timeout. Otherwise a transaction that has read something before it takes a number may fail at once
// with "database is locked".
//
// You can use any driver, and any library that gives access to its transactions: see [Tx].
package gapless

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/dailyserial/serial"
)

const (
	defaultTable = "serial_gapless"
	maxCount     = 100_000 // maximum count that NextN accepts
	// maxTries is the maximum number of periods (with WithChronology, of days) in which one call tries to take a number.
	// At midnight, a call often has to try a second period, because the first one has ended while the call waited for
	// other transactions. It tries a third only if a period is shorter than the wait.
	maxTries = 20
)

// A Generator issues numbers without gaps. Most callers need only [Generator.Next]. A Generator is safe for concurrent
// use, and any number of processes may use the same tables at the same time. It has no connection of its own, so one
// Generator can serve several databases.
type Generator struct {
	scheme     *serial.Scheme
	calendar   string // the scheme's calendar
	mark       string // the scheme's calendar and print mark, as in the column mark of the first table
	dialect    Dialect
	chronology bool // whether the generator was created with WithChronology
	sql        statements
	plain      *statements // statements that do not use the columns for dates; &sql if chronology is false
	clock      atomic.Pointer[clock]
	span       atomic.Pointer[span] // cached span of the last call for the current period
	server     atomic.Int32         // kind of the MySQL or MariaDB server, as last detected; initially mySQLServer
}

// An Option configures the Generator that [New] returns.
type Option interface{ apply(*config) }

type config struct {
	table      string
	chronology bool
}

type optionFunc func(*config)

func (f optionFunc) apply(c *config) { f(c) }

// WithTable sets the name of the first table. It is used exactly as written, including case. The second table has the
// same name with the suffix _series. A name has 1 to 56 characters, which are ASCII letters, digits and _, and does not
// begin with a digit. PostgreSQL's search_path or MySQL's current database determines where the tables are. All
// processes that issue numbers of a type must use the same tables.
//
// The default is serial_gapless.
func WithTable(name string) Option {
	return optionFunc(func(c *config) { c.table = name })
}

// New returns a Generator that issues numbers of the given scheme. If tenants share the tables, give each of them its
// own [serial.WithKeyPrefix]. New does not access a database. It returns an error if the scheme is nil or empty, if the
// Dialect is unknown, if an option is nil, or if [WithTable] does not allow the name.
func New(dialect Dialect, scheme *serial.Scheme, opts ...Option) (*Generator, error) {
	var errs []error
	if scheme == nil {
		errs = append(errs, errors.New("gapless: the scheme is nil"))
	} else if scheme.Calendar() == "" {
		errs = append(errs, errors.New("gapless: the scheme is empty; want one from serial.NewScheme or Generator.Scheme"))
	}
	c := config{table: defaultTable}
	for i, o := range opts {
		if o == nil {
			errs = append(errs, fmt.Errorf("gapless: option %d of %d is nil", i+1, len(opts)))
			continue
		}
		o.apply(&c)
	}
	s, err := dialect.forTable(c.table, c.chronology)
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	calendar := scheme.Calendar()
	g := &Generator{scheme: scheme, calendar: calendar, mark: calendar + markSeparator + scheme.PrintMark(),
		dialect: dialect, chronology: c.chronology, sql: s}
	if g.plain = &g.sql; c.chronology {
		s, err = dialect.forTable(c.table, false)
		g.plain = &s
	}
	return g, err
}

// Scheme returns the scheme that g was created with.
func (g *Generator) Scheme() *serial.Scheme { return g.scheme }
