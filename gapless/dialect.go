package gapless

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A Dialect is the kind of database that holds the table.
type Dialect int

const (
	PostgreSQL Dialect = iota + 1 // 9.5 or later
	MySQL                         // MySQL 5.7 or later, MariaDB 10.2 or later
	SQLite                        // 3.35 or later
)

// statements are those of a dialect. In them, {table} stands for the quoted table, {name} for its name, and {now} for a
// reading of the clock.
type statements struct {
	schema string
	quote  string // quotation mark around an identifier
	now    string

	// update adds to a row of this mark that is not closed, which is the usual case, for less than an upsert costs. It
	// takes n, series, period, mark, above and returns last and now, or nothing where an upsert is needed. It is empty
	// in MySQL, where everyone who updates a missing row locks the gap, and then nobody can fill it.
	update string

	// upsert takes series, period, mark, first, mark, n, first, least. A new row and one from which nothing was taken
	// get first as their last; any other gets last+n or, if that is greater, least. A row from which nothing was taken
	// has no mark yet. upsert is empty if read does its work too. In MySQL, it takes checked before the second mark: 1
	// if it is known that there is a transaction, else 0. With 0 it does nothing outside a transaction, and nothing at
	// all if the server cannot tell.
	upsert string

	// read returns last, previous, mark, closed and now. It takes the arguments of upsert or, after an upsert, series,
	// period, checked, and returns nothing if upsert did nothing.
	read string

	// gate takes series, period. It returns mark and closed of the series' gate or, if that was deleted, of another
	// period from which numbers were taken. It locks that row in share mode, except in MySQL, where a locking read of
	// what is missing locks the gap. At PostgreSQL's SERIALIZABLE the mark is gateUnread.
	gate string

	// newGate takes series, period, mark and inserts the gate. If others do the same, it waits for them, and leaves theirs
	// alone: who then locks it in share mode is in nobody's way. It is empty except in PostgreSQL.
	newGate string

	// share takes series, period and returns mark and closed of a row, which it locks in share mode. It is empty except
	// in MySQL.
	share string

	// other takes series, period. It returns the mark of another period from which numbers were taken.
	other string

	// closed takes series, period and returns mark and closed of a row.
	closed string

	// lock takes a hash of series and acquires the advisory lock of the series until the transaction ends. lockShared
	// takes the hash and whether the lock is required at SERIALIZABLE, too, 1 or 0. It acquires the lock in shared mode
	// and returns whether gate may be used, or returns nothing and acquires nothing. Both are empty except in
	// PostgreSQL, where those who lock a row in share mode pass whoever waits to lock it exclusively.
	lock, lockShared string

	// setEnd takes end, series, period and sets closed in a row: the gate's.
	setEnd string

	// mark takes end, series, lower, upper, end. It sets closed in the rows that change. It is empty in MySQL, which
	// does the same with the following.
	mark string

	// lockRows, seen, present and list take series, lower, upper, end; lockRows then takes series. lockRows waits for
	// the rows that change and locks them, by their keys. seen returns how many they are and the sum of their
	// sequences, as the transaction's snapshot has them, and present the same as they are now, without those that
	// others have locked. list returns the first labels of them.
	lockRows, seen, present, list string

	markRows string // takes labels, series, end and sets closed in these rows

	// history takes series, period and a limit. It returns period, mark and last of earlier periods from which numbers
	// were taken, newest first.
	history string

	// last takes series, period, series, period, series, period. It returns what other returns and the period's mark
	// and last, or NULL for what is missing.
	last string

	undo   string // takes series, period
	tells  string // returns whether the server can tell that it is outside a transaction; empty except in MySQL
	ask    string // returns now
	level  string // returns the level of isolation in PostgreSQL, and now
	exists string // returns whether the table exists in any schema; empty if schema looks in the same places
	probe  string // fails if the table lacks a column
	flaw   string // returns why the table is unfit, or "-" if it is fit; empty if nothing can be wrong
}

