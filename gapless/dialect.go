package gapless

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Dialect is the kind of database that holds the table.
type Dialect int

const (
	PostgreSQL Dialect = iota + 1 // 9.5 or later
	MySQL                         // MySQL 5.7 or later, MariaDB 10.2 or later
	SQLite                        // 3.35 or later
)

// statements are those of a dialect. In them, {table} stands for the quoted table, {name} for its name, and {now} for a reading
// of the clock.
type statements struct {
	schema string
	quote  string // quotation mark around an identifier
	now    string

	// update adds to a row of this mark that is not closed, which is the usual case, for less than an upsert costs. It takes n,
	// series, period, mark, above and returns last and now, or nothing where an upsert is needed. It is empty in MySQL, where
	// everyone who updates a missing row locks the gap, and then nobody can fill it.
	update string

	// upsert takes series, period, mark, above+n, mark, n, above+n. Since max(last, above)+n = max(last+n, above+n), this is all
	// it needs. A row from which nothing was taken has no mark yet. upsert is empty if read does its work too. In MySQL, it takes
	// checked before the second mark: 1 if it is known that there is a transaction, else 0. With 0 it does nothing outside a
	// transaction, and nothing at all if the server cannot tell.
	upsert string

	// read returns last, previous, mark, closed and now. It takes the arguments of upsert or, after an upsert, series, period, checked,
	// and returns nothing if upsert did nothing.
	read string

	// gate takes series, period. It returns mark and closed of the series' gate or, if that was deleted, of another period from
	// which numbers were taken. It locks that row in share mode, except in MySQL, where a locking read of what is missing locks
	// the gap. At PostgreSQL's SERIALIZABLE the mark is gateUnread.
	gate string

	// share takes series, period and returns mark and closed of a row, which it locks in share mode. It is empty except in MySQL.
	share string

	// other takes series, period. It returns the mark of another period from which numbers were taken.
	other string

	// closed takes series, period and returns mark and closed of a row.
	closed string

	// close closes the periods of a series up to label, and opens those from there to upper. It takes label, end, series, upper,
	// label. The gate gets the end, too.
	close string

	// history takes series, period. It returns period, mark and last of the period before, if numbers were taken from it.
	history string

	// last takes series, period, series, period, series, period. It returns what other returns and the period's mark and last,
	// or NULL for what is missing.
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
	closing = "UPDATE {table} SET closed = CASE WHEN period <= ? THEN ? END WHERE series = ? AND period <= ? " +
		"AND (length(period) = 0 OR (closed IS NULL) = (period <= ?))"
	history = "SELECT period, mark, last FROM {table} " +
		"WHERE series = ? AND period < ? AND length(period) > 0 AND last > 0 ORDER BY period DESC LIMIT 1"
	ask   = "SELECT {now}"
	level = "SELECT '', {now}"

	notSerializable = "WHERE current_setting('transaction_isolation') <> 'serializable' AND" // PostgreSQL's

	probe = "SELECT series, period, mark, previous, last, closed FROM {table} WHERE 1 = 0"
)

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
				last = GREATEST(c.last + ?::bigint, ?::bigint)
			RETURNING c.last, c.previous, c.mark, c.closed, {now}`,
		level: "SELECT current_setting('transaction_isolation'), {now}",
		close: strings.Replace(closing, "THEN ?", "THEN ?::bigint", 1),
		// At SERIALIZABLE, a search for the gate conflicts with those who begin other series or periods.
		gate: "SELECT mark, closed FROM (" + strings.Replace(gate, "WHERE", notSerializable, 1) + " FOR SHARE) AS g " +
			"UNION ALL SELECT '" + gateUnread + "'::bytea, NULL WHERE current_setting('transaction_isolation') = 'serializable'",
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
		// Assignments are made from left to right: last is the old one until it is set. LAST_INSERT_ID stays as it is, since the
		// table has no AUTO_INCREMENT.
		upsert: `INSERT INTO {table} (series, period, mark, previous, last) SELECT ?, ?, ?, 0, ? FROM DUAL WHERE ` +
			inTransaction + `
			ON DUPLICATE KEY UPDATE mark = IF(last = 0, ?, mark), previous = last, last = GREATEST(last + ?, ?)`,
		// Without FOR UPDATE, REPEATABLE READ would show the row as it was when the transaction began to read.
		read: `SELECT last, previous, mark, closed, {now} FROM {table} WHERE series = ? AND period = ?
			AND ` + inTransaction + ` FOR UPDATE`,
		share: closed + " LOCK IN SHARE MODE",
		// Read backwards, the range does not lock the first row after it, which may be that of the current period.
		close: closing + " ORDER BY series DESC, period DESC",
		tells: "SELECT /*M! 1 + */ 0",
		flaw: `SELECT CASE engine WHEN 'InnoDB' THEN '-' ELSE concat('its engine is ', coalesce(engine, 'none')) END
			FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = '{name}'`,
	},
	SQLite: {
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
			SET mark = CASE c.last WHEN 0 THEN ? ELSE c.mark END, previous = c.last, last = max(c.last + ?, ?)
			RETURNING last, previous, mark, closed, {now}`,
	},
}

