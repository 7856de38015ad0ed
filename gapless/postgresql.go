package gapless

import "strings"

const (
	// advisoryKey is the key of an advisory lock. Advisory locks are separate for each database. The OID of the table
	// makes the key different for each schema and table name.
	advisoryKey = "({key}::bigint # '{table}'::regclass::oid::bigint)"

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
	// CREATE TABLE IF NOT EXISTS checks only the first schema of search_path. If the table is in a later schema, it would
	// create a second table, which hides the first one.
	exists: `SELECT to_regclass('{this}') IS NOT NULL`,
	flaw: `SELECT CASE relpersistence WHEN 'p' THEN '-' ELSE 'it is unlogged or temporary' END
			FROM pg_catalog.pg_class WHERE oid = '{this}'::regclass`,
	quote: `"`,
	// encode is needed because pgx cannot read bytea in its simple protocol if bytea_output is escape. It changes
	// nothing, because all marks, calendars and labels are ASCII.
	text: [2]string{"encode(", ", 'escape')"},
	// now() would return the start of the transaction. This function returns the current time. In RETURNING, it is called
	// after the wait for the row's lock.
	now: "floor(extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
	// At SERIALIZABLE, this UPDATE is not used, because PostgreSQL may read all rows of a small table for it, and would
	// then report a conflict with transactions of other types.
	update: strings.Replace(update, "WHERE", "WHERE "+notSerializable+" AND", 1),
	upsert: upsert{read: `INSERT INTO {table} AS c (series, period, mark, previous, last[, dated])
			VALUES ({series}::bytea, {period}::bytea, {mark}::bytea, 0, {first}::bigint[, {dated}::integer])
			ON CONFLICT (series, period) DO UPDATE
			SET mark = CASE c.last WHEN 0 THEN {mark}::bytea ELSE c.mark END, previous = c.last,[
				dated_before = c.dated, dated = {dated}::integer,]
				last = GREATEST(c.last + {n}::bigint, CASE c.last WHEN 0 THEN {first}::bigint ELSE {minimum}::bigint END)
			RETURNING c.last, c.previous, {text}c.mark{/text}, c.closed[, c.dated_before], {now}`},
	find: "SELECT {text}calendar{/text}, closed " + fromSeries + " FOR SHARE",
	newSeriesRow: `INSERT INTO {series_table} (series, calendar) VALUES ({series}::bytea, {calendar}::bytea)
			ON CONFLICT DO NOTHING`,
	lockSeriesRow: upsert{read: `INSERT INTO {series_table} AS g (series, calendar)
			VALUES ({series}::bytea, {calendar}::bytea)
			ON CONFLICT (series) DO UPDATE SET calendar = g.calendar RETURNING {text}g.calendar{/text}, g.closed, {now}`},
	lock: "SELECT pg_advisory_xact_lock" + advisoryKey,
	// At SERIALIZABLE, the statement find must not be used, because it would conflict with transactions that begin other
	// series.
	lockShared: "SELECT " + notSerializable + " FROM pg_advisory_xact_lock_shared" + advisoryKey +
		" WHERE {required}::bigint = 1 OR " + notSerializable,
	setEnd:    strings.ReplaceAll(setEnd, "{end}", "{end}::bigint"),
	setClosed: strings.ReplaceAll(setClosed, "{end}", "{end}::bigint"),
	level:     "SELECT current_setting('transaction_isolation'), {now}",
}
