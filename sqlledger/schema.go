package sqlledger

import (
	"fmt"
	"regexp"
	"strings"
)

// These statements create the table of a Ledger with its default name, as [Ledger.CreateTable] does. They are for
// programs that manage their schema themselves. A table may have additional columns if these have defaults. Do not
// change the types of the columns: names are stored as bytes, because a comparison of text may treat "IS" as equal to
// "is" or to "IS ".
//
// In the row of a period, the column settings contains the print mark. Each series has one additional row with an empty
// period. In this row, settings contains the calendar.
//
// In PostgreSQL, SELECT convert_from(series, 'UTF8'), last FROM serial_ledger shows the table as text. In other
// databases, the columns can be read without conversion.
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

// A tableName contains the name of a table in the forms that the statements need.
type tableName struct {
	quoted string // quoted, with the schema if the name has one
	name   string // without the schema
	in     string // MySQL expression for the schema
}

// tableName parses and checks the name of a table. The name may include a schema, except on SQLite, where a schema is
// another file.
func (d Dialect) tableName(name string) (t tableName, err error) {
	s, ok := dialects[d]
	if !ok {
		return t, fmt.Errorf("sqlledger: there is no dialect %d; want PostgreSQL, MySQL or SQLite", int(d))
	}
	path := strings.Split(name, ".")
	for _, part := range path {
		if !identifier.MatchString(part) || len(path) > 2 || len(path) == 2 && d == SQLite {
			return t, fmt.Errorf("sqlledger: table %q: want 1 to 63 ASCII letters, digits and _, and no digit at the "+
				"beginning; on PostgreSQL and MySQL, a schema of the same form and a dot may precede the name", name)
		}
	}
	t = tableName{name: name, in: "DATABASE()"}
	if len(path) == 2 {
		t.in, t.name = "'"+path[0]+"'", path[1]
	}
	if d == SQLite {
		path = []string{"main", name} // prevents the use of a temporary table with the same name
	}
	t.quoted = s.quote + strings.Join(path, s.quote+"."+s.quote) + s.quote
	return t, nil
}
