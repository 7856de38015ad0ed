package sqlledger

import (
	"database/sql"
	"encoding/hex"
	"regexp"
	"strconv"
	"strings"
)

// A query is a statement and the names of its arguments, in order.
type query struct {
	text string
	args []string
}

// arguments maps the names of a query's arguments to values.
type arguments map[string]any

func (q query) bind(a arguments) []any {
	values := make([]any, len(q.args))
	for i, name := range q.args {
		values[i] = a[name]
	}
	return values
}

var argument = regexp.MustCompile(`\{[a-z]+\}`)

// query parses a query whose arguments are in braces.
func (d Dialect) query(text string) (q query) {
	q.text = argument.ReplaceAllStringFunc(text, func(arg string) string {
		if q.args = append(q.args, strings.Trim(arg, "{}")); d == PostgreSQL {
			return "$" + strconv.Itoa(len(q.args))
		}
		return "?"
	})
	return q
}

// A hexText is a text that the database returns in hexadecimal, because a connection may have another character set or,
// in PostgreSQL, a form of bytes that its driver cannot read. NULL is "".
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
