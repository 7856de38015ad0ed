package sqlledger

import "strings"

// statements are the statements of one dialect. In them, {table} stands for the quoted table, {name} and {in} for its
// name and schema as values, and {none} for the empty period of a series' own row, whose literal differs. Other names
// in braces are arguments; see arguments.
//
// Every reservation locks its series' row first, and then its period's row. So reservations with different calendars
// run one after another, whatever their periods, and cannot deadlock.
type statements struct {
	schema string
	quote  string // quotation mark around an identifier
	keys   string // a row's key in hexadecimal
	empty  string // an empty value of the columns' type
	begin  string
	ago    string // instant {seconds} ago

	// upsert is executed before read. It is empty if read does all the work.
	upsert query

	// read returns the sequence before the block; the setting that could let the block be lost in a crash, or NULL; the
	// table's schema; the calendar kept for the series, and the print mark kept for the period, both in hexadecimal.
	read query

	// These are used if read cannot return everything: kept returns the last sequence of the period, if its row and the
	// row of its series have the settings; show returns the table's CREATE statement.
	kept, show query

	check, old, remove query // forTable fills them in
}

// check fails if the table lacks a column that earlier versions did not have.
const check = `SELECT settings FROM {table} LIMIT 0`

// altered is the message if a row differs from what the statement wrote.
const altered = "a trigger or a rule changes what is written"

var dialects = map[Dialect]statements{
	PostgreSQL: {
		schema: PostgreSQLSchema,
		quote:  `"`,
		keys:   "encode(series, 'hex'), encode(period, 'hex')",
		empty:  "''::bytea",
		// Under a stricter isolation, which may be the database's default, transactions that wait for a row would fail.
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
				(SELECT encode(s.settings, 'hex') FROM s), encode(l.settings, 'hex')`},
	},
	MySQL: {
		schema: MySQLSchema,
		quote:  "`",
		keys:   "hex(series), hex(period)",
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
				END, {in}, hex(s.calendar), hex(r.print)
			FROM (SELECT max(settings) AS calendar, count(*) AS found FROM {table}
				WHERE series = {series} AND period = {none} HAVING count(*) > 0) s,
				(SELECT max(last) - {n} AS below, max(settings) AS print, count(*) AS found FROM {table}
				WHERE series = {series} AND period = {period} HAVING count(*) > 0) r`},
		// In all versions, only this shows that a temporary table hides the one listed in information_schema. It needs
		// a right to the whole table: a right to columns is not enough.
		show: query{text: "SHOW CREATE TABLE {table}"},
	},
	SQLite: {
		schema: SQLiteSchema,
		quote:  `"`,
		keys:   "hex(series), hex(period)",
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
				(SELECT hex(settings) FROM {table} WHERE series = {series} AND period = {none}), hex(settings)`},
		// RETURNING does not see what AFTER triggers do.
		kept: query{text: `SELECT last FROM {table} WHERE series = {series} AND period = {period} AND settings = {print}
			AND EXISTS (SELECT 1 FROM {table} WHERE series = {series} AND period = {none} AND settings = {calendar})`},
	},
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
		text := strings.NewReplacer("{ago}", s.ago, "{keys}", s.keys).Replace(q.text)
		text = strings.NewReplacer("{table}", t.quoted, "{name}", t.name, "{in}", t.in, "{none}", s.empty).Replace(text)
		*q = d.query(text)
	}
	return s, nil
}
