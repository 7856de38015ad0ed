// Package sqlledger keeps a [serial.Ledger] in PostgreSQL, MySQL, MariaDB or SQLite, over [database/sql], so that no
// number is issued twice, whatever Redis loses:
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
// The table has one row per series and period: the last sequence set aside, and when it was set aside, by the
// database's clock in UTC. [Ledger.Purge] removes old rows. The database is asked once per block.
//
// The table also keeps the calendar of each series, in a row of its own, and the print mark of each period. So when
// Redis has lost its data and a series is used with another [serial.Period], year start, order of fields, alphabet,
// check digit or key than before, calls still fail with [serial.ErrConflict] and no number is issued twice.
//
// # Explanations of missing numbers
//
// A [Register] keeps, in a table of its own, why numbers are missing. [Register.Hooks] has a Generator add what it
// knows:
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
// An application adds what it knows with [Register.ExplainIn], in the transaction that voids a document, and an audit
// takes both into account:
//
//	explained := serial.WithExplanations(register.Explanations(ctx, "serial:IS", start))
//	report, err := gen.Audit(ctx, "IS", serial.At(start), stored, explained)
//
// A Register needs no Ledger, and what follows is about Ledgers only.
//
// # Database requirements
//
// Any driver that returns the database's errors will do. Every reservation checks for settings that would let the
// database lose committed data if it crashed. If the reservation finds one, it fails and names it:
//
//   - PostgreSQL: fsync must be on, and the table neither unlogged nor temporary. If synchronous_commit is less than
//     on, it is raised to on for the transaction; remote_apply stays.
//   - MySQL and MariaDB: the table must use InnoDB and not be temporary, innodb_flush_log_at_trx_commit must be 1 and,
//     if there is a binary log, sync_binlog 1, which is not MariaDB's default.
//   - SQLite: it must be a file, on a local disk, with a journal_mode other than off and memory; a database in memory
//     is refused. PRAGMA synchronous is EXTRA for the transaction. On macOS, set PRAGMA fullfsync too.
//
// The checks concern the table that the reservation wrote to. A temporary table of the same name, which hides the table
// on one connection, is refused there. A trigger or rule that prevents a write, or sets the last sequence back, is an
// error too. The exceptions are PostgreSQL's AFTER triggers, which go unnoticed and must leave the table alone. On
// MySQL and MariaDB the user needs SELECT, INSERT and UPDATE on the table as a whole; rights to single columns are not
// enough.
//
// The connections must go to the one server that takes writes: for PostgreSQL, set target_session_attrs=read-write.
// Servers that take writes side by side and settle conflicts later (MySQL's circular replication, PostgreSQL's logical
// replication both ways) hand out the same block twice. Galera and group replication don't: they refuse one of two
// conflicting commits, which is then tried again.
//
// # What a failover of the database can lose
//
// A promoted replica lacks the data that it had not received. So a committed block can be lost unless the old primary
// waited for that replica:
//
//   - PostgreSQL: name the replicas in synchronous_standby_names and promote no other. Even so, pg_cancel_backend ends
//     that wait, and PostgreSQL then reports success.
//   - MySQL and MariaDB: use semi-synchronous replication, with a rpl_semi_sync_*_timeout that never passes (the
//     default falls back to asynchronous after 10 s) and the wait point AFTER_SYNC. A Galera cluster or group
//     replication loses nothing as long as a majority lives.
//   - SQLite: there is no failover; if the disk is lost, everything is. Tools that copy the file elsewhere lag behind.
//
// A restored backup lacks everything that was written since it was made.
//
// A block that is lost in this way is set aside again. That does no harm as long as Redis has its counters, since Redis
// gets a block above them. Numbers are issued twice only if Redis loses the counter of the same period too, as it may
// in one outage of everything. So when a failover or a restore may have lost something, note every type's last number
// before Redis is next restarted or replaced. If Redis has lost it already, find the last number used elsewhere, and
// enter it with [serial.Generator.Raise] before any is issued.
package sqlledger

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"time"

	"github.com/dailyserial/serial"
)

// Limits of a caller's arguments: the interface's bounds, and the columns' sizes.
const (
	maxSeq    = 999_999_999_999_999
	maxSeries = 255
	maxText   = 64
)

const (
	defaultTable = "serial_ledger"
	minAge       = 72 * time.Hour // longer than any day: one in a zone that moved across the date line had 48 h
)

// A Ledger records the numbers set aside, in a database table. [serial.WithLedger] calls its [Ledger.Reserve]. It is
// safe for use by any number of goroutines, and any number of processes may use the same table at once.
type Ledger struct {
	runner
	sql    statements
	schema atomic.Pointer[string] // schema of the table at the first reservation
}

var _ serial.Ledger = (*Ledger)(nil)

// An Option configures the Ledger that [New] returns.
type Option interface{ apply(*config) }

type config struct{ table string }

type optionFunc func(*config)

func (f optionFunc) apply(c *config) { f(c) }

// WithTable names the table, exactly as written, including case: ledger, or shop.ledger for one in PostgreSQL's schema
// or MySQL's database shop. A name has at most 63 ASCII letters, digits and _, and does not begin with a digit. SQLite
// allows no schema. All processes that issue numbers of a type must use the same table. Without a schema, PostgreSQL's
// search_path or MySQL's current database decides which table is used. A reservation fails on a connection with another
// schema than at the Ledger's first reservation.
//
// Default serial_ledger.
func WithTable(name string) Option {
	return optionFunc(func(c *config) { c.table = name })
}

// New returns a Ledger in db, which the caller opens and closes. It refuses a nil db, an unknown Dialect and a table
// name that [WithTable] does not allow. It does not use the database yet.
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

// CreateTable creates the table unless it exists. Any number of processes may do so at once. The database's user needs
// the right to create it, in PostgreSQL even if the table exists, and to read it. A table created by version 0.4 or
// earlier lacks a column, which is an error.
func (l *Ledger) CreateTable(ctx context.Context) error {
	return l.do(ctx, "create the table", func(c *sql.Conn) error {
		if _, err := c.ExecContext(ctx, l.sql.schema); err != nil {
			return err
		}
		_, err := c.ExecContext(ctx, l.sql.check.text)
		return err
	})
}
