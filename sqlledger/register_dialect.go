package sqlledger

import (
	"regexp"
	"strings"
)

// These are the tables that [Register.CreateTable] creates, with the default name, for programs that manage their schema
// themselves. A table may have more columns if they have defaults. All texts are compared byte by byte, and all instants are in
// UTC. at_most is the field Count, and explained_by and explained_at are By and At. The digest is of all fields; a row that
// another program adds may have any text that no other row has.
//
// Rows are for people to read, so the columns have the database's own types for texts and instants:
//
//	SELECT * FROM serial_explanations WHERE series = 'serial:IS' ORDER BY start, first
const (
	PostgreSQLRegisterSchema = `CREATE TABLE IF NOT EXISTS serial_explanations (
	series       text COLLATE "C" NOT NULL,
	type         text COLLATE "C" NOT NULL,
	start        timestamptz      NOT NULL,
	first        bigint           NOT NULL,
	last         bigint           NOT NULL,
	at_most      bigint           NOT NULL,
	reason       text COLLATE "C" NOT NULL,
	explained_by text COLLATE "C" NOT NULL,
	explained_at timestamptz      NOT NULL,
	unused       boolean          NOT NULL,
	digest       text COLLATE "C" NOT NULL,
	PRIMARY KEY (series, start, first, last, explained_at, digest)
)`

	MySQLRegisterSchema = `CREATE TABLE IF NOT EXISTS serial_explanations (
	series       varchar(255) NOT NULL,
	type         varchar(64)  NOT NULL,
	start        datetime     NOT NULL,
	first        bigint       NOT NULL,
	last         bigint       NOT NULL,
	at_most      bigint       NOT NULL,
	reason       varchar(500) NOT NULL,
	explained_by varchar(100) NOT NULL,
	explained_at datetime(6)  NOT NULL,
	unused       boolean      NOT NULL,
	digest       char(64)     NOT NULL,
	PRIMARY KEY (series, start, first, last, explained_at, digest)
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin`

	SQLiteRegisterSchema = `CREATE TABLE IF NOT EXISTS serial_explanations (
	series       TEXT    NOT NULL,
	type         TEXT    NOT NULL,
	start        TEXT    NOT NULL,
	first        INTEGER NOT NULL,
	last         INTEGER NOT NULL,
	at_most      INTEGER NOT NULL,
	reason       TEXT    NOT NULL,
	explained_by TEXT    NOT NULL,
	explained_at TEXT    NOT NULL,
	unused       INTEGER NOT NULL,
	digest       TEXT    NOT NULL,
	PRIMARY KEY (series, start, first, last, explained_at, digest)
) WITHOUT ROWID`
)

// registerStatements are those of a Register. In them, {table} stands for the quoted table, and other names in braces are
// arguments; see Register.arguments. Servers get texts in hexadecimal. list has the order of the primary key, so that a scan of
// its index need not be sorted.
type registerStatements struct {
	schema              string
	check, insert, list query
}

const (
	registerColumns = `series, type, start, first, last, at_most, reason, explained_by, explained_at, unused, digest`
	registerKey     = `series, start, first, last, explained_at, digest`
	registerCheck   = "SELECT " + registerColumns + " FROM {table} "
)

var registers = map[Dialect]registerStatements{
	PostgreSQL: {
		schema: PostgreSQLRegisterSchema,
		check:  query{text: registerCheck + "LIMIT 0"},
		insert: query{text: `INSERT INTO {table} (` + registerColumns + `) VALUES (
			convert_from(decode({series}::text, 'hex'), 'UTF8'), convert_from(decode({type}::text, 'hex'), 'UTF8'),
			{start}::text::timestamp AT TIME ZONE 'UTC', {first}::bigint, {last}::bigint, {most}::bigint,
			convert_from(decode({reason}::text, 'hex'), 'UTF8'), convert_from(decode({by}::text, 'hex'), 'UTF8'),
			{at}::text::timestamp AT TIME ZONE 'UTC', {unused}::boolean, {digest}::text)
			ON CONFLICT (` + registerKey + `) DO NOTHING`},
		list: query{text: `SELECT digest, convert_to(type, 'UTF8'), first, last, at_most, convert_to(reason, 'UTF8'),
			convert_to(explained_by, 'UTF8'), to_char(explained_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US'), unused
			FROM {table} WHERE series = convert_from(decode({series}::text, 'hex'), 'UTF8')
				AND start = {start}::text::timestamp AT TIME ZONE 'UTC'
			ORDER BY first, last, explained_at, digest`},
	},
	MySQL: {
		schema: MySQLRegisterSchema,
		// Without a key, insert would add the same explanation again.
		check: query{text: registerCheck + "FORCE INDEX (PRIMARY) LIMIT 0"},
		// With EMPTY_STRING_IS_NULL in MariaDB's sql_mode, an empty argument is NULL.
		insert: query{text: `INSERT INTO {table} (` + registerColumns + `) VALUES (
			UNHEX({series}), UNHEX({type}), {start}, {first}, {last}, {most}, UNHEX({reason}), coalesce(UNHEX({by}), X''), {at},
			{unused}, {digest})`},
		list: query{text: `SELECT digest, CAST(type AS BINARY), first, last, at_most, CAST(reason AS BINARY),
			CAST(explained_by AS BINARY), CAST(explained_at AS CHAR), unused
			FROM {table} WHERE series = CONVERT(UNHEX({series}) USING utf8mb4) COLLATE utf8mb4_bin AND start = {start}
			ORDER BY first, last, explained_at, digest`},
	},
	SQLite: {
		schema: SQLiteRegisterSchema,
		check:  query{text: registerCheck + "LIMIT 0"},
		insert: query{text: `INSERT INTO {table} (` + registerColumns + `) VALUES (
			{series}, {type}, {start}, {first}, {last}, {most}, {reason}, {by}, {at}, {unused}, {digest})
			ON CONFLICT (` + registerKey + `) DO NOTHING`},
		list: query{text: `SELECT digest, type, first, last, at_most, reason, explained_by, explained_at, unused
			FROM {table} WHERE series = {series} AND start = {start} ORDER BY first, last, explained_at, digest`},
	},
}

// mysqlDuplicate is MySQL's error for a row that is there already. It undoes the statement and not the transaction. INSERT IGNORE
// would ignore other errors too, and ON DUPLICATE KEY UPDATE takes a right to change rows.
var mysqlDuplicate = regexp.MustCompile(`(?i)\berror 1062\b.*\bPRIMARY\b`)

// forRegister returns the statements of d for a Register's table.
func (d Dialect) forRegister(name string) (s registerStatements, err error) {
	t, err := d.tableName(name)
	if err != nil {
		return s, err
	}
	s = registers[d]
	s.schema = strings.Replace(s.schema, defaultRegisterTable, t.quoted, 1)
	for _, q := range []*query{&s.check, &s.insert, &s.list} {
		*q = d.query(strings.ReplaceAll(q.text, "{table}", t.quoted))
	}
	return s, nil
}
