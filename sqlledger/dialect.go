package sqlledger

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Dialect is the kind of database in which a [Ledger] or a [Register] is kept.
type Dialect int

const (
	PostgreSQL Dialect = iota + 1 // 9.5 or later
	MySQL                         // MySQL 5.7 or later, MariaDB 10.2 or later
	SQLite                        // 3.35 or later
)

// These are the tables that [Ledger.CreateTable] creates, with the default name, for programs that manage their schema
// themselves. A table may have more columns if they have defaults. The types must stay: names are bytes, because a
// comparison of text may take "IS" for "is" or for "IS ".
//
// A period's row has its print mark in the column settings. Each series has one more row, whose period is empty: its
// settings are the calendar.
//
// To read a table in PostgreSQL: SELECT convert_from(series, 'UTF8'), last FROM serial_ledger. Elsewhere no conversion
// is needed.
const (
	PostgreSQLSchema = `CREATE TABLE IF NOT EXISTS serial_ledger (
	series      bytea       NOT NULL,
	period      bytea       NOT NULL,
	settings    bytea       NOT NULL,
	last        bigint      NOT NULL,
	reserved_at timestamptz NOT NULL,
	PRIMARY KEY (series, period)
)`

	MySQLSchema = `CREATE TABLE IF NOT EXISTS serial_ledger (
	series      varbinary(255) NOT NULL,
	period      varbinary(64)  NOT NULL,
	settings    varbinary(64)  NOT NULL,
	last        bigint         NOT NULL,
	reserved_at datetime(6)    NOT NULL,
	PRIMARY KEY (series, period)
) ENGINE = InnoDB`

	SQLiteSchema = `CREATE TABLE IF NOT EXISTS serial_ledger (
	series      BLOB    NOT NULL,
	period      BLOB    NOT NULL,
	settings    BLOB    NOT NULL,
	last        INTEGER NOT NULL,
	reserved_at TEXT    NOT NULL,
	PRIMARY KEY (series, period)
) WITHOUT ROWID`
)

// statements are those of a dialect. In them, {table} stands for the quoted table, {name} and {in} for its name and
// schema as values, and {none} for the empty period of a series' own row, whose literal differs. Other names in braces
// are arguments; see arguments.
//
// Every reservation locks the row of its series first, and then the row of its period. So reservations with different
// calendars run one after another, whatever their periods are, and never wait for each other in a circle.
type statements struct {
	schema string
	quote  string // quotation mark around an identifier
	empty  string // an empty value of the columns' type
	begin  string
	ago    string // instant {seconds} ago

	// upsert is executed before read. It is empty if read does all the work.
	upsert query

	// read returns the sequence before the block; the setting that could let the block be lost in a crash, or NULL; the
	// table's schema; the calendar that is kept for the series, and the print mark that is kept for the period.
	read query

	// These are used if read cannot tell: kept returns the last sequence of the period, if its row and the row of its
	// series have the settings; show returns the table's CREATE statement.
	kept, show query

	check, old, remove query // forTable fills them in
}

// A query is a statement and the names of its arguments, in order.
type query struct {
	text string
	args []string
}

// arguments are the values of a query's arguments, by name.
type arguments map[string]any

func (q query) bind(a arguments) []any {
	values := make([]any, len(q.args))
	for i, name := range q.args {
		values[i] = a[name]
	}
	return values
}

// check fails if the table lacks a column that earlier versions did not have.
//
// Purge asks for old rows by old, after a series and period, and deletes each by remove, with the same age and the
// row's series and period. The youngest period of a series is never old: it may be the current one. So a series always
// needs its own row, and that is never old either. MariaDB may take an empty argument for NULL.
const (
	page = 1000

	check = `SELECT settings FROM {table} LIMIT 0`

	old = `SELECT series, period FROM {table} l WHERE reserved_at < {ago} AND period <> {none}
		AND (series, period) > (coalesce({series}, {none}), coalesce({period}, {none}))
		AND EXISTS (SELECT 1 FROM {table} y WHERE y.series = l.series AND y.period <> {none}
			AND y.reserved_at > l.reserved_at)
		ORDER BY series, period LIMIT {page}`
	remove = `DELETE FROM {table} WHERE reserved_at < {ago} AND series = {series} AND period = {period}`
)

// altered is the message if a row isn't what the statement made of it.
const altered = "a trigger or a rule changes what is written"

