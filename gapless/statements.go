package gapless

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
)

// statements are the statements of one dialect. In them, {table} stands for the quoted table of periods, {gates} for
// the table of series, {this} and {name} for either one and its name, {now} for a reading of the clock, and {text} and
// {/text} enclose bytes that are read as text. Other names in braces are arguments:
//
//	series, period   what identifies a row
//	mark             calendar and print mark of the scheme
//	calendar         calendar of the scheme
//	n, first, least  what is added to last; what last becomes if nothing was taken from the row; what it becomes at least
//	checked          1 if it is known that there is a transaction, else 0
//	key, required    hash of the series, and whether its lock is required at SERIALIZABLE, too, 1 or 0
//	lower, upper     labels: the rows in question have greater ones than lower, up to upper
//	end              end of the last closed period in Unix seconds, NULL for none
//	labels           labels of rows
//	limit            how many rows
//	before           a label
//	dated            business date
//
// What is in brackets is only for generators with WithChronology.
type statements struct {
	create [2]string // create the two tables
	probe  [2]string // return no row, and fail if the table lacks a column
	exists string    // returns whether the table exists in any schema; empty if create looks in the same places
	flaw   string    // returns why the table is unfit, or "-" if it is fit; empty if nothing can be wrong
	tables [2]table  // forTable makes them from the above

	columns [2]column // that WithChronology needs, empty without it
	quote   string    // quotation mark around an identifier
	text    [2]string // what stands before and after bytes that are read as text; empty if drivers do that themselves
	now     string

	// update adds to a row of this mark that is not closed, which is the usual case, for less than an upsert costs. It
	// returns last and now, or nothing where an upsert is needed. It is empty in MySQL, where everyone who updates a
	// missing row locks the gap, and then nobody can fill it.
	update string

	// upsert adds to a row or inserts it, and returns last, previous, mark, closed and now. A row from which nothing
	// was taken has no mark yet. With dates, update and upsert return dated_before in front of now.
	upsert upsert

	// gate returns calendar and closed of the series' gate. It locks nothing.
	gate string

	// find is gate for those who take numbers. In PostgreSQL, it locks the gate in share mode. In MySQL, share does,
	// which is empty elsewhere: there a locking read of what is missing locks the gap.
	find, share string

	// newGate inserts the gate. If others do the same, it waits for them, and leaves theirs alone: who then locks it in
	// share mode is in nobody's way. It is empty except in PostgreSQL.
	newGate string

	// lockGate inserts the gate unless it exists, locks it exclusively, and returns calendar, closed and now.
	lockGate upsert

	// other returns the mark of another period from which numbers were taken.
	other string

	// lock acquires the advisory lock of the series until the transaction ends. lockShared acquires it in shared mode
	// and returns whether find may be used, or returns nothing and acquires nothing. Both are empty except in
	// PostgreSQL, where those who lock a row in share mode pass whoever waits to lock it exclusively.
	lock, lockShared string

	setEnd string // sets closed in the gate

	// mark sets closed in the rows that change. It is empty in MySQL, which does the same with the following.
	mark string

	// lockRows waits for the rows that change, locks them by their keys, and returns how many they are. seen returns
	// their number, the sum of their sequences and the last label, as the transaction's snapshot has them. present
	// returns the same for the first of them as they are now, up to limit, without those that others have locked, and
	// greatest the last label of all. list returns their first labels, and markRows sets closed in the rows with these.
	lockRows, seen, present, greatest, list, markRows string

	history string // returns period, mark and last of periods before one from which numbers were taken, newest first

	// last returns the gate's calendar, what other returns, and the period's mark and last, or NULL for what is
	// missing.
	last string

	undo   string // reverts what was added to a row
	server string // returns a server's kind; empty except in MySQL
	ask    string // returns now
	level  string // returns the level of isolation in PostgreSQL, and now
}

// A column has a statement that fails if the table of periods lacks it and else returns no row, and one that adds it.
type column struct{ probe, add string }

// A table has the statements of that name for one of the two tables.
type table struct{ create, probe, exists, flaw string }

// An upsert is a statement that writes a row and returns it. In MySQL, these are two: read follows write, and returns
// the kind of the server in front of now. Outside a transaction, they do nothing there unless checked is 1, and nothing
// at all if the server does not know. With returning, one statement is enough on servers that can do that. It reads the
// clock before it waits for the row's lock. Outside a transaction, and on other servers, it does nothing and returns no
// row.
type upsert struct{ returning, write, read string }

