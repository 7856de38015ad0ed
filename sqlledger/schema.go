package sqlledger

import (
	"fmt"
	"regexp"
	"strings"
)

// These are the tables that [Ledger.CreateTable] creates, with the default name, for programs that manage their schema
// themselves. A table may have more columns if they have defaults. The types must stay: names are bytes, because a
// comparison of text may treat "IS" as equal to "is" or to "IS ".
//
// A period's row has its print mark in the column settings. Each series has one more row, whose period is empty: its
// settings are the calendar.
//
// To read a table in PostgreSQL: SELECT convert_from(series, 'UTF8'), last FROM serial_ledger. Elsewhere no conversion
// is needed.
const (
	PostgreSQLSchema = `CREATE TABLE IF NOT EXISTS serial_ledger (
	series      bytea       NOT NULL,
	period      bytea       NOT NULL,
	settings    bytea       NOT NULL,
	last        bigint      NOT NULL,
	reserved_at timestamptz NOT NULL,
	PRIMARY KEY (series, period)
)`

	MySQLSchema = `CREATE TABLE IF NOT EXISTS serial_ledger (
	series      varbinary(255) NOT NULL,
	period      varbinary(64)  NOT NULL,
	settings    varbinary(64)  NOT NULL,
	last        bigint         NOT NULL,
	reserved_at datetime(6)    NOT NULL,
	PRIMARY KEY (series, period)
) ENGINE = InnoDB`

	SQLiteSchema = `CREATE TABLE IF NOT EXISTS serial_ledger (
	series      BLOB    NOT NULL,
	period      BLOB    NOT NULL,
	settings    BLOB    NOT NULL,
	last        INTEGER NOT NULL,
	reserved_at TEXT    NOT NULL,
	PRIMARY KEY (series, period)
) WITHOUT ROWID`
)

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,62}$`)

// A tableName is a table's name in the forms that statements need.
type tableName struct {
	quoted string // with its schema, if given
	name   string // without its schema
	in     string // its schema as an expression in MySQL
}

// tableName returns the forms of a table's name. The name may begin with a schema, but not in SQLite, where a schema is
// another file.
func (d Dialect) tableName(name string) (t tableName, err error) {
	s, ok := dialects[d]
	if !ok {
		return t, fmt.Errorf("sqlledger: there is no dialect %d", int(d))
	}
	path := strings.Split(name, ".")
	for _, part := range path {
		if !identifier.MatchString(part) || len(path) > 2 || len(path) == 2 && d == SQLite {
			return t, fmt.Errorf("sqlledger: table %q: want 1 to 63 ASCII letters, digits and _, no digit first, "+
				"and in PostgreSQL and MySQL a schema of the same kind before it and a dot", name)
		}
	}
	t = tableName{name: name, in: "DATABASE()"}
	if len(path) == 2 {
		t.in, t.name = "'"+path[0]+"'", path[1]
	}
	if d == SQLite {
		path = []string{"main", name} // not a temporary table of the same name
	}
	t.quoted = s.quote + strings.Join(path, s.quote+"."+s.quote) + s.quote
	return t, nil
}