var dialects = map[Dialect]statements{
	PostgreSQL: {
		schema: PostgreSQLSchema,
		quote:  `"`,
		empty:  "''::bytea",
		// Under a stricter isolation, which may be the database's default, those who wait for a row would fail.
		begin: "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE",
		ago:   "now() - {seconds}::bigint * interval '1 second'",
		// The period's row is made from s, so the series' row comes first. set_config holds until the end of this
		// transaction, its COMMIT included. The subquery for max(o.last) sees what was committed when the statement
		// began: the row's last sequence before it was at least that. pg_catalog is named because a temporary pg_class
		// would hide its table.
		read: query{text: `WITH s AS (
			INSERT INTO {table} AS s (series, period, settings, last, reserved_at)
			VALUES ({series}::bytea, {none}, {calendar}::bytea, 0, clock_timestamp())
			ON CONFLICT (series, period) DO UPDATE SET reserved_at = excluded.reserved_at
			RETURNING s.series, s.settings
		)
		INSERT INTO {table} AS l (series, period, settings, last, reserved_at)
			SELECT s.series, {period}::bytea, {print}::bytea, {above}::bigint + {n}::bigint, clock_timestamp() FROM s
			ON CONFLICT (series, period) DO UPDATE
			SET last = GREATEST(l.last, {above}::bigint) + {n}::bigint, reserved_at = excluded.reserved_at
			RETURNING l.last - {n}::bigint, CASE
				WHEN set_config('synchronous_commit', CASE current_setting('synchronous_commit')
					WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true) NOT IN ('on', 'remote_apply')
					THEN 'synchronous_commit cannot be set'
				WHEN current_setting('fsync') <> 'on' THEN 'fsync is off'
				WHEN (SELECT relpersistence FROM pg_catalog.pg_class WHERE oid = l.tableoid) <> 'p'
					THEN 'the table is unlogged or temporary'
				WHEN l.last - {n}::bigint < (SELECT max(o.last) FROM {table} o WHERE o.series = l.series AND o.period = l.period)
					THEN '` + altered + `'
				END,
				(SELECT relnamespace::regnamespace::text FROM pg_catalog.pg_class WHERE oid = '{table}'::regclass),
				(SELECT s.settings FROM s), l.settings`},
	},
	MySQL: {
		schema: MySQLSchema,
		quote:  "`",
		empty:  "X''", // with EMPTY_STRING_IS_NULL in MariaDB's sql_mode, '' is NULL
		// Not READ COMMITTED: servers that replicate statements refuse to write under it.
		begin: "START TRANSACTION READ WRITE",
		ago:   "UTC_TIMESTAMP(6) - INTERVAL {seconds} SECOND",
		// LAST_INSERT_ID(x) returns x, and LAST_INSERT_ID() in read returns it again: the period's sequence before the
		// block, or 0 for a new row. It is unsigned; only for a signed sum is one too large for the column always an
		// error.
		upsert: query{text: `INSERT INTO {table} (series, period, settings, last, reserved_at)
			VALUES ({series}, {none}, {calendar}, 0, UTC_TIMESTAMP(6)),
				({series}, {period}, {print}, {first} + LAST_INSERT_ID(0), UTC_TIMESTAMP(6))
			ON DUPLICATE KEY UPDATE reserved_at = UTC_TIMESTAMP(6),
				last = IF(period = {none}, 0, CAST(LAST_INSERT_ID(GREATEST(last, {above})) AS SIGNED) + {n})`},
		// With a binary log, recovery rolls back what InnoDB has and the log does not. In a table with AUTO_INCREMENT,
		// LAST_INSERT_ID() may be that column's value.
		read: query{text: `SELECT r.below, CASE
				WHEN NOT EXISTS (SELECT 1 FROM information_schema.tables
					WHERE table_schema = {in} AND table_name = '{name}' AND engine = 'InnoDB')
					THEN 'the table is temporary or not of InnoDB'
				WHEN @@GLOBAL.innodb_flush_log_at_trx_commit <> 1 THEN 'innodb_flush_log_at_trx_commit is not 1'
				WHEN @@GLOBAL.log_bin AND @@GLOBAL.sync_binlog <> 1 THEN 'log_bin is on and sync_binlog is not 1'
				WHEN s.found > 1 OR r.found > 1 THEN 'series and period are not unique in the table'
				WHEN LAST_INSERT_ID() > r.below AND NOT EXISTS (SELECT 1 FROM information_schema.columns
					WHERE table_schema = {in} AND table_name = '{name}' AND extra = 'auto_increment')
					THEN '` + altered + `'
				END, {in}, s.calendar, r.print
			FROM (SELECT max(settings) AS calendar, count(*) AS found FROM {table}
				WHERE series = {series} AND period = {none} HAVING count(*) > 0) s,
				(SELECT max(last) - {n} AS below, max(settings) AS print, count(*) AS found FROM {table}
				WHERE series = {series} AND period = {period} HAVING count(*) > 0) r`},
		// Only this shows, in all versions, that a temporary table hides the one that information_schema lists. It
		// takes a right to the whole table: a right to columns is not enough.
		show: query{text: "SHOW CREATE TABLE {table}"},
	},
	SQLite: {
		schema: SQLiteSchema,
		quote:  `"`,
		empty:  "x''",
		begin:  "BEGIN IMMEDIATE",
		ago:    "strftime('%Y-%m-%d %H:%M:%f', 'now', -{seconds} || ' seconds')",
		upsert: query{text: `INSERT INTO {table} (series, period, settings, last, reserved_at)
			VALUES ({series}, {none}, {calendar}, 0, strftime('%Y-%m-%d %H:%M:%f', 'now'))
			ON CONFLICT (series, period) DO UPDATE SET reserved_at = excluded.reserved_at`},
		read: query{text: `INSERT INTO {table} (series, period, settings, last, reserved_at)
			VALUES ({series}, {period}, {print}, {first}, strftime('%Y-%m-%d %H:%M:%f', 'now'))
			ON CONFLICT (series, period) DO UPDATE SET last = max(last, {above}) + {n}, reserved_at = excluded.reserved_at
			RETURNING last - {n}, NULL, 'main',
				(SELECT settings FROM {table} WHERE series = {series} AND period = {none}), settings`},
		// RETURNING does not see what AFTER triggers do.
		kept: query{text: `SELECT last FROM {table} WHERE series = {series} AND period = {period} AND settings = {print}
			AND EXISTS (SELECT 1 FROM {table} WHERE series = {series} AND period = {none} AND settings = {calendar})`},
	},
}

