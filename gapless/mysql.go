package gapless

const (
	noLimit = "LIMIT 18446744073709551615" // the largest value that MySQL accepts

	// inTransaction is a condition that is true in a transaction. MariaDB has a variable for this. MySQL has none, and
	// ignores MariaDB's part as a comment, so only the argument checked counts there.
	inTransaction = "({checked} = 1 /*M! OR @@in_transaction = 1 */)"

	// serverKind is an expression for the kind of the server. MariaDB executes the content of the first comment. From
	// version 10.5 on, it also executes the content of the second comment. MySQL ignores both comments.
	serverKind = "/*M! 1 + */ /*M!100500 1 + */ 0"

	// The following constants are parts of the statements with which take inserts, updates and returns a row.
	insert      = "INSERT INTO {table} (series, period, mark, previous, last[, dated])"
	values      = "SELECT {series}, {period}, {mark}, 0, {first}[, {dated}] FROM DUAL WHERE "
	onDuplicate = " ON DUPLICATE KEY UPDATE mark = IF(last = 0, {mark}, mark), previous = last,[" +
		" dated_before = dated, dated = {dated},] last = GREATEST(last + {n}, IF(last = 0, {first}, {minimum}))"
	returned = "last, previous, mark, closed[, dated_before], "

	rowsInRange = " FROM {table} FORCE INDEX (PRIMARY) WHERE " + changing
)

// A server is a kind of server that executes the statements for MySQL. It is the result of the expression serverKind. A
// kind with a larger value supports everything that the kinds with smaller values support.
type server int32

const (
	mySQLServer server = iota // a savepoint is needed to find out whether there is a transaction
	mariaDB                   // a variable shows whether there is a transaction
	returning                 // MariaDB 10.5 or later, which supports INSERT … RETURNING
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
	// This is the time at which the statement began. If the statement itself waits for the row's lock, it is the time
	// before this wait.
	now: "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))",
	// MySQL evaluates assignments from left to right, so the column last has its old value until it is assigned. The
	// caller's LAST_INSERT_ID does not change, because the tables have no AUTO_INCREMENT. Without FOR UPDATE, a
	// transaction at REPEATABLE READ would see the row as it was when the transaction began to read.
	//
	// In the statement returning, the INSERT is in comments that only MariaDB 10.5 and later execute. For other servers,
	// the statement is a query that finds no row. So it has no effect there, and works even with a driver that rejects an
	// INSERT as a query.
	upsert: upsert{
		returning: "/*M!100500 " + insert + " */ " + values + "1 = 0 /*M!100500 OR @@in_transaction = 1" + onDuplicate +
			" RETURNING " + returned + "{now} */",
		write: insert + " " + values + inTransaction + onDuplicate,
		read: "SELECT " + returned + serverKind + ", {now} FROM {table} WHERE series = {series} AND period = {period} AND " +
			inTransaction + " FOR UPDATE",
	},
	share: "SELECT calendar, closed " + fromSeries + " LOCK IN SHARE MODE",
	lockSeriesRow: upsert{
		write: "INSERT INTO {series_table} (series, calendar) SELECT {series}, {calendar} FROM DUAL WHERE " +
			inTransaction + " ON DUPLICATE KEY UPDATE calendar = calendar",
		read: "SELECT calendar, closed, " + serverKind + ", {now} " + fromSeries + " AND " + inTransaction + " FOR UPDATE",
	},
	// Because the tables are joined in this order, the server finds and locks each row by its whole key. The LIMIT makes
	// the server keep the order of the inner query.
	lockRows: "SELECT count(*) FROM (SELECT period AS label FROM {table} WHERE " + changing + " ORDER BY period " +
		noLimit + ") AS r STRAIGHT_JOIN {table} AS t FORCE INDEX (PRIMARY) ON t.series = {series} AND t.period = r.label " +
		"FOR UPDATE",
	seen: "SELECT concat_ws(' ', count(*), sum(last), max(period)) FROM {table} WHERE " + changing,
	// The statements present and largest stop at a row that is to be changed, if there is one. If they read to the end of
	// the range, they would also lock the row after the range, which other transactions may be using.
	present: "SELECT concat_ws(' ', count(*), sum(last), max(period)) FROM (SELECT period, last" + rowsInRange +
		" ORDER BY series, period LIMIT {limit} FOR UPDATE SKIP LOCKED) AS r",
	largest: "SELECT period" + rowsInRange + " ORDER BY series DESC, period DESC LIMIT 1 FOR UPDATE SKIP LOCKED",
	// MySQL's default group_concat_max_len has room for 64 labels.
	list: "SELECT group_concat(period ORDER BY period) FROM (SELECT period FROM {table} WHERE " + changing +
		" ORDER BY period LIMIT 64) AS r",
	// With sql_safe_updates, the server rejects an UPDATE whose WHERE clause does not find the rows by a key.
	setClosedRows: "UPDATE {table} FORCE INDEX (PRIMARY) SET closed = {end} " +
		"WHERE series = {series} AND period IN ({labels})",
	server: "SELECT " + serverKind,
}
