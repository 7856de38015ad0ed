package sqlledger

import (
	"regexp"
	"strings"
)

// These statements create the table of a Register with its default name, as [Register.CreateTable] does. They are for
// programs that manage their schema themselves. A table may have additional columns if these have defaults. All strings
// are compared byte by byte, and all instants are in UTC. The columns explained_by and explained_at contain the fields
// By and At. The column recorded_at contains the time of the database's clock when the row was written. The column
// digest contains a hash of all fields.
//
// Other programs may add rows. They must set digest to any unique string, and recorded_at to the current time, which is
// clock_timestamp() on PostgreSQL, UTC_TIMESTAMP(6) on MySQL, and strftime('%Y-%m-%d %H:%M:%f', 'now') on SQLite.
//
// The table is meant to be read by people, so the columns have the database's own types for strings and instants:
//
//	SELECT * FROM serial_explanations WHERE series = 'serial:IS' ORDER BY start, recorded_at
const (
	PostgreSQLRegisterSchema = `CREATE TABLE IF NOT EXISTS serial_explanations (
	series       text COLLATE "C" NOT NULL,
	type         text COLLATE "C" NOT NULL,
	start        timestamptz      NOT NULL,
	first        bigint           NOT NULL,
	last         bigint           NOT NULL,
	reason       text COLLATE "C" NOT NULL,
	explained_by text COLLATE "C" NOT NULL,
	explained_at timestamptz      NOT NULL,
	unused       boolean          NOT NULL,
	possible     boolean          NOT NULL,
	recorded_at  timestamptz      NOT NULL,
	digest       text COLLATE "C" NOT NULL,
	PRIMARY KEY (series, start, digest)
)`

	MySQLRegisterSchema = `CREATE TABLE IF NOT EXISTS serial_explanations (
	series       varchar(255) NOT NULL,
	type         varchar(64)  NOT NULL,
	start        datetime     NOT NULL,
	first        bigint       NOT NULL,
	last         bigint       NOT NULL,
	reason       varchar(500) NOT NULL,
	explained_by varchar(100) NOT NULL,
	explained_at datetime(6)  NOT NULL,
	unused       boolean      NOT NULL,
	possible     boolean      NOT NULL,
	recorded_at  datetime(6)  NOT NULL,
	digest       char(64)     NOT NULL,
	PRIMARY KEY (series, start, digest)
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin`

	SQLiteRegisterSchema = `CREATE TABLE IF NOT EXISTS serial_explanations (
	series       TEXT    NOT NULL,
	type         TEXT    NOT NULL,
	start        TEXT    NOT NULL,
	first        INTEGER NOT NULL,
	last         INTEGER NOT NULL,
	reason       TEXT    NOT NULL,
	explained_by TEXT    NOT NULL,
	explained_at TEXT    NOT NULL,
	unused       INTEGER NOT NULL,
	possible     INTEGER NOT NULL,
	recorded_at  TEXT    NOT NULL,
	digest       TEXT    NOT NULL,
	PRIMARY KEY (series, start, digest)
) WITHOUT ROWID`
)

// registerStatements contains the statements of a Register. In their texts, {table} stands for the quoted table. Other
// names in braces are arguments; see Register.arguments. Strings are sent to servers, and returned by them, in
// hexadecimal.
type registerStatements struct {
	schema              string
	check, insert, list query
	all                 query // list without the condition that follows {and}
}

const (
	registerColumns = `series, type, start, first, last, reason, explained_by, explained_at, unused, possible, digest,
		recorded_at`
	registerKey   = `series, start, digest`
	registerOrder = " ORDER BY recorded_at, explained_at, first, last, digest"
	registerCheck = "SELECT " + registerColumns + " FROM {table} "
)