const (
	// After waiting for the row's lock, a transaction sees the row as it is then.
	update = "UPDATE {table} SET previous = last, last = last + {n}[, dated_before = dated, dated = {dated}] " +
		"WHERE series = {series} AND period = {period} AND mark = {mark} AND closed IS NULL " +
		"AND last > 0 AND last >= {least} RETURNING last[, dated_before], {now}"
	undo  = "UPDATE {table} SET last = previous[, dated = dated_before] WHERE series = {series} AND period = {period}"
	gates = "FROM {gates} WHERE series = {series}"
	other = "SELECT {text}mark{/text} FROM {table} WHERE series = {series} AND period <> {period} AND last > 0 " +
		"ORDER BY period LIMIT 1"
	last = "SELECT (SELECT {text}calendar{/text} " + gates + "), (" + other + "), " +
		"(SELECT {text}mark{/text} FROM {table} WHERE series = {series} AND period = {period}), " +
		"(SELECT last FROM {table} WHERE series = {series} AND period = {period})"
	// Labels of one calendar sort as their periods do. Whoever takes the first number of a row asks the gate.
	changing = "series = {series} AND period > {lower} AND period <= {upper} " +
		"AND (closed IS NULL) = ({end} IS NOT NULL) AND (last > 0 OR closed IS NOT NULL)"
	mark    = "UPDATE {table} SET closed = {end} WHERE " + changing
	setEnd  = "UPDATE {gates} SET closed = {end} WHERE series = {series}"
	history = "SELECT {text}period{/text}, {text}mark{/text}, last FROM {table} " +
		"WHERE series = {series} AND period < {before} AND last > 0 ORDER BY period DESC LIMIT {limit}"
)

// The columns hold dates such as 20261124: integers compare as the dates do, and no driver converts them to a time.Time
// or shifts them, as drivers do with dates.
var dateColumns = [2]column{
	{"SELECT dated FROM {table} WHERE 1 = 0", "ALTER TABLE {table} ADD COLUMN dated integer"},
	{"SELECT dated_before FROM {table} WHERE 1 = 0", "ALTER TABLE {table} ADD COLUMN dated_before integer"},
}

// optional is a part of a statement that is only for WithChronology.
var optional = regexp.MustCompile(`(?s)\[(.*?)\]`)

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,55}$`)

// forTable returns the statements of d for a table of periods with this name, and a table of series. They keep dates
// only if chronology is set.
func (d Dialect) forTable(name string, chronology bool) (s statements, err error) {
	s, ok := dialects[d]
	if !ok {
		return s, fmt.Errorf("gapless: there is no dialect %d; want PostgreSQL, MySQL or SQLite", int(d))
	}
	if !identifier.MatchString(name) {
		return s, fmt.Errorf("gapless: table %.80q: want 1 to 56 ASCII letters, digits and _, no digit first", name)
	}
	s.probe = [2]string{
		"SELECT series, period, mark, previous, last, closed[, dated, dated_before] FROM {this} WHERE 1 = 0",
		"SELECT series, calendar, closed FROM {this} WHERE 1 = 0",
	}
	s.gate = "SELECT {text}calendar{/text}, closed " + gates
	s.find = cmp.Or(s.find, s.gate)
	s.undo, s.other, s.history, s.last, s.ask = undo, other, history, last, "SELECT {now}"
	s.setEnd = cmp.Or(s.setEnd, setEnd)
	s.level = cmp.Or(s.level, "SELECT '-', {now}") // not '', which MariaDB may read as NULL
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
	replace := strings.NewReplacer("{table}", quoted(names[0]), "{gates}", quoted(names[1]), "{now}", s.now,
		"{text}", s.text[0], "{/text}", s.text[1])
	for _, statement := range []*string{&s.update, &s.upsert.returning, &s.upsert.write, &s.upsert.read, &s.gate, &s.find,
		&s.share, &s.newGate, &s.lockGate.write, &s.lockGate.read, &s.other, &s.lock, &s.lockShared, &s.setEnd, &s.mark,
		&s.lockRows, &s.seen, &s.present, &s.greatest, &s.list, &s.markRows, &s.history, &s.last, &s.undo, &s.ask, &s.level,
		&s.columns[0].probe, &s.columns[0].add, &s.columns[1].probe, &s.columns[1].add} {
		*statement = optional.ReplaceAllString(replace.Replace(*statement), part)
	}
	return s, nil
}
