package sqlledger

import (
	"database/sql/driver"
	"errors"
	"regexp"
	"slices"
	"strings"
)

// A Dialect is the kind of database that contains the table of a [Ledger] or a [Register]. [New] and [NewRegister]
// cannot detect a wrong Dialect, because they do not access the database. But all methods that access it then fail, and
// their errors mention the Dialect.
type Dialect int

const (
	PostgreSQL Dialect = iota + 1 // 9.5 or later
	MySQL                         // MySQL 5.7 or later, MariaDB 10.2 or later
	SQLite                        // 3.35 or later
)

// postgresAgain contains PostgreSQL's error codes after which it is worth repeating a transaction: for a serialization
// failure, a deadlock, a lock_timeout, and for concurrent CREATE TABLE statements, which can fail in spite of IF NOT
// EXISTS.
var postgresAgain = []string{"40001", "40P01", "55P03", "23505", "42P07", "42710"}

// mysqlRolledBack matches the errors after which MySQL has rolled the transaction back: a deadlock, in the server or
// with another node of a Galera cluster (1213), and a conflict in group replication (3101). mysqlAgain also matches the
// errors for a row that was changed after it was read (1020) and for a lock wait timeout (1205). After these two
// errors, the transaction may still be open. Drivers have no common error type, but the messages of all drivers contain
// the code.
var (
	mysqlRolledBack = regexp.MustCompile(`(?i)\berror (1213|3101)\b`)
	mysqlAgain      = regexp.MustCompile(`(?i)\berror (1213|3101|1020|1205)\b`)
)

// again reports whether repeating the transaction may help after err. If committing is true, err comes from COMMIT. In
// this case, again returns true only if it is certain that nothing was committed. Otherwise the transaction is not
// repeated, and its block may become a gap.
func (d Dialect) again(err error, committing bool) bool {
	if errors.Is(err, driver.ErrBadConn) {
		return !committing
	}
	switch d {
	case PostgreSQL:
		return d.reports(err, nil, postgresAgain...)
	case MySQL:
		if committing {
			return mysqlRolledBack.MatchString(err.Error())
		}
		return mysqlAgain.MatchString(err.Error())
	default:
		// Every driver returns SQLite's own messages, such as "database is locked" and "database table is locked".
		return strings.Contains(err.Error(), "is locked")
	}
}

// otherShape matches MySQL's and SQLite's errors for a missing column or a missing key.
var otherShape = regexp.MustCompile(`(?i)\berror (1054|1176)\b|no column named|no such column|` +
	`ON CONFLICT clause does not match`)

// noTable matches MySQL's and SQLite's errors for a missing table.
var noTable = regexp.MustCompile(`(?i)\berror 1146\b|no such table`)

// unsupported matches the errors of all databases for a statement that the database does not support, usually because
// the Dialect is wrong. If PostgreSQL's messages are in another language, only the code (42601) of a syntax error and the
// names in the statement are in English.
var unsupported = regexp.MustCompile(`(?i)syntax error|\b42601\)|\berror 1064\b|no such function|pragma_database_list`)

// outdated reports whether err means that the table lacks a column or its primary key.
func (d Dialect) outdated(err error) bool { return d.reports(err, otherShape, "42703", "42P10") }

// missing reports whether err means that a table does not exist.
func (d Dialect) missing(err error) bool { return d.reports(err, noTable, "42P01") }

// reports reports whether err has one of the codes (PostgreSQL) or a message that matches text (other databases).
func (d Dialect) reports(err error, text *regexp.Regexp, codes ...string) bool {
	if d != PostgreSQL {
		return text.MatchString(err.Error())
	}
	var state interface{ SQLState() string } // implemented by the errors of pgx and lib/pq
	return errors.As(err, &state) && slices.Contains(codes, state.SQLState())
}