var registers = map[Dialect]registerStatements{
	PostgreSQL: {
		schema: PostgreSQLRegisterSchema,
		check:  query{text: registerCheck + "LIMIT 0"},
		// now() would return the time at which the transaction began.
		insert: query{text: `INSERT INTO {table} (` + registerColumns + `) VALUES (
			convert_from(decode({series}::text, 'hex'), 'UTF8'), convert_from(decode({type}::text, 'hex'), 'UTF8'),
			{start}::text::timestamp AT TIME ZONE 'UTC', {first}::bigint, {last}::bigint,
			convert_from(decode({reason}::text, 'hex'), 'UTF8'), convert_from(decode({by}::text, 'hex'), 'UTF8'),
			{at}::text::timestamp AT TIME ZONE 'UTC', {unused}::boolean, {possible}::boolean, {digest}::text,
			clock_timestamp())
			ON CONFLICT (` + registerKey + `) DO NOTHING`},
		list: query{text: `SELECT digest, to_char(start AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS'),
			encode(convert_to(type, 'UTF8'), 'hex'), first, last,
			encode(convert_to(reason, 'UTF8'), 'hex'), encode(convert_to(explained_by, 'UTF8'), 'hex'),
			to_char(explained_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US'), unused, possible
			FROM {table} WHERE series = convert_from(decode({series}::text, 'hex'), 'UTF8')
				{and} start = {start}::text::timestamp AT TIME ZONE 'UTC'` + registerOrder},
	},
	MySQL: {
		schema: MySQLRegisterSchema,
		// FORCE INDEX fails if the table has no primary key. Without the key, insert could add the same explanation twice.
		check: query{text: registerCheck + "FORCE INDEX (PRIMARY) LIMIT 0"},
		// If MariaDB's sql_mode contains EMPTY_STRING_IS_NULL, an empty argument becomes NULL.
		insert: query{text: `INSERT INTO {table} (` + registerColumns + `) VALUES (
			UNHEX({series}), coalesce(UNHEX({type}), X''), {start}, {first}, {last},
			UNHEX({reason}), coalesce(UNHEX({by}), X''), {at},
			{unused}, {possible}, {digest}, UTC_TIMESTAMP(6))`},
		list: query{text: `SELECT digest, CAST(start AS CHAR), hex(type), first, last, hex(reason), hex(explained_by),
			CAST(explained_at AS CHAR),
			unused, possible
			FROM {table} WHERE series = CONVERT(UNHEX({series}) USING utf8mb4) COLLATE utf8mb4_bin
				{and} start = {start}` + registerOrder},
	},
	SQLite: {
		schema: SQLiteRegisterSchema,
		check:  query{text: registerCheck + "LIMIT 0"},
		insert: query{text: `INSERT INTO {table} (` + registerColumns + `) VALUES (
			{series}, {type}, {start}, {first}, {last}, {reason}, {by}, {at}, {unused}, {possible}, {digest},
			strftime('%Y-%m-%d %H:%M:%f', 'now'))
			ON CONFLICT (` + registerKey + `) DO NOTHING`},
		list: query{text: `SELECT digest, start, type, first, last, reason, explained_by, explained_at, unused, possible
			FROM {table} WHERE series = {series} {and} start = {start}` + registerOrder},
	},
}

// mysqlDuplicate matches MySQL's error for a row that exists already. This error undoes only the statement, so the
// transaction can continue. The statement is not an INSERT IGNORE, which would also hide other errors. ON DUPLICATE KEY
// UPDATE is not used, because it needs the right to change rows.
var mysqlDuplicate = regexp.MustCompile(`(?i)\berror 1062\b.*\bPRIMARY\b`)

// forRegister returns the statements of d for a Register with the given table name.
func (d Dialect) forRegister(name string) (s registerStatements, err error) {
	t, err := d.tableName(name)
	if err != nil {
		return s, err
	}
	s = registers[d]
	s.schema = strings.Replace(s.schema, defaultRegisterTable, t.quoted, 1)
	before, condition, _ := strings.Cut(s.list.text, "{and}")
	s.list.text = before + "AND" + condition
	s.all.text = before + registerOrder
	for _, q := range []*query{&s.check, &s.insert, &s.list, &s.all} {
		*q = d.query(strings.ReplaceAll(q.text, "{table}", t.quoted))
	}
	return s, nil
}
