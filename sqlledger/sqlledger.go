// Package sqlledger provides a [serial.Ledger] in PostgreSQL, MySQL, MariaDB or SQLite, through [database/sql]. With a
// ledger, no number is issued twice, whatever data Redis loses:
//
//	db, err := sql.Open("pgx", "postgres://shop@localhost/shop")
//	if err != nil {
//		return err
//	}
//	ledger, err := sqlledger.New(db, sqlledger.PostgreSQL)
//	if err != nil {
//		return err
//	}
//	if err := ledger.CreateTable(ctx); err != nil {
//		return err
//	}
//	gen, err := serial.New(rdb, serial.WithLedger(ledger, 1000))
//
// The table has one row for each series and period. The row contains the last reserved sequence, and the time of the
// reservation by the database's clock in UTC. [Ledger.Purge] removes old rows. A Generator queries the database once
// per block.
//
// The table also contains the calendar of each series, in a separate row, and the print mark of each period. Suppose
// that Redis has lost its data, and that a series is then used with a different [serial.Period], year start, field
// order, alphabet, check digit or key. Calls still fail with [serial.ErrConflict], and no number is issued twice.
//
// # Explanations of missing numbers
//
// A [Register] stores the reasons why numbers are missing, in a separate table. A Generator with [Register.Hooks] adds
// the reasons that it knows:
//
//	register, err := sqlledger.NewRegister(db, sqlledger.PostgreSQL)
//	if err != nil {
//		return err
//	}
//	if err := register.CreateTable(ctx); err != nil {
//		return err
//	}
//	gen, err := serial.New(rdb, serial.WithHooks(register.Hooks(failed)))
//
// An application adds reasons with [Register.ExplainIn], in the transaction that voids a document. An audit uses both:
//
//	explained := serial.WithExplanations(register.Explanations(ctx, "serial:IS", start))
//	report, err := gen.Audit(ctx, "IS", serial.At(start), stored, explained)
//
// A Register does not need a Ledger. The following sections are only about Ledgers.
//
// # Database requirements
//
// You can use any driver that returns the database's errors. Every reservation checks whether the database has a
// setting with which a crash could lose committed data. If it finds one, the reservation fails, and the error names the
// setting:
//
//   - PostgreSQL: fsync must be on, and the table must not be unlogged or temporary. If synchronous_commit is weaker
//     than on, the reservation sets it to on for its transaction. It does not change remote_apply.
//   - MySQL and MariaDB: the table must use InnoDB and must not be temporary. innodb_flush_log_at_trx_commit must be 1.
//     If there is a binary log, sync_binlog must be 1, which is not the default of MariaDB.
//   - SQLite: the database must be a file on a local disk, not in memory, and its journal_mode must not be off or
//     memory. The reservation sets PRAGMA synchronous to EXTRA for its transaction. On macOS, set PRAGMA fullfsync too.
//
// The checks apply to the table to which the reservation has written. If a temporary table of the same name hides the
// table on one connection, reservations fail on that connection. A trigger or a rule that prevents a write, or that
// lowers the last sequence, causes an error, too. Only AFTER triggers of PostgreSQL are not detected, so they must not
// change the table. On MySQL and MariaDB, the user needs SELECT, INSERT and UPDATE on the whole table; rights to single
// columns are not enough.
//
// The connections must go to the one server that accepts writes. For PostgreSQL, set target_session_attrs=read-write.
// Some systems accept writes on several servers and resolve conflicts later, for example MySQL's circular replication
// and PostgreSQL's logical replication in both directions. They reserve the same block twice. Galera and group
// replication do not: they reject one of two conflicting commits, and the reservation is repeated.
//
// # What a failover of the database can lose
//
// A promoted replica lacks the data that it had not received yet. So a committed block can be lost unless the old
// primary waited for that replica:
//
//   - PostgreSQL: name the replicas in synchronous_standby_names, and promote no other replica. Even then,
//     pg_cancel_backend ends the wait for the replicas, and PostgreSQL reports success.
//   - MySQL and MariaDB: use semi-synchronous replication with the wait point AFTER_SYNC and a rpl_semi_sync_*_timeout
//     that is never reached. (With the default timeout, replication becomes asynchronous after 10 s.) A Galera cluster
//     or group replication loses nothing as long as a majority of the nodes is running.
//   - SQLite: there is no failover. If the disk is lost, all data is lost. Tools that copy the file to another place
//     lag behind.
//
// A restored backup lacks everything that was written after the backup was made.
//
// A block that is lost in this way is reserved again. This does no harm as long as Redis has its counters, because
// Redis then receives a block above them. Numbers are issued twice only if Redis loses the counter of the same period
// as well, for example when everything fails at once. So if a failover or a restore may have lost data, note the last
// number of every type before Redis is next restarted or replaced. If Redis has already lost its counters, find the
// last number that was used, and pass it to [serial.Generator.Raise] before the next number is issued.
package sqlledger

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"time"

	"github.com/dailyserial/serial"
)

