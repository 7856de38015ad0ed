// Package sqlledger provides a [serial.Ledger] that uses a table of a PostgreSQL, MySQL, MariaDB or SQLite database. It
// accesses the database through [database/sql]. With a ledger, no number is issued twice, whatever data Redis loses:
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
//	gen, err := serial.New(rdb, serial.WithLocation(time.UTC), serial.WithLedger(ledger, 100))
//
// The table has one row for each series and period. The row contains the last reserved sequence, and the time of the
// latest reservation by the database's clock, in UTC. [Ledger.Purge] removes old rows. A Generator accesses the
// database once per block.
//
// The table also contains the calendar of each series, in a separate row, and the print mark of each period. If a
// process uses the series with a different [serial.Period], year start, field order, alphabet, check digit or key, its
// calls fail with [serial.ErrConflict], even after Redis has lost its data. So no number is issued twice.
//
// # Explanations of missing numbers
//
// A [Register] stores the reasons why numbers are missing, in a separate table. A Generator with [Register.Hooks] adds
// an explanation for every number that it leaves unused:
//
//	register, err := sqlledger.NewRegister(db, sqlledger.PostgreSQL)
//	if err != nil {
//		return err
//	}
//	if err := register.CreateTable(ctx); err != nil {
//		return err
//	}
//	gen, err := serial.New(rdb, serial.WithLocation(time.UTC), serial.WithHooks(register.Hooks(failed)))
//
// An application adds explanations with [Register.ExplainIn], in the transaction that voids a document. An audit uses
// all of them:
//
//	explained := serial.WithExplanations(register.Explanations(ctx, "serial:IS", start))
//	report, err := gen.Audit(ctx, "IS", serial.At(start), stored, explained)
//
// A Register does not need a Ledger. The following sections are only about Ledgers.
//
// # Database requirements
//
// You can use any driver that returns the database's errors. Every reservation checks the settings with which a crash
// could lose committed data. If it finds such a setting, the reservation fails, and the error contains the setting:
//
//   - PostgreSQL: fsync must be on, and the table must not be unlogged or temporary. If synchronous_commit is weaker
//     than on, the reservation sets it to on for its transaction. It does not change remote_apply.
//   - MySQL and MariaDB: the table must use InnoDB and must not be temporary. innodb_flush_log_at_trx_commit must be 1.
//     If there is a binary log, sync_binlog must be 1, which is not the default of MariaDB.
//   - SQLite: the database must be a file on a local disk, not in memory, and its journal_mode must not be off or
//     memory. The reservation sets PRAGMA synchronous to EXTRA for its transaction. On macOS, set PRAGMA fullfsync,
//     too.
//
// The checks apply to the table to which the reservation has written. If a temporary table of the same name hides the
// table on one connection, reservations fail on that connection. A trigger or a rule that prevents a write, or that
// lowers the last sequence, causes an error, too. AFTER triggers of PostgreSQL are the only exception. They are not
// detected, so they must not change the table. On MySQL and MariaDB, the user needs SELECT, INSERT and UPDATE on the
// whole table. Rights to single columns are not enough.
//
// All connections must reach the one server that accepts writes. For PostgreSQL, set target_session_attrs=read-write.
// Some systems accept writes on several servers and resolve conflicts later, for example MySQL's circular replication
// and PostgreSQL's logical replication in both directions. Do not use them, because they can reserve the same block
// twice. Galera and group replication can be used: they reject one of two conflicting commits, and the reservation is
// repeated.
//
// # What a failover of the database can lose
//
// A promoted replica lacks the data that it had not received. So a committed block can be lost, unless the old primary
// waited for that replica before it reported the commit:
//
//   - PostgreSQL: name the replicas in synchronous_standby_names, and promote no other replica. But even then,
//     PostgreSQL reports success if pg_cancel_backend ends the wait for the replicas.
//   - MySQL and MariaDB: use semi-synchronous replication with the wait point AFTER_SYNC and a rpl_semi_sync_*_timeout
//     that is never reached. (With the default timeout, replication becomes asynchronous after 10 s.) A Galera cluster
//     or group replication loses nothing as long as a majority of the nodes is running.
//   - SQLite: there is no failover. If the disk is lost, all data is lost. Tools that copy the file to another place
//     lag behind.
//
// A restored backup lacks everything that was written after the backup was made.
//
// A ledger that has lost a block can reserve it again. This does no harm as long as Redis has its counters, because
// every block is reserved above the counter. Numbers are issued twice only if Redis also loses the counter of the same
// period, for example because everything fails at once. So if a failover or a restore may have lost data, note the last
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

// Limits of the arguments. maxSeq is a limit of the interface serial.Ledger, and the others are sizes of columns, in
// bytes.
const (
	maxSeq    = 999_999_999_999_999
	maxSeries = 255
	maxText   = 64
)

const (
	defaultTable = "serial_ledger"
	minAge       = 72 * time.Hour // longer than any day: if a zone crosses the date line, a day can last 48 h
)

// A Ledger stores the reserved sequences in a database table. A Generator with [serial.WithLedger] calls its method
// [Ledger.Reserve]. A Ledger is safe for concurrent use, and any number of processes may use the same table at the same
// time.
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

// WithTable sets the name of the table. It is used exactly as written, including case. Except on SQLite, the name can
// include a schema of PostgreSQL or a database of MySQL, as in shop.ledger. Each of the two names has 1 to 63
// characters, which are ASCII letters, digits and _, and does not begin with a digit. All processes that issue numbers
// of a type must use the same table.
//
// Without a schema, PostgreSQL's search_path or MySQL's current database determines which table is used. If the table
// that a connection finds is in another schema than the table of this Ledger's first reservation, reservations on that
// connection fail.
//
// The default is serial_ledger.
func WithTable(name string) Option {
	return optionFunc(func(c *config) { c.table = name })
}

// New returns a Ledger in db. The caller opens and closes db. New does not access the database. It returns an error if
// db is nil, if the Dialect is unknown, or if [WithTable] does not allow the table name.
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
		outdated: "the table was not created by this version; choose another name with WithTable, or drop this table, and " +
			"then call CreateTable to create a new one",
	}}, nil
}

// CreateTable creates the table if it does not exist. Any number of processes may call it at the same time. The
// database's user needs the right to create the table (on PostgreSQL even if it exists) and to read it. A table that
// was created by version 0.4 or earlier lacks a column. CreateTable does not add the column, but returns an error.
func (l *Ledger) CreateTable(ctx context.Context) error {
	return l.do(ctx, "create the table", func(c *sql.Conn) error {
		if _, err := c.ExecContext(ctx, l.sql.schema); err != nil {
			return err
		}
		_, err := c.ExecContext(ctx, l.sql.check.text)
		return err
	})
}
