package gapless

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
)

// statements contains the statements of one dialect. Names in braces are replaced. Some of them stand for parts of a
// statement:
//
//	{table}          quoted name of the table of periods
//	{series_table}   quoted name of the table of series
//	{this}, {name}   name of either table, quoted and unquoted
//	{now}            expression for the current time of the database's clock
//	{text}, {/text}  SQL before and after an expression whose bytes are to be read as text
//
// The other names stand for arguments:
//
//	series, period     key of a row
//	mark               calendar and print mark of the scheme
//	calendar           calendar of the scheme
//	n, first, minimum  increment of last; new value of last if the row has no numbers yet; minimum of last otherwise
//	checked            1 if a savepoint has shown that there is a transaction, otherwise 0
//	key, required      hash of the series; 1 if its lock is also required at SERIALIZABLE, otherwise 0
//	lower, upper       bounds of the labels: greater than lower, and at most upper
//	end                end of the last closed period in Unix seconds, or NULL if none is closed
//	labels             labels of rows
//	limit              maximum number of rows
//	before             upper bound of the labels, exclusive
//	dated              business date
//
// A part in brackets is used only with WithChronology.
type statements struct {
	create [2]string // statements that create the two tables
	probe  [2]string // queries that return no row, and fail if the table lacks a column
	exists string    // query for whether the table exists in any schema; empty if create checks this itself
	flaw   string    // query for why the table is unsuitable, with the result "-" if it is suitable; "" for none
	tables [2]table  // the statements above with the name of each table, set by forTable

	columns [2]column // additional columns for WithChronology; empty without it
	quote   string    // quotation mark around an identifier
	text    [2]string // replacements of {text} and {/text}; empty if drivers convert bytes to strings
	now     string    // replacement of {now}

	// update adds n to last in a row that has the mark and is not closed. This is the usual case, and update costs less
	// than upsert. It returns last and now. If it returns no row, upsert is needed. It is empty for MySQL, where an UPDATE
	// of a missing row locks the gap in the index to which the row belongs. If several transactions had such a lock, none
	// of them could insert the row.
	update string

	// upsert adds n to last in a row, or inserts the row. It returns last, previous, mark, closed and now. If no number
	// was taken from the row yet, it sets the mark. With WithChronology, update and upsert also return dated_before, in
	// front of now.
	upsert upsert

	// seriesRow returns calendar and closed from the series' row. It locks nothing.
	seriesRow string

	// find does what seriesRow does, for callers that take numbers. On PostgreSQL, it also locks the row in share mode. On
	// MySQL, share locks the row after find has shown that it exists, because a locking read of a missing row would lock
	// the gap. For the other dialects, share is empty.
	find, share string

	// newSeriesRow inserts the series' row. If another transaction is inserting it, newSeriesRow waits for that
	// transaction, and then leaves the row unchanged. So the caller can lock the row in share mode, without blocking other
	// callers. It is empty except for PostgreSQL.
	newSeriesRow string

	// lockSeriesRow inserts the series' row if it does not exist, locks it exclusively, and returns calendar, closed and
	// now.
	lockSeriesRow upsert

	// other returns the mark of another period of the series than the given one. Numbers were taken in this other period.
	other string

	// lock acquires the advisory lock of the series until the transaction ends. lockShared acquires it in shared mode, and
	// returns whether find may be used. At SERIALIZABLE, lockShared acquires it only if required is 1, and otherwise
	// returns no row. Both are empty except for PostgreSQL. There they are needed because a transaction that locks a row
	// in share mode can overtake a transaction that is waiting to lock it exclusively.
	lock, lockShared string

	setEnd string // sets closed in the series' row

	// setClosed sets closed in the rows to be closed or reopened. It is empty for MySQL, where the following statements do
	// this.
	setClosed string

	// lockRows locks the rows that are about to be closed or reopened, by their keys, and returns their number. It waits
	// for other transactions that have locked them. seen returns the number of these rows, the sum of their sequences and
	// their largest label in the transaction's snapshot. present returns the same from the current state of the table, for
	// at most limit rows. It skips rows that other transactions have locked. largest returns the largest label of all
	// these rows. list returns their smallest labels, separated by commas, and setClosedRows sets closed in the rows with
	// these labels.
	lockRows, seen, present, largest, list, setClosedRows string

	// history returns period, mark and last of all periods that are before a label and in which numbers were taken, newest
	// first.
	history string

	// last returns four values: the calendar from the series' row, the result of other, and mark and last from the
	// period's row. A value is NULL if its row does not exist.
	last string

	undo   string // reverts update or upsert in a row
	server string // returns the kind of the server; empty except for MySQL
	ask    string // returns now
	level  string // returns the isolation level ("-" except on PostgreSQL) and now
}

// A column contains the statements for a column of the table of periods. probe returns no row, and fails if the column
// is missing. add adds the column.
type column struct{ probe, add string }

// A table contains the statements for one of the two tables. They have the same names as in statements.
type table struct{ create, probe, exists, flaw string }

// An upsert writes a row and returns it. On most dialects, the statement read does both. On MySQL, the statement write
// writes the row, and read returns it with the kind of the server in front of now. MySQL cannot show whether there is a
// transaction. So if the argument checked is 0, write and read have an effect only in a transaction on MariaDB.
//
// On MariaDB 10.5 and later, the statement returning does both. It reads the clock before it waits for the row's lock.
// Outside a transaction, and on other servers, it has no effect and returns no row.
type upsert struct{ returning, write, read string }