// Limits of the arguments: the bounds of the interface serial.Ledger, and the sizes of the columns.
const (
	maxSeq    = 999_999_999_999_999
	maxSeries = 255
	maxText   = 64
)

const (
	defaultTable = "serial_ledger"
	minAge       = 72 * time.Hour // longer than any day; when a zone crossed the date line, a day lasted 48 h
)

// A Ledger records the reserved sequences in a database table. A Generator with [serial.WithLedger] calls its method
// [Ledger.Reserve]. A Ledger is safe for use by any number of goroutines, and any number of processes may use the same
// table at the same time.
type Ledger struct {
	runner
	sql    statements
	schema atomic.Pointer[string] // schema in which the first reservation found the table
}

var _ serial.Ledger = (*Ledger)(nil)

// An Option configures the Ledger that [New] returns.
type Option interface{ apply(*config) }

type config struct{ table string }

type optionFunc func(*config)

func (f optionFunc) apply(c *config) { f(c) }

// WithTable sets the name of the table, exactly as written, including case. The name can include a schema of PostgreSQL
// or a database of MySQL, as in shop.ledger, but not on SQLite. Each of the two names has 1 to 63 ASCII letters, digits
// and _, and does not begin with a digit. All processes that issue numbers of a type must use the same table. Without a
// schema, PostgreSQL's search_path or MySQL's current database decides which table is used. If that is not the schema
// of the Ledger's first reservation, a reservation fails.
//
// The default is serial_ledger.
func WithTable(name string) Option {
	return optionFunc(func(c *config) { c.table = name })
}

// New returns a Ledger in db. The caller opens and closes db. New returns an error if db is nil, if the Dialect is
// unknown, or if [WithTable] does not allow the table name. It does not use the database yet.
func New(db *sql.DB, d Dialect, opts ...Option) (*Ledger, error) {
	if db == nil {
		return nil, errors.New("sqlledger: the database is nil")
	}
	c := config{table: defaultTable}
	for _, o := range opts {
		o.apply(&c)
	}
	s, err := d.forTable(c.table)
	if err != nil {
		return nil, err
	}
	return &Ledger{sql: s, runner: runner{
		db: db, dialect: d, durable: true,
		table: c.table, name: "ledger", advice: "take the number before the transaction begins",
		outdated: "the table was not created by this version; have CreateTable create a new one, either under another " +
			"name, see WithTable, or after this one has been dropped",
	}}, nil
}

// CreateTable creates the table if it does not exist. Any number of processes may call it at the same time. The
// database's user needs the right to create the table (on PostgreSQL even if it exists) and to read it. If the table
// was created by version 0.4 or earlier, it lacks a column, and CreateTable returns an error.
func (l *Ledger) CreateTable(ctx context.Context) error {
	return l.do(ctx, "create the table", func(c *sql.Conn) error {
		if _, err := c.ExecContext(ctx, l.sql.schema); err != nil {
			return err
		}
		_, err := c.ExecContext(ctx, l.sql.check.text)
		return err
	})
}
