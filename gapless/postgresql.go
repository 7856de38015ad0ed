package gapless

import "strings"

const (
	// lockKeyOf is the key of an advisory lock. Advisory locks are separate for each database. The OID of the table
	// makes the key different for each schema and table name.
	lockKeyOf = "({key}::bigint # '{table}'::regclass::oid::bigint)"

	notSerializable = "current_setting('transaction_isolation') <> 'serializable'"
)

var postgreSQL = statements{
	create: [2]string{`CREATE TABLE IF NOT EXISTS {this} (
	series   bytea  NOT NULL,
	period   bytea  NOT NULL,
	mark     bytea  NOT NULL,
	previous bigint NOT NULL,
	last     bigint NOT NULL,
	closed   bigint,[
	dated        integer,
	dated_before integer,]
	PRIMARY KEY (series, period)
)`, `CREATE TABLE IF NOT EXISTS {this} (
	series   bytea NOT NULL,
	calendar bytea NOT NULL,
	closed   bigint,
	PRIMARY KEY (series)
)`},
	// CREATE TABLE IF NOT EXISTS checks only the first schema of search_path. It would create a table there that hides
	// the table of a later schema.
	exists: `SELECT to_regclass('{this}') IS NOT NULL`,
	flaw: `SELECT CASE relpersistence WHEN 'p' THEN '-' ELSE 'it is unlogged or temporary' END
			FROM pg_catalog.pg_class WHERE oid = '{this}'::regclass`,
	quote: `"`,
	// With bytea_output=escape, pgx cannot read bytea in its simple protocol. All marks, calendars and labels are
	// ASCII.
	text: [2]string{"encode(", ", 'escape')"},
	// now() would return the start of the transaction. This function returns the current time, which is read after the
	// wait for the row's lock in RETURNING.
	now: "floor(extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
	// At SERIALIZABLE, PostgreSQL may scan a small table from end to end for this UPDATE, and would then report a
	// conflict with transactions of other types.
	update: strings.Replace(update, "WHERE", "WHERE "+notSerializable+" AND", 1),
	upsert: upsert{read: `INSERT INTO {table} AS c (series, period, mark, previous, last[, dated])
			VALUES ({series}::bytea, {period}::bytea, {mark}::bytea, 0, {first}::bigint[, {dated}::integer])
			ON CONFLICT (series, period) DO UPDATE
			SET mark = CASE c.last WHEN 0 THEN {mark}::bytea ELSE c.mark END, previous = c.last,[
				dated_before = c.dated, dated = {dated}::integer,]
				last = GREATEST(c.last + {n}::bigint, CASE c.last WHEN 0 THEN {first}::bigint ELSE {least}::bigint END)
			RETURNING c.last, c.previous, {text}c.mark{/text}, c.closed[, c.dated_before], {now}`},
	find: "SELECT {text}calendar{/text}, closed " + gates + " FOR SHARE",
	newGate: `INSERT INTO {gates} (series, calendar) VALUES ({series}::bytea, {calendar}::bytea)
			ON CONFLICT DO NOTHING`,
	lockGate: upsert{read: `INSERT INTO {gates} AS g (series, calendar) VALUES ({series}::bytea, {calendar}::bytea)
			ON CONFLICT (series) DO UPDATE SET calendar = g.calendar RETURNING {text}g.calendar{/text}, g.closed, {now}`},
	lock: "SELECT pg_advisory_xact_lock" + lockKeyOf,
	// At SERIALIZABLE, the search for the series' row would conflict with transactions that begin other series.
	lockShared: "SELECT " + notSerializable + " FROM pg_advisory_xact_lock_shared" + lockKeyOf +
		" WHERE {required}::bigint = 1 OR " + notSerializable,
	setEnd: strings.ReplaceAll(setEnd, "{end}", "{end}::bigint"),
	mark:   strings.ReplaceAll(mark, "{end}", "{end}::bigint"),
	level:  "SELECT current_setting('transaction_isolation'), {now}",
}
