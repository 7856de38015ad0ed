package gapless

import (
	"errors"
	"regexp"
	"slices"
	"strings"
)

// A Dialect is the kind of database that holds the tables.
type Dialect int

const (
	PostgreSQL Dialect = iota + 1 // 9.5 or later
	MySQL                         // MySQL 5.7 or later, MariaDB 10.2 or later
	SQLite                        // 3.35 or later
)

var dialects = map[Dialect]statements{PostgreSQL: postgreSQL, MySQL: mySQL, SQLite: sqlite}

// postgresAgain are the errors that some of several simultaneous CREATE TABLE get in spite of IF NOT EXISTS, and the
// one for a column that another process has just added.
var postgresAgain = []string{"23505", "42P07", "42710", "42701"}

// mysqlAgain matches the errors for a deadlock, for a lock wait timeout and for a column that exists. Drivers share
// no type for errors, but all print the number.
var mysqlAgain = regexp.MustCompile(`(?i)\berror (1213|1205|1060)\b`)

// syntaxError is the error of a server that does not know SKIP LOCKED.
var syntaxError = regexp.MustCompile(`(?i)\berror 1064\b`)

// recordChanged is MariaDB's error for a row that is newer than the transaction's snapshot.
var recordChanged = regexp.MustCompile(`(?i)\berror 1020\b`)

// noSavepoint is MySQL's error for a savepoint that does not exist.
var noSavepoint = regexp.MustCompile(`(?i)\berror 1305\b`)

// noTable matches the errors of MySQL and SQLite for a table that does not exist.
var noTable = regexp.MustCompile(`(?i)\berror 1146\b|no such table`)

// missing reports whether a table does not exist.
func (d Dialect) missing(err error) bool {
	if d != PostgreSQL {
		return noTable.MatchString(err.Error())
	}
	return hasState(err, "42P01")
}

// hasState reports whether an error of PostgreSQL has one of the codes.
func hasState(err error, codes ...string) bool {
	var state interface{ SQLState() string } // pgx's errors and lib/pq's have it
	return errors.As(err, &state) && slices.Contains(codes, state.SQLState())
}

// again reports whether creating the table once more may help.
func (d Dialect) again(err error) bool {
	switch d {
	case PostgreSQL:
		return hasState(err, postgresAgain...)
	case MySQL:
		return mysqlAgain.MatchString(err.Error())
	default:
		// SQLite's own words are the same in every driver: "database is locked", "database table is locked".
		return strings.Contains(err.Error(), "is locked") || strings.Contains(err.Error(), "duplicate column name")
	}
}
