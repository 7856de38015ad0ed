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
//	report, err := gen.Audit(ctx, "IS", start, stored, explained)
//
// A Register needs no Ledger, and what follows is about Ledgers only.
//
// # What the database must be
//
// Any driver that returns the database's errors will do. Every reservation checks for settings that would let the
// database lose committed data if it crashed. If the reservation finds one, it fails and names it:
//
//   - PostgreSQL: fsync must be on, and the table neither unlogged nor temporary. If synchronous_commit is less than on, it
//     is raised to on for the transaction; remote_apply stays.
//   - MySQL and MariaDB: the table must use InnoDB and not be temporary, innodb_flush_log_at_trx_commit must be 1 and, if
//     there is a binary log, sync_binlog 1, which is not MariaDB's default.
//   - SQLite: it must be a file, on a local disk, with a journal_mode other than off and memory; a database in memory is
//     refused. PRAGMA synchronous is EXTRA for the transaction. On macOS, set PRAGMA fullfsync too.
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
//   - PostgreSQL: name the replicas in synchronous_standby_names and promote no other. Even so, pg_cancel_backend ends that
//     wait, and PostgreSQL then reports success.
//   - MySQL and MariaDB: use semi-synchronous replication, with a rpl_semi_sync_*_timeout that never passes (the default
//     falls back to asynchronous after 10 s) and the wait point AFTER_SYNC. A Galera cluster or group replication loses
//     nothing as long as a majority lives.
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
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dailyserial/serial"
)

// The limits of what a caller may pass: the interface's bounds, and the columns' sizes.
const (
	maxSeq    = 999_999_999_999_999
	maxSeries = 255
	maxText   = 64
)

const (
	defaultTable = "serial_ledger"
	minAge       = 72 * time.Hour // longer than any day: one in a zone that moved across the date line had 48 h
)

// A Ledger records the numbers that were set aside, in a table of a database. [serial.WithLedger] calls its
// [Ledger.Reserve]. It is safe for use by any number of goroutines, and any number of processes may use the same table
// at once.
type Ledger struct {
	runner
	sql    statements
	schema atomic.Pointer[string] // schema of the table, as the first reservation found it
}

var _ serial.Ledger = (*Ledger)(nil)

// An Option configures the Ledger that [New] returns.
type Option interface{ apply(*config) }

type config struct{ table string }

type optionFunc func(*config)

func (f optionFunc) apply(c *config) { f(c) }

// WithTable names the table, exactly as it is written, case included: ledger, or shop.ledger for one in PostgreSQL's
// schema or MySQL's database shop. A name has at most 63 ASCII letters, digits and _, and does not begin with a digit.
// SQLite allows no schema. All processes that issue numbers of a type must use the same table. Without a schema,
// PostgreSQL's search_path or MySQL's current database decides which table is used. A reservation fails on a connection
// where that is another schema than at the Ledger's first reservation.
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
		name: "ledger", advice: "take the number before the transaction begins",
		outdated: "the table was not created by this version; have CreateTable create a new one, either under another " +
			"name, see WithTable, or after this one has been dropped",
	}}, nil
}

// CreateTable creates the table unless it exists. Any number of processes may do so at once. The database's user needs
// the right to create it, in PostgreSQL even if the table exists, and to read it. A table that was created by version
// 0.4 or earlier lacks a column, which is an error.
func (l *Ledger) CreateTable(ctx context.Context) error {
	return l.do(ctx, "create the table", func(c *sql.Conn) error {
		if _, err := c.ExecContext(ctx, l.sql.schema); err != nil {
			return err
		}
		_, err := c.ExecContext(ctx, l.sql.check.text)
		return err
	})
}

