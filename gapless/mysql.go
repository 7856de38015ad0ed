package gapless

const (
	noLimit = "LIMIT 18446744073709551615" // the greatest

	// inTransaction is whether there is a transaction. MySQL, which has no such variable, reads MariaDB's part as a
	// comment.
	inTransaction = "({checked} = 1 /*M! OR @@in_transaction = 1 */)"

	// serverKind is a server: each kind reads the comments that are for it.
	serverKind = "/*M! 1 + */ /*M!100500 1 + */ 0"

	// What take inserts, updates and returns.
	insert      = "INSERT INTO {table} (series, period, mark, previous, last[, dated])"
	values      = "SELECT {series}, {period}, {mark}, 0, {first}[, {dated}] FROM DUAL WHERE "
	onDuplicate = " ON DUPLICATE KEY UPDATE mark = IF(last = 0, {mark}, mark), previous = last,[" +
		" dated_before = dated, dated = {dated},] last = GREATEST(last + {n}, IF(last = 0, {first}, {least}))"
	returned = "last, previous, mark, closed[, dated_before], "

	rowsInRange = " FROM {table} FORCE INDEX (PRIMARY) WHERE " + changing
)

// A server is a kind of server for the statements of MySQL, as serverKind returns it. A greater one can do what the
// smaller ones can.
type server int32

const (
	mySQLServer server = iota // only a savepoint shows whether there is a transaction
	mariaDB                   // knows whether there is a transaction
	returning                 // MariaDB 10.5 or later, which returns what it inserts
)

var mySQL = statements{
	create: [2]string{`CREATE TABLE IF NOT EXISTS {this} (
	series   varbinary(255) NOT NULL,
	period   varbinary(64)  NOT NULL,
	mark     varbinary(64)  NOT NULL,
	previous bigint         NOT NULL,
	last     bigint         NOT NULL,
	closed   bigint,[
	dated        integer,
	dated_before integer,]
	PRIMARY KEY (series, period)
) ENGINE = InnoDB`, `CREATE TABLE IF NOT EXISTS {this} (
	series   varbinary(255) NOT NULL,
	calendar varbinary(64)  NOT NULL,
	closed   bigint,
	PRIMARY KEY (series)
) ENGINE = InnoDB`},
	flaw: `SELECT CASE engine WHEN 'InnoDB' THEN '-' ELSE concat('its engine is ', coalesce(engine, 'none')) END
			FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = '{name}'`,
	quote: "`",
	// This is the start of the statement, which follows the wait for the row's lock, unless the statement itself waits.
	now: "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))",
	// Assignments are made from left to right: last is the old one until it is set. LAST_INSERT_ID stays as it is,
	// since the tables have no AUTO_INCREMENT. Without FOR UPDATE, REPEATABLE READ would show the row as it was when
	// the transaction began to read. What only MariaDB 10.5 and later read of returning is a comment for the others: they
	// see a query that finds nothing, so it does no harm there, not even with a driver that refuses to query an INSERT.
	upsert: upsert{
		returning: "/*M!100500 " + insert + " */ " + values + "1 = 0 /*M!100500 OR @@in_transaction = 1" + onDuplicate +
			" RETURNING " + returned + "{now} */",
		write: insert + " " + values + inTransaction + onDuplicate,
		read: "SELECT " + returned + serverKind + ", {now} FROM {table} WHERE series = {series} AND period = {period} AND " +
			inTransaction + " FOR UPDATE",
	},
	share: "SELECT calendar, closed " + gates + " LOCK IN SHARE MODE",
	lockGate: upsert{
		write: `INSERT INTO {gates} (series, calendar) SELECT {series}, {calendar} FROM DUAL WHERE ` + inTransaction + `
			ON DUPLICATE KEY UPDATE calendar = calendar`,
		read: "SELECT calendar, closed, " + serverKind + ", {now} " + gates + " AND " + inTransaction + " FOR UPDATE",
	},
	// With this order of joining, each row is found by its whole key. The limit keeps the order of the inner query.
	lockRows: "SELECT count(*) FROM (SELECT period AS label FROM {table} WHERE " + changing + " ORDER BY period " +
		noLimit + ") AS r STRAIGHT_JOIN {table} AS t FORCE INDEX (PRIMARY) ON t.series = {series} AND t.period = r.label " +
		"FOR UPDATE",
	seen: "SELECT concat_ws(' ', count(*), sum(last), max(period)) FROM {table} WHERE " + changing,
	// Both end at a row that changes, if there is one: a reading that went on to the end of the range would lock the
	// row behind it, which may be in use.
	present: "SELECT concat_ws(' ', count(*), sum(last), max(period)) FROM (SELECT period, last" + rowsInRange +
		" ORDER BY series, period LIMIT {limit} FOR UPDATE SKIP LOCKED) AS r",
	greatest: "SELECT period" + rowsInRange + " ORDER BY series DESC, period DESC LIMIT 1 FOR UPDATE SKIP LOCKED",
	// 64 labels fit into MySQL's default group_concat_max_len.
	list: "SELECT group_concat(period ORDER BY period) FROM (SELECT period FROM {table} WHERE " + changing +
		" ORDER BY period LIMIT 64) AS r",
	// With sql_safe_updates, an UPDATE is refused unless its WHERE clause finds the rows by a key.
	markRows: "UPDATE {table} FORCE INDEX (PRIMARY) SET closed = {end} WHERE series = {series} AND period IN ({labels})",
	server:   "SELECT " + serverKind,
}