// A reading is the time by the database's clock: Unix microseconds or, in SQLite, which counts milliseconds, a Julian day.
type reading struct{ time.Time }

// Scan takes a column that {now} filled.
func (r *reading) Scan(column any) error {
	switch now := column.(type) {
	case float64:
		const epoch = 210_866_760_000_000 // milliseconds from Julian day 0 to 1970
		r.Time = time.UnixMilli(int64(math.Round(now*86_400_000)) - epoch)
	case int64:
		r.Time = time.UnixMicro(now)
	case []byte: // some drivers of MySQL pass on the server's text
		micros, err := strconv.ParseInt(string(now), 10, 64)
		if err != nil {
			return err
		}
		r.Time = time.UnixMicro(micros)
	default:
		return fmt.Errorf("the database's clock is a %T", column)
	}
	return nil
}

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,62}$`)

// forTable returns the statements of d for a table.
func (d Dialect) forTable(name string) (s statements, err error) {
	s, ok := dialects[d]
	if !ok {
		return s, fmt.Errorf("gapless: there is no dialect %d; allowed are PostgreSQL, MySQL and SQLite", int(d))
	}
	if !identifier.MatchString(name) {
		return s, fmt.Errorf("gapless: table %.80q: allowed are 1 to 63 ASCII letters, digits and _, no digit first", name)
	}
	s.undo, s.other, s.closed, s.history, s.last, s.ask, s.probe = undo, other, closed, history, last, ask, probe
	s.gate, s.close, s.level = cmp.Or(s.gate, gate), cmp.Or(s.close, closing), cmp.Or(s.level, level)
	replace := strings.NewReplacer("{table}", s.quote+name+s.quote, "{name}", name, "{now}", s.now)
	for _, query := range []*string{&s.schema, &s.update, &s.upsert, &s.read, &s.undo, &s.gate, &s.share, &s.other,
		&s.closed, &s.close, &s.history, &s.last, &s.ask, &s.level, &s.exists, &s.probe, &s.flaw} {
		*query = replace.Replace(*query)
		for i := 1; d == PostgreSQL && strings.Contains(*query, "?"); i++ {
			*query = strings.Replace(*query, "?", "$"+strconv.Itoa(i), 1)
		}
	}
	return s, nil
}

// bind returns a statement and its arguments as they are sent. Each argument is a []byte, an int64 or nil. Drivers of MySQL prepare a
// statement that has arguments, which takes another round trip. So for MySQL they become literals that need no escaping.
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

// mysqlAgain is a deadlock and a wait for a lock that took too long. Drivers share no type for errors, but all print the number.
var mysqlAgain = regexp.MustCompile(`(?i)\berror (1213|1205)\b`)

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