// Reserve implements [serial.Ledger]: it sets aside the r.N sequences after the greater of r.Above and the last one set
// aside for that series and period, and returns the one before them. It takes one short transaction, which is on disk
// before Reserve returns. Others who reserve for the same series wait for its end.
//
// The series has 1 to 255 bytes; period, calendar and print mark have 1 to 64; r.Above is 0 to 10^15-1 and r.N 1 to
// 10^15-1. Anything else is refused before the database is asked. A last sequence beyond 2^63-1 is refused by the
// database.
//
// The first reservation of a series decides its calendar, and the first one of a period its print mark. Another
// calendar or print mark is an error that matches [serial.ErrConflict]; nothing is set aside. [Ledger.Purge] removes
// print marks with their periods, and never a calendar.
//
// A caller in a transaction of its own must not wait for Reserve if the transaction has the only connection of the pool
// or, with SQLite, has written to the same file: Reserve would wait for the transaction until ctx ends. The error then
// says so.
//
// After a deadlock, or if a lock is in the way, Reserve tries again, for 30 s at most, while the context lives. Other
// errors are the driver's, wrapped; once the context has ended they match its error too. After an error or a cancelled
// call, the block may have been set aside: it is then a gap.
func (l *Ledger) Reserve(ctx context.Context, r serial.Reservation) (after int64, err error) {
	for _, a := range []struct {
		name             string
		value, from, max int64
	}{
		{"the length of series", int64(len(r.Series)), 1, maxSeries},
		{"the length of period", int64(len(r.Period)), 1, maxText},
		{"the length of calendar", int64(len(r.Calendar)), 1, maxText},
		{"the length of print", int64(len(r.Print)), 1, maxText},
		{"above", r.Above, 0, maxSeq},
		{"n", r.N, 1, maxSeq},
	} {
		if a.value < a.from || a.value > a.max {
			return 0, fmt.Errorf("sqlledger: %s is %d: want %d to %d", a.name, a.value, a.from, a.max)
		}
	}
	err = l.do(ctx, "reserve", func(c *sql.Conn) (err error) {
		after, err = l.reserve(ctx, c, r)
		return err
	})
	if err != nil {
		return 0, err
	}
	return after, nil
}

// reserve is Reserve within a transaction, which must not be committed after an error.
func (l *Ledger) reserve(ctx context.Context, c *sql.Conn, r serial.Reservation) (after int64, err error) {
	args := arguments{
		"series": []byte(r.Series), "period": []byte(r.Period), "calendar": []byte(r.Calendar), "print": []byte(r.Print),
		"above": r.Above, "n": r.N, "first": r.Above + r.N,
	}
	if q := l.sql.upsert; q.text != "" {
		if _, err := c.ExecContext(ctx, q.text, q.bind(args)...); err != nil {
			return 0, err
		}
	}
	var flaw sql.NullString
	var schema string
	var calendar, printMark []byte
	row := c.QueryRowContext(ctx, l.sql.read.text, l.sql.read.bind(args)...)
	err = row.Scan(&after, &flaw, &schema, &calendar, &printMark)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return 0, lossy(altered)
	case err != nil:
		return 0, err
	case flaw.Valid:
		return 0, lossy(flaw.String)
	case after < r.Above || calendar == nil:
		return 0, lossy(altered)
	}
	if err := r.Check(string(calendar), string(printMark)); err != nil {
		return 0, err
	}
	if q := l.sql.kept; q.text != "" {
		var last int64
		err := c.QueryRowContext(ctx, q.text, q.bind(args)...).Scan(&last)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return 0, err
		}
		if last != after+r.N {
			return 0, lossy(altered)
		}
	}
	if q := l.sql.show; q.text != "" {
		var name, create string
		if err := c.QueryRowContext(ctx, q.text).Scan(&name, &create); err != nil {
			return 0, err
		}
		if strings.HasPrefix(create, "CREATE TEMPORARY") {
			return 0, lossy("the table is temporary")
		}
	}
	if !l.schema.CompareAndSwap(nil, &schema) && *l.schema.Load() != schema {
		return 0, fmt.Errorf("the table is in %s on this connection and was in %s: name the schema with WithTable",
			schema, *l.schema.Load())
	}
	return after, nil
}