var (
	identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,62}$`)
	argument   = regexp.MustCompile(`\{[a-z]+\}`)
)

// A tableName is a table's name in the forms that statements need.
type tableName struct {
	quoted string // with its schema, if it was given
	name   string // without its schema
	in     string // its schema as an expression of MySQL
}

// tableName returns the forms of a table's name. The name may have a schema before it, but not in SQLite, where a
// schema is another file.
func (d Dialect) tableName(name string) (t tableName, err error) {
	s, ok := dialects[d]
	if !ok {
		return t, fmt.Errorf("sqlledger: there is no dialect %d", int(d))
	}
	path := strings.Split(name, ".")
	for _, part := range path {
		if !identifier.MatchString(part) || len(path) > 2 || len(path) == 2 && d == SQLite {
			return t, fmt.Errorf("sqlledger: table %q: want 1 to 63 ASCII letters, digits and _, no digit first, "+
				"and in PostgreSQL and MySQL a schema of the same kind before it and a dot", name)
		}
	}
	t = tableName{name: name, in: "DATABASE()"}
	if len(path) == 2 {
		t.in, t.name = "'"+path[0]+"'", path[1]
	}
	if d == SQLite {
		path = []string{"main", name} // not a temporary table of the same name
	}
	t.quoted = s.quote + strings.Join(path, s.quote+"."+s.quote) + s.quote
	return t, nil
}

// forTable returns the statements of d for a table.
func (d Dialect) forTable(name string) (s statements, err error) {
	t, err := d.tableName(name)
	if err != nil {
		return s, err
	}
	s = dialects[d]
	s.schema = strings.Replace(s.schema, defaultTable, t.quoted, 1)
	s.check, s.old, s.remove = query{text: check}, query{text: old}, query{text: remove}
	for _, q := range []*query{&s.upsert, &s.read, &s.kept, &s.show, &s.check, &s.old, &s.remove} {
		text := strings.ReplaceAll(q.text, "{ago}", s.ago)
		text = strings.NewReplacer("{table}", t.quoted, "{name}", t.name, "{in}", t.in, "{none}", s.empty).Replace(text)
		*q = d.query(text)
	}
	return s, nil
}

// query returns the query whose arguments stand in braces.
func (d Dialect) query(text string) (q query) {
	q.text = argument.ReplaceAllStringFunc(text, func(arg string) string {
		if q.args = append(q.args, strings.Trim(arg, "{}")); d == PostgreSQL {
			return "$" + strconv.Itoa(len(q.args))
		}
		return "?"
	})
	return q
}

// postgresAgain are PostgreSQL's serialization failure, deadlock and lock_timeout, and the errors that some of several
// simultaneous CREATE TABLE get in spite of IF NOT EXISTS.
var postgresAgain = []string{"40001", "40P01", "55P03", "23505", "42P07", "42710"}

// mysqlRolledBack are the errors after which MySQL has rolled the transaction back: a deadlock, also with another node
// of a Galera cluster (1213), and a conflict in group replication (3101). After the others in mysqlAgain it can be
// rolled back: a row that changed since it was read (1020), a wait for a lock that took too long (1205). Drivers share
// no type for errors, but all print the number.
var (
	mysqlRolledBack = regexp.MustCompile(`(?i)\berror (1213|3101)\b`)
	mysqlAgain      = regexp.MustCompile(`(?i)\berror (1213|3101|1020|1205)\b`)
)

// again reports whether trying once more may help. If committing, err comes from COMMIT, and again returns true only if
// nothing was committed. If that is unknown, the block is a gap.
func (d Dialect) again(err error, committing bool) bool {
	if errors.Is(err, driver.ErrBadConn) {
		return !committing
	}
	switch d {
	case PostgreSQL:
		var state interface{ SQLState() string } // pgx's errors and lib/pq's have it
		return errors.As(err, &state) && slices.Contains(postgresAgain, state.SQLState())
	case MySQL:
		if committing {
			return mysqlRolledBack.MatchString(err.Error())
		}
		return mysqlAgain.MatchString(err.Error())
	default:
		// SQLite's own words are the same in every driver: "database is locked", "database table is locked".
		return strings.Contains(err.Error(), "is locked")
	}
}

// otherShape are MySQL's errors for a column or a key that is not there, and SQLite's.
var otherShape = regexp.MustCompile(`(?i)\berror (1054|1176)\b|no column named|no such column|` +
	`ON CONFLICT clause does not match`)

// outdated reports whether err means that the table lacks a column or its key.
func (d Dialect) outdated(err error) bool {
	var state interface{ SQLState() string }
	if d == PostgreSQL {
		return errors.As(err, &state) && slices.Contains([]string{"42703", "42P10"}, state.SQLState())
	}
	return otherShape.MatchString(err.Error())
}

// keepSQLite makes SQLite keep what it commits on this connection, until restore is called. It fails if SQLite cannot.
// No transaction may have begun.
func keepSQLite(ctx context.Context, c *sql.Conn) (restore func(), err error) {
	var file, journal string
	var synchronous int
	for _, q := range []struct {
		query string
		to    any
	}{
		{"SELECT coalesce(max(file), '') FROM pragma_database_list WHERE name = 'main'", &file},
		{"PRAGMA main.journal_mode", &journal},
		{"PRAGMA main.synchronous", &synchronous},
	} {
		if err := c.QueryRowContext(ctx, q.query).Scan(q.to); err != nil {
			return nil, err
		}
	}
	// Every connection to :memory: has its own database, and would set the same block aside again.
	if file == "" {
		return nil, lossy("it is in memory or temporary")
	}
	if slices.Contains([]string{"off", "memory"}, journal) {
		return nil, lossy("journal_mode is " + journal)
	}
	// Below FULL, a power cut loses what was committed last; with FULL it can too, unless there is a WAL.
	const extra = 3
	if synchronous == extra {
		return func() {}, nil
	}
	if _, err := c.ExecContext(ctx, "PRAGMA main.synchronous = EXTRA"); err != nil {
		return nil, err
	}
	return func() {
		// If this fails, the connection is slower and no less safe.
		_, _ = c.ExecContext(context.WithoutCancel(ctx), fmt.Sprintf("PRAGMA main.synchronous = %d", synchronous))
	}, nil
}

// hurrySQLite makes SQLite give up waiting for a lock well before ctx ends, until restore is called. Some drivers do
// not interrupt that wait, and SQLite counts the sleeps it asked for, not how long they took. If the wait outlasted
// ctx, the error would not name the lock.
func hurrySQLite(ctx context.Context, c *sql.Conn) (restore func(), err error) {
	end, ok := ctx.Deadline()
	if !ok {
		return func() {}, nil
	}
	var usual int64 // in milliseconds
	if err := c.QueryRowContext(ctx, "PRAGMA busy_timeout").Scan(&usual); err != nil {
		return nil, err
	}
	left := max(0, time.Until(end)/2).Milliseconds()
	if usual <= left {
		return func() {}, nil
	}
	set := func(ctx context.Context, value int64) error {
		_, err := c.ExecContext(ctx, fmt.Sprintf("PRAGMA busy_timeout = %d", value))
		if err != nil { // it may have been set all the same, and whoever uses the connection next would wait too briefly
			_ = c.Raw(func(any) error { return driver.ErrBadConn }) // it isn't used again
		}
		return err
	}
	if err := set(ctx, left); err != nil {
		return nil, err
	}
	return func() { _ = set(context.WithoutCancel(ctx), usual) }, nil
}

func lossy(why string) error {
	return errors.New("the database can lose what it commits: " + why)
}
