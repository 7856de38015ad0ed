package sqlledger

import "strings"

// statements contains the statements of one dialect. In their texts, {table} stands for the quoted table, {name} for
// its name, and {in} for an expression with its schema. {none} stands for the literal of an empty period, which the row
// of a series has. Other names in braces are arguments; see the type arguments.
//
// Every reservation locks the row of the series first, and then the row of the period. So reservations of one series
// with different calendars run one after another, whatever their periods are, and cannot deadlock.
type statements struct {
	schema string
	quote  string // quotation mark around an identifier
	keys   string // key columns of a row in hexadecimal
	empty  string // literal for an empty value of the type of the key columns
	begin  string // statement that begins a transaction
	ago    string // expression for the instant {seconds} ago

	// upsert is executed before read. It is empty if read does everything.
	upsert query

	// read returns five values: the sequence before the block; the reason why a crash could lose the block, or NULL; the
	// schema of the table; the calendar stored for the series; and the print mark stored for the period. The last two are
	// in hexadecimal.
	read query

	// The following statements are used if read cannot return everything. verify returns the last sequence of the period,
	// if the rows of the period and of the series have the expected settings. show returns the CREATE statement of the
	// table.
	verify, show query

	check, old, remove query // set by forTable
}

// check fails if the table lacks the column settings, which earlier versions did not have.
const check = `SELECT settings FROM {table} LIMIT 0`

// altered is the error message if a row differs from what the statement wrote.
const altered = "a trigger or a rule changes the written row"

var dialects = map[Dialect]statements{
	PostgreSQL: {
		schema: PostgreSQLSchema,
		quote:  `"`,
		keys:   "encode(series, 'hex'), encode(period, 'hex')",
		empty:  "''::bytea",
		// At a stricter isolation level, which can be the database's default, a transaction that has waited for a row can
		// fail.
		begin: "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE",
		ago:   "now() - {seconds}::bigint * interval '1 second'",
		// The row of the period is selected from s, so the row of the series is written first. set_config has an effect until
		// the end of this transaction, including its COMMIT. The subquery with max(o.last) sees the data that was committed
		// before the statement began. Since then, the row's last sequence can only have grown, unless a trigger has lowered
		// it. The schema pg_catalog is written out, because a temporary table named pg_class would otherwise hide the
		// catalog.
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
		empty:  "X''", // if MariaDB's sql_mode contains EMPTY_STRING_IS_NULL, '' becomes NULL
		// The isolation level is not READ COMMITTED, because servers with statement-based replication reject writes at
		// that level.
		begin: "START TRANSACTION READ WRITE",
		ago:   "UTC_TIMESTAMP(6) - INTERVAL {seconds} SECOND",
		// LAST_INSERT_ID(x) returns x, and stores it. LAST_INSERT_ID() in the query read returns it later. The stored value
		// is the sequence before the block, or 0 for a new row. It is unsigned, but is cast to a signed value, because only a
		// signed sum always causes an error if it is too large for the column.
		upsert: query{text: `INSERT INTO {table} (series, period, settings, last, reserved_at)
			VALUES ({series}, {none}, {calendar}, 0, UTC_TIMESTAMP(6)),
				({series}, {period}, {print}, {first} + LAST_INSERT_ID(0), UTC_TIMESTAMP(6))
			ON DUPLICATE KEY UPDATE reserved_at = UTC_TIMESTAMP(6),
				last = IF(period = {none}, 0, CAST(LAST_INSERT_ID(GREATEST(last, {above})) AS SIGNED) + {n})`},
		// If there is a binary log, the recovery after a crash rolls back transactions that are missing in the log, even if
		// InnoDB has them. So the log must be on disk, too. If the table has an AUTO_INCREMENT column, LAST_INSERT_ID() may
		// be the value of that column, so it is not compared.
		read: query{text: `SELECT r.below, CASE
				WHEN NOT EXISTS (SELECT 1 FROM information_schema.tables
					WHERE table_schema = {in} AND table_name = '{name}' AND engine = 'InnoDB')
					THEN 'the table is temporary or does not use InnoDB'
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
		// In all versions, this statement shows whether a temporary table hides the table that is listed in
		// information_schema; no other statement does. It needs a right to the whole table. Rights to columns are not enough.
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
		// RETURNING does not see the changes of AFTER triggers.
		verify: query{text: `SELECT last FROM {table} WHERE series = {series} AND period = {period} AND settings = {print}
			AND EXISTS (SELECT 1 FROM {table} WHERE series = {series} AND period = {none} AND settings = {calendar})`},
	},
}

// forTable returns the statements of d for a Ledger with the given table name.
func (d Dialect) forTable(name string) (s statements, err error) {
	t, err := d.tableName(name)
	if err != nil {
		return s, err
	}
	s = dialects[d]
	s.schema = strings.Replace(s.schema, defaultTable, t.quoted, 1)
	s.check, s.old, s.remove = query{text: check}, query{text: old}, query{text: remove}
	for _, q := range []*query{&s.upsert, &s.read, &s.verify, &s.show, &s.check, &s.old, &s.remove} {
		text := strings.NewReplacer("{ago}", s.ago, "{keys}", s.keys).Replace(q.text)
		text = strings.NewReplacer("{table}", t.quoted, "{name}", t.name, "{in}", t.in, "{none}", s.empty).Replace(text)
		*q = d.query(text)
	}
	return s, nil
}