const (
	// If the statement has to wait for the row's lock, it uses the values that the row has after the wait.
	update = "UPDATE {table} SET previous = last, last = last + {n}[, dated_before = dated, dated = {dated}] " +
		"WHERE series = {series} AND period = {period} AND mark = {mark} AND closed IS NULL " +
		"AND last > 0 AND last >= {minimum} RETURNING last[, dated_before], {now}"
	undo       = "UPDATE {table} SET last = previous[, dated = dated_before] WHERE series = {series} AND period = {period}"
	fromSeries = "FROM {series_table} WHERE series = {series}"
	other      = "SELECT {text}mark{/text} FROM {table} WHERE series = {series} AND period <> {period} AND last > 0 " +
		"ORDER BY period LIMIT 1"
	last = "SELECT (SELECT {text}calendar{/text} " + fromSeries + "), (" + other + "), " +
		"(SELECT {text}mark{/text} FROM {table} WHERE series = {series} AND period = {period}), " +
		"(SELECT last FROM {table} WHERE series = {series} AND period = {period})"
	// Labels of one calendar sort in the order of their periods. Rows without numbers are left out, because a caller that
	// takes the first number of a row checks the series' row.
	changing = "series = {series} AND period > {lower} AND period <= {upper} " +
		"AND (closed IS NULL) = ({end} IS NOT NULL) AND (last > 0 OR closed IS NOT NULL)"
	setClosed = "UPDATE {table} SET closed = {end} WHERE " + changing
	setEnd    = "UPDATE {series_table} SET closed = {end} WHERE series = {series}"
	history   = "SELECT {text}period{/text}, {text}mark{/text}, last FROM {table} " +
		"WHERE series = {series} AND period < {before} AND last > 0 ORDER BY period DESC LIMIT {limit}"
)

// The columns contain dates as integers such as 20261124, which sort in the order of the dates. With the type DATE,
// some drivers would convert a date to a time.Time, or shift it to another time zone.
var dateColumns = [2]column{
	{"SELECT dated FROM {table} WHERE 1 = 0", "ALTER TABLE {table} ADD COLUMN dated integer"},
	{"SELECT dated_before FROM {table} WHERE 1 = 0", "ALTER TABLE {table} ADD COLUMN dated_before integer"},
}

// optional matches a part of a statement that is used only with WithChronology.
var optional = regexp.MustCompile(`(?s)\[(.*?)\]`)

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,55}$`)

// forTable returns the statements of d for a table of periods with the given name, and for its table of series. They
// store dates only if chronology is true.
func (d Dialect) forTable(name string, chronology bool) (s statements, err error) {
	s, ok := dialects[d]
	if !ok {
		return s, fmt.Errorf("gapless: there is no dialect %d; want PostgreSQL, MySQL or SQLite", int(d))
	}
	if !identifier.MatchString(name) {
		return s, fmt.Errorf("gapless: table %.80q: want 1 to 56 ASCII letters, digits and _, and no digit at the beginning",
			name)
	}
	s.probe = [2]string{
		"SELECT series, period, mark, previous, last, closed[, dated, dated_before] FROM {this} WHERE 1 = 0",
		"SELECT series, calendar, closed FROM {this} WHERE 1 = 0",
	}
	s.seriesRow = "SELECT {text}calendar{/text}, closed " + fromSeries
	s.find = cmp.Or(s.find, s.seriesRow)
	s.undo, s.other, s.history, s.last, s.ask = undo, other, history, last, "SELECT {now}"
	s.setEnd = cmp.Or(s.setEnd, setEnd)
	s.level = cmp.Or(s.level, "SELECT '-', {now}") // not '', which MariaDB can treat as NULL
	part := ""
	if chronology {
		part, s.columns = "$1", dateColumns
	}
	quoted := func(name string) string { return s.quote + name + s.quote }
	names := [2]string{name, name + "_series"}
	for i, name := range names {
		replace := strings.NewReplacer("{this}", quoted(name), "{name}", name).Replace
		create, probe := optional.ReplaceAllString(s.create[i], part), optional.ReplaceAllString(s.probe[i], part)
		s.tables[i] = table{replace(create), replace(probe), replace(s.exists), replace(s.flaw)}
	}
	replace := strings.NewReplacer("{table}", quoted(names[0]), "{series_table}", quoted(names[1]), "{now}", s.now,
		"{text}", s.text[0], "{/text}", s.text[1])
	for _, statement := range []*string{&s.update, &s.upsert.returning, &s.upsert.write, &s.upsert.read, &s.seriesRow,
		&s.find, &s.share, &s.newSeriesRow, &s.lockSeriesRow.write, &s.lockSeriesRow.read, &s.other, &s.lock, &s.lockShared,
		&s.setEnd, &s.setClosed, &s.lockRows, &s.seen, &s.present, &s.largest, &s.list, &s.setClosedRows, &s.history,
		&s.last, &s.undo, &s.ask, &s.level, &s.columns[0].probe, &s.columns[0].add, &s.columns[1].probe,
		&s.columns[1].add} {
		*statement = optional.ReplaceAllString(replace.Replace(*statement), part)
	}
	return s, nil
}
