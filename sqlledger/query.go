package sqlledger

import (
	"database/sql"
	"encoding/hex"
	"regexp"
	"strconv"
	"strings"
)

// A query is the text of a statement and the names of its arguments in the order of the placeholders.
type query struct {
	text string
	args []string
}

// arguments maps the names of a query's arguments to values.
type arguments map[string]any

// bind returns the values of the query's arguments in the order of the placeholders.
func (q query) bind(a arguments) []any {
	values := make([]any, len(q.args))
	for i, name := range q.args {
		values[i] = a[name]
	}
	return values
}

var argument = regexp.MustCompile(`\{[a-z]+\}`)

// query replaces the arguments in text, which are names in braces, by the placeholders of the dialect.
func (d Dialect) query(text string) (q query) {
	q.text = argument.ReplaceAllStringFunc(text, func(arg string) string {
		if q.args = append(q.args, strings.Trim(arg, "{}")); d == PostgreSQL {
			return "$" + strconv.Itoa(len(q.args))
		}
		return "?"
	})
	return q
}

// A hexText is a string that the database returns in hexadecimal. Otherwise it could arrive changed, because the
// connection may have another character set or, on PostgreSQL, a format of bytea that its driver cannot read. NULL
// becomes "".
type hexText string

// Scan implements [sql.Scanner].
func (t *hexText) Scan(column any) error {
	var digits sql.NullString
	if err := digits.Scan(column); err != nil {
		return err
	}
	text, err := hex.DecodeString(digits.String)
	*t = hexText(text)
	return err
}