const (
	// After waiting for the row's lock, a transaction sees the row as it is then.
	update = "UPDATE {table} SET previous = last, last = last + ? " +
		"WHERE series = ? AND period = ? AND mark = ? AND closed IS NULL AND last > 0 AND last >= ? RETURNING last, {now}"
	undo  = "UPDATE {table} SET last = previous WHERE series = ? AND period = ?"
	gate  = "SELECT mark, closed FROM {table} WHERE series = ? AND period <> ? AND last > 0 ORDER BY period LIMIT 1"
	other = "SELECT mark FROM {table} WHERE series = ? AND period <> ? AND last > 0 ORDER BY period LIMIT 1"
	last  = "SELECT (" + other + "), (SELECT mark FROM {table} WHERE series = ? AND period = ?), " +
		"(SELECT last FROM {table} WHERE series = ? AND period = ?)"
	closed = "SELECT mark, closed FROM {table} WHERE series = ? AND period = ?"
	// Labels of one calendar sort as their periods do, and the gate's comes before all.
	changing = "series = ? AND period > ? AND period <= ? AND (closed IS NULL) = (? IS NOT NULL) " +
		"AND (last > 0 OR closed IS NOT NULL)" // whoever takes the first number of a row asks the gate
	mark    = "UPDATE {table} SET closed = ? WHERE " + changing
	setEnd  = "UPDATE {table} SET closed = ? WHERE series = ? AND period = ?"
	history = "SELECT period, mark, last FROM {table} " +
		"WHERE series = ? AND period < ? AND length(period) > 0 AND last > 0 ORDER BY period DESC LIMIT ?"
	ask   = "SELECT {now}"
	level = "SELECT '-', {now}" // not '', which MariaDB may read as NULL

	// The key of PostgreSQL's advisory locks, which each database has for itself. The table's OID stands for its schema
	// and name.
	lockKeyOf = "(?::bigint # '{table}'::regclass::oid::bigint)"

	notSerializable = "WHERE current_setting('transaction_isolation') <> 'serializable' AND" // PostgreSQL's

	probe = "SELECT series, period, mark, previous, last, closed FROM {table} WHERE 1 = 0"
)

const noLimit = "LIMIT 18446744073709551615" // MySQL's greatest

// inTransaction takes checked. MySQL, which has no such variable, reads MariaDB's part as a comment.
const inTransaction = "(? = 1 /*M! OR @@in_transaction = 1 */)"