// Purge deletes the rows of old periods and returns how many it deleted. A row is old if its last reservation is longer
// ago than age, by the database's clock. The youngest period of each series is kept, and so is the calendar. After an
// error or a cancelled call, the count is the number of rows deleted until then. If row security, a rule or a trigger
// keeps old rows from being deleted, Purge deletes the others and then returns an error.
//
// age must be longer than the longest period in use plus the time for which periods are prepared ahead. Once a period's
// row is gone, no number of the period may be issued, since only the row keeps numbers from being issued twice when
// Redis loses them. Less than 72 h is refused. For daily numbers, 30 days is a good choice, and once a day is often
// enough.
func (l *Ledger) Purge(ctx context.Context, age time.Duration) (int64, error) {
	if age < minAge {
		return 0, fmt.Errorf("sqlledger: purge: an age of %v: want %v and more", age, minAge)
	}
	seconds := int64((age + time.Second - 1) / time.Second)
	var purged, kept int64
	var first key // first key of an old row that was not deleted
	for from := (key{}); ; {
		var found []key
		var left map[key]bool
		var deleted int64
		err := l.do(ctx, "purge", func(c *sql.Conn) (err error) {
			found, left, deleted, err = l.purge(ctx, c, seconds, from)
			return err
		})
		if err != nil {
			return purged, err
		}
		purged += deleted
		if len(left) > 0 {
			// Another Purge may have deleted them meanwhile, or a reservation renewed them. If they are found once
			// more, neither happened.
			var there []key
			err := l.do(ctx, "purge", func(c *sql.Conn) (err error) {
				there, err = l.old(ctx, c, seconds, from)
				return err
			})
			if err != nil {
				return purged, err
			}
			for _, k := range there {
				if !left[k] {
					continue
				}
				if kept++; kept == 1 {
					first = k
				}
			}
		}
		if len(found) < page {
			break
		}
		from = found[len(found)-1] // whether deleted or not, they are not asked for again
	}
	if kept > 0 {
		return purged, fmt.Errorf("sqlledger: purge: %d old rows were found and not deleted, the first of them period %q "+
			"of %q: row security, a rule or a trigger may prevent it", kept, first.period, first.series)
	}
	return purged, nil
}

// A key is the primary key of a row.
type key struct{ series, period string }

// arguments returns the arguments of the queries of Purge.
func (k key) arguments(seconds int64) arguments {
	return arguments{"series": []byte(k.series), "period": []byte(k.period), "seconds": seconds, "page": page}
}

// old returns the keys of the first old rows after from, in order.
func (l *Ledger) old(ctx context.Context, c *sql.Conn, seconds int64, from key) ([]key, error) {
	q := l.sql.old
	rows, err := c.QueryContext(ctx, q.text, q.bind(from.arguments(seconds))...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var keys []key
	for rows.Next() {
		var k key
		if err := rows.Scan(&k.series, &k.period); err != nil {
			return nil, err
		}
		keys = append(keys, k)
	}
	return keys, rows.Err()
}

// purge deletes the rows that old returns, each by its key: in MySQL, a DELETE that searches for them would lock every
// row that it looks at, including those in use. left are the keys that were found and not deleted.
func (l *Ledger) purge(ctx context.Context, c *sql.Conn, seconds int64, from key) (
	found []key, left map[key]bool, deleted int64, err error,
) {
	found, err = l.old(ctx, c, seconds, from)
	if err != nil {
		return nil, nil, 0, err
	}
	left = make(map[key]bool)
	for _, k := range found {
		r, err := c.ExecContext(ctx, l.sql.remove.text, l.sql.remove.bind(k.arguments(seconds))...)
		if err != nil {
			return nil, nil, 0, err
		}
		n, err := r.RowsAffected()
		if err != nil {
			return nil, nil, 0, err
		}
		if deleted += n; n == 0 {
			left[k] = true
		}
	}
	return found, left, deleted, nil
}
