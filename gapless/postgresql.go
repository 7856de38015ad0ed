package gapless

import "strings"

const (
	// lockKeyOf is the key of the advisory locks, which each database has for itself. The table's OID stands for its
	// schema and name.
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
	// IF NOT EXISTS looks into the first schema of search_path only, and would hide the table of a later one.
	exists: `SELECT to_regclass('{this}') IS NOT NULL`,
	flaw: `SELECT CASE relpersistence WHEN 'p' THEN '-' ELSE 'it is unlogged or temporary' END
			FROM pg_catalog.pg_class WHERE oid = '{this}'::regclass`,
	quote: `"`,
	// With bytea_output=escape, pgx cannot read bytes in its simple protocol. Marks, calendars and labels are ASCII.
	text: [2]string{"encode(", ", 'escape')"},
	// Not now(), which is the start of the transaction. In RETURNING, it is read after the wait for the row's lock.
	now: "floor(extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
	// At SERIALIZABLE, an update that reads a small table from end to end conflicts with those of other types.
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
	// At SERIALIZABLE, a search for the gate conflicts with those who begin other series.
	lockShared: "SELECT " + notSerializable + " FROM pg_advisory_xact_lock_shared" + lockKeyOf +
		" WHERE {required}::bigint = 1 OR " + notSerializable,
	setEnd: strings.ReplaceAll(setEnd, "{end}", "{end}::bigint"),
	mark:   strings.ReplaceAll(mark, "{end}", "{end}::bigint"),
	level:  "SELECT current_setting('transaction_isolation'), {now}",
}