var dialects = map[Dialect]statements{
	PostgreSQL: {
		schema: `CREATE TABLE IF NOT EXISTS {table} (
	series   bytea  NOT NULL,
	period   bytea  NOT NULL,
	mark     bytea  NOT NULL,
	previous bigint NOT NULL,
	last     bigint NOT NULL,
	closed   bigint,
	PRIMARY KEY (series, period)
)`,
		quote: `"`,
		// Not now(), which is the start of the transaction. In RETURNING, it is read after the wait for the row's lock.
		now: "floor(extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
		// At SERIALIZABLE, an update that reads a small table from end to end conflicts with those of other types.
		update: strings.Replace(update, "WHERE", notSerializable, 1),
		read: `INSERT INTO {table} AS c (series, period, mark, previous, last)
			VALUES (?::bytea, ?::bytea, ?::bytea, 0, ?::bigint)
			ON CONFLICT (series, period) DO UPDATE
			SET mark = CASE c.last WHEN 0 THEN ?::bytea ELSE c.mark END, previous = c.last,
				last = GREATEST(c.last + ?::bigint, CASE c.last WHEN 0 THEN ?::bigint ELSE ?::bigint END)
			RETURNING c.last, c.previous, c.mark, c.closed, {now}`,
		level: "SELECT current_setting('transaction_isolation'), {now}",
		lock:  "SELECT pg_advisory_xact_lock" + lockKeyOf,
		// At SERIALIZABLE, a search for the gate conflicts with those who begin other series or periods.
		lockShared: "SELECT current_setting('transaction_isolation') <> 'serializable' FROM pg_advisory_xact_lock_shared" +
			lockKeyOf +
			" WHERE ?::bigint = 1 OR current_setting('transaction_isolation') <> 'serializable'",
		gate: gate + " FOR SHARE",
		newGate: `INSERT INTO {table} (series, period, mark, previous, last) VALUES (?, ?, ?, 0, 1)
			ON CONFLICT DO NOTHING`,
		mark:   strings.NewReplacer("= ? WHERE", "= ?::bigint WHERE", "? IS", "?::bigint IS").Replace(mark),
		setEnd: strings.Replace(setEnd, "?", "?::bigint", 1),
		// IF NOT EXISTS looks into the first schema of search_path only, and would hide the table of a later one.
		exists: `SELECT to_regclass('{table}') IS NOT NULL`,
		flaw: `SELECT CASE relpersistence WHEN 'p' THEN '-' ELSE 'it is unlogged or temporary' END
			FROM pg_catalog.pg_class WHERE oid = '{table}'::regclass`,
	},
	MySQL: {
		schema: `CREATE TABLE IF NOT EXISTS {table} (
	series   varbinary(255) NOT NULL,
	period   varbinary(64)  NOT NULL,
	mark     varbinary(64)  NOT NULL,
	previous bigint         NOT NULL,
	last     bigint         NOT NULL,
	closed   bigint,
	PRIMARY KEY (series, period)
) ENGINE = InnoDB`,
		quote: "`",
		// This is the start of the statement, which follows the wait for the row's lock.
		now: "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))",
		// Assignments are made from left to right: last is the old one until it is set. LAST_INSERT_ID stays as it is,
		// since the table has no AUTO_INCREMENT.
		upsert: `INSERT INTO {table} (series, period, mark, previous, last) SELECT ?, ?, ?, 0, ? FROM DUAL WHERE ` +
			inTransaction + `
			ON DUPLICATE KEY UPDATE mark = IF(last = 0, ?, mark), previous = last,
				last = GREATEST(last + ?, IF(last = 0, ?, ?))`,
		// Without FOR UPDATE, REPEATABLE READ would show the row as it was when the transaction began to read.
		read: `SELECT last, previous, mark, closed, {now} FROM {table} WHERE series = ? AND period = ?
			AND ` + inTransaction + ` FOR UPDATE`,
		share: closed + " LOCK IN SHARE MODE",
		// With this order of joining, each row is found by its whole key. The limits keep the order of the inner
		// queries.
		lockRows: "SELECT count(*) FROM (SELECT period AS label FROM {table} WHERE " + changing + " ORDER BY period " +
			noLimit +
			") AS r STRAIGHT_JOIN {table} AS t FORCE INDEX (PRIMARY) ON t.series = ? AND t.period = r.label FOR UPDATE",
		seen: "SELECT concat_ws(' ', count(*), sum(last)) FROM {table} WHERE " + changing,
		// Read backwards, the range ends at a row of the series, such as its gate. The row behind it may be in use.
		present: "SELECT concat_ws(' ', count(*), sum(last)) FROM (SELECT last FROM {table} FORCE INDEX (PRIMARY) WHERE " +
			changing +
			" ORDER BY series DESC, period DESC " + noLimit + " FOR UPDATE SKIP LOCKED) AS r",
		// 64 labels fit into MySQL's default group_concat_max_len.
		list: "SELECT group_concat(period ORDER BY period) FROM (SELECT period FROM {table} WHERE " + changing +
			" ORDER BY period LIMIT 64) AS r",
		markRows: "UPDATE (?) AS r STRAIGHT_JOIN {table} AS t FORCE INDEX (PRIMARY) ON t.series = ? AND t.period = r.label " +
			"SET t.closed = ?",
		tells: "SELECT /*M! 1 + */ 0",
		flaw: `SELECT CASE engine WHEN 'InnoDB' THEN '-' ELSE concat('its engine is ', coalesce(engine, 'none')) END
			FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = '{name}'`,
	},
	SQLite: {
		mark: mark,
		schema: `CREATE TABLE IF NOT EXISTS {table} (
	series   BLOB    NOT NULL,
	period   BLOB    NOT NULL,
	mark     BLOB    NOT NULL,
	previous INTEGER NOT NULL,
	last     INTEGER NOT NULL,
	closed   INTEGER,
	PRIMARY KEY (series, period)
) WITHOUT ROWID`,
		quote:  `"`,
		now:    "julianday('now')", // a short one: drivers parse a statement each time they run it
		update: update,
		read: `INSERT INTO {table} AS c (series, period, mark, previous, last) VALUES (?, ?, ?, 0, ?)
			ON CONFLICT (series, period) DO UPDATE
			SET mark = CASE c.last WHEN 0 THEN ? ELSE c.mark END, previous = c.last,
				last = max(c.last + ?, CASE c.last WHEN 0 THEN ? ELSE ? END)
			RETURNING last, previous, mark, closed, {now}`,
	},
}

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,62}$`)

// forTable returns the statements of d for a table.
func (d Dialect) forTable(name string) (s statements, err error) {
	s, ok := dialects[d]
	if !ok {
		return s, fmt.Errorf("gapless: there is no dialect %d; want PostgreSQL, MySQL and SQLite", int(d))
	}
	if !identifier.MatchString(name) {
		return s, fmt.Errorf("gapless: table %.80q: want 1 to 63 ASCII letters, digits and _, no digit first", name)
	}
	s.undo, s.other, s.closed, s.history, s.last, s.ask, s.probe = undo, other, closed, history, last, ask, probe
	s.gate, s.level, s.setEnd = cmp.Or(s.gate, gate), cmp.Or(s.level, level), cmp.Or(s.setEnd, setEnd)
	replace := strings.NewReplacer("{table}", s.quote+name+s.quote, "{name}", name, "{now}", s.now)
	for _, query := range []*string{&s.schema, &s.update, &s.upsert, &s.read, &s.undo, &s.gate, &s.newGate,
		&s.share, &s.other, &s.closed, &s.lock, &s.lockShared, &s.setEnd, &s.mark,
		&s.lockRows, &s.seen, &s.present, &s.list, &s.markRows, &s.history, &s.last,
		&s.ask, &s.level, &s.exists, &s.probe, &s.flaw} {
		*query = replace.Replace(*query)
		for i := 1; d == PostgreSQL && strings.Contains(*query, "?"); i++ {
			*query = strings.Replace(*query, "?", "$"+strconv.Itoa(i), 1)
		}
	}
	return s, nil
}

// bind returns a statement and its arguments as they are sent. Each argument is a []byte, an int64, nil or, for MySQL,
// a [][]byte. Drivers of MySQL prepare a statement that has arguments, which takes another round trip. So for MySQL
// they become literals that need no escaping.
func (d Dialect) bind(query string, args ...any) (string, []any) {
	if d != MySQL {
		return query, args
	}
	bound := make([]byte, 0, 512)
	for _, arg := range args {
		before, after, _ := strings.Cut(query, "?")
		bound, query = append(bound, before...), after
		switch v := arg.(type) {
		case []byte:
			bound = append(hex.AppendEncode(append(bound, "x'"...), v), '\'')
		case [][]byte: // a table of labels
			for i, label := range v {
				if i > 0 {
					bound = append(bound, " UNION ALL "...)
				}
				bound = append(hex.AppendEncode(append(bound, "SELECT x'"...), label), "' AS label"...)
			}
		case int64:
			bound = strconv.AppendInt(bound, v, 10)
		case nil:
			bound = append(bound, "NULL"...)
		}
	}
	return string(append(bound, query...)), nil
}

// postgresAgain are the errors that some of several simultaneous CREATE TABLE get in spite of IF NOT EXISTS.
var postgresAgain = []string{"23505", "42P07", "42710"}

// mysqlAgain is a deadlock and a wait for a lock that took too long. Drivers share no type for errors, but all print
// the number.
var mysqlAgain = regexp.MustCompile(`(?i)\berror (1213|1205)\b`)

// syntaxError is the error of a server that does not know SKIP LOCKED.
var syntaxError = regexp.MustCompile(`(?i)\berror 1064\b`)

// recordChanged is MariaDB's error for a row that is newer than the transaction's snapshot.
var recordChanged = regexp.MustCompile(`(?i)\berror 1020\b`)

// noSavepoint is MySQL's error for a savepoint that does not exist.
var noSavepoint = regexp.MustCompile(`(?i)\berror 1305\b`)

// again reports whether creating the table once more may help.
func (d Dialect) again(err error) bool {
	switch d {
	case PostgreSQL:
		var state interface{ SQLState() string } // pgx's errors and lib/pq's have it
		return errors.As(err, &state) && slices.Contains(postgresAgain, state.SQLState())
	case MySQL:
		return mysqlAgain.MatchString(err.Error())
	default:
		// SQLite's own words are the same in every driver: "database is locked", "database table is locked".
		return strings.Contains(err.Error(), "is locked")
	}
}
