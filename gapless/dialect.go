package gapless

import (
	"errors"
	"regexp"
	"slices"
	"strings"
)

// A Dialect is the kind of database that contains the tables. [New] cannot detect a wrong Dialect, because it does
// not access the database. But [Generator.CreateTable] and all calls that take numbers then fail, and their errors
// mention the Dialect.
type Dialect int

const (
	PostgreSQL Dialect = iota + 1 // 9.5 or later
	MySQL                         // MySQL 5.7 or later, MariaDB 10.2 or later
	SQLite                        // 3.35 or later
)

var dialects = map[Dialect]statements{PostgreSQL: postgreSQL, MySQL: mySQL, SQLite: sqlite}

// postgresAgain contains PostgreSQL's error codes after which it is worth repeating the creation of the tables.
// Concurrent CREATE TABLE statements can fail in spite of IF NOT EXISTS, and ADD COLUMN fails if another process has
// just added the column.
var postgresAgain = []string{"23505", "42P07", "42710", "42701"}

// mysqlAgain matches MySQL's errors for a deadlock, a lock wait timeout and a duplicate column. Drivers have no common
// error type, but the messages of all drivers contain the code.
var mysqlAgain = regexp.MustCompile(`(?i)\berror (1213|1205|1060)\b`)

// syntaxError matches MySQL's error for a statement that the server cannot parse, here because it does not support SKIP
// LOCKED.
var syntaxError = regexp.MustCompile(`(?i)\berror 1064\b`)

// unsupported matches the errors of all databases for a statement that the database does not support, usually because
// the Dialect is wrong. If PostgreSQL's messages are in another language, only the code (42601) of a syntax error and the
// names in the statement are in English.
var unsupported = regexp.MustCompile(`(?i)syntax error|\b42601\)|\berror 1064\b|no such function|to_regclass|` +
	`julianday|microsecond`)

// rowChanged matches MariaDB's error for a row that was changed after the transaction's snapshot was taken.
var rowChanged = regexp.MustCompile(`(?i)\berror 1020\b`)

// noSavepoint matches MySQL's error for a savepoint that does not exist.
var noSavepoint = regexp.MustCompile(`(?i)\berror 1305\b`)

// noTable matches the errors of MySQL and SQLite for a missing table.
var noTable = regexp.MustCompile(`(?i)\berror 1146\b|no such table`)

// missing reports whether err means that a table does not exist.
func (d Dialect) missing(err error) bool {
	if d != PostgreSQL {
		return noTable.MatchString(err.Error())
	}
	return hasState(err, "42P01")
}

// hasState reports whether err is an error of PostgreSQL with one of the given SQLSTATE codes.
func hasState(err error, codes ...string) bool {
	var state interface{ SQLState() string } // implemented by the errors of pgx and lib/pq
	return errors.As(err, &state) && slices.Contains(codes, state.SQLState())
}

// again reports whether repeating the creation of the tables may help after err.
func (d Dialect) again(err error) bool {
	switch d {
	case PostgreSQL:
		return hasState(err, postgresAgain...)
	case MySQL:
		return mysqlAgain.MatchString(err.Error())
	default:
		// Every driver returns SQLite's own messages, such as "database is locked" and "database table is locked".
		return strings.Contains(err.Error(), "is locked") || strings.Contains(err.Error(), "duplicate column name")
	}
}
